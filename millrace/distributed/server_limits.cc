#include "millrace/distributed/server_limits.h"

#include "millrace/base/env.h"

namespace millrace {

ServerLimits ServerLimits::from_environment() {
  ServerLimits out;
  out.sessions =
      static_cast<int>(env_int("MILLRACE_CLUSTER_MAX_SESSIONS", out.sessions, 1, 1 << 20));
  out.sessions_per_client = static_cast<int>(
      env_int("MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT", (out.sessions + 1) / 2, 1, 1 << 20));
  out.graph_bytes =
      env_int("MILLRACE_CLUSTER_MAX_GRAPH_MB", out.graph_bytes >> 20, 1, int64_t{1} << 30) << 20;
  out.calls_per_client = static_cast<int>(
      env_int("MILLRACE_CLUSTER_MAX_CALLS_PER_CLIENT", out.calls_per_client, 1, 1 << 30));
  out.call_bytes_per_client = env_int("MILLRACE_CLUSTER_MAX_CALL_MB_PER_CLIENT",
                                      out.call_bytes_per_client >> 20, 1, int64_t{1} << 30)
                              << 20;
  return out;
}

}  // namespace millrace
