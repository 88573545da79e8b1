#pragma once

#include <vector>

#include "millrace/data/dataset.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/register_ops.h"

// Pipelines of ops, for tests without a graph.

namespace millrace::data {

// Registers the ops of this folder alone: its tests link no others.
inline void register_once() {
  static const Status status = [] {
    Registry registry(OpRegistry::global(), KernelRegistry::global());
    register_data_ops(registry);
    return registry.status();
  }();
  MR_CHECK_OK(status);
}

// What an op makes of datasets and numbers. Elements are said to be int64s of any shape.
inline Ref<Dataset> make_dataset(std::string_view op, std::vector<Ref<Dataset>> inputs,
                                 std::vector<Tensor> numbers, AttrMap attrs = {}) {
  register_once();
  OpTester tester(op);
  tester.attr("output_types", std::vector<DType>{DType::kInt64});
  tester.attr("output_shapes", std::vector<PartialShape>{PartialShape::unknown()});
  for (const auto& [name, value] : attrs) tester.attr(name, value);
  for (Ref<Dataset>& input : inputs) tester.input(dataset_tensor(std::move(input)));
  for (Tensor& number : numbers) tester.input(std::move(number));
  return dataset_of(tester.run_one().value()).value();
}

// What an op makes that knows its elements: those of files.
inline Ref<Dataset> make_source(std::string_view op, std::vector<Tensor> inputs) {
  register_once();
  OpTester tester(op);
  for (Tensor& input : inputs) tester.input(std::move(input));
  return dataset_of(tester.run_one().value()).value();
}

inline Ref<Dataset> make_range(int64_t count) {
  return make_dataset(
      "RangeDataset", {},
      {Tensor::scalar<int64_t>(0), Tensor::scalar(count), Tensor::scalar<int64_t>(1)});
}

inline Ref<Environment> make_environment() {
  return make_ref<Environment>(nullptr, make_test_device());
}

}  // namespace millrace::data
