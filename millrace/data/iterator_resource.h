#pragma once

#include <string>
#include <string_view>

#include "millrace/base/mutex.h"
#include "millrace/data/cursor.h"
#include "millrace/kernel/kernel.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace::data {

// What an op "Iterator" makes: a place for a position in some dataset, which comes and may be
// replaced. Background work of a position ends when it is replaced or the resource is gone.
// Thread-safe.
class IteratorResource final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Iterator";

  IteratorResource(std::string name, ElementSpec spec)
      : name_(std::move(name)), spec_(std::move(spec)) {}

  const std::string& name() const { return name_; }
  const ElementSpec& spec() const { return spec_; }

  // Begins at the first element of `dataset`, or where `state` (may be null) says; that waits.
  // INVALID_ARGUMENT for a dataset whose elements are not of spec().
  Status begin(Ref<Dataset> dataset, Ref<Environment> environment,
               const SavedState* state = nullptr);
  // The same, unless it began before: of steps that ask at once the first counts.
  Status begin_once(Ref<Dataset> dataset, Ref<Environment> environment);
  // The same dataset, from where `state` says. Waits.
  Status restore(const SavedState& state, Ref<Environment> environment);
  // FAILED_PRECONDITION before begin().
  Result<Ref<Cursor>> cursor() const;
  bool begun() const;

  std::string describe() const override;

 private:
  ~IteratorResource() override;

  const std::string name_;
  const ElementSpec spec_;
  mutable Mutex mu_;
  Ref<Cursor> cursor_ MR_GUARDED_BY(mu_);
  Ref<Dataset> dataset_ MR_GUARDED_BY(mu_);
};

// The iterator whose handle is in input i.
Result<Ref<IteratorResource>> iterator_input(const KernelContext& ctx, int i);

// INVALID_ARGUMENT unless elements of `given` can stand where those of `wanted` are expected.
Status check_spec(const ElementSpec& given, const ElementSpec& wanted);

}  // namespace millrace::data
