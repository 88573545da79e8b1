#!/usr/bin/env bash
# python_tests.sh PRESET [pytest arguments]: runs the tests of the Python package that a preset's
# build made, two processes per core, since many wait for other programs; under sanitizers, which
# leave those out that only wait, one. Under the thread sanitizer: those that are about threads.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh
preset=$1
shift
tools/venv.sh
if [ $# -eq 0 ] && [ "$preset" = tsan ]; then
  set -- python/tests/test_{barrier,control_flow,queues,session}.py
fi

processes=${JOBS:-$(nproc)}
[ "$preset" != release ] || processes=$((2 * processes))

echo "== $preset: python tests${*:+ ($*)}"
read -ra launcher <<< "$(test_launcher "$preset")"
exec "${launcher[@]}" build/"$preset"/run_python -m pytest -n "$processes" --dist worksteal "$@"
