// The next element of an iterator, or nothing.

#include "millrace/data/dataset_op.h"
#include "millrace/data/iterator_resource.h"
#include "millrace/graph/shape_context.h"
#include "millrace/tensor/optional_value.h"

namespace millrace::data {
namespace {

// What an op makes of the element that came.
using Give = Status (*)(KernelContext& ctx, Result<Element> element, const ElementSpec& spec);

template <Give kGive>
class GetNext final : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<GetNext>();
    MR_TRY_ASSIGN(kernel->spec_, spec_of(node));
    return Result<std::unique_ptr<Kernel>>(std::move(kernel));
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<IteratorResource>> iterator = iterator_input(ctx, 0);
    if (!iterator.ok()) return done(iterator.status());
    Result<Ref<Cursor>> cursor = (*iterator)->cursor();
    if (!cursor.ok()) return done(cursor.status());
    (*cursor)->next(ctx.step().cancel,
                    [this, &ctx, done = std::move(done)](Result<Element> element) mutable {
                      done(kGive(ctx, std::move(element), spec_));
                    });
  }

 private:
  ElementSpec spec_;
};

Status give(KernelContext& ctx, Result<Element> element, const ElementSpec& spec) {
  return element.ok() ? set_element(ctx, *std::move(element), spec) : element.status();
}

Status give_optional(KernelContext& ctx, Result<Element> element, const ElementSpec& spec) {
  const bool has_value = element.ok();
  if (!has_value && element.status().code() != Code::kOutOfRange) return element.status();
  if (has_value) MR_TRY(check_element(*element, spec));
  Ref<OptionalValue> optional =
      make_ref<OptionalValue>(has_value, has_value ? *std::move(element) : Element());
  ctx.set_output(0, Tensor::scalar(Variant{std::move(optional)}));
  return ok_status();
}

}  // namespace

void register_get_next(Registry& registry) {
  OpSpec spec = {
      .name = "IteratorGetNext",
      .doc = "The next element of an iterator; OUT_OF_RANGE when there is none.",
      .inputs = {{"iterator", "resource"}},
      .outputs = {{"components", "list(output_types)"}},
      .attrs = {{"output_types", "list(type) >= 1"}, {"output_shapes", "list(shape) >= 1"}},
      .traits = {.stateful = true, .cannot_differentiate = true},
      .shape = element_shape};
  registry.add(spec);
  registry.kernel<GetNext<give>>("IteratorGetNext", DeviceKind::kCpu);
  spec.name = "IteratorGetNextSync";
  registry.add(spec);
  registry.kernel<GetNext<give>>("IteratorGetNextSync", DeviceKind::kCpu);
  spec.name = "IteratorGetNextAsOptional";
  spec.doc =
      "The next element of an iterator as an optional, which has no value when there is none.";
  spec.outputs = {{"optional", "variant"}};
  spec.shape = element_handle_shape;
  registry.add(spec);
  registry.kernel<GetNext<give_optional>>("IteratorGetNextAsOptional", DeviceKind::kCpu);
}

}  // namespace millrace::data
