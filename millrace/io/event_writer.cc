#include "millrace/io/event_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <thread>

#include "millrace/base/mutex.h"
#include "millrace/io/record_writer.h"
#include "proto/event.pb.h"

namespace millrace {
namespace {

constexpr const char* kVersion = "brain.Event:2";

std::string host_name() {
  char name[256] = {};
  if (gethostname(name, sizeof(name) - 1) != 0 || name[0] == '\0') return "unknown";
  return name;
}

// A name that no file has: two writers that begin in one second would else write the same.
Result<std::string> free_name(FileSystem& fs, const std::string& prefix,
                              const std::string& suffix) {
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%010lld",
                static_cast<long long>(wall_micros() / 1000000));
  const std::string name = str_cat(prefix, ".out.tfevents.", seconds, ".", host_name());
  for (int i = 0;; ++i) {
    const std::string tried = i == 0 ? name + suffix : str_cat(name, ".", i, suffix);
    MR_TRY_ASSIGN(const bool exists, fs.exists(tried));
    if (!exists) return tried;
  }
}

}  // namespace

struct EventWriter::Impl {
  Impl(std::string name, std::unique_ptr<RecordWriter> file, const EventWriterOptions& options)
      : path(std::move(name)),
        max_queue(static_cast<size_t>(options.max_queue)),
        flush_ns(static_cast<int64_t>(std::clamp(options.flush_seconds, 0.0, 1e9) * 1e9)),
        process(getpid()),
        writer(std::move(file)),
        thread([this] { run(); }) {}

  Status check_process() const {
    if (getpid() == process) return ok_status();
    return failed_precondition("'", path, "' was opened before this process was forked");
  }

  // Whether the thread must flush: somebody waits for what has been written, or it is time.
  bool must_flush(Deadline flush_at) const MR_REQUIRES(mutex) {
    if (flushed == written) return false;
    return (flush_target > flushed && written >= flush_target) || flush_at.expired();
  }

  // The thread: writes what comes, and flushes in time.
  void run() {
    MutexLock lock(mutex);
    Deadline flush_at = Deadline::none();
    while (true) {
      while (queue.empty() && !stopping && !must_flush(flush_at)) {
        changed.wait_until(mutex, flushed == written ? Deadline::none() : flush_at);
      }
      const bool flushes = must_flush(flush_at);
      if (!queue.empty() && !flushes) {
        const std::string event = std::move(queue.front());
        queue.pop_front();
        changed.notify_all();
        lock.unlock();
        const Status status = writer->write(event);
        lock.lock();
        note(status);
        if (flushed == written) flush_at = Deadline::after_nanos(flush_ns);
        ++written;
        continue;
      }
      const bool last = !flushes;  // stopping, and nothing is left
      lock.unlock();
      const Status status = last ? writer->close() : writer->flush();
      lock.lock();
      note(status);
      flushed = written;
      ended = last;
      changed.notify_all();
      if (last) return;
    }
  }

  void note(const Status& status) MR_REQUIRES(mutex) {
    if (!status.ok() && error.ok()) error = status;
  }

  const std::string path;
  const size_t max_queue;
  const int64_t flush_ns;
  const pid_t process;
  const std::unique_ptr<RecordWriter> writer;  // the thread's

  Mutex mutex;
  CondVar changed;
  std::deque<std::string> queue MR_GUARDED_BY(mutex);
  // Events, counted: added, written, flushed, and those whose flush somebody waits for.
  int64_t added MR_GUARDED_BY(mutex) = 0;
  int64_t written MR_GUARDED_BY(mutex) = 0;
  int64_t flushed MR_GUARDED_BY(mutex) = 0;
  int64_t flush_target MR_GUARDED_BY(mutex) = 0;
  bool stopping MR_GUARDED_BY(mutex) = false;
  bool ended MR_GUARDED_BY(mutex) = false;
  Status error MR_GUARDED_BY(mutex);
  std::thread thread;  // last: it uses all the others
};

EventWriter::EventWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

EventWriter::~EventWriter() {
  if (!impl_->check_process().ok()) {
    // The thread is not in this process, but its lock may be.
    (void)impl_.release();
    return;
  }
  (void)close().ok();
  impl_->thread.join();
}

Result<std::unique_ptr<EventWriter>> EventWriter::make(const FilePlace& prefix,
                                                       const EventWriterOptions& options) {
  if (options.max_queue < 1) {
    return invalid_argument("max_queue must be at least 1, got ", options.max_queue);
  }
  if (!(options.flush_seconds >= 0)) {
    return invalid_argument("flush_secs must not be negative, got ", options.flush_seconds);
  }
  MR_TRY(prefix.fs->mkdir_all(directory_of(prefix.path)));
  MR_TRY_ASSIGN(const std::string name, free_name(*prefix.fs, prefix.path, options.suffix));
  MR_TRY_ASSIGN(Ref<WritableFile> file, prefix.fs->open_writable(name));
  MR_TRY_ASSIGN(std::unique_ptr<RecordWriter> writer, RecordWriter::make(std::move(file)));
  tensorflow::Event version;
  version.set_wall_time(static_cast<double>(wall_micros()) * 1e-6);
  version.set_file_version(kVersion);
  MR_TRY(writer->write(version.SerializeAsString()));
  MR_TRY(writer->flush());
  const std::string path = prefix.scheme.empty() ? name : str_cat(prefix.scheme, "://", name);
  return std::unique_ptr<EventWriter>(
      new EventWriter(std::make_unique<Impl>(path, std::move(writer), options)));
}

const std::string& EventWriter::path() const { return impl_->path; }

Status EventWriter::add(std::string event) {
  MR_TRY(impl_->check_process());
  MutexLock lock(impl_->mutex);
  while (impl_->queue.size() >= impl_->max_queue && impl_->error.ok() && !impl_->stopping) {
    impl_->changed.wait(impl_->mutex);
  }
  if (!impl_->error.ok()) return impl_->error;
  if (impl_->stopping) return failed_precondition("'", impl_->path, "' is closed");
  impl_->queue.push_back(std::move(event));
  ++impl_->added;
  impl_->changed.notify_all();
  return ok_status();
}

Status EventWriter::flush() {
  MR_TRY(impl_->check_process());
  MutexLock lock(impl_->mutex);
  if (!impl_->stopping) {
    const int64_t mine = impl_->added;
    impl_->flush_target = mine;
    impl_->changed.notify_all();
    while (impl_->flushed < mine && !impl_->ended) impl_->changed.wait(impl_->mutex);
  }
  return impl_->error;
}

Status EventWriter::close() {
  MR_TRY(impl_->check_process());
  MutexLock lock(impl_->mutex);
  impl_->stopping = true;
  impl_->changed.notify_all();
  while (!impl_->ended) impl_->changed.wait(impl_->mutex);
  return impl_->error;
}

}  // namespace millrace
