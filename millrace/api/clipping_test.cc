#include "millrace/api/clipping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millrace/api/client_session.h"

namespace millrace {
namespace {

Expr vec(const Scope& s, std::initializer_list<double> values) {
  return s.constant(Tensor::vector<double>(values));
}
Gradient rows(const Scope& s, Expr values) {
  return {values, s.constant(Tensor::vector<int64_t>({4, 4})),
          s.constant(Tensor::vector<int64_t>({9}))};
}

std::vector<Tensor> run(const Scope& root, const std::vector<Expr>& fetches) {
  auto session = ClientSession::create(root);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  return session->run({}, fetches).value();
}

TEST(Clipping, MovesValuesIntoARange) {
  Scope root = Scope::make_root();
  Expr clipped = clip_by_value(root, vec(root, {-3, 0.5, 7}), -1, 2);
  Gradient slices = clip_by_value(root, rows(root, vec(root, {-3, 7})), -1, 2);
  EXPECT_TRUE(slices.is_slices());
  EXPECT_FALSE(clip_by_value(root, Gradient(), -1, 2).valid());
  auto out = run(root, {clipped, slices.values, slices.indices});
  EXPECT_TRUE(bit_equal(out[0], Tensor::vector<double>({-1, 0.5, 2})));
  EXPECT_TRUE(bit_equal(out[1], Tensor::vector<double>({-1, 2})));
  EXPECT_TRUE(bit_equal(out[2], Tensor::vector<int64_t>({4, 4})));
}

TEST(Clipping, ScalesDownToANorm) {
  Scope root = Scope::make_root();
  Gradient slices = clip_by_norm(root, rows(root, vec(root, {6, 8})), 5);
  EXPECT_TRUE(slices.is_slices());
  auto out =
      run(root, {clip_by_norm(root, vec(root, {3, 4}), 1), clip_by_norm(root, vec(root, {3, 4}), 6),
                 clip_by_norm(root, vec(root, {0, 0}), 1), slices.values});
  EXPECT_NEAR(out[0].data<double>()[0], 0.6, 1e-15);
  EXPECT_NEAR(out[0].data<double>()[1], 0.8, 1e-15);
  EXPECT_TRUE(bit_equal(out[1], Tensor::vector<double>({3, 4})));
  EXPECT_TRUE(bit_equal(out[2], Tensor::vector<double>({0, 0})));
  EXPECT_NEAR(out[3].data<double>()[1], 4, 1e-15);
}

TEST(Clipping, ScalesAllGradientsByOneFactor) {
  Scope root = Scope::make_root();
  std::vector<VariableGradient> given = {{{vec(root, {3}), {}, {}}, nullptr},
                                         {{}, nullptr},
                                         {rows(root, vec(root, {4, 12})), nullptr}};
  auto less = clip_by_global_norm(root, given, 6.5), all = clip_by_global_norm(root, given, 14);
  ASSERT_EQ(less.size(), 3u);
  EXPECT_FALSE(less[1].gradient.valid());
  EXPECT_TRUE(less[2].gradient.is_slices());
  auto out = run(root, {global_norm(root, given), less[0].gradient.values, less[2].gradient.values,
                        all[2].gradient.values});
  EXPECT_EQ(out[0].item<double>(), 13);
  EXPECT_NEAR(out[1].item<double>(), 1.5, 1e-15);
  EXPECT_NEAR(out[2].data<double>()[1], 6, 1e-15);
  EXPECT_TRUE(bit_equal(out[3], Tensor::vector<double>({4, 12})));
}

TEST(Clipping, AnInfiniteNormSpoilsAllGradients) {
  Scope root = Scope::make_root();
  const double infinity = std::numeric_limits<double>::infinity();
  auto clipped = clip_by_global_norm(
      root, {{{vec(root, {1}), {}, {}}, nullptr}, {{vec(root, {infinity}), {}, {}}, nullptr}}, 1);
  auto out = run(root, {clipped[0].gradient.values});
  EXPECT_TRUE(std::isnan(out[0].item<double>()));
}

TEST(Clipping, RefusesANormThatIsNotPositive) {
  Scope root = Scope::make_root();
  EXPECT_FALSE(clip_by_norm(root, vec(root, {1}), 0).valid());
  EXPECT_EQ(root.status().code(), Code::kInvalidArgument);
  Scope other = Scope::make_root();
  EXPECT_TRUE(clip_by_global_norm(other, {}, -1).empty());
  EXPECT_EQ(other.status().code(), Code::kInvalidArgument);
  Scope none = Scope::make_root();
  EXPECT_FALSE(global_norm(none, {}).valid());
  EXPECT_EQ(none.status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
