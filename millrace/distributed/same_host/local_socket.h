#pragma once

#include <sys/types.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/status.h"

// Stream sockets between processes of one machine. Their names are those of Linux's abstract
// namespace: no files, gone with the process that listens, and seen in one network namespace only,
// which is what "the same host" means.

namespace millrace {

// A file descriptor of our own, closed at the end.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A socket that listens under `name` (1 to 100 bytes). ALREADY_EXISTS when another one does.
Result<OwnedFd> listen_on_host(std::string_view name);
// A connection that waits, or the next that comes; CANCELLED once the socket was shut down.
Result<OwnedFd> accept_on_host(const OwnedFd& listener);
// Without waiting: UNAVAILABLE when nobody listens under `name`, or too many want to be accepted.
Result<OwnedFd> connect_on_host(std::string_view name);

// The process at the other end. PERMISSION_DENIED unless it runs as this user, or as root.
Result<pid_t> check_same_user(const OwnedFd& socket);

// Sends bytes together with descriptors, and receives both. For greetings: few bytes, few
// descriptors. UNAVAILABLE when the other end is gone or says something else; DEADLINE_EXCEEDED
// when nothing came within `timeout_ms`.
Status send_with_fds(const OwnedFd& socket, std::span<const char> bytes, std::span<const int> fds);
Result<std::vector<OwnedFd>> receive_with_fds(const OwnedFd& socket, std::span<char> bytes,
                                              size_t fds, int timeout_ms);

}  // namespace millrace
