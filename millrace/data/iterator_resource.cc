#include "millrace/data/iterator_resource.h"

#include "millrace/data/handles.h"

namespace millrace::data {

Status check_spec(const ElementSpec& given, const ElementSpec& wanted) {
  if (given.types.size() != wanted.types.size()) {
    return invalid_argument("Number of components does not match: expected ", wanted.types.size(),
                            " types but got ", given.types.size(), ".");
  }
  for (size_t i = 0; i < wanted.types.size(); ++i) {
    if (given.types[i] != wanted.types[i]) {
      return invalid_argument("Data type mismatch at component ", i, ": expected ", wanted.types[i],
                              " but got ", given.types[i], ".");
    }
    if (!given.shapes[i].compatible(wanted.shapes[i])) {
      return invalid_argument("Incompatible shapes at component ", i, ": expected ",
                              wanted.shapes[i], " but got ", given.shapes[i], ".");
    }
  }
  return ok_status();
}

Result<Ref<IteratorResource>> iterator_input(const KernelContext& ctx, int i) {
  MR_TRY_ASSIGN(const ResourceHandle handle, handle_input(ctx, i, IteratorResource::kTypeName));
  return ctx.resources().lookup<IteratorResource>(handle.container, handle.name);
}

IteratorResource::~IteratorResource() {
  if (cursor_) cursor_->stop();
}

Status IteratorResource::begin(Ref<Dataset> dataset, Ref<Environment> environment,
                               const SavedState* state) {
  if (!spec_.types.empty()) MR_TRY(check_spec(dataset->spec(), spec_));
  MR_TRY_ASSIGN(Ref<Cursor> cursor, Cursor::make(dataset, std::move(environment)));
  if (state != nullptr) {
    Status status = cursor->restore(*state);
    if (!status.ok()) cursor->stop();
    MR_TRY(status);
  }
  Ref<Cursor> old;
  {
    MutexLock lock(mu_);
    old = std::exchange(cursor_, std::move(cursor));
    dataset_ = std::move(dataset);
  }
  if (old) old->stop();
  return ok_status();
}

Status IteratorResource::begin_once(Ref<Dataset> dataset, Ref<Environment> environment) {
  if (!spec_.types.empty()) MR_TRY(check_spec(dataset->spec(), spec_));
  MR_TRY_ASSIGN(Ref<Cursor> cursor, Cursor::make(dataset, std::move(environment)));
  {
    MutexLock lock(mu_);
    if (!cursor_) {
      cursor_ = std::move(cursor);
      dataset_ = std::move(dataset);
      return ok_status();
    }
  }
  cursor->stop();
  return ok_status();
}

Status IteratorResource::restore(const SavedState& state, Ref<Environment> environment) {
  Ref<Dataset> dataset;
  {
    MutexLock lock(mu_);
    dataset = dataset_;
  }
  if (!dataset) return cursor().status();
  return begin(std::move(dataset), std::move(environment), &state);
}

Result<Ref<Cursor>> IteratorResource::cursor() const {
  MutexLock lock(mu_);
  if (cursor_) return cursor_;
  return failed_precondition(
      "GetNext() failed because the iterator has not been initialized. Ensure that you have run "
      "the initializer operation for this iterator before getting the next element.");
}

bool IteratorResource::begun() const {
  MutexLock lock(mu_);
  return static_cast<bool>(cursor_);
}

std::string IteratorResource::describe() const {
  MutexLock lock(mu_);
  return str_cat("Iterator of ", dataset_ ? dataset_->name() : std::string("nothing yet"));
}

}  // namespace millrace::data
