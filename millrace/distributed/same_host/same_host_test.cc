// test-labels: threads
#include "millrace/distributed/same_host/same_host.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <thread>

#include "millrace/base/futex.h"

namespace millrace {
namespace {

// A name of this test alone.
std::string fresh_name() {
  static std::atomic<int> count{0};
  return str_cat("millrace-test-", getpid(), "-", count++);
}

Message::Part part_of(size_t size, unsigned seed = 1) {
  Ref<Buffer> buffer =
      Buffer::allocate(DType::kUInt8, static_cast<int64_t>(size), cpu_allocator()).value();
  std::minstd_rand random(seed);
  auto* bytes = static_cast<unsigned char*>(buffer->mutable_data());
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random());
  return {buffer, 0, size};
}

bool same(const Message& a, const Message& b) {
  if (a.fields != b.fields || a.parts.size() != b.parts.size()) return false;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    if (a.parts[i].size != b.parts[i].size ||
        std::memcmp(a.parts[i].data(), b.parts[i].data(), a.parts[i].size) != 0) {
      return false;
    }
  }
  return true;
}

// What a call came to, for a thread that waits.
struct Outcome : RefCounted {
  std::atomic<uint32_t> done{0};
  Status status;
  Message answer;

  CallDone set() {
    return [self = Ref<Outcome>(this)](Status ended, Message message) {
      self->status = std::move(ended);
      self->answer = std::move(message);
      self->done.store(1, std::memory_order_release);
      futex_wake_all(&self->done);
    };
  }
  Status wait() {
    while (done.load(std::memory_order_acquire) == 0) futex_wait(done, 0);
    return status;
  }
};

Ref<Outcome> call(Channel& channel, std::string_view method, Message request = {},
                  Ref<CancellationToken> cancel = nullptr) {
  Ref<Outcome> outcome = make_ref<Outcome>();
  channel.call(method, std::move(request), std::move(cancel), outcome->set());
  return outcome;
}

// "echo" answers what it gets, "fail" an error, "hang" only once it is cancelled.
class TestHandler : public CallHandler {
 public:
  void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
              CallDone done) override {
    if (method == "echo") return done(ok_status(), std::move(request));
    if (method == "fail") return done(not_found("no ", request.fields), Message());
    if (method != "hang") return done(unimplemented("no method ", method), Message());
    auto shared = std::make_shared<CallDone>(std::move(done));
    // By bare pointer: a token that holds itself would never end.
    const auto end = [this, token = cancel.get(), shared] {
      {
        MutexLock lock(mu_);
        reason_ = token->status();
      }
      ended_.fetch_add(1);
      futex_wake_all(&ended_);
      (*shared)(token->status(), Message());
    };
    if (cancel->on_cancel(end) == 0) end();
    hanging_.fetch_add(1);
    futex_wake_all(&hanging_);
  }

  void wait_until_hanging(uint32_t count) { wait(hanging_, count); }
  void wait_until_ended(uint32_t count) { wait(ended_, count); }
  Status reason() {
    MutexLock lock(mu_);
    return reason_;
  }

 private:
  static void wait(std::atomic<uint32_t>& counter, uint32_t count) {
    for (uint32_t now = counter.load(); now < count; now = counter.load()) {
      futex_wait(counter, now);
    }
  }

  std::atomic<uint32_t> hanging_{0}, ended_{0};
  Mutex mu_;
  Status reason_ MR_GUARDED_BY(mu_);
};

class SameHost : public testing::Test {
 protected:
  void start() { server_ = SameHostServer::start(name_, handler_).value(); }
  Ref<Channel> channel(const SameHostOptions& options = {}) {
    return make_same_host_channel(name_, "task seven", options);
  }

  const std::string name_ = fresh_name();
  const Ref<TestHandler> handler_ = make_ref<TestHandler>();
  std::unique_ptr<SameHostServer> server_;
};

TEST_F(SameHost, CarriesMessagesOfAllSizes) {
  start();
  const Ref<Channel> peer = channel();
  for (const std::vector<size_t>& sizes :
       std::vector<std::vector<size_t>>{{},
                                        {0},
                                        {1, 0, 3},
                                        {kInlinePart, kInlinePart + 1},
                                        {SharedRing::kSlotBytes, SharedRing::kSlotBytes + 1, 5},
                                        {7 * SharedRing::kSlotBytes + 3}}) {
    Message request{.fields = "fields", .parts = {}};
    for (const size_t size : sizes) request.parts.push_back(part_of(size, 7));
    const Ref<Outcome> outcome = call(*peer, "echo", request);
    ASSERT_TRUE(outcome->wait().ok()) << outcome->status.to_string();
    EXPECT_TRUE(same(outcome->answer, request));
  }
  Message long_fields{.fields = std::string(3'000'000, 'x'), .parts = {}};
  EXPECT_TRUE(call(*peer, "echo", long_fields)->wait().ok());
}

TEST_F(SameHost, ErrorsArriveAsTheyWere) {
  start();
  const Ref<Channel> peer = channel();
  EXPECT_EQ(call(*peer, "fail", {.fields = "such thing", .parts = {}})->wait(),
            not_found("no such thing"));
  EXPECT_EQ(call(*peer, "dance")->wait().code(), Code::kUnimplemented);
}

TEST_F(SameHost, ACancelledCallEndsOnBothSides) {
  start();
  const Ref<Channel> peer = channel();
  const Ref<CancellationToken> token = make_ref<CancellationToken>();
  const Ref<Outcome> outcome = call(*peer, "hang", {}, token);
  handler_->wait_until_hanging(1);
  token->cancel(deadline_exceeded("too late"));
  EXPECT_EQ(outcome->wait(), deadline_exceeded("too late"));
  handler_->wait_until_ended(1);
  EXPECT_EQ(handler_->reason(), deadline_exceeded("too late"));
  EXPECT_EQ(call(*peer, "hang", {}, token)->wait(), deadline_exceeded("too late"));
}

TEST_F(SameHost, ALostCallerCancelsItsCalls) {
  start();
  Ref<Channel> peer = channel();
  const Ref<Outcome> outcome = call(*peer, "hang");
  handler_->wait_until_hanging(1);
  peer = nullptr;
  EXPECT_EQ(outcome->wait().code(), Code::kCancelled);
  handler_->wait_until_ended(1);
  EXPECT_EQ(handler_->reason().code(), Code::kUnavailable);
}

TEST_F(SameHost, ALostServerIsUnavailableAndMayComeBack) {
  const Ref<Channel> peer = channel();
  Status status = call(*peer, "echo")->wait();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("task seven"), std::string_view::npos);
  for (int round = 0; round < 3; ++round) {
    start();
    EXPECT_EQ(SameHostServer::start(name_, handler_).status().code(), Code::kAlreadyExists);
    EXPECT_TRUE(call(*peer, "echo")->wait().ok());
    const Ref<Outcome> outcome = call(*peer, "hang");
    handler_->wait_until_hanging(static_cast<uint32_t>(round) + 1);
    server_.reset();
    status = outcome->wait();
    EXPECT_EQ(status.code(), Code::kUnavailable);
    EXPECT_NE(status.message().find("task seven"), std::string_view::npos) << status.message();
  }
}

// A process that accepts, and then says nothing: stopped, or stuck.
TEST_F(SameHost, ASilentPeerIsLost) {
  const OwnedFd listener = listen_on_host(name_).value();
  const Ref<Channel> peer = channel({.lost_after_ms = 20});
  const Status status = call(*peer, "echo")->wait();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("has said nothing for"), std::string_view::npos);
}

TEST_F(SameHost, ManyCallersShareAConnection) {
  start();
  const Ref<Channel> peer = channel();
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
        const Ref<Outcome> outcome = call(*peer, "echo", request, token);
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

// Whoever writes nonsense loses the connection; the others notice nothing.
TEST_F(SameHost, NonsenseEndsAConnectionAndNothingElse) {
  start();
  const Ref<Channel> peer = channel();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  for (int round = 0; round < 100; ++round) {
    const OwnedFd socket = connect_on_host(name_).value();
    const Ref<SharedRing> out = SharedRing::create().value(), in = SharedRing::create().value();
    const int fds[] = {out->fd().get(), in->fd().get()};
    ASSERT_TRUE(send_with_fds(socket, "millrace local1", fds).ok());
    // Good frames with some bytes changed.
    std::string bytes;
    for (unsigned i = 1 + random() % 3; i > 0; --i) {
      Message message{.fields = "abc", .parts = {part_of(random() % 100), part_of(20'000)}};
      bytes += call_frame(random() % 3, "echo", message).value();
      bytes += chunk_frame(random() % 3, {static_cast<uint32_t>(random() % 3), 0, 0, 1000});
      bytes += error_frame(FrameKind::kCancel, random() % 3, cancelled("no"));
    }
    for (unsigned i = random() % 4; i > 0; --i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (random() % 2 == 0) shutdown(socket.get(), SHUT_WR);
    ASSERT_TRUE(call(*peer, "echo")->wait().ok());
  }
}

TEST_F(SameHost, OnlyRingsAreRings) {
  EXPECT_EQ(SharedRing::open(OwnedFd()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(SharedRing::open(OwnedFd(dup(0))).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(listen_on_host("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(listen_on_host(std::string(200, 'x')).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
