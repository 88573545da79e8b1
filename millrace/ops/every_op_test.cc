// Every op of the registry in every type it has a kernel for: it runs, the types agree with each
// other, and whatever it is given it answers with outputs that fit its shape rule, or with a status
// that is the caller's fault.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/op_calls_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// What cannot run by itself, and why. An empty attribute stands for the whole op, "*" for each of
// type.
struct Exemption {
  const char* op;  // or a part of it between '*'
  const char* attr;
  TypeSet types;
  const char* reason;
};
constexpr TypeSet kHandles = {DType::kResource, DType::kVariant};
constexpr TypeSet all_but(TypeSet types) {
  TypeSet all;
  for (int i = 1; i < kNumDTypes; ++i) all = all | TypeSet{static_cast<DType>(i)};
  return all - types;
}
constexpr TypeSet kNotInOldCheckpoints =
    all_but(kNumberTypes | TypeSet{DType::kBool, DType::kString, DType::kInt4, DType::kUInt4,
                                   DType::kInt2, DType::kUInt2});
const Exemption kNeverRuns[] = {
    {"AddN", "T", {DType::kVariant}, "the variants of tests cannot be added; tensor lists can"},
    {"*CollectiveBcastRecv*", "", {}, "a group of one has nobody to receive from"},
    {"DecodeAndCropJpeg", "", {}, "reads bytes of an image"},
    {"DecodeBmp", "", {}, "reads bytes of an image"},
    {"DecodeGif", "", {}, "reads bytes of an image"},
    {"DecodeImage", "", {}, "reads bytes of an image"},
    {"DecodeJpeg", "", {}, "reads bytes of an image"},
    {"DecodePng", "", {}, "reads bytes of an image"},
    {"ExtractJpegShape", "", {}, "reads bytes of an image"},
    {"*HashTable*", "*", kHandles, "tables hold numbers and strings"},
    {"*LookupTable*", "*", kHandles, "tables hold numbers and strings"},
    {"InitializeTable", "*", kHandles, "tables hold numbers and strings"},
    {"InitializeTableV2", "*", kHandles, "tables hold numbers and strings"},
    {"OneShotIterator", "", {}, "calls a function"},
    {"ParseSingleExample", "", {}, "made-up strings are no examples"},
    {"ParseSingleSequenceExample", "", {}, "made-up strings are no examples"},
    {"ParseTensor", "", {}, "reads strings that SerializeTensor wrote"},
    {"Placeholder", "", {}, "stands for a value that must be fed"},
    {"PlaceholderV2", "", {}, "stands for a value that must be fed"},
    {"RangeDataset", "*", all_but(kRealNumbers), "ranges are of real numbers"},
    {"ReduceDataset", "", {}, "calls a function"},
    {"RecordInput", "", {}, "no file is open to made-up names"},
    {"RegexFullMatch", "", {}, "its pattern is in a language of its own"},
    {"RegexReplace", "", {}, "its pattern is in a language of its own"},
    {"Restore", "*", kNotInOldCheckpoints, "old checkpoints have no such type"},
    {"RestoreSlice", "*", kNotInOldCheckpoints, "old checkpoints have no such type"},
    {"RestoreV2", "*", kHandles, "checkpoints hold numbers and strings"},
    {"Save", "*", kHandles, "checkpoints hold numbers and strings"},
    {"SaveSlices", "*", kHandles, "checkpoints hold numbers and strings"},
    {"SaveV2", "*", kHandles, "checkpoints hold numbers and strings"},
    {"TensorSummaryV2", "", {}, "reads bytes of a message"},
    {"*DatasetToTFRecord*", "", {}, "writes strings alone"},
    {"*ParseExampleDataset*", "", {}, "has as many components as features"},
    {"*UniqueDataset*", "*", all_but({DType::kInt32, DType::kInt64, DType::kString}),
     "compares numbers and strings"},
    {"_FusedElementwise", "*", all_but({DType::kFloat}), "made up with stages of floats"},
    {"ZerosLike", "T", {DType::kResource, DType::kVariant}, "a handle has no zero"},
};

bool exempt(const OpDef& op, std::string_view attr, DType dtype) {
  for (const Exemption& e : kNeverRuns) {
    const std::string_view pattern = e.op;
    const bool is_it =
        pattern.starts_with('*')
            ? op.name.find(pattern.substr(1, pattern.size() - 2)) != std::string::npos
            : op.name == pattern;
    if (!is_it) continue;
    const bool any = *e.attr == '*' || attr == e.attr;
    if (*e.attr == '\0' || (any && e.types.contains(dtype))) return true;
  }
  return false;
}

class EveryOp : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(register_ops().ok()); }

  // All but the parameters and results of functions, which the executor itself sets and takes, and
  // what sessions replace by the functions it calls.
  static std::vector<const OpDef*> ops() {
    std::vector<const OpDef*> ops = OpRegistry::global().list();
    std::erase_if(ops, [](const OpDef* op) {
      return op->traits.argument || op->traits.result ||
             op->traits.functional != FunctionalOp::kNone;
    });
    return ops;
  }
};

// INTERNAL and UNKNOWN are never the caller's fault.
void expect_answer(const Status& status) {
  EXPECT_NE(status.code(), Code::kInternal) << status.to_string();
  EXPECT_NE(status.code(), Code::kUnknown) << status.to_string();
  EXPECT_NE(status.code(), Code::kDeadlineExceeded) << status.to_string();
}

TEST_F(EveryOp, RunsInEveryType) {
  for (const OpDef* op : ops()) {
    const OpCall call = valid_call(*op);
    const std::vector<TypeChoice> choices = type_choices(*op);
    EXPECT_FALSE(choices.empty())
        << op->name << " has no CPU kernel for its types: see registry.kernel() in its source";
    // By type attribute and type, what kept it from running; empty when nothing did.
    std::map<std::pair<std::string, DType>, std::string> errors;
    for (const TypeChoice& types : choices) {
      SCOPED_TRACE(str_cat(to_string(call), " ", to_string(types)));
      const Status status = run_call(call, types, Elements::kPositive).status();
      expect_answer(status);
      auto note = [&](const std::string& attr, DType dtype) {
        const auto [entry, fresh] = errors.try_emplace({attr, dtype}, status.to_string());
        if (status.ok()) entry->second.clear();
      };
      if (types.empty()) note("", DType::kInvalid);
      for (const auto& [attr, dtype] : types) note(attr, dtype);
    }
    for (const auto& [key, error] : errors) {
      const auto& [attr, dtype] = key;
      EXPECT_EQ(exempt(*op, attr, dtype), !error.empty())
          << to_string(call) << " " << attr << "=" << dtype_name(dtype) << ": "
          << (error.empty() ? "runs: take it out of kNeverRuns in millrace/ops/every_op_test.cc"
                            : str_cat(error, "\nNo call of ", op->name,
                                      " was found that its kernel takes. Mend the kernel or shape "
                                      "rule, or give the op a row in kRows of "
                                      "millrace/ops/op_calls_testing.cc."));
    }
  }
}

// The type that holds all values of `dtype` and computes with them most exactly.
DType widest(DType dtype) {
  if (kFloating.contains(dtype)) return DType::kDouble;
  if (kIntegers.contains(dtype)) return DType::kInt64;
  if (kComplex.contains(dtype)) return DType::kComplex128;
  return dtype;
}

// What an output of the widest type should be in `dtype`. Integers wrap around.
Complex128 narrowed(Complex128 wide, DType dtype) {
  if (!kIntegers.contains(dtype)) return wide;
  double result = 0;
  MR_CHECK_OK(dispatch<IntegerTypes>(dtype, [&]<class T>() {
    result = static_cast<double>(static_cast<T>(static_cast<int64_t>(wide.real())));
  }));
  return result;
}

double rounding(DType dtype) {
  if (dtype == DType::kHalf) return 0x1p-11;
  if (dtype == DType::kBFloat16) return 0x1p-8;
  return dtype == DType::kFloat || dtype == DType::kComplex64 ? 0x1p-24 : 0;
}

bool close(double got, double want, double tolerance) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerance * std::max(1.0, std::abs(want));
}

void expect_agree(const Tensor& got, const Tensor& want, double precision) {
  ASSERT_EQ(got.shape().to_string(), want.shape().to_string());
  if (!(kNumberTypes | TypeSet{DType::kBool}).contains(got.dtype())) return;
  const std::vector<Complex128> a = values_of(got), b = values_of(want);
  // Sums of a few dozen terms, and intermediate results in the narrow type.
  const double tolerance = 32 * std::max(precision, rounding(got.dtype()));
  for (size_t i = 0; i < a.size(); ++i) {
    const Complex128 expected = narrowed(b[i], got.dtype());
    EXPECT_TRUE(close(a[i].real(), expected.real(), tolerance) &&
                close(a[i].imag(), expected.imag(), tolerance))
        << got.to_string() << "\n  in the widest type " << want.to_string();
  }
}

// Random numbers and raw bits differ between types.
bool comparable(const OpDef& op) {
  bool has_state = false;
  for (const ArgDef& arg : op.inputs) has_state |= arg.is_ref || arg.dtype == DType::kResource;
  // Random numbers have the bits of their type.
  const bool is_random = op.name.starts_with("StatelessRandom") ||
                         op.name.starts_with("StatelessTruncated") ||
                         op.name == "StatelessMultinomial";
  return op.name != "Bitcast" && op.name != "DecodePaddedRaw" && !is_random &&
         (!op.traits.stateful || has_state);
}

TEST_F(EveryOp, AgreesWithItsWidestType) {
  for (const OpDef* op : ops()) {
    if (!comparable(*op)) continue;
    const OpCall call = valid_call(*op);
    const std::vector<TypeChoice> choices = type_choices(*op);
    const std::set<TypeChoice> known(choices.begin(), choices.end());
    for (const TypeChoice& types : choices) {
      TypeChoice wide = types;
      double precision = 0;
      bool is_unsigned = false;
      for (auto& [attr, dtype] : wide) {
        precision = std::max(precision, rounding(dtype));
        is_unsigned |= kWithoutSign.contains(dtype);
        dtype = widest(dtype);
      }
      if (wide == types || !known.contains(wide)) continue;
      for (Elements elements : {Elements::kPositive, Elements::kSigned}) {
        if (elements == Elements::kSigned && is_unsigned) continue;
        SCOPED_TRACE(str_cat(to_string(call), " ", to_string(types)));
        Result<std::vector<Tensor>> got = run_call(call, types, elements);
        Result<std::vector<Tensor>> want = run_call(call, wide, elements);
        // Refused in the widest type: negative numbers. In this one: beside the other types.
        if (!want.ok() || (!got.ok() && elements == Elements::kPositive)) break;
        ASSERT_TRUE(got.ok()) << got.status().to_string();
        ASSERT_EQ(got->size(), want->size());
        for (size_t i = 0; i < got->size(); ++i) expect_agree((*got)[i], (*want)[i], precision);
      }
    }
  }
}

// Runs `call` changed in every operand in turn, by each of `changes(operand)`.
template <class Changes>
void for_each_change(const OpCall& call, Changes changes, FunctionRef<void(const OpCall&)> body) {
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    for (size_t k = 0; k < call.arguments[i].size(); ++k) {
      for (Operand& operand : changes(call.arguments[i][k])) {
        OpCall changed = call;
        changed.arguments[i][k] = std::move(operand);
        body(changed);
      }
    }
  }
}

// The operand with one size after the other made zero, and with no element at all.
std::vector<Operand> emptied(const Operand& operand) {
  std::vector<Operand> all = {{.kind = operand.kind, .shape = Shape{0}}};
  if (operand.kind != Operand::Kind::kTensor) {
    all.push_back({.kind = Operand::Kind::kNoHandle, .shape = Shape{0}});
  }
  for (int d = 0; d < operand.shape.rank(); ++d) {
    std::vector<int64_t> sizes(operand.shape.dims().begin(), operand.shape.dims().end());
    sizes[static_cast<size_t>(d)] = 0;
    all.push_back({.kind = operand.kind, .shape = Shape::make(sizes).value()});
  }
  return all;
}

// Of too low and too high rank.
std::vector<Operand> reranked(const Operand& operand) {
  std::vector<int64_t> sizes = {1};
  sizes.insert(sizes.end(), operand.shape.dims().begin(), operand.shape.dims().end());
  Operand higher = operand, lower = operand;
  higher.shape = Shape::make(sizes).value();
  lower.shape = Shape();
  if (!lower.values.empty()) lower.values.resize(1);
  return {lower, higher};
}

// The call is written down only where something fails: there are hundreds of thousands.
void run_whatever(const OpCall& call, const TypeChoice& types) {
  const testing::TestResult& so_far =
      *testing::UnitTest::GetInstance()->current_test_info()->result();
  const int failures = so_far.total_part_count();
  expect_answer(run_call(call, types, Elements::kPositive).status());
  if (so_far.total_part_count() == failures) return;
  ADD_FAILURE() << to_string(call) << " " << to_string(types);
}

// All tensors whose elements do not matter, with their first (or last) size zero: so the shapes
// still fit each other for most ops.
OpCall all_emptied(OpCall call, bool last) {
  for (std::vector<Operand>& operands : call.arguments) {
    for (Operand& operand : operands) {
      if (!operand.values.empty() || operand.shape.rank() == 0) continue;
      const std::vector<Operand> variants = emptied(operand);
      operand = last ? variants.back() : variants[variants.size() - operand.shape.rank()];
    }
  }
  return call;
}

TEST_F(EveryOp, TakesTensorsWithoutElements) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 random(seed);
  for (const OpDef* op : ops()) {
    const OpCall call = valid_call(*op);
    for (const TypeChoice& types : covering_choices(*op, random)) {
      for_each_change(call, emptied, [&](const OpCall& changed) { run_whatever(changed, types); });
      run_whatever(all_emptied(call, false), types);
      run_whatever(all_emptied(call, true), types);
    }
  }
}

TEST_F(EveryOp, RefusesOtherRanks) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 random(seed);
  for (const OpDef* op : ops()) {
    const OpCall call = valid_call(*op);
    for (const TypeChoice& types : covering_choices(*op, random)) {
      for_each_change(call, reranked, [&](const OpCall& changed) { run_whatever(changed, types); });
    }
  }
}

// A call with shapes, small numbers and attributes at random. Lists keep their length.
OpCall random_call(const OpCall& valid, std::mt19937& random) {
  auto draw = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  OpCall call = valid;
  for (std::vector<Operand>& operands : call.arguments) {
    for (Operand& operand : operands) {
      if (draw(0, 2) == 0) continue;
      std::vector<int64_t> sizes(static_cast<size_t>(draw(0, 4)));
      for (int64_t& size : sizes) size = draw(0, 3);
      operand.shape = Shape::make(sizes).value();
      operand.values.clear();
      for (int64_t i = 0; i < operand.shape.num_elements(); ++i) {
        operand.values.push_back(draw(-2, 6));
      }
    }
  }
  for (const AttrDef& attr : call.op->attrs) {
    if (draw(0, 2) == 0) continue;
    if (attr.type == "bool") {
      call.attrs.set(attr.name, draw(0, 1) == 1);
    } else if (attr.type == "int") {
      call.attrs.set(attr.name, draw(-2, 5));
    } else if (attr.type == "list(int)") {
      std::vector<int64_t> values(static_cast<size_t>(draw(0, 5)));
      for (int64_t& value : values) value = draw(-1, 3);
      call.attrs.set(attr.name, std::move(values));
    } else if (attr.type == "float") {
      call.attrs.set(attr.name, static_cast<float>(draw(-2, 2)));
    } else if (attr.type == "string" && !attr.allowed_strings.empty()) {
      const int last = static_cast<int>(attr.allowed_strings.size()) - 1;
      call.attrs.set(attr.name, attr.allowed_strings[static_cast<size_t>(draw(0, last))]);
    }
  }
  return call;
}

TEST_F(EveryOp, AnswersWhateverItIsGiven) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 random(seed);
  for (const OpDef* op : ops()) {
    // Ops that wait for what never comes are tested beside their code.
    const auto is_about = [&](const char* word) {
      return op->name.find(word) != std::string::npos;
    };
    if (op->traits.recv || is_about("Queue") || is_about("TakeGradient") || is_about("TakeStep") ||
        is_about("BarrierTake") || is_about("Unstage")) {
      continue;
    }
    const OpCall call = valid_call(*op);
    const std::vector<TypeChoice> choices = type_choices(*op);
    for (int i = 0; i < 200; ++i) {
      run_whatever(random_call(call, random), choices[random() % choices.size()]);
    }
  }
}

}  // namespace
}  // namespace millrace
