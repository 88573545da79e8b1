#!/usr/bin/env bash
# run_tests.sh PRESET [ctest arguments]: runs the tests built under a preset.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh
preset=$1
shift

echo "== $preset: test${MILLRACE_ISA:+ with MILLRACE_ISA=$MILLRACE_ISA}${*:+ ($*)}"
read -ra launcher <<< "$(test_launcher "$preset")"
"${launcher[@]}" ctest --preset "$preset" --parallel "${JOBS:-$(nproc)}" "$@"
