"""Whatever is missing, cut short or garbled in a machine's files: it is shown, and never with a traceback."""

import json
import random
import tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kt_tui.cli.main import main
from tests.machines.describe import GIB, X86, Described, gpu_document, gpu_row, machine_files, write_files

MACHINE = Described("CPU", X86, 2, 2, 2, 64 * GIB, 48 * GIB, memory_nodes=(8 * GIB,))
FILES = machine_files(MACHINE) | {
    "/sys/fs/cgroup/user.slice/memory.max": f"{32 * GIB}\n",
    "/sys/fs/cgroup/user.slice/cpu.max": "300000 100000\n",
    "/sys/bus/pci/devices/0000:c3:00.0/class": "0x030000\n",
    "/sys/bus/pci/devices/0000:c3:00.0/vendor": "0x1002\n",
}
GPUS = json.dumps(gpu_document(gpu_row(0, "GPU", 24 * GIB, (8, 9), 0)))


def damage(text: str, how: str, chance: random.Random) -> str | None:
    """The text cut, emptied, repeated, garbled or gone."""
    place = chance.randrange(len(text) + 1)
    number = str(chance.choice([-1, 0, 10**19, 10**30]))
    return {
        "gone": None,
        "cut": text[:place],
        "empty": "",
        "twice": text + text,
        "bytes": text[:place] + "\0\x1b[2J\ufffd\u202e" + text[place:],
        "numbers": "".join(number if char.isdigit() and chance.random() < 0.2 else char for char in text),
        "reversed": text[::-1],
    }[how]


@settings(max_examples=120, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    share=st.sampled_from([0.02, 0.2, 0.7, 1.0]),
    ways=st.lists(
        st.sampled_from(["gone", "cut", "empty", "twice", "bytes", "numbers", "reversed"]),
        min_size=1,
        max_size=3,
    ),
)
def test_any_damage_is_shown(seed: int, share: float, ways: list[str]) -> None:
    chance = random.Random(seed)
    files = {}
    for path, text in FILES.items():
        changed = damage(text, chance.choice(ways), chance) if chance.random() < share else text
        if changed is not None:
            files[path] = changed
    with tempfile.TemporaryDirectory() as folder:
        root = write_files(Path(folder), files)
        (root / "gpus.json").write_text(GPUS)
        arguments = ["--sysroot", str(root), "--gpus", str(root / "gpus.json")]
        with redirect_stdout(StringIO()) as words:
            assert main(["hardware", *arguments]) == 0
            assert main(["doctor", *arguments]) in (0, 1)
        with redirect_stdout(StringIO()) as printed:
            assert main(["hardware", "--json", *arguments]) == 0
    document = json.loads(printed.getvalue())
    cpu = document["cpu"]
    assert "\x1b" not in words.getvalue()
    assert cpu["usable_physical_cores"] is None or 1 <= cpu["usable_physical_cores"] <= cpu["logical_cpus"]
    missing = [
        name
        for name in ("cpu", "memory")
        if document[name].get("total", document[name].get("logical_cpus")) is None
    ]
    assert all(any(note.startswith(name) for note in document["notes"]) for name in missing)
