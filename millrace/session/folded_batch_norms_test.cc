// The pass folded_batch_norms on real ops: what it folds, and how far results are from those of
// double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "millrace/base/str_cat.h"
#include "millrace/session/session_testing.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

using Names = std::vector<std::string>;
using Ints = std::vector<int64_t>;

class FoldedBatchNorms : public SessionTest {
 protected:
  std::string name(Expr e) const {
    const std::string node(graph_->node(static_cast<NodeId>(e.id())).name());
    return str_cat(node, ":", e.index());
  }
  // From a seed, the same numbers of either type.
  static Tensor random(DType type, const Shape& shape, uint32_t seed, double from = -1) {
    std::mt19937 numbers(seed);
    std::uniform_real_distribution<float> number(static_cast<float>(from), 1);
    Tensor out = Tensor::allocate(type, shape).value();
    for (size_t i = 0; i < static_cast<size_t>(shape.num_elements()); ++i) {
      const float v = number(numbers);
      if (type == DType::kFloat) {
        out.mutable_data<float>()[i] = v;
      } else {
        out.mutable_data<double>()[i] = double{v};
      }
    }
    return out;
  }
  Expr constant(const Shape& shape, double from = -1) {
    return builder_->constant(random(type_, shape, ++seed_, from));
  }
  Expr input() { return add("Placeholder", "x", {}, {{"dtype", type_}}); }
  static Expr conv(Expr x, Expr filter, const char* format = "NHWC", const char* op = "Conv2D") {
    return call(op, {x, filter},
                {{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}, {"data_format", format}});
  }
  // As given statistics normalise, in one op or as tf.nn.batch_normalization() has it.
  Expr fused(Expr x, int64_t channels, const char* format = "NHWC") {
    const char* op = type_ == DType::kFloat ? "FusedBatchNormV3" : "FusedBatchNorm";
    const Shape shape{channels};
    const Expr scale = constant(shape), offset = constant(shape), mean = constant(shape);
    return call_multi(op, {x, scale, offset, mean, constant(shape, 0.25)},
                      {{"data_format", format}, {"is_training", false}, {"epsilon", 0.001F}})[0];
  }
  Expr by_hand(Expr x, const Shape& shape) {
    const Expr mean = constant(shape);
    const Expr scale = rsqrt(constant(shape, 0.25) + 0.001) * constant(shape);
    return x * scale + (constant(shape) - mean * scale);
  }

  static int count(const std::string& text, std::string_view what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  }
  std::string explained(const Names& fetches, bool with_pass = true) {
    SessionOptions options;
    if (!with_pass) options.disabled_passes = {"folded_batch_norms"};
    const Result<std::string> text =
        session(options)->explain({.feeds = {"x"}, .fetches = fetches});
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    return text.ok() ? *text : "";
  }
  static int folded(const std::string& plan) { return count(plan, " in its filter\n"); }

  Tensor run(const Tensor& x, const std::string& fetch, SessionOptions options = {}) {
    Result<std::vector<Tensor>> out = session(std::move(options))->run({{"x", x}}, {fetch});
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? (*out)[0] : Tensor();
  }

  DType type_ = DType::kFloat;
  uint32_t seed_ = 0;
};

TEST_F(FoldedBatchNorms, GoIntoTheFiltersBeforeThem) {
  for (const bool first : {false, true}) {
    for (const bool one_op : {false, true}) {
      graph_ = make_ref<Graph>();
      builder_ = std::make_unique<GraphBuilder>(*graph_);
      const char* const format = first ? "NCHW" : "NHWC";
      const auto norm = [&](Expr x, int64_t channels) {
        if (one_op) return fused(x, channels, format);
        return by_hand(x, first ? Shape{channels, 1, 1} : Shape{channels});
      };
      Expr x = call("Relu", {norm(conv(input(), constant(Shape{3, 3, 4, 8}), format), 8)});
      x = conv(x, constant(Shape{3, 3, 8, 2}), format, "DepthwiseConv2dNative");
      x = call("Relu", {norm(x, 16)});
      x = call("BiasAdd", {conv(x, constant(Shape{1, 1, 16, 3}), format), constant(Shape{3})},
               {{"data_format", format}});
      x = norm(x, 3);
      const std::string plan = explained({name(x)});
      EXPECT_EQ(folded(plan), 3) << plan;
      EXPECT_EQ(count(plan, "\n  FusedBatchNorm"), 0) << plan;
      // All that is left is a sum for each.
      EXPECT_EQ(count(plan, "\n  Mul "), 0) << plan;
      EXPECT_EQ(count(plan, "\n  Reshape "), 0) << plan;
      EXPECT_EQ(folded(explained({name(x)}, false)), 0);
      const Tensor images = random(type_, first ? Shape{2, 4, 6, 5} : Shape{2, 6, 5, 4}, 99);
      SessionOptions without;
      without.disabled_passes = {"folded_batch_norms"};
      const Tensor a = run(images, name(x)), b = run(images, name(x), without);
      ASSERT_EQ(a.shape(), b.shape());
      for (size_t i = 0; i < a.data<float>().size(); ++i) {
        ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 2e-5) << format << " " << i;
      }
    }
  }
}

TEST_F(FoldedBatchNorms, OfABatchStay) {
  const Expr none = builder_->constant(Tensor::zeros(type_, Shape{0}).value());
  const Expr x = conv(input(), constant(Shape{3, 3, 4, 8}));
  const Expr y =
      call_multi("FusedBatchNormV3", {x, constant(Shape{8}), constant(Shape{8}), none, none})[0];
  EXPECT_EQ(folded(explained({name(y)})), 0);
}

// Programs of a filter and a few ops behind it, in float and in double.
class RandomChains : public FoldedBatchNorms {
 protected:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  // The same for a seed whatever the type.
  Expr program(uint32_t seed, DType type) {
    random_.seed(seed);
    seed_ = seed * 1000;
    type_ = type;
    graph_ = make_ref<Graph>();
    builder_ = std::make_unique<GraphBuilder>(*graph_);
    const Expr x = input();
    const bool first = pick(2) == 0;
    const char* const format = first ? "NCHW" : "NHWC";
    int rank = 4;
    int64_t channels = 1 + pick(9);
    Expr y;
    const auto flat = [&](Ints dims) {
      std::vector<int32_t> sizes(dims.begin(), dims.end());
      return reshape(x, builder_->constant(Tensor::vector(std::span<const int32_t>(sizes))));
    };
    switch (pick(6)) {
      case 0:
        y = conv(x, constant(Shape{3, 2, kSize, channels}), format);
        break;
      case 1:
        y = conv(x, constant(Shape{2, 2, kSize, channels}), format, "DepthwiseConv2dNative");
        channels *= kSize;
        break;
      case 2: {
        Ints sizes = {kSize, kSize, kSize, kSize};
        sizes[first ? 1 : 3] = channels;
        const std::vector<int32_t> list(sizes.begin(), sizes.end());
        y = call("Conv2DBackpropInput",
                 {builder_->constant(Tensor::vector(std::span<const int32_t>(list))),
                  constant(Shape{3, 3, channels, kSize}), x},
                 {{"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}, {"data_format", format}});
        break;
      }
      case 3:
        rank = 2;
        y = matmul(flat({-1, kSize}), constant(Shape{kSize, channels}));
        break;
      case 4:
        rank = 2;
        y = matmul(flat({-1, kSize}), constant(Shape{channels, kSize}), false, true);
        break;
      case 5: {
        rank = 3;
        const bool adjoint = pick(2) == 0;
        const Shape shape = adjoint ? Shape{channels, kSize} : Shape{kSize, channels};
        y = call("BatchMatMulV2", {flat({-1, kSize, kSize}), constant(shape)},
                 {{"adj_y", adjoint}});
        break;
      }
    }
    const bool in_second = rank == 4 && first;
    for (int i = 1 + pick(4); i > 0; --i) {
      const Shape shapes[] = {Shape{}, in_second ? Shape{channels, 1, 1} : Shape{channels},
                              in_second ? Shape{1, channels, 1, 1} : Shape{1, channels}};
      switch (pick(7)) {
        case 0:
          if (rank == 4) y = fused(y, channels, format);
          break;
        case 1:
          y = call("BiasAdd", {y, constant(Shape{channels})},
                   {{"data_format", in_second ? "NCHW" : "NHWC"}});
          break;
        case 2:
          y = y / constant(shapes[pick(3)], 0.25);
          break;
        case 3:
          y = pick(2) == 0 ? y - constant(shapes[pick(3)]) : constant(shapes[pick(3)]) - y;
          break;
        case 4:
          y = y + constant(shapes[pick(3)]);
          break;
        default:
          y = y * constant(shapes[pick(3)]);
          break;
      }
    }
    return identity(y);
  }

  static constexpr int64_t kSize = 6;
  std::mt19937 random_;
};

TEST_F(RandomChains, AreAsCloseAsTheyWere) {
  SessionOptions without, none;
  without.disabled_passes = {"folded_batch_norms"};
  none.optimizer_level = 0;
  int changed = 0;
  double sums[2] = {};
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    const Shape shape{kSize, kSize, kSize, kSize};
    const std::string exact_fetch = name(program(seed, DType::kDouble));
    const Tensor exact = run(random(DType::kDouble, shape, seed), exact_fetch, none);
    const std::string fetch = name(program(seed, DType::kFloat));
    ASSERT_TRUE(builder_->status().ok()) << builder_->status().to_string();
    if (folded(explained({fetch})) == 0) continue;
    ++changed;
    const Tensor x = random(DType::kFloat, shape, seed);
    const Tensor results[] = {run(x, fetch, without), run(x, fetch)};
    double largest = 1e-3, apart[2] = {}, mean[2] = {};
    const size_t n = exact.data<double>().size();
    for (int k : {0, 1}) {
      ASSERT_EQ(results[k].shape(), exact.shape());
      for (size_t i = 0; i < n; ++i) {
        const double d = exact.data<double>()[i];
        largest = std::max(largest, std::fabs(d));
        const double error = std::fabs(double{results[k].data<float>()[i]} - d);
        apart[k] = std::max(apart[k], error);
        mean[k] += error / static_cast<double>(n);
      }
    }
    EXPECT_LE(apart[1], 1e-6 * largest + 2 * apart[0]);
    for (int k : {0, 1}) sums[k] += mean[k] / largest;
  }
  EXPECT_GT(changed, 60);
  EXPECT_LE(sums[1], 1.25 * sums[0]) << sums[0] / changed << " without, " << sums[1] / changed;
  RecordProperty("mean_error_without", str_cat(sums[0] / changed));
  RecordProperty("mean_error_with", str_cat(sums[1] / changed));
}

}  // namespace
}  // namespace millrace
