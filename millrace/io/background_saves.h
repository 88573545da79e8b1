#pragma once

#include <cstdint>
#include <string>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/status.h"

namespace millrace {

// Saves that go on beside training, one after the other for each checkpoint. The process ends when
// they have; in a child made by fork() there are none. Thread-safe.
class BackgroundSaves {
 public:
  static BackgroundSaves& global();

  // At most so many are unfinished: each keeps the tensors that it saves.
  static constexpr int kMostUnfinished = 4;

  // Who waits below is told when `cancel` (may be null) is cancelled, and answers its reason.

  // Runs `save` on a thread of its own once those of the same checkpoint before it have ended; what
  // it holds is dropped then. Waits while kMostUnfinished are under way. FAILED_PRECONDITION in a
  // forked child.
  Status start(const std::string& checkpoint, UniqueFunction<Status()> save,
               CancellationToken* cancel = nullptr);

  // Returns when none of this checkpoint is under way.
  Status finish(const std::string& checkpoint, CancellationToken* cancel = nullptr);
  // The same, with the first error that was not told before.
  Status take_error(const std::string& checkpoint, CancellationToken* cancel = nullptr);
  // Returns when nothing is under way.
  void finish_all();

 private:
  BackgroundSaves();
  struct Impl;
  class Alarm;
  Impl* impl_;
};

}  // namespace millrace
