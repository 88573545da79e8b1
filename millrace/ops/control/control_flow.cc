// Branches and loops as dataflow. The executor treats these ops by their trait `control_flow` and
// moves values itself; the kernels here say what one activation means, for callers that run single
// ops.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

void copy_facts(ShapeContext& c, int output, int input) {
  c.set_output(output, c.input(input));
  c.set_output_resource(output, c.input_facts(input).resource);
}

Status forward_shape(ShapeContext& c) {
  copy_facts(c, 0, 0);
  return ok_status();
}

Status switch_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape predicate, c.with_rank(1, 0));
  copy_facts(c, 0, 0);
  copy_facts(c, 1, 0);
  return ok_status();
}

// What all inputs have in common: any of them may be the one that comes.
Status merge_shape(ShapeContext& c) {
  PartialShape out = c.input(0);
  for (int i = 1; i < c.num_inputs(); ++i) out = out.common(c.input(i));
  c.set_output(0, out);
  c.set_output(1, PartialShape::scalar());
  c.set_output_resource(0, c.input_facts(0).resource);
  return ok_status();
}

Status ref_select_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  PartialShape out = c.input(1);
  // One of several shapes says nothing, not even the rank, as in TensorFlow.
  for (int i = 2; i < c.num_inputs(); ++i) {
    if (c.input(i) != out) out = PartialShape::unknown();
  }
  if (!out.fully_known()) out = PartialShape::unknown();
  c.set_output(0, std::move(out));
  return ok_status();
}

Status loop_cond_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape predicate, c.with_rank(0, 0));
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

Status forward(KernelContext& ctx) {
  ctx.set_output_value(0, ctx.take_input(0));
  return ok_status();
}

Status switch_kernel(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(bool predicate, ctx.scalar_input<bool>(1));
  ctx.set_output_value(predicate ? 1 : 0, ctx.take_input(0));
  ctx.set_output_dead(predicate ? 0 : 1);
  return ok_status();
}

Status ref_select_kernel(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 0));
  MR_TRY_ASSIGN(const int64_t index, ctx.int_scalar_input(0));
  const int count = ctx.num_inputs() - 1;
  if (index < 0 || index >= count) {
    return invalid_argument("index must be in [0, ", count, "), got ", index);
  }
  ctx.set_output_value(0, ctx.input_value(static_cast<int>(index) + 1));
  return ok_status();
}

Status merge_kernel(KernelContext& ctx) {
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    const Value& value = ctx.input_value(i);
    if (value.empty() || value.dead()) continue;
    ctx.set_output_value(0, ctx.take_input(i));
    ctx.set_output(1, Tensor::scalar<int32_t>(i));
    return ok_status();
  }
  ctx.set_output_dead(0);
  ctx.set_output_dead(1);
  return ok_status();
}

Status loop_cond_kernel(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 0));
  return forward(ctx);
}

Status nothing(KernelContext&) { return ok_status(); }

// "data: T" or, for the form that hands a variable on, "data: ref(T)".
std::string maybe_ref(bool ref, const char* type) {
  return ref ? str_cat("ref(", type, ")") : type;
}

void add(Registry& registry, const OpSpec& spec, KernelFunction kernel) {
  registry.add(spec);
  for (DeviceKind device : {DeviceKind::kAny, DeviceKind::kNull}) {
    registry.kernel(spec.name, device, kernel);
  }
}

void register_forms(Registry& registry, bool ref) {
  std::string prefix = ref ? "Ref" : "";
  std::string t = maybe_ref(ref, "T");
  auto with = [](ControlFlow flow) {
    return OpTraits{.forwards = true, .control_flow = flow, .may_alias = 1};
  };
  OpTraits switch_traits = with(ControlFlow::kSwitch);
  switch_traits.allows_uninitialized_input = ref;
  add(registry,
      {.name = prefix + "Switch",
       .doc = "Sends data to output_true when pred holds, else to output_false. The other is dead.",
       .inputs = {{"data", t}, {"pred", "host(bool)"}},
       .outputs = {{"output_false", t}, {"output_true", t}},
       .types = {{"T", {}}},
       .traits = switch_traits,
       .shape = switch_shape},
      switch_kernel);
  add(registry,
      {.name = prefix + "Merge",
       .doc = "Hands on the first input that is not dead, and its number.",
       .inputs = {{"inputs", maybe_ref(ref, "N*T")}},
       .outputs = {{"output", t}, {"value_index", "host(int32)"}},
       .types = {{"T", {}}},
       .attrs = {{"N", "int >= 1"}},
       .traits = with(ControlFlow::kMerge),
       .shape = merge_shape},
      merge_kernel);
  add(registry,
      {.name = prefix + "Enter",
       .doc = "Makes data available in a loop: in its first iteration or, when constant, in each.",
       .inputs = {{"data", t}},
       .outputs = {{"output", t}},
       .types = {{"T", {}}},
       .attrs = {{"frame_name", "string", "Names the loop."},
                 {"is_constant", "bool = false"},
                 {"parallel_iterations", "int = 10", "How many iterations may run at once."}},
       .traits = with(ControlFlow::kEnter),
       .shape = forward_shape},
      forward);
  add(registry,
      {.name = prefix + "Exit",
       .doc = "Hands a value on from the last iteration of a loop to the frame around it.",
       .inputs = {{"data", t}},
       .outputs = {{"output", t}},
       .types = {{"T", {}}},
       .traits = with(ControlFlow::kExit),
       .shape = forward_shape},
      forward);
  add(registry,
      {.name = prefix + "NextIteration",
       .doc = "Hands a value on to the next iteration of the loop.",
       .inputs = {{"data", t}},
       .outputs = {{"output", t}},
       .types = {{"T", {}}},
       .traits = with(ControlFlow::kNextIteration),
       .shape = forward_shape},
      forward);
}

}  // namespace

void register_control_flow(Registry& registry) {
  register_forms(registry, /*ref=*/false);
  register_forms(registry, /*ref=*/true);
  add(registry,
      {.name = "LoopCond",
       .doc = "Marks the predicate of a loop.",
       .inputs = {{"input", "host(bool)"}},
       .outputs = {{"output", "host(bool)"}},
       .traits = {.cannot_differentiate = true,
                  .control_flow = ControlFlow::kLoopCond,
                  .may_alias = 1},
       .shape = loop_cond_shape},
      loop_cond_kernel);
  add(registry,
      {.name = "RefSelect",
       .doc = "The variable of that number among the inputs.",
       .inputs = {{"index", "host(int32)"}, {"inputs", "ref(N*T)"}},
       .outputs = {{"output", "ref(T)"}},
       .types = {{"T", {}}},
       .attrs = {{"N", "int >= 1"}},
       .traits = {.stateful = true,
                  .allows_uninitialized_input = true,
                  .forwards = true,
                  .may_alias = ~1u},
       .shape = ref_select_shape,
       .no_gradient = "which variable it is shows when it runs"},
      ref_select_kernel);
  add(registry,
      {.name = "ControlTrigger",
       .doc = "Does nothing, but runs even when what it waits for is dead.",
       .traits = {.cannot_differentiate = true, .control_flow = ControlFlow::kControlTrigger},
       .shape = shape_rules::no_outputs},
      nothing);
  add(registry,
      {.name = "NoOp",
       .doc = "Does nothing: something to hang control edges on.",
       .traits = {.cannot_differentiate = true},
       .shape = shape_rules::no_outputs},
      nothing);
}

}  // namespace millrace
