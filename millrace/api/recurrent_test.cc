#include "millrace/api/recurrent.h"

#include "millrace/api/attention.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/model_testing.h"

namespace millrace {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

using Row = std::vector<double>;

// x w, of a row and a matrix with as many columns as `columns`.
Row times(const Row& x, const Tensor& w, size_t columns) {
  Row out(columns, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = 0; j < columns; ++j) out[j] += x[i] * w.data<double>()[i * columns + j];
  }
  return out;
}
Row row_of(const Tensor& t, size_t row, size_t size) {
  std::span<const double> data = t.data<double>().subspan(row * size, size);
  return {data.begin(), data.end()};
}

constexpr size_t kTime = 4, kBatch = 2, kInputs = 3, kUnits = 2;

TEST(Lstm, GoesOverTheSequence) {
  for (bool time_major : {false, true}) {
    for (bool sizes_known : {true, false}) {
      SCOPED_TRACE(testing::Message() << time_major << sizes_known);
      ModelTester m;
      Tensor x =
          some_numbers(time_major ? Shape{kTime, kBatch, kInputs} : Shape{kBatch, kTime, kInputs});
      Expr in = m.input(x, sizes_known ? PartialShape(x.shape()) : PartialShape{-1, -1, kInputs});
      layers::LstmResult got =
          layers::lstm(m.root, m.vars, "lstm", in, kUnits, {.time_major = time_major});
      ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
      auto check = m.differentiate(got.outputs), check_state = m.differentiate(got.state.c);
      m.start();
      EXPECT_TRUE(bit_equal(m.get("lstm/bias"), Tensor::vector<double>({0, 0, 1, 1, 0, 0, 0, 0})));
      m.set("lstm/bias", some_numbers({4 * kUnits}, 2));
      Tensor w = m.get("lstm/kernel"), u = m.get("lstm/recurrent_kernel"), b = m.get("lstm/bias");
      Tensor outputs = m.run(got.outputs), h_last = m.run(got.state.h), c_last = m.run(got.state.c);
      for (size_t n = 0; n < kBatch; ++n) {
        Row h(kUnits, 0), c(kUnits, 0);
        for (size_t t = 0; t < kTime; ++t) {
          const size_t place = time_major ? t * kBatch + n : n * kTime + t;
          Row a = times(row_of(x, place, kInputs), w, 4 * kUnits), r = times(h, u, 4 * kUnits);
          for (size_t j = 0; j < 4 * kUnits; ++j) a[j] += r[j] + b.data<double>()[j];
          for (size_t j = 0; j < kUnits; ++j) {
            c[j] = sigmoid(a[kUnits + j]) * c[j] + sigmoid(a[j]) * std::tanh(a[2 * kUnits + j]);
            h[j] = sigmoid(a[3 * kUnits + j]) * std::tanh(c[j]);
            EXPECT_NEAR(outputs.data<double>()[place * kUnits + j], h[j], 1e-12);
          }
        }
        for (size_t j = 0; j < kUnits; ++j) {
          EXPECT_NEAR(h_last.data<double>()[n * kUnits + j], h[j], 1e-12);
          EXPECT_NEAR(c_last.data<double>()[n * kUnits + j], c[j], 1e-12);
        }
      }
      m.expect_gradients(check);
      m.expect_gradients(check_state);
    }
  }
}

TEST(Lstm, CellIsOneStepOfIt) {
  ModelTester m;
  Tensor x = some_numbers({kTime, kBatch, kInputs});
  Expr in = m.input(x);
  layers::LstmState first = {m.input(some_numbers({kBatch, kUnits}, 3)),
                             m.input(some_numbers({kBatch, kUnits}, 4))};
  auto whole =
      layers::lstm(m.root, m.vars, "lstm", in, kUnits, {.time_major = true, .initial = first});
  std::vector<Expr> looped =
      scan(m.root, {in}, {first.h, first.c}, [&](const Scope& s, const std::vector<Expr>& v) {
        auto next = layers::lstm_cell(s, m.vars, "lstm", v[2], {v[0], v[1]}, kUnits);
        return std::vector<Expr>{next.h, next.c};
      });
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  EXPECT_EQ(m.vars.all().size(), 3u);
  auto check = m.differentiate(whole.outputs), check_looped = m.differentiate(looped[0]);
  m.start();
  Tensor a = m.run(whole.outputs), b = m.run(looped[0]);
  for (size_t i = 0; i < a.data<double>().size(); ++i) {
    EXPECT_NEAR(a.data<double>()[i], b.data<double>()[i], 1e-12);
  }
  m.expect_gradients(check);
  m.expect_gradients(check_looped);
}

TEST(Gru, GoesOverTheSequence) {
  for (bool time_major : {false, true}) {
    ModelTester m;
    Tensor x =
        some_numbers(time_major ? Shape{kTime, kBatch, kInputs} : Shape{kBatch, kTime, kInputs});
    Expr in = m.input(x, {-1, -1, kInputs});
    layers::GruResult got =
        layers::gru(m.root, m.vars, "gru", in, kUnits, {.time_major = time_major});
    ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
    auto check = m.differentiate(got.outputs);
    m.start();
    m.set("gru/bias", some_numbers({3 * kUnits}, 2));
    Tensor w = m.get("gru/kernel"), u = m.get("gru/recurrent_kernel"), b = m.get("gru/bias");
    Tensor outputs = m.run(got.outputs), state = m.run(got.state);
    for (size_t n = 0; n < kBatch; ++n) {
      Row h(kUnits, 0);
      for (size_t t = 0; t < kTime; ++t) {
        const size_t place = time_major ? t * kBatch + n : n * kTime + t;
        Row a = times(row_of(x, place, kInputs), w, 3 * kUnits), own = times(h, u, 3 * kUnits);
        for (size_t j = 0; j < 3 * kUnits; ++j) a[j] += b.data<double>()[j];
        Row z(kUnits), reset(kUnits);
        for (size_t j = 0; j < kUnits; ++j) {
          z[j] = sigmoid(a[j] + own[j]);
          reset[j] = sigmoid(a[kUnits + j] + own[kUnits + j]) * h[j];
        }
        Row candidate = times(reset, u, 3 * kUnits);
        for (size_t j = 0; j < kUnits; ++j) {
          h[j] =
              z[j] * h[j] + (1 - z[j]) * std::tanh(a[2 * kUnits + j] + candidate[2 * kUnits + j]);
          EXPECT_NEAR(outputs.data<double>()[place * kUnits + j], h[j], 1e-12);
        }
      }
      for (size_t j = 0; j < kUnits; ++j)
        EXPECT_NEAR(state.data<double>()[n * kUnits + j], h[j], 1e-12);
    }
    m.expect_gradients(check);
  }
}

TEST(Gru, CellIsOneStepOfIt) {
  ModelTester m;
  Tensor x = some_numbers({1, kBatch, kInputs});
  Expr h = m.input(some_numbers({kBatch, kUnits}, 3));
  auto whole = layers::gru(m.root, m.vars, "gru", m.root.constant(x), kUnits,
                           {.time_major = true, .initial = h});
  Expr cell = layers::gru_cell(m.root, m.vars, "gru", m.root.constant(x.row(0)), h, kUnits);
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  m.start();
  Tensor a = m.run(whole.state), b = m.run(cell);
  for (size_t i = 0; i < a.data<double>().size(); ++i) {
    EXPECT_NEAR(a.data<double>()[i], b.data<double>()[i], 1e-12);
  }
}

// What stands at time t of [time, batch, n].
Expr at_time(const Scope& s, Expr x, int64_t t) {
  return ops::gather(s, x, s.constant(static_cast<int32_t>(t)));
}

// The same written out with cells: past its length a row keeps its state and gives zeros.
struct Unrolled {
  Expr outputs, h, c;
};
template <class Cell>
Unrolled unroll(const Scope& s, Expr x, Expr lengths, int64_t times, Cell cell) {
  const Expr zeros = s.constant(Tensor::zeros(DType::kDouble, {kBatch, kUnits}).value());
  layers::LstmState state = {zeros, zeros};
  std::vector<Expr> outputs;
  for (int64_t t = 0; t < times; ++t) {
    const Expr going = ops::reshape(s, ops::greater(s, lengths, s.constant(t)),
                                    s.constant(Tensor::vector<int32_t>({kBatch, 1})));
    const layers::LstmState next = cell(at_time(s, x, t), state);
    state.h = ops::select_v2(s, going, next.h, state.h);
    if (next.c.valid()) state.c = ops::select_v2(s, going, next.c, state.c);
    outputs.push_back(ops::select_v2(s, going, next.h, zeros));
  }
  return {ops::pack(s, outputs), state.h, state.c};
}

void expect_near(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.shape(), expected.shape());
  for (size_t i = 0; i < expected.data<double>().size(); ++i) {
    EXPECT_NEAR(got.data<double>()[i], expected.data<double>()[i], 1e-12) << i;
  }
}

const Tensor& two_lengths() {
  static const Tensor lengths = Tensor::vector<int64_t>({1, 3});
  return lengths;
}

TEST(Lstm, StopsAtTheLengthOfEachSequence) {
  for (const Tensor& lengths : {two_lengths(), Tensor::vector<int64_t>({0, 4})}) {
    ModelTester m;
    Expr x = m.input(some_numbers({kTime, kBatch, kInputs}), {-1, -1, kInputs});
    Expr ends = m.input(lengths);
    auto got =
        layers::lstm(m.root, m.vars, "lstm", x, kUnits, {.time_major = true, .lengths = ends});
    const Unrolled expected =
        unroll(m.root, x, ends, kTime, [&](Expr in, const layers::LstmState& state) {
          return layers::lstm_cell(m.root, m.vars, "lstm", in, state, kUnits);
        });
    ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
    auto check = m.differentiate(got.outputs), check_state = m.differentiate(got.state.c);
    m.start();
    expect_near(m.run(got.outputs), m.run(expected.outputs));
    expect_near(m.run(got.state.h), m.run(expected.h));
    expect_near(m.run(got.state.c), m.run(expected.c));
    m.expect_gradients(check);
    m.expect_gradients(check_state);
  }
}

TEST(Gru, StopsAtTheLengthOfEachSequence) {
  ModelTester m;
  Expr x = m.input(some_numbers({kTime, kBatch, kInputs}));
  Expr ends = m.input(two_lengths());
  auto got = layers::gru(m.root, m.vars, "gru", x, kUnits, {.time_major = true, .lengths = ends});
  const Unrolled expected =
      unroll(m.root, x, ends, kTime, [&](Expr in, const layers::LstmState& state) {
        return layers::LstmState{layers::gru_cell(m.root, m.vars, "gru", in, state.h, kUnits),
                                 Expr()};
      });
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  auto check = m.differentiate(got.outputs), check_state = m.differentiate(got.state);
  m.start();
  expect_near(m.run(got.outputs), m.run(expected.outputs));
  expect_near(m.run(got.state), m.run(expected.h));
  m.expect_gradients(check);
  m.expect_gradients(check_state);
}

TEST(Recurrent, WhatIsPastTheLengthHasNoInfluence) {
  Tensor x = some_numbers({kBatch, kTime, kInputs});
  for (size_t i = kInputs; i < kTime * kInputs; ++i) x.mutable_data<double>()[i] = NAN;
  ModelTester m;
  auto got = layers::lstm(m.root, m.vars, "lstm", m.input(x), kUnits,
                          {.lengths = m.root.constant(Tensor::vector<int32_t>({1, kTime}))});
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  auto check = m.differentiate(got.outputs);
  m.start();
  for (const Expr& e : {got.outputs, got.state.h, check.gradients[0], check.gradients[3]}) {
    const Tensor numbers = m.run(e);
    for (double v : numbers.data<double>()) EXPECT_TRUE(std::isfinite(v));
  }
}

TEST(Recurrent, RefusesLengthsThatDoNotFit) {
  const struct {
    Tensor lengths;
    const char* message;
  } cases[] = {
      {Tensor::vector<int32_t>({1, 2, 3}), "lengths must have one number per sequence, [2]"},
      {Tensor::scalar<int64_t>(1), "lengths must have one number per sequence, [2]"},
      {Tensor::vector<float>({1, 2}), "lengths must be int32 or int64, got float"},
  };
  for (const auto& c : cases) {
    ModelTester m;
    Expr x = m.input(some_numbers({2, 3, 4}));
    auto got = layers::gru(m.root, m.vars, "gru", x, 4, {.lengths = m.root.constant(c.lengths)});
    EXPECT_FALSE(got.outputs.valid());
    EXPECT_NE(m.root.status().to_string().find(c.message), std::string::npos)
        << m.root.status().to_string();
  }
}

TEST(Recurrent, RefusesWhatIsNoSequence) {
  ModelTester m;
  layers::LstmResult got = layers::lstm(m.root, m.vars, "lstm", m.input(some_numbers({2, 3})), 4);
  EXPECT_FALSE(got.outputs.valid());
  EXPECT_NE(m.root.status().to_string().find("lstm \"lstm\" at"), std::string::npos)
      << m.root.status().to_string();
  ModelTester n;
  Expr x = n.input(some_numbers({2, 3, 4}));
  layers::GruResult wrong =
      layers::gru(n.root, n.vars, "gru", x, 4, {.initial = n.root.constant(some_numbers({7, 5}))});
  EXPECT_FALSE(wrong.outputs.valid());
  EXPECT_EQ(n.root.status().code(), Code::kInvalidArgument);
}

TEST(Attention, IsAMeanOfValues) {
  constexpr size_t kQueries = 3, kKeys = 4, kSize = 2, kWidth = 5;
  for (bool masked : {false, true}) {
    ModelTester m;
    Tensor q = some_numbers({2, kQueries, kSize}), k = some_numbers({2, kKeys, kSize}, 2),
           v = some_numbers({2, kKeys, kWidth}, 3);
    Tensor mask = Tensor::of<bool>(
        {3, 4}, {true, false, true, true, true, true, false, false, false, false, false, true});
    Expr y = layers::attention(m.root, m.input(q), m.input(k), m.input(v),
                               masked ? m.root.constant(mask) : Expr());
    ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
    auto check = m.differentiate(y);
    m.start();
    Tensor got = m.run(y);
    for (size_t n = 0; n < 2; ++n) {
      for (size_t i = 0; i < kQueries; ++i) {
        Row weights(kKeys, 0);
        double total = 0;
        for (size_t j = 0; j < kKeys; ++j) {
          if (masked && !mask.data<bool>()[i * kKeys + j]) continue;
          double dot = 0;
          for (size_t d = 0; d < kSize; ++d) {
            dot += q.data<double>()[(n * kQueries + i) * kSize + d] *
                   k.data<double>()[(n * kKeys + j) * kSize + d];
          }
          total += weights[j] = std::exp(dot / std::sqrt(2.0));
        }
        for (size_t c = 0; c < kWidth; ++c) {
          double mean = 0;
          for (size_t j = 0; j < kKeys; ++j) {
            mean += weights[j] / total * v.data<double>()[(n * kKeys + j) * kWidth + c];
          }
          EXPECT_NEAR(got.data<double>()[(n * kQueries + i) * kWidth + c], mean, 1e-12);
        }
      }
    }
    m.expect_gradients(check);
  }
}

TEST(Attention, SeveralHeadsLookEachByItself) {
  constexpr int64_t kHeads = 2, kWidth = 4;
  ModelTester m;
  Tensor q = some_numbers({2, 3, kWidth}), memory = some_numbers({2, 5, 6}, 2);
  Expr query = m.input(q, {-1, -1, kWidth}), other = m.input(memory, {-1, -1, 6});
  Expr y = layers::multi_head_attention(m.root, m.vars, "mha", query, other, kHeads);
  // Each head by hand, on its half of the projections.
  auto project = [&](std::string_view part, Expr x) {
    Expr kernel = m.vars.find(str_cat("mha/", part, "/kernel"))->read(m.root);
    Expr tiled = ops::tile(m.root, ops::expand_dims(m.root, kernel, m.root.constant(int32_t{0})),
                           m.root.constant(Tensor::vector<int32_t>({2, 1, 1})));
    return ops::batch_mat_mul(m.root, x, tiled);
  };
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  auto halves = [&](Expr x) { return ops::split(m.root, m.root.constant(int32_t{2}), x, kHeads); };
  auto qs = halves(project("query", query)), ks = halves(project("key", other)),
       vs = halves(project("value", other));
  std::vector<Expr> heads;
  for (size_t h = 0; h < 2; ++h) heads.push_back(layers::attention(m.root, qs[h], ks[h], vs[h]));
  Expr wanted = project("output", ops::concat_v2(m.root, heads, m.root.constant(int32_t{2})));
  ASSERT_TRUE(m.root.ok()) << m.root.status().to_string();
  auto check = m.differentiate(y);
  m.start();
  Tensor a = m.run(y), b = m.run(wanted);
  ASSERT_EQ(a.shape(), Shape({2, 3, kWidth}));
  for (size_t i = 0; i < a.data<double>().size(); ++i) {
    EXPECT_NEAR(a.data<double>()[i], b.data<double>()[i], 1e-12);
  }
  m.expect_gradients(check);
  layers::multi_head_attention(m.root, m.vars, "odd", query, other, 3);
  EXPECT_NE(m.root.status().to_string().find("multiple of heads"), std::string::npos);
}

}  // namespace
}  // namespace millrace
