// The pass mixed_precision on real ops: which ops it lowers, how many casts that takes, and how far
// results are from those of float32.

#include "millrace/runtime/mixed_precision.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "millrace/autodiff/gradients.h"
#include "millrace/base/str_cat.h"
#include "millrace/session/session_testing.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

using Names = std::vector<std::string>;
using Feeds = std::vector<std::pair<std::string, Tensor>>;
using Ints = std::vector<int64_t>;

Tensor random_tensor(const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  Tensor out = Tensor::allocate(DType::kFloat, shape).value();
  for (float& v : out.mutable_data<float>()) v = number(random);
  return out;
}

class MixedPrecision : public SessionTest {
 protected:
  std::string name(Expr e) const {
    const std::string node(graph_->node(static_cast<NodeId>(e.id())).name());
    return str_cat(node, ":", e.index());
  }
  // A variable's value, as far as passes can see: nothing is known of what is fed.
  Expr weights(const char* called, const Shape& shape) {
    feeds_.emplace_back(called, random_tensor(shape, ++seed_));
    return placeholder(called);
  }

  static SessionOptions with(DType type) {
    SessionOptions options;
    options.cpu_precision = type;
    return options;
  }
  // Ops one by one: the last pass would put casts into other nodes.
  std::string explained(const Names& fetches, SessionOptions options) {
    options.disabled_passes.emplace_back("fuse_elementwise");
    Names feeds;
    for (const auto& [feed, value] : feeds_) feeds.push_back(feed);
    const Result<std::string> text =
        session(std::move(options))->explain({.feeds = feeds, .fetches = fetches});
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    return text.ok() ? *text : "";
  }
  static int count(const std::string& text, std::string_view what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  }
  static int casts(const std::string& plan) { return count(plan, "\n  Cast "); }

  std::vector<Tensor> run(const Names& fetches, SessionOptions options = {}) {
    Result<std::vector<Tensor>> out = session(std::move(options))->run(feeds_, fetches);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? *std::move(out) : std::vector<Tensor>(fetches.size());
  }
  // Within `tolerance` of the largest element of what float32 gives, and not the same to the bit.
  void expect_near(const Names& fetches, DType type, double tolerance) {
    const std::vector<Tensor> own = run(fetches), low = run(fetches, with(type));
    bool differs = false;
    for (size_t i = 0; i < fetches.size(); ++i) {
      const Tensor &a = own[i], &b = low[i];
      ASSERT_EQ(a.shape(), b.shape()) << fetches[i];
      ASSERT_EQ(b.dtype(), DType::kFloat) << fetches[i];
      differs |= !bit_equal(a, b);
      double largest = 1e-3, apart = 0;
      for (size_t k = 0; k < a.data<float>().size(); ++k) {
        largest = std::max(largest, std::fabs(double{a.data<float>()[k]}));
        apart = std::max(apart, std::fabs(double{a.data<float>()[k]} - b.data<float>()[k]));
      }
      ASSERT_LE(apart, tolerance * largest) << fetches[i];
    }
    EXPECT_TRUE(differs) << "nothing was computed in " << dtype_name(type);
  }

  Feeds feeds_;
  uint32_t seed_ = 0;
};

TEST_F(MixedPrecision, LowersProductsAndWhatStandsBetweenThem) {
  const Expr x = weights("x", Shape{4, 8});
  const Expr w1 = weights("w1", Shape{8, 8}), w2 = weights("w2", Shape{8, 8});
  const Expr h = call("Relu", {call("Add", {matmul(x, w1), weights("b", Shape{8})})});
  const Expr y = matmul(h, w2);
  const std::string plan = explained({name(y)}, with(DType::kBFloat16));
  // x, w1, b and w2 to bfloat16, y back.
  EXPECT_EQ(casts(plan), 5) << plan;
  expect_near({name(y)}, DType::kBFloat16, 0.03);
  expect_near({name(y)}, DType::kHalf, 0.004);
}

TEST_F(MixedPrecision, WithoutItsSwitchNothingChanges) {
  const Expr x = weights("x", Shape{4, 8});
  const Expr y = matmul(x, weights("w", Shape{8, 8}));
  const std::string plan = explained({name(y)}, {});
  EXPECT_EQ(casts(plan), 0) << plan;
  // A CPU has its own; so has a GPU.
  SessionOptions of_gpus;
  of_gpus.gpu_precision = DType::kHalf;
  EXPECT_EQ(explained({name(y)}, of_gpus), plan);
  SessionOptions off = with(DType::kBFloat16);
  off.disabled_passes = {"mixed_precision"};
  EXPECT_EQ(explained({name(y)}, off), plan);
  // It rounds, so it is no exact pass.
  SessionOptions exact = with(DType::kBFloat16);
  exact.optimizer_level = 1;
  EXPECT_EQ(casts(explained({name(y)}, exact)), 0);
}

TEST_F(MixedPrecision, ATensorIsCastOnce) {
  const Expr x = weights("x", Shape{8, 8}), w = weights("w", Shape{8, 8});
  const Expr a = matmul(x, w), b = matmul(w, x), c = matmul(x, x);
  // All three are read in float32, one of them twice.
  const Expr y = call("Exp", {a}), z = call("Expm1", {a}), s = call("Exp", {b});
  const std::string plan = explained({name(y), name(z), name(s), name(c)}, with(DType::kBFloat16));
  EXPECT_EQ(casts(plan), 5) << plan;
}

TEST_F(MixedPrecision, WhatNeedsFloat32KeepsIt) {
  const Expr x = weights("x", Shape{8, 8}), w = weights("w", Shape{8, 8});
  // The sum is of what Exp gave, so it needs float32 too although it stands between products.
  const Expr h = call("Add", {call("Exp", {matmul(x, w)}), weights("b", Shape{8})});
  const Expr y = matmul(h, w);
  const std::string plan = explained({name(y)}, with(DType::kBFloat16));
  // x and w, the first product back, the sum, y back.
  EXPECT_EQ(casts(plan), 5) << plan;
  EXPECT_EQ(count(plan, "Exp:float") + count(plan, "\n  Exp "), 1) << plan;
  expect_near({name(y)}, DType::kBFloat16, 0.05);
}

TEST_F(MixedPrecision, ValuesReadInFloat32AreNotRounded) {
  const Expr x = weights("x", Shape{4, 4});
  const Expr flat = reshape(x, int32_vector(*builder_, {2, 8}));
  const Expr y = matmul(flat, weights("w", Shape{8, 2}));
  // Only the product reads what is reshaped: the cast may come before.
  EXPECT_EQ(casts(explained({name(y)}, with(DType::kHalf))), 3);
  // Now somebody else reads it too, and gets all of its bits.
  const Names both = {name(y), name(flat)};
  EXPECT_EQ(casts(explained(both, with(DType::kHalf))), 3);
  EXPECT_TRUE(bit_equal(run(both)[1], run(both, with(DType::kHalf))[1]));
}

TEST_F(MixedPrecision, ATrainingStepOfLayersFollowsFloat32) {
  const Expr x = weights("x", Shape{6, 8});
  const Expr w1 = weights("w1", Shape{8, 16}), b1 = weights("b1", Shape{16});
  const Expr w2 = weights("w2", Shape{16, 16}), b2 = weights("b2", Shape{16});
  const Expr w3 = weights("w3", Shape{16, 4}), b3 = weights("b3", Shape{4});
  const Expr h1 = call("Relu", {call("BiasAdd", {matmul(x, w1), b1})});
  const Expr h2 = call("Tanh", {call("BiasAdd", {matmul(h1, w2), b2})});
  const Expr logits = call("BiasAdd", {matmul(h2, w3), b3});
  const Expr losses = call_multi("SparseSoftmaxCrossEntropyWithLogits",
                                 {logits, int32_vector(*builder_, {0, 1, 2, 3, 0, 1})})[0];
  const Expr loss = call("Mean", {losses, int32_vector(*builder_, {0})});
  const Expr ys[] = {loss}, xs[] = {w1, b1, w2, b2, w3, b3};
  Names fetches = {name(loss)};
  const std::vector<Gradient> grads = gradients(*builder_, ys, xs).value();
  for (const Gradient& g : grads) fetches.push_back(name(g.values));
  const std::string plan = explained(fetches, with(DType::kBFloat16));
  // In: x, three weights, two biases between products, the gradient of the logits. Out: the logits,
  // three gradients of weights, and of two layers what their biases' gradients sum up.
  EXPECT_EQ(casts(plan), 13) << plan;
  expect_near(fetches, DType::kBFloat16, 0.06);
  expect_near(fetches, DType::kHalf, 0.01);
}

TEST_F(MixedPrecision, ATrainingStepOfConvolutionsFollowsFloat32) {
  const Expr x = weights("x", Shape{2, 8, 8, 3});
  const Expr f1 = weights("f1", Shape{3, 3, 3, 8}), f2 = weights("f2", Shape{3, 3, 8, 4});
  const Expr scale = weights("scale", Shape{8}), offset = weights("offset", Shape{8});
  const auto conv = [](Expr images, Expr filter) {
    return call("Conv2D", {images, filter}, {{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}});
  };
  const Expr none = builder_->constant(Tensor::zeros(DType::kFloat, Shape{0}).value());
  const Expr normal = call_multi("FusedBatchNormV3", {conv(x, f1), scale, offset, none, none})[0];
  const Expr pooled =
      call("MaxPool", {call("Relu", {normal})},
           {{"ksize", Ints{1, 2, 2, 1}}, {"strides", Ints{1, 2, 2, 1}}, {"padding", "VALID"}});
  const Expr loss = call("L2Loss", {conv(pooled, f2)});
  const Expr ys[] = {loss}, xs[] = {f1, f2, scale, offset};
  Names fetches = {name(loss)};
  const std::vector<Gradient> grads = gradients(*builder_, ys, xs).value();
  for (const Gradient& g : grads) fetches.push_back(name(g.values));
  expect_near(fetches, DType::kBFloat16, 0.1);
  expect_near(fetches, DType::kHalf, 0.02);
}

TEST_F(MixedPrecision, ConditionalsHandOnWhatTheyGet) {
  const Expr x = weights("x", Shape{4, 4}), w = weights("w", Shape{4, 4});
  const Expr large = call(
      "Greater", {call("Sum", {x, int32_vector(*builder_, {0, 1})}), weights("limit", Shape{})});
  const std::vector<Expr> branches = call_multi("Switch", {matmul(x, w), large});
  const Expr chosen = call_multi("Merge", {branches[0], matmul(branches[1], branches[1])})[0];
  const Expr y = matmul(chosen, w);
  const std::string plan = explained({name(y)}, with(DType::kBFloat16));
  // x and w to bfloat16, y back.
  EXPECT_EQ(casts(plan), 3) << plan;
  for (const float limit : {-100.0F, 100.0F}) {
    feeds_.back().second = f32(limit);
    expect_near({name(y)}, DType::kBFloat16, 0.05);
  }
}

TEST_F(MixedPrecision, ListsHaveOpsThatThereAreAndFollowTheEnvironment) {
  for (const auto& [op, list] : precision_lists()) {
    EXPECT_NE(OpRegistry::global().find(op), nullptr) << op;
  }
  const Expr x = weights("x", Shape{4, 4});
  const Expr y = call("Exp", {matmul(x, x)});
  EXPECT_EQ(casts(explained({name(y)}, with(DType::kHalf))), 2);
  const auto listed = [&](const char* variable, const char* ops) {
    const std::string full = str_cat("TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_", variable);
    EXPECT_EQ(setenv(full.c_str(), ops, 1), 0);
    const int number = casts(explained({name(y)}, with(DType::kHalf)));
    EXPECT_EQ(unsetenv(full.c_str()), 0);
    return number;
  };
  EXPECT_EQ(listed("ALLOWLIST_REMOVE", "Conv2D,MatMul"), 0);
  // The cast back comes after Exp instead of before it.
  EXPECT_EQ(listed("ALLOWLIST_ADD", "Exp"), 2);
  EXPECT_EQ(listed("DENYLIST_ADD", ",MatMul,"), 0);
  EXPECT_EQ(listed("CLEARLIST_REMOVE", "MatMul"), 2);
}

// Programs of listed ops over square matrices.
TEST_F(MixedPrecision, RandomProgramsFollowFloat32) {
  constexpr const char* kUnary[] = {"Relu", "Tanh",   "Sigmoid",  "Identity",
                                    "Neg",  "Abs",    "Softplus", "Softmax",
                                    "Exp",  "Square", "Rsqrt",    "StopGradient"};
  constexpr const char* kBinary[] = {"Add", "Sub", "Mul", "Maximum", "Minimum", "AddV2"};
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    graph_ = make_ref<Graph>();
    builder_ = std::make_unique<GraphBuilder>(*graph_);
    feeds_.clear();
    std::mt19937 random(seed);
    const auto pick = [&](size_t n) { return random() % n; };
    std::vector<Expr> values = {weights("a", Shape{6, 6}), weights("b", Shape{6, 6})};
    std::vector<bool> read(2, true);
    const auto any = [&] {
      const size_t i = pick(values.size());
      read[i] = true;
      return values[i];
    };
    const auto add_value = [&](Expr e) {
      values.push_back(e);
      read.push_back(false);
    };
    add_value(matmul(any(), any()));
    for (size_t steps = 4 + pick(16); steps > 0; --steps) {
      switch (pick(6)) {
        case 0:
        case 1:  // of elements below 1
          add_value(matmul(call("Tanh", {any()}), call("Tanh", {any()}), pick(2) == 0));
          break;
        case 2: {
          const char* const op = kUnary[pick(std::size(kUnary))];
          const Expr x = call("Sigmoid", {any()});
          add_value(call(op, {x}));
          break;
        }
        case 3:
          add_value(call(kBinary[pick(std::size(kBinary))], {any(), any()}));
          break;
        case 4:
          add_value(transpose(reshape(any(), int32_vector(*builder_, {6, 6})),
                              int32_vector(*builder_, {1, 0})));
          break;
        case 5: {
          const std::vector<Expr> halves =
              call_multi("Split", {int32_scalar(*builder_, 0), any()}, {{"num_split", 2}});
          add_value(concat({halves[1], halves[0]}, 0));
          break;
        }
      }
    }
    Names fetches;
    for (size_t i = 2; i < values.size(); ++i) {
      if (!read[i]) fetches.push_back(name(values[i]));
    }
    const std::vector<Tensor> own = run(fetches), low = run(fetches, with(DType::kHalf));
    for (size_t i = 0; i < fetches.size(); ++i) {
      double largest = 1, apart = 0;
      for (size_t k = 0; k < own[i].data<float>().size(); ++k) {
        largest = std::max(largest, std::fabs(double{own[i].data<float>()[k]}));
        apart =
            std::max(apart, std::fabs(double{own[i].data<float>()[k]} - low[i].data<float>()[k]));
      }
      EXPECT_LE(apart, 0.05 * largest) << fetches[i];
    }
  }
}

}  // namespace
}  // namespace millrace
