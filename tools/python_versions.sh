#!/usr/bin/env bash
# python_versions.sh [VERSION...]: builds the Python package for each version (3.10 to 3.13) that is
# on this machine, in the PATH or under pyenv, and runs its tests.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh
CXX=$(choose_cxx)
export CXX
[ $# -gt 0 ] || set -- 3.10 3.11 3.12 3.13

interpreter() {  # interpreter VERSION: its path, or nothing
  local candidate
  for candidate in "python$1" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$1".*/bin/python; do
    if "$candidate" -c "import sys; assert '%d.%d' % sys.version_info[:2] == '$1'" 2> /dev/null; then
      command -v "$candidate"
      return
    fi
  done
}

for version in "$@"; do
  python=$(interpreter "$version")
  if [ -z "$python" ]; then
    echo "== python $version: not on this machine, left out"
    continue
  fi
  build=build/python$version
  mkdir -p "$build"
  [ -x "$build/venv/bin/python" ] || "$python" -m venv "$build/venv"
  grep -v -e clang-format -e ruff -e mypy -e scikit-build tools/requirements.txt |
    "$build/venv/bin/pip" install --quiet --disable-pip-version-check -r /dev/stdin
  echo "== python $version: build"
  cmake --preset release -B "$build" -DPython_EXECUTABLE="$PWD/$build/venv/bin/python" \
    > "$build/configure.log" 2>&1 || { cat "$build/configure.log" >&2; exit 1; }
  cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target python
  echo "== python $version: test"
  "$build/run_python" -m pytest -n "${JOBS:-$(nproc)}"
done
