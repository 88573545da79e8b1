#include "millrace/api/moving_averages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "millrace/api/client_session.h"
#include "millrace/api/regularizers.h"

namespace millrace {
namespace {

TEST(ExponentialMovingAverage, FollowsItsVariable) {
  for (bool counted : {false, true}) {
    Scope root = Scope::make_root();
    Variables vars(root);
    Variable& v = vars.get(root, "v", {2}, DType::kDouble, initializers::normal(0, 1));
    Variable& steps = global_step(vars);
    ExponentialMovingAverage averages(vars, 0.9, counted ? &steps : nullptr);
    Operation grow = v.assign_add(root, root.constant(Tensor::vector<double>({1, 2})));
    EXPECT_EQ(averages.average(v), nullptr);
    Operation move = averages.apply(root.with_control({grow}));
    Operation count = steps.assign_add(root.with_control({move}), root.constant(int64_t{1}));
    ASSERT_TRUE(root.ok()) << root.status().to_string();
    ASSERT_NE(averages.average(v), nullptr);
    EXPECT_EQ(averages.average(v)->name, "v/ExponentialMovingAverage");
    EXPECT_EQ(vars.trainable(), std::vector<Variable*>{&v});
    Expr now = v.read(root), average = averages.average(v)->read(root);
    ClientSession session = ClientSession::create(root).value();
    ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
    auto out = session.run({}, {now, average}).value();
    EXPECT_TRUE(bit_equal(out[0], out[1]));
    double wanted = out[1].data<double>()[1], value = wanted;
    for (int n = 0; n < 5; ++n) {
      ASSERT_TRUE(session.run({}, {}, {count}).ok());
      double decay = counted ? std::min(0.9, (1.0 + n) / (10.0 + n)) : 0.9;
      value += 2;
      wanted = decay * wanted + (1 - decay) * value;
      EXPECT_NEAR(session.run({}, {average}).value()[0].data<double>()[1], wanted, 1e-12);
    }
  }
}

TEST(Regularizers, SumPenalties) {
  Scope root = Scope::make_root();
  Variables vars(root);
  vars.get(root, "a", {2}, DType::kDouble, initializers::constant(-3));
  vars.get(root, "b", {1}, DType::kDouble, initializers::constant(2));
  std::vector<Expr> losses = {
      regularization_loss(root, regularizers::l1(0.5), vars.all()),
      regularization_loss(root, regularizers::l2(0.5), vars.all()),
      regularization_loss(root, regularizers::l1_l2(0.5, 2), {vars.find("b")})};
  ClientSession session = ClientSession::create(root).value();
  ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
  auto out = session.run({}, losses).value();
  EXPECT_EQ(out[0].item<double>(), 0.5 * (3 + 3 + 2));
  EXPECT_EQ(out[1].item<double>(), 0.5 * (9 + 9 + 4) / 2);
  EXPECT_EQ(out[2].item<double>(), 0.5 * 2 + 2 * 4 / 2.0);
  EXPECT_FALSE(regularization_loss(root, regularizers::l2(1), {}).valid());
}

}  // namespace
}  // namespace millrace
