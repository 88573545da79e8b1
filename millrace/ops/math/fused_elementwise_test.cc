// Trees of elementwise ops and folds of rows in one node: to the bit what the ops give one by one.

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>

#include "millrace/graph/elementwise_tree.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests(
    {register_math_ops, register_nn_ops, register_array_ops, register_reduce_ops});

using Stage = ElementwiseTree::Stage;

AttrMap attrs_of(const ElementwiseTree& tree) {
  AttrMap attrs;
  tree.write(attrs);
  return attrs;
}

std::unique_ptr<OpTester> fused_tester(const ElementwiseTree& tree, std::vector<Tensor> inputs) {
  std::vector<DType> in, out;
  for (const Tensor& t : inputs) in.push_back(t.dtype());
  for (int r : tree.results) out.push_back(tree.stages[static_cast<size_t>(r)].type);
  auto tester = std::make_unique<OpTester>("_FusedElementwise");
  for (const auto& [name, value] : attrs_of(tree)) tester->attr(name, value);
  tester->attr("Tin", in).attr("Tout", out).input_list(std::move(inputs));
  return tester;
}

Result<std::vector<Tensor>> run_separately(const ElementwiseTree& tree,
                                           const std::vector<Tensor>& inputs) {
  std::vector<Tensor> values = inputs;
  for (const Stage& stage : tree.stages) {
    OpTester tester(stage.op);
    if (stage.op == "Cast") tester.attr("DstT", stage.type);
    if (stage.keep_dims) tester.attr("keep_dims", true);
    std::vector<Tensor> operands;
    for (int o : stage.operands) operands.push_back(values[static_cast<size_t>(o)]);
    if (stage.op == "AddN") {
      tester.input_list(operands);
    } else {
      for (const Tensor& t : operands) tester.input(t);
    }
    MR_TRY_ASSIGN(Tensor value, tester.run_one());
    values.push_back(std::move(value));
  }
  std::vector<Tensor> out;
  for (int r : tree.results) out.push_back(values[inputs.size() + static_cast<size_t>(r)]);
  return out;
}

void expect_equal(const ElementwiseTree& tree, const std::vector<Tensor>& inputs) {
  const Result<std::vector<Tensor>> separate = run_separately(tree, inputs);
  const Result<std::vector<Tensor>> fused = fused_tester(tree, inputs)->run();
  ASSERT_EQ(separate.ok(), fused.ok())
      << separate.status().to_string() << "; fused " << fused.status().to_string();
  if (!separate.ok()) return;
  for (size_t i = 0; i < fused->size(); ++i) {
    ASSERT_EQ((*fused)[i].shape(), (*separate)[i].shape());
    ASSERT_TRUE(bit_equal((*fused)[i], (*separate)[i]))
        << "output " << i << ": " << (*fused)[i].to_string(16) << ", one by one "
        << (*separate)[i].to_string(16);
  }
}

// Random trees over operands that are broadcast in every way.
class RandomTrees {
 public:
  explicit RandomTrees(uint32_t seed) : random_(seed) {}

  ElementwiseTree tree;
  std::vector<Tensor> inputs;

  void build() {
    constexpr DType kTypes[] = {DType::kFloat,    DType::kFloat, DType::kFloat, DType::kDouble,
                                DType::kBFloat16, DType::kHalf,  DType::kInt32, DType::kInt64};
    const DType type = kTypes[pick(std::size(kTypes))];
    const int64_t sizes[] = {1, 2, 3, 31, 40, 700};
    for (int d = pick(4); d > 0; --d) dims_.push_back(sizes[pick(d == 1 ? 6 : d == 2 ? 4 : 3)]);
    for (int i = 1 + pick(5); i > 0; --i) add_input(type);
    add_lists();
    for (int i = 1 + pick(12); i > 0; --i) add_stage(type);
    const int count = static_cast<int>(tree.stages.size());
    for (int s = 0; s < count; ++s) {
      if (s == count - 1 || pick(5) == 0) tree.results.push_back(s);
    }
  }

 private:
  int pick(size_t n) { return static_cast<int>(random_() % n); }

  void add_input(DType type) {
    std::vector<int64_t> own;
    const size_t skip = pick(3) == 0 ? static_cast<size_t>(pick(dims_.size() + 1)) : 0;
    for (size_t d = skip; d < dims_.size(); ++d) own.push_back(pick(4) == 0 ? 1 : dims_[d]);
    const Shape shape = Shape::make(own).value();
    std::vector<Complex128> values;
    for (int64_t i = 0; i < shape.num_elements(); ++i) values.push_back(pick(64) / 8.0 - 3);
    inputs.push_back(make_tensor(type, shape, values));
    types_.push_back(type);
  }

  // Of dimensions, mostly the last ones, counted from either end and in any order; and the shape of
  // all.
  void add_lists() {
    const int rank = static_cast<int>(dims_.size());
    first_list_ = static_cast<int>(inputs.size());
    for (int k = 1; k <= rank; ++k) {
      std::vector<int32_t> axes;
      for (int i = 1; i <= rank; ++i) {
        if (pick(8) == 0 ? i > k : i <= k) axes.push_back(pick(3) == 0 ? rank - i : -i);
      }
      std::shuffle(axes.begin(), axes.end(), random_);
      inputs.push_back(Tensor::vector<int32_t>(axes));
      types_.push_back(DType::kInvalid);
    }
    inputs.push_back(Tensor::vector<int64_t>(dims_));
    types_.push_back(DType::kInvalid);
    shape_ = first_list_ + rank;
  }

  int any(DType type) {
    std::vector<int> fitting;
    for (size_t v = 0; v < types_.size(); ++v) {
      if (types_[v] == type) fitting.push_back(static_cast<int>(v));
    }
    return fitting.empty() ? -1 : fitting[static_cast<size_t>(pick(fitting.size()))];
  }

  void add(std::string op, DType type, std::vector<int> operands, bool keep_dims = false) {
    if (std::find(operands.begin(), operands.end(), -1) != operands.end()) return;
    tree.stages.push_back({std::move(op), type, std::move(operands), keep_dims});
    types_.push_back(type);
  }

  void add_stage(DType type) {
    const bool floating = kFloating.contains(type);
    constexpr const char* kUnary[] = {"Tanh", "Exp", "Sqrt", "Sigmoid", "Neg", "Square", "Relu"};
    constexpr const char* kBinary[] = {"AddV2", "Mul", "Sub", "Maximum", "SquaredDifference"};
    constexpr const char* kFolds[] = {"Sum", "Mean", "Max", "Min", "Prod"};
    switch (pick(16)) {
      case 15:
        return add("StopGradient", type, {any(type)});
      case 14:
        return add("BroadcastTo", type, {any(type), shape_});
      case 13:
        if (any(DType::kBool) >= 0 && pick(3) == 0 && shape_ > first_list_) {
          return add(
              pick(2) == 0 ? "All" : "Any", DType::kBool,
              {any(DType::kBool), first_list_ + pick(static_cast<size_t>(shape_ - first_list_))},
              true);
        }
        [[fallthrough]];
      case 12:
        if (shape_ == first_list_) return;
        // Mostly the last dimension, so that several are folded over the same rows.
        return add(kFolds[pick(5)], type,
                   {any(type), pick(3) > 0
                                   ? first_list_
                                   : first_list_ + pick(static_cast<size_t>(shape_ - first_list_))},
                   pick(4) > 0);
      case 0:
      case 1:
      case 2:
        return add(kUnary[floating ? pick(7) : 4 + pick(3)], type, {any(type)});
      case 3:
      case 4:
      case 5:
        return add(kBinary[pick(5)], type, {any(type), any(type)});
      case 6:
        return add("Less", DType::kBool, {any(type), any(type)});
      case 7:
        return add("SelectV2", type, {any(DType::kBool), any(type), any(type)});
      case 8:
        return add("Select", type, {any(DType::kBool), any(type), any(type)});
      case 9: {
        const DType to = type == DType::kFloat ? DType::kDouble : DType::kFloat;
        add("Cast", to, {any(type)});
        return add("Cast", type, {any(to)});
      }
      case 10:
        return add("AddN", type, {any(type), any(type), any(type)});
      default:
        return add(pick(2) == 0 ? "ReluGrad" : "BiasAdd", type, {any(type), any(type)});
    }
  }

  std::mt19937 random_;
  std::vector<int64_t> dims_;
  std::vector<DType> types_;  // of inputs, then stages; invalid for lists
  int first_list_ = 0, shape_ = 0;
};

// Stages are numbered behind all inputs; RandomTrees makes the inputs first.
TEST(FusedElementwise, RandomTreesAreEqualToTheBit) {
  int computed = 0;
  for (uint32_t seed = 1; seed <= 3000; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    RandomTrees random(seed);
    random.build();
    if (random.tree.stages.empty()) continue;
    if (random.tree.results.empty()) random.tree.results.push_back(0);
    computed += run_separately(random.tree, random.inputs).ok();
    expect_equal(random.tree, random.inputs);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(computed, 500);
}

Tensor counting(const Shape& shape) {
  Tensor t = Tensor::allocate(DType::kFloat, shape).value();
  float v = -2;
  for (float& e : t.mutable_data<float>()) e = (v += 0.001F);
  return t;
}

// More than one block, rows and columns longer and shorter than one, and several threads.
TEST(FusedElementwise, ManyBlocksAndThreads) {
  const ElementwiseTree tree{{{"AddV2", DType::kFloat, {0, 1}},
                              {"Mul", DType::kFloat, {4, 2}},
                              {"Tanh", DType::kFloat, {5}},
                              {"Mul", DType::kFloat, {6, 3}},
                              {"Sub", DType::kFloat, {7, 4}}},
                             {4}};
  for (const Shape& shape : {Shape{300, 70}, Shape{70, 3000}, Shape{9, 10, 33, 50}}) {
    std::vector<int64_t> column(shape.dims().begin(), shape.dims().end());
    column.back() = 1;
    const std::vector<Tensor> inputs = {counting(shape), counting({shape.dim(shape.rank() - 1)}),
                                        counting(Shape::make(column).value()),
                                        Tensor::scalar(0.5F)};
    expect_equal(tree, inputs);
    const Tensor one = fused_tester(tree, inputs)->threads(1).run_one().value();
    EXPECT_TRUE(bit_equal(one, fused_tester(tree, inputs)->threads(4).run_one().value()));
  }
}

// As TensorFlow 1 writes it: inputs x, axes, epsilon, scale, shift.
ElementwiseTree layer_norm() {
  const DType f = DType::kFloat;
  return {{{"Mean", f, {0, 1}, true},
           {"SquaredDifference", f, {0, 5}},
           {"Mean", f, {6, 1}, true},
           {"AddV2", f, {7, 2}},
           {"Rsqrt", f, {8}},
           {"Sub", f, {0, 5}},
           {"Mul", f, {10, 9}},
           {"Mul", f, {11, 3}},
           {"AddV2", f, {12, 4}}},
          {8}};
}
std::vector<Tensor> layer_norm_inputs(const Shape& shape) {
  const int64_t row = shape.dim(shape.rank() - 1);
  return {counting(shape), Tensor::vector<int32_t>({-1}), Tensor::scalar(1e-5F), counting({row}),
          counting({row})};
}
// Inputs x, axes, gradient: of exp(x - max) / sum and its gradient, everything an output.
ElementwiseTree softmax_with_gradient() {
  const DType f = DType::kFloat;
  return {{{"Max", f, {0, 1}, true},
           {"Sub", f, {0, 3}},
           {"Exp", f, {4}},
           {"Sum", f, {5, 1}, true},
           {"RealDiv", f, {5, 6}},
           {"Mul", f, {7, 2}},
           {"Sum", f, {8, 1}, true},
           {"Sub", f, {2, 9}},
           {"Mul", f, {10, 7}}},
          {0, 1, 2, 3, 4, 5, 6, 7, 8}};
}

// Rows of one element, of a few, of more than a block, of more than the cache holds, and so few
// that threads share them.
TEST(FusedElementwise, RowsOfAllLengths) {
  for (const Shape& shape :
       {Shape{5, 1}, Shape{1, 1}, Shape{1, 9}, Shape{70, 10}, Shape{33, 17}, Shape{900, 64},
        Shape{40, 1024}, Shape{30, 2048}, Shape{20, 2049}, Shape{16, 16384}, Shape{9, 16385},
        Shape{3, 7000}, Shape{1, 50000}, Shape{0, 5}, Shape{5, 0}, Shape{4, 5, 6}}) {
    SCOPED_TRACE(shape.to_string());
    const std::vector<Tensor> inputs = layer_norm_inputs(shape);
    expect_equal(layer_norm(), inputs);
    const Tensor one = fused_tester(layer_norm(), inputs)->threads(1).run_one().value();
    EXPECT_TRUE(bit_equal(one, fused_tester(layer_norm(), inputs)->threads(4).run_one().value()));
    expect_equal(softmax_with_gradient(),
                 {counting(shape), Tensor::vector<int64_t>({shape.rank() - 1}), counting(shape)});
  }
}

TEST(FusedElementwise, RowsOfSeveralDimensionsAndOfAll) {
  const Tensor x = counting({6, 7, 8});
  for (const std::vector<int32_t>& axes :
       {std::vector<int32_t>{2, 1}, std::vector<int32_t>{-2, -1}, std::vector<int32_t>{0, 1, 2}}) {
    expect_equal(softmax_with_gradient(), {x, Tensor::vector<int32_t>(axes), counting({6, 7, 8})});
  }
  // Mean of the sums of squares, and a share of it for each element.
  const DType f = DType::kFloat;
  const ElementwiseTree loss{{{"SquaredDifference", f, {0, 1}},
                              {"Sum", f, {5, 2}},
                              {"Mean", f, {6, 3}},
                              {"BroadcastTo", f, {7, 4}},
                              {"Mul", f, {8, 0}}},
                             {2, 4}};
  expect_equal(loss, {x, counting({8}), Tensor::vector<int32_t>({-1, 1}),
                      Tensor::vector<int32_t>({0}), Tensor::vector<int32_t>({6, 7, 8})});
}

// Folded without keep_dims, rows of as many elements as there are rows: along the columns.
TEST(FusedElementwise, AFoldThatIsBroadcastAlongColumns) {
  const DType f = DType::kFloat;
  const ElementwiseTree tree{{{"Sum", f, {0, 1}}, {"Sub", f, {0, 2}}, {"Exp", f, {3}}}, {2}};
  expect_equal(tree, {counting({40, 40}), Tensor::vector<int32_t>({1})});
}

TEST(FusedElementwise, FoldsInAnotherShape) {
  const DType f = DType::kFloat;
  const Tensor last = Tensor::vector<int32_t>({-1});
  const ElementwiseTree reshaped{{{"Sum", f, {0, 1}},
                                  {"Reshape", f, {3, 2}},
                                  {"RealDiv", f, {0, 4}},
                                  {"Max", f, {5, 1}},
                                  {"Reshape", f, {6, 2}},
                                  {"Mul", f, {5, 7}}},
                                 {2, 4, 5}};
  ElementwiseTree expanded = reshaped;
  expanded.stages[1].op = expanded.stages[4].op = "ExpandDims";
  for (const Shape& shape : {Shape{50, 30}, Shape{5, 1}, Shape{1, 5}, Shape{3, 30000}}) {
    SCOPED_TRACE(shape.to_string());
    for (int64_t rows : {shape.dim(0), int64_t{-1}}) {
      expect_equal(reshaped, {counting(shape), last, Tensor::vector<int64_t>({rows, 1})});
    }
    for (int32_t dim : {-1, 1}) {
      expect_equal(expanded, {counting(shape), last, Tensor::scalar<int32_t>(dim)});
    }
    // To what does not go with the rows, and to nothing that there is.
    expect_equal(reshaped, {counting(shape), last, Tensor::vector<int64_t>({1, shape.dim(0)})});
    expect_equal(reshaped, {counting(shape), last, Tensor::vector<int64_t>({-1, 7})});
    expect_equal(expanded, {counting(shape), last, Tensor::scalar<int32_t>(2)});
  }
}

// Passes leave these out as far as they can tell; then they are as on their own.
TEST(FusedElementwise, FoldsOfOtherDimensions) {
  const DType f = DType::kFloat;
  const ElementwiseTree tree{{{"Exp", f, {0}},
                              {"Sum", f, {2, 1}, true},
                              {"RealDiv", f, {2, 3}},
                              {"Sum", f, {4, 1}},
                              {"Sqrt", f, {5}}},
                             {2, 4}};
  for (const std::vector<int32_t>& axes : {std::vector<int32_t>{0}, std::vector<int32_t>{1},
                                           std::vector<int32_t>{2, 0}, std::vector<int32_t>{}}) {
    expect_equal(tree, {counting({20, 30, 10}), Tensor::vector<int32_t>(axes)});
  }
}

TEST(FusedElementwise, FoldsOfRowsTakeTheMemoryOfTheirInput) {
  Tensor x = counting({50, 100});
  const Tensor axes = Tensor::vector<int32_t>({-1});
  const std::vector<Tensor> kept = {x.clone().value(), axes, counting({50, 100})};
  ElementwiseTree tree = softmax_with_gradient();
  tree.results = {4};
  const void* const memory = x.raw();
  const auto tester = fused_tester(tree, {std::move(x), axes, counting({50, 100})});
  x = Tensor();
  const Tensor out = tester->movable(true).run_one().value();
  EXPECT_EQ(out.raw(), memory);
  EXPECT_TRUE(bit_equal(out, run_separately(tree, kept).value()[0]));
}

TEST(FusedElementwise, RefusesWrongLists) {
  const DType f = DType::kFloat;
  const auto code = [&](const Tensor& axes) {
    const ElementwiseTree tree{{{"Sum", f, {0, 1}}}, {0}};
    return fused_tester(tree, {counting({2, 3}), axes})->check_shapes(false).run().status().code();
  };
  EXPECT_EQ(code(Tensor::vector<int32_t>({1})), Code::kOk);
  for (const std::vector<int32_t>& axes :
       {std::vector<int32_t>{2}, std::vector<int32_t>{-3}, std::vector<int32_t>{1, -1},
        std::vector<int32_t>{0, 1, 1}}) {
    EXPECT_EQ(code(Tensor::vector<int32_t>(axes)), Code::kInvalidArgument);
  }
  const auto repeated = [&](const Tensor& shape) {
    const ElementwiseTree tree{{{"BroadcastTo", f, {0, 1}}}, {0}};
    return fused_tester(tree, {counting({2, 3}), shape})->check_shapes(false).run().status().code();
  };
  EXPECT_EQ(repeated(Tensor::vector<int32_t>({4, 2, 3})), Code::kOk);
  EXPECT_EQ(repeated(Tensor::scalar<int32_t>(3)), Code::kInvalidArgument);
  for (const std::vector<int32_t>& shape :
       {std::vector<int32_t>{3}, std::vector<int32_t>{2, 4}, std::vector<int32_t>{2, -3}}) {
    EXPECT_EQ(repeated(Tensor::vector<int32_t>(shape)), Code::kInvalidArgument);
  }
  // The list must be an input; only folds keep dimensions.
  const auto made = [&](const ElementwiseTree& tree, std::vector<Tensor> inputs) {
    return fused_tester(tree, std::move(inputs))->check_shapes(false).run().status().code();
  };
  EXPECT_EQ(made({{{"Neg", f, {0}, true}}, {0}}, {counting({2})}), Code::kInvalidArgument);
  EXPECT_EQ(made({{{"Neg", DType::kInt32, {0}}, {"Sum", DType::kInt32, {0, 1}}}, {1}},
                 {Tensor::vector<int32_t>({1})}),
            Code::kUnimplemented);
}

// Chains that are swept together: with values read twice, outputs in their middle, operands for
// each row and the same for all, one number for all, and folds in the end, also of what is written.
TEST(FusedElementwise, Chains) {
  const DType f = DType::kFloat;
  // Inputs: x, axes, column, vector, one number, y.
  const ElementwiseTree tree{{{"Mean", f, {0, 1}, true},
                              {"Sub", f, {0, 6}},
                              {"Mul", f, {3, 7}},
                              {"RealDiv", f, {8, 2}},
                              {"Neg", f, {9}},
                              {"Maximum", f, {4, 10}},
                              {"Sum", f, {11, 1}, true},
                              {"Mul", f, {11, 12}},
                              {"Sub", f, {5, 13}},
                              {"Square", f, {14}},
                              {"AddV2", f, {15, 15}},
                              {"Mul", f, {0, 5}},
                              {"Sub", f, {17, 16}},
                              {"SquaredDifference", f, {18, 3}},
                              {"Mean", f, {19, 1}}},
                             {14}};
  for (const Shape& shape : {Shape{40, 64}, Shape{33, 100}, Shape{50, 1024}, Shape{7, 2100},
                             Shape{16, 5000}, Shape{2, 20000}, Shape{30, 20}}) {
    SCOPED_TRACE(shape.to_string());
    const std::vector<Tensor> inputs = {
        counting(shape),          Tensor::vector<int32_t>({-1}), counting({shape.dim(0), 1}),
        counting({shape.dim(1)}), Tensor::scalar(0.5F),          counting(shape)};
    ElementwiseTree with_outputs = tree;
    for (const std::vector<int>& results :
         {std::vector<int>{14}, std::vector<int>{5, 14}, std::vector<int>{3, 6, 9, 12, 13, 14}}) {
      with_outputs.results = results;
      expect_equal(with_outputs, inputs);
    }
  }
}

// An output may lie over an input that an earlier stage reads: that stage does not come later.
TEST(FusedElementwise, ChainsDoNotReadWhatIsWrittenOver) {
  const DType f = DType::kFloat;
  const ElementwiseTree tree{{{"Sub", f, {0, 1}},
                              {"Mul", f, {0, 1}},
                              {"Tanh", f, {3}},
                              {"Mul", f, {2, 4}},
                              {"AddV2", f, {5, 1}}},
                             {1, 4}};
  Tensor x = counting({5000}), y = counting({5000});
  const std::vector<Tensor> kept = {x.clone().value(), y.clone().value()};
  const auto tester = fused_tester(tree, {std::move(x), std::move(y)});
  x = y = Tensor();
  const std::vector<Tensor> out = tester->movable(true).run().value();
  const std::vector<Tensor> expected = run_separately(tree, kept).value();
  for (size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(bit_equal(out[i], expected[i])) << i;
}

TEST(FusedElementwise, SmallOperandsAreComputedOnTheirOwn) {
  // exp(column) / (row * scalar) + matrix, all three intermediates of other shapes.
  const ElementwiseTree tree{{{"Exp", DType::kFloat, {0}},
                              {"Mul", DType::kFloat, {1, 2}},
                              {"RealDiv", DType::kFloat, {4, 5}},
                              {"AddV2", DType::kFloat, {6, 3}}},
                             {0, 1, 3}};
  expect_equal(tree, {counting({40, 1}), counting({50}), Tensor::scalar(3.0F), counting({40, 50})});
}

TEST(FusedElementwise, WithoutElements) {
  const ElementwiseTree tree{{{"AddV2", DType::kFloat, {0, 1}}, {"Mul", DType::kFloat, {2, 1}}},
                             {0, 1}};
  expect_equal(tree, {counting({0, 3}), counting({3})});
  expect_equal(tree, {counting({0}), counting({1})});
  expect_equal(tree, {counting({0}), counting({0})});
  expect_equal(tree, {counting({2, 0, 3}), counting({2, 1, 1})});
}

TEST(FusedElementwise, TakesTheMemoryOfAnInputThatNobodyElseNeeds) {
  const ElementwiseTree tree{{{"AddV2", DType::kFloat, {0, 1}}, {"Tanh", DType::kFloat, {2}}}, {1}};
  Tensor x = counting({500}), y = counting({500});
  const std::vector<Tensor> kept = {x.clone().value(), y.clone().value()};
  const void* const memory = x.raw();
  const auto tester = fused_tester(tree, {std::move(x), std::move(y)});
  x = y = Tensor();
  const Tensor out = tester->movable(true).run_one().value();
  EXPECT_EQ(out.raw(), memory);
  EXPECT_TRUE(bit_equal(out, run_separately(tree, kept).value()[0]));
}

TEST(FusedElementwise, KeepsAnInputThatIsReadAfterTheOutput) {
  // Stage 0 is an output; stage 1 reads the inputs again.
  const ElementwiseTree tree{{{"AddV2", DType::kFloat, {0, 1}},
                              {"Mul", DType::kFloat, {0, 1}},
                              {"Sub", DType::kFloat, {2, 3}}},
                             {0, 2}};
  Tensor x = counting({5000}), y = counting({5000});
  const std::vector<Tensor> kept = {x.clone().value(), y.clone().value()};
  const auto tester = fused_tester(tree, {std::move(x), std::move(y)});
  x = y = Tensor();
  const std::vector<Tensor> out = tester->movable(true).run().value();
  const std::vector<Tensor> expected = run_separately(tree, kept).value();
  for (size_t i = 0; i < out.size(); ++i) EXPECT_TRUE(bit_equal(out[i], expected[i])) << i;
}

TEST(FusedElementwise, ErrorsNameTheOriginalNode) {
  const ElementwiseTree tree{{{"AddV2", DType::kFloat, {0, 1}}, {"Mul", DType::kFloat, {3, 2}}},
                             {1}};
  const Status status =
      fused_tester(tree, {counting({2}), counting({2}), counting({3})})
          ->attr(kStandsForAttr, std::vector<std::string>{"sum", "product"})
          .attr(kStandsForLinesAttr, std::vector<std::string>{"", "defined at a.py:3"})
          .check_shapes(false)
          .run()
          .status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  for (const char* part : {"Mul \"product\"", "[2]", "[3]", "a.py:3", "[[{{node product}}]]"}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.to_string();
  }
}

TEST(FusedElementwise, RefusesWhatIsNoTree) {
  const ElementwiseTree good{{{"AddV2", DType::kFloat, {0, 0}}}, {0}};
  const auto code = [&](std::string_view attr, AttrValue value) {
    return fused_tester(good, {counting({2})})->attr(attr, std::move(value)).run().status().code();
  };
  using Ints = std::vector<int64_t>;
  using Texts = std::vector<std::string>;
  EXPECT_EQ(code("operands", Ints{0, 0}), Code::kOk);
  for (const Ints& operands :
       {Ints{0, 1}, Ints{0, -1}, Ints{0}, Ints{0, 0, 0}, Ints{INT64_MIN, 0}}) {
    EXPECT_EQ(code("operands", operands), Code::kInvalidArgument);
  }
  for (const Ints& arities : {Ints{0}, Ints{-1}, Ints{3}, Ints{2, 2}, Ints{INT64_MAX}}) {
    EXPECT_EQ(code("arities", arities), Code::kInvalidArgument);
  }
  for (const Ints& results : {Ints{1}, Ints{-1}, Ints{0, 0}, Ints{}}) {
    EXPECT_EQ(code("results", results), Code::kInvalidArgument);
  }
  for (const Texts& stages :
       {Texts{"AddV2"}, Texts{"AddV2:nonsense"}, Texts{}, Texts(33, "Add:float")}) {
    EXPECT_EQ(code("stages", stages), Code::kInvalidArgument);
  }
  for (const Texts& stages : {Texts{"MatMul:float"}, Texts{":float"}, Texts{"Less:float"}}) {
    EXPECT_EQ(code("stages", stages), Code::kUnimplemented);
  }
}

}  // namespace
}  // namespace millrace
