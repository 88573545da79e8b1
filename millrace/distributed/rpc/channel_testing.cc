#include "millrace/distributed/rpc/channel_testing.h"

#include <cstring>
#include <memory>
#include <random>
#include <utility>

#include "millrace/base/futex.h"

namespace millrace {
namespace {

void wait_for(std::atomic<uint32_t>& counter, uint32_t count) {
  for (uint32_t now = counter.load(); now < count; now = counter.load()) futex_wait(counter, now);
}

}  // namespace

Message::Part part_of(size_t size, unsigned seed) {
  Ref<Buffer> buffer =
      Buffer::allocate(DType::kUInt8, static_cast<int64_t>(size), cpu_allocator()).value();
  std::minstd_rand random(seed);
  auto* bytes = static_cast<unsigned char*>(buffer->mutable_data());
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random());
  return {buffer, 0, size};
}

bool same(const Message& a, const Message& b) {
  if (a.fields != b.fields || a.parts.size() != b.parts.size()) return false;
  for (size_t i = 0; i < a.parts.size(); ++i) {
    if (a.parts[i].size != b.parts[i].size ||
        std::memcmp(a.parts[i].data(), b.parts[i].data(), a.parts[i].size) != 0) {
      return false;
    }
  }
  return true;
}

CallDone Outcome::set() {
  return [self = Ref<Outcome>(this)](Status ended, Message message) {
    self->status = std::move(ended);
    self->answer = std::move(message);
    self->done.store(1, std::memory_order_release);
    futex_wake_all(&self->done);
  };
}

Status Outcome::wait() {
  while (done.load(std::memory_order_acquire) == 0) futex_wait(done, 0);
  return status;
}

Ref<Outcome> call(Channel& channel, std::string_view method, Message request,
                  Ref<CancellationToken> cancel) {
  Ref<Outcome> outcome = make_ref<Outcome>();
  channel.call(method, std::move(request), std::move(cancel), outcome->set());
  return outcome;
}

void TestHandler::handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
                         CallDone done) {
  if (method == "/test/echo") return done(ok_status(), std::move(request));
  if (method == "/test/fail") return done(not_found("no ", request.fields), Message());
  if (method != "/test/hang") return done(unimplemented("no method ", method), Message());
  auto shared = std::make_shared<CallDone>(std::move(done));
  // By bare pointer: a token that holds itself would never end.
  const auto end = [this, token = cancel.get(), shared] {
    {
      MutexLock lock(mu_);
      reason_ = token->status();
    }
    ended_.fetch_add(1);
    futex_wake_all(&ended_);
    (*shared)(token->status(), Message());
  };
  if (cancel->on_cancel(end) == 0) end();
  hanging_.fetch_add(1);
  futex_wake_all(&hanging_);
}

void TestHandler::wait_until_hanging(uint32_t count) { wait_for(hanging_, count); }
void TestHandler::wait_until_ended(uint32_t count) { wait_for(ended_, count); }

Status TestHandler::reason() {
  MutexLock lock(mu_);
  return reason_;
}

}  // namespace millrace
