// Every op's shape rule, value rule and gradient rule, given sizes, constants and attributes at the
// ends of what can be written down. A rule answers with shapes that a tensor could have, or with a
// status that is the caller's fault; it neither ends the process nor takes memory by a user's
// number.

#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <random>

#include "millrace/graph/gradient.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/ops/rule_calls_testing.h"

namespace millrace {
namespace {

using Ints = std::vector<int64_t>;

// The int32 or int64 tensor with these elements, as far as its type can hold them.
Tensor clamped(DType dtype, const Shape& shape, const Ints& elements) {
  Tensor tensor = Tensor::allocate(dtype, shape).value();
  if (dtype == DType::kInt64) {
    std::copy(elements.begin(), elements.end(), tensor.mutable_data<int64_t>().begin());
    return tensor;
  }
  constexpr int64_t kLeast = std::numeric_limits<int32_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  for (size_t i = 0; i < elements.size(); ++i) {
    tensor.mutable_data<int32_t>()[i] =
        static_cast<int32_t>(std::clamp(elements[i], kLeast, kMost));
  }
  return tensor;
}

// Made once: every op with an integer input is given it.
const Known& million_zeros(DType dtype) {
  static auto* made = new std::map<DType, Known>;
  auto known = made->find(dtype);
  if (known == made->end()) {
    const Tensor zeros = Tensor::zeros(dtype, Shape{1'000'000}).value();
    known = made->emplace(dtype, known_constant(zeros)).first;
  }
  return known->second;
}

std::vector<Known> extreme_ints(const Tensor& usual) {
  std::vector<Known> all;
  auto add = [&](const Shape& shape, const Ints& values) {
    all.push_back(known_constant(clamped(usual.dtype(), shape, values)));
  };
  Ints elements;
  for (const Complex128& e : values_of(usual)) elements.push_back(static_cast<int64_t>(e.real()));
  for (int64_t extreme : kExtremeInts) {
    for (size_t i = 0; i < std::min<size_t>(elements.size(), 6); ++i) {
      Ints changed = elements;
      changed[i] = extreme;
      add(usual.shape(), changed);
    }
    add(usual.shape(), Ints(elements.size(), extreme));
    for (const Shape& shape : {Shape(), Shape{1}, Shape{7}}) {
      add(shape, Ints(static_cast<size_t>(shape.num_elements()), extreme));
    }
  }
  for (int64_t length : {0, 254, 255, 256, 1000}) {
    add(Shape{length}, Ints(static_cast<size_t>(length), 1));
  }
  all.push_back(million_zeros(usual.dtype()));
  if (usual.rank() > 1) return all;
  Known partly = {.facts = {.shape = usual.shape()}};
  partly.facts.value = PartialValue{.is_scalar = usual.rank() == 0};
  partly.facts.value->elements.assign(elements.size(), std::numeric_limits<int64_t>::max());
  if (!elements.empty()) partly.facts.value->elements[0].reset();
  all.push_back(partly);
  return all;
}

std::vector<Known> extreme_constants(const Tensor& usual) {
  if (kIndexTypes.contains(usual.dtype())) return extreme_ints(usual);
  std::vector<Known> all;
  if (!kFloating.contains(usual.dtype())) return all;
  const auto count = static_cast<size_t>(usual.num_elements());
  for (float extreme : kExtremeFloats) {
    all.push_back(known_constant(make_tensor(usual.dtype(), usual.shape(),
                                             std::vector<Complex128>(count, Complex128(extreme)))));
  }
  return all;
}

// A call that works, and for each tensor and attribute what may stand in its place.
class Extremes {
 public:
  Extremes(const OpDef& op, DType numbers) {
    const TypeChoice types = representative_types(op, numbers);
    const OpCall call = valid_call(op);
    usual_ = rule_call(call, types);
    for (const AttrDef& attr : op.attrs) {
      attrs_.push_back(extreme_attrs(attr, usual_.attrs.find(attr.name)));
    }
    for (size_t i = 0; i < usual_.arguments.size(); ++i) {
      std::vector<Known>& choices = inputs_.emplace_back(1);
      for (size_t k = 0; k < usual_.arguments[i].size(); ++k) {
        const Known& usual = usual_.arguments[i][k];
        if (k == 0 && usual.constant.valid()) {
          for (Known& known : extreme_constants(usual.constant)) choices.push_back(known);
        }
        for (const PartialShape& shape : extreme_shapes(call.arguments[i][k].shape)) {
          Known& known = choices.emplace_back();
          if (usual.facts.resource.empty()) {
            known.facts.shape = shape;
          } else {
            known.facts = usual.facts;
            known.facts.resource[0].shape = shape;
          }
        }
      }
    }
  }

  // Calls body with each change to the usual call in turn.
  void for_each(FunctionRef<void(RuleCall&)> body) const {
    RuleCall call = usual_;
    body(call);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      for (Known& known : call.arguments[i]) {
        const Known usual = known;
        for (const Known& extreme : inputs_[i]) {
          known = extreme;
          body(call);
        }
        known = usual;
      }
    }
    for (size_t i = 0; i < attrs_.size(); ++i) {
      for (const AttrValue& extreme : attrs_[i]) {
        call = usual_;
        set_attr(call, i, extreme);
        body(call);
      }
      if (AttrValue list = long_attr(call.op->attrs[i]); !list.empty()) {
        set_attr(call, i, std::move(list));
        body(call);
      }
    }
  }

  // The usual call with about half of everything changed.
  RuleCall random(std::mt19937& random) const {
    RuleCall call = usual_;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      for (Known& known : call.arguments[i]) {
        if (random() % 2 == 0) known = inputs_[i][random() % inputs_[i].size()];
        if (random() % 4 == 0) {
          known.facts.value.reset();
          known.constant = Tensor();
        }
      }
    }
    for (size_t i = 0; i < attrs_.size(); ++i) {
      if (attrs_[i].empty() || random() % 3 != 0) continue;
      set_attr(call, i, attrs_[i][random() % attrs_[i].size()]);
    }
    return call;
  }

 private:
  // Keeps lists of inputs as long as the attribute that counts them says.
  static void set_attr(RuleCall& call, size_t i, AttrValue value) {
    const std::string& name = call.op->attrs[i].name;
    const int64_t* given = value.get<int64_t>();
    const int64_t number = given == nullptr ? -1 : *given;
    call.attrs.set(name, std::move(value));
    if (number < 0 || number > 1000) return;
    for (size_t k = 0; k < call.arguments.size(); ++k) {
      std::vector<Known>& list = call.arguments[k];
      if (call.op->inputs[k].number_attr != name) continue;
      list.resize(static_cast<size_t>(number), list.empty() ? Known{} : list.front());
    }
  }

  RuleCall usual_;
  std::vector<std::vector<Known>> inputs_;     // by argument
  std::vector<std::vector<AttrValue>> attrs_;  // by attribute
};

void expect_callers_fault(const Status& status) {
  EXPECT_NE(status.code(), Code::kInternal) << status.to_string();
  EXPECT_NE(status.code(), Code::kUnknown) << status.to_string();
}

void expect_sound(const TensorFacts& facts) {
  if (facts.shape.rank_known()) {
    EXPECT_TRUE(PartialShape::make(facts.shape.dims()).ok()) << facts.shape.to_string();
  }
  if (!facts.value) return;
  const auto count = static_cast<int64_t>(facts.value->elements.size());
  EXPECT_LE(count, kMaxValueElements);
  const PartialShape shape = facts.value->is_scalar ? Shape() : Shape{count};
  EXPECT_TRUE(facts.shape.compatible(shape))
      << facts.shape.to_string() << " with a value of shape " << shape.to_string();
}

void infer_whatever(RuleCall& call) {
  const Result<std::vector<TensorFacts>> result = infer(call);
  expect_callers_fault(result.status());
  if (!result.ok()) return;
  for (size_t i = 0; i < std::min<size_t>(result->size(), 100); ++i) expect_sound((*result)[i]);
}

// The same in a graph, where the rules of all that the gradient rule adds run as well.
void differentiate_whatever(Graph& graph, const RuleCall& call) {
  AttrMap attrs = call.attrs;
  if (!check_attrs(*call.op, attrs).ok()) return;
  GraphBuilder builder(graph);
  const auto placeholder = [&](const char* op, DType dtype, const PartialShape& shape) {
    return builder.expr({builder.add(op, "", {}, {{"dtype", dtype}, {"shape", shape}}).value(), 0});
  };
  std::vector<Expr> inputs, outputs, gradients;
  std::vector<DType> types;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const ArgDef& arg = call.op->inputs[i];
    const Result<std::vector<DType>> list = expand_types({arg}, attrs);
    if (!list.ok() || list->size() != call.arguments[i].size()) return;
    for (const Known& known : call.arguments[i]) {
      types.push_back(base_type((*list)[0]));
      inputs.push_back(known.constant.valid()
                           ? builder.constant(known.constant)
                           : placeholder(arg.is_ref ? "VariableV2" : "Placeholder", types.back(),
                                         known.facts.shape));
    }
  }
  std::vector<Output> edges;
  for (Expr input : inputs) edges.push_back(GraphBuilder::output(input));
  const Result<NodeId> node = builder.add(call.op->name, "", edges, call.attrs);
  if (!node.ok()) return;
  for (int i = 0; i < graph.node(*node).num_outputs(); ++i) {
    const Expr y = outputs.emplace_back(builder.expr({*node, i}));
    const DType dtype = builder.dtype(y);
    const bool flows = has_gradients(dtype) && dtype != DType::kResource;
    gradients.push_back(flows ? placeholder("Placeholder", dtype, builder.shape(y)) : Expr());
  }
  GradientContext context(builder, inputs, outputs, gradients, attrs, types);
  const Status status = call.op->gradient(context);
  expect_callers_fault(status.ok() ? builder.status() : status);
}

class ExtremeRules : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(register_ops().ok()); }

  // Calls `body` with one of `one_of` extremes of the op, chosen at random, and `count` calls with
  // several of them. The first failure is enough.
  void give(const OpDef& op, DType numbers, int one_of, int count,
            FunctionRef<void(RuleCall&)> body) {
    const int failures = num_failures();
    auto run = [&](RuleCall& call) {
      if (num_failures() > failures) return;
      running_ = &call;
      body(call);
      if (num_failures() > failures) ADD_FAILURE() << to_string(call) << "\nseed " << seed_;
    };
    alarm(60);
    const Extremes extremes(op, numbers);
    extremes.for_each([&](RuleCall& call) {
      if (random_() % static_cast<uint32_t>(one_of) == 0) run(call);
    });
    for (int i = 0; i < count; ++i) {
      RuleCall call = extremes.random(random_);
      run(call);
    }
    alarm(0);
    running_ = nullptr;
  }

  static int num_failures() {
    return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  }

 private:
  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  const RuleCall* running_ = nullptr;
  CrashReport report_{[this] {
    return running_ == nullptr ? "" : str_cat(to_string(*running_), "\nseed ", seed_);
  }};
};

TEST_F(ExtremeRules, ShapesAndValues) {
  for (const OpDef* op : OpRegistry::global().list()) {
    give(*op, DType::kFloat, 1, 100, [](RuleCall& call) { infer_whatever(call); });
    if (op->value == nullptr) continue;
    give(*op, DType::kInt64, 1, 100, [](RuleCall& call) { infer_whatever(call); });
  }
}

TEST_F(ExtremeRules, Gradients) {
  Ref<Graph> graph = make_ref<Graph>();
  for (const OpDef* op : OpRegistry::global().list()) {
    if (op->gradient == nullptr) continue;
    give(*op, DType::kFloat, 5, 10, [&](RuleCall& call) {
      if (graph->num_nodes() > 2000) graph = make_ref<Graph>();
      differentiate_whatever(*graph, call);
    });
  }
}

}  // namespace
}  // namespace millrace
