#include "millrace/distributed/grpc/grpc_transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "millrace/distributed/grpc/tcp_owner.h"
#include "millrace/distributed/rpc/channel_testing.h"
#include "millrace/distributed/same_host/local_socket.h"

// gRPC's resolver of names loses the ten bytes of "localhost" for each that it looks up.
// NOLINTNEXTLINE(readability-identifier-naming): the sanitizer asks for this name.
extern "C" const char* __lsan_default_suppressions() { return "leak:libcares"; }

namespace millrace {
namespace {

// Answers "/tensorflow.X/Echo" and fails otherwise, with a long text.
class TensorFlowHandler final : public CallHandler {
 public:
  void handle(std::string_view method, Message request, Ref<CancellationToken>,
              CallDone done) override {
    if (method == "/tensorflow.X/Echo") return done(ok_status(), std::move(request));
    std::string text = "é";
    while (text.size() < 10'000) text += text;
    done(failed_precondition("no", text), Message());
  }
};

class Grpc : public testing::Test {
 protected:
  void SetUp() override {
    if (const Status status = grpc_available(); !status.ok()) GTEST_SKIP() << status.to_string();
  }
  void start(const GrpcOptions& options = {}, Ref<CallHandler> handler = nullptr) {
    server_ =
        GrpcServer::start("127.0.0.1:0", handler ? handler : Ref<CallHandler>(handler_), options)
            .value();
  }
  std::string address() const { return str_cat("127.0.0.1:", server_->port()); }
  Ref<Channel> channel(const GrpcOptions& options = {}) const {
    return make_grpc_channel(address(), "task seven", options).value();
  }

  const Ref<TestHandler> handler_ = make_ref<TestHandler>();
  std::unique_ptr<GrpcServer> server_;
};

// A socket of this machine: listening at any port, or connected to one.
OwnedFd tcp_socket(int& port) {
  OwnedFd out(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof address;
  if (port != 0) {
    EXPECT_EQ(connect(out.get(), generic, size), 0);
    return out;
  }
  EXPECT_EQ(bind(out.get(), generic, size), 0);
  EXPECT_EQ(listen(out.get(), 8), 0);
  EXPECT_EQ(getsockname(out.get(), generic, &size), 0);
  port = ntohs(address.sin_port);
  return out;
}

TEST_F(Grpc, AnAddressHasOneServer) {
  start();
  const Status status = GrpcServer::start(address(), handler_).status();
  EXPECT_EQ(status.code(), Code::kUnknown);
  EXPECT_NE(status.message().find(address()), std::string_view::npos);
  EXPECT_EQ(GrpcServer::start("no address", handler_).status().code(), Code::kUnknown);
}

TEST_F(Grpc, WhoDoesNotSayTheTokenIsRefused) {
  start({.token = "open sesame"});
  EXPECT_TRUE(call(*channel({.token = "open sesame"}), "/test/echo")->wait().ok());
  for (const std::string token : {"", "open sesamf", "open", "open sesame and more"}) {
    const Ref<Channel> stranger = channel({.token = token});
    const Status status = call(*stranger, "/test/echo", {.fields = "x", .parts = {}})->wait();
    EXPECT_EQ(status.code(), Code::kUnauthenticated) << token;
    EXPECT_EQ(call(*stranger, "/tensorflow.X/Echo")->wait().code(), Code::kUnauthenticated);
  }
}

TEST_F(Grpc, TheKernelSaysWhoseAConnectionIs) {
  int port = 0;
  const OwnedFd listener = tcp_socket(port);
  const OwnedFd client = tcp_socket(port);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ASSERT_EQ(getsockname(client.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string peer = str_cat("ipv4:127.0.0.1:", ntohs(address.sin_port));
  EXPECT_EQ(tcp_owner(peer, "127.0.0.1", port).value(), geteuid());
  EXPECT_EQ(tcp_owner(peer, "localhost", port).value(), geteuid());
  EXPECT_EQ(tcp_owner("ipv4:127.0.0.1:1", "localhost", port).status().code(), Code::kNotFound);
  EXPECT_EQ(tcp_owner("ipv6:%5B::1%5D:1", "localhost", port).status().code(), Code::kNotFound);
  // Who listens at the port that a peer claims is not the peer.
  const std::string claimed = str_cat("ipv4:127.0.0.1:", port);
  EXPECT_EQ(tcp_owner(claimed, "localhost", 1).status().code(), Code::kNotFound);
  for (const char* none : {"", "ipv4:", "ipv4:1", "unix:/x", "ipv4:127.0.0.1:x", "ipv4:a:1",
                           "ipv4:127.0.0.1:99999", "ipv6:1:2", ":"}) {
    EXPECT_EQ(tcp_owner(none, "localhost", port).status().code(), Code::kInvalidArgument) << none;
  }
}

TEST_F(Grpc, AnswersItsOwnUser) {
  start({.same_user = true});
  const Status status = call(*channel(), "/test/echo")->wait();
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST_F(Grpc, CertificatesAreWholeOrNone) {
  EXPECT_EQ(GrpcServer::start("127.0.0.1:0", handler_, {.certificate = "c.pem"}).status().code(),
            Code::kInvalidArgument);
  const GrpcOptions absent = {.authority = "/no/a", .certificate = "/no/c", .key = "/no/k"};
  const Status status = make_grpc_channel("127.0.0.1:1", "x", absent).status();
  EXPECT_NE(status.message().find("/no/a"), std::string_view::npos) << status.to_string();
}

TEST_F(Grpc, CarriesTensorFlowsMethodsAsTheyAre) {
  start({}, make_ref<TensorFlowHandler>());
  const Ref<Channel> peer = channel();
  const Message request{.fields = std::string(5'000'000, 'b'), .parts = {}};
  const Ref<Outcome> echo = call(*peer, "/tensorflow.X/Echo", request);
  ASSERT_TRUE(echo->wait().ok()) << echo->status.to_string();
  EXPECT_TRUE(same(echo->answer, request));
  const Status status = call(*peer, "/tensorflow.X/Fail")->wait();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  // "no" and whole characters of two bytes, which are six on their way.
  EXPECT_EQ(status.message().size(), 2u + 2 * (3070 / 6));
  EXPECT_TRUE(status.message().ends_with("é"));
}

// A process that accepts, and then says nothing: stopped, or stuck.
TEST_F(Grpc, ASilentPeerIsLost) {
  int port = 0;
  const OwnedFd listener = tcp_socket(port);
  const Ref<Channel> peer =
      make_grpc_channel(str_cat("127.0.0.1:", port), "task seven", {.lost_after_ms = 200}).value();
  const Status status = call(*peer, "/test/echo")->wait();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("task seven"), std::string_view::npos) << status.to_string();
}

// Whoever writes nonsense loses the connection; the others notice nothing.
TEST_F(Grpc, NonsenseEndsAConnectionAndNothingElse) {
  start();
  const Ref<Channel> peer = channel();
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  for (int round = 0; round < 50; ++round) {
    int port = server_->port();
    const OwnedFd socket = tcp_socket(port);
    std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    bytes += std::string("\0\0\0\4\0\0\0\0\0", 9);
    for (unsigned i = random() % 100; i > 0; --i) bytes += static_cast<char>(random());
    if (random() % 4 == 0) bytes[random() % bytes.size()] = static_cast<char>(random());
    ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    const Status status = call(*peer, "/test/echo")->wait();
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
}

}  // namespace
}  // namespace millrace
