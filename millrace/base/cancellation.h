#pragma once

#include <atomic>
#include <cstdint>

#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"

namespace millrace {

// A flag that is raised once, with the reason, and tells those who registered. Shared by everything
// that works for one step; child tokens fall with their parent. Thread-safe.
class CancellationToken : public RefCounted {
 public:
  CancellationToken();
  // Cancelled when `parent` is; the child keeps its parent alive.
  static Ref<CancellationToken> make_child(Ref<CancellationToken> parent);

  // Raises the flag and calls every registered callback, on this thread. The first reason wins; a
  // later cancel does nothing. `reason` must be an error.
  void cancel(Status reason);

  bool cancelled() const { return cancelled_.load(std::memory_order_acquire); }
  // OK, or the reason given to cancel().
  Status status() const;

  // Calls `callback` when the token is cancelled. Returns a ticket for remove(), or 0 when the
  // token was cancelled already: then the callback is not kept and not called.
  uint64_t on_cancel(UniqueFunction<void()> callback);
  // Takes the callback back. Returns true when it will never run; false when it ran. If it is
  // running on another thread, waits for its end, so that what it touches may be destroyed after.
  bool remove(uint64_t ticket);

 protected:
  ~CancellationToken() override;

 private:
  struct Impl;
  std::atomic<bool> cancelled_{false};
  Impl* impl_;
};

}  // namespace millrace
