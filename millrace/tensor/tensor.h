#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/buffer.h"
#include "millrace/tensor/dtype.h"
#include "millrace/tensor/shape.h"

namespace millrace {

// A typed array: dtype, shape, and a reference to the buffer that holds its elements in row-major
// order. A small value: copying it copies a reference, never elements. Sharing is visible: a tensor
// may be written only while writable() says that nobody else sees its buffer.
class Tensor {
 public:
  // No tensor: dtype kInvalid, no buffer.
  Tensor() = default;
  // A tensor over `buffer`, starting `offset` bytes into it; the elements must lie within it.
  Tensor(DType dtype, const Shape& shape, Ref<Buffer> buffer, size_t offset = 0) {
    assign(dtype, shape, std::move(buffer), offset);
  }
  // Makes this such a tensor, in place: for slots that get one value after another.
  void assign(DType dtype, const Shape& shape, Ref<Buffer> buffer, size_t offset = 0) {
    buffer_ = std::move(buffer);
    offset_ = offset;
    shape_ = shape;
    dtype_ = dtype;
    MR_CHECK(lies_in_buffer());
  }
  // Makes this no tensor.
  void reset() {
    buffer_ = nullptr;
    offset_ = 0;
    shape_.reset();
    dtype_ = DType::kInvalid;
  }

  // Uninitialised elements (default-constructed for strings, resources and variants).
  static Result<Tensor> allocate(DType dtype, Shape shape, Allocator& allocator = cpu_allocator());
  // All elements zero (or false, or empty), in host memory.
  static Result<Tensor> zeros(DType dtype, Shape shape);

  // Makers for host tensors of known type; sizes must agree and memory must suffice (tests,
  // constants).
  template <class T>
  static Tensor scalar(T value);
  template <class T>
  static Tensor vector(std::span<const T> values);
  template <class T>
  static Tensor vector(std::initializer_list<T> values) {
    return vector(std::span<const T>(values.begin(), values.size()));
  }
  template <class T>
  static Tensor of(Shape shape, std::initializer_list<T> values);

  bool valid() const { return dtype_ != DType::kInvalid; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_.dim(i); }
  int64_t num_elements() const { return shape_.num_elements(); }
  size_t bytes() const { return static_cast<size_t>(num_elements()) * dtype_size(dtype_); }

  const void* raw() const { return base(); }
  void* mutable_raw() { return base(); }
  // The elements; T must be the element type of dtype() (checked).
  template <class T>
  std::span<const T> data() const {
    MR_CHECK(dtype_of<T> == dtype_);
    return {static_cast<const T*>(base()), static_cast<size_t>(num_elements())};
  }
  // As data(), to write; the caller knows that nobody else reads, see writable().
  template <class T>
  std::span<T> mutable_data() {
    MR_CHECK(dtype_of<T> == dtype_);
    return {static_cast<T*>(base()), static_cast<size_t>(num_elements())};
  }
  // The only element of a tensor with exactly one (checked).
  template <class T>
  const T& item() const {
    MR_CHECK(num_elements() == 1);
    return data<T>()[0];
  }

  const Ref<Buffer>& buffer() const { return buffer_; }
  size_t offset() const { return offset_; }
  // True when this tensor holds the only reference to a buffer of our own.
  bool writable() const { return buffer_ && buffer_->writable(); }
  bool shares_buffer_with(const Tensor& other) const { return buffer_ && buffer_ == other.buffer_; }

  // The same elements under another shape of as many elements; INVALID_ARGUMENT otherwise.
  Result<Tensor> reshaped(Shape shape) const;
  // Rows [begin, end) of the first dimension, sharing the buffer; 0 <= begin <= end <= dim(0), rank
  // >= 1 (checked).
  Tensor rows(int64_t begin, int64_t end) const;
  // Element i of the first dimension, with that dimension dropped, sharing the buffer (checked).
  Tensor row(int64_t i) const;
  // The same bits read as another plain dtype of the same size (checked).
  Tensor bit_cast_to(DType dtype) const;
  // A copy with a buffer of its own, host memory to host memory.
  Result<Tensor> clone(Allocator& allocator = cpu_allocator()) const;

  // "float [2,3] {1, 2, 3, ...}": up to `max_elements` elements, host memory only.
  std::string to_string(int64_t max_elements = 8) const;

 private:
  bool lies_in_buffer() const {
    size_t size;
    return buffer_ && offset_ <= buffer_->bytes() &&
           !__builtin_mul_overflow(static_cast<size_t>(num_elements()), dtype_size(dtype_),
                                   &size) &&
           size <= buffer_->bytes() - offset_;
  }
  void* base() const {
    return buffer_ ? static_cast<char*>(buffer_->mutable_data()) + offset_ : nullptr;
  }

  Ref<Buffer> buffer_;
  size_t offset_ = 0;
  Shape shape_;
  DType dtype_ = DType::kInvalid;
};

inline void append_to(std::string& out, const Tensor& tensor) { out += tensor.to_string(); }

// Copies the elements of `from` over those of `to` (same dtype and element count, host memory).
void copy_elements(const Tensor& from, Tensor& to);

// Same dtype, shape and bits (NaNs with the same bits are equal; -0.0 is not 0.0).
bool bit_equal(const Tensor& a, const Tensor& b);

template <class T>
Tensor Tensor::vector(std::span<const T> values) {
  Result<Tensor> result = allocate(dtype_of<T>, Shape{static_cast<int64_t>(values.size())});
  std::span<T> out = result.value().template mutable_data<T>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = values[i];
  return std::move(result).value();
}

template <class T>
Tensor Tensor::scalar(T value) {
  Result<Tensor> result = allocate(dtype_of<T>, Shape());
  result.value().template mutable_data<T>()[0] = std::move(value);
  return std::move(result).value();
}

template <class T>
Tensor Tensor::of(Shape shape, std::initializer_list<T> values) {
  MR_CHECK(static_cast<int64_t>(values.size()) == shape.num_elements());
  return vector(values).reshaped(std::move(shape)).value();
}

}  // namespace millrace
