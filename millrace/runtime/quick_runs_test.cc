// test-labels: threads
// test-links: ops
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "millrace/base/spare_thread.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/runtime/executor_testing.h"

namespace millrace {
namespace {

// Runs that receive a number and fetch it, one more.
class QuickRuns : public testing::Test {
 protected:
  QuickRuns() {
    const std::string sender = "/job:a/replica:0/task:0/device:CPU:0";
    const std::string receiver = "/job:localhost/replica:0/task:0/device:CPU:0";
    key_ = RendezvousKey{sender, 1, receiver, "x", 0, 0}.to_string();
    Expr x = g_.builder().emit("_Recv", {},
                               {{"tensor_type", DType::kInt32},
                                {"tensor_name", "x"},
                                {"send_device", sender},
                                {"send_device_incarnation", int64_t{1}},
                                {"recv_device", receiver}})[0];
    g_.fetch(x + g_.constant(1), 0);
    plan_ = g_.plan().value();
  }

  // What each kernel took so far; 0: that is not known.
  void measured(uint32_t ns) {
    for (size_t i = 0; i < plan_->steps.size(); ++i) plan_->step_ns[i].store(ns);
  }
  // Whether a run ended on the thread that brought what it waited for.
  bool ends_where_it_was_brought() {
    const Ref<Step> step = Step::make_shared(1);
    std::atomic<std::thread::id> ended_on;
    step->fetches.resize(1);
    step->begin(1, [&](Step&) { ended_on = std::this_thread::get_id(); });
    run_parallel(plan_, step);
    SpareThread::run([&] {
      EXPECT_TRUE(step->rendezvous->send(key_, Value::of(Tensor::scalar<int32_t>(6))).ok());
      EXPECT_NE(ended_on.load(), std::this_thread::get_id()) << "from inside of send()";
    });
    EXPECT_TRUE(step->wait());
    EXPECT_TRUE(step->status().ok()) << step->status().to_string();
    EXPECT_EQ(step->fetches[0].item<int32_t>(), 7);
    return ended_on.load() == std::this_thread::get_id();
  }
  bool ever_ends_where_it_was_brought(uint32_t ns) {
    for (int i = 0; i < kTries; ++i) {
      measured(ns);
      if (ends_where_it_was_brought()) return true;
    }
    return false;
  }

  static constexpr int kTries = 100;
  TestGraph g_;
  std::string key_;
  Ref<Plan> plan_;
};

// But for when the thread was stopped for so long that it leaves the rest to others.
TEST_F(QuickRuns, GoOnOnTheThreadThatBroughtWhatTheyWaitFor) {
  EXPECT_TRUE(ever_ends_where_it_was_brought(100));
}

TEST_F(QuickRuns, AreNotThoseOfWhichNothingIsKnown) {
  EXPECT_FALSE(ever_ends_where_it_was_brought(0));
}

TEST_F(QuickRuns, AreNotThoseThatTakeLong) {
  EXPECT_FALSE(ever_ends_where_it_was_brought(SpareThread::kQuickNs + 1));
}

TEST_F(QuickRuns, AreNotThoseThatMayBlock) {
  plan_->has_blocking = true;
  EXPECT_FALSE(ever_ends_where_it_was_brought(100));
}

}  // namespace
}  // namespace millrace
