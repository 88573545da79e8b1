// What runtime/numerics.h puts into a graph to find where numbers that are not finite began.

#include <cmath>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// How many operands a report lists.
constexpr int kMostListed = 8;

// What people want to know of many numbers.
struct Extent {
  int64_t nans = 0;
  int64_t infinities = 0;
  double least = INFINITY;  // of those that are finite
  double most = -INFINITY;

  bool finite() const { return nans == 0 && infinities == 0; }
  void add(double x) {
    if (std::isfinite(x)) [[likely]] {
      least = std::min(least, x);
      most = std::max(most, x);
    } else if (std::isnan(x)) {
      ++nans;
    } else {
      ++infinities;
    }
  }
};

Extent extent_of(const Tensor& tensor) {
  Extent extent;
  const auto real = [&]<class T>() {
    for (const T& x : tensor.data<T>()) extent.add(static_cast<double>(x));
  };
  const auto complex = [&]<class T>() {
    for (const T& x : tensor.data<T>()) {
      extent.add(static_cast<double>(x.real()));
      extent.add(static_cast<double>(x.imag()));
    }
  };
  // Other types hold nothing that is not finite.
  if (kFloating.contains(tensor.dtype())) {
    (void)dispatch<FloatingTypes>(tensor.dtype(), real).ok();
  } else if (type_set_of<ComplexTypes>.contains(tensor.dtype())) {
    (void)dispatch<ComplexTypes>(tensor.dtype(), complex).ok();
  }
  return extent;
}

// "2 NaN and 1 Inf of 10 numbers".
std::string describe_offence(const Extent& extent, int64_t count) {
  std::string out;
  if (extent.nans > 0) out = str_cat(extent.nans, " NaN");
  if (extent.infinities > 0) out += str_cat(out.empty() ? "" : " and ", extent.infinities, " Inf");
  return str_cat(out, " of ", count, count == 1 ? " number" : " numbers");
}

// "float [2,3], 1 NaN of 6 numbers, the others from 0 to 0.5".
std::string describe(const Tensor& tensor) {
  const Extent extent = extent_of(tensor);
  std::string out = str_cat(tensor.dtype(), " ", tensor.shape());
  const bool finite = extent.finite();
  if (!finite) out += str_cat(", ", describe_offence(extent, tensor.num_elements()));
  if (extent.least > extent.most) return out;
  return str_cat(out, finite ? ", " : ", the others ", "from ", extent.least, " to ", extent.most);
}

Status check_origin(const KernelContext& ctx, int i) {
  if (ctx.input(i).rank() == 1) return ok_status();
  return invalid_argument("expected an origin as a vector, got ", ctx.input(i).shape());
}

// The origin has no element where `value` is finite; else one, what came with the first input that
// is not, where something did, or an account of this node, which made it so.
class NumericsOrigin : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<NumericsOrigin>();
    MR_TRY_ASSIGN(kernel->node_, node.attr<std::string>("node"));
    MR_TRY_ASSIGN(kernel->where_, node.attr<std::string>("where"));
    MR_TRY_ASSIGN(kernel->names_, node.attr<std::vector<std::string>>("operand_names"));
    MR_TRY_ASSIGN(const int64_t origins, node.attr<int64_t>("N"));
    kernel->origins_ = static_cast<int>(origins);
    return kernel;
  }

  Status compute(KernelContext& ctx) const override {
    for (int i = 1; i <= origins_; ++i) MR_TRY(check_origin(ctx, i));
    const Extent extent = extent_of(ctx.input(0));
    if (extent.finite()) return ctx.allocate_output(0, Shape({0})).status();
    std::string origin;
    for (int i = 1; i <= origins_; ++i) {
      if (origin.empty() && ctx.input(i).num_elements() > 0) {
        origin = ctx.input(i).data<std::string>()[0];
      }
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape({1})));
    out->mutable_data<std::string>()[0] = origin.empty() ? account(ctx, extent) : origin;
    return ok_status();
  }

 private:
  std::string account(KernelContext& ctx, const Extent& extent) const {
    const int operands = ctx.num_inputs() - 1 - origins_;
    bool given = false;  // what it reads was not finite already: a variable, a constant
    std::string lines;
    for (int i = 0; i < operands; ++i) {
      const Tensor& operand = ctx.input(1 + origins_ + i);
      given |= !extent_of(operand).finite();
      if (i >= kMostListed) continue;
      const bool named = static_cast<size_t>(i) < names_.size();
      lines += str_cat("\n  input ", i, named ? str_cat(", ", names_[static_cast<size_t>(i)]) : "",
                       ": ", describe(operand));
    }
    if (operands > kMostListed) lines += str_cat("\n  and ", operands - kMostListed, " more");
    return str_cat(node_, given ? " was given numbers that are not finite, and gave " : " gave ",
                   describe_offence(extent, ctx.input(0).num_elements()), lines,
                   where_.empty() ? "" : "\n  ", where_);
  }

  std::string node_, where_;
  std::vector<std::string> names_;
  int origins_ = 0;
};

class NumericsGuard : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<NumericsGuard>();
    MR_TRY_ASSIGN(kernel->reader_, node.attr<std::string>("reader"));
    return kernel;
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(check_origin(ctx, 1));
    const std::span<const std::string> origin = ctx.input(1).data<std::string>();
    if (!origin.empty()) {
      return invalid_argument(
          reader_, " would be given numbers that are not finite, which began here:\n", origin[0]);
    }
    ctx.set_output(0, ctx.take_input(0).tensor);
    return ok_status();
  }

 private:
  std::string reader_;
};

Status origin_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t origins, c.attr<int64_t>("N"));
  for (int i = 1; i <= origins; ++i) MR_TRY(c.with_rank(i, 1).status());
  c.set_output(0, PartialShape({-1}));
  return ok_status();
}

Status guard_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 1).status());
  return shape_rules::unchanged(c);
}

}  // namespace

void register_numerics(Registry& registry) {
  const TypeSet floating = kFloating | type_set_of<ComplexTypes>;
  registry.add({.name = "_NumericsOrigin",
                .doc = "Where numbers in value that are not finite began; nothing where all are.",
                .inputs = {{"value", "host(T)"},
                           {"origins", "host(N*string)"},
                           {"operands", "host(list(Tin))"}},
                .outputs = {{"origin", "host(string)"}},
                .types = {{"T", floating}},
                .attrs = {{"N", "int >= 0"},
                          {"Tin", "list(type) >= 0"},
                          {"node", "string"},
                          {"where", "string"},
                          {"operand_names", "list(string) = []"}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = origin_shape});
  registry.add(
      {.name = "_NumericsGuard",
       .doc = "value; an error where its numbers are not finite, with their origin.",
       .inputs = {{"value", "T"}, {"origin", "host(string)"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", floating}},
       .attrs = {{"reader", "string"}},
       .traits = {.stateful = true, .forwards = true, .cannot_differentiate = true, .may_alias = 1},
       .shape = guard_shape});
  registry.kernel(
      {.op = "_NumericsOrigin", .device = DeviceKind::kAny, .factory = &NumericsOrigin::make});
  registry.kernel(
      {.op = "_NumericsGuard", .device = DeviceKind::kAny, .factory = &NumericsGuard::make});
}

}  // namespace millrace
