// A client's calls, one after the other: each is a byte for the method, two for the length of the
// request (little-endian) and the request, whose session is the one created last. Every call is
// answered, and when all are done a plain client is served.

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "millrace/base/check.h"
#include "millrace/distributed/master_service.h"
#include "millrace/distributed/server.h"
#include "millrace/ops/fuzz_entry.h"
#include "proto/master.pb.h"

namespace millrace {
namespace {

constexpr int kMaxNodes = 300;
constexpr int kMaxCalls = 16;
constexpr int64_t kRunMillis = 100;

constexpr std::string_view kMethods[] = {
    "CreateSession", "ExtendSession", "PartialRunSetup", "RunStep",     "CloseSession",
    "ListDevices",   "Reset",         "MakeCallable",    "RunCallable", "ReleaseCallable"};

MasterService& service() {
  static MasterService* made = [] {
    Server::Options options;
    options.cluster = ClusterSpec::parse("worker|fuzz:1").value();
    options.job = "worker";
    options.files = FileAccess::only({}).value();  // a graph may name any file
    static std::unique_ptr<Server>* server = new auto(Server::start(options).value());
    (void)server;
    Ref<MasterService> service =
        MasterService::create({.target = "grpc://fuzz:1", .max_expanded_bytes = 1 << 20}).value();
    return service.detach();
  }();
  return *made;
}

std::pair<Status, std::string> call(std::string_view method, std::string bytes) {
  std::promise<std::pair<Status, std::string>> promise;
  service().handle(str_cat("/tensorflow.MasterService/", method), {.fields = std::move(bytes)},
                   make_ref<CancellationToken>(), [&promise](Status status, Message message) {
                     promise.set_value({std::move(status), std::move(message.fields)});
                   });
  return promise.get_future().get();
}

// The request with a session that there is; "" when it would take too long.
template <class Request>
std::string with_session(std::string_view bytes, const std::string& session) {
  Request request;
  if (!request.ParseFromString(std::string(bytes))) return std::string(bytes);
  if constexpr (requires { request.graph_def(); }) {
    if (request.graph_def().node_size() > kMaxNodes) return "";
    if (request.graph_def().library().function_size() > kMaxNodes) return "";
  }
  if constexpr (requires { request.config(); }) {
    request.mutable_config()->set_operation_timeout_in_ms(kRunMillis);
  }
  if constexpr (requires { request.mutable_options()->clear_timeout_in_ms(); }) {
    if (request.has_options()) request.mutable_options()->clear_timeout_in_ms();
  }
  if constexpr (requires { request.options().run_options(); }) {
    request.mutable_options()->mutable_run_options()->clear_timeout_in_ms();
  }
  if constexpr (requires { request.session_handle(); }) request.set_session_handle(session);
  return request.SerializeAsString();
}

std::string prepare(size_t method, std::string_view bytes, const std::string& session) {
  switch (method) {
    case 0:
      return with_session<tensorflow::CreateSessionRequest>(bytes, session);
    case 1:
      return with_session<tensorflow::ExtendSessionRequest>(bytes, session);
    case 2:
      return with_session<tensorflow::PartialRunSetupRequest>(bytes, session);
    case 3:
      return with_session<tensorflow::RunStepRequest>(bytes, session);
    case 4:
      return with_session<tensorflow::CloseSessionRequest>(bytes, session);
    case 7:
      return with_session<tensorflow::MakeCallableRequest>(bytes, session);
    case 8:
      return with_session<tensorflow::RunCallableRequest>(bytes, session);
    case 9:
      return with_session<tensorflow::ReleaseCallableRequest>(bytes, session);
    default:
      return std::string(bytes);
  }
}

}  // namespace

void run_input(std::string_view input) {
  std::string session;
  for (int i = 0; i < kMaxCalls && input.size() >= 3; ++i) {
    const size_t method = static_cast<uint8_t>(input[0]) % std::size(kMethods);
    const size_t length = static_cast<uint8_t>(input[1]) | static_cast<uint8_t>(input[2]) << 8;
    input.remove_prefix(3);
    const std::string_view bytes = input.substr(0, length);
    input.remove_prefix(bytes.size());
    const auto [status, answer] = call(kMethods[method], prepare(method, bytes, session));
    tensorflow::CreateSessionResponse created;
    if (method != 0 || !status.ok()) continue;
    MR_CHECK(created.ParseFromString(answer));
    session = created.session_handle();
    MR_CHECK(session.size() == 16);
  }
  MR_CHECK_OK(call("Reset", "").first);
  MR_CHECK(service().sessions() == 0);
  MR_CHECK_OK(call("CreateSession", "").first);
}

}  // namespace millrace
