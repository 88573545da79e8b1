// Bucketize: between which of some boundaries each number lies.

#include <algorithm>
#include <memory>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using BucketTypes = TypeList<int32_t, int64_t, float, double>;

Result<std::vector<float>> read_boundaries(const AttrMap& attrs) {
  MR_TRY_ASSIGN(std::vector<float> boundaries, read_attr<std::vector<float>>(attrs, "boundaries"));
  if (!std::ranges::is_sorted(boundaries)) {
    return invalid_argument("Expected sorted boundaries, got ", str_join(boundaries, ","));
  }
  return boundaries;
}

Status bucketize_shape(ShapeContext& c) {
  MR_TRY(read_boundaries(c.attrs()).status());
  c.set_output(0, c.input(0));
  return ok_status();
}

template <class T>
class BucketizeKernel final : public Kernel {
 public:
  explicit BucketizeKernel(std::vector<float> boundaries) : boundaries_(std::move(boundaries)) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::vector<float> boundaries, read_boundaries(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<BucketizeKernel>(std::move(boundaries)));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, ctx.input(0).shape()));
    const auto input = ctx.input(0).data<T>();
    const auto output = out->mutable_data<int32_t>();
    ctx.parallel_for(ctx.input(0).num_elements(), 10, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        // A number on a boundary lies above it; NaN above all.
        const auto above = std::upper_bound(boundaries_.begin(), boundaries_.end(), input[i]);
        output[i] = static_cast<int32_t>(above - boundaries_.begin());
      }
    });
    return ok_status();
  }

 private:
  std::vector<float> boundaries_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts, BucketizeKernel<Ts>>("Bucketize", DeviceKind::kCpu), ...);
}

}  // namespace

void register_bucketize(Registry& registry) {
  registry.add({.name = "Bucketize",
                .doc = "For each element of input how many of the boundaries, which rise, are not "
                       "above it.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "int32"}},
                .types = {{"T", type_set_of<BucketTypes>}},
                .attrs = {{"boundaries", "list(float)"}},
                .traits = {.elementwise = true, .cost = 10},
                .shape = bucketize_shape});
  register_kernels(registry, BucketTypes());
}

}  // namespace millrace
