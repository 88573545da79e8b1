#pragma once

#include "millrace/graph/op_registry.h"
#include "millrace/graph/shape_context.h"

// A few ops with rules but no kernels, enough to write every kind of graph: for the tests of import
// and functions and for the fuzzer, which see nothing above graph/.

namespace millrace {

inline Status toy_placeholder_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output(0, std::move(shape));
  return ok_status();
}

inline Status toy_matmul_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape a, c.with_rank(0, 2));
  MR_TRY_ASSIGN(PartialShape b, c.with_rank(1, 2));
  if (a.dim_known(1) && b.dim_known(0) && a.dim(1) != b.dim(0)) {
    return invalid_argument("inner dimensions differ: ", a, " x ", b);
  }
  c.set_output(0, {a.dim(0), b.dim(1)});
  return ok_status();
}

// Known only where all inputs agree: any of them may be the one that arrives.
inline Status toy_merge_shape(ShapeContext& c) {
  PartialShape out = c.input(0);
  for (int i = 1; i < c.num_inputs() && out.rank_known(); ++i) {
    if (c.input(i).rank() != out.rank()) {
      out = PartialShape::unknown();
      break;
    }
    for (int d = 0; d < out.rank(); ++d) {
      if (c.input(i).dim(d) != out.dim(d)) out.set_dim(d, PartialShape::kUnknownDim);
    }
  }
  c.set_output(0, std::move(out));
  c.set_output(1, PartialShape::scalar());
  return ok_status();
}

inline Status toy_switch_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 0).status());
  c.set_output(0, c.input(0));
  c.set_output(1, c.input(0));
  return ok_status();
}

inline void register_toy_ops(OpRegistry& registry) {
  auto add = [&](const OpSpec& spec) { MR_CHECK_OK(registry.add(parse_op_spec(spec).value())); };
  auto flow = [](ControlFlow kind) {
    OpTraits traits;
    traits.control_flow = kind;
    return traits;
  };
  add({.name = "Const",
       .doc = "",
       .outputs = {{"output", "dtype"}},
       .types = {{"dtype", {}}},
       .attrs = {{"value", "tensor"}},
       .traits = {.constant = true}});
  add({.name = "Placeholder",
       .doc = "",
       .outputs = {{"output", "dtype"}},
       .types = {{"dtype", {}}},
       .attrs = {{"shape", "shape = ?"}},
       .traits = {.placeholder = true},
       .shape = toy_placeholder_shape});
  add({.name = "Add",
       .doc = "The sum.\nOf two tensors.",
       .inputs = {{"x", "T"}, {"y", "T"}},
       .outputs = {{"z", "T"}},
       .types = {{"T", kNumbers}},
       .traits = {.commutative = true, .elementwise = true},
       .shape = shape_rules::broadcast});
  add({.name = "AddN",
       .doc = "",
       .inputs = {{"inputs", "N*T"}},
       .outputs = {{"sum", "T"}},
       .types = {{"T", kNumbers}},
       .attrs = {{"N", "int >= 1"}},
       .shape = shape_rules::merged});
  add({.name = "MatMul",
       .doc = "",
       .inputs = {{"a", "T"}, {"b", "T"}},
       .outputs = {{"product", "T"}},
       .types = {{"T", kFloating}},
       .shape = toy_matmul_shape});
  add({.name = "Less",
       .doc = "",
       .inputs = {{"x", "T"}, {"y", "T"}},
       .outputs = {{"z", "bool"}},
       .types = {{"T", kRealNumbers}},
       .shape = shape_rules::broadcast});
  add({.name = "Identity",
       .doc = "",
       .inputs = {{"input", "T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", {}}},
       .shape = shape_rules::unchanged});
  add({.name = "IdentityN",
       .doc = "",
       .inputs = {{"input", "list(T)"}},
       .outputs = {{"output", "list(T)"}},
       .attrs = {{"T", "list(type) >= 1"}}});
  add({.name = "Split",
       .doc = "",
       .inputs = {{"split_dim", "int32"}, {"value", "T"}},
       .outputs = {{"output", "num_split*T"}},
       .types = {{"T", {}}},
       .attrs = {{"num_split", "int >= 1"}}});
  add({.name = "NoOp", .doc = ""});
  add({.name = "Variable",
       .doc = "",
       .outputs = {{"ref", "ref(dtype)"}},
       .types = {{"dtype", {}}},
       .attrs = {{"shape", "shape"}, {"container", "string = \"\""}},
       .traits = {.stateful = true, .owns_state = true},
       .shape = toy_placeholder_shape});
  add({.name = "Assign",
       .doc = "",
       .inputs = {{"ref", "ref(T)"}, {"value", "T"}},
       .outputs = {{"output_ref", "ref(T)"}},
       .types = {{"T", {}}},
       .traits = {.allows_uninitialized_input = true},
       .shape = shape_rules::merged});
  add({.name = "Options",
       .doc = "An attribute of every kind.",
       .attrs = {{"i", "int >= 0"},
                 {"f", "float = 0.5"},
                 {"b", "bool = false"},
                 {"s", "string = 'SAME' in {'SAME','VALID'}"},
                 {"shape", "shape = ?"},
                 {"ints", "list(int) = []"},
                 {"floats", "list(float) = []"},
                 {"bools", "list(bool) = []"},
                 {"strings", "list(string) = []"},
                 {"types", "list(type) = []"},
                 {"shapes", "list(shape) = []"},
                 {"two", "list(int) >= 2 = [1, 2]"}}});
  add({.name = "Old", .doc = "", .deprecated_since = 10, .deprecation = "Use Identity."});
  add({.name = "PartitionedCall",
       .doc = "",
       .inputs = {{"args", "list(Tin)"}},
       .outputs = {{"output", "list(Tout)"}},
       .attrs = {{"Tin", "list(type)"}, {"Tout", "list(type)"}, {"f", "func"}}});
  add({.name = "Switch",
       .doc = "",
       .inputs = {{"data", "T"}, {"pred", "bool"}},
       .outputs = {{"output_false", "T"}, {"output_true", "T"}},
       .types = {{"T", {}}},
       .traits = flow(ControlFlow::kSwitch),
       .shape = toy_switch_shape});
  add({.name = "Merge",
       .doc = "",
       .inputs = {{"inputs", "N*T"}},
       .outputs = {{"output", "T"}, {"value_index", "int32"}},
       .types = {{"T", {}}},
       .attrs = {{"N", "int >= 1"}},
       .traits = flow(ControlFlow::kMerge),
       .shape = toy_merge_shape});
  add({.name = "Enter",
       .doc = "",
       .inputs = {{"data", "T"}},
       .outputs = {{"output", "T"}},
       .types = {{"T", {}}},
       .attrs = {{"frame_name", "string"},
                 {"is_constant", "bool = false"},
                 {"parallel_iterations", "int = 10"}},
       .traits = flow(ControlFlow::kEnter),
       .shape = shape_rules::unchanged});
  for (auto [name, kind] : {std::pair("Exit", ControlFlow::kExit),
                            std::pair("NextIteration", ControlFlow::kNextIteration)}) {
    add({.name = name,
         .doc = "",
         .inputs = {{"data", "T"}},
         .outputs = {{"output", "T"}},
         .types = {{"T", {}}},
         .traits = flow(kind),
         .shape = shape_rules::unchanged});
  }
  add({.name = "LoopCond",
       .doc = "",
       .inputs = {{"input", "bool"}},
       .outputs = {{"output", "bool"}},
       .traits = flow(ControlFlow::kLoopCond),
       .shape = shape_rules::unchanged});
  add({.name = "_Arg",
       .doc = "",
       .outputs = {{"output", "T"}},
       .types = {{"T", {}}},
       .attrs = {{"index", "int >= 0"}},
       .traits = {.argument = true}});
  add({.name = "_Retval",
       .doc = "",
       .inputs = {{"input", "T"}},
       .types = {{"T", {}}},
       .attrs = {{"index", "int >= 0"}},
       .traits = {.result = true}});
}

// Made once; lives as long as the process.
inline const OpRegistry& toy_registry() {
  static const OpRegistry& registry = []() -> const OpRegistry& {
    OpRegistry& made = *new OpRegistry;
    register_toy_ops(made);
    return made;
  }();
  return registry;
}

}  // namespace millrace
