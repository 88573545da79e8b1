#!/usr/bin/env bash
# bench.sh [REGEX]: runs the benchmark programs of build/release, prints their tables and writes
# bench_results/PROGRAM.json. REGEX chooses benchmarks by name. Without one, what a step costs from
# Python, what single ops reach and what training takes are measured too, beside TensorFlow, PyTorch
# and JAX where $PEER_PYTHON or $TORCH_PYTHON has them.
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
if [ "${1:-.}" = . ]; then
  echo "== python_bench"
  .venv/bin/python benchmarks/python_bench.py | tee bench_results/python_bench.txt
  for name in data_bench file_bench; do
    echo "== $name"
    .venv/bin/python "benchmarks/$name.py" ${PEER_PYTHON:+--python "$PEER_PYTHON"} |
      tee "bench_results/$name.txt"
  done
  for name in kernel_bench memory_bench scaling_bench first_step_bench eager_bench; do
    echo "== $name"
    .venv/bin/python "benchmarks/$name.py" ${PEER_PYTHON:+--python "$PEER_PYTHON"} \
      ${TORCH_PYTHON:+--peers "$TORCH_PYTHON"} --json "bench_results/$name.json" |
      tee "bench_results/$name.txt"
  done
  echo "== budget_bench"
  .venv/bin/python benchmarks/budget_bench.py --json bench_results/budget_bench.json |
    tee bench_results/budget_bench.txt
  echo "== training_bench"
  .venv/bin/python benchmarks/training_bench.py ${PEER_PYTHON:+--python "$PEER_PYTHON"} \
    ${TORCH_PYTHON:+--peers "$TORCH_PYTHON"} --json bench_results/training_bench.json \
    --svg bench_results/training_bench.svg | tee bench_results/training_bench.txt
fi
echo "== $ran benchmark programs; JSON is in bench_results/"
