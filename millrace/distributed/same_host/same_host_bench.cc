// What a call between two processes of this machine costs, and how fast tensors cross.

#include <benchmark/benchmark.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

#include "millrace/base/futex.h"
#include "millrace/distributed/same_host/same_host.h"

namespace millrace {
namespace {

// Answers a call with as many bytes as its fields ask for.
class Source final : public CallHandler {
 public:
  void handle(std::string_view, Message request, Ref<CancellationToken>, CallDone done) override {
    Message answer;
    const auto size = static_cast<size_t>(std::atoll(request.fields.c_str()));
    if (size > 0) {
      if (!memory_) {
        memory_ = Buffer::allocate(DType::kUInt8, int64_t{1} << 28, cpu_allocator()).value();
        std::memset(memory_->mutable_data(), 1, memory_->bytes());
      }
      answer.parts.push_back({memory_, 0, size});
    }
    done(ok_status(), std::move(answer));
  }

 private:
  Ref<Buffer> memory_;
};

// The name of a server in another process, which ends with this one.
const std::string& server() {
  static const std::string* name = [] {
    auto* made = new std::string(str_cat("millrace-bench-", getpid()));
    int ready[2];
    MR_CHECK(pipe(ready) == 0);
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto running = SameHostServer::start(*made, make_ref<Source>()).value();
      MR_CHECK(write(ready[1], "x", 1) == 1);
      for (;;) pause();
    }
    char byte;
    MR_CHECK(read(ready[0], &byte, 1) == 1);
    return made;
  }();
  return *name;
}

void call_for_bytes(benchmark::State& state) {
  const std::string fields = std::to_string(state.range(0));
  const Ref<Channel> channel = make_same_host_channel(server(), "the server");
  for (auto _ : state) {
    std::atomic<uint32_t> done{0};
    channel->call("/get", {.fields = fields, .parts = {}}, nullptr,
                  [&](const Status& status, const Message&) {
                    MR_CHECK_OK(status);
                    done.store(1, std::memory_order_release);
                    futex_wake_all(&done);
                  });
    while (done.load(std::memory_order_acquire) == 0) futex_wait(done, 0);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(call_for_bytes)->Arg(0)->Arg(10'000)->Arg(1 << 20)->Arg(100 << 20)->UseRealTime();

}  // namespace
}  // namespace millrace
