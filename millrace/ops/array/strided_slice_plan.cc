#include "millrace/ops/array/strided_slice_plan.h"

#include <algorithm>

namespace millrace {
namespace {

bool bit(int64_t mask, int i) { return ((mask >> i) & 1) != 0; }

// An index counted from the end where negative, moved into [low, high].
int64_t clamp_index(int64_t index, int64_t dim, int64_t low, int64_t high) {
  return std::clamp(index < 0 ? index + dim : index, low, high);
}

struct Entry {
  int64_t begin = 0, end = 0, stride = 1;
  bool from_edge = true, to_edge = true, shrink = false;
};

constexpr int64_t kUnknown = StridedSlicePlan::kUnknown;

Status check_stride(const Entry& e, int i) {
  if (e.stride == 0) return invalid_argument("strides[", i, "] must not be 0");
  if (e.shrink && e.stride != kUnknown && e.stride < 0) {
    return invalid_argument("strides[", i,
                            "] must be positive where a single element is taken, got ", e.stride);
  }
  return ok_status();
}

// How many elements the entry takes of a dimension of size `dim`, where it begins set right; -1
// when something is unknown.
Result<int64_t> resolve(Entry& e, int64_t dim, int i) {
  MR_TRY(check_stride(e, i));
  if (e.shrink) {
    if (dim < 0 || e.begin == kUnknown) return int64_t{1};
    const int64_t index = e.begin < 0 ? e.begin + dim : e.begin;
    if (index < 0 || index >= dim) {
      return invalid_argument("slice index ", e.begin, " of dimension ", i,
                              " out of bounds: the size is ", dim);
    }
    e.begin = index;
    e.stride = 1;
    return int64_t{1};
  }
  if (dim < 0 || e.stride == kUnknown) return int64_t{-1};
  if ((!e.from_edge && e.begin == kUnknown) || (!e.to_edge && e.end == kUnknown))
    return int64_t{-1};
  const bool forward = e.stride > 0;
  const int64_t low = forward ? 0 : -1, high = forward ? dim : dim - 1;
  const int64_t begin = e.from_edge ? (forward ? low : high) : clamp_index(e.begin, dim, low, high);
  const int64_t end = e.to_edge ? (forward ? high : low) : clamp_index(e.end, dim, low, high);
  e.begin = begin;
  const int64_t length = forward ? end - begin : begin - end;
  if (length <= 0) return int64_t{0};
  const int64_t step = forward ? e.stride : -e.stride;
  return (length - 1) / step + 1;
}

}  // namespace

Status StridedSlicePlan::make(std::span<const int64_t> input, std::span<const int64_t> begin,
                              std::span<const int64_t> end, std::span<const int64_t> strides,
                              const StridedSliceMasks& masks) {
  const int entries = static_cast<int>(std::min<size_t>(begin.size(), kMaxEntries + 1));
  if (begin.size() != end.size() || begin.size() != strides.size() || entries > kMaxEntries) {
    return invalid_argument("'begin', 'end' and 'strides' must have one length of at most ",
                            kMaxEntries, ", got ", begin.size(), ", ", end.size(), " and ",
                            strides.size());
  }
  input_rank_ = static_cast<int>(input.size());
  int ellipsis = entries, used = 0;
  for (int i = 0; i < entries; ++i) {
    if (bit(masks.ellipsis, i)) {
      if (ellipsis != entries)
        return invalid_argument("a slice may hold one ellipsis, not several");
      ellipsis = i;
    } else if (!bit(masks.new_axis, i)) {
      ++used;
    }
  }
  if (used > input_rank_) {
    return invalid_argument("Index out of range using input dim ", input_rank_, ": a slice of ",
                            used, " dimensions does not fit an input of rank ", input_rank_);
  }
  int dim = 0;
  output_rank_ = 0;
  auto take = [&](Entry e) -> Status {
    MR_TRY_ASSIGN(const int64_t size, resolve(e, input[static_cast<size_t>(dim)], dim));
    dims_[dim++] = {e.begin, e.stride, size};
    if (!e.shrink) output_[output_rank_++] = size;
    return ok_status();
  };
  for (int i = 0; i <= entries; ++i) {
    if (i == ellipsis) {
      for (int whole = input_rank_ - used; whole > 0; --whole) MR_TRY(take(Entry()));
    }
    if (i == entries || i == ellipsis) continue;
    if (bit(masks.new_axis, i)) {
      output_[output_rank_++] = 1;
      continue;
    }
    const size_t at = static_cast<size_t>(i);
    MR_TRY(take({begin[at], end[at], strides[at], bit(masks.begin, i), bit(masks.end, i),
                 bit(masks.shrink_axis, i)}));
  }
  return ok_status();
}

}  // namespace millrace
