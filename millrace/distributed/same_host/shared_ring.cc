#include "millrace/distributed/same_host/shared_ring.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "millrace/base/check.h"
#include "millrace/base/clock.h"

namespace millrace {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kRingBytes = kHeaderBytes + SharedRing::kSlots * SharedRing::kSlotBytes;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// A word that processes share, so not FUTEX_PRIVATE.
void wait_on(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ns) {
  const timespec timeout = {timeout_ns / 1'000'000'000, timeout_ns % 1'000'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &timeout, nullptr,
          0);
}

void wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Result<void*> map(const OwnedFd& fd) {
  void* memory = mmap(nullptr, kRingBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return resource_exhausted("cannot map a ring: ", strerror(errno));
  return memory;
}

}  // namespace

struct SharedRing::Header {
  enum State : uint32_t { kFree = 0, kFull = 1, kFullAndWaitedFor = 2 };
  struct alignas(64) Slot {
    std::atomic<uint32_t> state;
  };
  Slot slots[kSlots];
};

SharedRing::Header& SharedRing::header() { return *static_cast<Header*>(memory_); }

Result<Ref<SharedRing>> SharedRing::create() {
  OwnedFd fd(memfd_create("millrace", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ftruncate(fd.get(), kRingBytes) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return resource_exhausted("cannot make a ring in memory: ", strerror(errno));
  }
  MR_TRY_ASSIGN(void* memory, map(fd));
  return Ref<SharedRing>(new SharedRing(std::move(fd), memory));
}

Result<Ref<SharedRing>> SharedRing::open(OwnedFd fd) {
  struct stat info {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(fd.get(), &info) != 0 ||
      info.st_size != static_cast<off_t>(kRingBytes)) {
    return invalid_argument("expected the descriptor of a sealed ring of ", kRingBytes, " bytes");
  }
  MR_TRY_ASSIGN(void* memory, map(fd));
  return Ref<SharedRing>(new SharedRing(std::move(fd), memory));
}

SharedRing::~SharedRing() { munmap(memory_, kRingBytes); }

char* SharedRing::slot(uint32_t slot) {
  MR_CHECK(slot < kSlots);
  return static_cast<char*>(memory_) + kHeaderBytes + slot * kSlotBytes;
}

bool SharedRing::wait_free(uint32_t slot, int64_t timeout_ns) {
  std::atomic<uint32_t>& state = header().slots[slot].state;
  const Deadline deadline = Deadline::after_nanos(timeout_ns);
  // The other side takes some tens of microseconds to empty a slot: worth a short look.
  for (int i = 0; i < 2000; ++i) {
    if (state.load(std::memory_order_acquire) == Header::kFree) return true;
    __builtin_ia32_pause();
  }
  for (;;) {
    uint32_t now = state.load(std::memory_order_acquire);
    if (now == Header::kFree) return true;
    if (deadline.expired()) return false;
    if (now == Header::kFull && !state.compare_exchange_strong(now, Header::kFullAndWaitedFor)) {
      continue;
    }
    wait_on(state, Header::kFullAndWaitedFor, deadline.remaining_ns());
  }
}

void SharedRing::mark_full(uint32_t slot) {
  header().slots[slot].state.store(Header::kFull, std::memory_order_release);
}

void SharedRing::mark_free(uint32_t slot) {
  std::atomic<uint32_t>& state = header().slots[slot].state;
  if (state.exchange(Header::kFree, std::memory_order_acq_rel) == Header::kFullAndWaitedFor) {
    wake(state);
  }
}

}  // namespace millrace
