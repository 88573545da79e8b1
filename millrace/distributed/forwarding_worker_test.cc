#include "millrace/distributed/forwarding_worker.h"

#include <gtest/gtest.h>

#include "millrace/distributed/distributed_testing.h"

namespace millrace {
namespace {

class ToWorker final : public ForwardingWorker {
 public:
  explicit ToWorker(Result<Ref<WorkerInterface>> worker) : worker_(std::move(worker)) {}

 protected:
  Result<Ref<WorkerInterface>> find_worker() const override { return worker_; }

 private:
  const Result<Ref<WorkerInterface>> worker_;
};

// Makes every call there is; how often, and that with what, it was answered.
int answers_of(WorkerInterface& worker, const Status& expected) {
  int answers = 0;
  const auto told = [&](const Status& status) {
    EXPECT_EQ(status, expected);
    ++answers;
  };
  const auto value = [&](const auto& result) { told(result.status()); };
  const auto pair = [&](const Status& status, const auto&) { told(status); };
  worker.get_status(value);
  worker.register_graph({}, value);
  worker.deregister_graph("h", told);
  worker.run_graph({}, nullptr, pair);
  worker.recv_tensor({}, nullptr, pair);
  worker.give_tensor(1, "k", Value(), told);
  worker.abort_step(1, aborted("x"), told);
  worker.cleanup_step(1, told);
  worker.keep_session({.session = "s"}, told);
  worker.delete_session("s", told);
  worker.get_activity(0, value);
  worker.reset({}, told);
  worker.join_group({}, nullptr, value);
  worker.recv_chunk({}, nullptr, value);
  worker.end_group({}, told);
  return answers;
}

TEST(ForwardingWorker, WithoutAWorkerEveryCallIsAnsweredWhy) {
  const Status why = unavailable("nobody there");
  const Ref<ToWorker> worker = make_ref<ToWorker>(why);
  EXPECT_EQ(answers_of(*worker, why), 15);
  EXPECT_TRUE(worker->needs_lease());
}

// Of another forwarding worker every answer is known, so each call must have come through.
TEST(ForwardingWorker, EveryCallArrives) {
  const Status why = unavailable("nobody behind it");
  const Ref<ToWorker> behind = make_ref<ToWorker>(why);
  EXPECT_EQ(answers_of(*make_ref<ToWorker>(Ref<WorkerInterface>(behind)), why), 15);
  const Ref<SilentWorker> silent = make_ref<SilentWorker>();
  const Ref<ToWorker> worker = make_ref<ToWorker>(Ref<WorkerInterface>(silent));
  worker->delete_session("s", [](const Status&) {});
  worker->keep_session({.session = "t"}, [](const Status&) {});
  EXPECT_EQ(silent->deleted, std::vector<std::string>{"s"});
  ASSERT_EQ(silent->kept.size(), 1u);
  EXPECT_EQ(silent->kept[0].session, "t");
}

}  // namespace
}  // namespace millrace
