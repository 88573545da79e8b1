#include <benchmark/benchmark.h>

#include <vector>

#include "millrace/base/thread_pool.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/tensor/half.h"

// GFLOP/s of the packed GEMM, on one thread and on the pool, and of the plain loops beside it.

namespace millrace {
namespace {

enum Mode : int { kReference, kOneThread, kPool };

template <class T>
void run_matmul(benchmark::State& state, int64_t m, int64_t n, int64_t k, int mode) {
  std::vector<T> a(static_cast<size_t>(m * k), T(1.5f)), b(static_cast<size_t>(k * n), T(0.5f));
  std::vector<T> c(static_cast<size_t>(m * n));
  const auto left = MatrixView<T>::of(a.data(), k), right = MatrixView<T>::of(b.data(), n);
  const auto pool = [](int64_t units, double cost, FunctionRef<void(int64_t, int64_t)> body) {
    ThreadPool::global().parallel_for(units, cost, body);
  };
  for (auto _ : state) {
    if (mode == kReference) {
      matmul_reference(m, n, k, left, right, c.data());
    } else if (mode == kOneThread) {
      MR_CHECK_OK(matmul(m, n, k, left, right, c.data(), run_serially));
    } else {
      MR_CHECK_OK(matmul(m, n, k, left, right, c.data(), pool));
    }
    benchmark::DoNotOptimize(c.data());
  }
  state.counters["GFLOP/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(m) * static_cast<double>(n) *
                             static_cast<double>(k) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate);
}

template <class T>
void matmul_square(benchmark::State& state) {
  run_matmul<T>(state, state.range(0), state.range(0), state.range(0),
                static_cast<int>(state.range(1)));
}

// Few rows: the right matrix is read where it lies.
void matmul_rows(benchmark::State& state) {
  run_matmul<float>(state, state.range(0), 1024, 1024, static_cast<int>(state.range(1)));
}

BENCHMARK(matmul_square<float>)
    ->ArgNames({"n", "mode"})
    ->ArgsProduct({{4, 8, 16, 32, 64, 128, 256, 512, 1024}, {kOneThread, kPool}})
    ->UseRealTime();
BENCHMARK(matmul_square<float>)
    ->ArgNames({"n", "mode"})
    ->ArgsProduct({{64, 256}, {kReference}})
    ->UseRealTime();
BENCHMARK(matmul_square<double>)
    ->ArgNames({"n", "mode"})
    ->ArgsProduct({{64, 512}, {kOneThread}})
    ->UseRealTime();
BENCHMARK(matmul_square<BFloat16>)
    ->ArgNames({"n", "mode"})
    ->ArgsProduct({{64, 512, 1024}, {kOneThread, kPool}})
    ->UseRealTime();
BENCHMARK(matmul_rows)
    ->ArgNames({"m", "mode"})
    ->ArgsProduct({{1, 4, 16, 32, 64, 128, 256}, {kOneThread}})
    ->UseRealTime();

}  // namespace
}  // namespace millrace
