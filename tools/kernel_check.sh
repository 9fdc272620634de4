#!/bin/sh
# Builds the native extension alone and checks all of its kernels on this machine. Needs a C++20 compiler, CMake,
# Python 3 with its headers and numpy; neither torch nor pytest.
#
#   tools/kernel_check.sh [BUILD_DIR [PYBIND11_DIR [PYTHON]]]
#
# PYBIND11_DIR is where pybind11 lies (the folder that holds share/cmake/pybind11, or a checkout of it); by default
# PYTHON is asked for its installed pybind11.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/kernel_check}
python=${3:-python3}
if [ -n "${2:-}" ]; then
  pybind11=$2
  for inside in "$2/share/cmake/pybind11" "$2/pybind11/share/cmake/pybind11"; do
    if [ -d "$inside" ]; then pybind11=$inside; fi
  done
else
  pybind11=$("$python" -m pybind11 --cmakedir) || {
    echo "pybind11 is missing: install it (pip install pybind11) or name its folder as the second argument" >&2
    exit 2
  }
fi
executable=$("$python" -c 'import sys; print(sys.executable)')
cmake -S "$root/csrc" -B "$build" -DCMAKE_BUILD_TYPE=Release -DPYBIND11_FINDPYTHON=ON \
  -DPython_EXECUTABLE="$executable" -DPython3_EXECUTABLE="$executable" -Dpybind11_DIR="$pybind11" >"$build.log" 2>&1 || { cat "$build.log" >&2; exit 2; }
cmake --build "$build" --parallel >>"$build.log" 2>&1 || { cat "$build.log" >&2; exit 2; }

# A kernel file that defines a symbol which the linker may share (weak, unique) could hand its wide instructions to
# other files.
status=0
for object in $(find "$build" -name 'kernels_*.o'); do
  shared=$(nm --defined-only "$object" | awk '$2 ~ /[WVu]/')
  if [ -n "$shared" ]; then
    echo "FAIL: $object defines symbols that other files may be linked to:" >&2
    echo "$shared" >&2
    status=1
  fi
done
"$python" "$root/tools/kernel_check.py" "$(find "$build" -name '_csrc*.so' | head -n 1)" || status=1
exit $status
