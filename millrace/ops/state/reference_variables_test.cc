#include "millrace/graph/shape_testing.h"
#include "millrace/ops/state/state_testing.h"

namespace millrace {
namespace {

class ReferenceVariables : public StateTest {
 protected:
  Result<Ref<RefCell>> make(std::string_view node, std::string_view shared_name = "",
                            std::string_view container = "", DType dtype = DType::kFloat,
                            PartialShape shape = {2}, std::string_view op_name = "VariableV2") {
    MR_TRY_ASSIGN(std::vector<Value> values, op(op_name)
                                                 .name(node)
                                                 .attr("dtype", dtype)
                                                 .attr("shape", std::move(shape))
                                                 .attr("shared_name", shared_name)
                                                 .attr("container", container)
                                                 .run_values());
    return values[0].cell;
  }
};

TEST_F(ReferenceVariables, TheNodeNameIsTheNameWithoutASharedOne) {
  const Ref<RefCell> a = make("a").value();
  EXPECT_EQ(a->name, "a");
  EXPECT_EQ(make("a").value(), a);
  EXPECT_EQ(make("b", "a").value(), a);
  EXPECT_FALSE(make("b").value() == a);
  EXPECT_FALSE(make("a", "", "elsewhere").value() == a);
  EXPECT_EQ(env_.resources().list().size(), 3u);
  EXPECT_EQ(env_.resources().list()[0].container, "elsewhere");
  EXPECT_EQ(env_.resources().list()[1].description, "Variable float [2] (uninitialized)");
}

TEST_F(ReferenceVariables, SharingNeedsOneTypeAndShape) {
  ASSERT_TRUE(make("a").ok());
  expect_error(make("a", "", "", DType::kDouble), Code::kInvalidArgument, "was made as float [2]");
  expect_error(make("a", "", "", DType::kFloat, {3}), Code::kInvalidArgument, "expects float [3]");
  EXPECT_TRUE(make("a", "", "", DType::kFloat, PartialShape()).ok());
}

TEST_F(ReferenceVariables, BadNames) {
  expect_error(make("a", "_private"), Code::kInvalidArgument, "must not begin with '_'");
  expect_error(make("a", "", "under_score"), Code::kInvalidArgument, "got 'under_score'");
}

TEST_F(ReferenceVariables, TheFirstValueHasTheDeclaredShape) {
  const Tensor three = Tensor::vector<float>({1, 2, 3});
  Ref<RefCell> v = make("v").value();
  expect_error(op("Assign").input_ref(v).input(three).run(), Code::kInvalidArgument,
               "lhs shape= [2] rhs shape= [3]");
  EXPECT_FALSE(v->read().valid());
  EXPECT_TRUE(op("Assign").attr("validate_shape", false).input_ref(v).input(three).run().ok());
  expect_equal(v->read(), three);

  Ref<RefCell> old = make("old", "", "", DType::kFloat, PartialShape::scalar(), "Variable").value();
  EXPECT_TRUE(op("Assign").input_ref(old).input(three).run().ok());
}

TEST_F(ReferenceVariables, IsVariableInitialized) {
  Ref<RefCell> v = make("v").value();
  auto initialized = [&] {
    return op("IsVariableInitialized").attr("dtype", DType::kFloat).input_ref(v).run_one();
  };
  expect_equal(initialized(), Tensor::scalar(false));
  ASSERT_TRUE(op("Assign").input_ref(v).input(Tensor::vector<float>({1, 2})).run().ok());
  expect_equal(initialized(), Tensor::scalar(true));
}

TEST_F(ReferenceVariables, TemporaryVariableLivesInItsStep) {
  auto make_temporary = [&] {
    return op("TemporaryVariable")
        .attr("dtype", DType::kInt32)
        .attr("shape", PartialShape({2}))
        .attr("var_name", "t")
        .run_values();
  };
  Result<std::vector<Value>> made = make_temporary();
  ASSERT_TRUE(made.ok());
  Ref<RefCell> cell = (*made)[0].cell;
  expect_equal(cell->read(), Tensor::vector<int32_t>({0, 0}));
  expect_error(make_temporary(), Code::kAlreadyExists, "t/0:0");

  const Tensor ones = Tensor::vector<int32_t>({1, 1});
  ASSERT_TRUE(op("AssignAdd").input_ref(cell).input(ones).run().ok());
  expect_error(op("DestroyTemporaryVariable").attr("var_name", "u").input_ref(cell).run(),
               Code::kNotFound, "u/0:0");
  expect_equal(op("DestroyTemporaryVariable").attr("var_name", "t").input_ref(cell).run_one(),
               ones);
  EXPECT_TRUE(make_temporary().ok());
  env_.next_step();
  EXPECT_TRUE(make_temporary().ok());
  expect_error(
      op("TemporaryVariable").attr("dtype", DType::kInt32).attr("shape", PartialShape({-1})).run(),
      Code::kInvalidArgument, "[?]");
}

TEST_F(ReferenceVariables, CountUpTo) {
  for (const Tensor& start : {Tensor::scalar<int32_t>(3), Tensor::scalar<int64_t>(3)}) {
    Ref<RefCell> counter = make_ref_cell(start.clone().value());
    auto count = [&] { return op("CountUpTo").attr("limit", 5).input_ref(counter).run_one(); };
    const Tensor before = counter->read();
    expect_equal(count(), start);
    EXPECT_TRUE(count().ok());
    expect_error(count(), Code::kOutOfRange, "Reached limit of 5");
    expect_error(count(), Code::kOutOfRange, "Reached limit of 5");
    expect_equal(before, start);
  }
  expect_error(
      op("CountUpTo").attr("limit", 5).input_ref(make_ref_cell(Tensor::vector<int32_t>({1}))).run(),
      Code::kInvalidArgument, "must be a scalar, got [1]");
  expect_error(
      op("CountUpTo").attr("limit", 5).attr("T", DType::kInt32).input_ref(make_ref_cell()).run(),
      Code::kFailedPrecondition, "uninitialized value");
}

TEST_F(ReferenceVariables, AnUpdateInPlaceCopiesWhatASnapshotKeeps) {
  for (const bool use_locking : {false, true}) {
    Ref<RefCell> cell = make_ref_cell(Tensor::vector<float>({1, 2}));
    auto add = [&] {
      return op("AssignAdd")
          .attr("use_locking", use_locking)
          .input_ref(cell)
          .input(Tensor::vector<float>({10, 10}))
          .run()
          .status();
    };
    const void* first = cell->read().raw();
    {
      const Tensor saved = cell->read();
      const Snapshot snapshot(saved.buffer());
      ASSERT_TRUE(add().ok());
      ASSERT_TRUE(add().ok());
      EXPECT_TRUE(bit_equal(saved, Tensor::vector<float>({1, 2})));
    }
    EXPECT_TRUE(bit_equal(cell->read(), Tensor::vector<float>({21, 22})));
    const void* second = cell->read().raw();
    EXPECT_NE(first, second);
    ASSERT_TRUE(add().ok());
    EXPECT_EQ(cell->read().raw(), second);  // in place again
  }
}

TEST_F(ReferenceVariables, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "VariableV2", {{"shape", PartialShape({2, -1})}}, ""), "[2,?]");
  EXPECT_EQ(*infer_shapes(ops, "VariableV2", {{"shape", PartialShape::scalar()}}, ""), "[]");
  EXPECT_EQ(*infer_shapes(ops, "Variable", {{"shape", PartialShape::scalar()}}, ""), "?");
  EXPECT_EQ(*infer_shapes(ops, "Variable", {{"shape", PartialShape({2})}}, ""), "[2]");
  EXPECT_EQ(*infer_shapes(ops, "IsVariableInitialized", {}, "[2]"), "[]");
  EXPECT_EQ(*infer_shapes(ops, "CountUpTo", {{"limit", 3}}, "?"), "[]");
  EXPECT_FALSE(infer_shapes(ops, "CountUpTo", {{"limit", 3}}, "[1]").ok());
}

}  // namespace
}  // namespace millrace
