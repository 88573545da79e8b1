#include "millrace/runtime/executable.h"

#include <gtest/gtest.h>

#include <thread>

namespace millrace {
namespace {

// Ends every run with the same status, on a thread of its own or on the caller's.
class Ending : public Executable {
 public:
  Ending(Status status, bool at_once) : status_(std::move(status)), at_once_(at_once) {}

  void run_async(const StepArgs&, UniqueFunction<void(Status)> done) const override {
    if (at_once_) return done(status_);
    std::thread([done = std::move(done), status = status_]() mutable { done(status); }).detach();
  }
  Result<Ref<PartialRun>> start_partial(const StepArgs&,
                                        UniqueFunction<void(Status)>) const override {
    return unimplemented("no partial runs");
  }
  bool straight(Gear) const override { return false; }
  bool has_blocking() const override { return false; }
  std::string to_string() const override { return "Ending"; }

 private:
  const Status status_;
  const bool at_once_;
};

TEST(Executable, RunWaitsForTheAsynchronousRun) {
  for (bool at_once : {false, true}) {
    EXPECT_TRUE(make_ref<Ending>(ok_status(), at_once)->run({}).ok());
    EXPECT_EQ(make_ref<Ending>(aborted("why"), at_once)->run({}).code(), Code::kAborted);
  }
}

}  // namespace
}  // namespace millrace
