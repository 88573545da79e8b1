// The ops on the gate between the steps of synchronous training.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/queue/step_gate.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

// All arguments but the handle are scalars, and so are outputs.
Status gate_shape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) MR_TRY(c.with_rank(i, 0).status());
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, PartialShape::scalar());
  return ok_status();
}

// Argument i, a scalar.
Result<int64_t> number(const KernelContext& ctx, int i) {
  MR_TRY(expect_rank(ctx, i, 0));
  return ctx.scalar_input<int64_t>(i);
}

// Argument i, a scalar that counts something.
Result<int64_t> count(const KernelContext& ctx, int i, std::string_view name) {
  MR_TRY_ASSIGN(const int64_t value, number(ctx, i));
  if (value < 0) return invalid_argument(name, " must not be negative, got ", value);
  return value;
}

class MakeGate : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    if (name.shared_name.empty()) {
      name.shared_name = ResourceManager::session_name(node.session_prefix, node.name);
    }
    return std::make_unique<MakeGate>(std::move(name));
  }
  explicit MakeGate(StateName name) : name_(std::move(name)) {}

  Status compute(KernelContext& ctx) const override {
    const std::string& name = name_.shared_name;
    const std::string_view container = container_or_default(name_.container);
    MR_TRY(ctx.resources()
               .lookup_or_create<StepGate>(
                   container, name,
                   [&]() -> Result<Ref<StepGate>> { return make_ref<StepGate>(name); })
               .status());
    ctx.set_output(0, make_handle(ctx, container, name, StepGate::kTypeName, {}));
    return ok_status();
  }

 private:
  const StateName name_;
};

class Wait : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return std::make_unique<Wait>();
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<StepGate>> gate = resource_input<StepGate>(ctx, 0);
    if (!gate.ok()) return done(gate.status());
    Result<int64_t> era = number(ctx, 1);
    if (!era.ok()) return done(era.status());
    Result<int64_t> local_step = number(ctx, 2);
    if (!local_step.ok()) return done(local_step.status());
    StepGate& target = **gate;
    target.wait(*era, *local_step, ctx.cancel(),
                [&ctx, gate = std::move(*gate), done = std::move(done)](Status status, int64_t now,
                                                                        int64_t step) mutable {
                  if (status.ok()) {
                    ctx.set_output(0, Tensor::scalar(step));
                    ctx.set_output(1, Tensor::scalar(now));
                  }
                  done(std::move(status));
                });
  }
};

// A replica at a gate, for as long as its session lives.
class GateMember final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "GateMember";

  GateMember(Ref<StepGate> gate, std::string replica)
      : gate_(std::move(gate)), replica_(std::move(replica)), number_(gate_->join(replica_)) {}

  void pace(int64_t staleness, CancellationToken* cancel, StepGate::Done done) {
    gate_->pace(replica_, number_, staleness, cancel, std::move(done));
  }
  std::string describe() const override { return str_cat("replica '", replica_, "' at a gate"); }

 protected:
  ~GateMember() override { gate_->withdraw(replica_, number_); }

 private:
  const Ref<StepGate> gate_;
  const std::string replica_;
  const uint64_t number_;
};

class Pace : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return std::make_unique<Pace>();
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    int64_t staleness = 0;
    Result<Ref<GateMember>> member = find(ctx, staleness);
    if (!member.ok()) return done(member.status());
    // Not held while it waits: the end of its session is what lets the others go on.
    (*member)->pace(staleness, ctx.cancel(),
                    [&ctx, done = std::move(done)](Status status, int64_t, int64_t step) mutable {
                      if (status.ok()) ctx.set_output(0, Tensor::scalar(step));
                      done(std::move(status));
                    });
  }

 private:
  static Result<Ref<GateMember>> find(KernelContext& ctx, int64_t& staleness) {
    MR_TRY_ASSIGN(Ref<StepGate> gate, resource_input<StepGate>(ctx, 0));
    MR_TRY(expect_rank(ctx, 1, 0));
    MR_TRY_ASSIGN(const std::string replica, ctx.scalar_input<std::string>(1));
    MR_TRY_ASSIGN(staleness, count(ctx, 2, "staleness"));
    const std::string name = ResourceManager::session_name(
        ctx.node().session_prefix, str_cat("gate of ", replica, " ", gate->name()));
    return ctx.resources().lookup_or_create<GateMember>(
        ResourceManager::kDefaultContainer, name, [&]() -> Result<Ref<GateMember>> {
          return make_ref<GateMember>(std::move(gate), replica);
        });
  }
};

Status reset_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<StepGate> gate, resource_input<StepGate>(ctx, 0));
  MR_TRY_ASSIGN(const int64_t era, number(ctx, 1));
  MR_TRY_ASSIGN(const int64_t step, number(ctx, 2));
  gate->reset(era, step);
  return ok_status();
}

Status open_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<StepGate> gate, resource_input<StepGate>(ctx, 0));
  MR_TRY_ASSIGN(const int64_t step, number(ctx, 1));
  gate->open(step);
  return ok_status();
}

Status admit_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<StepGate> gate, resource_input<StepGate>(ctx, 0));
  MR_TRY_ASSIGN(const int64_t step, number(ctx, 1));
  MR_TRY_ASSIGN(const int64_t admissions, count(ctx, 2, "count"));
  gate->admit(step, admissions);
  return ok_status();
}

Status leave_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<StepGate> gate, resource_input<StepGate>(ctx, 0));
  MR_TRY_ASSIGN(const int64_t replicas, count(ctx, 1, "replicas"));
  MR_TRY_ASSIGN(const int64_t required, count(ctx, 2, "required"));
  gate->leave(replicas, required);
  return ok_status();
}

Status close_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<StepGate> gate, resource_input<StepGate>(ctx, 0));
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(const std::string reason, ctx.scalar_input<std::string>(1));
  gate->close(reason.empty() ? "no reason was given" : reason);
  return ok_status();
}

}  // namespace

void register_step_gates(Registry& registry) {
  const OpTraits traits = {.stateful = true, .cannot_differentiate = true};
  const OpSpec::Arg era = {"era", "host(int64)", "Of the training; 0 for whichever it is."};
  registry.add({.name = "StepGate",
                .doc = "A gate between the steps of replicas that make them together.",
                .outputs = {{"handle", "resource"}},
                .attrs = {{"container", "string = ''"},
                          {"shared_name", "string = ''", "Nodes with the same name share one."}},
                .traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true},
                .shape = gate_shape});
  registry.kernel({.op = "StepGate", .factory = MakeGate::make});
  registry.add({.name = "StepGateReset",
                .doc = "Puts a gate at a step of an era as if nobody had been there before. In an "
                       "era, not 0, that has begun already, as StepGateOpen.",
                .inputs = {{"handle", "resource"}, era, {"step", "host(int64)"}},
                .traits = traits,
                .shape = gate_shape});
  registry.kernel({.op = "StepGateReset", .function = reset_cpu});
  registry.add({.name = "StepGateOpen",
                .doc = "Lets all who wait at earlier steps go on with this one.",
                .inputs = {{"handle", "resource"}, {"step", "host(int64)"}},
                .traits = traits,
                .shape = gate_shape});
  registry.kernel({.op = "StepGateOpen", .function = open_cpu});
  registry.add({.name = "StepGateAdmit",
                .doc = "Lets some of those who are at a step go on with it once more.",
                .inputs = {{"handle", "resource"},
                           {"step", "host(int64)"},
                           {"count", "host(int64)", "Of them; replaces what was left."}},
                .traits = traits,
                .shape = gate_shape});
  registry.kernel({.op = "StepGateAdmit", .function = admit_cpu});
  registry.add({.name = "StepGateWait",
                .doc = "Waits until a gate is at a later step or in another era, and says where.",
                .inputs = {{"handle", "resource"}, era, {"local_step", "host(int64)"}},
                .outputs = {{"step", "host(int64)"}, {"now", "host(int64)", "The gate's era."}},
                .traits = traits,
                .shape = gate_shape});
  registry.kernel({.op = "StepGateWait", .factory = Wait::make});
  registry.add({.name = "StepGatePace",
                .doc = "Says that a replica has made a step, and waits while others are too far "
                       "behind it; says how many it has made. Nobody waits for a replica whose "
                       "session is over.",
                .inputs = {{"handle", "resource"},
                           {"replica", "host(string)", "Its name among the others."},
                           {"staleness", "host(int64)", "How many steps others may be behind."}},
                .outputs = {{"step", "host(int64)"}},
                .traits = traits,
                .shape = gate_shape});
  registry.kernel({.op = "StepGatePace", .factory = Pace::make});
  registry.add({.name = "StepGateLeave",
                .doc = "Says that a replica gives no more gradients; closes a gate behind which "
                       "too few are left.",
                .inputs = {{"handle", "resource"},
                           {"replicas", "host(int64)", "How many there were."},
                           {"required", "host(int64)", "How many a step needs."}},
                .traits = traits,
                .shape = gate_shape});
  registry.kernel({.op = "StepGateLeave", .function = leave_cpu});
  registry.add({.name = "StepGateClose",
                .doc = "Ends the waits at a gate, those to come too, with OUT_OF_RANGE.",
                .inputs = {{"handle", "resource"}, {"reason", "host(string)"}},
                .traits = traits,
                .shape = gate_shape});
  registry.kernel({.op = "StepGateClose", .function = close_cpu});
}

}  // namespace millrace
