// test-labels: threads

#include "millrace/io/background_saves.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace millrace {
namespace {

TEST(BackgroundSavesTest, OneNameComesInOrder) {
  BackgroundSaves& saves = BackgroundSaves::global();
  std::vector<int> order;  // only one save of a name runs at a time
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(saves
                    .start("a",
                           [&order, i] {
                             order.push_back(i);
                             return ok_status();
                           })
                    .ok());
  }
  ASSERT_TRUE(saves.finish("a").ok());
  ASSERT_EQ(order.size(), 50U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(BackgroundSavesTest, ManyThreadsAndNames) {
  BackgroundSaves& saves = BackgroundSaves::global();
  std::atomic<int> running = 0;
  std::atomic<int> done = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 30; ++i) {
        MR_CHECK_OK(saves.start(str_cat("name", (t + i) % 6), [&] {
          EXPECT_LE(++running, BackgroundSaves::kMostUnfinished);
          --running;
          ++done;
          return ok_status();
        }));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  saves.finish_all();
  EXPECT_EQ(done, 120);
}

TEST(BackgroundSavesTest, WhoWaitsAnswersCancellation) {
  BackgroundSaves& saves = BackgroundSaves::global();
  std::atomic<bool> open = false;
  for (int i = 0; i < BackgroundSaves::kMostUnfinished; ++i) {
    ASSERT_TRUE(saves
                    .start("held",
                           [&] {
                             open.wait(false);
                             return ok_status();
                           })
                    .ok());
  }
  const std::function<Status(CancellationToken*)> waits[] = {
      [&](CancellationToken* cancel) { return saves.finish("held", cancel); },
      [&](CancellationToken* cancel) { return saves.take_error("held", cancel); },
      [&](CancellationToken* cancel) {
        return saves.start("x", [] { return ok_status(); }, cancel);
      }};
  for (const auto& wait : waits) {
    const Ref<CancellationToken> token = make_ref<CancellationToken>();
    std::thread other([&] { token->cancel(cancelled("enough")); });
    EXPECT_EQ(wait(token.get()).code(), Code::kCancelled);
    other.join();
  }
  open = true;
  open.notify_all();
  saves.finish_all();
}

TEST(BackgroundSavesTest, TheFirstErrorIsTold) {
  BackgroundSaves& saves = BackgroundSaves::global();
  for (const char* message : {"first", "second"}) {
    ASSERT_TRUE(saves.start("bad", [message] { return data_loss(message); }).ok());
  }
  EXPECT_EQ(saves.take_error("bad").message(), "first");
  EXPECT_TRUE(saves.take_error("bad").ok());
  EXPECT_TRUE(saves.take_error("other").ok());
}

// The child has none of the threads, and does not wait for them.
TEST(BackgroundSavesTest, AForkedChildHasNone) {
  BackgroundSaves& saves = BackgroundSaves::global();
  std::atomic<bool> open = false;
  ASSERT_TRUE(saves
                  .start("held",
                         [&] {
                           open.wait(false);
                           return ok_status();
                         })
                  .ok());
  const pid_t child = fork();
  if (child == 0) {
    const Status status = saves.start("held", [] { return ok_status(); });
    saves.finish_all();
    _exit(status.code() == Code::kFailedPrecondition ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  open = true;
  open.notify_all();
  ASSERT_TRUE(saves.finish("held").ok());
}

TEST(BackgroundSavesDeathTest, TheProcessEndsWhenTheyHave) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        MR_CHECK_OK(BackgroundSaves::global().start("last", [] {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          std::fputs("saved", stderr);
          return ok_status();
        }));
        std::exit(0);
      },
      testing::ExitedWithCode(0), "saved");
}

}  // namespace
}  // namespace millrace
