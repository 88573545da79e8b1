#include "millrace/api/sampled_losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {
namespace {

constexpr int64_t kClasses = 10, kDim = 3, kBatch = 2, kTrue = 2, kSampled = 4;
using Numbers = std::vector<double>;

Tensor tensor_of(const Numbers& values, Shape shape, DType dtype = DType::kDouble) {
  Tensor out = *Tensor::allocate(dtype, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    if (dtype == DType::kDouble) {
      out.mutable_data<double>()[i] = values[i];
    } else {
      out.mutable_data<float>()[i] = static_cast<float>(values[i]);
    }
  }
  return out;
}

Numbers numbers(const Tensor& t) {
  if (t.dtype() == DType::kFloat) return {t.data<float>().begin(), t.data<float>().end()};
  return {t.data<double>().begin(), t.data<double>().end()};
}

// A small classifier; all values are exact in float.
struct Model {
  Numbers weights, biases, inputs = {0.5, -1, 2, 1, 0.25, -0.75};
  std::vector<int64_t> labels = {1, 4, 0, 7};
  Model() {
    for (int i = 0; i < kClasses * kDim; ++i) weights.push_back((i % 7 - 3) * 0.25);
    for (int i = 0; i < kClasses; ++i) biases.push_back((i % 4 - 1) * 0.5);
  }
  double logit(int64_t example, int64_t k) const {
    double out = biases[static_cast<size_t>(k)];
    for (int64_t d = 0; d < kDim; ++d) {
      out += inputs[static_cast<size_t>(example * kDim + d)] *
             weights[static_cast<size_t>(k * kDim + d)];
    }
    return out;
  }
};

// What a sampler gave.
struct Sample {
  std::vector<int64_t> classes;
  Numbers true_counts, counts;
};

Numbers reference_loss(const Model& m, const Sample& s, bool softmax, bool remove_hits) {
  Numbers out;
  for (int64_t e = 0; e < kBatch; ++e) {
    Numbers logits, labels;
    const int64_t* truth = m.labels.data() + e * kTrue;
    for (int64_t t = 0; t < kTrue; ++t) {
      logits.push_back(m.logit(e, truth[t]) -
                       std::log(s.true_counts[static_cast<size_t>(e * kTrue + t)]));
      labels.push_back(1.0 / kTrue);
    }
    for (size_t i = 0; i < s.classes.size(); ++i) {
      const bool hit = std::find(truth, truth + kTrue, s.classes[i]) != truth + kTrue;
      if (hit && remove_hits) continue;
      logits.push_back(m.logit(e, s.classes[i]) - std::log(s.counts[i]));
      labels.push_back(0);
    }
    double loss = 0, total = 0;
    for (double x : logits) total += std::exp(x);
    for (size_t i = 0; i < logits.size(); ++i) {
      loss += softmax ? labels[i] * (std::log(total) - logits[i])
                      : std::log1p(std::exp(logits[i])) - labels[i] * logits[i];
    }
    out.push_back(loss);
  }
  return out;
}

void expect_near(const Numbers& actual, const Numbers& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], tolerance) << i;
}

class SampledLosses : public ::testing::Test {
 protected:
  // Takes the model's tensors into the graph, as tensors or as `shards` parts by mod.
  void build(const Model& m, DType dtype, size_t shards = 1) {
    weights_.clear();
    biases_.clear();
    for (size_t s = 0; s < shards; ++s) {
      Numbers rows, biases;
      for (size_t k = s; k < kClasses; k += shards) {
        rows.insert(rows.end(), m.weights.begin() + static_cast<int64_t>(k) * kDim,
                    m.weights.begin() + static_cast<int64_t>(k + 1) * kDim);
        biases.push_back(m.biases[k]);
      }
      const auto n = static_cast<int64_t>(biases.size());
      weights_.push_back(root_.constant(tensor_of(rows, {n, kDim}, dtype)));
      biases_.push_back(root_.constant(tensor_of(biases, {n}, dtype)));
    }
    inputs_ = root_.constant(tensor_of(m.inputs, {kBatch, kDim}, dtype));
    Tensor labels = *Tensor::allocate(DType::kInt64, {kBatch, kTrue});
    std::ranges::copy(m.labels, labels.mutable_data<int64_t>().begin());
    labels_ = root_.constant(labels);
  }
  SampledLossOptions options(bool remove_hits) {
    return {
        .num_true = kTrue, .seed = 87654321, .seed2 = 1234, .remove_accidental_hits = remove_hits};
  }
  Expr loss(bool softmax, const SampledLossOptions& options, int64_t num_sampled = kSampled) {
    return softmax ? sampled_softmax_loss(root_, weights_, biases_, labels_, inputs_, num_sampled,
                                          kClasses, options)
                   : nce_loss(root_, weights_, biases_, labels_, inputs_, num_sampled, kClasses,
                              options);
  }
  std::vector<Tensor> run(const std::vector<Expr>& fetches) {
    Result<ClientSession> session = ClientSession::create(root_);
    EXPECT_TRUE(session.ok()) << session.status().to_string();
    if (!session.ok()) return {};
    Result<std::vector<Tensor>> out = session->run({}, fetches);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? *std::move(out) : std::vector<Tensor>();
  }
  // Classes 5, 1, 0 and 3, of which 1 and 0 are true ones, as constants.
  SampledClasses fixed(Sample& sample, DType dtype = DType::kFloat) {
    sample = {{5, 1, 0, 3}, {0.75, 0.5, 0.875, 0.25}, {0.5, 0.75, 0.875, 0.625}};
    return {root_.constant(Tensor::vector<int64_t>({5, 1, 0, 3})),
            root_.constant(tensor_of(sample.true_counts, {kBatch, kTrue}, dtype)),
            root_.constant(tensor_of(sample.counts, {kSampled}, dtype))};
  }

  Scope root_ = Scope::make_root();
  std::vector<Expr> weights_, biases_;
  Expr labels_, inputs_;
};

TEST_F(SampledLosses, AsTensorFlow) {
  struct Row {
    bool softmax, remove_hits;
    Numbers loss, inputs_gradient;
  };
  const Row rows[] = {
      {true,
       true,
       {2.94943833, 2.21181631},
       {-0.503028631, -0.503028691, 0.347922742, 0.261062384, 0.261062354, 0.261062354}},
      {true,
       false,
       {3.13140273, 2.23972917},
       {-0.460932553, -0.460932553, 0.394019783, 0.25387609, 0.25387609, 0.25387609}},
      {false,
       false,
       {7.31629372, 5.47167015},
       {-1.00461531, -0.336452901, 0.894345701, -0.785494447, -0.207363829, 0.370766759}},
      {false,
       true,
       {5.89187908, 5.17141819},
       {-1.00461531, -0.526290596, 0.514670372, -0.590968013, -0.0776795894, 0.435608894}}};
  build(Model(), DType::kFloat);
  for (const Row& row : rows) {
    const Expr y = loss(row.softmax, options(row.remove_hits));
    const auto g = gradients(root_.builder(), std::vector<Expr>{y}, std::vector<Expr>{inputs_});
    ASSERT_TRUE(g.ok()) << g.status().to_string();
    const std::vector<Tensor> out = run({y, to_dense((*g)[0])});
    ASSERT_EQ(out.size(), 2u);
    expect_near(numbers(out[0]), row.loss, 5e-6);
    expect_near(numbers(out[1]), row.inputs_gradient, 2e-6);
  }
}

TEST_F(SampledLosses, DefaultsRemoveHitsFromTheSoftmaxOnly) {
  build(Model(), DType::kFloat);
  SampledLossOptions defaults = options(true);
  defaults.remove_accidental_hits.reset();
  const std::vector<Tensor> out = run({loss(true, defaults), loss(true, options(true)),
                                       loss(false, defaults), loss(false, options(false))});
  ASSERT_EQ(out.size(), 4u);
  EXPECT_TRUE(bit_equal(out[0], out[1]));
  EXPECT_TRUE(bit_equal(out[2], out[3]));
}

TEST_F(SampledLosses, MatchThePlainFormulaOverShards) {
  const Model m;
  for (size_t shards : {size_t{1}, size_t{3}}) {
    build(m, DType::kDouble, shards);
    for (bool softmax : {true, false}) {
      for (bool remove_hits : {true, false}) {
        Sample sample;
        SampledLossOptions with = options(remove_hits);
        with.sampled = fixed(sample);
        const std::vector<Tensor> out = run({loss(softmax, with)});
        ASSERT_EQ(out.size(), 1u);
        expect_near(numbers(out[0]), reference_loss(m, sample, softmax, remove_hits), 1e-6);
      }
    }
  }
}

// Central differences of the plain formula.
TEST_F(SampledLosses, GradientsMatchTheFormulaAndAreRows) {
  const Model m;
  build(m, DType::kDouble, 3);
  for (bool softmax : {true, false}) {
    Sample sample;
    SampledLossOptions with = options(true);
    with.sampled = fixed(sample, DType::kDouble);
    const Expr y = loss(softmax, with);
    std::vector<Expr> xs = weights_;
    xs.insert(xs.end(), biases_.begin(), biases_.end());
    xs.push_back(inputs_);
    const auto g = gradients(root_.builder(), std::vector<Expr>{y}, xs);
    ASSERT_TRUE(g.ok()) << g.status().to_string();
    std::vector<Expr> fetches;
    for (size_t i = 0; i < xs.size(); ++i) {
      EXPECT_EQ((*g)[i].is_slices(), i < 6) << i;
      fetches.push_back(to_dense((*g)[i]));
    }
    const std::vector<Tensor> out = run(fetches);
    ASSERT_EQ(out.size(), 7u);

    const auto slope = [&](Numbers Model::*member, size_t i) {
      constexpr double kStep = 1e-5;
      Model up = m, down = m;
      (up.*member)[i] += kStep;
      (down.*member)[i] -= kStep;
      double difference = 0;
      for (double x : reference_loss(up, sample, softmax, true)) difference += x;
      for (double x : reference_loss(down, sample, softmax, true)) difference -= x;
      return difference / (2 * kStep);
    };
    for (size_t k = 0; k < kClasses; ++k) {
      for (size_t d = 0; d < kDim; ++d) {
        EXPECT_NEAR(numbers(out[k % 3])[k / 3 * kDim + d], slope(&Model::weights, k * kDim + d),
                    1e-7);
      }
      EXPECT_NEAR(numbers(out[3 + k % 3])[k / 3], slope(&Model::biases, k), 1e-7);
    }
    for (size_t i = 0; i < kBatch * kDim; ++i) {
      EXPECT_NEAR(numbers(out[6])[i], slope(&Model::inputs, i), 1e-7);
    }
  }
}

TEST_F(SampledLosses, AllClassesGiveTheFullSoftmax) {
  const Model m;
  build(m, DType::kDouble);
  const auto all = ops::all_candidate_sampler(root_, labels_, kTrue, kClasses, true);
  SampledLossOptions with = options(true);
  with.sampled = {all.sampled_candidates, all.true_expected_count, all.sampled_expected_count};
  const std::vector<Tensor> out = run({loss(true, with, kClasses)});
  ASSERT_EQ(out.size(), 1u);
  Numbers expected;
  for (int64_t e = 0; e < kBatch; ++e) {
    double total = 0, mean = 0;
    for (int64_t k = 0; k < kClasses; ++k) total += std::exp(m.logit(e, k));
    for (int64_t t = 0; t < kTrue; ++t) {
      mean += m.logit(e, m.labels[static_cast<size_t>(e * kTrue + t)]) / kTrue;
    }
    expected.push_back(std::log(total) - mean);
  }
  expect_near(numbers(out[0]), expected, 1e-12);
}

TEST_F(SampledLosses, ASessionLearnsTheFrequencies) {
  const Expr truth = root_.constant(Tensor::of<int64_t>({2, 1}, {3, 3}));
  const auto sampler = ops::learned_unigram_candidate_sampler(root_, truth, 1, 2, false, 4);
  for (int i = 0; i < 2; ++i) {
    ClientSession session = ClientSession::create(root_).value();
    for (float expected : {2 * 1.0F / 4, 2 * 3.0F / 6, 2 * 5.0F / 8}) {
      const std::vector<Tensor> out = session.run({}, {sampler.true_expected_count}).value();
      EXPECT_FLOAT_EQ(out[0].data<float>()[0], expected);
    }
  }
}

TEST_F(SampledLosses, SmallTypesStayFinite) {
  const Model m;
  for (DType dtype : {DType::kHalf, DType::kBFloat16}) {
    build(m, DType::kFloat);
    weights_[0] = cast(weights_[0], dtype);
    biases_[0] = cast(biases_[0], dtype);
    inputs_ = cast(inputs_, dtype);
    for (bool softmax : {true, false}) {
      Sample sample;
      SampledLossOptions with = options(true);
      with.sampled = fixed(sample);
      const std::vector<Tensor> out = run({cast(loss(softmax, with), DType::kFloat)});
      ASSERT_EQ(out.size(), 1u);
      expect_near(numbers(out[0]), reference_loss(m, sample, softmax, true), 0.1);
    }
  }
}

TEST_F(SampledLosses, WrongArgumentsAreErrorsOfTheScope) {
  const auto expect = [&](const SampledLossOptions& options, int64_t num_sampled,
                          std::string_view part) {
    root_ = Scope::make_root();
    build(Model(), DType::kFloat);
    EXPECT_FALSE(loss(true, options, num_sampled).valid());
    EXPECT_EQ(root_.status().code(), Code::kInvalidArgument);
    const std::string text = root_.status().to_string();
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(options(true), 0, "num_sampled");
  expect({.num_true = 0}, 2, "num_true");
  expect({.num_true = 3}, 2, "[batch_size,3]");
}

}  // namespace
}  // namespace millrace
