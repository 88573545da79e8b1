// Ops that look at the bits of elements.

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The sizes after a cast between elements of `from` and `to` bytes: a narrower type gets a
// dimension more, a wider one takes the last.
Result<std::vector<int64_t>> bitcast_dims(std::span<const int64_t> dims, size_t from, size_t to) {
  std::vector<int64_t> out(dims.begin(), dims.end());
  if (from > to) out.push_back(static_cast<int64_t>(from / to));
  if (from < to) {
    const int64_t ratio = static_cast<int64_t>(to / from);
    if (out.empty() || (out.back() != ratio && out.back() >= 0)) {
      return invalid_argument("Cannot bitcast due to shape: the last dimension must have size ",
                              ratio, " to make elements of ", to, " bytes from elements of ", from,
                              ", got ",
                              out.empty() ? std::string("a scalar") : str_cat("size ", out.back()));
    }
    out.pop_back();
  }
  return out;
}

Status bitcast_shape(ShapeContext& c) {
  if (!c.input(0).rank_known()) return ok_status();
  MR_TRY_ASSIGN(const auto dims, bitcast_dims(c.input(0).dims(), dtype_size(c.input_type(0)),
                                              dtype_size(c.output_type(0))));
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

Status bitcast_cpu(KernelContext& ctx) {
  const DType type = ctx.output_type(0);
  const Tensor input = ctx.take_input(0).tensor;
  MR_TRY_ASSIGN(const auto dims,
                bitcast_dims(input.shape().dims(), dtype_size(input.dtype()), dtype_size(type)));
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  // A part of a tensor of smaller elements may begin anywhere.
  if (reinterpret_cast<uintptr_t>(input.raw()) % dtype_size(type) == 0) {
    ctx.set_output(0, Tensor(type, shape, input.buffer(), input.offset()));
    return ok_status();
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  std::memcpy(out->mutable_raw(), input.raw(), input.bytes());
  return ok_status();
}

constexpr TypeSet kBitcastTypes = kNumberTypes;

Status check_numerics_grad(GradientContext& g) {
  g.set(0,
        call("CheckNumerics", {g.gradient()},
             {{"message", "Not a number (NaN) or infinity (Inf) values detected in gradient."}}));
  return ok_status();
}

class CheckNumerics : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string message, node.attr<std::string>("message"));
    return std::make_unique<CheckNumerics>(std::move(message));
  }
  explicit CheckNumerics(std::string message) : message_(std::move(message)) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& x = ctx.input(0);
    std::atomic<bool> any_nan = false, any_inf = false;
    MR_TRY(dispatch<FloatingTypes>(x.dtype(), [&]<class T>() {
      const T* data = x.data<T>().data();
      ctx.parallel_for(x.num_elements(), 0.5, [&](int64_t begin, int64_t end) {
        bool nan = false, inf = false;
        for (int64_t i = begin; i < end; ++i) {
          const auto v =
              std::abs(static_cast<std::conditional_t<sizeof(T) == 8, double, float>>(data[i]));
          nan |= v != v;
          inf |= v > std::numeric_limits<decltype(v)>::max();
        }
        if (nan) any_nan = true;
        if (inf) any_inf = true;
      });
    }));
    if (any_nan || any_inf) {
      return invalid_argument(message_, message_.empty() ? "" : " : ", "Tensor had ",
                              any_inf ? "Inf" : "", any_inf && any_nan ? " and " : "",
                              any_nan ? "NaN" : "", " values");
    }
    ctx.set_output_value(0, ctx.take_input(0));
    return ok_status();
  }

 private:
  std::string message_;
};

}  // namespace

void register_bitcast(Registry& registry) {
  registry.add({.name = "Bitcast",
                .doc = "The same bits read as another type.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "type"}},
                .types = {{"T", kBitcastTypes}, {"type", kBitcastTypes}},
                .traits = {.may_alias = 1},
                .shape = bitcast_shape,
                .no_gradient = "reads numbers as bits"});
  registry.add(
      {.name = "CheckNumerics",
       .doc = "The input, if it holds no NaN and no infinity; else an error with the message.",
       .inputs = {{"tensor", "T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", kFloating}},
       .attrs = {{"message", "string"}},
       .traits = {.may_alias = 1, .cost = 0.3F},
       .shape = shape_rules::unchanged,
       .gradient = check_numerics_grad});
  registry.kernel("Bitcast", DeviceKind::kCpu, bitcast_cpu);
  registry.kernel<CheckNumerics>("CheckNumerics", DeviceKind::kCpu);
}

}  // namespace millrace
