// What passes are told by an op's traits holds for its kernels, to the bit.

#include <gtest/gtest.h>

#include <limits>
#include <map>

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

}  // namespace
}  // namespace millrace
