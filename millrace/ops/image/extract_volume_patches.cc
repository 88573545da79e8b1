#include <algorithm>
#include <memory>
#include <utility>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/element.h"
#include "millrace/ops/nn/window_geometry.h"

// ExtractVolumePatches: every window of a volume as one long pixel, [window planes, window height,
// window width, channels]. Outside the volume is zero.

namespace millrace {
namespace {

constexpr TypeSet kPatchTypes = kRealNumbers;

// The attributes are those of a pool under other names.
Result<WindowSpec<3>> read_spec(const AttrMap& attrs) {
  AttrMap named;
  for (const auto& [ours, theirs] : {std::pair("ksizes", "ksize"), std::pair("strides", "strides"),
                                     std::pair("padding", "padding")}) {
    const AttrValue* const value = attrs.find(ours);
    if (value == nullptr) return invalid_argument("attr '", ours, "' is missing");
    named.set(theirs, *value);
  }
  return read_pool_spec<3>(named);
}

Status patches_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec<3> spec, read_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape volumes, c.with_rank(0, 5));
  int64_t depth = -1;
  if (volumes.dim_known(4)) {
    const int64_t sizes[] = {spec.axes[0].window, spec.axes[1].window, spec.axes[2].window,
                             volumes.dim(4)};
    MR_TRY_ASSIGN(const Shape patch, Shape::make(sizes));
    depth = patch.num_elements();
  }
  MR_TRY_ASSIGN(PartialShape out, partial_output_shape(spec, volumes, depth));
  c.set_output(0, std::move(out));
  return ok_status();
}

// Patches of a volume that numbers its places tell where each element came from: those of a place
// are added.
Status patches_grad(GradientContext& c) {
  if (!kFloating.contains(c.input_type(0))) return ok_status();
  OpBuilder& builder = c.builder();
  const auto scalar = [&](int32_t value) { return int32_scalar(builder, value); };
  const auto vector = [&](int32_t value) { return int32_vector(builder, {value}); };
  const Expr sizes = shape_of(c.input(0));
  const auto slice = [&](int32_t begin, int32_t end) {
    return call("StridedSlice", {sizes, vector(begin), vector(end), vector(1)});
  };
  const Expr volume = slice(1, 4), batch = slice(0, 1), channels = slice(4, 5);
  const Expr places = call("Prod", {volume, scalar(0)});
  const Expr numbers = reshape(range(scalar(1), places + scalar(1), scalar(1)),
                               concat({vector(1), volume, vector(1)}, 0));
  const Expr from = call("ExtractVolumePatches", {numbers},
                         {{"ksizes", c.attr_value("ksizes")},
                          {"strides", c.attr_value("strides")},
                          {"padding", c.attr_value("padding")}});
  const Expr flat = reshape(from, vector(-1)) - scalar(1);
  const Expr order = int32_vector(builder, {1, 0, 2});
  const Expr count = reshape(call("Size", {flat}), vector(1));  // -1 says nothing of no elements
  const Expr rows = transpose(reshape(c.gradient(), concat({batch, count, channels}, 0)), order);
  const Expr sums = call("UnsortedSegmentSum", {rows, flat, places});
  c.set(0, reshape(transpose(sums, order), sizes));
  return ok_status();
}

class VolumePatches final : public Kernel {
 public:
  explicit VolumePatches(const WindowSpec<3>& spec) : spec_(spec) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec<3> spec, read_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<VolumePatches>(spec));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 5));
    const Tensor& volumes = ctx.input(0);
    MR_TRY_ASSIGN(const WindowGeometry<3> axes, window_geometry(spec_, volumes.shape()));
    const int64_t sizes[] = {axes[0].window, axes[1].window, axes[2].window, volumes.dim(4)};
    MR_TRY_ASSIGN(const Shape patch, Shape::make(sizes));
    const int64_t dims[] = {volumes.dim(0), axes[0].output, axes[1].output, axes[2].output,
                            patch.num_elements()};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    with_element(volumes.dtype(), [&]<class E>() {
      if constexpr (std::is_trivially_copyable_v<E>) {
        extract(ctx, axes, volumes.dim(4), static_cast<const E*>(volumes.raw()),
                patch.num_elements(), volumes.dim(0), static_cast<E*>(out->mutable_raw()));
      }
    });
    return ok_status();
  }

 private:
  template <class E>
  static void extract(KernelContext& ctx, const WindowGeometry<3>& axes, int64_t channels,
                      const E* volumes, int64_t depth, int64_t batch, E* out) {
    const AxisGeometry &p = axes[0], &h = axes[1], &w = axes[2];
    const double cost = static_cast<double>(w.output) * static_cast<double>(depth);
    ctx.parallel_for(batch * p.output * h.output, cost, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t oy = row % h.output, oz = row / h.output % p.output;
        const E* const volume =
            volumes + row / h.output / p.output * p.input * h.input * w.input * channels;
        for (int64_t ox = 0; ox < w.output; ++ox) {
          E* const patch = out + (row * w.output + ox) * depth;
          std::fill_n(patch, depth, E{});
          for (int64_t fz = p.first(oz); fz < p.last(oz); ++fz) {
            for (int64_t fy = h.first(oy); fy < h.last(oy); ++fy) {
              for (int64_t fx = w.first(ox); fx < w.last(ox); ++fx) {
                const int64_t z = p.origin(oz) + fz * p.dilation;
                const int64_t y = h.origin(oy) + fy * h.dilation;
                const int64_t x = w.origin(ox) + fx * w.dilation;
                std::copy_n(volume + ((z * h.input + y) * w.input + x) * channels, channels,
                            patch + ((fz * h.window + fy) * w.window + fx) * channels);
              }
            }
          }
        }
      }
    });
  }

  WindowSpec<3> spec_;
};

}  // namespace

void register_extract_volume_patches(Registry& registry) {
  registry.add({.name = "ExtractVolumePatches",
                .doc = "Every window of a volume as one pixel with all its elements as channels.",
                .inputs = {{"input", "T"}},
                .outputs = {{"patches", "T"}},
                .types = {{"T", kPatchTypes}},
                .attrs = {{"ksizes", "list(int) >= 5"},
                          {"strides", "list(int) >= 5"},
                          {"padding", "string in {'SAME','VALID'}"}},
                .traits = {.cost = 1},
                .shape = patches_shape,
                .gradient = patches_grad});
  registry.kernel({.op = "ExtractVolumePatches",
                   .constraints = {{"T", kPatchTypes}},
                   .factory = &VolumePatches::make});
}

}  // namespace millrace
