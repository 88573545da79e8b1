#include "millrace/api/layers.h"

#include "millrace/api/control_flow.h"
#include "millrace/api/losses.h"
#include "millrace/api/model_testing.h"
#include "millrace/api/optimizers.h"

namespace millrace {
namespace {

TEST(Dense, MultipliesTheLastDimension) {
  for (bool sizes_known : {true, false}) {
    ModelTester m;
    Tensor x = some_numbers({2, 3, 4});
    Expr in = m.input(x, sizes_known ? PartialShape(x.shape()) : PartialShape{-1, -1, 4});
    Expr y = layers::dense(m.root, m.vars, "fc", in, 5, {.activation = ops::tanh});
    ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
    auto check = m.differentiate(y);
    m.start();
    m.set("fc/bias", some_numbers({5}, 2));
    Tensor w = m.get("fc/kernel"), b = m.get("fc/bias"), got = m.run(y);
    ASSERT_EQ(got.shape(), Shape({2, 3, 5}));
    for (size_t r = 0; r < 6; ++r) {
      for (size_t j = 0; j < 5; ++j) {
        double sum = b.data<double>()[j];
        for (size_t i = 0; i < 4; ++i)
          sum += x.data<double>()[r * 4 + i] * w.data<double>()[i * 5 + j];
        EXPECT_NEAR(got.data<double>()[r * 5 + j], std::tanh(sum), 1e-12);
      }
    }
    m.expect_gradients(check);
  }
}

TEST(Dense, CalledAgainUsesTheSameWeights) {
  ModelTester m;
  Expr x = m.input(some_numbers({2, 3}));
  Expr once = layers::dense(m.root, m.vars, "fc", x, 3);
  Expr twice = layers::dense(m.root, m.vars, "fc", x, 3);
  ASSERT_EQ(m.vars.all().size(), 2u);
  m.start();
  EXPECT_TRUE(bit_equal(m.run(once), m.run(twice)));
  layers::dense(m.root, m.vars, "fc", x, 4);
  EXPECT_NE(m.root.status().to_string().find("\"fc/kernel\" is double [3,3]"), std::string::npos)
      << m.root.status().to_string();
}

TEST(Dense, WorksInALoopBody) {
  ModelTester m;
  Expr x = m.input(some_numbers({2, 3}));
  std::vector<Expr> out = while_loop(
      m.root, {m.root.constant(int32_t{0}), x},
      [](const Scope& s, const std::vector<Expr>& v) { return less(v[0], s.constant(int32_t{3})); },
      [&](const Scope& s, const std::vector<Expr>& v) {
        return std::vector<Expr>{
            v[0] + 1.0, layers::dense(s, m.vars, "fc", v[1], 3, {.activation = ops::tanh})};
      });
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  Expr unrolled = x;
  for (int i = 0; i < 3; ++i) {
    unrolled = layers::dense(m.root, m.vars, "fc", unrolled, 3, {.activation = ops::tanh});
  }
  auto check = m.differentiate(out[1]);
  m.start();
  Tensor a = m.run(out[1]), b = m.run(unrolled);
  for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(a.data<double>()[i], b.data<double>()[i], 1e-12);
  m.expect_gradients(check);
}

TEST(Layers, RefuseSizesTheyCannotUse) {
  auto message = [](const std::function<Expr(ModelTester&, Expr)>& build) {
    ModelTester m;
    Expr x = m.input(some_numbers({2, 3}), {2, -1});
    EXPECT_FALSE(build(m, x).valid());
    EXPECT_EQ(m.root.status().code(), Code::kInvalidArgument);
    return m.root.status().to_string();
  };
  std::string text =
      message([](ModelTester& m, Expr x) { return layers::dense(m.root, m.vars, "fc", x, 3); });
  EXPECT_NE(text.find("dense \"fc\" at"), std::string::npos) << text;
  EXPECT_NE(text.find("layers_test.cc"), std::string::npos) << text;
  EXPECT_NE(text.find("[2,?]"), std::string::npos) << text;
  message([](ModelTester& m, Expr) {
    return layers::dense(m.root, m.vars, "fc", m.root.constant(some_numbers({2, 3})), 0);
  });
  message([](ModelTester& m, Expr) {
    Expr wide = m.root.constant(Tensor::zeros(DType::kDouble, {1, int64_t{1} << 20}).value());
    return layers::dense(m.root, m.vars, "fc", wide, int64_t{1} << 62);
  });
  message([](ModelTester& m, Expr) {
    return layers::embedding(m.root, m.vars, "e", m.root.constant(int32_t{0}), int64_t{1} << 40,
                             int64_t{1} << 40);
  });
  message([](ModelTester& m, Expr x) { return layers::dropout(m.root, x, 1.0); });
  message([](ModelTester& m, Expr) {
    return layers::embedding(m.root, m.vars, "e", m.root.constant(int32_t{0}), -1, 2);
  });
}

TEST(Conv2d, SlidesItsWindow) {
  ModelTester m;
  Tensor x = some_numbers({2, 5, 4, 2});
  Expr y = layers::conv2d(m.root, m.vars, "conv", m.input(x), 3, 3, {.padding = "VALID"});
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  auto check = m.differentiate(y);
  m.start();
  m.set("conv/bias", some_numbers({3}, 2));
  Tensor w = m.get("conv/kernel"), b = m.get("conv/bias"), got = m.run(y);
  ASSERT_EQ(got.shape(), Shape({2, 3, 2, 3}));
  for (size_t n = 0; n < 2; ++n) {
    for (size_t r = 0; r < 3; ++r) {
      for (size_t c = 0; c < 2; ++c) {
        for (size_t f = 0; f < 3; ++f) {
          double sum = b.data<double>()[f];
          for (size_t k = 0; k < 18; ++k) {
            const size_t i = k / 6, j = k / 2 % 3, d = k % 2;
            sum += x.data<double>()[((n * 5 + r + i) * 4 + c + j) * 2 + d] *
                   w.data<double>()[k * 3 + f];
          }
          EXPECT_NEAR(got.data<double>()[((n * 3 + r) * 2 + c) * 3 + f], sum, 1e-12);
        }
      }
    }
  }
  m.expect_gradients(check);
}

TEST(Layers, PoolAndFlatten) {
  ModelTester m;
  Tensor x = Tensor::of<double>({1, 2, 4, 1}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (const PartialShape& known : {PartialShape{1, 2, 4, 1}, PartialShape{-1, -1, 4, 1}}) {
    ModelTester t;
    Expr in = t.input(x, known);
    Expr largest = layers::max_pool2d(t.root, in, 2), mean = layers::avg_pool2d(t.root, in, 2);
    Expr every = layers::max_pool2d(t.root, in, 2, {.stride = 1, .padding = "SAME"});
    Expr flat = layers::flatten(t.root, in);
    t.start();
    EXPECT_TRUE(bit_equal(t.run(largest), Tensor::of<double>({1, 1, 2, 1}, {6, 8})));
    EXPECT_TRUE(bit_equal(t.run(mean), Tensor::of<double>({1, 1, 2, 1}, {3.5, 5.5})));
    EXPECT_EQ(t.run(every).shape(), x.shape());
    EXPECT_EQ(t.run(flat).shape(), Shape({1, 8}));
  }
}

TEST(BatchNorm, NormalisesEachChannel) {
  ModelTester m;
  Tensor x = some_numbers({4, 3, 2});
  Expr in = m.input(x);
  Expr trained = layers::batch_norm(m.root, m.vars, "bn", in, {.training = true, .momentum = 0.9});
  Expr used = layers::batch_norm(m.root, m.vars, "bn", in);
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  ASSERT_EQ(m.vars.updates().size(), 2u);
  ASSERT_EQ(m.vars.trainable().size(), 2u);
  Operation update = ops::no_op(m.root.with_control(m.vars.updates()));
  auto check = m.differentiate(trained), check_used = m.differentiate(used);
  m.start();
  m.set("bn/gamma", Tensor::vector<double>({2, -1}));
  m.set("bn/beta", Tensor::vector<double>({0.5, 3}));
  m.set("bn/moving_mean", Tensor::vector<double>({0.1, 0.2}));
  Tensor y = m.run(trained), z = m.run(used);
  ASSERT_TRUE(m.run(update).ok());
  Tensor moving_mean = m.get("bn/moving_mean"), moving_variance = m.get("bn/moving_variance");
  for (size_t c = 0; c < 2; ++c) {
    const double gamma = c == 0 ? 2 : -1, beta = c == 0 ? 0.5 : 3, old = c == 0 ? 0.1 : 0.2;
    double mean = 0, variance = 0;
    for (size_t i = 0; i < 12; ++i) mean += x.data<double>()[i * 2 + c] / 12;
    for (size_t i = 0; i < 12; ++i)
      variance += std::pow(x.data<double>()[i * 2 + c] - mean, 2) / 12;
    for (size_t i = 0; i < 12; ++i) {
      const double v = x.data<double>()[i * 2 + c];
      EXPECT_NEAR(y.data<double>()[i * 2 + c],
                  gamma * (v - mean) / std::sqrt(variance + 1e-3) + beta, 1e-12);
      EXPECT_NEAR(z.data<double>()[i * 2 + c], gamma * (v - old) / std::sqrt(1 + 1e-3) + beta,
                  1e-12);
    }
    EXPECT_NEAR(moving_mean.data<double>()[c], 0.9 * old + 0.1 * mean, 1e-12);
    EXPECT_NEAR(moving_variance.data<double>()[c], 0.9 + 0.1 * variance, 1e-12);
  }
  m.expect_gradients(check);
  m.expect_gradients(check_used);
}

TEST(BatchNorm, DoesNotTrainInALoopBody) {
  ModelTester m;
  Expr x = m.input(some_numbers({2, 3}));
  cond(
      m.root, m.root.constant(true),
      [&](const Scope& s) { return layers::batch_norm(s, m.vars, "bn", x, {.training = true}); },
      [&](const Scope&) { return x; });
  EXPECT_EQ(m.root.status().code(), Code::kUnimplemented) << m.root.status().to_string();
}

TEST(LayerNorm, NormalisesEachVector) {
  ModelTester m;
  Tensor x = some_numbers({2, 3, 4});
  Expr y = layers::layer_norm(m.root, m.vars, "ln", m.input(x, {-1, -1, 4}));
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  auto check = m.differentiate(y);
  m.start();
  m.set("ln/gamma", some_numbers({4}, 2));
  m.set("ln/beta", some_numbers({4}, 3));
  Tensor gamma = m.get("ln/gamma"), beta = m.get("ln/beta"), got = m.run(y);
  for (size_t r = 0; r < 6; ++r) {
    std::span<const double> row = x.data<double>().subspan(r * 4, 4);
    double mean = 0, variance = 0;
    for (double v : row) mean += v / 4;
    for (double v : row) variance += (v - mean) * (v - mean) / 4;
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(got.data<double>()[r * 4 + i],
                  (row[i] - mean) / std::sqrt(variance + 1e-5) * gamma.data<double>()[i] +
                      beta.data<double>()[i],
                  1e-12);
    }
  }
  m.expect_gradients(check);
}

TEST(Dropout, DropsAShareAndScalesTheRest) {
  ModelTester m;
  Tensor ones = Tensor::zeros(DType::kDouble, {100, 100}).value();
  for (double& v : ones.mutable_data<double>()) v = 1;
  Expr x = m.input(ones);
  Expr y = layers::dropout(m.root, x, 0.3, {.training = true});
  Expr other = layers::dropout(m.root, x, 0.3, {.training = true});
  EXPECT_EQ(layers::dropout(m.root, x, 0.3).id(), x.id());
  EXPECT_EQ(layers::dropout(m.root, x, 0, {.training = true}).id(), x.id());
  auto found =
      gradients(m.root.builder(), std::span<const Expr>(&y, 1), std::span<const Expr>(&x, 1));
  Expr both = ops::pack(m.root, {y, (*found)[0].values});
  m.start();
  Tensor got = m.run(both);
  int64_t dropped = 0;
  for (size_t i = 0; i < 10000; ++i) {
    const double v = got.data<double>()[i];
    EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.7) < 1e-12) << v;
    EXPECT_EQ(got.data<double>()[10000 + i], v);  // the same mask backwards
    dropped += v == 0 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(dropped), 3000, 200);
  EXPECT_FALSE(bit_equal(m.run(y), m.run(y)));
  EXPECT_FALSE(bit_equal(m.run(y), m.run(other)));
}

TEST(Dropout, DropsOtherElementsInEveryBody) {
  ModelTester m;
  Expr x = m.input(some_numbers({100}));
  const auto drop = [&](const Scope& s) { return layers::dropout(s, x, 0.5, {.training = true}); };
  Expr yes = m.root.constant(true);
  std::vector<Expr> all = {drop(m.root), cond(m.root, yes, drop, drop),
                           cond(m.root, yes, drop, drop)};
  all.push_back(cond(m.root, yes, [&](const Scope& s) { return cond(s, yes, drop, drop); }, drop));
  m.start();
  std::vector<Tensor> got;
  for (Expr e : all) got.push_back(m.run(e));
  for (size_t i = 0; i < got.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(bit_equal(got[i], got[j])) << i << " and " << j;
  }
}

TEST(Embedding, PicksRowsAndTrainsThemOnly) {
  ModelTester m;
  Expr ids = m.input(Tensor::of<int32_t>({1, 3}, {4, 0, 4}));
  Expr y = layers::embedding(m.root, m.vars, "words", ids, 6, 2, {.dtype = DType::kDouble});
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  auto found = gradients(m.root.builder(), std::span<const Expr>(&y, 1),
                         std::span<const Expr>(&m.vars.find("words/table")->handle, 1));
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE((*found)[0].is_slices());
  m.start();
  Tensor table = m.get("words/table"), got = m.run(y);
  ASSERT_EQ(got.shape(), Shape({1, 3, 2}));
  EXPECT_EQ(got.data<double>()[0], table.data<double>()[8]);
  EXPECT_EQ(got.data<double>()[3], table.data<double>()[1]);
}

TEST(Embedding, WorksInALoopBody) {
  ModelTester m;
  Expr ids = m.input(Tensor::of<int32_t>({3, 2}, {4, 0, 4, 1, 1, 1}));
  std::vector<Expr> sums = foldl(m.root, {ids}, {m.root.constant(some_numbers({2, 3}))},
                                 [&](const Scope& s, const std::vector<Expr>& v) {
                                   Expr rows = layers::embedding(s, m.vars, "words", v[1], 6, 3,
                                                                 {.dtype = DType::kDouble});
                                   return std::vector<Expr>{ops::tanh(s, ops::add(s, v[0], rows))};
                                 });
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  auto check = m.differentiate(sums[0]);
  m.start();
  m.expect_gradients(check);
}

TEST(Embedding, InOneBranchHasNoGradientInTheOther) {
  for (bool taken : {true, false}) {
    ModelTester m;
    Expr x = m.input(some_numbers({2, 3}));
    Expr ids = m.input(Tensor::vector<int32_t>({1, 1}));
    Expr y = cond(
        m.root, m.root.constant(taken),
        [&](const Scope& s) {
          Expr rows = layers::embedding(s, m.vars, "words", ids, 2, 3, {.dtype = DType::kDouble});
          return ops::mul(s, x, layers::dense(s, m.vars, "fc", rows, 3));
        },
        [&](const Scope& s) { return ops::neg(s, x); });
    ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
    auto check = m.differentiate(y);
    m.start();
    m.expect_gradients(check);
  }
}

TEST(Losses, AreMeans) {
  ModelTester m;
  Tensor x = some_numbers({2, 3});
  Expr logits = m.input(x);
  Tensor probabilities = Tensor::of<double>({2, 3}, {0.2, 0.3, 0.5, 1, 0, 0});
  Expr by_number = layers::softmax_cross_entropy(m.root, logits,
                                                 m.root.constant(Tensor::vector<int32_t>({2, 0})));
  Expr by_share = layers::softmax_cross_entropy(m.root, logits, m.root.constant(probabilities));
  Expr squares = layers::mean_squared_error(m.root, logits, m.root.constant(probabilities));
  Expr right = layers::accuracy(m.root, logits, m.root.constant(Tensor::vector<int64_t>({2, 0})));
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  m.start();
  double number = 0, share = 0, square = 0, hits = 0;
  for (size_t r = 0; r < 2; ++r) {
    std::span<const double> row = x.data<double>().subspan(r * 3, 3);
    double total = 0;
    for (double v : row) total += std::exp(v);
    const size_t label = r == 0 ? 2 : 0;
    number -= (row[label] - std::log(total)) / 2;
    hits += *std::max_element(row.begin(), row.end()) == row[label] ? 0.5 : 0;
    for (size_t i = 0; i < 3; ++i) {
      const double p = probabilities.data<double>()[r * 3 + i];
      share -= p * (row[i] - std::log(total)) / 2;
      square += (row[i] - p) * (row[i] - p) / 6;
    }
  }
  EXPECT_NEAR(m.run(by_number).item<double>(), number, 1e-12);
  EXPECT_NEAR(m.run(by_share).item<double>(), share, 1e-12);
  EXPECT_NEAR(m.run(squares).item<double>(), square, 1e-12);
  EXPECT_EQ(m.run(right).item<float>(), hits);
}

}  // namespace
}  // namespace millrace
