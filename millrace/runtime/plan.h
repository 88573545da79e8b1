#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/graph/origin.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/kernel_call.h"
#include "millrace/kernel/registry.h"
#include "millrace/runtime/subgraph.h"

namespace millrace {

// What the executor does with a step.
enum class StepKind : uint8_t {
  kKernel,
  kFeed,     // _Arg: the value comes from the caller
  kFetch,    // _Retval: the value goes to the caller
  kForward,  // hands its input on: Enter, Exit, NextIteration, LoopCond
  kSwitch,
  kMerge,
  kNothing,  // only orders: ControlTrigger
  kLoop,     // straight form only: a whole loop, in place of its steps
  kGuard,    // straight form only: jumps over steps of a branch that was not taken
};

// One consumer of a step's outputs.
struct PlanEdge {
  int32_t step;
  int32_t input;  // which of its inputs; -1: a control edge
};

// One node of a plan, flattened. Ranges are indices into the plan's arrays.
struct PlanStep {
  StepKind kind = StepKind::kKernel;
  ControlFlow control_flow = ControlFlow::kNone;
  bool async = false;
  bool blocks = false;
  bool runs_when_dead = false;  // Send, Recv
  bool constant_enter = false;  // an Enter whose value is the same in every iteration
  bool host_outputs = false;    // KernelNode::host_outputs has something to say
  // Changes what its first input names, and gives nothing but that input on: a run that is tried
  // again may leave it out.
  bool updates = false;
  InputNeeds needs;
  int32_t num_inputs = 0;
  int32_t num_outputs = 0;
  int32_t num_merged = 0;    // of a Merge: inputs that do not close a loop
  int32_t first_input = 0;   // in Plan::inputs: the slots it reads, in the iteration it runs in
  int32_t first_output = 0;  // its slots, in the iteration that its outputs go to
  int32_t first_edge = 0;    // in Plan::edges
  int32_t num_edges = 0;
  int32_t frame = 0;         // the frame it runs in
  int32_t output_frame = 0;  // the frame its outputs live in
  int32_t index_in_frame = 0;
  int32_t position = 0;  // kFeed, kFetch: in the signature
  const Kernel* kernel = nullptr;
  const KernelNode* node = nullptr;
  const DType* output_types = nullptr;  // in Plan::output_types
};

// The same step for the straight form, where a slot is empty once its last reader is done: all that
// a run reads of a step, in one line of the cache.
struct alignas(64) StraightStep {
  const Kernel* kernel = nullptr;
  const KernelNode* node = nullptr;
  const DType* output_types = nullptr;
  uint64_t movable = 0;     // inputs that this step is the last to read
  int32_t first_input = 0;  // in Plan::straight_inputs
  int32_t num_inputs = 0;
  int32_t first_output = 0;
  int32_t num_outputs = 0;
  int32_t first_release = 0;  // in Plan::releases: slots that nobody reads after this step
  int32_t num_releases = 0;
  int32_t step = 0;  // in Plan::steps; of a loop its LoopCond, of a guard in PlanLoop::guards
  StepKind kind = StepKind::kKernel;
  bool host_outputs = false;
  bool needs_preparation = false;
};
static_assert(sizeof(StraightStep) == 64);

// A static loop frame: how large an iteration is and how it starts.
struct PlanFrame {
  std::string name;
  int32_t parent = -1;
  int32_t parallel_iterations = 1;
  int32_t num_enters = 0;
  int32_t num_slots = 0;
  int32_t num_steps = 0;
  int32_t child_index = 0;  // among the frames that its parent starts
  int32_t num_children = 0;
  std::vector<uint64_t> initial_pending;  // per step of the frame; pending.h says how to read it
  std::vector<int32_t> initial_uses;      // per slot: how many inputs read it, or kKept
  // For a slot whose value, of a constant Enter, is the same in every iteration: it is never taken
  // and stays while the frame uses the iteration's memory again.
  static constexpr int32_t kKept = INT32_MAX;
};

// The index of element k of a range that begins at `first`.
inline size_t nth(int32_t first, int k) {
  return static_cast<size_t>(first) + static_cast<size_t>(k);
}

// A loop without frames: its steps in an order in which they may run one after the other, and each
// variable in a slot that all iterations use. compiled_loops.h says which loops have this form.
struct PlanLoop {
  // A range of Plan::loop_steps.
  struct Range {
    int32_t first = 0;
    int32_t last = 0;  // one past the end
  };
  // A value that goes from slot to slot, and leaves nothing behind where `take`.
  struct Move {
    int32_t from = 0;
    int32_t to = 0;
    bool take = false;
  };
  // Input `input` of the loop goes to a slot.
  struct Entry {
    int32_t input = 0;
    int32_t slot = 0;
    bool read = false;  // of a reference, the value
  };
  // In front of steps that run in a branch only: they do while none of the flags is up.
  struct Guard {
    std::vector<int32_t> flags;  // in StraightArena::dead
    int32_t skip = 0;            // how many steps follow that belong to it
    // Where they do not run: slots that they would have been the last to read, and slots that are
    // dead then for those who join branches.
    std::vector<int32_t> clear;
    std::vector<int32_t> kill;
  };

  int32_t frame = 0;
  int32_t loop_cond = 0;        // a step; what is measured of the loop is kept there
  std::vector<int32_t> enters;  // steps: the loop's inputs
  std::vector<int32_t> exits;   // steps: the loop's outputs
  std::vector<Entry> entries;
  Range before;           // once: what is the same for every iteration, for the condition
  Range condition;        // before each iteration, and where there is none any more
  int32_t predicate = 0;  // its slot
  Range first_time;       // once, when there is an iteration: what is the same in all of them
  Range body;
  std::vector<Move> moves;     // the variables of the next iteration
  std::vector<int32_t> clear;  // after an iteration: slots that only `after` reads
  Range after;                 // once, after the last iteration
  std::vector<Move> leaving;   // by output: `from` is a slot, `to` the output's number
  std::vector<Guard> guards;
  int32_t first_slot = 0;  // the loop's own, empty while it does not run
  int32_t num_slots = 0;
  bool has_effects = false;  // some step has, or reads what has
  // Some of these run before the condition and hang on no variable.
  bool loose_effects = false;
  // True once measurements say that running steps side by side would pay: then it has frames.
  std::atomic<bool> worth_frames{false};
};

struct PlanScratch;

// A graph compiled for one device, shared by all runs: dense steps in topological order, edges as
// slots. Immutable but for its measurements and its pool of scratch memory.
class Plan : public RefCounted {
 public:
  Plan();

  std::vector<PlanStep> steps;
  std::vector<int32_t> inputs;
  std::vector<DType> output_types;  // of all steps, one after the other
  std::vector<PlanEdge> edges;
  std::vector<PlanFrame> frames;  // [0] is the root
  std::vector<int32_t> roots;     // steps that wait for nothing, feeds left out
  std::vector<int32_t> feeds;     // the kFeed steps
  std::vector<int32_t> fetches;   // the kFetch steps

  // The straight gear's form; empty unless straight_allowed().
  std::vector<StraightStep> straight;
  std::vector<int32_t> straight_inputs;
  std::vector<int32_t> releases;
  int32_t straight_slots = 0;

  // Loops that need no frames, in either gear, those inside of others first.
  std::vector<std::unique_ptr<PlanLoop>> loops;
  std::vector<int32_t> loop_of_frame;  // in `loops`, or -1
  std::vector<StraightStep> loop_steps;
  std::vector<int32_t> loop_flags;  // by loop step: of the outputs of a Switch or a Merge, or -1
  int32_t num_flags = 0;

  Ref<Device> device;
  bool has_frames = false;
  bool has_async = false;
  bool has_blocking = false;
  bool many_blocking = false;   // several steps block: one may wait for another
  bool has_step_state = false;  // some step makes resources that end with the run
  bool has_dead = false;        // a Switch or Merge: values may be dead
  bool has_branches = false;    // the same, outside of loops
  bool all_loops = true;        // every loop around no other is among `loops`
  // The device's kernels only enqueue: they are called one by one, in the plan's order.
  bool enqueues = false;
  bool straight_allowed() const { return all_loops && !has_async && !has_branches && !enqueues; }
  // The loop that runs in place of frame `frame`; null: none does.
  PlanLoop* loop_of(int32_t frame) const {
    const int32_t loop = loop_of_frame[static_cast<size_t>(frame)];
    return loop < 0 ? nullptr : loops[static_cast<size_t>(loop)].get();
  }

  std::vector<std::unique_ptr<KernelNode>> nodes;  // by step
  std::vector<std::unique_ptr<Kernel>> kernels;    // by step; null where the executor does the work
  std::vector<OriginId> origins;                   // by step

  // Measured by the executor: moving means of a step's time in nanoseconds; 0 until measured.
  std::unique_ptr<std::atomic<uint32_t>[]> step_ns;
  std::atomic<uint64_t> runs{0};
  // True once measurements of steps say that running them side by side may pay; of a plan with
  // loops until they say that it would not.
  std::atomic<bool> worth_sharing{false};
  // While that is so, about what runs take, in nanoseconds, in either gear: 0 until measured.
  std::atomic<uint32_t> straight_ns{0};
  std::atomic<uint32_t> parallel_ns{0};
  // Works out worth_sharing, and worth_frames of loops, from step_ns.
  void review_gear();

  std::unique_ptr<PlanScratch> scratch;
  // About how much memory it holds, constants included though the graph may hold them too.
  int64_t bytes = 0;

  // For people: one line per step.
  std::string to_string() const;

 protected:
  ~Plan() override;
};

struct CompileOptions {
  const KernelRegistry* kernels = nullptr;  // null: the global one
  // Tells apart the sessions that share a device.
  std::string session_prefix;
  // Only kernels with this label where an op has one: tests compare with the plain reference.
  std::string kernel_label;
  // Runs of devices that can record them are recorded where that is possible: recorded_runs.h.
  bool record_runs = true;
  // What nodes may reach; PERMISSION_DENIED for one that reaches more.
  GraphRights rights;
};

// Compiles a partition for the device that owns it: every node is on that device. INVALID_ARGUMENT
// or NOT_FOUND name the node and its origin.
Result<Ref<Plan>> compile(const Subgraph& graph, Ref<Device> device, const CompileOptions& options);

}  // namespace millrace
