#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_nn_ops});

using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;

struct Case {
  Shape volume;  // NDHWC
  Ints window;
  Ints strides = {1, 1, 1};
  Ints dilations = {1, 1, 1};
  std::string padding = "SAME";

  int64_t reach(int a) const { return (window[at(a)] - 1) * dilations[at(a)] + 1; }
  int64_t output(int a) const {
    const int64_t size = volume[a + 1], stride = strides[at(a)];
    return padding == "SAME" ? (size + stride - 1) / stride : (size - reach(a)) / stride + 1;
  }
  int64_t before(int a) const {
    if (padding != "SAME") return 0;
    return std::max<int64_t>(0, (output(a) - 1) * strides[at(a)] + reach(a) - volume[a + 1]) / 2;
  }
  // Calls f(output pixel, window element, input pixel) for all that lie on the volume.
  template <class F>
  void for_each(F f) const {
    for (int64_t n = 0; n < volume[0]; ++n) {
      std::array<int64_t, 6> i{};
      for_each_in(i, 0, n, f);
    }
  }

 private:
  static size_t at(int a) { return static_cast<size_t>(a); }
  template <class F>
  void for_each_in(std::array<int64_t, 6>& i, int level, int64_t n, F f) const {
    const int64_t limit = level < 3 ? output(level) : window[at(level - 3)];
    for (i[at(level)] = 0; i[at(level)] < limit; ++i[at(level)]) {
      if (level < 5) {
        for_each_in(i, level + 1, n, f);
        continue;
      }
      int64_t out = n, element = 0, in = n;
      bool inside = true;
      for (int a = 0; a < 3; ++a) {
        const int64_t place =
            i[at(a)] * strides[at(a)] + i[at(a + 3)] * dilations[at(a)] - before(a);
        inside &= place >= 0 && place < volume[a + 1];
        out = out * output(a) + i[at(a)];
        element = element * window[at(a)] + i[at(a + 3)];
        in = in * volume[a + 1] + place;
      }
      if (inside)
        f(static_cast<size_t>(out), static_cast<size_t>(element), static_cast<size_t>(in));
    }
  }
};

const Case kCases[] = {{{1, 4, 5, 6, 2}, {2, 3, 2}},
                       {{2, 3, 4, 3, 3}, {3, 2, 2}, {2, 1, 2}},
                       {{1, 7, 6, 5, 1}, {2, 2, 3}, {1, 2, 1}, {1, 1, 1}, "VALID"},
                       {{0, 4, 4, 4, 2}, {2, 2, 2}},
                       {{1, 3, 3, 3, 0}, {2, 2, 2}}};

Tensor transposed(const Tensor& t, bool to_ncdhw) {
  const Shape& s = t.shape();
  const int64_t channels = to_ncdhw ? s[4] : s[1];
  const int64_t pixels = t.num_elements() == 0 ? 0 : t.num_elements() / channels / s[0];
  const Shape shape =
      to_ncdhw ? Shape{s[0], s[4], s[1], s[2], s[3]} : Shape{s[0], s[2], s[3], s[4], s[1]};
  const Doubles from = doubles_of(t);
  Doubles to(from.size());
  for (int64_t n = 0; n < s[0]; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t p = 0; p < pixels; ++p) {
        const auto last = static_cast<size_t>((n * pixels + p) * channels + c);
        const auto first = static_cast<size_t>((n * channels + c) * pixels + p);
        (to_ncdhw ? to[first] : to[last]) = to_ncdhw ? from[last] : from[first];
      }
    }
  }
  return tensor_of(t.dtype(), shape, to);
}

Tensor shape_tensor(const Shape& shape) {
  std::vector<int32_t> dims(shape.dims().begin(), shape.dims().end());
  return Tensor::vector<int32_t>(std::span<const int32_t>(dims));
}

void check(const char* name, const Case& c, bool pool, bool ncdhw, bool transposes,
           std::vector<Tensor> inputs, const Doubles& want) {
  OpTester op(name);
  const auto spread = [&](const Ints& v) {
    return ncdhw ? Ints{1, 1, v[0], v[1], v[2]} : Ints{1, v[0], v[1], v[2], 1};
  };
  op.attr("strides", spread(c.strides)).attr("padding", c.padding);
  op.attr("data_format", ncdhw ? "NCDHW" : "NDHWC");
  op.attr(pool ? "ksize" : "dilations", spread(pool ? c.window : c.dilations));
  for (Tensor& input : inputs) {
    op.input(ncdhw && input.rank() == 5 && input.dtype() != DType::kInt32 && transposes
                 ? transposed(input, true)
                 : input);
  }
  Result<Tensor> got = op.run_one();
  ASSERT_TRUE(got.ok()) << name << " " << got.status().to_string();
  expect_close(ncdhw && transposes ? transposed(*got, false) : *got, want, 64);
}

TEST(Conv3D, AgreesWithDefinition) {
  std::mt19937 random(2);
  std::vector<Case> cases(std::begin(kCases), std::end(kCases));
  cases.push_back({{1, 6, 7, 6, 2}, {2, 2, 2}, {1, 1, 1}, {2, 3, 1}});
  for (const Case& c : cases) {
    for (DType type : kFloatingTypes) {
      SCOPED_TRACE(str_cat(c.volume, " window ", str_join(c.window, ","), " ", type));
      const int64_t in = c.volume[4], out = 3;
      const Shape filter_shape{c.window[0], c.window[1], c.window[2], in, out};
      const Shape result{c.volume[0], c.output(0), c.output(1), c.output(2), out};
      const Tensor x = random_tensor(type, c.volume, random);
      const Tensor filter = random_tensor(type, filter_shape, random);
      const Tensor dy = random_tensor(type, result, random);
      const Doubles xs = doubles_of(x), fs = doubles_of(filter), gs = doubles_of(dy);
      Doubles y(gs.size()), dx(xs.size()), df(fs.size());
      c.for_each([&](size_t o, size_t t, size_t i) {
        for (size_t a = 0; a < static_cast<size_t>(in); ++a) {
          for (size_t b = 0; b < static_cast<size_t>(out); ++b) {
            const size_t at_x = i * static_cast<size_t>(in) + a, at_y = o * 3 + b;
            const size_t at_f = (t * static_cast<size_t>(in) + a) * 3 + b;
            y[at_y] += xs[at_x] * fs[at_f];
            dx[at_x] += gs[at_y] * fs[at_f];
            df[at_f] += gs[at_y] * xs[at_x];
          }
        }
      });
      check("Conv3D", c, false, false, true, {x, filter}, y);
      check("Conv3DBackpropInputV2", c, false, false, true, {shape_tensor(c.volume), filter, dy},
            dx);
      check("Conv3DBackpropFilterV2", c, false, false, true, {x, shape_tensor(filter_shape), dy},
            df);
    }
  }
}

TEST(Conv3D, ChannelsFirst) {
  std::mt19937 random(3);
  const Tensor x = random_tensor(DType::kFloat, {2, 3, 4, 5, 2}, random);
  const Tensor filter = random_tensor(DType::kFloat, {2, 2, 2, 2, 3}, random);
  const Ints ones = {1, 1, 1, 1, 1};
  const auto run = [&](const char* op, const char* format, const Tensor& a, const Tensor& b,
                       const Tensor* dy) {
    OpTester tester(op);
    tester.attr("strides", ones).attr("padding", "SAME").attr("data_format", format);
    tester.input(a).input(b);
    if (dy != nullptr) tester.input(*dy);
    return tester.run_one().value();
  };
  const Tensor x_first = transposed(x, true);
  const Tensor y = run("Conv3D", "NDHWC", x, filter, nullptr);
  const Tensor y_first = run("Conv3D", "NCDHW", x_first, filter, nullptr);
  EXPECT_TRUE(bit_equal(transposed(y_first, false), y));
  EXPECT_TRUE(bit_equal(
      transposed(
          run("Conv3DBackpropInputV2", "NCDHW", shape_tensor(x_first.shape()), filter, &y_first),
          false),
      run("Conv3DBackpropInputV2", "NDHWC", shape_tensor(x.shape()), filter, &y)));
  EXPECT_TRUE(bit_equal(
      run("Conv3DBackpropFilterV2", "NCDHW", x_first, shape_tensor(filter.shape()), &y_first),
      run("Conv3DBackpropFilterV2", "NDHWC", x, shape_tensor(filter.shape()), &y)));
}

TEST(VolumePools, AgreeWithDefinition) {
  std::mt19937 random(4);
  for (const Case& c : kCases) {
    for (DType type : kFloatingTypes) {
      for (bool ncdhw : {false, true}) {
        SCOPED_TRACE(str_cat(c.volume, " window ", str_join(c.window, ","), " ", type));
        const auto channels = static_cast<size_t>(c.volume[4]);
        const Shape pooled{c.volume[0], c.output(0), c.output(1), c.output(2), c.volume[4]};
        const Tensor x = random_tensor(type, c.volume, random);
        const Tensor dy = random_tensor(type, pooled, random);
        const Tensor dx = random_tensor(type, c.volume, random);
        const Doubles xs = doubles_of(x), gs = doubles_of(dy), ds = doubles_of(dx);
        const size_t size = gs.size();
        std::vector<size_t> best(size, SIZE_MAX);
        Doubles sums(size), counts(size), largest(size), picked(size);
        c.for_each([&](size_t o, size_t, size_t i) {
          for (size_t k = 0; k < channels; ++k) {
            size_t& found = best[o * channels + k];
            const size_t at = i * channels + k;
            if (found == SIZE_MAX || xs[at] > xs[found]) found = at;
            sums[o * channels + k] += xs[at];
            counts[o * channels + k] += 1;
          }
        });
        Doubles max_grad(xs.size()), avg_grad(xs.size());
        for (size_t o = 0; o < size; ++o) {
          largest[o] = xs[best[o]];
          picked[o] = ds[best[o]];
          max_grad[best[o]] += gs[o];
          sums[o] /= counts[o];
        }
        c.for_each([&](size_t o, size_t, size_t i) {
          for (size_t k = 0; k < channels; ++k) {
            avg_grad[i * channels + k] += gs[o * channels + k] / counts[o * channels + k];
          }
        });
        const Tensor y = tensor_of(type, pooled, largest);
        const Shape sizes = ncdhw ? transposed(x, true).shape() : x.shape();
        check("MaxPool3D", c, true, ncdhw, true, {x}, largest);
        check("MaxPool3DGrad", c, true, ncdhw, true, {x, y, dy}, max_grad);
        check("MaxPool3DGradGrad", c, true, ncdhw, true, {x, y, dx}, picked);
        check("AvgPool3D", c, true, ncdhw, true, {x}, sums);
        check("AvgPool3DGrad", c, true, ncdhw, true, {shape_tensor(sizes), dy}, avg_grad);
      }
    }
  }
}

TEST(Volumes, BadInputsAndShapes) {
  OpTester four("MaxPool3D"), strides("MaxPool3D"), wrong("AvgPool3DGrad");
  four.attr("ksize", Ints{1, 2, 2, 2, 1}).attr("strides", Ints{1, 1, 1, 1, 1});
  four.attr("padding", "SAME").input(Tensor::zeros(DType::kFloat, {1, 2, 2, 2}).value());
  EXPECT_HAS(error_of(four), "rank 5");
  strides.attr("ksize", Ints{1, 2, 2, 2, 1}).attr("strides", Ints{1, 0, 1, 1, 1});
  strides.attr("padding", "SAME").input(Tensor::zeros(DType::kFloat, {1, 2, 2, 2, 1}).value());
  EXPECT_HAS(error_of(strides), "strides must be between 1");
  wrong.attr("ksize", Ints{1, 2, 2, 2, 1}).attr("strides", Ints{1, 1, 1, 1, 1});
  wrong.attr("padding", "VALID").input(Tensor::vector<int32_t>({1, 3, 3, 3, 1}));
  wrong.input(Tensor::zeros(DType::kFloat, {1, 3, 3, 3, 1}).value());
  EXPECT_HAS(error_of(wrong), "must have shape [1,2,2,2,1]");
  const OpRegistry& ops = OpRegistry::global();
  const AttrMap attrs = {{"strides", Ints{1, 2, 2, 2, 1}}, {"padding", "VALID"}};
  EXPECT_EQ(*infer_shapes(ops, "Conv3D", attrs, "[?,7,?,9,3];[3,3,?,3,5]"), "[?,3,?,?,5]");
  EXPECT_FALSE(infer_shapes(ops, "Conv3D", attrs, "[?,7,?,9,3];[3,3,?,4,5]").ok());
  EXPECT_EQ(*infer_shapes(ops, "Conv3DBackpropFilterV2", attrs, "[?,7,?,9,3];?;[?,?,?,?,5]"),
            "[?,?,?,3,5]");
}

TEST(MaxPoolWithArgmax, SaysWhere) {
  const Tensor x = Tensor::of<int32_t>({2, 2, 3, 1}, {1, 5, 2, 9, 3, 4, 7, 6, 6, 1, 2, 8});
  for (bool whole : {false, true}) {
    for (DType index : {DType::kInt32, DType::kInt64}) {
      const auto with_attrs = [&](OpTester& op) -> OpTester& {
        return op.attr("ksize", Ints{1, 2, 2, 1})
            .attr("strides", Ints{1, 1, 1, 1})
            .attr("padding", "VALID")
            .attr("Targmax", index)
            .attr("include_batch_in_index", whole);
      };
      OpTester pool("MaxPoolWithArgmax"), grad("MaxPoolGradWithArgmax");
      const std::vector<Tensor> got = with_attrs(pool).input(x).run().value();
      EXPECT_TRUE(bit_equal(got[0], Tensor::of<int32_t>({2, 1, 2, 1}, {9, 5, 7, 8})));
      const int64_t shift = whole ? 6 : 0;
      const Ints want = {3, 1, shift, 5 + shift};
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(index == DType::kInt32 ? got[1].data<int32_t>()[i] : got[1].data<int64_t>()[i],
                  want[i]);
      }
      with_attrs(grad).input(x).input(Tensor::of<int32_t>({2, 1, 2, 1}, {1, 2, 3, 4}));
      const Tensor back = grad.input(got[1]).run_one().value();
      EXPECT_TRUE(
          bit_equal(back, Tensor::of<int32_t>({2, 2, 3, 1}, {0, 2, 0, 1, 0, 0, 3, 0, 0, 0, 0, 4})));
      OpTester again("MaxPoolGradGradWithArgmax");
      EXPECT_TRUE(bit_equal(*with_attrs(again).input(x).input(back).input(got[1]).run_one(),
                            Tensor::of<int32_t>({2, 1, 2, 1}, {1, 2, 3, 4})));
    }
  }
}

TEST(MaxPoolWithArgmax, RefusesPlacesOutside) {
  OpTester op("MaxPoolGradWithArgmax");
  op.attr("ksize", Ints{1, 2, 2, 1}).attr("strides", Ints{1, 1, 1, 1}).attr("padding", "VALID");
  op.input(Tensor::zeros(DType::kFloat, {1, 2, 2, 1}).value());
  op.input(Tensor::zeros(DType::kFloat, {1, 1, 1, 1}).value());
  EXPECT_HAS(error_of(op.input(Tensor::of<int64_t>({1, 1, 1, 1}, {4}))),
             "argmax must be in [0, 4)");
}

TEST(FractionalPool, PoolsItsRegions) {
  std::mt19937 random(5);
  const Tensor x = random_tensor(DType::kDouble, {2, 11, 8, 3}, random);
  const Doubles xs = doubles_of(x);
  for (int options = 0; options < 8; ++options) {
    const bool pseudo = (options & 1) != 0, overlapping = (options & 2) != 0,
               max = (options & 4) != 0;
    SCOPED_TRACE(options);
    const std::string name = max ? "FractionalMaxPool" : "FractionalAvgPool";
    OpTester op(name);
    op.attr("pooling_ratio", std::vector<float>{1, 1.5F, 1.3F, 1}).attr("pseudo_random", pseudo);
    op.attr("overlapping", overlapping).attr("seed", 7).input(x);
    const std::vector<Tensor> got = op.run().value();
    ASSERT_EQ(got[0].shape(), Shape({2, 7, 6, 3}));
    const auto rows = got[1].data<int64_t>(), columns = got[2].data<int64_t>();
    const auto check_sequence = [](std::span<const int64_t> sequence, int64_t size) {
      EXPECT_EQ(sequence.front(), 0);
      EXPECT_EQ(sequence.back(), size);
      for (size_t i = 1; i < sequence.size(); ++i) {
        const int64_t step = sequence[i] - sequence[i - 1];
        EXPECT_TRUE(step == 1 || step == 2) << step;
      }
    };
    check_sequence(rows, 11);
    check_sequence(columns, 8);
    const Tensor dy = random_tensor(DType::kDouble, got[0].shape(), random);
    Doubles y, back(xs.size());
    size_t at = 0;
    for (size_t n = 0; n < 2; ++n) {
      for (size_t i = 0; i < 7; ++i) {
        for (size_t j = 0; j < 6; ++j) {
          for (size_t c = 0; c < 3; ++c, ++at) {
            std::vector<size_t> region;
            const auto last_row = std::min<int64_t>(rows[i + 1] + (overlapping ? 1 : 0), 11);
            const auto last = std::min<int64_t>(columns[j + 1] + (overlapping ? 1 : 0), 8);
            for (auto r = static_cast<size_t>(rows[i]); r < static_cast<size_t>(last_row); ++r) {
              for (auto k = static_cast<size_t>(columns[j]); k < static_cast<size_t>(last); ++k) {
                region.push_back(((n * 11 + r) * 8 + k) * 3 + c);
              }
            }
            size_t best = region[0];
            double sum = 0;
            for (size_t e : region) {
              if (xs[e] > xs[best]) best = e;
              sum += xs[e];
            }
            y.push_back(max ? xs[best] : sum / static_cast<double>(region.size()));
            const double g = doubles_of(dy)[at];
            for (size_t e : region) back[e] += max ? 0 : g / static_cast<double>(region.size());
            if (max) back[best] += g;
          }
        }
      }
    }
    expect_close(got[0], y);
    OpTester grad(name + "Grad");
    grad.attr("overlapping", overlapping);
    if (max) {
      grad.input(x).input(got[0]);
    } else {
      grad.input(Tensor::vector<int64_t>({2, 11, 8, 3}));
    }
    expect_close(*grad.input(dy).input(got[1]).input(got[2]).run_one(), back, 16);
  }
}

// As a float, this size is one more.
TEST(FractionalPool, HasNoMoreRegionsThanPixels) {
  const AttrMap attrs = {{"pooling_ratio", std::vector<float>{1, 1, 1, 1}}};
  EXPECT_EQ(*infer_shapes(OpRegistry::global(), "FractionalMaxPool", attrs, "[1,16777219,1,1]"),
            "[1,16777219,1,1];[16777220];[2]");
}

TEST(FractionalPool, SeedsAndBadInputs) {
  OpEnv env;
  const Tensor x = Tensor::zeros(DType::kFloat, {1, 50, 50, 1}).value();
  const auto rows = [&](bool deterministic) {
    OpTester op(env, "FractionalMaxPool");
    op.name("pool").attr("pooling_ratio", std::vector<float>{1, 1.4F, 1.4F, 1}).attr("seed", 5);
    return op.attr("deterministic", deterministic).input(x).run().value()[1];
  };
  EXPECT_TRUE(bit_equal(rows(true), rows(true)));
  EXPECT_FALSE(bit_equal(rows(false), rows(false)));
  OpTester small("FractionalMaxPool"), sequence("FractionalAvgPoolGrad");
  small.attr("pooling_ratio", std::vector<float>{1, 0.5F, 1.4F, 1});
  EXPECT_HAS(error_of(small.input(x)), "must be 1 or more");
  sequence.input(Tensor::vector<int64_t>({1, 4, 4, 1}));
  sequence.input(Tensor::zeros(DType::kFloat, {1, 2, 2, 1}).value());
  sequence.input(Tensor::vector<int64_t>({0, 2, 9})).input(Tensor::vector<int64_t>({0, 2, 4}));
  EXPECT_HAS(error_of(sequence), "must rise from 0 to at most 4");
}

}  // namespace
}  // namespace millrace
