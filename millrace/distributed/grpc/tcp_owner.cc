#include "millrace/distributed/grpc/tcp_owner.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string>

#include "millrace/distributed/same_host/local_socket.h"

namespace millrace {
namespace {

constexpr int kTimeoutMs = 1000;

struct Ends {
  int family = AF_INET;
  inet_diag_sockid id{};
};

Status read_peer(std::string_view peer, std::string_view host, int port, Ends& ends) {
  const auto wrong = [&] {
    return invalid_argument("expected a connection within this machine, got one from \"", peer,
                            "\" to ", host, ":", port);
  };
  const bool four = peer.starts_with("ipv4:");
  if (!four && !peer.starts_with("ipv6:")) return wrong();
  ends.family = four ? AF_INET : AF_INET6;
  const size_t colon = peer.rfind(':');
  std::string address(peer.substr(5, colon < 5 ? 0 : colon - 5));
  if (!four) {
    // "[::1]", its brackets perhaps escaped.
    for (const std::string_view bracket : {"%5B", "%5D", "[", "]"}) {
      if (const size_t at = address.find(bracket); at != std::string::npos) {
        address.erase(at, bracket.size());
      }
    }
  }
  uint16_t from = 0;
  const std::string_view number = peer.substr(colon + 1);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), from);
  if (error != std::errc() || end != number.data() + number.size() ||
      inet_pton(ends.family, address.c_str(), ends.id.idiag_src) != 1) {
    return wrong();
  }
  if (host == "0.0.0.0" || host == "[::]") {
    // A machine that calls one of its own addresses does so from the same one.
    std::memcpy(ends.id.idiag_dst, ends.id.idiag_src, sizeof ends.id.idiag_dst);
  } else if (inet_pton(ends.family, std::string(host).c_str(), ends.id.idiag_dst) != 1) {
    // A name; this machine's own has one address of each family.
    inet_pton(ends.family, four ? "127.0.0.1" : "::1", ends.id.idiag_dst);
  }
  ends.id.idiag_sport = htons(from);
  ends.id.idiag_dport = htons(static_cast<uint16_t>(port));
  ends.id.idiag_cookie[0] = ends.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return ok_status();
}

}  // namespace

Result<uid_t> tcp_owner(std::string_view peer, std::string_view host, int port) {
  Ends ends;
  MR_TRY(read_peer(peer, host, port, ends));
  const OwnedFd kernel(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  struct {
    nlmsghdr head;
    inet_diag_req_v2 request;
  } question{};
  question.head.nlmsg_len = sizeof question;
  question.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.head.nlmsg_flags = NLM_F_REQUEST;
  question.request.sdiag_family = static_cast<uint8_t>(ends.family);
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = ~uint32_t{0};
  question.request.id = ends.id;
  const timeval timeout = {kTimeoutMs / 1000, 0};
  alignas(nlmsghdr) char answer[4096];
  ssize_t size = -1;
  if (kernel.valid() &&
      setsockopt(kernel.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout) == 0 &&
      send(kernel.get(), &question, sizeof question, 0) == sizeof question) {
    size = recv(kernel.get(), answer, sizeof answer, 0);
  }
  if (size < static_cast<ssize_t>(sizeof(nlmsghdr))) {
    return unknown("the kernel does not tell whose connection ", peer,
                   " is: ", std::strerror(errno));
  }
  const auto* head = reinterpret_cast<const nlmsghdr*>(answer);
  if (head->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
      size < static_cast<ssize_t>(NLMSG_LENGTH(sizeof(inet_diag_msg)))) {
    return not_found("no connection from ", peer, " to ", host, ":", port);
  }
  const auto* found = reinterpret_cast<const inet_diag_msg*>(NLMSG_DATA(head));
  // Where there is no such connection, the kernel answers with who listens at the peer's port.
  if (found->id.idiag_dport != ends.id.idiag_dport) {
    return not_found("no connection from ", peer, " to ", host, ":", port);
  }
  return found->idiag_uid;
}

}  // namespace millrace
