#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "millrace/base/str_cat.h"
#include "millrace/kernel/device.h"
#include "millrace/runtime/optimize.h"
#include "millrace/tensor/dispatch.h"

// Lets a filter do what comes after it: where ops that scale and shift the channels of a
// convolution or a product read it one after the other, as a batch normalisation with given
// statistics does, the filter is scaled and one sum is left,
//
//   scale(conv(x, filter)) + shift  =  conv(x, filter * scale) + shift.
//
// Scale and shift come from copies of these ops themselves: the scale is what they make of ones
// when they shift by nothing, the shift what they make of zeros. Of constants that is folded; what
// would be computed in every step has to be less than what is saved.

namespace millrace {
namespace {

size_t index(NodeId id) { return static_cast<size_t>(id); }
bool has_bit(uint32_t bits, size_t i) { return i < 32 && (bits >> i & 1) != 0; }

// What scales or shifts the channels that come in at input `from`.
struct Link {
  NodeId node;
  size_t from;
};

// Where the channels are: dimension `dim` of what has `rank`, `count` of them, and the dimensions
// of the filter that number them, beginning with the first and 1 for each that does not.
struct Channels {
  int rank = 0;
  int dim = 0;
  int64_t count = 1;
  std::vector<int64_t> in_filter;
};

class Folder {
 public:
  Folder(Subgraph& graph, const OptimizeOptions& options)
      : graph_(graph),
        options_(options),
        kernels_(options.kernels != nullptr ? *options.kernels : KernelRegistry::global()) {}

  Result<bool> run() {
    std::vector<NodeId> filters;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!graph_.node(id).erased && graph_.node(id).op->traits.filter_channels != 0) {
        filters.push_back(id);
      }
    }
    if (filters.empty()) return false;
    uses_ = graph_.uses();
    std::erase_if(filters, [&](NodeId id) { return !scales(chain_behind(id)); });
    if (filters.empty()) return false;
    MR_TRY_ASSIGN(facts_, graph_.facts());
    MR_TRY_ASSIGN(const FrameInfo frames, analyze_frames(graph_));
    bool changed = false;
    for (NodeId id : filters) {
      if (frames.node_frame[index(id)] != 0) continue;
      std::vector<Link> chain = chain_behind(id);
      const std::optional<Channels> channels = channels_of(graph_.node(id), id);
      if (!channels) continue;
      const auto other =
          std::ranges::find_if(chain, [&](const Link& l) { return !is_by_channel(l, *channels); });
      chain.erase(other, chain.end());
      if (!scales(chain) || !pays(id, chain)) continue;
      if (!shifts(chain) && is_target(chain.back().node)) continue;
      MR_TRY(fold(id, chain, *channels));
      changed = true;
    }
    if (changed) graph_.compact();
    return changed;
  }

 private:
  bool is_target(NodeId id) const { return graph_.node(id).attrs->find(kTargetAttr) != nullptr; }

  // Those that read each other's output 0 and nobody else does, from the one that reads `id` on.
  std::vector<Link> chain_behind(NodeId id) const {
    std::vector<Link> chain;
    const SubNode& first = graph_.node(id);
    const DType type = first.output_types[0];
    static constexpr TypeSet kTypes = TypeSet{DType::kFloat, DType::kDouble} | kIntegers;
    if (!kTypes.contains(type)) return chain;
    for (NodeId at = id; !is_target(at) && uses_[index(at)].size() == 1;) {
      const Subgraph::Use use = uses_[index(at)][0];
      if (use.output != 0 || use.input < 0) break;
      const Link link{use.node, static_cast<size_t>(use.input)};
      const SubNode& node = graph_.node(link.node);
      const Result<bool> training = node.attr<bool>("is_training");
      const auto is_other = [&](DType t) { return t != type; };
      const auto reads_more = [](const Subgraph::Use& u) { return u.output > 0; };
      if (!has_bit(node.op->traits.affine_in, link.from) || (training.ok() && *training) ||
          node.device != first.device || std::ranges::any_of(node.input_types, is_other) ||
          std::ranges::any_of(uses_[index(link.node)], reads_more)) {
        break;
      }
      chain.push_back(link);
      at = link.node;
    }
    return chain;
  }

  // Whether input i of a link is one that its shift follows from.
  bool shifts_by(const Link& link, size_t i) const {
    return i != link.from && has_bit(graph_.node(link.node).op->traits.shifted_by, i);
  }
  bool shifts(const std::vector<Link>& chain) const {
    return std::ranges::any_of(chain, [&](const Link& link) {
      const size_t inputs = graph_.node(link.node).inputs.size();
      for (size_t i = 0; i < inputs; ++i) {
        if (shifts_by(link, i)) return true;
      }
      return false;
    });
  }
  bool scales(const std::vector<Link>& chain) const {
    return std::ranges::any_of(chain, [&](const Link& link) {
      const size_t inputs = graph_.node(link.node).inputs.size();
      for (size_t i = 0; i < inputs; ++i) {
        if (i != link.from && !shifts_by(link, i)) return true;
      }
      return false;
    });
  }

  const PartialShape& shape_of(Output o) const { return facts_->of(o).shape; }

  // The dimension that has the channels of an image of `rank`, or of anything else.
  static int channel_dim(const SubNode& node, bool image, int rank) {
    const Result<std::string> format = node.attr<std::string>("data_format");
    return image && rank >= 3 && format.ok() && format->starts_with("NC") ? 1 : rank - 1;
  }

  // Of what a filter gives; none where too little is known.
  std::optional<Channels> channels_of(const SubNode& node, NodeId id) const {
    const PartialShape &out = shape_of({id, 0}), &filter = shape_of(node.inputs[1]);
    if (!out.rank_known() || out.rank() < 2 || !filter.rank_known() || filter.rank() < 2 ||
        is_ref(graph_.output_type(node.inputs[1])) || node.input_types[1] != node.output_types[0]) {
      return std::nullopt;
    }
    Channels channels;
    channels.rank = out.rank();
    channels.dim = channel_dim(node, has_bit(node.op->traits.image_outputs, 0), out.rank());
    uint32_t bits = node.op->traits.filter_channels;
    for (const char* prefix : {"transpose_", "adj_"}) {
      const Result<bool> swaps = node.attr<bool>(str_cat(prefix, node.op->inputs[1].name));
      if (swaps.ok() && *swaps) bits = (bits & ~3U) | (bits & 1) << 1 | (bits >> 1 & 1);
    }
    for (int from_end = filter.rank() - 1; from_end >= 0; --from_end) {
      const bool counts = has_bit(bits, static_cast<size_t>(from_end));
      if (!counts && channels.in_filter.empty()) continue;
      const int64_t size = counts ? filter.dim(filter.rank() - 1 - from_end) : 1;
      if (size < 1 || __builtin_mul_overflow(channels.count, size, &channels.count)) {
        return std::nullopt;
      }
      channels.in_filter.push_back(size);
    }
    const bool fits = !out.dim_known(channels.dim) || out.dim(channels.dim) == channels.count;
    return fits ? std::optional(channels) : std::nullopt;
  }

  // Whether a link scales and shifts the same way wherever the channel is the same.
  bool is_by_channel(const Link& link, const Channels& channels) const {
    const SubNode& node = graph_.node(link.node);
    const OpTraits& t = node.op->traits;
    if (!t.elementwise &&
        channels.dim != channel_dim(node, has_bit(t.image_inputs, link.from), channels.rank)) {
      return false;
    }
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (i == link.from) continue;
      const PartialShape& shape = shape_of(node.inputs[i]);
      if (is_ref(graph_.output_type(node.inputs[i])) || !shape.fully_known() ||
          shape.rank() > channels.rank) {
        return false;
      }
      if (!t.elementwise && !(shape.rank() == 1 && shape.dim(0) == channels.count)) return false;
      for (int d = 0; t.elementwise && d < shape.rank(); ++d) {
        const bool spans = channels.rank - shape.rank() + d == channels.dim;
        if (shape.dim(d) != 1 && !(spans && shape.dim(d) == channels.count)) return false;
      }
    }
    return true;
  }

  // Whether `o` is a constant that is always there.
  bool is_constant(Output o) const {
    const SubNode& node = graph_.node(o.node);
    return node.op->traits.constant && node.control_inputs.empty();
  }

  // Constants cost nothing. Others do, in every step: elementwise ops would have run together with
  // what reads them anyway, so something else must go, and the filter be less than what it reads.
  bool pays(NodeId id, const std::vector<Link>& chain) const {
    const Output filter = graph_.node(id).inputs[1];
    const int64_t elements = shape_of(filter).num_elements();
    if (elements < 0) return false;
    bool constants = is_constant(filter) && on_cpu(graph_.node(id)) && options_.cpu != nullptr &&
                     elements * static_cast<int64_t>(dtype_size(graph_.output_type(filter))) <=
                         options_.max_constant_bytes;
    bool alone = false;
    for (const Link& link : chain) {
      const SubNode& node = graph_.node(link.node);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        constants = constants && (i == link.from || is_constant(node.inputs[i]));
      }
      alone |= node.op->traits.fused_by.empty();
    }
    return constants || (alone && elements < shape_of({id, 0}).num_elements());
  }

  // Where constants are folded.
  bool on_cpu(const SubNode& node) const {
    const Result<DeviceName>& name = graph_.devices().parsed(node.device);
    return name.ok() && (!name->type || *name->type == device_type(DeviceKind::kCpu)) &&
           kernels_.any("Mul", DeviceKind::kCpu, {{"T", node.output_types[0]}});
  }

  Status fold(NodeId id, const std::vector<Link>& chain, const Channels& channels) {
    const NodeId last = chain.back().node;
    const DType type = graph_.node(id).output_types[0];
    MR_TRY_ASSIGN(Output scale, add_uniform(id, "ones", channel_shape(channels), 1));
    for (const Link& link : chain) {
      std::vector<Output> inputs = graph_.node(link.node).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!shifts_by(link, i)) continue;
        MR_TRY_ASSIGN(inputs[i], add_uniform(id, "no_shift", shape_of(inputs[i]), 0));
      }
      inputs[link.from] = scale;
      scale = add_copy(link.node, "scale", std::move(inputs));
    }
    std::optional<Output> shift;
    if (shifts(chain)) {
      MR_TRY_ASSIGN(shift, add_uniform(id, "zeros", channel_shape(channels), 0));
      for (const Link& link : chain) {
        std::vector<Output> inputs = graph_.node(link.node).inputs;
        inputs[link.from] = *shift;
        shift = add_copy(link.node, "shift", std::move(inputs));
      }
    }
    MR_TRY_ASSIGN(scale, add_in_filters_shape(id, scale, channels));
    const Output filter = graph_.node(id).inputs[1];
    MR_TRY_ASSIGN(const Output scaled,
                  add(id, "Mul", "scaled_filter", {filter, scale}, {{"T", type}}));
    graph_.node(id).inputs[1] = scaled;

    std::vector<NodeId> controls;
    std::vector<std::string> names;
    for (const Link& link : chain) {
      SubNode& node = graph_.node(link.node);
      controls.insert(controls.end(), node.control_inputs.begin(), node.control_inputs.end());
      names.push_back(node.name);
      node.erased = link.node != last || !shift;
    }
    graph_.node(id).set_attr(kInFilterAttr,
                             str_cat("has ", str_join(names, ", "), " in its filter"));
    if (shift) return become_sum(last, {id, 0}, *shift, std::move(controls));
    read_instead(last, id);
    wait_for(graph_.node(id), std::move(controls));
    return ok_status();
  }

  // What is left of a chain: the sum of what its filter gives now and the shift.
  Status become_sum(NodeId last, Output x, Output shift, std::vector<NodeId> controls) {
    SubNode sum = graph_.node(last);
    AttrMap attrs = {{"T", sum.output_types[0]}};
    if (const AttrValue* target = sum.attrs->find(kTargetAttr)) attrs.set(kTargetAttr, *target);
    MR_TRY_ASSIGN(sum.op, graph_.registry().lookup("AddV2"));
    MR_TRY(check_attrs(*sum.op, attrs));
    sum.op_owner = {};
    sum.input_types = {sum.output_types[0], sum.output_types[0]};
    sum.output_types.resize(1);
    sum.attrs = std::make_shared<const AttrMap>(std::move(attrs));
    sum.inputs = {x, shift};
    sum.control_inputs.clear();
    wait_for(sum, std::move(controls));
    graph_.node(last) = std::move(sum);
    return ok_status();
  }

  // Those who read `from`, or wait for it, read or wait for `to` instead.
  void read_instead(NodeId from, NodeId to) {
    for (const Subgraph::Use& use : uses_[index(from)]) {
      SubNode& reader = graph_.node(use.node);
      if (use.input >= 0) {
        reader.inputs[static_cast<size_t>(use.input)] = {to, 0};
      } else {
        std::ranges::replace(reader.control_inputs, from, to);
      }
    }
    uses_[index(to)] = uses_[index(from)];
  }

  static void wait_for(SubNode& node, std::vector<NodeId> more) {
    std::vector<NodeId>& all = node.control_inputs;
    all.insert(all.end(), more.begin(), more.end());
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
  }

  // One number for each channel, where an image has it.
  static PartialShape channel_shape(const Channels& channels) {
    std::vector<int64_t> dims(static_cast<size_t>(channels.rank), 1);
    dims[static_cast<size_t>(channels.dim)] = channels.count;
    return PartialShape(Shape::make(dims).value());
  }

  Result<Output> add_in_filters_shape(NodeId id, Output scale, const Channels& channels) {
    if (channels.in_filter.size() == 1 && channels.dim == channels.rank - 1 &&
        channels.rank <= shape_of(graph_.node(id).inputs[1]).rank()) {
      return scale;
    }
    MR_TRY_ASSIGN(const Output shape,
                  add_constant(id, "filter_channels",
                               Tensor::vector(std::span<const int64_t>(channels.in_filter))));
    return add(id, "Reshape", "filter_scale", {scale, shape},
               {{"T", graph_.output_type(scale)}, {"Tshape", DType::kInt64}});
  }

  Result<Output> add_uniform(NodeId beside, std::string_view what, const PartialShape& shape,
                             int value) {
    MR_TRY_ASSIGN(const Shape known, shape.to_shape());
    MR_TRY_ASSIGN(Tensor tensor, Tensor::zeros(graph_.node(beside).output_types[0], known));
    using Types = ConcatTypes<TypeList<float, double>, IntegerTypes>;
    MR_TRY(dispatch<Types>(tensor.dtype(), [&]<class T>() {
      std::ranges::fill(tensor.mutable_data<T>(), static_cast<T>(value));
    }));
    return add_constant(beside, what, std::move(tensor));
  }
  Result<Output> add_constant(NodeId beside, std::string_view what, Tensor value) {
    const DType type = value.dtype();
    return add(beside, "Const", what, {}, {{"dtype", type}, {"value", std::move(value)}});
  }
  Result<Output> add(NodeId beside, std::string_view op, std::string_view what,
                     std::vector<Output> inputs, AttrMap attrs) {
    std::string name = graph_.unique_name(str_cat(graph_.node(beside).name, "/", what));
    const DeviceId device = graph_.node(beside).device;
    MR_TRY_ASSIGN(const NodeId id,
                  graph_.add(std::move(name), op, std::move(inputs), {}, std::move(attrs), device));
    graph_.node(id).origin = graph_.node(beside).origin;
    return Output{id, 0};
  }
  // The node with other inputs; the sum that is left waits for what it waits for.
  Output add_copy(NodeId id, std::string_view what, std::vector<Output> inputs) {
    SubNode copy = graph_.node(id);
    copy.name = graph_.unique_name(str_cat(copy.name, "/", what));
    copy.inputs = std::move(inputs);
    copy.control_inputs.clear();
    AttrMap attrs;
    for (const AttrDef& def : copy.op->attrs) attrs.set(def.name, *copy.attrs->find(def.name));
    copy.attrs = std::make_shared<const AttrMap>(std::move(attrs));
    return {graph_.add(std::move(copy)), 0};
  }

  Subgraph& graph_;
  const OptimizeOptions& options_;
  const KernelRegistry& kernels_;
  std::vector<std::vector<Subgraph::Use>> uses_;  // of the nodes there were at first
  const SubgraphFacts* facts_ = nullptr;
};

}  // namespace

Result<bool> fold_batch_norms(Subgraph& graph, const OptimizeOptions& options) {
  return Folder(graph, options).run();
}

}  // namespace millrace
