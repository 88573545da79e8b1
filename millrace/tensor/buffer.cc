#include "millrace/tensor/buffer.h"

#include <limits>
#include <memory>
#include <new>
#include <string>

#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

template <class T>
void construct_as(void* data, size_t count) {
  std::uninitialized_value_construct_n(static_cast<T*>(data), count);
}

template <class T>
void destroy_as(void* data, size_t count) {
  std::destroy_n(static_cast<T*>(data), count);
}

void construct_elements(DType dtype, void* data, size_t count) {
  switch (dtype) {
    case DType::kString:
      return construct_as<std::string>(data, count);
    case DType::kResource:
      return construct_as<ResourceHandle>(data, count);
    case DType::kVariant:
      return construct_as<Variant>(data, count);
    default:
      return;
  }
}

void destroy_elements(DType dtype, void* data, size_t count) {
  switch (dtype) {
    case DType::kString:
      return destroy_as<std::string>(data, count);
    case DType::kResource:
      return destroy_as<ResourceHandle>(data, count);
    case DType::kVariant:
      return destroy_as<Variant>(data, count);
    default:
      return;
  }
}

// Host memory: the object stands in front of its elements, in one block of the allocator.
class HostBuffer final : public Buffer {
 public:
  static constexpr size_t kHeaderBytes = Allocator::kAlignment;

  // `block` has kHeaderBytes + bytes bytes; the object is constructed at its start.
  HostBuffer(void* block, size_t bytes, DType dtype, Allocator* allocator)
      : Buffer(static_cast<char*>(block) + kHeaderBytes, bytes, MemorySpace::kHost,
               /*borrowed=*/false, allocator),
        dtype_(dtype) {
    if (!is_plain(dtype_)) construct_elements(dtype_, mutable_data(), bytes / dtype_size(dtype_));
  }

 protected:
  ~HostBuffer() override = default;
  void destroy() const override {
    auto* self = const_cast<HostBuffer*>(this);
    if (!is_plain(dtype_)) {
      destroy_elements(dtype_, self->mutable_data(), bytes() / dtype_size(dtype_));
    }
    Allocator* const memory = allocator();
    const size_t block_bytes = kHeaderBytes + bytes();
    self->~HostBuffer();
    memory->deallocate(self, block_bytes);
  }

 private:
  DType dtype_;
};
static_assert(sizeof(HostBuffer) <= HostBuffer::kHeaderBytes);

// Memory that the CPU should not or cannot hold a header in.
class DeviceBuffer final : public Buffer {
 public:
  DeviceBuffer(void* data, size_t bytes, Allocator* allocator)
      : Buffer(data, bytes, allocator->space(), /*borrowed=*/false, allocator) {}

 protected:
  ~DeviceBuffer() override { allocator()->deallocate(mutable_data(), bytes()); }
};

class ForeignBuffer final : public Buffer {
 public:
  ForeignBuffer(void* data, size_t bytes, UniqueFunction<void()> release, MemorySpace space,
                bool borrowed)
      : Buffer(data, bytes, space, borrowed, nullptr), release_(std::move(release)) {}

 protected:
  ~ForeignBuffer() override {
    if (release_) release_();
  }

 private:
  UniqueFunction<void()> release_;
};

}  // namespace

Result<Ref<Buffer>> Buffer::allocate(DType dtype, int64_t count, Allocator& allocator) {
  const size_t element = is_ref(dtype) ? 0 : dtype_size(dtype);
  if (element == 0) return invalid_argument("a buffer cannot hold elements of ", dtype);
  if (count < 0) return invalid_argument("a buffer cannot have ", count, " elements");
  size_t bytes;
  // The limit leaves room for the header and for pointer differences.
  if (__builtin_mul_overflow(static_cast<size_t>(count), element, &bytes) ||
      bytes > static_cast<size_t>(std::numeric_limits<int64_t>::max()) - Allocator::kAlignment) {
    return invalid_argument(count, " elements of ", dtype,
                            " are more bytes than 63 bits can count");
  }
  const MemorySpace space = allocator.space();
  if (space == MemorySpace::kHost) [[likely]] {
    void* block = allocator.allocate(HostBuffer::kHeaderBytes + bytes);
    if (block != nullptr) [[likely]] {
      return Ref<Buffer>(new (block) HostBuffer(block, bytes, dtype, &allocator));
    }
  } else {
    if (!is_plain(dtype)) {
      return invalid_argument("elements of ", dtype, " live in host memory only, not in that of ",
                              allocator.name());
    }
    void* data = allocator.allocate(bytes);
    if (data != nullptr) return Ref<Buffer>(new DeviceBuffer(data, bytes, &allocator));
  }
  return resource_exhausted("allocator ", allocator.name(), " has no room for ", bytes, " bytes (",
                            count, " elements of ", dtype, "); ", allocator.stats().bytes_in_use,
                            " bytes are in use");
}

Ref<Buffer> Buffer::borrow(const void* data, size_t bytes, UniqueFunction<void()> release,
                           MemorySpace space) {
  return make_ref<ForeignBuffer>(const_cast<void*>(data), bytes, std::move(release), space, true);
}

Ref<Buffer> Buffer::own(void* data, size_t bytes, UniqueFunction<void()> release,
                        MemorySpace space) {
  return make_ref<ForeignBuffer>(data, bytes, std::move(release), space, false);
}

}  // namespace millrace
