// What passes are told by an op's traits holds for its kernels, to the bit.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/op_calls_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// Numbers at the edges of their type, in a matrix of two rows.
template <class T>
Tensor edges() {
  std::vector<T> values;
  if constexpr (std::is_integral_v<T>) {
    using Limits = std::numeric_limits<T>;
    values = {Limits::min(), Limits::max(), T(0), T(1), static_cast<T>(-1), T(2)};
  } else {
    for (float v : {0.0F, -0.0F, 1.5F, -2.25F, 1e-40F, 1e30F,
                    std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                    std::numeric_limits<float>::quiet_NaN(), -7.0F}) {
      values.push_back(static_cast<T>(v));
    }
  }
  const int64_t columns = static_cast<int64_t>(values.size()) / 2;
  Tensor out = Tensor::allocate(dtype_of<T>, Shape{2, columns}).value();
  std::copy(values.begin(), values.end(), out.mutable_data<T>().begin());
  return out;
}

template <class T>
Tensor neutral(Neutral what) {
  return Tensor::scalar<T>(static_cast<T>(what == Neutral::kOne    ? 1.0F
                                          : what == Neutral::kZero ? 0.0F
                                                                   : -0.0F));
}

Tensor ints(std::initializer_list<int32_t> values) { return Tensor::vector<int32_t>(values); }

class Traits : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(register_ops().ok()); }

  template <class Which>
  static std::vector<const OpDef*> ops_with(Which which) {
    std::vector<const OpDef*> out;
    for (const OpDef* op : OpRegistry::global().list()) {
      if (which(op->traits)) out.push_back(op);
    }
    EXPECT_FALSE(out.empty());
    return out;
  }
  static void expect_same(const Result<Tensor>& y, const Tensor& x, const std::string& what) {
    ASSERT_TRUE(y.ok()) << what << ": " << y.status().to_string();
    EXPECT_TRUE(bit_equal(*y, x)) << what << ": " << x.to_string(16) << " became "
                                  << y->to_string(16);
  }
};

TEST_F(Traits, NeutralElementsLeaveTheOtherOperandAlone) {
  for (const OpDef* op : ops_with([](const OpTraits& t) { return t.neutral != Neutral::kNone; })) {
    int tried = 0;
    for (const TypeChoice& types : type_choices(*op)) {
      const DType dtype = types.empty() ? DType::kBool : types.begin()->second;
      using Types = ConcatTypes<RealTypes, TypeList<bool>>;
      if (!type_set_of<Types>.contains(dtype)) continue;
      ++tried;
      (void)dispatch<Types>(dtype, [&]<class T>() {
        const Tensor x = edges<T>(), e = neutral<T>(op->traits.neutral);
        const std::string what = str_cat(op->name, " of ", dtype);
        expect_same(OpTester(op->name).input(x).input(e).run_one(), x, what);
        if (!op->traits.commutative) return;
        expect_same(OpTester(op->name).input(e).input(x).run_one(), x, what);
      });
    }
    EXPECT_GT(tried, 0) << op->name;
  }
}

TEST_F(Traits, WhatHasNothingToDoHandsItsInputOn) {
  for (const OpDef* op : ops_with([](const OpTraits& t) { return t.same_when_empty != 0; })) {
    ASSERT_EQ(op->traits.same_when_empty, 2u) << op->name << ": this test knows input 1 only";
    const Tensor x = op->inputs[0].dtype == DType::kBool ? edges<bool>() : edges<float>();
    expect_same(OpTester(op->name).input(x).input(ints({})).run_one(), x, op->name);
  }
}

TEST_F(Traits, PermutationsMoveElementsAndNothingElse) {
  for (const OpDef* op : ops_with([](const OpTraits& t) { return t.permutes; })) {
    const Tensor x = edges<float>();
    expect_same(OpTester(op->name).input(x).input(ints({0, 1})).run_one(), x, op->name);
    const Tensor y = OpTester(op->name).input(x).input(ints({1, 0})).run_one().value();
    EXPECT_EQ(y.shape(), (Shape{5, 2}));
    expect_same(OpTester(op->name).input(y).input(ints({1, 0})).run_one(), x, op->name);
    // Dimension i of the output is dimension perm[i] of the input.
    const Tensor cube = Tensor::zeros(DType::kFloat, Shape{2, 3, 4}).value();
    EXPECT_EQ(OpTester(op->name).input(cube).input(ints({2, 0, 1})).run_one()->shape(),
              (Shape{4, 2, 3}));
  }
}

TEST_F(Traits, OneShapeMeansOneTensor) {
  const Tensor none = Tensor::zeros(DType::kInt32, Shape{2, 2}).value();
  // Besides x, which is [2,5]. An op with the trait has a row here; a reduction is known by its
  // axes.
  const std::map<std::string, std::vector<Tensor>> rest = {{
                                                               "BroadcastTo",
                                                               {ints({2, 5})},
                                                           },
                                                           {"Pad", {none}},
                                                           {"PadV2", {none, Tensor::scalar(3.0F)}},
                                                           {"Reshape", {ints({-1, 5})}},
                                                           {"Slice", {ints({0, 0}), ints({2, -1})}},
                                                           {"Squeeze", {}},
                                                           {"StopGradient", {}},
                                                           {"Tile", {ints({1, 1})}}};
  for (const OpDef* op : ops_with([](const OpTraits& t) { return t.same_when_same_shape; })) {
    OpTester tester(op->name);
    Tensor x = op->inputs[0].dtype == DType::kBool ? edges<bool>() : edges<float>();
    if (auto row = rest.find(op->name); row != rest.end()) {
      tester.input(x);
      for (const Tensor& input : row->second) tester.input(input);
    } else {
      ASSERT_NE(op->find_attr("keep_dims"), nullptr) << op->name << " needs a row in this test";
      x = x.reshaped(Shape{1, x.num_elements()}).value();
      tester.attr("keep_dims", true).input(x).input(ints({0}));
    }
    expect_same(tester.run_one(), x, op->name);
  }
}

TEST_F(Traits, FoldsDropOrKeepWhatTheyFold) {
  int folds = 0;
  for (const OpDef* op : ops_with([](const OpTraits& t) { return t.folds; })) {
    const bool logical = op->inputs[0].dtype == DType::kBool;
    const Tensor x = Tensor::zeros(logical ? DType::kBool : DType::kFloat, Shape{2, 3, 4}).value();
    for (bool keep_dims : {false, true}) {
      OpTester tester(op->name);
      tester.attr("keep_dims", keep_dims).input(x).input(ints({-1, 1}));
      EXPECT_EQ(tester.run_one()->shape(), keep_dims ? Shape({2, 1, 1}) : Shape({2})) << op->name;
    }
    ++folds;
  }
  EXPECT_GE(folds, 7);
}

// Two results must be as near as rounding allows.
void expect_near(const Tensor& y, size_t i, double expected, std::string_view op) {
  EXPECT_NEAR(y.data<float>()[i], expected, 1e-4 * (1 + std::fabs(expected))) << op << " at " << i;
}
bool has_bit(uint32_t bits, size_t i) { return (bits >> i & 1) != 0; }

// A call of floats, 32-bit integers where the op has no floats, and its results in two layouts of
// the tensors that go in: as they are, and with channels, in second place, last.
class InBothLayouts {
 public:
  InBothLayouts(const OpDef& op, std::string_view inputs, AttrMap attrs = {}) : op_(op) {
    TypeChoice types;
    for (const AttrDef& attr : op.attrs) {
      if (attr.type != "type") continue;
      types[attr.name] = attr.allowed_types.empty() || attr.allowed_types.contains(DType::kFloat)
                             ? DType::kFloat
                             : DType::kInt32;
    }
    const OpCall call = inputs.empty() ? valid_call(op) : parse_call(op, inputs, attrs);
    attrs_ = call_attrs(call, types);
    uint64_t seed = 1;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
      std::vector<Tensor>& tensors = arguments_.emplace_back();
      for (const Operand& operand : call.arguments[i]) {
        const DType type = operand_type(op.inputs[i], types);
        tensors.push_back(make_operand(operand, type, Elements::kSigned, seed++));
      }
    }
  }

  AttrMap& attrs() { return attrs_; }
  std::vector<std::vector<Tensor>>& arguments() { return arguments_; }

  std::vector<Tensor> run() const {
    OpTester tester(op_.name);
    for (const auto& [name, value] : attrs_) tester.attr(name, value);
    for (size_t i = 0; i < arguments_.size(); ++i) {
      op_.inputs[i].is_list() ? tester.input_list(arguments_[i]) : tester.input(arguments_[i][0]);
    }
    Result<std::vector<Tensor>> out = tester.run();
    EXPECT_TRUE(out.ok()) << op_.name << ": " << out.status().to_string();
    return out.ok() ? *std::move(out) : std::vector<Tensor>();
  }

  // The permutation that puts the second dimension last, or back where that is `first`.
  static std::vector<int32_t> order(int rank, bool first) {
    std::vector<int32_t> out = {0};
    if (first) out.push_back(rank - 1);
    for (int i = first ? 1 : 2; i < rank - (first ? 1 : 0); ++i) out.push_back(i);
    if (!first) out.push_back(1);
    return out;
  }
  static Tensor transposed(const Tensor& x, bool first) {
    const std::vector<int32_t> by = order(x.rank(), first);
    return OpTester("Transpose")
        .input(x)
        .input(Tensor::vector(std::span<const int32_t>(by)))
        .run_one()
        .value();
  }
  // The elements or rows of a list for `rank` dimensions in another order.
  static Tensor reordered(const Tensor& list, bool first) {
    const std::vector<int32_t> by = order(static_cast<int>(list.dim(0)), first);
    return OpTester("GatherV2")
        .input(list)
        .input(Tensor::vector(std::span<const int32_t>(by)))
        .input(Tensor::scalar<int32_t>(0))
        .run_one()
        .value();
  }

  static void expect_close(const Tensor& a, const Tensor& b, const std::string& what) {
    ASSERT_EQ(a.shape(), b.shape()) << what;
    if (a.dtype() != DType::kFloat) {
      EXPECT_TRUE(bit_equal(a, b)) << what;
      return;
    }
    for (size_t i = 0; i < a.data<float>().size(); ++i) {
      EXPECT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-5) << what << " at " << i;
    }
  }

 private:
  const OpDef& op_;
  AttrMap attrs_;
  std::vector<std::vector<Tensor>> arguments_;
};

// Whether the argument is among those that are listed, with commas between them.
bool is_named(std::string_view names, const ArgDef& arg) {
  return str_cat(",", names, ",").find(str_cat(",", arg.name, ",")) != std::string::npos;
}
bool has_images(const OpTraits& t) { return t.image_inputs != 0 || t.image_outputs != 0; }

TEST_F(Traits, ImagesMayHaveTheirChannelsFirst) {
  const std::map<std::string, std::string> rows = {{"BiasAdd", "[2,3,2,4] [4]"},
                                                   {"BiasAddGrad", "[2,3,2,4]"}};
  for (const OpDef* op : ops_with(has_images)) {
    const auto row = rows.find(op->name);
    InBothLayouts call(*op, row == rows.end() ? "" : row->second);
    const std::vector<Tensor> last = call.run();
    const AttrValue* const given = call.attrs().find("data_format");
    const AttrValue format =
        given != nullptr ? *given : op->find_attr("data_format")->default_value;
    ASSERT_TRUE(format == AttrValue("NHWC") || format == AttrValue("NDHWC")) << op->name;
    const size_t rank = format == AttrValue("NHWC") ? 4 : 5;
    call.attrs().set("data_format", rank == 4 ? "NCHW" : "NCDHW");
    for (const AttrDef& attr : op->attrs) {
      if (attr.type != "list(int)") continue;
      const AttrValue* const value = call.attrs().find(attr.name);
      const auto* list =
          (value != nullptr ? *value : attr.default_value).get<std::vector<int64_t>>();
      if (list == nullptr || list->empty()) continue;
      const size_t each = list->size() / rank;
      std::vector<int64_t> permuted;
      for (int32_t from : InBothLayouts::order(static_cast<int>(rank), true)) {
        for (size_t i = 0; i < each; ++i) {
          permuted.push_back((*list)[static_cast<size_t>(from) * each + i]);
        }
      }
      call.attrs().set(attr.name, permuted);
    }
    for (size_t i = 0; i < op->inputs.size(); ++i) {
      Tensor& x = call.arguments()[i][0];
      if (has_bit(op->traits.image_inputs, i)) x = InBothLayouts::transposed(x, true);
      if (is_named(op->traits.each_dimension_in, op->inputs[i]))
        x = InBothLayouts::reordered(x, true);
    }
    const std::vector<Tensor> first = call.run();
    ASSERT_EQ(last.size(), first.size()) << op->name;
    for (size_t i = 0; i < last.size(); ++i) {
      const bool image = has_bit(op->traits.image_outputs, i);
      InBothLayouts::expect_close(image ? InBothLayouts::transposed(last[i], true) : last[i],
                                  first[i], op->name);
    }
  }
}

TEST_F(Traits, AffineOpsScaleAndShift) {
  const auto is_affine = [](const OpTraits& t) { return t.affine_in != 0; };
  int seen = 0;
  for (const OpDef* op : ops_with(is_affine)) {
    const bool norm = op->find_attr("is_training") != nullptr;
    const std::string row = norm                     ? "[2,3,2,4] [4] [4] [4] [4]{1,2,3,4}"
                            : op->traits.elementwise ? "[2,3,4] [2,3,4]{1,2,3,4,5,6,7,8,9,10,11,"
                                                       "12,13,14,15,16,17,18,19,20,21,22,23,24}"
                                                     : "[2,3,4] [4]";
    for (size_t in = 0; in < op->inputs.size(); ++in) {
      if (!has_bit(op->traits.affine_in, in)) continue;
      ++seen;
      const AttrMap attrs = norm ? AttrMap{{"is_training", false}} : AttrMap();
      const auto call = [&](std::optional<float> x, bool shifts) {
        InBothLayouts out(*op, row, attrs);
        for (size_t i = 0; i < op->inputs.size(); ++i) {
          const auto data = out.arguments()[i][0].mutable_data<float>();
          if (i == in && x) std::ranges::fill(data, *x);
          if (i != in && !shifts && has_bit(op->traits.shifted_by, i))
            std::ranges::fill(data, 0.0F);
        }
        return out;
      };
      InBothLayouts whole = call({}, true);
      const Tensor y = whole.run()[0], scale = call(1, false).run()[0];
      const Tensor shift = call(0, true).run()[0], none = call(0, false).run()[0];
      for (size_t i = 0; i < y.data<float>().size(); ++i) {
        const double x = whole.arguments()[in][0].data<float>()[i];
        expect_near(y, i, scale.data<float>()[i] * x + shift.data<float>()[i], op->name);
        expect_near(none, i, 0, op->name);
      }
    }
  }
  EXPECT_GE(seen, 14);
}

TEST_F(Traits, FiltersScaleTheirChannels) {
  const auto has_filter = [](const OpTraits& t) { return t.filter_channels != 0; };
  const std::map<std::string, std::string> rows = {{"MatMul", "[2,3] [3,4]"},
                                                   {"BatchMatMul", "[2,2,3] [2,3,4]"},
                                                   {"BatchMatMulV2", "[2,2,3] [3,4]"},
                                                   {"BatchMatMulV3", "[2,2,3] [3,4]"}};
  for (const OpDef* op : ops_with(has_filter)) {
    const auto row = rows.find(op->name);
    InBothLayouts call(*op, row == rows.end() ? "" : row->second);
    const Tensor y = call.run()[0];
    Tensor& filter = call.arguments()[1][0];
    // Channel c becomes c + 1 times as large.
    for (int64_t i = 0; i < filter.num_elements(); ++i) {
      int64_t channel = 0, times = 1, rest = i;
      for (int d = 0; d < filter.rank(); ++d) {
        const int64_t size = filter.dim(filter.rank() - 1 - d);
        if (has_bit(op->traits.filter_channels, static_cast<size_t>(d))) {
          channel += rest % size * times;
          times *= size;
        }
        rest /= size;
      }
      filter.mutable_data<float>()[static_cast<size_t>(i)] *= static_cast<float>(channel + 1);
    }
    const Tensor scaled = call.run()[0];
    ASSERT_GT(y.dim(y.rank() - 1), 1) << op->name << " needs more channels in this test";
    for (size_t i = 0; i < y.data<float>().size(); ++i) {
      const size_t channel = i % static_cast<size_t>(y.dim(y.rank() - 1));
      expect_near(scaled, i, y.data<float>()[i] * static_cast<double>(channel + 1), op->name);
    }
  }
}

TEST_F(Traits, DimensionsMayBeRenumbered) {
  // Of what has four dimensions. An op with one of the traits has a row here; a reduction is known
  // by its axes.
  struct Row {
    std::string inputs;
    AttrMap attrs = {};
  };
  const std::map<std::string, Row> rows = {
      {"ArgMax", {"[2,3,2,4] 1"}},
      {"ArgMin", {"[2,3,2,4] 1"}},
      {"BroadcastTo", {"[2,1,2,1] {2,3,2,4}"}},
      {"Concat", {"1 [2,3,2,2]|[2,1,2,2]"}},
      {"ConcatV2", {"[2,3,2,2]|[2,3,1,2] 2"}},
      {"Cumprod", {"[2,3,2,4] 1"}},
      {"Cumsum", {"[2,3,2,4] 3"}},
      {"Fill", {"{2,3,2,4} []"}},
      {"MirrorPad", {"[2,3,2,4] [4,2]{0,0,1,0,0,1,2,0}", {{"mode", "SYMMETRIC"}}}},
      {"MirrorPadGrad", {"[2,4,3,6] [4,2]{0,0,1,0,0,1,2,0}", {{"mode", "SYMMETRIC"}}}},
      {"Pad", {"[2,3,2,4] [4,2]{0,1,1,0,0,1,2,0}"}},
      {"PadV2", {"[2,3,2,4] [4,2]{0,1,1,0,0,1,2,0} []"}},
      {"ReverseV2", {"[2,3,2,4] {1,-1}"}},
      {"Slice", {"[2,3,2,4] {0,1,0,2} {2,-1,1,2}"}},
      {"Split", {"1 [2,4,2,3]", {{"num_split", 2}}}},
      {"SplitV", {"[2,4,2,3] {1,3} 1", {{"num_split", 2}}}},
      {"Tile", {"[2,3,2,4] {1,2,1,3}"}}};
  for (const OpDef* op : ops_with([](const OpTraits& t) {
         return !has_images(t) && (!t.dimensions_in.empty() || !t.each_dimension_in.empty());
       })) {
    const auto row = rows.find(op->name);
    if (row == rows.end()) {
      ASSERT_NE(op->find_attr("keep_dims"), nullptr) << op->name << " needs a row in this test";
    }
    InBothLayouts call = row == rows.end()
                             ? InBothLayouts(*op, "[2,3,2,4] {2,-1}")
                             : InBothLayouts(*op, row->second.inputs, row->second.attrs);
    const std::vector<Tensor> first = call.run();
    for (size_t i = 0; i < op->inputs.size(); ++i) {
      for (Tensor& x : call.arguments()[i]) {
        if (is_named(op->traits.dimensions_in, op->inputs[i])) {
          for (int32_t& dim : x.mutable_data<int32_t>()) {
            dim = std::vector<int32_t>{0, 3, 1, 2}[static_cast<size_t>((dim + 4) % 4)];
          }
        } else if (is_named(op->traits.each_dimension_in, op->inputs[i])) {
          x = InBothLayouts::reordered(x, false);
        } else if (!op->inputs[i].host && x.rank() == 4) {
          x = InBothLayouts::transposed(x, false);
        }
      }
    }
    const std::vector<Tensor> last = call.run();
    ASSERT_EQ(last.size(), first.size()) << op->name;
    for (size_t i = 0; i < last.size(); ++i) {
      InBothLayouts::expect_close(
          first[i].rank() == 4 ? InBothLayouts::transposed(first[i], false) : first[i], last[i],
          op->name);
    }
  }
}

}  // namespace
}  // namespace millrace
