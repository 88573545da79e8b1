#include "millrace/runtime/recorded_runs.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/base/str_cat.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/runtime/step_runner.h"

namespace millrace {
namespace {

// What a slot of a host's plan holds, which only hands tensors on.
struct Carried {
  enum class From : uint8_t { kNowhere, kFeed, kDevice, kElsewhere };
  From from = From::kNowhere;
  int position = 0;  // of a feed
  std::string name;  // of what came from the device
};

Result<std::string> link_name(const PlanStep& step) {
  return step.node->attr<std::string>("tensor_name");
}

bool flag(const std::vector<bool>& flags, size_t i) { return i < flags.size() && flags[i]; }

// A reference variable as recorded work uses it. Its elements may change without its lock, as they
// may in any run.
class RecordedCell final : public RecordedState {
 public:
  RecordedCell(Ref<RefCell> cell, bool changes) : cell_(std::move(cell)) {
    written = changes;
    const Tensor now = cell_->read();
    dtype_ = now.dtype();
    if (!now.valid()) return;
    shape_ = now.shape();
    data_ = now.raw();
  }

  const void* identity() const override { return cell_.get(); }
  MR_NO_THREAD_SAFETY_ANALYSIS bool lock() override {  // unlock() lets go of it
    cell_->mu.lock();
    const Tensor& now = cell_->tensor;
    if (now.valid() && now.dtype() == dtype_ && now.raw() == data_ && now.shape() == shape_ &&
        !(written && now.buffer() && now.buffer()->in_snapshot())) {
      return true;
    }
    cell_->mu.unlock();
    return false;
  }
  MR_NO_THREAD_SAFETY_ANALYSIS void unlock() override { cell_->mu.unlock(); }

 private:
  const Ref<RefCell> cell_;
  DType dtype_ = DType::kInvalid;
  Shape shape_;
  const void* data_ = nullptr;
};

// Makes references to variables, or handles, of what lasts; does nothing else.
bool names_state(const KernelNode& node) {
  return node.op->traits.owns_state && node.input_types.empty() &&
         std::ranges::all_of(node.output_types,
                             [](DType type) { return type == DType::kResource || is_ref(type); });
}

bool takes_references(const KernelNode& node) {
  return std::ranges::any_of(node.input_types, is_ref);
}

// Why a kernel of a device's plan cannot be recorded; OK where it can.
Status recordable(const PlanStep& step) {
  const KernelNode& node = *step.node;
  const OpTraits& traits = node.op->traits;
  const auto refuse = [&](std::string_view why) {
    return failed_precondition(node.op->name, " \"", node.name, "\" ", why);
  };
  // The copy of a constant is made once, when the work is recorded.
  if (step.async && node.op->name != "_CopyFromHost") return refuse("has to be waited for");
  if (step.blocks || traits.blocks) return refuse("may block");
  if (traits.functional != FunctionalOp::kNone) return refuse("calls functions");
  if (step.needs.retains != 0) return refuse("keeps what it is given");
  if (!traits.stateful || step.async) return ok_status();
  if (names_state(node) || takes_references(node) ||
      std::ranges::find(node.input_types, DType::kResource) != node.input_types.end()) {
    return ok_status();  // whether that is a variable shows when it is called
  }
  return refuse("has state of its own");
}

}  // namespace

RecordedRuns::~RecordedRuns() = default;

std::unique_ptr<RecordedRuns> RecordedRuns::make(const std::vector<Ref<Plan>>& plans,
                                                 std::string& why) {
  Ref<Plan> device, host;
  for (const Ref<Plan>& plan : plans) {
    Ref<Plan>& place = dynamic_cast<RecordingDevice*>(plan->device.get()) ? device : host;
    if (place) {
      why = "several devices take part";
      return nullptr;
    }
    place = plan;
  }
  if (!device) {
    why = "no device records";
    return nullptr;
  }
  std::unique_ptr<RecordedRuns> runs(new RecordedRuns);
  runs->plan_ = device;
  Status status = host ? runs->read_host_plan(*host) : ok_status();
  if (status.ok()) status = runs->read_device_plan(*device);
  if (status.ok()) return runs;
  why = status.message();
  return nullptr;
}

Status RecordedRuns::read_host_plan(const Plan& plan) {
  if (plan.has_frames || plan.has_dead || plan.has_step_state) {
    return failed_precondition("the host has branches, loops or state of a step");
  }
  using From = Carried::From;
  std::vector<Carried> slots(static_cast<size_t>(plan.frames[0].num_slots));
  const auto input = [&](const PlanStep& step) -> Carried& {
    return slots[static_cast<size_t>(plan.inputs[nth(step.first_input, 0)])];
  };
  for (const PlanStep& step : plan.steps) {
    const auto refuse = [&] {
      return failed_precondition("the host computes ", step.node->op->name, " \"", step.node->name,
                                 "\"");
    };
    const auto output = [&]() -> Carried& { return slots[static_cast<size_t>(step.first_output)]; };
    if (step.kind == StepKind::kFeed) {
      output() = {From::kFeed, step.position, ""};
    } else if (step.kind == StepKind::kFetch) {
      if (input(step).from != From::kDevice) return refuse();
      fetches_.push_back({input(step).name, step.position});
    } else if (step.kind == StepKind::kNothing) {
      continue;
    } else if (step.kind != StepKind::kKernel) {
      return refuse();
    } else if (const OpTraits& traits = step.node->op->traits; traits.recv) {
      MR_TRY_ASSIGN(std::string name, link_name(step));
      output() = {From::kDevice, 0, std::move(name)};
    } else if (traits.send) {
      MR_TRY_ASSIGN(std::string name, link_name(step));
      // What is sent for the order alone is read by nobody.
      const Carried& what = input(step);
      if (what.from == From::kFeed) {
        feeds_.push_back({std::move(name), what.position});
      } else if (what.from != From::kElsewhere) {
        return refuse();
      }
    } else if (traits.constant) {
      output() = {From::kElsewhere, 0, ""};
    } else if (traits.stateful || step.async || step.num_outputs > 0) {
      return refuse();
    }
  }
  return ok_status();
}

Status RecordedRuns::read_device_plan(const Plan& plan) {
  if (plan.has_frames || plan.has_dead) return failed_precondition("there are branches or loops");
  if (plan.has_blocking || plan.has_step_state) {
    return failed_precondition("there is what blocks, or state of a step");
  }
  const PlanFrame& root = plan.frames[0];
  std::map<std::string, int, std::less<>> fetched;
  for (const Link& link : fetches_) ++fetched[link.name];
  size_t sent = 0;
  for (const PlanStep& step : plan.steps) {
    const KernelNode& node = *step.node;
    if (step.kind == StepKind::kNothing) continue;
    if (step.kind != StepKind::kKernel) {
      return failed_precondition("\"", node.name, "\" is fed or fetched on the device");
    }
    const OpTraits& traits = node.op->traits;
    if (!traits.recv && !traits.send) {
      MR_TRY(recordable(step));
      continue;
    }
    MR_TRY_ASSIGN(const std::string name, link_name(step));
    if (traits.recv) {
      const bool read = root.initial_uses[static_cast<size_t>(step.first_output)] > 0;
      if (!read) continue;
      if (flag(node.host_outputs, 0)) {
        return failed_precondition("kernels look at the elements of what is fed as \"", name, "\"");
      }
      if (std::ranges::find(feeds_, name, &Link::name) == feeds_.end()) {
        return failed_precondition("what is received as \"", name, "\" was not fed");
      }
    } else if (fetched.contains(name)) {
      if (flag(node.host_inputs, 0)) {
        return failed_precondition("\"", name, "\" is fetched from the host's memory");
      }
      ++sent;
    }
  }
  if (sent != fetched.size()) return failed_precondition("a fetch does not come from the device");
  return ok_status();
}

std::string RecordedRuns::to_string() const {
  MutexLock lock(mu_);
  return str_cat("recorded: ", replays_, " runs by ", recordings_, " recordings",
                 given_up_ ? ", no more" : "", "\n");
}

RecordedRuns::FeedShapes RecordedRuns::shapes_of_feeds(const Step& step) const {
  FeedShapes shapes;
  for (const Link& link : feeds_) {
    const Tensor& feed = step.feeds[static_cast<size_t>(link.position)];
    shapes.emplace_back(feed.dtype(), feed.shape());
  }
  return shapes;
}

bool RecordedRuns::fits(const FeedShapes& shapes, const Step& step) const {
  for (size_t i = 0; i < feeds_.size(); ++i) {
    const Tensor& feed = step.feeds[static_cast<size_t>(feeds_[i].position)];
    if (i >= shapes.size() || feed.dtype() != shapes[i].first || feed.shape() != shapes[i].second) {
      return false;
    }
  }
  return true;
}

bool RecordedRuns::run(Step& step) {
  if (step.trace || step.stopped() || (step.rendezvous && step.rendezvous->updates)) return false;
  if (!mu_.try_lock()) return false;
  bool done = false;
  if (recording_ && fits(recorded_, step)) {
    done = run_recording(step);
  } else {
    if (!fits(seen_, step)) {
      seen_ = shapes_of_feeds(step);
      same_runs_ = 0;
    }
    if (same_runs_++ >= kRunsBefore && !given_up_) done = record_and_run(step);
  }
  mu_.unlock();
  return done;
}

bool RecordedRuns::record_and_run(Step& step) {
  drop();
  const Status status = record(step);
  if (status.ok()) {
    given_up_ = ++recordings_ >= kMostRecordings;
    recorded_ = shapes_of_feeds(step);
    return run_recording(step);
  }
  MR_LOG(kInfo, "a run is not recorded: ", status);
  // What is not ready yet may be after some more runs.
  given_up_ = status.code() != Code::kUnavailable || ++attempts_ >= kMostAttempts;
  drop();
  return false;
}

void RecordedRuns::drop() {
  recording_ = nullptr;
  states_.clear();
  references_.clear();
  same_runs_ = 0;
}

// Whether nodes still stand for the same variables.
bool RecordedRuns::references_hold(Step& step) {
  return std::ranges::all_of(references_, [&](const Reference& reference) {
    const PlanStep& at = plan_->steps[static_cast<size_t>(reference.step)];
    Value now;
    KernelContext ctx({.node = at.node,
                       .step = &step,
                       .device = plan_->device.get(),
                       .outputs = &now,
                       .num_outputs = 1,
                       .output_types = at.output_types});
    return at.kernel->compute(ctx).ok() && now.is_ref() && now.cell == reference.cell;
  });
}

MR_NO_THREAD_SAFETY_ANALYSIS bool RecordedRuns::run_recording(Step& step) {
  size_t locked = 0;
  const auto unlock = [&]() MR_NO_THREAD_SAFETY_ANALYSIS {  // how many locks is known here only
    while (locked > 0) states_[--locked]->unlock();
  };
  bool holds = references_hold(step);
  while (holds && locked < states_.size()) {
    holds = states_[locked]->lock();
    locked += holds ? 1 : 0;
  }
  if (!holds) {
    unlock();
    drop();
    return false;
  }
  std::vector<const Tensor*> feeds;
  for (const Link& link : feeds_) feeds.push_back(&step.feeds[static_cast<size_t>(link.position)]);
  std::vector<Tensor*> fetches;
  for (const Link& link : fetches_) {
    fetches.push_back(&step.fetches[static_cast<size_t>(link.position)]);
  }
  const Status status = recording_->run(step, feeds, unlock, fetches);
  unlock();
  if (!status.ok()) step.fail(status);
  ++replays_;
  return true;
}

Status RecordedRuns::record(Step& step) {
  auto* const records = dynamic_cast<RecordingDevice*>(plan_->device.get());
  MR_TRY_ASSIGN(const Ref<Recorder> recorder, records->begin_recording());
  Status status = call_kernels(step, *recorder);
  states_ = recorder->take_states();
  std::ranges::sort(states_, std::less<const void*>(),
                    [](const auto& state) { return state->identity(); });
  Result<Ref<Recording>> ended = recorder->end();
  if (ended.ok()) recording_ = std::move(*ended);
  return status.ok() ? ended.status() : status;
}

// In the plan's order, as run_in_order.cc does; their work waits for that of the calls before that
// they hang on.
Status RecordedRuns::call_kernels(Step& step, Recorder& recorder) {
  const PlanFrame& root = plan_->frames[0];
  std::vector<Value> slots(static_cast<size_t>(root.num_slots));
  std::vector<int32_t> uses = root.initial_uses;
  // Feeds first, so that their order is ours.
  std::map<std::string, Tensor, std::less<>> fed;
  for (size_t i = 0; i < feeds_.size(); ++i) {
    const Tensor& like = step.feeds[static_cast<size_t>(feeds_[i].position)];
    MR_TRY_ASSIGN(fed[feeds_[i].name], recorder.add_feed(like.dtype(), like.shape()));
  }
  std::map<std::string, Tensor, std::less<>> sent;
  std::vector<Value*> inputs;
  std::vector<Value> copies;
  std::vector<std::vector<int>> after(plan_->steps.size());  // by step: calls
  for (size_t at = 0; at < plan_->steps.size(); ++at) {
    const PlanStep& plan_step = plan_->steps[at];
    const KernelNode& node = *plan_step.node;
    const OpTraits& traits = node.op->traits;
    Value* const outputs = slots.data() + plan_step.first_output;
    inputs.clear();
    uint64_t movable = 0;
    for (int i = 0; i < plan_step.num_inputs; ++i) {
      const auto slot = static_cast<size_t>(plan_->inputs[nth(plan_step.first_input, i)]);
      inputs.push_back(&slots[slot]);
      if (i < 64 && uses[slot] == 1) movable |= uint64_t{1} << i;
    }
    uint64_t changed = movable;
    for (size_t i = 0; i < inputs.size() && i < 64; ++i) {
      const DType type = node.input_types[i];
      const bool updated = is_ref(type) || (type == DType::kResource && plan_step.num_outputs == 0);
      if (updated) changed |= uint64_t{1} << i;
    }
    MR_TRY_ASSIGN(const int call, recorder.begin_call(after[at], inputs, changed));
    if (plan_step.kind == StepKind::kNothing) {
      // only orders
    } else if (traits.recv) {
      MR_TRY_ASSIGN(const std::string name, link_name(plan_step));
      if (auto at = fed.find(name); at != fed.end()) outputs[0] = Value::of(at->second);
      fed.erase(name);
    } else if (traits.send) {
      MR_TRY_ASSIGN(std::string name, link_name(plan_step));
      sent.emplace(std::move(name), inputs[0]->tensor);
    } else {
      const int64_t before = recorder.num_uses();
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i]->is_ref()) continue;
        recorder.uses(std::make_unique<RecordedCell>(inputs[i]->cell, is_ref(node.input_types[i])));
        if (is_ref(node.input_types[i])) recorder.changes(inputs[i]->cell.get());
      }
      if (plan_step.needs.any()) {
        copies.assign(inputs.size(), Value());
        MR_TRY(prepare_inputs(node, plan_step.needs, inputs.data(), copies.data()));
      }
      KernelContext ctx({.node = &node,
                         .step = &step,
                         .device = &recorder,
                         .inputs = inputs.data(),
                         .outputs = outputs,
                         .num_inputs = plan_step.num_inputs,
                         .num_outputs = plan_step.num_outputs,
                         .movable = movable,
                         .host_outputs = plan_step.host_outputs,
                         .output_types = plan_step.output_types});
      MR_TRY(plan_step.kernel->compute(ctx));
      MR_TRY(check_outputs(plan_step.output_types, plan_step.num_outputs, outputs));
      copies.clear();
      if (names_state(node) && plan_step.num_outputs == 1 && outputs[0].is_ref()) {
        references_.push_back({static_cast<int32_t>(at), outputs[0].cell});
      }
      const bool has_state = traits.stateful && !names_state(node) && !plan_step.async;
      if (has_state && recorder.num_uses() == before) {
        return failed_precondition(node.op->name, " \"", node.name, "\" has other state");
      }
    }
    MR_TRY(recorder.end_call({outputs, static_cast<size_t>(plan_step.num_outputs)}));
    for (int e = 0; e < plan_step.num_edges; ++e) {
      after[static_cast<size_t>(plan_->edges[nth(plan_step.first_edge, e)].step)].push_back(call);
    }
    for (int i = 0; i < plan_step.num_inputs; ++i) {
      const auto slot = static_cast<size_t>(plan_->inputs[nth(plan_step.first_input, i)]);
      if (--uses[slot] == 0) slots[slot].clear();
    }
    for (int i = 0; i < plan_step.num_outputs; ++i) {
      const size_t slot = nth(plan_step.first_output, i);
      if (uses[slot] == 0) slots[slot].clear();
    }
  }
  for (const Link& link : fetches_) MR_TRY(recorder.add_fetch(sent.at(link.name)));
  return ok_status();
}

}  // namespace millrace
