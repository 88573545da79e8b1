#include <algorithm>
#include <span>
#include <unordered_map>

#include "millrace/graph/elementwise_tree.h"
#include "millrace/kernel/unread_outputs.h"
#include "millrace/runtime/boundary.h"
#include "millrace/runtime/compiled_loops.h"
#include "millrace/runtime/executor.h"
#include "millrace/runtime/memory.h"
#include "millrace/runtime/optimize.h"
#include "millrace/runtime/pending.h"
#include "millrace/runtime/plan.h"
#include "millrace/runtime/scratch.h"
#include "millrace/runtime/step_runner.h"

namespace millrace {
namespace {

StepKind kind_of(const OpDef& op) {
  if (op.traits.argument) return StepKind::kFeed;
  if (op.traits.result) return StepKind::kFetch;
  switch (op.traits.control_flow) {
    case ControlFlow::kNone:
      return StepKind::kKernel;
    case ControlFlow::kSwitch:
      return StepKind::kSwitch;
    case ControlFlow::kMerge:
      return StepKind::kMerge;
    case ControlFlow::kControlTrigger:
      return StepKind::kNothing;
    case ControlFlow::kEnter:
    case ControlFlow::kExit:
    case ControlFlow::kNextIteration:
    case ControlFlow::kLoopCond:
      return StepKind::kForward;
  }
  return StepKind::kKernel;
}

class Compiler {
 public:
  Compiler(const Subgraph& graph, Ref<Device> device, const CompileOptions& options)
      : graph_(graph),
        options_(options),
        kernels_(options.kernels != nullptr ? *options.kernels : KernelRegistry::global()),
        plan_(make_ref<Plan>()) {
    plan_->device = std::move(device);
    plan_->enqueues = plan_->device->stream() != nullptr;
  }

  Result<Ref<Plan>> run() {
    MR_TRY_ASSIGN(order_, graph_.topological_order());
    MR_TRY_ASSIGN(frames_, analyze_frames(graph_));
    if (plan_->device->info().own_memory) MR_TRY(find_own_memory());
    step_of_.assign(static_cast<size_t>(graph_.size()), -1);
    for (size_t i = 0; i < order_.size(); ++i) step_of_[index(order_[i])] = static_cast<int>(i);
    add_frames();
    for (NodeId id : order_) MR_TRY(add_step(id));
    for (NodeId id : order_) add_inputs(id);
    add_output_types();
    add_edges();
    const std::vector<int32_t> order = add_loops(*plan_);
    if (plan_->straight_allowed()) add_straight(order);
    // Loops want to be measured first.
    plan_->worth_sharing.store(plan_->has_frames, std::memory_order_relaxed);
    plan_->step_ns = std::make_unique<std::atomic<uint32_t>[]>(plan_->steps.size());
    plan_->scratch = std::make_unique<PlanScratch>(*plan_);
    return plan_;
  }

 private:
  static size_t index(NodeId id) { return static_cast<size_t>(id); }
  PlanStep& step(NodeId id) { return plan_->steps[static_cast<size_t>(step_of_[index(id)])]; }
  PlanFrame& frame(int f) { return plan_->frames[static_cast<size_t>(f)]; }

  Status find_own_memory() {
    MR_TRY_ASSIGN(memory_, find_memory(graph_));
    for (NodeId id : order_) {
      const SubNode& node = graph_.node(id);
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        const Output from = node.inputs[i];
        if (memory_.host_inputs[index(id)][i] ==
            memory_.host_outputs[index(from.node)][static_cast<size_t>(from.index)]) {
          continue;
        }
        return internal(node.op->name, " \"", node.name, "\": nobody copies input ", i,
                        " between the device and the host");
      }
    }
    return ok_status();
  }

  static bool updates_state(const SubNode& node) {
    const OpTraits& traits = node.op->traits;
    if (node.input_types.empty() || traits.send || traits.recv || traits.step_state) return false;
    const DType first = node.input_types[0];
    if (!is_ref(first) && (first != DType::kResource || !traits.stateful)) return false;
    return node.output_types.empty() ||
           (node.output_types.size() == 1 && is_ref(first) && is_ref(node.output_types[0]));
  }

  void add_frames() {
    for (const FrameInfo::Frame& f : frames_.frames) {
      PlanFrame& out = plan_->frames.emplace_back();
      out.name = f.name;
      out.parent = f.parent;
      out.parallel_iterations = std::max(1, f.parallel_iterations);
      out.num_enters = static_cast<int32_t>(f.enters.size());
      if (f.parent >= 0) out.child_index = frame(f.parent).num_children++;
    }
    plan_->has_frames = plan_->frames.size() > 1;
  }

  Status add_step(NodeId id) {
    const SubNode& node = graph_.node(id);
    const OpTraits& traits = node.op->traits;
    PlanStep& step = plan_->steps.emplace_back();
    step.kind = kind_of(*node.op);
    step.control_flow = traits.control_flow;
    step.blocks = traits.blocks;
    step.runs_when_dead = traits.send || traits.recv;
    step.needs.retains = traits.retains;
    step.needs.uninitialized_ok = traits.allows_uninitialized_input;
    step.num_inputs = static_cast<int32_t>(node.inputs.size());
    step.num_outputs = static_cast<int32_t>(node.output_types.size());
    step.frame = frames_.node_frame[index(id)];
    step.output_frame = frames_.output_frame[index(id)];
    step.index_in_frame = frame(step.frame).num_steps++;
    step.updates = updates_state(node);
    step.first_output = frame(step.output_frame).num_slots;
    frame(step.output_frame).num_slots += step.num_outputs;
    plan_->many_blocking |= step.blocks && plan_->has_blocking;
    plan_->has_blocking |= step.blocks;
    plan_->has_step_state |= traits.step_state;
    const bool branches = step.kind == StepKind::kSwitch || step.kind == StepKind::kMerge;
    plan_->has_dead |= branches;
    plan_->has_branches |= branches && step.frame == 0;

    auto kernel_node = std::make_unique<KernelNode>();
    kernel_node->name = node.name;
    kernel_node->op = node.op;
    kernel_node->attrs = *node.attrs;
    kernel_node->input_types = node.input_types;
    kernel_node->output_types = node.output_types;
    kernel_node->device = plan_->device.get();
    kernel_node->session_prefix = options_.session_prefix;
    if (!memory_.host_inputs.empty()) {
      kernel_node->host_inputs = memory_.host_inputs[index(id)];
      kernel_node->host_outputs = memory_.host_outputs[index(id)];
    }
    kernel_node->attrs.erase(kUnreadOutputsAttr);  // which a graph may have brought along
    if (const int64_t unread = unread_outputs(id); unread != 0) {
      kernel_node->attrs.set(kUnreadOutputsAttr, unread);
    }
    step.node = kernel_node.get();
    plan_->nodes.push_back(std::move(kernel_node));
    plan_->origins.push_back(node.origin);
    std::unique_ptr<Kernel> kernel;
    if (Status s = prepare(step, *plan_->nodes.back(), kernel); !s.ok())
      return annotate_error(s, *step.node, node.origin);
    plan_->kernels.push_back(std::move(kernel));
    return ok_status();
  }

  // The outputs that nobody reads, bit by bit, of a node that has several.
  int64_t unread_outputs(NodeId id) {
    if (read_outputs_.empty()) {
      read_outputs_.resize(index(graph_.size()));
      for (NodeId reader : order_) {
        for (Output input : graph_.node(reader).inputs) {
          if (input.index < 32) read_outputs_[index(input.node)] |= uint32_t{1} << input.index;
        }
      }
    }
    const size_t count = graph_.node(id).output_types.size();
    if (count < 2 || count > 32) return 0;
    const uint32_t all = static_cast<uint32_t>((uint64_t{1} << count) - 1);
    return all & ~read_outputs_[index(id)];
  }

  // What differs by kind: attributes that the executor needs, or the kernel.
  Status prepare(PlanStep& step, const KernelNode& node, std::unique_ptr<Kernel>& kernel) {
    if (step.kind == StepKind::kFeed || step.kind == StepKind::kFetch) {
      MR_TRY_ASSIGN(int64_t position, node.attr<int64_t>("index"));
      if (position < 0 || static_cast<uint64_t>(position) >= kMaxPositions) {
        return invalid_argument("expected an index from 0 to below ", kMaxPositions, ", found ",
                                position);
      }
      step.position = static_cast<int32_t>(position);
    } else if (step.kind == StepKind::kMerge && step.num_inputs > pending::kMaxMergeInputs) {
      return invalid_argument("expected at most ", pending::kMaxMergeInputs, " inputs, got ",
                              step.num_inputs);
    } else if (step.control_flow == ControlFlow::kEnter) {
      MR_TRY_ASSIGN(step.constant_enter, node.attr<bool>("is_constant"));
    } else if (step.kind == StepKind::kKernel) {
      MR_TRY(check_rights(node, options_.rights));
      MR_TRY_ASSIGN(kernel, make(node));
      step.host_outputs = !node.host_outputs.empty();
      step.kernel = kernel.get();
      step.async = dynamic_cast<const AsyncKernel*>(step.kernel) != nullptr;
      plan_->has_async |= step.async;
    }
    return ok_status();
  }

  Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    DeviceKind kind = plan_->device->kind();
    auto kernel = make_kernel(kernels_, node, kind, options_.kernel_label);
    if (!kernel.ok() && !options_.kernel_label.empty()) kernel = make_kernel(kernels_, node, kind);
    return kernel;
  }

  void add_inputs(NodeId id) {
    const SubNode& node = graph_.node(id);
    PlanStep& s = step(id);
    s.first_input = static_cast<int32_t>(plan_->inputs.size());
    for (Output input : node.inputs) {
      plan_->inputs.push_back(step(input.node).first_output + input.index);
      s.needs.reads_refs |= is_ref(graph_.output_type(input));
      s.num_merged +=
          graph_.node(input.node).op->traits.control_flow != ControlFlow::kNextIteration;
    }
    s.num_merged = std::max(s.num_merged, 1);
  }

  void add_output_types() {
    for (const auto& node : plan_->nodes) {
      plan_->output_types.insert(plan_->output_types.end(), node->output_types.begin(),
                                 node->output_types.end());
    }
    const DType* types = plan_->output_types.data();
    for (PlanStep& s : plan_->steps) {
      s.output_types = types;
      types += s.num_outputs;
    }
  }

  void add_edges() {
    std::vector<std::vector<PlanEdge>> edges(plan_->steps.size());
    std::vector<uint64_t> data(plan_->steps.size()), control(plan_->steps.size());
    for (PlanFrame& f : plan_->frames) {
      f.initial_pending.assign(static_cast<size_t>(f.num_steps), 0);
      f.initial_uses.assign(static_cast<size_t>(f.num_slots), 0);
    }
    for (NodeId id : order_) {
      const SubNode& node = graph_.node(id);
      int32_t to = step_of_[index(id)];
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        int32_t from = step_of_[index(node.inputs[i].node)];
        edges[static_cast<size_t>(from)].push_back({to, static_cast<int32_t>(i)});
        ++data[static_cast<size_t>(to)];
        int32_t slot = plan_->inputs[static_cast<size_t>(step(id).first_input) + i];
        ++frame(step(id).frame).initial_uses[static_cast<size_t>(slot)];
      }
      for (NodeId c : node.control_inputs) {
        edges[index(step_of_[index(c)])].push_back({to, -1});
        ++control[static_cast<size_t>(to)];
      }
    }
    for (size_t i = 0; i < plan_->steps.size(); ++i) {
      PlanStep& s = plan_->steps[i];
      s.first_edge = static_cast<int32_t>(plan_->edges.size());
      s.num_edges = static_cast<int32_t>(edges[i].size());
      plan_->edges.insert(plan_->edges.end(), edges[i].begin(), edges[i].end());
      frame(s.frame).initial_pending[static_cast<size_t>(s.index_in_frame)] =
          s.kind == StepKind::kMerge ? pending::merge_start(control[i])
                                     : pending::step_start(data[i] + control[i]);
      if (s.constant_enter) {
        frame(s.output_frame).initial_uses[static_cast<size_t>(s.first_output)] = PlanFrame::kKept;
      }
      if (s.kind == StepKind::kFetch) plan_->fetches.push_back(static_cast<int32_t>(i));
      if (s.kind == StepKind::kFeed) plan_->feeds.push_back(static_cast<int32_t>(i));
      bool waits = data[i] + control[i] > 0;
      if (!waits && s.kind != StepKind::kFeed) plan_->roots.push_back(static_cast<int32_t>(i));
    }
  }

  // What stands for a step of the root in the straight form: the step, or a loop, by its LoopCond.
  struct Straight {
    std::vector<int32_t> inputs;  // slots of the root frame
    std::vector<int32_t> outputs;
  };
  Straight straight_of(int32_t step, const PlanLoop* loop) const {
    Straight out;
    const auto add_inputs = [&](const PlanStep& s) {
      for (int k = 0; k < s.num_inputs; ++k)
        out.inputs.push_back(plan_->inputs[nth(s.first_input, k)]);
    };
    const auto add_outputs = [&](const PlanStep& s) {
      for (int k = 0; k < s.num_outputs; ++k) out.outputs.push_back(s.first_output + k);
    };
    if (loop == nullptr) {
      add_inputs(plan_->steps[index(step)]);
      add_outputs(plan_->steps[index(step)]);
      return out;
    }
    for (int32_t enter : loop->enters) add_inputs(plan_->steps[index(enter)]);
    for (int32_t exit : loop->exits) add_outputs(plan_->steps[index(exit)]);
    return out;
  }

  // Gives slots in the order given, each free again after its last reader.
  void add_straight(const std::vector<int32_t>& order) {
    std::vector<int32_t> last_reader(static_cast<size_t>(plan_->frames[0].num_slots), -1);
    for (size_t i = 0; i < order.size(); ++i) {
      for (int32_t slot : straight_of(order[i], loop_at(order[i])).inputs) {
        last_reader[static_cast<size_t>(slot)] = static_cast<int32_t>(i);
      }
    }
    std::vector<int32_t> slot_of(last_reader.size(), -1);
    std::vector<int32_t> reads(last_reader.size(), 0);  // of the step at hand, by slot
    std::vector<int32_t> free;
    for (size_t i = 0; i < order.size(); ++i) {
      const PlanStep& s = plan_->steps[index(order[i])];
      const PlanLoop* loop = loop_at(order[i]);
      const auto [inputs, outputs] = straight_of(order[i], loop);
      StraightStep& out = plan_->straight.emplace_back();
      out.kernel = s.kernel;
      out.node = s.node;
      out.output_types = s.output_types;
      out.num_inputs = static_cast<int32_t>(inputs.size());
      out.num_outputs = static_cast<int32_t>(outputs.size());
      out.step = order[i];
      out.kind = loop != nullptr ? StepKind::kLoop : s.kind;
      out.host_outputs = s.host_outputs;
      out.needs_preparation = loop == nullptr && s.needs.any();
      out.first_input = static_cast<int32_t>(plan_->straight_inputs.size());
      out.first_release = static_cast<int32_t>(plan_->releases.size());
      // Outputs first: a step never writes a slot that it still reads.
      if (outputs.size() == 1 && !free.empty()) {
        out.first_output = free.back();
        free.pop_back();
      } else {
        out.first_output = plan_->straight_slots;
        plan_->straight_slots += out.num_outputs;
      }
      for (size_t k = 0; k < outputs.size(); ++k) {
        const size_t slot = static_cast<size_t>(outputs[k]);
        slot_of[slot] = out.first_output + static_cast<int32_t>(k);
        if (last_reader[slot] < 0) plan_->releases.push_back(slot_of[slot]);
      }
      for (int32_t slot : inputs) reads[static_cast<size_t>(slot)] = 0;
      for (int32_t slot : inputs) ++reads[static_cast<size_t>(slot)];
      for (size_t k = 0; k < inputs.size(); ++k) {
        size_t slot = static_cast<size_t>(inputs[k]);
        plan_->straight_inputs.push_back(slot_of[slot]);
        if (last_reader[slot] != static_cast<int32_t>(i)) continue;
        if (reads[slot] == 1 && k < 64) out.movable |= uint64_t{1} << k;
        last_reader[slot] = INT32_MAX;  // released once, also when read twice
        plan_->releases.push_back(slot_of[slot]);
      }
      out.num_releases = static_cast<int32_t>(plan_->releases.size()) - out.first_release;
      for (int k = 0; k < out.num_releases; ++k) {
        free.push_back(plan_->releases[nth(out.first_release, k)]);
      }
    }
  }
  const PlanLoop* loop_at(int32_t step) const {
    const int32_t frame = plan_->steps[index(step)].frame;
    return frame == 0 ? nullptr : plan_->loop_of(frame);
  }

  const Subgraph& graph_;
  const CompileOptions& options_;
  const KernelRegistry& kernels_;
  Ref<Plan> plan_;
  std::vector<NodeId> order_;
  FrameInfo frames_;
  TensorMemory memory_;  // empty on a device that shares the host's
  std::vector<int32_t> step_of_;
  std::vector<uint32_t> read_outputs_;  // bit by output, by node; empty until asked for
};

int64_t bytes_of(const Plan& plan) {
  constexpr int64_t kPerStep =
      1500;  // the step in both gears, its node with attributes, its kernel
  int64_t bytes = static_cast<int64_t>(plan.steps.size()) * kPerStep;
  for (const std::unique_ptr<KernelNode>& node : plan.nodes) {
    for (const auto& [name, value] : node->attrs) {
      if (const TensorAttr* attr = value.get<TensorAttr>()) {
        bytes += static_cast<int64_t>(attr->tensor.bytes());
      }
    }
  }
  return bytes;
}

// What passes made of a node: its layout, what its filter does, what it stands for and why not for
// more, on lines of their own.
std::string rewriting_text(const KernelNode& node) {
  std::string out;
  for (const std::string_view attr : {kLayoutAttr, kInFilterAttr}) {
    const Result<std::string> text = node.attr<std::string>(attr);
    if (text.ok()) append_to(out, str_cat("    ", *text, "\n"));
  }
  if (const Result<std::vector<std::string>> names =
          node.attr<std::vector<std::string>>(kStandsForAttr);
      names.ok()) {
    append_to(out, str_cat("    is ", str_join(*names, ", "), "\n"));
  }
  if (const Result<std::string> why = node.attr<std::string>(kNotFusedAttr); why.ok()) {
    append_to(out, str_cat("    ", *why, "\n"));
  }
  return out;
}

}  // namespace

Plan::Plan() = default;
Plan::~Plan() = default;

Result<Ref<Plan>> compile(const Subgraph& graph, Ref<Device> device,
                          const CompileOptions& options) {
  MR_TRY_ASSIGN(Ref<Plan> plan, Compiler(graph, std::move(device), options).run());
  plan->bytes = bytes_of(*plan);
  return plan;
}

std::string Plan::to_string() const {
  std::string out = str_cat("plan on ", device->name(), ": ", steps.size(), " steps, ",
                            frames.size() - 1, " loops\n");
  for (const std::unique_ptr<PlanLoop>& loop : loops) {
    append_to(out,
              str_cat("  frame ", loop->frame, " (", frames[static_cast<size_t>(loop->frame)].name,
                      ") runs as one step where it is quick\n"));
  }
  for (const PlanStep& s : steps) {
    append_to(out, str_cat("  ", s.node->op->name, " ", s.node->name, " (frame ", s.frame, ") ->"));
    for (int k = 0; k < s.num_edges; ++k) {
      const PlanEdge& e = edges[nth(s.first_edge, k)];
      const std::string& to = steps[static_cast<size_t>(e.step)].node->name;
      append_to(out, e.input < 0 ? str_cat(" ^", to) : str_cat(" ", to, ":", e.input));
    }
    out += '\n';
    append_to(out, rewriting_text(*s.node));
  }
  return out;
}

}  // namespace millrace
