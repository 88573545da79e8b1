// The ops that make accumulators of gradients, add to them and take from them.

#include <algorithm>
#include <limits>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/accumulator.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

Status make_shape(ShapeContext& c) {
  c.set_output(0, c.output_type(0) == DType::kResource ? PartialShape::scalar() : PartialShape{2});
  return ok_status();
}

// A step, or a number of gradients, is a scalar; nothing is known of outputs.
Status scalar_argument(ShapeContext& c) { return c.with_rank(1, 0).status(); }

// All inputs but the handle are.
Status scalar_arguments(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) MR_TRY(c.with_rank(i, 0).status());
  return ok_status();
}

Status give_shape(ShapeContext& c) {
  for (const int i : {1, 2, 3}) MR_TRY(c.with_rank(i, 0).status());
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

Status sparse_take_shape(ShapeContext& c) {
  c.set_output(0, PartialShape::of_rank(1));
  c.set_output(2, PartialShape::of_rank(1));
  return scalar_arguments(c);
}

Status count_shape(ShapeContext& c) {
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

class MakeAccumulator : public Kernel {
 public:
  template <bool kSparse>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    if (name.shared_name.empty()) {
      name.shared_name = ResourceManager::session_name(node.session_prefix, node.name);
    }
    AccumulatorSpec spec{.sparse = kSparse};
    MR_TRY_ASSIGN(spec.dtype, node.attr<DType>("dtype"));
    MR_TRY_ASSIGN(spec.shape, node.attr<PartialShape>("shape"));
    MR_TRY_ASSIGN(std::string reduction, node.attr<std::string>("reduction_type"));
    spec.mean = std::string_view(reduction) == "MEAN";
    return std::make_unique<MakeAccumulator>(std::move(name), std::move(spec),
                                             is_ref(node.output_types[0]));
  }
  MakeAccumulator(StateName name, AccumulatorSpec spec, bool reference)
      : name_(std::move(name)), spec_(std::move(spec)), reference_(reference) {}

  Status compute(KernelContext& ctx) const override {
    const std::string& name = name_.shared_name;
    const std::string_view container = container_or_default(name_.container);
    MR_TRY_ASSIGN(Ref<Accumulator> accumulator,
                  ctx.resources().lookup_or_create<Accumulator>(
                      container, name, [&]() -> Result<Ref<Accumulator>> {
                        return make_ref<Accumulator>(container, name, spec_);
                      }));
    if (accumulator->spec() != spec_) {
      return invalid_argument("shared accumulator '", name, "' is ", text(accumulator->spec()),
                              ", this node expects ", text(spec_));
    }
    if (reference_) {
      ctx.set_output_ref(0, accumulator->handle());
    } else {
      ctx.set_output(0, make_handle(ctx, container, name, Accumulator::kTypeName,
                                    {{spec_.dtype, spec_.shape}}));
    }
    return ok_status();
  }

 private:
  static std::string text(const AccumulatorSpec& spec) {
    return str_cat(spec.sparse ? "the sparse " : "the ", spec.mean ? "mean" : "sum", " of ",
                   spec.dtype, " ", spec.shape);
  }

  const StateName name_;
  const AccumulatorSpec spec_;
  const bool reference_;
};

Status apply_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Accumulator> accumulator, resource_input<Accumulator>(ctx, 0));
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(const int64_t local_step, ctx.scalar_input<int64_t>(1));
  const AccumulatorGradient gradient{.values = ctx.input(2), .indices = {}, .shape = {}};
  return accumulator->apply(/*era=*/0, local_step, "", gradient).status();
}

Status give_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Accumulator> accumulator, resource_input<Accumulator>(ctx, 0));
  for (const int i : {1, 2, 3}) MR_TRY(expect_rank(ctx, i, 0));
  MR_TRY_ASSIGN(const int64_t era, ctx.scalar_input<int64_t>(1));
  MR_TRY_ASSIGN(const int64_t local_step, ctx.scalar_input<int64_t>(2));
  MR_TRY_ASSIGN(const std::string giver, ctx.scalar_input<std::string>(3));
  const AccumulatorGradient gradient{.values = ctx.input(4), .indices = {}, .shape = {}};
  MR_TRY_ASSIGN(const bool added, accumulator->apply(era, local_step, giver, gradient));
  ctx.set_output(0, Tensor::scalar(added));
  return ok_status();
}

// Adds rows, with `kGives` for somebody: input 1 then is the era, input 3 says who, and output 0
// whether they were.
template <bool kGives>
class SparseApply : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool has_known_shape, node.attr<bool>("has_known_shape"));
    return std::make_unique<SparseApply>(has_known_shape);
  }
  explicit SparseApply(bool has_known_shape) : has_known_shape_(has_known_shape) {}

  Status compute(KernelContext& ctx) const override {
    constexpr int kRows = kGives ? 4 : 2;
    MR_TRY_ASSIGN(Ref<Accumulator> accumulator, resource_input<Accumulator>(ctx, 0));
    for (int i = 1; i < kRows; ++i) MR_TRY(expect_rank(ctx, i, 0));
    MR_TRY_ASSIGN(const int64_t local_step, ctx.scalar_input<int64_t>(kGives ? 2 : 1));
    int64_t era = 0;
    std::string giver;
    if constexpr (kGives) {
      MR_TRY_ASSIGN(era, ctx.scalar_input<int64_t>(1));
      MR_TRY_ASSIGN(giver, ctx.scalar_input<std::string>(3));
    }
    AccumulatorGradient gradient{
        .values = ctx.input(kRows + 1), .indices = ctx.input(kRows), .shape = {}};
    if (has_known_shape_) gradient.shape = ctx.input(kRows + 2);
    MR_TRY_ASSIGN(const bool added, accumulator->apply(era, local_step, giver, gradient));
    if constexpr (kGives) ctx.set_output(0, Tensor::scalar(added));
    return ok_status();
  }

 private:
  const bool has_known_shape_;
};

// Takes gradients; with `kStep`, those of a step: inputs 1 and 2 are its era and number.
template <bool kSparse, bool kStep>
class Take : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const DType dtype, node.attr<DType>("dtype"));
    return std::make_unique<Take>(dtype);
  }
  explicit Take(DType dtype) : dtype_(dtype) {}

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Wanted> found = find(ctx);
    if (!found.ok()) return done(found.status());
    Wanted& wanted = *found;
    Accumulator& target = *wanted.accumulator;
    const int64_t era = wanted.era, step = wanted.step, required = wanted.required;
    target.take(era, step, required, ctx.cancel(),
                [&ctx, accumulator = std::move(wanted.accumulator), done = std::move(done)](
                    Status status, AccumulatorGradient gradient) mutable {
                  if (status.ok()) {
                    if (kSparse) ctx.set_output(0, std::move(gradient.indices));
                    ctx.set_output(kSparse ? 1 : 0, std::move(gradient.values));
                    if (kSparse) ctx.set_output(2, std::move(gradient.shape));
                  }
                  done(std::move(status));
                });
  }

 private:
  struct Wanted {
    Ref<Accumulator> accumulator;
    int64_t era = 0, step = 0, required = 0;
  };

  Result<Wanted> find(KernelContext& ctx) const {
    constexpr int kRequired = kStep ? 3 : 1;
    Wanted out;
    MR_TRY_ASSIGN(out.accumulator, resource_input<Accumulator>(ctx, 0));
    for (int i = 1; i <= kRequired; ++i) MR_TRY(expect_rank(ctx, i, 0));
    if constexpr (kStep) {
      MR_TRY_ASSIGN(out.era, ctx.scalar_input<int64_t>(1));
      MR_TRY_ASSIGN(out.step, ctx.scalar_input<int64_t>(2));
    }
    MR_TRY_ASSIGN(out.required, ctx.int_scalar_input(kRequired));
    if (out.required <= 0) {
      return invalid_argument("Argument num_required must be positive, but is ", out.required);
    }
    const AccumulatorSpec& spec = out.accumulator->spec();
    if (spec.dtype != dtype_ || spec.sparse != kSparse) {
      return invalid_argument("the accumulator holds ", spec.sparse ? "sparse" : "dense",
                              " gradients of type ", spec.dtype, ", this op takes ",
                              kSparse ? "sparse" : "dense", " ones of type ", dtype_);
    }
    return out;
  }

  const DType dtype_;
};

Status count_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Accumulator> accumulator, resource_input<Accumulator>(ctx, 0));
  const int64_t count =
      std::min<int64_t>(accumulator->count(), std::numeric_limits<int32_t>::max());
  ctx.set_output(0, Tensor::scalar(static_cast<int32_t>(count)));
  return ok_status();
}

Status set_step_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Accumulator> accumulator, resource_input<Accumulator>(ctx, 0));
  MR_TRY(expect_rank(ctx, 1, 0));
  MR_TRY_ASSIGN(const int64_t step, ctx.scalar_input<int64_t>(1));
  accumulator->set_global_step(step);
  return ok_status();
}

Status begin_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Accumulator> accumulator, resource_input<Accumulator>(ctx, 0));
  for (const int i : {1, 2}) MR_TRY(expect_rank(ctx, i, 0));
  MR_TRY_ASSIGN(const int64_t era, ctx.scalar_input<int64_t>(1));
  MR_TRY_ASSIGN(const int64_t step, ctx.scalar_input<int64_t>(2));
  accumulator->begin(era, step);
  return ok_status();
}

const OpSpec::Arg kEra = {"era", "host(int64)", "Of the training; 0 for whichever it is."};

// The op for handles that are references and, with `prefix` "Resource", its twin for resources.
void add_op(Registry& registry, const char* prefix, OpSpec spec, KernelDef kernel) {
  const bool resource = *prefix != '\0';
  spec.name = str_cat(prefix, spec.name);
  std::vector<OpSpec::Arg>& args = spec.inputs.empty() ? spec.outputs : spec.inputs;
  args[0].type = resource ? "resource" : "ref(string)";
  spec.traits.stateful = true;
  spec.traits.cannot_differentiate = spec.no_gradient.empty();
  kernel.op = spec.name;
  if (!spec.types.empty()) kernel.constraints = {{"dtype", kNumbers}};
  registry.add(spec);
  registry.kernel(kernel);
}

void register_sparse(Registry& registry, const std::vector<OpSpec::Type>& types,
                     const std::vector<OpSpec::Attr>& make_attrs) {
  add_op(registry, "",
         {.name = "SparseConditionalAccumulator",
          .doc = "Sums up rows of gradients until enough of them came.",
          .outputs = {{"handle", ""}},
          .types = types,
          .attrs = make_attrs,
          .traits = {.owns_state = true},
          .shape = make_shape},
         {.op = "", .factory = MakeAccumulator::make<true>});
  add_op(
      registry, "",
      {.name = "SparseAccumulatorApplyGradient",
       .doc = "Adds rows of a gradient to an accumulator, unless its step is past.",
       .inputs = {{"handle", ""},
                  {"local_step", "host(int64)", "At which the gradient was begun."},
                  {"gradient_indices", "int64", "Numbers of the rows."},
                  {"gradient_values", "dtype"},
                  {"gradient_shape", "host(int64)", "Of the whole; looked at if has_known_shape."}},
       .types = types,
       .attrs = {{"has_known_shape", "bool"}},
       .shape = scalar_argument},
      {.op = "", .factory = SparseApply<false>::make});
  add_op(
      registry, "",
      {.name = "SparseAccumulatorGiveGradient",
       .doc = "As SparseAccumulatorApplyGradient, once for each giver between two takes.",
       .inputs = {{"handle", ""},
                  kEra,
                  {"local_step", "host(int64)", "At which the gradient was begun."},
                  {"giver", "host(string)", "Whose gradient it is; empty for nobody's."},
                  {"gradient_indices", "int64", "Numbers of the rows."},
                  {"gradient_values", "dtype"},
                  {"gradient_shape", "host(int64)", "Of the whole; looked at if has_known_shape."}},
       .outputs = {{"added", "host(bool)", "False when it came too late, or again."}},
       .types = types,
       .attrs = {{"has_known_shape", "bool"}},
       .shape = give_shape},
      {.op = "", .factory = SparseApply<true>::make});
  add_op(registry, "",
         {.name = "SparseAccumulatorTakeGradient",
          .doc = "Takes the mean of the rows in an accumulator, when enough gradients came.",
          .inputs = {{"handle", ""}, {"num_required", "host(int32)"}},
          .outputs = {{"indices", "int64"}, {"values", "dtype"}, {"shape", "int64"}},
          .types = types,
          .shape = sparse_take_shape,
          .no_gradient = "what was put into the accumulator is not known"},
         {.op = "", .factory = Take<true, false>::make});
  add_op(
      registry, "",
      {.name = "SparseAccumulatorTakeStep",
       .doc = "As SparseAccumulatorTakeGradient, for a step: again what was taken for it.",
       .inputs = {{"handle", ""}, kEra, {"step", "host(int64)"}, {"num_required", "host(int32)"}},
       .outputs = {{"indices", "int64"}, {"values", "dtype"}, {"shape", "int64"}},
       .types = types,
       .shape = sparse_take_shape,
       .no_gradient = "what was put into the accumulator is not known"},
      {.op = "", .factory = Take<true, true>::make});
}

}  // namespace

void register_accumulators(Registry& registry) {
  const std::vector<OpSpec::Type> types = {{"dtype", kNumberTypes}};
  const std::vector<OpSpec::Attr> make_attrs = {
      {"shape", "shape"},
      {"container", "string = ''"},
      {"shared_name", "string = ''", "Nodes with the same name share an accumulator."},
      {"reduction_type", "string = 'MEAN' in {'MEAN','SUM'}"}};
  for (const char* prefix : {"", "Resource"}) {
    add_op(registry, prefix,
           {.name = "ConditionalAccumulator",
            .doc = "Sums up gradients until enough of them came.",
            .outputs = {{"handle", ""}},
            .types = types,
            .attrs = make_attrs,
            .traits = {.owns_state = true},
            .shape = make_shape},
           {.op = "", .factory = MakeAccumulator::make<false>});
    add_op(registry, prefix,
           {.name = "AccumulatorApplyGradient",
            .doc = "Adds a gradient to an accumulator, unless its step is past.",
            .inputs = {{"handle", ""},
                       {"local_step", "host(int64)", "At which the gradient was begun."},
                       {"gradient", "dtype"}},
            .types = types,
            .shape = scalar_argument},
           {.op = "", .function = apply_cpu});
    add_op(registry, prefix,
           {.name = "AccumulatorTakeGradient",
            .doc = "Takes the mean of the gradients in an accumulator, when enough of them came.",
            .inputs = {{"handle", ""}, {"num_required", "host(int32)"}},
            .outputs = {{"average", "dtype"}},
            .types = types,
            .shape = scalar_argument,
            .no_gradient = "what was put into the accumulator is not known"},
           {.op = "", .factory = Take<false, false>::make});
    add_op(registry, prefix,
           {.name = "AccumulatorNumAccumulated",
            .doc = "The number of gradients in an accumulator.",
            .inputs = {{"handle", ""}},
            .outputs = {{"num_accumulated", "host(int32)"}},
            .shape = count_shape},
           {.op = "", .function = count_cpu});
    add_op(registry, prefix,
           {.name = "AccumulatorSetGlobalStep",
            .doc = "Sets the step of an accumulator: gradients from before it are dropped.",
            .inputs = {{"handle", ""}, {"new_global_step", "host(int64)"}},
            .shape = scalar_argument},
           {.op = "", .function = set_step_cpu});
    add_op(registry, prefix,
           {.name = "AccumulatorBegin",
            .doc = "Empties an accumulator, which is at a step of an era then; nothing happens in "
                   "an era, not 0, that has begun already.",
            .inputs = {{"handle", ""}, kEra, {"step", "host(int64)"}},
            .shape = scalar_arguments},
           {.op = "", .function = begin_cpu});
  }
  add_op(registry, "Resource",
         {.name = "AccumulatorGiveGradient",
          .doc = "As ResourceAccumulatorApplyGradient, once for each giver between two takes.",
          .inputs = {{"handle", ""},
                     kEra,
                     {"local_step", "host(int64)", "At which the gradient was begun."},
                     {"giver", "host(string)", "Whose gradient it is; empty for nobody's."},
                     {"gradient", "dtype"}},
          .outputs = {{"added", "host(bool)", "False when it came too late, or again."}},
          .types = types,
          .shape = give_shape},
         {.op = "", .function = give_cpu});
  add_op(
      registry, "Resource",
      {.name = "AccumulatorTakeStep",
       .doc = "As ResourceAccumulatorTakeGradient, for a step: again what was taken for it.",
       .inputs = {{"handle", ""}, kEra, {"step", "host(int64)"}, {"num_required", "host(int32)"}},
       .outputs = {{"average", "dtype"}},
       .types = types,
       .shape = scalar_arguments,
       .no_gradient = "what was put into the accumulator is not known"},
      {.op = "", .factory = Take<false, true>::make});
  register_sparse(registry, types, make_attrs);
}

}  // namespace millrace
