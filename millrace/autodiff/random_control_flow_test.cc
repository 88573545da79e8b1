// Random programs of branches and loops give the derivatives of what they computed, written out.
// A failure prints its seed; MILLRACE_TEST_SEED=<seed> repeats that program alone.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/derivatives_testing.h"
#include "millrace/base/env.h"

namespace millrace {
namespace {

#if defined(MILLRACE_THREAD_SANITIZER) || defined(MILLRACE_ADDRESS_SANITIZER)
constexpr int kPrograms = 6;
#else
constexpr int kPrograms = 40;
#endif
constexpr size_t kVariables = 3;

struct Statement;
using Block = std::vector<Statement>;

struct Statement {
  enum class Kind { kAssign, kIf, kCase, kLoop };
  Kind kind = Kind::kAssign;
  size_t target = 0, a = 0, b = 0;  // variables
  int op = 0;
  double limit = 0;
  int32_t count = 0;
  std::vector<Block> blocks = {};
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  Block block(int depth) {
    Block out;
    for (int i = pick(3); i >= 0; --i) out.push_back(statement(depth));
    return out;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  size_t variable() { return static_cast<size_t>(pick(kVariables)); }

  Statement statement(int depth) {
    Statement s;
    s.target = variable();
    s.a = variable();
    s.b = variable();
    s.op = pick(5);
    s.limit = pick(200) / 100.0 - 1;
    s.count = pick(4);
    int blocks = 0;
    switch (depth == 0 ? 0 : pick(6)) {
      case 3:
        s.kind = Statement::Kind::kIf;
        blocks = 2;
        break;
      case 4:
        s.kind = Statement::Kind::kCase;
        blocks = 3;
        break;
      case 5:
        s.kind = Statement::Kind::kLoop;
        blocks = 1;
        break;
      default:
        break;
    }
    for (int i = 0; i < blocks; ++i) s.blocks.push_back(block(depth - 1));
    return s;
  }

  std::mt19937_64 random_;
};

// All of these keep values within [-2, 2] or so.
Expr apply(const Scope& s, int op, Expr a, Expr b) {
  switch (op) {
    case 0:
      return ops::sin(s, a + b);
    case 1:
      return ops::tanh(s, a * b);
    case 2:
      return a * 0.5 + b * 0.25;
    case 3:
      return ops::cos(s, a) * ops::sigmoid(s, b);
    default:
      return a;
  }
}
double apply(int op, double a, double b) {
  switch (op) {
    case 0:
      return std::sin(a + b);
    case 1:
      return std::tanh(a * b);
    case 2:
      return a * 0.5 + b * 0.25;
    case 3:
      return std::cos(a) / (1 + std::exp(-b));
    default:
      return a;
  }
}
// Whether the second operand is one of the program's inputs, captured from outside.
bool takes_input(int op) { return op == 1; }

// With branches and loops in the graph. `x` are the program's inputs.
Exprs build(const Scope& s, const Block& block, Exprs v, const Exprs& x);

Exprs build_loop(const Scope& s, const Statement& st, Exprs v, const Exprs& x) {
  v.push_back(s.constant(int32_t{0}));
  Exprs out = while_loop(
      s, v,
      [&](const Scope& t, const Exprs& now) {
        return ops::less(t, now.back(), t.constant(st.count));
      },
      [&](const Scope& t, const Exprs& now) {
        Exprs next = build(t, st.blocks[0], Exprs(now.begin(), now.end() - 1), x);
        next.push_back(now.back() + 1.0);
        return next;
      });
  if (!out.empty()) out.pop_back();
  return out;
}

Exprs build_statement(const Scope& s, const Statement& st, Exprs v, const Exprs& x) {
  std::vector<Branch> branches;
  for (const Block& block : st.blocks) {
    branches.push_back([&](const Scope& t) { return build(t, block, v, x); });
  }
  switch (st.kind) {
    case Statement::Kind::kAssign:
      v[st.target] = apply(s, st.op, v[st.a], takes_input(st.op) ? x[st.b] : v[st.b]);
      return v;
    case Statement::Kind::kIf:
      return cond(s, ops::less(s, v[st.a], s.constant(st.limit)), branches[0], branches[1]);
    case Statement::Kind::kCase:
      return switch_case(s, ops::cast(s, (v[st.a] + 1.0) * 2.0, DType::kInt32), branches);
    case Statement::Kind::kLoop:
      return build_loop(s, st, std::move(v), x);
  }
  return v;
}

Exprs build(const Scope& s, const Block& block, Exprs v, const Exprs& x) {
  for (const Statement& st : block) {
    if (!s.ok() || v.size() != kVariables) return v;
    v = build_statement(s, st, std::move(v), x);
  }
  return v;
}

// Written out, by what the values turn out to be.
class Unrolling {
 public:
  Unrolling(const Scope& s, const Exprs& x, const std::vector<double>& start)
      : scope_(s), inputs_(x), start_(start), exprs_(x), now_(start) {}

  void run(const Block& block) {
    for (const Statement& st : block) run(st);
  }
  const Exprs& exprs() const { return exprs_; }

 private:
  void run(const Statement& st) {
    switch (st.kind) {
      case Statement::Kind::kAssign: {
        bool input = takes_input(st.op);
        double value = apply(st.op, now_[st.a], input ? start_[st.b] : now_[st.b]);
        exprs_[st.target] =
            apply(scope_, st.op, exprs_[st.a], input ? inputs_[st.b] : exprs_[st.b]);
        now_[st.target] = value;
        break;
      }
      case Statement::Kind::kIf:
        run(st.blocks[now_[st.a] < st.limit ? 0 : 1]);
        break;
      case Statement::Kind::kCase: {
        int number = static_cast<int>((now_[st.a] + 1.0) * 2.0);
        run(st.blocks[number < 0 || number > 2 ? 2 : static_cast<size_t>(number)]);
        break;
      }
      case Statement::Kind::kLoop:
        for (int32_t i = 0; i < st.count; ++i) run(st.blocks[0]);
        break;
    }
  }

  const Scope& scope_;
  const Exprs& inputs_;
  const std::vector<double>& start_;
  Exprs exprs_;
  std::vector<double> now_;
};

Expr sum_of(const Exprs& v) {
  Expr sum = v.empty() ? Expr() : v[0];
  for (size_t i = 1; i < v.size(); ++i) sum = sum + v[i];
  return sum;
}

void check(uint64_t seed) {
  SCOPED_TRACE(str_cat("MILLRACE_TEST_SEED=", seed));
  Block program = Generator(seed).block(3);
  std::vector<double> start = {0.3, -0.7, 0.9};
  std::vector<Tensor> xs;
  for (double v : start) xs.push_back(Tensor::scalar(v));
  auto structured = [&](const Scope& s, const Exprs& x) { return sum_of(build(s, program, x, x)); };
  auto unrolled = [&](const Scope& s, const Exprs& x) {
    Unrolling unrolling(s, x, start);
    unrolling.run(program);
    return sum_of(unrolling.exprs());
  };
  Result<Derivatives> expected = evaluate_derivatives(xs, unrolled, 2);
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  for (bool recompute : {false, true}) {
    SessionOptions options;
    options.optimizer_level = static_cast<int>(seed % 2);
    Result<Derivatives> got = evaluate_derivatives(xs, structured, 2, recompute, options);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    expect_same_derivatives(*got, *expected, recompute ? "recomputed" : "saved");
  }
}

TEST(RandomControlFlow, HasTheDerivativesOfWhatItComputed) {
  int64_t given = env_int("MILLRACE_TEST_SEED", -1, 0, std::numeric_limits<int64_t>::max());
  if (given >= 0) return check(static_cast<uint64_t>(given));
  uint64_t first = std::random_device()();
  for (int i = 0; i < kPrograms && !HasFailure(); ++i) check(first + static_cast<uint64_t>(i));
}

}  // namespace
}  // namespace millrace
