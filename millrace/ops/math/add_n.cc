#include <algorithm>
#include <memory>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/math/elementwise.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

constexpr OpInfo kAdd{"Add", kNumbers, ""};
constexpr int64_t kBlock = 4096;  // elements summed over all inputs before going on

// What is known of variants' contents is what any of them knows.
Status add_n_shape(ShapeContext& c) {
  MR_TRY(shape_rules::merged(c));
  if (c.input_type(0) != DType::kVariant) return ok_status();
  std::vector<ResourceHandle::DTypeAndShape> known;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const std::vector<ResourceHandle::DTypeAndShape>& here = c.input_facts(i).resource;
    if (here.empty()) continue;
    if (known.empty()) known = here;
    if (here.size() != known.size()) {
      return invalid_argument("variants to add must hold the same, but input ", i, " has ",
                              here.size(), " parts and those before it ", known.size());
    }
    for (size_t k = 0; k < known.size(); ++k) {
      Result<PartialShape> both = known[k].shape.merge(here[k].shape);
      if (known[k].dtype != here[k].dtype || !both.ok()) {
        return invalid_argument("variants to add must hold the same: input ", i,
                                " has elements of ", here[k].dtype, ' ', here[k].shape,
                                ", those before it ", known[k].dtype, ' ', known[k].shape);
      }
      known[k].shape = std::move(both).value();
    }
  }
  c.set_output_resource(0, std::move(known));
  return ok_status();
}

Status add_n_grad(GradientContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) c.set(i, c.gradient());
  return ok_status();
}

class AddN final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    const DType dtype = base_type(node.output_types[0]);
    const FloatBlocks blocks = float_blocks(dtype);
    const BinaryFunction add(kAdd, blocks.to_float != nullptr ? DType::kFloat : dtype);
    if (!add) return unimplemented("AddN is not computed for ", node.output_types[0]);
    return std::unique_ptr<Kernel>(new AddN(add, blocks));
  }
  AddN(BinaryFunction add, FloatBlocks blocks) : add_(add), blocks_(blocks) {}

  Status compute(KernelContext& ctx) const override {
    const int n = ctx.num_inputs();
    if (n == 1) {
      ctx.set_output_value(0, ctx.take_input(0));
      return ok_status();
    }
    const Shape shape = ctx.input(0).shape();
    std::vector<const char*> inputs;
    for (int i = 0; i < n; ++i) {
      MR_TRY(expect_same_shape(ctx, 0, i));
      inputs.push_back(static_cast<const char*>(ctx.input(i).raw()));
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.forward_or_allocate_output({0}, 0, shape));
    char* sum = static_cast<char*>(out->mutable_raw());
    const int64_t size = static_cast<int64_t>(dtype_size(out->dtype()));
    const int64_t elements = shape.num_elements();
    if (DeviceEngine* const device = device_engine(ctx)) {
      const std::vector<const void*> terms(inputs.begin(), inputs.end());
      return device->add_n(ctx, out->dtype(), terms, sum, elements);
    }
    const int64_t blocks = (elements + kBlock - 1) / kBlock;
    ctx.parallel_for(blocks, 0.25 * kBlock * (n - 1), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t at = block * kBlock * size;
        const int64_t count = std::min(kBlock, elements - block * kBlock);
        if (blocks_.to_float != nullptr) {
          add_in_float(inputs, at, count, sum + at);
          continue;
        }
        add_(inputs[0] + at, inputs[1] + at, sum + at, count);
        for (size_t i = 2; i < inputs.size(); ++i) add_(sum + at, inputs[i] + at, sum + at, count);
      }
    });
    return ok_status();
  }

 private:
  // A sum of 16-bit numbers is rounded once.
  void add_in_float(const std::vector<const char*>& inputs, int64_t at, int64_t count,
                    char* out) const {
    float sum[kBlock], term[kBlock];
    blocks_.to_float(inputs[0] + at, sum, count);
    for (size_t i = 1; i < inputs.size(); ++i) {
      blocks_.to_float(inputs[i] + at, term, count);
      add_(sum, term, sum, count);
    }
    blocks_.from_float(sum, out, count);
  }

  BinaryFunction add_;
  FloatBlocks blocks_;  // of half and bfloat16
};

Status add_n_variants(KernelContext& ctx) {
  Tensor sum = ctx.take_input(0).tensor;
  for (int i = 1; i < ctx.num_inputs(); ++i) {
    MR_TRY(add_variants(sum, ctx.input(i),
                        [&](int64_t n, double cost, FunctionRef<void(int64_t, int64_t)> body) {
                          ctx.parallel_for(n, cost, body);
                        }));
  }
  ctx.set_output(0, std::move(sum));
  return ok_status();
}

}  // namespace

void register_add_n(Registry& registry) {
  registry.add({.name = "AddN",
                .doc = "The sum of tensors of one shape, from the first to the last.",
                .inputs = {{"inputs", "N*T"}},
                .outputs = {{"sum", "T"}},
                .types = {{"T", kNumberTypes | TypeSet{DType::kVariant}}},
                .attrs = {{"N", "int >= 1"}},
                .traits = {.commutative = true,
                           .aggregate = true,
                           .elementwise = true,
                           .may_alias = 1,
                           .cost = 0.5F,
                           .fused_by = "_FusedElementwise"},
                .shape = add_n_shape,
                .gradient = add_n_grad});
  registry.kernel({.op = "AddN", .constraints = {{"T", kNumbers}}, .factory = AddN::make});
  registry.kernel(
      {.op = "AddN", .constraints = {{"T", {DType::kVariant}}}, .function = add_n_variants});
}

}  // namespace millrace
