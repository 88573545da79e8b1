#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/tensor/dispatch.h"

// BatchMatMul (equal batch dimensions) and BatchMatMulV2 (batch dimensions broadcast).

namespace millrace {
namespace {

using MatMulTypes =
    ConcatTypes<FloatingTypes, TypeList<int32_t, int64_t, uint32_t, uint64_t>, ComplexTypes>;

// A batch of so many matrices, or of fewer multiplications per matrix than this, is shared among
// threads by matrix.
constexpr int64_t kManyMatrices = 16;
constexpr int64_t kSmallMatrix = int64_t{1} << 18;

bool broadcasts(std::string_view op) { return op != "BatchMatMul"; }

PartialShape batch_of(const PartialShape& shape) {
  PartialShape batch = PartialShape::scalar();
  for (int i = 0; i + 2 < shape.rank(); ++i) batch.add_dim(shape.dim(i));
  return batch;
}

Status batch_matmul_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool adj_x, c.attr<bool>("adj_x"));
  MR_TRY_ASSIGN(const bool adj_y, c.attr<bool>("adj_y"));
  MR_TRY_ASSIGN(const PartialShape x, c.with_rank_at_least(0, 2));
  MR_TRY_ASSIGN(const PartialShape y, c.with_rank_at_least(1, 2));
  const bool both = x.rank_known() && y.rank_known();
  if (!both && broadcasts(c.op().name)) return ok_status();
  if (!x.rank_known() && !y.rank_known()) return ok_status();
  // Without broadcasting one known rank gives the other.
  const PartialShape known_x = x.rank_known() ? x : PartialShape::of_rank(y.rank());
  const PartialShape known_y = y.rank_known() ? y : PartialShape::of_rank(x.rank());
  const int rank_x = known_x.rank(), rank_y = known_y.rank();
  const int64_t inner_x = known_x.dim(rank_x - (adj_x ? 2 : 1));
  const int64_t inner_y = known_y.dim(rank_y - (adj_y ? 1 : 2));
  if (inner_x >= 0 && inner_y >= 0 && inner_x != inner_y) {
    return invalid_argument("Dimensions must be equal, but are ", inner_x, " and ", inner_y,
                            ": inner dimensions differ: ", x, adj_x ? " (adjoint)" : "", " x ", y,
                            adj_y ? " (adjoint)" : "");
  }
  Result<PartialShape> batch = broadcasts(c.op().name)
                                   ? broadcast_shapes(batch_of(known_x), batch_of(known_y))
                                   : batch_of(known_x).merge(batch_of(known_y));
  if (!batch.ok()) {
    return invalid_argument("batch dimensions of ", x, " and ", y, " differ");
  }
  PartialShape out = std::move(batch).value();
  out.add_dim(known_x.dim(rank_x - (adj_x ? 1 : 2)));
  out.add_dim(known_y.dim(rank_y - (adj_y ? 2 : 1)));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status batch_matmul_grad(GradientContext& c, std::string_view op) {
  MR_TRY_ASSIGN(const bool adj_x, c.attr<bool>("adj_x"));
  MR_TRY_ASSIGN(const bool adj_y, c.attr<bool>("adj_y"));
  const Expr x = c.input(0), y = c.input(1), dz = c.gradient();
  const auto product = [&](Expr a, Expr b, bool adj_a, bool adj_b) {
    return call(op, {a, b}, {{"adj_x", adj_a}, {"adj_y", adj_b}});
  };
  Expr dx = adj_x ? product(y, dz, adj_y, true) : product(dz, y, false, !adj_y);
  Expr dy = adj_y ? product(dz, x, true, adj_x) : product(x, dz, !adj_x, false);
  if (broadcasts(op)) {
    dx = sum_to_shape_of(dx, x);
    dy = sum_to_shape_of(dy, y);
  }
  c.set(0, dx);
  c.set(1, dy);
  return ok_status();
}

Status batch_matmul_v1_grad(GradientContext& c) { return batch_matmul_grad(c, "BatchMatMul"); }
Status batch_matmul_v2_grad(GradientContext& c) { return batch_matmul_grad(c, "BatchMatMulV2"); }

// Which matrix of each input every matrix of the output is made from.
class BatchIndices {
 public:
  static Result<BatchIndices> make(const Shape& x, const Shape& y, bool broadcast) {
    BatchIndices batch;
    MR_TRY_ASSIGN(batch.x_, Shape::make(x.dims().first(static_cast<size_t>(x.rank() - 2))));
    MR_TRY_ASSIGN(batch.y_, Shape::make(y.dims().first(static_cast<size_t>(y.rank() - 2))));
    batch.same_ = batch.x_ == batch.y_;
    if (batch.same_) {
      batch.shape_ = batch.x_;
      return batch;
    }
    Result<Shape> both = broadcast_shapes(batch.x_, batch.y_);
    if (!broadcast || !both.ok()) {
      return invalid_argument("batch dimensions of ", x, " and ", y, " differ");
    }
    batch.shape_ = std::move(both).value();
    return batch;
  }

  const Shape& shape() const { return shape_; }
  int64_t x(int64_t i) const { return same_ ? i : index_in(x_, i); }
  int64_t y(int64_t i) const { return same_ ? i : index_in(y_, i); }

 private:
  int64_t index_in(const Shape& input, int64_t i) const {
    int64_t step = 1, index = 0;
    for (int d = shape_.rank() - 1, e = input.rank() - 1; e >= 0; --d, --e) {
      if (input[e] != 1) index += i % shape_[d] * step;
      step *= input[e];
      i /= shape_[d];
    }
    return index;
  }

  Shape shape_, x_, y_;
  bool same_ = true;
};

template <class T, bool kReference>
class BatchMatMulKernel final : public Kernel {
 public:
  BatchMatMulKernel(bool adj_x, bool adj_y, bool broadcast)
      : adj_x_(adj_x), adj_y_(adj_y), broadcast_(broadcast) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool adj_x, node.attr<bool>("adj_x"));
    MR_TRY_ASSIGN(const bool adj_y, node.attr<bool>("adj_y"));
    return std::unique_ptr<Kernel>(
        std::make_unique<BatchMatMulKernel>(adj_x, adj_y, broadcasts(node.op->name)));
  }

  Status compute(KernelContext& ctx) const override {
    const Shape &x = ctx.input(0).shape(), &y = ctx.input(1).shape();
    if (x.rank() < 2 || y.rank() < 2) {
      return invalid_argument("inputs must have rank 2 or more, got ", x, " and ", y);
    }
    const int64_t x_rows = x[x.rank() - 2], x_columns = x[x.rank() - 1];
    const int64_t y_rows = y[y.rank() - 2], y_columns = y[y.rank() - 1];
    const int64_t m = adj_x_ ? x_columns : x_rows, k = adj_x_ ? x_rows : x_columns;
    const int64_t n = adj_y_ ? y_rows : y_columns;
    if (k != (adj_y_ ? y_columns : y_rows)) {
      return invalid_argument("inner dimensions differ: ", x, adj_x_ ? " (adjoint)" : "", " x ", y,
                              adj_y_ ? " (adjoint)" : "");
    }
    MR_TRY_ASSIGN(const BatchIndices batch, BatchIndices::make(x, y, broadcast_));
    std::vector<int64_t> dims(batch.shape().dims().begin(), batch.shape().dims().end());
    dims.push_back(m);
    dims.push_back(n);
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();

    if (DeviceEngine* const device = device_engine(ctx)) {
      return multiply_on_device(ctx, *device, batch, m, n, k, *out);
    }
    const T* const x_data = ctx.input(0).template data<T>().data();
    const T* const y_data = ctx.input(1).template data<T>().data();
    T* const out_data = out->template mutable_data<T>().data();
    const auto multiply = [&](int64_t i, ParallelFor parallel_for) -> Status {
      auto left = MatrixView<T>::of(x_data + batch.x(i) * m * k, x_columns);
      auto right = MatrixView<T>::of(y_data + batch.y(i) * k * n, y_columns);
      if (adj_x_) left = left.adjoint();
      if (adj_y_) right = right.adjoint();
      T* const c = out_data + i * m * n;
      if constexpr (kReference) {
        matmul_reference(m, n, k, left, right, c);
        return ok_status();
      } else {
        return matmul(m, n, k, left, right, c, parallel_for);
      }
    };

    const int64_t count = batch.shape().num_elements();
    const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    if (count < kManyMatrices && work >= static_cast<double>(kSmallMatrix)) {
      for (int64_t i = 0; i < count; ++i) MR_TRY(multiply(i, ContextParallel{ctx}));
      return ok_status();
    }
    Mutex mu;
    Status first_error;
    ctx.parallel_for(count, 50 + work * 0.02, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        Status status = multiply(i, run_serially);
        if (status.ok()) continue;
        MutexLock lock(mu);
        if (first_error.ok()) first_error = std::move(status);
        return;
      }
    });
    return first_error;
  }

 private:
  // Matrices that lie behind each other in one go, others one by one.
  Status multiply_on_device(KernelContext& ctx, DeviceEngine& device, const BatchIndices& batch,
                            int64_t m, int64_t n, int64_t k, Tensor& out) const {
    DeviceEngine::MatMul sizes = {
        .m = m, .n = n, .k = k, .transpose_a = adj_x_, .transpose_b = adj_y_};
    const int64_t count = batch.shape().num_elements();
    const T* const x = static_cast<const T*>(ctx.input(0).raw());
    const T* const y = static_cast<const T*>(ctx.input(1).raw());
    T* const to = static_cast<T*>(out.mutable_raw());
    bool regular = true;
    const int64_t x_step = count > 1 ? batch.x(1) : 0, y_step = count > 1 ? batch.y(1) : 0;
    for (int64_t i = 0; i < count && regular; ++i) {
      regular = batch.x(i) == i * x_step && batch.y(i) == i * y_step;
    }
    if (regular) {
      sizes.batch = count;
      sizes.stride_a = x_step * m * k;
      sizes.stride_b = y_step * k * n;
      sizes.stride_c = m * n;
      return device.matmul(ctx, out.dtype(), sizes, x, y, to);
    }
    for (int64_t i = 0; i < count; ++i) {
      MR_TRY(device.matmul(ctx, out.dtype(), sizes, x + batch.x(i) * m * k, y + batch.y(i) * k * n,
                           to + i * m * n));
    }
    return ok_status();
  }

  bool adj_x_;
  bool adj_y_;
  bool broadcast_;
};

// `attrs` are the op's type attributes, which must all be the same type.
template <class... Ts>
void register_kernels(Registry& registry, const char* op, const std::vector<const char*>& attrs,
                      TypeList<Ts...>) {
  const auto all = [&](DType dtype) {
    std::vector<KernelDef::Constraint> constraints;
    for (const char* attr : attrs) constraints.push_back({attr, {dtype}});
    return constraints;
  };
  (registry.kernel({.op = op,
                    .constraints = all(dtype_of<Ts>),
                    .factory = &BatchMatMulKernel<Ts, false>::make,
                    .priority = 1}),
   ...);
  (registry.kernel({.op = op,
                    .constraints = all(dtype_of<Ts>),
                    .factory = &BatchMatMulKernel<Ts, true>::make,
                    .label = "reference"}),
   ...);
}

}  // namespace

void register_batch_matmul(Registry& registry) {
  for (const char* op : {"BatchMatMul", "BatchMatMulV2"}) {
    registry.add({.name = op,
                  .doc = broadcasts(op)
                             ? "Products of the matrices in the last two dimensions, the other "
                               "dimensions broadcast together."
                             : "Products of the matrices in the last two dimensions.",
                  .inputs = {{"x", "T"}, {"y", "T"}},
                  .outputs = {{"output", "T"}},
                  .types = {{"T", type_set_of<MatMulTypes>}},
                  .attrs = {{"adj_x", "bool = false"}, {"adj_y", "bool = false"}},
                  .traits = {.cost = 50, .filter_channels = 1},
                  .shape = batch_matmul_shape,
                  .gradient = broadcasts(op) ? batch_matmul_v2_grad : batch_matmul_v1_grad});
    register_kernels(registry, op, {"T"}, MatMulTypes());
  }
  constexpr TypeSet kTypes = type_set_of<MatMulTypes>;
  registry.add(
      {.name = "BatchMatMulV3",
       .doc = "BatchMatMulV2 with types of its own for each tensor; they must be the same.",
       .inputs = {{"x", "Ta"}, {"y", "Tb"}},
       .outputs = {{"output", "Tout"}},
       .types = {{"Ta", kTypes}, {"Tb", kTypes}, {"Tout", kTypes}},
       .attrs = {{"adj_x", "bool = false"}, {"adj_y", "bool = false"}},
       .traits = {.cost = 50, .filter_channels = 1},
       .shape = batch_matmul_shape,
       .gradient = batch_matmul_v2_grad});
  register_kernels(registry, "BatchMatMulV3", {"Ta", "Tb", "Tout"}, MatMulTypes());
}

}  // namespace millrace
