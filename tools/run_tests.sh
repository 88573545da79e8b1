#!/usr/bin/env bash
# run_tests.sh PRESET [ctest arguments]: runs the tests built under a preset.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh
preset=$1
shift

echo "== $preset: test${MILLRACE_ISA:+ with MILLRACE_ISA=$MILLRACE_ISA}${*:+ ($*)}"
read -ra launcher <<< "$(test_launcher "$preset")"
run() { "${launcher[@]}" ctest --preset "$preset" --parallel "${JOBS:-$(nproc)}" "$@"; }
if run "$@"; then exit; fi
# The leak checker reads the memory of all threads when a program ends, and crashes itself when one
# of them ends at that very moment.
crash="LeakSanitizer has encountered a fatal error"
grep -q "$crash" "build/$preset/Testing/Temporary/LastTest.log" || exit 1
echo "== $preset: the leak checker crashed; what failed runs again"
run --rerun-failed
