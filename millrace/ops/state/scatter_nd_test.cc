// ScatterNdX and ResourceScatterNdX, StridedSliceAssign and ResourceStridedSliceAssign.

#include <gtest/gtest.h>

#include <limits>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_state_ops});

using Attrs = std::vector<std::pair<const char*, int64_t>>;

// What a variable that held `x` holds after an op; as a reference and as a resource.
Result<Tensor> updated(const std::string& op, bool resource, const Tensor& x,
                       const std::vector<Tensor>& inputs, const Attrs& attrs = {}) {
  OpEnv env;
  OpTester tester(env, resource ? "Resource" + op : op);
  for (const auto& [name, value] : attrs) tester.attr(name, value);
  Ref<RefCell> cell = make_ref_cell(x.clone().value());
  Tensor handle;
  if (resource) {
    MR_TRY_ASSIGN(
        handle,
        OpTester(env, "VarHandleOp").attr("dtype", x.dtype()).attr("shape", x.shape()).run_one());
    MR_TRY(OpTester(env, "AssignVariableOp").input(handle).input(x).run().status());
    tester.input(handle);
  } else {
    tester.input_ref(cell);
  }
  for (const Tensor& input : inputs) tester.input(input);
  MR_TRY(tester.run().status());
  if (!resource) return cell->read();
  return OpTester(env, "ReadVariableOp").attr("dtype", x.dtype()).input(handle).run_one();
}

void expect_invalid(const Result<Tensor>& result, std::string_view part) {
  EXPECT_EQ(result.status().code(), Code::kInvalidArgument) << result.status().to_string();
  EXPECT_NE(result.status().message().find(part), std::string_view::npos)
      << result.status().to_string();
}

TEST(ScatterNd, EveryOpInEveryType) {
  struct Case {
    const char* op;
    bool resource;
    std::vector<Complex128> want;  // of elements [2] and [0], named 2, 0, 2
  };
  const Case cases[] = {{"ScatterNdUpdate", true, {3, 8, 4}}, {"ScatterNdAdd", true, {11, 8, 14}},
                        {"ScatterNdSub", false, {5, 8, 2}},   {"ScatterNdMul", false, {24, 8, 64}},
                        {"ScatterNdMax", true, {8, 8, 8}},    {"ScatterNdMin", true, {3, 8, 2}}};
  for (const auto& [op, has_resource, want] : cases) {
    for (bool resource : {false, true}) {
      if (resource && !has_resource) continue;
      for (DType dtype : kernel_types(resource ? (std::string("Resource") + op).c_str() : op)) {
        if (!kNumbers.contains(dtype)) continue;
        const Tensor x = make_tensor(dtype, {3}, {8, 8, 8});
        const Tensor updates = make_tensor(dtype, {3}, {2, 3, 4});
        const Tensor y =
            *updated(op, resource, x, {Tensor::of<int64_t>({3, 1}, {2, 0, 2}), updates});
        std::vector<Complex128> expected = want;
        const std::string_view name = op;
        if (name.ends_with("Mul")) expected = {24, 8, 64};
        EXPECT_EQ(values_of(y), expected) << op << dtype_name(dtype);
      }
    }
  }
  const Tensor y = *updated("ScatterNdDiv", false, Tensor::vector<int32_t>({9, 8}),
                            {Tensor::of<int32_t>({1, 1}, {0}), Tensor::vector<int32_t>({2})});
  expect_tensor_equal(y, Tensor::vector<int32_t>({4, 8}));
  expect_invalid(updated("ScatterNdDiv", false, Tensor::vector<int32_t>({9, 8}),
                         {Tensor::of<int32_t>({1, 1}, {0}), Tensor::vector<int32_t>({0})}),
                 "division by zero");
}

TEST(ScatterNd, PartsOfEveryRank) {
  for (bool resource : {false, true}) {
    const Tensor x = Tensor::of<std::string>({2, 2}, {"a", "b", "c", "d"});
    expect_tensor_equal(*updated("ScatterNdUpdate", resource, x,
                                 {Tensor::of<int32_t>({2, 2}, {0, 1, 1, 0}),
                                  Tensor::vector<std::string>({"x", "y"})}),
                        Tensor::of<std::string>({2, 2}, {"a", "x", "y", "d"}));
    expect_tensor_equal(
        *updated("ScatterNdUpdate", resource, x,
                 {Tensor::vector<int32_t>({1}), Tensor::vector<std::string>({"x", "y"})}),
        Tensor::of<std::string>({2, 2}, {"a", "b", "x", "y"}));
    // An index vector of no elements names everything.
    expect_tensor_equal(*updated("ScatterNdUpdate", resource, x,
                                 {Tensor::allocate(DType::kInt32, {1, 0}).value(),
                                  Tensor::of<std::string>({1, 2, 2}, {"1", "2", "3", "4"})}),
                        Tensor::of<std::string>({2, 2}, {"1", "2", "3", "4"}));
    expect_tensor_equal(*updated("ScatterNdUpdate", resource, x,
                                 {Tensor::allocate(DType::kInt32, {0, 2}).value(),
                                  Tensor::allocate(DType::kString, {0}).value()}),
                        x);
  }
}

TEST(ScatterNd, BadInputs) {
  const Tensor x = Tensor::vector<float>({1, 2, 3, 4, 5, 6});
  for (bool resource : {false, true}) {
    const auto add = [&](const Tensor& indices, const Tensor& updates) {
      return updated("ScatterNdAdd", resource, x, {indices, updates});
    };
    const Tensor three = Tensor::vector<float>({1, 2, 3});
    expect_invalid(add(Tensor::of<int32_t>({3, 1}, {-1, 0, 5}), three),
                   "indices[0] = [-1] does not index into shape [6]");
    expect_invalid(add(Tensor::of<int32_t>({3, 1}, {2, 0, 6}), three),
                   "indices[2] = [6] does not index into shape [6]");
    expect_invalid(add(Tensor::of<int32_t>({2, 1}, {2, 0}), three), "'updates' must have shape");
    expect_invalid(add(Tensor::of<int32_t>({1, 2}, {2, 0}), three), "too long");
    expect_invalid(add(Tensor::scalar<int32_t>(0), three), "");
  }
}

TEST(StridedSliceAssign, ReplacesTheSlice) {
  const Tensor x = Tensor::of<int32_t>({2, 3}, {1, 2, 3, 4, 5, 6});
  const auto ints = [](std::initializer_list<int32_t> values) { return Tensor::vector(values); };
  for (bool resource : {false, true}) {
    const auto assign = [&](const Tensor& begin, const Tensor& end, const Tensor& strides,
                            const Tensor& value, const Attrs& attrs = {}) {
      return updated("StridedSliceAssign", resource, x, {begin, end, strides, value}, attrs);
    };
    expect_tensor_equal(*assign(ints({0, 2}), ints({2, 0}), ints({1, -1}),
                                Tensor::of<int32_t>({2, 2}, {10, 20, 30, 40})),
                        Tensor::of<int32_t>({2, 3}, {1, 20, 10, 4, 40, 30}));
    expect_tensor_equal(
        *assign(ints({1}), ints({2}), ints({1}), ints({7, 8, 9}), {{"shrink_axis_mask", 1}}),
        Tensor::of<int32_t>({2, 3}, {1, 2, 3, 7, 8, 9}));
    expect_tensor_equal(
        *assign(ints({1}), ints({1}), ints({1}), Tensor::allocate(DType::kInt32, {0, 3}).value()),
        x);
    expect_invalid(assign(ints({0}), ints({1}), ints({1}), ints({7, 8, 9})),
                   "'value' must have the shape of the slice, [1,3], got [3]");
    expect_invalid(assign(ints({0}), ints({1}), ints({0}), ints({7, 8, 9})), "");
  }
}

}  // namespace
}  // namespace millrace
