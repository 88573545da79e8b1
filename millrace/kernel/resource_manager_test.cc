// test-labels: threads
#include "millrace/kernel/resource_manager.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

class Counter : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Counter";
  explicit Counter(int number, std::atomic<int>* ended = nullptr)
      : number_(number), ended_(ended) {}
  ~Counter() override {
    if (ended_ != nullptr) ++*ended_;
  }
  std::string describe() const override { return str_cat("Counter ", number_); }
  std::optional<Fill> fill() const override { return Fill{.size = number_, .capacity = 40}; }
  int number() const { return number_; }

 private:
  int number_;
  std::atomic<int>* ended_;
};

class Other : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Other";
  std::string describe() const override { return "Other"; }
};

TEST(ResourceManager, CreateLookupRemove) {
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  EXPECT_EQ(m->lookup<Counter>("c", "x").status().code(), Code::kNotFound);
  ASSERT_TRUE(m->create("c", "x", make_ref<Counter>(1)).ok());
  EXPECT_EQ(m->create("c", "x", make_ref<Counter>(2)).code(), Code::kAlreadyExists);
  EXPECT_EQ(m->lookup<Counter>("c", "x").value()->number(), 1);
  // Container, type and name are all part of the key.
  EXPECT_EQ(m->lookup<Counter>("d", "x").status().code(), Code::kNotFound);
  EXPECT_EQ(m->lookup<Counter>("c", "y").status().code(), Code::kNotFound);
  EXPECT_EQ(m->lookup<Other>("c", "x").status().code(), Code::kNotFound);
  ASSERT_TRUE(m->create("c", "x", make_ref<Other>()).ok());
  EXPECT_TRUE(m->remove<Counter>("c", "x").ok());
  EXPECT_EQ(m->remove<Counter>("c", "x").code(), Code::kNotFound);
  EXPECT_TRUE(m->lookup<Other>("c", "x").ok());
}

TEST(ResourceManager, MissingNamesContainerAndName) {
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  Status status = m->lookup<Counter>("box", "thing").status();
  EXPECT_NE(status.message().find("box/thing"), std::string_view::npos) << status.to_string();
}

TEST(ResourceManager, LivesWhileHeld) {
  std::atomic<int> ended{0};
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  ASSERT_TRUE(m->create("c", "x", make_ref<Counter>(1, &ended)).ok());
  Ref<Counter> held = m->lookup<Counter>("c", "x").value();
  m->clear();
  EXPECT_EQ(ended, 0);
  held = nullptr;
  EXPECT_EQ(ended, 1);
}

TEST(ResourceManager, ClearContainerAndList) {
  std::atomic<int> ended{0};
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(
        m->create(i % 2 == 0 ? "even" : "odd", str_cat(i), make_ref<Counter>(i, &ended)).ok());
  }
  m->clear_container("even");
  m->clear_container("no such");
  EXPECT_EQ(ended, 20);
  std::vector<ResourceManager::Entry> list = m->list();
  ASSERT_EQ(list.size(), 20u);
  EXPECT_EQ(list[0].container, "odd");
  EXPECT_EQ(list[0].type, "Counter");
  EXPECT_EQ(list[0].name, "1");
  EXPECT_EQ(list[0].description, "Counter 1");
  EXPECT_EQ(list[1].name, "11");
}

TEST(ResourceManager, ListTellsHowFull) {
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  ASSERT_TRUE(m->create("c", "x", make_ref<Counter>(3)).ok());
  ASSERT_TRUE(m->create("c", "x", make_ref<Other>()).ok());
  std::vector<ResourceManager::Entry> list = m->list();
  ASSERT_EQ(list.size(), 2u);
  ASSERT_TRUE(list[0].fill.has_value());
  EXPECT_EQ(list[0].fill->size, 3);
  EXPECT_EQ(list[0].fill->capacity, 40);
  EXPECT_FALSE(list[0].fill->closed);
  EXPECT_FALSE(list[1].fill.has_value());
}

TEST(ResourceManager, ClearSessionDropsWhatItHadToItself) {
  std::atomic<int> ended{0};
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  const auto add = [&](std::string_view container, std::string_view name) {
    ASSERT_TRUE(m->create(container, name, make_ref<Counter>(1, &ended)).ok());
  };
  add("a", ResourceManager::session_name("s1", "queue"));
  add("b", ResourceManager::session_name("s1", "queue"));
  add("a", ResourceManager::session_name("s12", "queue"));
  add("a", ResourceManager::session_name("s1_2", "queue"));
  add("a", "s1/queue");
  m->clear_session("s1");
  EXPECT_EQ(ended, 2);
  EXPECT_EQ(m->list().size(), 3u);
}

TEST(ResourceManager, FailedMakeLeavesNothing) {
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  Result<Ref<Counter>> made = m->lookup_or_create<Counter>(
      "c", "x", []() -> Result<Ref<Counter>> { return internal("no"); });
  EXPECT_EQ(made.status(), internal("no"));
  EXPECT_EQ(m->lookup<Counter>("c", "x").status().code(), Code::kNotFound);
  EXPECT_TRUE(
      m->lookup_or_create<Counter>("c", "x", [] { return Result(make_ref<Counter>(1)); }).ok());
}

// Making one resource may look up and make others.
TEST(ResourceManager, NoLockWhileMaking) {
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  Result<Ref<Counter>> made = m->lookup_or_create<Counter>("c", "x", [&]() -> Result<Ref<Counter>> {
    for (int i = 0; i < 64; ++i) {
      MR_TRY(m->create("c", str_cat("part", i), make_ref<Counter>(i)));
    }
    // Not yet there for others, but taken.
    EXPECT_EQ(m->lookup<Counter>("c", "x").status().code(), Code::kNotFound);
    EXPECT_EQ(m->create("c", "x", make_ref<Counter>(0)).code(), Code::kAlreadyExists);
    m->clear();
    return make_ref<Counter>(1);
  });
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(m->lookup<Counter>("c", "x").ok());
  EXPECT_EQ(m->list().size(), 1u);
}

TEST(ResourceManagerThreads, MadeOnce) {
  for (int round = 0; round < 100; ++round) {
    Ref<ResourceManager> m = make_ref<ResourceManager>();
    std::atomic<int> made{0};
    std::vector<Ref<Counter>> got(4);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < got.size(); ++i) {
      threads.emplace_back([&, i] {
        got[i] = m->lookup_or_create<Counter>("c", "x", [&] {
                    return Result(make_ref<Counter>(++made));
                  }).value();
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(made, 1);
    for (const Ref<Counter>& counter : got) EXPECT_EQ(counter, got[0]);
  }
}

TEST(ResourceManagerThreads, WaitersSeeAFailureAndTryThemselves) {
  for (int round = 0; round < 100; ++round) {
    Ref<ResourceManager> m = make_ref<ResourceManager>();
    std::atomic<int> calls{0};
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        auto make = [&]() -> Result<Ref<Counter>> {
          if (++calls == 1) return internal("the first fails");
          return make_ref<Counter>(1);
        };
        if (!m->lookup_or_create<Counter>("c", "x", make).ok()) ++failures;
      });
    }
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(failures, 1);
    EXPECT_EQ(calls, 2);
  }
}

TEST(ResourceManagerThreads, AllAtOnce) {
  Ref<ResourceManager> m = make_ref<ResourceManager>();
  std::atomic<int> ended{0};
  std::atomic<int> made{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 500; ++i) {
        std::string name = str_cat(i % 7);
        auto counter = m->lookup_or_create<Counter>("c", name, [&] {
          ++made;
          return Result(make_ref<Counter>(i, &ended));
        });
        EXPECT_TRUE(counter.ok());
        if (i % 5 == t) (void)m->remove<Counter>("c", name);
        if (i % 97 == 0) m->clear_container("c");
        if (i % 89 == 0) (void)m->list();
      }
    });
  }
  for (std::thread& t : threads) t.join();
  m->clear();
  EXPECT_EQ(ended, made);
}

}  // namespace
}  // namespace millrace
