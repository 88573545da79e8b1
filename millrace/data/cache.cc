// Elements kept in memory when they are first made.

#include "millrace/base/mutex.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/file_cache.h"
#include "millrace/data/state.h"

namespace millrace::data {
namespace {

// What an iterator that reached the end has seen; shared by all iterators of one dataset.
class Cache final : public RefCounted {
 public:
  using Elements = std::vector<Element>;

  // Null while no iterator has reached the end.
  std::shared_ptr<const Elements> get() {
    MutexLock lock(mu_);
    return elements_;
  }
  // The first to come stays.
  void set(Elements elements) {
    MutexLock lock(mu_);
    if (!elements_) elements_ = std::make_shared<const Elements>(std::move(elements));
  }

 private:
  Mutex mu_;
  std::shared_ptr<const Elements> elements_ MR_GUARDED_BY(mu_);
};

class CacheDataset final : public Dataset {
 public:
  explicit CacheDataset(Ref<Dataset> input)
      : Dataset("Cache", input->spec(), {input}), cache_(make_ref<Cache>()) {}
  int64_t size() const override { return inputs()[0]->size(); }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(Ref<Dataset> input, dataset_input(ctx, 0));
    MR_TRY_ASSIGN(const std::string file, string_input(ctx, 1));
    if (!file.empty()) return make_file_cache_dataset(std::move(input), file);
    return Ref<Dataset>(make_ref<CacheDataset>(std::move(input)));
  }

  const Ref<Cache> cache_;
};

class CacheIterator final : public IteratorOf<CacheDataset> {
 public:
  CacheIterator(const CacheDataset& dataset, const Iteration& iteration)
      : IteratorOf(dataset, iteration) {}

  // The elements are part of the state: whoever goes on elsewhere must not make them again.
  Status save(StateWriter& state) override {
    state.stage(dataset().name());
    state.flag(full_ != nullptr);
    state.number(static_cast<int64_t>(at_));
    const Cache::Elements& elements = full_ != nullptr ? *full_ : seen_;
    state.number(static_cast<int64_t>(elements.size()));
    for (const Element& element : elements) state.element(element);
    state.flag(input_ != nullptr);
    return input_ == nullptr ? ok_status() : input_->save(state);
  }
  Status restore(StateReader& state) override {
    MR_TRY(state.stage(dataset().name()));
    MR_TRY_ASSIGN(const bool full, state.flag());
    MR_TRY_ASSIGN(const int64_t at, state.number_in(0, INT64_MAX));
    MR_TRY_ASSIGN(const int64_t count, state.number_in(0, INT64_MAX));
    seen_.clear();
    for (int64_t i = 0; i < count; ++i) {
      MR_TRY_ASSIGN(Element element, state.element());
      seen_.push_back(std::move(element));
    }
    if (at > count) return data_loss("the state of the cache is at ", at, " of ", count);
    at_ = static_cast<size_t>(at);
    if (full) {
      dataset().cache_->set(std::move(seen_));
      full_ = dataset().cache_->get();
      if (at_ > full_->size()) return data_loss("the cache has changed since the state was saved");
    }
    MR_TRY_ASSIGN(const bool inside, state.flag());
    input_ = nullptr;
    if (!inside) return ok_status();
    MR_TRY_ASSIGN(input_, dataset().inputs()[0]->iterate(iteration()));
    return input_->restore(state);
  }

 protected:
  Status produce(Element& out, bool& end) override {
    if (full_ == nullptr && at_ == 0) full_ = dataset().cache_->get();
    if (full_ != nullptr) {
      end = at_ >= full_->size();
      if (!end) out = (*full_)[at_++];
      return ok_status();
    }
    if (input_ == nullptr) {
      MR_TRY_ASSIGN(input_, dataset().inputs()[0]->iterate(iteration()));
    }
    MR_TRY(input_->next(out, end));
    if (!end) {
      seen_.push_back(out);
      at_ = seen_.size();
      return ok_status();
    }
    dataset().cache_->set(std::move(seen_));
    full_ = dataset().cache_->get();
    at_ = full_->size();
    input_ = nullptr;
    return ok_status();
  }

 private:
  std::shared_ptr<const Cache::Elements> full_;  // once it reads from the cache
  Cache::Elements seen_;                         // before
  std::unique_ptr<Iterator> input_;
  size_t at_ = 0;
};

Result<std::unique_ptr<Iterator>> CacheDataset::iterate(const Iteration& iteration) const {
  return std::make_unique<CacheIterator>(*this, iteration);
}

}  // namespace

void register_cache(Registry& registry) {
  OpSpec spec = {
      .name = "CacheDataset",
      .doc = "The elements of a dataset, made once and kept.",
      .inputs = {{"input_dataset", "variant"}, {"filename", "string", "Empty: in memory."}},
      .traits = {.stateful = true}};
  add_dataset_op(registry, spec, dataset_kernel<CacheDataset::make>);
  spec.name = "CacheDatasetV2";
  spec.inputs.push_back({"cache", "resource", "Not used."});
  add_dataset_op(registry, spec, dataset_kernel<CacheDataset::make>);
}

}  // namespace millrace::data
