#include <algorithm>
#include <atomic>
#include <limits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/rows.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// out[b, o, i, :] = params[b, o, indices[b, i], :] for `batch` x `outer` x `count` runs of `run`.
struct GatherSizes {
  int64_t batch = 1, outer = 1, size = 1, count = 1, run = 1;
};

// The position of the first index that is out of range, or -1. What is copied is what was checked,
// though a variable may change under our eyes: asking for a row ahead of its turn decides nothing.
template <class T, class I>
int64_t gather_runs(KernelContext& ctx, const GatherSizes& s, const T* params, const I* indices,
                    T* out, double cost) {
  std::atomic<int64_t> bad = std::numeric_limits<int64_t>::max();
  const auto in_range = [size = static_cast<uint64_t>(s.size)](int64_t i) {
    return static_cast<uint64_t>(i) < size;
  };
  // Calls copy(unit, first run of its row, position of the index, i, index) for units [begin, end).
  const auto walk = [&](int64_t begin, int64_t end, auto copy) {
    int64_t row = begin / s.count, i = begin - row * s.count;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t at = (row / s.outer) * s.count + i;
      const int64_t index = static_cast<int64_t>(indices[at]);
      if (!in_range(index)) [[unlikely]] {
        int64_t first = bad.load(std::memory_order_relaxed);
        while (at < first && !bad.compare_exchange_weak(first, at)) {
        }
        return;
      }
      copy(unit, row * s.size, at, i, index);
      if (++i == s.count) {
        i = 0;
        ++row;
      }
    }
  };
  const int64_t total = s.batch * s.outer * s.count;
  ctx.parallel_for(total, cost * static_cast<double>(s.run) + 1, [&](int64_t begin, int64_t end) {
    if (s.run == 1) {
      walk(begin, end, [&](int64_t unit, int64_t first, int64_t, int64_t, int64_t index) {
        out[unit] = params[first + index];
      });
      return;
    }
    walk(begin, end, [&](int64_t unit, int64_t first, int64_t at, int64_t i, int64_t index) {
      constexpr int64_t kAhead = 16;
      if (i + kAhead < s.count) {
        const int64_t next = static_cast<int64_t>(indices[at + kAhead]);
        if (in_range(next)) prefetch_row(params + (first + next) * s.run, s.run);
      }
      std::copy_n(params + (first + index) * s.run, s.run, out + unit * s.run);
    });
  });
  const int64_t first = bad.load();
  return first == std::numeric_limits<int64_t>::max() ? -1 : first;
}

// In [-rank, rank], counted from the end of the indices' dimensions where negative.
Result<int> normalize_batch_dims(int64_t batch_dims, int rank) {
  if (batch_dims < -rank || batch_dims > rank) {
    return invalid_argument("batch_dims must be in [", -rank, ", ", rank, "], got ", batch_dims);
  }
  return static_cast<int>(batch_dims < 0 ? batch_dims + rank : batch_dims);
}

Status gather_along(KernelContext& ctx, int64_t given_axis, int64_t given_batch_dims) {
  const Tensor& params = ctx.input(0);
  const Tensor& indices = ctx.input(1);
  if (params.rank() == 0)
    return invalid_argument("'params' must have rank 1 or more, got a scalar");
  MR_TRY_ASSIGN(const int axis, normalize_axis(given_axis, params.rank(), "axis"));
  MR_TRY_ASSIGN(const int batch_dims, normalize_batch_dims(given_batch_dims, indices.rank()));
  if (batch_dims > axis) {
    return invalid_argument("batch_dims (", batch_dims, ") must not be past axis (", axis, ")");
  }
  GatherSizes sizes;
  HostInts dims;
  for (int i = 0; i < axis; ++i) {
    dims.add(params.dim(i));
    if (i >= batch_dims) {
      sizes.outer *= params.dim(i);
      continue;
    }
    if (params.dim(i) != indices.dim(i)) {
      return invalid_argument("'params' and 'indices' must agree in the first ", batch_dims,
                              " dimensions, got ", params.shape(), " and ", indices.shape());
    }
    sizes.batch *= params.dim(i);
  }
  for (int i = batch_dims; i < indices.rank(); ++i) {
    dims.add(indices.dim(i));
    sizes.count *= indices.dim(i);
  }
  for (int i = axis + 1; i < params.rank(); ++i) {
    dims.add(params.dim(i));
    sizes.run *= params.dim(i);
  }
  sizes.size = params.dim(axis);
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims.span()));
  const Shape indices_shape = indices.shape();
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  if (DeviceEngine* const device = device_engine(ctx)) {
    return device->gather(ctx, dtype_size(out->dtype()), indices.dtype(), sizes.batch, sizes.outer,
                          sizes.count, sizes.run, params.raw(), indices.raw(),
                          {.limit = sizes.size, .what = "indices"}, out->mutable_raw());
  }
  int64_t bad = -1;
  auto gather_typed = [&]<class I>() {
    const I* index = ctx.input(1).data<I>().data();
    with_element(out->dtype(), [&]<class T>() {
      bad = gather_runs(ctx, sizes, static_cast<const T*>(ctx.input(0).raw()), index,
                        static_cast<T*>(out->mutable_raw()), copy_cost(out->dtype()));
    });
  };
  MR_TRY(dispatch<IndexTypes>(indices.dtype(), gather_typed));
  if (bad < 0) return ok_status();
  return invalid_argument("indices", position_text(indices_shape, bad), " = ", int_at(indices, bad),
                          " is not in [0, ", sizes.size, ")");
}

Status gather_shape_along(ShapeContext& c, std::optional<int64_t> given_axis, int64_t given_batch) {
  MR_TRY_ASSIGN(const PartialShape params, c.with_rank_at_least(0, 1));
  const PartialShape& indices = c.input(1);
  const int most_batch_dims = indices.rank_known() ? indices.rank() : Shape::kMaxRank;
  MR_TRY_ASSIGN(const int batch_dims, normalize_batch_dims(given_batch, most_batch_dims));
  if (!params.rank_known() || !indices.rank_known()) return ok_status();
  const int rank = params.rank() - 1 + indices.rank() - batch_dims;
  if (!given_axis) {
    if (rank < 0 || rank > Shape::kMaxRank) return invalid_argument("the output has rank ", rank);
    c.set_output(0, PartialShape::of_rank(rank));
    return ok_status();
  }
  MR_TRY_ASSIGN(const int axis, normalize_axis(*given_axis, params.rank(), "axis"));
  if (batch_dims > axis) {
    return invalid_argument("batch_dims (", batch_dims, ") must not be past axis (", axis, ")");
  }
  std::vector<int64_t> dims(params.dims().begin(), params.dims().begin() + axis);
  for (int i = 0; i < batch_dims; ++i) {
    MR_TRY_ASSIGN(const PartialShape both,
                  PartialShape({params.dim(i)}).merge(PartialShape({indices.dim(i)})));
    dims[static_cast<size_t>(i)] = both.dim(0);
  }
  dims.insert(dims.end(), indices.dims().begin() + batch_dims, indices.dims().end());
  dims.insert(dims.end(), params.dims().begin() + axis + 1, params.dims().end());
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status gather_shape(ShapeContext& c) { return gather_shape_along(c, 0, 0); }

Status gather_v2_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(2, 0).status());
  MR_TRY_ASSIGN(const int64_t batch_dims, c.attr<int64_t>("batch_dims"));
  return gather_shape_along(c, c.input_scalar(2), batch_dims);
}

void gather_value(ValueContext& c) {
  const PartialValue *params = c.input(0), *indices = c.input(1);
  if (params == nullptr || params->is_scalar || indices == nullptr) return;
  PartialValue out;
  out.is_scalar = indices->is_scalar;
  for (const auto& index : indices->elements) {
    if (!index) {
      out.elements.push_back(std::nullopt);
    } else if (*index < 0 || *index >= static_cast<int64_t>(params->elements.size())) {
      return;
    } else {
      out.elements.push_back(params->elements[static_cast<size_t>(*index)]);
    }
  }
  c.set_output(0, std::move(out));
}

// `size` elements of an int32 vector from `begin` on; a size of -1 means all that are left.
Expr part(Expr vector, Expr begin, Expr size) {
  if (!vector.valid()) return vector;
  const Expr one = int32_vector(*vector.builder(), {1});
  return call("Slice", {vector, reshape(begin, one), reshape(size, one)});
}

Status gather_grad(GradientContext& g) {
  OpBuilder& b = g.builder();
  const Expr params_shape = shape_of(g.input(0));
  const Expr flat = reshape(g.input(1), int32_vector(b, {-1}));
  const Expr inner = part(params_shape, int32_scalar(b, 1), int32_scalar(b, -1));
  const Expr values = reshape(g.gradient(), concat({shape_of(flat), inner}, 0));
  g.set_slices(0, values, flat, params_shape);
  return ok_status();
}

// Whether the axis of a GatherV2 is surely the first one.
bool along_rows(Expr params, Expr axis) {
  const Tensor* value = axis.constant_value();
  if (value == nullptr || value->num_elements() != 1) return false;
  const int64_t at = int_at(*value, 0);
  return at == 0 || (params.shape().rank_known() && at == -params.shape().rank());
}

// The product of some sizes.
Expr product(Expr sizes) {
  if (!sizes.valid()) return sizes;
  return call("Prod", {sizes, int32_scalar(*sizes.builder(), 0)});
}

// As without batches, on [batch, outer, gathered, inner] and with indices that count the rows of
// all batches together.
Status batch_gather_grad(GradientContext& g, int64_t batch_dims) {
  OpBuilder& b = g.builder();
  const Expr zero = int32_scalar(b, 0), one = int32_scalar(b, 1), rest = int32_scalar(b, -1);
  const Expr params_shape = shape_of(g.input(0)), dims = size_of(params_shape);
  Expr first = int32_scalar(b, static_cast<int32_t>(batch_dims));
  if (batch_dims < 0) first = first + call("Rank", {g.input(1)});
  const Expr axis = call("FloorMod", {cast(g.input(2), DType::kInt32), dims});
  const Expr batch = product(part(params_shape, zero, first));
  const Expr outer = product(part(params_shape, first, axis - first));
  const Expr rows = call("Gather", {params_shape, axis});
  const Expr inner = product(part(params_shape, axis + one, rest));
  const Expr picked = product(part(shape_of(g.input(1)), first, rest));
  const Expr swap = int32_vector(b, {0, 2, 1, 3});
  auto shape = [](const std::vector<Expr>& sizes) { return call("Pack", sizes); };

  const Expr values = transpose(reshape(g.gradient(), shape({batch, outer, picked, inner})), swap);
  const Expr starts = expand_dims(range(zero, batch, one) * rows, one);
  const Expr indices = reshape(cast(g.input(1), DType::kInt32), shape({batch, picked})) + starts;
  const Expr summed =
      call("UnsortedSegmentSum", {reshape(values, shape({batch * picked, outer, inner})),
                                  reshape(indices, shape({batch * picked})), batch * rows});
  const Expr back = transpose(reshape(summed, shape({batch, rows, outer, inner})), swap);
  g.set(0, reshape(back, params_shape));
  return ok_status();
}

// The gathered dimension is brought to the front, where the rows of equal index are added, and
// back.
Status gather_v2_grad(GradientContext& g) {
  MR_TRY_ASSIGN(const int64_t batch_dims, g.attr<int64_t>("batch_dims"));
  if (batch_dims != 0) return batch_gather_grad(g, batch_dims);
  if (along_rows(g.input(0), g.input(2))) return gather_grad(g);
  OpBuilder& b = g.builder();
  const Expr zero = int32_scalar(b, 0), one = int32_scalar(b, 1), front = int32_vector(b, {0});
  const Expr params_shape = shape_of(g.input(0));
  const Expr dims = size_of(params_shape);
  const Expr axis = call("FloorMod", {cast(g.input(2), DType::kInt32), dims});
  const Expr after = axis + one;
  const Expr flat = reshape(g.input(1), int32_vector(b, {-1}));
  const Expr outer_shape = part(params_shape, zero, axis);
  const Expr inner_shape = part(params_shape, after, int32_scalar(b, -1));
  const Expr values = reshape(g.gradient(), concat({outer_shape, shape_of(flat), inner_shape}, 0));
  const Expr outer = range(zero, axis, one), inner = range(after, dims, one);
  const Expr to_front = concat({reshape(axis, int32_vector(b, {1})), outer, inner}, 0);
  const Expr rows = call("Gather", {params_shape, axis});
  const Expr summed = call("UnsortedSegmentSum", {transpose(values, to_front), flat, rows});
  const Expr back = concat({range(one, after, one), front, inner}, 0);
  g.set(0, transpose(summed, back));
  return ok_status();
}

Status gather_cpu(KernelContext& ctx) { return gather_along(ctx, 0, 0); }

class GatherV2 : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t batch_dims, node.attr<int64_t>("batch_dims"));
    return std::make_unique<GatherV2>(batch_dims);
  }
  explicit GatherV2(int64_t batch_dims) : batch_dims_(batch_dims) {}
  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 2, 0));
    MR_TRY_ASSIGN(const int64_t axis, ctx.int_scalar_input(2));
    return gather_along(ctx, axis, batch_dims_);
  }

 private:
  int64_t batch_dims_;
};

}  // namespace

void register_gather(Registry& registry) {
  registry.add({.name = "Gather",
                .doc = "The rows of params that indices name.",
                .inputs = {{"params", "Tparams"}, {"indices", "Tindices"}},
                .outputs = {{"output", "Tparams"}},
                .types = {{"Tparams", {}}, {"Tindices", kIndexTypes}},
                .attrs = {{"validate_indices", "bool = true", "Has no effect: they always are."}},
                .traits = {.cost = 0.7F},
                .shape = gather_shape,
                .value = gather_value,
                .gradient = gather_grad});
  registry.add(
      {.name = "GatherV2",
       .doc = "The slices of params along axis that indices name.",
       .inputs = {{"params", "Tparams"}, {"indices", "Tindices"}, {"axis", "host(Taxis)"}},
       .outputs = {{"output", "Tparams"}},
       .types = {{"Tparams", {}}, {"Tindices", kIndexTypes}, {"Taxis", kIndexTypes}},
       .attrs = {{"batch_dims", "int = 0", "How many first dimensions params and indices share."}},
       .traits = {.cost = 0.7F},
       .shape = gather_v2_shape,
       .value = gather_value,
       .gradient = gather_v2_grad});
  registry.kernel("Gather", DeviceKind::kCpu, gather_cpu);
  registry.kernel<GatherV2>("GatherV2", DeviceKind::kCpu);
}

}  // namespace millrace
