// Gradients of list ops, first and second order, against differences of the function itself.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "millrace/graph/graph_builder.h"
#include "millrace/kernel/eager_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/ops/tensor_list/list_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests(
    {register_array_ops, register_math_ops, register_reduce_ops, register_tensor_list_ops});

// Runs ops at once and remembers them, so that their rules can be called, backwards; what the rules
// emit is remembered as well.
class Tape final : public OpBuilder {
 public:
  std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) override {
    Node node{OpRegistry::global().find(op), inputs, {}, attrs, {}};
    std::vector<Expr> eager;
    for (Expr e : inputs) {
      if (!e.valid()) return {};
      eager.emplace_back(&eager_, e.id(), e.index());
      node.input_types.push_back(e.dtype());
    }
    for (Expr e : eager_.emit(op, eager, std::move(attrs))) {
      node.outputs.emplace_back(this, e.id(), e.index());
    }
    if (!status().ok()) return {};
    EXPECT_TRUE(infer_type_attrs(*node.op, node.input_types, node.attrs).ok());
    EXPECT_TRUE(check_attrs(*node.op, node.attrs).ok());
    nodes_.push_back(node);
    return node.outputs;
  }
  Expr constant(const Tensor& value) override {
    const Expr e = eager_.constant(value);
    return Expr(this, e.id(), e.index());
  }
  DType dtype(Expr e) const override { return value(e).dtype(); }
  PartialShape shape(Expr e) const override { return value(e).shape(); }
  const Status& status() const override { return eager_.status(); }
  void fail(Status error) override { eager_.fail(std::move(error)); }

  const Tensor& value(Expr e) const { return eager_.tensor(e); }

  // The gradient of y, a scalar, with respect to x.
  Expr gradient(Expr y, Expr x) {
    std::map<int64_t, Expr> gradients = {{y.id(), ones_like(y)}};
    const std::vector<Node> nodes = nodes_;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      std::vector<Expr> incoming;
      bool any = false;
      for (Expr output : node->outputs) {
        const auto found = gradients.find(output.id());
        incoming.push_back(found == gradients.end() ? Expr() : found->second);
        any |= incoming.back().valid();
      }
      if (!any || node->op->gradient == nullptr) continue;
      GradientContext g(*this, node->inputs, node->outputs, incoming, node->attrs,
                        node->input_types);
      const Status status = node->op->gradient(g);
      EXPECT_TRUE(status.ok()) << status.to_string();
      for (size_t i = 0; i < node->inputs.size(); ++i) {
        const auto& given = g.input_gradients()[i];
        Expr d = given.values;
        if (!d.valid()) continue;
        if (given.indices.valid()) {
          const Expr first = int32_vector(*this, {0}), one = int32_vector(*this, {1});
          const Expr rows =
              reshape(call("Slice", {given.dense_shape, first, one}), int32_vector(*this, {}));
          d = call("UnsortedSegmentSum", {d, given.indices, cast(rows, DType::kInt32)});
        }
        Expr& sum = gradients[node->inputs[i].id()];
        sum = sum.valid() ? call("AddN", {sum, d}) : d;
      }
    }
    EXPECT_TRUE(status().ok()) << status().to_string();
    return gradients.contains(x.id()) ? gradients[x.id()] : zeros_like(x);
  }

 private:
  struct Node {
    const OpDef* op;
    std::vector<Expr> inputs, outputs;
    AttrMap attrs;
    std::vector<DType> input_types;
  };
  EagerBuilder eager_;
  std::vector<Node> nodes_;
};

constexpr DType kDouble = DType::kDouble;
const AttrMap kOfDoubles = {{"element_dtype", kDouble}};
const AttrMap kOfLists = {{"element_dtype", DType::kVariant}};

// A function of a vector of six doubles.
using Function = Expr (*)(Tape& t, Expr x);

Expr any_shape(Tape& t) { return int32_scalar(t, -1); }
Expr at(Tape& t, Expr x, int i) { return call("Gather", {x, int32_scalar(t, i)}); }
Expr empty(Tape& t, const AttrMap& attrs = kOfDoubles) {
  return call("EmptyTensorList", {any_shape(t), int32_scalar(t, -1)}, attrs);
}
Expr reserve(Tape& t, int n, const AttrMap& attrs = kOfDoubles) {
  return call("TensorListReserve", {any_shape(t), int32_scalar(t, n)}, attrs);
}
Expr push(Expr list, Expr x) { return call("TensorListPushBack", {list, x}); }
Expr set(Tape& t, Expr list, int i, Expr x) {
  return call("TensorListSetItem", {list, int32_scalar(t, i), x});
}
Expr get(Tape& t, Expr list, int i, const AttrMap& attrs = kOfDoubles) {
  return call("TensorListGetItem", {list, int32_scalar(t, i), any_shape(t)}, attrs);
}
std::vector<Expr> pop(Tape& t, Expr list, const AttrMap& attrs = kOfDoubles) {
  return call_multi("TensorListPopBack", {list, any_shape(t)}, attrs);
}
Expr stack(Tape& t, Expr list) { return call("TensorListStack", {list, any_shape(t)}, kOfDoubles); }
Expr rows_of(Tape& t, Expr x) { return call("TensorListFromTensor", {x, any_shape(t)}); }
Expr total(Tape& t, Expr x) {
  return sum(x, range(int32_scalar(t, 0), rank(x), int32_scalar(t, 1)));
}

const std::map<std::string, Function> kFunctions = {
    {"push_pop",
     [](Tape& t, Expr x) {
       const Expr list = push(push(push(empty(t), at(t, x, 0)), at(t, x, 1)), at(t, x, 0));
       const std::vector<Expr> a = pop(t, list), b = pop(t, a[0]);
       return a[1] * a[1] * b[1] + total(t, stack(t, b[0])) * b[1];
     }},
    {"pop_of_what_is_used_twice",
     [](Tape& t, Expr x) {
       const Expr list = push(push(empty(t), at(t, x, 0)), at(t, x, 1));
       const std::vector<Expr> a = pop(t, list), b = pop(t, list);
       return a[1] * b[1] * total(t, square(stack(t, push(a[0], at(t, x, 2)))));
     }},
    {"get_item",
     [](Tape& t, Expr x) {
       const Expr list = rows_of(t, x);
       return get(t, list, 1) * get(t, list, 1) * get(t, list, 4);
     }},
    {"set_item",
     [](Tape& t, Expr x) {
       const Expr list = rows_of(t, x);
       const Expr other = set(t, set(t, list, 2, at(t, x, 0)), 0, at(t, x, 5) * at(t, x, 5));
       return total(t, square(stack(t, other))) * get(t, list, 2);
     }},
    {"set_item_past_the_end",
     [](Tape& t, Expr x) {
       const Expr list =
           call("TensorListSetItem", {push(empty(t), at(t, x, 0)), int32_scalar(t, 3), at(t, x, 1)},
                {{"resize_if_index_out_of_bounds", true}});
       return total(t, square(stack(t, list)) * square(stack(t, list)));
     }},
    {"stack_of_unset",
     [](Tape& t, Expr x) {
       const Expr rows = stack(t, set(t, set(t, reserve(t, 3), 0, x), 2, x * x));
       return total(t, rows * square(rows));
     }},
    {"from_tensor_and_pop",
     [](Tape& t, Expr x) {
       const Expr list = rows_of(t, reshape(x, int32_vector(t, {3, 2})));
       const std::vector<Expr> last = pop(t, list);
       return total(t, square(last[1]) * get(t, last[0], 0));
     }},
    {"gather_with_duplicates",
     [](Tape& t, Expr x) {
       const Expr rows =
           call("TensorListGather", {rows_of(t, x), int32_vector(t, {1, 3, 1, 5}), any_shape(t)},
                kOfDoubles);
       return total(t, square(rows) * rows);
     }},
    {"scatter",
     [](Tape& t, Expr x) {
       const Expr list =
           call("TensorListScatter", {x, int32_vector(t, {7, 0, 2, 3, 1, 5}), any_shape(t)});
       return total(t, square(stack(t, list))) * get(t, list, 7);
     }},
    {"scatter_v2",
     [](Tape& t, Expr x) {
       const Expr list = call("TensorListScatterV2", {x, int32_vector(t, {4, 0, 2, 3, 1, 5}),
                                                      any_shape(t), int32_scalar(t, 8)});
       return total(t, square(stack(t, list))) * get(t, list, 4);
     }},
    {"scatter_into",
     [](Tape& t, Expr x) {
       const Expr list = push(push(empty(t), at(t, x, 0)), at(t, x, 1));
       const Expr other = call("TensorListScatterIntoExistingList",
                               {list, x, int32_vector(t, {1, 2, 4, 3, 7, 6})});
       return total(t, square(stack(t, other))) * get(t, list, 1);
     }},
    {"concat",
     [](Tape& t, Expr x) {
       const Expr list = push(push(empty(t), x), x * x);
       const Expr joined = call_multi("TensorListConcat", {list}, kOfDoubles)[0];
       return total(t, square(joined) * joined);
     }},
    {"split_and_concat_v2",
     [](Tape& t, Expr x) {
       const Expr list = call("TensorListSplit",
                              {x, any_shape(t), t.constant(Tensor::vector<int64_t>({1, 0, 3, 2}))});
       const Expr joined =
           call_multi("TensorListConcatV2",
                      {list, any_shape(t),
                       t.constant(Tensor::vector<int64_t>(std::initializer_list<int64_t>{}))},
                      kOfDoubles)[0];
       return total(t, square(joined)) * total(t, get(t, list, 3));
     }},
    {"resize",
     [](Tape& t, Expr x) {
       const Expr list = rows_of(t, x);
       const Expr shorter = call("TensorListResize", {list, int32_scalar(t, 2)});
       const Expr longer = call("TensorListResize", {shorter, int32_scalar(t, 4)});
       return total(t, square(stack(t, longer))) * total(t, stack(t, list));
     }},
    {"concat_lists",
     [](Tape& t, Expr x) {
       const Expr a = rows_of(t, x), b = push(push(empty(t), at(t, x, 3)), at(t, x, 4));
       return total(t, square(stack(t, call("TensorListConcatLists", {a, b}, kOfDoubles))) *
                           stack(t, call("TensorListConcatLists", {b, a}, kOfDoubles)));
     }},
    {"push_back_batch",
     [](Tape& t, Expr x) {
       const Expr lists = call("Pack", {push(empty(t), at(t, x, 0)), empty(t)});
       const Expr pushed =
           call("TensorListPushBackBatch", {lists, reshape(x, int32_vector(t, {2, 3}))});
       const std::vector<Expr> each =
           call_multi("Unpack", {pushed}, {{"num", int64_t{2}}, {"axis", int64_t{0}}});
       return total(t, square(get(t, each[0], 1)) * get(t, each[1], 0)) * get(t, each[0], 0);
     }},
    {"lists_of_lists",
     [](Tape& t, Expr x) {
       const Expr a = push(push(empty(t), at(t, x, 0)), at(t, x, 1)), b = push(a, at(t, x, 2));
       const Expr outer = push(push(empty(t, kOfLists), a), b);
       const std::vector<Expr> last = pop(t, outer, kOfLists);
       const Expr c = get(t, last[0], 0, kOfLists);
       return total(t, square(stack(t, last[1]))) * total(t, square(stack(t, c))) * at(t, x, 0);
     }},
    // The gradients of elements that nobody reads come as nothing, not as lists.
    {"lists_of_lists_partly_used",
     [](Tape& t, Expr x) {
       const Expr a = push(empty(t), at(t, x, 0)), b = push(a, at(t, x, 1));
       const Expr outer = set(t, set(t, reserve(t, 3, kOfLists), 0, a), 1, b);
       const Expr read = get(t, outer, 1, kOfLists);
       const std::vector<Expr> last = pop(t, read);
       return square(last[1]) * get(t, last[0], 0);
     }},
    {"elements_of_different_shapes",
     [](Tape& t, Expr x) {
       const Expr list = push(push(push(empty(t), x), at(t, x, 2)), x * x);
       const std::vector<Expr> a = pop(t, list), b = pop(t, a[0]);
       return total(t, a[1] * get(t, list, 0)) * b[1];
     }},
};

constexpr double kStep = 1e-5;

std::vector<double> doubles(const Tensor& x) {
  return {x.data<double>().begin(), x.data<double>().end()};
}

// f and its gradient at x; with `v`, of the product of v and f's gradient instead.
struct Point {
  double value;
  std::vector<double> gradient;
};
Point evaluate(Function f, const std::vector<double>& at, const std::vector<double>& v) {
  Tape t;
  const Expr x = t.constant(Tensor::vector<double>(at));
  Expr y = f(t, x);
  EXPECT_TRUE(t.status().ok()) << t.status().to_string();
  if (!v.empty()) {
    y = total(t, t.gradient(y, x) * t.constant(Tensor::vector<double>(v)));
  }
  const Expr dx = t.gradient(y, x);
  if (!t.status().ok()) return {NAN, std::vector<double>(at.size(), NAN)};
  return {t.value(y).item<double>(), doubles(t.value(dx))};
}

class ListGradients : public testing::TestWithParam<std::string> {};

TEST_P(ListGradients, AgreeWithDifferences) {
  const Function f = kFunctions.at(GetParam());
  const std::vector<double> x = {0.5, -1.25, 2, 0.75, -0.4, 1.5};
  for (const std::vector<double>& v : {std::vector<double>{}, {1, -0.5, 0.25, 2, -1, 0.5}}) {
    SCOPED_TRACE(v.empty() ? "first order" : "second order");
    const std::vector<double> gradient = evaluate(f, x, v).gradient;
    ASSERT_EQ(gradient.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      std::vector<double> up = x, down = x;
      up[i] += kStep;
      down[i] -= kStep;
      const double expected = (evaluate(f, up, v).value - evaluate(f, down, v).value) / (2 * kStep);
      EXPECT_NEAR(gradient[i], expected, 1e-6 * (1 + std::abs(expected))) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ListGradients, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const auto& [name, f] : kFunctions) names.push_back(name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

// Integers have no gradient, and do not stand in the way of one.
TEST(ListGradientRules, ElementsWithoutGradient) {
  for (DType dtype : {DType::kInt32, DType::kBool, DType::kString}) {
    SCOPED_TRACE(dtype_name(dtype));
    Tape t;
    const AttrMap attrs = {{"element_dtype", dtype}};
    const Expr x = t.constant(random_tensor(dtype, {2}, 1));
    const Expr y = t.constant(Tensor::scalar(2.0));
    const Expr list = push(push(empty(t, attrs), x), x);
    const Expr outer = push(empty(t, kOfLists), list);
    const std::vector<Expr> a = pop(t, list, attrs), b = pop(t, list, attrs);
    const Expr lists = push(push(push(outer, set(t, a[0], 0, x)), b[0]), push(empty(t), y));
    const Expr z = get(t, pop(t, lists, kOfLists)[1], 0);
    const Expr used = call("TensorListLength", {get(t, lists, 0, kOfLists)});
    expect_tensor_equal(t.value(used), Tensor::scalar(2));
    expect_tensor_equal(t.value(t.gradient(square(z), y)), Tensor::scalar(4.0));
  }
}

}  // namespace
}  // namespace millrace
