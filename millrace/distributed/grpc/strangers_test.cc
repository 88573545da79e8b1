// What a server answers to who reaches its port without the secret: nothing, whatever is asked.
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>

#include "millrace/base/file.h"
#include "millrace/base/file_testing.h"
#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/rpc/worker_wire.h"
#include "millrace/distributed/server.h"

namespace millrace {
namespace {

namespace wire = worker_wire;

constexpr std::string_view kMethods[] = {
    "/tensorflow.MasterService/CreateSession",
    "/tensorflow.MasterService/ExtendSession",
    "/tensorflow.MasterService/PartialRunSetup",
    "/tensorflow.MasterService/RunStep",
    "/tensorflow.MasterService/CloseSession",
    "/tensorflow.MasterService/ListDevices",
    "/tensorflow.MasterService/Reset",
    "/tensorflow.MasterService/MakeCallable",
    "/tensorflow.MasterService/RunCallable",
    "/tensorflow.MasterService/ReleaseCallable",
    wire::kGetStatus,
    wire::kRegisterGraph,
    wire::kDeregisterGraph,
    wire::kRunGraph,
    wire::kRecvTensor,
    wire::kAbortStep,
    wire::kCleanupStep,
    wire::kKeepSession,
    wire::kGetActivity,
    wire::kDeleteSession,
    wire::kReset,
    wire::kGiveTensor,
    wire::kJoinGroup,
    wire::kRecvChunk,
    wire::kEndGroup,
    "/millrace.Task/Describe",
    "/millrace.Task/Stop",
    "/millrace.Alias/0123456789abcdef/Join",
    "/millrace.Alias/0123456789abcdef/GetStatus",
    "/no.such/Method",
};

Status answer_to(Channel& channel, std::string_view method) {
  std::promise<Status> answered;
  const Ref<CancellationToken> cancel = make_ref<CancellationToken>();
  channel.call(method, Message(), cancel, [&](Status status, const Message& message) {
    EXPECT_TRUE(status.ok() || (message.fields.empty() && message.parts.empty()));
    answered.set_value(std::move(status));
  });
  std::future<Status> answer = answered.get_future();
  // Some of them wait, for a step that nobody begins.
  if (answer.wait_for(std::chrono::seconds(5)) != std::future_status::ready) {
    cancel->cancel(cancelled("nothing came"));
  }
  return answer.get();
}

TEST(Strangers, WithoutTheTokenNothingIsAnswered) {
  if (!grpc_available().ok()) GTEST_SKIP() << grpc_available().message();
  const TemporaryDirectory folder;
  ASSERT_TRUE(write_file_atomically(posix_file_system(), folder / "token", "sesame").ok());
  setenv("MILLRACE_CLUSTER_TOKEN_FILE", (folder / "token").c_str(), 1);
  Server::Options options;
  options.cluster = ClusterSpec::parse("w|localhost:0").value();
  options.job = "w";
  const auto server = Server::start(options);
  unsetenv("MILLRACE_CLUSTER_TOKEN_FILE");
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  for (const char* token : {"", "wrong", "sesam", "sesame2"}) {
    const GrpcOptions wrong = {.token = token};
    const auto channel = make_grpc_channel((*server)->address(), "the server", wrong);
    ASSERT_TRUE(channel.ok());
    for (const std::string_view method : kMethods) {
      const Status status = answer_to(**channel, method);
      // The latter once the connection, which all channels of a process share, has had many.
      EXPECT_TRUE(status.code() == Code::kUnauthenticated ||
                  status.code() == Code::kResourceExhausted)
          << method << ": " << status.to_string();
    }
  }
  const auto known = make_grpc_channel((*server)->address(), "it", {.token = "sesame"});
  for (const std::string_view method : kMethods) {
    if (method == "/millrace.Task/Stop") continue;  // it would end this process
    const Code code = answer_to(**known, method).code();
    EXPECT_TRUE(code != Code::kUnauthenticated && code != Code::kResourceExhausted) << method;
  }
}

}  // namespace
}  // namespace millrace
