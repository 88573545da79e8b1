#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/stubs/common.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <climits>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "millrace/graph/function_calls.h"
#include "millrace/graph/graph_assembly.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/internal_op.h"
#include "millrace/graph/message_conversion.h"
#include "proto/graph.pb.h"
#include "proto/meta_graph.pb.h"

namespace millrace {
namespace {

constexpr size_t kMaxNameLength = size_t{1} << 16;
constexpr int64_t kMaxNodes = int64_t{1} << 24;
constexpr std::string_view kColocationAttr = "_class";
constexpr std::string_view kColocationPrefix = "loc:@";

using OpDefs = std::map<std::string, OpDef, std::less<>>;

// Makes attributes written for the producer's definition of an op fit ours: what the producer left
// out because it was the default is filled in, and what we do not know is dropped when it is the
// default.
void adapt_attrs(const OpDef* ours, const OpDef& producers, AttrMap& attrs) {
  for (const AttrDef& def : producers.attrs) {
    if (def.default_value.empty()) continue;
    const AttrValue* value = attrs.find(def.name);
    bool known = ours == nullptr || ours->find_attr(def.name) != nullptr;
    if (value == nullptr && known) attrs.set(def.name, def.default_value);
    if (value != nullptr && !known && *value == def.default_value) attrs.erase(def.name);
  }
}

Status check_versions(const tensorflow::VersionDef& versions) {
  if (versions.producer() < 0) {
    return invalid_argument("graph version: expected a producer of 0 or more, found ",
                            versions.producer());
  }
  if (versions.min_consumer() > kGraphVersion) {
    return invalid_argument("graph version: expected a min_consumer of at most ", kGraphVersion,
                            ", found ", versions.min_consumer());
  }
  for (int bad : versions.bad_consumers()) {
    if (bad == kGraphVersion) {
      return invalid_argument("graph version: expected one that version ", kGraphVersion,
                              " may read, found it among bad_consumers");
    }
  }
  return ok_status();
}

class Importer {
 public:
  Importer(const tensorflow::GraphDef& def, const ImportOptions& options,
           const OpDefs* producer_ops, Graph& graph)
      : def_(def),
        options_(options),
        producer_ops_(producer_ops),
        graph_(graph),
        budget_{options.max_constant_bytes},
        assembly_(graph, functions_, budget_) {}

  Result<ImportResult> run() {
    MR_TRY(check_versions(def_.versions()));
    producer_ = def_.has_versions() ? def_.versions().producer() : graph_.producer_version();
    MR_TRY(check_options());
    MR_TRY(read_functions());
    MR_TRY(read_names());
    MR_TRY(define_nodes());
    for (int32_t i = 0; i < assembly_.size(); ++i) {
      Status status = read_inputs(i);
      if (!status.ok()) return GraphAssembly::annotate(assembly_.node(i), status);
    }
    MR_TRY(check_input_map());
    MR_TRY_ASSIGN(auto outputs, read_return_outputs());
    MR_TRY(assembly_.check());
    MR_TRY(commit());
    ImportResult result;
    result.unknown_ops = std::move(unknown_ops_);
    for (GraphAssembly::Source source : outputs) {
      NodeId id = source.in_graph ? source.node : assembly_.node(source.node).id;
      result.outputs.push_back({id, source.index});
    }
    return result;
  }

 private:
  using Source = GraphAssembly::Source;

  Status check_options() {
    std::string_view prefix = options_.prefix;
    if (prefix.ends_with('/')) prefix.remove_suffix(1);
    if (!prefix.empty()) {
      if (!is_node_name(prefix)) {
        return invalid_argument("import prefix: expected the name of a scope, found \"", prefix,
                                "\"");
      }
      prefix_ = str_cat(prefix, "/");
    }
    for (const auto& [text, output] : options_.input_map) {
      Result<TensorName> key = parse_tensor_name(text);
      if (!key.ok()) return key.status().with_prefix("input_map");
      if (key->index < 0) {
        return invalid_argument("input_map: expected a tensor, found the control input \"", text,
                                "\"");
      }
      if (output.node < 0 || output.node >= graph_.num_nodes() || output.index < 0 ||
          output.index >= graph_.node(output.node).num_outputs()) {
        return invalid_argument("input_map \"", text,
                                "\": expected an output of the graph, found output ", output.index,
                                " of node number ", output.node);
      }
      input_map_[{std::move(key->node), key->index}] = {{output.node, output.index, true}, false};
    }
    for (NodeId id : options_.control_dependencies) {
      if (id < 0 || id >= graph_.num_nodes()) {
        return invalid_argument("control_dependencies: expected a node number below ",
                                graph_.num_nodes(), ", found ", id);
      }
    }
    return ok_status();
  }

  bool is_node_name(std::string_view name) const {
    return is_valid_node_name(name) ||
           (options_.allow_internal_names && name.starts_with('_') && is_valid_scope_name(name));
  }

  Status read_functions() {
    std::map<std::string_view, std::string_view> gradients;
    for (const auto& gradient : def_.library().gradient()) {
      if (!gradients.emplace(gradient.function_name(), gradient.gradient_func()).second) {
        return invalid_argument("function \"", gradient.function_name(),
                                "\": expected one gradient, found two");
      }
    }
    for (const auto& proto : def_.library().function()) {
      MR_TRY_ASSIGN(Ref<Function> function, function_from_proto(proto, budget_));
      const std::string& name = function->signature.name;
      if (graph_.registry().find(name) != nullptr) {
        return invalid_argument("function \"", name,
                                "\": expected a name of its own, found that of an op");
      }
      if (auto it = gradients.find(name); it != gradients.end()) {
        function->gradient = it->second;
        gradients.erase(it);
      }
      adapt_body(*function);
      MR_TRY(refuse_internal_ops(*function, graph_.registry()));
      if (auto it = functions_.find(name); it != functions_.end()) {
        return invalid_argument("function \"", name, "\": expected one definition, found two");
      }
      Ref<Function> before = graph_.functions().find(name);
      if (before && !same_function(*before, *function)) {
        return invalid_argument(
            "function \"", name,
            "\": expected the definition that the graph has, found another one");
      }
      functions_.emplace(name, std::move(function));
    }
    if (!gradients.empty()) {
      return invalid_argument("gradient of function \"", gradients.begin()->first,
                              "\": expected a function of the library, found none of that name");
    }
    auto find = [this](std::string_view name) {
      auto it = functions_.find(name);
      return it != functions_.end() ? it->second : graph_.functions().find(name);
    };
    std::vector<std::string> roots;
    for (const auto& [name, function] : functions_) roots.push_back(name);
    return check_no_recursion(roots, find).status();
  }

  void adapt_body(Function& function) const {
    if (producer_ops_ == nullptr) return;
    for (Function::BodyNode& node : function.nodes) {
      auto it = producer_ops_->find(node.op);
      if (it != producer_ops_->end()) {
        adapt_attrs(graph_.registry().find(node.op), it->second, node.attrs);
      }
    }
  }

  // The name in the graph of each node.
  Status read_names() {
    if (int64_t{def_.node_size()} + graph_.num_nodes() > kMaxNodes) {
      return resource_exhausted("expected at most ", kMaxNodes, " nodes in a graph, found ",
                                int64_t{def_.node_size()} + graph_.num_nodes());
    }
    std::unordered_set<std::string> taken;
    numbers_.reserve(static_cast<size_t>(def_.node_size()));
    for (const auto& node : def_.node()) {
      if (!is_node_name(node.name())) {
        return invalid_argument(
            node.op(), " \"", node.name(),
            "\": expected a name of letters, digits and _.-/> that begins with a "
            "letter, digit or '.', found \"",
            node.name(), "\"");
      }
      std::string full = prefix_ + node.name();
      if (full.size() > kMaxNameLength) {
        return invalid_argument(node.op(), " \"", node.name().substr(0, 64),
                                "...\": expected a name of at most ", kMaxNameLength,
                                " characters, found ", full.size());
      }
      if (!numbers_.emplace(node.name(), static_cast<int32_t>(names_.size())).second) {
        return invalid_argument(node.op(), " \"", node.name(),
                                "\": expected a name of its own, found two nodes of that name");
      }
      if (!options_.uniquify_names && graph_.find(full) >= 0) {
        return invalid_argument(
            node.op(), " \"", full,
            "\": expected a name that is free, found one that the graph has already");
      }
      taken.insert(full);
      names_.push_back(std::move(full));
    }
    if (!options_.uniquify_names) return ok_status();
    for (std::string& name : names_) {
      if (graph_.find(name) < 0) continue;
      std::string fresh;
      for (int64_t i = 1; fresh.empty() || graph_.find(fresh) >= 0 || taken.contains(fresh); ++i) {
        fresh = str_cat(name, "_", i);
      }
      if (fresh.size() > kMaxNameLength) {
        return invalid_argument("\"", name.substr(0, 64), "...\": expected a name of at most ",
                                kMaxNameLength, " characters, found ", fresh.size());
      }
      taken.insert(fresh);
      name = std::move(fresh);
    }
    return ok_status();
  }

  Status define_nodes() {
    std::unordered_set<std::string_view> unknown;
    for (const auto& proto : def_.node()) {
      GraphAssembly::Pending node;
      node.name = names_[static_cast<size_t>(assembly_.size())];
      node.op = proto.op();
      node.device = proto.device().empty() ? options_.default_device : proto.device();
      if (node.op.empty())
        return invalid_argument("node \"", node.name, "\": expected an op, found none");
      Status status = options_.allow_internal_names
                          ? ok_status()
                          : refuse_internal_op(graph_.registry(), node.op);
      if (status.ok()) status = read_attrs(proto, node);
      if (!status.ok()) return GraphAssembly::annotate(node, status);
      MR_TRY_ASSIGN(int32_t i, assembly_.define(std::move(node), producer_));
      if (assembly_.node(i).def == nullptr && unknown.insert(proto.op()).second) {
        unknown_ops_.push_back(proto.op());
      }
    }
    return ok_status();
  }

  Status read_attrs(const tensorflow::NodeDef& proto, GraphAssembly::Pending& node) {
    MR_TRY_ASSIGN(node.attrs, attrs_from_proto(proto.attr(), budget_));
    MR_TRY_ASSIGN(node.origin, take_origin(node.attrs));
    if (producer_ops_ != nullptr) {
      if (auto it = producer_ops_->find(node.op); it != producer_ops_->end()) {
        Ref<Function> function;
        adapt_attrs(assembly_.find_op(node.op, function), it->second, node.attrs);
      }
    }
    rename_colocation(node.attrs);
    return ok_status();
  }

  // "loc:@node" names a node of the imported graph, whose name may have changed.
  void rename_colocation(AttrMap& attrs) const {
    const AttrValue* value = attrs.find(kColocationAttr);
    const auto* groups = value == nullptr ? nullptr : value->get<std::vector<std::string>>();
    if (groups == nullptr) return;
    std::vector<std::string> renamed = *groups;
    for (std::string& group : renamed) {
      if (!group.starts_with(kColocationPrefix)) continue;
      auto it = numbers_.find(std::string_view(group).substr(kColocationPrefix.size()));
      if (it != numbers_.end()) {
        group = str_cat(kColocationPrefix, names_[static_cast<size_t>(it->second)]);
      }
    }
    attrs.set(kColocationAttr, std::move(renamed));
  }

  // The node an input names: of the imported graph, or else, without a prefix, of the target.
  Result<Source> find_node(const TensorName& name) const {
    if (auto it = numbers_.find(name.node); it != numbers_.end())
      return Source{it->second, name.index, false};
    NodeId id = prefix_.empty() ? graph_.find(name.node) : -1;
    if (id >= 0) return Source{id, name.index, true};
    return invalid_argument("expected a node of this graph, found none named \"", name.node, "\"");
  }

  Status read_inputs(int32_t i) {
    const auto& proto = def_.node(i);
    GraphAssembly::Pending& node = assembly_.node(i);
    bool inherits = false;  // waits for some imported node
    for (int k = 0; k < proto.input_size(); ++k) {
      Result<Source> source = read_input(proto.input(k));
      if (!source.ok()) {
        return source.status().with_prefix(
            str_cat("input ", k, " \"", proto.input(k).substr(0, 256), "\""));
      }
      inherits |= !source->in_graph;
      if (source->index < 0) {
        node.control_inputs.push_back(*source);
      } else if (!node.control_inputs.empty()) {
        return invalid_argument("input ", k, " \"", proto.input(k),
                                "\": expected only control inputs after the first control input, "
                                "found a data input");
      } else {
        node.inputs.push_back(*source);
      }
    }
    if (!inherits) {
      for (NodeId id : options_.control_dependencies) node.control_inputs.push_back({id, -1, true});
    }
    return ok_status();
  }

  Result<Source> read_input(std::string_view text) {
    MR_TRY_ASSIGN(TensorName name, parse_tensor_name(text));
    auto mapped = input_map_.find({name.node, name.index});
    if (mapped == input_map_.end()) return find_node(name);
    mapped->second.second = true;
    return mapped->second.first;
  }

  // A key that names nothing is most likely misspelt.
  Status check_input_map() const {
    for (const auto& [key, value] : input_map_) {
      if (!value.second && !numbers_.contains(key.first)) {
        return invalid_argument(
            "input_map \"", key.first, ":", key.second,
            "\": expected a tensor of the imported graph, found none of that name");
      }
    }
    return ok_status();
  }

  Result<std::vector<Source>> read_return_outputs() {
    std::vector<Source> outputs;
    GraphAssembly::Pending caller;
    caller.op = "import";
    for (const std::string& text : options_.return_outputs) {
      caller.name = text;
      Result<Source> source = read_input(text);
      if (source.ok() && source->index < 0)
        source = invalid_argument("expected a tensor, found a control input");
      if (!source.ok())
        return source.status().with_prefix(str_cat("return_outputs \"", text, "\""));
      MR_TRY(assembly_.need_output(caller, "return_outputs", *source));
      outputs.push_back(*source);
    }
    return outputs;
  }

  Status commit() {
    if (def_.has_versions()) {
      graph_.set_producer_version(
          graph_.num_nodes() == 0 ? producer_ : std::min(producer_, graph_.producer_version()));
    }
    for (const auto& [name, function] : functions_) MR_TRY(graph_.functions().add(function));
    return assembly_.commit();
  }

  const tensorflow::GraphDef& def_;
  const ImportOptions& options_;
  const OpDefs* producer_ops_;  // null: not known
  Graph& graph_;
  ImportBudget budget_;
  GraphAssembly::Functions functions_;
  GraphAssembly assembly_;
  int producer_ = 0;
  std::string prefix_;                                                        // with '/', or empty
  std::map<std::pair<std::string, int>, std::pair<Source, bool>> input_map_;  // whether it was used
  std::unordered_map<std::string_view, int32_t> numbers_;  // by name in the imported graph
  std::vector<std::string> names_;
  std::vector<std::string> unknown_ops_;
};

// Keeps the first message of the text parser.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& text) override {
    if (message.empty()) message = str_cat("line ", line + 1, ", column ", column + 1, ": ", text);
  }
  std::string message;
};

}  // namespace

Result<ImportResult> import_graph_def(const tensorflow::GraphDef& def, const ImportOptions& options,
                                      Graph& graph) {
  return Importer(def, options, nullptr, graph).run();
}

Result<ImportResult> import_graph_def_bytes(std::string_view bytes, const ImportOptions& options,
                                            Graph& graph) {
  if (bytes.size() > INT_MAX) {
    return invalid_argument("expected a GraphDef of at most ", INT_MAX, " bytes, found ",
                            bytes.size());
  }
  tensorflow::GraphDef def;
  bool parsed;
  {
    google::protobuf::LogSilencer silence;
    parsed = def.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  }
  if (!parsed) {
    return invalid_argument("expected a serialised GraphDef, found ", bytes.size(),
                            " bytes that are none");
  }
  return import_graph_def(def, options, graph);
}

Result<ImportResult> import_graph_def_text(std::string_view text, const ImportOptions& options,
                                           Graph& graph) {
  if (text.size() > INT_MAX) {
    return invalid_argument("expected a GraphDef of at most ", INT_MAX, " bytes, found ",
                            text.size());
  }
  constexpr int kMaxTextDepth = 400;
  FirstError errors;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&errors);
  parser.SetRecursionLimit(kMaxTextDepth);
  tensorflow::GraphDef def;
  bool parsed;
  {
    google::protobuf::LogSilencer silence;
    parsed = parser.ParseFromString(std::string(text), &def);
  }
  if (!parsed) return invalid_argument("expected a GraphDef in text form: ", errors.message);
  return import_graph_def(def, options, graph);
}

Result<ImportResult> import_meta_graph(const tensorflow::MetaGraphDef& meta,
                                       const ImportOptions& options, Graph& graph) {
  OpDefs ops;
  ImportBudget budget = {options.max_constant_bytes};
  for (const auto& proto : meta.meta_info_def().stripped_op_list().op()) {
    MR_TRY_ASSIGN(OpDef op, op_def_from_proto(proto, budget));
    std::string name = op.name;
    ops.insert_or_assign(std::move(name), std::move(op));
  }
  return Importer(meta.graph_def(), options, &ops, graph).run();
}

}  // namespace millrace
