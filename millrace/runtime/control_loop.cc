#include "millrace/runtime/control_loop.h"

namespace millrace {
namespace {

// On the Merge of a control loop, whose name begins so: no client can write such a name.
constexpr std::string_view kMark = "_control_loop";
constexpr std::string_view kPrefix = "_cloop";

size_t index(NodeId id) { return static_cast<size_t>(id); }

class LoopBuilder {
 public:
  LoopBuilder(Subgraph& graph, std::span<const int> part_of) : graph_(graph), part_of_(part_of) {}

  Result<ControlLoops> run() {
    MR_TRY_ASSIGN(FrameInfo info, analyze_frames(graph_));
    frames_ = std::move(info.frames);
    loops_.output_frame = std::move(info.output_frame);
    if (frames_.size() == 1) return std::move(loops_);
    find_existing(info.node_frame);
    find_split_frames();
    // Nodes are added below; only the edges there were count.
    int size = graph_.size();
    for (NodeId id = 0; id < size; ++id) {
      if (graph_.node(id).erased) continue;
      for (NodeId from : sources(id)) MR_TRY(add_for_edge(from, id));
    }
    return std::move(loops_);
  }

 private:
  DeviceId device(NodeId id) const { return graph_.node(id).device; }
  int part(NodeId id) const { return part_of_[static_cast<size_t>(device(id))]; }

  std::vector<NodeId> sources(NodeId id) const {
    const SubNode& node = graph_.node(id);
    std::vector<NodeId> out = node.control_inputs;
    for (Output input : node.inputs) out.push_back(input.node);
    return out;
  }

  void find_existing(const std::vector<int>& node_frame) {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const SubNode& node = graph_.node(id);
      if (node.erased || node.attrs->find(kMark) == nullptr || !node.name.starts_with(kPrefix)) {
        continue;
      }
      loops_.merges.emplace(std::pair(node_frame[index(id)], node.device), id);
    }
  }

  // A frame with an edge between parts; also those inside it.
  void find_split_frames() {
    split_.assign(frames_.size(), false);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (graph_.node(id).erased) continue;
      for (NodeId from : sources(id)) {
        if (part(from) != part(id)) {
          split_[static_cast<size_t>(loops_.output_frame[index(from)])] = true;
        }
      }
    }
    // Parents come before their children. The root needs no loop, so it splits nothing.
    split_[0] = false;
    for (size_t f = 1; f < frames_.size(); ++f) {
      if (split_[static_cast<size_t>(frames_[f].parent)]) split_[f] = true;
    }
  }

  Status add_for_edge(NodeId from, NodeId to) {
    int frame = loops_.output_frame[index(from)];
    if (!split_[static_cast<size_t>(frame)] || device(from) == device(to)) return ok_status();
    MR_TRY(loop(frame, device(to)).status());
    // The source must go round as often as the target, also when nothing else tells it to.
    NodeId leader = frames_[static_cast<size_t>(frame)].loop_cond;
    if (leader >= 0 && device(leader) == device(from)) return ok_status();
    return loop(frame, device(from)).status();
  }

  // The Merge of the control loop for `frame` on `device`.
  Result<NodeId> loop(int frame, DeviceId device) {
    auto found = loops_.merges.find({frame, device});
    if (found != loops_.merges.end()) return found->second;
    const FrameInfo::Frame desc = frames_[static_cast<size_t>(frame)];
    if (desc.loop_cond < 0) {
      return invalid_argument("the loop '", desc.name, "' runs on several devices, ",
                              graph_.devices().name(device),
                              " among them, so it must have a LoopCond");
    }
    NodeId start = -1;
    if (desc.parent == 0) {
      MR_TRY_ASSIGN(start, add_empty_constant(graph_, name(desc), {}, device));
      loops_.output_frame.push_back(0);
    } else {
      MR_TRY_ASSIGN(start, loop(desc.parent, device));
    }
    MR_TRY_ASSIGN(NodeId enter,
                  add(frame, name(desc), "Enter", {{start, 0}},
                      {{"T", DType::kFloat},
                       {"frame_name", desc.name},
                       {"parallel_iterations", static_cast<int64_t>(desc.parallel_iterations)}},
                      device));
    MR_TRY_ASSIGN(NodeId merge,
                  add(frame, name(desc), "Merge", {{enter, 0}, {enter, 0}},
                      {{"T", DType::kFloat}, {"N", int64_t{2}}, {kMark, true}}, device));
    MR_TRY_ASSIGN(NodeId branch, add(frame, name(desc), "Switch", {{merge, 0}, {desc.loop_cond, 0}},
                                     {{"T", DType::kFloat}}, device));
    MR_TRY_ASSIGN(NodeId next, add(frame, name(desc), "NextIteration", {{branch, 1}},
                                   {{"T", DType::kFloat}}, device));
    graph_.node(merge).inputs[1] = {next, 0};
    loops_.merges.emplace(std::pair(frame, device), merge);
    return merge;
  }

  Result<NodeId> add(int frame, std::string name, std::string_view op, std::vector<Output> inputs,
                     AttrMap attrs, DeviceId device) {
    Result<NodeId> added =
        graph_.add(std::move(name), op, std::move(inputs), {}, std::move(attrs), device);
    if (added.ok()) loops_.output_frame.push_back(frame);
    return added;
  }

  std::string name(const FrameInfo::Frame& frame) {
    // A frame may have any name, a node may not.
    std::string text = frame.name;
    for (char& c : text) {
      if (!is_valid_node_name(std::string("n") + c)) c = '_';
    }
    return str_cat(kPrefix, text, "/_", ++next_name_);
  }

  Subgraph& graph_;
  const std::span<const int> part_of_;  // by device
  std::vector<FrameInfo::Frame> frames_;
  std::vector<bool> split_;  // by frame
  ControlLoops loops_;
  int next_name_ = 0;
};

}  // namespace

Result<NodeId> add_empty_constant(Subgraph& graph, std::string name,
                                  std::vector<NodeId> control_inputs, DeviceId device) {
  MR_TRY_ASSIGN(Tensor empty, Tensor::zeros(DType::kFloat, Shape{0}));
  return graph.add(std::move(name), "Const", {}, std::move(control_inputs),
                   {{"dtype", DType::kFloat}, {"value", std::move(empty)}}, device);
}

Result<ControlLoops> add_control_loops(Subgraph& graph, std::span<const int> part_of) {
  return LoopBuilder(graph, part_of).run();
}

}  // namespace millrace
