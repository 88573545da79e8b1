#include "millrace/data/dataset.h"

#include <algorithm>

#include "millrace/base/clock.h"
#include "millrace/data/batch_rows.h"
#include "millrace/data/state.h"

namespace millrace::data {

Dataset::Dataset(std::string_view name, ElementSpec spec, std::vector<Ref<Dataset>> inputs,
                 bool waits)
    : name_(name), spec_(std::move(spec)), inputs_(std::move(inputs)), waits_(waits) {
  for (const Ref<Dataset>& input : inputs_) {
    waits_ = waits_ || input->waits();
    depth_ = std::max(depth_, input->depth() + 1);
  }
}

Status Dataset::encode(std::string&, std::vector<Tensor>&) const {
  return unimplemented("a dataset cannot be written into a message; it is ", name_);
}

Iterator::Iterator(const Dataset& dataset, const Iteration& iteration)
    : iteration_(iteration), stage_(iteration.stages->find(dataset)) {}

Status Iterator::timed(Element& out, bool& end) {
  const int64_t begin = monotonic_nanos();
  Status status = produce(out, end);
  stage_->add_sample(monotonic_nanos() - begin);
  return count(std::move(status), end);
}

Status Iterator::next_rows(int64_t count, BatchRows& rows, bool& end) {
  Element row;
  end = false;
  for (int64_t i = 0; i < count; ++i) {
    if (environment().stopped()) return environment().status();
    MR_TRY(next(row, end));
    if (end) break;
    MR_TRY(rows.add(row));
  }
  return ok_status();
}

Status Iterator::measure_rows(const BatchRows& rows, FunctionRef<Status()> produce) {
  if (stage_ == nullptr) return produce();
  const int64_t before = rows.rows(), begin = monotonic_nanos();
  Status status = produce();
  const int64_t made = rows.rows() - before;
  stage_->add_elements(made);
  if (made > 0) stage_->add_sample((monotonic_nanos() - begin) / made);
  return status;
}

Status Iterator::save(StateWriter& state) {
  state.stage(state_name());
  StateFields to(state);
  return fields(to);
}

Status Iterator::restore(StateReader& state) {
  MR_TRY(state.stage(state_name()));
  StateFields from(state);
  return fields(from);
}

Status Iterator::input_fields(StateFields& state, Iterator& input) { return state.iterator(input); }

Result<std::vector<std::unique_ptr<Iterator>>> iterate_inputs(const Dataset& dataset,
                                                              const Iteration& iteration) {
  std::vector<std::unique_ptr<Iterator>> iterators;
  for (const Ref<Dataset>& input : dataset.inputs()) {
    MR_TRY_ASSIGN(std::unique_ptr<Iterator> iterator, input->iterate(iteration));
    iterators.push_back(std::move(iterator));
  }
  return iterators;
}

Status check_element(const Element& element, const ElementSpec& spec) {
  if (element.size() != spec.types.size()) {
    return invalid_argument("expected an element of ", spec.types.size(), " components, got ",
                            element.size());
  }
  for (size_t i = 0; i < element.size(); ++i) {
    if (element[i].dtype() != spec.types[i]) {
      return invalid_argument("component ", i, " must be ", spec.types[i], ", got ",
                              element[i].dtype());
    }
    if (!spec.shapes[i].compatible(element[i].shape())) {
      return invalid_argument("component ", i, " must have shape ", spec.shapes[i], ", got ",
                              element[i].shape());
    }
  }
  return ok_status();
}

Result<Ref<Dataset>> dataset_of(const Tensor& tensor) {
  if (tensor.dtype() != DType::kVariant || tensor.num_elements() != 1) {
    return invalid_argument("expected a dataset, a variant of one element; got ", tensor.dtype(),
                            " ", tensor.shape());
  }
  const Ref<VariantObject>& object = tensor.item<Variant>().object;
  if (!object || object->type_name() != Dataset::kTypeName) {
    return invalid_argument("expected a dataset, got a variant that holds ",
                            object ? object->type_name() : std::string_view("nothing"));
  }
  return Ref<Dataset>(static_cast<Dataset*>(object.get()));
}

Tensor dataset_tensor(Ref<Dataset> dataset) { return Tensor::scalar(Variant{std::move(dataset)}); }

}  // namespace millrace::data
