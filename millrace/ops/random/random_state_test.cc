// test-labels: threads

#include "millrace/ops/random/random_state.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace millrace {
namespace {

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

}  // namespace
}  // namespace millrace
