"""Any machine document and any set of parameters either plans or explains; nothing raises."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kt_tui.errors import KtError
from kt_tui.hardware import Machine, machine_from_json
from kt_tui.hardware.machine import Cpu, Gpu, Memory, NumaNode
from kt_tui.launch.schema import SCHEMA

JUNK = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.lists(st.integers(), max_size=3)
    | st.dictionaries(st.text(max_size=4), st.integers(), max_size=2)
)
SIZES = st.integers(0, 1 << 41)


def record(cls: type, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Documents with some of a dataclass's keys, mostly right, sometimes junk."""
    fields = list(cls.__dataclass_fields__)
    return st.fixed_dictionaries({}, optional={name: known.get(name, JUNK) | JUNK for name in fields})


CPU = record(Cpu, usable_physical_cores=st.integers(0, 4096), isa=st.lists(st.sampled_from(["avx2", "sve"])))
MEMORY = record(Memory, total=SIZES, available=SIZES, limit=SIZES)
NODES = st.lists(
    record(NumaNode, id=st.integers(0, 8), cpus=st.lists(st.integers(0, 64), max_size=4)), max_size=3
)
GPUS = st.lists(record(Gpu, index=st.integers(0, 8), memory_total=SIZES, memory_free=SIZES), max_size=2)
MACHINES = st.fixed_dictionaries(
    {"cpu": CPU | JUNK},
    optional={
        "memory": MEMORY | JUNK,
        "numa": st.fixed_dictionaries({"nodes": NODES | JUNK}) | JUNK,
        "gpus": GPUS | JUNK,
        "limits": JUNK,
        "notes": st.lists(st.text(max_size=10), max_size=2) | JUNK,
    },
)
VALUES = JUNK | st.integers(-1, 1 << 33) | st.sampled_from(["auto", "cuda", "0.0.0.0", "::1", "1", "-5", "x"])  # noqa: S104
OPTIONS = st.dictionaries(
    st.sampled_from([parameter.name for parameter in SCHEMA]) | st.text(max_size=5), VALUES, max_size=6
)

QUICK = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(document=MACHINES)
def test_any_machine_document_reads_and_reads_back(document: dict[str, Any]) -> None:
    machine = machine_from_json(document)
    again = machine_from_json(json.loads(json.dumps(machine.to_json())))
    assert again == machine


@QUICK
@given(document=MACHINES | JUNK, options=OPTIONS, extra=st.lists(st.text(max_size=8), max_size=3))
def test_any_machine_and_options_plan_or_explain(
    plan: Any, document: Any, options: dict[str, Any], extra: Any
) -> None:
    try:
        machine = machine_from_json(document)
    except KtError:
        machine = Machine()
    result = plan(options, machine=machine, extra=extra)
    shown = json.loads(json.dumps(result.to_json()))
    assert shown["argv"][len(shown["argv"]) - len(extra) :] == list(extra)
    for name, value in options.items():
        # What a user gave is used as given, or spoken against; it never just vanishes.
        if value is not None and name != "model-path":
            used = result.parameters.get(name)
            assert used is not None or any(error.parameter == name for error in result.errors)
            assert used is None or used.origin == "cli"
    if result.fits is False:
        assert any(error.prediction for error in result.errors)
