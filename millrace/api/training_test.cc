// Whole trainings.

#include <gtest/gtest.h>

#include "millrace/api/clipping.h"
#include "millrace/api/layers.h"
#include "millrace/api/losses.h"
#include "millrace/api/model_testing.h"
#include "millrace/api/moving_averages.h"
#include "millrace/api/optimizers.h"
#include "millrace/api/schedules.h"

namespace millrace {
namespace {

// The weights after 1,000 steps on random images, with everything that could depend on the order of
// threads: reductions, dropout, normalisation, rows, clipping.
std::vector<Tensor> train(int threads, Gear gear) {
  constexpr int64_t kBatch = 32, kSize = 8;
  Scope root = Scope::make_root();
  Variables vars(root, 3);
  Expr images = ops::placeholder(root, DType::kFloat, {.shape = {kBatch, kSize, kSize, 1}});
  Expr labels = ops::placeholder(root, DType::kInt32, {.shape = {kBatch}});
  Expr x = layers::conv2d(root, vars, "conv", images, 8, 3, {.activation = ops::relu});
  x = layers::batch_norm(root, vars, "norm", x, {.training = true});
  x = layers::max_pool2d(root, x, 2);
  x = layers::dropout(root, layers::flatten(root, x), 0.2, {.training = true});
  x = ops::add(root, layers::dense(root, vars, "hidden", x, 32, {.activation = ops::tanh}),
               layers::embedding(root, vars, "kind", labels, 5, 32));
  Expr loss =
      layers::softmax_cross_entropy(root, layers::dense(root, vars, "output", x, 5), labels);
  Variable& step = global_step(vars);
  Adam adam(vars, exponential_decay(root, 0.01, step.read(root), 100, 0.9));
  auto found = clip_by_global_norm(root, adam.compute_gradients(root, loss), 1.0);
  Operation applied = adam.apply_gradients(root, found, &step);
  ExponentialMovingAverage averages(vars, 0.99);
  Operation averaged = averages.apply(root.with_control({applied}));
  Operation all = ops::no_op(root.with_control(vars.updates()).with_control({averaged}));
  std::vector<Expr> values;
  for (Variable* v : vars.all()) values.push_back(v->read(root));

  SessionOptions options;
  options.threads = threads;
  options.gear = gear;
  auto session = ClientSession::create(root, options);
  EXPECT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_TRUE(session->run({}, {}, {vars.initialize()}).ok());
  auto run = session->make_callable({images, labels}, {loss}, {all}).value();
  std::vector<Tensor> out;
  for (int i = 0; i < 1000; ++i) {
    Tensor batch = Tensor::zeros(DType::kFloat, {kBatch, kSize, kSize, 1}).value();
    Tensor label = Tensor::zeros(DType::kInt32, {kBatch}).value();
    for (size_t k = 0; k < batch.data<float>().size(); ++k) {
      batch.mutable_data<float>()[k] =
          static_cast<float>(std::sin(i * 7.3 + static_cast<double>(k)));
    }
    for (int32_t k = 0; k < kBatch; ++k)
      label.mutable_data<int32_t>()[static_cast<size_t>(k)] = (i + k * k) % 5;
    EXPECT_TRUE(run->run(std::vector<Tensor>{batch, label}, out).ok());
  }
  EXPECT_TRUE(std::isfinite(out[0].item<float>()));
  return session->run({}, values).value();
}

TEST(Training, ThreadsDoNotChangeABitOfTheWeights) {
  const std::vector<Tensor> one = train(1, Gear::kAuto);
  for (int threads : {2, 8}) {
    const std::vector<Tensor> more = train(threads, Gear::kParallel);
    ASSERT_EQ(more.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_TRUE(bit_equal(one[i], more[i])) << threads << " threads, variable " << i;
    }
  }
}

TEST(Training, FitsALine) {
  ModelTester m;
  Expr x = m.input(Tensor::of<double>({4, 1}, {0, 1, 2, 3}));
  Expr y = m.input(Tensor::of<double>({4, 1}, {1, 3, 5, 7}));
  Expr loss = layers::mean_squared_error(m.root, layers::dense(m.root, m.vars, "line", x, 1), y);
  Operation step = Adam(m.vars, 0.1).minimize(m.root, loss);
  m.start();
  for (int i = 0; i < 500; ++i) ASSERT_TRUE(m.run(step).ok());
  EXPECT_NEAR(m.get("line/kernel").item<double>(), 2, 1e-2);
  EXPECT_NEAR(m.get("line/bias").item<double>(), 1, 1e-2);
}

}  // namespace
}  // namespace millrace
