#include "millrace/runtime/local_function_runner.h"

#include <atomic>
#include <unordered_map>

#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/kernel/op_state.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/kernel/step.h"
#include "millrace/kernel/trace.h"
#include "millrace/runtime/lower.h"
#include "millrace/runtime/optimize.h"
#include "millrace/runtime/plan_set.h"

namespace millrace {
namespace {

// Steps of functions are told apart from those of sessions, which count up from 1.
int64_t fresh_step_id() {
  static std::atomic<int64_t> next{-1};
  return next.fetch_sub(1, std::memory_order_relaxed);
}

class LocalFunctionRunner final : public FunctionRunner {
 public:
  LocalFunctionRunner(Ref<FunctionLibrary> functions, const OpRegistry& registry,
                      Ref<Device> device, FunctionRunnerOptions options)
      : functions_(std::move(functions)),
        registry_(registry),
        device_(std::move(device)),
        options_(std::move(options)) {}

  Result<Handle> instantiate(std::string_view function, const AttrMap& attrs) override {
    MR_TRY_ASSIGN(Ref<FunctionBody> body, functions_->instantiate(function, attrs, registry_));
    Handle handle = 0;
    {
      // The library keeps one body for equal attributes, so the body tells instances apart.
      MutexLock lock(mu_);
      Handle& known = handles_[body.get()];
      if (known == 0) known = handles_.size();
      handle = known;
      if (instances_.contains(handle)) return handle;
    }
    // Built outside the lock: another thread may build the same, then the first one stays.
    Ref<Instance> instance = make_ref<Instance>();
    instance->name = std::string(function);
    instance->body = body;
    Result<Ref<PlanSet>> plans = build(*body, function_scope(function, attrs));
    if (!plans.ok()) return plans.status().with_prefix(str_cat("function \"", function, "\""));
    instance->plans = *std::move(plans);
    MutexLock lock(mu_);
    instances_.try_emplace(handle, std::move(instance));
    return handle;
  }

  void run(Handle handle, std::vector<Tensor> args, Step& caller, Done done) override {
    Ref<Instance> instance;
    {
      MutexLock lock(mu_);
      auto it = instances_.find(handle);
      if (it != instances_.end()) instance = it->second;
    }
    Status status = instance ? instance->check(args)
                             : invalid_argument("no function was instantiated as ", handle);
    if (!status.ok()) return done(std::move(status));
    Ref<Step> step = Step::make_shared(fresh_step_id(), caller.cancel);
    step->pool = caller.pool;
    step->max_threads = caller.max_threads;
    step->deadline = caller.deadline;
    step->interrupted = caller.interrupted;
    step->trace = caller.trace;
    step->functions = Ref<FunctionRunner>(this);
    if (caller.rendezvous) step->rendezvous->collectives = caller.rendezvous->collectives;
    step->hold_feeds(std::move(args));
    step->fetches.resize(instance->body->results.size());
    const PlanSet& plans = *instance->plans;
    if (plans.straight(Gear::kAuto)) {
      status = plans.run_straight(*step);
      return status.ok() ? done(std::move(step->fetches)) : done(std::move(status));
    }
    Step::Done over = [instance, done = std::move(done)](Step& ended) mutable {
      Status error = ended.status();
      error.ok() ? done(std::move(ended.fetches)) : done(std::move(error));
    };
    if (step->interrupted == nullptr) return plans.run_async(step, std::move(over));
    // A caller who may leave early does not run steps itself.
    step->pool->schedule([instance, step, over = std::move(over)]() mutable {
      instance->plans->run_async(step, std::move(over));
    });
  }

 private:
  struct Instance : RefCounted {
    std::string name;
    Ref<FunctionBody> body;
    Ref<PlanSet> plans;

    Status check(const std::vector<Tensor>& args) const {
      const std::vector<DType>& types = body->arg_types;
      if (args.size() != types.size()) {
        return invalid_argument("function \"", name, "\": expected ", types.size(),
                                " arguments, got ", args.size());
      }
      for (size_t i = 0; i < args.size(); ++i) {
        if (args[i].dtype() == types[i]) continue;
        return invalid_argument("function \"", name, "\": argument ", i, " must be ", types[i],
                                ", got ", args[i].dtype());
      }
      return ok_status();
    }
  };

  Result<Ref<PlanSet>> build(const FunctionBody& body, const std::string& scope) {
    Subgraph graph = Subgraph::from_graph(*body.graph);
    LoweredOutputs outputs;
    MR_TRY(lower_functions(graph, 0, body.graph->shared_functions(), outputs));
    for (NodeId id : body.control_results) {
      graph.node(id).set_attr(kTargetAttr, true);
    }
    const DeviceId device = graph.devices().intern(device_->name());
    for (NodeId id = 0; id < graph.size(); ++id) {
      MR_TRY(outputs.error(id));
      SubNode& node = graph.node(id);
      node.device = device;
      // State is kept by name: two functions must not share it.
      node.name = str_cat(scope, "/", node.name);
    }
    OptimizeOptions optimize_options;
    optimize_options.level = options_.optimizer_level;
    optimize_options.kernels = options_.kernels;
    if (device_->kind() == DeviceKind::kCpu) optimize_options.cpu = device_.get();
    MR_TRY(optimize(graph, optimize_options));
    CompileOptions compile_options;
    compile_options.kernels = options_.kernels;
    compile_options.rights = options_.rights;
    compile_options.session_prefix = function_session(options_.session_prefix, scope);
    const DeviceSet devices({device_->info()}, 0);
    return PlanSet::build(graph, std::span(&device_, 1), devices, compile_options);
  }

  const Ref<FunctionLibrary> functions_;
  const OpRegistry& registry_;
  const Ref<Device> device_;
  const FunctionRunnerOptions options_;
  Mutex mu_;
  // The library keeps bodies for ever, so no two have one address.
  std::unordered_map<const FunctionBody*, Handle> handles_ MR_GUARDED_BY(mu_);
  std::unordered_map<Handle, Ref<Instance>> instances_ MR_GUARDED_BY(mu_);
};

}  // namespace

Ref<FunctionRunner> make_function_runner(Ref<FunctionLibrary> functions, const OpRegistry& registry,
                                         Ref<Device> device, FunctionRunnerOptions options) {
  return make_ref<LocalFunctionRunner>(std::move(functions), registry, std::move(device),
                                       std::move(options));
}

}  // namespace millrace
