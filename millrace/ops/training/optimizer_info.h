#pragma once

namespace millrace {

// What an argument of an optimiser is, besides its variables.
enum class ArgumentKind {
  kScalar,
  kPositive,
  kPositiveUnlessFlag,  // zero will do when the optimiser's flag is set
  kNonNegative,
  kNonPositive,
  kStep,  // a scalar of int64
  kGradient,
};

struct Argument {
  const char* name = nullptr;
  ArgumentKind kind = ArgumentKind::kScalar;

  constexpr Argument() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): most are plain scalars, known by their name
  constexpr Argument(const char* n, ArgumentKind k = ArgumentKind::kScalar) : name(n), kind(k) {}
};
constexpr Argument gradient(const char* name) { return {name, ArgumentKind::kGradient}; }

// An attribute that changes the formula.
struct OptimizerFlag {
  const char* name = nullptr;
  bool default_value = false;
  const char* doc = "";
};

// The ops that an optimiser has.
enum OptimizerForms : unsigned {
  kApply = 1,                // ApplyX, of reference variables
  kResourceApply = 2,        // ResourceApplyX
  kSparseApply = 4,          // SparseApplyX
  kResourceSparseApply = 8,  // ResourceSparseApplyX
  kDenseForms = kApply | kResourceApply,
  kSparseForms = kSparseApply | kResourceSparseApply,
  kAllForms = kDenseForms | kSparseForms,
};

// What a table entry says about its optimiser besides its arithmetic.
struct OptimizerInfo {
  static constexpr int kMaxSlots = 4;
  static constexpr int kMaxArguments = 8;

  const char* name;  // of ApplyX and the other forms
  const char* doc;
  const char* slots[kMaxSlots];  // the variable, then what is remembered about it
  // In the order of the op's inputs. The sparse forms call the gradient "grad" and have "indices"
  // after it.
  Argument arguments[kMaxArguments];
  float cost;  // nanoseconds per float
  unsigned forms = kAllForms;
  OptimizerFlag flag = {};
  // After the scalars the formula gets norm(var) / norm(direction), over all of the variable; 1
  // when one of them is zero. The rule's Step has the direction as a function of its own.
  bool trust_ratio = false;

  constexpr int num_slots() const {
    int n = 0;
    while (n < kMaxSlots && slots[n] != nullptr) ++n;
    return n;
  }
  constexpr int num_arguments() const {
    int n = 0;
    while (n < kMaxArguments && arguments[n].name != nullptr) ++n;
    return n;
  }
  // The gradient's place among the arguments.
  constexpr int gradient_place() const {
    int n = 0;
    while (arguments[n].kind != ArgumentKind::kGradient) ++n;
    return n;
  }
};

}  // namespace millrace
