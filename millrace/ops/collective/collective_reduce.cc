// CollectiveReduce: the sum, product, smallest or largest of what all members of a group give.

#include <memory>

#include "millrace/base/hash.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/collective/collective_call.h"
#include "millrace/ops/collective/merge.h"

namespace millrace {
namespace {

constexpr int kGroupInput = 1;  // of the second version
constexpr int kInstanceInput = 3;

template <int kFirstInput>
Status reduce_shape(ShapeContext& c) {
  MR_TRY(check_collective_call(c, kFirstInput));
  return shape_rules::unchanged(c);
}

Status check_sum(const GradientContext& c) {
  MR_TRY_ASSIGN(const std::string merge, c.attr<std::string>("merge_op"));
  if (merge == "Add") return ok_status();
  return unimplemented("the gradient of a collective reduction by ", merge, ": only Add has one");
}

// As few members as the operation itself may have.
void keep_min_size(const GradientContext& c, AttrMap& attrs) {
  if (Result<int64_t> least = c.attr<int64_t>("_min_group_size"); least.ok()) {
    attrs.set("_min_group_size", *least);
  }
}

// A sum of dy over all members, as each x is in each y; with Div its mean. Another instance of the
// group, for each computation of gradients its own: of the same number in all programs.
Status reduce_grad(GradientContext& c) {
  MR_TRY(check_sum(c));
  MR_TRY_ASSIGN(const int64_t instance, c.attr<int64_t>("instance_key"));
  const uint64_t derived = hash_bytes(c.source(), static_cast<uint64_t>(instance));
  AttrMap attrs = {{"group_size", c.attr_value("group_size")},
                   {"group_key", c.attr_value("group_key")},
                   {"instance_key", static_cast<int64_t>(derived & 0x7fffffff)},
                   {"merge_op", "Add"},
                   {"final_op", c.attr_value("final_op")},
                   {"subdiv_offsets", c.attr_value("subdiv_offsets")},
                   {"communication_hint", c.attr_value("communication_hint")},
                   {"timeout_seconds", c.attr_value("timeout_seconds")}};
  keep_min_size(c, attrs);
  c.set(0, call("CollectiveReduce", {c.gradient()}, std::move(attrs)));
  return ok_status();
}

Status reduce_v2_grad(GradientContext& c) {
  MR_TRY(check_sum(c));
  const auto shift = static_cast<int32_t>(hash_bytes(c.source()) & 0x3fffffff);
  const Expr derived =
      call("AddV2", {c.input(kInstanceInput), c.builder().constant(Tensor::scalar(shift))});
  AttrMap attrs = {{"merge_op", "Add"},
                   {"final_op", c.attr_value("final_op")},
                   {"communication_hint", c.attr_value("communication_hint")},
                   {"timeout_seconds", c.attr_value("timeout_seconds")},
                   {"Nordering_token", 0}};
  keep_min_size(c, attrs);
  c.set(0, call("CollectiveReduceV2",
                {c.gradient(), c.input(kGroupInput), c.input(kGroupInput + 1), derived},
                std::move(attrs)));
  return ok_status();
}

class CollectiveReduce final : public AsyncKernel {
 public:
  CollectiveReduce(CollectiveCall call, Collectives::Merge merge, Collectives::Final final)
      : call_(std::move(call)), merge_(merge), final_(final) {}

  template <int kFirstInput>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(CollectiveCall call, CollectiveCall::make(node, kFirstInput));
    MR_TRY_ASSIGN(const std::string name, node.attr<std::string>("merge_op"));
    MR_TRY_ASSIGN(const std::string final, node.attr<std::string>("final_op"));
    Collectives::Merge merge = Collectives::Merge::kAdd;
    for (const auto other :
         {Collectives::Merge::kMul, Collectives::Merge::kMin, Collectives::Merge::kMax}) {
      if (merge_name(other) == name) merge = other;
    }
    return std::unique_ptr<Kernel>(std::make_unique<CollectiveReduce>(
        std::move(call), merge,
        final == "Div" ? Collectives::Final::kDiv : Collectives::Final::kId));
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Collectives::Request> request = call_.request(ctx);
    if (!request.ok()) return done(request.status());
    if (request->group_size == 1) {
      ctx.set_output(0, ctx.input(0));
      return done(ok_status());
    }
    Result<Ref<Collectives>> collectives = collectives_of(ctx, *request);
    if (!collectives.ok()) return done(collectives.status());
    (*collectives)
        ->reduce(*std::move(request), ctx.input(0), merge_, final_,
                 set_output_then(ctx, std::move(done)));
  }

 private:
  const CollectiveCall call_;
  const Collectives::Merge merge_;
  const Collectives::Final final_;
};

}  // namespace

void register_collective_reduce(Registry& registry) {
  using namespace collective_spec;
  const OpSpec::Attr merge = {"merge_op", "string in {'Min','Max','Mul','Add'}"};
  const OpSpec::Attr final = {"final_op", "string in {'Id','Div'}",
                              "Div: divides the result by the number of members."};
  const OpTraits traits = {.stateful = true, .may_alias = 1};
  registry.add({.name = "CollectiveReduce",
                .doc = "Reduces the inputs of all members of a group, element by element.",
                .inputs = {{"input", "T"}},
                .outputs = {{"data", "T"}},
                .types = {{"T", kReducedTypes}},
                .attrs = {kGroupSize,
                          kGroupKey,
                          kInstanceKey,
                          merge,
                          final,
                          {"subdiv_offsets", "list(int)"},
                          {"wait_for", "list(int) = []"},
                          kHint,
                          kTimeout},
                .traits = traits,
                .shape = reduce_shape<CollectiveCall::kByAttributes>,
                .gradient = reduce_grad});
  registry.kernel(
      {.op = "CollectiveReduce", .factory = CollectiveReduce::make<CollectiveCall::kByAttributes>});
  registry.add(
      {.name = "CollectiveReduceV2",
       .doc = "Reduces the inputs of all members of a group, element by element.",
       .inputs =
           {{"input", "T"}, kGroupSizeInput, kGroupKeyInput, kInstanceKeyInput, kOrderingToken},
       .outputs = {{"data", "T"}},
       .types = {{"T", kReducedTypes}},
       .attrs = {merge,
                 final,
                 kHint,
                 kTimeout,
                 kIsStateless,
                 kOrderingTokens,
                 {"max_subdivs_per_device", "int = -1"}},
       .traits = traits,
       .shape = reduce_shape<kGroupInput>,
       .gradient = reduce_v2_grad});
  registry.kernel({.op = "CollectiveReduceV2", .factory = CollectiveReduce::make<kGroupInput>});
  mark_reach({"CollectiveReduce", "CollectiveReduceV2"}, Reach::kState);
}

}  // namespace millrace
