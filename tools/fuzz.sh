#!/usr/bin/env bash
# fuzz.sh SECONDS [NAME...]: runs the fuzzers of the preset asan, or those named, side by side for so
#   long. Each starts from tests/fuzz_corpus/NAME and from what earlier runs found, kept in
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

started=()
for name in "${names[@]}"; do
  seeds=tests/fuzz_corpus/$name
  found=build/fuzz_found/$name
  mkdir -p "$seeds" "$found"
  if [ "$1" = --merge ]; then
    "$folder/$name" -merge=1 "$seeds" "$found" 2>&1 | tail -n 1
    continue
  fi
  echo "== fuzz: $name for $1 s, $(find "$seeds" "$found" -type f | wc -l) inputs to start from"
  fuzz "$name" "$1" &
  started+=($!)
done

failed=0
for i in "${!started[@]}"; do
  name=${names[$i]}
  if wait "${started[$i]}"; then
    units=$(sed -n 's/^stat::number_of_executed_units: *//p' build/fuzz_found/"$name".log)
    echo "== fuzz: $name ran $units inputs"
  else
    tail -n 60 build/fuzz_found/"$name".log
    echo "== fuzz: $name FAILED; repeat it with: $folder/$name <the input named above>"
    failed=1
  fi
done
exit $failed
