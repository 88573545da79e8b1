#include "millrace/base/cancellation.h"

#include <map>
#include <thread>

#include "millrace/base/mutex.h"

namespace millrace {

// Counted apart from the token: a callback may drop the last reference to the token, whose cancel()
// then goes on with the Impl alone.
struct CancellationToken::Impl : RefCounted {
  Mutex mutex;
  CondVar callback_ended;
  Status reason MR_GUARDED_BY(mutex);
  uint64_t next_ticket MR_GUARDED_BY(mutex) = 1;
  std::map<uint64_t, UniqueFunction<void()>> callbacks MR_GUARDED_BY(mutex);
  // The callback that cancel() is running at this moment, and where. 0 when there is none.
  uint64_t running_ticket MR_GUARDED_BY(mutex) = 0;
  std::thread::id running_thread MR_GUARDED_BY(mutex);

  // Written before the token is handed out, read when it ends.
  Ref<CancellationToken> parent;
  uint64_t parent_ticket = 0;
};

CancellationToken::CancellationToken() : impl_(new Impl) { impl_->retain(); }

CancellationToken::~CancellationToken() {
  // Waits for a parent that is calling cancel() just now, so the callback never meets a dead token.
  if (impl_->parent_ticket != 0) impl_->parent->remove(impl_->parent_ticket);
  impl_->parent = nullptr;
  impl_->release();
}

Ref<CancellationToken> CancellationToken::make_child(Ref<CancellationToken> parent) {
  Ref<CancellationToken> child = make_ref<CancellationToken>();
  // Bare pointers: the child's end takes the callback back, and the child keeps its parent.
  const uint64_t ticket = parent->on_cancel(
      [self = child.get(), source = parent.get()] { self->cancel(source->status()); });
  if (ticket == 0) {
    child->cancel(parent->status());
    return child;
  }
  child->impl_->parent = std::move(parent);
  child->impl_->parent_ticket = ticket;
  return child;
}

void CancellationToken::cancel(Status reason) {
  MR_CHECK(!reason.ok());
  const Ref<Impl> impl(impl_);
  MutexLock lock(impl->mutex);
  if (cancelled_.load(std::memory_order_relaxed)) return;
  impl->reason = std::move(reason);
  cancelled_.store(true, std::memory_order_release);
  impl->running_thread = std::this_thread::get_id();
  while (!impl->callbacks.empty()) {
    auto node = impl->callbacks.extract(impl->callbacks.begin());
    impl->running_ticket = node.key();
    lock.unlock();
    node.mapped()();
    node.mapped() = nullptr;
    lock.lock();
    impl->running_ticket = 0;
    impl->callback_ended.notify_all();
  }
}

Status CancellationToken::status() const {
  if (!cancelled()) return Status();
  MutexLock lock(impl_->mutex);
  return impl_->reason;
}

uint64_t CancellationToken::on_cancel(UniqueFunction<void()> callback) {
  MutexLock lock(impl_->mutex);
  if (cancelled_.load(std::memory_order_relaxed)) return 0;
  const uint64_t ticket = impl_->next_ticket++;
  impl_->callbacks.emplace(ticket, std::move(callback));
  return ticket;
}

bool CancellationToken::remove(uint64_t ticket) {
  if (ticket == 0) return false;
  UniqueFunction<void()> dropped;  // ends after the lock: what it owns may call back here
  MutexLock lock(impl_->mutex);
  if (auto found = impl_->callbacks.find(ticket); found != impl_->callbacks.end()) {
    dropped = std::move(found->second);
    impl_->callbacks.erase(found);
    return true;
  }
  // On the thread that runs it, remove() is a call from inside the callback; waiting would not end.
  while (impl_->running_ticket == ticket && impl_->running_thread != std::this_thread::get_id()) {
    impl_->callback_ended.wait(impl_->mutex);
  }
  return false;
}

}  // namespace millrace
