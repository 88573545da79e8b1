#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "millrace/base/file.h"
#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_random_ops});

using Weights = std::vector<float>;
using Classes = std::vector<int64_t>;

const char* const kWithRange[] = {
    "LogUniformCandidateSampler", "UniformCandidateSampler", "LearnedUnigramCandidateSampler",
    "ThreadUnsafeUnigramCandidateSampler", "FixedUnigramCandidateSampler"};

// A sampler with the seeds of the published vectors and true classes 0 and 3.
class Sampler : public OpTester {
 public:
  Sampler(std::string_view op, int64_t num_sampled, bool unique, int64_t range = 0) : OpTester(op) {
    name("sampler").attr("num_true", 2).attr("num_sampled", num_sampled).attr("unique", unique);
    attr("seed", 87654321).attr("seed2", 1234).input(Tensor::of<int64_t>({1, 2}, {0, 3}));
    if (range > 0) attr("range_max", range);
    if (op.starts_with("Fixed")) attr("unigrams", Weights(static_cast<size_t>(range), 1.0F));
  }
  Sampler& weights(Weights unigrams, float distortion = 1) {
    attr("unigrams", std::move(unigrams)).attr("distortion", distortion);
    return *this;
  }
};

Classes drawn(const Result<std::vector<Tensor>>& outputs) {
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  if (!outputs.ok()) return {};
  const auto classes = (*outputs)[0].data<int64_t>();
  return Classes(classes.begin(), classes.end());
}

void expect_counts(const Tensor& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.num_elements(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual.data<float>()[i], expected[i], 2e-7 * std::max(1.0, expected[i])) << i;
  }
}

// A run as TensorFlow does it with these seeds.
struct Run {
  Classes classes;
  std::vector<double> true_counts, sampled_counts;
};
void expect_runs(OpTester& op, const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    const Result<std::vector<Tensor>> out = op.run();
    EXPECT_EQ(drawn(out), run.classes);
    if (!out.ok()) continue;
    EXPECT_EQ((*out)[1].shape(), Shape({1, 2}));
    expect_counts((*out)[1], run.true_counts);
    expect_counts((*out)[2], run.sampled_counts);
  }
}

TEST(CandidateSamplers, LogUniformAsTensorFlow) {
  Sampler op("LogUniformCandidateSampler", 6, false, 1000);
  expect_runs(
      op, {{{227, 21, 7, 5, 8, 60},
            {0.601972938, 0.193791986},
            {0.00380072091, 0.0386047252, 0.102290243, 0.133874208, 0.0915017426, 0.0141216656}},
           {{51, 239, 73, 248, 0, 3},
            {0.601972938, 0.193791986},
            {0.0165426582, 0.00361107942, 0.011657401, 0.00348081952, 0.601972938, 0.193791986}}});
  Sampler unique("LogUniformCandidateSampler", 6, true, 10);
  expect_runs(unique,
              {{{5, 1, 0, 3, 2, 4},
                {0.983329058, 0.690291107},
                {0.549475431, 0.89169842, 0.983329058, 0.690291107, 0.78424871, 0.612856567}},
               {{2, 5, 3, 0, 9, 1},
                {0.93474108, 0.542242169},
                {0.640276372, 0.412313581, 0.542242169, 0.93474108, 0.277090698, 0.77279222}}});
}

TEST(CandidateSamplers, UniformAsTensorFlow) {
  Sampler op("UniformCandidateSampler", 6, false, 1000);
  const std::vector<double> flat(6, 0.006), tries(6, 0.686189413);
  expect_runs(op, {{{459, 707, 456, 778, 535, 780}, {0.006, 0.006}, flat},
                   {{654, 915, 494, 466, 585, 336}, {0.006, 0.006}, flat}});
  Sampler unique("UniformCandidateSampler", 6, true, 10);
  expect_runs(unique, {{{9, 7, 6, 8, 5, 0}, {0.6, 0.6}, std::vector<double>(6, 0.6)},
                       {{4, 5, 6, 9, 0, 8}, {0.686189413, 0.686189413}, tries}});
}

TEST(CandidateSamplers, LearnedUnigramLearnsAsTensorFlow) {
  const double a = 12.0 / 7, b = 6.0 / 7, c = 2.0 / 3, d = 24.0 / 11, e = 6.0 / 11;
  for (const char* name :
       {"LearnedUnigramCandidateSampler", "ThreadUnsafeUnigramCandidateSampler"}) {
    Sampler op(name, 6, false, 5);
    expect_runs(op, {{{4, 0, 3, 4, 0, 1}, {1.2, 1.2}, std::vector<double>(6, 1.2)},
                     {{2, 0, 0, 4, 2, 3}, {a, a}, {b, a, a, b, b, a}},
                     {{3, 2, 0, 2, 0, 3}, {2, 2}, {2, c, 2, c, 2, 2}},
                     {{4, 3, 4, 0, 4, 3}, {d, d}, {e, d, e, d, e, d}}});
    Sampler unique(name, 4, true, 5);
    const double f = 0.73785603, g = 0.951599717, h = 0.75026536;
    expect_runs(unique,
                {{{4, 0, 3, 1}, {f, f}, {f, f, f, f}}, {{1, 0, 4, 2}, {g, g}, {h, g, h, h}}});
  }
}

TEST(CandidateSamplers, FixedUnigramAsTensorFlow) {
  const Weights weights = {1, 5, 2, 0.5, 3};
  const double w0 = 0.898916304, w1 = 3.00570798, w2 = 1.51179099, w3 = 0.534498811,
               w4 = 2.04908609;
  Sampler op("FixedUnigramCandidateSampler", 8, false, 5);
  expect_runs(op.weights(weights, 0.75F),
              {{{1, 4, 1, 0, 0, 3, 2, 3}, {w0, w3}, {w1, w4, w1, w0, w0, w3, w2, w3}},
               {{2, 1, 2, 1, 1, 4, 0, 1}, {w0, w3}, {w2, w1, w2, w1, w1, w4, w0, w1}}});
  Sampler reserved("FixedUnigramCandidateSampler", 3, true, 6);
  reserved.attr("num_reserved_ids", 1);
  expect_runs(reserved.weights(weights),
              {{{3, 2, 1}, {0, 0.89900285}, {0.89900285, 0.998936892, 0.664341688}},
               {{2, 4, 5}, {0, 0.737469137}, {0.981570721, 0.267405033, 0.879483223}}});
  Sampler shard("FixedUnigramCandidateSampler", 6, false, 5);
  shard.attr("num_shards", 2).attr("shard", 1);
  const double s0 = 1.89244974, s3 = 1.19689023, s4 = 1.46588528;
  expect_runs(shard.weights({1, 5, 2, 0.5, 3, 1, 5, 2, 0.5, 3}, 0.5F),
              {{{0, 4, 0, 0, 0, 3}, {s0, s3}, {s0, s4, s0, s0, s0, s3}}});
}

class VocabFile {
 public:
  explicit VocabFile(std::string_view contents)
      : path_(str_cat(::testing::TempDir(), "vocab_",
                      ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    EXPECT_TRUE(write_file_atomically(posix_file_system(), path_, contents).ok());
  }
  ~VocabFile() { EXPECT_TRUE(posix_file_system().remove(path_).ok()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(CandidateSamplers, FixedUnigramReadsAFile) {
  VocabFile file("a,1\nb,5\n\nc,x,2\n 0.5 \r\ne,3");
  Sampler listed("FixedUnigramCandidateSampler", 50, false, 5);
  Sampler read("FixedUnigramCandidateSampler", 50, false, 5);
  read.attr("unigrams", Weights()).attr("vocab_file", file.path());
  EXPECT_EQ(drawn(read.run()), drawn(listed.weights({1, 5, 2, 0.5, 3}).run()));
}

TEST(CandidateSamplers, FixedUnigramShardsHaveEveryClassOnce) {
  // Class k of 11, two of them reserved, has weight k.
  std::vector<double> seen;
  for (int64_t shard = 0; shard < 3; ++shard) {
    const int64_t range = shard < 2 ? 4 : 3;
    Sampler op("FixedUnigramCandidateSampler", 1, false, range);
    op.weights({2, 3, 4, 5, 6, 7, 8, 9, 10}).attr("num_reserved_ids", 2);
    op.attr("num_shards", 3).attr("shard", shard).attr("num_true", range);
    Tensor all = *Tensor::allocate(DType::kInt64, {1, range});
    std::iota(all.mutable_data<int64_t>().begin(), all.mutable_data<int64_t>().end(), 0);
    const std::vector<Tensor> out = *op.clear_inputs().input(all).run();
    const auto p = out[1].data<float>();
    double total = 0;
    for (int64_t k = shard; k < 11; k += 3) total += k < 2 ? 0 : static_cast<double>(k);
    for (int64_t i = 0; i < range; ++i) {
      const int64_t k = shard + 3 * i;
      EXPECT_NEAR(p[static_cast<size_t>(i)], k < 2 ? 0 : static_cast<double>(k) / total, 1e-6);
    }
  }
}

// Pearson's statistic of 20,000 draws against the probabilities that the counts tell.
TEST(CandidateSamplers, DrawWithTheProbabilitiesTheyTell) {
  constexpr int64_t kDraws = 20000, kRange = 7;
  for (const char* name : kWithRange) {
    SCOPED_TRACE(name);
    Sampler op(name, kDraws, false, kRange);
    if (std::string_view(name).starts_with("Fixed")) op.weights({1, 2, 3, 4, 0, 5, 0.25F});
    op.attr("num_true", kRange).clear_inputs();
    op.input(Tensor::of<int64_t>({1, kRange}, {0, 1, 2, 3, 4, 5, 6}));
    for (int run = 0; run < 2; ++run) {
      const std::vector<Tensor> out = *op.run();
      std::vector<double> times(kRange);
      for (int64_t k : out[0].data<int64_t>()) ++times.at(static_cast<size_t>(k));
      double statistic = 0, total = 0;
      for (size_t k = 0; k < kRange; ++k) {
        const double expected = out[1].data<float>()[k];
        total += expected;
        if (expected == 0) {
          EXPECT_EQ(times[k], 0);
        } else {
          statistic += (times[k] - expected) * (times[k] - expected) / expected;
        }
      }
      EXPECT_NEAR(total, kDraws, 0.1);
      EXPECT_LT(statistic, 22.5);  // one in a thousand with six degrees of freedom
    }
  }
}

TEST(CandidateSamplers, UniqueDrawsEveryClassOnce) {
  for (const char* name : kWithRange) {
    Sampler op(name, 10, true, 10);
    const Result<std::vector<Tensor>> out = op.run();
    const Classes classes = drawn(out);
    EXPECT_EQ(std::set<int64_t>(classes.begin(), classes.end()).size(), 10u) << name;
    // More tries than classes: every class was expected less than once.
    for (float count : (*out)[2].data<float>()) EXPECT_LT(count, 1) << name;
  }
}

TEST(CandidateSamplers, AllGivesAll) {
  const std::vector<Tensor> out = *Sampler("AllCandidateSampler", 5, true).run();
  expect_tensor_equal(out[0], Tensor::vector<int64_t>({0, 1, 2, 3, 4}));
  expect_tensor_equal(out[1], Tensor::of<float>({1, 2}, {1, 1}));
  expect_tensor_equal(out[2], Tensor::vector<float>({1, 1, 1, 1, 1}));
}

TEST(CandidateSamplers, LearnedCountsAreTheNodesOwn) {
  OpEnv env;
  const auto learned = [&](std::string_view name, int64_t range) {
    OpTester op(env, "LearnedUnigramCandidateSampler");
    op.name(name).attr("num_true", 1).attr("num_sampled", 1).attr("unique", false);
    op.attr("range_max", range).input(Tensor::of<int64_t>({3, 1}, {2, 2, 2}));
    return op.run();
  };
  EXPECT_FLOAT_EQ((*learned("a", 3))[1].data<float>()[0], 1.0F / 3);
  EXPECT_FLOAT_EQ((*learned("a", 3))[1].data<float>()[0], 4.0F / 6);
  EXPECT_FLOAT_EQ((*learned("b", 3))[1].data<float>()[0], 1.0F / 3);
  // Of other classes: it begins anew.
  EXPECT_FLOAT_EQ((*learned("a", 4))[1].data<float>()[0], 1.0F / 4);
}

TEST(CandidateSamplers, EmptyBatch) {
  for (const char* name : kWithRange) {
    Sampler op(name, 2, true, 4);
    op.clear_inputs().input(*Tensor::zeros(DType::kInt64, {0, 2}));
    const Result<std::vector<Tensor>> out = op.run();
    ASSERT_TRUE(out.ok()) << name;
    EXPECT_EQ((*out)[1].shape(), Shape({0, 2}));
  }
}

void expect_error(const Result<std::vector<Tensor>>& result, Code code, std::string_view part) {
  EXPECT_EQ(result.status().code(), code) << result.status().to_string();
  EXPECT_NE(result.status().message().find(part), std::string_view::npos)
      << result.status().to_string();
}

TEST(CandidateSamplers, RefuseBadInputs) {
  constexpr Code kInvalid = Code::kInvalidArgument;
  for (const char* name : kWithRange) {
    expect_error(Sampler(name, 11, true, 10).run(), kInvalid, "different classes");
    expect_error(Sampler(name, 2, true, 3).run(), kInvalid, "true class 3 is out of range [0, 3)");
    for (const Tensor& bad :
         {Tensor::of<int64_t>({1, 2}, {-1, 0}), Tensor::of<int64_t>({2, 1}, {0, 0}),
          Tensor::vector<int64_t>({0, 0})}) {
      Sampler op(name, 2, true, 10);
      expect_error(op.clear_inputs().input(bad).run(), kInvalid, "true");
    }
  }
  Sampler all("AllCandidateSampler", 3, true);
  expect_error(all.run(), kInvalid, "true class 3");
  for (const char* name : {"LearnedUnigramCandidateSampler", "FixedUnigramCandidateSampler"}) {
    Sampler wide(name, 2, true, 10);
    expect_error(wide.attr("range_max", int64_t{1} << 40).run(), kInvalid, "at most");
  }
}

TEST(CandidateSamplers, GiveUpOnTheNearlyImpossible) {
  Weights weights(64, 1e-38F);
  weights[0] = 1;
  Sampler op("FixedUnigramCandidateSampler", 64, true, 64);
  expect_error(op.weights(weights).run(), Code::kResourceExhausted, "of 64 different classes");
}

TEST(CandidateSamplers, FixedUnigramRefusesBadWeights) {
  constexpr Code kInvalid = Code::kInvalidArgument;
  const auto fixed = [](int64_t range) {
    return Sampler("FixedUnigramCandidateSampler", 2, true, range);
  };
  expect_error(fixed(4).weights({}).run(), kInvalid, "neither");
  expect_error(fixed(4).weights({1, 1, 1, 1}).attr("vocab_file", "x").run(), kInvalid, "both");
  expect_error(fixed(4).weights({1, 1, 1}).run(), kInvalid, "expected 3, got 4");
  expect_error(fixed(4).weights({1, 1, -1, 1}, 2.5F).run(), kInvalid, "weight -1 of class 2");
  expect_error(fixed(4).weights({1, 1, NAN, 1}).run(), kInvalid, "weight nan");
  expect_error(fixed(4).weights({1, 0, 1, 1}, -1).run(), kInvalid, "is inf");
  expect_error(fixed(4).weights({1, 0, 0, 0}).run(), kInvalid, "only 1 have a positive weight");
  expect_error(fixed(4).weights({0, 0, 0, 0}).attr("unique", false).run(), kInvalid, "sum");
  expect_error(fixed(4).attr("shard", 1).run(), kInvalid, "shard must be in");
  expect_error(fixed(4).attr("num_reserved_ids", -1).run(), kInvalid, "num_reserved_ids");
  const auto from = [&](const std::string& path) {
    return fixed(4).weights({}).attr("vocab_file", path).run();
  };
  expect_error(from("no/such/file"), Code::kNotFound, "no/such/file");
  VocabFile file("a,1\nb,many\n");
  expect_error(from(file.path()), kInvalid, "line 2");
}

TEST(CandidateSamplers, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  for (const char* name : kWithRange) {
    AttrMap attrs = {{"num_true", 2}, {"num_sampled", 3}, {"unique", true}, {"range_max", 10}};
    if (ops.find(name)->find_attr("unigrams") != nullptr) {
      attrs.set("unigrams", std::vector<float>(10, 1));
    }
    EXPECT_EQ(*infer_shapes(ops, name, attrs, "[5,2]"), "[3];[5,2];[3]");
    EXPECT_EQ(*infer_shapes(ops, name, attrs, "?"), "[3];[?,2];[3]");
    EXPECT_FALSE(infer_shapes(ops, name, attrs, "[5,3]").ok());
  }
}

TEST(ComputeAccidentalHits, FindsThem) {
  const std::vector<Tensor> out = *OpTester("ComputeAccidentalHits")
                                       .attr("num_true", 2)
                                       .input(Tensor::of<int64_t>({3, 2}, {1, 2, 3, 4, 2, 5}))
                                       .input(Tensor::vector<int64_t>({5, 2, 7}))
                                       .run();
  expect_tensor_equal(out[0], Tensor::vector<int32_t>({0, 2, 2}));
  expect_tensor_equal(out[1], Tensor::vector<int64_t>({1, 1, 0}));
  const float lowest = std::numeric_limits<float>::lowest();
  expect_tensor_equal(out[2], Tensor::vector<float>({lowest, lowest, lowest}));
}

TEST(ComputeAccidentalHits, NoHits) {
  const auto hits = [](Shape true_shape, int64_t num_true) {
    return OpTester("ComputeAccidentalHits")
        .attr("num_true", num_true)
        .input(Tensor::zeros(DType::kInt64, true_shape).value())
        .input(Tensor::vector<int64_t>({5}))
        .run();
  };
  EXPECT_EQ((*hits({0, 2}, 2))[0].shape(), Shape({0}));
  EXPECT_EQ((*hits({2, 0}, 0))[0].shape(), Shape({0}));
  EXPECT_EQ(hits({2, 1}, 2).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
