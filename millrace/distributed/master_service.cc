#include "millrace/distributed/master_service.h"

#include <google/protobuf/stubs/common.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <climits>
#include <map>
#include <set>
#include <vector>

#include "millrace/base/hash.h"
#include "millrace/base/hex.h"
#include "millrace/base/log.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/cluster.h"
#include "millrace/distributed/master_session.h"
#include "millrace/io/json_reader.h"
#include "millrace/ops/register_ops.h"
#include "millrace/session/session_backend.h"
#include "proto/master.pb.h"

namespace millrace {
namespace {

constexpr std::string_view kService = "/tensorflow.MasterService/";
constexpr size_t kMaxStatusBytes = 3072;
constexpr size_t kMaxBodyTextBytes = 1 << 20;
constexpr size_t kMaxQuoted = 64;
constexpr int64_t kReconnectMs = 100;
constexpr int64_t kReportNs = 10'000'000'000;

// The beginning of a text, in bytes that a proto's string may have.
std::string clean_text(std::string_view text, size_t limit) {
  size_t end = std::min(text.size(), limit);
  if (end < text.size()) {
    // Not in the middle of a character.
    for (int i = 0; i < 3 && end > 0 && (text[end] & 0xc0) == 0x80; ++i) --end;
  }
  std::string out(text.substr(0, end));
  if (is_utf8(out)) return out;
  for (char& c : out) {
    if ((c & 0x80) != 0) c = '?';
  }
  return out;
}

Status clean_status(const Status& status) {
  if (status.ok()) return status;
  return Status(status.code(), clean_text(status.message(), kMaxStatusBytes));
}

// A request, and a hash of its bytes where it has an id.
template <class Request>
struct Parsed {
  Request request;
  uint64_t digest = 0;
};

// Takes the bytes out of the message.
template <class Request>
Result<Parsed<Request>> parse(Message& message) {
  const std::string fields = std::move(message.fields);
  Parsed<Request> out;
  bool ok = false;
  if (fields.size() <= INT_MAX && message.parts.empty()) {
    const google::protobuf::LogSilencer silence;
    ok = out.request.ParseFromString(fields);
  }
  if (!ok) {
    return invalid_argument("expected a ", out.request.GetTypeName(), ", got ", fields.size(),
                            " bytes and ", message.parts.size(), " parts that are none");
  }
  if constexpr (requires { out.request.request_id(); }) {
    if (out.request.request_id() != 0) out.digest = hash_bytes(fields);
  }
  return out;
}

Result<std::string> to_bytes(const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  if (size >= INT_MAX) {
    return resource_exhausted("an answer may have up to ", INT_MAX, " bytes; this one has ", size,
                              ": fetch less at once");
  }
  return message.SerializeAsString();
}

void to_proto(const Device::Info& info, tensorflow::DeviceAttributes& out) {
  out.set_name(info.name.to_string());
  out.set_device_type(std::string(device_type(info.kind)));
  out.set_memory_limit(info.memory_limit);
  out.set_incarnation(info.incarnation);
  out.set_physical_device_desc(info.description);
}

// Waits so long; ends earlier when one of the tokens is cancelled.
void pause(int64_t milliseconds, CancellationToken& first, CancellationToken& second) {
  struct Waiter {
    Mutex mu;
    CondVar changed;
    bool over MR_GUARDED_BY(mu) = false;
  } waiter;
  const auto end = [&waiter] {
    MutexLock lock(waiter.mu);
    waiter.over = true;
    waiter.changed.notify_all();
  };
  const uint64_t tickets[] = {first.on_cancel(end), second.on_cancel(end)};
  if (tickets[0] != 0 && tickets[1] != 0) {
    const Deadline deadline = Deadline::after_millis(milliseconds);
    MutexLock lock(waiter.mu);
    while (!waiter.over && waiter.changed.wait_until(waiter.mu, deadline)) {
    }
  }
  if (tickets[0] != 0) first.remove(tickets[0]);
  if (tickets[1] != 0) second.remove(tickets[1]);
}

}  // namespace

struct MasterService::Impl {
  // A session, and who uses it.
  struct Held : RefCounted {
    Held(Ref<MasterSession> s, std::string who) : session(std::move(s)), client(std::move(who)) {}
    const Ref<MasterSession> session;
    const std::string client;
    int64_t graph_bytes = 0;   // guarded by Impl::mu
    int calls = 0;             // the same
    int64_t last_used_ns = 0;  // the same
  };

  // One call's use of a session.
  class Use {
   public:
    Use(Impl& impl, Ref<Held> held) : impl_(&impl), held_(std::move(held)) {}
    Use(Use&& other) noexcept : impl_(other.impl_), held_(std::move(other.held_)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (!held_) return;
      MutexLock lock(impl_->mu);
      --held_->calls;
      held_->last_used_ns = monotonic_nanos();
    }
    MasterSession& session() const { return *held_->session; }
    // The session has so many bytes more of a graph. False when it was closed meanwhile.
    bool keep_graph(int64_t bytes) const {
      MutexLock lock(impl_->mu);
      if (held_->session->closed()) return false;
      held_->graph_bytes += bytes;
      return true;
    }

   private:
    Impl* impl_;
    Ref<Held> held_;
  };

  // What a method does: the answer's bytes.
  using Answer = Result<std::string> (Impl::*)(Message& message,
                                               const Ref<CancellationToken>& cancel);
  struct Method {
    std::string_view name;
    Answer answer;
    bool counts;  // against max_calls
  };

  static const Method* find_method(std::string_view name) {
    static constexpr Method kMethods[] = {
        {"RunStep", &Impl::run_step, true},
        {"RunCallable", &Impl::run_callable, true},
        {"ExtendSession", &Impl::extend_session, true},
        {"CreateSession", &Impl::create_session, true},
        {"PartialRunSetup", &Impl::partial_run_setup, true},
        {"MakeCallable", &Impl::make_callable, true},
        {"ListDevices", &Impl::list_devices, true},
        {"ReleaseCallable", &Impl::release_callable, false},
        {"CloseSession", &Impl::close_session, false},
        {"Reset", &Impl::reset, false},
    };
    if (!name.starts_with(kService)) return nullptr;
    name.remove_prefix(kService.size());
    for (const Method& method : kMethods) {
      if (method.name == name) return &method;
    }
    return nullptr;
  }

  // Counts a call that begins; end() follows.
  Status begin(const Method& method) {
    MutexLock lock(mu);
    if (closing->cancelled()) return closing->status();
    // What frees something is let in beyond the limit, up to one for each session and a few.
    const int limit = method.counts ? options.max_calls : options.max_sessions + 64;
    int& count = method.counts ? calls : freeing_calls;
    if (count >= limit) {
      return resource_exhausted(method.name, ": expected at most ", limit,
                                " calls at once; so many are under way");
    }
    ++count;
    ++active;
    return ok_status();
  }
  // The call does not count any more, but is not over.
  void uncount(const Method& method) {
    MutexLock lock(mu);
    --(method.counts ? calls : freeing_calls);
  }
  void end() {
    MutexLock lock(mu);
    if (--active == 0) idle.notify_all();
  }

  Status unknown_session(std::string_view handle) {
    if (handle.empty()) return invalid_argument("expected a session_handle, got none");
    return aborted("Session ", handle.substr(0, kMaxQuoted),
                   " is not found: it was closed or reset, or the server has restarted");
  }

  Result<Use> use(const std::string& handle) {
    MutexLock lock(mu);
    const auto it = sessions.find(handle);
    if (it == sessions.end()) return unknown_session(handle);
    Held& held = *it->second;
    if (held.calls >= options.max_session_calls) {
      return resource_exhausted("expected at most ", options.max_session_calls,
                                " calls of a session at once; so many are under way");
    }
    ++held.calls;
    held.last_used_ns = monotonic_nanos();
    return Use(*this, it->second);
  }

  // What a call of a session ended with: one that came too late found no session.
  Status told(const Use& use, const std::string& handle, Status status) {
    const bool late = status.code() == Code::kFailedPrecondition && use.session().closed();
    return late ? unknown_session(handle) : status;
  }

  // Counts a session to be made. `dropped`: an idle one that makes room, to be closed.
  Status count_session(const std::string& client, Ref<Held>& dropped) MR_REQUIRES(mu) {
    if (closing->cancelled()) return closing->status();
    if (!client.empty()) {
      const auto of_client = static_cast<int64_t>(creating.count(client)) +
                             std::count_if(sessions.begin(), sessions.end(), [&](const auto& s) {
                               return s.second->client == client;
                             });
      if (of_client >= options.max_sessions_per_client) {
        return resource_exhausted(
            "expected at most ", options.max_sessions_per_client, " sessions of ", client,
            " at once (MILLRACE_CLUSTER_MAX_SESSIONS_PER_CLIENT); so many are open");
      }
    }
    if (sessions.size() + creating.size() >= static_cast<size_t>(options.max_sessions)) {
      auto oldest = sessions.end();
      for (auto it = sessions.begin(); it != sessions.end(); ++it) {
        if (it->second->calls > 0) continue;
        if (oldest == sessions.end() || it->second->last_used_ns < oldest->second->last_used_ns) {
          oldest = it;
        }
      }
      if (oldest == sessions.end() ||
          monotonic_nanos() - oldest->second->last_used_ns < options.idle_ms * 1'000'000) {
        return resource_exhausted("expected at most ", options.max_sessions,
                                  " sessions at once (MILLRACE_CLUSTER_MAX_SESSIONS); so many are "
                                  "open");
      }
      dropped = std::move(oldest->second);
      sessions.erase(oldest);
    }
    creating.insert(client);
    return ok_status();
  }

  // Counts the bytes of a graph that a session is to get; release_graph() takes them back.
  Status count_graph(int64_t bytes) {
    MutexLock lock(mu);
    if (graph_bytes + bytes > options.max_graph_bytes) {
      return resource_exhausted("the sessions of this server have graphs of ", graph_bytes,
                                " bytes, and ", bytes, " more are past the ",
                                options.max_graph_bytes >> 20,
                                " MiB that MILLRACE_CLUSTER_MAX_GRAPH_MB allows it");
    }
    graph_bytes += bytes;
    return ok_status();
  }
  void release_graph(int64_t bytes) {
    MutexLock lock(mu);
    graph_bytes -= bytes;
  }
  // Closes a session that is among `sessions` no more.
  void close_held(Held& held) {
    held.session->close();
    MutexLock lock(mu);
    graph_bytes -= std::exchange(held.graph_bytes, 0);
  }

  // Makes the session, waiting for tasks that do not answer yet.
  Result<std::unique_ptr<Session>> connect(const Ref<Graph>& graph, const SessionOptions& session,
                                           CancellationToken& cancel) {
    const int64_t limit_ms = session.timeout_ms > 0 ? session.timeout_ms : options.connect_ms;
    const Deadline deadline = Deadline::after_millis(limit_ms);
    const int64_t began = monotonic_nanos();
    int64_t reported = began;
    while (true) {
      Result<std::unique_ptr<Session>> made = Session::create(graph, session);
      if (made.ok() || made.status().code() != Code::kUnavailable) return made;
      if (cancel.cancelled()) return cancel.status();
      if (closing->cancelled()) return closing->status();
      // Not UNAVAILABLE: clients would only begin anew.
      if (deadline.expired()) {
        return deadline_exceeded("not reached within ", limit_ms, " ms: ", made.status().message());
      }
      const int64_t now = monotonic_nanos();
      if (now - reported >= kReportNs) {
        reported = now;
        MR_NOTICE("CreateSession waits since ", (now - began) / 1'000'000'000,
                  " s: ", made.status().message());
      }
      pause(kReconnectMs, cancel, *closing);
    }
  }

  Result<std::string> create_session(Message& message, const Ref<CancellationToken>& cancel) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::CreateSessionRequest>(message));
    tensorflow::ConfigProto config = default_config;
    config.MergeFrom(parsed.request.config());
    MR_TRY_ASSIGN(SessionOptions session_options, SessionOptions::from_proto(config));
    session_options.target = options.target;
    session_options.asked_target = parsed.request.target();
    session_options.max_partial_runs = options.max_partial_runs;
    session_options.rights = options.rights;
    session_options.max_plan_bytes = options.max_plan_bytes;
    MR_TRY(register_ops());
    Ref<Graph> graph = make_ref<Graph>();
    const MasterSession::Limits limits = {options.max_callables, options.max_expanded_bytes};
    MR_TRY(MasterSession::import(parsed.request.graph_def(), limits, *graph));
    Ref<Held> dropped;
    {
      MutexLock lock(mu);
      MR_TRY(count_session(message.client, dropped));
    }
    if (dropped) close_held(*dropped);
    const int64_t bytes = static_cast<int64_t>(parsed.request.graph_def().ByteSizeLong());
    if (Status full = count_graph(bytes); !full.ok()) {
      MutexLock lock(mu);
      creating.extract(message.client);
      return full;
    }
    Result<std::unique_ptr<Session>> session = connect(graph, session_options, *cancel);
    Status status = session.status();
    Ref<Held> held;
    if (status.ok()) {
      held = make_ref<Held>(make_ref<MasterSession>(std::move(graph), *std::move(session), limits),
                            message.client);
      held->graph_bytes = bytes;
      held->last_used_ns = monotonic_nanos();
      status = cancel->status();  // nobody would close it
    }
    tensorflow::CreateSessionResponse response;
    {
      MutexLock lock(mu);
      creating.extract(message.client);
      if (status.ok()) status = closing->status();
      while (status.ok()) {
        std::string handle = hex_digits(random_incarnation());
        if (!sessions.try_emplace(handle, held).second) continue;
        response.set_session_handle(std::move(handle));
        break;
      }
    }
    if (!status.ok()) {
      if (held) held->session->close();
      release_graph(bytes);
      return status;
    }
    return to_bytes(response);
  }

  Result<std::string> extend_session(Message& message, const Ref<CancellationToken>&) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::ExtendSessionRequest>(message));
    MR_TRY_ASSIGN(const Use used, use(parsed.request.session_handle()));
    const int64_t bytes = static_cast<int64_t>(parsed.request.graph_def().ByteSizeLong());
    MR_TRY(count_graph(bytes));
    const Result<int64_t> version = used.session().extend(parsed.request);
    if (!version.ok() || !used.keep_graph(bytes)) release_graph(bytes);
    MR_TRY(told(used, parsed.request.session_handle(), version.status()));
    tensorflow::ExtendSessionResponse response;
    response.set_new_graph_version(*version);
    return to_bytes(response);
  }

  Result<std::string> partial_run_setup(Message& message, const Ref<CancellationToken>&) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::PartialRunSetupRequest>(message));
    MR_TRY_ASSIGN(const Use used, use(parsed.request.session_handle()));
    Result<std::string> handle = used.session().partial_run_setup(parsed.request, parsed.digest);
    MR_TRY(told(used, parsed.request.session_handle(), handle.status()));
    tensorflow::PartialRunSetupResponse response;
    response.set_partial_run_handle(*std::move(handle));
    return to_bytes(response);
  }

  Result<std::string> run_step_once(const Parsed<tensorflow::RunStepRequest>& parsed,
                                    const Ref<CancellationToken>& cancel) {
    const std::string& handle = parsed.request.session_handle();
    MR_TRY_ASSIGN(const Use used, use(handle));
    tensorflow::RunStepResponse response;
    MR_TRY(told(used, handle,
                used.session().run_step(parsed.request, parsed.digest, cancel, response)));
    return to_bytes(response);
  }

  Result<std::string> run_step(Message& message, const Ref<CancellationToken>& cancel) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::RunStepRequest>(message));
    Result<std::string> answer = run_step_once(parsed, cancel);
    if (answer.ok() || !parsed.request.store_errors_in_response_body()) return answer;
    tensorflow::RunStepResponse response;
    response.set_status_code(static_cast<tensorflow::error::Code>(answer.status().code()));
    response.set_status_error_message(clean_text(answer.status().message(), kMaxBodyTextBytes));
    return to_bytes(response);
  }

  Result<std::string> make_callable(Message& message, const Ref<CancellationToken>&) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::MakeCallableRequest>(message));
    MR_TRY_ASSIGN(const Use used, use(parsed.request.session_handle()));
    const Result<int64_t> number = used.session().make_callable(parsed.request, parsed.digest);
    MR_TRY(told(used, parsed.request.session_handle(), number.status()));
    tensorflow::MakeCallableResponse response;
    response.set_handle(*number);
    return to_bytes(response);
  }

  Result<std::string> run_callable(Message& message, const Ref<CancellationToken>& cancel) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::RunCallableRequest>(message));
    MR_TRY_ASSIGN(const Use used, use(parsed.request.session_handle()));
    tensorflow::RunCallableResponse response;
    MR_TRY(told(used, parsed.request.session_handle(),
                used.session().run_callable(parsed.request, parsed.digest, cancel, response)));
    return to_bytes(response);
  }

  Result<std::string> release_callable(Message& message, const Ref<CancellationToken>&) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::ReleaseCallableRequest>(message));
    Ref<Held> held;
    {
      MutexLock lock(mu);
      const auto it = sessions.find(parsed.request.session_handle());
      if (it == sessions.end()) return unknown_session(parsed.request.session_handle());
      held = it->second;
    }
    MR_TRY(held->session->release_callable(parsed.request.handle()));
    return to_bytes(tensorflow::ReleaseCallableResponse());
  }

  Result<std::string> list_devices(Message& message, const Ref<CancellationToken>&) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::ListDevicesRequest>(message));
    std::vector<Device::Info> devices;
    if (parsed.request.session_handle().empty()) {
      MR_TRY_ASSIGN(SessionOptions session_options, SessionOptions::from_proto(default_config));
      session_options.target = options.target;
      MR_TRY_ASSIGN(const Ref<SessionBackend> backend, make_session_backend(session_options));
      devices = backend->devices().devices();
    } else {
      MR_TRY_ASSIGN(const Use used, use(parsed.request.session_handle()));
      devices = used.session().list_devices();
    }
    tensorflow::ListDevicesResponse response;
    for (const Device::Info& info : devices) {
      const bool local = info.name.task_name() == options.task;
      to_proto(info, local ? *response.add_local_device() : *response.add_remote_device());
    }
    return to_bytes(response);
  }

  Result<std::string> close_session(Message& message, const Ref<CancellationToken>&) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::CloseSessionRequest>(message));
    Ref<Held> held;
    {
      MutexLock lock(mu);
      const auto it = sessions.find(parsed.request.session_handle());
      if (it == sessions.end()) return unknown_session(parsed.request.session_handle());
      held = std::move(it->second);
      sessions.erase(it);
    }
    close_held(*held);
    return to_bytes(tensorflow::CloseSessionResponse());
  }

  void close_all() {
    std::map<std::string, Ref<Held>> closed;
    {
      MutexLock lock(mu);
      closed.swap(sessions);
    }
    for (const auto& [handle, held] : closed) close_held(*held);
  }

  Result<std::string> reset(Message& message, const Ref<CancellationToken>&) {
    MR_TRY_ASSIGN(const auto parsed, parse<tensorflow::ResetRequest>(message));
    if (!options.rights.state) return refuse(Reach::kState, "Reset");
    MR_TRY_ASSIGN(SessionOptions session_options, SessionOptions::from_proto(default_config));
    session_options.target = options.target;
    session_options.device_filters = {parsed.request.device_filters().begin(),
                                      parsed.request.device_filters().end()};
    MR_TRY_ASSIGN(const DeviceFilters filters,
                  DeviceFilters::parse(session_options.device_filters));
    close_all();
    MR_TRY_ASSIGN(const Ref<SessionBackend> backend, make_session_backend(session_options));
    const std::vector<std::string> containers(parsed.request.container().begin(),
                                              parsed.request.container().end());
    // The server's own task is always among the backend's.
    MR_TRY(backend->reset_where(containers,
                                [&](const DeviceName& name) { return filters.keep(name); }));
    return to_bytes(tensorflow::ResetResponse());
  }

  MasterServiceOptions options;
  tensorflow::ConfigProto default_config;
  const Ref<CancellationToken> closing = make_ref<CancellationToken>();

  Mutex mu;
  CondVar idle;
  std::map<std::string, Ref<Held>> sessions MR_GUARDED_BY(mu);
  // Of sessions about to be among them: the clients.
  std::multiset<std::string> creating MR_GUARDED_BY(mu);
  int64_t graph_bytes MR_GUARDED_BY(mu) = 0;  // of all sessions
  int calls MR_GUARDED_BY(mu) = 0;            // against max_calls
  int freeing_calls MR_GUARDED_BY(mu) = 0;    // the others
  int active MR_GUARDED_BY(mu) = 0;           // all that shut_down() waits for
};

MasterService::MasterService(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

MasterService::~MasterService() { impl_->close_all(); }

Result<Ref<MasterService>> MasterService::create(MasterServiceOptions options) {
  auto impl = std::make_unique<Impl>();
  for (const int limit :
       {options.max_sessions, options.max_sessions_per_client, options.max_calls,
        options.max_session_calls, options.max_callables, options.max_partial_runs}) {
    if (limit < 1) return invalid_argument("expected limits of 1 and above, got ", limit);
  }
  if (!impl->default_config.ParseFromString(options.config)) {
    return invalid_argument("expected a ConfigProto, got ", options.config.size(),
                            " bytes that are none");
  }
  if (impl->default_config.cluster_def().job_size() > 0) {
    return invalid_argument("expected a server's config without cluster_def, which is a session's");
  }
  MR_TRY(SessionOptions::from_proto(impl->default_config).status());
  impl->options = std::move(options);
  return Ref<MasterService>(new MasterService(std::move(impl)));
}

void MasterService::handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
                           CallDone done) {
  const Impl::Method* found = Impl::find_method(method);
  if (found == nullptr) {
    if (impl_->options.next) {
      return impl_->options.next->handle(method, std::move(request), std::move(cancel),
                                         std::move(done));
    }
    return done(unimplemented("no method is called ", method.substr(0, kMaxQuoted)), Message());
  }
  if (Status status = impl_->begin(*found); !status.ok()) return done(std::move(status), Message());
  ThreadPool::global().schedule_blocking([self = Ref<MasterService>(this), found,
                                          request = std::move(request), cancel = std::move(cancel),
                                          done = std::move(done)]() mutable {
    Impl& impl = *self->impl_;
    Result<std::string> answer = (impl.*found->answer)(request, cancel);
    impl.uncount(*found);
    const Status status = clean_status(answer.status());
    Message message;
    if (status.ok()) message.fields = *std::move(answer);
    done(status, std::move(message));
    done = nullptr;
    impl.end();
  });
}

void MasterService::shut_down() {
  impl_->closing->cancel(unavailable("the server at ", impl_->options.target, " is ending"));
  impl_->close_all();
  MutexLock lock(impl_->mu);
  while (impl_->active > 0) impl_->idle.wait(impl_->mu);
}

size_t MasterService::sessions() const {
  MutexLock lock(impl_->mu);
  return impl_->sessions.size();
}

}  // namespace millrace
