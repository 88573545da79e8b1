// CollectiveBcastSend and CollectiveBcastRecv: one member's tensor for all of a group.

#include <memory>

#include "millrace/graph/size_rules.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/collective/collective_call.h"

namespace millrace {
namespace {

constexpr int kSendGroupInput = 1;  // of the second version
constexpr int kRecvGroupInput = 0;
constexpr int kRecvShapeInput = 3;

Status send_shape(ShapeContext& c) {
  MR_TRY(check_collective_call(c, CollectiveCall::kByAttributes));
  MR_TRY_ASSIGN(const PartialShape declared, c.attr<PartialShape>("shape"));
  MR_TRY_ASSIGN(PartialShape shape, with_shape(c, 0, declared));
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status recv_shape(ShapeContext& c) {
  MR_TRY(check_collective_call(c, CollectiveCall::kByAttributes));
  MR_TRY_ASSIGN(PartialShape shape, c.attr<PartialShape>("shape"));
  if (!shape.fully_known()) return invalid_argument("shape must be fully known, got ", shape);
  c.set_output(0, std::move(shape));
  return ok_status();
}

Status send_v2_shape(ShapeContext& c) {
  MR_TRY(check_collective_call(c, kSendGroupInput));
  return shape_rules::unchanged(c);
}

Status recv_v2_shape(ShapeContext& c) {
  MR_TRY(check_collective_call(c, kRecvGroupInput));
  MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, kRecvShapeInput));
  c.set_output(0, std::move(shape));
  return ok_status();
}

template <int kFirstInput>
class CollectiveBcastSend final : public AsyncKernel {
 public:
  CollectiveBcastSend(CollectiveCall call, PartialShape declared)
      : call_(std::move(call)), declared_(std::move(declared)) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(CollectiveCall call, CollectiveCall::make(node, kFirstInput));
    PartialShape declared;
    if (kFirstInput == CollectiveCall::kByAttributes) {
      MR_TRY_ASSIGN(declared, node.attr<PartialShape>("shape"));
    }
    return std::unique_ptr<Kernel>(
        std::make_unique<CollectiveBcastSend>(std::move(call), std::move(declared)));
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Collectives::Request> request = call_.request(ctx);
    if (!request.ok()) return done(request.status());
    const Tensor& input = ctx.input(0);
    if (!declared_.compatible(input.shape())) {
      return done(invalid_argument("input must have the declared shape ", declared_, ", got ",
                                   input.shape()));
    }
    if (request->group_size == 1) {
      ctx.set_output(0, input);
      return done(ok_status());
    }
    Result<Ref<Collectives>> collectives = collectives_of(ctx, *request);
    if (!collectives.ok()) return done(collectives.status());
    (*collectives)
        ->broadcast_send(*std::move(request), input, set_output_then(ctx, std::move(done)));
  }

 private:
  const CollectiveCall call_;
  const PartialShape declared_;
};

template <int kFirstInput>
class CollectiveBcastRecv final : public AsyncKernel {
 public:
  CollectiveBcastRecv(CollectiveCall call, Shape declared)
      : call_(std::move(call)), declared_(std::move(declared)) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(CollectiveCall call, CollectiveCall::make(node, kFirstInput));
    Shape declared;
    if (kFirstInput == CollectiveCall::kByAttributes) {
      MR_TRY_ASSIGN(const PartialShape shape, node.attr<PartialShape>("shape"));
      if (!shape.fully_known()) {
        return invalid_argument("shape must be fully known, got ", shape);
      }
      MR_TRY_ASSIGN(declared, shape.to_shape());
    }
    return std::unique_ptr<Kernel>(
        std::make_unique<CollectiveBcastRecv>(std::move(call), std::move(declared)));
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Collectives::Request> request = call_.request(ctx);
    if (!request.ok()) return done(request.status());
    Result<Shape> shape = declared_;
    if (kFirstInput != CollectiveCall::kByAttributes) shape = ctx.shape_input(kRecvShapeInput);
    if (!shape.ok()) return done(shape.status());
    if (request->group_size == 1) {
      return done(failed_precondition("a group of one has nobody to receive from"));
    }
    Result<Ref<Collectives>> collectives = collectives_of(ctx, *request);
    if (!collectives.ok()) return done(collectives.status());
    (*collectives)
        ->broadcast_recv(*std::move(request), ctx.output_type(0), *std::move(shape),
                         set_output_then(ctx, std::move(done)));
  }

 private:
  const CollectiveCall call_;
  const Shape declared_;
};

}  // namespace

void register_collective_bcast(Registry& registry) {
  const TypeSet types = {DType::kBool,   DType::kFloat, DType::kHalf,
                         DType::kDouble, DType::kInt32, DType::kInt64};
  using namespace collective_spec;
  const OpSpec::Attr shape = {"shape", "shape"};
  const char* const why = "who receives does not know whose gradient it has";
  const OpTraits send = {.stateful = true, .may_alias = 1, .retains = 1};
  const OpTraits recv = {.stateful = true};
  registry.add({.name = "CollectiveBcastSend",
                .doc = "Gives a tensor to all other members of a group.",
                .inputs = {{"input", "T"}},
                .outputs = {{"data", "T"}},
                .types = {{"T", types}},
                .attrs = {kGroupSize, kGroupKey, kInstanceKey, shape, kHint, kTimeout},
                .traits = send,
                .shape = send_shape,
                .no_gradient = why});
  registry.kernel({.op = "CollectiveBcastSend",
                   .factory = CollectiveBcastSend<CollectiveCall::kByAttributes>::make});
  registry.add({.name = "CollectiveBcastRecv",
                .doc = "Takes the tensor that another member of a group gives to all.",
                .outputs = {{"data", "T"}},
                .types = {{"T", types}},
                .attrs = {kGroupSize, kGroupKey, kInstanceKey, shape, kHint, kTimeout},
                .traits = recv,
                .shape = recv_shape,
                .no_gradient = why});
  registry.kernel({.op = "CollectiveBcastRecv",
                   .factory = CollectiveBcastRecv<CollectiveCall::kByAttributes>::make});
  registry.add({.name = "CollectiveBcastSendV2",
                .doc = "Gives a tensor to all other members of a group.",
                .inputs = {{"input", "T"}, kGroupSizeInput, kGroupKeyInput, kInstanceKeyInput},
                .outputs = {{"data", "T"}},
                .types = {{"T", types}},
                .attrs = {kHint, kTimeout},
                .traits = send,
                .shape = send_v2_shape,
                .no_gradient = why});
  registry.kernel(
      {.op = "CollectiveBcastSendV2", .factory = CollectiveBcastSend<kSendGroupInput>::make});
  registry.add(
      {.name = "CollectiveBcastRecvV2",
       .doc = "Takes the tensor that another member of a group gives to all.",
       .inputs = {kGroupSizeInput, kGroupKeyInput, kInstanceKeyInput, {"shape", "host(Tshape)"}},
       .outputs = {{"data", "T"}},
       .types = {{"T", types}, {"Tshape", kIndexTypes, DType::kInt32}},
       .attrs = {kHint, kTimeout},
       .traits = recv,
       .shape = recv_v2_shape,
       .no_gradient = why});
  registry.kernel(
      {.op = "CollectiveBcastRecvV2", .factory = CollectiveBcastRecv<kRecvGroupInput>::make});
  mark_reach({"CollectiveBcastSend", "CollectiveBcastRecv", "CollectiveBcastSendV2",
              "CollectiveBcastRecvV2"},
             Reach::kState);
}

}  // namespace millrace
