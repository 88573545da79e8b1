// Bincount: how often each small integer occurs.

#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/indices.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using CountTypes = TypeList<int32_t, int64_t, float, double>;

Status check_weights(const PartialShape& arr, const PartialShape& weights) {
  if (weights.num_elements() <= 0 || weights.compatible(arr)) return ok_status();
  return invalid_argument("weights must have the shape of arr, ", arr,
                          ", or no elements; got shape ", weights);
}

Status bincount_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 0).status());
  const int64_t size = c.input_scalar(1).value_or(PartialShape::kUnknownDim);
  if (size < 0 && c.input_scalar(1)) {
    return invalid_argument("size must not be negative, got ", size);
  }
  MR_TRY(check_weights(c.input(0), c.input(2)));
  c.set_output(0, PartialShape{size});
  return ok_status();
}

Status bincount_cpu(KernelContext& ctx) {
  const Tensor& arr = ctx.input(0);
  const Tensor& weights = ctx.input(2);
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(const int32_t size, ctx.scalar_input<int32_t>(1));
  if (size < 0) return invalid_argument("size must not be negative, got ", size);
  const bool weighted = weights.num_elements() > 0;
  MR_TRY(check_weights(arr.shape(), weights.shape()));
  MR_TRY_ASSIGN(const Indices numbers, Indices::read(ctx, arr));
  const auto negative =
      std::ranges::find_if(numbers.span(), [](int64_t number) { return number < 0; });
  if (negative != numbers.span().end()) {
    return invalid_argument("Input arr must be non-negative! Got ", *negative, " at ",
                            negative - numbers.span().begin());
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{size}));
  return dispatch<CountTypes>(out->dtype(), [&]<class T>() {
    const auto bins = out->mutable_data<T>();
    std::ranges::fill(bins, T{0});
    const auto weight = weights.data<T>();
    for (int64_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] >= size) continue;
      T& bin = bins[static_cast<size_t>(numbers[i])];
      bin = wrapping_add(bin, weighted ? weight[static_cast<size_t>(i)] : T{1});
    }
  });
}

}  // namespace

void register_bincount(Registry& registry) {
  registry.add({.name = "Bincount",
                .doc = "How often, or with which weights, each number below size occurs.",
                .inputs = {{"arr", "int32"},
                           {"size", "host(int32)"},
                           {"weights", "T", "Of the shape of arr; without elements: all 1."}},
                .outputs = {{"bins", "T"}},
                .types = {{"T", type_set_of<CountTypes>}},
                .traits = {.cost = 2},
                .shape = bincount_shape,
                .no_gradient = "counts elements"});
  registry.kernel("Bincount", DeviceKind::kCpu, bincount_cpu);
}

}  // namespace millrace
