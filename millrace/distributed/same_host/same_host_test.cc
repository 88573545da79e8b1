// test-labels: threads
#include "millrace/distributed/same_host/same_host.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "millrace/distributed/rpc/channel_testing.h"

namespace millrace {
namespace {

// A name of this test alone.
std::string fresh_name() {
  static std::atomic<int> count{0};
  return str_cat("millrace-test-", getpid(), "-", count++);
}

class SameHost : public testing::Test {
 protected:
  Ref<Channel> channel(const SameHostOptions& options = {}) {
    return make_same_host_channel(name_, "task seven", options);
  }

  const std::string name_ = fresh_name();
  const Ref<TestHandler> handler_ = make_ref<TestHandler>();
};

// A process that accepts, and then says nothing: stopped, or stuck.
TEST_F(SameHost, ASilentPeerIsLost) {
  const OwnedFd listener = listen_on_host(name_).value();
  const Ref<Channel> peer = channel({.lost_after_ms = 20});
  const Status status = call(*peer, "/test/echo")->wait();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("has said nothing for"), std::string_view::npos);
}

TEST_F(SameHost, ANameHasOneServer) {
  const auto server = SameHostServer::start(name_, handler_).value();
  EXPECT_EQ(SameHostServer::start(name_, handler_).status().code(), Code::kAlreadyExists);
}

// Whoever writes nonsense loses the connection; the others notice nothing.
TEST_F(SameHost, NonsenseEndsAConnectionAndNothingElse) {
  const auto server = SameHostServer::start(name_, handler_).value();
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
      bytes += call_frame(random() % 3, "/test/echo", message).value();
      bytes += chunk_frame(random() % 3, {static_cast<uint32_t>(random() % 3), 0, 0, 1000});
      bytes += error_frame(FrameKind::kCancel, random() % 3, cancelled("no"));
    }
    for (unsigned i = random() % 4; i > 0; --i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (random() % 2 == 0) shutdown(socket.get(), SHUT_WR);
    ASSERT_TRUE(call(*peer, "/test/echo")->wait().ok());
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
