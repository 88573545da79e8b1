#!/usr/bin/env bash
# run_tests.sh PRESET [ctest arguments]: runs the tests built under a preset.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift

# The thread sanitizer of older compilers cannot start where the kernel randomises addresses widely.
launcher=()
if [ "$preset" = tsan ] && setarch "$(uname -m)" -R true 2> /dev/null; then
  launcher=(setarch "$(uname -m)" -R)
fi

echo "== $preset: test${MILLRACE_ISA:+ with MILLRACE_ISA=$MILLRACE_ISA}${*:+ ($*)}"
"${launcher[@]}" ctest --preset "$preset" --parallel "${JOBS:-$(nproc)}" "$@"
