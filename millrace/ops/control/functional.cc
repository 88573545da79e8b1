// Branches, loops and calls whose parts are functions. They have no kernels: a session replaces
// them by the functions' nodes, joined by the ops of control_flow.cc.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The shapes in attribute "output_shapes", where it is given: one per output.
Status declared_shapes(ShapeContext& c) {
  MR_TRY_ASSIGN(auto shapes, c.attr<std::vector<PartialShape>>("output_shapes"));
  if (shapes.empty()) return ok_status();
  if (static_cast<int>(shapes.size()) != c.num_outputs()) {
    return invalid_argument("attr 'output_shapes' has ", shapes.size(), " shapes for ",
                            c.num_outputs(), " outputs");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, shapes[static_cast<size_t>(i)]);
  return ok_status();
}

Status if_shape(ShapeContext& c) { return declared_shapes(c); }

Status case_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  return declared_shapes(c);
}

// A loop variable whose shape is not declared keeps the one it comes in with.
Status while_shape(ShapeContext& c) {
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, c.input(i));
    c.set_output_resource(i, c.input_facts(i).resource);
  }
  return declared_shapes(c);
}

// The gradient of an argument has the argument's shape.
Status symbolic_gradient_shape(ShapeContext& c) {
  if (c.num_outputs() > c.num_inputs()) {
    return invalid_argument("expected at most one gradient per input, got ", c.num_outputs(),
                            " outputs for ", c.num_inputs(), " inputs");
  }
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, c.input(i));
  return ok_status();
}

OpTraits functional(FunctionalOp kind, bool stateful) {
  OpTraits traits;
  traits.stateful = stateful;
  traits.functional = kind;
  return traits;
}

void register_if(Registry& registry, const char* name, bool stateful) {
  registry.add({.name = name,
                .doc = "Runs one of two functions on the inputs: then_branch when cond holds (a "
                       "number other than zero, a string with characters), else else_branch.",
                .inputs = {{"cond", "host(Tcond)"}, {"input", "list(Tin)"}},
                .outputs = {{"output", "list(Tout)"}},
                .types = {{"Tcond", {}}},
                .attrs = {{"Tin", "list(type) >= 0"},
                          {"Tout", "list(type) >= 0"},
                          {"then_branch", "func"},
                          {"else_branch", "func"},
                          {"output_shapes", "list(shape) = []"}},
                .traits = functional(FunctionalOp::kIf, stateful),
                .shape = if_shape});
}

void register_case(Registry& registry, const char* name, bool stateful) {
  registry.add({.name = name,
                .doc = "Runs the function of that number on the inputs; the last one for a number "
                       "out of range.",
                .inputs = {{"branch_index", "host(int32)"}, {"input", "list(Tin)"}},
                .outputs = {{"output", "list(Tout)"}},
                .attrs = {{"Tin", "list(type) >= 0"},
                          {"Tout", "list(type) >= 0"},
                          {"branches", "list(func) >= 1"},
                          {"output_shapes", "list(shape) = []"}},
                .traits = functional(FunctionalOp::kCase, stateful),
                .shape = case_shape});
}

void register_while(Registry& registry, const char* name, bool stateful) {
  registry.add({.name = name,
                .doc = "Replaces the inputs by what body makes of them as long as cond, a function "
                       "of the same inputs, gives a true scalar.",
                .inputs = {{"input", "list(T)"}},
                .outputs = {{"output", "list(T)"}},
                .attrs = {{"T", "list(type) >= 0"},
                          {"cond", "func"},
                          {"body", "func"},
                          {"output_shapes", "list(shape) = []"},
                          {"parallel_iterations", "int = 10"}},
                .traits = functional(FunctionalOp::kWhile, stateful),
                .shape = while_shape});
}

void register_call(Registry& registry, const char* name, bool stateful) {
  registry.add({.name = name,
                .doc = "Calls a function.",
                .inputs = {{"args", "list(Tin)"}},
                .outputs = {{"output", "list(Tout)"}},
                .attrs = {{"Tin", "list(type) >= 0"},
                          {"Tout", "list(type) >= 0"},
                          {"f", "func"},
                          {"config", "string = ''"},
                          {"config_proto", "string = ''"},
                          {"executor_type", "string = ''"}},
                .traits = functional(FunctionalOp::kCall, stateful),
                .shape = shape_rules::unknown});
}

// Data goes to the output that output_index names (the last one for an index out of range).
Status switch_n(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(int64_t index, ctx.int_scalar_input(1));
  int last = ctx.num_outputs() - 1;
  int taken = index < 0 || index > last ? last : static_cast<int>(index);
  for (int i = 0; i <= last; ++i) {
    if (i != taken) ctx.set_output_dead(i);
  }
  ctx.set_output_value(taken, ctx.take_input(0));
  return ok_status();
}

Status switch_n_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 0).status());
  for (int i = 0; i < c.num_outputs(); ++i) {
    c.set_output(i, c.input(0));
    c.set_output_resource(i, c.input_facts(0).resource);
  }
  return ok_status();
}

Status fake_param_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output(0, shape);
  return ok_status();
}

// Something of the right type that nobody reads: sizes that are not known are 0.
Status fake_param(KernelContext& ctx) {
  MR_TRY_ASSIGN(PartialShape declared, ctx.node().attr<PartialShape>("shape"));
  std::vector<int64_t> dims(1, 0);
  if (declared.rank_known()) {
    dims.clear();
    for (int i = 0; i < declared.rank(); ++i) {
      dims.push_back(declared.dim_known(i) ? declared.dim(i) : 0);
    }
  }
  MR_TRY_ASSIGN(Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor zeros, Tensor::zeros(ctx.output_type(0), shape));
  ctx.set_output(0, std::move(zeros));
  return ok_status();
}

Status to_bool(KernelContext& ctx) {
  const Tensor& x = ctx.input(0);
  if (x.rank() > 0) {
    ctx.set_output(0, Tensor::scalar<bool>(x.num_elements() > 0));
    return ok_status();
  }
  bool truth = false;
  if (x.dtype() == DType::kString) {
    truth = !x.item<std::string>().empty();
  } else if (is_plain(x.dtype())) {
    // Also false: the other zero of floating and complex types.
    const Status compared = dispatch<ConcatTypes<FloatingTypes, ComplexTypes>>(
        x.dtype(), [&]<class T>() { truth = !(x.item<T>() == T(0.0F)); });
    if (!compared.ok()) {
      MR_TRY_ASSIGN(Tensor zero, Tensor::zeros(x.dtype(), {}));
      truth = !bit_equal(x, zero);
    }
  } else {
    return invalid_argument("expected a number or a string, got ", x.dtype());
  }
  ctx.set_output(0, Tensor::scalar<bool>(truth));
  return ok_status();
}

}  // namespace

void register_functional(Registry& registry) {
  register_if(registry, "If", /*stateful=*/true);
  register_if(registry, "StatelessIf", /*stateful=*/false);
  register_case(registry, "Case", /*stateful=*/true);
  register_case(registry, "StatelessCase", /*stateful=*/false);
  register_while(registry, "While", /*stateful=*/true);
  register_while(registry, "StatelessWhile", /*stateful=*/false);
  register_call(registry, "PartitionedCall", /*stateful=*/false);
  register_call(registry, "StatefulPartitionedCall", /*stateful=*/true);
  registry.add({.name = "SymbolicGradient",
                .doc =
                    "The gradients of function f: its inputs are those of f and the gradients of "
                    "f's outputs.",
                .inputs = {{"input", "list(Tin)"}},
                .outputs = {{"output", "list(Tout)"}},
                .attrs = {{"Tin", "list(type) >= 1"}, {"Tout", "list(type) >= 1"}, {"f", "func"}},
                .traits = functional(FunctionalOp::kSymbolicGradient, /*stateful=*/false),
                .shape = symbolic_gradient_shape});

  registry.add({.name = "_SwitchN",
                .doc = "Sends data to one of several outputs, by number. The others are dead.",
                .inputs = {{"data", "T"}, {"output_index", "host(int32)"}},
                .outputs = {{"outputs", "num_outs*T"}},
                .types = {{"T", {}}},
                .attrs = {{"num_outs", "int >= 1"}},
                .traits = {.forwards = true, .control_flow = ControlFlow::kSwitch, .may_alias = 1},
                .shape = switch_n_shape});
  registry.add({.name = "FakeParam",
                .doc = "Stands for a value that is never read, such as one that another branch "
                       "saves for its gradient.",
                .outputs = {{"output", "dtype"}},
                .types = {{"dtype", {}}},
                .attrs = {{"shape", "shape"}},
                .traits = {.cannot_differentiate = true},
                .shape = fake_param_shape});
  registry.add({.name = "ToBool",
                .doc = "Whether a scalar is other than zero or empty, or a tensor has elements.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "bool"}},
                .types = {{"T", {}}},
                .traits = {.cannot_differentiate = true},
                .shape = shape_rules::scalar});
  for (DeviceKind device : {DeviceKind::kAny, DeviceKind::kNull}) {
    registry.kernel("_SwitchN", device, switch_n);
  }
  for (DeviceKind device : {DeviceKind::kCpu, DeviceKind::kNull}) {
    registry.kernel("FakeParam", device, fake_param);
    registry.kernel("ToBool", device, to_bool);
  }
}

}  // namespace millrace
