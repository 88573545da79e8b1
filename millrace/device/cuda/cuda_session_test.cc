// Sessions with a GPU: programs train to the losses of the CPU, and what goes wrong is an error of
// one run.

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <set>
#include <thread>

#include "millrace/api/client_session.h"
#include "millrace/api/initializers.h"
#include "millrace/api/ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/device/cuda/cuda_testing.h"

namespace millrace {
namespace {

class CudaSession : public testing::Test {
 protected:
  void SetUp() override {
    set_gpu_library(millrace_gpu_library(GpuLibrary::kVersion));
    MR_SKIP_WITHOUT_GPU();
  }
};

SessionOptions cpu_only() {
  SessionOptions options;
  options.gpu.count = 0;
  return options;
}
SessionOptions with_gpu() {
  SessionOptions options;
  options.soft_placement = true;
  return options;
}

Tensor random_images(const Shape& shape) {
  std::mt19937 random(1);
  Tensor out = Tensor::allocate(DType::kFloat, shape).value();
  for (float& v : out.mutable_data<float>()) v = static_cast<float>(random() % 1000) / 1000.0F;
  return out;
}

// A network in the large: convolution, bias, pool, product, softmax, and an optimiser.
struct Network {
  Network(bool convolutions, bool adam) : variables(root) {
    x = ops::placeholder(root, DType::kFloat);
    labels = ops::placeholder(root, DType::kInt32);
    const auto variable = [&](const char* name, const Shape& shape, double deviation) {
      const float d = static_cast<float>(deviation);
      return variables.get(root, name, shape, DType::kFloat, initializers::uniform(-d, d, 3))
          .read(root);
    };
    Expr h = x;
    int64_t features = 12 * 12 * 3;
    if (convolutions) {
      h = ops::reshape(root, h, root.constant(Tensor::vector<int32_t>({-1, 12, 12, 3})));
      h = ops::conv2d(root, h, variable("filter", {5, 5, 3, 8}, 0.2), {1, 2, 2, 1}, "SAME");
      h = ops::relu(root, ops::bias_add(root, h, variable("bias0", {8}, 0.1)));
      h = ops::max_pool(root, h, {1, 3, 3, 1}, {1, 2, 2, 1}, "SAME");
      h = ops::reshape(root, h, root.constant(Tensor::vector<int32_t>({-1, 72})));
      features = 72;
    }
    h = ops::mat_mul(root, h, variable("weights1", {features, 32}, 0.1));
    h = ops::relu(root, ops::bias_add(root, h, variable("bias1", {32}, 0.1)));
    h = ops::mat_mul(root, h, variable("weights2", {32, 10}, 0.3));
    const Expr each = ops::sparse_softmax_cross_entropy_with_logits(root, h, labels).loss;
    loss = ops::mean(root, each, root.constant(0));
    if (adam) {
      train = Adam(variables, 0.01).minimize(root, loss);
    } else {
      train = GradientDescent(variables, 0.1).minimize(root, loss);
    }
    EXPECT_TRUE(root.status().ok()) << root.status().to_string();
  }

  Result<std::vector<float>> losses(const SessionOptions& options, int steps) {
    MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root, options));
    MR_TRY(session.run({}, {}, {variables.initialize()}).status());
    const Tensor images = random_images({16, 12 * 12 * 3});
    Tensor classes = Tensor::allocate(DType::kInt32, Shape{16}).value();
    for (int32_t i = 0; i < 16; ++i)
      classes.mutable_data<int32_t>()[static_cast<size_t>(i)] = i % 10;
    std::vector<float> losses;
    for (int i = 0; i < steps; ++i) {
      MR_TRY_ASSIGN(std::vector<Tensor> out,
                    session.run({{x, images}, {labels, classes}}, {loss}, {train}));
      losses.push_back(out[0].item<float>());
    }
    return losses;
  }

  Scope root = Scope::make_root();
  Variables variables;
  Expr x, labels, loss;
  Operation train;
};

TEST_F(CudaSession, TrainsToTheLossesOfTheCpu) {
  for (bool convolutions : {false, true}) {
    for (bool adam : {false, true}) {
      SCOPED_TRACE(str_cat(convolutions ? "convolutions" : "matrices", adam ? ", Adam" : ""));
      Network network(convolutions, adam);
      const int steps = convolutions && adam ? 20 : 50;
      Result<std::vector<float>> cpu = network.losses(cpu_only(), steps);
      ASSERT_TRUE(cpu.ok()) << cpu.status().to_string();
      Result<std::vector<float>> gpu = network.losses(with_gpu(), steps);
      ASSERT_TRUE(gpu.ok()) << gpu.status().to_string();
      EXPECT_LT(cpu->back(), cpu->front());
      for (size_t i = 0; i < cpu->size(); ++i) {
        EXPECT_NEAR((*gpu)[i], (*cpu)[i], 2e-3 * (*cpu)[i]) << "step " << i;
      }
      // And to the same bits again.
      Result<std::vector<float>> again = network.losses(with_gpu(), steps);
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      EXPECT_EQ(*again, *gpu);
    }
  }
}

TEST_F(CudaSession, TrainsWithMixedPrecision) {
  for (const DType type : {DType::kHalf, DType::kBFloat16}) {
    SCOPED_TRACE(dtype_name(type));
    Network network(/*convolutions=*/true, /*adam=*/false);
    SessionOptions mixed = with_gpu();
    mixed.gpu_precision = type;
    const Result<std::vector<float>> own = network.losses(with_gpu(), 10);
    const Result<std::vector<float>> low = network.losses(mixed, 10);
    ASSERT_TRUE(own.ok()) << own.status().to_string();
    ASSERT_TRUE(low.ok()) << low.status().to_string();
    EXPECT_NE(*low, *own);
    for (size_t i = 0; i < own->size(); ++i) {
      EXPECT_NEAR((*low)[i], (*own)[i], 0.03 * (*own)[i]) << "step " << i;
    }
  }
}

TEST_F(CudaSession, ErrorsEndOneRun) {
  Scope root = Scope::make_root();
  const Expr params = ops::placeholder(root, DType::kFloat);
  const Expr indices = ops::placeholder(root, DType::kInt32);
  const Expr y = ops::neg(root, ops::gather(root, params, indices));
  Result<ClientSession> session = ClientSession::create(root, with_gpu());
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  const Tensor rows = Tensor::vector<float>({1, 2, 3});
  const auto run = [&](int32_t index) {
    return session->run({{params, rows}, {indices, Tensor::scalar(index)}}, {y});
  };
  const Status bad = run(5).status();
  EXPECT_EQ(bad.code(), Code::kInvalidArgument);
  EXPECT_NE(bad.to_string().find("is not in [0, 3)"), std::string::npos) << bad.to_string();
  Result<std::vector<Tensor>> good = run(1);
  ASSERT_TRUE(good.ok()) << good.status().to_string();
  EXPECT_EQ((*good)[0].item<float>(), -2);
}

TEST_F(CudaSession, OutOfMemoryEndsOneRun) {
  Scope root = Scope::make_root();
  const Expr size = ops::placeholder(root, DType::kInt32);
  const Expr y = ops::mean(root, ops::fill(root, size, root.constant(2.0F)), root.constant(0));
  SessionOptions options = with_gpu();
  options.gpu.virtual_megabytes = {{64}};
  Result<ClientSession> session = ClientSession::create(root, options);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  const auto run = [&](int32_t n) {
    return session->run({{size, Tensor::vector<int32_t>({n})}}, {y});
  };
  const Status bad = run(100 << 20).status();
  EXPECT_EQ(bad.code(), Code::kResourceExhausted) << bad.to_string();
  EXPECT_NE(bad.to_string().find("OOM"), std::string::npos) << bad.to_string();
  Result<std::vector<Tensor>> good = run(1 << 20);
  ASSERT_TRUE(good.ok()) << good.status().to_string();
  EXPECT_EQ((*good)[0].item<float>(), 2);
}

TEST_F(CudaSession, PlacesOpsWhereTheyAreAskedFor) {
  Scope root = Scope::make_root();
  const Expr x = ops::placeholder(root, DType::kFloat);
  const Expr there = ops::mul(root.with_device("/gpu:0"), x, x);
  const Expr here = ops::add(root.with_device("/cpu:0"), there, x);
  Result<ClientSession> session = ClientSession::create(root, SessionOptions());
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Result<std::vector<Tensor>> out =
      session->run({{x, Tensor::vector<float>({1, 2, 3})}}, {here, there});
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_TRUE(bit_equal((*out)[0], Tensor::vector<float>({2, 6, 12})));
  EXPECT_TRUE(bit_equal((*out)[1], Tensor::vector<float>({1, 4, 9})));
}

// Runs that the device records, once that pays.
class RecordedRun : public CudaSession {
 protected:
  // What Session::explain tells last of runs: of the plan for the shapes of feeds, where there is
  // one. "recorded: 5 runs by 1 recordings".
  static std::string history(ClientSession& session, const Signature& signature) {
    Result<std::string> text = session.session().explain(signature);
    EXPECT_TRUE(text.ok()) << text.status().to_string();
    const size_t at = text.ok() ? text->rfind("recorded: ") : std::string::npos;
    if (at == std::string::npos) return "";
    const size_t begin = text->rfind('\n', at) + 1;
    return text->substr(begin, text->find('\n', at) - begin);
  }
  static bool is_recorded(const std::string& history) {
    return history.starts_with("recorded: ") && !history.starts_with("recorded: 0 runs");
  }
};

TEST_F(RecordedRun, GivesTheBitsOfOrdinaryOnes) {
  for (bool convolutions : {false, true}) {
    Network network(convolutions, true);
    SessionOptions ordinary = with_gpu();
    ordinary.record_runs = false;
    Result<std::vector<float>> expected = network.losses(ordinary, 50);
    ASSERT_TRUE(expected.ok()) << expected.status().to_string();
    Result<std::vector<float>> recorded = network.losses(with_gpu(), 50);
    ASSERT_TRUE(recorded.ok()) << recorded.status().to_string();
    EXPECT_EQ(*recorded, *expected);
  }
}

// A variable that grows by the sum of what is fed, and what is fed times its new value.
struct Growing {
  Growing() : variables(root) {
    x = ops::placeholder(root, DType::kFloat);
    variable = &variables.get(root, "v", Shape(), DType::kFloat, initializers::constant(1));
    const Operation grow = variable->assign_add(root, ops::sum(root, x, root.constant(0)));
    y = ops::mul(root, x, variable->read(root.with_control({grow})));
    set = variable->assign(root, root.constant(100.0F));
    EXPECT_TRUE(root.status().ok()) << root.status().to_string();
  }
  Scope root = Scope::make_root();
  Variables variables;
  Variable* variable = nullptr;
  Expr x, y;
  Operation set;
};

class RecordedShapes : public RecordedRun, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(WithPlansForThem, RecordedShapes, testing::Bool());

TEST_P(RecordedShapes, AndVariablesAreWhatItHoldsFor) {
  Growing program;
  SessionOptions options = with_gpu();
  options.shape_plans = GetParam();
  Result<ClientSession> session = ClientSession::create(program.root, options);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  ASSERT_TRUE(session->run({}, {}, {program.variables.initialize()}).ok());
  const Signature signature{.feeds = {program.root.name_of(program.x)},
                            .fetches = {program.root.name_of(program.y)}};
  float v = 1;
  const auto run = [&](const std::vector<float>& x) {
    Result<std::vector<Tensor>> out =
        session->run({{program.x, Tensor::vector(std::span<const float>(x))}}, {program.y});
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    for (float f : x) v += f;
    ASSERT_EQ((*out)[0].num_elements(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ((*out)[0].data<float>()[i], x[i] * v);
  };
  const auto until_recorded = [&] {
    for (int i = 0; i < 1000 && !is_recorded(history(*session, signature)); ++i) run({1, 2, 3});
    EXPECT_TRUE(is_recorded(history(*session, signature))) << history(*session, signature);
  };
  until_recorded();
  run({1, 2});
  run({1, 2});
  run({1, 2, 3});
  for (int i = 0; i < 40; ++i) run({1, 2});
  run({4, 5, 6});
  // Another value lies elsewhere, or not: it is the one that counts.
  ASSERT_TRUE(session->run({}, {}, {program.set}).ok());
  v = 100;
  for (int i = 0; i < 50; ++i) run({1, 0, 0});
  ASSERT_TRUE(session->run({}, {}, {program.variables.initialize()}).ok());
  v = 1;
  for (int i = 0; i < 50; ++i) run({0, 1, 0});
  until_recorded();
}

TEST_F(RecordedRun, OfManyThreadsLosesNoUpdate) {
  Growing program;
  Result<ClientSession> session = ClientSession::create(program.root, with_gpu());
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  ASSERT_TRUE(session->run({}, {}, {program.variables.initialize()}).ok());
  constexpr int kThreads = 3, kRuns = 100;
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRuns; ++i) {
        failures += !session->run({{program.x, Tensor::vector<float>({1, 1})}}, {program.y}).ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  Result<std::vector<Tensor>> out =
      session->run({{program.x, Tensor::vector<float>({0, 1})}}, {program.y});
  ASSERT_TRUE(out.ok()) << out.status().to_string();
  EXPECT_EQ((*out)[0].data<float>()[1], 1 + kThreads * kRuns * 2 + 1);
}

TEST_F(RecordedRun, TellsWhatTheDeviceFinds) {
  Scope root = Scope::make_root();
  const Expr params = ops::placeholder(root, DType::kFloat);
  const Expr indices = ops::placeholder(root, DType::kInt32);
  const Expr y = ops::neg(root.sub_scope("looked_up"), ops::gather(root, params, indices));
  Result<ClientSession> session = ClientSession::create(root, with_gpu());
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  const Tensor rows = Tensor::vector<float>({1, 2, 3});
  const auto run = [&](int32_t index) {
    return session->run({{params, rows}, {indices, Tensor::scalar(index)}}, {y});
  };
  const Signature signature{.feeds = {root.name_of(params), root.name_of(indices)},
                            .fetches = {root.name_of(y)}};
  for (int i = 0; i < 1000 && !is_recorded(history(*session, signature)); ++i) {
    ASSERT_TRUE(run(1).ok());
  }
  EXPECT_TRUE(is_recorded(history(*session, signature))) << history(*session, signature);
  const Status bad = run(5).status();
  EXPECT_EQ(bad.code(), Code::kInvalidArgument);
  EXPECT_NE(bad.to_string().find("is not in [0, 3)"), std::string::npos) << bad.to_string();
  EXPECT_NE(bad.to_string().find("Gather"), std::string::npos) << bad.to_string();
  Result<std::vector<Tensor>> good = run(2);
  ASSERT_TRUE(good.ok()) << good.status().to_string();
  EXPECT_EQ((*good)[0].item<float>(), -3);
}

TEST_F(RecordedRun, IsNotMadeOfWhatHasStateOrIsRead) {
  Scope root = Scope::make_root();
  const Expr x = ops::placeholder(root, DType::kFloat);
  const Expr noise = ops::mul(
      root, x,
      ops::random_uniform(root, root.constant(Tensor::vector<int32_t>({3})), DType::kFloat));
  const Expr shape = ops::placeholder(root, DType::kInt32);
  const Expr filled = ops::fill(root, shape, root.constant(2.0F));
  Result<ClientSession> session = ClientSession::create(root, with_gpu());
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  EXPECT_NE(history(*session, {.feeds = {root.name_of(x)}, .fetches = {root.name_of(noise)}})
                .find("has state of its own"),
            std::string::npos);
  EXPECT_NE(history(*session, {.feeds = {root.name_of(shape)}, .fetches = {root.name_of(filled)}})
                .find("look at the elements"),
            std::string::npos);
  for (int32_t n : {3, 5, 3}) {
    for (int i = 0; i < 30; ++i) {
      Result<std::vector<Tensor>> out =
          session->run({{shape, Tensor::vector<int32_t>({n})}}, {filled});
      ASSERT_TRUE(out.ok()) << out.status().to_string();
      EXPECT_EQ((*out)[0].num_elements(), n);
    }
  }
  // New numbers in every run.
  std::set<float> seen;
  for (int i = 0; i < 40; ++i) {
    Result<std::vector<Tensor>> out =
        session->run({{x, Tensor::vector<float>({1, 1, 1})}}, {noise});
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    seen.insert((*out)[0].data<float>()[0]);
  }
  EXPECT_GT(seen.size(), 35u);
}

}  // namespace
}  // namespace millrace
