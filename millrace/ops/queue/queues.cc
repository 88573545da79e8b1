// The ops that make queues, or find those that others made under the same name.

#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/queue/queue.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

using Contents = std::vector<ResourceHandle::DTypeAndShape>;

// Types and shapes as the attributes say, a priority before them where elements have one.
Result<Contents> read_contents(const AttrMap& attrs, QueueKind kind) {
  MR_TRY_ASSIGN(std::vector<DType> types, read_attr<std::vector<DType>>(attrs, "component_types"));
  MR_TRY_ASSIGN(std::vector<PartialShape> shapes,
                read_attr<std::vector<PartialShape>>(attrs, "shapes"));
  if (shapes.empty() && kind != QueueKind::kPaddingFifo) shapes.resize(types.size());
  if (shapes.size() != types.size()) {
    return invalid_argument("expected one shape for each of the ", types.size(),
                            " component types, got ", shapes.size());
  }
  Contents contents;
  if (kind == QueueKind::kPriority) contents.push_back({DType::kInt64, PartialShape::scalar()});
  for (size_t i = 0; i < types.size(); ++i) {
    if (is_ref(types[i])) {
      return invalid_argument("component ", i, " must not be a reference, got ", types[i]);
    }
    contents.push_back({types[i], shapes[i]});
  }
  return contents;
}

template <QueueKind kKind>
Status reference_shape(ShapeContext& c) {
  c.set_output(0, PartialShape{2});
  return read_contents(c.attrs(), kKind).status();
}

template <QueueKind kKind>
Status handle_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(Contents contents, read_contents(c.attrs(), kKind));
  c.set_output(0, PartialShape::scalar());
  c.set_output_resource(0, std::move(contents));
  return ok_status();
}

Result<QueueSpec> read_spec(const KernelNode& node, QueueKind kind) {
  QueueSpec spec{.kind = kind};
  MR_TRY_ASSIGN(Contents contents, read_contents(node.attrs, kind));
  for (size_t i = 0; i < contents.size(); ++i) {
    const PartialShape& shape = contents[i].shape;
    if (kind == QueueKind::kPaddingFifo ? !shape.rank_known()
                                        : shape.rank_known() && !shape.fully_known()) {
      return invalid_argument("shape ", i, " of a ", queue_kind_name(kind), " must have known ",
                              kind == QueueKind::kPaddingFifo ? "rank" : "sizes", ", got ", shape);
    }
    spec.types.push_back(contents[i].dtype);
    spec.shapes.push_back(shape);
  }
  MR_TRY_ASSIGN(spec.capacity, node.attr<int64_t>("capacity"));
  spec.capacity = std::max<int64_t>(spec.capacity, -1);
  if (kind != QueueKind::kRandomShuffle) return spec;
  MR_TRY_ASSIGN(spec.min_after_dequeue, node.attr<int64_t>("min_after_dequeue"));
  MR_TRY_ASSIGN(spec.seed, node.attr<int64_t>("seed"));
  MR_TRY_ASSIGN(spec.seed2, node.attr<int64_t>("seed2"));
  if (spec.min_after_dequeue < 0 ||
      (spec.capacity >= 0 && spec.min_after_dequeue >= spec.capacity)) {
    return invalid_argument("min_after_dequeue must not be negative and less than the capacity ",
                            spec.capacity, ", got ", spec.min_after_dequeue);
  }
  return spec;
}

// What two nodes that share a queue do not agree in.
std::string difference(const QueueSpec& shared, const QueueSpec& own) {
  if (shared.kind != own.kind) {
    return str_cat("is a ", queue_kind_name(shared.kind), ", this node expects a ",
                   queue_kind_name(own.kind));
  }
  if (shared.capacity != own.capacity) {
    return str_cat("has capacity ", shared.capacity, ", this node expects ", own.capacity);
  }
  if (shared.types != own.types) {
    return str_cat("has component types [", str_join(shared.types, ","), "], this node expects [",
                   str_join(own.types, ","), "]");
  }
  if (shared.shapes != own.shapes) {
    return str_cat("has component shapes [", str_join(shared.shapes, ","), "], this node expects [",
                   str_join(own.shapes, ","), "]");
  }
  if (shared.min_after_dequeue != own.min_after_dequeue) {
    return str_cat("has min_after_dequeue ", shared.min_after_dequeue, ", this node expects ",
                   own.min_after_dequeue);
  }
  return str_cat("has random seeds (", shared.seed, ", ", shared.seed2, "), this node expects (",
                 own.seed, ", ", own.seed2, ")");
}

// Whether a node that asks for `own` may use the queue that is shared already. One that names no
// seed takes any.
bool fits(const QueueSpec& shared, QueueSpec own) {
  if (own.seed == 0 && own.seed2 == 0) {
    own.seed = shared.seed;
    own.seed2 = shared.seed2;
  }
  return shared == own;
}

class QueueKernel : public Kernel {
 public:
  template <QueueKind kKind>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    // A queue of its own, which all signatures of the session use.
    if (name.shared_name.empty()) {
      name.shared_name = ResourceManager::session_name(node.session_prefix, node.name);
    }
    MR_TRY_ASSIGN(QueueSpec spec, read_spec(node, kKind));
    return std::make_unique<QueueKernel>(std::move(name), std::move(spec),
                                         is_ref(node.output_types[0]));
  }
  QueueKernel(StateName name, QueueSpec spec, bool reference)
      : name_(std::move(name)), spec_(std::move(spec)), reference_(reference) {}

  Status compute(KernelContext& ctx) const override {
    const std::string& name = name_.shared_name;
    const std::string_view container = container_or_default(name_.container);
    MR_TRY_ASSIGN(Ref<Queue> queue, ctx.resources().lookup_or_create<Queue>(
                                        container, name, [&]() -> Result<Ref<Queue>> {
                                          return make_ref<Queue>(container, name, spec_);
                                        }));
    if (!fits(queue->spec(), spec_)) {
      return invalid_argument("shared queue '", name, "' ", difference(queue->spec(), spec_));
    }
    if (reference_) {
      ctx.set_output_ref(0, queue->handle());
      return ok_status();
    }
    Contents contents;
    for (size_t i = 0; i < spec_.types.size(); ++i) {
      contents.push_back({spec_.types[i], spec_.shapes[i]});
    }
    ctx.set_output(0, make_handle(ctx, container, name, Queue::kTypeName, std::move(contents)));
    return ok_status();
  }

 private:
  const StateName name_;
  const QueueSpec spec_;
  const bool reference_;
};

template <QueueKind kKind>
void register_kind(Registry& registry, const char* doc) {
  std::vector<OpSpec::Attr> attrs;
  if (kKind == QueueKind::kPriority) {
    attrs = {{"component_types", "list(type) >= 0 = []", "Types after the priority."},
             {"shapes", "list(shape) >= 0"}};
  } else {
    attrs = {{"component_types", "list(type) >= 1"},
             {"shapes", "list(shape) >= 0 = []", "Of the components; none: anything."}};
  }
  attrs.push_back({"capacity", "int = -1", "How many elements have room; negative: any number."});
  if (kKind == QueueKind::kRandomShuffle) {
    attrs.push_back({"min_after_dequeue", "int = 0",
                     "How many elements stay while the queue is open, so that they mix."});
    attrs.push_back({"seed", "int = 0"});
    attrs.push_back({"seed2", "int = 0"});
  }
  attrs.push_back({"container", "string = ''"});
  attrs.push_back({"shared_name", "string = ''", "Nodes with the same name share a queue."});
  const OpTraits traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true};
  const std::string name(queue_kind_name(kKind));
  registry.add({.name = name,
                .doc = doc,
                .outputs = {{"handle", "ref(string)"}},
                .attrs = attrs,
                .traits = traits,
                .shape = reference_shape<kKind>});
  registry.add({.name = name + "V2",
                .doc = doc,
                .outputs = {{"handle", "resource"}},
                .attrs = attrs,
                .traits = traits,
                .shape = handle_shape<kKind>});
  for (const std::string& op : {name, name + "V2"}) {
    registry.kernel({.op = op, .factory = QueueKernel::make<kKind>});
  }
}

}  // namespace

void register_queues(Registry& registry) {
  register_kind<QueueKind::kFifo>(registry, "A queue that gives elements in the order they came.");
  register_kind<QueueKind::kPaddingFifo>(
      registry,
      "A queue that gives elements in the order they came and pads those of a batch to one size.");
  register_kind<QueueKind::kRandomShuffle>(registry,
                                           "A queue that gives elements in random order.");
  register_kind<QueueKind::kPriority>(
      registry, "A queue that gives the element whose first component is smallest.");
}

}  // namespace millrace
