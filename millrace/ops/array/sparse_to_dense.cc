#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/element.h"

namespace millrace {
namespace {

// That indices, values and shape do not fit each other shows when the op runs, as in TensorFlow.
Status sparse_to_dense_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 1).status());
  MR_TRY(c.with_rank_at_most(0, 2).status());
  MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, 1));
  c.set_output(0, std::move(shape));
  return ok_status();
}

// A value gets what came back at its place, if it was the last written there; default_value the
// rest. The numbers of the values, written in the same way, tell.
Status sparse_to_dense_grad(GradientContext& g) {
  OpBuilder& b = g.builder();
  const Expr flat = int32_vector(b, {-1}), zero = int32_scalar(b, 0), none = int32_scalar(b, -1);
  const Expr dy = g.gradient();
  const Expr places =
      reshape(g.input(0), call("Pack", std::vector<Expr>{none, size_of(g.input(1))}));
  const Expr count = call("Gather", {shape_of(places), zero});
  const Expr numbers = range(zero, count, int32_scalar(b, 1));
  const Expr last =
      call("SparseToDense", {places, g.input(1), numbers, none}, {{"validate_indices", false}});
  const Expr picked = call("GatherNd", {dy, places});
  const Expr stayed = equal(call("GatherNd", {last, places}), numbers);
  g.set(2, sum_to_shape_of(select(stayed, picked, zeros_like(picked)), g.input(2)));
  const Expr rest = select(less(last, zeros_like(last)), dy, zeros_like(dy));
  g.set(3, sum(reshape(rest, flat), zero));
  return ok_status();
}

// "indices[1] = [10,2]"
std::string label(const Tensor& indices, int64_t row, int rank) {
  std::string text = str_cat("indices[", row, "] = [");
  for (int k = 0; k < rank; ++k) {
    text += str_cat(k > 0 ? "," : "", int_at(indices, row * rank + k));
  }
  return text + "]";
}

class SparseToDense : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool validate, node.attr<bool>("validate_indices"));
    return std::make_unique<SparseToDense>(validate);
  }
  explicit SparseToDense(bool validate) : validate_(validate) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& indices = ctx.input(0);
    const Tensor& values = ctx.input(2);
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(1));
    if (ctx.input(3).rank() != 0) {
      return invalid_argument("default_value should be a scalar, got ", ctx.input(3).shape());
    }
    if (indices.rank() > 2) {
      return invalid_argument("'sparse_indices' must be a scalar, vector or matrix, got ",
                              indices.shape());
    }
    const int64_t count = indices.rank() == 0 ? 1 : indices.dim(0);
    const int64_t depth = indices.rank() == 2 ? indices.dim(1) : 1;
    if (depth != shape.rank()) {
      return invalid_argument("indices of ", depth, " elements do not fit 'output_shape' ", shape);
    }
    if (values.rank() > 1 || (values.rank() == 1 && values.dim(0) != count)) {
      return invalid_argument("sparse_values has incorrect shape ", values.shape(),
                              ", should be [] or [", count, "]");
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    fill_tensor(ctx, ctx.input(3), *out);
    Status status;
    with_element(out->dtype(), [&]<class T>() {
      const T* from = static_cast<const T*>(values.raw());
      status = write(shape, indices, count, from, values.rank() == 0 ? 0 : 1,
                     static_cast<T*>(out->mutable_raw()));
    });
    return status;
  }

 private:
  template <class T>
  Status write(const Shape& shape, const Tensor& indices, int64_t count, const T* values,
               int64_t step, T* out) const {
    int64_t last = -1;
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = 0;
      for (int k = 0; k < shape.rank(); ++k) {
        const int64_t index = int_at(indices, i * shape.rank() + k);
        if (index < 0 || index >= shape.dim(k)) {
          return invalid_argument(label(indices, i, shape.rank()),
                                  " is out of bounds: need 0 <= index < ", shape);
        }
        at = at * shape.dim(k) + index;
      }
      // Positions in row-major order compare as the index vectors do.
      if (validate_ && at <= last) {
        return invalid_argument(label(indices, i, shape.rank()),
                                at == last ? " is repeated" : " is out of order",
                                ": 'sparse_indices' must be sorted and without repeats");
      }
      last = at;
      out[at] = values[i * step];
    }
    return ok_status();
  }

  bool validate_;
};

}  // namespace

void register_sparse_to_dense(Registry& registry) {
  registry.add({.name = "SparseToDense",
                .doc = "A tensor of default_value with the values at the indices.",
                .inputs = {{"sparse_indices", "Tindices"},
                           {"output_shape", "host(Tindices)"},
                           {"sparse_values", "T"},
                           {"default_value", "T"}},
                .outputs = {{"dense", "T"}},
                .types = {{"T", {}}, {"Tindices", kIndexTypes}},
                .attrs = {{"validate_indices", "bool = true",
                           "Whether indices must be sorted and without repeats."}},
                .traits = {.cost = 0.5F},
                .shape = sparse_to_dense_shape,
                .gradient = sparse_to_dense_grad});
  registry.kernel<SparseToDense>("SparseToDense", DeviceKind::kCpu);
}

}  // namespace millrace
