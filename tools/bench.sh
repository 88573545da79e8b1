#!/usr/bin/env bash
# bench.sh [REGEX]: runs the benchmark programs of build/release, prints their tables and writes
# bench_results/PROGRAM.json. REGEX chooses benchmarks by name.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p bench_results
ran=0
for program in build/release/bench/*_bench; do
  [ -x "$program" ] || continue
  name=$(basename "$program")
  echo "== $name"
  "$program" --benchmark_filter="${1:-.}" --benchmark_counters_tabular=true \
    --benchmark_out_format=json --benchmark_out="bench_results/$name.json"
  ran=$((ran + 1))
done
echo "== $ran benchmark programs; JSON is in bench_results/"
