#!/usr/bin/env bash
# fuzz.sh SECONDS [NAME...]: runs the fuzzers of the preset asan, sharing the time among them. Each
#   starts from tests/fuzz_corpus/NAME and from what earlier runs found, kept in
#   build/fuzz_found/NAME. Where names are given, the other fuzzers only go through what they start
#   from. An input that fails is left in build/fuzz_failures.
# fuzz.sh --merge: copies what was found and covers something new into tests/fuzz_corpus.
set -euo pipefail
cd "$(dirname "$0")/.."

fuzzers=()
for fuzzer in build/asan/fuzz/*_fuzz; do
  [ -x "$fuzzer" ] && fuzzers+=("$fuzzer")
done
if [ ${#fuzzers[@]} -eq 0 ]; then
  echo "== fuzz: no fuzzers are defined"
  exit 0
fi

mkdir -p build/fuzz_failures
named=("${@:2}")
sharing=${#named[@]}
[ "$sharing" -gt 0 ] || sharing=${#fuzzers[@]}
each=0
[ "$1" = --merge ] || each=$((($1 + sharing - 1) / sharing))
for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  seeds=tests/fuzz_corpus/$name
  found=build/fuzz_found/$name
  mkdir -p "$seeds" "$found"
  if [ "$1" = --merge ]; then
    "$fuzzer" -merge=1 "$seeds" "$found" 2>&1 | tail -n 1
    continue
  fi
  how=-max_total_time=$each
  if [ ${#named[@]} -gt 0 ] && [[ " ${named[*]} " != *" $name "* ]]; then how=-runs=0; fi
  echo "== fuzz: $name $how, $(find "$seeds" "$found" -type f | wc -l) inputs to start from"
  log=build/fuzz_found/$name.log
  if ! "$fuzzer" "$how" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
      -artifact_prefix=build/fuzz_failures/"$name"- "$found" "$seeds" > "$log" 2>&1; then
    tail -n 60 "$log"
    echo "== fuzz: $name FAILED; repeat it with: $fuzzer <the input named above>"
    exit 1
  fi
  grep -E '^(Done|stat::number_of_executed_units|stat::peak_rss_mb)' "$log"
done
