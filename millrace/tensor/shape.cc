#include "millrace/tensor/shape.h"

#include <algorithm>

namespace millrace {
namespace {

// The number of elements, or an error. Zeros are left out of the overflow check's product, so that
// dropping a dimension of a valid shape gives a valid shape.
Result<int64_t> count_elements(std::span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(Shape::kMaxRank)) {
    return invalid_argument("a shape has at most ", Shape::kMaxRank, " dimensions, got ",
                            dims.size());
  }
  int64_t product = 1;
  bool zero = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) {
      return invalid_argument("dimension ", i, " of shape [", str_join(dims, ","),
                              "] must not be negative, got ", dims[i]);
    }
    if (dims[i] == 0) {
      zero = true;
    } else if (__builtin_mul_overflow(product, dims[i], &product)) {
      return invalid_argument("shape [", str_join(dims, ","),
                              "] has more elements than 63 bits can count");
    }
  }
  return zero ? 0 : product;
}

}  // namespace

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(make(std::span<const int64_t>(dims.begin(), dims.size())).value()) {}

void Shape::copy_heap() {
  const int64_t* const from = heap_;
  heap_ = new int64_t[rank_];
  std::copy_n(from, rank_, heap_);
}

void Shape::free_heap() { delete[] heap_; }

Result<Shape> Shape::make(std::span<const int64_t> dims) {
  MR_TRY_ASSIGN(const int64_t num_elements, count_elements(dims));
  Shape shape;
  int64_t* to = shape.inline_;
  if (dims.size() > static_cast<size_t>(kInlineRank)) to = shape.heap_ = new int64_t[dims.size()];
  std::copy(dims.begin(), dims.end(), to);
  shape.rank_ = static_cast<uint8_t>(dims.size());
  shape.num_elements_ = num_elements;
  return shape;
}

Result<Shape> Shape::with_dim(int axis, int64_t size) const {
  MR_CHECK(axis >= 0 && axis < rank());
  int64_t sizes[kMaxRank];
  std::copy_n(data(), rank_, sizes);
  sizes[axis] = size;
  return make({sizes, static_cast<size_t>(rank_)});
}

Shape Shape::without_first() const {
  MR_CHECK(rank() >= 1);
  return make(dims().subspan(1)).value();
}

Result<Shape> Shape::concat(const Shape& other) const {
  int64_t sizes[2 * kMaxRank];
  std::copy_n(data(), rank_, sizes);
  std::copy_n(other.data(), other.rank_, sizes + rank_);
  return make({sizes, static_cast<size_t>(rank()) + static_cast<size_t>(other.rank())});
}

std::string Shape::to_string() const { return str_cat('[', str_join(dims(), ","), ']'); }

Result<int> normalize_axis(int64_t axis, int rank, std::string_view what) {
  if (axis < -static_cast<int64_t>(rank) || axis >= rank) {
    return invalid_argument(what, " must be in [", -rank, ",", rank, ") for rank ", rank, ", got ",
                            axis);
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace millrace
