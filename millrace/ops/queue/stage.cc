// Staging areas: where a step leaves tensors for a later one, so that what makes them and what uses
// them overlap. An area is a queue that nodes of one shared_name find without a handle.

#include <algorithm>
#include <limits>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/batch.h"
#include "millrace/ops/queue/queue.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

class StagingArea final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "StagingArea";

  StagingArea(std::string_view container, std::string_view name, QueueSpec spec)
      : queue_(make_ref<Queue>(container, name, std::move(spec))) {}
  const Ref<Queue>& queue() const { return queue_; }
  std::string describe() const override {
    return str_cat("StagingArea ", queue_->size(), " elements");
  }

 private:
  const Ref<Queue> queue_;
};

Status check_memory_limit(const AttrMap& attrs) {
  MR_TRY_ASSIGN(const int64_t limit, read_attr<int64_t>(attrs, "memory_limit"));
  if (limit == 0) return ok_status();
  return unimplemented("memory_limit of a staging area must be 0, no limit, got ", limit);
}

Status stage_shape(ShapeContext& c) { return check_memory_limit(c.attrs()); }

Status stage_size_shape(ShapeContext& c) {
  MR_TRY(check_memory_limit(c.attrs()));
  return shape_rules::scalar(c);
}

// The area that a node uses.
class AreaName {
 public:
  static Result<AreaName> make(const KernelNode& node) {
    AreaName area;
    MR_TRY_ASSIGN(area.name_, StateName::make(node));
    if (area.name_.shared_name.empty()) {
      area.name_.shared_name = ResourceManager::session_name(node.session_prefix, node.name);
    }
    MR_TRY(check_memory_limit(node.attrs));
    MR_TRY_ASSIGN(const int64_t capacity, node.attr<int64_t>("capacity"));
    area.spec_.capacity = capacity == 0 ? -1 : capacity;
    MR_TRY_ASSIGN(area.spec_.types, node.attr<std::vector<DType>>("dtypes"));
    for (const DType type : area.spec_.types) {
      if (is_ref(type)) return invalid_argument("dtypes must be no references, got ", type);
    }
    area.spec_.shapes.resize(area.spec_.types.size());
    return area;
  }

  // Made by whichever node runs first; INVALID_ARGUMENT when that has other dtypes.
  Result<Ref<Queue>> find(const KernelContext& ctx) const {
    const std::string& name = name_.shared_name;
    const std::string_view container = container_or_default(name_.container);
    MR_TRY_ASSIGN(const Ref<StagingArea> area,
                  ctx.resources().lookup_or_create<StagingArea>(
                      container, name, [&]() -> Result<Ref<StagingArea>> {
                        return make_ref<StagingArea>(container, name, spec_);
                      }));
    const QueueSpec& shared = area->queue()->spec();
    if (shared.types != spec_.types) {
      return invalid_argument("staging area '", name, "' has dtypes [", str_join(shared.types, ","),
                              "], this node expects [", str_join(spec_.types, ","), "]");
    }
    if (shared.capacity != spec_.capacity) {
      return invalid_argument("staging area '", name, "' has capacity ", shared.capacity,
                              ", this node expects ", spec_.capacity);
    }
    return area->queue();
  }

 private:
  StateName name_;
  QueueSpec spec_;
};

class Stage : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(AreaName area, AreaName::make(node));
    return std::make_unique<Stage>(std::move(area));
  }
  explicit Stage(AreaName area) : area_(std::move(area)) {}

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<Queue>> queue = area_.find(ctx);
    if (!queue.ok()) return done(queue.status());
    Queue& target = **queue;
    Result<QueueElement> element = element_from_inputs(ctx, 0, target.spec());
    if (!element.ok()) return done(element.status());
    std::vector<QueueElement> one;
    one.push_back(std::move(*element));
    target.enqueue(
        std::move(one), ctx.cancel(),
        [queue = std::move(*queue), done = std::move(done)](
            Status status, std::vector<QueueElement>) mutable { done(std::move(status)); });
  }

 private:
  const AreaName area_;
};

class Unstage : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(AreaName area, AreaName::make(node));
    return std::make_unique<Unstage>(std::move(area));
  }
  explicit Unstage(AreaName area) : area_(std::move(area)) {}

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<Queue>> queue = area_.find(ctx);
    if (!queue.ok()) return done(queue.status());
    Queue& source = **queue;
    source.dequeue(1, false, ctx.cancel(),
                   [&ctx, queue = std::move(*queue), done = std::move(done)](
                       Status status, std::vector<QueueElement> elements) mutable {
                     for (size_t i = 0; status.ok() && i < elements[0].size(); ++i) {
                       ctx.set_output(static_cast<int>(i), std::move(elements[0][i]));
                     }
                     done(std::move(status));
                   });
  }

 private:
  const AreaName area_;
};

class StageSize : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(AreaName area, AreaName::make(node));
    return std::make_unique<StageSize>(std::move(area));
  }
  explicit StageSize(AreaName area) : area_(std::move(area)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Ref<Queue> queue, area_.find(ctx));
    const int64_t size = std::min<int64_t>(queue->size(), std::numeric_limits<int32_t>::max());
    ctx.set_output(0, Tensor::scalar(static_cast<int32_t>(size)));
    return ok_status();
  }

 private:
  const AreaName area_;
};

}  // namespace

void register_stage(Registry& registry) {
  const std::vector<OpSpec::Attr> attrs = {
      {"dtypes", "list(type) >= 1"},
      {"capacity", "int >= 0 = 0", "How many elements have room; 0: any number."},
      {"memory_limit", "int >= 0 = 0", "Only 0, no limit, is supported."},
      {"container", "string = ''"},
      {"shared_name", "string = ''", "Nodes with the same name share an area."}};
  const OpTraits traits = {.stateful = true, .cannot_differentiate = true};
  registry.add({.name = "Stage",
                .doc = "Leaves tensors in a staging area, when there is room.",
                .inputs = {{"values", "list(dtypes)"}},
                .attrs = attrs,
                .traits = {.stateful = true, .cannot_differentiate = true, .retains = ~0u},
                .shape = stage_shape});
  registry.kernel({.op = "Stage", .factory = Stage::make});
  registry.add({.name = "Unstage",
                .doc = "Takes tensors from a staging area, when there are some.",
                .outputs = {{"values", "list(dtypes)"}},
                .attrs = attrs,
                .traits = traits,
                .shape = stage_shape});
  registry.kernel({.op = "Unstage", .factory = Unstage::make});
  std::vector<OpSpec::Attr> size_attrs = attrs;
  size_attrs[0].type = "list(type) >= 0";
  registry.add({.name = "StageSize",
                .doc = "The number of elements in a staging area.",
                .outputs = {{"size", "host(int32)"}},
                .attrs = std::move(size_attrs),
                .traits = traits,
                .shape = stage_size_shape});
  registry.kernel({.op = "StageSize", .factory = StageSize::make});
}

}  // namespace millrace
