// test-labels: threads
// What every transport owes to those who call through it.

#include "millrace/distributed/rpc/channel.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <thread>

#include "millrace/base/futex.h"
#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/rpc/channel_testing.h"
#include "millrace/distributed/rpc/message_bytes.h"
#include "millrace/distributed/same_host/same_host.h"

namespace millrace {
namespace {

// A server that may come and go, and channels to it.
class TestTransport {
 public:
  virtual ~TestTransport() = default;
  virtual void start(const Ref<CallHandler>& handler) = 0;
  virtual void stop() = 0;
  // To "task seven".
  virtual Ref<Channel> channel() = 0;
};

class SameHostTransport final : public TestTransport {
 public:
  void start(const Ref<CallHandler>& handler) override {
    server_ = SameHostServer::start(name_, handler).value();
  }
  void stop() override { server_.reset(); }
  Ref<Channel> channel() override { return make_same_host_channel(name_, "task seven"); }

 private:
  const std::string name_ = str_cat("millrace-channel-test-", getpid());
  std::unique_ptr<SameHostServer> server_;
};

class GrpcTransport final : public TestTransport {
 public:
  // A port that was free a moment ago.
  GrpcTransport() : port_(GrpcServer::start("127.0.0.1:0", nullptr).value()->port()) {}
  void start(const Ref<CallHandler>& handler) override {
    server_ = GrpcServer::start(address(), handler).value();
  }
  void stop() override { server_.reset(); }
  Ref<Channel> channel() override { return make_grpc_channel(address(), "task seven").value(); }

 private:
  std::string address() const { return str_cat("127.0.0.1:", port_); }
  const int port_;
  std::unique_ptr<GrpcServer> server_;
};

enum class Kind { kSameHost, kGrpc };

class Transport : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kSameHost) {
      transport_ = std::make_unique<SameHostTransport>();
    } else if (const Status status = grpc_available(); status.ok()) {
      transport_ = std::make_unique<GrpcTransport>();
    } else {
      GTEST_SKIP() << status.to_string();
    }
  }

  const Ref<TestHandler> handler_ = make_ref<TestHandler>();
  std::unique_ptr<TestTransport> transport_;
};

TEST_P(Transport, CarriesMessagesOfAllSizes) {
  transport_->start(handler_);
  const Ref<Channel> peer = transport_->channel();
  for (const std::vector<size_t>& sizes :
       std::vector<std::vector<size_t>>{{},
                                        {0},
                                        {1, 0, 3},
                                        {kInlinePart, kInlinePart + 1},
                                        {1 << 20, (1 << 20) + 1, 5},
                                        {(7 << 20) + 3}}) {
    Message request{.fields = "fields", .parts = {}};
    for (const size_t size : sizes) request.parts.push_back(part_of(size, 7));
    const Ref<Outcome> outcome = call(*peer, "/test/echo", request);
    ASSERT_TRUE(outcome->wait().ok()) << outcome->status.to_string();
    EXPECT_TRUE(same(outcome->answer, request));
  }
  Message long_fields{.fields = std::string(3'000'000, 'x'), .parts = {}};
  const Status longer = call(*peer, "/test/echo", long_fields)->wait();
  EXPECT_TRUE(longer.ok()) << longer.to_string();
}

TEST_P(Transport, ErrorsArriveAsTheyWere) {
  transport_->start(handler_);
  const Ref<Channel> peer = transport_->channel();
  EXPECT_EQ(call(*peer, "/test/fail", {.fields = "such thing", .parts = {}})->wait(),
            not_found("no such thing"));
  EXPECT_EQ(call(*peer, "/test/dance")->wait().code(), Code::kUnimplemented);
}

TEST_P(Transport, ACancelledCallEndsOnBothSides) {
  transport_->start(handler_);
  const Ref<Channel> peer = transport_->channel();
  const Ref<CancellationToken> token = make_ref<CancellationToken>();
  const Ref<Outcome> outcome = call(*peer, "/test/hang", {}, token);
  handler_->wait_until_hanging(1);
  token->cancel(deadline_exceeded("too late"));
  EXPECT_EQ(outcome->wait(), deadline_exceeded("too late"));
  handler_->wait_until_ended(1);
  EXPECT_EQ(handler_->reason(), deadline_exceeded("too late"));
  EXPECT_EQ(call(*peer, "/test/hang", {}, token)->wait(), deadline_exceeded("too late"));
}

// "/test/wait" holds its thread until "/test/go" comes.
class WaitingHandler final : public CallHandler {
 public:
  void handle(std::string_view method, Message, Ref<CancellationToken>, CallDone done) override {
    if (method == "/test/go") go_.store(1);
    if (method == "/test/wait") {
      while (go_.load() == 0) futex_wait(go_, 0);
    }
    futex_wake_all(&go_);
    done(ok_status(), Message());
  }

 private:
  std::atomic<uint32_t> go_{0};
};

TEST_P(Transport, WhatTakesLongHoldsUpNobody) {
  transport_->start(make_ref<WaitingHandler>());
  const Ref<Channel> peer = transport_->channel();
  // Quick ones first, which one thread reads and answers.
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(call(*peer, "/test/quick")->wait().ok());
  const Ref<Outcome> waits = call(*peer, "/test/wait");
  EXPECT_TRUE(call(*peer, "/test/go")->wait().ok());
  EXPECT_TRUE(waits->wait().ok());
}

// Nor does what takes long on the side that calls, when an answer comes.
TEST_P(Transport, AnAnswerThatTakesLongHoldsUpNoOther) {
  transport_->start(handler_);
  const Ref<Channel> peer = transport_->channel();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(call(*peer, "/test/echo")->wait().ok());
  std::atomic<uint32_t> heard{0};
  const Ref<Outcome> first = make_ref<Outcome>();
  peer->call("/test/echo", {}, nullptr,
             [&heard, set = first->set()](Status status, Message message) mutable {
               while (heard.load() == 0) futex_wait(heard, 0);
               set(std::move(status), std::move(message));
             });
  EXPECT_TRUE(call(*peer, "/test/echo")->wait().ok());
  heard.store(1);
  futex_wake_all(&heard);
  EXPECT_TRUE(first->wait().ok());
}

TEST_P(Transport, ALostCallerCancelsItsCalls) {
  transport_->start(handler_);
  Ref<Channel> peer = transport_->channel();
  const Ref<Outcome> outcome = call(*peer, "/test/hang");
  handler_->wait_until_hanging(1);
  peer = nullptr;
  EXPECT_FALSE(outcome->wait().ok());
  handler_->wait_until_ended(1);
}

TEST_P(Transport, ALostServerIsUnavailableAndMayComeBack) {
  const Ref<Channel> peer = transport_->channel();
  Status status = call(*peer, "/test/echo")->wait();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("task seven"), std::string_view::npos);
  for (int round = 0; round < 3; ++round) {
    transport_->start(handler_);
    status = call(*peer, "/test/echo")->wait();
    EXPECT_TRUE(status.ok()) << status.to_string();
    const Ref<Outcome> outcome = call(*peer, "/test/hang");
    handler_->wait_until_hanging(static_cast<uint32_t>(round) + 1);
    transport_->stop();
    status = outcome->wait();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("task seven"), std::string_view::npos) << status.message();
  }
}

TEST_P(Transport, ManyCallersShareAConnection) {
  transport_->start(handler_);
  const Ref<Channel> peer = transport_->channel();
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::minstd_rand random(t);
      for (int i = 0; i < 40; ++i) {
        Message request{.fields = str_cat(t, " ", i), .parts = {}};
        for (unsigned p = random() % 4; p > 0; --p) {
          request.parts.push_back(part_of(random() % (size_t{1} << (random() % 19)), p));
        }
        const Ref<CancellationToken> token = make_ref<CancellationToken>();
        const Ref<Outcome> outcome = call(*peer, "/test/echo", request, token);
        const bool give_up = random() % 8 == 0;
        if (give_up) token->cancel(cancelled("enough"));
        const Status status = outcome->wait();
        if (give_up && !status.ok()) {
          EXPECT_EQ(status, cancelled("enough"));
          continue;
        }
        ASSERT_TRUE(status.ok()) << status.to_string();
        EXPECT_TRUE(same(outcome->answer, request));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(SameHost, Transport, testing::Values(Kind::kSameHost));
INSTANTIATE_TEST_SUITE_P(Grpc, Transport, testing::Values(Kind::kGrpc));

}  // namespace
}  // namespace millrace
