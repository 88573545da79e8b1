#include "millrace/graph/function_body.h"

#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "millrace/graph/graph_assembly.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/message_conversion.h"

namespace millrace {
namespace {

// Attribute values that may stand inside functions of attributes, after substitution, in one body:
// handing a value on twice in each of many functions would otherwise double it each time.
constexpr int64_t kMaxNestedValues = int64_t{1} << 20;

// Puts the values of the signature's attributes in the place of placeholders.
class Substitution {
 public:
  explicit Substitution(const AttrMap& values) : values_(values) {}

  Status apply(AttrMap& attrs, int depth = 0) {
    AttrMap out;
    for (const auto& [name, value] : attrs) {
      Result<AttrValue> replaced = replace(value, depth);
      if (!replaced.ok()) return replaced.status().with_prefix(str_cat("attribute \"", name, "\""));
      out.set(name, *std::move(replaced));
    }
    attrs = std::move(out);
    return ok_status();
  }

 private:
  Status charge(int64_t values) {
    if (values < 0 || values > left_) {
      return invalid_argument("expected at most ", kMaxNestedValues, " values in ", kMaxAttrDepth,
                              " levels of functions, found more");
    }
    left_ -= values;
    return ok_status();
  }

  Result<AttrValue> replace(const AttrValue& value, int depth) {
    if (const auto* placeholder = value.get<AttrPlaceholder>()) {
      const AttrValue* found = values_.find(placeholder->name);
      if (found == nullptr) {
        return invalid_argument("expected the name of an attribute of the signature, found \"",
                                placeholder->name, "\"");
      }
      int64_t nested = nested_values(*found, left_);
      MR_TRY(charge(nested));
      return *found;
    }
    if (const auto* function = value.get<FunctionAttr>()) {
      MR_TRY_ASSIGN(FunctionAttr out, replace(*function, depth));
      return out;
    }
    if (const auto* list = value.get<std::vector<FunctionAttr>>()) {
      std::vector<FunctionAttr> out;
      for (const FunctionAttr& function : *list) {
        MR_TRY_ASSIGN(out.emplace_back(), replace(function, depth));
      }
      return out;
    }
    return value;
  }

  Result<FunctionAttr> replace(const FunctionAttr& function, int depth) {
    MR_TRY(charge(depth >= kMaxAttrDepth ? -1 : 1 + static_cast<int64_t>(function.attrs.size())));
    FunctionAttr out = {function.name, function.attrs};
    MR_TRY(apply(out.attrs, depth + 1));
    return out;
  }

  const AttrMap& values_;
  int64_t left_ = kMaxNestedValues;
};

class BodyBuilder {
 public:
  BodyBuilder(const Function& function, const AttrMap& attrs, const OpRegistry& registry,
              Ref<FunctionLibrary> functions)
      : function_(function),
        attrs_(attrs),
        substitution_(attrs),
        body_(make_ref<FunctionBody>()),
        graph_(make_ref<Graph>(registry, std::move(functions))),
        assembly_(*graph_, no_functions_, budget_) {}

  Result<Ref<FunctionBody>> run() {
    for (const Function::BodyNode& node : function_.nodes) taken_.insert(node.name);
    MR_TRY(substitute());
    MR_TRY(check_functions());
    MR_TRY(define_args());
    MR_TRY(define_nodes());
    for (size_t i = 0; i < function_.nodes.size(); ++i) {
      Status status =
          connect(function_.nodes[i], assembly_.node(first_node_ + static_cast<int32_t>(i)));
      if (!status.ok()) return status.with_prefix(describe(function_.nodes[i]));
    }
    MR_TRY(define_results());
    MR_TRY(assembly_.check());
    MR_TRY(assembly_.commit());
    body_->graph = graph_;
    for (int32_t i : args_) body_->args.push_back(assembly_.node(i).id);
    for (int32_t i : results_) body_->results.push_back(assembly_.node(i).id);
    for (const auto& [name, node] : function_.control_returns) {
      auto it = numbers_.find(node);
      if (it == numbers_.end()) {
        return invalid_argument("control result \"", name,
                                "\": expected a node of the body, found \"", node, "\"");
      }
      body_->control_results.push_back(assembly_.node(it->second).id);
    }
    return body_;
  }

 private:
  using Source = GraphAssembly::Source;
  // The tensors that a name such as "node:out" stands for.
  struct Item {
    int32_t node;
    int32_t first;
    int32_t count;
    bool consecutive_nodes;  // a list argument: one node per tensor
    Source source(int32_t i) const {
      return consecutive_nodes ? Source{node + i, 0, false} : Source{node, first + i, false};
    }
  };

  static std::string describe(const Function::BodyNode& node) {
    return str_cat(node.op, " \"", node.name, "\"");
  }

  Status substitute() {
    for (const Function::BodyNode& node : function_.nodes) {
      node_attrs_.push_back(node.attrs);
      Status status = substitution_.apply(node_attrs_.back());
      if (!status.ok()) return status.with_prefix(describe(node));
    }
    return ok_status();
  }

  // Functions that came in through attributes count as called, too.
  Status check_functions() {
    auto find = [this](std::string_view name) { return graph_->functions().find(name); };
    std::vector<std::string> names;
    for (size_t i = 0; i < function_.nodes.size(); ++i) {
      names.push_back(function_.nodes[i].op);
      for (const auto& [name, value] : node_attrs_[i]) collect_functions(value, names);
    }
    const std::string& self = function_.signature.name;
    MR_TRY(check_no_recursion(std::span(&self, 1), find).status());
    MR_TRY_ASSIGN(std::vector<Ref<Function>> reached, check_no_recursion(names, find));
    for (const Ref<Function>& function : reached) {
      if (function->signature.name == self) {
        return invalid_argument("expected no function that reaches itself, found \"", self,
                                "\" called with itself as an attribute");
      }
    }
    return ok_status();
  }

  std::string unique_name(std::string name) {
    std::string base = name;
    for (int i = 1; !taken_.insert(name).second; ++i) name = str_cat(base, "_", i);
    return name;
  }

  Status define_args() {
    int64_t index = 0;
    for (size_t i = 0; i < function_.signature.inputs.size(); ++i) {
      const ArgDef& arg = function_.signature.inputs[i];
      MR_TRY_ASSIGN(std::vector<DType> types, expand_types({arg}, attrs_));
      int32_t count = static_cast<int32_t>(types.size());
      Item all = {assembly_.size(), 0, count, true};
      if (!items_.emplace(arg.name, all).second || taken_.contains(arg.name)) {
        return invalid_argument(
            "argument \"", arg.name,
            "\": expected a name of its own, found two arguments or nodes of that name");
      }
      if (count == 1) numbers_.emplace(arg.name, assembly_.size());
      for (int32_t k = 0; k < count; ++k) {
        items_.emplace(str_cat(arg.name, ":", k), Item{assembly_.size(), 0, 1, true});
        DType type = types[static_cast<size_t>(k)];
        GraphAssembly::Pending node;
        node.name = unique_name(count == 1 ? arg.name : str_cat(arg.name, "_", k));
        node.op = "_Arg";
        node.attrs.set("T", type);
        node.attrs.set("index", index++);
        for (const auto& [number, extra] : function_.arg_attrs) {
          if (number != static_cast<int>(i)) continue;
          for (const auto& [name, value] : extra) node.attrs.set(name, value);
        }
        MR_TRY_ASSIGN(int32_t number, define(std::move(node)));
        args_.push_back(number);
        body_->arg_types.push_back(type);
      }
    }
    return ok_status();
  }

  Result<int32_t> define(GraphAssembly::Pending node) {
    std::string op = node.op;
    std::string name = node.name;
    MR_TRY_ASSIGN(int32_t number, assembly_.define(std::move(node), kGraphVersion));
    if (assembly_.node(number).def == nullptr) {
      return not_found(op, " \"", name, "\": Op type not registered '", op, "'");
    }
    return number;
  }

  // All unknown ops are named at once.
  Status check_ops() {
    std::set<std::string> unknown;
    Ref<Function> callee;
    for (const Function::BodyNode& node : function_.nodes) {
      if (assembly_.find_op(node.op, callee) == nullptr) unknown.insert(node.op);
    }
    if (unknown.empty()) return ok_status();
    return not_found("Op type not registered '", str_join(unknown, "', '"), "'");
  }

  Status define_nodes() {
    MR_TRY(check_ops());
    MR_TRY(refuse_internal_ops(function_, graph_->registry()));
    first_node_ = assembly_.size();
    for (size_t i = 0; i < function_.nodes.size(); ++i) {
      const Function::BodyNode& spec = function_.nodes[i];
      GraphAssembly::Pending node;
      node.name = spec.name;
      node.op = spec.op;
      node.device = spec.device;
      node.attrs = std::move(node_attrs_[i]);
      node.origin = spec.origin;
      if (!is_valid_node_name(spec.name) || !numbers_.emplace(spec.name, assembly_.size()).second) {
        return invalid_argument(describe(spec), ": expected a valid name of its own, found \"",
                                spec.name, "\"");
      }
      MR_TRY_ASSIGN(int32_t number, define(std::move(node)));
      MR_TRY(add_outputs(number));
    }
    return ok_status();
  }

  // "node:out" for all tensors of an output, "node:out:i" for one of them.
  Status add_outputs(int32_t number) {
    const GraphAssembly::Pending& node = assembly_.node(number);
    int32_t first = 0;
    for (const ArgDef& output : node.def->outputs) {
      MR_TRY_ASSIGN(std::vector<DType> types, expand_types({output}, node.attrs));
      int32_t count = static_cast<int32_t>(types.size());
      std::string name = str_cat(node.name, ":", output.name);
      for (int32_t k = 0; k < count; ++k) {
        items_.emplace(str_cat(name, ":", k), Item{number, first + k, 1, false});
      }
      items_.emplace(std::move(name), Item{number, first, count, false});
      first += count;
    }
    return ok_status();
  }

  Status connect(const Function::BodyNode& spec, GraphAssembly::Pending& node) {
    // What a name of a list stands for counts for each time it is named.
    constexpr size_t kMaxInputs = size_t{1} << 20;
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      std::string_view text = spec.inputs[i];
      auto refuse = [&](std::string_view expected) {
        return invalid_argument("input ", i, " \"", text.substr(0, 256), "\": expected ", expected);
      };
      if (text.starts_with('^')) {
        std::string name(text.substr(1));
        auto it = numbers_.find(name);
        if (it == numbers_.end()) return refuse("a node of the body, found none of that name");
        node.control_inputs.push_back({it->second, -1, false});
        continue;
      }
      if (!node.control_inputs.empty()) {
        return refuse("only control inputs after the first control input, found a data input");
      }
      auto it = items_.find(std::string(text));
      if (it == items_.end()) {
        return refuse("an argument or an output of a node of the body, found none of that name");
      }
      if (node.inputs.size() + static_cast<size_t>(it->second.count) > kMaxInputs) {
        return refuse(str_cat("at most ", kMaxInputs, " tensors, found more"));
      }
      for (int32_t k = 0; k < it->second.count; ++k) node.inputs.push_back(it->second.source(k));
    }
    return ok_status();
  }

  Status define_results() {
    int64_t index = 0;
    std::unordered_map<std::string_view, std::string_view> sources;
    for (const auto& [name, source] : function_.returns) sources.emplace(name, source);
    for (const ArgDef& output : function_.signature.outputs) {
      MR_TRY_ASSIGN(std::vector<DType> types, expand_types({output}, attrs_));
      auto refuse = [&](const auto&... parts) {
        return invalid_argument("result \"", output.name, "\": ", parts...);
      };
      auto source = sources.find(output.name);
      if (source == sources.end()) return refuse("expected a tensor, found none");
      auto item = items_.find(std::string(source->second));
      if (item == items_.end()) {
        return refuse("expected an argument or an output of a node of the body, found \"",
                      source->second, "\"");
      }
      if (static_cast<size_t>(item->second.count) != types.size()) {
        return refuse("expected ", types.size(), " tensors, found ", item->second.count, " in \"",
                      source->second, "\"");
      }
      for (size_t k = 0; k < types.size(); ++k) {
        GraphAssembly::Pending node;
        node.name = unique_name(str_cat(output.name, "_RetVal"));
        node.op = "_Retval";
        node.attrs.set("T", types[k]);
        node.attrs.set("index", index++);
        node.inputs.push_back(item->second.source(static_cast<int32_t>(k)));
        MR_TRY_ASSIGN(int32_t number, define(std::move(node)));
        results_.push_back(number);
        body_->result_types.push_back(types[k]);
      }
    }
    return ok_status();
  }

  const Function& function_;
  const AttrMap& attrs_;
  Substitution substitution_;
  Ref<FunctionBody> body_;
  Ref<Graph> graph_;
  ImportBudget budget_;
  const GraphAssembly::Functions no_functions_;  // the graph's own library holds them
  GraphAssembly assembly_;
  std::vector<AttrMap> node_attrs_;  // with placeholders replaced
  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, Item> items_;
  std::unordered_map<std::string, int32_t> numbers_;  // of body nodes, and arguments of one tensor
  std::vector<int32_t> args_;
  std::vector<int32_t> results_;
  int32_t first_node_ = 0;
};

}  // namespace

Result<Ref<FunctionBody>> build_function_body(const Function& function, const AttrMap& attrs,
                                              const OpRegistry& registry,
                                              Ref<FunctionLibrary> functions) {
  return BodyBuilder(function, attrs, registry, std::move(functions)).run();
}

}  // namespace millrace
