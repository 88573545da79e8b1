#include "millrace/distributed/network.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "millrace/base/file.h"
#include "millrace/base/file_testing.h"

namespace millrace {
namespace {

TEST(Network, ListensToThisMachineAloneWithoutCertificates) {
  char own[256] = {};
  ASSERT_EQ(gethostname(own, sizeof own - 1), 0);
  Network network;
  EXPECT_EQ(network.listen_at("localhost:2222"), "localhost:2222");
  EXPECT_EQ(network.listen_at("127.0.0.3:2222"), "127.0.0.3:2222");
  EXPECT_EQ(network.listen_at("[::1]:2222"), "[::1]:2222");
  EXPECT_EQ(network.listen_at(str_cat(own, ":2222")), "127.0.0.1:2222");
  EXPECT_EQ(network.listen_at("another.machine:2222"), "");
  network.grpc.token = "a token alone would be seen by all";
  EXPECT_EQ(network.listen_at("another.machine:2222"), "");
  Network plain = network;
  plain.plain_text = true;
  network.grpc.certificate = "cert.pem";
  for (const Network& open : {plain, network}) {
    EXPECT_EQ(open.listen_at(str_cat(own, ":2222")), "0.0.0.0:2222");
    EXPECT_EQ(open.listen_at("another.machine:2222"), "0.0.0.0:2222");
    EXPECT_EQ(open.listen_at("localhost:2222"), "localhost:2222") << "as it was told";
  }
}

TEST(Network, KnowsWhatIsOfThisMachine) {
  EXPECT_EQ(name_on_host("localhost:2222"), "millrace-port-2222");
  EXPECT_EQ(name_on_host("127.1.2.3:1"), "millrace-port-1");
  EXPECT_EQ(name_on_host("[::1]:7"), "millrace-port-7");
  EXPECT_EQ(name_on_host("another.machine:2222"), "");
  EXPECT_EQ(name_on_host("localhost"), "");
}

class NetworkEnvironment : public testing::Test {
 protected:
  void set(const char* name, const std::string& value) { setenv(name, value.c_str(), 1); }
  void TearDown() override {
    for (const char* name :
         {"MILLRACE_CLUSTER_CERTS", "MILLRACE_CLUSTER_TOKEN_FILE", "MILLRACE_CLUSTER_PLAIN_TEXT",
          "MILLRACE_CLUSTER_ALLOW", "MILLRACE_SAME_HOST", "MILLRACE_CLUSTER_MOVED"}) {
      unsetenv(name);
    }
  }
  TemporaryDirectory folder_;
};

TEST_F(NetworkEnvironment, TasksThatHaveMovedAreFound) {
  const std::string file = folder_ / "moved";
  set("MILLRACE_CLUSTER_MOVED", file);
  const Network network = Network::from_environment().value();
  EXPECT_EQ(network.now_at("a:1"), "a:1") << "there is no file yet";
  ASSERT_TRUE(
      write_file_atomically(posix_file_system(), file,
                            "a:1 b:2\nx:1\n\nb:2 c:3\na:1 nowhere\nc:4 d:5\na:1 localhost:7\nc:4 ")
          .ok());
  EXPECT_EQ(network.now_at("a:1"), "localhost:7");
  EXPECT_EQ(network.now_at("b:2"), "c:3");
  EXPECT_EQ(network.now_at("c:4"), "d:5");
  EXPECT_EQ(network.now_at("x:1"), "x:1");
}

TEST_F(NetworkEnvironment, IsRead) {
  const Network none = Network::from_environment().value();
  EXPECT_TRUE(none.grpc.token.empty() && none.grpc.certificate.empty());
  EXPECT_TRUE(none.same_host && !none.plain_text);
  set("MILLRACE_CLUSTER_CERTS", "/etc/certs");
  set("MILLRACE_CLUSTER_PLAIN_TEXT", "1");
  set("MILLRACE_SAME_HOST", "0");
  const std::string file = folder_ / "token";
  ASSERT_TRUE(write_file_atomically(posix_file_system(), file, "sesame\n").ok());
  set("MILLRACE_CLUSTER_TOKEN_FILE", file);
  const Network all = Network::from_environment().value();
  EXPECT_EQ(all.grpc.authority, "/etc/certs/ca.pem");
  EXPECT_EQ(all.grpc.certificate, "/etc/certs/cert.pem");
  EXPECT_EQ(all.grpc.key, "/etc/certs/key.pem");
  EXPECT_EQ(all.grpc.token, "sesame");
  EXPECT_TRUE(all.plain_text && !all.same_host);
}

TEST_F(NetworkEnvironment, OthersMayDoWhatTheSecretOrTheSwitchSays) {
  Network network = Network::from_environment().value();
  EXPECT_TRUE(network.same_user_only());
  network.plain_text = true;
  EXPECT_FALSE(network.same_user_only());
  EXPECT_EQ(network.rights_of_others(), GraphRights::none());
  network.grpc.token = "sesame";
  EXPECT_EQ(network.rights_of_others(), GraphRights());
  set("MILLRACE_CLUSTER_ALLOW", "files,state");
  network.allow = Network::from_environment().value().allow;
  EXPECT_EQ(network.rights_of_others().to_string(), "files,state");
  set("MILLRACE_CLUSTER_ALLOW", "none");
  network.allow = Network::from_environment().value().allow;
  EXPECT_EQ(network.rights_of_others(), GraphRights::none());
  set("MILLRACE_CLUSTER_ALLOW", "everything");
  EXPECT_EQ(Network::from_environment().status().code(), Code::kInvalidArgument);
}

TEST_F(NetworkEnvironment, RefusesTokensThatAreNone) {
  const std::string file = folder_ / "token";
  set("MILLRACE_CLUSTER_TOKEN_FILE", file);
  EXPECT_EQ(Network::from_environment().status().code(), Code::kNotFound);
  for (const char* token : {"", "\n", "two words", "new\nline", "\x01"}) {
    ASSERT_TRUE(write_file_atomically(posix_file_system(), file, token).ok());
    EXPECT_EQ(Network::from_environment().status().code(), Code::kInvalidArgument) << token;
  }
}

TEST(Network, LoopbackIsWhatNobodyElseReaches) {
  for (const char* host : {"localhost", "127.0.0.1", "127.3.2.1", "[::1]"}) {
    EXPECT_TRUE(is_loopback(host)) << host;
  }
  for (const char* host : {"0.0.0.0", "[::]", "10.0.0.7", "ps0.example", "12", ""}) {
    EXPECT_FALSE(is_loopback(host)) << host;
  }
}

}  // namespace
}  // namespace millrace
