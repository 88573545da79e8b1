// Every optimiser against its formulas, one element at a time, over several steps.

#include "millrace/api/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"

namespace millrace {
namespace {

using Numbers = std::vector<double>;
constexpr double kRate = 0.1;

// One element of a variable and of its slots.
struct Element {
  double w = 0;
  Numbers slots;
};

struct Case {
  std::string name;
  std::function<std::unique_ptr<Optimizer>(Variables&)> make;
  Numbers initial_slots;
  // Step t = 1, 2, ... with gradient g.
  std::function<void(Element&, double g, int t)> step;
};

double sign(double x) { return x < 0 ? -1.0 : 1.0; }
double shrink(double x, double by) { return sign(x) * std::max(std::abs(x) - by, 0.0); }

std::vector<Case> cases() {
  return {
      {"GradientDescent",
       [](Variables& v) { return std::make_unique<GradientDescent>(v, kRate); },
       {},
       [](Element& e, double g, int) { e.w -= kRate * g; }},
      {"Momentum",
       [](Variables& v) { return std::make_unique<Momentum>(v, kRate, 0.9); },
       {0},
       [](Element& e, double g, int) {
         e.slots[0] = 0.9 * e.slots[0] + g;
         e.w -= kRate * e.slots[0];
       }},
      {"Nesterov",
       [](Variables& v) {
         return std::make_unique<Momentum>(v, kRate, 0.9, MomentumOptions{.nesterov = true});
       },
       {0},
       [](Element& e, double g, int) {
         e.slots[0] = 0.9 * e.slots[0] + g;
         e.w -= kRate * (g + 0.9 * e.slots[0]);
       }},
      {"Adagrad",
       [](Variables& v) { return std::make_unique<Adagrad>(v, kRate, 0.2); },
       {0.2},
       [](Element& e, double g, int) {
         e.slots[0] += g * g;
         e.w -= kRate * g / std::sqrt(e.slots[0]);
       }},
      {"AdagradDa",
       [](Variables& v) {
         return std::make_unique<AdagradDa>(v, kRate, AdagradDaOptions{.l1 = 0.01, .l2 = 0.02});
       },
       {0, 0.1},
       [](Element& e, double g, int t) {
         e.slots[0] += g;
         e.slots[1] += g * g;
         e.w = -kRate * shrink(e.slots[0], t * 0.01) / (t * 0.02 * kRate + std::sqrt(e.slots[1]));
       }},
      {"Adadelta",
       [](Variables& v) {
         return std::make_unique<Adadelta>(v, kRate, AdadeltaOptions{0.9, 1e-3});
       },
       {0, 0},
       [](Element& e, double g, int) {
         e.slots[0] = 0.9 * e.slots[0] + 0.1 * g * g;
         double u = std::sqrt(e.slots[1] + 1e-3) / std::sqrt(e.slots[0] + 1e-3) * g;
         e.slots[1] = 0.9 * e.slots[1] + 0.1 * u * u;
         e.w -= kRate * u;
       }},
      {"Adam",
       [](Variables& v) { return std::make_unique<Adam>(v, kRate, AdamOptions{0.8, 0.95, 1e-4}); },
       {0, 0},
       [](Element& e, double g, int t) {
         e.slots[0] = 0.8 * e.slots[0] + 0.2 * g;
         e.slots[1] = 0.95 * e.slots[1] + 0.05 * g * g;
         e.w -= kRate * std::sqrt(1 - std::pow(0.95, t)) / (1 - std::pow(0.8, t)) * e.slots[0] /
                (std::sqrt(e.slots[1]) + 1e-4);
       }},
      {"AdamW",
       [](Variables& v) { return std::make_unique<AdamW>(v, kRate, 0.3); },
       {0, 0},
       [](Element& e, double g, int t) {
         e.w -= kRate * 0.3 * e.w;
         e.slots[0] = 0.9 * e.slots[0] + 0.1 * g;
         e.slots[1] = 0.999 * e.slots[1] + 0.001 * g * g;
         e.w -= kRate * std::sqrt(1 - std::pow(0.999, t)) / (1 - std::pow(0.9, t)) * e.slots[0] /
                (std::sqrt(e.slots[1]) + 1e-8);
       }},
      {"AdaMax",
       [](Variables& v) { return std::make_unique<AdaMax>(v, kRate); },
       {0, 0},
       [](Element& e, double g, int t) {
         e.slots[0] = 0.9 * e.slots[0] + 0.1 * g;
         e.slots[1] = std::max(0.999 * e.slots[1], std::abs(g));
         e.w -= kRate / (1 - std::pow(0.9, t)) * e.slots[0] / (e.slots[1] + 1e-8);
       }},
      {"RmsProp",
       [](Variables& v) {
         return std::make_unique<RmsProp>(v, kRate, RmsPropOptions{.decay = 0.8, .momentum = 0.5});
       },
       {1, 0},
       [](Element& e, double g, int) {
         e.slots[0] = 0.8 * e.slots[0] + 0.2 * g * g;
         e.slots[1] = 0.5 * e.slots[1] + kRate * g / std::sqrt(e.slots[0] + 1e-10);
         e.w -= e.slots[1];
       }},
      {"CenteredRmsProp",
       [](Variables& v) {
         return std::make_unique<RmsProp>(
             v, kRate, RmsPropOptions{.decay = 0.8, .momentum = 0.5, .centered = true});
       },
       {0, 1, 0},
       [](Element& e, double g, int) {
         e.slots[0] = 0.8 * e.slots[0] + 0.2 * g;
         e.slots[1] = 0.8 * e.slots[1] + 0.2 * g * g;
         double variance = e.slots[1] - e.slots[0] * e.slots[0];
         e.slots[2] = 0.5 * e.slots[2] + kRate * g / std::sqrt(variance + 1e-10);
         e.w -= e.slots[2];
       }},
      {"Ftrl",
       [](Variables& v) {
         return std::make_unique<Ftrl>(
             v, kRate, FtrlOptions{.learning_rate_power = -0.6, .l1 = 0.3, .l2 = 0.4});
       },
       {0.1, 0},
       [](Element& e, double g, int) {
         double n = e.slots[0] + g * g;
         e.slots[1] += g - (std::pow(n, 0.6) - std::pow(e.slots[0], 0.6)) / kRate * e.w;
         e.w = -shrink(e.slots[1], 0.3) / (std::pow(n, 0.6) / kRate + 2 * 0.4);
         e.slots[0] = n;
       }},
      {"ProximalGradientDescent",
       [](Variables& v) {
         return std::make_unique<ProximalGradientDescent>(v, kRate, ProximalOptions{0.5, 0.4});
       },
       {},
       [](Element& e, double g, int) {
         e.w = shrink(e.w - kRate * g, kRate * 0.5) / (1 + kRate * 0.4);
       }},
      {"ProximalAdagrad",
       [](Variables& v) {
         return std::make_unique<ProximalAdagrad>(v, kRate, ProximalOptions{0.5, 0.4}, 0.2);
       },
       {0.2},
       [](Element& e, double g, int) {
         e.slots[0] += g * g;
         double rate = kRate / std::sqrt(e.slots[0]);
         e.w = shrink(e.w - rate * g, rate * 0.5) / (1 + rate * 0.4);
       }},
  };
}

constexpr int64_t kRows = 4, kWidth = 3;
constexpr size_t kElements = kRows * kWidth;

// A table of double that an optimiser trains. Its gradient is what is fed: a number per element, or
// per element of the rows 1, 3, 1.
class Trained {
 public:
  Trained(const Case& c, bool sparse)
      : root_(Scope::make_root()), vars_(root_), optimizer_(c.make(vars_)) {
    for (size_t i = 0; i < kElements; ++i) first_.push_back(0.3 * static_cast<double>(i) - 1);
    Tensor first = Tensor::vector<double>(first_).reshaped(Shape{kRows, kWidth}).value();
    Variable& table =
        vars_.get(root_, "table", first.shape(), DType::kDouble, initializers::value(first));
    g_ = ops::placeholder(root_, DType::kDouble, {.shape = {-1, kWidth}});
    Expr used = sparse ? ops::resource_gather(root_, table.handle,
                                              root_.constant(Tensor::vector<int64_t>({1, 3, 1})),
                                              DType::kDouble)
                       : table.read(root_);
    Expr loss =
        ops::sum(root_, ops::mul(root_, used, g_), root_.constant(Tensor::vector<int32_t>({0, 1})));
    train_ = optimizer_->minimize(root_, loss, &global_step(vars_));
    fetches_ = {table.read(root_)};
    for (const std::string& slot : optimizer_->slot_names()) {
      Variable* v = optimizer_->get_slot(table, slot);
      if (v != nullptr) fetches_.push_back(v->read(root_));
    }
    fetches_.push_back(global_step(vars_).read(root_));
  }

  Status start() {
    MR_TRY(root_.status());
    MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root_));
    session_ = std::make_unique<ClientSession>(std::move(session));
    return session_->run({}, {}, {vars_.initialize()}).status();
  }
  // Runs a step, then gives the variable, its slots and the global step.
  Result<std::vector<Tensor>> step(const Numbers& gradient) {
    Tensor g = Tensor::vector<double>(gradient)
                   .reshaped(Shape{static_cast<int64_t>(gradient.size()) / kWidth, kWidth})
                   .value();
    MR_TRY(session_->run({{g_, g}}, {}, {train_}).status());
    return session_->run({}, fetches_);
  }
  const Numbers& first() const { return first_; }

 private:
  Scope root_;
  Variables vars_;
  std::unique_ptr<Optimizer> optimizer_;
  Numbers first_;
  Expr g_;
  Operation train_;
  std::vector<Expr> fetches_;
  std::unique_ptr<ClientSession> session_;
};

Numbers random_numbers(size_t n, std::mt19937& random) {
  std::normal_distribution<double> normal(0, 1);
  Numbers out(n);
  std::generate(out.begin(), out.end(), [&] { return normal(random); });
  return out;
}

// What rows 1, 3, 1 add up to, by element of the table.
Numbers by_element(const Numbers& rows) {
  Numbers out(kElements, 0);
  constexpr size_t kIds[] = {1, 3, 1};
  for (size_t r = 0; r < 3; ++r) {
    for (size_t j = 0; j < kWidth; ++j) out[kIds[r] * kWidth + j] += rows[r * kWidth + j];
  }
  return out;
}

bool in_rows(size_t element) { return element / kWidth % 2 == 1; }

class Optimizers : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(All, Optimizers, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(Optimizers, DoWhatTheirFormulasSay) {
  for (bool sparse : {false, true}) {
    std::mt19937 random(5);
    Trained trained(GetParam(), sparse);
    ASSERT_TRUE(trained.start().ok()) << trained.start().to_string();
    std::vector<Element> elements;
    for (double w : trained.first()) elements.push_back({w, GetParam().initial_slots});
    for (int t = 1; t <= 6; ++t) {
      Numbers gradient = random_numbers(sparse ? 3 * kWidth : kElements, random);
      auto got = trained.step(gradient);
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      Numbers g = sparse ? by_element(gradient) : gradient;
      for (size_t i = 0; i < kElements; ++i) {
        if (!sparse || in_rows(i)) GetParam().step(elements[i], g[i], t);
        const Element& e = elements[i];
        auto near = [](double x) { return 1e-6 * std::max(1.0, std::abs(x)); };
        EXPECT_NEAR((*got)[0].data<double>()[i], e.w, near(e.w)) << sparse << " " << t << " " << i;
        ASSERT_EQ(got->size(), e.slots.size() + 2);
        for (size_t s = 0; s < e.slots.size(); ++s) {
          EXPECT_NEAR((*got)[s + 1].data<double>()[i], e.slots[s], near(e.slots[s]))
              << sparse << " step " << t << " element " << i << " slot " << s;
        }
      }
      EXPECT_EQ(got->back().item<int64_t>(), t);
    }
  }
}

// Lamb looks at the whole variable, or at the rows, at once.
TEST(Lamb, ScalesByTheNorms) {
  const Case lamb = {"Lamb",
                     [](Variables& v) {
                       return std::make_unique<Lamb>(v, kRate, LambOptions{.weight_decay = 0.2});
                     },
                     {},
                     {}};
  for (bool sparse : {false, true}) {
    std::mt19937 random(6);
    Trained trained(lamb, sparse);
    ASSERT_TRUE(trained.start().ok());
    Numbers w = trained.first(), m(kElements, 0), v(kElements, 0);
    for (int t = 1; t <= 5; ++t) {
      Numbers gradient = random_numbers(sparse ? 3 * kWidth : kElements, random);
      Numbers g = sparse ? by_element(gradient) : gradient, u(kElements, 0);
      double size = 0, length = 0;
      for (size_t i = 0; i < kElements; ++i) {
        if (sparse && !in_rows(i)) continue;
        m[i] = 0.9 * m[i] + 0.1 * g[i];
        v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
        u[i] = m[i] / (1 - std::pow(0.9, t)) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-6) +
               0.2 * w[i];
        size += w[i] * w[i];
        length += u[i] * u[i];
      }
      auto got = trained.step(gradient);
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      for (size_t i = 0; i < kElements; ++i) {
        w[i] -= kRate * std::sqrt(size / length) * u[i];
        EXPECT_NEAR((*got)[0].data<double>()[i], w[i], 1e-6) << sparse << " " << t << " " << i;
        EXPECT_NEAR((*got)[1].data<double>()[i], m[i], 1e-9);
        EXPECT_NEAR((*got)[2].data<double>()[i], v[i], 1e-9);
      }
    }
  }
}

TEST(Optimizer, NamesSlotsAfterVariableAndItself) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Variable& w = vars.get(root, "w", {2}, DType::kFloat, initializers::ones());
  Adam adam(vars, 0.1), second(vars, 0.1);
  Expr loss = ops::l2loss(root, w.read(root));
  EXPECT_EQ(adam.get_slot(w, "m"), nullptr);
  adam.minimize(root, loss);
  second.minimize(root, loss);
  ASSERT_TRUE(root.ok()) << root.status().to_string();
  EXPECT_EQ(adam.slot_names(), (std::vector<std::string>{"m", "v"}));
  EXPECT_EQ(adam.get_slot(w, "m")->name, "w/Adam");
  EXPECT_EQ(adam.get_slot(w, "v")->name, "w/Adam_1");
  EXPECT_EQ(second.get_slot(w, "m")->name, "w/Adam_2");
  EXPECT_EQ(adam.get_slot(w, "w"), nullptr);
  EXPECT_NE(vars.find("beta1_power"), nullptr);
  EXPECT_NE(vars.find("beta1_power_1"), nullptr);
  EXPECT_EQ(vars.trainable(), std::vector<Variable*>{&w});
}

TEST(Optimizer, TrainsEveryTypeAndLeavesOutWhatHasNoGradient) {
  for (DType dtype : {DType::kHalf, DType::kBFloat16, DType::kFloat, DType::kDouble}) {
    Scope root = Scope::make_root();
    Variables vars(root);
    Variable& w = vars.get(root, "w", {2}, dtype, initializers::ones());
    Variable& other = vars.get(root, "other", {2}, dtype, initializers::ones());
    Momentum momentum(vars, 0.1, 0.5);
    Operation train = momentum.minimize(root, ops::l2loss(root, w.read(root)));
    Expr value = ops::cast(root, w.read(root), DType::kFloat);
    Expr rest = ops::cast(root, other.read(root), DType::kFloat);
    ClientSession session = ClientSession::create(root).value();
    ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
    for (int i = 0; i < 50; ++i) ASSERT_TRUE(session.run({}, {}, {train}).ok());
    auto out = session.run({}, {value, rest}).value();
    EXPECT_LT(std::abs(out[0].data<float>()[0]), 0.1F);
    EXPECT_EQ(out[1].data<float>()[0], 1.0F);
    EXPECT_EQ(momentum.get_slot(other, "momentum"), nullptr);
  }
}

TEST(Optimizer, TakesItsRateFromATensor) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Variable& w = vars.get(root, "w", {}, DType::kDouble, initializers::ones());
  Expr rate = ops::placeholder(root, DType::kFloat, {.shape = PartialShape::scalar()});
  Operation train = GradientDescent(vars, rate).minimize(root, w.read(root));
  Expr value = w.read(root);
  ClientSession session = ClientSession::create(root).value();
  ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
  for (float r : {0.5F, 0.25F}) {
    ASSERT_TRUE(session.run({{rate, Tensor::scalar(r)}}, {}, {train}).ok());
  }
  EXPECT_EQ(session.run({}, {value}).value()[0].item<double>(), 0.25);
}

TEST(Optimizer, TheLossFetchedIsThatBeforeTheStep) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Variable& w = vars.get(root, "w", {}, DType::kDouble, initializers::zeros());
  // The gradient does not need the value that the loss reads.
  Expr loss = w.read(root) * 1.0;
  Operation train = GradientDescent(vars, 1.0).minimize(root, loss);
  ClientSession session = ClientSession::create(root).value();
  ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(session.run({}, {loss}, {train}).value()[0].item<double>(), -i);
  }
}

TEST(Optimizer, RunsTheUpdatesThatLayersAskFor) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Variable& w = vars.get(root, "w", {}, DType::kDouble, initializers::ones());
  Variable& count =
      vars.get(root, "n", {}, DType::kDouble, initializers::zeros(), {.trainable = false});
  vars.add_update(count.assign_add(root, root.constant(1.0)));
  Operation train = GradientDescent(vars, 0.1).minimize(root, w.read(root));
  Expr value = count.read(root);
  ClientSession session = ClientSession::create(root).value();
  ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
  ASSERT_TRUE(session.run({}, {}, {train}).ok());
  EXPECT_EQ(session.run({}, {value}).value()[0].item<double>(), 1);
}

TEST(Optimizer, TrainsHalfPrecisionWithNumbersThatFit) {
  for (DType dtype : {DType::kHalf, DType::kBFloat16}) {
    Scope root = Scope::make_root();
    Variables vars(root);
    Variable& w = vars.get(root, "w", {2}, dtype, initializers::ones());
    Adam adam(vars, 0.1, {.beta2 = 0.99, .epsilon = 1e-4});
    Operation train = adam.minimize(root, ops::l2loss(root, w.read(root)));
    Expr value = ops::cast(root, w.read(root), DType::kFloat);
    ClientSession session = ClientSession::create(root).value();
    ASSERT_TRUE(session.run({}, {}, {vars.initialize()}).ok());
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(session.run({}, {}, {train}).ok());
    EXPECT_LT(std::abs(session.run({}, {value}).value()[0].data<float>()[0]), 0.2F);
  }
}

TEST(Optimizer, RefusesALossThatNoVariableIsIn) {
  Scope root = Scope::make_root();
  Variables vars(root);
  vars.get(root, "w", {}, DType::kDouble, initializers::ones());
  Operation train = GradientDescent(vars, 0.1).minimize(root, root.constant(1.0));
  EXPECT_FALSE(train.valid());
  EXPECT_EQ(root.status().code(), Code::kInvalidArgument);
  EXPECT_NE(root.status().to_string().find("optimizers_test.cc"), std::string::npos);
  Scope other = Scope::make_root();
  Variables none(other);
  GradientDescent descent(none, 0.1);
  EXPECT_FALSE(descent.apply_gradients(other, {{{other.constant(1.0), {}, {}}, nullptr}}).valid());
  EXPECT_EQ(other.status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
