#include "millrace/base/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "millrace/base/blocking_threads.h"
#include "millrace/base/cancellation.h"
#include "millrace/base/clock.h"
#include "millrace/base/env.h"
#include "millrace/base/futex.h"
#include "millrace/base/hash.h"
#include "millrace/base/log.h"
#include "millrace/base/loop_threads.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// How long a worker looks for work before it sleeps: about as long as it takes to wake it, and who
// wakes it, in a virtual machine. With many of them it takes long to wake all.
constexpr int64_t kSpinNanos = 20'000;
constexpr int64_t kSpinNanosOfMany = 50'000;
// A searching worker says that it looks every so often, and has lost its processor when it has not
// for so long.
constexpr int64_t kLookNanos = 1'000;
constexpr int64_t kLostNanos = 5'000;
// How long who waits for the last range of a loop looks for its end.
constexpr int64_t kWaitNanos = 50'000;
constexpr size_t kManyWorkers = 8;
constexpr int64_t kBlockingIdleNanos = 5'000'000'000;
constexpr int kMostWorkers = 4096;
// A worker looks at the injection queue first once in so many tasks, lest its own starve it.
constexpr uint32_t kInjectionTurn = 64;
// How many workers each thread that joins a loop wakes: they wake others in turn.
constexpr int kLoopFanOut = 2;

constexpr double kLeastParallelNanos = 20'000;
constexpr double kRangeNanos = 15'000;
constexpr int64_t kMostRanges = 4096;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Counts the forks between the first process that made a pool and this one.
std::atomic<int> fork_generation{0};

int current_generation() {
  static const int registered = pthread_atfork(
      nullptr, nullptr, [] { fork_generation.fetch_add(1, std::memory_order_relaxed); });
  MR_CHECK(registered == 0);
  return fork_generation.load(std::memory_order_relaxed);
}

// A queue of tasks with two ends behind a mutex. empty() needs no lock, and is ordered with the
// pool's other sequentially consistent operations (see Sleep below).
class TaskDeque {
 public:
  bool empty() const { return size_.load(std::memory_order_seq_cst) == 0; }

  // Returns false, leaving `task` alone, once closed.
  bool push_back(UniqueFunction<void()>& task) {
    MutexLock lock(mutex_);
    if (closed_) return false;
    if (tail_ - head_ == ring_.size()) grow();
    ring_[tail_++ & (ring_.size() - 1)] = std::move(task);
    publish_size();
    return true;
  }

  // An empty function when there is no task.
  UniqueFunction<void()> pop_back() {
    if (empty()) return nullptr;
    MutexLock lock(mutex_);
    if (head_ == tail_) return nullptr;
    UniqueFunction<void()> task = std::move(ring_[--tail_ & (ring_.size() - 1)]);
    publish_size();
    return task;
  }

  UniqueFunction<void()> pop_front() {
    if (empty()) return nullptr;
    MutexLock lock(mutex_);
    if (head_ == tail_) return nullptr;
    UniqueFunction<void()> task = std::move(ring_[head_++ & (ring_.size() - 1)]);
    publish_size();
    return task;
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
  }

 private:
  void publish_size() MR_REQUIRES(mutex_) { size_.store(tail_ - head_, std::memory_order_seq_cst); }

  void grow() MR_REQUIRES(mutex_) {
    std::vector<UniqueFunction<void()>> larger(std::max<size_t>(ring_.size() * 2, 64));
    for (size_t i = head_; i != tail_; ++i) {
      larger[i & (larger.size() - 1)] = std::move(ring_[i & (ring_.size() - 1)]);
    }
    ring_.swap(larger);
  }

  std::atomic<size_t> size_{0};
  Mutex mutex_;
  bool closed_ MR_GUARDED_BY(mutex_) = false;
  // A power of two of slots; the task numbered i is in slot i modulo that.
  std::vector<UniqueFunction<void()>> ring_ MR_GUARDED_BY(mutex_);
  size_t head_ MR_GUARDED_BY(mutex_) = 0;
  size_t tail_ MR_GUARDED_BY(mutex_) = 0;
};

// How parallel_for cuts [0, n): only by n and the cost.
int64_t range_units(int64_t n, double cost_ns_per_unit) {
  const double total = static_cast<double>(n) * cost_ns_per_unit;
  if (!(total >= kLeastParallelNanos)) return n;  // also when the cost is no number
  const double wanted = std::min(total / kRangeNanos, static_cast<double>(kMostRanges));
  const int64_t ranges = std::min(static_cast<int64_t>(wanted), n);
  const int64_t units = n / ranges + (n % ranges != 0);
  // Long ranges end on whole vectors and cache lines.
  constexpr int64_t kLong = 1024, kGrain = 64;
  if (units < kLong || units > n - kGrain) return units;
  return (units + kGrain - 1) / kGrain * kGrain;
}

// Tells a loop apart from others: the same code that goes over as much has the same.
uint64_t identity(const FunctionRef<void(int64_t, int64_t)>& body, int64_t n,
                  double cost_ns_per_unit) {
  struct Parts {
    uintptr_t object, code;
  };
  uint64_t out = hash_combine(0, std::bit_cast<Parts>(body).code);
  out = hash_combine(out, static_cast<uint64_t>(n));
  return hash_combine(out, std::bit_cast<uint64_t>(cost_ns_per_unit));
}

// One parallel_for in progress, on its caller's stack. While it wants helpers it is in the pool's
// list; a worker joins under the list's mutex, so once the caller has taken the loop off the list
// nobody new comes, and when `active` falls to zero nobody looks at it any more.
struct Loop {
  FunctionRef<void(int64_t, int64_t)> body;
  const CancellationToken* cancel;
  const int64_t n;
  const int64_t units;
  const int64_t ranges;

  // Guarded by the mutex of the pool's list.
  int64_t helpers_wanted = 0;
  bool listed = false;
  Loop* newer = nullptr;
  Loop* older = nullptr;

  // Ranges that follow each other, for one thread first and then for all that have done theirs. A
  // thread begins with the same share of every loop, so what one loop left in its caches, or what
  // lies there from the last time, is there for the next.
  struct Share {
    alignas(64) std::atomic<int64_t> next;
    int64_t end;
  };
  static constexpr int kMostShares = 32;
  int shares = 0;
  Share share[kMostShares];
  std::atomic<uint32_t> begun{0};  // a bit for each share that a thread has begun with
  // The helpers at work, and the bit that says the caller sleeps until they are done.
  static constexpr uint32_t kCallerSleeps = uint32_t{1} << 31;
  alignas(64) std::atomic<uint32_t> active{0};

  void run_range(int64_t i) const {
    const int64_t begin = i * units;
    body(begin, std::min(n - begin, units) + begin);
  }

  void cut(int64_t threads) {
    shares = static_cast<int>(std::min({threads, ranges, int64_t{kMostShares}}));
    for (int i = 0; i < shares; ++i) {
      share[i].next.store(ranges * i / shares, std::memory_order_relaxed);
      share[i].end = ranges * (i + 1) / shares;
    }
  }

  // The share that a thread begins with: `wanted`, or the next that nobody has begun with.
  int claim(int wanted) {
    for (int i = 0; i < shares; ++i) {
      const int own = (wanted + i) % shares;
      const uint32_t bit = uint32_t{1} << own;
      if ((begun.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) return own;
    }
    return wanted % shares;
  }

  // Runs ranges until all are taken, from that share on.
  void take_part(int first) {
    for (int i = 0; i < shares; ++i) {
      Share& own = share[(first + i) % shares];
      while (own.next.load(std::memory_order_relaxed) < own.end) {
        const int64_t range = own.next.fetch_add(1, std::memory_order_relaxed);
        if (range >= own.end) break;
        if (cancel != nullptr && cancel->cancelled()) return;
        run_range(range);
      }
    }
  }

  // A helper's last touch.
  void leave() {
    if (active.fetch_sub(1, std::memory_order_acq_rel) == (kCallerSleeps | 1)) {
      futex_wake_all(&active);
    }
  }

  // For the caller, once the loop is off the list.
  void wait_for_helpers() {
    if (active.load(std::memory_order_acquire) == 0) return;
    const int64_t give_up = monotonic_nanos() + kWaitNanos;
    while (monotonic_nanos() < give_up) {
      for (int i = 0; i < 16; ++i) pause_cpu();
      if (active.load(std::memory_order_acquire) == 0) return;
    }
    uint32_t seen = active.fetch_or(kCallerSleeps, std::memory_order_acq_rel) | kCallerSleeps;
    while (seen != kCallerSleeps) {
      futex_wait(active, seen);
      seen = active.load(std::memory_order_acquire);
    }
  }
};

}  // namespace

struct ThreadPool::Impl {
  struct Worker {
    Impl* pool;
    int index;
    pthread_t thread;
    TaskDeque tasks;
    uint32_t picks = 0;
    int next_victim = 0;
    // 1 once woken; the worker itself sets it back to 0.
    std::atomic<uint32_t> woken{0};
  };
  // The worker that this thread is, of whichever pool; null on other threads.
  static inline thread_local Worker* this_worker = nullptr;

  explicit Impl(int threads, bool no_threads = false)
      : generation(current_generation()),
        without_threads(no_threads),
        blocking(kBlockingIdleNanos) {
    if (without_threads) running.store(0, std::memory_order_relaxed);
    workers.reserve(static_cast<size_t>(threads));
    for (int i = 0; i < threads; ++i) {
      workers.push_back(std::make_unique<Worker>());
      workers.back()->pool = this;
      workers.back()->index = i;
      workers.back()->next_victim = i + 1;
    }
  }

  bool in_forked_child() const {
    return fork_generation.load(std::memory_order_relaxed) != generation;
  }

  // Starts the workers the first time. False when the system gives no thread at all.
  bool start() {
    const int count = running.load(std::memory_order_acquire);
    if (count >= 0) [[likely]]
      return count > 0;
    return start_slow();
  }
  bool start_slow();

  static void* worker_main(void* worker);
  void run_worker(Worker& worker);
  bool run_something(Worker& worker, bool& searching);
  bool wait_for_work(Worker& worker, bool& searching);
  bool has_work() const;
  bool spin_until_work();

  void found_work(bool& searching);
  void wake_for_task();
  void wake(int count);
  bool wake_one();
  void wake_for_loop(int64_t helpers);

  void run_loop(Loop& loop, int threads);
  void list_loop(Loop& loop, int64_t helpers);
  void unlist(Loop& loop) MR_REQUIRES(loops_mutex);
  bool help_a_loop(const Worker& worker, bool& searching);

  const int generation;
  const bool without_threads;

  // All of them exist from the beginning; those from `running` on have no thread.
  std::vector<std::unique_ptr<Worker>> workers;
  std::atomic<int> running{-1};  // -1: not started
  Mutex start_mutex;

  TaskDeque injected;  // tasks from threads that are no workers

  Mutex loops_mutex;
  Loop* newest_loop MR_GUARDED_BY(loops_mutex) = nullptr;
  std::atomic<int> listed_loops{0};

  // Sleep. Whoever adds work (a task or a loop) first publishes it and then looks whether a worker
  // must be woken: not when none is idle, nor when some worker is searching. Invariants, all in the
  // one order of the sequentially consistent operations:
  // 1. A worker enters the idle list, then looks for work once more before it blocks.
  // 2. Whoever makes `searching_workers` fall to zero looks for work after that, or enters the idle
  //    list (then 1 holds).
  // 3. Who takes a worker off the idle list counts it as searching before he wakes it.
  // So work that is published while somebody is idle is seen by a searcher, or its publisher wakes.
  Mutex idle_mutex;
  std::vector<Worker*> idle MR_GUARDED_BY(idle_mutex);
  std::atomic<int> idle_workers{0};
  std::atomic<int> searching_workers{0};
  // About when one of those looked for work the last time.
  std::atomic<int64_t> looked_ns{0};
  std::atomic<bool> stopping{false};

  LoopThreads loop_threads;
  BlockingThreads blocking;
};

bool ThreadPool::Impl::start_slow() {
  MutexLock lock(start_mutex);
  int count = running.load(std::memory_order_relaxed);
  if (count >= 0) return count > 0;
  count = 0;
  for (const std::unique_ptr<Worker>& worker : workers) {
    if (pthread_create(&worker->thread, nullptr, &worker_main, worker.get()) != 0) break;
    char name[16] = "mr-worker-";
    std::snprintf(name + 10, sizeof(name) - 10, "%d", worker->index);
    pthread_setname_np(worker->thread, name);
    ++count;
  }
  if (count < static_cast<int>(workers.size())) {
    MR_LOG(kWarning, "the system gave ", count, " of ", workers.size(), " worker threads");
  }
  running.store(count, std::memory_order_release);
  return count > 0;
}

void* ThreadPool::Impl::worker_main(void* worker) {
  Worker& self = *static_cast<Worker*>(worker);
  this_worker = &self;
  self.pool->run_worker(self);
  return nullptr;
}

void ThreadPool::Impl::run_worker(Worker& worker) {
  bool searching = false;
  do {
    while (run_something(worker, searching)) {
    }
  } while (wait_for_work(worker, searching));
}

// Runs one task, or helps one loop to its end. False when there is nothing to do.
bool ThreadPool::Impl::run_something(Worker& worker, bool& searching) {
  UniqueFunction<void()> task;
  if (++worker.picks % kInjectionTurn == 0) task = injected.pop_front();
  if (!task) task = worker.tasks.pop_back();
  if (!task && help_a_loop(worker, searching)) return true;
  if (!task) task = injected.pop_front();
  const int count = static_cast<int>(workers.size());
  for (int i = 0; !task && i < count; ++i) {
    if (worker.next_victim >= count) worker.next_victim = 0;
    Worker& victim = *workers[static_cast<size_t>(worker.next_victim)];
    if (&victim != &worker) task = victim.tasks.pop_front();
    if (!task) ++worker.next_victim;  // else come back to who had some
  }
  if (!task) return false;
  found_work(searching);
  task();
  return true;
}

// Returns true when there may be work, false when the worker shall end.
bool ThreadPool::Impl::wait_for_work(Worker& worker, bool& searching) {
  if (!searching) {
    searching = true;
    searching_workers.fetch_add(1, std::memory_order_seq_cst);
  }
  if (spin_until_work()) return true;

  {
    MutexLock lock(idle_mutex);
    idle.push_back(&worker);
    idle_workers.store(static_cast<int>(idle.size()), std::memory_order_seq_cst);
  }
  searching = false;
  searching_workers.fetch_sub(1, std::memory_order_seq_cst);
  const bool stop = stopping.load(std::memory_order_seq_cst);
  if (stop || has_work()) {
    MutexLock lock(idle_mutex);
    const auto self = std::find(idle.begin(), idle.end(), &worker);
    if (self != idle.end()) {
      idle.erase(self);
      idle_workers.store(static_cast<int>(idle.size()), std::memory_order_seq_cst);
      if (stop && !has_work()) return false;
      searching = true;
      searching_workers.fetch_add(1, std::memory_order_seq_cst);
      return true;
    }
  }
  while (worker.woken.load(std::memory_order_acquire) == 0) futex_wait(worker.woken, 0);
  worker.woken.store(0, std::memory_order_relaxed);
  searching = true;  // by who woke us
  return true;
}

bool ThreadPool::Impl::has_work() const {
  if (listed_loops.load(std::memory_order_seq_cst) > 0 || !injected.empty()) return true;
  for (const std::unique_ptr<Worker>& worker : workers) {
    if (!worker->tasks.empty()) return true;
  }
  return false;
}

bool ThreadPool::Impl::spin_until_work() {
  const int64_t spin = workers.size() < kManyWorkers ? kSpinNanos : kSpinNanosOfMany;
  int64_t now = monotonic_nanos();
  const int64_t give_up = now + spin;
  do {
    if (has_work()) return true;
    if (stopping.load(std::memory_order_relaxed)) return false;
    if (now - looked_ns.load(std::memory_order_relaxed) > kLookNanos) {
      looked_ns.store(now, std::memory_order_relaxed);
    }
    for (int i = 0; i < 16; ++i) pause_cpu();
    now = monotonic_nanos();
  } while (now < give_up);
  return false;
}

void ThreadPool::Impl::found_work(bool& searching) {
  if (!searching) return;
  searching = false;
  if (searching_workers.fetch_sub(1, std::memory_order_seq_cst) == 1 && has_work()) {
    wake_for_task();
  }
}

void ThreadPool::Impl::wake_for_task() {
  while (idle_workers.load(std::memory_order_seq_cst) > 0) {
    int none = 0;
    if (searching_workers.load(std::memory_order_seq_cst) != 0 ||
        !searching_workers.compare_exchange_strong(none, 1, std::memory_order_seq_cst)) {
      return;
    }
    if (wake_one()) return;
    // Nobody was idle after all. Others may have relied on our count meanwhile.
    if (searching_workers.fetch_sub(1, std::memory_order_seq_cst) != 1 || !has_work()) return;
  }
}

// Wakes up to `count` workers, however many are searching.
void ThreadPool::Impl::wake(int count) {
  for (; count > 0 && idle_workers.load(std::memory_order_seq_cst) > 0; --count) {
    searching_workers.fetch_add(1, std::memory_order_seq_cst);
    if (wake_one()) continue;
    if (searching_workers.fetch_sub(1, std::memory_order_seq_cst) == 1 && has_work()) {
      wake_for_task();
    }
    return;
  }
}

// The caller has counted the woken worker as searching, and takes that back when there was none.
bool ThreadPool::Impl::wake_one() {
  Worker* worker;
  {
    MutexLock lock(idle_mutex);
    if (idle.empty()) return false;
    worker = idle.back();
    idle.pop_back();
    idle_workers.store(static_cast<int>(idle.size()), std::memory_order_seq_cst);
  }
  worker->woken.store(1, std::memory_order_release);
  futex_wake_all(&worker->woken);
  return true;
}

// Wakes some of the helpers that a loop wants, which wake others: those that search anyway will
// find it, and to wake one more costs the caller microseconds and may cost him his processor. But
// one that lost its own to another program finds nothing for milliseconds.
void ThreadPool::Impl::wake_for_loop(int64_t helpers) {
  if (helpers <= 0 || idle_workers.load(std::memory_order_seq_cst) == 0) return;
  const int64_t searching = searching_workers.load(std::memory_order_seq_cst);
  if (searching > 0 && monotonic_nanos() - looked_ns.load(std::memory_order_relaxed) < kLostNanos) {
    helpers -= searching;
  }
  wake(static_cast<int>(std::min<int64_t>(helpers, kLoopFanOut)));
}

void ThreadPool::Impl::list_loop(Loop& loop, int64_t helpers) {
  {
    MutexLock lock(loops_mutex);
    loop.helpers_wanted = helpers;
    loop.listed = true;
    loop.older = newest_loop;
    if (newest_loop != nullptr) newest_loop->newer = &loop;
    newest_loop = &loop;
    listed_loops.fetch_add(1, std::memory_order_seq_cst);
  }
  wake_for_loop(helpers);
}

void ThreadPool::Impl::unlist(Loop& loop) {
  if (!loop.listed) return;
  loop.listed = false;
  if (loop.older != nullptr) loop.older->newer = loop.newer;
  (loop.newer != nullptr ? loop.newer->older : newest_loop) = loop.older;
  listed_loops.fetch_sub(1, std::memory_order_seq_cst);
}

// On this thread and up to `threads` - 1 workers.
void ThreadPool::Impl::run_loop(Loop& loop, int threads) {
  loop.cut(threads);
  // A thread that is no worker has the last share.
  const bool is_worker = this_worker != nullptr && this_worker->pool == this;
  const int own = loop.claim(is_worker ? this_worker->index : loop.shares - 1);
  if (threads > 1) list_loop(loop, threads - 1);
  loop.take_part(own);
  if (threads == 1) return;
  {
    MutexLock lock(loops_mutex);
    unlist(loop);
  }
  loop.wait_for_helpers();
}

// Joins the newest loop that wants helpers: of nested loops, the inner ones end first.
bool ThreadPool::Impl::help_a_loop(const Worker& worker, bool& searching) {
  if (listed_loops.load(std::memory_order_seq_cst) == 0) return false;
  Loop* loop;
  int64_t more_helpers;
  {
    MutexLock lock(loops_mutex);
    loop = newest_loop;
    if (loop == nullptr) return false;
    loop->active.fetch_add(1, std::memory_order_relaxed);
    more_helpers = --loop->helpers_wanted;
    if (more_helpers == 0) unlist(*loop);
  }
  if (searching) found_work(searching);
  wake_for_loop(more_helpers);
  loop->take_part(loop->claim(worker.index));
  {
    MutexLock lock(loops_mutex);
    unlist(*loop);
  }
  loop->leave();
  return true;
}

ThreadPool& ThreadPool::global() {
  // Never destroyed: threads may use it until the process is gone. Checkers of leaks that look at
  // the process as it exits find no thread that is just ending, nor one that nobody joined.
  static ThreadPool* pool = [] {
    auto* made = new ThreadPool(
        static_cast<int>(env_int("MILLRACE_NUM_THREADS", usable_cpus(), 1, kMostWorkers)));
    std::atexit([] {
      Impl& impl = *global().impl_;
      if (!impl.in_forked_child()) impl.blocking.keep_threads();
    });
    return made;
  }();
  return *pool;
}

ThreadPool::ThreadPool(int threads) : impl_(new Impl(std::clamp(threads, 1, kMostWorkers))) {}

ThreadPool::ThreadPool(WithoutThreads) : impl_(new Impl(1, /*no_threads=*/true)) {}

ThreadPool::~ThreadPool() {
  while (run_one()) continue;
  // The threads and the state of the locks stayed with the parent.
  if (impl_->in_forked_child()) return;
  // From here on what other threads schedule goes to the blocking threads, which end last.
  impl_->injected.close();
  impl_->stopping.store(true, std::memory_order_seq_cst);
  // All that are idle now, however often one comes back; who becomes idle later sees `stopping`.
  impl_->wake(INT_MAX);
  int count;
  {
    MutexLock lock(impl_->start_mutex);
    count = impl_->running.load(std::memory_order_relaxed);
    if (count < 0) impl_->running.store(0, std::memory_order_release);  // nobody starts them now
  }
  for (int i = 0; i < count; ++i) {
    pthread_join(impl_->workers[static_cast<size_t>(i)]->thread, nullptr);
  }
  delete impl_;
}

int ThreadPool::size() const { return static_cast<int>(impl_->workers.size()); }

Status ThreadPool::check_usable() const {
  if (!impl_->in_forked_child()) return ok_status();
  return failed_precondition(
      "this process was made by fork() after its parent had begun to use Millrace, whose threads "
      "do "
      "not live on in the child; start workers with spawn (or fork and exec), or fork before the "
      "first use");
}

bool ThreadPool::on_worker() const {
  return Impl::this_worker != nullptr && Impl::this_worker->pool == impl_;
}

void ThreadPool::schedule(UniqueFunction<void()> task) {
  if (impl_->in_forked_child() || !impl_->start()) {
    if (!impl_->without_threads || !impl_->injected.push_back(task)) task();
    return;
  }
  if (on_worker()) {
    Impl::this_worker->tasks.push_back(task);
  } else if (!impl_->injected.push_back(task)) {
    impl_->blocking.schedule(std::move(task));
    return;
  }
  impl_->wake_for_task();
}

bool ThreadPool::run_one() {
  if (!impl_->without_threads) return false;
  UniqueFunction<void()> task = impl_->injected.pop_front();
  if (!task) return false;
  task();
  return true;
}

void ThreadPool::schedule_blocking(UniqueFunction<void()> task) {
  if (impl_->without_threads) return schedule(std::move(task));
  if (impl_->in_forked_child()) {
    task();
    return;
  }
  impl_->blocking.schedule(std::move(task));
}

void ThreadPool::parallel_for(int64_t n, double cost_ns_per_unit,
                              FunctionRef<void(int64_t, int64_t)> body, int max_threads,
                              const CancellationToken* cancel) {
  if (n <= 0 || (cancel != nullptr && cancel->cancelled())) return;
  const int64_t units = range_units(n, cost_ns_per_unit);
  if (units >= n) {
    body(0, n);
    return;
  }
  const int64_t ranges = n / units + (n % units != 0);
  Loop loop{body, cancel, n, units, ranges};
  // With the caller as many as there are processors, also where he is no worker.
  const int64_t most = std::min({int64_t{max_threads}, int64_t{size()}, ranges});
  if (most <= 1 || impl_->in_forked_child() || !impl_->start()) return impl_->run_loop(loop, 1);

  const int64_t start_ns = monotonic_nanos();
  const LoopThreads::Choice choice =
      impl_->loop_threads.choose(identity(body, n, cost_ns_per_unit), static_cast<int>(most));
  impl_->run_loop(loop, choice.threads);
  if (cancel == nullptr || !cancel->cancelled()) {
    impl_->loop_threads.took(choice, monotonic_nanos() - start_ns);
  }
}

}  // namespace millrace
