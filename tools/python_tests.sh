#!/usr/bin/env bash
# python_tests.sh [pytest arguments]: runs the tests of the Python package that the release build
# made.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/venv.sh
echo "== python: test${*:+ ($*)}"
exec .venv/bin/python -m pytest "$@"
