#include "millrace/eager/gradient_needs.h"

#include <algorithm>

#include "millrace/autodiff/gradient_registry.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/op_registry.h"
#include "millrace/kernel/registry.h"

namespace millrace::eager {
namespace {

// A builder that makes nothing: it notes which of the first tensors each new one was made from.
class Probe final : public OpBuilder {
 public:
  explicit Probe(const OpRegistry& registry) : registry_(registry) {}

  Expr stand_in(DType dtype, PartialShape shape, uint64_t sources, const Tensor* value = nullptr) {
    tensors_.push_back({dtype, std::move(shape), sources, value});
    return Expr(this, static_cast<int64_t>(tensors_.size()) - 1, 0);
  }
  // The tensors whose elements `e` was made from; 0 of an invalid one.
  uint64_t sources(Expr e) const { return e.valid() ? tensor(e).sources : 0; }
  // Those that the rule looked at while it decided what to do.
  uint64_t looked_at() const { return looked_at_; }

  std::vector<Expr> emit(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) override {
    Result<std::vector<Expr>> made = make(op, inputs, std::move(attrs));
    if (made.ok()) return *std::move(made);
    fail(made.status());
    return {};
  }
  Expr constant(const Tensor& value) override {
    constants_.push_back(value);
    return stand_in(value.dtype(), value.shape(), 0);
  }
  DType dtype(Expr e) const override { return tensor(e).dtype; }
  PartialShape shape(Expr e) const override { return tensor(e).shape; }
  const Tensor* constant_value(Expr e) const override {
    if (tensor(e).value != nullptr) looked_at_ |= tensor(e).sources;
    return tensor(e).value;
  }
  const Status& status() const override { return status_; }
  void fail(Status error) override {
    if (status_.ok()) status_ = std::move(error);
  }

 private:
  struct StandIn {
    DType dtype;
    PartialShape shape;
    uint64_t sources;
    const Tensor* value;
  };
  const StandIn& tensor(Expr e) const { return tensors_[static_cast<size_t>(e.id())]; }

  Result<std::vector<Expr>> make(std::string_view op, const std::vector<Expr>& inputs,
                                 AttrMap attrs) {
    MR_TRY(status_);
    MR_TRY_ASSIGN(const OpDef* def, registry_.lookup(op));
    std::vector<DType> types;
    uint64_t sources = 0;
    for (Expr input : inputs) {
      if (!input.valid()) return invalid_argument(op, ": an input is missing");
      types.push_back(input.dtype());
      sources |= this->sources(input);
    }
    MR_TRY(infer_type_attrs(*def, types, attrs));
    MR_TRY(check_attrs(*def, attrs));
    MR_TRY_ASSIGN(const std::vector<DType> made, expand_types(def->outputs, attrs));
    if (reads_no_elements(*def)) sources = 0;
    std::vector<Expr> out;
    for (DType type : made) out.push_back(stand_in(type, PartialShape::unknown(), sources));
    return out;
  }

  const OpRegistry& registry_;
  std::vector<StandIn> tensors_;
  std::vector<Tensor> constants_;
  Status status_;
  mutable uint64_t looked_at_ = 0;
};

struct Call {
  const KernelNode& node;
  const OpRegistry& registry;
  std::span<const Tensor* const> inputs, outputs;

  // Calls the rule with gradients for the outputs in `given`, and adds what it reads to `needs`.
  // `known`: with the shapes and values of this call, else with none.
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
