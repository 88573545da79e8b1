#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/file_access.h"
#include "millrace/base/mutex.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/ops/queue/queue.h"

namespace millrace {

// What a reader makes of one item of work, the name of a file mostly. Used by one thread at a time.
class RecordSource {
 public:
  virtual ~RecordSource() = default;
  // Begins with an item. Until it ends, or reset() is called, next() reads from it.
  virtual Status open(const FileAccess& files, const std::string& work) = 0;
  // Reads a record; false when the item has no more.
  virtual Result<bool> next(std::string& key, std::string& value) = 0;
  // Whether it is known already that the item has no more.
  virtual bool exhausted() const { return false; }
  // Forgets the item.
  virtual void reset() = 0;
  // Whether the state between two records is the item alone.
  virtual bool restorable() const { return false; }
};

struct Record {
  std::string key, value;
};

// Reads records, one after another, from work that comes out of a queue. Steps share it; reads take
// turns. Thread-safe.
class Reader final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Reader";

  // Container and name are for handle(), title and kind for messages.
  Reader(std::string_view container, std::string_view name, std::string_view title,
         std::string_view kind, std::unique_ptr<RecordSource> source);

  const std::string& kind() const { return kind_; }
  // Its name in the form of a reference; see ops/queue/handle.h.
  const Ref<RefCell>& handle() const { return handle_; }

  // Up to `n` records, and one at the least: fewer when the queue is closed before there are more.
  // Waits, holding the thread, for its turn and for work; `cancel` (may be null) ends that.
  // OUT_OF_RANGE when the queue is closed and all is read. A file that cannot be opened is an
  // error once; then the next item's turn comes.
  Result<std::vector<Record>> read(int64_t n, Queue& queue, const FileAccess& files,
                                   CancellationToken* cancel);

  Result<int64_t> records_produced(CancellationToken* cancel);
  Result<int64_t> work_units_completed(CancellationToken* cancel);
  Status reset(CancellationToken* cancel);
  // A ReaderBaseState message, as TensorFlow writes it; UNIMPLEMENTED for readers that cannot stop
  // within a file.
  Result<std::string> state(CancellationToken* cancel);
  // INVALID_ARGUMENT for what is no such state.
  Status restore(std::string_view state, const FileAccess& files, CancellationToken* cancel);

  std::string describe() const override;

 private:
  class Turn;
  struct Progress {
    int64_t work_started = 0, work_finished = 0, produced = 0;
    std::string work;
    bool in_progress() const { return work_finished < work_started; }
  };

  Status next_work(Queue& queue, const FileAccess& files, CancellationToken* cancel);

  const std::string title_, kind_;
  const Ref<RefCell> handle_;

  Mutex mu_;
  CondVar turn_;
  bool busy_ MR_GUARDED_BY(mu_) = false;
  // For whoever has the turn.
  const std::unique_ptr<RecordSource> source_;
  Progress progress_;
};

}  // namespace millrace
