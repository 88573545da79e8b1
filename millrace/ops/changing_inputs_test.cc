// Inputs that somebody writes to while a kernel reads them: a fed array, a reference variable. A
// kernel must do what it would have done had it read everything at one moment, and under the
// address sanitizer touch nothing else. Each row has one number that changes from good to bad.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_ops().ok();

// Tells before every allocation. Outlives what it gave out.
class HookedAllocator final : public Allocator {
 public:
  std::function<void()> hook = [] {};

  const char* name() const override { return "hooked"; }
  MemorySpace space() const override { return MemorySpace::kHost; }
  void* allocate(size_t bytes) override {
    hook();
    return cpu_allocator().allocate(bytes);
  }
  void deallocate(void* data, size_t bytes) override { cpu_allocator().deallocate(data, bytes); }
  AllocatorStats stats() const override { return {}; }
  void reset_peak() override {}
};

class HookedDevice final : public Device {
 public:
  explicit HookedDevice(Allocator& allocator)
      : Device({.name = DeviceName::parse("/job:a/replica:0/task:0/device:CPU:0").value(),
                .incarnation = 1},
               make_ref<ResourceManager>()),
        allocator_(allocator) {}
  Allocator& allocator() override { return allocator_; }
  Allocator& host_allocator() override { return allocator_; }
  void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }

 private:
  Allocator& allocator_;
};

enum class First : uint8_t { kTensor, kReference, kResource };

struct Case {
  const char* op;
  AttrMap attrs;
  std::vector<Tensor> inputs;
  size_t changing;
  Tensor bad;
  First first = First::kTensor;  // whether the first input is the value of a variable
};

using Outputs = Result<std::vector<Tensor>>;

// Runs the case with `changing` for the input that changes. `at_allocation` is called before each.
Outputs run(const Case& c, const Tensor& changing, std::function<void()> at_allocation = [] {}) {
  OpEnv env;
  static auto& allocator = *new HookedAllocator;
  const Ref<HookedDevice> device = make_ref<HookedDevice>(allocator);
  OpTester op(env, c.op);
  op.name("op").device(*device).check_shapes(false);
  for (const auto& [name, value] : c.attrs) op.attr(name, value);
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (i > 0 || c.first == First::kTensor) {
      op.input(i == c.changing ? changing : c.inputs[i]);
    } else if (c.first == First::kReference) {
      op.input_ref(make_ref_cell(c.inputs[0].clone().value()));
    } else {
      OpTester handle(env, "VarHandleOp"), assign(env, "AssignVariableOp");
      handle.device(*device).attr("shared_name", "v").attr("dtype", c.inputs[0].dtype());
      const Tensor resource = handle.attr("shape", PartialShape()).run_one().value();
      assign.device(*device).input(resource).input(c.inputs[0].clone().value());
      EXPECT_TRUE(assign.run().ok());
      op.input(resource);
    }
  }
  allocator.hook = std::move(at_allocation);
  Outputs outputs = op.run();
  allocator.hook = [] {};
  return outputs;
}

bool same(const Outputs& a, const Outputs& b) {
  if (!a.ok() || !b.ok()) return a.ok() == b.ok();
  for (size_t i = 0; i < a->size(); ++i) {
    if (!bit_equal((*a)[i], (*b)[i])) return false;
  }
  return true;
}

Tensor rows(int64_t n) {
  Tensor x = Tensor::zeros(DType::kFloat, Shape{n, 3}).value();
  for (size_t i = 0; i < x.data<float>().size(); ++i) {
    x.mutable_data<float>()[i] = static_cast<float>(i + 1);
  }
  return x;
}
Tensor image(Shape shape) { return rows(shape.num_elements() / 3).reshaped(shape).value(); }
Tensor i32(std::initializer_list<int32_t> values) { return Tensor::vector<int32_t>(values); }
Tensor i64(std::initializer_list<int64_t> values) { return Tensor::vector<int64_t>(values); }

constexpr int32_t kFar = 1 << 29;  // so far away that an access shows, sanitizer or not

std::vector<Case> all_cases() {
  const Tensor x = rows(4), row = rows(1), pixels = image({1, 2, 2, 3});
  const Tensor pair = Tensor::of<int64_t>({1, 2}, {1, 0}),
               far_pair = Tensor::of<int64_t>({1, 2}, {kFar, 0}), sizes = i64({2, 2});
  const Tensor box = Tensor::of<float>({1, 4}, {0, 0, 1, 1});
  const AttrMap sampler = {{"num_true", 1},   {"num_sampled", 2}, {"unique", true},
                           {"range_max", 20}, {"seed", 1},        {"seed2", 2}};
  const Tensor list = OpTester("TensorListFromTensor").input(x).input(i32({3})).run_one().value();
  return {
      {"Gather", {}, {x, i32({1})}, 1, i32({kFar})},
      {"GatherNd",
       {},
       {x, Tensor::of<int32_t>({1, 1}, {1})},
       1,
       Tensor::of<int32_t>({1, 1}, {kFar})},
      {"ScatterNd",
       {},
       {Tensor::of<int32_t>({1, 1}, {1}), row, i32({4, 3})},
       0,
       Tensor::of<int32_t>({1, 1}, {kFar})},
      {"SegmentSum", {}, {row, i32({0})}, 1, i32({-kFar})},
      {"UnsortedSegmentSum", {}, {row, i32({1}), Tensor::scalar<int32_t>(2)}, 1, i32({kFar})},
      {"SparseSegmentSum", {}, {x, i32({1}), i32({0})}, 1, i32({kFar})},
      {"DynamicPartition", {{"num_partitions", 2}}, {row, i32({1})}, 1, i32({kFar})},
      {"ReverseSequence", {{"seq_dim", 1}}, {row, i32({2})}, 1, i32({kFar})},
      {"Reverse",
       {},
       {x, Tensor::vector<bool>({true, false})},
       1,
       Tensor::vector<bool>({false, false})},
      {"MirrorPad",
       {{"mode", "SYMMETRIC"}},
       {i32({1, 2, 3}), Tensor::of<int32_t>({1, 2}, {1, 1})},
       1,
       Tensor::of<int32_t>({1, 2}, {-kFar, 1})},
      {"OneHot",
       {},
       {i32({1}), Tensor::scalar<int32_t>(3), Tensor::scalar(1.0F), Tensor::scalar(0.0F)},
       0,
       i32({kFar})},
      {"SparseToDense",
       {},
       {i32({1}), i32({4}), Tensor::scalar(1.0F), Tensor::scalar(0.0F)},
       0,
       i32({kFar})},
      {"Bincount", {}, {i32({1}), Tensor::scalar<int32_t>(3), rows(0)}, 0, i32({-kFar})},
      {"SparseSoftmaxCrossEntropyWithLogits", {}, {x, i32({0, 1, 2, 0})}, 1, i32({0, 1, kFar, 0})},
      {"InTopK", {{"k", 1}}, {x, i32({0, 1, 2, 0})}, 1, i32({0, 1, kFar, 0})},
      {"MaxPoolGradWithArgmax",
       {{"ksize", std::vector<int64_t>{1, 2, 2, 1}},
        {"strides", std::vector<int64_t>{1, 1, 1, 1}},
        {"padding", "VALID"}},
       {pixels, image({1, 1, 1, 3}), Tensor::of<int64_t>({1, 1, 1, 3}, {0, 1, 2})},
       2,
       Tensor::of<int64_t>({1, 1, 1, 3}, {0, kFar, 2})},
      {"CropAndResize", {}, {pixels, box, i32({0}), i32({2, 2})}, 2, i32({kFar})},
      {"CropAndResizeGradImage",
       {{"T", DType::kFloat}},
       {pixels, box, i32({0}), i32({1, 2, 2, 3})},
       2,
       i32({kFar})},
      {"CropAndResizeGradBoxes", {}, {pixels, pixels, box, i32({0})}, 3, i32({kFar})},
      {"SampleDistortedBoundingBox",
       {{"seed", 1}},
       {i32({10, 10, 3}), Tensor::of<float>({1, 1, 4}, {0, 0, 1, 1})},
       1,
       Tensor::of<float>({1, 1, 4}, {0, 0, NAN, 1})},
      {"EditDistance", {}, {pair, i32({7}), sizes, pair, i32({8}), sizes}, 0, far_pair},
      {"SetSize", {}, {pair, i32({7}), sizes}, 0, far_pair},
      {"SparseToSparseSetOperation",
       {{"set_operation", "union"}},
       {pair, i32({7}), sizes, pair, i32({8}), sizes},
       3,
       far_pair},
      {"SerializeManySparse", {}, {pair, i32({7}), sizes}, 0, far_pair},
      {"UniformCandidateSampler",
       sampler,
       {Tensor::of<int64_t>({1, 1}, {3})},
       0,
       Tensor::of<int64_t>({1, 1}, {kFar})},
      {"LearnedUnigramCandidateSampler",
       sampler,
       {Tensor::of<int64_t>({1, 1}, {3})},
       0,
       Tensor::of<int64_t>({1, 1}, {kFar})},
      {"ParameterizedTruncatedNormal",
       {{"seed", 1}},
       {i32({5}), Tensor::scalar(0.0F), Tensor::scalar(1.0F), Tensor::scalar(-1.0F),
        Tensor::scalar(1.0F)},
       2,
       Tensor::scalar(-1.0F)},
      {"TensorListGather",
       {{"element_dtype", DType::kFloat}},
       {list, i32({1}), i32({3})},
       1,
       i32({kFar})},
      {"ScatterUpdate", {}, {x, i32({1}), row}, 1, i32({kFar}), First::kReference},
      {"ScatterAdd", {}, {x, i32({1}), Tensor::scalar(1.0F)}, 1, i32({kFar}), First::kReference},
      {"ScatterNdUpdate",
       {},
       {x, Tensor::of<int32_t>({1, 1}, {1}), row},
       1,
       Tensor::of<int32_t>({1, 1}, {kFar}),
       First::kReference},
      {"ResourceGather",
       {{"dtype", DType::kFloat}},
       {x, i32({1})},
       1,
       i32({kFar}),
       First::kResource},
  };
}

void set(Tensor& to, const Tensor& from) {
  std::memcpy(to.mutable_raw(), from.raw(), from.bytes());
}

class ChangingInputs : public ::testing::TestWithParam<Case> {};

// The change comes just before the first allocation of the kernel, the second, and so on.
TEST_P(ChangingInputs, BetweenCheckAndUse) {
  const Case& c = GetParam();
  const Tensor& good = c.inputs[c.changing];
  const Outputs with_good = run(c, good), with_bad = run(c, c.bad);
  ASSERT_TRUE(with_good.ok()) << with_good.status().to_string();
  Tensor changing = good.clone().value();
  for (int before = 0, allocations = 1; before < allocations; ++before) {
    set(changing, good);
    allocations = 0;
    const Outputs got = run(c, changing, [&] {
      if (allocations++ == before) set(changing, c.bad);
    });
    EXPECT_TRUE(same(got, with_good) || same(got, with_bad)) << "allocation " << before;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ChangingInputs, ::testing::ValuesIn(all_cases()),
                         [](const auto& c) { return std::string(c.param.op); });

}  // namespace
}  // namespace millrace
