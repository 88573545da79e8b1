#include <absl/synchronization/mutex.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "millrace/distributed/grpc/grpc_library.h"
#include "millrace/distributed/grpc/library/channel.h"
#include "millrace/distributed/grpc/library/poller.h"
#include "millrace/distributed/grpc/library/server.h"
#include "millrace/distributed/grpc/library/with_variable.h"

namespace millrace::grpc_library {
namespace {

// gRPC takes memory for what it reads, and frees it a chunk of a tensor at a time. By default glibc
// gives most of that back to the kernel each time, which clears the pages that it hands out again.
void keep_freed_memory() {
  for (const char* chosen :
       {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"}) {
    if (std::getenv(chosen) != nullptr) return;
  }
  // What glibc comes to by itself where a program has freed a block of 32 MiB.
  constexpr int kLargestBlock = 32 << 20;
  mallopt(M_MMAP_THRESHOLD, kLargestBlock);
  mallopt(M_TRIM_THRESHOLD, 2 * kLargestBlock);
  // A graph is made by whichever thread takes the call. With glibc's eight arenas to a processor
  // the next session's graphs grow in arenas that have no room, beside others that have.
  mallopt(M_ARENA_MAX, std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

void set_up() {
  keep_freed_memory();
  // Whatever goes wrong is an error of a call or of a server. Who wants gRPC's own account of it
  // asks with GRPC_VERBOSITY.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) {
    gpr_set_log_function([](gpr_log_func_args*) {});
  }
  // Looking for cycles takes a part of every lock of gRPC's.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Each queue's thread waits for its own sockets. (Otherwise one thread waits for those of all
  // queues, and wakes another for most of what comes.)
  const auto begin = [] { grpc_init(); };  // for good: calls may outlive servers and channels
  if (std::getenv("GRPC_POLL_STRATEGY") != nullptr) return begin();
  static char poll[] = "GRPC_POLL_STRATEGY=poll";
  with_variable(poll, begin);
}

class LibraryImpl final : public Library {
 public:
  explicit LibraryImpl(StartTask start)
      : start_(std::move(start)), clients_(std::make_unique<grpc::CompletionQueue>(), start_) {}

  std::unique_ptr<Server> serve(const ServerOptions& options, std::shared_ptr<Service> service,
                                std::string& error) override {
    return start_server(options, std::move(service), start_, error);
  }
  std::unique_ptr<Channel> connect(const ChannelOptions& options, std::string& error) override {
    return make_channel(options, clients_, error);
  }

 private:
  const StartTask start_;
  Poller clients_;
};

}  // namespace
}  // namespace millrace::grpc_library

extern "C" __attribute__((visibility("default"))) millrace::grpc_library::Library*
millrace_grpc_library(int version, millrace::grpc_library::StartTask start) {
  using namespace millrace::grpc_library;  // NOLINT(google-build-using-namespace)
  if (version != kVersion) return nullptr;
  static Library* const library = [&] {
    set_up();
    return new LibraryImpl(std::move(start));
  }();
  return library;
}
