#include "millrace/graph/sample_ops_testing.h"

#include "millrace/graph/shape_context.h"

namespace millrace {

namespace {

Status matmul_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape a, c.with_rank(0, 2));
  MR_TRY_ASSIGN(const PartialShape b, c.with_rank(1, 2));
  if (a.dim_known(1) && b.dim_known(0) && a.dim(1) != b.dim(0)) {
    return invalid_argument("inner dimensions differ: ", a, " x ", b);
  }
  c.set_output(0, PartialShape{a.dim(0), b.dim(1)});
  return ok_status();
}

Status attr_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status shape_shape(ShapeContext& c) {
  const int rank = c.input(0).rank();
  c.set_output(0, PartialShape{rank < 0 ? PartialShape::kUnknownDim : rank});
  return ok_status();
}

void shape_value(ValueContext& c) {
  if (!c.input_shape(0).rank_known()) return;
  PartialValue value;
  for (int64_t d : c.input_shape(0).dims()) {
    value.elements.push_back(d < 0 ? std::nullopt : std::optional<int64_t>(d));
  }
  c.set_output(0, std::move(value));
}

Status reshape_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.input_as_shape(1));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status pack_shape(ShapeContext& c) {
  c.set_output(0, PartialShape{c.num_inputs()});
  return ok_status();
}

void pack_value(ValueContext& c) {
  PartialValue value;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const PartialValue* element = c.input(i);
    value.elements.push_back(element == nullptr ? std::nullopt : element->elements[0]);
  }
  c.set_output(0, std::move(value));
}

Status merge_shape(ShapeContext& c) {
  c.set_output(0, c.input(0));
  c.set_output(1, PartialShape::scalar());
  return ok_status();
}

void add(OpRegistry& registry, const OpSpec& spec) {
  MR_CHECK_OK(registry.add(parse_op_spec(spec).value()));
}

void add_unary(OpRegistry& registry, const char* name,
               ControlFlow control_flow = ControlFlow::kNone) {
  add(registry, {.name = name,
                 .doc = "",
                 .inputs = {{"x", "T"}},
                 .outputs = {{"y", "T"}},
                 .types = {{"T", {}}},
                 .traits = {.control_flow = control_flow},
                 .shape = shape_rules::unchanged});
}

void add_binary(OpRegistry& registry, const char* name) {
  add(registry, {.name = name,
                 .doc = "",
                 .inputs = {{"x", "T"}, {"y", "T"}},
                 .outputs = {{"z", "T"}},
                 .types = {{"T", kNumbers}},
                 .traits = {.commutative = true},
                 .shape = shape_rules::broadcast});
}

void add_array_ops(OpRegistry& r) {
  add(r, {.name = "Concat",
          .doc = "",
          .inputs = {{"concat_dim", "int32"}, {"values", "N*T"}},
          .outputs = {{"output", "T"}},
          .types = {{"T", {}}},
          .attrs = {{"N", "int >= 2"}}});
  add(r, {.name = "ConcatV2",
          .doc = "",
          .inputs = {{"values", "N*T"}, {"axis", "Tidx"}},
          .outputs = {{"output", "T"}},
          .types = {{"T", {}}, {"Tidx", kIndexTypes, DType::kInt32}},
          .attrs = {{"N", "int >= 2"}}});
  add(r, {.name = "Shape",
          .doc = "",
          .inputs = {{"input", "T"}},
          .outputs = {{"output", "out_type"}},
          .types = {{"T", {}}, {"out_type", kIndexTypes, DType::kInt32}},
          .shape = shape_shape,
          .value = shape_value});
  add(r, {.name = "Sum",
          .doc = "",
          .inputs = {{"input", "T"}, {"reduction_indices", "Tidx"}},
          .outputs = {{"output", "T"}},
          .types = {{"T", kNumberTypes}, {"Tidx", kIndexTypes, DType::kInt32}},
          .attrs = {{"keep_dims", "bool = false"}}});
  add(r, {.name = "Reshape",
          .doc = "",
          .inputs = {{"tensor", "T"}, {"shape", "Tshape"}},
          .outputs = {{"output", "T"}},
          .types = {{"T", {}}, {"Tshape", kIndexTypes, DType::kInt32}},
          .shape = reshape_shape});
  add(r, {.name = "Cast",
          .doc = "",
          .inputs = {{"x", "SrcT"}},
          .outputs = {{"y", "DstT"}},
          .types = {{"SrcT", {}}, {"DstT", {}}},
          .shape = shape_rules::unchanged});
  add(r, {.name = "BroadcastGradientArgs",
          .doc = "",
          .inputs = {{"s0", "T"}, {"s1", "T"}},
          .outputs = {{"r0", "T"}, {"r1", "T"}},
          .types = {{"T", kIndexTypes, DType::kInt32}}});
  add(r, {.name = "Pack",
          .doc = "",
          .inputs = {{"values", "N*T"}},
          .outputs = {{"output", "T"}},
          .types = {{"T", {}}},
          .attrs = {{"N", "int"}},
          .shape = pack_shape,
          .value = pack_value});
  add(r, {.name = "Bundle",
          .doc = "",
          .inputs = {{"components", "list(Tin)"}},
          .outputs = {{"out", "list(Tin)"}},
          .attrs = {{"Tin", "list(type) >= 0"}}});
}

void add_state_and_loops(OpRegistry& r) {
  add(r, {.name = "Variable",
          .doc = "",
          .outputs = {{"ref", "ref(dtype)"}},
          .types = {{"dtype", {}}},
          .attrs = {{"shape", "shape"}},
          .traits = {.stateful = true},
          .shape = attr_shape});
  add(r, {.name = "Assign",
          .doc = "",
          .inputs = {{"ref", "ref(T)"}, {"value", "T"}},
          .outputs = {{"output_ref", "ref(T)"}},
          .types = {{"T", {}}},
          .shape = shape_rules::unchanged});
  add_unary(r, "Enter", ControlFlow::kEnter);
  add_unary(r, "NextIteration", ControlFlow::kNextIteration);
  add(r, {.name = "Merge",
          .doc = "",
          .inputs = {{"inputs", "N*T"}},
          .outputs = {{"output", "T"}, {"value_index", "int32"}},
          .types = {{"T", {}}},
          .attrs = {{"N", "int >= 1"}},
          .traits = {.control_flow = ControlFlow::kMerge},
          .shape = merge_shape});
}

}  // namespace

void register_sample_ops(OpRegistry& r) {
  add(r, {.name = "Const",
          .doc = "",
          .outputs = {{"output", "dtype"}},
          .types = {{"dtype", {}}},
          .attrs = {{"value", "tensor"}},
          .traits = {.constant = true}});
  add(r, {.name = "Placeholder",
          .doc = "",
          .outputs = {{"output", "dtype"}},
          .types = {{"dtype", {}}},
          .attrs = {{"shape", "shape = ?"}},
          .traits = {.placeholder = true},
          .shape = attr_shape});
  for (const char* name : {"Identity", "Neg", "ZerosLike"}) add_unary(r, name);
  for (const char* name : {"Add", "Mul"}) add_binary(r, name);
  add(r, {.name = "MatMul",
          .doc = "",
          .inputs = {{"a", "T"}, {"b", "T"}},
          .outputs = {{"product", "T"}},
          .types = {{"T", kFloating}},
          .attrs = {{"transpose_a", "bool = false"}, {"transpose_b", "bool = false"}},
          .shape = matmul_shape});
  add(r, {.name = "NoOp", .doc = ""});
  add(r, {.name = "Old", .doc = "", .deprecated_since = 17, .deprecation = "Use New."});
  add_array_ops(r);
  add_state_and_loops(r);
}

}  // namespace millrace
