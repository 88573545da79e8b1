#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/data/environment.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/tensor.h"
#include "millrace/tensor/variant.h"

// A pipeline of input is a tree of datasets, which are values: immutable descriptions of a sequence
// of elements. Iterating over one makes a tree of iterators beside it, which pull: the last stage
// is asked for an element and asks the stage before it, on the same thread, by a virtual call. A
// stage that works ahead (prefetch, parallel map) is the only place where threads meet.

namespace millrace::data {

class BatchRows;
class Iterator;
class StateFields;
class StateReader;
class StateWriter;

// One element of a dataset: a tensor for each component.
using Element = std::vector<Tensor>;

// What every element of a dataset is.
struct ElementSpec {
  std::vector<DType> types;
  std::vector<PartialShape> shapes;  // one for each type
};

class Dataset : public VariantObject {
 public:
  static constexpr std::string_view kTypeName = "millrace::Dataset";
  static constexpr int64_t kInfinite = -1;
  static constexpr int64_t kUnknownSize = -2;
  // So many elements of an input for one of a stage take long.
  static constexpr int64_t kLong = 10000;

  // "Map", "Batch": for tables and for saved states, of which it is a part.
  const std::string& name() const { return name_; }
  const ElementSpec& spec() const { return spec_; }
  // The datasets that this one is made from, in order.
  const std::vector<Ref<Dataset>>& inputs() const { return inputs_; }
  // Whether asking for an element may wait for something, a function, a file, a thread, or go
  // through very many. Who asks then does so on a thread that may block.
  bool waits() const { return waits_; }
  // How many stages lie before it at most, itself counted.
  int depth() const { return depth_; }
  // How many elements there are, kInfinite or kUnknownSize. Never iterates.
  virtual int64_t size() const { return kUnknownSize; }

  // An iterator at the first element. It keeps this dataset alive.
  virtual Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const = 0;

  std::string_view type_name() const override { return kTypeName; }
  // UNIMPLEMENTED: functions and caches belong to this process.
  Status encode(std::string& metadata, std::vector<Tensor>& tensors) const override;

 protected:
  Dataset(std::string_view name, ElementSpec spec, std::vector<Ref<Dataset>> inputs = {},
          bool waits = false);

 private:
  const std::string name_;
  const ElementSpec spec_;
  const std::vector<Ref<Dataset>> inputs_;
  bool waits_;
  int depth_ = 1;
};

// A position in a dataset. Used by one thread at a time.
class Iterator {
 public:
  virtual ~Iterator() = default;
  Iterator(const Iterator&) = delete;
  Iterator& operator=(const Iterator&) = delete;

  // Puts the next element into `out` and clears `end`, or sets `end`; once it was set, it is set
  // again. After an error the iterator stands behind what failed: asked again, it goes on.
  Status next(Element& out, bool& end) {
    end = false;
    if (stage_ == nullptr || (++calls_ & kSampling) != 0) [[likely]]
      return count(produce(out, end), end);
    return timed(out, end);
  }

  // Adds the next elements to `rows`, `count` of them or, setting `end`, all that were left. After
  // an error those before what failed are there. Overridden where elements reach their rows without
  // being made.
  virtual Status next_rows(int64_t count, BatchRows& rows, bool& end);

  // Whether next() would surely not wait, although the dataset waits().
  virtual bool ready() { return false; }

  // Writes where it stands so that a fresh iterator over an equal dataset, given it by restore(),
  // goes on with the very next element. DATA_LOSS or INVALID_ARGUMENT for a state that is damaged
  // or of another pipeline; the iterator is of no use then.
  Status save(StateWriter& state);
  Status restore(StateReader& state);

 protected:
  Iterator(const Dataset& dataset, const Iteration& iteration);

  virtual Status produce(Element& out, bool& end) = 0;
  // For who overrides next_rows(): calls `produce`, counting and timing what it adds.
  Status measure_rows(const BatchRows& rows, FunctionRef<Status()> produce);
  // The name that its entries in a state begin with.
  virtual std::string_view state_name() const = 0;
  // Says what its position is, field by field: the same fields are written and read.
  virtual Status fields(StateFields& state) = 0;
  static Status input_fields(StateFields& state, Iterator& input);

  const Iteration& iteration() const { return iteration_; }
  Environment& environment() const { return *iteration_.environment; }
  // The stage's row in the table; null inside of nested datasets.
  Stage* stage() const { return stage_; }

 private:
  // One call in 16 is measured.
  static constexpr uint64_t kSampling = 15;

  Status count(Status status, bool end) {
    if (stage_ != nullptr && !end) stage_->add_elements(1);
    return status;
  }
  Status timed(Element& out, bool& end);

  const Iteration iteration_;
  Stage* const stage_;
  uint64_t calls_ = 0;
};

// An iterator of a dataset of class D.
template <class D>
class IteratorOf : public Iterator {
 protected:
  IteratorOf(const D& dataset, const Iteration& iteration)
      : Iterator(dataset, iteration), dataset_(&dataset) {}
  const D& dataset() const { return *dataset_; }
  std::string_view state_name() const final { return dataset_->name(); }
  // Begins with one of the inputs of the dataset.
  Result<std::unique_ptr<Iterator>> iterate_input(size_t i = 0) const {
    return dataset_->inputs()[i]->iterate(this->iteration());
  }

 private:
  const Ref<const D> dataset_;
};

// The base of iterators that have one input, iterated once from beginning to end. Its position is
// the input's, after what own_fields() says.
template <class D>
class IteratorOverInput : public IteratorOf<D> {
 public:
  IteratorOverInput(const D& dataset, const Iteration& iteration, std::unique_ptr<Iterator> input)
      : IteratorOf<D>(dataset, iteration), input_(std::move(input)) {}

 protected:
  Iterator& input() const { return *input_; }
  virtual Status own_fields(StateFields&) { return ok_status(); }
  Status fields(StateFields& state) final {
    MR_TRY(own_fields(state));
    return this->input_fields(state, *input_);
  }

 private:
  const std::unique_ptr<Iterator> input_;
};

// Iterates over the only input of `dataset` and makes an I over it.
template <class I, class D>
Result<std::unique_ptr<Iterator>> iterate_over_input(const D& dataset, const Iteration& iteration) {
  MR_TRY_ASSIGN(std::unique_ptr<Iterator> input, dataset.inputs()[0]->iterate(iteration));
  return std::unique_ptr<Iterator>(std::make_unique<I>(dataset, iteration, std::move(input)));
}

// An iterator over each input of a dataset.
Result<std::vector<std::unique_ptr<Iterator>>> iterate_inputs(const Dataset& dataset,
                                                              const Iteration& iteration);

// INVALID_ARGUMENT unless `element` is one of `spec`.
Status check_element(const Element& element, const ElementSpec& spec);

// The dataset in a variant tensor; INVALID_ARGUMENT when there is none.
Result<Ref<Dataset>> dataset_of(const Tensor& tensor);
// A scalar that holds `dataset`.
Tensor dataset_tensor(Ref<Dataset> dataset);

}  // namespace millrace::data
