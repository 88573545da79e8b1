// Every op of the registry that has a gradient rule, against differences of its values: in double
// and complex128 (float where there is no double kernel), first and second order, at random points
// and at awkward ones, with shapes known and unknown. An op that no check fits fails the suite.

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

#include "millrace/autodiff/gradient_check_testing.h"
#include "millrace/autodiff/gradient_programs_testing.h"
#include "millrace/base/hash.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/op_calls_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

using Facts = GradientCheck::Facts;

// Sanitizers make each check about ten times as slow: they see one further call of a kind in eight.
#if defined(MILLRACE_THREAD_SANITIZER) || defined(MILLRACE_ADDRESS_SANITIZER)
constexpr int kEvery = 8;
#else
constexpr int kEvery = 1;
#endif
bool this_time() {
  static int calls = 0;
  return calls++ % kEvery == 0;
}

using Ints = std::vector<int64_t>;

// Rules that no difference can check, and why.
const std::pair<const char*, const char*> kUnchecked[] = {
    {"BatchCholesky", "as Cholesky"},
    {"BatchSvd", "as Svd"},
    {"Betainc", "its first arguments have no gradient"},
    {"Cholesky", "reads one triangle; its gradient is symmetric, see decompositions_test.cc"},
    {"BlockLSTM", "its gates have no gradient; recurrent_test.cc looks at the others"},
    {"BlockLSTMV2", "as BlockLSTM"},
    {"GRUBlockCell", "as BlockLSTM"},
    {"LSTMBlockCell", "as BlockLSTM"},
    {"CropAndResize", "boxes have no second derivative; crop_and_resize_test.cc has the first"},
    {"CropAndResizeGradImage", "boxes have no second derivative"},
    {"Dilation2D", "its gradient has none; dilation_test.cc looks at the first"},
    {"Eig", "the phases of vectors are arbitrary; test_tensorflow2_ops.py looks at the values"},
    {"FractionalAvgPool", "its gradient has none; volume_test.cc looks at the first"},
    {"FractionalMaxPool", "its gradient has none; volume_test.cc looks at the first"},
    {"Igamma", "that of its first argument has none; gamma_gradients_test.cc looks at the first"},
    {"Igammac", "as Igamma"},
    {"Polygamma", "its first argument has no gradient; Digamma needs that of the second"},
    {"PreventGradient", "its rule refuses; gradients_test.cc looks at the error"},
    {"RandomGamma", "draws anew in every run; gamma_gradients_test.cc has RandomGammaGrad"},
    {"StatelessRandomGammaV2", "RandomGammaGrad has no gradient; gamma_gradients_test.cc has that"},
    {"StatelessRandomGammaV3", "as StatelessRandomGammaV2"},
    {"Svd",
     "the phases of complex vectors are arbitrary; gradient_programs_testing.cc has the rest"},
    {"Zeta", "its first argument has no gradient"},
};

// Where one-sided derivatives bound nothing, and why.
const std::pair<const char*, const char*> kAnyTie[] = {
    {"NthElement", "of equal elements any may be meant"},
    {"Qr", "no gradient where columns depend on each other"},
    {"Spence", "at one, the second is 0 / 0 by its rule"},
    {"TopK", "of equal elements either may come first"},
    {"TopKV2", "of equal elements either may come first"},
};

bool listed(const OpDef& op, std::span<const std::pair<const char*, const char*>> list) {
  return std::any_of(list.begin(), list.end(),
                     [&](const auto& entry) { return op.name == entry.first; });
}

// Calls besides those of op_calls_testing.h, in its notation.
struct Row {
  const char* op;
  const char* inputs;
  AttrMap attrs = {};
};
const AttrMap kValidStride2 = {{"strides", Ints{1, 2, 2, 1}}, {"padding", "VALID"}};
const AttrMap kSameStride2 = {{"strides", Ints{1, 2, 2, 1}}, {"padding", "SAME"}};
const AttrMap kOverlappingPool = {
    {"ksize", Ints{1, 3, 3, 1}}, {"strides", Ints{1, 1, 1, 1}}, {"padding", "SAME"}};

// Instead of the call there: one that makes sense to differentiate.
const Row kOtherCalls[] = {
    // The gradient is right for labels that add up to one.
    {"SoftmaxCrossEntropyWithLogits", "[2,3] [2,3]{.5,.25,.25,.125,.5,.375}"},
    // Sums that are dropped where they become small leave the others in other places.
    {"SparseAdd", "[2,2]{0,0,1,1} [2] {2,2} [2,2]{0,0,0,1} [2] {2,2} []{-1}"},
};

const Row kMoreCalls[] = {
    {"AddN", "[2,3]|"},
    {"AddN", "[2]|[2]|[2]"},
    {"AvgPool", "[1,3,3,2]", kOverlappingPool},
    {"AvgPoolGrad", "{1,3,3,2} [1,3,3,2]", kOverlappingPool},
    {"BatchMatMul", "[2,2,2] [2,2,2]"},
    {"BatchToSpaceND", "[4,2,2] {2,1} [2,2]{1,0,0,0}"},
    {"BatchMatMulV2", "[2,2,2] [2,2,2]"},
    {"BatchMatMulV2", "[1,2,3] [2,3,1]"},
    {"BatchMatMulV2", "[2,1,1,2] [3,2,1]"},
    {"BiasAdd", "[1,2,2,2] [2]"},
    {"BiasAddGrad", "[1,2,2,2]"},
    {"BroadcastTo", "[2,1] {3,2,3}"},
    {"BroadcastTo", "[] {2}"},
    {"Concat", "0 [2,2]|[1,2]|[0,2]"},
    {"ConcatV2", "[2,2]|[1,2]|[0,2] []{-2}"},
    {"Conv2D", "[1,4,5,2] [3,2,2,1]", kValidStride2},
    {"Conv2D", "[2,3,3,1] [2,2,1,2]", kSameStride2},
    {"Conv2DBackpropFilter", "[1,4,5,2] {3,2,2,1} [1,1,2,1]", kValidStride2},
    {"Conv2DBackpropInput", "{1,4,5,2} [3,2,2,1] [1,1,2,1]", kValidStride2},
    {"Cumprod", "[2,3] 0"},
    {"Cumsum", "[2,3] []{-1}"},
    {"DepthwiseConv2dNative", "[1,4,5,2] [3,2,2,1]", kValidStride2},
    {"DepthwiseConv2dNative", "[2,3,3,1] [2,2,1,2]", kSameStride2},
    {"DynamicPartition", "[2,2,2] [2,2]{1,0,1,1}", {{"num_partitions", 3}}},
    {"DynamicStitch", "{0,1}|{1,2} [2,3]|[2,3]"},
    {"ExpandDims", "[2,3] []{-1}"},
    {"FFT", "[2,5]"},
    {"FFT2D", "[2,2,4]"},
    {"Fill", "{0,3} []"},
    {"FusedBatchNorm", "[2,2,3,2] [2] [2] [2] {1,.5}", {{"exponential_avg_factor", 0.25F}}},
    {"Gather", "[3,2] [2,2]{1,1,0,2}"},
    {"GatherNd", "[2,3] [2,2]{0,1,0,1}"},
    {"GatherNd", "[2,3,2] [1,2]{1,2}"},
    {"GatherV2", "[2,3] {2,0,2} 1"},
    {"GatherV2", "[2,3,2] [2,2]{1,0,2,2} 1", {{"batch_dims", 1}}},
    {"GatherV2", "[2,2,3] [2,2]{1,0,2,2} 2", {{"batch_dims", 1}}},
    {"GatherV2", "[4,2] 1 0"},
    {"LRN", "[1,1,2,5]", {{"depth_radius", 1}, {"beta", 0.7F}}},
    {"LinearRecurrence", "[3,2] [3,2] []{-2}"},
    {"MatMul", "[3,3] [3,3]"},
    {"MaxPool", "[1,3,3,2]", kOverlappingPool},
    {"Mean", "[2,3] 1"},
    {"MatrixBandPart", "[3,3] []{-1} 1"},
    {"MatrixDiag", "[2,3]"},
    {"MatrixDiagPart", "[2,3,2]"},
    {"MatrixDiagPartV3", "[3,2] 1 []"},
    {"MatrixDiagPartV3", "[3,4] {-2,2} []"},
    {"MatrixDiagV3", "[3] []{-1} 5 3 []"},
    {"MatrixDiagV3", "[2,3] {1,2} 3 6 []"},
    {"MatrixSetDiagV3", "[3,2] [3,2] {-1,1}"},
    {"MirrorPad", "[3,2] [2,2]{0,1,1,0}", {{"mode", "SYMMETRIC"}}},
    {"Max", "[2,3,2] {0,2}"},
    {"Max", "[2,3] [0]"},
    {"Mean", "[2,3,2] {-1,0}"},
    {"Mean", "[2,3] [0]"},
    {"Min", "[2,3,2] {0,2}"},
    {"OneHot", "[2,2]{0,2,5,2} 3 [] []", {{"axis", 1}}},
    {"Pack", "[2,3]|[2,3]|[2,3]", {{"axis", 1}}},
    {"Pack", "[2]|", {{"axis", -1}}},
    {"Pad", "[3] [1,2]{2,1}"},
    {"Prod", "[2,3,2] {0,2}"},
    {"Prod", "[2,3] [0]"},
    {"Qr", "[2,2]"},
    {"Qr", "[3,2]"},
    {"Qr", "[2,2,4]"},
    {"Reshape", "[2,3] {-1,1,2}"},
    {"Reverse", "[2,3] {1,1}"},
    {"ReverseV2", "[2,3] {-1,0}"},
    {"ReverseSequence", "[3,2,2] {3,1}", {{"seq_dim", 0}, {"batch_dim", 2}}},
    {"Roll", "[3,2,2] 1 []{-2}"},
    {"ScatterNd", "[3,1]{1,1,0} [3,2] {3,2}"},
    {"SegmentSum", "[4,2] {0,0,2,2}"},
    {"SegmentMax", "[4,2] {0,0,2,2}"},
    {"SegmentMean", "[4,2] {0,0,2,2}"},
    {"SegmentMin", "[4,2] {0,0,2,2}"},
    {"SegmentProd", "[5,2] {0,0,2,2,2}"},
    {"SegmentProd", "[3] {1,1,1}"},
    {"SelectV2", "[3]{1,0,1} [2,3] []"},
    {"SelectV2", "[2,1]{1,0} [1,3] [2,1]"},
    {"Select", "{1,0} [2,3] [2,3]"},
    {"Slice", "[3,3] {1,0} {-1,2}"},
    {"SparseSegmentMean", "[3,2] {2,2,0} {0,2,2}"},
    {"SpaceToBatchND", "[1,2,3,1] {2,3} [2,2]{1,1,0,0}"},
    {"SpaceToDepth", "[1,1,4,2]", {{"block_size", 2}, {"data_format", "NCHW"}}},
    {"SparseToDense", "[3,2]{0,1,1,0,0,1} {2,2} [3] []", {{"validate_indices", false}}},
    {"SparseToDense", "{1,3} {4} [] []"},
    {"SparseSoftmaxCrossEntropyWithLogits", "[3,2] {1,0,1}"},
    {"Split", "0 [2,3]", {{"num_split", 2}}},
    {"SplitV", "[2,4] {1,0,-1} []{-1}", {{"num_split", 3}}},
    {"Squeeze", "[1,2,1,3]", {{"squeeze_dims", Ints{-2}}}},
    {"StridedSlice", "[4,3] {3,2} {0,0} {-2,-1}"},
    {"StridedSlice", "[4,3] {1,0} {2,2} {1,1}", {{"shrink_axis_mask", 1}, {"end_mask", 2}}},
    {"StridedSlice", "[2,3] {0,1,0} {0,3,0} {1,1,1}", {{"new_axis_mask", 1}, {"ellipsis_mask", 4}}},
    {"StridedSliceGrad", "{4,3} {3,2} {0,0} {-2,-1} [2,2]"},
    {"Sum", "[2,3] 1"},
    {"Sum", "[2,3,2] {-1,0}"},
    {"Sum", "[2,3] [0]"},
    {"TensorScatterAdd", "[3,2] [3,2]{0,1,0,1,2,0} [3]"},
    {"TensorScatterUpdate", "[3,2] [2,2]{0,1,2,0} [2]"},
    {"Tile", "[2,1,2] {1,3,2}"},
    {"Tile", "[2] {0}"},
    {"TopKV2", "[2,2,3] 1"},
    {"Transpose", "[2,3,2] {2,0,1}"},
    {"ConjugateTranspose", "[2,3,2] {1,2,0}"},
    {"Unpack", "[2,3]", {{"num", 3}, {"axis", -1}}},
    {"UnsortedSegmentSum", "[3,2] {-1,0,0} 2"},
    {"UnsortedSegmentMax", "[3,2] {-1,0,0} 1"},
    {"UnsortedSegmentMin", "[2,2,2] [2,2]{1,0,2,1} 3"},
    {"UnsortedSegmentProd", "[4,2] {-1,0,1,0} 3"},
    {"UnsortedSegmentProd", "[2,2,2] [2,2]{1,0,2,1} 3"},
    {"UnsortedSegmentSum", "[2,2,2] [2,2]{1,0,2,1} 3"},
};

// What floating elements are drawn from; the first in which the op is finite is taken.
constexpr std::pair<double, double> kDomains[] = {
    {-2, 2}, {-0.9375, 0.9375}, {0.0625, 2}, {1.125, 3}, {0.0625, 0.9375}};

// How the elements of a point are chosen.
enum class Point { kRandom, kZeros, kOnes, kIntegers };

const char* const kPointNames[] = {"", " at zeros", " at ones", " at integers"};

Tensor make_point(DType type, const Shape& shape, Point point, std::pair<double, double> domain,
                  uint64_t seed) {
  const size_t count = static_cast<size_t>(shape.num_elements());
  std::vector<Complex128> values(count);
  const std::vector<double> numbers = spread_numbers(2 * count, domain.first, domain.second, seed);
  for (size_t i = 0; i < count; ++i) {
    switch (point) {
      case Point::kRandom:
        values[i] = Complex128(numbers[i], kComplex.contains(type) ? numbers[count + i] : 0);
        break;
      case Point::kZeros:
        values[i] = 0;
        break;
      case Point::kOnes:
        values[i] = 1;
        break;
      case Point::kIntegers:
        values[i] = static_cast<double>(static_cast<int64_t>((i + seed) % 4)) - 1;
        break;
    }
  }
  return make_tensor(type, shape, values);
}

OpCall first_call(const OpDef& op) {
  for (const Row& row : kOtherCalls) {
    if (op.name == row.op) return parse_call(op, row.inputs, row.attrs);
  }
  return valid_call(op);
}

Program make_program(const OpCall& call, const TypeChoice& types, Point point,
                     std::pair<double, double> domain, uint64_t sample = 0,
                     std::optional<size_t> output = {}) {
  Program program{.name = str_cat(to_string(call), " ", to_string(types),
                                  kPointNames[static_cast<size_t>(point)])};
  uint64_t seed = hash_bytes(call.op->name, sample) % 1000;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const DType type = operand_type(call.op->inputs[i], types);
    for (const Operand& operand : call.arguments[i]) {
      const bool given = !operand.values.empty() || !(kFloating | kComplex).contains(type);
      program.points.push_back(given ? make_operand(operand, type, Elements::kPositive, seed)
                                     : make_point(type, operand.shape, point, domain, seed));
      ++seed;
    }
  }
  if (output) program.name += str_cat(", output ", *output, " alone");
  program.build = [op = call.op, attrs = call_attrs(call, types), output](
                      const Scope& s, const std::vector<Expr>& inputs) {
    Program::Tensors tensors;
    // Rules of deprecated ops use such ops.
    if (op->deprecated_since > 0) s.graph()->set_producer_version(op->deprecated_since - 1);
    for (Expr input : inputs) {
      const bool moves = (kFloating | kComplex).contains(input.dtype());
      tensors.xs.push_back(moves ? input : Expr());
    }
    tensors.ys = s.outputs(s.add(op->name, inputs, attrs));
    if (output && *output < tensors.ys.size()) tensors.ys = {tensors.ys[*output]};
    return tensors;
  };
  return program;
}

bool works_on_handles(const OpDef& op) {
  for (const std::vector<ArgDef>* args : {&op.inputs, &op.outputs}) {
    for (const ArgDef& arg : *args) {
      if (arg.is_ref || arg.dtype == DType::kResource || arg.dtype == DType::kVariant) return true;
    }
  }
  return false;
}

// All choices among double and complex128 where an op has them, else float and complex64; for
// integers, the first.
std::vector<TypeChoice> gradient_types(const OpDef& op) {
  const std::vector<TypeChoice> all = type_choices(op);
  for (const TypeSet wanted :
       {TypeSet{DType::kDouble, DType::kComplex128}, TypeSet{DType::kFloat, DType::kComplex64}}) {
    std::map<TypeChoice, TypeChoice> found;  // by the floating part
    for (const TypeChoice& choice : all) {
      TypeChoice floating;
      bool fits = true;
      for (const auto& [attr, type] : choice) {
        const TypeSet allowed = op.find_attr(attr)->allowed_types;
        const bool number = allowed.empty() || !(allowed & wanted).empty();
        if (number) floating[attr] = type;
        fits &= !number || wanted.contains(type);
      }
      if (fits) found.try_emplace(floating, choice);
    }
    if (found.empty()) continue;
    std::vector<TypeChoice> out;
    for (const auto& [floating, choice] : found) out.push_back(choice);
    return out;
  }
  return {};
}

// The call itself, and with each bool attribute turned and each word tried.
std::vector<OpCall> with_other_attrs(const OpCall& call) {
  std::vector<OpCall> all = {call};
  for (const AttrDef& attr : call.op->attrs) {
    const AttrValue* given = call.attrs.find(attr.name);
    const AttrValue& now = given == nullptr ? attr.default_value : *given;
    if (attr.type == "bool") {
      const bool value = now.empty() ? false : *now.get<bool>();
      for (size_t i = 0, n = all.size(); i < n; ++i) {
        all.push_back(all[i]);
        all.back().attrs.set(attr.name, !value);
      }
    }
    for (const std::string& word : attr.allowed_strings) {
      if (attr.type != "string" || (!now.empty() && *now.get<std::string>() == word)) continue;
      all.push_back(call);
      all.back().attrs.set(attr.name, word);
    }
  }
  return all;
}

// For ops of two tensors, which may broadcast.
std::vector<OpCall> broadcasts(const OpCall& call) {
  if (call.arguments.size() != 2) return {};
  for (const std::vector<Operand>& operands : call.arguments) {
    if (operands.size() != 1 || !operands[0].values.empty() || operands[0].shape != Shape({2, 3})) {
      return {};
    }
  }
  const std::pair<Shape, Shape> pairs[] = {
      {{2, 3}, {3}}, {{3}, {2, 3}}, {{2, 1}, {1, 3}},    {{}, {2, 3}},
      {{2, 3}, {}},  {{}, {}},      {{1, 3}, {2, 1, 3}}, {{2, 1, 1}, {3, 2}}};
  std::vector<OpCall> all;
  for (const auto& [first, second] : pairs) {
    all.push_back(call);
    all.back().arguments[0][0].shape = first;
    all.back().arguments[1][0].shape = second;
  }
  return all;
}

// All tensors whose elements do not matter, with their first (or last) size zero.
OpCall emptied(OpCall call, bool last) {
  for (std::vector<Operand>& operands : call.arguments) {
    for (Operand& operand : operands) {
      if (!operand.values.empty() || operand.shape.rank() == 0) continue;
      std::vector<int64_t> sizes(operand.shape.dims().begin(), operand.shape.dims().end());
      (last ? sizes.back() : sizes.front()) = 0;
      operand.shape = Shape::make(sizes).value();
    }
  }
  return call;
}

class EveryGradient : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(register_ops().ok()); }

  static std::vector<const OpDef*> ops() {
    std::vector<const OpDef*> ops = OpRegistry::global().list();
    std::erase_if(ops, [](const OpDef* op) { return op->gradient == nullptr; });
    return ops;
  }
  // Those that a single call checks.
  static std::vector<const OpDef*> callable_ops() {
    std::vector<const OpDef*> out = ops();
    std::erase_if(out, [](const OpDef* op) { return works_on_handles(*op) || unchecked(*op); });
    return out;
  }
  static bool unchecked(const OpDef& op) { return listed(op, kUnchecked); }
  // The first call of each op, and those of the table, in each choice of types.
  static std::vector<std::pair<OpCall, TypeChoice>> all_calls() {
    std::vector<OpCall> calls;
    for (const OpDef* op : callable_ops()) calls.push_back(first_call(*op));
    for (const Row& row : kMoreCalls) {
      calls.push_back(
          parse_call(*OpRegistry::global().lookup(row.op).value(), row.inputs, row.attrs));
    }
    std::vector<std::pair<OpCall, TypeChoice>> all;
    for (const OpCall& call : calls) {
      for (const TypeChoice& types : gradient_types(*call.op)) all.emplace_back(call, types);
    }
    return all;
  }

  // Whether `call` could be made and has a gradient: then it was checked, and failures are
  // reported.
  static bool check_random(const OpCall& call, const TypeChoice& types,
                           std::optional<size_t> output = {}) {
    for (const auto& domain : kDomains) {
      bool finite = true;
      for (Facts facts : {Facts::kKnown, Facts::kUnknown}) {
        // Not at the same point twice.
        const uint64_t sample = facts == Facts::kKnown ? 0 : 1;
        const Program program = make_program(call, types, Point::kRandom, domain, sample, output);
        auto check = GradientCheck::create(program, facts);
        if (!check.ok()) {
          EXPECT_EQ(facts, Facts::kKnown)
              << program.name
              << " is refused with unknown shapes only: " << check.status().to_string();
          last_refusal_ = check.status();
          return false;
        }
        finite = (*check)->finite();
        if (!finite) break;
        Status status = (*check)->differentiate();
        if (status.code() == Code::kUnimplemented && facts == Facts::kKnown) {
          last_refusal_ = status;
          return false;
        }
        if (status.ok()) status = (*check)->check_shapes();
        if (status.ok()) status = (*check)->check_differences();
        EXPECT_TRUE(status.ok()) << program.name
                                 << (facts == Facts::kKnown ? "" : " (unknown shapes)") << ": "
                                 << status.to_string();
      }
      if (finite) return true;
    }
    last_refusal_ = invalid_argument("not finite in any domain");
    return false;
  }

  static inline Status last_refusal_;
};

TEST_F(EveryGradient, AgreesWithDifferences) {
  int checked = 0;
  for (const OpDef* op : callable_ops()) {
    const std::vector<TypeChoice> types = gradient_types(*op);
    EXPECT_FALSE(types.empty()) << op->name << " has no kernel for a type with gradients";
    for (const TypeChoice& choice : types) {
      const OpCall valid = first_call(*op);
      EXPECT_TRUE(check_random(valid, choice))
          << "no way to call this op is known, give it a row: " << to_string(valid) << " "
          << to_string(choice) << ": " << last_refusal_.to_string();
      ++checked;
      for (const OpCall& call : with_other_attrs(valid)) {
        if (call.attrs != valid.attrs && this_time()) checked += check_random(call, choice);
      }
      for (const OpCall& call : broadcasts(valid)) {
        if (this_time()) checked += check_random(call, choice);
      }
    }
  }
  RecordProperty("checked", checked);
}

// Ops with several results, of which one is used.
TEST_F(EveryGradient, OfOneResultAlone) {
  for (const auto& [call, types] : all_calls()) {
    const std::vector<ArgDef>& results = call.op->outputs;
    if (results.size() == 1 && !results[0].is_list()) continue;
    const Program program = make_program(call, types, Point::kRandom, kDomains[0]);
    auto whole = GradientCheck::create(program, Facts::kKnown);
    if (!whole.ok() || (*whole)->values().size() < 2) continue;
    for (size_t i = 0; i < (*whole)->values().size(); ++i) {
      EXPECT_TRUE(check_random(call, types, i)) << last_refusal_.to_string();
    }
  }
}

TEST_F(EveryGradient, AgreesInMoreCalls) {
  for (const Row& row : kMoreCalls) {
    const OpDef* op = OpRegistry::global().find(row.op);
    ASSERT_NE(op, nullptr) << row.op;
    const OpCall given = parse_call(*op, row.inputs, row.attrs);
    for (const TypeChoice& types : gradient_types(*op)) {
      EXPECT_TRUE(check_random(given, types))
          << to_string(given) << " " << to_string(types) << ": " << last_refusal_.to_string();
      for (const OpCall& call : with_other_attrs(given)) {
        if (call.attrs != given.attrs && this_time()) check_random(call, types);
      }
    }
  }
}

// Kinks, ties and zeros: whatever one-sided derivatives there are bound the gradient.
TEST_F(EveryGradient, LiesBetweenOneSidedDerivatives) {
  auto check_kinks = [](const OpCall& call, const TypeChoice& types) {
    for (Point point : {Point::kZeros, Point::kOnes, Point::kIntegers}) {
      const Program program = make_program(call, types, point, kDomains[0]);
      auto check = GradientCheck::create(program, Facts::kKnown);
      if (!check.ok()) continue;  // refused there, as a matrix without inverse is
      Status status = (*check)->differentiate();
      if (status.ok()) status = (*check)->check_shapes();
      if (status.ok()) status = (*check)->check_one_sided();
      EXPECT_TRUE(status.ok()) << program.name << ": " << status.to_string();
    }
  };
  for (const auto& [call, types] : all_calls()) {
    bool single = false;
    const auto note = [&](DType type) {
      single |= type == DType::kFloat || type == DType::kComplex64;
    };
    for (const auto& [attr, type] : types) note(type);
    for (const ArgDef& arg : call.op->inputs) note(arg.dtype);
    for (const ArgDef& arg : call.op->outputs) note(arg.dtype);
    if (!single && !listed(*call.op, kAnyTie) && this_time()) check_kinks(call, types);
  }
}

TEST_F(EveryGradient, OfTensorsWithoutElements) {
  auto check_empty = [](const OpCall& call, const TypeChoice& types) {
    const Program program = make_program(call, types, Point::kRandom, kDomains[2]);
    for (Facts facts : {Facts::kKnown, Facts::kUnknown}) {
      auto check = GradientCheck::create(program, facts);
      if (!check.ok()) return;  // these sizes must not be zero
      Status status = (*check)->differentiate();
      if (status.ok()) status = (*check)->check_shapes();
      EXPECT_TRUE(status.ok()) << program.name
                               << (facts == Facts::kKnown ? "" : " (unknown shapes)") << ": "
                               << status.to_string();
    }
  };
  for (const auto& [call, types] : all_calls()) {
    if (!this_time()) continue;
    check_empty(emptied(call, false), types);
    check_empty(emptied(call, true), types);
    for (OpCall& pair : broadcasts(call)) {
      check_empty(emptied(pair, true), types);
      std::swap(pair.arguments[0][0].shape, pair.arguments[1][0].shape);
      OpCall one_empty = emptied(pair, true);
      one_empty.arguments[0] = pair.arguments[0];
      check_empty(one_empty, types);
    }
  }
}

TEST_F(EveryGradient, OfVariablesArraysAndLists) {
  std::set<std::string> covered;
  for (const OpProgram& p : op_programs()) {
    for (Facts facts : {Facts::kKnown, Facts::kUnknown}) {
      auto check = GradientCheck::create(p.program, facts);
      ASSERT_TRUE(check.ok()) << p.program.name << ": " << check.status().to_string();
      Status status = (*check)->differentiate();
      if (status.ok()) status = (*check)->check_shapes();
      if (status.ok()) status = (*check)->check_differences();
      EXPECT_TRUE(status.ok()) << p.program.name
                               << (facts == Facts::kKnown ? "" : " (unknown shapes)") << ": "
                               << status.to_string();
      for (const std::string& op : p.ops) {
        bool found = false;
        for (int id = 0; id < (*check)->graph().num_nodes(); ++id) {
          found |= (*check)->graph().node(id).op_name() == op;
        }
        EXPECT_TRUE(found) << p.program.name << " does not use " << op;
        covered.insert(op);
      }
    }
  }
  for (const OpDef* op : ops()) {
    if (!works_on_handles(*op) || unchecked(*op)) continue;
    EXPECT_TRUE(covered.contains(op->name)) << op->name << " needs a program of its own";
  }
}

}  // namespace
}  // namespace millrace
