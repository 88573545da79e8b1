#include <benchmark/benchmark.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "millrace/base/clock.h"
#include "millrace/io/bundle_index.h"
#include "millrace/io/bundle_writer.h"
#include "millrace/io/checkpoint_reader.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"

// Checkpoints of as many MiB as the argument says, in eight tensors, in the directory
// $MILLRACE_BENCH_DIR or /tmp. save and restore stand next to `cp` followed by `sync` of the same
// data file, in bytes per second: what is asked is 0.8 of that. async is what a step is kept from
// its work by a save beside it: an asynchronous SaveV2, and then the first update of each variable,
// which copies it. "of_memcpy" is that over a memcpy of the data; what is asked is at most 1.5.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_io_ops, register_state_ops});

constexpr int kTensors = 8;

std::string bench_path(const char* name) {
  const char* folder = std::getenv("MILLRACE_BENCH_DIR");
  return str_cat(folder != nullptr ? folder : "/tmp", "/millrace_bench_", name);
}

std::vector<Tensor> make_tensors(int64_t mebibytes) {
  std::vector<Tensor> tensors;
  for (int i = 0; i < kTensors; ++i) {
    const int64_t count = mebibytes * (1 << 20) / 4 / kTensors;
    tensors.push_back(Tensor::allocate(DType::kFloat, Shape{count}).value());
    float at = static_cast<float>(i);
    for (float& x : tensors.back().mutable_data<float>()) x = at++;
  }
  return tensors;
}

Status save(const std::vector<Tensor>& tensors, const std::string& prefix) {
  MR_TRY_ASSIGN(std::unique_ptr<BundleWriter> writer,
                BundleWriter::create(posix_file_system(), prefix));
  for (size_t i = 0; i < tensors.size(); ++i) MR_TRY(writer->add(str_cat("v", i), tensors[i]));
  return writer->finish();
}

void remove(const std::string& prefix) {
  for (int shards : {1, 2}) (void)posix_file_system().remove(data_path(prefix, 0, shards)).ok();
  (void)posix_file_system().remove(index_path(prefix)).ok();
}

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * state.range(0) * (1 << 20));
}

void BM_Save(benchmark::State& state) {
  const std::vector<Tensor> tensors = make_tensors(state.range(0));
  const std::string prefix = bench_path("save");
  for (auto _ : state) {
    MR_CHECK_OK(save(tensors, prefix));
    state.PauseTiming();
    remove(prefix);
    state.ResumeTiming();
  }
  count_bytes(state);
}

void BM_Restore(benchmark::State& state) {
  const std::string prefix = bench_path("restore");
  MR_CHECK_OK(save(make_tensors(state.range(0)), prefix));
  for (auto _ : state) {
    const Ref<CheckpointReader> reader =
        CheckpointReader::open(posix_file_system(), prefix).value();
    std::vector<Tensor> tensors;
    for (const StoredTensor& tensor : reader->tensors()) {
      tensors.push_back(reader->read(tensor.name).value());
    }
  }
  remove(prefix);
  count_bytes(state);
}

void BM_CpAndSync(benchmark::State& state) {
  const std::string prefix = bench_path("cp");
  MR_CHECK_OK(save(make_tensors(state.range(0)), prefix));
  const std::string from = data_path(prefix, 0, 1);
  const std::string to = bench_path("copied");
  for (auto _ : state) {
    MR_CHECK(std::system(str_cat("cp ", from, " ", to, " && sync ", to).c_str()) == 0);
    state.PauseTiming();
    MR_CHECK_OK(posix_file_system().remove(to));
    state.ResumeTiming();
  }
  remove(prefix);
  count_bytes(state);
}

double copy_seconds(const std::vector<Tensor>& from, std::vector<Tensor>& to) {
  const int64_t start = monotonic_nanos();
  for (size_t i = 0; i < from.size(); ++i) {
    std::memcpy(to[i].mutable_raw(), from[i].raw(), from[i].bytes());
  }
  return static_cast<double>(monotonic_nanos() - start) * 1e-9;
}

void BM_Async(benchmark::State& state) {
  const std::vector<Tensor> tensors = make_tensors(state.range(0));
  std::vector<Tensor> copies = make_tensors(state.range(0));
  OpEnv env;
  std::vector<Ref<RefCell>> cells;
  std::vector<std::string> names;
  for (const Tensor& tensor : tensors) {
    cells.push_back(make_ref_cell(tensor.clone().value()));
    names.push_back(str_cat("v", cells.size()));
  }
  const std::string prefix = bench_path("async");
  const Tensor no_slices = Tensor::vector(
      std::span<const std::string>(std::vector<std::string>(static_cast<size_t>(kTensors))));
  const Tensor rows = Tensor::vector<int32_t>({0});
  std::vector<double> blocked;
  std::vector<double> copying;
  for (auto _ : state) {
    copying.push_back(copy_seconds(tensors, copies));
    const int64_t start = monotonic_nanos();
    std::vector<Tensor> values;
    for (const Ref<RefCell>& cell : cells) values.push_back(cell->read());
    MR_CHECK_OK(OpTester(env, "SaveV2")
                    .attr("_asynchronous", true)
                    .input(Tensor::scalar(prefix))
                    .input(Tensor::vector(std::span<const std::string>(names)))
                    .input(no_slices)
                    .input_list(std::move(values))
                    .run()
                    .status());
    // An update of one element: what it costs is the copy.
    for (const Ref<RefCell>& cell : cells) {
      MR_CHECK_OK(OpTester(env, "ScatterAdd")
                      .input_ref(cell)
                      .input(rows)
                      .input(Tensor::vector<float>({1}))
                      .run_values()
                      .status());
    }
    blocked.push_back(static_cast<double>(monotonic_nanos() - start) * 1e-9);
    MR_CHECK_OK(OpTester(env, "SaveV2Wait").input(Tensor::scalar(prefix)).run().status());
  }
  remove(prefix);
  const auto median = [](std::vector<double>& times) {
    std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                     times.end());
    return times[times.size() / 2];
  };
  state.counters["blocked_ms"] = median(blocked) * 1e3;
  state.counters["memcpy_ms"] = median(copying) * 1e3;
  state.counters["of_memcpy"] = median(blocked) / median(copying);
}

BENCHMARK(BM_CpAndSync)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BM_Save)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BM_Restore)->Arg(64)->Arg(1024)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BM_Async)->Arg(256)->Iterations(8)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace millrace
