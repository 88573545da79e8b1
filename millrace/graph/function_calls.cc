#include "millrace/graph/function_calls.h"

#include <algorithm>
#include <map>
#include <utility>

#include "millrace/graph/internal_op.h"
#include "millrace/graph/message_conversion.h"
#include "proto/function.pb.h"

namespace millrace {
namespace {

void sort_unique(std::vector<std::string>& names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
}

// A function on the way from a root, and which of its calls comes next.
struct Frame {
  std::string name;
  std::vector<std::string> calls;
  size_t next = 0;
};

Status recursion_error(const std::vector<Frame>& path, const std::string& name) {
  constexpr size_t kShown = 8;
  size_t start = 0;
  while (path[start].name != name) ++start;
  std::string way = name;
  for (size_t i = start + 1; i < path.size() && i < start + kShown; ++i)
    way += " -> " + path[i].name;
  if (path.size() > start + kShown) way += " -> ...";
  return invalid_argument("function \"", name,
                          "\": expected no function that reaches itself, found ", way, " -> ",
                          name);
}

}  // namespace

void collect_functions(const AttrValue& value, std::vector<std::string>& names) {
  // A list of what is still to look at, instead of recursion: values made in code nest at will.
  std::vector<const AttrValue*> left = {&value};
  auto visit = [&](const FunctionAttr& function) {
    names.push_back(function.name);
    for (const auto& [name, nested] : function.attrs) left.push_back(&nested);
  };
  while (!left.empty()) {
    const AttrValue* at = left.back();
    left.pop_back();
    if (const auto* function = at->get<FunctionAttr>()) visit(*function);
    if (const auto* list = at->get<std::vector<FunctionAttr>>()) {
      for (const FunctionAttr& function : *list) visit(function);
    }
  }
}

std::vector<std::string> called_names(const Function& function) {
  std::vector<std::string> names;
  for (const Function::BodyNode& node : function.nodes) {
    names.push_back(node.op);
    for (const auto& [name, value] : node.attrs) collect_functions(value, names);
  }
  for (const AttrDef& attr : function.signature.attrs) collect_functions(attr.default_value, names);
  sort_unique(names);
  return names;
}

Result<std::vector<Ref<Function>>> check_no_recursion(std::span<const std::string> roots,
                                                      FindFunction find) {
  std::vector<Ref<Function>> reached;
  std::map<std::string, bool, std::less<>> done;  // false: still on the path
  std::vector<Frame> path;
  auto enter = [&](const std::string& name) {
    Ref<Function> function = find(name);
    if (!function) return;
    done.emplace(name, false);
    path.push_back({name, called_names(*function)});
    reached.push_back(std::move(function));
  };
  for (const std::string& root : roots) {
    if (!done.contains(root)) enter(root);
    while (!path.empty()) {
      Frame& at = path.back();
      if (at.next == at.calls.size()) {
        done[at.name] = true;
        path.pop_back();
        continue;
      }
      const std::string name = at.calls[at.next++];
      auto it = done.find(name);
      if (it == done.end()) {
        enter(name);
      } else if (!it->second) {
        return recursion_error(path, name);
      }
    }
  }
  return reached;
}

Status refuse_internal_ops(const Function& function, const OpRegistry& registry) {
  for (const Function::BodyNode& node : function.nodes) {
    Status status = refuse_internal_op(registry, node.op);
    if (status.ok()) continue;
    return status.with_prefix(
        str_cat("function \"", function.signature.name, "\": ", node.op, " \"", node.name, "\""));
  }
  return ok_status();
}

bool same_function(const Function& a, const Function& b) {
  if (&a == &b) return true;
  tensorflow::FunctionDef pa, pb;
  if (!write_function_def(a, pa).ok() || !write_function_def(b, pb).ok()) return false;
  return a.gradient == b.gradient && deterministic_bytes(pa) == deterministic_bytes(pb);
}

}  // namespace millrace
