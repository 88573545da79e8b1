// Putting into queues and taking from them. Kernels that have to wait leave a continuation in the
// queue and hold no thread.

#include <algorithm>
#include <limits>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/batch.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/queue/queue.h"

namespace millrace {
namespace {

using Contents = std::vector<ResourceHandle::DTypeAndShape>;

// What is known of the queue's components, given the types that an op uses them with; null when
// nothing is.
Result<const Contents*> known_contents(const ShapeContext& c, const std::vector<DType>& types) {
  const Contents& known = c.input_facts(0).resource;
  if (known.empty()) return static_cast<const Contents*>(nullptr);
  bool same = known.size() == types.size();
  for (size_t i = 0; same && i < types.size(); ++i) same = known[i].dtype == types[i];
  if (same) return &known;
  std::vector<DType> expected;
  for (const auto& component : known) expected.push_back(component.dtype);
  return invalid_argument("the queue has component types [", str_join(expected, ","),
                          "], this op uses [", str_join(types, ","), "]");
}

Status check_shape(size_t component, const PartialShape& shape, const PartialShape& expected) {
  if (shape.compatible(expected)) return ok_status();
  return invalid_argument("component ", component, " must have shape ", expected, ", got ", shape);
}

PartialShape without_first(const PartialShape& shape) {
  if (shape.rank() < 1) return PartialShape::unknown();
  PartialShape rest = PartialShape::scalar();
  for (int i = 1; i < shape.rank(); ++i) rest.add_dim(shape.dim(i));
  return rest;
}

PartialShape batch_of(int64_t n, const PartialShape& row) {
  if (!row.rank_known() || row.rank() >= Shape::kMaxRank) return PartialShape::unknown();
  PartialShape batch = {n};
  for (int64_t dim : row.dims()) batch.add_dim(dim);
  return batch;
}

Status enqueue_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(std::vector<DType> types, c.attr<std::vector<DType>>("Tcomponents"));
  MR_TRY_ASSIGN(const Contents* known, known_contents(c, types));
  for (size_t i = 0; known != nullptr && i < types.size(); ++i) {
    MR_TRY(check_shape(i, c.input(static_cast<int>(i) + 1), (*known)[i].shape));
  }
  return ok_status();
}

Status enqueue_many_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(std::vector<DType> types, c.attr<std::vector<DType>>("Tcomponents"));
  MR_TRY_ASSIGN(const Contents* known, known_contents(c, types));
  int64_t batch = PartialShape::kUnknownDim;
  for (size_t i = 0; i < types.size(); ++i) {
    MR_TRY_ASSIGN(PartialShape shape, c.with_rank_at_least(static_cast<int>(i) + 1, 1));
    if (!shape.rank_known()) continue;
    if (shape.dim_known(0) && batch >= 0 && shape.dim(0) != batch) {
      return invalid_argument("all components must have one batch size, got ", batch, " and ",
                              shape.dim(0), " for component ", i);
    }
    if (shape.dim_known(0)) batch = shape.dim(0);
    if (known != nullptr) MR_TRY(check_shape(i, without_first(shape), (*known)[i].shape));
  }
  return ok_status();
}

Status dequeue_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(std::vector<DType> types, c.attr<std::vector<DType>>("component_types"));
  MR_TRY_ASSIGN(const Contents* known, known_contents(c, types));
  for (size_t i = 0; known != nullptr && i < types.size(); ++i) {
    c.set_output(static_cast<int>(i), (*known)[i].shape);
  }
  return ok_status();
}

template <bool kUpTo>
Status dequeue_batch_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(std::vector<DType> types, c.attr<std::vector<DType>>("component_types"));
  MR_TRY_ASSIGN(const Contents* known, known_contents(c, types));
  MR_TRY(c.with_rank(1, 0).status());
  int64_t n = c.input_scalar(1).value_or(PartialShape::kUnknownDim);
  if (n < 0 && c.input_scalar(1)) return invalid_argument("n must not be negative, got ", n);
  if (kUpTo && n != 0) n = PartialShape::kUnknownDim;
  for (size_t i = 0; i < types.size(); ++i) {
    c.set_output(static_cast<int>(i),
                 known == nullptr ? PartialShape::unknown() : batch_of(n, (*known)[i].shape));
  }
  return ok_status();
}

Status size_shape(ShapeContext& c) {
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

Status check_timeout(const KernelNode& node) {
  MR_TRY_ASSIGN(int64_t timeout, node.attr<int64_t>("timeout_ms"));
  if (timeout == -1) return ok_status();
  return invalid_argument("timeout_ms is not supported, expected -1, got ", timeout);
}

template <bool kMany>
class Enqueue : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY(check_timeout(node));
    return std::make_unique<Enqueue>();
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<Queue>> queue = resource_input<Queue>(ctx, 0);
    if (!queue.ok()) return done(queue.status());
    Result<std::vector<QueueElement>> elements = read_elements(ctx, **queue);
    if (!elements.ok()) return done(elements.status());
    Queue& target = **queue;
    target.enqueue(
        std::move(*elements), ctx.cancel(),
        [queue = std::move(*queue), done = std::move(done)](
            Status status, std::vector<QueueElement>) mutable { done(std::move(status)); });
  }

 private:
  static Result<std::vector<QueueElement>> read_elements(KernelContext& ctx, const Queue& queue) {
    if constexpr (kMany) {
      return split_inputs(ctx, 1, queue.spec());
    } else {
      std::vector<QueueElement> elements(1);
      MR_TRY_ASSIGN(elements[0], element_from_inputs(ctx, 1, queue.spec()));
      return elements;
    }
  }
};

enum class Take : uint8_t { kOne, kMany, kUpTo };

template <Take kTake>
class Dequeue : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY(check_timeout(node));
    return std::make_unique<Dequeue>();
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<Queue>> queue = resource_input<Queue>(ctx, 0);
    if (!queue.ok()) return done(queue.status());
    const Result<int64_t> n = count(ctx, **queue);
    if (!n.ok()) return done(n.status());
    Queue& source = **queue;
    source.dequeue(*n, kTake == Take::kUpTo, ctx.cancel(),
                   [&ctx, queue = std::move(*queue), done = std::move(done)](
                       Status status, std::vector<QueueElement> elements) mutable {
                     if (status.ok()) {
                       status = set_outputs(ctx, *queue, elements);
                       if (!status.ok()) queue->put_back(std::move(elements));
                     }
                     done(std::move(status));
                   });
  }

 private:
  // How many elements to take; an error when the queue has others than this op expects.
  static Result<int64_t> count(const KernelContext& ctx, const Queue& queue) {
    const QueueSpec& spec = queue.spec();
    if (spec.types != ctx.node().output_types) {
      return invalid_argument(queue_kind_name(spec.kind), " '", queue.name(),
                              "' has component types [", str_join(spec.types, ","),
                              "], this op expects [", str_join(ctx.node().output_types, ","), "]");
    }
    if (kTake == Take::kOne) return int64_t{1};
    MR_TRY(check_can_stack(spec));
    MR_TRY(expect_rank(ctx, 1, 0));
    MR_TRY_ASSIGN(int32_t n, ctx.scalar_input<int32_t>(1));
    if (n < 0) return invalid_argument("n must not be negative, got ", n);
    return int64_t{n};
  }

  static Status set_outputs(KernelContext& ctx, const Queue& queue,
                            std::vector<QueueElement>& elements) {
    if constexpr (kTake != Take::kOne) {
      return stack_to_outputs(ctx, queue.spec(), elements);
    } else {
      for (size_t i = 0; i < elements[0].size(); ++i) {
        ctx.set_output(static_cast<int>(i), std::move(elements[0][i]));
      }
      return ok_status();
    }
  }
};

class Close : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(bool cancel_pending, node.attr<bool>("cancel_pending_enqueues"));
    return std::make_unique<Close>(cancel_pending);
  }
  explicit Close(bool cancel_pending) : cancel_pending_(cancel_pending) {}

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<Queue>> queue = resource_input<Queue>(ctx, 0);
    if (!queue.ok()) return done(queue.status());
    Queue& target = **queue;
    target.close(
        cancel_pending_, ctx.cancel(),
        [queue = std::move(*queue), done = std::move(done)](
            Status status, std::vector<QueueElement>) mutable { done(std::move(status)); });
  }

 private:
  const bool cancel_pending_;
};

Status queue_size(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Queue> queue, resource_input<Queue>(ctx, 0));
  const int64_t size = std::min<int64_t>(queue->size(), std::numeric_limits<int32_t>::max());
  ctx.set_output(0, Tensor::scalar(static_cast<int32_t>(size)));
  return ok_status();
}

constexpr const char* kNoGradient = "what was put into the queue is not known";

// The forms of an op for both kinds of handles.
template <class RegisterKernel>
void add_forms(Registry& registry, const OpSpec& spec, RegisterKernel kernel) {
  for (const bool v2 : {false, true}) {
    OpSpec form = spec;
    if (v2) form.name = str_cat(form.name, "V2");
    form.inputs[0].type = v2 ? "resource" : "ref(string)";
    form.traits.stateful = true;
    form.traits.cannot_differentiate = form.no_gradient.empty();
    registry.add(form);
    kernel(form.name);
  }
}

}  // namespace

void register_queue_access(Registry& registry) {
  const OpSpec::Attr timeout = {"timeout_ms", "int = -1", "Not supported."};
  const std::vector<OpSpec::Attr> put_attrs = {{"Tcomponents", "list(type) >= 1"}, timeout};
  const std::vector<OpSpec::Attr> take_attrs = {{"component_types", "list(type) >= 1"}, timeout};
  const auto kernel = [&]<class K>() {
    return [&registry](SpecText op) { registry.kernel<K>(op, DeviceKind::kCpu); };
  };
  add_forms(registry,
            {.name = "QueueEnqueue",
             .doc = "Puts one element into a queue, when there is room.",
             .inputs = {{"handle", ""}, {"components", "list(Tcomponents)"}},
             .attrs = put_attrs,
             .traits = {.retains = ~1u},
             .shape = enqueue_shape},
            kernel.operator()<Enqueue<false>>());
  add_forms(registry,
            {.name = "QueueEnqueueMany",
             .doc = "Puts the rows of the components into a queue, as room comes.",
             .inputs = {{"handle", ""}, {"components", "list(Tcomponents)"}},
             .attrs = put_attrs,
             .shape = enqueue_many_shape},
            kernel.operator()<Enqueue<true>>());
  add_forms(registry,
            {.name = "QueueDequeue",
             .doc = "Takes one element from a queue, when there is one.",
             .inputs = {{"handle", ""}},
             .outputs = {{"components", "list(component_types)"}},
             .attrs = take_attrs,
             .shape = dequeue_shape,
             .no_gradient = kNoGradient},
            kernel.operator()<Dequeue<Take::kOne>>());
  add_forms(registry,
            {.name = "QueueDequeueMany",
             .doc = "Takes n elements from a queue, joined to a batch.",
             .inputs = {{"handle", ""}, {"n", "host(int32)"}},
             .outputs = {{"components", "list(component_types)"}},
             .attrs = take_attrs,
             .shape = dequeue_batch_shape<false>,
             .no_gradient = kNoGradient},
            kernel.operator()<Dequeue<Take::kMany>>());
  add_forms(registry,
            {.name = "QueueDequeueUpTo",
             .doc = "Takes n elements from a queue, or what is left of a closed one.",
             .inputs = {{"handle", ""}, {"n", "host(int32)"}},
             .outputs = {{"components", "list(component_types)"}},
             .attrs = take_attrs,
             .shape = dequeue_batch_shape<true>,
             .no_gradient = kNoGradient},
            kernel.operator()<Dequeue<Take::kUpTo>>());
  add_forms(registry,
            {.name = "QueueClose",
             .doc = "Lets nobody put into a queue any more.",
             .inputs = {{"handle", ""}},
             .attrs = {{"cancel_pending_enqueues", "bool = false",
                        "Those who wait for room fail instead of going first."}},
             .shape = shape_rules::no_outputs},
            kernel.operator()<Close>());
  add_forms(registry,
            {.name = "QueueSize",
             .doc = "The number of elements in a queue.",
             .inputs = {{"handle", ""}},
             .outputs = {{"size", "host(int32)"}},
             .shape = size_shape},
            [&registry](SpecText op) { registry.kernel(op, DeviceKind::kCpu, queue_size); });
}

}  // namespace millrace
