#include "millrace/data/parallel_map.h"

#include <algorithm>
#include <deque>

#include "millrace/base/clock.h"
#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/data/batch.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/outcome.h"
#include "millrace/data/prefetch.h"

namespace millrace::data {
namespace {

// A call that takes less is made where it is asked for: to hand it over would take longer.
constexpr int64_t kShortCallNs = 5000;
// More calls at once than this help nobody.
constexpr int64_t kMostCalls = 4096;

class ParallelMapDataset final : public Dataset {
 public:
  ParallelMapDataset(ElementSpec spec, Ref<Dataset> input, Closure closure,
                     ParallelMapOptions options)
      : Dataset("ParallelMap", std::move(spec), {std::move(input)}, true),
        closure_(std::move(closure)),
        options_(options) {}
  int64_t size() const override { return options_.same_size ? inputs()[0]->size() : kUnknownSize; }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  const Closure closure_;
  const ParallelMapOptions options_;
};

// What calls and the thread that asks share; calls hold references.
class Calls final : public RefCounted {
 public:
  struct Call : RefCounted {
    Outcome outcome;
    bool done = false;
  };

  Calls(Ref<Environment> environment, Function function)
      : environment_(std::move(environment)), function_(std::move(function)) {}
  void stop() { environment_->stop(); }

  // Calls the function here.
  Status call(Element args, Element& out) {
    const int64_t begin = monotonic_nanos();
    Status status = function_.call(std::move(args), out);
    MutexLock lock(mu_);
    measure(monotonic_nanos() - begin);
    return status;
  }
  // Calls it on another thread.
  Ref<Call> start(Element args) {
    Ref<Call> call = make_ref<Call>();
    ThreadPool::global().schedule(
        [self = Ref<Calls>(this), call, args = std::move(args)]() mutable {
          const int64_t begin = monotonic_nanos();
          Calls& calls = *self;
          calls.function_.start(std::move(args), [self = std::move(self), call = std::move(call),
                                                  begin](Result<std::vector<Tensor>> made) {
            MutexLock lock(self->mu_);
            self->measure(monotonic_nanos() - begin);
            call->outcome.status = made.status();
            if (made.ok()) call->outcome.element = std::move(*made);
            self->largest_ = std::max(self->largest_, call->outcome.bytes());
            call->done = true;
            self->changed_.notify_all();
          });
        });
    return call;
  }

  // Waits for one of `line`, the first or whichever ends, and takes it out; null when all is to
  // end. Sets `waited` when none was there.
  Ref<Call> take(std::deque<Ref<Call>>& line, bool ordered, bool& waited) {
    MutexLock lock(mu_);
    for (waited = false;; waited = true) {
      for (auto call = line.begin(); call != line.end(); ++call) {
        if ((*call)->done) {
          Ref<Call> taken = std::move(*call);
          line.erase(call);
          return taken;
        }
        if (ordered) break;
      }
      if (environment_->stopped()) return nullptr;
      changed_.wait(mu_);
    }
  }
  // Waits until all have ended.
  Status wait_all(const std::deque<Ref<Call>>& line) {
    MutexLock lock(mu_);
    for (const Ref<Call>& call : line) {
      while (!call->done && !environment_->stopped()) changed_.wait(mu_);
      if (!call->done) return environment_->status();
    }
    return ok_status();
  }
  // Whether the results of `count` calls may be kept, each as large as the largest so far. Before
  // one is known, one call shows.
  bool has_room(int64_t count) {
    const int64_t budget = environment_->memory_budget;
    if (budget <= 0 || count == 0) return true;
    MutexLock lock(mu_);
    return measured_ && (largest_ == 0 || count < budget / largest_);
  }
  bool calls_are_short() {
    MutexLock lock(mu_);
    return measured_ && mean_ns_ < kShortCallNs;
  }
  Status status() const { return environment_->status(); }
  const Function& function() const { return function_; }

 private:
  void measure(int64_t ns) MR_REQUIRES(mu_) {
    mean_ns_ = measured_ ? mean_ns_ + (ns - mean_ns_) / 8 : ns;
    measured_ = true;
  }

  const Ref<Environment> environment_;
  const Function function_;
  Mutex mu_;
  CondVar changed_;
  int64_t mean_ns_ MR_GUARDED_BY(mu_) = 0;
  bool measured_ MR_GUARDED_BY(mu_) = false;
  int64_t largest_ MR_GUARDED_BY(mu_) = 0;  // bytes of a result
  const WakeOnStop wake_{*environment_, mu_, changed_};
};

class ParallelMapIterator final : public IteratorOverInput<ParallelMapDataset> {
 public:
  ParallelMapIterator(const ParallelMapDataset& dataset, const Iteration& iteration,
                      std::unique_ptr<Iterator> input, Ref<Calls> calls)
      : IteratorOverInput(dataset, iteration, std::move(input)),
        autotune_(dataset.options_.parallelism == kAutotune),
        threads_(ThreadPool::global().size()),
        limit_(autotune_ ? threads_ : std::min(dataset.options_.parallelism, kMostCalls)),
        ordered_(dataset.options_.ordered.value_or(!iteration.environment->any_order)),
        calls_(std::move(calls)) {}
  ~ParallelMapIterator() override { calls_->stop(); }

 protected:
  Status own_fields(StateFields& state) override {
    if (!state.reading()) MR_TRY(calls_->wait_all(line_));
    MR_TRY(state.flag(ended_));
    MR_TRY(state.list(line_, INT64_MAX, [&](Ref<Calls::Call>& call) {
      if (!call) call = make_ref<Calls::Call>();
      call->done = true;
      return call->outcome.fields(state);
    }));
    return calls_->function().fields(state);
  }
  Status produce(Element& out, bool& end) override {
    if (line_.empty() && !ended_ && calls_->calls_are_short()) {
      Element args;
      MR_TRY(input().next(args, ended_));
      end = ended_;
      return end ? ok_status() : said(calls_->call(std::move(args), out), end);
    }
    const bool shorts = calls_->calls_are_short();
    while (!ended_ && (line_.empty() || !shorts) && static_cast<int64_t>(line_.size()) < limit_ &&
           calls_->has_room(static_cast<int64_t>(line_.size()))) {
      Element args;
      Status status = input().next(args, ended_);
      if (ended_ && status.ok()) break;
      if (status.ok()) {
        line_.push_back(calls_->start(std::move(args)));
      } else {
        // An error has its place among the elements.
        ended_ = false;
        line_.push_back(make_ref<Calls::Call>());
        line_.back()->outcome.status = std::move(status);
        line_.back()->done = true;
        break;
      }
    }
    end = line_.empty();
    if (end) return ok_status();
    if (stage() != nullptr) stage()->add_fill(static_cast<int64_t>(line_.size()), limit_);
    bool waited = false;
    Ref<Calls::Call> call = calls_->take(line_, ordered_, waited);
    if (!call) return calls_->status();
    // Who had to wait with all processors taken waits for calls that wait themselves.
    if (waited && autotune_) limit_ = std::min<int64_t>(limit_ + 1, threads_ * int64_t{4});
    return said(call->outcome.give(out, end), end);
  }

 private:
  // The end, where the function said so.
  Status said(Status status, bool& end) {
    status = said_by_function(std::move(status), dataset().options_.same_size);
    if (status.code() != Code::kOutOfRange) return status;
    ended_ = end = true;
    line_.clear();
    return ok_status();
  }

  const bool autotune_;
  const int threads_;
  int64_t limit_;
  const bool ordered_;
  const Ref<Calls> calls_;
  std::deque<Ref<Calls::Call>> line_;
  bool ended_ = false;  // the input
};

Result<std::unique_ptr<Iterator>> ParallelMapDataset::iterate(const Iteration& iteration) const {
  Ref<Environment> own = Environment::make_child(*iteration.environment);
  MR_TRY_ASSIGN(Function function, Function::make(closure_, own));
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, inputs()[0]->iterate(iteration));
  return std::make_unique<ParallelMapIterator>(
      *this, iteration, std::move(input), make_ref<Calls>(std::move(own), std::move(function)));
}

Result<int64_t> parallelism_input(const KernelContext& ctx, int i) {
  MR_TRY_ASSIGN(const int64_t value, ctx.int_scalar_input(i));
  if (value >= 1 || value == kAutotune) return value;
  return invalid_argument("num_parallel_calls must be greater than zero, or -1, got ", value);
}

// `kText`: the attribute is "deterministic", a text, and not "sloppy".
template <bool kText>
Result<Ref<Dataset>> make_parallel_map(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
  const int last = ctx.num_inputs() - 1;
  MR_TRY_ASSIGN(Closure closure, closure_of(ctx, "f", 1, last - 1));
  ParallelMapOptions options;
  MR_TRY_ASSIGN(options.parallelism, parallelism_input(ctx, last));
  MR_TRY_ASSIGN(options.same_size, ctx.node().attr<bool>("preserve_cardinality"));
  if constexpr (kText) {
    MR_TRY_ASSIGN(const std::string text, ctx.node().attr<std::string>("deterministic"));
    if (text != "default") options.ordered = text != "false";
  } else {
    MR_TRY_ASSIGN(const bool sloppy, ctx.node().attr<bool>("sloppy"));
    if (sloppy) options.ordered = false;
  }
  return make_parallel_map_dataset(std::move(spec), std::move(input), std::move(closure), options);
}

// What elements of a batch are.
ElementSpec rows_of(const ElementSpec& batches) {
  ElementSpec rows = {batches.types, {}};
  for (const PartialShape& shape : batches.shapes) {
    PartialShape row;
    if (shape.rank() >= 1) {
      row = PartialShape::scalar();
      for (int d = 1; d < shape.rank(); ++d) row.add_dim(shape.dim(d));
    }
    rows.shapes.push_back(std::move(row));
  }
  return rows;
}

Result<Ref<Dataset>> make_map_and_batch(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
  const int after = ctx.num_inputs() - 3;
  MR_TRY_ASSIGN(Closure closure, closure_of(ctx, "f", 1, after - 1));
  MR_TRY_ASSIGN(const int64_t size, count_input(ctx, after, "batch_size", 1));
  ParallelMapOptions options;
  MR_TRY_ASSIGN(options.parallelism, parallelism_input(ctx, after + 1));
  MR_TRY_ASSIGN(options.same_size, ctx.node().attr<bool>("preserve_cardinality"));
  MR_TRY_ASSIGN(const bool drop, ctx.scalar_input<bool>(after + 2));
  Ref<Dataset> mapped =
      make_parallel_map_dataset(rows_of(spec), std::move(input), std::move(closure), options);
  return make_batch_dataset(std::move(spec), std::move(mapped), size, drop);
}

}  // namespace

Ref<Dataset> make_parallel_map_dataset(ElementSpec spec, Ref<Dataset> input, Closure closure,
                                       ParallelMapOptions options) {
  return make_ref<ParallelMapDataset>(std::move(spec), std::move(input), std::move(closure),
                                      options);
}

void register_parallel_map(Registry& registry) {
  const OpSpec::Arg input = {"input_dataset", "variant"};
  const OpSpec::Arg captured = {"other_arguments", "list(Targuments)"};
  const std::vector<OpSpec::Attr> attrs = {
      {"f", "func"}, {"Targuments", "list(type) >= 0"}, {"preserve_cardinality", "bool = false"}};
  const auto with = [&](std::vector<OpSpec::Attr> more) {
    more.insert(more.begin(), attrs.begin(), attrs.end());
    return SpecList<OpSpec::Attr>(more);
  };
  add_dataset_op(registry,
                 {.name = "ParallelMapDataset",
                  .doc = "f of every element, several at once.",
                  .inputs = {input, captured, {"num_parallel_calls", "int32"}},
                  .attrs = with({{"use_inter_op_parallelism", "bool = true"},
                                 {"sloppy", "bool = false", "In the order in which calls end."}})},
                 dataset_kernel<make_parallel_map<false>>);
  add_dataset_op(
      registry,
      {.name = "ParallelMapDatasetV2",
       .doc = "f of every element, several at once.",
       .inputs = {input, captured, {"num_parallel_calls", "int64", "-1: as fit the processors."}},
       .attrs = with(
           {{"use_inter_op_parallelism", "bool = true"},
            {"deterministic", "string = 'default'", "'false': in the order in which calls end."}})},
      dataset_kernel<make_parallel_map<true>>);
  for (const char* name : {"MapAndBatchDataset", "ExperimentalMapAndBatchDataset"}) {
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "Batches of f of every element, several at once.",
                    .inputs = {input,
                               captured,
                               {"batch_size", "int64"},
                               {"num_parallel_calls", "int64"},
                               {"drop_remainder", "bool"}},
                    .attrs = with({})},
                   dataset_kernel<make_map_and_batch>);
  }
}

}  // namespace millrace::data
