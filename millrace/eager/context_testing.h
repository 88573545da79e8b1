#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "millrace/eager/eager_context.h"

namespace millrace::eager {

// A context on one CPU, with the ops of the library and without functions. A failure ends the test.
Ref<EagerContext> make_test_context();

// Tests of eager code: a context, and short words for what they do with it.
class EagerTest : public testing::Test {
 protected:
  EagerContext& context() { return *context_; }
  TensorRef scalar(float value) { return context_->tensor(Tensor::scalar(value)); }
  TensorRef vector(std::initializer_list<float> values) {
    return context_->tensor(Tensor::vector<float>(values));
  }
  // The output of an op that has one; a failure is the test's.
  TensorRef run(std::string_view op, std::vector<TensorRef> inputs, AttrMap attrs = {});
  // The elements of a float tensor.
  static std::vector<float> values(const TensorRef& tensor);

  const Ref<EagerContext> context_ = make_test_context();
};

}  // namespace millrace::eager
