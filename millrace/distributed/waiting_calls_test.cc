// test-labels: threads
#include "millrace/distributed/waiting_calls.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/rpc/channel_testing.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "millrace/distributed/same_host/same_host.h"

namespace millrace {
namespace {

ServerLimits limits(int calls, int64_t bytes) {
  ServerLimits out;
  out.calls_per_client = calls;
  out.call_bytes_per_client = bytes;
  return out;
}

TEST(WaitingCalls, CountsByClient) {
  const Ref<WaitingCalls> waiting = make_ref<WaitingCalls>(limits(2, 1 << 20));
  EXPECT_TRUE(waiting->begin("a", 10).ok());
  EXPECT_TRUE(waiting->begin("a", 10).ok());
  const Status full = waiting->begin("a", 10);
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_NE(full.message().find("MILLRACE_CLUSTER_MAX_CALLS_PER_CLIENT"), std::string_view::npos);
  EXPECT_TRUE(waiting->begin("b", 10).ok());
  EXPECT_EQ(waiting->count(), 3);
  waiting->end("a", 10);
  EXPECT_TRUE(waiting->begin("a", 10).ok());
}

TEST(WaitingCalls, CountsBytes) {
  const Ref<WaitingCalls> waiting = make_ref<WaitingCalls>(limits(10, 1 << 20));
  // Alone, whatever it has.
  EXPECT_TRUE(waiting->begin("a", 2 << 20).ok());
  const Status full = waiting->begin("a", 1);
  EXPECT_EQ(full.code(), Code::kResourceExhausted);
  EXPECT_NE(full.message().find("MILLRACE_CLUSTER_MAX_CALL_MB_PER_CLIENT"), std::string_view::npos);
  EXPECT_TRUE(waiting->begin("b", 1).ok());
  waiting->end("a", 2 << 20);
  EXPECT_TRUE(waiting->begin("a", 1 << 19).ok());
  EXPECT_TRUE(waiting->begin("a", 1 << 19).ok());
  EXPECT_EQ(waiting->begin("a", 1).code(), Code::kResourceExhausted);
}

// What waits until it is cancelled, and what is answered at once.
class Hanging final : public CallHandler {
 public:
  void handle(std::string_view method, Message, Ref<CancellationToken> cancel,
              CallDone done) override {
    if (method == worker_wire::kCleanupStep) return done(ok_status(), Message());
    handler_->handle("/test/hang", Message(), std::move(cancel), std::move(done));
  }
  TestHandler& calls() { return *handler_; }

 private:
  const Ref<TestHandler> handler_ = make_ref<TestHandler>();
};

enum class Kind { kSameHost, kGrpc };
class WaitingCallsOver : public testing::TestWithParam<Kind> {};

TEST_P(WaitingCallsOver, AClientHasAsManyAsItMay) {
  constexpr int kMost = 50;
  const Ref<Hanging> handler = make_ref<Hanging>();
  const Ref<WaitingCalls> waiting = make_ref<WaitingCalls>(limits(kMost, 1 << 20));
  const Ref<CallHandler> service = make_limited_service(handler, waiting);
  std::unique_ptr<SameHostServer> same_host;
  std::unique_ptr<GrpcServer> grpc;
  std::vector<Ref<Channel>> channels;  // of one client all
  if (GetParam() == Kind::kSameHost) {
    const std::string name = str_cat("millrace-waiting-calls-test-", getpid());
    same_host = SameHostServer::start(name, service).value();
    for (int i = 0; i < 2; ++i) channels.push_back(make_same_host_channel(name, "it"));
  } else if (const Status status = grpc_available(); status.ok()) {
    grpc = GrpcServer::start("127.0.0.1:0", service).value();
    const std::string address = str_cat("127.0.0.1:", grpc->port());
    for (int i = 0; i < 2; ++i) channels.push_back(make_grpc_channel(address, "it").value());
  } else {
    GTEST_SKIP() << status.to_string();
  }
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  std::vector<Ref<Outcome>> wait;
  for (int i = 0; i < kMost; ++i) {
    wait.push_back(call(*channels[i % 2], worker_wire::kRecvTensor, {}, cancel));
  }
  handler->calls().wait_until_hanging(kMost);
  for (const Ref<Channel>& channel : channels) {
    for (const std::string_view method : {worker_wire::kRecvTensor, worker_wire::kRecvChunk,
                                          worker_wire::kJoinGroup, worker_wire::kRunGraph}) {
      EXPECT_EQ(call(*channel, method)->wait().code(), Code::kResourceExhausted) << method;
    }
    // What ends calls is let in.
    EXPECT_TRUE(call(*channel, worker_wire::kCleanupStep)->wait().ok());
  }
  EXPECT_EQ(waiting->count(), kMost);
  cancel->cancel(aborted("enough"));
  for (const Ref<Outcome>& outcome : wait) EXPECT_EQ(outcome->wait().code(), Code::kAborted);
  handler->calls().wait_until_ended(kMost);
  while (waiting->count() > 0) sched_yield();
  const Ref<CancellationToken> again = make_ref<CancellationToken>();
  const Ref<Outcome> last = call(*channels[0], worker_wire::kRecvTensor, {}, again);
  handler->calls().wait_until_hanging(kMost + 1);
  again->cancel(aborted("enough"));
  EXPECT_EQ(last->wait().code(), Code::kAborted);
}

INSTANTIATE_TEST_SUITE_P(Transports, WaitingCallsOver,
                         testing::Values(Kind::kSameHost, Kind::kGrpc), [](const auto& info) {
                           return info.param == Kind::kSameHost ? "SameHost" : "Grpc";
                         });

}  // namespace
}  // namespace millrace
