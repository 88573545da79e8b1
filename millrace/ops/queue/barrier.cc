// Barriers: what is inserted in parts, each under the same key, is taken when all parts are there.

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "millrace/base/mutex.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/batch.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/queue/queue.h"
#include "millrace/ops/state/variable.h"

namespace millrace {
namespace {

// The components of a complete element before its values: when its key first came, and the key.
constexpr size_t kFirstValue = 2;

// Elements that lack a component wait here by their keys; complete ones wait in a queue, those
// whose keys came first to the front. Thread-safe.
class Barrier final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Barrier";

  // `spec` is that of the queue: a kPriority of index, key and values.
  Barrier(std::string_view container, std::string_view name, QueueSpec spec)
      : name_(name),
        handle_(make_handle_cell(container, name)),
        ready_(make_ref<Queue>(container, name, std::move(spec))) {}

  const QueueSpec& spec() const { return ready_->spec(); }
  const Ref<RefCell>& handle() const { return handle_; }
  Queue& ready() { return *ready_; }

  // Sets one component of an element for each of `keys`, `values` having a row for each. All or
  // nothing: INVALID_ARGUMENT for a key that has this component, CANCELLED for a new one once the
  // barrier is closed, or for any when what was missing was given up.
  Status insert(size_t component, const Tensor& keys, const Tensor& values) {
    std::vector<QueueElement> complete;
    {
      MutexLock lock(mu_);
      MR_TRY(check_insert(component, keys));
      MR_TRY_ASSIGN(complete, put(component, keys, values));
      on_their_way_ += static_cast<int64_t>(complete.size());
    }
    const auto moved = static_cast<int64_t>(complete.size());
    // Never waits: there is room for any number. Without the lock, since takers go on from there.
    Status status;
    ready_->enqueue(std::move(complete), nullptr,
                    [&](Status put, const std::vector<QueueElement>&) { status = std::move(put); });
    bool close_ready = false;
    {
      MutexLock lock(mu_);
      on_their_way_ -= moved;
      close_ready = finished();
    }
    if (close_ready) close_queue();
    return status;
  }

  // Takes n complete elements, first keys first, as Queue::dequeue does. Once the barrier is
  // closed, OUT_OF_RANGE when so many can never be; with `small`, as many as are complete.
  void take(int64_t n, bool small, CancellationToken* cancel, Queue::Done done) {
    Status status;
    {
      MutexLock lock(mu_);
      if (closed_) {
        int64_t available = ready_->size();
        if (small) {
          n = std::min(n, available);
        } else {
          available += on_their_way_ + static_cast<int64_t>(incomplete_.size());
        }
        if (available < std::max<int64_t>(n, 1)) {
          status = out_of_range("Barrier '", name_, "' is closed and has insufficient elements ",
                                "(requested ", n, ", total size ", available, ")");
        }
      }
    }
    if (!status.ok()) return done(std::move(status), {});
    ready_->dequeue(n, small, cancel, std::move(done));
  }

  // Lets no new key come; with `cancel_pending`, no missing component either. CANCELLED when the
  // barrier is closed already, except with `cancel_pending`.
  Status close(bool cancel_pending) {
    bool close_ready = false;
    {
      MutexLock lock(mu_);
      if (closed_ && !cancel_pending) {
        return cancelled("Barrier '", name_, "' is already closed.");
      }
      closed_ = true;
      given_up_ |= cancel_pending;
      if (given_up_) incomplete_.clear();
      close_ready = finished();
    }
    if (close_ready) close_queue();
    return ok_status();
  }

  int64_t ready_size() const { return ready_->size(); }
  int64_t incomplete_size() const {
    MutexLock lock(mu_);
    return static_cast<int64_t>(incomplete_.size());
  }
  std::string describe() const override {
    return str_cat("Barrier ", ready_size(), " ready, ", incomplete_size(), " incomplete");
  }

 private:
  Status check_insert(size_t component, const Tensor& keys) const MR_REQUIRES(mu_) {
    const std::string* key = keys.data<std::string>().data();
    std::set<std::string_view> seen;
    int64_t fresh = 0;
    for (int64_t i = 0; i < keys.num_elements(); ++i) {
      const auto found = incomplete_.find(key[i]);
      if (found == incomplete_.end()) ++fresh;
      if (!seen.insert(key[i]).second ||
          (found != incomplete_.end() && found->second[component + kFirstValue].valid())) {
        return invalid_argument("Key ", key[i], " already has a value for component ", component,
                                " in barrier '", name_, "'");
      }
    }
    if (given_up_ || (closed_ && fresh > 0)) {
      return cancelled("Barrier '", name_, "' is closed. Pending enqueues cancelled: ", given_up_,
                       ". Number of new insertions: ", fresh,
                       ". Number of incomplete keys: ", incomplete_.size(), ".");
    }
    return ok_status();
  }

  // Returns the elements that are complete now, which leave.
  Result<std::vector<QueueElement>> put(size_t component, const Tensor& keys, const Tensor& values)
      MR_REQUIRES(mu_) {
    const int64_t count = keys.num_elements();
    std::vector<Tensor> rows;
    rows.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      MR_TRY_ASSIGN(Tensor row, values.row(i).clone());
      rows.push_back(std::move(row));
    }
    std::vector<QueueElement> complete;
    bool fresh = false;
    for (int64_t i = 0; i < count; ++i) {
      const std::string& key = keys.data<std::string>()[static_cast<size_t>(i)];
      const auto [found, added] = incomplete_.try_emplace(key);
      QueueElement& element = found->second;
      if (added) {
        element.resize(spec().types.size());
        element[0] = Tensor::scalar(next_index_);
        element[1] = Tensor::scalar(key);
        fresh = true;
      }
      element[component + kFirstValue] = std::move(rows[static_cast<size_t>(i)]);
      if (std::all_of(element.begin(), element.end(), [](const Tensor& t) { return t.valid(); })) {
        complete.push_back(std::move(element));
        incomplete_.erase(found);
      }
    }
    if (fresh) ++next_index_;
    return complete;
  }

  // Whether no element can become complete any more.
  bool finished() const MR_REQUIRES(mu_) {
    return closed_ && incomplete_.empty() && on_their_way_ == 0;
  }
  void close_queue() {
    ready_->close(true, nullptr, [](const Status&, const std::vector<QueueElement>&) {});
  }

  const std::string name_;
  const Ref<RefCell> handle_;
  const Ref<Queue> ready_;

  mutable Mutex mu_;
  std::map<std::string, QueueElement, std::less<>> incomplete_ MR_GUARDED_BY(mu_);
  int64_t next_index_ MR_GUARDED_BY(mu_) = std::numeric_limits<int64_t>::min();
  int64_t on_their_way_ MR_GUARDED_BY(mu_) = 0;  // complete, not in the queue yet
  bool closed_ MR_GUARDED_BY(mu_) = false;
  bool given_up_ MR_GUARDED_BY(mu_) = false;
};

Result<QueueSpec> read_spec(const AttrMap& attrs) {
  MR_TRY_ASSIGN(const int64_t capacity, read_attr<int64_t>(attrs, "capacity"));
  if (capacity != -1) {
    return invalid_argument("a Barrier has room for any number, expected capacity -1, got ",
                            capacity);
  }
  MR_TRY_ASSIGN(std::vector<DType> types, read_attr<std::vector<DType>>(attrs, "component_types"));
  MR_TRY_ASSIGN(std::vector<PartialShape> shapes,
                read_attr<std::vector<PartialShape>>(attrs, "shapes"));
  if (shapes.empty()) shapes.resize(types.size());
  if (shapes.size() != types.size()) {
    return invalid_argument("expected one shape for each of the ", types.size(),
                            " component types, got ", shapes.size());
  }
  QueueSpec spec{.kind = QueueKind::kPriority,
                 .types = {DType::kInt64, DType::kString},
                 .shapes = {PartialShape::scalar(), PartialShape::scalar()}};
  for (size_t i = 0; i < types.size(); ++i) {
    if (is_ref(types[i])) {
      return invalid_argument("component ", i, " must not be a reference, got ", types[i]);
    }
    if (shapes[i].rank_known() && !shapes[i].fully_known()) {
      return invalid_argument("shape ", i, " of a Barrier must have known sizes, got ", shapes[i]);
    }
    if (shapes[i].fully_known() && std::ranges::count(shapes[i].dims(), 0) > 0) {
      return invalid_argument("Empty tensors are not supported, but component ", i, " has shape ",
                              shapes[i]);
    }
    spec.types.push_back(types[i]);
    spec.shapes.push_back(shapes[i]);
  }
  return spec;
}

Status barrier_shape(ShapeContext& c) {
  c.set_output(0, PartialShape{2});
  return read_spec(c.attrs()).status();
}

Status insert_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape keys, c.with_rank(1, 1));
  MR_TRY_ASSIGN(const PartialShape values, c.with_rank_at_least(2, 1));
  if (keys.rank_known() && values.rank_known() && keys.dim_known(0) && values.dim_known(0) &&
      keys.dim(0) != values.dim(0)) {
    return invalid_argument("expected a row of values for each key, got keys of shape ", keys,
                            " and values of shape ", values);
  }
  return ok_status();
}

Status take_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 0).status());
  MR_TRY_ASSIGN(const bool small, c.attr<bool>("allow_small_batch"));
  const int64_t n = c.input_scalar(1).value_or(PartialShape::kUnknownDim);
  if (n < 0 && c.input_scalar(1)) {
    return invalid_argument("num_elements must not be negative, got ", n);
  }
  const PartialShape batch = {small && n != 0 ? PartialShape::kUnknownDim : n};
  c.set_output(0, batch);
  c.set_output(1, batch);
  return ok_status();
}

class MakeBarrier : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    if (name.shared_name.empty()) {
      name.shared_name = ResourceManager::session_name(node.session_prefix, node.name);
    }
    MR_TRY_ASSIGN(QueueSpec spec, read_spec(node.attrs));
    return std::make_unique<MakeBarrier>(std::move(name), std::move(spec));
  }
  MakeBarrier(StateName name, QueueSpec spec) : name_(std::move(name)), spec_(std::move(spec)) {}

  Status compute(KernelContext& ctx) const override {
    const std::string& name = name_.shared_name;
    const std::string_view container = container_or_default(name_.container);
    MR_TRY_ASSIGN(Ref<Barrier> barrier, ctx.resources().lookup_or_create<Barrier>(
                                            container, name, [&]() -> Result<Ref<Barrier>> {
                                              return make_ref<Barrier>(container, name, spec_);
                                            }));
    const QueueSpec& shared = barrier->spec();
    if (shared.types != spec_.types) {
      return invalid_argument("shared barrier '", name, "' has component types [",
                              text(shared.types), "], this node expects [", text(spec_.types), "]");
    }
    if (shared.shapes != spec_.shapes) {
      return invalid_argument("shared barrier '", name, "' has component shapes [",
                              text(shared.shapes), "], this node expects [", text(spec_.shapes),
                              "]");
    }
    ctx.set_output_ref(0, barrier->handle());
    return ok_status();
  }

 private:
  // Without index and key, of which users know nothing.
  template <class T>
  static std::string text(const std::vector<T>& all) {
    return str_join(std::vector<T>(all.begin() + kFirstValue, all.end()), ",");
  }

  const StateName name_;
  const QueueSpec spec_;
};

class InsertMany : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t component, node.attr<int64_t>("component_index"));
    return std::make_unique<InsertMany>(component);
  }
  explicit InsertMany(int64_t component) : component_(component) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Ref<Barrier> barrier, resource_input<Barrier>(ctx, 0));
    const QueueSpec& spec = barrier->spec();
    const auto components = static_cast<int64_t>(spec.types.size() - kFirstValue);
    if (component_ < 0 || component_ >= components) {
      return invalid_argument("the component ID is out of range ", component_,
                              " > num_components (= ", components, ")");
    }
    const auto component = static_cast<size_t>(component_);
    const Tensor& keys = ctx.input(1);
    const Tensor& values = ctx.input(2);
    MR_TRY(expect_rank(ctx, 1, 1));
    if (values.dtype() != spec.types[component + kFirstValue]) {
      return invalid_argument("component ", component, " has type ",
                              spec.types[component + kFirstValue], ", got values of type ",
                              values.dtype());
    }
    if (values.rank() < 1 || values.dim(0) != keys.dim(0)) {
      return invalid_argument("expected a row of values for each of ", keys.dim(0),
                              " keys, got values of shape ", values.shape());
    }
    if (values.num_elements() == 0 && keys.dim(0) > 0) {
      return invalid_argument("Tensors with no elements are not supported: component ", component,
                              " received shape ", values.shape());
    }
    const PartialShape& expected = spec.shapes[component + kFirstValue];
    if (expected.rank_known() &&
        !std::ranges::equal(expected.dims(), values.shape().dims().subspan(1))) {
      return invalid_argument("Shape mismatch in component ", component,
                              ". Expected rows of shape ", expected, ", got values of shape ",
                              values.shape());
    }
    return barrier->insert(component, keys, values);
  }

 private:
  const int64_t component_;
};

class TakeMany : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t timeout, node.attr<int64_t>("timeout_ms"));
    if (timeout != -1) {
      return invalid_argument("timeout_ms is not supported, expected -1, got ", timeout);
    }
    MR_TRY_ASSIGN(const bool small, node.attr<bool>("allow_small_batch"));
    return std::make_unique<TakeMany>(small);
  }
  explicit TakeMany(bool small) : small_(small) {}

  void compute_async(KernelContext& ctx, Done done) const override {
    Result<Ref<Barrier>> barrier = resource_input<Barrier>(ctx, 0);
    if (!barrier.ok()) return done(barrier.status());
    const Result<int64_t> n = count(ctx, (*barrier)->spec());
    if (!n.ok()) return done(n.status());
    Barrier& source = **barrier;
    source.take(*n, small_, ctx.cancel(),
                [&ctx, barrier = std::move(*barrier), done = std::move(done)](
                    Status status, std::vector<QueueElement> elements) mutable {
                  if (status.ok()) {
                    status = stack_to_outputs(ctx, barrier->spec(), elements);
                    if (!status.ok()) barrier->ready().put_back(std::move(elements));
                  }
                  done(std::move(status));
                });
  }

 private:
  static Result<int64_t> count(const KernelContext& ctx, const QueueSpec& spec) {
    if (spec.types != ctx.node().output_types) {
      return invalid_argument("the barrier gives index, key and values of types [",
                              str_join(spec.types, ","), "], this op expects [",
                              str_join(ctx.node().output_types, ","), "]");
    }
    for (size_t i = kFirstValue; i < spec.shapes.size(); ++i) {
      if (!spec.shapes[i].fully_known()) {
        return invalid_argument("elements of a Barrier can be taken when its shapes are given, ",
                                "but component ", i - kFirstValue, " has shape ", spec.shapes[i]);
      }
    }
    MR_TRY(expect_rank(ctx, 1, 0));
    MR_TRY_ASSIGN(const int32_t n, ctx.scalar_input<int32_t>(1));
    if (n < 0) return invalid_argument("num_elements must not be negative, got ", n);
    return int64_t{n};
  }

  const bool small_;
};

class CloseBarrier : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool cancel_pending, node.attr<bool>("cancel_pending_enqueues"));
    return std::make_unique<CloseBarrier>(cancel_pending);
  }
  explicit CloseBarrier(bool cancel_pending) : cancel_pending_(cancel_pending) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Ref<Barrier> barrier, resource_input<Barrier>(ctx, 0));
    return barrier->close(cancel_pending_);
  }

 private:
  const bool cancel_pending_;
};

template <int64_t (Barrier::*kSize)() const>
Status size_cpu(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Barrier> barrier, resource_input<Barrier>(ctx, 0));
  const int64_t size =
      std::min<int64_t>(((*barrier).*kSize)(), std::numeric_limits<int32_t>::max());
  ctx.set_output(0, Tensor::scalar(static_cast<int32_t>(size)));
  return ok_status();
}

}  // namespace

void register_barrier(Registry& registry) {
  const OpTraits traits = {.stateful = true, .cannot_differentiate = true};
  registry.add({.name = "Barrier",
                .doc = "Collects the components of elements, each under the element's key.",
                .outputs = {{"handle", "ref(string)"}},
                .attrs = {{"component_types", "list(type) >= 1"},
                          {"shapes", "list(shape) >= 0 = []", "Of the components."},
                          {"capacity", "int = -1", "Only -1, no limit, is supported."},
                          {"container", "string = ''"},
                          {"shared_name", "string = ''", "Nodes with the same name share one."}},
                .traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true},
                .shape = barrier_shape});
  registry.kernel({.op = "Barrier", .factory = MakeBarrier::make});
  registry.add({.name = "BarrierInsertMany",
                .doc = "Sets one component of the element of each key.",
                .inputs = {{"handle", "ref(string)"},
                           {"keys", "string"},
                           {"values", "T", "A row for each key."}},
                .attrs = {{"T", "type"}, {"component_index", "int"}},
                .traits = traits,
                .shape = insert_shape});
  registry.kernel({.op = "BarrierInsertMany", .factory = InsertMany::make});
  registry.add({.name = "BarrierTakeMany",
                .doc = "Takes complete elements, those whose keys came first; waits for them.",
                .inputs = {{"handle", "ref(string)"}, {"num_elements", "host(int32)"}},
                .outputs = {{"indices", "int64", "In which insertion each key first came."},
                            {"keys", "string"},
                            {"values", "list(component_types)"}},
                .attrs = {{"component_types", "list(type) >= 1"},
                          {"allow_small_batch", "bool = false",
                           "Whether a closed barrier gives fewer elements if it has no more."},
                          {"wait_for_incomplete", "bool = false", "Makes no difference."},
                          {"timeout_ms", "int = -1", "Not supported."}},
                .traits = traits,
                .shape = take_shape});
  registry.kernel({.op = "BarrierTakeMany", .factory = TakeMany::make});
  registry.add({.name = "BarrierClose",
                .doc = "Lets no new key into a barrier.",
                .inputs = {{"handle", "ref(string)"}},
                .attrs = {{"cancel_pending_enqueues", "bool = false",
                           "Elements that are not complete are dropped."}},
                .traits = traits,
                .shape = shape_rules::no_outputs});
  registry.kernel({.op = "BarrierClose", .factory = CloseBarrier::make});
  registry.add({.name = "BarrierReadySize",
                .doc = "The number of complete elements in a barrier.",
                .inputs = {{"handle", "ref(string)"}},
                .outputs = {{"size", "host(int32)"}},
                .traits = traits,
                .shape = shape_rules::scalar});
  registry.kernel("BarrierReadySize", DeviceKind::kCpu, size_cpu<&Barrier::ready_size>);
  registry.add({.name = "BarrierIncompleteSize",
                .doc = "The number of elements in a barrier that lack a component.",
                .inputs = {{"handle", "ref(string)"}},
                .outputs = {{"size", "host(int32)"}},
                .traits = traits,
                .shape = shape_rules::scalar});
  registry.kernel("BarrierIncompleteSize", DeviceKind::kCpu, size_cpu<&Barrier::incomplete_size>);
}

}  // namespace millrace
