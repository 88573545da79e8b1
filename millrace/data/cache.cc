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

 protected:
  // The elements are part of the state: whoever goes on elsewhere must not make them again.
  Status fields(StateFields& state) override {
    bool full = full_ != nullptr;
    MR_TRY(state.flag(full));
    MR_TRY(state.number(at_));
    Cache::Elements elements = full_ != nullptr ? *full_ : seen_;
    MR_TRY(state.elements(elements));
    if (at_ > static_cast<int64_t>(elements.size())) {
      return data_loss("the state of the cache is at ", at_, " of ", elements.size());
    }
    if (state.reading()) {
      seen_ = std::move(elements);
      full_ = nullptr;
      if (full) fill();
      if (full && at_ > size()) return data_loss("the cache has changed since the state was saved");
    }
    return state.iterator(input_, [this] { return iterate_input(); });
  }
  Status produce(Element& out, bool& end) override {
    if (full_ == nullptr && at_ == 0) full_ = dataset().cache_->get();
    if (full_ != nullptr) {
      end = at_ >= size();
      if (!end) out = (*full_)[static_cast<size_t>(at_++)];
      return ok_status();
    }
    if (input_ == nullptr) {
      MR_TRY_ASSIGN(input_, iterate_input());
    }
    MR_TRY(input_->next(out, end));
    if (!end) {
      seen_.push_back(out);
      ++at_;
      return ok_status();
    }
    fill();
    at_ = size();
    input_ = nullptr;
    return ok_status();
  }

 private:
  // Gives what was seen to the cache, and reads from that.
  void fill() {
    dataset().cache_->set(std::move(seen_));
    full_ = dataset().cache_->get();
  }
  int64_t size() const { return static_cast<int64_t>(full_->size()); }

  std::shared_ptr<const Cache::Elements> full_;  // once it reads from the cache
  Cache::Elements seen_;                         // before
  std::unique_ptr<Iterator> input_;
  int64_t at_ = 0;
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
