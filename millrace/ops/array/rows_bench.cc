#include <benchmark/benchmark.h>

#include "millrace/ops/kernel_runner_testing.h"
#include "millrace/ops/register_ops.h"

// Rows by number: 2^22 floats in rows of 1, 8 and 256, picked from and added to a table of as many,
// next to a memcpy of them: "vs_memcpy" is the op's time over the copy's.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

constexpr int64_t kFloats = int64_t{1} << 22;

struct Rows {
  explicit Rows(int64_t run)
      : table(Tensor::zeros(DType::kFloat, {kFloats / run, run}).value()),
        indices(Tensor::allocate(DType::kInt64, {kFloats / run, 1}).value()) {
    const int64_t count = kFloats / run;
    int64_t next = 0;
    for (int64_t& i : indices.mutable_data<int64_t>()) i = next = (next * 5 + 12345) % count;
  }
  Tensor table, indices;
};

void gather_nd(benchmark::State& state) {
  const Rows rows(state.range(0));
  KernelRunner runner("GatherNd", {rows.table, rows.indices},
                      {{"Tparams", DType::kFloat}, {"Tindices", DType::kInt64}});
  run_beside_memcpy(state, runner, kFloats * sizeof(float));
}
BENCHMARK(gather_nd)->Arg(1)->Arg(8)->Arg(256)->UseManualTime();

void gather(benchmark::State& state) {
  const Rows rows(state.range(0));
  KernelRunner runner("Gather", {rows.table, rows.indices},
                      {{"Tparams", DType::kFloat}, {"Tindices", DType::kInt64}});
  run_beside_memcpy(state, runner, kFloats * sizeof(float));
}
BENCHMARK(gather)->Arg(1)->Arg(8)->Arg(64)->Arg(256)->UseManualTime();

void tensor_scatter(benchmark::State& state, const char* op) {
  const Rows rows(state.range(0));
  KernelRunner runner(op, {rows.table, rows.indices, rows.table},
                      {{"T", DType::kFloat}, {"Tindices", DType::kInt64}});
  run_beside_memcpy(state, runner, kFloats * sizeof(float));
}
BENCHMARK_CAPTURE(tensor_scatter, Update, "TensorScatterUpdate")->Arg(1)->Arg(256)->UseManualTime();
BENCHMARK_CAPTURE(tensor_scatter, Add, "TensorScatterAdd")->Arg(1)->Arg(256)->UseManualTime();

}  // namespace
}  // namespace millrace
