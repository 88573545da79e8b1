// Elements gathered by a key, and reduced to one for each.

#include <map>

#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// The functions of a reducer, closures or ready to be called.
template <class F>
struct Reducer {
  F key, init, reduce, finalize;
};

class GroupByReducerDataset final : public Dataset {
 public:
  GroupByReducerDataset(ElementSpec spec, Ref<Dataset> input, Reducer<Closure> functions)
      : Dataset("GroupByReducer", std::move(spec), {std::move(input)}, true),
        functions_(std::move(functions)) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(std::vector<Closure> functions,
                  closures_of(ctx, 1, {"key_func", "init_func", "reduce_func", "finalize_func"},
                              "_other_arguments"));
    return make_ref<GroupByReducerDataset>(
        std::move(spec), std::move(input),
        Reducer<Closure>{std::move(functions[0]), std::move(functions[1]), std::move(functions[2]),
                         std::move(functions[3])});
  }

  const Reducer<Closure> functions_;
};

class GroupByReducerIterator final : public IteratorOverInput<GroupByReducerDataset> {
 public:
  GroupByReducerIterator(const GroupByReducerDataset& dataset, const Iteration& iteration,
                         std::unique_ptr<Iterator> input, Reducer<Function> functions)
      : IteratorOverInput(dataset, iteration, std::move(input)), functions_(std::move(functions)) {}

 protected:
  Status own_fields(StateFields& state) override {
    MR_TRY(state.flag(ended_));
    std::vector<std::pair<int64_t, Element>> groups(groups_.begin(), groups_.end());
    MR_TRY(state.list(groups, INT64_MAX, [&](std::pair<int64_t, Element>& group) -> Status {
      MR_TRY(state.number(group.first, INT64_MIN));
      return state.element(group.second);
    }));
    if (state.reading()) groups_ = {groups.begin(), groups.end()};
    for (const Function* function :
         {&functions_.key, &functions_.init, &functions_.reduce, &functions_.finalize}) {
      MR_TRY(function->fields(state));
    }
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    while (!ended_) {
      if (environment().stopped()) return environment().status();
      Element element;
      MR_TRY(input().next(element, ended_));
      if (!ended_) MR_TRY(add(std::move(element)));
    }
    end = groups_.empty();
    if (end) return ok_status();
    auto group = groups_.extract(groups_.begin());
    return functions_.finalize.call(std::move(group.mapped()), out);
  }

 private:
  Status add(Element element) {
    MR_TRY_ASSIGN(const int64_t key, functions_.key.number(element, "key_func"));
    auto at = groups_.find(key);
    if (at == groups_.end()) {
      Element initial;
      MR_TRY(functions_.init.call({Tensor::scalar(key)}, initial));
      at = groups_.emplace(key, std::move(initial)).first;
    }
    Element args = at->second;
    args.insert(args.end(), element.begin(), element.end());
    Element reduced;
    MR_TRY(functions_.reduce.call(std::move(args), reduced));
    at->second = std::move(reduced);
    return ok_status();
  }

  const Reducer<Function> functions_;
  std::map<int64_t, Element> groups_;  // what each came to
  bool ended_ = false;                 // the input
};

Result<std::unique_ptr<Iterator>> GroupByReducerDataset::iterate(const Iteration& iteration) const {
  const Ref<Environment>& environment = iteration.environment;
  MR_TRY_ASSIGN(Function key, Function::make(functions_.key, environment));
  MR_TRY_ASSIGN(Function init, Function::make(functions_.init, environment));
  MR_TRY_ASSIGN(Function reduce, Function::make(functions_.reduce, environment));
  MR_TRY_ASSIGN(Function finalize, Function::make(functions_.finalize, environment));
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, inputs()[0]->iterate(iteration));
  return std::make_unique<GroupByReducerIterator>(
      *this, iteration, std::move(input),
      Reducer<Function>{std::move(key), std::move(init), std::move(reduce), std::move(finalize)});
}

}  // namespace

void register_group_by_reducer(Registry& registry) {
  for (const char* name : {"GroupByReducerDataset", "ExperimentalGroupByReducerDataset"}) {
    add_dataset_op(
        registry,
        {.name = std::string_view(name),
         .doc = "What a reducer makes of all elements of one key, in the order of keys.",
         .inputs = {{"input_dataset", "variant"},
                    {"key_func_other_arguments", "list(Tkey_func_other_arguments)"},
                    {"init_func_other_arguments", "list(Tinit_func_other_arguments)"},
                    {"reduce_func_other_arguments", "list(Treduce_func_other_arguments)"},
                    {"finalize_func_other_arguments", "list(Tfinalize_func_other_arguments)"}},
         .attrs = {{"key_func", "func", "From an element to an int64."},
                   {"init_func", "func", "From a key to the first state."},
                   {"reduce_func", "func", "From a state and an element to the next state."},
                   {"finalize_func", "func", "From the last state to an element."},
                   {"Tkey_func_other_arguments", "list(type) >= 0"},
                   {"Tinit_func_other_arguments", "list(type) >= 0"},
                   {"Treduce_func_other_arguments", "list(type) >= 0"},
                   {"Tfinalize_func_other_arguments", "list(type) >= 0"}},
         .traits = {.stateful = true}},
        dataset_kernel<GroupByReducerDataset::make>);
  }
}

}  // namespace millrace::data
