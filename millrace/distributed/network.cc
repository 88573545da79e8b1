#include "millrace/distributed/network.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "millrace/base/env.h"
#include "millrace/base/file.h"
#include "millrace/base/mutex.h"
#include "millrace/distributed/same_host/same_host.h"

namespace millrace {
namespace {

struct HostPort {
  std::string_view host, port;
};

HostPort split_address(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return {};
  return {address.substr(0, colon), address.substr(colon + 1)};
}

bool is_here(std::string_view host) {
  char own[256] = {};
  gethostname(own, sizeof own - 1);
  return is_loopback(host) || host == own;
}

// A channel that could not be made.
class NoChannel final : public Channel {
 public:
  NoChannel(std::string peer, Status reason) : peer_(std::move(peer)), reason_(std::move(reason)) {}
  std::string peer() const override { return peer_; }
  void call(std::string_view, Message, Ref<CancellationToken>, CallDone done) override {
    done(Status(reason_.code(), str_cat("cannot connect to ", peer_, ": ", reason_.message())),
         Message());
  }

 private:
  const std::string peer_;
  const Status reason_;
};

}  // namespace

bool is_loopback(std::string_view host) {
  return host == "localhost" || host.starts_with("127.") || host == "[::1]";
}

Result<Network> Network::from_environment() {
  Network out;
  if (const std::string_view certs = env_string("MILLRACE_CLUSTER_CERTS"); !certs.empty()) {
    out.grpc.authority = str_cat(certs, "/ca.pem");
    out.grpc.certificate = str_cat(certs, "/cert.pem");
    out.grpc.key = str_cat(certs, "/key.pem");
  }
  if (const std::string name(env_string("MILLRACE_CLUSTER_TOKEN_FILE")); !name.empty()) {
    MR_TRY_ASSIGN(out.grpc.token, read_file(posix_file_system(), name));
    while (out.grpc.token.ends_with('\n')) out.grpc.token.pop_back();
    for (const char c : out.grpc.token) {
      if (c > ' ' && c <= '~') continue;
      return invalid_argument("expected a token of printable characters without spaces in ", name);
    }
    if (out.grpc.token.empty()) return invalid_argument("expected a token in ", name);
  }
  out.plain_text = env_int("MILLRACE_CLUSTER_PLAIN_TEXT", 0, 0, 1) == 1;
  if (const std::string_view words = env_string("MILLRACE_CLUSTER_ALLOW"); !words.empty()) {
    Result<GraphRights> allow = GraphRights::parse(words);
    if (!allow.ok()) return allow.status().with_prefix("MILLRACE_CLUSTER_ALLOW");
    out.allow = *allow;
  }
  out.same_host = env_int("MILLRACE_SAME_HOST", 1, 0, 1) == 1;
  out.moved = env_string("MILLRACE_CLUSTER_MOVED");
  return out;
}

std::string Network::listen_at(std::string_view address) const {
  const auto [host, port] = split_address(address);
  if (is_loopback(host)) return std::string(address);
  if (plain_text || !grpc.certificate.empty()) return str_cat("0.0.0.0:", port);
  return is_here(host) ? str_cat("127.0.0.1:", port) : "";
}

std::string Network::now_at(std::string_view address) const {
  std::string found(address);
  if (moved.empty()) return found;
  const Result<std::string> text = read_file(posix_file_system(), moved);
  if (!text.ok()) return found;  // nobody has moved yet
  std::string_view left = *text;
  while (!left.empty()) {
    const size_t end = std::min(left.find('\n'), left.size());
    const std::string_view line = left.substr(0, end);
    left.remove_prefix(std::min(end + 1, left.size()));
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || line.substr(0, space) != address) continue;
    const std::string_view to = line.substr(space + 1);
    if (!split_address(to).port.empty()) found = to;
  }
  return found;
}

// To a task that may come back elsewhere.
class Network::FollowingChannel final : public Channel {
 public:
  FollowingChannel(Network network, std::string_view address, std::string peer)
      : network_(std::move(network)), address_(address), peer_(std::move(peer)) {
    MutexLock lock(mu_);
    wanted_ = network_.now_at(address_);
  }
  std::string peer() const override { return peer_; }
  void call(std::string_view method, Message request, Ref<CancellationToken> cancel,
            CallDone done) override {
    current()->call(method, std::move(request), std::move(cancel),
                    [self = Ref<FollowingChannel>(this), done = std::move(done)](
                        Status status, Message answer) mutable {
                      if (status.code() == Code::kUnavailable) self->look();
                      done(std::move(status), std::move(answer));
                    });
  }

 private:
  Ref<Channel> current() {
    Ref<Channel> before;  // goes outside of the lock, and not on a thread of its own
    MutexLock lock(mu_);
    if (!channel_ || connected_ != wanted_) {
      connected_ = wanted_;
      before = std::exchange(channel_, network_.connect_to(connected_, peer_));
    }
    return channel_;
  }
  void look() {
    std::string where = network_.now_at(address_);
    MutexLock lock(mu_);
    wanted_ = std::move(where);
  }

  const Network network_;
  const std::string address_, peer_;
  Mutex mu_;
  std::string wanted_ MR_GUARDED_BY(mu_);
  std::string connected_ MR_GUARDED_BY(mu_);
  Ref<Channel> channel_ MR_GUARDED_BY(mu_);  // to connected_; null before the first call
};

Ref<Channel> Network::connect(std::string_view address, std::string peer) const {
  if (moved.empty()) return connect_to(address, std::move(peer));
  return make_ref<FollowingChannel>(*this, address, std::move(peer));
}

Ref<Channel> Network::connect_to(std::string_view address, std::string peer) const {
  std::string name = name_on_host(address);
  if (!name.empty() && same_host) return make_same_host_channel(std::move(name), std::move(peer));
  Result<Ref<Channel>> channel = make_grpc_channel(std::string(address), peer, grpc);
  if (!channel.ok()) return make_ref<NoChannel>(std::move(peer), channel.status());
  return *std::move(channel);
}

std::string name_on_host(std::string_view address) {
  const auto [host, port] = split_address(address);
  return is_here(host) ? str_cat("millrace-port-", port) : "";
}

}  // namespace millrace
