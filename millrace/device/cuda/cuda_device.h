#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "millrace/device/cuda/cuda_stream.h"
#include "millrace/device/gpu_library.h"
#include "millrace/device/stream_allocator.h"
#include "millrace/kernel/recorder.h"

namespace millrace {

// Memory of a GPU as its driver gives it out, up to a limit.
class CudaMemory final : public Allocator {
 public:
  CudaMemory(int ordinal, int64_t limit) : ordinal_(ordinal), limit_(limit) {}
  const char* name() const override { return "cuda"; }
  MemorySpace space() const override { return MemorySpace::kDevice; }
  void* allocate(size_t bytes) override;
  void deallocate(void* data, size_t bytes) override;
  AllocatorStats stats() const override;
  void reset_peak() override;
  int64_t limit() const { return limit_; }

 private:
  const int ordinal_;
  const int64_t limit_;
  mutable Mutex mu_;
  AllocatorStats stats_ MR_GUARDED_BY(mu_);
};

// Host memory that copy engines read and write by themselves, kept for reuse by size. Memory that a
// stream still reads is given out again once the stream is past that.
class PinnedMemory final : public Allocator {
 public:
  explicit PinnedMemory(int ordinal) : ordinal_(ordinal) {}
  const char* name() const override { return "cuda_pinned"; }
  MemorySpace space() const override { return MemorySpace::kPinnedHost; }
  void* allocate(size_t bytes) override;
  void deallocate(void* data, size_t bytes) override;
  AllocatorStats stats() const override;
  void reset_peak() override;

  // The block at `data`, not freed yet, is read up to `event`.
  void keep_until(const void* data, Ref<Event> event);
  // Gives what nothing uses back.
  void trim();

 private:
  struct Block {
    void* data = nullptr;
    Ref<Event> used_until;
  };

  const int ordinal_;
  mutable Mutex mu_;
  std::map<size_t, std::vector<Block>> free_ MR_GUARDED_BY(mu_);  // by size
  std::unordered_map<const void*, Ref<Event>> used_until_ MR_GUARDED_BY(mu_);
  AllocatorStats stats_ MR_GUARDED_BY(mu_);
};

// The allocator of a GPU's devices: a StreamAllocator that says what holds the memory when there is
// none left.
class CudaAllocator final : public Allocator {
 public:
  CudaAllocator(CudaMemory& raw, Stream& stream) : raw_(raw), cache_(raw, stream) {}
  const char* name() const override { return raw_.name(); }
  MemorySpace space() const override { return raw_.space(); }
  void* allocate(size_t bytes) override;
  void deallocate(void* data, size_t bytes) override;
  AllocatorStats stats() const override { return cache_.stats(); }
  void reset_peak() override { cache_.reset_peak(); }

  void keep_until(const void* data, Ref<Event> event) { cache_.keep_until(data, std::move(event)); }
  void trim() { cache_.trim(); }
  // What holds memory: the largest of what is in use, and how much is free.
  std::string report() const;

 private:
  CudaMemory& raw_;
  StreamAllocator cache_;
  mutable Mutex mu_;
  std::unordered_map<const void*, size_t> live_ MR_GUARDED_BY(mu_);
};

// A GPU, or a part of its memory, that devices of all sessions share: streams and memory. Lives as
// long as the process.
class Gpu {
 public:
  Gpu(int ordinal, int64_t limit);

  const int ordinal;
  CudaStream main, to_host_stream, from_host_stream;
  CudaMemory raw;
  CudaAllocator memory;
  PinnedMemory pinned;
  std::atomic<int> devices{0};  // that use it
};

// A GPU as one session sees it: with a name and state of its own.
class CudaDevice final : public Device, public RecordingDevice {
 public:
  CudaDevice(Info info, Ref<ResourceManager> resources, Gpu& gpu);

  Gpu& gpu() { return gpu_; }
  Allocator& allocator() override { return gpu_.memory; }
  Allocator& host_allocator() override { return cpu_allocator(); }
  CudaStream* stream() override { return &gpu_.main; }
  void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override;
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override;
  void keep_until(const Buffer& buffer, Ref<Event> event) override;
  Status synchronize() override;
  Result<Ref<Recorder>> begin_recording() override;

 protected:
  ~CudaDevice() override;

 private:
  Status enqueue_to_host(const Tensor& from, Tensor& to);
  Status enqueue_from_host(const Tensor& from, Tensor& to);

  Gpu& gpu_;
};

// See GpuLibrary::make_devices.
Result<std::vector<Ref<Device>>> make_cuda_devices(const DeviceName& task,
                                                   const GpuOptions& options);

}  // namespace millrace
