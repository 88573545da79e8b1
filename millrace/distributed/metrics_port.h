#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "millrace/base/status.h"
#include "millrace/distributed/network.h"

namespace millrace {

// A port that answers "GET /metrics" with a page, by HTTP/1.1, for Prometheus: one thread, a few
// connections at once, one request each. Whatever comes that is no such request is answered with an
// error, or with nothing, and is forgotten; nobody keeps a connection for longer than the time-out.
class MetricsPort {
 public:
  struct Options {
    int port = 0;  // 0: a free one
    // By default processes of this user and of root on this machine come in: Network says who else.
    bool all_interfaces = false;
    bool same_user = true;
    std::string token;  // not empty: requests must say it, "Authorization: Bearer TOKEN"
    // What is held at most: connections, bytes of a request, and how long one may take.
    size_t max_connections = 16;
    size_t max_request = 8192;
    int64_t timeout_ms = 5000;

    // As the gRPC port of a task at this address is opened: to other machines where plain text is
    // allowed, to other users with the token. Nobody shows a certificate here: where tasks have
    // them, and no token, it stays with this user and machine.
    static Options of(const Network& network, std::string_view address, int port);
  };
  // The page, asked for at each request on the port's own thread.
  using Page = std::function<std::string()>;

  // UNKNOWN when the port is not to be had.
  static Result<std::unique_ptr<MetricsPort>> open(const Options& options, Page page);
  ~MetricsPort();
  MetricsPort(const MetricsPort&) = delete;
  MetricsPort& operator=(const MetricsPort&) = delete;

  // "http://127.0.0.1:9100/metrics", with the port that it got.
  const std::string& url() const;

 private:
  class Responder;
  explicit MetricsPort(std::unique_ptr<Responder> responder);
  const std::unique_ptr<Responder> responder_;
};

}  // namespace millrace
