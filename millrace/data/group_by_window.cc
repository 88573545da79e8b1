// Elements gathered by a key, and what a function makes of each group that is full.

#include <map>

#include "millrace/data/dataset_op.h"
#include "millrace/data/elements_dataset.h"

namespace millrace::data {
namespace {

class GroupByWindowDataset final : public Dataset {
 public:
  GroupByWindowDataset(ElementSpec spec, Ref<Dataset> input, Closure key, Closure reduce,
                       Closure size)
      : Dataset("GroupByWindow", std::move(spec), {std::move(input)}, true),
        key_(std::move(key)),
        reduce_(std::move(reduce)),
        size_(std::move(size)) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(
        std::vector<Closure> functions,
        closures_of(ctx, 1, {"key_func", "reduce_func", "window_size_func"}, "_other_arguments"));
    return make_ref<GroupByWindowDataset>(std::move(spec), std::move(input),
                                          std::move(functions[0]), std::move(functions[1]),
                                          std::move(functions[2]));
  }

  const Closure key_, reduce_, size_;
};

class GroupByWindowIterator final : public IteratorOverInput<GroupByWindowDataset> {
 public:
  GroupByWindowIterator(const GroupByWindowDataset& dataset, const Iteration& iteration,
                        std::unique_ptr<Iterator> input, Function key, Function reduce,
                        Function size)
      : IteratorOverInput(dataset, iteration, std::move(input)),
        key_(std::move(key)),
        reduce_(std::move(reduce)),
        size_(std::move(size)) {}

 protected:
  Status own_fields(StateFields& state) override {
    MR_TRY(state.flag(ended_));
    std::vector<std::pair<int64_t, Group>> groups(groups_.begin(), groups_.end());
    MR_TRY(state.list(groups, INT64_MAX, [&](std::pair<int64_t, Group>& group) -> Status {
      MR_TRY(state.number(group.first, INT64_MIN));
      MR_TRY(state.number(group.second.size, 1));
      return state.elements(group.second.elements);
    }));
    if (state.reading()) groups_ = {groups.begin(), groups.end()};
    bool open = nested_ != nullptr;
    MR_TRY(state.flag(open));
    if (state.reading()) nested_ = nullptr;
    if (open) {
      MR_TRY(state.number(open_key_, INT64_MIN));
      std::vector<Element> elements = open_elements_;
      MR_TRY(state.elements(elements));
      if (state.reading()) MR_TRY(reduce(open_key_, std::move(elements)));
      MR_TRY(state.iterator(*nested_));
    }
    // After the call that opened it.
    for (const Function* function : {&key_, &reduce_, &size_}) MR_TRY(function->fields(state));
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    for (;;) {
      if (environment().stopped()) return environment().status();
      if (nested_ != nullptr) {
        bool nested_end = false;
        MR_TRY(nested_->next(out, nested_end));
        if (!nested_end) return ok_status();
        nested_ = nullptr;
        open_elements_.clear();
      }
      if (ended_) {
        end = groups_.empty();
        if (end) return ok_status();
        auto group = groups_.extract(groups_.begin());
        MR_TRY(reduce(group.key(), std::move(group.mapped().elements)));
      } else {
        MR_TRY(gather());
      }
    }
  }

 private:
  struct Group {
    int64_t size = 0;  // when it is full
    std::vector<Element> elements;
  };

  // Puts the next element into its group; a group that is full then is opened.
  Status gather() {
    Element element;
    MR_TRY(input().next(element, ended_));
    if (ended_) return ok_status();
    MR_TRY_ASSIGN(const int64_t key, key_.number(element, "key_func"));
    auto at = groups_.find(key);
    if (at == groups_.end()) {
      MR_TRY_ASSIGN(const int64_t size, size_.number({Tensor::scalar(key)}, "window_size_func"));
      if (size <= 0) {
        return invalid_argument("Window size must be greater than zero, but got ", size, ".");
      }
      at = groups_.try_emplace(key).first;
      at->second.size = size;
    }
    Group& group = at->second;
    group.elements.push_back(std::move(element));
    if (static_cast<int64_t>(group.elements.size()) < group.size) return ok_status();
    std::vector<Element> elements = std::move(group.elements);
    groups_.erase(at);
    return reduce(key, std::move(elements));
  }

  // Opens the dataset that the function makes of a group.
  Status reduce(int64_t key, std::vector<Element> elements) {
    open_key_ = key;
    open_elements_ = std::move(elements);
    Ref<Dataset> group =
        make_ref<ElementsDataset>("GroupElements", dataset().inputs()[0]->spec(), open_elements_);
    Element made;
    MR_TRY(reduce_.call({Tensor::scalar(key), dataset_tensor(std::move(group))}, made));
    if (made.size() != 1) {
      return invalid_argument("reduce_func must give one dataset, got ", made.size(), " tensors");
    }
    MR_TRY_ASSIGN(Ref<Dataset> nested, dataset_of(made[0]));
    MR_TRY_ASSIGN(nested_,
                  nested->iterate(Iteration::of(*nested, Ref<Environment>(&environment()))));
    return ok_status();
  }

  const Function key_, reduce_, size_;
  std::map<int64_t, Group> groups_;
  // The group that is being read.
  std::unique_ptr<Iterator> nested_;
  int64_t open_key_ = 0;
  std::vector<Element> open_elements_;
  bool ended_ = false;
};

Result<std::unique_ptr<Iterator>> GroupByWindowDataset::iterate(const Iteration& iteration) const {
  const Ref<Environment>& environment = iteration.environment;
  MR_TRY_ASSIGN(Function key, Function::make(key_, environment));
  MR_TRY_ASSIGN(Function reduce, Function::make(reduce_, environment));
  MR_TRY_ASSIGN(Function size, Function::make(size_, environment));
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, inputs()[0]->iterate(iteration));
  return std::make_unique<GroupByWindowIterator>(*this, iteration, std::move(input), std::move(key),
                                                 std::move(reduce), std::move(size));
}

}  // namespace

void register_group_by_window(Registry& registry) {
  for (const char* name : {"GroupByWindowDataset", "ExperimentalGroupByWindowDataset"}) {
    add_dataset_op(
        registry,
        {.name = std::string_view(name),
         .doc = "What reduce_func makes of the elements of one key, as many as its window has.",
         .inputs = {{"input_dataset", "variant"},
                    {"key_func_other_arguments", "list(Tkey_func_other_arguments)"},
                    {"reduce_func_other_arguments", "list(Treduce_func_other_arguments)"},
                    {"window_size_func_other_arguments",
                     "list(Twindow_size_func_other_arguments)"}},
         .attrs = {{"key_func", "func", "From an element to an int64."},
                   {"reduce_func", "func", "From a key and a dataset to a dataset."},
                   {"window_size_func", "func", "From a key to an int64."},
                   {"Tkey_func_other_arguments", "list(type) >= 0"},
                   {"Treduce_func_other_arguments", "list(type) >= 0"},
                   {"Twindow_size_func_other_arguments", "list(type) >= 0"}}},
        dataset_kernel<GroupByWindowDataset::make>);
  }
}

}  // namespace millrace::data
