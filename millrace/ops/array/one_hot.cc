#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/element.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using OneHotIndices = TypeList<uint8_t, int8_t, int32_t, int64_t>;

Status one_hot_shape(ShapeContext& c) {
  for (int i = 1; i <= 3; ++i) MR_TRY(c.with_rank(i, 0).status());
  MR_TRY_ASSIGN(const int64_t given, c.attr<int64_t>("axis"));
  const std::optional<int64_t> depth = c.input_scalar(1);
  if (depth && *depth < 0) return invalid_argument("'depth' must not be negative, got ", *depth);
  const PartialShape& indices = c.input(0);
  if (!indices.rank_known()) return ok_status();
  MR_TRY_ASSIGN(const int axis, normalize_axis(given, indices.rank() + 1, "axis"));
  std::vector<int64_t> dims(indices.dims().begin(), indices.dims().end());
  dims.insert(dims.begin() + axis, depth.value_or(-1));
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

// on_value has its share where an index stands, off_value the rest.
Status one_hot_grad(GradientContext& g) {
  const Expr dy = g.gradient(), one = constant_like(dy, 1), zero = constant_like(dy, 0);
  const Expr flat = int32_vector(g.builder(), {-1}), first = int32_scalar(g.builder(), 0);
  const Expr here =
      call("OneHot", {g.input(0), g.input(1), one, zero}, {{"axis", g.attr_value("axis")}});
  const Expr on = sum(reshape(dy * here, flat), first);
  g.set(2, on);
  g.set(3, sum(reshape(dy, flat), first) - on);
  return ok_status();
}

class OneHot : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t axis, node.attr<int64_t>("axis"));
    return std::make_unique<OneHot>(axis);
  }
  explicit OneHot(int64_t axis) : axis_(axis) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& indices = ctx.input(0);
    for (int i = 1; i <= 3; ++i) MR_TRY(expect_rank(ctx, i, 0));
    MR_TRY_ASSIGN(const int64_t depth, ctx.int_scalar_input(1));
    if (depth < 0) return invalid_argument("'depth' must not be negative, got ", depth);
    MR_TRY_ASSIGN(const int axis, normalize_axis(axis_, indices.rank() + 1, "axis"));
    HostInts dims;
    int64_t inner = 1;
    for (int i = 0; i <= indices.rank(); ++i) {
      dims.add(i < axis ? indices.dim(i) : i == axis ? depth : indices.dim(i - 1));
      if (i > axis) inner *= indices.dim(i - 1);
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims.span()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    if (DeviceEngine* const device = device_engine(ctx)) {
      return device->one_hot(ctx, dtype_size(out->dtype()), indices.dtype(), indices.raw(),
                             indices.num_elements() / inner, depth, inner, ctx.input(2).raw(),
                             ctx.input(3).raw(), out->mutable_raw());
    }
    fill_tensor(ctx, ctx.input(3), *out);
    return dispatch<OneHotIndices>(indices.dtype(), [&]<class I>() {
      const I* index = indices.data<I>().data();
      with_element(out->dtype(), [&]<class T>() {
        const T& on = *static_cast<const T*>(ctx.input(2).raw());
        T* to = static_cast<T*>(out->mutable_raw());
        ctx.parallel_for(indices.num_elements(), 2, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            // An index outside [0, depth) leaves its row as it is.
            const int64_t at = static_cast<int64_t>(index[i]);
            if (at < 0 || at >= depth) continue;
            to[((i / inner) * depth + at) * inner + i % inner] = on;
          }
        });
      });
    });
  }

 private:
  int64_t axis_;
};

}  // namespace

void register_one_hot(Registry& registry) {
  registry.add(
      {.name = "OneHot",
       .doc = "A new dimension of size depth with on_value at each index, off_value elsewhere.",
       .inputs =
           {{"indices", "TI"}, {"depth", "host(int32)"}, {"on_value", "T"}, {"off_value", "T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", {}}, {"TI", type_set_of<OneHotIndices>, DType::kInt64}},
       .attrs = {{"axis", "int = -1", "Where the dimension is inserted."}},
       .traits = {.cost = 0.3F},
       .shape = one_hot_shape,
       .gradient = one_hot_grad});
  registry.kernel<OneHot>("OneHot", DeviceKind::kCpu);
}

}  // namespace millrace
