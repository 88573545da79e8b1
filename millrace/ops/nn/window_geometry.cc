#include "millrace/ops/nn/window_geometry.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace millrace {
namespace {

constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxInput = int64_t{1} << 60;

// The four (batch, height, width, channels) numbers of attribute `name`, positive and bounded, with
// 1 for batch and channels.
Status read_sizes(const AttrMap& attrs, std::string_view name, const WindowSpec& spec,
                  int64_t* height, int64_t* width) {
  MR_TRY_ASSIGN(const std::vector<int64_t> sizes, read_attr<std::vector<int64_t>>(attrs, name));
  if (sizes.size() != 4) {
    return invalid_argument(name, " must have 4 elements, got [", str_join(sizes, ","), "]");
  }
  for (int64_t size : sizes) {
    if (size < 1 || size > kMaxSize) {
      return invalid_argument(name, " must be between 1 and ", kMaxSize, ", got [",
                              str_join(sizes, ","), "]");
    }
  }
  if (sizes[0] != 1 || sizes[static_cast<size_t>(spec.channel_dim())] != 1) {
    return unimplemented(name, " other than 1 in the batch or channel dimension: [",
                         str_join(sizes, ","), "]");
  }
  *height = sizes[static_cast<size_t>(spec.height_dim())];
  *width = sizes[static_cast<size_t>(spec.width_dim())];
  return ok_status();
}

// A view into `attrs`.
Result<std::string_view> read_text(const AttrMap& attrs, std::string_view name) {
  const AttrValue* value = attrs.find(name);
  const std::string* text = value == nullptr ? nullptr : value->get<std::string>();
  if (text == nullptr) return invalid_argument("attr '", name, "' must be a string");
  return std::string_view(*text);
}

// Pairs of paddings before and after each of the four dimensions.
Status read_explicit_paddings(const AttrMap& attrs, WindowSpec& spec) {
  std::vector<int64_t> pads;
  if (attrs.find("explicit_paddings") != nullptr) {
    MR_TRY_ASSIGN(pads, read_attr<std::vector<int64_t>>(attrs, "explicit_paddings"));
  }
  if (spec.padding != Padding::kExplicit) {
    if (pads.empty()) return ok_status();
    return invalid_argument("explicit_paddings must be empty unless padding is EXPLICIT, got [",
                            str_join(pads, ","), "]");
  }
  if (pads.size() != 8) {
    return invalid_argument("explicit_paddings must have 8 elements, got [", str_join(pads, ","),
                            "]");
  }
  for (int64_t pad : pads) {
    if (pad < 0 || pad > kMaxSize) {
      return invalid_argument("explicit_paddings must be between 0 and ", kMaxSize, ", got [",
                              str_join(pads, ","), "]");
    }
  }
  const auto at = [&](int dim, int side) {
    return pads[2 * static_cast<size_t>(dim) + static_cast<size_t>(side)];
  };
  if (at(0, 0) != 0 || at(0, 1) != 0 || at(spec.channel_dim(), 0) != 0 ||
      at(spec.channel_dim(), 1) != 0) {
    return invalid_argument("explicit_paddings of batch and channels must be 0, got [",
                            str_join(pads, ","), "]");
  }
  spec.height.explicit_before = at(spec.height_dim(), 0);
  spec.height.explicit_after = at(spec.height_dim(), 1);
  spec.width.explicit_before = at(spec.width_dim(), 0);
  spec.width.explicit_after = at(spec.width_dim(), 1);
  return ok_status();
}

}  // namespace

Result<WindowSpec> read_conv_spec(const AttrMap& attrs) {
  WindowSpec spec;
  MR_TRY_ASSIGN(const std::string_view layout, read_text(attrs, "data_format"));
  if (layout != "NHWC" && layout != "NCHW") {
    return invalid_argument("data_format must be NHWC or NCHW, got ", layout);
  }
  spec.layout = layout == "NHWC" ? ImageLayout::kNhwc : ImageLayout::kNchw;
  MR_TRY_ASSIGN(const std::string_view padding, read_text(attrs, "padding"));
  if (padding == "SAME") {
    spec.padding = Padding::kSame;
  } else if (padding == "VALID") {
    spec.padding = Padding::kValid;
  } else if (padding == "EXPLICIT") {
    spec.padding = Padding::kExplicit;
  } else {
    return invalid_argument("padding must be SAME, VALID or EXPLICIT, got ", padding);
  }
  MR_TRY(read_sizes(attrs, "strides", spec, &spec.height.stride, &spec.width.stride));
  if (attrs.find("dilations") != nullptr) {
    MR_TRY(read_sizes(attrs, "dilations", spec, &spec.height.dilation, &spec.width.dilation));
  }
  MR_TRY(read_explicit_paddings(attrs, spec));
  return spec;
}

Result<WindowSpec> read_pool_spec(const AttrMap& attrs) {
  MR_TRY_ASSIGN(WindowSpec spec, read_conv_spec(attrs));
  MR_TRY(read_sizes(attrs, "ksize", spec, &spec.height.window, &spec.width.window));
  return spec;
}

Result<AxisGeometry> axis_geometry(const WindowAxis& axis, Padding padding, int64_t input,
                                   const char* what) {
  if (input > kMaxInput || axis.window < 1 || axis.window > kMaxSize) {
    return invalid_argument("a window of ", axis.window, " over an input ", what, " of ", input,
                            " is out of range");
  }
  AxisGeometry g{input, axis.window, axis.stride, axis.dilation, 0, 0};
  const int64_t reach = (axis.window - 1) * axis.dilation + 1;
  if (padding == Padding::kSame) {
    g.output = (input + axis.stride - 1) / axis.stride;
    g.before = std::max<int64_t>(0, (g.output - 1) * axis.stride + reach - input) / 2;
    return g;
  }
  int64_t padded = input;
  if (padding == Padding::kExplicit) {
    g.before = axis.explicit_before;
    padded += axis.explicit_before + axis.explicit_after;
  }
  if (padded - reach + axis.stride < 0) {
    return invalid_argument("the window needs a ", what, " of ", reach, ", but the input has ",
                            padded);
  }
  g.output = (padded - reach + axis.stride) / axis.stride;
  return g;
}

Result<int64_t> axis_output(const WindowAxis& axis, Padding padding, int64_t input,
                            const char* what) {
  if (input < 0 || axis.window < 0) return PartialShape::kUnknownDim;
  MR_TRY_ASSIGN(const AxisGeometry g, axis_geometry(axis, padding, input, what));
  return g.output;
}

Result<Shape> image_shape(ImageLayout layout, int64_t batch, int64_t height, int64_t width,
                          int64_t channels) {
  const int64_t nhwc[] = {batch, height, width, channels};
  const int64_t nchw[] = {batch, channels, height, width};
  return Shape::make(layout == ImageLayout::kNhwc ? nhwc : nchw);
}

PartialShape partial_image_shape(ImageLayout layout, int64_t batch, int64_t height, int64_t width,
                                 int64_t channels) {
  if (layout == ImageLayout::kNhwc) return {batch, height, width, channels};
  return {batch, channels, height, width};
}

}  // namespace millrace
