"""The engines' software: our native extension, sglang-kt and kt-kernel, and whether the server starts at all."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kt_tui.hardware.checks import probe
from kt_tui.hardware.checks.verdict import Check, Context, error, ok, skipped, warning
from kt_tui.text import one_line, strip_sequences

PROBE_SECONDS = 10
HELP_SECONDS = 180
KT_FLAG = "--kt-weight-path"
INSTALL = (
    "python3 -m venv ~/sglang-kt && ~/sglang-kt/bin/pip install 'sglang-kt==0.7.2' 'kt-kernel==0.7.2' && "
    "kt-tui doctor --python ~/sglang-kt/bin/python"
)
ILLEGAL_INSTRUCTION = -4
_EXCEPTION = re.compile(r"^[\w.]*(Error|Exception|Interrupt|Exit)\b.*")


@dataclass(frozen=True)
class Software:
    """What an environment holds.

    Attributes:
        versions: Package -> version.
        pins: Package -> other package -> the versions of it that it wants.
        fork: Whether the ``sglang`` that would be imported is the fork with the KT options.
        kernels: File names of kt-kernel's compiled variants.
        torch_cuda: CUDA that torch was built for.
        problem: Why nothing could be found out.
    """

    versions: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    fork: bool | None = None
    kernels: tuple[str, ...] = ()
    torch_cuda: str | None = None
    problem: str = ""


def find_software(python: Path | None) -> Software:
    """What is installed for an interpreter (None: our own). Never raises."""
    if python is None:
        return _from_document(probe.probe())
    try:
        done = subprocess.run(
            [str(python), "-I", probe.__file__],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
        document = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired) as problem:
        return Software(problem=f"{python} does not run: {one_line(str(problem))}")
    except ValueError:
        return Software(problem=f"{python} answers nonsense: {last_error(done.stderr) or 'no output'}")
    return _from_document(document)


def _from_document(document: object) -> Software:
    if not isinstance(document, dict):
        return Software(problem="the environment could not be looked at")
    versions, pins, kernels = document.get("versions"), document.get("pins"), document.get("kernels")
    fork, cuda = document.get("fork"), document.get("torch_cuda")
    return Software(
        versions={str(k): one_line(str(v), 40) for k, v in versions.items()}
        if isinstance(versions, dict)
        else {},
        pins={str(k): {str(a): str(b) for a, b in v.items()} for k, v in pins.items() if isinstance(v, dict)}
        if isinstance(pins, dict)
        else {},
        fork=fork if isinstance(fork, bool) else None,
        kernels=tuple(str(name) for name in kernels) if isinstance(kernels, list) else (),
        torch_cuda=cuda if isinstance(cuda, str) else None,
    )


def check_software(software: Software, context: Context, isa: tuple[str, ...]) -> list[Check]:
    """All of them."""
    if not context.here:
        names = ("embedded-engine", "sglang", "kt-kernel", "versions", "sglang-starts")
        return [skipped(name, "a captured machine's software is not known") for name in names]
    return [
        _embedded(),
        _sglang(software),
        _kernel(software, isa),
        _versions(software),
        _starts(software, context),
    ]


def _embedded() -> Check:
    try:
        found = importlib.util.find_spec("engine._csrc")
    except (ImportError, ValueError):
        found = None
    if found is None or not found.origin:
        return error(
            "embedded-engine",
            "its native extension engine._csrc is not built for this Python",
            "pip install .",
        )
    return ok("embedded-engine", f"its native extension is there ({Path(found.origin).name})")


def _sglang(software: Software) -> Check:
    versions = software.versions
    if software.problem:
        return error("sglang", software.problem, "name the interpreter of an environment that has sglang-kt")
    if "sglang-kt" in versions and "sglang" in versions:
        return error(
            "sglang",
            f"both sglang {versions['sglang']} and sglang-kt {versions['sglang-kt']} are installed, over each other",
            "pip uninstall -y sglang sglang-kt && pip install --force-reinstall --no-deps "
            f"'sglang-kt=={versions['sglang-kt']}'",
        )
    if "sglang" in versions and not software.fork:
        told = f"sglang {versions['sglang']} is the original; without KT options the processor stays idle"
        return warning("sglang", told, INSTALL)
    if "sglang-kt" in versions and software.fork is False:
        version = versions["sglang-kt"]
        told = f"sglang-kt {version} is installed, but its files lack the KT options: another package lies over them"
        return error("sglang", told, f"pip install --force-reinstall --no-deps 'sglang-kt=={version}'")
    name = next((name for name in ("sglang-kt", "sglang") if name in versions), None)
    if name is None:
        return skipped("sglang", "not installed; the embedded engine needs none of it", INSTALL)
    return ok("sglang", f"{name} {versions[name]}, the fork with the KT options")


def _kernel(software: Software, isa: tuple[str, ...]) -> Check:
    version = software.versions.get("kt-kernel")
    has_sglang = "sglang-kt" in software.versions or software.fork
    if version is None:
        if has_sglang:
            return error(
                "kt-kernel", "not installed, so sglang-kt cannot place experts on the processor", INSTALL
            )
        return skipped("kt-kernel", "not installed; the embedded engine needs none of it", INSTALL)
    variants = sorted(
        {match[1] for name in software.kernels if (match := re.search(r"ext_?([a-z0-9_]*)\.", name))}
    )
    if not software.kernels:
        told = f"{version} has no compiled kernel for this Python"
        return error("kt-kernel", told, f"pip install --force-reinstall 'kt-kernel=={version}'")
    shown = ", ".join(variant or "one for all" for variant in variants)
    if isa and "avx2" not in isa:
        return error(
            "kt-kernel",
            f"{version} ({shown}) needs AVX2, which this processor lacks",
            "use the embedded engine",
        )
    return ok("kt-kernel", f"{version}; variants: {shown}")


def _versions(software: Software) -> Check:
    versions = software.versions
    fork, kernel = versions.get("sglang-kt"), versions.get("kt-kernel")
    if fork is None and kernel is None:
        return skipped("versions", "nothing that must go together is installed")
    unmet = [
        (pin, f"{name} {versions[name]} wants {other}{pin}, found {versions[other]}")
        for name, pinned in software.pins.items()
        for other, pin in pinned.items()
        if name in versions and other in versions and not _satisfies(versions[other], pin)
    ]
    wrong = [told for pin, told in unmet if pin.startswith("==")]
    if fork and kernel and fork.split(".")[:2] != kernel.split(".")[:2]:
        wrong.insert(0, f"sglang-kt {fork} and kt-kernel {kernel} are of different releases")
    if wrong:
        return error("versions", "; ".join(wrong[:6]), INSTALL)
    if unmet:
        return warning("versions", "; ".join(told for _, told in unmet[:6]), INSTALL)
    return ok("versions", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _satisfies(version: str, wanted: str) -> bool:
    """Whether a version is among those wanted; what cannot be read as versions is not judged."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(wanted).contains(version, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return True


def last_error(output: str) -> str:
    """The line that says why a Python program died: its last exception, else its last line."""
    lines = [line for line in strip_sequences(output).splitlines() if line.strip()]
    raised = [line for line in lines if _EXCEPTION.match(line)]
    return one_line((raised or lines or [""])[-1], 300)


def _starts(software: Software, context: Context) -> Check:
    if not (software.fork or "sglang-kt" in software.versions or "sglang" in software.versions):
        return skipped("sglang-starts", "sglang is not installed")
    if not context.deep:
        return skipped("sglang-starts", "takes a minute; asked with --deep", "kt-tui doctor --deep")
    return _start(context)


def _start(context: Context) -> Check:
    command = [str(context.python or sys.executable), "-m", "sglang.launch_server", "--help"]
    environ = {**context.environ, "PYTHONSAFEPATH": "1"}
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=HELP_SECONDS,
            check=False,
            env=environ,
        )
    except subprocess.TimeoutExpired:
        return error(
            "sglang-starts",
            f"`{shown}` gave no answer in {HELP_SECONDS} s",
            "run it by hand and see where it waits",
        )
    except OSError as problem:
        return error("sglang-starts", f"`{shown}` does not run: {problem.strerror or problem}", INSTALL)
    if done.returncode != 0:
        said = last_error(done.stderr) or last_error(done.stdout) or "no output"
        how = (
            f"ended with {done.returncode}"
            if done.returncode > 0
            else f"was killed by signal {-done.returncode}"
        )
        return error("sglang-starts", f"`{shown}` {how}: {said}", _remedy(said, done.returncode))
    if KT_FLAG not in done.stdout:
        return error("sglang-starts", f"`{shown}` runs, but offers no {KT_FLAG}: it is not the fork", INSTALL)
    return ok("sglang-starts", f"`{shown}` runs and offers the KT options")


def _remedy(said: str, code: int) -> str:
    if match := re.search(r"No module named '([\w.]+)'", said):
        return f"install what is missing ({match[1].partition('.')[0]}) into that environment: {INSTALL}"
    if code == ILLEGAL_INSTRUCTION:
        return "a package was built for another processor; install it anew on this one: " + INSTALL
    return INSTALL
