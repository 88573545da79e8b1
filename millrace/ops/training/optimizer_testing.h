#pragma once

#include <random>
#include <string>
#include <vector>

#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/state/state_testing.h"

// Every optimiser as its paper has it, one element at a time, for the tests of its ops.

namespace millrace {

struct OptimizerCase {
  const char* name;
  int num_slots;
  std::vector<double> scalars;  // in the op's order, without the gradient
  int gradient_place;           // among the arguments after the slots
  const char* flag;             // null: none
  bool flag_value;
  // One element: slots (updated), scalars, gradient.
  void (*step)(std::vector<double>& v, const std::vector<double>& s, double g);
  // Slots that may be negative, bit k for slot k.
  unsigned signed_slots = 1;
  std::string_view forms = "arsR";  // Apply, ResourceApply, SparseApply, ResourceSparseApply

  bool has(char form) const { return forms.find(form) != std::string_view::npos; }
  std::string op(char form) const {
    const char* prefix = form == 'a'   ? "Apply"
                         : form == 'r' ? "ResourceApply"
                         : form == 's' ? "SparseApply"
                                       : "ResourceSparseApply";
    return std::string(prefix) + name;
  }
};

const std::vector<OptimizerCase>& optimizer_cases();
const OptimizerCase& optimizer_case(std::string_view name);

class OptimizerTest : public StateTest {
 protected:
  using Numbers = std::vector<Complex128>;
  static constexpr DType kDtypes[] = {DType::kFloat, DType::kDouble, DType::kHalf,
                                      DType::kBFloat16};

  // Numbers that all types hold exactly: slots of the case, n elements each, and gradients.
  std::vector<Numbers> random_slots(const OptimizerCase& c, int64_t n);
  Numbers random_gradient(int64_t n);

  // Adds what comes after the slots: scalars, gradient, and the indices unless they are invalid.
  static void add_arguments(OpTester& tester, const OptimizerCase& c, DType dtype,
                            const Tensor& grad, const Tensor& indices = Tensor());
  // The slots after the op, for form 'a', 'r', 's' or 'R'.
  Result<std::vector<Tensor>> run_form(const OptimizerCase& c, char form,
                                       const std::vector<Tensor>& slots, const Tensor& grad,
                                       const Tensor& indices = Tensor(), int threads = 0);

  static void expect_near(const std::vector<Tensor>& got, const std::vector<Numbers>& expected);
  static void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& expected);

  std::mt19937 random_{7};
  int variables_ = 0;
};

}  // namespace millrace
