// test-labels: threads
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/api/optimizers.h"
#include "tests/simulated_backend_testing.h"

// Programs on a device whose kernels only enqueue, in memory of its own, give the CPU's bits.

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;

// What is hard about such a device: a shape that is computed, a loop and a branch that elements on
// the device decide, outputs whose size depends on them, and variables that change.
class Model {
 public:
  Model() : variables_(root_) {
    x_ = ops::placeholder(root_, DType::kFloat);
    weights_ =
        &variables_.get(root_, "weights", {3, 4}, DType::kFloat, initializers::uniform(-1, 1));
    Expr h = ops::mat_mul(root_, x_, weights_->read(root_));
    Expr rows = ops::floor_div(root_, ops::size(root_, h), root_.constant(2));
    Expr reshaped = ops::reshape(root_, h, ops::pack(root_, {rows, root_.constant(2)}));
    Exprs grown = while_loop(
        root_, {root_.constant(0), reshaped},
        [&](const Scope& s, const Exprs& v) {
          return ops::less(s, ops::l2loss(s, v[1]), s.constant(100.0F));
        },
        [&](const Scope& s, const Exprs& v) {
          return Exprs{ops::add(s, v[0], s.constant(1)), ops::mul(s, v[1], s.constant(1.5F))};
        },
        {.shape_invariants = {PartialShape(Shape{}), PartialShape::of_rank(2)}});
    steps_ = grown[0];
    big_ = ops::where(root_, ops::greater(root_, grown[1], root_.constant(1.0F)));
    Expr odd =
        ops::equal(root_, ops::floor_mod(root_, steps_, root_.constant(2)), root_.constant(1));
    loss_ = cond(
        root_, odd, [&](const Scope& s) { return ops::l2loss(s, ops::tanh(s, grown[1])); },
        [&](const Scope& s) { return ops::l2loss(s, grown[1]); });
    Adam adam(variables_, 0.1);
    train_ = adam.minimize(root_, loss_);
    EXPECT_TRUE(root_.status().ok()) << root_.status().to_string();
  }

  // What four steps of training fetch, and the weights after them.
  Result<std::vector<Tensor>> train(const SessionOptions& options) {
    MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root_, options));
    MR_TRY(session.run({}, {}, {variables_.initialize()}).status());
    std::vector<Tensor> all;
    for (int rows : {2, 4, 2, 6}) {
      MR_TRY_ASSIGN(Tensor batch, Tensor::allocate(DType::kFloat, {rows, 3}));
      for (size_t i = 0; i < batch.data<float>().size(); ++i) {
        batch.mutable_data<float>()[i] = 0.25F * static_cast<float>(i) - 0.5F;
      }
      MR_TRY_ASSIGN(std::vector<Tensor> out,
                    session.run({{x_, batch}}, {steps_, big_, loss_}, {train_}));
      all.insert(all.end(), out.begin(), out.end());
    }
    MR_TRY_ASSIGN(std::vector<Tensor> last, session.run({}, {weights_->read(root_)}));
    all.push_back(last[0]);
    return all;
  }

 private:
  Scope root_ = Scope::make_root();
  Variables variables_;
  Variable* weights_ = nullptr;
  Expr x_, steps_, big_, loss_;
  Operation train_;
};

TEST(SimulatedDeviceTest, TrainsToTheBitsOfTheCpu) {
  Model model;
  Result<std::vector<Tensor>> expected = model.train({});
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  for (int level : {0, 1}) {
    SessionOptions options = on_simulated_device();
    options.optimizer_level = level;
    Result<std::vector<Tensor>> got = model.train(options);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    ASSERT_EQ(got->size(), expected->size());
    for (size_t i = 0; i < got->size(); ++i) {
      EXPECT_TRUE(bit_equal((*got)[i], (*expected)[i]))
          << i << ": " << (*got)[i].to_string() << " instead of " << (*expected)[i].to_string();
    }
    // It was there that it ran.
    EXPECT_GT(last_simulated_device()->log().size(), 100u);
  }
}

TEST(SimulatedDeviceTest, ErrorsOnTheDeviceAreTheRuns) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat);
  Expr checked = ops::check_numerics(root, x, "late");
  Expr y = ops::add(root, checked, checked);
  Result<ClientSession> session = ClientSession::create(root, on_simulated_device());
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  // Its shape is known at once, so the kernel is long called when the work fails.
  Result<std::vector<Tensor>> bad = session->run({{x, Tensor::scalar<float>(NAN)}}, {y});
  EXPECT_EQ(bad.status().code(), Code::kInvalidArgument);
  EXPECT_NE(bad.status().message().find("late : Tensor had NaN"), std::string_view::npos)
      << bad.status().to_string();
  // The session and the device go on.
  Result<std::vector<Tensor>> good = session->run({{x, Tensor::scalar<float>(1)}}, {y});
  ASSERT_TRUE(good.ok()) << good.status().to_string();
  EXPECT_EQ((*good)[0].item<float>(), 2);
  // A device that is lost ends every run that uses it.
  last_simulated_device()->stream()->fail(unavailable("it fell off the bus"));
  bad = session->run({{x, Tensor::scalar<float>(1)}}, {y});
  EXPECT_EQ(bad.status().code(), Code::kUnavailable) << bad.status().to_string();
}

}  // namespace
}  // namespace millrace
