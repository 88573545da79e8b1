#include "millrace/ops/queue/step_gate.h"

#include <gtest/gtest.h>

#include <limits>
#include <list>
#include <vector>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_queue_ops});

class StepGates : public testing::Test {
 protected:
  StepGates() { handle_ = OpTester(env_, "StepGate").run_one().value(); }
  // Who still waits holds on to the gate, and the gate to it.
  ~StepGates() override {
    for (const Ref<OpRun>& run : waits_) run->cancel();
  }

  OpTester& on(const char* op) { return testers_.emplace_back(env_, op).input(handle_); }
  static Tensor number(int64_t x) { return Tensor::scalar(x); }
  void reset(int64_t step, int64_t era = 0) {
    EXPECT_TRUE(on("StepGateReset").input(number(era)).input(number(step)).run().ok());
  }
  void open(int64_t step) { EXPECT_TRUE(on("StepGateOpen").input(number(step)).run().ok()); }
  void admit(int64_t step, int64_t count) {
    EXPECT_TRUE(on("StepGateAdmit").input(number(step)).input(number(count)).run().ok());
  }
  void leave(int64_t replicas, int64_t required) {
    OpTester& tester = on("StepGateLeave").input(number(replicas));
    EXPECT_TRUE(tester.input(number(required)).run().ok());
  }
  Ref<OpRun> wait(int64_t local_step, int64_t era = 0) {
    OpTester& tester = on("StepGateWait").input(number(era)).input(number(local_step));
    waits_.push_back(tester.start().value());
    return waits_.back();
  }
  static int64_t step(const Ref<OpRun>& run) {
    const Result<std::vector<Value>> values = run->wait();
    EXPECT_TRUE(values.ok()) << values.status().to_string();
    return values.ok() ? (*values)[0].tensor.item<int64_t>() : -1;
  }
  static void expect_closed(const Ref<OpRun>& run, std::string_view why) {
    const Status status = run->wait().status();
    EXPECT_EQ(status.code(), Code::kOutOfRange);
    EXPECT_NE(status.message().find(why), std::string_view::npos) << status.to_string();
  }

  OpEnv env_;
  std::list<OpTester> testers_;
  std::vector<Ref<OpRun>> waits_;
  Tensor handle_;
};

TEST_F(StepGates, AllGoThroughAndNobodyInAnothersPlace) {
  const Ref<OpRun> early = wait(0);
  EXPECT_FALSE(early->done()) << "a gate that was never set is at no step";
  reset(0);
  EXPECT_FALSE(early->done());
  const Ref<OpRun> other = wait(0);
  open(1);
  EXPECT_EQ(step(early), 1);
  EXPECT_EQ(step(other), 1);
  // The fast one is back before the slow one came to the gate.
  const Ref<OpRun> fast = wait(1);
  EXPECT_FALSE(fast->done());
  EXPECT_EQ(step(wait(0)), 1);
  EXPECT_FALSE(fast->done());
  open(2);
  EXPECT_EQ(step(fast), 2);
  EXPECT_EQ(step(wait(0)), 2) << "who was left behind goes on with the latest";
}

TEST_F(StepGates, SomeMayGoOnceMore) {
  reset(3);
  admit(3, 2);
  EXPECT_EQ(step(wait(3)), 3);
  const Ref<OpRun> second = wait(3), third = wait(3);
  EXPECT_EQ(step(second), 3);
  EXPECT_FALSE(third->done());
  open(4);
  admit(4, 1);
  EXPECT_EQ(step(third), 4) << "the step, not an admission, let it through";
  EXPECT_EQ(step(wait(4)), 4);
  EXPECT_FALSE(wait(4)->done());
  reset(4);
  admit(9, 1);
  EXPECT_FALSE(wait(4)->done()) << "an admission is for its step";
}

TEST_F(StepGates, WhoComesFromBeforeASetBackGoesOnWithTheGate) {
  reset(50);
  EXPECT_EQ(step(wait(100)), 50);
  const Ref<OpRun> next = wait(51);
  EXPECT_FALSE(next->done()) << "began between an update and the opening for it";
  open(51);
  EXPECT_FALSE(next->done());
  open(52);
  EXPECT_EQ(step(next), 52);
}

TEST_F(StepGates, WhoIsOfAnotherEraDoesNotWait) {
  reset(50, /*era=*/7);
  const Ref<OpRun> same = wait(50, 7);
  EXPECT_FALSE(same->done());
  const Ref<OpRun> other = wait(50, 6);
  EXPECT_EQ(step(other), 50);
  EXPECT_EQ((*other->wait())[1].tensor.item<int64_t>(), 7) << "it is told the era";
  EXPECT_FALSE(wait(52, 7)->done()) << "an era is never set back";
  admit(50, 1);
  EXPECT_EQ(step(same), 50);
  // The chief says again what it has said before: nothing is set back.
  open(51);
  leave(3, 2);
  reset(50, 7);
  EXPECT_EQ(step(wait(50, 7)), 51);
  leave(3, 2);
  expect_closed(wait(51, 7), "closed");
  // Another era begins.
  reset(40, 8);
  const Ref<OpRun> set_back = wait(51, 7);
  EXPECT_EQ(step(set_back), 40);
  EXPECT_EQ((*set_back->wait())[1].tensor.item<int64_t>(), 8);
  EXPECT_FALSE(wait(40, 8)->done()) << "nobody has left it";
}

TEST_F(StepGates, AnOpeningThatComesLateChangesNothing) {
  reset(3);
  open(5);
  open(4);
  EXPECT_EQ(step(wait(4)), 5);
}

TEST_F(StepGates, ClosesWhenTooFewAreLeft) {
  reset(0);
  const Ref<OpRun> waiting = wait(0);
  leave(3, 2);
  EXPECT_FALSE(waiting->done()) << "two of three are enough";
  leave(3, 2);
  expect_closed(waiting, "a step needs the gradients of 2 replicas, and only 1 of 3 go on");
  expect_closed(wait(0), "closed");
  EXPECT_EQ(step(wait(-1)), 0) << "who need not wait goes on";
  reset(0);
  const Ref<OpRun> again = wait(0);
  EXPECT_FALSE(again->done());
  EXPECT_TRUE(on("StepGateClose").input(Tensor::scalar(std::string("the end"))).run().ok());
  expect_closed(again, "the end");
}

TEST_F(StepGates, AWaitCanBeCancelled) {
  reset(0);
  const Ref<OpRun> first = wait(0), second = wait(0);
  first->cancel();
  EXPECT_EQ(first->wait().status().code(), Code::kCancelled);
  EXPECT_FALSE(second->done());
  open(1);
  EXPECT_EQ(step(second), 1);
}

TEST_F(StepGates, TakesTheLargestNumbers) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  reset(kMax);
  const Ref<OpRun> last = wait(kMax);
  EXPECT_FALSE(last->done());
  EXPECT_EQ(step(wait(kMin)), kMax);
  reset(kMin);
  EXPECT_EQ(step(last), kMin);
  EXPECT_FALSE(wait(kMin)->done());
  const Status status = on("StepGateLeave").input(number(kMin)).input(number(1)).run().status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("replicas must not be negative"), std::string_view::npos);
  EXPECT_EQ(on("StepGateAdmit").input(number(0)).input(number(-1)).run().status().code(),
            Code::kInvalidArgument);
}

// Two that may be one step apart, and what ends the wait of the faster one.
TEST(StepGatePace, HoldsUpWhoIsTooFarAhead) {
  const Ref<StepGate> gate = make_ref<StepGate>("gate");
  std::vector<int64_t> told;
  const auto pace = [&](const char* replica, uint64_t number) {
    gate->pace(replica, number, 1, nullptr, [&told](const Status& status, int64_t, int64_t step) {
      told.push_back(status.ok() ? step : -1);
    });
  };
  const uint64_t fast = gate->join("fast"), slow = gate->join("slow");
  pace("fast", fast);
  EXPECT_EQ(told, (std::vector<int64_t>{1})) << "the other is one step behind";
  pace("fast", fast);
  EXPECT_EQ(told.size(), 1u) << "two are too many";
  pace("slow", slow);
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2, 1})) << "the waiting one first";
  pace("fast", fast);
  EXPECT_EQ(told.size(), 3u);
  // Another session with its name, as after a restart, begins where the slowest is.
  const uint64_t again = gate->join("slow");
  EXPECT_EQ(told.size(), 3u);
  pace("slow", slow);
  EXPECT_EQ(told.back(), -1) << "the one before is not it any more";
  gate->withdraw("slow", slow);
  EXPECT_EQ(told.size(), 4u) << "nor can it leave in its place";
  gate->withdraw("slow", again);
  EXPECT_EQ(told.back(), 3) << "who is left waits for nobody";
  const uint64_t late = gate->join("late");
  pace("late", late);
  EXPECT_EQ(told.back(), 4) << "who joins begins where the slowest is";
}

}  // namespace
}  // namespace millrace
