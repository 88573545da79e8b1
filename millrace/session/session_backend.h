#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/graph/graph.h"
#include "millrace/kernel/function_runner.h"
#include "millrace/runtime/device_set.h"
#include "millrace/runtime/executable.h"
#include "millrace/runtime/signature.h"
#include "millrace/session/session_options.h"

namespace millrace {

// Who owns a session's devices. The session prunes, places and optimises; the backend turns the
// result into something that runs. Thread-safe.
class SessionBackend : public RefCounted {
 public:
  virtual const DeviceSet& devices() const = 0;
  // A device of this process whose kernels fold constants.
  virtual Device& host_device() = 0;
  // Makes a placed graph ready to run. `session` tells apart the sessions that share devices.
  virtual Result<Ref<Executable>> prepare(const Subgraph& graph, const Signature& signature,
                                          const std::string& session) = 0;
  // True when prepare() may be called again for a signature that is prepared, while that runs, for
  // a plan of its own; and when the session alone changes its variables.
  virtual bool prepares_again() const { return false; }
  // What runs functions for kernels of the session that call them; null where none can.
  virtual Ref<FunctionRunner> make_function_runner(const Graph& graph, const std::string& session) {
    (void)graph, (void)session;
    return nullptr;
  }
  // Drops what belongs to this session alone, once it is closed and nothing of it runs. Devices
  // that cannot be reached are not waited for.
  virtual void close(const std::string& session) = 0;
  // Drops the resources in these containers on all devices; none named: in the default one, which
  // the name of a device's job stands for too.
  Status reset(std::span<const std::string> containers) {
    return reset_where(containers, [](const DeviceName&) { return true; });
  }
  // The same on those tasks only, or those devices where there is one task, whose name `which`
  // agrees to.
  virtual Status reset_where(std::span<const std::string> containers,
                             FunctionRef<bool(const DeviceName&)> which) = 0;
};

using BackendFactory = Result<Ref<SessionBackend>> (*)(const SessionOptions& options);

// Makes targets that begin with "<scheme>://" use `factory`. ALREADY_EXISTS for a second one.
Status register_session_backend(std::string_view scheme, BackendFactory factory);
// The backend for options.target; NOT_FOUND naming the schemes there are.
Result<Ref<SessionBackend>> make_session_backend(const SessionOptions& options);

// Devices of this process: those of one session, shared with nobody.
Result<Ref<SessionBackend>> make_local_backend(const SessionOptions& options);
// These devices; the first is a CPU, from where feeds come and where constants are folded. With
// `isolate_state` they are the session's own, and their state ends with it.
Ref<SessionBackend> make_local_backend(std::vector<Ref<Device>> devices,
                                       const SessionOptions& options);

}  // namespace millrace
