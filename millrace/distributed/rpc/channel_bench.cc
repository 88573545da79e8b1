// What a call between two processes of this machine costs, and how fast tensors cross: through
// shared memory, and over gRPC.

#include <benchmark/benchmark.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "millrace/base/futex.h"
#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/same_host/same_host.h"

namespace millrace {
namespace {

// Answers a call with as many bytes as its fields ask for.
class Source final : public CallHandler {
 public:
  Source() { std::memset(memory_->mutable_data(), 1, memory_->bytes()); }

  void handle(std::string_view, Message request, Ref<CancellationToken>, CallDone done) override {
    Message answer;
    const auto size = static_cast<size_t>(std::atoll(request.fields.c_str()));
    if (size > 0) answer.parts.push_back({memory_, 0, size});
    done(ok_status(), std::move(answer));
  }

 private:
  const Ref<Buffer> memory_ =
      Buffer::allocate(DType::kUInt8, int64_t{1} << 28, cpu_allocator()).value();
};

// A server in another process, which ends with this one.
struct OtherProcess {
  std::string name;  // on this host
  int port = 0;      // for gRPC; 0: there is none
};

OtherProcess fork_server() {
  OtherProcess made{str_cat("millrace-bench-", getpid())};
  int ready[2];
  MR_CHECK(pipe(ready) == 0);
  if (fork() == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto local = SameHostServer::start(made.name, make_ref<Source>()).value();
    const auto remote = GrpcServer::start("127.0.0.1:0", make_ref<Source>());
    const int port = remote.ok() ? (*remote)->port() : 0;
    MR_CHECK(write(ready[1], &port, sizeof port) == sizeof port);
    for (;;) pause();
  }
  MR_CHECK(read(ready[0], &made.port, sizeof made.port) == sizeof made.port);
  return made;
}

// Made by the first who asks, before this process has threads, which a fork would lose.
const OtherProcess& other() {
  static const OtherProcess* process = new OtherProcess(fork_server());
  return *process;
}

void call_for_bytes(benchmark::State& state, Channel& channel) {
  const std::string fields = std::to_string(state.range(0));
  for (auto _ : state) {
    std::atomic<uint32_t> done{0};
    channel.call("/get", {.fields = fields, .parts = {}}, nullptr,
                 [&](const Status& status, const Message&) {
                   MR_CHECK_OK(status);
                   done.store(1, std::memory_order_release);
                   futex_wake_all(&done);
                 });
    while (done.load(std::memory_order_acquire) == 0) futex_wait(done, 0);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void same_host(benchmark::State& state) {
  call_for_bytes(state, *make_same_host_channel(other().name, "the server"));
}
BENCHMARK(same_host)->Arg(0)->Arg(10'000)->Arg(1 << 20)->Arg(100 << 20)->UseRealTime();

void grpc(benchmark::State& state) {
  if (other().port == 0) return state.SkipWithError("gRPC is not there");
  call_for_bytes(state, *make_grpc_channel(str_cat("127.0.0.1:", other().port), "x").value());
}
BENCHMARK(grpc)->Arg(0)->Arg(10'000)->Arg(1 << 20)->Arg(100 << 20)->UseRealTime();

}  // namespace
}  // namespace millrace
