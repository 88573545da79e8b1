// The pass image_layout on real ops: what it transposes, and that results stay.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "millrace/autodiff/gradients.h"
#include "millrace/base/str_cat.h"
#include "millrace/graph/graph_def.h"
#include "millrace/session/session_testing.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

using Names = std::vector<std::string>;
using Feeds = std::vector<std::pair<std::string, Tensor>>;

Tensor random_tensor(const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> number(-1, 1);
  Tensor out = Tensor::allocate(DType::kFloat, shape).value();
  for (float& v : out.mutable_data<float>()) v = number(random);
  return out;
}

class ImageLayout : public SessionTest {
 protected:
  std::string name(Expr e) const {
    const std::string node(graph_->node(static_cast<NodeId>(e.id())).name());
    return str_cat(node, ":", e.index());
  }
  Expr ints(std::initializer_list<int32_t> values) { return int32_vector(*builder_, values); }
  Expr filter(int64_t height, int64_t width, int64_t in, int64_t out) {
    return builder_->constant(random_tensor(Shape{height, width, in, out}, ++seed_));
  }
  Expr vector(int64_t n) { return builder_->constant(random_tensor(Shape{n}, ++seed_)); }

  static Expr conv(Expr x, Expr filter, int stride = 1, const char* padding = "SAME") {
    return call(
        "Conv2D", {x, filter},
        {{"strides", Ints{1, 1, stride, stride}}, {"padding", padding}, {"data_format", "NCHW"}});
  }
  static Expr bias(Expr x, Expr b) { return call("BiasAdd", {x, b}, {{"data_format", "NCHW"}}); }
  static Expr pool(const char* op, Expr x, int size = 2, const char* padding = "VALID") {
    return call(op, {x},
                {{"ksize", Ints{1, 1, size, size}},
                 {"strides", Ints{1, 1, 2, 2}},
                 {"padding", padding},
                 {"data_format", "NCHW"}});
  }

  // The plan for these fetches.
  std::string explained(const Names& feeds, const Names& fetches, bool with_pass = true) {
    SessionOptions options;
    if (!with_pass) options.disabled_passes = {"image_layout"};
    const Result<std::string> text =
        session(options)->explain({.feeds = feeds, .fetches = fetches});
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    return text.ok() ? *text : "";
  }
  static int count(const std::string& text, std::string_view what) {
    int n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  }
  static int transposes(const std::string& plan) { return count(plan, "\n  Transpose "); }
  static int in_nhwc(const std::string& plan) { return count(plan, "\n    in NHWC"); }

  // Runs with and without the pass; `tolerance` is of the largest element, 0 asks for equal bits.
  void expect_same(const Feeds& feeds, const Names& fetches, double tolerance = 0) {
    std::vector<Tensor> results[2];
    for (const bool with_pass : {false, true}) {
      SessionOptions options;
      if (!with_pass) options.disabled_passes = {"image_layout"};
      Result<std::vector<Tensor>> out = session(options)->run(feeds, fetches);
      ASSERT_TRUE(out.ok()) << out.status().to_string();
      results[with_pass] = *std::move(out);
    }
    for (size_t i = 0; i < fetches.size(); ++i) {
      const Tensor &a = results[0][i], &b = results[1][i];
      ASSERT_EQ(a.shape(), b.shape()) << fetches[i];
      if (tolerance == 0 || a.dtype() != DType::kFloat) {
        ASSERT_TRUE(bit_equal(a, b)) << fetches[i] << ": " << a.to_string() << " without, "
                                     << b.to_string() << " with the pass";
        continue;
      }
      double largest = 1e-3, apart = 0;
      for (size_t k = 0; k < a.data<float>().size(); ++k) {
        largest = std::max(largest, std::fabs(double{a.data<float>()[k]}));
        apart = std::max(apart, std::fabs(double{a.data<float>()[k]} - b.data<float>()[k]));
      }
      ASSERT_LE(apart, tolerance * largest) << fetches[i];
    }
  }

  using Ints = std::vector<int64_t>;
  uint32_t seed_ = 0;
};

TEST_F(ImageLayout, AChainIsTransposedAtItsEnds) {
  const Expr x = placeholder("x");
  const Expr y = call("Relu", {bias(conv(x, filter(3, 3, 3, 8)), vector(8))});
  const Expr z = conv(pool("MaxPool", y), filter(3, 3, 8, 4));
  const std::string plan = explained({"x"}, {name(z)});
  EXPECT_EQ(transposes(plan), 2) << plan;
  EXPECT_GE(in_nhwc(plan), 3) << plan;
  EXPECT_EQ(transposes(explained({"x"}, {name(z)}, false)), 0);
  expect_same({{"x", random_tensor(Shape{2, 3, 8, 6}, 1)}}, {name(z)});
  // What is fetched on the way has the layout that the program gave it.
  expect_same({{"x", random_tensor(Shape{2, 3, 8, 6}, 1)}}, {name(y), name(z)});
}

TEST_F(ImageLayout, ATrainingStepIsTransposedAtItsEnds) {
  const Expr x = placeholder("x");
  const Expr first = filter(3, 3, 3, 8), second = filter(3, 3, 8, 4), offset = vector(8);
  const Expr a = pool("MaxPool", call("Relu", {bias(conv(x, first), offset)}));
  const Expr b = pool("AvgPool", call("Relu", {conv(a, second)}), 3, "SAME");
  const Expr flat = reshape(b, ints({2, -1}));
  const Expr loss = sum(square(flat), ints({0, 1}));
  const Expr ys[] = {loss}, xs[] = {first, second, offset};
  const std::vector<Gradient> grads = gradients(*builder_, ys, xs).value();
  const Names fetches = {name(loss), name(grads[0].values), name(grads[1].values),
                         name(grads[2].values)};
  const std::string plan = explained({"x"}, fetches);
  // x, what is made flat, and its gradient.
  EXPECT_EQ(transposes(plan), 3) << plan;
  expect_same({{"x", random_tensor(Shape{2, 3, 8, 8}, 1)}}, fetches, 1e-5);
}

TEST_F(ImageLayout, ConcatenationsAndTheirGradientsStayInside) {
  const Expr x = placeholder("x");
  const Expr f = filter(3, 3, 3, 4), g = filter(1, 1, 3, 2), last = filter(1, 1, 6, 3);
  const Expr z = conv(concat({conv(x, f), conv(x, g)}, 1), last);
  const Expr ys[] = {z}, xs[] = {f, g};
  const std::vector<Gradient> grads = gradients(*builder_, ys, xs).value();
  const Names fetches = {name(z), name(grads[0].values), name(grads[1].values)};
  const std::string plan = explained({"x"}, fetches);
  // x, z and the gradient of z; the batch is not known, nor what is put together.
  EXPECT_LE(transposes(plan), 3) << plan;
  expect_same({{"x", random_tensor(Shape{2, 3, 5, 4}, 1)}}, fetches, 1e-5);
}

TEST_F(ImageLayout, ProgramsTranspositionsGo) {
  // As programs are written that ask for NHWC where it is needed.
  const Expr x = placeholder("x");
  const auto nhwc = [&](Expr e) { return transpose(e, ints({0, 2, 3, 1})); };
  const auto nchw = [&](Expr e) { return transpose(e, ints({0, 3, 1, 2})); };
  const Expr a = nchw(call("LRN", {nhwc(conv(x, filter(3, 3, 3, 8)))}));
  const Expr b = nchw(call("LRN", {nhwc(call("Relu", {a}))}));
  const Expr z = conv(b, filter(3, 3, 8, 2));
  const std::string plan = explained({"x"}, {name(z)});
  EXPECT_EQ(transposes(plan), 2) << plan;
  expect_same({{"x", random_tensor(Shape{2, 3, 5, 4}, 1)}}, {name(z), name(a)});
}

TEST_F(ImageLayout, VolumesToo) {
  const Expr x = placeholder("x");
  const auto conv3d = [&](Expr e, int64_t in, int64_t out) {
    const Expr f = builder_->constant(random_tensor(Shape{2, 2, 2, in, out}, ++seed_));
    return call("Conv3D", {e, f},
                {{"strides", Ints{1, 1, 1, 2, 1}}, {"padding", "SAME"}, {"data_format", "NCDHW"}});
  };
  const Expr y = conv3d(call("Relu", {conv3d(x, 2, 3)}), 3, 4);
  const std::string plan = explained({"x"}, {name(y)});
  EXPECT_EQ(transposes(plan), 2) << plan;
  EXPECT_EQ(count(plan, "\n    in NDHWC"), 3) << plan;
  expect_same({{"x", random_tensor(Shape{2, 2, 3, 4, 5}, 1)}}, {name(y)});
}

TEST_F(ImageLayout, WhatIsNoImageStays) {
  // A bias takes values of any rank, and this one's is not known.
  const Expr x = placeholder("x"), sizes = placeholder("sizes");
  const Expr y = bias(bias(x, vector(3)), vector(3));
  EXPECT_EQ(transposes(explained({"x"}, {name(y)})), 0);
  expect_same({{"x", random_tensor(Shape{2, 3, 4}, 1)}}, {name(y)});
  expect_same({{"x", random_tensor(Shape{2, 3, 4, 5, 2}, 1)}}, {name(y)});
  // Of three dimensions, channels are in second place too.
  const Expr known = bias(reshape(x, ints({2, 3, -1})), vector(3));
  EXPECT_EQ(in_nhwc(explained({"x"}, {name(known)})), 0);
}

TEST_F(ImageLayout, SizesOfTheAxesAloneStay) {
  const Expr dy = placeholder("dy");
  const AttrMap attrs = {
      {"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}, {"data_format", "NCHW"}};
  const Expr dx = call("Conv2DBackpropInput", {ints({50, 40}), filter(3, 3, 2, 3), dy}, attrs);
  const Expr z = conv(dx, filter(3, 3, 2, 3));
  EXPECT_EQ(transposes(explained({"dy"}, {name(z)})), 2);
  expect_same({{"dy", random_tensor(Shape{2, 3, 50, 40}, 1)}}, {name(z)});
}

TEST_F(ImageLayout, InLoops) {
  // while (i < 3) x = conv(conv(x))
  const AttrMap frame = {{"frame_name", "loop"}};
  const AttrMap kept = {{"frame_name", "loop"}, {"is_constant", true}};
  const Expr x = placeholder("x");
  const Expr i = call("Enter", {int32_scalar(*builder_, 0)}, frame), v = call("Enter", {x}, frame);
  const Expr f = call("Enter", {filter(3, 3, 3, 3)}, kept);
  const Expr three = call("Enter", {int32_scalar(*builder_, 3)}, kept);
  const Expr one = call("Enter", {int32_scalar(*builder_, 1)}, kept);
  // The back edges are set when there is something to go back from.
  constexpr char kText[] = R"(
    node { name: "im" op: "Merge" input: "$i" input: "inext" $n attr { key: "T" value { type: DT_INT32 } } }
    node { name: "vm" op: "Merge" input: "$v" input: "vnext" $n attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "less" op: "Less" input: "im" input: "$three" attr { key: "T" value { type: DT_INT32 } } }
    node { name: "cond" op: "LoopCond" input: "less" }
    node { name: "is" op: "Switch" input: "im" input: "cond" attr { key: "T" value { type: DT_INT32 } } }
    node { name: "vs" op: "Switch" input: "vm" input: "cond" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "iadd" op: "Add" input: "is:1" input: "$one" attr { key: "T" value { type: DT_INT32 } } }
    node { name: "a" op: "Conv2D" input: "vs:1" input: "$f" $conv }
    node { name: "b" op: "Conv2D" input: "a" input: "$f" $conv }
    node { name: "inext" op: "NextIteration" input: "iadd" attr { key: "T" value { type: DT_INT32 } } }
    node { name: "vnext" op: "NextIteration" input: "b" attr { key: "T" value { type: DT_FLOAT } } }
    node { name: "out" op: "Exit" input: "vs" attr { key: "T" value { type: DT_FLOAT } } })";
  std::string text = kText;
  const auto put = [&](std::string_view mark, const std::string& with) {
    for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) {
      text.replace(at, mark.size(), with);
    }
  };
  const auto node = [&](Expr e) {
    return std::string(graph_->node(static_cast<NodeId>(e.id())).name());
  };
  put("$n", R"(attr { key: "N" value { i: 2 } })");
  put("$conv", R"(attr { key: "T" value { type: DT_FLOAT } }
    attr { key: "strides" value { list { i: 1 i: 1 i: 1 i: 1 } } }
    attr { key: "padding" value { s: "SAME" } } attr { key: "data_format" value { s: "NCHW" } })");
  put("$three", node(three));
  put("$one", node(one));
  put("$i", node(i));
  put("$v", node(v));
  put("$f", node(f));
  ASSERT_TRUE(import_graph_def_text(text, {}, *graph_).ok());
  const std::string plan = explained({"x"}, {"out:0"});
  EXPECT_EQ(transposes(plan), 2) << plan;
  expect_same({{"x", random_tensor(Shape{2, 3, 5, 4}, 1)}}, {"out:0"});
}

TEST_F(ImageLayout, AWrongRankIsTheUsersMistake) {
  const Expr x = placeholder("x");
  const Expr y = conv(conv(x, filter(3, 3, 3, 3)), filter(3, 3, 3, 3));
  EXPECT_EQ(code_of(session()->run({{"x", random_tensor(Shape{2, 3, 4}, 1)}}, {name(y)})),
            Code::kInvalidArgument);
}

// Programs of random image ops, channels first.
class RandomImages : public ImageLayout {
 protected:
  struct Image {
    Expr e;
    int64_t n, c, h, w;
  };

  int pick(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  const Image& any() {
    return images_[static_cast<size_t>(pick(static_cast<int>(images_.size())))];
  }
  void add(Expr e, int64_t n, int64_t c, int64_t h, int64_t w) {
    images_.push_back({e, n, c, h, w});
  }

  void step() {
    const Image x = any();
    const auto same = [&](Expr e) { add(e, x.n, x.c, x.h, x.w); };
    switch (pick(22)) {
      case 0:
      case 1:
      case 2: {
        const int64_t out = 1 + pick(3), stride = 1 + pick(2), size = 1 + pick(3);
        const Expr f = filter(size, size, x.c, out);
        filters_.push_back(f);
        add(conv(x.e, f, static_cast<int>(stride)), x.n, out, (x.h + stride - 1) / stride,
            (x.w + stride - 1) / stride);
        break;
      }
      case 3: {
        const Expr f = filter(2, 2, x.c, 2);
        filters_.push_back(f);
        const Expr y = call("DepthwiseConv2dNative", {x.e, f},
                            {{"strides", Ints{1, 1, 1, 1}},
                             {"padding", "EXPLICIT"},
                             {"explicit_paddings", Ints{0, 0, 0, 0, 1, 0, 0, 2}},
                             {"data_format", "NCHW"}});
        add(y, x.n, 2 * x.c, x.h, x.w + 1);
        break;
      }
      case 4: {
        const Expr b = vector(x.c);
        filters_.push_back(b);
        same(bias(x.e, b));
        break;
      }
      case 5:
      case 6: {
        const Expr y = pool(pick(2) == 0 ? "MaxPool" : "AvgPool", x.e, 2, "SAME");
        add(y, x.n, x.c, (x.h + 1) / 2, (x.w + 1) / 2);
        break;
      }
      case 7: {
        const Expr none = builder_->constant(Tensor::zeros(DType::kFloat, Shape{0}).value());
        same(call_multi("FusedBatchNormV3", {x.e, vector(x.c), vector(x.c), none, none},
                        {{"data_format", "NCHW"}, {"epsilon", 0.1F}})[0]);
        break;
      }
      case 8:
        same(call("Tanh", {x.e}));
        break;
      case 9:
        same(identity(call("StopGradient", {x.e})));
        break;
      case 10: {
        Expr other = x.e;
        for (const Image& y : images_) {
          if (y.n == x.n && y.c == x.c && y.h == x.h && y.w == x.w && pick(2) == 0) other = y.e;
        }
        same(pick(2) == 0 ? x.e + other : call("AddN", {x.e, other, x.e}));
        break;
      }
      case 11: {
        const Shape shapes[] = {Shape{1, x.c, 1, 1},  Shape{x.c, 1, 1},
                                Shape{x.c, x.h, x.w}, Shape{},
                                Shape{x.w},           Shape{1, 1, x.h, 1}};
        const Expr by = builder_->constant(random_tensor(shapes[pick(6)], ++seed_));
        same(pick(2) == 0 ? x.e * by : by - x.e);
        break;
      }
      case 12: {
        const Image y = any();
        const auto at = call("Slice", {y.e, ints({0, 0, 0, 0}), ints({-1, 1, 1, 1})});
        same(x.e * at);
        break;
      }
      case 13:
        add(concat({x.e, call("Relu", {x.e})}, pick(2) == 0 ? 1 : -3), x.n, 2 * x.c, x.h, x.w);
        break;
      case 14: {
        if (x.c % 2 != 0) break;
        const Expr axis = int32_scalar(*builder_, 1);
        add(call_multi("Split", {axis, x.e}, {{"num_split", 2}})[pick(2)], x.n, x.c / 2, x.h, x.w);
        break;
      }
      case 15: {
        const Expr paddings =
            builder_->constant(Tensor::of<int32_t>(Shape{4, 2}, {0, 0, 0, 1, 1, 0, 0, 2}));
        if (x.w < 2 || pick(2) == 0) {
          add(call("Pad", {x.e, paddings}), x.n, x.c + 1, x.h + 1, x.w + 2);
        } else {
          const Expr mirrored = call("MirrorPad", {x.e, paddings}, {{"mode", "SYMMETRIC"}});
          add(mirrored, x.n, x.c + 1, x.h + 1, x.w + 2);
        }
        break;
      }
      case 16:
        add(tile(x.e, ints({1, 2, 1, 1})), x.n, 2 * x.c, x.h, x.w);
        break;
      case 17: {
        const char* op = pick(2) == 0 ? "Mean" : "Max";
        add(call(op, {x.e, ints({2, 3})}, {{"keep_dims", true}}), x.n, x.c, 1, 1);
        others_.push_back(call(op, {x.e, ints({2, -1})}));
        others_.push_back(call(op, {x.e, ints({1})}));
        others_.push_back(call(op, {x.e, ints({2})}));
        break;
      }
      case 18: {
        if (x.h % 2 != 0 || x.w % 2 != 0) break;
        const Expr y = call("SpaceToDepth", {x.e}, {{"block_size", 2}, {"data_format", "NCHW"}});
        add(y, x.n, 4 * x.c, x.h / 2, x.w / 2);
        break;
      }
      case 19: {
        const Expr last = transpose(x.e, ints({0, 2, 3, 1}));
        others_.push_back(last);
        same(transpose(call("LRN", {last}), ints({0, 3, 1, 2})));
        break;
      }
      case 20:
        same(x.e + fill(shape_of(x.e), constant(0.5F)));
        others_.push_back(shape_of(x.e));
        break;
      case 21:
        others_.push_back(reshape(x.e, ints({-1})));
        others_.push_back(call("ArgMax", {x.e, int32_scalar(*builder_, 1)}));
        break;
    }
  }

  std::mt19937 random_;
  std::vector<Image> images_;
  std::vector<Expr> filters_, others_;
};

TEST_F(RandomImages, ResultsStayClose) {
  int changed = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    random_.seed(seed);
    graph_ = make_ref<Graph>();
    builder_ = std::make_unique<GraphBuilder>(*graph_);
    images_.clear();
    filters_.clear();
    others_.clear();
    const Expr x = placeholder("x");
    add(x, 2, 4, 6, 5);
    for (int i = 6 + pick(14); i > 0; --i) step();
    ASSERT_TRUE(builder_->status().ok()) << builder_->status().to_string();
    Names fetches;
    for (size_t i = 0; i < others_.size(); i += 2) fetches.push_back(name(others_[i]));
    for (int i = 0; i < 3; ++i) fetches.push_back(name(any().e));
    const Expr loss = sum(square(images_.back().e), ints({0, 1, 2, 3}));
    const Expr ys[] = {loss};
    std::vector<Expr> xs = filters_;
    xs.push_back(x);
    Result<std::vector<Gradient>> grads = gradients(*builder_, ys, xs);
    ASSERT_TRUE(grads.ok()) << grads.status().to_string();
    for (const Gradient& g : *grads) {
      if (g.values.valid()) fetches.push_back(name(g.values));
    }
    std::ranges::sort(fetches);
    fetches.erase(std::unique(fetches.begin(), fetches.end()), fetches.end());
    expect_same({{"x", random_tensor(Shape{2, 4, 6, 5}, seed)}}, fetches, 1e-4);
    if (HasFatalFailure()) return;
    changed += in_nhwc(explained({"x"}, fetches)) > 0;
  }
  EXPECT_GT(changed, 30) << "hardly any program gave the pass anything to do";
}

}  // namespace
}  // namespace millrace
