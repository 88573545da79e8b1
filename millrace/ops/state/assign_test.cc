#include "millrace/graph/shape_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/state/state_testing.h"

namespace millrace {
namespace {

class AssignTest : public StateTest {};

Tensor floats(std::initializer_list<float> values) { return Tensor::vector<float>(values); }

TEST_F(AssignTest, AMovedValueIsTakenWithoutACopy) {
  Ref<RefCell> v = make_ref_cell();
  Tensor value = floats({1, 2});
  const void* memory = value.raw();
  ASSERT_TRUE(op("Assign").movable(true).input_ref(v).input(std::move(value)).run().ok());
  EXPECT_EQ(v->read().raw(), memory);

  const Tensor resource = handle("v");
  value = floats({3, 4});
  memory = value.raw();
  ASSERT_TRUE(
      op("AssignVariableOp").movable(true).input(resource).input(std::move(value)).run().ok());
  EXPECT_EQ(read(resource)->raw(), memory);
}

TEST_F(AssignTest, AValueThatOthersHoldIsCopied) {
  const Tensor value = floats({1, 2});
  Ref<RefCell> v = make_ref_cell();
  ASSERT_TRUE(op("Assign").input_ref(v).input(value).run().ok());
  EXPECT_NE(v->read().raw(), value.raw());
  const Tensor resource = variable("v", value);
  EXPECT_NE(read(resource)->raw(), value.raw());
  // A part of a larger buffer would keep all of it.
  Tensor matrix = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  Tensor row = matrix.row(1);
  matrix = Tensor();
  ASSERT_TRUE(op("Assign").movable(true).input_ref(v).input(std::move(row)).run().ok());
  EXPECT_EQ(v->read().buffer()->bytes(), 8u);
  expect_equal(v->read(), floats({3, 4}));
}

TEST_F(AssignTest, MemoryIsReusedUnlessAReaderHoldsIt) {
  Ref<RefCell> v = make_ref_cell(floats({1, 2}));
  const void* memory = v->read().raw();
  ASSERT_TRUE(op("Assign").input_ref(v).input(floats({3, 4})).run().ok());
  EXPECT_EQ(v->read().raw(), memory);
  const Tensor seen = v->read();
  ASSERT_TRUE(op("Assign").input_ref(v).input(floats({5, 6})).run().ok());
  expect_equal(seen, floats({3, 4}));
  expect_equal(v->read(), floats({5, 6}));
}

TEST_F(AssignTest, ValidateShape) {
  Ref<RefCell> v = make_ref_cell(floats({1, 2}));
  expect_error(op("Assign").input_ref(v).input(floats({1})).run(), Code::kInvalidArgument,
               "lhs shape= [2] rhs shape= [1]");
  EXPECT_TRUE(
      op("Assign").attr("validate_shape", false).input_ref(v).input(floats({1})).run().ok());
  expect_equal(v->read(), floats({1}));

  const Tensor resource = variable("v", floats({1, 2}));
  EXPECT_TRUE(assign(resource, floats({1})).ok());
  expect_error(op("AssignVariableOp")
                   .attr("validate_shape", true)
                   .input(resource)
                   .input(floats({1, 2}))
                   .run(),
               Code::kInvalidArgument, "lhs shape= [1] rhs shape= [2]");
}

TEST_F(AssignTest, EveryType) {
  for (int i = 1; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{2, 3}}) {
      const Tensor value = Tensor::zeros(dtype, shape).value();
      Ref<RefCell> v = make_ref_cell();
      ASSERT_TRUE(op("Assign").input_ref(v).input(value).run().ok()) << dtype_name(dtype);
      EXPECT_EQ(v->read().shape(), shape);
      const Tensor resource = variable(str_cat(dtype, shape), value);
      EXPECT_EQ(read(resource, dtype)->shape(), shape);
    }
  }
  const Tensor words = Tensor::vector<std::string>({"a", "b"});
  expect_equal(read(variable("words", words), DType::kString), words);
}

TEST_F(AssignTest, AddAndSubForEveryType) {
  for (const bool add : {true, false}) {
    const std::string name = add ? "AssignAdd" : "AssignSub";
    const std::vector<DType> types = kernel_types(name.c_str());
    EXPECT_EQ(types.size(), 14u);
    for (DType dtype : types) {
      for (int64_t n : {0, 1, 1000}) {
        std::vector<Complex128> a, b, expected;
        for (int64_t i = 0; i < n; ++i) {
          a.push_back(static_cast<double>(10 + i % 5));
          b.push_back(static_cast<double>(i % 7));
          expected.push_back(add ? a.back() + b.back() : a.back() - b.back());
        }
        const Shape shape{n};
        const Tensor value = make_tensor(dtype, shape, b);
        Ref<RefCell> v = make_ref_cell(make_tensor(dtype, shape, a));
        expect_equal(op(name).input_ref(v).input(value).run_one(),
                     make_tensor(dtype, shape, expected));
        const Tensor resource = variable("v", make_tensor(dtype, shape, a));
        ASSERT_TRUE(op(name + "VariableOp").input(resource).input(value).run().ok());
        expect_equal(read(resource, dtype), make_tensor(dtype, shape, expected));
        ASSERT_TRUE(op("DestroyResourceOp").input(resource).run().ok());
      }
    }
  }
}

TEST_F(AssignTest, UpdatesCheckTheirInput) {
  Ref<RefCell> v = make_ref_cell(floats({1, 2}));
  expect_error(op("AssignAdd").input_ref(v).input(Tensor::scalar(1.0f)).run(),
               Code::kInvalidArgument, "shape [2] using a Tensor with shape []");
  Ref<RefCell> empty = make_ref_cell();
  empty->name = "w";
  expect_error(op("AssignAdd").input_ref(empty).input(floats({1})).run(), Code::kFailedPrecondition,
               "Attempting to use uninitialized value w");
  expect_error(op("AssignSubVariableOp").input(handle("w")).input(floats({1})).run(),
               Code::kFailedPrecondition, "resource variable w");
  expect_error(op("AssignAddVariableOp")
                   .input(variable("d", floats({1})))
                   .input(Tensor::vector<double>({1}))
                   .check_shapes(false)
                   .run(),
               Code::kInvalidArgument, "holds float, this op expects double");
}

TEST_F(AssignTest, ALockedUpdateLeavesReadersTheirValue) {
  Ref<RefCell> v = make_ref_cell(floats({1, 2}));
  const Tensor before = v->read();
  ASSERT_TRUE(
      op("AssignAdd").attr("use_locking", true).input_ref(v).input(floats({1, 1})).run().ok());
  expect_equal(before, floats({1, 2}));
  // Without the lock it is made in place.
  const Tensor shared = v->read();
  ASSERT_TRUE(op("AssignAdd").input_ref(v).input(floats({1, 1})).run().ok());
  expect_equal(shared, floats({3, 4}));

  const Tensor resource = variable("v", floats({1, 2}));
  const Tensor seen = read(resource).value();
  ASSERT_TRUE(op("AssignAddVariableOp").input(resource).input(floats({1, 1})).run().ok());
  expect_equal(seen, floats({1, 2}));
  expect_equal(read(resource), floats({2, 3}));
}

TEST_F(AssignTest, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "Assign", {}, "[2,?];[?,3]"), "[2,3]");
  EXPECT_EQ(*infer_shapes(ops, "Assign", {}, "?;[3]"), "[3]");
  EXPECT_FALSE(infer_shapes(ops, "Assign", {}, "[2];[3]").ok());
  EXPECT_EQ(*infer_shapes(ops, "Assign", {{"validate_shape", false}}, "[2];[3]"), "[3]");
  EXPECT_EQ(*infer_shapes(ops, "AssignAdd", {}, "[?,2];[1,?]"), "[1,2]");
  EXPECT_FALSE(infer_shapes(ops, "AssignSub", {}, "[2];[]").ok());
  EXPECT_EQ(*infer_shapes(ops, "AssignVariableOp", {}, "[];[3]"), "");
  EXPECT_FALSE(infer_shapes(ops, "AssignVariableOp", {}, "[1];[3]").ok());
}

}  // namespace
}  // namespace millrace
