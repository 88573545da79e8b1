#!/usr/bin/env bash
# fuzz.sh SECONDS [NAME...]: runs the fuzzers of the preset asan for so long, those of file formats for
#   a sixth of it; or those named, for all of it. Some run side by side. Each starts from tests/fuzz_corpus/NAME and from what earlier runs found, kept in
#   build/fuzz_found/NAME. An input that fails is left in build/fuzz_failures.
# fuzz.sh --merge: copies what was found and covers something new into tests/fuzz_corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=build/asan/fuzz
names=("${@:2}")
if [ ${#names[@]} -eq 0 ]; then
  for fuzzer in "$folder"/*_fuzz; do
    [ ! -x "$fuzzer" ] || names+=("$(basename "$fuzzer")")
  done
fi
if [ ${#names[@]} -eq 0 ]; then
  echo "== fuzz: no fuzzers are built"
  exit 1
fi
mkdir -p build/fuzz_failures

fuzz() {  # fuzz NAME SECONDS
  "$folder/$1" -max_total_time="$2" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix=build/fuzz_failures/"$1"- build/fuzz_found/"$1" tests/fuzz_corpus/"$1" \
    > build/fuzz_found/"$1".log 2>&1
}

if [ "$1" = --merge ]; then
  for name in "${names[@]}"; do
    mkdir -p tests/fuzz_corpus/"$name" build/fuzz_found/"$name"
    "$folder/$name" -merge=1 tests/fuzz_corpus/"$name" build/fuzz_found/"$name" 2>&1 | tail -n 1
  done
  exit
fi

failed=0
fuzz_side_by_side() {  # fuzz_side_by_side SECONDS NAME...
  local seconds=$1 these=("${@:2}") started=() i name units
  for name in "${these[@]}"; do
    mkdir -p tests/fuzz_corpus/"$name" build/fuzz_found/"$name"
    echo "== fuzz: $name for $seconds s," \
      "$(find tests/fuzz_corpus/"$name" build/fuzz_found/"$name" -type f | wc -l) inputs to start from"
    fuzz "$name" "$seconds" &
    started+=($!)
  done
  for i in "${!started[@]}"; do
    name=${these[$i]}
    if wait "${started[$i]}"; then
      units=$(sed -n 's/^stat::number_of_executed_units: *//p' build/fuzz_found/"$name".log)
      echo "== fuzz: $name ran $units inputs"
    else
      tail -n 60 build/fuzz_found/"$name".log
      echo "== fuzz: $name FAILED; repeat it with: $folder/$name <the input named above>"
      failed=1
    fi
  done
}

# What runs graphs has the most to find; readers of one format are small.
graphs=() formats=()
for name in "${names[@]}"; do
  case $name in
    run_*) graphs+=("$name") ;;
    *) formats+=("$name") ;;
  esac
done
[ ${#graphs[@]} -eq 0 ] || fuzz_side_by_side "$1" "${graphs[@]}"
[ $# -eq 1 ] && short=$((($1 + 5) / 6)) || short=$1
for ((i = 0; i < ${#formats[@]}; i += 5)); do
  fuzz_side_by_side "$short" "${formats[@]:i:5}"
done
exit $failed
