#include "millrace/eager/gradient_needs.h"

#include <algorithm>
#include <deque>
#include <optional>

#include "millrace/autodiff/gradient_registry.h"
#include "millrace/eager/record.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/op_registry.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace::eager {
namespace {

// The elements of small integer tensors, for shape rules.
std::optional<PartialValue> small_value(const Tensor& tensor) {
  constexpr int64_t kMaxElements = 64;
  const bool wide = tensor.dtype() == DType::kInt64;
  if (!wide && tensor.dtype() != DType::kInt32) return std::nullopt;
  if (tensor.shape().rank() > 1 || tensor.num_elements() > kMaxElements) return std::nullopt;
  PartialValue value{.is_scalar = tensor.shape().rank() == 0, .elements = {}};
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    const auto at = static_cast<size_t>(i);
    value.elements.emplace_back(wide ? tensor.data<int64_t>()[at]
                                     : int64_t{tensor.data<int32_t>()[at]});
  }
  return value;
}

// A builder that makes nothing: it notes which of the first tensors each new one was made from, and
// what the rule asked for while it decided what to do.
class Probe final : public OpBuilder {
 public:
  explicit Probe(const OpRegistry& registry) : registry_(registry) {}

  // `value`: the elements, where they are known.
  Expr stand_in(DType dtype, PartialShape shape, uint64_t sources, const Tensor* value = nullptr) {
    TensorFacts facts{.shape = std::move(shape), .value = {}, .constant = value, .resource = {}};
    if (value != nullptr && has_elements(*value)) facts.value = small_value(*value);
    return add({dtype, std::move(facts), sources, sources, true});
  }
  // The tensors whose elements `e` was made from; 0 of an invalid one.
  uint64_t sources(Expr e) const { return e.valid() ? tensor(e).sources : 0; }
  // Those whose elements were looked at.
  uint64_t looked_at() const { return looked_at_; }
  // Those whose values decide.
  uint64_t values_asked() const { return values_asked_; }
  bool asked_shapes() const { return asked_shapes_; }
  // Whether it asked for a shape that is known only when the rule runs.
  bool asked_unknown_shapes() const { return asked_unknown_shapes_; }

  std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) override {
    Result<std::vector<Expr>> made = make(op, inputs, std::move(attrs));
    if (made.ok()) return *std::move(made);
    fail(made.status());
    return {};
  }
  Expr constant(const Tensor& value) override {
    constants_.push_back(value);
    return stand_in(value.dtype(), value.shape(), 0, &constants_.back());
  }
  DType dtype(Expr e) const override { return tensor(e).dtype; }
  PartialShape shape(Expr e) const override {
    const StandIn& asked = tensor(e);
    asked_shapes_ = true;
    if (!asked.given) {
      // The shape of what is computed is that of its value; it may follow from values.
      looked_at_ |= asked.sources;
      values_asked_ |= asked.valued;
      asked_unknown_shapes_ |= !asked.facts.shape.fully_known();
    }
    return asked.facts.shape;
  }
  const Tensor* constant_value(Expr e) const override {
    const StandIn& asked = tensor(e);
    if (asked.facts.constant != nullptr) {
      looked_at_ |= asked.sources;
      values_asked_ |= asked.sources;
    }
    return asked.facts.constant;
  }
  const Status& status() const override { return status_; }
  void fail(Status error) override {
    if (status_.ok()) status_ = std::move(error);
  }

 private:
  struct StandIn {
    DType dtype;
    TensorFacts facts;
    uint64_t sources;
    uint64_t valued;  // those among the first tensors that its shape may depend on by their values
    bool given;       // and not computed
  };
  const StandIn& tensor(Expr e) const { return tensors_[static_cast<size_t>(e.id())]; }
  Expr add(StandIn stand_in) {
    tensors_.push_back(std::move(stand_in));
    return Expr(this, static_cast<int64_t>(tensors_.size()) - 1, 0);
  }

  Result<std::vector<Expr>> make(std::string_view op, const std::vector<Expr>& inputs,
                                 AttrMap attrs) {
    MR_TRY(status_);
    MR_TRY_ASSIGN(const OpDef* def, registry_.lookup(op));
    std::vector<DType> types;
    std::vector<const TensorFacts*> facts;
    uint64_t sources = 0, valued = 0;
    for (Expr input : inputs) {
      if (!input.valid()) return invalid_argument(op, ": an input is missing");
      types.push_back(input.dtype());
      facts.push_back(&tensor(input).facts);
      sources |= this->sources(input);
      if (!tensor(input).given || tensor(input).facts.value) valued |= tensor(input).valued;
    }
    MR_TRY(infer_type_attrs(*def, types, attrs));
    MR_TRY(check_attrs(*def, attrs));
    MR_TRY_ASSIGN(const std::vector<DType> made, expand_types(def->outputs, attrs));
    ShapeContext shapes(*def, attrs, facts, types, made);
    Result<std::vector<TensorFacts>> known = infer(shapes);
    if (reads_no_elements(*def)) sources = 0;
    std::vector<Expr> out;
    for (size_t i = 0; i < made.size(); ++i) {
      TensorFacts of_output = known.ok() ? std::move((*known)[i]) : TensorFacts();
      of_output.constant = nullptr;
      out.push_back(add({made[i], std::move(of_output), sources, valued, false}));
    }
    return out;
  }

  const OpRegistry& registry_;
  std::vector<StandIn> tensors_;
  std::deque<Tensor> constants_;
  Status status_;
  mutable uint64_t looked_at_ = 0, values_asked_ = 0;
  mutable bool asked_shapes_ = false, asked_unknown_shapes_ = false;
};

struct Call {
  const KernelNode& node;
  const OpRegistry& registry;
  std::span<const Tensor* const> inputs, outputs;

  // Calls the rule with gradients for the outputs in `given`, and adds what it reads to `needs`.
  // `known`: with the shapes and values of this call, else with none. UNIMPLEMENTED where what it
  // reads is decided by what nobody knows before it runs.
  Status probe(uint64_t given, bool known, GradientNeeds& needs) const {
    Probe probe(registry);
    int bit = 0;
    const auto stand_in = [&](const Tensor* tensor, DType dtype) {
      const uint64_t source = uint64_t{1} << bit++;
      if (!known) return probe.stand_in(dtype, PartialShape::unknown(), source);
      const bool readable = tensor->buffer()->space() != MemorySpace::kDevice;
      return probe.stand_in(dtype, tensor->shape(), source, readable ? tensor : nullptr);
    };
    std::vector<Expr> x, y;
    for (size_t i = 0; i < inputs.size(); ++i) {
      x.push_back(stand_in(inputs[i], node.input_types[i]));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      y.push_back(stand_in(outputs[i], node.output_types[i]));
    }
    GradientContext rule(probe, std::move(x), std::move(y), std::vector<Expr>(outputs.size()),
                         node.attrs, node.input_types);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if ((given >> i & 1) == 0) continue;
      const PartialShape shape = known ? PartialShape(outputs[i]->shape()) : PartialShape();
      rule.set_output_gradient(static_cast<int>(i),
                               {probe.stand_in(node.output_types[i], shape, 0), {}, {}});
    }
    MR_TRY(node.op->gradient(rule));
    MR_TRY(probe.status());
    if (known && probe.asked_unknown_shapes()) {
      return unimplemented("the shape of something that the rule computes decides");
    }
    needs.by_shape |= probe.asked_shapes();
    needs.by_value |= probe.values_asked();
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Gradient& g = rule.input_gradients()[i];
      needs.of_input[i] |= probe.looked_at() | probe.sources(g.values) | probe.sources(g.indices) |
                           probe.sources(g.dense_shape);
    }
    return ok_status();
  }
};

}  // namespace

bool reads_no_elements(const OpDef& op) {
  // What expr.h has as zeros_like() and ones_like() of a tensor.
  return op.traits.metadata_only || op.name == "ZerosLike" || op.name == "OnesLike";
}

GradientNeeds find_gradient_needs(const KernelNode& node, const OpRegistry& registry,
                                  std::span<const Tensor* const> inputs,
                                  std::span<const Tensor* const> outputs) {
  GradientNeeds all;
  all.of_input.assign(inputs.size(), GradientNeeds::kAll);
  const bool other_rule = node.attrs.find(kGradientOverride) != nullptr;
  if (node.op->gradient == nullptr || other_rule || inputs.size() + outputs.size() > 64) return all;
  const Call call{node, registry, inputs, outputs};
  GradientNeeds needs;
  needs.of_input.assign(inputs.size(), 0);
  uint64_t every = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (has_gradients(node.output_types[i])) every |= uint64_t{1} << i;
  }
  // A rule may do other things without the gradients of some outputs.
  constexpr int kMaxAlone = 8;
  std::vector<uint64_t> patterns = {every};
  for (size_t i = 0; i < outputs.size() && patterns.size() <= kMaxAlone; ++i) {
    const uint64_t alone = uint64_t{1} << i;
    if ((every & alone) != 0 && every != alone) patterns.push_back(alone);
  }
  for (const bool known : {true, false}) {
    for (const uint64_t given : patterns) {
      if (!call.probe(given, known, needs).ok()) return all;
    }
  }
  return needs;
}

}  // namespace millrace::eager
