// CollectiveGather: what all members of a group give, one after the other.

#include <memory>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/collective/collective_call.h"

namespace millrace {
namespace {

constexpr int kGroupInput = 1;  // of the second version

// As many rows from each member.
Status gather_shape(ShapeContext& c) {
  MR_TRY(check_collective_call(c, CollectiveCall::kByAttributes));
  MR_TRY_ASSIGN(PartialShape shape, c.with_rank_at_least(0, 1));
  MR_TRY_ASSIGN(const int64_t members, c.attr<int64_t>("group_size"));
  if (shape.rank_known()) {
    int64_t rows = -1;
    if (shape.dim_known(0) && __builtin_mul_overflow(shape.dim(0), members, &rows)) {
      return invalid_argument("a gathering of ", members, " times ", shape, " is too large");
    }
    shape.set_dim(0, rows);
  }
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status gather_v2_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.with_rank_at_least(0, 1));
  MR_TRY(check_collective_call(c, kGroupInput));
  if (shape.rank_known()) shape.set_dim(0, -1);
  c.set_output(0, std::move(shape));
  return ok_status();
}

// Where `kEqual`, all members give as many rows, as the shape rule has it.
template <int kFirstInput, bool kEqual>
class CollectiveGather final : public AsyncKernel {
 public:
  explicit CollectiveGather(CollectiveCall call) : call_(std::move(call)) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(CollectiveCall call, CollectiveCall::make(node, kFirstInput));
    return std::unique_ptr<Kernel>(std::make_unique<CollectiveGather>(std::move(call)));
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Collectives::Request> request = call_.request(ctx);
    if (!request.ok()) return done(request.status());
    const Tensor& input = ctx.input(0);
    if (input.rank() == 0) {
      return done(invalid_argument("input must have at least one dimension, got a scalar"));
    }
    if (request->group_size == 1) {
      ctx.set_output(0, input);
      return done(ok_status());
    }
    Result<Ref<Collectives>> collectives = collectives_of(ctx, *request);
    if (!collectives.ok()) return done(collectives.status());
    const int64_t rows = input.dim(0), members = request->group_size;
    (*collectives)
        ->gather(*std::move(request), input,
                 [&ctx, rows, members, done = std::move(done)](Result<Tensor> result) mutable {
                   if (!result.ok()) return done(result.status());
                   if (kEqual && result->dim(0) != rows * members) {
                     return done(invalid_argument("expected ", rows, " rows of each of ", members,
                                                  " members, got ", result->dim(0), " together"));
                   }
                   ctx.set_output(0, *std::move(result));
                   done(ok_status());
                 });
  }

 private:
  const CollectiveCall call_;
};

}  // namespace

void register_collective_gather(Registry& registry) {
  const TypeSet types = {DType::kFloat, DType::kHalf, DType::kDouble, DType::kInt32, DType::kInt64};
  using namespace collective_spec;
  const OpTraits traits = {.stateful = true, .may_alias = 1, .retains = 1};
  registry.add({.name = "CollectiveGather",
                .doc = "Joins the inputs of all members of a group along the first dimension.",
                .inputs = {{"input", "T"}},
                .outputs = {{"data", "T"}},
                .types = {{"T", types}},
                .attrs = {kGroupSize,
                          kGroupKey,
                          kInstanceKey,
                          {"shape", "shape", "Not used: it follows from the inputs."},
                          kHint,
                          kTimeout},
                .traits = traits,
                .shape = gather_shape,
                .no_gradient = "each member would need its own rows of the sum"});
  registry.kernel({.op = "CollectiveGather",
                   .factory = CollectiveGather<CollectiveCall::kByAttributes, true>::make});
  registry.add(
      {.name = "CollectiveGatherV2",
       .doc = "Joins the inputs of all members of a group along the first dimension, in "
              "which they may differ.",
       .inputs =
           {{"input", "T"}, kGroupSizeInput, kGroupKeyInput, kInstanceKeyInput, kOrderingToken},
       .outputs = {{"data", "T"}},
       .types = {{"T", types}},
       .attrs = {kHint, kTimeout, kIsStateless, kOrderingTokens},
       .traits = traits,
       .shape = gather_v2_shape,
       .no_gradient = "each member would need its own rows of the sum"});
  registry.kernel(
      {.op = "CollectiveGatherV2", .factory = CollectiveGather<kGroupInput, false>::make});
  mark_reach({"CollectiveGather", "CollectiveGatherV2"}, Reach::kState);
}

}  // namespace millrace
