#include "millrace/eager/eager_context.h"

#include <algorithm>
#include <unordered_map>

#include "millrace/autodiff/gradient_registry.h"
#include "millrace/base/clock.h"
#include "millrace/base/hash.h"
#include "millrace/base/mutex.h"
#include "millrace/eager/interruptible.h"
#include "millrace/eager/recorder.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/op_registry.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace::eager {
namespace {

// Kernels that nobody asked for in a long time are made again when somebody does.
constexpr size_t kMaxPlain = 8192;
constexpr size_t kMaxWithState = 256;

std::atomic<uint64_t> contexts_made{0};
std::atomic<uint64_t> names_made{0};

// What this thread used last, by hash: found without a lock. Nothing that keeps state is here.
struct Recent {
  static constexpr size_t kSize = 512;
  Ref<PreparedOp> ops[kSize];
};
Recent& recent() {
  thread_local const std::unique_ptr<Recent> mine = std::make_unique<Recent>();
  return *mine;
}

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 32;
}

bool has_reference(const std::vector<ArgDef>& args) {
  return std::any_of(args.begin(), args.end(), [](const ArgDef& arg) { return arg.is_ref; });
}

// Why an op cannot run by itself, with what to use instead; OK where it can.
Status check_runs_alone(const OpDef& op) {
  const OpTraits& is = op.traits;
  if (has_reference(op.inputs) || has_reference(op.outputs)) {
    return unimplemented(
        "works on reference variables, which only graphs have: use resource variables "
        "(tf.Variable in Python, eager::Variable in C++)");
  }
  if (is.placeholder) {
    return unimplemented("stands for a value that a session is fed: pass the value itself");
  }
  if (is.argument || is.result) {
    return unimplemented("is part of the body of a function: call the function");
  }
  if (is.send || is.recv) {
    return unimplemented("moves a tensor between the parts of a graph: copy it to the device");
  }
  if (is.control_flow != ControlFlow::kNone) {
    return unimplemented(
        "orders what runs in a graph: use the language's own if and while, or If and While with "
        "functions (tf.cond, tf.while_loop)");
  }
  if (is.step_state) {
    return unimplemented(
        "makes state that ends with a session's run: use tensor lists (tf.TensorArray)");
  }
  return ok_status();
}

// Runs a kernel that may have to wait. Interrupted, it is told to end, and waited for: it works
// with what the caller holds.
Status run_waiting(const AsyncKernel& kernel, KernelContext& ctx) {
  struct Waiting : Ending {
    Status status;
  };
  const Ref<Waiting> waiting = make_ref<Waiting>();
  kernel.compute_async(ctx, [waiting](Status status) {
    waiting->status = std::move(status);
    waiting->over();
  });
  const bool interrupted = !waiting->wait(ctx.step());
  if (!interrupted) return std::move(waiting->status);
  const Interruptible to_the_end(nullptr);
  waiting->wait(ctx.step());
  return ctx.step().cancel->status();
}

bool takes_handle(const std::vector<DType>& types) {
  return std::any_of(types.begin(), types.end(), [](DType type) {
    return type == DType::kResource || type == DType::kVariant;
  });
}

bool has_rule(const KernelNode& node) {
  return node.op->gradient != nullptr || node.attrs.find(kGradientOverride) != nullptr ||
         static_cast<bool>(find_gradient(node.op->name));
}

// The attributes that hold the functions an op runs, in the order run_functional() wants them.
Result<std::vector<FunctionAttr>> functions_of(const KernelNode& node) {
  switch (node.op->traits.functional) {
    case FunctionalOp::kCall: {
      MR_TRY_ASSIGN(FunctionAttr f, node.attr<FunctionAttr>("f"));
      return std::vector<FunctionAttr>{std::move(f)};
    }
    case FunctionalOp::kIf: {
      MR_TRY_ASSIGN(FunctionAttr yes, node.attr<FunctionAttr>("then_branch"));
      MR_TRY_ASSIGN(FunctionAttr no, node.attr<FunctionAttr>("else_branch"));
      return std::vector<FunctionAttr>{std::move(yes), std::move(no)};
    }
    case FunctionalOp::kCase:
      return node.attr<std::vector<FunctionAttr>>("branches");
    case FunctionalOp::kWhile: {
      MR_TRY_ASSIGN(FunctionAttr cond, node.attr<FunctionAttr>("cond"));
      MR_TRY_ASSIGN(FunctionAttr body, node.attr<FunctionAttr>("body"));
      return std::vector<FunctionAttr>{std::move(cond), std::move(body)};
    }
    default:
      return unimplemented("differentiates a function of a graph: use a tape");
  }
}

}  // namespace

struct EagerContext::Cache {
  mutable Mutex mu;
  std::unordered_map<uint64_t, std::vector<Ref<PreparedOp>>> ops MR_GUARDED_BY(mu);
  size_t num_plain MR_GUARDED_BY(mu) = 0;
  size_t num_with_state MR_GUARDED_BY(mu) = 0;
  uint64_t calls MR_GUARDED_BY(mu) = 0;
  Ref<TraceCollector> trace MR_GUARDED_BY(mu);
  // Of what devices with a stream run; another one after an error.
  Ref<Step> enqueued MR_GUARDED_BY(mu);

  Ref<PreparedOp> find(uint64_t hash, const Op& op, const Device* wanted,
                       std::span<EagerTensor* const> inputs) MR_REQUIRES(mu) {
    const auto it = ops.find(hash);
    if (it == ops.end()) return nullptr;
    for (const Ref<PreparedOp>& known : it->second) {
      if (!known->equals(op, wanted, inputs)) continue;
      if (known->own_state) known->last_used = ++calls;
      return known;
    }
    return nullptr;
  }

  void add(Ref<PreparedOp> op, std::vector<Ref<PreparedOp>>& dropped) MR_REQUIRES(mu) {
    size_t& count = op->own_state ? num_with_state : num_plain;
    const size_t limit = op->own_state ? kMaxWithState : kMaxPlain;
    if (++count > limit) count = 1 + drop(op->own_state, dropped);
    ops[op->hash].push_back(std::move(op));
  }

  // Drops those of one kind, with state only the half that was not used for longest. How many stay.
  size_t drop(bool own_state, std::vector<Ref<PreparedOp>>& dropped) MR_REQUIRES(mu) {
    std::vector<uint64_t> times;
    for (const auto& [hash, same] : ops) {
      for (const Ref<PreparedOp>& op : same) {
        if (own_state && op->own_state) times.push_back(op->last_used);
      }
    }
    uint64_t oldest = ~uint64_t{0};
    if (!times.empty()) {
      std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
      oldest = times[times.size() / 2];
    }
    size_t kept = 0;
    for (auto it = ops.begin(); it != ops.end();) {
      std::erase_if(it->second, [&](Ref<PreparedOp>& op) {
        if (op->own_state != own_state) return false;
        if (own_state && op->last_used >= oldest) {
          ++kept;
          return false;
        }
        dropped.push_back(std::move(op));
        return true;
      });
      it = it->second.empty() ? ops.erase(it) : std::next(it);
    }
    return kept;
  }
};

Result<Ref<EagerContext>> EagerContext::create(ContextOptions options) {
  if (options.ops == nullptr) options.ops = &OpRegistry::global();
  if (options.kernels == nullptr) options.kernels = &KernelRegistry::global();
  if (options.devices.empty() || options.devices[0]->info().own_memory) {
    return invalid_argument("the first device must be a CPU of this process");
  }
  if (options.default_device >= options.devices.size()) {
    return invalid_argument("expected a default device below ", options.devices.size(), ", got ",
                            options.default_device);
  }
  return Ref<EagerContext>(new EagerContext(std::move(options)));
}

EagerContext::EagerContext(ContextOptions options)
    : options_(std::move(options)),
      id_(contexts_made.fetch_add(1, std::memory_order_relaxed) + 1),
      step_(make_ref<Step>()),
      cache_(std::make_unique<Cache>()) {
  step_->max_threads = options_.max_threads;
  step_->functions = options_.functions;
}

EagerContext::~EagerContext() = default;

Result<Device*> EagerContext::find_device(std::string_view name) const {
  std::vector<std::string> names;
  for (const Ref<Device>& device : options_.devices) {
    if (device->name() == name) return device.get();
    names.push_back(device->name());
  }
  return not_found("no device '", name, "'; there are ", str_join(names, ", "));
}

Result<Tensor> EagerContext::to_host(const EagerTensor& tensor) const {
  Ref<Step> enqueued;
  {
    MutexLock lock(cache_->mu);
    enqueued = cache_->enqueued;
  }
  Result<Tensor> copy = tensor.device().info().own_memory
                            ? copy_to_host(tensor.device(), tensor.tensor())
                            : Result<Tensor>(tensor.tensor());
  if (!enqueued || enqueued->error().ok()) return copy;
  MutexLock lock(cache_->mu);
  if (cache_->enqueued == enqueued) cache_->enqueued = nullptr;
  return enqueued->error();
}

Result<TensorRef> EagerContext::to_device(TensorRef tensor, Device& device) const {
  const bool to_own = device.info().own_memory;
  if (&tensor->device() == &device || (!to_own && !tensor->device().info().own_memory)) {
    return tensor;
  }
  if (to_own && lives_on_host(tensor->dtype())) return tensor;
  MR_TRY_ASSIGN(Tensor host, to_host(*tensor));
  if (!to_own) return make_ref<EagerTensor>(std::move(host), device);
  MR_TRY_ASSIGN(Tensor there, copy_from_host(device, host));
  return make_ref<EagerTensor>(std::move(there), device);
}

Result<Op> EagerContext::op(std::string_view name, AttrMap attrs, std::string_view device) const {
  MR_TRY_ASSIGN(const OpDef* def, options_.ops->lookup(name));
  Device* where = nullptr;
  if (!device.empty()) {
    MR_TRY_ASSIGN(where, find_device(device));
  }
  return Op(*def, std::move(attrs), where);
}

Device* EagerContext::place(const Op& op, std::span<EagerTensor* const> inputs) const {
  if (op.device() != nullptr) return op.device();
  if (options_.devices.size() == 1) [[likely]]
    return options_.devices[0].get();
  for (const EagerTensor* input : inputs) {
    if (input->dtype() != DType::kResource || input->tensor().num_elements() != 1) continue;
    const std::string& name = input->tensor().item<ResourceHandle>().device;
    for (const Ref<Device>& device : options_.devices) {
      if (device->name() == name) return device.get();
    }
  }
  for (const EagerTensor* input : inputs) {
    if (input->device().info().own_memory) return &input->device();
  }
  return options_.devices[options_.default_device].get();
}

Status EagerContext::make_kernel(PreparedOp& prepared) const {
  Result<std::unique_ptr<Kernel>> kernel =
      millrace::make_kernel(*options_.kernels, prepared.node, prepared.device->kind());
  if (!kernel.ok() && kernel.status().code() == Code::kNotFound && options_.soft_placement &&
      prepared.device != &host()) {
    prepared.device = prepared.node.device = &host();
    kernel = millrace::make_kernel(*options_.kernels, prepared.node, host().kind());
  }
  MR_TRY(kernel.status());
  prepared.kernel = std::move(*kernel);
  prepared.async = dynamic_cast<const AsyncKernel*>(prepared.kernel.get()) != nullptr;
  return ok_status();
}

Result<Ref<PreparedOp>> EagerContext::make(const Op& op, Device* wanted,
                                           std::span<EagerTensor* const> inputs) const {
  const OpDef& def = op.def();
  const OpTraits& is = def.traits;
  MR_TRY(check_runs_alone(def));
  Ref<PreparedOp> out = make_ref<PreparedOp>();
  out->context = id_;
  out->registry = options_.ops;
  out->given = op.attrs();
  out->wanted = out->device = wanted;
  KernelNode& node = out->node;
  node.op = &def;
  node.name = def.name;
  node.device = wanted;
  node.attrs = op.attrs();
  std::vector<DType> types;
  for (const EagerTensor* input : inputs) types.push_back(input->dtype());
  MR_TRY(infer_type_attrs(def, types, node.attrs));
  MR_TRY(check_attrs(def, node.attrs));
  MR_TRY_ASSIGN(node.input_types, expand_types(def.inputs, node.attrs));
  MR_TRY_ASSIGN(node.output_types, expand_types(def.outputs, node.attrs));
  for (size_t i = 0; i < std::min(types.size(), node.input_types.size()); ++i) {
    if (types[i] == node.input_types[i]) continue;
    return invalid_argument("input ", i, ": expected ", user_type_name(node.input_types[i]),
                            ", found ", user_type_name(types[i]));
  }
  if (types.size() != node.input_types.size()) {
    return invalid_argument("expected ", node.input_types.size(), " inputs, found ", types.size());
  }
  if (is.constant) {
    out->way = PreparedOp::Way::kConstant;
    return out;
  }
  if (is.functional != FunctionalOp::kNone) {
    out->way = PreparedOp::Way::kFunctional;
    if (!options_.functions) return unimplemented("this context has no functions");
    MR_TRY_ASSIGN(const std::vector<FunctionAttr> functions, functions_of(node));
    for (const FunctionAttr& f : functions) {
      MR_TRY_ASSIGN(const FunctionRunner::Handle handle,
                    options_.functions->instantiate(f.name, f.attrs));
      out->functions.push_back(handle);
    }
  } else {
    if (is.stateful && (is.owns_state || !takes_handle(node.input_types))) {
      const uint64_t number = names_made.fetch_add(1, std::memory_order_relaxed);
      node.session_prefix = str_cat("eager_", number);
      node.name = str_cat(def.name, "_", number);
      out->own_state = !is.owns_state;
      if (out->own_state && wanted == &host() && options_.own_state) {
        out->device = node.device = options_.own_state.get();
      }
      // Without a name of its own a graph's node has that of the graph: here it has nobody's.
      const Result<std::string> shared = node.attr<std::string>("shared_name");
      if (is.owns_state && shared.ok() && shared->empty()) {
        node.attrs.set("shared_name", node.name);
      }
    }
    MR_TRY(make_kernel(*out));
  }
  if (out->device->info().own_memory) {
    MR_TRY_ASSIGN(node.host_inputs, expand_host(def.inputs, node.attrs));
    MR_TRY_ASSIGN(node.host_outputs, expand_host(def.outputs, node.attrs));
  }
  out->needs.retains = is.retains;
  if (out->way == PreparedOp::Way::kKernel && !out->async && !out->needs.any() &&
      node.output_types.size() == 1 && options_.devices.size() == 1 && out->device == &host()) {
    out->way = PreparedOp::Way::kPlain;
  }
  bool any_output = false;
  for (DType type : node.output_types) {
    out->differentiable_outputs.push_back(has_gradients(type));
    any_output |= has_gradients(type);
  }
  out->recorded = any_output && (has_rule(node) || !is.cannot_differentiate);
  return out;
}

Result<Ref<PreparedOp>> EagerContext::find_or_make(const Op& op, Device* wanted, uint64_t hash,
                                                   std::span<EagerTensor* const> inputs) {
  Cache& cache = *cache_;
  const bool kept = !op.once && !op.def().traits.owns_state && !op.def().traits.constant;
  if (kept) {
    MutexLock lock(cache.mu);
    if (Ref<PreparedOp> known = cache.find(hash, op, wanted, inputs)) return known;
  }
  Result<Ref<PreparedOp>> made = make(op, wanted, inputs);
  if (!made.ok()) return made.status().with_prefix(op.def().name);
  (*made)->hash = hash;
  if (!kept) return made;
  std::vector<Ref<PreparedOp>> dropped;  // freed without the lock
  MutexLock lock(cache.mu);
  if (Ref<PreparedOp> known = cache.find(hash, op, wanted, inputs)) return known;
  (*made)->last_used = ++cache.calls;
  cache.add(*made, dropped);
  lock.unlock();
  return made;
}

PreparedOp* EagerContext::find(const Op& op, std::span<EagerTensor* const> inputs,
                               Ref<PreparedOp>& holder, Status& error) {
  Device* wanted = place(op, inputs);
  uint64_t hash = mix(op.hash(), id_);
  for (const EagerTensor* input : inputs) hash = mix(hash, static_cast<uint64_t>(input->dtype()));
  if (wanted != options_.devices[0].get()) hash = mix(hash, reinterpret_cast<uintptr_t>(wanted));
  Ref<PreparedOp>& slot = recent().ops[hash % Recent::kSize];
  if (slot && slot->hash == hash && slot->context == id_ && slot->equals(op, wanted, inputs))
      [[likely]] {
    // A plain kernel runs to its end before this thread looks for another.
    if (slot->way != PreparedOp::Way::kPlain) holder = slot;
    return slot.get();
  }
  Result<Ref<PreparedOp>> found = find_or_make(op, wanted, hash, inputs);
  if (!found.ok()) {
    error = found.status();
    return nullptr;
  }
  const OpTraits& is = op.def().traits;
  if (!(*found)->own_state && !op.once && !is.owns_state && !is.constant) slot = *found;
  holder = *std::move(found);
  return holder.get();
}

Result<Ref<PreparedOp>> EagerContext::prepare(const Op& op, std::span<EagerTensor* const> inputs) {
  Ref<PreparedOp> holder;
  Status error;
  PreparedOp* found = find(op, inputs, holder, error);
  if (found == nullptr) return error;
  return holder ? std::move(holder) : Ref<PreparedOp>(found);
}

// One call of the kernel, with its errors completed.
inline Status EagerContext::compute(PreparedOp& op, Step& step, Value* const* inputs,
                                    size_t num_inputs, uint64_t movable, Value* outputs) const {
  const int num_outputs = op.node.num_outputs();
  KernelContext ctx({.node = &op.node,
                     .step = &step,
                     .device = op.device,
                     .inputs = inputs,
                     .outputs = outputs,
                     .num_inputs = static_cast<int>(num_inputs),
                     .num_outputs = num_outputs,
                     .movable = movable,
                     .host_outputs = !op.node.host_outputs.empty(),
                     .output_types = op.node.output_types.data()});
  Status status = op.async && Interruptible::here() != nullptr
                      ? run_waiting(static_cast<const AsyncKernel&>(*op.kernel), ctx)
                      : op.kernel->compute(ctx);
  if (status.ok()) [[likely]]
    status = check_outputs(op.node.output_types.data(), num_outputs, outputs);
  if (status.ok()) [[likely]]
    return status;
  return with_inputs(status, std::span(inputs, num_inputs)).with_prefix(op.def().name);
}

Status EagerContext::run_kernel(PreparedOp& op, std::span<EagerTensor* const> inputs,
                                uint64_t movable, TensorRef* outputs) {
  std::vector<TensorRef> moved(inputs.size());  // to the memory where they are read
  std::vector<Value*> values(inputs.size());
  const bool own_memory = op.device->info().own_memory;
  Device& device = op.device == options_.own_state.get() ? host() : *op.device;
  for (size_t i = 0; i < inputs.size(); ++i) {
    EagerTensor* input = inputs[i];
    const bool forwards = op.def().traits.metadata_only;
    if (!forwards && (own_memory || input->device().info().own_memory)) {
      Device& where = own_memory && !op.node.host_inputs[i] ? *op.device : host();
      MR_TRY_ASSIGN(moved[i], to_device(TensorRef(input), where));
      if (moved[i].get() != input) movable &= ~(i < 64 ? uint64_t{1} << i : 0);
      input = moved[i].get();
    }
    values[i] = &input->value_;
  }
  std::vector<Value> copies(op.needs.any() ? inputs.size() : 0);
  if (op.needs.any()) {
    MR_TRY(prepare_inputs(op.node, op.needs, values.data(), copies.data()));
  }
  Ref<Step> step = step_;
  if (op.async) {
    step = Step::make_shared(0);
    step->max_threads = options_.max_threads;
    step->functions = options_.functions;
  } else if (op.device->stream() != nullptr) {
    MutexLock lock(cache_->mu);
    if (!cache_->enqueued) {
      cache_->enqueued = make_ref<Step>();
      cache_->enqueued->max_threads = options_.max_threads;
    }
    step = cache_->enqueued;
  }
  std::vector<Value> made(op.node.output_types.size());
  MR_TRY(compute(op, *step, values.data(), values.size(), movable, made.data()));
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i].state != Value::State::kTensor) {
      return internal(op.def().name, ": output ", i, " is no value");
    }
    const bool on_host = !own_memory || made[i].tensor.buffer()->space() != MemorySpace::kDevice;
    outputs[i] = make_ref<EagerTensor>(on_host && own_memory ? host() : device);
    outputs[i]->value_ = std::move(made[i]);
  }
  return ok_status();
}

Status EagerContext::run(PreparedOp& op, std::span<EagerTensor* const> inputs, uint64_t movable,
                         TensorRef* outputs) {
  if (traced_.load(std::memory_order_relaxed)) [[unlikely]]
    return run_traced(op, inputs, movable, outputs);
  return run_untraced(op, inputs, movable, outputs);
}

Status EagerContext::run_traced(PreparedOp& op, std::span<EagerTensor* const> inputs,
                                uint64_t movable, TensorRef* outputs) {
  const Ref<TraceCollector> collector = trace();
  TraceEvent event;
  event.node = op.node.name;
  event.op = op.def().name;
  event.device = (op.device == options_.own_state.get() ? host() : *op.device).name();
  event.start_ns = monotonic_nanos();
  Status status = run_untraced(op, inputs, movable, outputs);
  event.end_ns = monotonic_nanos();
  for (size_t i = 0; status.ok() && i < op.node.output_types.size(); ++i) {
    event.allocated_bytes += static_cast<int64_t>(outputs[i]->tensor().bytes());
  }
  if (collector) collector->record(std::move(event));
  return status;
}

Ref<TraceCollector> EagerContext::trace() const {
  if (!traced_.load(std::memory_order_relaxed)) [[likely]]
    return {};
  MutexLock lock(cache_->mu);
  return cache_->trace;
}

void EagerContext::start_trace() {
  Ref<TraceCollector> collector = make_ref<TraceCollector>();
  MutexLock lock(cache_->mu);
  std::swap(cache_->trace, collector);
  traced_.store(true, std::memory_order_relaxed);
}

Result<std::vector<TraceEvent>> EagerContext::stop_trace() {
  Ref<TraceCollector> collector;
  {
    MutexLock lock(cache_->mu);
    std::swap(cache_->trace, collector);
    traced_.store(false, std::memory_order_relaxed);
  }
  if (!collector) return failed_precondition("nothing is traced: start_trace() comes first");
  return collector->events();
}

Status EagerContext::run_untraced(PreparedOp& op, std::span<EagerTensor* const> inputs,
                                  uint64_t movable, TensorRef* outputs) {
  constexpr size_t kFew = 8;
  Recorder recorder(op.recorded ? inputs : std::span<EagerTensor* const>());
  if (recorder.any()) [[unlikely]]
    movable = 0;
  if (op.way == PreparedOp::Way::kPlain && inputs.size() <= kFew) [[likely]] {
    Value* values[kFew];
    for (size_t i = 0; i < inputs.size(); ++i) values[i] = &inputs[i]->value_;
    TensorRef made = make_ref<EagerTensor>(*op.device);
    MR_TRY(compute(op, *step_, values, inputs.size(), movable, &made->value_));
    if (made->value_.state != Value::State::kTensor) [[unlikely]]
      return internal(op.def().name, ": the output is no value");
    outputs[0] = std::move(made);
  } else if (op.way == PreparedOp::Way::kConstant) {
    MR_TRY_ASSIGN(Tensor value, op.node.attr<Tensor>("value"));
    outputs[0] = tensor(std::move(value));
  } else if (op.way == PreparedOp::Way::kFunctional) {
    MR_TRY(run_functional(op, inputs, outputs));
  } else {
    MR_TRY(run_kernel(op, inputs, movable, outputs));
  }
  if (recorder.any()) [[unlikely]]
    recorder.record(op, outputs);
  return ok_status();
}

Status EagerContext::run_one(const Op& op, std::span<EagerTensor* const> inputs,
                             TensorRef& output) {
  Ref<PreparedOp> holder;
  Status error;
  PreparedOp* prepared = find(op, inputs, holder, error);
  if (prepared == nullptr) [[unlikely]]
    return error;
  if (prepared->node.num_outputs() != 1) [[unlikely]] {
    return invalid_argument(op.def().name, ": expected one output, it has ",
                            prepared->node.num_outputs());
  }
  return run(*prepared, inputs, 0, &output);
}

Result<std::vector<TensorRef>> EagerContext::execute(const Op& op, std::vector<TensorRef> inputs) {
  std::vector<EagerTensor*> borrowed;
  borrowed.reserve(inputs.size());
  uint64_t movable = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i]) return invalid_argument(op.def().name, ": input ", i, " is missing");
    borrowed.push_back(inputs[i].get());
    if (i < 64 && inputs[i]->unique()) movable |= uint64_t{1} << i;
  }
  Ref<PreparedOp> holder;
  Status error;
  PreparedOp* prepared = find(op, borrowed, holder, error);
  if (prepared == nullptr) return error;
  std::vector<TensorRef> outputs(prepared->node.output_types.size());
  MR_TRY(run(*prepared, borrowed, movable, outputs.data()));
  return outputs;
}

Result<std::vector<TensorRef>> EagerContext::execute(std::string_view op,
                                                     std::vector<TensorRef> inputs, AttrMap attrs) {
  MR_TRY_ASSIGN(const Op made, this->op(op, std::move(attrs)));
  return execute(made, std::move(inputs));
}

Result<TensorRef> EagerContext::execute_one(const Op& op, std::vector<TensorRef> inputs) {
  MR_TRY_ASSIGN(std::vector<TensorRef> outputs, execute(op, std::move(inputs)));
  if (outputs.size() == 1) return std::move(outputs[0]);
  return invalid_argument(op.def().name, ": expected one output, it has ", outputs.size());
}

Result<TensorRef> EagerContext::execute_one(std::string_view op, std::vector<TensorRef> inputs,
                                            AttrMap attrs) {
  MR_TRY_ASSIGN(const Op made, this->op(op, std::move(attrs)));
  return execute_one(made, std::move(inputs));
}

void EagerContext::clear_cache() {
  decltype(cache_->ops) dropped;
  MutexLock lock(cache_->mu);
  dropped.swap(cache_->ops);
  cache_->num_plain = cache_->num_with_state = 0;
  lock.unlock();
}

size_t EagerContext::cached_ops() const {
  MutexLock lock(cache_->mu);
  return cache_->num_plain + cache_->num_with_state;
}

}  // namespace millrace::eager
