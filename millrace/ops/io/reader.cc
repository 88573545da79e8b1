#include "millrace/ops/io/reader.h"

#include "millrace/io/wire.h"
#include "millrace/ops/queue/handle.h"

namespace millrace {

Reader::Reader(std::string_view container, std::string_view name, std::string_view title,
               std::string_view kind, std::unique_ptr<RecordSource> source)
    : title_(title),
      kind_(kind),
      handle_(make_handle_cell(container, name)),
      source_(std::move(source)) {}

std::string Reader::describe() const { return str_cat(kind_, " ", title_); }

// The right to use source and progress.
class Reader::Turn {
 public:
  explicit Turn(Reader& reader) : reader_(reader) {}
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  ~Turn() {
    if (!taken_) return;
    MutexLock lock(reader_.mu_);
    reader_.busy_ = false;
    reader_.turn_.notify_one();
  }

  // Waits for it; the reason when the token is cancelled first.
  Status take(CancellationToken* cancel) {
    uint64_t ticket = 0;
    if (cancel != nullptr) {
      ticket = cancel->on_cancel([&reader = reader_] {
        MutexLock lock(reader.mu_);
        reader.turn_.notify_all();
      });
      if (ticket == 0) return cancel->status();
    }
    {
      MutexLock lock(reader_.mu_);
      while (reader_.busy_ && (cancel == nullptr || !cancel->cancelled())) {
        reader_.turn_.wait(reader_.mu_);
      }
      taken_ = !reader_.busy_;
      if (taken_) reader_.busy_ = true;
    }
    if (cancel != nullptr) cancel->remove(ticket);
    return taken_ ? ok_status() : cancel->status();
  }

 private:
  Reader& reader_;
  bool taken_ = false;
};

namespace {

// Takes one element, waiting for it.
Result<std::string> take_work(Queue& queue, CancellationToken* cancel) {
  struct Answer : RefCounted {
    Mutex mu;
    CondVar arrived;
    bool done MR_GUARDED_BY(mu) = false;
    Status status MR_GUARDED_BY(mu);
    std::vector<QueueElement> elements MR_GUARDED_BY(mu);
  };
  const Ref<Answer> answer = make_ref<Answer>();
  queue.dequeue(1, false, cancel, [answer](Status status, std::vector<QueueElement> elements) {
    MutexLock lock(answer->mu);
    answer->done = true;
    answer->status = std::move(status);
    answer->elements = std::move(elements);
    answer->arrived.notify_all();
  });
  MutexLock lock(answer->mu);
  while (!answer->done) answer->arrived.wait(answer->mu);
  MR_TRY(answer->status);
  const Tensor& item = answer->elements[0][0];
  if (item.num_elements() != 1) {
    return invalid_argument("the queue of a reader must hold single strings, got shape ",
                            item.shape());
  }
  return item.data<std::string>()[0];
}

}  // namespace

Status Reader::next_work(Queue& queue, const FileAccess& files, CancellationToken* cancel) {
  if (queue.spec().types != std::vector<DType>{DType::kString}) {
    return invalid_argument("the queue of a reader must have a single string component, got [",
                            str_join(queue.spec().types, ","), "]");
  }
  MR_TRY_ASSIGN(progress_.work, take_work(queue, cancel));
  MR_TRY(source_->open(files, progress_.work));
  ++progress_.work_started;
  return ok_status();
}

Result<std::vector<Record>> Reader::read(int64_t n, Queue& queue, const FileAccess& files,
                                         CancellationToken* cancel) {
  Turn turn(*this);
  MR_TRY(turn.take(cancel));
  std::vector<Record> records;
  while (static_cast<int64_t>(records.size()) < n) {
    if (cancel != nullptr && cancel->cancelled()) return cancel->status();
    if (!progress_.in_progress()) {
      Status status = next_work(queue, files, cancel);
      if (status.code() == Code::kOutOfRange && !records.empty()) break;
      MR_TRY(status);
    }
    Record record;
    MR_TRY_ASSIGN(const bool more, source_->next(record.key, record.value));
    if (more) {
      records.push_back(std::move(record));
      ++progress_.produced;
    }
    if (!more || source_->exhausted()) {
      ++progress_.work_finished;
      source_->reset();
    }
  }
  return records;
}

Result<int64_t> Reader::records_produced(CancellationToken* cancel) {
  Turn turn(*this);
  MR_TRY(turn.take(cancel));
  return progress_.produced;
}

Result<int64_t> Reader::work_units_completed(CancellationToken* cancel) {
  Turn turn(*this);
  MR_TRY(turn.take(cancel));
  return progress_.work_finished;
}

Status Reader::reset(CancellationToken* cancel) {
  Turn turn(*this);
  MR_TRY(turn.take(cancel));
  source_->reset();
  progress_ = {};
  return ok_status();
}

namespace {

void append_varint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

}  // namespace

Result<std::string> Reader::state(CancellationToken* cancel) {
  Turn turn(*this);
  MR_TRY(turn.take(cancel));
  if (!source_->restorable()) return unimplemented(kind_, " cannot serialize its state");
  std::string out;
  const int64_t counts[] = {progress_.work_started, progress_.work_finished, progress_.produced};
  for (uint32_t i = 0; i < 3; ++i) {
    if (counts[i] == 0) continue;
    append_varint(wire_tag(i + 1, WireType::kVarint), out);
    append_varint(static_cast<uint64_t>(counts[i]), out);
  }
  if (progress_.work.empty()) return out;
  append_varint(wire_tag(4, WireType::kBytes), out);
  append_varint(progress_.work.size(), out);
  return out + progress_.work;
}

Status Reader::restore(std::string_view state, const FileAccess& files, CancellationToken* cancel) {
  Turn turn(*this);
  MR_TRY(turn.take(cancel));
  if (!source_->restorable()) return unimplemented(kind_, " cannot restore its state");
  Progress progress;
  int64_t* const counts[] = {&progress.work_started, &progress.work_finished, &progress.produced};
  bool whole = true;
  for (WireReader reader(state); whole && !reader.done();) {
    uint32_t tag;
    uint64_t number;
    std::string_view work;
    whole = reader.tag(tag);
    if (!whole) break;
    if (tag == wire_tag(4, WireType::kBytes)) {
      whole = reader.bytes(work);
      progress.work = work;
    } else if (tag < wire_tag(4, WireType::kVarint) && (tag & 7) == 0) {
      whole = reader.varint(number);
      *counts[(tag >> 3) - 1] = static_cast<int64_t>(number);
    } else {
      whole = reader.skip(tag);
    }
  }
  if (!whole) return invalid_argument("Could not parse state for ", kind_, " '", title_, "'");
  const int64_t started = progress.work_started, finished = progress.work_finished;
  if (started < 0 || finished < 0 || progress.produced < 0 || finished > started ||
      started - finished > 1) {
    return invalid_argument("Inconsistent state for ", kind_, " '", title_, "': ", started,
                            " work units started, ", finished, " finished, ", progress.produced,
                            " records produced");
  }
  if (progress.in_progress()) {
    MR_TRY(source_->open(files, progress.work));
  } else {
    source_->reset();
  }
  progress_ = std::move(progress);
  return ok_status();
}

}  // namespace millrace
