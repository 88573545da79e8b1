// What a stage costs for each element.

#include <benchmark/benchmark.h>

#include "millrace/data/pipeline_testing.h"

namespace millrace::data {
namespace {

void pull(benchmark::State& state, const Ref<Dataset>& dataset) {
  const Ref<Environment> environment = make_environment();
  const std::unique_ptr<Iterator> iterator =
      dataset->iterate(Iteration::of(*dataset, environment)).value();
  Element element;
  bool end = false;
  for (auto _ : state) {
    MR_CHECK_OK(iterator->next(element, end));
    benchmark::DoNotOptimize(element.data());
  }
}

// A source and state.range(0) stages that hand elements on.
void straight_stages(benchmark::State& state) {
  Ref<Dataset> dataset = make_range(int64_t{1} << 40);
  for (int64_t i = 0; i < state.range(0); ++i) {
    dataset = make_dataset("TakeDataset", {dataset}, {Tensor::scalar(int64_t{1} << 40)});
  }
  pull(state, dataset);
}
BENCHMARK(straight_stages)->Arg(0)->Arg(1)->Arg(10);

// Batches of state.range(0) numbers.
void batches(benchmark::State& state) {
  pull(state, make_dataset("BatchDatasetV2", {make_range(int64_t{1} << 40)},
                           {Tensor::scalar(state.range(0)), Tensor::scalar(false)}));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(batches)->Arg(1)->Arg(32)->Arg(1024);

void prefetch(benchmark::State& state) {
  pull(state, make_dataset("PrefetchDataset", {make_range(int64_t{1} << 40)},
                           {Tensor::scalar<int64_t>(64)}));
}
BENCHMARK(prefetch);

}  // namespace
}  // namespace millrace::data
