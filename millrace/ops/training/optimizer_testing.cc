#include "millrace/ops/training/optimizer_testing.h"

#include <algorithm>
#include <cmath>

namespace millrace {
namespace {

using Slots = std::vector<double>;

double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
double shrunk(double x, double by) { return sign(x) * std::max(std::abs(x) - by, 0.0); }

void descend(Slots& v, const Slots& s, double g) { v[0] -= s[0] * g; }

void momentum(Slots& v, const Slots& s, double g) {
  v[1] = s[1] * v[1] + g;
  v[0] -= s[0] * v[1];
}
void nesterov(Slots& v, const Slots& s, double g) {
  v[1] = s[1] * v[1] + g;
  v[0] -= s[0] * (g + s[1] * v[1]);
}
void keras_momentum(Slots& v, const Slots& s, double g) {
  v[1] = s[1] * v[1] - s[0] * g;
  v[0] += v[1];
}
void keras_nesterov(Slots& v, const Slots& s, double g) {
  v[1] = s[1] * v[1] - s[0] * g;
  v[0] += s[1] * v[1] - s[0] * g;
}
void add_sign(Slots& v, const Slots& s, double g) {
  v[1] = s[3] * v[1] + (1 - s[3]) * g;
  v[0] -= s[0] * (s[1] + s[2] * sign(g) * sign(v[1])) * g;
}
void power_sign(Slots& v, const Slots& s, double g) {
  v[1] = s[3] * v[1] + (1 - s[3]) * g;
  v[0] -= s[0] * std::exp(s[1] * s[2] * sign(g) * sign(v[1])) * g;
}

void adagrad(Slots& v, const Slots& s, double g) {
  v[1] += g * g;
  v[0] -= s[0] * g / std::sqrt(v[1]);
}
void adagrad_fixed(Slots& v, const Slots& s, double g) { v[0] -= s[0] * g / std::sqrt(v[1]); }
void adagrad_v2(Slots& v, const Slots& s, double g) {
  v[1] += g * g;
  v[0] -= s[0] * g / (std::sqrt(v[1]) + s[1]);
}
void adagrad_v2_fixed(Slots& v, const Slots& s, double g) {
  v[0] -= s[0] * g / (std::sqrt(v[1]) + s[1]);
}
void adadelta(Slots& v, const Slots& s, double g) {
  v[1] = s[1] * v[1] + (1 - s[1]) * g * g;
  const double update = std::sqrt(v[2] + s[2]) / std::sqrt(v[1] + s[2]) * g;
  v[2] = s[1] * v[2] + (1 - s[1]) * update * update;
  v[0] -= s[0] * update;
}

// Scalars of the Adam family: beta1_power, beta2_power, lr, beta1, beta2, epsilon.
void adam_moments(Slots& v, const Slots& s, double g) {
  v[1] = s[3] * v[1] + (1 - s[3]) * g;
  v[2] = s[4] * v[2] + (1 - s[4]) * g * g;
}
double adam_rate(const Slots& s) { return s[2] * std::sqrt(1 - s[1]) / (1 - s[0]); }
void adam(Slots& v, const Slots& s, double g) {
  adam_moments(v, s, g);
  v[0] -= adam_rate(s) * v[1] / (std::sqrt(v[2]) + s[5]);
}
void nadam(Slots& v, const Slots& s, double g) {
  adam_moments(v, s, g);
  v[0] -= adam_rate(s) * (s[3] * v[1] + (1 - s[3]) * g) / (std::sqrt(v[2]) + s[5]);
}
void adam_w(Slots& v, const Slots& s, double g) {
  const double decayed = v[0] - s[2] * s[6] * v[0];
  adam(v, s, g);
  v[0] = decayed - adam_rate(s) * v[1] / (std::sqrt(v[2]) + s[5]);
}
void amsgrad(Slots& v, const Slots& s, double g) {
  adam_moments(v, s, g);
  v[3] = std::max(v[3], v[2]);
  v[0] -= adam_rate(s) * v[1] / (std::sqrt(v[3]) + s[5]);
}
void ada_max(Slots& v, const Slots& s, double g) {
  v[1] = s[2] * v[1] + (1 - s[2]) * g;
  v[2] = std::max(s[3] * v[2], std::abs(g));
  v[0] -= s[1] / (1 - s[0]) * v[1] / (v[2] + s[4]);
}
void rms_prop(Slots& v, const Slots& s, double g) {
  v[1] = s[1] * v[1] + (1 - s[1]) * g * g;
  v[2] = s[2] * v[2] + s[0] * g / std::sqrt(v[1] + s[3]);
  v[0] -= v[2];
}
void centered(Slots& v, const Slots& s, double g) {
  v[1] = s[1] * v[1] + (1 - s[1]) * g;
  v[2] = s[1] * v[2] + (1 - s[1]) * g * g;
  v[3] = s[2] * v[3] + s[0] * g / std::sqrt(v[2] - v[1] * v[1] + s[3]);
  v[0] -= v[3];
}

void proximal_descent(Slots& v, const Slots& s, double g) {
  v[0] = shrunk(v[0] - s[0] * g, s[0] * s[1]) / (1 + s[0] * s[2]);
}
void proximal_adagrad(Slots& v, const Slots& s, double g) {
  v[1] += g * g;
  const double rate = s[0] / std::sqrt(v[1]);
  v[0] = shrunk(v[0] - rate * g, rate * s[1]) / (1 + rate * s[2]);
}
void adagrad_da(Slots& v, const Slots& s, double g) {
  v[1] += g;
  v[2] += g * g;
  v[0] = -s[0] * shrunk(v[1], s[3] * s[1]) / (s[3] * s[2] * s[0] + std::sqrt(v[2]));
}
// Scalars: lr, l1, l2, l2_shrinkage, lr_power.
void ftrl_v2(Slots& v, const Slots& s, double g) {
  const double accum = v[1] + g * g;
  const double sigma = (std::pow(accum, -s[4]) - std::pow(v[1], -s[4])) / s[0];
  v[2] += g + 2 * s[3] * v[0] - sigma * v[0];
  v[0] = -shrunk(v[2], s[1]) / (std::pow(accum, -s[4]) / s[0] + 2 * s[2]);
  v[1] = accum;
}
// The same with lr times as much in slot 2.
void ftrl_v2_by_rate(Slots& v, const Slots& s, double g) {
  v[2] /= s[0];
  ftrl_v2(v, s, g);
  v[2] *= s[0];
}
void ftrl(Slots& v, const Slots& s, double g) { ftrl_v2(v, {s[0], s[1], s[2], 0, s[3]}, g); }
void ftrl_by_rate(Slots& v, const Slots& s, double g) {
  ftrl_v2_by_rate(v, {s[0], s[1], s[2], 0, s[3]}, g);
}

}  // namespace

const std::vector<OptimizerCase>& optimizer_cases() {
  const std::vector<double> adam_scalars = {0.5, 0.75, 0.25, 0.5, 0.75, 0.125};
  static const auto* all = new std::vector<OptimizerCase>{
      {"GradientDescent", 1, {0.25}, 1, nullptr, false, descend},
      {"Momentum", 2, {0.25, 0.5}, 1, "use_nesterov", false, momentum, 3},
      {"Momentum", 2, {0.25, 0.5}, 1, "use_nesterov", true, nesterov, 3},
      {"KerasMomentum", 2, {0.25, 0.5}, 1, "use_nesterov", false, keras_momentum, 3, "rR"},
      {"KerasMomentum", 2, {0.25, 0.5}, 1, "use_nesterov", true, keras_nesterov, 3, "rR"},
      {"AddSign", 2, {0.25, 0.5, 0.75, 0.5}, 4, nullptr, false, add_sign, 3, "ar"},
      {"PowerSign", 2, {0.25, 0.5, 0.75, 0.5}, 4, nullptr, false, power_sign, 3, "ar"},
      {"Adagrad", 2, {0.25}, 1, "update_slots", true, adagrad},
      {"Adagrad", 2, {0.25}, 1, "update_slots", false, adagrad_fixed},
      {"AdagradV2", 2, {0.25, 0.5}, 2, "update_slots", true, adagrad_v2},
      {"AdagradV2", 2, {0.25, 0.5}, 2, "update_slots", false, adagrad_v2_fixed},
      {"Adadelta", 3, {0.25, 0.75, 0.125}, 3, nullptr, false, adadelta},
      {"Adam", 3, adam_scalars, 6, "use_nesterov", false, adam, 3},
      {"Adam", 3, adam_scalars, 6, "use_nesterov", true, nadam, 3},
      {"AdamW", 3, {0.5, 0.75, 0.25, 0.5, 0.75, 0.125, 0.5}, 7, nullptr, false, adam_w, 3, "ar"},
      {"AdamWithAmsgrad", 4, adam_scalars, 6, nullptr, false, amsgrad, 3, "r"},
      {"AdaMax", 3, {0.5, 0.25, 0.5, 0.75, 0.125}, 5, nullptr, false, ada_max, 3, "ar"},
      {"RMSProp", 3, {0.25, 0.5, 0.75, 0.125}, 4, nullptr, false, rms_prop, 5},
      {"CenteredRMSProp", 4, {0.25, 0.5, 0.75, 32}, 4, nullptr, false, centered, 11},
      {"ProximalGradientDescent", 1, {0.5, 0.75, 0.25}, 3, nullptr, false, proximal_descent},
      {"ProximalGradientDescent", 1, {0.5, 0, 0}, 3, nullptr, false, proximal_descent},
      {"ProximalAdagrad", 2, {0.5, 0.75, 0.25}, 3, nullptr, false, proximal_adagrad},
      {"ProximalAdagrad", 2, {0.5, 0, 0}, 3, nullptr, false, proximal_adagrad},
      {"AdagradDA", 3, {0.5, 0.25, 0.75, 3}, 0, nullptr, false, adagrad_da, 3},
      {"AdagradDA", 3, {0.5, 0, 0, 3}, 0, nullptr, false, adagrad_da, 3},
      {"Ftrl", 3, {0.5, 0.75, 0.25, -0.5}, 0, "multiply_linear_by_lr", false, ftrl, 5},
      {"Ftrl", 3, {0.5, 0.75, 0.25, -0.75}, 0, "multiply_linear_by_lr", false, ftrl, 5},
      {"Ftrl", 3, {0.5, 0.75, 0.25, -0.5}, 0, "multiply_linear_by_lr", true, ftrl_by_rate, 5},
      {"FtrlV2", 3, {0.5, 0.75, 0.25, 0.25, -0.5}, 0, "multiply_linear_by_lr", false, ftrl_v2, 5},
      {"FtrlV2",
       3,
       {0.5, 0.75, 0.25, 0.25, -0.25},
       0,
       "multiply_linear_by_lr",
       true,
       ftrl_v2_by_rate,
       5},
  };
  return *all;
}

const OptimizerCase& optimizer_case(std::string_view name) {
  const auto& all = optimizer_cases();
  return *std::find_if(all.begin(), all.end(), [&](const auto& c) { return c.name == name; });
}

std::vector<std::vector<Complex128>> OptimizerTest::random_slots(const OptimizerCase& c,
                                                                 int64_t n) {
  std::vector<Numbers> slots(static_cast<size_t>(c.num_slots));
  for (size_t k = 0; k < slots.size(); ++k) {
    const double shift = ((c.signed_slots >> k) & 1) != 0 ? -2 : 0;
    for (int64_t i = 0; i < n; ++i) {
      slots[k].emplace_back(static_cast<double>(random_() % 32 + 1) / 8 + shift);
    }
  }
  return slots;
}

std::vector<Complex128> OptimizerTest::random_gradient(int64_t n) {
  Numbers grad;
  for (int64_t i = 0; i < n; ++i) grad.emplace_back(static_cast<double>(random_() % 33) / 8 - 2);
  return grad;
}

void OptimizerTest::add_arguments(OpTester& tester, const OptimizerCase& c, DType dtype,
                                  const Tensor& grad, const Tensor& indices) {
  for (size_t i = 0; i <= c.scalars.size(); ++i) {
    if (static_cast<int>(i) == c.gradient_place) {
      tester.input(grad);
      if (indices.valid()) tester.input(indices);
    }
    if (i == c.scalars.size()) break;
    const bool step = std::string_view(c.name) == "AdagradDA" && i == 3;
    tester.input(make_tensor(step ? DType::kInt64 : dtype, {}, {c.scalars[i]}));
  }
  if (c.flag != nullptr) tester.attr(c.flag, c.flag_value);
}

Result<std::vector<Tensor>> OptimizerTest::run_form(const OptimizerCase& c, char form,
                                                    const std::vector<Tensor>& slots,
                                                    const Tensor& grad, const Tensor& indices,
                                                    int threads) {
  const bool resource = form == 'r' || form == 'R';
  OpTester tester = op(c.op(form));
  if (threads > 0) tester.threads(threads);
  std::vector<Ref<RefCell>> cells;
  std::vector<Tensor> resources;
  for (const Tensor& slot : slots) {
    if (resource) {
      resources.push_back(variable(str_cat("variable", variables_++), slot));
      tester.input(resources.back());
    } else {
      MR_TRY_ASSIGN(Tensor own, slot.clone());
      cells.push_back(make_ref_cell(std::move(own)));
      tester.input_ref(cells.back());
    }
  }
  add_arguments(tester, c, grad.dtype(), grad, indices);
  MR_TRY_ASSIGN(std::vector<Value> outputs, tester.run_values());
  EXPECT_EQ(outputs.size(), resource ? 0 : 1);
  if (!resource) {
    EXPECT_EQ(outputs[0].cell, cells[0]);
  }
  std::vector<Tensor> after;
  for (size_t k = 0; k < slots.size(); ++k) {
    if (!resource) {
      after.push_back(cells[k]->read());
    } else {
      MR_TRY_ASSIGN(Tensor value, read(resources[k], grad.dtype()));
      after.push_back(std::move(value));
      MR_TRY(op("DestroyResourceOp").input(resources[k]).run().status());
    }
  }
  return after;
}

void OptimizerTest::expect_near(const std::vector<Tensor>& got,
                                const std::vector<Numbers>& expected) {
  for (size_t k = 0; k < got.size(); ++k) {
    const Numbers values = values_of(got[k]);
    ASSERT_EQ(values.size(), expected[k].size());
    for (size_t i = 0; i < values.size(); ++i) {
      // Relative to the larger operands: the difference may be near zero.
      const double bound = 8 * tolerance_of(got[k].dtype()) * (std::abs(expected[k][i]) + 4);
      ASSERT_NEAR(values[i].real(), expected[k][i].real(), bound) << "slot " << k << " " << i;
    }
  }
}

void OptimizerTest::expect_same(const std::vector<Tensor>& got,
                                const std::vector<Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t k = 0; k < got.size(); ++k) {
    EXPECT_TRUE(bit_equal(got[k], expected[k])) << "slot " << k;
  }
}

}  // namespace millrace
