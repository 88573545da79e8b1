#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/kernel/graph_rights.h"

namespace millrace {

// How the tasks of a cluster reach each other, and who may reach them.
struct Network {
  // Certificates and token; the same for all tasks and clients.
  GrpcOptions grpc;
  // Lets tasks on other machines connect without certificates: whoever sees the packets sees the
  // tensors, and the token.
  bool plain_text = false;
  // What graphs of callers may reach who are not processes of the server's user on its machine. By
  // default everything for those who have the secret, nothing for others.
  std::optional<GraphRights> allow;
  // Tasks of this machine talk through shared memory instead of over gRPC.
  bool same_host = true;
  // A file that says which tasks are not at their addresses any more: a line for each, the address
  // that the cluster has for it and the one where it is, a space between them. The last line of an
  // address counts; whatever is no such line says nothing. Empty: no file.
  std::string moved;

  // What the environment says: MILLRACE_CLUSTER_CERTS names a folder with ca.pem, cert.pem and
  // key.pem, MILLRACE_CLUSTER_TOKEN_FILE a file that holds the token, MILLRACE_CLUSTER_PLAIN_TEXT=1
  // allows plain text, MILLRACE_CLUSTER_ALLOW is `allow` in words (GraphRights::parse),
  // MILLRACE_SAME_HOST=0 leaves out the shared memory, MILLRACE_CLUSTER_MOVED names the file
  // `moved`. INVALID_ARGUMENT for an empty token or other words, or the error of the token's file.
  static Result<Network> from_environment();

  // Where a task with this address listens for gRPC: on this machine alone, unless there are
  // certificates or plain text is allowed. Empty: nowhere, since others could not reach it anyhow.
  std::string listen_at(std::string_view address) const;

  // True where only processes of the server's own user and of root, on its machine, come in.
  bool same_user_only() const {
    return grpc.token.empty() && grpc.certificate.empty() && !plain_text;
  }
  // What graphs of other callers may reach.
  GraphRights rights_of_others() const {
    const bool secret = !grpc.token.empty() || !grpc.certificate.empty();
    return allow ? *allow : secret ? GraphRights() : GraphRights::none();
  }

  // Where the task is that the cluster has at this address: there, unless the file `moved` says
  // otherwise.
  std::string now_at(std::string_view address) const;

  // A channel to the task at an address, "host:port". Where it needs gRPC, which is not to be had,
  // or certificates that cannot be read, its calls say so. With `moved` it goes where the task is:
  // when a call could not reach it, the file is read again for the next.
  Ref<Channel> connect(std::string_view address, std::string peer) const;

 private:
  class FollowingChannel;
  Ref<Channel> connect_to(std::string_view address, std::string peer) const;
};

// Whether a host, as addresses have it, is reached from this machine alone.
bool is_loopback(std::string_view host);

// The name under which the task at an address listens on this machine; empty: it is elsewhere.
// This machine is "localhost", "127.*", "[::1]" and its own name.
std::string name_on_host(std::string_view address);

}  // namespace millrace
