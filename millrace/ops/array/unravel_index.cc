// UnravelIndex: the coordinates of elements that are given by their number.

#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using IndexTypes = TypeList<int32_t, int64_t>;

// The sizes, copied, and with each how many elements one step along it passes over.
struct Axis {
  int64_t size, stride;
};
template <class T>
Result<std::vector<Axis>> read_axes(std::span<const T> dims) {
  std::vector<Axis> axes(dims.size());
  int64_t count = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    axes[i] = {.size = dims[i], .stride = count};
    if (axes[i].size <= 0) {
      return invalid_argument("dims must be positive, got ", axes[i].size, " at ", i);
    }
    if (__builtin_mul_overflow(count, axes[i].size, &count)) {
      return invalid_argument("the product of dims does not fit into 64 bits");
    }
  }
  return axes;
}

Status unravel_index_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape indices, c.with_rank_at_most(0, 1));
  MR_TRY_ASSIGN(const PartialShape dims, c.with_rank(1, 1));
  if (const auto known = c.input_vector(1)) MR_TRY(read_axes<int64_t>(*known).status());
  if (!indices.rank_known()) {
    c.set_output(0, PartialShape());
  } else if (indices.rank() == 0) {
    c.set_output(0, PartialShape{dims.dim(0)});
  } else {
    c.set_output(0, PartialShape{dims.dim(0), indices.dim(0)});
  }
  return ok_status();
}

template <class T>
Status unravel_index(KernelContext& ctx) {
  const Tensor& indices = ctx.input(0);
  if (indices.rank() > 1) {
    return invalid_argument("indices must be a scalar or a vector, got shape ", indices.shape());
  }
  MR_TRY(expect_rank(ctx, 1, 1));
  MR_TRY_ASSIGN(const std::vector<Axis> axes, read_axes(ctx.input(1).data<T>()));
  MR_TRY_ASSIGN(const Shape shape, Shape{ctx.input(1).dim(0)}.concat(indices.shape()));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  const int64_t end = axes.empty() ? 1 : axes[0].size * axes[0].stride;
  const auto numbers = indices.data<T>();
  const auto coordinates = out->mutable_data<T>();
  for (size_t i = 0; i < numbers.size(); ++i) {
    const int64_t number = numbers[i];
    if (number < 0 || number >= end) {
      return invalid_argument("index is out of bound as with dims: ", number, " at ", i,
                              ", expected 0 to ", end - 1);
    }
    for (size_t a = 0; a < axes.size(); ++a) {
      coordinates[a * numbers.size() + i] = static_cast<T>(number / axes[a].stride % axes[a].size);
    }
  }
  return ok_status();
}

Status unravel_index_cpu(KernelContext& ctx) {
  return dispatch<IndexTypes>(ctx.input(0).dtype(),
                              [&]<class T>() { return unravel_index<T>(ctx); });
}

}  // namespace

void register_unravel_index(Registry& registry) {
  registry.add({.name = "UnravelIndex",
                .doc = "The coordinates, one row for each dimension, of elements of a tensor of "
                       "shape dims that are given by their number.",
                .inputs = {{"indices", "Tidx", "A scalar or a vector."}, {"dims", "host(Tidx)"}},
                .outputs = {{"output", "Tidx"}},
                .types = {{"Tidx", type_set_of<IndexTypes>, DType::kInt32}},
                .traits = {.cost = 5},
                .shape = unravel_index_shape});
  registry.kernel("UnravelIndex", DeviceKind::kCpu, unravel_index_cpu);
}

}  // namespace millrace
