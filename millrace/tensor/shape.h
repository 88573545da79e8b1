#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "millrace/base/status.h"

namespace millrace {

// The sizes of a tensor's dimensions, all known. Sizes are not negative and the product of those
// that are not zero fits in 63 bits: the factory makes sure, so code that holds a Shape, or drops
// some of its dimensions, need not check again. Up to six dimensions live inside the object.
class Shape {
 public:
  static constexpr int kMaxRank = 254;

  // A scalar.
  Shape() = default;
  // For shapes written out in code; the sizes must be valid. Sizes that come from anywhere else go
  // through make().
  Shape(std::initializer_list<int64_t> dims);  // NOLINT(google-explicit-constructor)
  Shape(const Shape& other) : num_elements_(other.num_elements_), rank_(other.rank_) {
    copy_storage(other);
    if (rank_ > kInlineRank) [[unlikely]]
      copy_heap();
  }
  Shape(Shape&& other) noexcept : num_elements_(other.num_elements_), rank_(other.rank_) {
    copy_storage(other);
    if (rank_ > kInlineRank) [[unlikely]]
      other.make_scalar();
  }
  Shape& operator=(const Shape& other) {
    if (this == &other) return *this;
    reset();
    num_elements_ = other.num_elements_;
    rank_ = other.rank_;
    copy_storage(other);
    if (rank_ > kInlineRank) [[unlikely]]
      copy_heap();
    return *this;
  }
  Shape& operator=(Shape&& other) noexcept {
    if (this == &other) return *this;
    reset();
    num_elements_ = other.num_elements_;
    rank_ = other.rank_;
    copy_storage(other);
    if (rank_ > kInlineRank) [[unlikely]]
      other.make_scalar();
    return *this;
  }
  ~Shape() {
    if (rank_ > kInlineRank) free_heap();
  }

  // INVALID_ARGUMENT for a negative size, a product of the sizes other than zero past 2^63-1, or
  // more than kMaxRank dimensions.
  static Result<Shape> make(std::span<const int64_t> dims);

  // Makes this a scalar.
  void reset() {
    if (rank_ > kInlineRank) [[unlikely]]
      free_heap();
    make_scalar();
  }

  int rank() const { return rank_; }
  // 0 <= i < rank().
  int64_t dim(int i) const { return data()[i]; }
  int64_t operator[](int i) const { return data()[i]; }
  std::span<const int64_t> dims() const { return {data(), static_cast<size_t>(rank_)}; }
  int64_t num_elements() const { return num_elements_; }
  bool is_scalar() const { return rank_ == 0; }

  // This shape with dimension `axis` (0 <= axis < rank) of size `size`; an error on overflow.
  Result<Shape> with_dim(int axis, int64_t size) const;
  // This shape without its first dimension (rank >= 1).
  Shape without_first() const;
  // The dimensions of this shape followed by those of `other`; an error on overflow.
  Result<Shape> concat(const Shape& other) const;

  // "[2,3]"; "[]" for a scalar.
  std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_ || a.num_elements_ != b.num_elements_) return false;
    const int64_t* x = a.data();
    const int64_t* y = b.data();
    for (int i = 0; i < a.rank_; ++i) {
      if (x[i] != y[i]) return false;
    }
    return true;
  }

 private:
  static constexpr int kInlineRank = 6;
  const int64_t* data() const { return rank_ <= kInlineRank ? inline_ : heap_; }
  // Copies what is in use of whichever member of the union is. Word by word: a wide load right
  // after the sizes were stored one by one would wait for all of them.
  void copy_storage(const Shape& other) {
    const int used = rank_ < kInlineRank ? rank_ : kInlineRank;
    for (int i = 0; i < used; ++i) inline_[i] = other.inline_[i];
  }
  // Replaces the heap array, which belongs to another shape, by a copy.
  void copy_heap();
  void free_heap();
  void make_scalar() {
    rank_ = 0;
    num_elements_ = 1;
  }

  int64_t num_elements_ = 1;
  union {
    int64_t inline_[kInlineRank] = {};
    int64_t* heap_;
  };
  uint8_t rank_ = 0;
};

inline void append_to(std::string& out, const Shape& shape) { out += shape.to_string(); }

// An axis in [-rank, rank) as one in [0, rank); INVALID_ARGUMENT naming `what` otherwise.
Result<int> normalize_axis(int64_t axis, int rank, std::string_view what = "axis");

}  // namespace millrace
