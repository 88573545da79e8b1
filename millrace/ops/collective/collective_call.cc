#include "millrace/ops/collective/collective_call.h"

#include <cmath>
#include <optional>

#include "millrace/graph/op_def.h"

namespace millrace {
namespace {

constexpr float kLongestTimeout = 1e9F;  // seconds

Status check_size(int64_t size, int64_t min_size) {
  if (size >= 1 && min_size >= 0 && min_size <= size) return ok_status();
  return invalid_argument("expected a group of at least one member, got a size of ", size,
                          " and at least ", min_size);
}

Status check_timeout(float seconds) {
  if (seconds >= 0 && seconds <= kLongestTimeout) return ok_status();
  return invalid_argument("timeout_seconds must be 0, for none, to ", kLongestTimeout, ", got ",
                          seconds);
}

}  // namespace

Result<CollectiveCall> CollectiveCall::make(const KernelNode& node, int first_input) {
  CollectiveCall call;
  call.first_input_ = first_input;
  Collectives::Request& fixed = call.fixed_;
  fixed.op = node.op->name;
  if (first_input == kByAttributes) {
    MR_TRY_ASSIGN(fixed.group_size, node.attr<int64_t>("group_size"));
    MR_TRY_ASSIGN(fixed.group_key, node.attr<int64_t>("group_key"));
    MR_TRY_ASSIGN(fixed.instance_key, node.attr<int64_t>("instance_key"));
  }
  if (node.attrs.find("_min_group_size") != nullptr) {
    MR_TRY_ASSIGN(fixed.min_size, node.attr<int64_t>("_min_group_size"));
  }
  if (first_input == kByAttributes) MR_TRY(check_size(fixed.group_size, fixed.min_size));
  MR_TRY_ASSIGN(const std::string hint, node.attr<std::string>("communication_hint"));
  if (hint == "ring") fixed.hint = Collectives::Hint::kRing;
  if (hint == "tree") fixed.hint = Collectives::Hint::kTree;
  MR_TRY_ASSIGN(const float seconds, node.attr<float>("timeout_seconds"));
  MR_TRY(check_timeout(seconds));
  fixed.timeout_ms = static_cast<int64_t>(std::ceil(static_cast<double>(seconds) * 1000));
  return call;
}

Result<Collectives::Request> CollectiveCall::request(const KernelContext& ctx) const {
  Collectives::Request request = fixed_;
  if (first_input_ != kByAttributes) {
    int64_t* const to[] = {&request.group_size, &request.group_key, &request.instance_key};
    for (int i = 0; i < 3; ++i) {
      MR_TRY(expect_rank(ctx, first_input_ + i, 0));
      MR_TRY_ASSIGN(*to[i], ctx.scalar_input<int32_t>(first_input_ + i));
    }
    MR_TRY(check_size(request.group_size, request.min_size));
  }
  request.device = ctx.device().name();
  request.step_id = ctx.step().id;
  request.cancel = Ref<CancellationToken>(ctx.cancel());
  return request;
}

Status check_collective_call(const ShapeContext& c, int first_input) {
  MR_TRY_ASSIGN(const float seconds, c.attr<float>("timeout_seconds"));
  MR_TRY(check_timeout(seconds));
  if (first_input == CollectiveCall::kByAttributes) {
    MR_TRY_ASSIGN(const int64_t size, c.attr<int64_t>("group_size"));
    return check_size(size, 0);
  }
  for (int i = 0; i < 3; ++i) MR_TRY(c.with_rank(first_input + i, 0).status());
  const std::optional<int64_t> size = c.input_scalar(first_input);
  return size ? check_size(*size, 0) : ok_status();
}

Result<Ref<Collectives>> collectives_of(const KernelContext& ctx,
                                        const Collectives::Request& request) {
  Ref<Collectives> found = find_collectives(ctx.step(), ctx.device());
  if (found) return found;
  return failed_precondition("group ", request.group_key, " has ", request.group_size,
                             " members, but this process is no task of a cluster: start a server "
                             "in it (tf.train.Server, or millrace.distributed.init())");
}

Collectives::Done set_output_then(KernelContext& ctx, AsyncKernel::Done done) {
  return [&ctx, done = std::move(done)](Result<Tensor> result) mutable {
    if (!result.ok()) return done(result.status());
    ctx.set_output(0, *std::move(result));
    done(ok_status());
  };
}

}  // namespace millrace
