#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "millrace/runtime/node_device.h"
#include "millrace/runtime/optimize.h"

// The sum of nodes whose op says what computes such a sum (trait summed_by), without the terms.
// The gradient of a weight that is used many times is one: a product, of the weight's size, for
// each time. That op takes a list of M other terms first, the first of which it may overwrite; so a
// loop that adds a product to what it has in every iteration needs no memory for the product.

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }

struct Term {
  Output value;
  NodeId sum;  // that adds it up
};

class Summer {
 public:
  Summer(Subgraph& graph, const OptimizeOptions& options)
      : graph_(graph),
        kernels_(options.kernels != nullptr ? *options.kernels : KernelRegistry::global()) {}

  Result<bool> run() {
    std::vector<NodeId> sums;
    bool products = false;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      if (node.op->traits.aggregate && !is_ref(node.output_types[0])) sums.push_back(id);
      products |= !node.op->traits.summed_by.empty();
    }
    if (sums.empty() || !products) return false;
    uses_ = graph_.uses();
    bool changed = false;
    for (NodeId id : sums) {
      // A part of another sum is looked at with that.
      if (const std::optional<NodeId> whole = only_reader(id); whole && is_part(id, *whole)) {
        continue;
      }
      collect(id);
      MR_TRY_ASSIGN(const bool rewritten, rewrite(id));
      changed |= rewritten;
    }
    return changed;
  }

 private:
  // The one that reads a node's only output, once, when nobody else asks for the node.
  std::optional<NodeId> only_reader(NodeId id) const {
    const SubNode& node = graph_.node(id);
    const std::vector<Subgraph::Use>& uses = uses_[index(id)];
    if (node.erased || node.output_types.size() != 1 || uses.size() != 1 || uses[0].input < 0 ||
        node.attrs->find(kTargetAttr) != nullptr) {
      return std::nullopt;
    }
    return uses[0].node;
  }

  bool is_part(NodeId id, NodeId whole) const {
    const SubNode &part = graph_.node(id), &sum = graph_.node(whole);
    return part.op == sum.op && part.device == sum.device && part.output_types == sum.output_types;
  }

  // Terms of a sum, those of its parts among them, and what the parts wait for.
  void collect(NodeId whole) {
    terms_.clear();
    control_inputs_.clear();
    std::vector<NodeId> sums = {whole};
    while (!sums.empty()) {
      const NodeId sum = sums.back();
      sums.pop_back();
      for (Output input : graph_.node(sum).inputs) {
        const SubNode& term = graph_.node(input.node);
        if (term.op->traits.aggregate && only_reader(input.node) == sum &&
            is_part(input.node, sum)) {
          control_inputs_.insert(control_inputs_.end(), term.control_inputs.begin(),
                                 term.control_inputs.end());
          sums.push_back(input.node);
        } else {
          terms_.push_back({input, sum});
        }
      }
    }
  }

  // Not a reference: a variable that is read at another time may have changed.
  bool is_value(Output output) const { return !is_ref(graph_.output_type(output)); }

  bool is_product(const Term& term, const SubNode& sum) const {
    const SubNode& node = graph_.node(term.value.node);
    return !node.op->traits.summed_by.empty() && only_reader(term.value.node) == term.sum &&
           node.device == sum.device &&
           std::ranges::all_of(node.inputs, [&](Output input) { return is_value(input); });
  }

  bool alike(const SubNode& a, const SubNode& b) const {
    return a.op == b.op && std::ranges::all_of(a.op->attrs, [&](const AttrDef& attr) {
             return *a.attrs->find(attr.name) == *b.attrs->find(attr.name);
           });
  }

  // What a loop adds to in every iteration: the sum may take its place in memory.
  bool is_accumulator(const Term& term) const {
    const ControlFlow kind = graph_.node(term.value.node).op->traits.control_flow;
    return kind == ControlFlow::kSwitch || kind == ControlFlow::kMerge;
  }

  Result<bool> rewrite(NodeId sum) {
    std::vector<std::vector<Term>> products;
    std::vector<Output> others;
    bool accumulates = false;
    for (const Term& term : terms_) {
      if (!is_product(term, graph_.node(sum))) {
        if (!is_value(term.value)) return false;
        const bool accumulator = is_accumulator(term);
        others.insert(accumulator ? others.begin() : others.end(), term.value);
        accumulates |= accumulator;
        continue;
      }
      const SubNode& node = graph_.node(term.value.node);
      const auto group = std::ranges::find_if(products, [&](const std::vector<Term>& alike_ones) {
        return alike(graph_.node(alike_ones[0].value.node), node);
      });
      if (group != products.end()) {
        group->push_back(term);
      } else {
        products.push_back({term});
      }
    }
    const size_t worthwhile = accumulates ? 1 : 2;
    std::erase_if(products, [&](const std::vector<Term>& group) {
      if (group.size() >= worthwhile && has_kernel_for(group)) return false;
      for (const Term& term : group) others.push_back(term.value);
      return true;
    });
    if (products.empty()) return false;
    for (const std::vector<Term>& group : products) {
      MR_TRY_ASSIGN(const Output all, add_sum_of(others, group, sum));
      others = {all};
    }
    read(graph_.node(sum), others[0]);
    return true;
  }

  // The attributes of the node that sums `terms` others and the products of `group`.
  AttrMap attrs_for(size_t terms, const std::vector<Term>& group) const {
    const SubNode& first = graph_.node(group[0].value.node);
    AttrMap attrs = {{"M", static_cast<int64_t>(terms)}, {"N", static_cast<int64_t>(group.size())}};
    for (const AttrDef& attr : first.op->attrs) attrs.set(attr.name, *first.attrs->find(attr.name));
    return attrs;
  }

  bool has_kernel_for(const std::vector<Term>& group) const {
    const SubNode& first = graph_.node(group[0].value.node);
    const std::optional<DeviceKind> kind = device_kind(graph_, first);
    return kind && kernels_.any(first.op->traits.summed_by, *kind, attrs_for(0, group));
  }

  Result<Output> add_sum_of(const std::vector<Output>& others, const std::vector<Term>& group,
                            NodeId sum) {
    const SubNode& first = graph_.node(group[0].value.node);
    std::vector<Output> inputs = others;
    for (size_t i = 0; i < first.inputs.size(); ++i) {
      for (const Term& term : group) inputs.push_back(graph_.node(term.value.node).inputs[i]);
    }
    std::vector<NodeId> control_inputs;
    for (const Term& term : group) {
      const std::vector<NodeId>& more = graph_.node(term.value.node).control_inputs;
      control_inputs.insert(control_inputs.end(), more.begin(), more.end());
    }
    sort_unique(control_inputs);
    const OriginId origin = first.origin;
    MR_TRY_ASSIGN(const NodeId added,
                  graph_.add(graph_.unique_name(graph_.node(sum).name), first.op->traits.summed_by,
                             std::move(inputs), std::move(control_inputs),
                             attrs_for(others.size(), group), first.device));
    graph_.node(added).origin = origin;
    return Output{added, 0};
  }

  // The sum has this one term from now on.
  void read(SubNode& sum, Output term) const {
    sum.set_attr(sum.op->inputs[0].number_attr, int64_t{1});
    sum.input_types = {sum.output_types[0]};
    sum.inputs = {term};
    sum.control_inputs.insert(sum.control_inputs.end(), control_inputs_.begin(),
                              control_inputs_.end());
    sort_unique(sum.control_inputs);
  }

  static void sort_unique(std::vector<NodeId>& ids) {
    std::ranges::sort(ids);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  }

  Subgraph& graph_;
  const KernelRegistry& kernels_;
  std::vector<std::vector<Subgraph::Use>> uses_;  // of the nodes there were at first
  // Of the sum that is looked at.
  std::vector<Term> terms_;
  std::vector<NodeId> control_inputs_;
};

}  // namespace

Result<bool> sum_products_at_once(Subgraph& graph, const OptimizeOptions& options) {
  return Summer(graph, options).run();
}

}  // namespace millrace
