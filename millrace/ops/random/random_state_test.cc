// test-labels: threads

#include "millrace/ops/random/random_state.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool kRegistered = register_for_tests({register_random_ops});

TEST(RandomState, ThreadsGetDifferentParts) {
  constexpr size_t kThreads = 4, kRuns = 500;
  const Ref<RandomState> state = make_ref<RandomState>(Philox(1, 2));
  std::vector<std::vector<Philox::Block>> blocks(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < kRuns; ++i) blocks[t].push_back(state->reserve(1).next());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<Philox::Block> drawn;
  for (const auto& part : blocks) drawn.insert(part.begin(), part.end());
  // Together they are the stream from its beginning.
  std::set<Philox::Block> expected;
  Philox stream(1, 2);
  for (size_t i = 0; i < kThreads * kRuns; ++i) expected.insert(stream.next());
  EXPECT_EQ(drawn, expected);
}

// Ops with state, in a session of their own.
class Ops {
 public:
  Tensor uniform(std::string_view name, int64_t seed = 0) {
    OpTester op(env_, "RandomUniform");
    op.name(name).attr("dtype", DType::kFloat).attr("seed", seed);
    return op.input(Tensor::vector<int32_t>({5})).run_one().value();
  }
  // What the sampler expects of the class that it was shown.
  float learned(std::string_view name) {
    OpTester op(env_, "LearnedUnigramCandidateSampler");
    op.name(name).attr("num_true", 1).attr("num_sampled", 1).attr("unique", false);
    op.attr("range_max", 5).input(Tensor::of<int64_t>({1, 1}, {2}));
    return op.run().value()[1].data<float>()[0];
  }
  std::string save() const { return save_op_states(env_.resources(), kPrefix); }
  Status restore(std::string_view saved) {
    return restore_op_states(env_.resources(), kPrefix, saved);
  }

 private:
  const std::string kPrefix = ResourceManager::session_name("test", "");
  OpEnv env_;
};

TEST(SavedRandomStates, AnotherSessionGoesOn) {
  Ops first;
  (void)first.uniform("seeded", 7);
  (void)first.uniform("scope/any");
  (void)first.learned("sampler");
  const std::string saved = first.save();
  Ops second;
  (void)second.uniform("seeded", 7);
  (void)second.uniform("seeded", 7);
  const Tensor begins = Ops().uniform("only_here", 3);
  (void)second.uniform("only_here", 3);
  ASSERT_TRUE(second.restore(saved).ok());
  EXPECT_EQ(second.save(), saved);
  EXPECT_TRUE(bit_equal(second.uniform("seeded", 7), first.uniform("seeded", 7)));
  EXPECT_TRUE(bit_equal(second.uniform("scope/any"), first.uniform("scope/any")));
  EXPECT_FLOAT_EQ(second.learned("sampler"), 2.0F / 6);
  EXPECT_TRUE(bit_equal(second.uniform("only_here", 3), begins));
  ASSERT_TRUE(second.restore("").ok());
  EXPECT_EQ(second.save(), "");
}

TEST(SavedRandomStates, StatesOfFunctionsAreApart) {
  OpEnv env;
  const auto put = [&](std::string_view session) {
    const std::string name = ResourceManager::session_name(session, "rng");
    MR_CHECK_OK(make_ref<RandomState>(Philox(1, 2))->install(env.resources(), name));
  };
  const std::string f = function_session("test", function_scope("f", {}));
  put("test");
  put(f);
  put(function_session("test", function_scope("f", {{"T", DType::kFloat}})));
  const auto saved = [&](std::string_view session) {
    return save_op_states(env.resources(), ResourceManager::session_name(session, ""));
  };
  EXPECT_EQ(saved("test"), saved(f));
  ASSERT_TRUE(restore_op_states(env.resources(), ResourceManager::session_name(f, ""), "").ok());
  EXPECT_EQ(saved(f), "");
  EXPECT_NE(saved("test"), "");
  env.resources().clear_session("test");
  EXPECT_TRUE(env.resources().list().empty());
}

TEST(SavedRandomStates, DamageIsAnsweredAndChangesNothing) {
  Ops ops;
  (void)ops.uniform("a", 7);
  (void)ops.uniform("b", 8);
  (void)ops.learned("c");
  const std::string saved = ops.save();
  const auto expect_answer = [&](const std::string& bytes) {
    const Status status = ops.restore(bytes);
    if (status.ok()) {
      (void)ops.uniform("a", 7);
      (void)ops.learned("c");
      ASSERT_TRUE(ops.restore(saved).ok());
      return;
    }
    EXPECT_TRUE(status.code() == Code::kDataLoss || status.code() == Code::kInvalidArgument)
        << status.to_string();
    EXPECT_EQ(ops.save(), saved);
  };
  for (size_t at = 0; at < saved.size(); ++at) {
    expect_answer(saved.substr(0, at));
    for (const int flip : {0x01, 0x10, 0x80, 0xFF}) {
      std::string damaged = saved;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      expect_answer(damaged);
    }
  }
  expect_answer(saved + saved.substr(1));  // names twice
}

}  // namespace
}  // namespace millrace
