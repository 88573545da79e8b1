// test-labels: threads
#include "millrace/distributed/metrics_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <vector>

#include "millrace/base/str_cat.h"
#include "millrace/distributed/same_host/local_socket.h"

namespace millrace {
namespace {

class MetricsPortTest : public testing::Test {
 protected:
  void open(const MetricsPort::Options& options = {}) {
    auto port = MetricsPort::open(options, [] { return std::string("page 1\n"); });
    ASSERT_TRUE(port.ok()) << port.status().to_string();
    port_ = *std::move(port);
  }
  int number() const { return std::stoi(port_->url().substr(port_->url().rfind(':') + 1)); }

  OwnedFd connect_to() const {
    OwnedFd out(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(number()));
    EXPECT_EQ(connect(out.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return out;
  }
  static std::string read_all(const OwnedFd& socket) {
    std::string out;
    char bytes[4096];
    ssize_t got;
    while ((got = recv(socket.get(), bytes, sizeof bytes, 0)) > 0) {
      out.append(bytes, static_cast<size_t>(got));
    }
    return out;
  }
  std::string ask(std::string_view request) const {
    const OwnedFd socket = connect_to();
    send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    return read_all(socket);
  }
  static bool begins(const std::string& answer, std::string_view status) {
    return answer.starts_with(str_cat("HTTP/1.1 ", status));
  }

  std::unique_ptr<MetricsPort> port_;
};

TEST_F(MetricsPortTest, AnswersWithThePage) {
  open();
  EXPECT_TRUE(port_->url().starts_with("http://127.0.0.1:")) << port_->url();
  EXPECT_EQ(ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 7\r\nConnection: close\r\n\r\npage 1\n");
  EXPECT_TRUE(begins(ask("GET /metrics?name=x HTTP/1.0\r\n\r\n"), "200"));
  // A request that comes byte by byte.
  const OwnedFd slow = connect_to();
  for (const char c : std::string_view("GET /metrics HTTP/1.1\r\n\r\n")) {
    ASSERT_EQ(send(slow.get(), &c, 1, MSG_NOSIGNAL), 1);
  }
  EXPECT_TRUE(begins(read_all(slow), "200"));
  EXPECT_EQ(MetricsPort::open({.port = number()}, nullptr).status().code(), Code::kUnknown);
}

TEST_F(MetricsPortTest, WhatIsNoRequestIsAnError) {
  open({.max_request = 1000});
  EXPECT_TRUE(begins(ask("GET / HTTP/1.1\r\n\r\n"), "404"));
  EXPECT_TRUE(begins(ask("POST /metrics HTTP/1.1\r\n\r\nx"), "405"));
  EXPECT_TRUE(begins(ask("GET /metrics\r\n\r\n"), "400"));
  EXPECT_TRUE(begins(ask("GET HTTP/1.1\r\n\r\n"), "400"));
  EXPECT_TRUE(begins(ask("\r\n\r\n"), "400"));
  EXPECT_TRUE(begins(ask(std::string(5000, 'x')), "431"));
  EXPECT_TRUE(begins(ask(str_cat(std::string(1001, 'x'), "\r\n\r\n")), "431"));
  const uint64_t seed = std::random_device()();
  std::mt19937_64 random(seed);
  for (int i = 0; i < 50; ++i) {
    std::string bytes(random() % 3000, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    bytes += "\r\n\r\n";
    EXPECT_TRUE(ask(bytes).starts_with("HTTP/1.1 4")) << "seed " << seed;
  }
  EXPECT_TRUE(begins(ask("GET /metrics HTTP/1.1\r\n\r\n"), "200")) << "seed " << seed;
}

TEST_F(MetricsPortTest, WhoSaysNothingIsForgotten) {
  open({.max_connections = 2, .timeout_ms = 50});
  std::vector<OwnedFd> silent;
  for (int i = 0; i < 8; ++i) silent.push_back(connect_to());
  for (const OwnedFd& socket : silent) EXPECT_EQ(read_all(socket), "");
  EXPECT_TRUE(begins(ask("GET /metrics HTTP/1.1\r\n\r\n"), "200"));
}

TEST_F(MetricsPortTest, AsksForTheToken) {
  open({.same_user = false, .token = "open-sesame"});
  const auto with = [&](std::string_view line) {
    return ask(str_cat("GET /metrics HTTP/1.1\r\n", line, "\r\n\r\n"));
  };
  EXPECT_TRUE(begins(with("Authorization: Bearer open-sesame"), "200"));
  EXPECT_TRUE(begins(with("Host: x\r\nauthorization:  Bearer open-sesame"), "200"));
  for (const char* line :
       {"Host: x", "Authorization: Bearer open-sesamf", "Authorization:", "Authorization: Bearer",
        "Authorization: open-sesame", "Authorization: Bearer open-sesame and more"}) {
    EXPECT_TRUE(begins(with(line), "401")) << line;
  }
}

TEST(MetricsPort, IsOpenedAsTheTasksOwnPort) {
  const auto options = [](Network network, std::string_view address) {
    return MetricsPort::Options::of(network, address, 1);
  };
  Network network;
  EXPECT_TRUE(options(network, "node1:1").same_user);
  EXPECT_FALSE(options(network, "node1:1").all_interfaces);
  network.plain_text = true;
  network.grpc.certificate = "c.pem";  // which nobody shows here
  EXPECT_TRUE(options(network, "node1:1").same_user);
  EXPECT_FALSE(options(network, "node1:1").all_interfaces);
  network.grpc.certificate = "";
  EXPECT_FALSE(options(network, "node1:1").same_user);
  EXPECT_TRUE(options(network, "node1:1").all_interfaces);
  EXPECT_FALSE(options(network, "localhost:1").all_interfaces);
  network.plain_text = false;
  network.grpc.token = "t";
  EXPECT_EQ(options(network, "node1:1").token, "t");
  EXPECT_FALSE(options(network, "node1:1").all_interfaces);
}

}  // namespace
}  // namespace millrace
