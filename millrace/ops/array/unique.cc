// Ops that compare the elements of vectors, or slices of tensors, by value.

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/hash.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/element.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using ComparedTypes = ConcatTypes<RealTypes, TypeList<bool>>;
constexpr TypeSet kCompared = type_set_of<ComparedTypes> | TypeSet{DType::kString};

// Numbers the different elements of vectors of one type in order of appearance. -0 is 0; a NaN is
// different from every element, itself included.
class Numbering {
 public:
  explicit Numbering(DType dtype, int64_t capacity) : dtype_(dtype) {
    size_t slots = 16;
    while (slots < static_cast<size_t>(capacity) * 2) slots *= 2;
    slots_.resize(slots, -1);
  }

  // The number of element i of `tensor`, new or not. The tensor outlives the numbering.
  int64_t add(const Tensor& tensor, int64_t i) { return find_or_add(key(tensor, i), true); }
  // The same, -1 when there is none.
  int64_t find(const Tensor& tensor, int64_t i) { return find_or_add(key(tensor, i), false); }
  int64_t size() const { return static_cast<int64_t>(keys_.size()); }

 private:
  struct Key {
    uint64_t bits = 0;
    std::string_view text;
    bool nan = false;
    friend bool operator==(const Key& a, const Key& b) {
      return a.bits == b.bits && a.text == b.text && !a.nan && !b.nan;
    }
  };

  Key key(const Tensor& tensor, int64_t i) const {
    const size_t at = static_cast<size_t>(i);
    Key key;
    if (dtype_ == DType::kString) {
      key.text = tensor.data<std::string>()[at];
      key.bits = hash_bytes(key.text);
      return key;
    }
    MR_CHECK_OK(dispatch<ComparedTypes>(dtype_, [&]<class T>() {
      const T value = tensor.data<T>()[at];
      if constexpr (std::numeric_limits<T>::is_integer) {
        key.bits = static_cast<uint64_t>(value);
      } else {
        const double number = static_cast<double>(value);
        key.nan = number != number;
        key.bits = number == 0 ? 0 : std::bit_cast<uint64_t>(number);
      }
    }));
    return key;
  }

  int64_t find_or_add(const Key& key, bool may_add) {
    const size_t mask = slots_.size() - 1;
    // The upper bits of the product depend on all bits of the key.
    size_t slot = static_cast<size_t>((key.bits * 0x9E3779B97F4A7C15U) >> 17) & mask;
    if (key.nan) slot = (slot + keys_.size()) & mask;
    for (; slots_[slot] >= 0; slot = (slot + 1) & mask) {
      if (keys_[static_cast<size_t>(slots_[slot])] == key) return slots_[slot];
    }
    if (!may_add) return -1;
    slots_[slot] = static_cast<int64_t>(keys_.size());
    keys_.push_back(key);
    return slots_[slot];
  }

  DType dtype_;
  std::vector<int64_t> slots_;  // a power of two, at least half of them -1
  std::vector<Key> keys_;
};

void put(Tensor& out, int64_t i, int64_t value) {
  if (out.dtype() == DType::kInt32) {
    out.mutable_data<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(value);
  } else {
    out.mutable_data<int64_t>()[static_cast<size_t>(i)] = value;
  }
}

Status check_vector(const KernelContext& ctx, int i, DType index) {
  MR_TRY(expect_rank(ctx, i, 1));
  if (index == DType::kInt32 && ctx.input(i).num_elements() > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("a vector of ", ctx.input(i).num_elements(),
                            " elements needs positions of type int64");
  }
  return ok_status();
}

// Copies elements `picked` of the vector `from` to output 0.
Status take(KernelContext& ctx, const Tensor& from, const std::vector<int64_t>& picked) {
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{static_cast<int64_t>(picked.size())}));
  with_element(from.dtype(), [&]<class T>() {
    T* to = static_cast<T*>(out->mutable_raw());
    for (int64_t i : picked) *to++ = static_cast<const T*>(from.raw())[i];
  });
  return ok_status();
}

Status unique_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape x, c.with_rank(0, 1));
  c.set_output(0, PartialShape::of_rank(1));
  c.set_output(1, x);
  if (c.num_outputs() > 2) c.set_output(2, PartialShape::of_rank(1));
  return ok_status();
}

Status unique_cpu(KernelContext& ctx) {
  MR_TRY(check_vector(ctx, 0, ctx.output_type(1)));
  const Tensor& x = ctx.input(0);
  const int64_t n = x.num_elements();
  MR_TRY_ASSIGN(Tensor * idx, ctx.allocate_output(1, x.shape()));
  Numbering numbering(x.dtype(), n);
  std::vector<int64_t> first;
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t number = numbering.add(x, i);
    if (number == static_cast<int64_t>(first.size())) {
      first.push_back(i);
      counts.push_back(0);
    }
    ++counts[static_cast<size_t>(number)];
    put(*idx, i, number);
  }
  MR_TRY(take(ctx, x, first));
  if (ctx.num_outputs() < 3) return ok_status();
  const int64_t different = static_cast<int64_t>(first.size());
  MR_TRY_ASSIGN(Tensor * count, ctx.allocate_output(2, Shape{different}));
  for (int64_t i = 0; i < different; ++i) put(*count, i, counts[static_cast<size_t>(i)]);
  return ok_status();
}

// The axis of UniqueV2: what input 1 holds, which may be nothing for a vector.
Result<int> unique_axis(const std::vector<int64_t>& given, int rank) {
  if (given.empty()) {
    if (rank == 1) return 0;
    return invalid_argument("without an axis the input must have rank 1, got rank ", rank);
  }
  if (given.size() > 1 || given[0] < -rank || given[0] >= rank) {
    return invalid_argument("axis must be one number in [", -rank, ", ", rank, "), got ",
                            str_join(given, ","));
  }
  return static_cast<int>(given[0] < 0 ? given[0] + rank : given[0]);
}

Status unique_slices_shape(ShapeContext& c) {
  const PartialShape& x = c.input(0);
  if (c.input(1).rank() > 1) return invalid_argument("axis must be a vector, got ", c.input(1));
  if (const auto axis = c.input_vector(1); axis && x.rank_known()) {
    MR_TRY(unique_axis(*axis, x.rank()).status());
  }
  c.set_output(0, x.rank_known() ? PartialShape::of_rank(x.rank()) : PartialShape::unknown());
  for (int i = 1; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::of_rank(1));
  return ok_status();
}

Status unique_slices_cpu(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  MR_TRY_ASSIGN(const std::vector<int64_t> given, ctx.int_vector_input(1));
  MR_TRY_ASSIGN(const int axis, unique_axis(given, x.rank()));
  if (ctx.output_type(1) == DType::kInt32 && x.dim(axis) > std::numeric_limits<int32_t>::max()) {
    return invalid_argument(x.dim(axis), " slices need positions of type int64");
  }
  // Without elements, all slices are the same, and sizes beside a zero may be of any size.
  int64_t before = x.num_elements() == 0 ? 0 : 1, after = before;
  for (int i = 0; i < axis && before > 0; ++i) before *= x.dim(i);
  for (int i = axis + 1; i < x.rank() && after > 0; ++i) after *= x.dim(i);
  const int64_t slices = x.dim(axis);
  MR_TRY_ASSIGN(Tensor * idx, ctx.allocate_output(1, Shape{slices}));
  // A slice is known by the numbers of its elements.
  Numbering numbering(x.dtype(), x.num_elements());
  std::map<std::vector<int64_t>, int64_t> known;
  std::vector<int64_t> first;
  std::vector<int64_t> counts;
  std::vector<int64_t> slice(static_cast<size_t>(before * after));
  for (int64_t i = 0; i < slices; ++i) {
    for (int64_t a = 0; a < before; ++a) {
      for (int64_t b = 0; b < after; ++b) {
        slice[static_cast<size_t>(a * after + b)] = numbering.add(x, (a * slices + i) * after + b);
      }
    }
    const auto [found, added] = known.try_emplace(slice, static_cast<int64_t>(first.size()));
    if (added) {
      first.push_back(i);
      counts.push_back(0);
    }
    ++counts[static_cast<size_t>(found->second)];
    put(*idx, i, found->second);
  }
  const auto different = static_cast<int64_t>(first.size());
  MR_TRY_ASSIGN(const Shape shape, x.shape().with_dim(axis, different));
  MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, shape));
  with_element(x.dtype(), [&]<class T>() {
    const T* from = static_cast<const T*>(x.raw());
    T* to = static_cast<T*>(y->mutable_raw());
    for (int64_t a = 0; a < before; ++a) {
      for (int64_t i : first) {
        to = std::copy_n(from + (a * slices + i) * after, after, to);
      }
    }
  });
  if (ctx.num_outputs() < 3) return ok_status();
  MR_TRY_ASSIGN(Tensor * count, ctx.allocate_output(2, Shape{different}));
  for (int64_t i = 0; i < different; ++i) put(*count, i, counts[static_cast<size_t>(i)]);
  return ok_status();
}

Status list_diff_shape(ShapeContext& c) {
  for (int i = 0; i < 2; ++i) {
    MR_TRY(c.with_rank(i, 1).status());
    c.set_output(i, PartialShape::of_rank(1));
  }
  return ok_status();
}

Status list_diff_cpu(KernelContext& ctx) {
  for (int i = 0; i < 2; ++i) MR_TRY(check_vector(ctx, i, ctx.output_type(1)));
  const Tensor& x = ctx.input(0);
  const Tensor& y = ctx.input(1);
  Numbering numbering(x.dtype(), y.num_elements());
  for (int64_t i = 0; i < y.num_elements(); ++i) numbering.add(y, i);
  std::vector<int64_t> kept;
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    if (numbering.find(x, i) < 0) kept.push_back(i);
  }
  MR_TRY(take(ctx, x, kept));
  const int64_t n = static_cast<int64_t>(kept.size());
  MR_TRY_ASSIGN(Tensor * idx, ctx.allocate_output(1, Shape{n}));
  for (int64_t i = 0; i < n; ++i) put(*idx, i, kept[static_cast<size_t>(i)]);
  return ok_status();
}

constexpr OpTraits kTraits = {.cost = 20};
constexpr const char* kNoGradient = "which elements are there depends on their values";

}  // namespace

void register_unique(Registry& registry) {
  registry.add(
      {.name = "Unique",
       .doc = "The different elements of x in order of appearance, and where each x is there.",
       .inputs = {{"x", "T"}},
       .outputs = {{"y", "T"}, {"idx", "out_idx"}},
       .types = {{"T", {}}, {"out_idx", kIndexTypes, DType::kInt32}},
       .traits = kTraits,
       .shape = unique_shape,
       .no_gradient = kNoGradient});
  registry.add({.name = "UniqueWithCounts",
                .doc = "As Unique, and how often each element appears.",
                .inputs = {{"x", "T"}},
                .outputs = {{"y", "T"}, {"idx", "out_idx"}, {"count", "out_idx"}},
                .types = {{"T", {}}, {"out_idx", kIndexTypes, DType::kInt32}},
                .traits = kTraits,
                .shape = unique_shape,
                .no_gradient = kNoGradient});
  const std::vector<OpSpec::Type> slice_types = {
      {"T", {}}, {"Taxis", kIndexTypes, DType::kInt64}, {"out_idx", kIndexTypes, DType::kInt32}};
  registry.add({.name = "UniqueV2",
                .doc = "As Unique, for slices along an axis.",
                .inputs = {{"x", "T"}, {"axis", "host(Taxis)", "Empty: x is a vector."}},
                .outputs = {{"y", "T"}, {"idx", "out_idx"}},
                .types = slice_types,
                .traits = kTraits,
                .shape = unique_slices_shape,
                .no_gradient = kNoGradient});
  registry.add({.name = "UniqueWithCountsV2",
                .doc = "As UniqueWithCounts, for slices along an axis.",
                .inputs = {{"x", "T"}, {"axis", "host(Taxis)", "Empty: x is a vector."}},
                .outputs = {{"y", "T"}, {"idx", "out_idx"}, {"count", "out_idx"}},
                .types = slice_types,
                .traits = kTraits,
                .shape = unique_slices_shape,
                .no_gradient = kNoGradient});
  registry.add({.name = "ListDiff",
                .doc = "The elements of x that y does not hold, and their positions in x.",
                .inputs = {{"x", "T"}, {"y", "T"}},
                .outputs = {{"out", "T"}, {"idx", "out_idx"}},
                .types = {{"T", {}}, {"out_idx", kIndexTypes, DType::kInt32}},
                .traits = kTraits,
                .shape = list_diff_shape,
                .no_gradient = kNoGradient});
  for (const char* op : {"Unique", "UniqueWithCounts"}) {
    registry.kernel({.op = op, .constraints = {{"T", kCompared}}, .function = unique_cpu});
  }
  for (const char* op : {"UniqueV2", "UniqueWithCountsV2"}) {
    registry.kernel({.op = op, .constraints = {{"T", kCompared}}, .function = unique_slices_cpu});
  }
  registry.kernel({.op = "ListDiff", .constraints = {{"T", kCompared}}, .function = list_diff_cpu});
}

}  // namespace millrace
