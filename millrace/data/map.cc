// Functions over elements, one after the other on the thread that asks.

#include "millrace/data/dataset_op.h"
#include "millrace/data/function.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// What a stage does with an element and a function.
enum class Use : uint8_t { kMap, kFilter, kTakeWhile };

// f(element), or the elements for which a predicate holds, or those before the first for which it
// does not.
template <Use kUse>
class FunctionDataset final : public Dataset {
 public:
  static constexpr std::string_view kName = kUse == Use::kMap      ? "Map"
                                            : kUse == Use::kFilter ? "Filter"
                                                                   : "TakeWhile";
  // `same_size`: no function ends the dataset before its input.
  FunctionDataset(ElementSpec spec, Ref<Dataset> input, Closure closure, bool same_size)
      : Dataset(kName, std::move(spec), {std::move(input)}, true),
        closure_(std::move(closure)),
        same_size_(same_size) {}
  int64_t size() const override { return same_size_ ? inputs()[0]->size() : kUnknownSize; }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(const int captured, type_count(ctx.node(), "Targuments"));
    MR_TRY_ASSIGN(Closure closure,
                  closure_of(ctx, kUse == Use::kMap ? "f" : "predicate", 1, captured));
    bool same_size = false;
    if constexpr (kUse == Use::kMap) {
      MR_TRY_ASSIGN(same_size, ctx.node().attr<bool>("preserve_cardinality"));
    }
    return make_ref<FunctionDataset>(std::move(spec), std::move(input), std::move(closure),
                                     same_size);
  }

  const Closure closure_;
  const bool same_size_;
};

template <Use kUse>
class FunctionIterator final : public IteratorOverInput<FunctionDataset<kUse>> {
 public:
  using Base = IteratorOverInput<FunctionDataset<kUse>>;
  FunctionIterator(const FunctionDataset<kUse>& dataset, const Iteration& iteration,
                   std::unique_ptr<Iterator> input, Function function)
      : Base(dataset, iteration, std::move(input)), function_(std::move(function)) {}

 protected:
  Status own_fields(StateFields& state) override {
    MR_TRY(state.flag(ended_));
    return function_.fields(state);
  }
  Status produce(Element& out, bool& end) override {
    for (;;) {
      if (this->environment().stopped()) return this->environment().status();
      end = ended_;
      if (end) return ok_status();
      if constexpr (kUse == Use::kMap) {
        Element args;
        MR_TRY(this->input().next(args, end));
        if (end) return ok_status();
        Status status =
            said_by_function(function_.call(std::move(args), out), this->dataset().same_size_);
        // How a function says that there is no more.
        ended_ = end = status.code() == Code::kOutOfRange;
        return end ? ok_status() : status;
      } else {
        MR_TRY(this->input().next(out, end));
        if (end) return ok_status();
        MR_TRY_ASSIGN(const bool holds, function_.ask(out, "predicate"));
        if (holds) return ok_status();
        ended_ = kUse == Use::kTakeWhile;
      }
    }
  }

 private:
  const Function function_;
  bool ended_ = false;
};

template <Use kUse>
Result<std::unique_ptr<Iterator>> FunctionDataset<kUse>::iterate(const Iteration& iteration) const {
  MR_TRY_ASSIGN(Function function, Function::make(closure_, iteration.environment));
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, inputs()[0]->iterate(iteration));
  return std::make_unique<FunctionIterator<kUse>>(*this, iteration, std::move(input),
                                                  std::move(function));
}

// f(state, element) gives the next state and an element.
class ScanDataset final : public Dataset {
 public:
  ScanDataset(ElementSpec spec, Ref<Dataset> input, Element initial, Closure closure,
              bool same_size)
      : Dataset("Scan", std::move(spec), {std::move(input)}, true),
        initial_(std::move(initial)),
        closure_(std::move(closure)),
        same_size_(same_size) {}
  int64_t size() const override { return same_size_ ? inputs()[0]->size() : kUnknownSize; }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(const int states, type_count(ctx.node(), "Tstate"));
    MR_TRY_ASSIGN(Element initial, kept_inputs(ctx, 1, states));
    MR_TRY_ASSIGN(Closure closure, closure_of(ctx, "f", 1 + states, ctx.num_inputs() - 1 - states));
    MR_TRY_ASSIGN(const bool same_size, ctx.node().attr<bool>("preserve_cardinality"));
    return make_ref<ScanDataset>(std::move(spec), std::move(input), std::move(initial),
                                 std::move(closure), same_size);
  }

  const Element initial_;
  const Closure closure_;
  const bool same_size_;
};

class ScanIterator final : public IteratorOverInput<ScanDataset> {
 public:
  ScanIterator(const ScanDataset& dataset, const Iteration& iteration,
               std::unique_ptr<Iterator> input, Function function)
      : IteratorOverInput(dataset, iteration, std::move(input)),
        function_(std::move(function)),
        state_(dataset.initial_) {}

 protected:
  Status own_fields(StateFields& state) override {
    MR_TRY(state.flag(ended_));
    MR_TRY(state.element(state_));
    return function_.fields(state);
  }
  Status produce(Element& out, bool& end) override {
    end = ended_;
    if (end) return ok_status();
    MR_TRY(input().next(element_, end));
    if (end) return ok_status();
    Element args = state_;
    args.insert(args.end(), element_.begin(), element_.end());
    Element results;
    Status status =
        said_by_function(function_.call(std::move(args), results), dataset().same_size_);
    ended_ = end = status.code() == Code::kOutOfRange;
    if (end || !status.ok()) return end ? ok_status() : status;
    if (results.size() < state_.size()) {
      return invalid_argument("the function of a scan must give ", state_.size(),
                              " tensors of state and an element, got ", results.size());
    }
    const auto split = results.begin() + static_cast<ptrdiff_t>(state_.size());
    std::move(results.begin(), split, state_.begin());
    out.assign(std::make_move_iterator(split), std::make_move_iterator(results.end()));
    return ok_status();
  }

 private:
  const Function function_;
  Element state_;
  Element element_;
  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> ScanDataset::iterate(const Iteration& iteration) const {
  MR_TRY_ASSIGN(Function function, Function::make(closure_, iteration.environment));
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, inputs()[0]->iterate(iteration));
  return std::make_unique<ScanIterator>(*this, iteration, std::move(input), std::move(function));
}

}  // namespace

void register_map(Registry& registry) {
  const SpecList<OpSpec::Arg> inputs = {{"input_dataset", "variant"},
                                        {"other_arguments", "list(Targuments)"}};
  const OpSpec::Attr captured = {"Targuments", "list(type) >= 0"};
  add_dataset_op(registry,
                 {.name = "MapDataset",
                  .doc = "f of every element.",
                  .inputs = inputs,
                  .attrs = {{"f", "func"},
                            captured,
                            {"use_inter_op_parallelism", "bool = true"},
                            {"preserve_cardinality", "bool = false"}}},
                 dataset_kernel<FunctionDataset<Use::kMap>::make>);
  add_dataset_op(registry,
                 {.name = "FilterDataset",
                  .doc = "The elements for which a predicate holds.",
                  .inputs = inputs,
                  .attrs = {{"predicate", "func"}, captured}},
                 dataset_kernel<FunctionDataset<Use::kFilter>::make>);
  add_dataset_op(
      registry,
      {.name = "ParallelFilterDataset",
       .doc = "The elements for which a predicate holds.",
       .inputs = {{"input_dataset", "variant"},
                  {"other_arguments", "list(Targuments)"},
                  {"num_parallel_calls", "int64", "Not used: one after the other."}},
       .attrs = {{"predicate", "func"}, {"deterministic", "string = 'default'"}, captured}},
      dataset_kernel<FunctionDataset<Use::kFilter>::make>);
  for (const char* name : {"TakeWhileDataset", "ExperimentalTakeWhileDataset"}) {
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "The elements before the first for which a predicate does not hold.",
                    .inputs = inputs,
                    .attrs = {{"predicate", "func"}, captured}},
                   dataset_kernel<FunctionDataset<Use::kTakeWhile>::make>);
  }
  for (const char* name : {"ExperimentalScanDataset", "ScanDataset"}) {
    std::vector<OpSpec::Attr> attrs = {{"f", "func"},
                                       {"Tstate", "list(type) >= 1"},
                                       captured,
                                       {"preserve_cardinality", "bool = false"}};
    if (name[0] == 'S') attrs.push_back({"use_default_device", "bool = true"});
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "Elements that f makes of those of a dataset and a state it hands on.",
                    .inputs = {{"input_dataset", "variant"},
                               {"initial_state", "list(Tstate)"},
                               {"other_arguments", "list(Targuments)"}},
                    .attrs = attrs},
                   dataset_kernel<ScanDataset::make>);
  }
}

}  // namespace millrace::data
