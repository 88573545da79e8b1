// Iterators that nobody names: they live as long as the step that made them.

#include <atomic>

#include "millrace/data/dataset_op.h"
#include "millrace/data/handles.h"
#include "millrace/data/iterator_resource.h"
#include "millrace/graph/shape_context.h"

namespace millrace::data {
namespace {

Status make_anonymous(KernelContext& ctx) {
  static std::atomic<int64_t> count{0};
  MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
  const std::string container = ctx.step().container();
  const std::string name = str_cat("_anonymous_iterator_", count.fetch_add(1));
  MR_TRY(
      ctx.resources().create(container, name, make_ref<IteratorResource>(name, std::move(spec))));
  ctx.set_output(0, make_handle(ctx, container, name, IteratorResource::kTypeName));
  if (ctx.num_outputs() > 1) ctx.set_output(1, Tensor::scalar(Variant{}));
  return ok_status();
}

// Whoever still reads from it gets no more.
Status delete_iterator(KernelContext& ctx) {
  MR_TRY_ASSIGN(const ResourceHandle handle, handle_input(ctx, 0, IteratorResource::kTypeName));
  return ctx.resources().remove<IteratorResource>(handle.container, handle.name);
}

Status device_of(KernelContext& ctx) {
  MR_TRY_ASSIGN(const ResourceHandle handle, handle_input(ctx, 0, IteratorResource::kTypeName));
  ctx.set_output(0, Tensor::scalar(handle.device));
  return ok_status();
}

}  // namespace

void register_anonymous_iterators(Registry& registry) {
  const OpTraits user = {.stateful = true, .cannot_differentiate = true};
  for (const char* name : {"AnonymousIterator", "AnonymousIteratorV2", "AnonymousIteratorV3"}) {
    OpSpec spec = {
        .name = std::string_view(name),
        .doc = "An iterator over a dataset that comes later, for this step alone.",
        .outputs = {{"handle", "resource"}},
        .attrs = {{"output_types", "list(type) >= 1"}, {"output_shapes", "list(shape) >= 1"}},
        .traits = {.stateful = true, .step_state = true, .cannot_differentiate = true},
        .shape = element_handle_shape};
    if (std::string_view(name).ends_with("V2")) spec.outputs.push_back({"deleter", "variant"});
    registry.add(spec);
    registry.kernel(std::string_view(name), DeviceKind::kCpu, make_anonymous);
  }
  registry.add({.name = "DeleteIterator",
                .doc = "Drops an iterator before its step ends.",
                .inputs = {{"handle", "resource"}, {"deleter", "variant", "Not used."}},
                .traits = user,
                .shape = shape_rules::no_outputs});
  registry.kernel("DeleteIterator", DeviceKind::kCpu, delete_iterator);
  for (const char* name : {"IteratorGetDevice", "ExperimentalIteratorGetDevice"}) {
    registry.add({.name = std::string_view(name),
                  .doc = "The name of the device that an iterator is on.",
                  .inputs = {{"resource", "resource"}},
                  .outputs = {{"device", "string"}},
                  .traits = user,
                  .shape = shape_rules::scalar});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, device_of);
  }
}

}  // namespace millrace::data
