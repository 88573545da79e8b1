#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/nn/window_geometry.h"
#include "millrace/tensor/dispatch.h"

// Dilation2D of mathematical morphology, output = max over the window of input + filter, for
// [batch, height, width, depth] and filters [height, width, depth]; and its gradients, which go to
// the first place of the window that has the maximum.

namespace millrace {
namespace {

// Strides and rates are those of a convolution.
Result<WindowSpec<2>> read_spec(const AttrMap& attrs) {
  AttrMap conv;
  for (const auto& [from, to] : {std::pair{"strides", "strides"}, {"rates", "dilations"}}) {
    MR_TRY_ASSIGN(std::vector<int64_t> sizes, read_attr<std::vector<int64_t>>(attrs, from));
    conv.set(to, std::move(sizes));
  }
  MR_TRY_ASSIGN(std::string padding, read_attr<std::string>(attrs, "padding"));
  conv.set("padding", std::move(padding));
  return read_conv_spec<2>(conv);
}

enum class What { kOutput, kInputGradient, kFilterGradient };

template <What kWhat>
Status dilation_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(WindowSpec<2> spec, read_spec(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const PartialShape filter, c.with_rank(1, 3));
  spec.set_windows(filter);
  MR_TRY_ASSIGN(const PartialShape depth,
                PartialShape({input.dim(3)}).merge(PartialShape({filter.dim(2)})));
  MR_TRY_ASSIGN(const PartialShape output, partial_output_shape(spec, input, depth.dim(0)));
  if (kWhat != What::kOutput) MR_TRY(output.merge(c.input(2)).status());
  c.set_output(0, kWhat == What::kOutput ? output : kWhat == What::kInputGradient ? input : filter);
  return ok_status();
}

Status dilation_grad(GradientContext& c) {
  const AttrMap attrs = {{"strides", c.attr_value("strides")},
                         {"rates", c.attr_value("rates")},
                         {"padding", c.attr_value("padding")}};
  const Expr input = c.input(0), filter = c.input(1), g = c.gradient();
  c.set(0, call("Dilation2DBackpropInput", {input, filter, g}, attrs));
  c.set(1, call("Dilation2DBackpropFilter", {input, filter, g}, attrs));
  return ok_status();
}

// What one image gives.
template <class T>
void dilate(What what, const KernelContext& ctx, const AxisGeometry& h, const AxisGeometry& w,
            int64_t b, ComputeType<T>* out) {
  using C = ComputeType<T>;
  const int64_t depth = ctx.input(0).dim(3);
  const T* const input = ctx.input(0).data<T>().data() + b * h.input * w.input * depth;
  const T* const filter = ctx.input(1).data<T>().data();
  const T* const dy = what == What::kOutput ? nullptr : ctx.input(2).data<T>().data();
  const int64_t outputs = b * h.output * w.output * depth;
  for (int64_t y = 0; y < h.output; ++y) {
    for (int64_t x = 0; x < w.output; ++x) {
      for (int64_t d = 0; d < depth; ++d) {
        C most = std::numeric_limits<C>::lowest();
        int64_t from = -1, tap = 0;  // where that is
        for (int64_t i = h.first(y); i < h.last(y); ++i) {
          for (int64_t j = w.first(x); j < w.last(x); ++j) {
            const int64_t at =
                ((h.origin(y) + i * h.dilation) * w.input + w.origin(x) + j * w.dilation) * depth +
                d;
            const int64_t in_filter = (i * w.window + j) * depth + d;
            const C value =
                wrapping_add(static_cast<C>(input[at]), static_cast<C>(filter[in_filter]));
            const bool more = value > most;
            if (more) most = value;
            if (!more && from >= 0) continue;
            from = at;
            tap = in_filter;
          }
        }
        const int64_t o = outputs + (y * w.output + x) * depth + d;
        if (what == What::kOutput) {
          out[o] = most;
        } else if (from >= 0) {
          const int64_t at =
              what == What::kFilterGradient ? tap : b * h.input * w.input * depth + from;
          out[at] = wrapping_add(out[at], static_cast<C>(dy[o]));
        }
      }
    }
  }
}

class DilationKernel final : public Kernel {
 public:
  DilationKernel(What what, const WindowSpec<2>& spec) : what_(what), spec_(spec) {}
  template <What kWhat>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const WindowSpec<2> spec, read_spec(node.attrs));
    return std::unique_ptr<Kernel>(std::make_unique<DilationKernel>(kWhat, spec));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 4));
    MR_TRY(expect_rank(ctx, 1, 3));
    const Tensor &input = ctx.input(0), &filter = ctx.input(1);
    if (input.dim(3) != filter.dim(2)) {
      return invalid_argument("input and filter must have the same depth: ", input.dim(3), " vs ",
                              filter.dim(2));
    }
    WindowSpec<2> spec = spec_;
    spec.set_windows(filter.shape());
    MR_TRY_ASSIGN(const WindowGeometry<2> axes, window_geometry(spec, input.shape()));
    const AxisGeometry &h = axes[0], &w = axes[1];
    MR_TRY_ASSIGN(const Shape shape, output_shape(spec, input.dim(0), axes, input.dim(3)));
    if (what_ != What::kOutput && !(ctx.input(2).shape() == shape)) {
      return invalid_argument("out_backprop must have shape ", shape, ", got ",
                              ctx.input(2).shape());
    }
    const Shape& result = what_ == What::kOutput          ? shape
                          : what_ == What::kInputGradient ? input.shape()
                                                          : filter.shape();
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, result));
    return dispatch<RealTypes>(out->dtype(), [&]<class T>() -> Status {
      using C = ComputeType<T>;
      MR_TRY_ASSIGN(Tensor computed, compute_buffer<T>(ctx, *out));
      C* const to = computed.mutable_data<C>().data();
      std::fill_n(to, out->num_elements(), C{});
      const double taps = static_cast<double>(h.window) * static_cast<double>(w.window) + 1;
      const auto images = [&](int64_t begin, int64_t end) {
        for (int64_t b = begin; b < end; ++b) dilate<T>(what_, ctx, h, w, b, to);
      };
      if (shape.num_elements() == 0 || out->num_elements() == 0) {
        // Nothing to add.
      } else if (what_ == What::kFilterGradient) {  // all images add to one filter
        images(0, input.dim(0));
      } else {
        const double per_image = static_cast<double>(shape.num_elements() / shape.dim(0));
        ctx.parallel_for(input.dim(0), per_image * taps, images);
      }
      finish_output<T>(ctx, computed, *out);
      return ok_status();
    });
  }

 private:
  What what_;
  WindowSpec<2> spec_;
};

}  // namespace

void register_dilation(Registry& registry) {
  const auto add = [&](const char* name, const char* doc, const char* output, ShapeRule shape,
                       bool backward) {
    std::vector<OpSpec::Arg> inputs = {{"input", "T"}, {"filter", "T"}};
    if (backward) inputs.push_back({"out_backprop", "T"});
    registry.add({.name = name,
                  .doc = doc,
                  .inputs = inputs,
                  .outputs = {{output, "T"}},
                  .types = {{"T", kRealNumbers}},
                  .attrs = {{"strides", "list(int) >= 4"},
                            {"rates", "list(int) >= 4"},
                            {"padding", "string in {'SAME','VALID'}"}},
                  .traits = {.cost = 10},
                  .shape = shape,
                  .gradient = backward ? nullptr : dilation_grad,
                  .no_gradient = backward ? "has no second derivative in TensorFlow either" : ""});
  };
  add("Dilation2D", "The maxima of input + filter over windows.", "output",
      dilation_shape<What::kOutput>, false);
  add("Dilation2DBackpropInput", "The gradient of Dilation2D for its input.", "in_backprop",
      dilation_shape<What::kInputGradient>, true);
  add("Dilation2DBackpropFilter", "The gradient of Dilation2D for its filter.", "filter_backprop",
      dilation_shape<What::kFilterGradient>, true);
  const auto kernel = [&](const char* op, KernelFactory factory) {
    registry.kernel({.op = op, .constraints = {{"T", kRealNumbers}}, .factory = factory});
  };
  kernel("Dilation2D", DilationKernel::make<What::kOutput>);
  kernel("Dilation2DBackpropInput", DilationKernel::make<What::kInputGradient>);
  kernel("Dilation2DBackpropFilter", DilationKernel::make<What::kFilterGradient>);
}

}  // namespace millrace
