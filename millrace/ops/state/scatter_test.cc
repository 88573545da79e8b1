#include <algorithm>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/state/state_testing.h"

namespace millrace {
namespace {

struct Case {
  const char* suffix;
  double (*update)(double, double);
  size_t reference_types, resource_types;
};
const Case kCases[] = {
    {"Update", [](double, double b) { return b; }, 0, 0},
    {"Add", [](double a, double b) { return a + b; }, 14, 14},
    {"Sub", [](double a, double b) { return a - b; }, 14, 14},
    {"Mul", [](double a, double b) { return a * b; }, 14, 14},
    {"Div", [](double a, double b) { return a / b; }, 14, 14},
    {"Min", [](double a, double b) { return std::min(a, b); }, 6, 12},
    {"Max", [](double a, double b) { return std::max(a, b); }, 6, 12},
};

class ScatterTest : public StateTest {
 protected:
  // Runs both forms, which must agree, and returns the variable's value afterwards.
  Result<Tensor> scatter(const std::string& suffix, const Tensor& value, const Tensor& indices,
                         const Tensor& updates) {
    Ref<RefCell> cell = make_ref_cell(value.clone().value());
    Result<Tensor> by_reference =
        op("Scatter" + suffix).input_ref(cell).input(indices).input(updates).run_one();
    const Tensor resource = variable("v", value);
    const Status by_resource =
        op("ResourceScatter" + suffix).input(resource).input(indices).input(updates).run().status();
    EXPECT_EQ(by_reference.status().to_string(), by_resource.to_string());
    const Tensor now = read(resource, value.dtype()).value();
    EXPECT_TRUE(bit_equal(now, by_reference.ok() ? *by_reference : cell->read()));
    if (!by_reference.ok()) {
      EXPECT_TRUE(bit_equal(now, value));  // nothing was done
    }
    EXPECT_TRUE(op("DestroyResourceOp").input(resource).run().ok());
    return by_reference;
  }
};

TEST_F(ScatterTest, EveryOpAndType) {
  for (const Case& c : kCases) {
    const std::string name = str_cat("Scatter", c.suffix);
    std::vector<DType> types = kernel_types(name.c_str());
    EXPECT_EQ(types.size(), c.reference_types) << name;
    EXPECT_EQ(kernel_types(("Resource" + name).c_str(), "dtype").size(), c.resource_types) << name;
    if (c.reference_types == 0) types = {DType::kBool, DType::kQInt8, DType::kUInt64, DType::kHalf};
    for (DType dtype : types) {
      const bool is_bool = dtype == DType::kBool;
      const std::vector<double> before = {12, 24, 36, 48, 60, 72}, updates = {2, 3, 4, 1, 6, 2};
      const std::vector<int> rows = {2, 0, 2};
      std::vector<Complex128> start, by, after;
      for (double x : before) start.push_back(is_bool ? 0 : x);
      for (double x : updates) by.push_back(is_bool ? 1 : x);
      std::vector<double> expected = before;
      for (size_t i = 0; i < updates.size(); ++i) {
        double& at = expected[static_cast<size_t>(rows[i / 2]) * 2 + i % 2];
        at = c.update(at, updates[i]);
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        after.push_back(!is_bool ? expected[i] : i / 2 == 1 ? 0 : 1);
      }
      // 12 * ... stays small enough for every type but int8.
      if (dtype == DType::kInt8 && std::string(c.suffix) == "Mul") continue;
      for (const Tensor& indices :
           {Tensor::vector<int32_t>({2, 0, 2}), Tensor::vector<int64_t>({2, 0, 2})}) {
        expect_equal(scatter(c.suffix, make_tensor(dtype, {3, 2}, start), indices,
                             make_tensor(dtype, {3, 2}, by)),
                     make_tensor(dtype, {3, 2}, after));
      }
    }
  }
}

TEST_F(ScatterTest, ScalarUpdatesAndStrings) {
  expect_equal(scatter("Add", Tensor::of<float>({2, 2}, {1, 2, 3, 4}),
                       Tensor::vector<int32_t>({1, 1}), Tensor::scalar(10.0f)),
               Tensor::of<float>({2, 2}, {1, 2, 23, 24}));
  const Tensor words = Tensor::vector<std::string>({"a", "b", "c"});
  expect_equal(scatter("Update", words, Tensor::vector<int32_t>({2, 0}),
                       Tensor::vector<std::string>({"x", "y"})),
               Tensor::vector<std::string>({"y", "b", "x"}));
  expect_equal(
      scatter("Update", words, Tensor::scalar<int32_t>(1), Tensor::scalar<std::string>("z")),
      Tensor::vector<std::string>({"a", "z", "c"}));
}

TEST_F(ScatterTest, NothingToDo) {
  const Tensor value = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor none = Tensor::vector<int32_t>({});
  expect_equal(scatter("Add", value, none, Tensor::zeros(DType::kFloat, {0, 2}).value()), value);
  expect_equal(scatter("Add", value, none, Tensor::scalar(1.0f)), value);
  const Tensor narrow = Tensor::zeros(DType::kFloat, {2, 0}).value();
  expect_equal(scatter("Add", narrow, Tensor::vector<int32_t>({1}),
                       Tensor::zeros(DType::kFloat, {1, 0}).value()),
               narrow);
  const Tensor no_rows = Tensor::zeros(DType::kFloat, {0, 2}).value();
  expect_equal(scatter("Add", no_rows, none, no_rows), no_rows);
  expect_error(scatter("Add", no_rows, Tensor::vector<int32_t>({0}), Tensor::scalar(1.0f)),
               Code::kInvalidArgument, "indices[0] = 0 is not in [0, 0)");
}

TEST_F(ScatterTest, BadInput) {
  const Tensor value = Tensor::of<int32_t>({2, 2}, {1, 2, 3, 4});
  const Tensor row = Tensor::vector<int32_t>({5, 6});
  expect_error(scatter("Add", value, Tensor::scalar<int32_t>(2), row), Code::kInvalidArgument,
               "indices = 2 is not in [0, 2)");
  expect_error(scatter("Add", value, Tensor::scalar<int64_t>(INT64_MIN), row),
               Code::kInvalidArgument, "is not in [0, 2)");
  expect_error(scatter("Add", value, Tensor::vector<int32_t>({0, 1}), row), Code::kInvalidArgument,
               "[2,2], got [2]");
  expect_error(
      scatter("Update", Tensor::scalar(1.0f), Tensor::scalar<int32_t>(0), Tensor::scalar(1.0f)),
      Code::kInvalidArgument, "rank 1 or more");
  expect_error(scatter("Div", value, Tensor::scalar<int32_t>(0), Tensor::vector<int32_t>({1, 0})),
               Code::kInvalidArgument, "division by zero");
  expect_equal(scatter("Div", Tensor::vector<int32_t>({INT32_MIN}), Tensor::scalar<int32_t>(0),
                       Tensor::scalar<int32_t>(-1)),
               Tensor::vector<int32_t>({INT32_MIN}));
  expect_error(op("ScatterAdd")
                   .input_ref(make_ref_cell())
                   .input(Tensor::scalar<int32_t>(0))
                   .input(row)
                   .run(),
               Code::kFailedPrecondition, "uninitialized value");
  expect_error(op("ResourceScatterAdd")
                   .input(handle("none", DType::kInt32))
                   .input(Tensor::scalar<int32_t>(0))
                   .input(row)
                   .run(),
               Code::kFailedPrecondition, "variable none");
}

// Wide rows are shared among threads; rows that come twice still add up in order.
TEST_F(ScatterTest, ManyWideRowsOnAnyNumberOfThreads) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 random(seed);
  const int64_t rows = 50, width = 1003, n = 400;
  Tensor value = Tensor::zeros(DType::kFloat, {rows, width}).value();
  Tensor indices = Tensor::zeros(DType::kInt64, {n}).value();
  Tensor updates = Tensor::zeros(DType::kFloat, {n, width}).value();
  for (int64_t& i : indices.mutable_data<int64_t>()) i = static_cast<int64_t>(random() % rows);
  for (float& x : updates.mutable_data<float>()) x = static_cast<float>(random() % 1000) * 0.37f;
  Tensor expected = value.clone().value();
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      const size_t row = static_cast<size_t>(indices.data<int64_t>()[static_cast<size_t>(i)]);
      expected.mutable_data<float>()[row * width + static_cast<size_t>(j)] +=
          updates.data<float>()[static_cast<size_t>(i * width + j)];
    }
  }
  for (int threads : {1, 4}) {
    Ref<RefCell> cell = make_ref_cell(value.clone().value());
    expect_equal(
        op("ScatterAdd").threads(threads).input_ref(cell).input(indices).input(updates).run_one(),
        expected);
  }
}

TEST_F(ScatterTest, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  for (const Case& c : kCases) {
    const std::string name = str_cat("Scatter", c.suffix);
    EXPECT_EQ(*infer_shapes(ops, name, {}, "[5,3];[2];[2,3]"), "[5,3]");
    EXPECT_EQ(*infer_shapes(ops, name, {}, "[5,3];[2];[]"), "[5,3]");
    EXPECT_EQ(*infer_shapes(ops, name, {}, "?;[2];[2,3]"), "?");
    EXPECT_EQ(*infer_shapes(ops, name, {}, "[5,?];?;[2,3]"), "[5,?]");
    EXPECT_FALSE(infer_shapes(ops, name, {}, "[5,3];[2];[2,4]").ok());
    EXPECT_FALSE(infer_shapes(ops, name, {}, "[];[2];[2]").ok());
    EXPECT_EQ(*infer_shapes(ops, "Resource" + name, {}, "[];[2];[2,4]"), "");
  }
}

}  // namespace
}  // namespace millrace
