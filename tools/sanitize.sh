#!/bin/sh
# Builds the native tests (tests/csrc/*.cpp) with sanitizers and runs them. Needs a C++20 compiler and CMake, no Python.
#
#   tools/sanitize.sh [--small] [thread] [address]
#
# Without names both run: ThreadSanitizer, and AddressSanitizer with UndefinedBehaviorSanitizer. --small leaves out
# the kernels for AVX-512 and AMX and most shapes. KT_SEED repeats a run whose seed was printed.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
small=OFF
if [ "${1:-}" = --small ]; then
  small=ON
  shift
fi
[ $# -gt 0 ] || set -- thread address
for name in "$@"; do
  case "$name" in
    thread) flags=thread ;;
    address) flags=address,undefined ;;
    *)
      echo "unknown sanitizer '$name'; known are thread and address" >&2
      exit 2
      ;;
  esac
  build=$root/build/sanitize/$name
  size=
  if [ $small = ON ]; then
    build=$build-small
    size=small
  fi
  mkdir -p "$build"
  log=$build/build.log
  cmake -S "$root/csrc" -B "$build" -DKT_NATIVE_TESTS=ON -DKT_SANITIZE=$flags -DKT_SMALL=$small >"$log" 2>&1 ||
    { cat "$log" >&2; exit 2; }
  # Two runs at once would disturb each other's build.
  exec 9>"$build/lock"
  flock 9
  cmake --build "$build" --parallel "$(nproc)" >>"$log" 2>&1 || { cat "$log" >&2; exit 2; }
  for test in team_stress kernel_bounds layer_stress; do
    if [ "$name $test" = "thread kernel_bounds" ]; then continue; fi  # it has but one thread
    echo "== $name: $test"
    "$build/$test" $size
  done
done
