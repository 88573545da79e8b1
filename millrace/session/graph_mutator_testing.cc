#include "millrace/session/graph_mutator_testing.h"

#include <vector>

#include "millrace/graph/graph_builder.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/internal_op.h"
#include "millrace/tensor/choices_testing.h"
#include "proto/graph.pb.h"

namespace millrace {
namespace {

using Nodes = google::protobuf::RepeatedPtrField<tensorflow::NodeDef>;

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : choices_(seed * 0x9e3779b97f4a7c15) {}

  std::string run(tensorflow::GraphDef def) {
    do {
      if (choices_.one_in(2) && add_node(def)) continue;
      change_nodes(def);
    } while (choices_.one_in(2));
    std::string out;
    def.SerializeToString(&out);
    return out;
  }

 private:
  void change_nodes(tensorflow::GraphDef& def) {
    auto& functions = *def.mutable_library()->mutable_function();
    if (!functions.empty() && choices_.one_in(4)) {
      auto& function =
          functions[static_cast<int>(choices_.below(static_cast<size_t>(functions.size())))];
      change(*function.mutable_node_def());
    } else {
      change(*def.mutable_node());
    }
  }

  tensorflow::NodeDef& pick(Nodes& nodes) {
    return nodes[static_cast<int>(choices_.below(static_cast<size_t>(nodes.size())))];
  }

  void change(Nodes& nodes) {
    if (nodes.empty()) return;
    tensorflow::NodeDef& node = pick(nodes);
    switch (choices_.below(8)) {
      case 0:
      case 1:
        return rewire(node, nodes);
      case 2:
      case 3:
        return change_attr(node);
      case 4: {  // a copy under another name
        tensorflow::NodeDef copy = node;
        copy.set_name(str_cat(node.name(), "_", nodes.size()));
        rewire(copy, nodes);
        *nodes.Add() = copy;
        return;
      }
      case 5:
        node.add_input(str_cat("^", pick(nodes).name()));
        return;
      case 6:
        node.set_device(choices_.of<const char*>({"", "/cpu:0", "/cpu:1", "/device:CPU:7"}));
        return;
      default: {
        tensorflow::NodeDef other = pick(nodes);
        node.set_op(other.op());
        *node.mutable_attr() = other.attr();
      }
    }
  }

  void rewire(tensorflow::NodeDef& node, Nodes& nodes) {
    if (node.input_size() == 0) return;
    int i = static_cast<int>(choices_.below(static_cast<size_t>(node.input_size())));
    const tensorflow::NodeDef& from = pick(nodes);
    if (from.input_size() > 0 && choices_.one_in(2)) {  // what another node reads
      node.set_input(
          i, from.input(static_cast<int>(choices_.below(static_cast<size_t>(from.input_size())))));
    } else {
      size_t index = choices_.below(3);
      node.set_input(i, index == 0 ? from.name() : str_cat(from.name(), ":", index));
    }
  }

  void change_attr(tensorflow::NodeDef& node) {
    if (node.attr().empty()) return;
    auto it = node.mutable_attr()->begin();
    std::advance(it, static_cast<std::ptrdiff_t>(choices_.below(node.attr().size())));
    tensorflow::AttrValue& value = it->second;
    switch (value.value_case()) {
      case tensorflow::AttrValue::kI:
        value.set_i(choices_.integer());
        break;
      case tensorflow::AttrValue::kF:
        value.set_f(static_cast<float>(choices_.number()));
        break;
      case tensorflow::AttrValue::kB:
        value.set_b(!value.b());
        break;
      case tensorflow::AttrValue::kS:
        value.set_s(choices_.text());
        break;
      case tensorflow::AttrValue::kType:
        value.set_type(static_cast<tensorflow::DataType>(1 + choices_.below(23)));
        break;
      case tensorflow::AttrValue::kShape:
        change_shape(*value.mutable_shape());
        break;
      case tensorflow::AttrValue::kTensor:
        change_tensor(*value.mutable_tensor());
        break;
      case tensorflow::AttrValue::kList:
        for (auto& i : *value.mutable_list()->mutable_i()) {
          if (choices_.one_in(2)) i = choices_.integer();
        }
        if (choices_.one_in(4)) value.mutable_list()->add_i(choices_.integer());
        break;
      default:
        break;
    }
  }

  void change_shape(tensorflow::TensorShapeProto& shape) {
    if (shape.dim_size() > 0 && !choices_.one_in(3)) {
      shape.mutable_dim(static_cast<int>(choices_.below(static_cast<size_t>(shape.dim_size()))))
          ->set_size(choices_.integer());
    } else {
      shape.add_dim()->set_size(static_cast<int64_t>(choices_.below(4)));
    }
  }

  void change_tensor(tensorflow::TensorProto& tensor) {
    if (choices_.one_in(4)) return change_shape(*tensor.mutable_tensor_shape());
    for (auto& v : *tensor.mutable_int_val()) v = static_cast<int32_t>(choices_.integer());
    for (auto& v : *tensor.mutable_int64_val()) v = choices_.integer();
    for (auto& v : *tensor.mutable_float_val()) v = static_cast<float>(choices_.number());
    for (auto& v : *tensor.mutable_double_val()) v = choices_.number();
    for (auto& v : *tensor.mutable_bool_val()) v = !v;
    std::string& content = *tensor.mutable_tensor_content();
    if (!content.empty()) {
      content[choices_.below(content.size())] = static_cast<char>(choices_.byte());
    }
  }

  // Adds a node of any op to a graph that is one, its inputs tensors of the right types.
  bool add_node(tensorflow::GraphDef& def) {
    Ref<Graph> graph = make_ref<Graph>();
    ImportOptions options;
    options.max_constant_bytes = 1 << 20;
    if (!import_graph_def(def, options, *graph).ok()) return false;
    GraphBuilder builder(*graph);
    static const auto* const kOps = new std::vector<const OpDef*>(graph->registry().list());
    const OpDef& op = *choices_.of(*kOps);
    if (is_internal_op(graph->registry(), op.name)) return false;
    AttrMap attrs = some_attrs(op);
    std::vector<Output> inputs;
    for (const ArgDef& arg : op.inputs) {
      size_t count = arg.is_list() ? choices_.below(4) : 1;
      if (!arg.number_attr.empty()) attrs.set(arg.number_attr, static_cast<int64_t>(count));
      for (size_t k = 0; k < count; ++k) {
        DType wanted = arg.dtype;
        if (const AttrValue* type = attrs.find(arg.type_attr)) wanted = *type->get<DType>();
        Output input = find_tensor(builder, wanted);
        if (!input.valid()) return false;
        if (!arg.type_attr.empty()) attrs.set(arg.type_attr, base_type(graph->output_type(input)));
        inputs.push_back(input);
      }
    }
    std::string name = str_cat(op.name, "_", graph->num_nodes());
    if (!builder.add(op.name, name, inputs, attrs).ok()) return false;
    return export_graph_def(*graph, def).ok();
  }

  // A tensor of the graph of this type (kInvalid: any), or a constant.
  Output find_tensor(GraphBuilder& builder, DType type) {
    const Graph& graph = builder.graph();
    for (int tries = 0; tries < 16 && graph.num_nodes() > 0; ++tries) {
      NodeId id = static_cast<NodeId>(choices_.below(static_cast<size_t>(graph.num_nodes())));
      if (graph.node(id).num_outputs() == 0) continue;
      Output found = {id, static_cast<int32_t>(
                              choices_.below(static_cast<size_t>(graph.node(id).num_outputs())))};
      DType has = base_type(graph.output_type(found));
      if (is_valid(has) && (type == DType::kInvalid || has == type)) return found;
    }
    if (type == DType::kInvalid) type = choices_.of({DType::kFloat, DType::kInt32, DType::kInt64});
    if (type == DType::kResource || type == DType::kVariant || is_ref(type)) return {};
    Expr made = builder.constant(choices_.tensor(type, choices_.shape(3)));
    return made.valid() ? GraphBuilder::output(made) : Output{};
  }

  // Those that have no default, types that follow from inputs left out.
  AttrMap some_attrs(const OpDef& op) {
    AttrMap attrs;
    for (const AttrDef& def : op.attrs) {
      if (!def.default_value.empty() && !choices_.one_in(6)) continue;
      const std::vector<int64_t> ints = {choices_.integer(), choices_.integer()};
      if (def.type == "int") attrs.set(def.name, choices_.integer());
      if (def.type == "float") attrs.set(def.name, static_cast<float>(choices_.number()));
      if (def.type == "bool") attrs.set(def.name, choices_.one_in(2));
      if (def.type == "string") {
        attrs.set(def.name,
                  def.allowed_strings.empty() ? choices_.text() : choices_.of(def.allowed_strings));
      }
      if (def.type == "shape") attrs.set(def.name, choices_.shape());
      if (def.type == "list(int)") attrs.set(def.name, ints);
      if (def.type == "list(type)") {
        attrs.set(def.name, std::vector<DType>(1 + choices_.below(3), DType::kFloat));
      }
      bool input_type = false;
      for (const ArgDef& arg : op.inputs) input_type |= arg.type_attr == def.name;
      if (def.type == "type" && !input_type) {
        attrs.set(def.name, choices_.of({DType::kFloat, DType::kInt32, DType::kInt64, DType::kBool,
                                         DType::kString, DType::kDouble}));
      }
    }
    return attrs;
  }

  Choices choices_;
};

}  // namespace

std::string mutate_graph(std::string_view bytes, uint64_t seed) {
  tensorflow::GraphDef def;
  if (seed % 16 == 0 || !def.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return {};
  return Mutator(seed).run(std::move(def));
}

}  // namespace millrace
