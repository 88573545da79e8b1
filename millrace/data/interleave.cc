// Datasets that a function makes of elements: flat_map and interleave.

#include <algorithm>

#include "millrace/base/thread_pool.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/nested.h"
#include "millrace/data/prefetch.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

struct InterleaveOptions {
  std::string_view name = "Interleave";
  int64_t cycle_length = 1;
  int64_t block_length = 1;
  AheadOptions ahead = {.elements = 0};  // of each of the nested datasets
};

// Turns through `cycle_length` nested datasets, `block_length` elements of each at a time. One that
// has ended is followed, in its place, by that of the next element.
class InterleaveDataset final : public Dataset {
 public:
  InterleaveDataset(ElementSpec spec, Ref<Dataset> input, Closure closure,
                    InterleaveOptions options)
      : Dataset(options.name, std::move(spec), {std::move(input)}, true),
        closure_(std::move(closure)),
        options_(options) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  const Closure closure_;
  const InterleaveOptions options_;
};

class InterleaveIterator final : public IteratorOverInput<InterleaveDataset> {
 public:
  InterleaveIterator(const InterleaveDataset& dataset, const Iteration& iteration,
                     std::unique_ptr<Iterator> input, Function function)
      : IteratorOverInput(dataset, iteration, std::move(input)), function_(std::move(function)) {}

 protected:
  Status own_fields(StateFields& state) override {
    const InterleaveOptions& options = dataset().options_;
    MR_TRY(state.flag(ended_));
    MR_TRY(state.number(place_, 0, options.cycle_length - 1));
    MR_TRY(state.number(block_, 0, options.block_length - 1));
    MR_TRY(state.list(open_, options.cycle_length, [&](Nested& nested) {
      return nested.fields(state, function_, environment(), options.ahead);
    }));
    // Places are filled one after the other.
    if (place_ > static_cast<int64_t>(open_.size())) {
      return data_loss("the state is at place ", place_, " of ", open_.size());
    }
    return function_.fields(state);  // after the calls that opened them
  }
  Status produce(Element& out, bool& end) override {
    for (;;) {
      if (environment().stopped()) return environment().status();
      const auto place = static_cast<size_t>(place_);
      if (place < open_.size() && open_[place].is_open()) {
        bool nested_end = false;
        MR_TRY(open_[place].next(out, nested_end));
        if (!nested_end) {
          if (++block_ == dataset().options_.block_length) advance();
          return ok_status();
        }
        open_[place].close();
        advance();
      } else if (!ended_) {
        Element args;
        MR_TRY(input().next(args, ended_));
        if (ended_) continue;
        // Places are filled one after the other.
        if (place >= open_.size()) open_.resize(place + 1);
        MR_TRY(
            open_[place].open(std::move(args), function_, environment(), dataset().options_.ahead));
      } else {
        end = std::none_of(open_.begin(), open_.end(),
                           [](const Nested& nested) { return nested.is_open(); });
        if (end) return ok_status();
        advance();
      }
    }
  }

 private:
  void advance() {
    block_ = 0;
    // Once the input has ended no place past those in use will be filled.
    const int64_t places =
        ended_ ? static_cast<int64_t>(open_.size()) : dataset().options_.cycle_length;
    place_ = place_ + 1 >= places ? 0 : place_ + 1;
  }

  const Function function_;
  std::vector<Nested> open_;  // by place; grows up to the length of the cycle
  int64_t place_ = 0, block_ = 0;
  bool ended_ = false;  // the input
};

Result<std::unique_ptr<Iterator>> InterleaveDataset::iterate(const Iteration& iteration) const {
  MR_TRY_ASSIGN(Function function, Function::make(closure_, iteration.environment));
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, inputs()[0]->iterate(iteration));
  return std::make_unique<InterleaveIterator>(*this, iteration, std::move(input),
                                              std::move(function));
}

// `kNumbers` inputs follow what the function captured, cycle and block length first.
template <int kNumbers>
Result<Ref<Dataset>> make_interleave(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
  MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
  const int after = ctx.num_inputs() - kNumbers;
  MR_TRY_ASSIGN(Closure closure, closure_of(ctx, "f", 1, after - 1));
  InterleaveOptions options;
  if constexpr (kNumbers == 0) options.name = "FlatMap";
  if constexpr (kNumbers >= 2) {
    MR_TRY_ASSIGN(options.cycle_length, ctx.int_scalar_input(after));
    MR_TRY_ASSIGN(options.block_length, count_input(ctx, after + 1, "block_length", 1));
    if (options.cycle_length == kAutotune) options.cycle_length = ThreadPool::global().size();
    if (options.cycle_length < 1) {
      return invalid_argument("cycle_length must be greater than zero, got ", options.cycle_length);
    }
  }
  if constexpr (kNumbers > 2) {
    options.name = "ParallelInterleave";
    options.ahead = {.elements = std::min<int64_t>(options.block_length + 1, kMostAhead),
                     .shared_by = options.cycle_length};
    // Each has a thread.
    constexpr int64_t kMostThreads = 1024;
    if (options.cycle_length > kMostThreads) {
      return invalid_argument("cycle_length of a parallel interleave must be at most ",
                              kMostThreads, ", got ", options.cycle_length);
    }
  }
  return make_ref<InterleaveDataset>(std::move(spec), std::move(input), std::move(closure),
                                     options);
}

}  // namespace

void register_interleave(Registry& registry) {
  struct Form {
    const char* name;
    std::vector<OpSpec::Arg> numbers;
    const char* order;  // the attribute about order
    KernelFunction kernel;
  };
  const OpSpec::Arg cycle = {"cycle_length", "int64", "How many at a time."};
  const OpSpec::Arg block = {"block_length", "int64", "How many elements of each in its turn."};
  const OpSpec::Arg sloppy = {"sloppy", "bool", "Not used: elements come in order."};
  const OpSpec::Arg buffer = {"buffer_output_elements", "int64", "Not used."};
  const OpSpec::Arg prefetch = {"prefetch_input_elements", "int64", "Not used."};
  const OpSpec::Arg calls = {"num_parallel_calls", "int64", "Not used: all of a cycle."};
  const Form forms[] = {
      {"FlatMapDataset", {}, "", dataset_kernel<make_interleave<0>>},
      {"InterleaveDataset", {cycle, block}, "", dataset_kernel<make_interleave<2>>},
      {"ParallelInterleaveDataset",
       {cycle, block, sloppy, buffer, prefetch},
       "",
       dataset_kernel<make_interleave<5>>},
      {"ExperimentalParallelInterleaveDataset",
       {cycle, block, sloppy, buffer, prefetch},
       "",
       dataset_kernel<make_interleave<5>>},
      {"LegacyParallelInterleaveDatasetV2",
       {cycle, block, buffer, prefetch},
       "deterministic",
       dataset_kernel<make_interleave<4>>},
      {"ParallelInterleaveDatasetV2",
       {cycle, block, calls},
       "sloppy",
       dataset_kernel<make_interleave<3>>},
      {"ParallelInterleaveDatasetV3",
       {cycle, block, calls},
       "deterministic",
       dataset_kernel<make_interleave<3>>},
      {"ParallelInterleaveDatasetV4",
       {cycle, block, buffer, prefetch, calls},
       "deterministic",
       dataset_kernel<make_interleave<5>>},
  };
  for (const Form& form : forms) {
    OpSpec spec = {
        .name = std::string_view(form.name),
        .doc = "The elements of the datasets that f makes of elements, in turns.",
        .inputs = {{"input_dataset", "variant"}, {"other_arguments", "list(Targuments)"}},
        .attrs = {{"f", "func", "Gives a dataset."}, {"Targuments", "list(type) >= 0"}}};
    for (const OpSpec::Arg& number : form.numbers) spec.inputs.push_back(number);
    if (std::string_view(form.order) == "sloppy") spec.attrs.push_back({"sloppy", "bool = false"});
    if (std::string_view(form.order) == "deterministic") {
      spec.attrs.push_back({"deterministic", "string = 'default'"});
    }
    add_dataset_op(registry, spec, form.kernel);
  }
}

}  // namespace millrace::data
