#!/usr/bin/env bash
# lint.sh [--all] [CHECK...]: runs the checks, by default all of them; fails if one does.
#
#   format   clang-format on every C++ file
#   layers   tools/check_layers.py, after its own test
#   docs     tools/check_docs.py, after its own test
#   python   ruff, and mypy on the examples where the package is built
#   tidy     clang-tidy on the C++ sources that changed: since the branch left origin/main, or, where
#            that is the same commit, since the commit before; at most TIDY_MAX (40) of them, newest
#            first. --all checks every source.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. tools/common.sh

all=false
limit=${TIDY_MAX:-40}
checks=()
for argument in "$@"; do
  if [ "$argument" = --all ]; then all=true; else checks+=("$argument"); fi
done
[ ${#checks[@]} -gt 0 ] || checks=(format layers docs python tidy)

check_format() {
  tools/venv.sh || return 1
  local bad
  bad=$(cxx_sources | xargs -r .venv/bin/clang-format --dry-run 2>&1 |
    sed -n 's/: warning: .*clang-format-violations.*//p' | cut -d: -f1 | sort -u)
  [ -n "$bad" ] || return 0
  printf '%s\n' "$bad"
  echo "format: run \`make format\`"
  return 1
}

check_layers() {
  python3 tools/check_layers_test.py && python3 tools/check_layers.py
}

check_docs() {
  python3 tools/check_docs_test.py && python3 tools/check_docs.py
}

check_python() {
  tools/venv.sh && .venv/bin/ruff check --quiet && .venv/bin/ruff format --quiet --check || return 1
  [ -e build/release/python/millrace/_names.py ] || return 0
  sources 'examples/python/*.py' 'examples/digits/*.py' |
    MYPYPATH=build/release/python xargs .venv/bin/mypy --strict --cache-dir build/mypy
}

# The commit that changes are counted from; fails when there is none.
base_commit() {
  local base head
  head=$(git rev-parse --verify --quiet HEAD) || return 1
  base=$(git merge-base HEAD origin/main 2> /dev/null) || base=$head
  [ "$base" != "$head" ] || base=$(git rev-parse --verify --quiet HEAD~1) || return 1
  echo "$base"
}

all_files() {
  sources 'millrace/*.cc' 'python/*.cc' 'tests/*.cc' 'examples/*.cc' 'benchmarks/*.cc'
}

changed_files() {
  local base
  if base=$(base_commit); then
    { git diff --name-only --diff-filter=d "$base" -- '*.cc'
      git ls-files --others --exclude-standard -- '*.cc'; } | sort -u | xargs -r ls -t
  else
    echo "no earlier commit to compare with" >&2
  fi
}

# Those that are compiled for clang-tidy: without CUDA, or a stand-in for it.
checked() { grep -v -e '^examples/consumer/' -e '_fuzz\.cc$' -e '^millrace/device/cuda/'; }

# Clang-tidy on the files that come in.
run_tidy() {
  # The compile commands are clang's; the headers the build writes come from the release build.
  if ! { tools/build.sh release generated && cmake --preset lint; } < /dev/null > build/lint.log 2>&1; then
    cat build/lint.log
    return 1
  fi
  xargs -P "${JOBS:-$(nproc)}" -n 4 \
    clang-tidy --quiet -p build/lint \
    --extra-arg=-isystem"$PWD/build/release/gen" 2> build/lint.log
  local result=$?
  [ $result -eq 0 ] || grep -v -e 'warnings generated' -e '^Suppressed' -e '^Use ' build/lint.log
  return $result
}

check_tidy() {
  local files=()
  mapfile -t files < <(if $all; then all_files; else changed_files; fi | checked)
  if [ ${#files[@]} -eq 0 ]; then
    echo "tidy: no C++ source has changed"
    return 0
  fi
  if ! $all && [ ${#files[@]} -gt "$limit" ]; then
    echo "tidy: ${#files[@]} sources have changed; checking the newest $limit"
    files=("${files[@]:0:limit}")
  fi
  printf '%s\n' "${files[@]}" | run_tidy
}

mkdir -p build
failed=()
for check in "${checks[@]}"; do
  SECONDS=0
  if "check_$check"; then
    echo "== lint: $check passed in $SECONDS s"
  else
    echo "== lint: $check FAILED"
    failed+=("$check")
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "lint failed: ${failed[*]}" >&2
  exit 1
fi
