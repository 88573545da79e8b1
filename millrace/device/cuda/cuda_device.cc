#include "millrace/device/cuda/cuda_device.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/device/cuda/cuda_recorder.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/tensor/size_class.h"

namespace millrace {
namespace {

// Up to so many bytes the driver takes from any memory at once.
constexpr size_t kStagedBytes = 64 << 10;
// From so many bytes on a copy to the device goes beside its kernels instead of between them.
constexpr size_t kBesideBytes = 1 << 20;
// What is left to the driver and to libraries of each GPU.
constexpr double kReserved = 0.05;
constexpr double kMegabyte = 1 << 20;

bool in_device_memory(const Tensor& tensor) {
  return tensor.buffer() && tensor.buffer()->space() == MemorySpace::kDevice;
}

}  // namespace

void* CudaMemory::allocate(size_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  {
    MutexLock lock(mu_);
    if (stats_.bytes_in_use + size > limit_) return nullptr;
    stats_.bytes_in_use += size;
  }
  void* data = nullptr;
  const bool found =
      make_cuda_device_current(ordinal_).ok() && cudaMalloc(&data, bytes) == cudaSuccess;
  MutexLock lock(mu_);
  if (!found) {
    static_cast<void>(cudaGetLastError());  // it was asked for and is not there: no error yet
    stats_.bytes_in_use -= size;
    return nullptr;
  }
  ++stats_.num_allocations;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  stats_.largest_allocation = std::max(stats_.largest_allocation, size);
  return data;
}

void CudaMemory::deallocate(void* data, size_t bytes) {
  if (make_cuda_device_current(ordinal_).ok()) static_cast<void>(cudaFree(data));
  MutexLock lock(mu_);
  stats_.bytes_in_use -= static_cast<int64_t>(bytes);
}

AllocatorStats CudaMemory::stats() const {
  MutexLock lock(mu_);
  return stats_;
}

void CudaMemory::reset_peak() {
  MutexLock lock(mu_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

void* PinnedMemory::allocate(size_t bytes) {
  if (bytes > (size_t{1} << 62)) return nullptr;
  const size_t size = class_bytes(size_class(std::max<size_t>(bytes, 1)));
  MutexLock lock(mu_);
  void* data = nullptr;
  std::vector<Block>& blocks = free_[size];
  for (size_t i = blocks.size(); i-- > 0 && data == nullptr;) {
    if (blocks[i].used_until && !blocks[i].used_until->done()) continue;
    data = blocks[i].data;
    std::swap(blocks[i], blocks.back());
    blocks.pop_back();
  }
  if (data == nullptr && (!make_cuda_device_current(ordinal_).ok() ||
                          cudaHostAlloc(&data, size, cudaHostAllocPortable) != cudaSuccess)) {
    static_cast<void>(cudaGetLastError());
    return nullptr;
  }
  ++stats_.num_allocations;
  stats_.bytes_in_use += static_cast<int64_t>(size);
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  return data;
}

void PinnedMemory::deallocate(void* data, size_t bytes) {
  const size_t size = class_bytes(size_class(std::max<size_t>(bytes, 1)));
  MutexLock lock(mu_);
  Block block{data, nullptr};
  if (auto used = used_until_.find(data); used != used_until_.end()) {
    block.used_until = std::move(used->second);
    used_until_.erase(used);
  }
  free_[size].push_back(std::move(block));
  stats_.bytes_in_use -= static_cast<int64_t>(size);
}

AllocatorStats PinnedMemory::stats() const {
  MutexLock lock(mu_);
  return stats_;
}

void PinnedMemory::reset_peak() {
  MutexLock lock(mu_);
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
}

void PinnedMemory::keep_until(const void* data, Ref<Event> event) {
  MutexLock lock(mu_);
  used_until_[data] = std::move(event);
}

void PinnedMemory::trim() {
  if (!make_cuda_device_current(ordinal_).ok()) return;
  MutexLock lock(mu_);
  for (auto& [size, blocks] : free_) {
    std::erase_if(blocks, [](const Block& block) {
      if (block.used_until && !block.used_until->done()) return false;
      return cudaFreeHost(block.data) == cudaSuccess;
    });
  }
}

void* CudaAllocator::allocate(size_t bytes) {
  void* const data = cache_.allocate(bytes);
  if (data == nullptr) {
    MR_LOG(kWarning, "no room for ", bytes, " bytes on the GPU. ", report());
    return nullptr;
  }
  MutexLock lock(mu_);
  live_.emplace(data, bytes);
  return data;
}

void CudaAllocator::deallocate(void* data, size_t bytes) {
  {
    MutexLock lock(mu_);
    live_.erase(data);
  }
  cache_.deallocate(data, bytes);
}

std::string CudaAllocator::report() const {
  constexpr size_t kMost = 10;
  std::vector<size_t> sizes;
  {
    MutexLock lock(mu_);
    for (const auto& [data, bytes] : live_) sizes.push_back(bytes);
  }
  std::sort(sizes.rbegin(), sizes.rend());
  const size_t count = sizes.size();
  sizes.resize(std::min(count, kMost));
  const AllocatorStats stats = cache_.stats();
  return str_cat(stats.bytes_in_use, " bytes are in use by ", count, " tensors, ",
                 stats.bytes_cached, " are kept for reuse, the limit is ", raw_.limit(),
                 "; the largest tensors have ", str_join(sizes, ", "), " bytes");
}

Gpu::Gpu(int number, int64_t limit)
    : ordinal(number),
      main(number),
      to_host_stream(number),
      from_host_stream(number),
      raw(number, limit),
      memory(raw, main),
      pinned(number) {}

CudaDevice::CudaDevice(Info info, Ref<ResourceManager> resources, Gpu& gpu)
    : Device(std::move(info), std::move(resources)), gpu_(gpu) {
  gpu_.devices.fetch_add(1);
}

// What nobody uses goes back with the last session.
CudaDevice::~CudaDevice() {
  resources().clear();
  if (gpu_.devices.fetch_sub(1) != 1) return;
  if (gpu_.raw.stats().num_allocations == 0) return;
  gpu_.memory.trim();
  gpu_.pinned.trim();
}

Status CudaDevice::enqueue_to_host(const Tensor& from, Tensor& to) {
  MR_TRY_ASSIGN(to, Tensor::allocate(from.dtype(), from.shape(), gpu_.pinned));
  MR_TRY_ASSIGN(Ref<Event> made, gpu_.main.record());
  MR_TRY(gpu_.to_host_stream.wait_for(*made));
  MR_TRY_ASSIGN(cudaStream_t stream, gpu_.to_host_stream.handle());
  MR_CUDA_TRY(
      cudaMemcpyAsync(to.mutable_raw(), from.raw(), from.bytes(), cudaMemcpyDeviceToHost, stream));
  MR_TRY_ASSIGN(Ref<Event> copied, gpu_.to_host_stream.record());
  keep_until(*from.buffer(), std::move(copied));
  return ok_status();
}

void CudaDevice::copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) {
  if (!in_device_memory(from)) return done(from);
  Tensor to;
  if (Status status = enqueue_to_host(from, to); !status.ok()) return done(std::move(status));
  auto shared = std::make_shared<UniqueFunction<void(Result<Tensor>)>>(std::move(done));
  Status status = gpu_.to_host_stream.then(
      [to, shared](const Status& reached) { reached.ok() ? (*shared)(to) : (*shared)(reached); });
  if (!status.ok()) (*shared)(std::move(status));
}

Status CudaDevice::enqueue_from_host(const Tensor& from, Tensor& to) {
  MR_TRY_ASSIGN(to, Tensor::allocate(from.dtype(), from.shape(), allocator()));
  const size_t bytes = from.bytes();
  MR_TRY_ASSIGN(cudaStream_t stream, gpu_.main.handle());
  if (bytes == 0) return ok_status();
  const bool pinned = from.buffer()->space() == MemorySpace::kPinnedHost;
  if (bytes < kStagedBytes && !pinned) {
    MR_CUDA_TRY(
        cudaMemcpyAsync(to.mutable_raw(), from.raw(), bytes, cudaMemcpyHostToDevice, stream));
    return ok_status();
  }
  // The driver would wait for the stream before it reads memory that is not pinned.
  Tensor source = from;
  if (!pinned) {
    MR_TRY_ASSIGN(source, Tensor::allocate(from.dtype(), from.shape(), gpu_.pinned));
    std::memcpy(source.mutable_raw(), from.raw(), bytes);
  }
  CudaStream& copies = bytes < kBesideBytes ? gpu_.main : gpu_.from_host_stream;
  if (&copies != &gpu_.main) {
    // Work on what was there before has to be over.
    MR_TRY_ASSIGN(Ref<Event> free, gpu_.main.record());
    MR_TRY(copies.wait_for(*free));
    MR_TRY_ASSIGN(stream, copies.handle());
  }
  MR_CUDA_TRY(
      cudaMemcpyAsync(to.mutable_raw(), source.raw(), bytes, cudaMemcpyHostToDevice, stream));
  MR_TRY_ASSIGN(Ref<Event> copied, copies.record());
  if (&copies != &gpu_.main) MR_TRY(gpu_.main.wait_for(*copied));
  if (source.buffer()->allocator() == &gpu_.pinned) {
    gpu_.pinned.keep_until(source.buffer()->data(), std::move(copied));
    return ok_status();
  }
  return copies.then([source](const Status&) {});
}

void CudaDevice::copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) {
  if (in_device_memory(from) || !is_plain(from.dtype())) return done(from);
  Tensor to;
  if (Status status = enqueue_from_host(from, to); !status.ok()) return done(std::move(status));
  done(std::move(to));
}

void CudaDevice::keep_until(const Buffer& buffer, Ref<Event> event) {
  if (buffer.allocator() == &gpu_.memory) gpu_.memory.keep_until(buffer.data(), std::move(event));
}

Result<Ref<Recorder>> CudaDevice::begin_recording() { return record_for(Ref<CudaDevice>(this)); }

Status CudaDevice::synchronize() {
  for (CudaStream* stream : {&gpu_.main, &gpu_.to_host_stream, &gpu_.from_host_stream}) {
    MR_TRY_ASSIGN(Ref<Event> end, stream->record());
    MR_TRY(end->wait());
  }
  return ok_status();
}

namespace {

// "2,0" -> {2, 0}; empty: all.
Result<std::vector<int>> visible_gpus(const std::string& text, int count) {
  std::vector<int> gpus;
  if (text.empty()) {
    for (int i = 0; i < count; ++i) gpus.push_back(i);
    return gpus;
  }
  const auto wrong = [&] {
    return invalid_argument("visible_device_list is numbers of different GPUs with ',' between, ",
                            "each less than ", count, ", got \"", text, "\"");
  };
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    int number = -1;
    const auto [read, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || number >= count ||
        std::find(gpus.begin(), gpus.end(), number) != gpus.end()) {
      return wrong();
    }
    gpus.push_back(number);
    if (read == end) return gpus;
    if (*read != ',') return wrong();
    at = read + 1;
  }
}

// The GPUs, or parts of them, that devices share.
Gpu& shared_gpu(int ordinal, size_t part, int64_t limit) {
  static Mutex& mu = *new Mutex;
  static auto& gpus = *new std::map<std::tuple<int, size_t, int64_t>, Gpu*>;
  MutexLock lock(mu);
  Gpu*& gpu = gpus[{ordinal, part, limit}];
  if (gpu == nullptr) gpu = new Gpu(ordinal, limit);
  return *gpu;
}

}  // namespace

Result<std::vector<Ref<Device>>> make_cuda_devices(const DeviceName& task,
                                                   const GpuOptions& options) {
  std::vector<Ref<Device>> devices;
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    MR_LOG(kInfo, "no GPUs: ", cudaGetErrorString(error));
    return devices;
  }
  if (!(options.memory_fraction >= 0) || options.memory_fraction > 1) {
    return invalid_argument("per_process_gpu_memory_fraction must be from 0 to 1, got ",
                            options.memory_fraction);
  }
  MR_TRY_ASSIGN(const std::vector<int> gpus, visible_gpus(options.visible, count));
  if (options.virtual_megabytes.size() > gpus.size()) {
    return invalid_argument("virtual_devices has ", options.virtual_megabytes.size(),
                            " entries for ", gpus.size(), " visible GPUs");
  }
  for (size_t i = 0; i < gpus.size(); ++i) {
    cudaDeviceProp properties;
    MR_CUDA_TRY(cudaGetDeviceProperties(&properties, gpus[i]));
    const double fraction = options.memory_fraction > 0 ? options.memory_fraction : 1 - kReserved;
    std::vector<int64_t> limits;
    if (i < options.virtual_megabytes.size()) {
      for (double megabytes : options.virtual_megabytes[i]) {
        if (!(megabytes >= 1) || megabytes > 1e9) {
          return invalid_argument("memory_limit_mb of a virtual device must be 1 or more, got ",
                                  megabytes);
        }
        limits.push_back(static_cast<int64_t>(megabytes * kMegabyte));
      }
    }
    if (limits.empty()) {
      limits.push_back(
          static_cast<int64_t>(fraction * static_cast<double>(properties.totalGlobalMem)));
    }
    for (size_t part = 0; part < limits.size(); ++part) {
      const int id = static_cast<int>(devices.size());
      if (options.count >= 0 && id >= options.count) return devices;
      Device::Info info;
      info.name = task;
      info.name.type = std::string(device_type(DeviceKind::kCuda));
      info.name.id = id;
      info.kind = DeviceKind::kCuda;
      info.own_memory = true;
      info.memory_limit = limits[part];
      info.incarnation = random_incarnation();
      info.description = str_cat("device: ", gpus[i], ", name: ", properties.name,
                                 ", compute capability: ", properties.major, ".", properties.minor);
      Gpu& gpu = shared_gpu(gpus[i], part, limits[part]);
      devices.push_back(make_ref<CudaDevice>(info, make_ref<ResourceManager>(), gpu));
    }
  }
  return devices;
}

}  // namespace millrace
