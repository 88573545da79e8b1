#!/usr/bin/env bash
# build.sh PRESET TARGET...: configures the preset and builds the targets it defines.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift

. tools/common.sh
tools/venv.sh
CXX=$(choose_cxx)
export CXX

echo "== $preset: configure"
log=build/$preset.configure.log
mkdir -p build
if ! cmake --preset "$preset" > "$log" 2>&1; then
  cat "$log" >&2
  exit 1
fi
sed -n '/^-- Millrace/,/^-- Configuring/p' "$log" | grep -v '^-- Configuring'

echo "== $preset: build $*"
SECONDS=0
cmake --build --preset "$preset" --parallel "${JOBS:-$(nproc)}" --target "$@"
echo "== $preset: built in $SECONDS s"
