#include "millrace/distributed/metrics_port.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/str_cat.h"
#include "millrace/distributed/grpc/tcp_owner.h"
#include "millrace/distributed/same_host/local_socket.h"

namespace millrace {
namespace {

constexpr std::string_view kEndOfHead = "\r\n\r\n";
constexpr std::string_view kAuthorization = "authorization:";

std::string answer(std::string_view status, std::string_view body,
                   std::string_view type = "text/plain; charset=utf-8") {
  return str_cat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                 "\r\nContent-Length: ", body.size(), "\r\nConnection: close\r\n\r\n", body);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// Takes as long for a token that is nearly right as for any other of its length.
bool same_token(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

// Whether one of the lines after the first is "Authorization: Bearer TOKEN".
bool says_token(std::string_view head, std::string_view token) {
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    if (line.size() < kAuthorization.size() ||
        !std::equal(kAuthorization.begin(), kAuthorization.end(), line.begin(),
                    [](char a, char b) { return a == lower(b); })) {
      continue;
    }
    line.remove_prefix(kAuthorization.size());
    while (line.starts_with(' ')) line.remove_prefix(1);
    return line.starts_with("Bearer ") && same_token(line.substr(7), token);
  }
  return false;
}

}  // namespace

MetricsPort::Options MetricsPort::Options::of(const Network& network, std::string_view address,
                                              int port) {
  Options out;
  out.port = port;
  out.token = network.grpc.token;
  const bool plain_text = network.plain_text && network.grpc.certificate.empty();
  out.all_interfaces = plain_text && network.listen_at(address).starts_with("0.0.0.0:");
  out.same_user = out.token.empty() && !plain_text;
  return out;
}

class MetricsPort::Responder {
 public:
  Responder(const Options& options, Page page) : options_(options), page_(std::move(page)) {}
  ~Responder() {
    if (!thread_.joinable()) return;
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one);
    thread_.join();
  }

  Status open() {
    listener_ = OwnedFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    wake_ = OwnedFd(eventfd(0, EFD_CLOEXEC));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(options_.all_interfaces ? INADDR_ANY : INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(options_.port));
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const int on = 1;
    if (!listener_.valid() || !wake_.valid() ||
        setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(listener_.get(), generic, size) != 0 || listen(listener_.get(), 16) != 0 ||
        getsockname(listener_.get(), generic, &size) != 0) {
      return unknown("cannot have port ", options_.port, " for metrics: ", std::strerror(errno));
    }
    port_ = ntohs(address.sin_port);
    url_ = str_cat("http://", host(), ":", port_, "/metrics");
    thread_ = std::thread([this] { serve(); });
    return ok_status();
  }

  const std::string& url() const { return url_; }

 private:
  // It reads until it has the head of a request, writes the answer, and reads on until the other
  // end is done: a socket that is closed with bytes to read takes back what was written.
  struct Connection {
    OwnedFd socket;
    std::string peer;  // as tcp_owner() reads it
    int64_t ends_ns = 0;
    std::string in, out;
    size_t written = 0;
    bool answered = false;
    bool over = false;
  };

  const char* host() const { return options_.all_interfaces ? "0.0.0.0" : "127.0.0.1"; }

  void serve() {
    while (true) {
      std::vector<pollfd> waits = {{wake_.get(), POLLIN, 0}};
      const bool room = connections_.size() < options_.max_connections;
      waits.push_back({room ? listener_.get() : -1, POLLIN, 0});
      int64_t next_ns = INT64_MAX;
      for (const Connection& c : connections_) {
        const bool writes = c.answered && c.written < c.out.size();
        waits.push_back({c.socket.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
        next_ns = std::min(next_ns, c.ends_ns);
      }
      // Rounded up, so that it does not wake before the time.
      const int64_t left_ms = (next_ns - monotonic_nanos()) / 1'000'000 + 1;
      poll(waits.data(), waits.size(),
           next_ns == INT64_MAX ? -1 : static_cast<int>(std::max<int64_t>(left_ms, 0)));
      if (waits[0].revents != 0) return;
      const int64_t now = monotonic_nanos();
      for (size_t i = 0; i < connections_.size(); ++i) {
        if (waits[i + 2].revents != 0) advance(connections_[i]);
        if (now >= connections_[i].ends_ns) connections_[i].over = true;
      }
      std::erase_if(connections_, [](const Connection& c) { return c.over; });
      if (waits[1].revents != 0) accept_one();
    }
  }

  void accept_one() {
    sockaddr_in from{};
    socklen_t size = sizeof from;
    Connection c;
    c.socket = OwnedFd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &size,
                               SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!c.socket.valid()) return;
    char text[INET_ADDRSTRLEN] = {};
    inet_ntop(AF_INET, &from.sin_addr, text, sizeof text);
    c.peer = str_cat("ipv4:", text, ":", ntohs(from.sin_port));
    c.ends_ns = monotonic_nanos() + options_.timeout_ms * 1'000'000;
    connections_.push_back(std::move(c));
  }

  void advance(Connection& c) {
    if (c.answered && c.written < c.out.size()) return write_some(c);
    char bytes[4096];
    const ssize_t got = recv(c.socket.get(), bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      c.over = true;
      return;
    }
    if (c.answered) return;  // what comes after is nothing to us
    c.in.append(bytes, static_cast<size_t>(got));
    const size_t end = c.in.find(kEndOfHead);
    if (end == std::string::npos && c.in.size() <= options_.max_request) return;
    c.out = end == std::string::npos || end > options_.max_request
                ? answer("431 Request Header Fields Too Large", "the request is too long\n")
                : answer_to(c.in.substr(0, end), c.peer);
    c.answered = true;
    write_some(c);
  }

  void write_some(Connection& c) {
    const ssize_t put =
        send(c.socket.get(), c.out.data() + c.written, c.out.size() - c.written, MSG_NOSIGNAL);
    if (put < 0) {
      c.over = errno != EAGAIN && errno != EINTR;
      return;
    }
    c.written += static_cast<size_t>(put);
    if (c.written == c.out.size()) shutdown(c.socket.get(), SHUT_WR);
  }

  std::string answer_to(std::string_view head, const std::string& peer) const {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    const size_t path_at = std::min(line.find(' '), line.size());
    const size_t version_at = line.rfind(' ');
    const std::string_view method = line.substr(0, path_at);
    if (version_at == std::string_view::npos || version_at <= path_at ||
        !line.substr(version_at + 1).starts_with("HTTP/1.")) {
      return answer("400 Bad Request", "expected a request of HTTP/1.1\n");
    }
    if (!may_read(head, peer)) {
      return options_.token.empty()
                 ? answer("403 Forbidden",
                          "this port answers processes of its own user; with a token "
                          "(MILLRACE_CLUSTER_TOKEN_FILE) it answers others\n")
                 : answer("401 Unauthorized",
                          "expected the cluster's token: Authorization: Bearer TOKEN\n");
    }
    if (method != "GET") return answer("405 Method Not Allowed", "expected GET\n");
    std::string_view path = line.substr(path_at + 1, version_at - path_at - 1);
    path = path.substr(0, path.find('?'));
    if (path != "/metrics") return answer("404 Not Found", "expected /metrics\n");
    return answer("200 OK", page_(), "text/plain; version=0.0.4; charset=utf-8");
  }

  bool may_read(std::string_view head, const std::string& peer) const {
    if (!options_.token.empty()) return says_token(head, options_.token);
    if (!options_.same_user) return true;
    const Result<uid_t> owner = tcp_owner(peer, host(), port_);
    return owner.ok() && (*owner == geteuid() || *owner == 0);
  }

  const Options options_;
  const Page page_;
  OwnedFd listener_, wake_;
  int port_ = 0;
  std::string url_;
  std::vector<Connection> connections_;  // the thread's
  std::thread thread_;                   // last: it uses all the others
};

MetricsPort::MetricsPort(std::unique_ptr<Responder> responder) : responder_(std::move(responder)) {}
MetricsPort::~MetricsPort() = default;

Result<std::unique_ptr<MetricsPort>> MetricsPort::open(const Options& options, Page page) {
  auto responder = std::make_unique<Responder>(options, std::move(page));
  MR_TRY(responder->open());
  return std::unique_ptr<MetricsPort>(new MetricsPort(std::move(responder)));
}

const std::string& MetricsPort::url() const { return responder_->url(); }

}  // namespace millrace
