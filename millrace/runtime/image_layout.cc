#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "millrace/kernel/device.h"
#include "millrace/runtime/min_cut.h"
#include "millrace/runtime/optimize.h"

// Computes images with their channels last where a program has them first (NCHW, NCDHW): kernels of
// the CPU like them so. Ops that say which of their tensors are images, what is elementwise, joins,
// cuts, pads or folds images, looks at their shapes, may each be done in either layout; feeds,
// fetches and all other ops have the one that the program gave them. Where the two meet, tensors
// are transposed. What is done in which layout is chosen so that the fewest elements are transposed
// in all, those among them that an op transposes itself: a cheapest cut. Transposes that the
// program has between the layouts are such borders already, and go where nothing needs them.

namespace millrace {
namespace {

// What a node that transposes costs besides its elements, in elements.
constexpr int64_t kNodeCost = 1000;
// What sizes that nobody knows are taken for.
constexpr int64_t kLikelySize = 16;
constexpr int64_t kMostElements = int64_t{1} << 36;

size_t index(NodeId id) { return static_cast<size_t>(id); }

// What an input or output is to its node.
enum class Role : uint8_t {
  kSame,          // not of an image
  kImage,         // an image, or a batch
  kPlanes,        // an image without the batch, broadcast with those that have one
  kPerDimension,  // an element or row for each dimension of images
  kNumbers,       // numbers dimensions of images; a constant
};
bool has_layout(Role role) { return role == Role::kImage || role == Role::kPerDimension; }

enum class Kind : uint8_t {
  kFixed,    // has the layout that it has
  kFree,     // may be computed in either
  kToLast,   // a transposition that puts channels last
  kToFirst,  // and one that puts them first
};

struct Roles {
  Kind kind = Kind::kFixed;
  int rank = 0;
  std::vector<Role> inputs = {}, outputs = {};
};

bool is_image_rank(int rank) { return rank == 4 || rank == 5; }

// The permutation that puts channels last, and the one that puts them first.
std::vector<int64_t> to_last(int rank) {
  std::vector<int64_t> out = {0};
  for (int i = 2; i < rank; ++i) out.push_back(i);
  out.push_back(1);
  return out;
}
std::vector<int64_t> to_first(int rank) {
  std::vector<int64_t> out = {0, rank - 1};
  for (int i = 1; i + 1 < rank; ++i) out.push_back(i);
  return out;
}
// The number that a dimension has when channels are last.
int64_t number_in_last(int64_t dim, int rank) {
  return dim == 0 ? 0 : dim == 1 ? rank - 1 : dim - 1;
}

template <class T>
std::vector<T> permuted(const std::vector<T>& list, const std::vector<int64_t>& permutation,
                        size_t each = 1) {
  std::vector<T> out;
  for (int64_t from : permutation) {
    for (size_t i = 0; i < each; ++i) out.push_back(list[static_cast<size_t>(from) * each + i]);
  }
  return out;
}

Result<Tensor> ints_like(const Tensor& like, const std::vector<int64_t>& values) {
  MR_TRY_ASSIGN(Tensor out, Tensor::allocate(like.dtype(), like.shape()));
  for (size_t i = 0; i < values.size(); ++i) {
    if (like.dtype() == DType::kInt32) {
      out.mutable_data<int32_t>()[i] = static_cast<int32_t>(values[i]);
    } else {
      out.mutable_data<int64_t>()[i] = values[i];
    }
  }
  return out;
}
// Of an int32 or int64 tensor; nothing of others.
std::optional<std::vector<int64_t>> ints_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::kInt32) {
    return std::vector<int64_t>{tensor.data<int32_t>().begin(), tensor.data<int32_t>().end()};
  }
  if (tensor.dtype() != DType::kInt64) return std::nullopt;
  return std::vector<int64_t>{tensor.data<int64_t>().begin(), tensor.data<int64_t>().end()};
}

// A constant: its value, and what a node that takes its place waits for, so that it is there at the
// same times.
struct Known {
  std::vector<int64_t> values;
  Tensor tensor;
  std::vector<NodeId> after;
};

class Layouts {
 public:
  explicit Layouts(Subgraph& graph) : graph_(graph) {}

  Result<bool> run() {
    if (!worth_a_look()) return false;
    uses_ = graph_.uses();
    MR_TRY_ASSIGN(facts_, graph_.facts());
    MR_TRY_ASSIGN(frames_, analyze_frames(graph_));
    roles_.reserve(index(graph_.size()));
    for (NodeId id = 0; id < graph_.size(); ++id) roles_.push_back(roles_of(id));
    choose();
    if (std::ranges::find(last_, true) == last_.end()) return false;
    return rewrite();
  }

 private:
  // Whether there is something that may be better off with channels last: for shapes are not free.
  bool worth_a_look() const {
    int borders = 0;
    for (const SubNode& node : graph_.nodes()) {
      if (node.erased) continue;
      if (format_rank(node) > 0) return true;
      borders += node.op->traits.permutes;
    }
    return borders > 1;
  }

  // The rank of images that an op has with channels first; 0 where it has none.
  static int format_rank(const SubNode& node) {
    if (node.op->traits.image_inputs == 0 && node.op->traits.image_outputs == 0) return 0;
    const Result<std::string> format = node.attr<std::string>("data_format");
    if (!format.ok()) return 0;
    return *format == "NCHW" ? 4 : *format == "NCDHW" ? 5 : 0;
  }

  const PartialShape& shape_of(Output o) const { return facts_->of(o).shape; }

  bool on_cpu(const SubNode& node) const {
    const Result<DeviceName>& name = graph_.devices().parsed(node.device);
    return name.ok() && name->type && *name->type == device_type(DeviceKind::kCpu);
  }

  // What can be said of any node: whether another may take its place.
  bool may_change(const SubNode& node) const {
    const OpTraits& t = node.op->traits;
    if (node.erased || node.op_owner || node.inputs.empty() || t.stateful || t.owns_state ||
        t.step_state || t.send || t.recv || t.control_flow != ControlFlow::kNone ||
        t.functional != FunctionalOp::kNone || !on_cpu(node)) {
      return false;
    }
    return std::ranges::none_of(node.output_types, is_ref) &&
           std::ranges::none_of(node.inputs,
                                [&](Output o) { return is_ref(graph_.output_type(o)); });
  }

  Roles roles_of(NodeId id) const {
    const SubNode& node = graph_.node(id);
    if (!may_change(node)) return {};
    const OpTraits& t = node.op->traits;
    std::optional<Roles> roles;
    if (t.permutes) return roles_of_transpose(id);
    if (t.image_inputs != 0 || t.image_outputs != 0) {
      roles = roles_of_image_op(id);
    } else if (t.metadata_only) {
      roles = roles_of_metadata(id);
    } else if (!t.dimensions_in.empty() || !t.each_dimension_in.empty()) {
      roles = roles_by_dimensions(id);
    } else if (t.elementwise) {
      roles = roles_of_elementwise(id);
    }
    if (!roles) return {};
    roles->kind = Kind::kFree;
    return *std::move(roles);
  }

  Roles roles_of_transpose(NodeId id) const {
    const SubNode& node = graph_.node(id);
    const SubNode& from = graph_.node(node.inputs[0].node);
    const auto waits = [](const Subgraph::Use& use) { return use.input < 0; };
    if (!node.control_inputs.empty() || node.attrs->find(kTargetAttr) != nullptr ||
        from.device != node.device || from.op->traits.control_flow == ControlFlow::kNextIteration ||
        std::ranges::any_of(uses_[index(id)], waits)) {
      return {};
    }
    const std::optional<Known> order = known(node.inputs[1], node.inputs[0].node);
    if (!order || order->tensor.rank() != 1) return {};
    const int rank = static_cast<int>(order->values.size());
    if (!is_image_rank(rank)) return {};
    if (order->values == to_last(rank)) return {.kind = Kind::kToLast, .rank = rank};
    if (order->values == to_first(rank)) return {.kind = Kind::kToFirst, .rank = rank};
    return {};
  }

  // The argument of the op that each input belongs to.
  static std::vector<size_t> arguments(const SubNode& node) {
    std::vector<size_t> out;
    for (size_t arg = 0; arg < node.op->inputs.size(); ++arg) {
      const ArgDef& def = node.op->inputs[arg];
      size_t count = 1;
      if (!def.number_attr.empty()) {
        const Result<int64_t> n = node.attr<int64_t>(def.number_attr);
        count = n.ok() ? static_cast<size_t>(*n) : 0;
      } else if (!def.type_list_attr.empty()) {
        const auto types = node.attr<std::vector<DType>>(def.type_list_attr);
        count = types.ok() ? types->size() : 0;
      }
      out.insert(out.end(), count, arg);
    }
    return out;
  }
  static bool has_bit(uint32_t bits, size_t i) { return i < 32 && (bits >> i & 1) != 0; }
  // Whether the argument is among those that `names` lists.
  static bool is_named(std::string_view names, const SubNode& node, size_t arg) {
    const std::string_view name = node.op->inputs[arg].name;
    while (!names.empty()) {
      const size_t comma = std::min(names.find(','), names.size());
      if (names.substr(0, comma) == name) return true;
      names.remove_prefix(std::min(comma + 1, names.size()));
    }
    return false;
  }
  // What slides windows over images works on them with channels last: given others it transposes
  // them itself, or takes as long as that would. Its images have the rank that windows have.
  static bool slides_windows(const SubNode& node) {
    return node.op->find_attr("strides") != nullptr;
  }

  std::optional<Roles> roles_of_image_op(NodeId id) const {
    const SubNode& node = graph_.node(id);
    const OpTraits& t = node.op->traits;
    Roles roles{.rank = format_rank(node)};
    if (roles.rank == 0 || !has_lists_of(node, static_cast<size_t>(roles.rank))) return {};
    // Others take whatever has channels.
    bool known_rank = slides_windows(node), other_rank = false;
    const auto note = [&](const PartialShape& shape) {
      known_rank |= shape.rank() == roles.rank;
      other_rank |= shape.rank_known() && shape.rank() != roles.rank;
    };
    const std::vector<size_t> args = arguments(node);
    if (args.size() != node.inputs.size()) return {};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const PartialShape& shape = shape_of(node.inputs[i]);
      Role role = Role::kSame;
      if (has_bit(t.image_inputs, i)) {
        role = Role::kImage;
        note(shape);
      } else if (is_named(t.each_dimension_in, node, args[i])) {
        if (!shape.rank_known() || shape.rank() < 1 || !shape.dim_known(0)) return {};
        // Sizes of the axes alone stay.
        if (shape.dim(0) == roles.rank) role = Role::kPerDimension;
      }
      roles.inputs.push_back(role);
    }
    for (size_t i = 0; i < node.output_types.size(); ++i) {
      const bool image = has_bit(t.image_outputs, i);
      if (image) note(shape_of({id, static_cast<int32_t>(i)}));
      roles.outputs.push_back(image ? Role::kImage : Role::kSame);
    }
    return known_rank && !other_rank ? std::optional(roles) : std::nullopt;
  }

  // Whether all lists among the attributes have an element, or two, for each dimension.
  static bool has_lists_of(const SubNode& node, size_t rank) {
    return std::ranges::all_of(node.op->attrs, [&](const AttrDef& attr) {
      if (attr.type != "list(int)") return true;
      const Result<std::vector<int64_t>> list = node.attr<std::vector<int64_t>>(attr.name);
      return list.ok() && (list->empty() || list->size() == rank || list->size() == 2 * rank);
    });
  }

  std::optional<Roles> roles_of_metadata(NodeId id) const {
    const SubNode& node = graph_.node(id);
    Roles roles{.rank = shape_of(node.inputs[0]).rank()};
    if (!is_image_rank(roles.rank)) return {};
    for (Output input : node.inputs) {
      if (shape_of(input).rank() != roles.rank) return {};
      roles.inputs.push_back(Role::kImage);
    }
    for (size_t i = 0; i < node.output_types.size(); ++i) {
      const PartialShape& shape = shape_of({id, static_cast<int32_t>(i)});
      if (!shape.rank_known() || shape.rank() > 1) return {};
      const bool listed = shape.rank() == 1;
      if (listed && shape.dim(0) != roles.rank) return {};
      roles.outputs.push_back(listed ? Role::kPerDimension : Role::kSame);
    }
    return roles;
  }

  std::optional<Roles> roles_by_dimensions(NodeId id) const {
    const SubNode& node = graph_.node(id);
    const OpTraits& t = node.op->traits;
    const std::vector<size_t> args = arguments(node);
    if (args.size() != node.inputs.size()) return {};
    Roles roles;
    for (size_t i = node.inputs.size(); i-- > 0;) {
      const PartialShape& shape = shape_of(node.inputs[i]);
      const bool listed = is_named(t.each_dimension_in, node, args[i]);
      if (listed && shape.rank_known() && shape.rank() > 0) {
        roles.rank = static_cast<int>(shape.dim(0));
      } else if (!node.op->inputs[args[i]].host && roles.rank <= 0) {
        roles.rank = shape.rank();
      }
    }
    if (!is_image_rank(roles.rank)) return {};
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const PartialShape& shape = shape_of(node.inputs[i]);
      Role role = Role::kSame;
      if (is_named(t.dimensions_in, node, args[i])) {
        role = Role::kNumbers;
        const std::optional<Known> given = known(node.inputs[i], id);
        if (!given || !add_dimensions(given->values, roles.rank, numbers)) return {};
      } else if (is_named(t.each_dimension_in, node, args[i])) {
        role = Role::kPerDimension;
        if (!shape.rank_known() || shape.rank() < 1 || shape.dim(0) != roles.rank) return {};
      } else if (!node.op->inputs[args[i]].host && shape.num_elements() != 1) {
        role = Role::kImage;
        if (shape.rank() != roles.rank) return {};
      }
      roles.inputs.push_back(role);
    }
    for (size_t i = 0; i < node.output_types.size(); ++i) {
      const int rank = shape_of({id, static_cast<int32_t>(i)}).rank();
      if (rank != roles.rank &&
          (rank < 0 || rank > roles.rank || !keeps_order(numbers, roles.rank)))
        return {};
      roles.outputs.push_back(rank == roles.rank ? Role::kImage : Role::kSame);
    }
    return roles;
  }

  // Adds those that are named, counted from the first; false where one is none.
  static bool add_dimensions(const std::vector<int64_t>& named, int rank,
                             std::vector<int64_t>& out) {
    for (int64_t dim : named) {
      if (dim < -rank || dim >= rank) return false;
      out.push_back(dim < 0 ? dim + rank : dim);
    }
    return true;
  }
  // Whether the dimensions that are left without these come in the same order in both layouts.
  static bool keeps_order(const std::vector<int64_t>& without, int rank) {
    const auto gone = [&](int64_t dim) { return std::ranges::find(without, dim) != without.end(); };
    if (gone(1)) return true;
    for (int64_t dim = 2; dim < rank; ++dim) {
      if (!gone(dim)) return false;
    }
    return true;
  }

  std::optional<Roles> roles_of_elementwise(NodeId id) const {
    const SubNode& node = graph_.node(id);
    Roles roles{.rank = shape_of({id, 0}).rank()};
    if (!is_image_rank(roles.rank)) return {};
    for (size_t i = 0; i < node.output_types.size(); ++i) {
      if (shape_of({id, static_cast<int32_t>(i)}).rank() != roles.rank) return {};
      roles.outputs.push_back(Role::kImage);
    }
    for (Output input : node.inputs) {
      const PartialShape& shape = shape_of(input);
      if (shape.num_elements() == 1) {
        roles.inputs.push_back(Role::kSame);
      } else if (shape.rank() == roles.rank) {
        roles.inputs.push_back(Role::kImage);
      } else if (shape.rank() == roles.rank - 1 && node.inputs.size() > 1) {
        roles.inputs.push_back(Role::kPlanes);
      } else {
        return {};
      }
    }
    return roles;
  }

  // The integers in a constant, which a node reads that also reads an output of `beside`.
  std::optional<Known> known(Output o, NodeId beside) const {
    const SubNode* from = &graph_.node(o.node);
    Known out;
    if (from->op->traits.control_flow == ControlFlow::kEnter) {
      // Into a loop, for every iteration.
      const Result<bool> every = from->attr<bool>("is_constant");
      if (!every.ok() || !*every || !from->control_inputs.empty()) return {};
      from = &graph_.node(from->inputs[0].node);
      if (!from->control_inputs.empty()) return {};
      out.after = {beside};
    } else {
      out.after = from->control_inputs;
    }
    if (!from->op->traits.constant) return {};
    Result<Tensor> value = from->attr<Tensor>("value");
    if (!value.ok() || value->rank() > 2) return {};
    std::optional<std::vector<int64_t>> ints = ints_of(*value);
    if (!ints) return {};
    out.values = *std::move(ints);
    out.tensor = *std::move(value);
    return out;
  }

  int64_t elements(Output o) const {
    static const PartialShape kUnknown = PartialShape::of_rank(4);
    const PartialShape& shape = shape_of(o);
    int64_t count = 1;
    for (int64_t dim : (shape.rank_known() ? shape : kUnknown).dims()) {
      count *= std::min(dim < 0 ? kLikelySize : dim, kMostElements);
      count = std::min(count, kMostElements);
    }
    return count;
  }
  // What it costs to have it in the other layout, too.
  int64_t cost(Output o, Role role) const {
    return role == Role::kPerDimension ? kNodeCost : kNodeCost + elements(o);
  }

  Role role_of(Output o) const {
    const Roles& roles = roles_[index(o.node)];
    return roles.kind == Kind::kFree ? roles.outputs[static_cast<size_t>(o.index)] : Role::kSame;
  }

  // Fills last_. On the source's side of the cut is what has its channels last.
  void choose() {
    MinCut cut;
    const int source = cut.add_vertex(), sink = cut.add_vertex();
    std::vector<int> vertex(roles_.size(), sink);
    for (size_t i = 0; i < roles_.size(); ++i) {
      if (roles_[i].kind == Kind::kFree) vertex[i] = cut.add_vertex();
    }
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (roles_[index(id)].kind == Kind::kFree) {
        add_cost_of(id, cut, source, vertex[index(id)], sink);
      }
      for (size_t k = 0; k < graph_.node(id).output_types.size(); ++k) {
        add_cost_between(Output{id, static_cast<int32_t>(k)}, cut, source, vertex, sink);
      }
    }
    const std::vector<bool> side = cut.source_side(source, sink);
    last_.resize(roles_.size());
    for (size_t i = 0; i < roles_.size(); ++i) {
      last_[i] = roles_[i].kind == Kind::kFree && side[static_cast<size_t>(vertex[i])];
    }
  }

  // What a node costs by itself, in one layout and in the other.
  void add_cost_of(NodeId id, MinCut& cut, int source, int vertex, int sink) const {
    const SubNode& node = graph_.node(id);
    const Roles& roles = roles_[index(id)];
    int64_t inside = 0, planes = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (roles.inputs[i] == Role::kImage) inside += elements(node.inputs[i]);
      if (roles.inputs[i] == Role::kPlanes) planes += constant_cost(node.inputs[i], Role::kPlanes);
    }
    for (size_t i = 0; i < roles.outputs.size(); ++i) {
      if (roles.outputs[i] == Role::kImage) inside += elements({id, static_cast<int32_t>(i)});
    }
    if (format_rank(node) > 0 && slides_windows(node)) cut.add_edge(source, vertex, inside);
    cut.add_edge(vertex, sink, planes);
  }
  // Of a constant nothing, since it is transposed before anything runs.
  int64_t constant_cost(Output o, Role role) const {
    return graph_.node(o.node).op->traits.constant ? 0 : cost(o, role);
  }

  // What a tensor costs that is made in one layout and read in the other.
  void add_cost_between(Output o, MinCut& cut, int source, const std::vector<int>& vertex,
                        int sink) const {
    const Kind kind = roles_[index(o.node)].kind;
    const Role role = kind == Kind::kToFirst ? Role::kImage : role_of(o);
    const int from = kind == Kind::kToFirst ? source
                     : has_layout(role)     ? vertex[index(o.node)]
                                            : sink;
    std::vector<int> readers;
    int64_t to_read_last = 0;
    for (const Subgraph::Use& use : uses_[index(o.node)]) {
      if (use.output != o.index) continue;
      const Roles& reader = roles_[index(use.node)];
      const size_t input = static_cast<size_t>(use.input);
      int to = sink;
      if (reader.kind == Kind::kToLast && input == 0) to = source;
      if (reader.kind == Kind::kFree && has_layout(reader.inputs[input])) {
        to = vertex[index(use.node)];
      }
      readers.push_back(to);
      if (to == sink) continue;
      const Role read = reader.kind == Kind::kFree ? reader.inputs[input] : Role::kImage;
      to_read_last = std::max(to_read_last, constant_cost(o, read));
    }
    const auto is_sink = [&](int v) { return v == sink; };
    if (from == sink && std::ranges::all_of(readers, is_sink)) return;
    if (from != sink) {
      const int turned = cut.add_vertex();
      cut.add_edge(from, turned, cost(o, role));
      for (int to : readers) cut.add_edge(turned, to, MinCut::kNever);
    }
    if (from != source) {
      const int turned = cut.add_vertex();
      cut.add_edge(turned, from, to_read_last);
      for (int to : readers) cut.add_edge(to, turned, to == sink ? 0 : MinCut::kNever);
    }
  }

  // Whether the tensor is there with channels last although the program has them first.
  bool is_last(Output o) const {
    return roles_[index(o.node)].kind == Kind::kToFirst ||
           (last_[index(o.node)] && role_of(o) == Role::kImage);
  }
  // Whether the node transposes what nobody needs to.
  bool is_bypassed(NodeId id) const {
    return roles_[index(id)].kind == Kind::kToLast && is_last(graph_.node(id).inputs[0]);
  }

  Result<bool> rewrite() {
    const NodeId size = graph_.size();
    std::vector<std::vector<Output>> inputs(index(size));
    for (NodeId id = 0; id < size; ++id) {
      if (graph_.node(id).erased || is_bypassed(id)) continue;
      for (size_t i = 0; i < graph_.node(id).inputs.size(); ++i) {
        MR_TRY_ASSIGN(const Output input, new_input(id, i));
        inputs[index(id)].push_back(input);
      }
    }
    for (NodeId id = 0; id < size; ++id) {
      SubNode& node = graph_.node(id);
      if (node.erased) continue;
      node.erased = is_bypassed(id);
      if (node.erased) continue;
      node.inputs = std::move(inputs[index(id)]);
      if (last_[index(id)]) MR_TRY(set_attrs(node, roles_[index(id)].rank));
    }
    graph_.compact();
    return true;
  }

  static Status set_attrs(SubNode& node, int rank) {
    const bool image_op = format_rank(node) > 0;
    const char* const format = rank == 4 ? "NHWC" : "NDHWC";
    node.set_attr(kLayoutAttr, str_cat("in ", format));
    if (!image_op) return ok_status();
    node.set_attr("data_format", format);
    for (const AttrDef& attr : node.op->attrs) {
      if (attr.type != "list(int)") continue;
      MR_TRY_ASSIGN(const std::vector<int64_t> list, node.attr<std::vector<int64_t>>(attr.name));
      if (list.empty()) continue;
      const size_t each = list.size() / static_cast<size_t>(rank);
      node.set_attr(attr.name, permuted(list, to_last(rank), each));
    }
    return ok_status();
  }

  Result<Output> new_input(NodeId id, size_t i) {
    const Output o = graph_.node(id).inputs[i];
    const Roles& roles = roles_[index(id)];
    if (!last_[index(id)]) return given(o);
    switch (roles.inputs[i]) {
      case Role::kSame:
        return given(o);
      case Role::kImage:
        return in_last(o, roles.rank, id);
      case Role::kPlanes: {
        MR_TRY_ASSIGN(const Output planes, given(o));
        std::vector<int64_t> order;
        for (int64_t dim = 1; dim + 1 < roles.rank; ++dim) order.push_back(dim);
        order.push_back(0);
        return transposed(planes, order, graph_.node(id).device, "planes");
      }
      case Role::kPerDimension:
        return listed_in_last(o, roles.rank, id);
      case Role::kNumbers: {
        Known numbers = *known(o, beside(id));
        for (int64_t& dim : numbers.values) {
          dim = number_in_last(dim < 0 ? dim + roles.rank : dim, roles.rank);
        }
        return add_constant(numbers, id);
      }
    }
    return o;
  }

  // The tensor as the program has it.
  Result<Output> given(Output o) {
    const Roles& roles = roles_[index(o.node)];
    if (is_bypassed(o.node)) return in_last(graph_.node(o.node).inputs[0], roles.rank, o.node);
    if (!last_[index(o.node)]) return o;
    const DeviceId device = graph_.node(o.node).device;
    if (role_of(o) == Role::kImage)
      return transposed(o, to_first(roles.rank), device, "channels_first");
    if (role_of(o) == Role::kPerDimension) {
      return gathered(o, to_first(roles.rank), device, "channels_first");
    }
    return o;
  }

  // An image with its channels last, for a reader.
  Result<Output> in_last(Output o, int rank, NodeId reader) {
    if (roles_[index(o.node)].kind == Kind::kToFirst) return given(graph_.node(o.node).inputs[0]);
    if (is_last(o)) return o;
    MR_TRY_ASSIGN(const Output first, given(o));
    return transposed(first, to_last(rank), graph_.node(reader).device, "channels_last");
  }

  Result<Output> listed_in_last(Output o, int rank, NodeId reader) {
    if (last_[index(o.node)] && role_of(o) == Role::kPerDimension) return o;
    MR_TRY_ASSIGN(const Output first, given(o));
    if (std::optional<Known> list = known(first, beside(reader))) {
      if (list->values.size() % static_cast<size_t>(rank) != 0) {
        return internal("no element or row for each dimension");
      }
      const size_t each = list->values.size() / static_cast<size_t>(rank);
      list->values = permuted(list->values, to_last(rank), each);
      return add_constant(*list, reader);
    }
    return gathered(first, to_last(rank), graph_.node(reader).device, "channels_last");
  }

  // A node of which another input comes that a reader has: in a loop, what is there in the same
  // iterations.
  NodeId beside(NodeId reader) const {
    const SubNode& node = graph_.node(reader);
    for (Output input : node.inputs) {
      if (graph_.node(input.node).op->traits.control_flow != ControlFlow::kEnter) return input.node;
    }
    return node.inputs[0].node;
  }

  // `o` with its dimensions in that order, made once for a device.
  Result<Output> transposed(Output o, const std::vector<int64_t>& order, DeviceId device,
                            std::string_view what) {
    return turned(o, order, device, what, [&](Output permutation) {
      const AttrMap attrs = {{"T", graph_.output_type(o)}, {"Tperm", DType::kInt32}};
      return add("Transpose", what, {o, permutation}, {}, attrs, o.node, device);
    });
  }
  // The same with the elements or rows of a list.
  Result<Output> gathered(Output o, const std::vector<int64_t>& order, DeviceId device,
                          std::string_view what) {
    return turned(o, order, device, what, [&](Output permutation) -> Result<Output> {
      MR_TRY_ASSIGN(const Output axis, constant(Tensor::scalar<int32_t>(0), o.node, device));
      const AttrMap attrs = {{"Tparams", graph_.output_type(o)},
                             {"Tindices", DType::kInt32},
                             {"Taxis", DType::kInt32}};
      return add("GatherV2", what, {o, permutation, axis}, {}, attrs, o.node, device);
    });
  }
  template <class Make>
  Result<Output> turned(Output o, const std::vector<int64_t>& order, DeviceId device,
                        std::string_view what, Make make) {
    const auto key = std::tuple(o.node, o.index, device, what);
    if (const auto at = turned_.find(key); at != turned_.end()) return at->second;
    std::vector<int32_t> numbers(order.begin(), order.end());
    MR_TRY_ASSIGN(const Output permutation,
                  constant(Tensor::vector(std::span<const int32_t>(numbers)), o.node, device));
    MR_TRY_ASSIGN(const Output made, make(permutation));
    turned_.emplace(key, made);
    return made;
  }

  // A constant for a node that reads `beside`.
  Result<Output> constant(Tensor value, NodeId beside, DeviceId device) {
    std::vector<NodeId> after;
    if (frames_.output_frame[index(beside)] != 0) after = {beside};
    const AttrMap attrs = {{"dtype", value.dtype()}, {"value", std::move(value)}};
    return add("Const", "order", {}, std::move(after), attrs, beside, device);
  }
  Result<Output> add_constant(const Known& known, NodeId reader) {
    MR_TRY_ASSIGN(Tensor value, ints_like(known.tensor, known.values));
    const AttrMap attrs = {{"dtype", value.dtype()}, {"value", std::move(value)}};
    return add("Const", "dimensions", {}, known.after, attrs, reader, graph_.node(reader).device);
  }
  Result<Output> add(std::string_view op, std::string_view what, std::vector<Output> inputs,
                     std::vector<NodeId> after, const AttrMap& attrs, NodeId origin,
                     DeviceId device) {
    std::string name = graph_.unique_name(str_cat(graph_.node(origin).name, "/", what));
    MR_TRY_ASSIGN(const NodeId id, graph_.add(std::move(name), op, std::move(inputs),
                                              std::move(after), attrs, device));
    graph_.node(id).origin = graph_.node(origin).origin;
    frames_.output_frame.push_back(frames_.output_frame[index(origin)]);
    return Output{id, 0};
  }

  Subgraph& graph_;
  // Of the nodes there were at first.
  std::vector<std::vector<Subgraph::Use>> uses_;
  const SubgraphFacts* facts_ = nullptr;
  FrameInfo frames_;
  std::vector<Roles> roles_;
  std::vector<bool> last_;  // computed with channels last
  // What was transposed, on which device, and to what.
  std::map<std::tuple<NodeId, int32_t, DeviceId, std::string_view>, Output> turned_;
};

}  // namespace

Result<bool> lay_out_images(Subgraph& graph, const OptimizeOptions&) {
  return Layouts(graph).run();
}

}  // namespace millrace
