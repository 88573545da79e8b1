#pragma once

#include <sys/types.h>

#include <string_view>

#include "millrace/base/status.h"

namespace millrace {

// The user whose process has the other end of a TCP connection within this machine. `peer`: that
// end as gRPC writes it, "ipv4:127.0.0.1:40000" or "ipv6:%5B::1%5D:40000"; `host` and `port`: this
// end, "0.0.0.0" for any address of the machine. INVALID_ARGUMENT for what is no such address;
// NOT_FOUND when there is no such connection.
Result<uid_t> tcp_owner(std::string_view peer, std::string_view host, int port);

}  // namespace millrace
