#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/element.h"
#include "millrace/ops/nn/window_geometry.h"

// ExtractImagePatches: every window of an image as one long pixel, [window height, window width,
// channels]. Outside the image is zero.

namespace millrace {
namespace {

const TypeSet kPatchTypes = kNumbers | TypeSet{DType::kBool};

// The attributes are those of a pool under other names.
Result<WindowSpec<2>> read_spec(const AttrMap& attrs) {
  AttrMap named;
  const std::pair<const char*, const char*> names[] = {
      {"ksizes", "ksize"}, {"strides", "strides"}, {"rates", "dilations"}, {"padding", "padding"}};
  for (const auto& [ours, theirs] : names) {
    const AttrValue* const value = attrs.find(ours);
    if (value == nullptr) return invalid_argument("attr '", ours, "' is missing");
    named.set(theirs, *value);
  }
  return read_pool_spec<2>(named);
}

Status patches_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const WindowSpec<2> spec, read_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape images, c.with_rank(0, 4));
  int64_t depth = -1;
  if (images.dim_known(3)) {
    const int64_t sizes[] = {spec.axes[0].window, spec.axes[1].window, images.dim(3)};
    MR_TRY_ASSIGN(const Shape patch, Shape::make(sizes));
    depth = patch.num_elements();
  }
  MR_TRY_ASSIGN(PartialShape out, partial_output_shape(spec, images, depth));
  c.set_output(0, std::move(out));
  return ok_status();
}

// Taking patches is a depthwise convolution with one filter for each element of the window, one
// there and zero elsewhere, so its gradient is that of the convolution. Channels of a convolution
// are [channel, window element], those of patches the other way round.
class PatchesGradient {
 public:
  PatchesGradient(GradientContext& c, const WindowSpec<2>& spec) : c_(c), builder_(c.builder()) {
    const auto height = static_cast<int32_t>(spec.axes[0].window);
    const auto width = static_cast<int32_t>(spec.axes[1].window);
    sizes_ = shape_of(c.input(0));
    channels_ = slice(sizes_, 3, 4);
    window_ = height * width;
    window_sizes_ = int32_vector(builder_, {height, width, 1, window_});
  }

  // dx for dy, both of real numbers.
  Expr operator()(Expr dy) const {
    const Expr last = int32_vector(builder_, {window_});
    const Expr elements = range(scalar(0), scalar(window_), scalar(1));
    const Expr identity =
        call("OneHot", {elements, scalar(window_), constant_like(dy, 1), constant_like(dy, 0)});
    const Expr times =
        concat({int32_vector(builder_, {1, 1}), channels_, int32_vector(builder_, {1})}, 0);
    const Expr filter = tile(reshape(identity, window_sizes_), times);
    const Expr shape = shape_of(dy);
    const Expr split = reshape(dy, concat({slice(shape, 0, 3), last, channels_}, 0));
    const Expr turned = transpose(split, int32_vector(builder_, {0, 1, 2, 4, 3}));
    return call("DepthwiseConv2dNativeBackpropInput", {sizes_, filter, reshape(turned, shape)},
                {{"strides", c_.attr_value("strides")},
                 {"dilations", c_.attr_value("rates")},
                 {"padding", c_.attr_value("padding")}});
  }

 private:
  Expr scalar(int32_t value) const { return int32_scalar(builder_, value); }
  Expr slice(Expr vector, int32_t begin, int32_t end) const {
    return call("StridedSlice", {vector, int32_vector(builder_, {begin}),
                                 int32_vector(builder_, {end}), int32_vector(builder_, {1})});
  }

  GradientContext& c_;
  OpBuilder& builder_;
  Expr sizes_, channels_, window_sizes_;
  int32_t window_ = 0;
};

Status patches_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const WindowSpec<2> spec, read_spec({{"ksizes", c.attr_value("ksizes")},
                                                     {"strides", c.attr_value("strides")},
                                                     {"rates", c.attr_value("rates")},
                                                     {"padding", c.attr_value("padding")}}));
  const int64_t height = spec.axes[0].window, width = spec.axes[1].window;
  constexpr int64_t kMost = int64_t{1} << 15;
  if (height > kMost || width > kMost || height * width > kMost) {
    return unimplemented("the gradient of patches of ", height, " x ", width, " elements");
  }
  const PatchesGradient gradient(c, spec);
  const Expr dy = c.gradient();
  if (kFloating.contains(c.input_type(0))) {
    c.set(0, gradient(dy));
  } else if (kComplex.contains(c.input_type(0))) {
    const AttrMap real = {
        {"Tout", c.input_type(0) == DType::kComplex64 ? DType::kFloat : DType::kDouble}};
    c.set(0,
          call("Complex", {gradient(call("Real", {dy}, real)), gradient(call("Imag", {dy}, real))},
               {{"Tout", c.input_type(0)}}));
  }
  return ok_status();
}

class PatchesKernel final : public Kernel {
 public:
  explicit PatchesKernel(const WindowSpec<2>& spec) : spec_(spec) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec<2> spec, read_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<PatchesKernel>(spec));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 4));
    const Tensor& images = ctx.input(0);
    MR_TRY_ASSIGN(const WindowGeometry<2> axes, window_geometry(spec_, images.shape()));
    const AxisGeometry &h = axes[0], &w = axes[1];
    const int64_t sizes[] = {h.window, w.window, images.dim(3)};
    MR_TRY_ASSIGN(const Shape patch, Shape::make(sizes));
    const int64_t dims[] = {images.dim(0), h.output, w.output, patch.num_elements()};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    with_element(images.dtype(), [&]<class E>() {
      if constexpr (std::is_trivially_copyable_v<E>) {
        extract(ctx, h, w, images.dim(3), static_cast<const E*>(images.raw()), patch.num_elements(),
                images.dim(0), static_cast<E*>(out->mutable_raw()));
      }
    });
    return ok_status();
  }

 private:
  template <class E>
  static void extract(KernelContext& ctx, const AxisGeometry& h, const AxisGeometry& w,
                      int64_t channels, const E* images, int64_t depth, int64_t batch, E* out) {
    const double cost = static_cast<double>(w.output) * static_cast<double>(depth);
    ctx.parallel_for(batch * h.output, cost, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t oy = row % h.output;
        const E* const image = images + row / h.output * h.input * w.input * channels;
        for (int64_t ox = 0; ox < w.output; ++ox) {
          E* const patch = out + (row * w.output + ox) * depth;
          std::fill_n(patch, depth, E{});
          for (int64_t fy = h.first(oy); fy < h.last(oy); ++fy) {
            for (int64_t fx = w.first(ox); fx < w.last(ox); ++fx) {
              const int64_t y = h.origin(oy) + fy * h.dilation, x = w.origin(ox) + fx * w.dilation;
              std::copy_n(image + (y * w.input + x) * channels, channels,
                          patch + (fy * w.window + fx) * channels);
            }
          }
        }
      }
    });
  }

  WindowSpec<2> spec_;
};

}  // namespace

void register_extract_patches(Registry& registry) {
  registry.add({.name = "ExtractImagePatches",
                .doc = "Every window of an image as one pixel with all its elements as channels.",
                .inputs = {{"images", "T"}},
                .outputs = {{"patches", "T"}},
                .types = {{"T", kPatchTypes}},
                .attrs = {{"ksizes", "list(int) >= 4"},
                          {"strides", "list(int) >= 4"},
                          {"rates", "list(int) >= 4"},
                          {"padding", "string in {'SAME','VALID'}"}},
                .traits = {.cost = 1},
                .shape = patches_shape,
                .gradient = patches_grad});
  registry.kernel({.op = "ExtractImagePatches",
                   .constraints = {{"T", kPatchTypes}},
                   .factory = &PatchesKernel::make});
}

}  // namespace millrace
