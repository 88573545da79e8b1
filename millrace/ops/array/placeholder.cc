#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

// A scalar shape means "not given" in graphs of this op's first version: nothing is known then.
Status placeholder_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output(0, shape.rank() == 0 ? PartialShape::unknown() : shape);
  return ok_status();
}

Status declared_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output(0, shape);
  return ok_status();
}

Status default_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  if (!shape.compatible(c.input(0))) {
    return invalid_argument("the default value has shape ", c.input(0), ", expected ", shape);
  }
  c.set_output(0, shape);
  return ok_status();
}

Status default_gradient(GradientContext& g) {
  g.set(0, g.gradient());
  return ok_status();
}

class Placeholder : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(DType dtype, node.attr<DType>("dtype"));
    MR_TRY_ASSIGN(PartialShape shape, node.attr<PartialShape>("shape"));
    std::string message = str_cat("You must feed a value for placeholder tensor '", node.name,
                                  "' with dtype ", dtype);
    if (shape.rank() > 0) append_to(message, str_cat(" and shape ", shape));
    return std::make_unique<Placeholder>(std::move(message));
  }
  explicit Placeholder(std::string message) : message_(std::move(message)) {}
  Status compute(KernelContext&) const override { return invalid_argument(message_); }

 private:
  std::string message_;
};

class PlaceholderWithDefault : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(PartialShape shape, node.attr<PartialShape>("shape"));
    return std::make_unique<PlaceholderWithDefault>(std::move(shape));
  }
  explicit PlaceholderWithDefault(PartialShape shape) : shape_(std::move(shape)) {}
  Status compute(KernelContext& ctx) const override {
    if (!shape_.compatible(PartialShape(ctx.input(0).shape()))) {
      return invalid_argument("the default value has shape ", ctx.input(0).shape(), ", expected ",
                              shape_);
    }
    ctx.set_output_value(0, ctx.take_input(0));
    return ok_status();
  }

 private:
  PartialShape shape_;
};

}  // namespace

void register_placeholder(Registry& registry) {
  registry.add({.name = "Placeholder",
                .doc = "Stands for a tensor that every run must feed.",
                .outputs = {{"output", "dtype"}},
                .types = {{"dtype", {}}},
                .attrs = {{"shape", "shape = []", "What is known of the fed tensor's shape."}},
                .traits = {.placeholder = true, .cannot_differentiate = true},
                .shape = placeholder_shape});
  registry.add({.name = "PlaceholderV2",
                .doc = "Stands for a tensor that every run must feed.",
                .outputs = {{"output", "dtype"}},
                .types = {{"dtype", {}}},
                .attrs = {{"shape", "shape", "What is known of the fed tensor's shape."}},
                .traits = {.placeholder = true, .cannot_differentiate = true},
                .shape = declared_shape});
  registry.add({.name = "PlaceholderWithDefault",
                .doc = "The input, unless a run feeds something in its place.",
                .inputs = {{"input", "dtype"}},
                .outputs = {{"output", "dtype"}},
                .types = {{"dtype", {}}},
                .attrs = {{"shape", "shape"}},
                .traits = {.forwards = true, .may_alias = 1},
                .shape = default_shape,
                .gradient = default_gradient});
  registry.kernel<Placeholder>("Placeholder", DeviceKind::kAny);
  registry.kernel<Placeholder>("PlaceholderV2", DeviceKind::kAny);
  registry.kernel<PlaceholderWithDefault>("PlaceholderWithDefault", DeviceKind::kAny);
}

}  // namespace millrace
