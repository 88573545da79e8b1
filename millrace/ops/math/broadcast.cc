#include "millrace/ops/math/broadcast.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "millrace/base/check.h"
#include "millrace/graph/shape_context.h"
#include "millrace/ops/math/spread_loops.h"

namespace millrace {
namespace {

struct Bytes16 {
  uint64_t parts[2];
};

// Calls f with a value of a plain type of this size.
template <class F>
void with_size(size_t size, F&& f) {
  switch (size) {
    case 1:
      return f(uint8_t{});
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    case 16:
      return f(Bytes16{});
    default:
      MR_CHECK(false);
  }
}

template <class AnyShape>
Status check_fits(const AnyShape& from, const AnyShape& to) {
  const int extra = to.rank() - from.rank();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < from.rank(); ++i) {
    const int64_t d = from.dim(i), target = to.dim(i + extra);
    fits = d == 1 || d == target || d < 0 || target < 0;
  }
  if (fits) return ok_status();
  return invalid_argument("a tensor of shape ", from, " cannot be broadcast to ", to);
}

}  // namespace

Status check_broadcast_to(const Shape& from, const Shape& to) { return check_fits(from, to); }
Status check_broadcast_to(const PartialShape& from, const PartialShape& to) {
  if (!from.rank_known() || !to.rank_known()) return ok_status();
  return check_fits(from, to);
}

Result<BroadcastPlan> BroadcastPlan::make(std::initializer_list<const Shape*> operands) {
  MR_CHECK(operands.size() >= 1 && operands.size() <= kMaxOperands);
  BroadcastPlan plan;
  plan.shape_ = **operands.begin();
  for (const Shape* operand : operands) {
    if (operand == *operands.begin()) continue;
    MR_TRY_ASSIGN(plan.shape_, broadcast_shapes(plan.shape_, *operand));
  }
  if (plan.shape_.num_elements() == 0) return plan;

  const int rank = plan.shape_.rank();
  int64_t elements[kMaxOperands] = {1, 1, 1};  // of the operand's dimensions inside of d
  Dim last{1, {}};
  for (int d = rank - 1; d >= 0; --d) {
    Dim dim{plan.shape_.dim(d), {}};
    int k = 0;
    for (const Shape* operand : operands) {
      const int own = d - (rank - operand->rank());
      const int64_t size = own >= 0 ? operand->dim(own) : 1;
      dim.strides[k] = size == 1 ? 0 : elements[k];
      elements[k++] *= size;
    }
    if (dim.size == 1) continue;
    bool merge = last.size > 1;
    for (int i = 0; i < kMaxOperands; ++i) merge &= dim.strides[i] == last.strides[i] * last.size;
    if (merge) {
      last.size *= dim.size;
    } else {
      if (last.size > 1) plan.push(last);
      last = dim;
    }
  }
  if (last.size > 1) plan.push(last);
  for (int k = 0; k < kMaxOperands; ++k) {
    plan.dense_[k] = elements[k] == plan.shape_.num_elements();
  }
  return plan;
}

void BroadcastPlan::push(const Dim& dim) {
  if (rank_ < kInlineRank) {
    inline_[rank_] = dim;
  } else {
    if (rank_ == kInlineRank) more_.assign(inline_, inline_ + kInlineRank);
    more_.push_back(dim);
  }
  ++rank_;
}

bool BroadcastPlan::repeats_every_run(int k) const {
  for (int d = 1; d < rank_; ++d) {
    if (dims()[d].strides[k] != 0) return false;
  }
  return true;
}

void BroadcastPlan::seek(int64_t position, int64_t* index, int64_t* from) const {
  const Dim* dim = dims();
  for (int d = 0; d < rank_; ++d) {
    index[d] = position % dim[d].size;
    position /= dim[d].size;
    for (int k = 0; k < kMaxOperands; ++k) from[k] += index[d] * dim[d].strides[k];
  }
}

void BroadcastPlan::next_row(int64_t* index, int64_t* from) const {
  const Dim* dim = dims();
  for (int d = 1; d < rank_; ++d) {
    for (int k = 0; k < kMaxOperands; ++k) from[k] += dim[d].strides[k];
    if (++index[d] < dim[d].size) return;
    for (int k = 0; k < kMaxOperands; ++k) from[k] -= index[d] * dim[d].strides[k];
    index[d] = 0;
  }
}

void fill_elements(void* to, const void* from, size_t size, int64_t n) {
  spread_elements(to, from, size, 1, n);
}

void spread_elements(void* to, const void* from, size_t size, int64_t count, int64_t times) {
  if (size <= 8) {
    static const SpreadLoops& loops = isa_table<SpreadLoops>();
    return loops.run[std::countr_zero(size)](from, count, times, to);
  }
  const Bytes16* x = static_cast<const Bytes16*>(from);
  Bytes16* p = static_cast<Bytes16*>(to);
  for (int64_t r = 0; r < count; ++r, p += times) std::fill_n(p, times, x[r]);
}

void gather_operand(const BroadcastPlan& plan, int k, const void* data, size_t size, int64_t begin,
                    int64_t end, void* to) {
  with_size(size, [&]<class T>(T) {
    const T* source = static_cast<const T*>(data);
    T* target = static_cast<T*>(to);
    const int64_t step = plan.step(k);
    plan.for_each_run(begin, end, [&](const int64_t* from, int64_t, int64_t n) {
      const T* s = source + from[k];
      for (int64_t i = 0; i < n; ++i) target[i] = s[i * step];
      target += n;
    });
  });
}

}  // namespace millrace
