#include <gtest/gtest.h>

#include <limits>

#include "millrace/runtime/optimize.h"
#include "millrace/runtime/pass_testing.h"

namespace millrace {
namespace {

template <class T>
Tensor filled(const Shape& shape, T value) {
  Tensor out = Tensor::zeros(dtype_of<T>, shape).value();
  for (T& v : out.template mutable_data<T>()) v = value;
  return out;
}

class Identities : public testing::Test {
 protected:
  Output matrix(DType dtype = DType::kInt32) {
    return g.add("_Arg", {}, {{"T", dtype}, {"index", 0}, {kFeedShapeAttr, PartialShape{-1, 3}}},
                 {.name = "x"});
  }
  Output known_matrix() {
    return g.add("_Arg", {},
                 {{"T", DType::kInt32}, {"index", 0}, {kFeedShapeAttr, PartialShape{2, 3}}}, {});
  }
  Output list(std::initializer_list<int32_t> values) {
    return g.constant(Tensor::vector<int32_t>(values));
  }
  // Whether a fetch of `y` becomes one of `x`.
  bool becomes(Output y, Output x, bool real = false) {
    g.fetch(y, fetches_++);
    const NodeId fetch = g.graph.size() - 1;
    (void)(real ? remove_real_identities : remove_identities)(g.graph, options_).value();
    return g.graph.node(fetch).inputs[0] == x;
  }
  ToyGraph g;
  OptimizeOptions options_;
  int fetches_ = 0;
};

TEST_F(Identities, NeutralConstantsOfAnyRankThatKeepTheShape) {
  Output x = matrix();
  for (const Shape& shape : {Shape(), Shape{1}, Shape{3}, Shape{1, 1}, Shape{1, 3}}) {
    Output one = g.constant(filled<int32_t>(shape, 1)), zero = g.constant(filled(shape, 0));
    EXPECT_TRUE(becomes(g.add("Mul", {x, one}), x)) << shape.to_string();
    EXPECT_TRUE(becomes(g.add("Mul", {one, x}), x)) << shape.to_string();
    EXPECT_TRUE(becomes(g.add("Add", {zero, x}), x)) << shape.to_string();
    EXPECT_TRUE(becomes(g.add("Sub", {x, zero}), x)) << shape.to_string();
    EXPECT_FALSE(becomes(g.add("Sub", {zero, x}), x)) << shape.to_string();
    EXPECT_FALSE(becomes(g.add("Add", {x, one}), x)) << shape.to_string();
  }
  // Larger than x, or perhaps so: two rows may meet one.
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 3}, Shape{2, 1}}) {
    EXPECT_FALSE(becomes(g.add("Mul", {x, g.constant(filled<int32_t>(shape, 1))}), x))
        << shape.to_string();
  }
  // Of what is fed nothing is known, so only a scalar is sure to leave its shape alone.
  Output any = g.feed(DType::kInt32, 1);
  EXPECT_TRUE(becomes(g.add("Mul", {any, g.constant(1)}), any));
  EXPECT_FALSE(becomes(g.add("Mul", {any, list({1})}), any));
}

TEST_F(Identities, OneElementThatIsNotNeutralIsEnough) {
  Output x = matrix();
  EXPECT_FALSE(becomes(g.add("Mul", {x, list({1, 1, 2})}), x));
}

// x * 1 makes a signalling NaN quiet, x + 0 makes -0 positive.
TEST_F(Identities, RealNumbersAreLeftToTheInexactPass) {
  Output x = matrix(DType::kFloat);
  auto constant = [&](float v) { return g.constant(filled(Shape{3}, v)); };
  EXPECT_FALSE(becomes(g.add("Mul", {x, constant(1)}), x));
  EXPECT_FALSE(becomes(g.add("Sub", {x, constant(0)}), x));
  const bool real = true;
  EXPECT_TRUE(becomes(g.add("Mul", {x, constant(1)}), x, real));
  EXPECT_TRUE(becomes(g.add("Add", {x, constant(-0.0F)}), x, real));
  EXPECT_FALSE(becomes(g.add("Add", {x, constant(0)}), x, real));
  EXPECT_TRUE(becomes(g.add("Sub", {x, constant(0)}), x, real));
  EXPECT_FALSE(becomes(g.add("Sub", {x, constant(-0.0F)}), x, real));
}

TEST_F(Identities, ReshapesToTheSameShape) {
  Output x = known_matrix();
  EXPECT_TRUE(becomes(g.add("AsShape", {x, list({2, 3})}), x));
  EXPECT_FALSE(becomes(g.add("AsShape", {x, list({3, 2})}), x));
  EXPECT_FALSE(becomes(g.add("AsShape", {x, g.feed(DType::kInt32, 1)}), x));
}

TEST_F(Identities, TransposesThatUndoEachOther) {
  Output x = known_matrix();
  Output flipped = g.add("Permute", {x, list({1, 0})});
  EXPECT_TRUE(becomes(g.add("Permute", {x, list({0, 1})}), x));
  EXPECT_FALSE(becomes(flipped, x));
  EXPECT_TRUE(becomes(g.add("Permute", {flipped, list({1, 0})}), x));
  // It would fail unless a matrix is fed.
  Output any = g.feed(DType::kInt32, 1);
  EXPECT_FALSE(becomes(g.add("Permute", {any, list({0, 1})}), any));
}

TEST_F(Identities, NothingToDo) {
  Output x = g.feed(DType::kInt32, 0);
  EXPECT_TRUE(becomes(g.add("SumOver", {x, list({})}), x));
  EXPECT_FALSE(becomes(g.add("SumOver", {x, list({0})}), x));
}

TEST_F(Identities, ChainsGoInOnePass) {
  Output x = known_matrix(), one = g.constant(1);
  Output y = x;
  for (int i = 0; i < 5; ++i) y = g.add("Mul", {g.add("AsShape", {y, list({2, 3})}), one});
  EXPECT_TRUE(becomes(y, x));
}

TEST_F(Identities, WhoWaitsForANodeWaitsForItsInput) {
  Output x = g.add("Tick", {}), one = g.constant(1);
  Output y = g.add("Mul", {x, one});
  Output waits = g.add("Tick", {}, {.after = {y.node}, .name = "waits"});
  // One that waits for something itself stays.
  EXPECT_FALSE(becomes(g.add("Mul", {x, one}, {.after = {waits.node}}), x));
  EXPECT_TRUE(becomes(y, x));
  EXPECT_EQ(g.node("waits").control_inputs, std::vector<NodeId>{x.node});
}

// The product is dead when its branch is not taken; the Switch itself never is.
TEST_F(Identities, ABranchStaysABranch) {
  Output x = g.feed(DType::kInt32, 0), one = g.constant(1);
  Output branch = g.add("Switch", {x, g.feed(DType::kBool, 1)});
  Output y = g.add("Mul", {branch, one});
  g.add("Tick", {}, {.after = {y.node}, .name = "guarded"});
  EXPECT_TRUE(becomes(y, branch));
  EXPECT_EQ(g.node("guarded").control_inputs, std::vector<NodeId>{y.node});
  // A constant of a branch is dead with it, x is not.
  Output pivot = g.add("Identity", {branch});
  Output inner = g.constant(1, {.after = {pivot.node}});
  EXPECT_FALSE(becomes(g.add("Mul", {x, inner}), x));
}

TEST_F(Identities, VariablesAreReadWhenTheyWere) {
  Output v = g.add("Var", {}, {{"T", DType::kInt32}}, {});
  EXPECT_FALSE(becomes(g.add("Mul", {v, g.constant(1)}), v));
}

TEST_F(Identities, StaysOnItsDevice) {
  Output x = g.feed(DType::kInt32, 0, {.device = "/cpu:0"});
  EXPECT_FALSE(becomes(g.add("Mul", {x, g.constant(1)}, {.device = "/cpu:1"}), x));
}

TEST_F(Identities, ConstantsOfALoop) {
  Output x = g.add("Enter", {g.feed(DType::kInt32, 0)}, {{"frame_name", "f"}}, {});
  Output one = g.add("Enter", {g.constant(1)}, {{"frame_name", "f"}, {"is_constant", true}},
                     {.name = "one"});
  Output first = g.add("Enter", {g.constant(1)}, {{"frame_name", "f"}}, {});
  EXPECT_TRUE(becomes(g.add("Mul", {x, one}), x));
  EXPECT_FALSE(becomes(g.add("Mul", {x, first}), x));
}

// The work is done only where something may come of it.
TEST_F(Identities, GraphsWithoutAnyAskForNoShapes) {
  Output x = g.feed(DType::kInt32, 0);
  g.fetch(g.add("Mul", {g.add("Add", {x, x}), g.constant(2)}), 0);
  EXPECT_FALSE(remove_identities(g.graph, options_).value());
  EXPECT_FALSE(remove_real_identities(g.graph, options_).value());
  // Which would have been counted.
  const int64_t nodes = g.graph.size();
  EXPECT_EQ(g.graph.facts().value()->work(), nodes);
}

}  // namespace
}  // namespace millrace
