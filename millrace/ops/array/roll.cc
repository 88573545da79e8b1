#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/element.h"

namespace millrace {
namespace {

Status roll_shape(ShapeContext& c) {
  MR_TRY(c.with_rank_at_least(0, 1).status());
  MR_TRY_ASSIGN(const PartialShape shift, c.with_rank_at_most(1, 1));
  MR_TRY_ASSIGN(const PartialShape axis, c.with_rank_at_most(2, 1));
  if (shift.num_elements() >= 0 && axis.num_elements() >= 0 &&
      shift.num_elements() != axis.num_elements()) {
    return invalid_argument("shift and axis must have the same size, got ", shift, " and ", axis);
  }
  if (const auto axes = c.input_vector(2); axes && c.input(0).rank_known()) {
    for (int64_t given : *axes) MR_TRY(normalize_axis(given, c.input(0).rank()).status());
  }
  c.set_output(0, c.input(0));
  return ok_status();
}

Status roll_grad(GradientContext& g) {
  g.set(0, call("Roll", {g.gradient(), -g.input(1), g.input(2)}));
  return ok_status();
}

// How far each dimension moves, in [0, size).
Result<std::vector<int64_t>> read_shifts(const KernelContext& ctx) {
  const Shape& shape = ctx.input(0).shape();
  MR_TRY_ASSIGN(const std::vector<int64_t> shift, ctx.int_vector_input(1));
  MR_TRY_ASSIGN(const std::vector<int64_t> axes, ctx.int_vector_input(2));
  if (shift.size() != axes.size()) {
    return invalid_argument("shift and axis must have the same size, got ", shift.size(), " and ",
                            axes.size());
  }
  std::vector<int64_t> shifts(static_cast<size_t>(shape.rank()));
  for (size_t i = 0; i < axes.size(); ++i) {
    MR_TRY_ASSIGN(const int axis, normalize_axis(axes[i], shape.rank()));
    const int64_t size = std::max<int64_t>(shape.dim(axis), 1);
    int64_t& total = shifts[static_cast<size_t>(axis)];
    total = (total + shift[i] % size + size) % size;
  }
  return shifts;
}

template <class T>
void roll(const KernelContext& ctx, const Shape& shape, const std::vector<int64_t>& shifts,
          const T* from, T* to, double cost) {
  const int last = shape.rank() - 1;
  const int64_t row = shape.dim(last), shift = shifts.back();
  ctx.parallel_for(shape.num_elements() / row, cost, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      // The row that row i moves to.
      int64_t target = 0, left = i, stride = 1;
      for (int d = last - 1; d >= 0; --d) {
        const int64_t size = shape.dim(d);
        target += (left + shifts[static_cast<size_t>(d)]) % size * stride;
        left /= size;
        stride *= size;
      }
      const T* source = from + i * row;
      std::copy_n(source, row - shift, to + target * row + shift);
      std::copy_n(source + row - shift, shift, to + target * row);
    }
  });
}

Status roll_cpu(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  if (x.rank() == 0) return invalid_argument("input must be 1-D or higher");
  MR_TRY_ASSIGN(const std::vector<int64_t> shifts, read_shifts(ctx));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, x.shape()));
  if (x.num_elements() == 0) return ok_status();
  const double cost = copy_cost(x.dtype()) * static_cast<double>(x.dim(x.rank() - 1)) + 5;
  with_element(x.dtype(), [&]<class T>() {
    roll(ctx, x.shape(), shifts, static_cast<const T*>(x.raw()),
         static_cast<T*>(out->mutable_raw()), cost);
  });
  return ok_status();
}

}  // namespace

void register_roll(Registry& registry) {
  registry.add({.name = "Roll",
                .doc = "Elements moved along some dimensions; what leaves at one end comes in at "
                       "the other.",
                .inputs = {{"input", "T"}, {"shift", "host(Tshift)"}, {"axis", "host(Taxis)"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {"Tshift", kIndexTypes}, {"Taxis", kIndexTypes}},
                .traits = {.cost = 0.5F},
                .shape = roll_shape,
                .gradient = roll_grad});
  registry.kernel("Roll", DeviceKind::kCpu, roll_cpu);
}

}  // namespace millrace
