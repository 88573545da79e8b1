#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "millrace/base/clock.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/ops/training/optimizer_loops.h"

// Optimisers through their kernels.
//
// dense/X: a step over 16M floats, next to memcpy in the same run, each in bytes read and written
// per second. "of_memcpy" is the ratio, medians of alternating runs; "of_shared_memcpy" the same
// against a memcpy that all threads of the pool share.
//
// embedding/X: Adagrad on 4,096 rows of width 64, chosen anew for each step, of a table with 10
// million rows and one with 10,000, in turn. "ratio" is that of the median times when the caches
// are swept before each step, as the rest of a training step does. "cached_ratio" is without: the
// small table then stays in the cache and the large one cannot, so it says more of the memory than
// of the op. "alloc" is the memory in bytes that a step takes, for each table.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_state_ops, register_training_ops});

constexpr int64_t kParameters = int64_t{1} << 24;

Tensor filled(const Shape& shape, float value) {
  Tensor t = Tensor::allocate(DType::kFloat, shape).value();
  for (float& v : t.mutable_data<float>()) v = value;
  return t;
}

// An optimiser's node and kernel, run again and again over the same variables.
class Runner {
 public:
  Runner(const OptimizerInfo& info, OptimizerForms form, const Shape& shape) {
    const bool resource = form == kResourceApply || form == kResourceSparseApply;
    const bool sparse = form == kSparseApply || form == kResourceSparseApply;
    node_.name = "step";
    node_.op = OpRegistry::global().find(str_cat(
        resource ? "Resource" : "", sparse ? "SparseApply" : "Apply", std::string(info.name)));
    node_.attrs = {{"T", DType::kFloat}};
    if (sparse) node_.attrs.set("Tindices", DType::kInt64);
    node_.device = &env_.device();
    for (int k = 0; k < info.num_slots(); ++k) {
      add_variable(str_cat("slot", k), filled(shape, 1), resource);
    }
    for (int j = 0; j < info.num_arguments(); ++j) {
      const Argument& argument = info.arguments[j];
      if (argument.kind == ArgumentKind::kGradient) {
        gradient_ = values_.size();
        add(sparse ? Tensor::scalar(0.0F) : filled(shape, 0.001F));
        if (sparse) add(Tensor::scalar(int64_t{0}));
      } else if (argument.kind == ArgumentKind::kStep) {
        add(Tensor::scalar(int64_t{1}));
      } else {
        add(Tensor::scalar(argument.kind == ArgumentKind::kNonPositive ? -0.5F : 0.01F));
      }
    }
    MR_CHECK_OK(check_attrs(*node_.op, node_.attrs));
    for (Value& v : values_) inputs_.push_back(&v);
    if (!resource) node_.output_types = {ref_type(DType::kFloat)};
    kernel_ = make_kernel(KernelRegistry::global(), node_, DeviceKind::kCpu).value();
  }

  void set_rows(Tensor grad, Tensor indices) {
    values_[gradient_] = Value::of(std::move(grad));
    values_[gradient_ + 1] = Value::of(std::move(indices));
  }

  // The bytes that the step allocated.
  int64_t run() {
    Value output;
    KernelContext context({.node = &node_,
                           .step = step_.get(),
                           .device = &env_.device(),
                           .inputs = inputs_.data(),
                           .outputs = &output,
                           .num_inputs = static_cast<int>(inputs_.size()),
                           .num_outputs = static_cast<int>(node_.output_types.size())});
    MR_CHECK_OK(kernel_->compute(context));
    return context.allocated_bytes();
  }

 private:
  void add(Tensor tensor) {
    node_.input_types.push_back(tensor.dtype());
    values_.push_back(Value::of(std::move(tensor)));
  }

  void add_variable(const std::string& name, Tensor value, bool resource) {
    if (!resource) {
      Value v;
      v.state = Value::State::kRef;
      v.cell = make_ref_cell(std::move(value));
      node_.input_types.push_back(ref_type(DType::kFloat));
      values_.push_back(std::move(v));
      return;
    }
    Tensor handle = OpTester(env_, "VarHandleOp")
                        .attr("dtype", DType::kFloat)
                        .attr("shape", PartialShape())
                        .attr("shared_name", name)
                        .run_one()
                        .value();
    MR_CHECK_OK(OpTester(env_, "AssignVariableOp")
                    .movable(true)
                    .input(handle)
                    .input(std::move(value))
                    .run()
                    .status());
    add(std::move(handle));
  }

  OpEnv env_;
  KernelNode node_;
  Ref<Step> step_ = make_ref<Step>();
  std::vector<Value> values_;
  std::vector<Value*> inputs_;
  size_t gradient_ = 0;
  std::unique_ptr<Kernel> kernel_;
};

template <class F>
double nanoseconds(F f) {
  const int64_t begin = monotonic_nanos();
  f();
  return static_cast<double>(monotonic_nanos() - begin);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

void dense(benchmark::State& state, const OptimizerInfo* info) {
  const bool reference = (info->forms & kApply) != 0;
  Runner runner(*info, reference ? kApply : kResourceApply, Shape{kParameters});
  const Tensor from = filled(Shape{kParameters}, 1);
  Tensor to = filled(Shape{kParameters}, 1);
  const auto copy = [&](int64_t begin, int64_t end) {
    std::memcpy(to.mutable_data<float>().data() + begin, from.data<float>().data() + begin,
                static_cast<size_t>(end - begin) * sizeof(float));
    benchmark::ClobberMemory();
  };
  std::vector<double> steps, copies, shared_copies;
  for (auto _ : state) {
    steps.push_back(nanoseconds([&] { runner.run(); }));
    copies.push_back(nanoseconds([&] { copy(0, kParameters); }));
    shared_copies.push_back(
        nanoseconds([&] { ThreadPool::global().parallel_for(kParameters, 0.3, copy); }));
    state.SetIterationTime(steps.back() * 1e-9);
  }
  // Every slot is read and written, the gradient is read; all are read once more for a trust ratio.
  // A copy reads and writes.
  const double streams =
      2 * info->num_slots() + 1 + (info->trust_ratio ? info->num_slots() + 1 : 0);
  state.counters["GB/s"] = streams * sizeof(float) * kParameters / median(steps);
  state.counters["of_memcpy"] = streams / 2 * median(copies) / median(steps);
  state.counters["of_shared_memcpy"] = streams / 2 * median(shared_copies) / median(steps);
}

// Adagrad on some rows of a table.
class Embedding {
 public:
  Embedding(OptimizerForms form, int64_t rows)
      : rows_(rows), runner_(adagrad(), form, Shape{rows, kWidth}) {}

  void step() {
    Tensor ids = Tensor::allocate(DType::kInt64, Shape{kIds}).value();
    for (int64_t& id : ids.mutable_data<int64_t>()) {
      id = static_cast<int64_t>(random_() % static_cast<uint64_t>(rows_));
    }
    runner_.set_rows(grad_, std::move(ids));
    times_.push_back(nanoseconds([&] { allocated_ = runner_.run(); }));
  }
  double median_time() { return median(std::exchange(times_, {})); }
  int64_t allocated() const { return allocated_; }

 private:
  static constexpr int64_t kIds = 4096, kWidth = 64;

  static const OptimizerInfo& adagrad() {
    int rule = 0;
    while (std::string_view(optimizer_info(rule).name) != "Adagrad") ++rule;
    return optimizer_info(rule);
  }

  const int64_t rows_;
  Runner runner_;
  const Tensor grad_ = filled(Shape{kIds, kWidth}, 0.001F);
  std::mt19937_64 random_;
  std::vector<double> times_;
  int64_t allocated_ = 0;
};

void embedding(benchmark::State& state, OptimizerForms form) {
  constexpr int kSteps = 200;
  Embedding small(form, 10'000), large(form, 10'000'000);
  Tensor swept = filled(Shape{int64_t{16} << 20}, 1);
  const auto sweep = [&] {
    for (float& x : swept.mutable_data<float>()) x += 1;
  };
  for (auto _ : state) {
    for (int i = 0; i < kSteps; ++i) {
      small.step();
      large.step();
    }
    state.counters["cached_ratio"] = large.median_time() / small.median_time();
    for (int i = 0; i < kSteps; ++i) {
      sweep();
      small.step();
      sweep();
      large.step();
    }
    const double small_time = small.median_time(), large_time = large.median_time();
    state.counters["small_us"] = small_time / 1000;
    state.counters["large_us"] = large_time / 1000;
    state.counters["ratio"] = large_time / small_time;
    state.SetIterationTime(large_time * 1e-9);
  }
  state.counters["alloc_small"] = static_cast<double>(small.allocated());
  state.counters["alloc_large"] = static_cast<double>(large.allocated());
}

const bool added = [] {
  for (int rule = 0; rule < num_optimizers(); ++rule) {
    const OptimizerInfo& info = optimizer_info(rule);
    benchmark::RegisterBenchmark(str_cat("dense/", info.name).c_str(), dense, &info)
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
  }
  for (OptimizerForms form : {kSparseApply, kResourceSparseApply}) {
    const char* op = form == kSparseApply ? "SparseApplyAdagrad" : "ResourceSparseApplyAdagrad";
    benchmark::RegisterBenchmark(str_cat("embedding/", op).c_str(), embedding, form)
        ->Iterations(1)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
}  // namespace millrace
