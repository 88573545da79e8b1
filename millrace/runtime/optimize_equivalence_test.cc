#include <gtest/gtest.h>

#include <random>

#include "millrace/runtime/optimize.h"
#include "millrace/runtime/pass_testing.h"
#include "millrace/runtime/recompute.h"

// Every pass of optimize_passes(), on random graphs: the same results, bit by bit, with and without
// it.

namespace millrace {

// The name is GoogleTest's.
// NOLINTNEXTLINE(readability-identifier-naming)
static void PrintTo(const OptimizePass& pass, std::ostream* out) { *out << pass.name; }

namespace {

constexpr int kFeeds = 2;  // scalars; after them comes a matrix of kRows x kColumns
constexpr int64_t kRows = 2, kColumns = 3;

class RandomGraph {
 public:
  RandomGraph(uint32_t seed, std::string device) : random_(seed), device_(std::move(device)) {}

  // Its fetches are all values that nothing else reads.
  Subgraph build(int* fetches) {
    for (int i = 0; i < kFeeds; ++i) ints_.push_back(g_.feed(DType::kInt32, i, here(false)));
    for (int i = 0; i < 3; ++i) ints_.push_back(g_.constant(pick(4) - 1, here()));
    for (int i = 0; i < 3; ++i) {
      constexpr float kFloats[] = {0.0f, -0.0f, 1.5f, 1e38f, -3.25f};
      floats_.push_back(g_.constant(Tensor::scalar(kFloats[pick(5)]), here()));
    }
    AttrMap promised = {
        {"T", DType::kInt32}, {"index", kFeeds}, {kFeedShapeAttr, PartialShape{kRows, kColumns}}};
    matrices_.push_back(g_.add("_Arg", {}, std::move(promised), here(false)));
    int size = 5 + pick(30);
    for (int i = 0; i < size; ++i) step();
    std::vector<bool> read(static_cast<size_t>(g_.graph.size()), false);
    for (const SubNode& node : g_.graph.nodes()) {
      for (Output input : node.inputs) read[static_cast<size_t>(input.node)] = true;
    }
    *fetches = 0;
    for (const std::vector<Output>* values :
         {&ints_, &floats_, &matrices_, &tall_, &squares_, &sums_}) {
      for (Output o : *values) {
        if (!read[static_cast<size_t>(o.node)] || pick(8) == 0)
          g_.fetch(o, (*fetches)++, here(false));
      }
    }
    return std::move(g_.graph);
  }

 private:
  int pick(size_t n) { return static_cast<int>(random_() % n); }
  Output any(const std::vector<Output>& values) {
    return values[static_cast<size_t>(pick(values.size()))];
  }
  ToyPlace here(bool control = true) {
    ToyPlace place;
    place.device = device_;
    if (control && !ints_.empty() && pick(6) == 0) place.after.push_back(any(ints_).node);
    return place;
  }

  void step() {
    constexpr const char* kOps[] = {"Add", "Mul", "Sub"};
    switch (pick(17)) {
      case 0:
      case 1:
      case 2:
      case 3:
        ints_.push_back(g_.add(kOps[pick(3)], {any(ints_), any(ints_)}, here()));
        break;
      case 4:
        floats_.push_back(g_.add(kOps[pick(3)], {any(floats_), any(floats_)}, here()));
        break;
      case 5:
        ints_.push_back({g_.add("KeepAndFlip", {any(ints_)}, here()).node, pick(2)});
        break;
      case 6:
        ints_.push_back(g_.add("SizeOf", {any(pick(2) == 0 ? floats_ : matrices_)}, here()));
        break;
      case 7:
        ints_.push_back(pick(3) == 0 ? g_.add("Tick", {}, here()) : g_.constant(pick(3), here()));
        break;
      case 8: {
        // Of any rank that leaves the matrix its shape; often what leaves it its elements too.
        const Shape shapes[] = {Shape(), Shape{1}, Shape{1, 1}, Shape{kRows, kColumns}};
        const Shape& shape = shapes[pick(4)];
        Output x = any(matrices_), y = uniform(shape, pick(3), here());
        if (pick(2) == 0) std::swap(x, y);
        matrices_.push_back(g_.add(kOps[pick(3)], {x, y}, here()));
        break;
      }
      case 9:
      case 10: {
        // Back and forth between two shapes, by reshaping and by transposing.
        const bool swap = pick(2) == 0;
        std::vector<Output>& from = pick(2) == 0 && !tall_.empty() ? tall_ : matrices_;
        std::vector<Output>& to = !swap ? from : &from == &tall_ ? matrices_ : tall_;
        const bool tall = &to == &tall_;
        const int64_t shape[] = {tall ? kColumns : kRows, tall ? kRows : kColumns};
        Output x = any(from);
        to.push_back(pick(2) == 0 ? g_.add("AsShape", {x, list(shape[0], shape[1])}, here())
                                  : g_.add("Permute", {x, list(swap, !swap)}, here()));
        if (pick(4) == 0) {
          Output none = g_.constant(Tensor::zeros(DType::kInt32, Shape{0}).value(), here());
          to.push_back(g_.add("SumOver", {any(to), none}, here()));
        }
        break;
      }
      case 11: {
        Output pred = g_.add("Less", {any(ints_), any(ints_)}, here(false));
        Output branch = g_.add("Switch", {any(ints_), pred}, here(false));
        Output no = g_.add("Add", {branch, branch}, here(false));
        Output yes = g_.add("KeepAndFlip", {Output{branch.node, 1}}, here(false));
        ints_.push_back(g_.add("Merge", {no, yes}, here(false)));
        break;
      }
      case 12:
        ints_.push_back(sum());
        break;
      case 13:
        if (!tall_.empty()) {
          multiply();
          filter();
        }
        break;
      case 14:
        gate();
        break;
      case 16:
        floats_.push_back(loop());
        break;
      case 15: {
        // What is a single element goes with the matrix again; rows may be read by nobody.
        Output x = any(matrices_);
        Output all = g_.add("SumRows", {x, list(-1, -2)}, {{"keep_dims", true}}, here());
        matrices_.push_back(
            g_.add(kOps[pick(3)], {pick(2) == 0 ? x : any(matrices_), all}, here()));
        if (pick(3) == 0) {
          Output last = g_.constant(Tensor::vector<int32_t>({-1}), here());
          sums_.push_back(g_.add("SumRows", {any(matrices_), last}, here()));
        }
        break;
      }
    }
  }

  // sum = sum op (a op b) a few times, or never.
  Output loop() {
    constexpr const char* kOps[] = {"Add", "Mul", "Sub"};
    const std::string frame = str_cat("loop", g_.graph.size());
    const auto enter = [&](Output x, bool constant) {
      return g_.add("Enter", {x}, {{"frame_name", frame}, {"is_constant", constant}}, here(false));
    };
    const auto merge = [&](Output x) { return g_.add("Merge", {x, x}, here(false)); };
    const auto close = [&](Output variable, Output next) {
      g_.graph.node(variable.node).inputs[1] = g_.add("NextIteration", {next}, here(false));
    };
    const Output times = enter(g_.constant(pick(3), here(false)), true);
    const Output one = enter(g_.constant(1, here(false)), true);
    const Output i = merge(enter(g_.constant(0, here(false)), false));
    const Output sum = merge(enter(any(floats_), false));
    const Output a = enter(any(floats_), true), b = enter(any(floats_), true);
    const Output less = g_.add("Less", {i, times}, here(false));
    const Output more = g_.add("LoopCond", {less}, here(false));
    const Output i_on = g_.add("Switch", {i, more}, here(false));
    const Output sum_on = g_.add("Switch", {sum, more}, here(false));
    close(i, g_.add("Add", {Output{i_on.node, 1}, one}, here(false)));
    Output same = g_.add(kOps[pick(3)], {a, b}, here(false));
    if (pick(2) == 0) same = g_.add(kOps[pick(3)], {a, same}, here(false));
    close(sum, g_.add(kOps[pick(3)], {Output{sum_on.node, 1}, same}, here(false)));
    return g_.add("Exit", {sum_on}, here(false));
  }

  // Values that go on together.
  void gate() {
    std::vector<Output> group = {any(ints_), any(ints_)};
    if (pick(2) == 0) group.push_back(g_.add("Tick", {}, here()));
    std::vector<NodeId> all;
    for (Output o : group) all.push_back(o.node);
    if (pick(2) == 0) all = {g_.add("NoOp", {}, {.device = device_, .after = all}).node};
    for (Output o : group) {
      const Output passed = g_.add("Identity", {o}, {.device = device_, .after = all});
      ints_.push_back(g_.add("Add", {passed, any(ints_)}, here()));
    }
  }

  // Of a matrix and a tall one, and of what is sometimes their transposes.
  void multiply() {
    const auto operand = [&](const std::vector<Output>& as_is, const std::vector<Output>& other,
                             bool* transposed) {
      *transposed = pick(2) == 0;
      if (pick(2) == 0) return any(*transposed ? other : as_is);
      return g_.add("Permute", {any(*transposed ? as_is : other), list(1, 0)}, here());
    };
    bool transpose_x = false, transpose_y = false;
    const Output x = operand(matrices_, tall_, &transpose_x);
    const Output y = operand(tall_, matrices_, &transpose_y);
    squares_.push_back(g_.add(
        "Product", {x, y}, {{"transpose_x", transpose_x}, {"transpose_y", transpose_y}}, here()));
  }

  // A product with a constant, and what scales and shifts its columns, most of which have one
  // reader.
  void filter() {
    const bool transposed = pick(2) == 0;
    const Output weights =
        uniform(transposed ? Shape{kRows, kColumns} : Shape{kColumns, kRows}, pick(4) - 1, here());
    Output x =
        g_.add("Product", {any(matrices_), pick(8) == 0 && !transposed ? any(tall_) : weights},
               {{"transpose_y", transposed}}, here());
    for (int i = pick(5); i > 0; --i) {
      const Shape shapes[] = {Shape{}, Shape{kRows}, Shape{1, kRows}, Shape{kRows, 1}};
      const auto numbers = [&](const Shape& shape) {
        Tensor out = Tensor::zeros(DType::kInt32, shape).value();
        for (int32_t& v : out.mutable_data<int32_t>()) v = pick(7) - 3;
        return g_.constant(std::move(out), here());
      };
      if (pick(8) == 0) squares_.push_back(x);
      if (pick(3) == 0) {
        x = g_.add("Normalize", {x, numbers(Shape{kRows}), numbers(Shape{kRows})}, here());
        if (pick(4) == 0) sums_.push_back({x.node, 1});
      } else {
        constexpr const char* kOps[] = {"Add", "AddV2", "Mul", "Sub"};
        const Output by = numbers(shapes[pick(8) == 0 ? 3 : pick(3)]);
        x = pick(2) == 0 ? g_.add(kOps[pick(4)], {x, by}, here())
                         : g_.add(kOps[pick(4)], {by, x}, here());
      }
    }
    squares_.push_back(x);
  }

  // Of products, other sums and others, some of which somebody else may read.
  Output sum() {
    std::vector<Output> terms;
    for (int i = 1 + pick(4); i >= 0; --i) {
      const int kind = pick(6);
      terms.push_back(kind == 0   ? any(ints_)
                      : kind == 1 ? sum()
                                  : g_.add("Mul", {any(ints_), any(ints_)}, here()));
      if (pick(8) == 0) ints_.push_back(terms.back());
    }
    return g_.add("SumAll", terms, here());
  }

  Output list(int64_t a, int64_t b) {
    return g_.constant(Tensor::vector<int32_t>({static_cast<int32_t>(a), static_cast<int32_t>(b)}),
                       here());
  }
  Output uniform(const Shape& shape, int32_t value, ToyPlace place) {
    Tensor tensor = Tensor::zeros(DType::kInt32, shape).value();
    for (int32_t& v : tensor.mutable_data<int32_t>()) v = value;
    return g_.constant(std::move(tensor), std::move(place));
  }

  std::mt19937 random_;
  std::string device_;
  ToyGraph g_;
  std::vector<Output> ints_, floats_;
  std::vector<Output> matrices_, tall_;  // kRows x kColumns, kColumns x kRows
  std::vector<Output> squares_;          // kRows x kRows
  std::vector<Output> sums_;             // of the rows of matrices
};

class PassEquivalence : public testing::TestWithParam<OptimizePass> {};

// `rewrite` gives true when it changed the graph.
template <class Rewrite>
void check_equivalence(Rewrite rewrite) {
  std::vector<Ref<Device>> devices = toy_devices(1);
  OptimizeOptions options;
  options.kernels = &ToyOps::get().kernels;
  options.cpu = devices[0].get();
  int changed = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    int fetches = 0;
    Subgraph graph = RandomGraph(seed, devices[0]->name()).build(&fetches);
    std::vector<Tensor> feeds = {Tensor::scalar(static_cast<int32_t>(seed) - 75),
                                 Tensor::scalar<int32_t>(3),
                                 Tensor::of<int32_t>(Shape{kRows, kColumns}, {1, 2, 3, 4, 5, 6})};
    Result<std::vector<Tensor>> before = run_toy(graph, devices, feeds, fetches);
    ASSERT_TRUE(before.ok()) << before.status().to_string();
    Result<bool> rewritten = rewrite(graph, options);
    ASSERT_TRUE(rewritten.ok()) << rewritten.status().to_string();
    changed += *rewritten;
    Result<std::vector<Tensor>> after = run_toy(graph, devices, feeds, fetches);
    ASSERT_TRUE(after.ok()) << after.status().to_string();
    for (size_t i = 0; i < before->size(); ++i) {
      ASSERT_TRUE(bit_equal((*before)[i], (*after)[i]))
          << "fetch " << i << ": " << (*before)[i].to_string() << " before, "
          << (*after)[i].to_string() << " after";
    }
  }
  EXPECT_GT(changed, 0) << "no random graph gave the pass anything to do";
}

TEST_P(PassEquivalence, ResultsStay) {
  if (!GetParam().exact) GTEST_SKIP() << "states a tolerance of its own";
  // Graphs come pruned; a fold leaves what the removal of dead nodes then finds.
  check_equivalence([&](Subgraph& graph, const OptimizeOptions& options) -> Result<bool> {
    if (GetParam().run == remove_dead_nodes) MR_TRY(fold_constants(graph, options).status());
    return GetParam().run(graph, options);
  });
}

INSTANTIATE_TEST_SUITE_P(All, PassEquivalence,
                         testing::ValuesIn(optimize_passes().begin(), optimize_passes().end()),
                         [](const auto& info) { return std::string(info.param.name); });

// The toys' sums and products are of integers, which do not round.
TEST(OptimizeEquivalence, FoldedTransposes) { check_equivalence(fold_transposes); }
TEST(OptimizeEquivalence, FoldedBatchNorms) { check_equivalence(fold_batch_norms); }
TEST(OptimizeEquivalence, SumsOfProducts) { check_equivalence(sum_products_at_once); }
TEST(OptimizeEquivalence, Approximations) { check_equivalence(approximate); }

TEST(OptimizeEquivalence, AllPassesTogether) {
  check_equivalence([](Subgraph& graph, const OptimizeOptions& options) -> Result<bool> {
    int before = graph.size();
    MR_TRY(optimize(graph, options));
    return graph.size() != before;
  });
}

TEST(OptimizeEquivalence, WhatIsDroppedAndMadeAgain) {
  check_equivalence([](Subgraph& graph, const OptimizeOptions&) -> Result<bool> {
    MR_TRY_ASSIGN(const Recomputed done, recompute(graph, /*budget=*/0));
    return done.nodes > 0;
  });
}

}  // namespace
}  // namespace millrace
