// Ops that make iterators, begin them and give them to each other.

#include "millrace/data/blocking_kernel.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/elements_dataset.h"
#include "millrace/data/handles.h"
#include "millrace/data/iterator_resource.h"
#include "millrace/graph/shape_context.h"

namespace millrace::data {
namespace {

Ref<Environment> environment_of(const KernelContext& ctx) {
  auto environment = make_ref<Environment>(ctx.step().functions, Ref<Device>(&ctx.device()));
  environment->session = ctx.node().session_prefix;
  return environment;
}

// Where an op keeps its iterator: by its shared name, or one of its session.
struct Place {
  std::string container, name;

  static Result<Place> make(const KernelNode& node) {
    Place place;
    MR_TRY_ASSIGN(place.container, node.attr<std::string>("container"));
    MR_TRY_ASSIGN(place.name, node.attr<std::string>("shared_name"));
    if (place.container.empty()) place.container = ResourceManager::kDefaultContainer;
    if (place.name.starts_with('_')) {
      return invalid_argument("shared_name must not begin with '_', got '", place.name, "'");
    }
    if (place.name.empty()) {
      place.name = ResourceManager::session_name(node.session_prefix, node.name);
    }
    return place;
  }
  Result<Ref<IteratorResource>> get(ResourceManager& resources, const ElementSpec& spec) const {
    MR_TRY_ASSIGN(Ref<IteratorResource> found,
                  resources.lookup_or_create<IteratorResource>(
                      container, name, [&]() -> Result<Ref<IteratorResource>> {
                        return make_ref<IteratorResource>(name, spec);
                      }));
    MR_TRY(check_spec(found->spec(), spec));
    return found;
  }
};

Status make_iterator_handle(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Place place, Place::make(ctx.node()));
  MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
  MR_TRY(place.get(ctx.resources(), spec).status());
  ctx.set_output(0, make_handle(ctx, place.container, place.name, IteratorResource::kTypeName));
  return ok_status();
}

Status begin_iterator(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> dataset, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(const Ref<IteratorResource> iterator, iterator_input(ctx, 1));
  return iterator->begin(std::move(dataset), environment_of(ctx));
}

// An iterator over the dataset that a function makes, once.
class OneShotIterator final : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<OneShotIterator>();
    MR_TRY_ASSIGN(kernel->place_, Place::make(node));
    MR_TRY_ASSIGN(kernel->spec_, spec_of(node));
    MR_TRY_ASSIGN(kernel->factory_, node.attr<FunctionAttr>("dataset_factory"));
    return Result<std::unique_ptr<Kernel>>(std::move(kernel));
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<IteratorResource>> iterator = place_.get(ctx.resources(), spec_);
    if (!iterator.ok()) return done(iterator.status());
    ctx.set_output(0, make_handle(ctx, place_.container, place_.name, IteratorResource::kTypeName));
    if ((*iterator)->begun()) return done(ok_status());
    Result<Function> factory = Function::make({factory_, {}}, environment_of(ctx));
    if (!factory.ok()) return done(factory.status());
    factory->start({}, [iterator = *iterator, environment = environment_of(ctx),
                        done = std::move(done)](Result<std::vector<Tensor>> made) mutable {
      done(made.ok() ? begin(*iterator, *made, std::move(environment)) : made.status());
    });
  }

 private:
  static Status begin(IteratorResource& iterator, const std::vector<Tensor>& made,
                      Ref<Environment> environment) {
    if (made.size() != 1) {
      return invalid_argument("dataset_factory must give one dataset, got ", made.size(),
                              " tensors");
    }
    MR_TRY_ASSIGN(Ref<Dataset> dataset, dataset_of(made[0]));
    return iterator.begin_once(std::move(dataset), std::move(environment));
  }

  Place place_;
  ElementSpec spec_;
  FunctionAttr factory_;
};

class Serialize final : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return Result<std::unique_ptr<Kernel>>(std::make_unique<Serialize>());
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<IteratorResource>> iterator = iterator_input(ctx, 0);
    if (!iterator.ok()) return done(iterator.status());
    Result<Ref<Cursor>> cursor = (*iterator)->cursor();
    if (!cursor.ok()) return done(cursor.status());
    (*cursor)->save(ctx.step().cancel,
                    [&ctx, done = std::move(done)](Result<Ref<SavedState>> state) mutable {
                      if (!state.ok()) return done(state.status());
                      ctx.set_output(0, Tensor::scalar(Variant{*std::move(state)}));
                      done(ok_status());
                    });
  }
};

Status deserialize(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<IteratorResource> iterator, iterator_input(ctx, 0));
  const Tensor& tensor = ctx.input(1);
  if (tensor.num_elements() != 1) {
    return invalid_argument("expected one state of an iterator, got ", tensor.shape());
  }
  const Ref<VariantObject>& object = tensor.item<Variant>().object;
  if (!object || object->type_name() != SavedState::kTypeName) {
    return invalid_argument("expected the state of an iterator, got a variant that holds ",
                            object ? object->type_name() : std::string_view("nothing"));
  }
  // A generator is run up to where it stood. The iterator outlives the step, but this does not.
  const Ref<Environment> environment = environment_of(ctx);
  CancellationToken* const cancel = ctx.cancel();
  uint64_t ticket = 0;
  if (cancel != nullptr) {
    ticket = cancel->on_cancel([environment] { environment->stop(); });
    if (ticket == 0) return cancel->status();
  }
  Status status = iterator->restore(static_cast<const SavedState&>(*object), environment);
  if (cancel != nullptr && !cancel->remove(ticket)) return cancel->status();
  return status;
}

Status to_string_handle(KernelContext& ctx) {
  MR_TRY_ASSIGN(const ResourceHandle handle, handle_input(ctx, 0, IteratorResource::kTypeName));
  MR_TRY(iterator_input(ctx, 0).status());
  ctx.set_output(0, Tensor::scalar(handle_to_text(handle)));
  return ok_status();
}

Status from_string_handle(KernelContext& ctx) {
  MR_TRY_ASSIGN(const std::string text, string_input(ctx, 0));
  MR_TRY_ASSIGN(ResourceHandle handle, handle_from_text(text));
  if (handle.type_name != IteratorResource::kTypeName) {
    return invalid_argument("the text is no handle of an iterator");
  }
  MR_TRY_ASSIGN(const Ref<IteratorResource> iterator,
                ctx.resources().lookup<IteratorResource>(handle.container, handle.name));
  MR_TRY_ASSIGN(const ElementSpec spec, spec_of(ctx.node()));
  if (!spec.types.empty()) MR_TRY(check_spec(iterator->spec(), spec));
  ctx.set_output(0, Tensor::scalar(std::move(handle)));
  return ok_status();
}

Status report(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Ref<IteratorResource> iterator, iterator_input(ctx, 0));
  MR_TRY_ASSIGN(const Ref<Cursor> cursor, iterator->cursor());
  ctx.set_output(0, Tensor::scalar(cursor->table()));
  return ok_status();
}

}  // namespace

void register_iterator_ops(Registry& registry) {
  static const Status decoder =
      register_variant_decoder(SavedState::kTypeName, &SavedState::decode);
  // Of all datasets these alone can be read from a message.
  static const Status elements =
      register_variant_decoder(Dataset::kTypeName, &ElementsDataset::decode);
  const OpSpec::Attr types = {"output_types", "list(type) >= 1"};
  const OpSpec::Attr shapes = {"output_shapes", "list(shape) >= 1"};
  const OpTraits owner = {.stateful = true, .owns_state = true, .cannot_differentiate = true};
  const OpTraits user = {.stateful = true, .cannot_differentiate = true};
  const OpSpec::Arg iterator = {"iterator", "resource"};
  for (const char* name : {"Iterator", "IteratorV2"}) {
    registry.add({.name = std::string_view(name),
                  .doc = "A place for an iterator over a dataset that comes later.",
                  .outputs = {{"handle", "resource"}},
                  .attrs = {{"shared_name", "string"}, {"container", "string"}, types, shapes},
                  .traits = owner,
                  .shape = element_handle_shape});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, make_iterator_handle);
  }
  registry.add({.name = "OneShotIterator",
                .doc = "An iterator over the dataset that a function makes.",
                .outputs = {{"handle", "resource"}},
                .attrs = {{"dataset_factory", "func"},
                          types,
                          shapes,
                          {"container", "string = ''"},
                          {"shared_name", "string = ''"}},
                .traits = owner,
                .shape = element_handle_shape});
  registry.kernel<OneShotIterator>("OneShotIterator", DeviceKind::kCpu);
  registry.add({.name = "MakeIterator",
                .doc = "Begins an iterator at the first element of a dataset.",
                .inputs = {{"dataset", "variant"}, iterator},
                .traits = user,
                .shape = shape_rules::no_outputs});
  registry.kernel("MakeIterator", DeviceKind::kCpu, begin_iterator);
  registry.add({.name = "IteratorToStringHandle",
                .doc = "The handle of an iterator as a text.",
                .inputs = {{"resource_handle", "resource"}},
                .outputs = {{"string_handle", "string"}},
                .traits = user,
                .shape = shape_rules::scalar});
  registry.kernel("IteratorToStringHandle", DeviceKind::kCpu, to_string_handle);
  for (const char* name : {"IteratorFromStringHandle", "IteratorFromStringHandleV2"}) {
    registry.add({.name = std::string_view(name),
                  .doc = "The handle of the iterator that a text names.",
                  .inputs = {{"string_handle", "string"}},
                  .outputs = {{"resource_handle", "resource"}},
                  .attrs = {{"output_types", "list(type) >= 0 = []", "Empty: any."},
                            {"output_shapes", "list(shape) >= 0 = []", "Empty: any."}},
                  .traits = user,
                  .shape = element_handle_shape});
    registry.kernel(std::string_view(name), DeviceKind::kCpu, from_string_handle);
  }
  registry.add({.name = "SerializeIterator",
                .doc = "Where an iterator stands: what it takes to go on with the next element.",
                .inputs = {{"resource_handle", "resource"}},
                .outputs = {{"serialized", "variant"}},
                .attrs = {{"external_state_policy", "int = 0"}},
                .traits = user,
                .shape = shape_rules::scalar});
  registry.kernel<Serialize>("SerializeIterator", DeviceKind::kCpu);
  registry.add({.name = "DeserializeIterator",
                .doc = "Lets an iterator go on where another stood.",
                .inputs = {{"resource_handle", "resource"}, {"serialized", "variant"}},
                .traits = user,
                .shape = shape_rules::no_outputs});
  registry.kernel<BlockingKernel<deserialize>>("DeserializeIterator", DeviceKind::kCpu);
  registry.add({.name = "IteratorReport",
                .doc = "A table of the stages of an iterator: elements, time, fill of buffers.",
                .inputs = {{"resource_handle", "resource"}},
                .outputs = {{"table", "string"}},
                .traits = user,
                .shape = shape_rules::scalar});
  registry.kernel("IteratorReport", DeviceKind::kCpu, report);
}

}  // namespace millrace::data
