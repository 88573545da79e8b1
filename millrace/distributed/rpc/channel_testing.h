#pragma once

#include <atomic>
#include <string_view>

#include "millrace/base/mutex.h"
#include "millrace/distributed/rpc/channel.h"

// Calls, and what answers them, for tests of transports.

namespace millrace {

// Bytes made from a seed.
Message::Part part_of(size_t size, unsigned seed = 1);
bool same(const Message& a, const Message& b);

// What a call came to, for a thread that waits.
struct Outcome : RefCounted {
  std::atomic<uint32_t> done{0};
  Status status;
  Message answer;

  CallDone set();
  Status wait();
};

Ref<Outcome> call(Channel& channel, std::string_view method, Message request = {},
                  Ref<CancellationToken> cancel = nullptr);

// "/test/echo" answers what it gets, "/test/fail" NOT_FOUND, "/test/hang" only once it is
// cancelled.
class TestHandler : public CallHandler {
 public:
  void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
              CallDone done) override;

  // How many have hung, and have ended, since it was made.
  void wait_until_hanging(uint32_t count);
  void wait_until_ended(uint32_t count);
  // Why the last one was cancelled.
  Status reason();

 private:
  std::atomic<uint32_t> hanging_{0}, ended_{0};
  Mutex mu_;
  Status reason_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
