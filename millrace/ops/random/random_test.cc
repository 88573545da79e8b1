#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/random/philox.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_random_ops});

constexpr int64_t kGraphSeed = 87654321;

// An op with the seeds of the published vectors; runs of one tester go on with one stream.
class Random : public OpTester {
 public:
  Random(OpEnv& env, const char* op, int64_t seed2 = 1234) : OpTester(env, op) {
    name("random").attr("seed", kGraphSeed).attr("seed2", seed2);
  }
  Random& of(DType dtype, std::vector<int32_t> shape) {
    attr("dtype", dtype).input(Tensor::vector(std::span<const int32_t>(shape)));
    return *this;
  }
};

template <class T>
void expect_near(const Tensor& actual, std::vector<double> expected, double tolerance) {
  ASSERT_EQ(actual.num_elements(), static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(actual.data<T>()[i]), expected[i], tolerance) << i;
  }
}

TEST(SemanticsOfRandom, PhiloxBlocks) {
  EXPECT_EQ(Philox(0, 0).next(), (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(kGraphSeed, 1234).next(),
            (Philox::Block{0xd3ec9553, 0x75296ac9, 0x30a741f3, 0xf288ebec}));
}

TEST(SemanticsOfRandom, Uniform) {
  OpEnv env;
  Random op(env, "RandomUniform");
  op.of(DType::kFloat, {6});
  const Tensor first = *op.run_one();
  const uint32_t bits[] = {0x3f592aa6, 0x3ea5ab24, 0x3e9d07cc, 0x3d8ebec0};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(std::bit_cast<uint32_t>(first.data<float>()[i]), bits[i]);
  expect_near<float>(first, {0.8483070, 0.32357132, 0.3067001, 0.06969976, 0.9138565, 0.17047906},
                     1e-7);
  expect_near<float>(*op.run_one(),
                     {0.59211946, 0.19563866, 0.55491555, 0.03586602, 0.18073142, 0.17679763},
                     1e-7);
}

TEST(SemanticsOfRandom, UniformDouble) {
  OpEnv env;
  expect_near<double>(
      *Random(env, "RandomUniform").of(DType::kDouble, {4}).run_one(),
      {0.7864565445549252, 0.45360178699661, 0.3108524944083375, 0.2669698993792209}, 1e-15);
}

TEST(SemanticsOfRandom, UniformSixteenBits) {
  // The low bits of each word of the first block.
  const uint32_t words[] = {0xd3ec9553, 0x75296ac9, 0x30a741f3, 0xf288ebec};
  OpEnv env;
  const Tensor half = *Random(env, "RandomUniform").of(DType::kHalf, {4}).name("a").run_one();
  const Tensor bfloat = *Random(env, "RandomUniform").of(DType::kBFloat16, {4}).name("b").run_one();
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<float>(half.data<Half>()[i]), (words[i] & 0x3ff) / 1024.0F);
    EXPECT_EQ(static_cast<float>(bfloat.data<BFloat16>()[i]), (words[i] & 0x7f) / 128.0F);
  }
}

TEST(SemanticsOfRandom, Normal) {
  OpEnv env;
  Random op(env, "RandomStandardNormal");
  op.of(DType::kFloat, {6});
  expect_near<float>(*op.run_one(),
                     {0.51340485, -0.25581399, 0.65199131, 1.39236379, 0.37256798, 0.20336303},
                     3e-7);
  expect_near<float>(*op.run_one(),
                     {0.96462417, 0.34291974, 0.24251089, 1.05785966, 1.65749764, 0.82108968},
                     3e-7);
}

TEST(SemanticsOfRandom, TruncatedNormal) {
  OpEnv env;
  expect_near<float>(*Random(env, "TruncatedNormal").of(DType::kFloat, {6}).run_one(),
                     {0.51340485, -0.25581399, 0.65199131, 1.39236379, 0.1662533, -0.9161797},
                     3e-7);
}

TEST(SemanticsOfRandom, UniformInt) {
  OpEnv env;
  const auto draw = [&](const char* name, Tensor low, Tensor high, int32_t n) {
    Random op(env, "RandomUniformInt");
    return *op.name(name).input(Tensor::vector<int32_t>({n})).input(low).input(high).run_one();
  };
  expect_tensor_equal(draw("a", Tensor::scalar<int32_t>(0), Tensor::scalar<int32_t>(10), 6),
                      Tensor::vector<int32_t>({9, 5, 3, 4, 0, 6}));
  expect_tensor_equal(draw("b", Tensor::scalar<int64_t>(0), Tensor::scalar<int64_t>(1000), 4),
                      Tensor::vector<int64_t>({459, 707, 456, 778}));
}

TEST(SemanticsOfRandom, Shuffle) {
  OpEnv env;
  const Tensor rows = Tensor::of<float>({3, 2}, {0, 0, 1, 1, 2, 2});
  expect_tensor_equal(*Random(env, "RandomShuffle", 134).input(rows).run_one(),
                      Tensor::of<float>({3, 2}, {1, 1, 2, 2, 0, 0}));
  const Tensor words = Tensor::vector<std::string>({"a", "b", "c"});
  expect_tensor_equal(*Random(env, "RandomShuffle", 134).name("words").input(words).run_one(),
                      Tensor::vector<std::string>({"b", "c", "a"}));
}

TEST(SemanticsOfRandom, ShuffleTakesWhatItNeeds) {
  // Five rows take four words: the second run begins with the second block.
  OpEnv env;
  Random op(env, "RandomShuffle");
  op.input(Tensor::vector<int32_t>({0, 1, 2, 3, 4}));
  (void)op.run_one().value();
  const Tensor second = *op.run_one();
  Philox stream(kGraphSeed, 1234);
  stream.skip(1);
  const Philox::Block words = stream.next();
  std::vector<int32_t> expected = {0, 1, 2, 3, 4};
  for (uint32_t i = 0; i < 4; ++i) std::swap(expected[i], expected[i + words[i] % (5 - i)]);
  expect_tensor_equal(second, Tensor::vector(std::span<const int32_t>(expected)));
}

TEST(Philox, SkippingEqualsDrawing) {
  Philox drawn(3, 4), skipped(3, 4);
  for (int i = 0; i < 37; ++i) (void)drawn.next();
  skipped.skip(37);
  EXPECT_EQ(drawn.next(), skipped.next());
}

TEST(Philox, CarriesOver) {
  // Counter (2^64 - 1, 4) is followed by (0, 5).
  Philox a(3, 4), b(3, 5);
  a.skip(~uint64_t{0});
  (void)a.next();
  EXPECT_EQ(a.next(), b.next());
}

TEST(Philox, FillEqualsNext) {
  Philox one(7, 8), many(7, 8);
  std::vector<uint32_t> words(4 * 37);
  many.fill(words.data(), 37);
  for (size_t i = 0; i < 37; ++i) {
    const Philox::Block block = one.next();
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(words[4 * i + k], block[k]);
  }
  EXPECT_EQ(one.next(), many.next());
}

TEST(Random, DoesNotDependOnThreads) {
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    for (DType dtype : {DType::kFloat, DType::kDouble, DType::kHalf, DType::kBFloat16}) {
      OpEnv a, b;
      Random one(a, op), four(b, op);
      one.of(dtype, {50001}).threads(1);
      four.of(dtype, {50001}).threads(4);
      expect_tensor_equal(*one.run_one(), *four.run_one());
    }
  }
}

// Mean and deviation over many elements, within five standard errors.
TEST(Random, Moments) {
  const struct {
    const char* op;
    double mean, deviation;
  } cases[] = {{"RandomUniform", 0.5, std::sqrt(1 / 12.0)},
               {"RandomStandardNormal", 0, 1},
               {"TruncatedNormal", 0, 0.8796}};
  for (const auto& c : cases) {
    OpEnv env;
    const Tensor x = *Random(env, c.op).of(DType::kDouble, {100000}).run_one();
    double sum = 0, squares = 0, largest = 0;
    for (double v : x.data<double>()) {
      sum += v;
      squares += v * v;
      largest = std::max(largest, std::abs(v));
    }
    const double mean = sum / 1e5;
    EXPECT_NEAR(mean, c.mean, 5 * c.deviation / std::sqrt(1e5)) << c.op;
    EXPECT_NEAR(std::sqrt(squares / 1e5 - mean * mean), c.deviation, 0.01) << c.op;
    if (c.op == std::string_view("TruncatedNormal")) {
      EXPECT_LT(largest, 2);
    }
  }
}

TEST(Random, ZeroSeedsDiffer) {
  OpEnv env;
  const auto draw = [&](const char* name) {
    OpTester op(env, "RandomUniform");
    op.name(name).attr("dtype", DType::kDouble).input(Tensor::vector<int32_t>({2}));
    return *op.run_one();
  };
  EXPECT_FALSE(bit_equal(draw("a"), draw("b")));
  EXPECT_FALSE(bit_equal(draw("a"), draw("a")));  // the stream goes on
}

TEST(Random, StateIsListed) {
  OpEnv env;
  (void)Random(env, "RandomUniform").of(DType::kFloat, {1}).run_one().value();
  const std::vector<ResourceManager::Entry> entries = env.resources().list();
  ASSERT_EQ(entries.size(), 1u);
  EXPECT_EQ(entries[0].type, "RandomState");
  EXPECT_NE(entries[0].name.find("random"), std::string::npos);
}

TEST(Random, EmptyShapes) {
  OpEnv env;
  Random op(env, "RandomUniform");
  op.of(DType::kFloat, {0, 3});
  EXPECT_EQ(op.run_one()->shape(), Shape({0, 3}));
  op.clear_inputs().input(Tensor::vector<int64_t>({}));
  EXPECT_EQ(op.run_one()->shape(), Shape());
  const Tensor empty = Tensor::allocate(DType::kFloat, {0, 2}).value();
  EXPECT_EQ(Random(env, "RandomShuffle").name("s").input(empty).run_one()->shape(), Shape({0, 2}));
}

TEST(Random, RefusesBadInputs) {
  OpEnv env;
  const auto code = [](OpTester& op) { return op.run().status().code(); };
  EXPECT_EQ(code(Random(env, "RandomUniform").of(DType::kFloat, {2, -1})), Code::kInvalidArgument);
  EXPECT_EQ(code(Random(env, "TruncatedNormal").of(DType::kFloat, {1 << 30, 1 << 30, 1 << 30})),
            Code::kInvalidArgument);
  EXPECT_EQ(code(Random(env, "RandomUniform")
                     .attr("dtype", DType::kFloat)
                     .input(Tensor::scalar<int32_t>(2))),
            Code::kInvalidArgument);
  OpTester ints(env, "RandomUniformInt");
  ints.input(Tensor::vector<int32_t>({1}));
  ints.input(Tensor::scalar<int32_t>(5)).input(Tensor::scalar<int32_t>(5));
  const Status status = ints.run().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("minval < maxval, got 5 >= 5"), std::string::npos);
}

TEST(Random, WholeRangeOfIntegers) {
  OpEnv env;
  OpTester op(env, "RandomUniformInt");
  op.attr("seed", 1).input(Tensor::vector<int32_t>({1000}));
  op.input(Tensor::scalar(std::numeric_limits<int64_t>::min()));
  op.input(Tensor::scalar(std::numeric_limits<int64_t>::max()));
  const Tensor x = *op.run_one();
  const auto [low, high] = std::ranges::minmax(x.data<int64_t>());
  EXPECT_LT(low, -(int64_t{1} << 62));
  EXPECT_GT(high, int64_t{1} << 62);
}

TEST(Random, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "RandomUniform", {}, "=[2,?]"), "[2,?]");
  EXPECT_FALSE(infer_shapes(ops, "RandomUniform", {}, "=[2,-1]").ok());
  EXPECT_EQ(*infer_shapes(ops, "RandomUniform", {}, "[2]"), "[?,?]");
  EXPECT_EQ(*infer_shapes(ops, "RandomUniformInt", {}, "=[3];[];[]"), "[3]");
  EXPECT_EQ(*infer_shapes(ops, "RandomShuffle", {}, "[2,?]"), "[2,?]");
  EXPECT_EQ(*infer_shapes(ops, "Multinomial", {}, "[2,3];=5"), "[2,5]");
  EXPECT_FALSE(infer_shapes(ops, "Multinomial", {}, "[2];=5").ok());
  EXPECT_FALSE(infer_shapes(ops, "RandomUniform", {}, "[2,2]").ok());
}

TEST(Multinomial, FollowsTheLogits) {
  OpEnv env;
  Random op(env, "Multinomial");
  const float inf = std::numeric_limits<float>::infinity();
  op.input(Tensor::of<float>({2, 3}, {std::log(1.0F), std::log(3.0F), -inf, 0, 0, 50}));
  op.input(Tensor::scalar<int32_t>(20000));
  const Tensor x = *op.run_one();
  int64_t counts[2][3] = {};
  for (size_t i = 0; i < 40000; ++i) ++counts[i / 20000][x.data<int64_t>()[i]];
  EXPECT_NEAR(static_cast<double>(counts[0][0]), 5000, 5 * std::sqrt(20000 * 0.1875));
  EXPECT_EQ(counts[0][2], 0);
  EXPECT_EQ(counts[1][2], 20000);
}

TEST(Multinomial, DoesNotDependOnThreads) {
  const Tensor logits = random_tensor(DType::kFloat, {301, 50}, 5);
  OpEnv a, b;
  Random one(a, "Multinomial"), four(b, "Multinomial");
  one.threads(1).input(logits).input(Tensor::scalar<int32_t>(7));
  four.threads(4).input(logits).input(Tensor::scalar<int32_t>(7));
  expect_tensor_equal(*one.run_one(), *four.run_one());
}

TEST(Multinomial, RefusesBadInputs) {
  const auto code = [](Shape shape, int32_t samples) {
    OpTester op("Multinomial");
    op.input(random_tensor(DType::kFloat, shape, 1)).input(Tensor::scalar(samples));
    return op.run().status().code();
  };
  EXPECT_EQ(code({2, 3}, -1), Code::kInvalidArgument);
  EXPECT_EQ(code({2, 0}, 1), Code::kInvalidArgument);
  EXPECT_EQ(code({6}, 1), Code::kInvalidArgument);
  EXPECT_EQ(code({0, 3}, 1), Code::kOk);
  EXPECT_EQ(code({2, 3}, 0), Code::kOk);
}

}  // namespace
}  // namespace millrace
