// The elements of a dataset, each once.

#include <set>

#include "millrace/data/dataset_op.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

class UniqueDataset final : public Dataset {
 public:
  explicit UniqueDataset(Ref<Dataset> input) : Dataset("Unique", input->spec(), {input}, true) {}
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    constexpr TypeSet kKeys = {DType::kInt32, DType::kInt64, DType::kString};
    const std::vector<DType>& types = input->spec().types;
    if (types.size() != 1 || !kKeys.contains(types[0])) {
      return invalid_argument(
          "UniqueDataset only supports inputs with a single `tf.int32`, `tf.int64`, or "
          "`tf.string` component, got [",
          str_join(types, ","), "]");
    }
    return make_ref<UniqueDataset>(std::move(input));
  }
};

// Bytes that are the same for equal tensors, and for no others.
std::string key_of(const Tensor& tensor) {
  std::string key = str_cat(tensor.dtype(), tensor.shape());
  if (tensor.dtype() != DType::kString) {
    if (tensor.bytes() > 0) key.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
    return key;
  }
  for (const std::string& text : tensor.data<std::string>()) key += str_cat(text.size(), ":", text);
  return key;
}

class UniqueIterator final : public IteratorOverInput<UniqueDataset> {
 public:
  using IteratorOverInput::IteratorOverInput;

 protected:
  Status own_fields(StateFields& state) override {
    std::vector<std::string> seen(seen_.begin(), seen_.end());
    MR_TRY(state.list(seen, INT64_MAX, [&](std::string& key) { return state.text(key); }));
    if (state.reading()) seen_ = {seen.begin(), seen.end()};
    return ok_status();
  }
  Status produce(Element& out, bool& end) override {
    for (;;) {
      if (environment().stopped()) return environment().status();
      MR_TRY(input().next(out, end));
      if (end) return ok_status();
      if (out.size() != 1) {
        return invalid_argument("expected elements of 1 component, got ", out.size());
      }
      if (seen_.insert(key_of(out[0])).second) return ok_status();
    }
  }

 private:
  std::set<std::string> seen_;
};

Result<std::unique_ptr<Iterator>> UniqueDataset::iterate(const Iteration& iteration) const {
  return iterate_over_input<UniqueIterator>(*this, iteration);
}

}  // namespace

void register_unique(Registry& registry) {
  for (const char* name : {"UniqueDataset", "ExperimentalUniqueDataset"}) {
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "The elements of a dataset, each once, where it comes first.",
                    .inputs = {{"input_dataset", "variant"}}},
                   dataset_kernel<UniqueDataset::make>);
  }
}

}  // namespace millrace::data
