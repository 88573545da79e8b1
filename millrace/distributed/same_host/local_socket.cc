#include "millrace/distributed/same_host/local_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "millrace/base/check.h"

namespace millrace {
namespace {

constexpr size_t kMaxFds = 4;

std::string errno_text() { return strerror(errno); }

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};

Result<Address> make_address(std::string_view name) {
  Address address;
  if (name.empty() || name.size() > 100) {
    return invalid_argument("expected a socket's name of 1 to 100 bytes, got ", name.size());
  }
  address.name.sun_family = AF_UNIX;
  // A first byte of zero makes the name abstract.
  std::memcpy(address.name.sun_path + 1, name.data(), name.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Result<OwnedFd> make_socket(int flags = 0) {
  OwnedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd.valid()) return unavailable("cannot make a socket: ", errno_text());
  return fd;
}

}  // namespace

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

Result<OwnedFd> listen_on_host(std::string_view name) {
  MR_TRY_ASSIGN(const Address address, make_address(name));
  MR_TRY_ASSIGN(OwnedFd fd, make_socket());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) {
    if (errno == EADDRINUSE) {
      return already_exists("another process listens as ", name, " on this host");
    }
    return unavailable("cannot listen as ", name, ": ", errno_text());
  }
  if (listen(fd.get(), 128) != 0) return unavailable("cannot listen: ", errno_text());
  return fd;
}

Result<OwnedFd> accept_on_host(const OwnedFd& listener) {
  for (;;) {
    OwnedFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (fd.valid()) return fd;
    if (errno == EINVAL || errno == EBADF) return cancelled("the socket was closed");
    if (errno == EINTR || errno == ECONNABORTED) continue;
    return resource_exhausted("cannot accept a connection: ", errno_text());
  }
}

Result<OwnedFd> connect_on_host(std::string_view name) {
  MR_TRY_ASSIGN(const Address address, make_address(name));
  MR_TRY_ASSIGN(OwnedFd fd, make_socket(SOCK_NONBLOCK));
  while (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0) {
    if (errno == EINTR) continue;
    return unavailable("nobody listens as ", name, " on this host: ", errno_text());
  }
  if (fcntl(fd.get(), F_SETFL, 0) != 0) return unavailable("cannot set up: ", errno_text());
  return fd;
}

Result<pid_t> check_same_user(const OwnedFd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return permission_denied("cannot tell who is at the other end: ", errno_text());
  }
  if (peer.uid == geteuid() || peer.uid == 0) return peer.pid;
  return permission_denied("process ", peer.pid, " runs as user ", peer.uid, ", expected user ",
                           geteuid());
}

Status send_with_fds(const OwnedFd& socket, std::span<const char> bytes, std::span<const int> fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  MR_CHECK(fds.size() <= kMaxFds);
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(head), fds.data(), fds.size_bytes());
  ssize_t sent;
  do {
    sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(bytes.size())) return ok_status();
  return unavailable("cannot send a greeting: ", sent < 0 ? errno_text() : "it was cut");
}

Result<std::vector<OwnedFd>> receive_with_fds(const OwnedFd& socket, std::span<char> bytes,
                                              size_t fds, int timeout_ms) {
  pollfd ready = {socket.get(), POLLIN, 0};
  int polled;
  do {
    polled = poll(&ready, 1, timeout_ms);
  } while (polled < 0 && errno == EINTR);
  if (polled == 0) return deadline_exceeded("no greeting came within ", timeout_ms, " ms");
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  iovec part = {bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  std::vector<OwnedFd> received;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); size >= 0 && head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number;
      std::memcpy(&number, CMSG_DATA(head) + i * sizeof(int), sizeof number);
      received.emplace_back(number);
    }
  }
  if (size != static_cast<ssize_t>(bytes.size()) || received.size() != fds) {
    return unavailable("expected a greeting of ", bytes.size(), " bytes with ", fds,
                       " descriptors, got ", size, " with ", received.size());
  }
  return received;
}

}  // namespace millrace
