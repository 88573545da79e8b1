// test-labels: threads
#include "millrace/session/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace millrace {
namespace {

class Sized : public Executable {
 public:
  explicit Sized(int64_t bytes) : bytes_(bytes) {}
  void run_async(Ref<Step> step, Step::Done done) const override {
    step->begin(0, std::move(done));
  }
  Result<Ref<PartialRun>> start_partial(Ref<Step>, Step::Done) const override {
    return unimplemented("no partial runs");
  }
  bool straight(Gear) const override { return false; }
  Status run_straight(Step&) const override { return ok_status(); }
  bool has_blocking() const override { return false; }
  std::string to_string() const override { return "Sized"; }
  int64_t bytes() const override { return bytes_; }

 private:
  const int64_t bytes_;
};

Signature fetching(const std::string& name) { return {.fetches = {name}}; }

Result<Ref<Prepared>> prepared_of(int64_t bytes) {
  Ref<Prepared> prepared = make_ref<Prepared>();
  prepared->executable = make_ref<Sized>(bytes);
  return prepared;
}

TEST(PlanCache, DropsWhatWasUsedLongestAgo) {
  PlanCache cache(100);
  int built = 0;
  auto get = [&](int i) {
    EXPECT_TRUE(cache
                    .find_or_build(fetching(std::to_string(i)),
                                   [&] {
                                     ++built;
                                     return prepared_of(10);
                                   })
                    .ok());
  };
  for (int i = 0; i < 10; ++i) get(i);
  EXPECT_EQ(cache.size(), 10u);
  get(0);
  get(10);  // 1 goes
  EXPECT_EQ(cache.size(), 10u);
  EXPECT_EQ(built, 11);
  get(0);
  EXPECT_EQ(built, 11);
  get(1);
  EXPECT_EQ(built, 12);
}

TEST(PlanCache, KeepsAFewHoweverLarge) {
  PlanCache cache(100);
  for (size_t i = 0; i < 3 * PlanCache::kAlwaysKept; ++i) {
    ASSERT_TRUE(
        cache.find_or_build(fetching(std::to_string(i)), [] { return prepared_of(1000); }).ok());
  }
  EXPECT_EQ(cache.size(), PlanCache::kAlwaysKept);
}

TEST(PlanCache, AnErrorIsNotKept) {
  PlanCache cache(100);
  EXPECT_EQ(cache
                .find_or_build(fetching("a"),
                               []() -> Result<Ref<Prepared>> { return not_found("no a yet"); })
                .status()
                .code(),
            Code::kNotFound);
  EXPECT_TRUE(cache.find_or_build(fetching("a"), [] { return prepared_of(1); }).ok());
}

TEST(PlanCache, IsBuiltOnceThoughManyAsk) {
  PlanCache cache(1 << 20);
  std::atomic<int> built{0}, asked{0};
  constexpr int kThreads = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      asked.fetch_add(1);
      Result<Ref<Prepared>> got = cache.find_or_build(fetching("a"), [&] {
        built.fetch_add(1);
        while (asked.load() < kThreads) std::this_thread::yield();
        return prepared_of(1);
      });
      EXPECT_TRUE(got.ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(built.load(), 1);
}

}  // namespace
}  // namespace millrace
