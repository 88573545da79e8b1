#include "millrace/ops/nn/window_geometry.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace millrace {
namespace {

constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;
constexpr int64_t kMaxInput = int64_t{1} << 60;

template <int N>
constexpr std::array<const char*, N> kAxisNames;
template <>
constexpr std::array<const char*, 2> kAxisNames<2> = {"height", "width"};
template <>
constexpr std::array<const char*, 3> kAxisNames<3> = {"depth", "height", "width"};

template <int N>
constexpr const char* kChannelsLast = N == 2 ? "NHWC" : "NDHWC";
template <int N>
constexpr const char* kChannelsFirst = N == 2 ? "NCHW" : "NCDHW";

// The numbers of attribute `name`, one for each dimension, positive and bounded, with 1 for batch
// and channels; those of the axes go to the member of each.
template <int N>
Status read_sizes(const AttrMap& attrs, std::string_view name, WindowSpec<N>& spec,
                  int64_t WindowAxis::*member) {
  MR_TRY_ASSIGN(const std::vector<int64_t> sizes, read_attr<std::vector<int64_t>>(attrs, name));
  if (sizes.size() != spec.kRank) {
    return invalid_argument(name, " must have ", spec.kRank, " elements, got [",
                            str_join(sizes, ","), "]");
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
  for (int a = 0; a < N; ++a) {
    spec.axes[static_cast<size_t>(a)].*member = sizes[static_cast<size_t>(spec.axis_dim(a))];
  }
  return ok_status();
}

// A view into `attrs`.
Result<std::string_view> read_text(const AttrMap& attrs, std::string_view name) {
  const AttrValue* value = attrs.find(name);
  const std::string* text = value == nullptr ? nullptr : value->get<std::string>();
  if (text == nullptr) return invalid_argument("attr '", name, "' must be a string");
  return std::string_view(*text);
}

template <int N>
Status read_layout(const AttrMap& attrs, WindowSpec<N>& spec) {
  if (attrs.find("data_format") == nullptr) return ok_status();
  MR_TRY_ASSIGN(const std::string_view layout, read_text(attrs, "data_format"));
  spec.channels_last = layout == kChannelsLast<N>;
  if (spec.channels_last || layout == kChannelsFirst<N>) return ok_status();
  return invalid_argument("data_format must be ", kChannelsLast<N>, " or ", kChannelsFirst<N>,
                          ", got ", layout);
}

// Pairs of paddings before and after each of the dimensions.
template <int N>
Status read_explicit_paddings(const AttrMap& attrs, WindowSpec<N>& spec) {
  std::vector<int64_t> pads;
  if (attrs.find("explicit_paddings") != nullptr) {
    MR_TRY_ASSIGN(pads, read_attr<std::vector<int64_t>>(attrs, "explicit_paddings"));
  }
  if (spec.padding != Padding::kExplicit) {
    if (pads.empty()) return ok_status();
    return invalid_argument("explicit_paddings must be empty unless padding is EXPLICIT, got [",
                            str_join(pads, ","), "]");
  }
  if (pads.size() != 2 * spec.kRank) {
    return invalid_argument("explicit_paddings must have ", 2 * spec.kRank, " elements, got [",
                            str_join(pads, ","), "]");
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
  for (int a = 0; a < N; ++a) {
    WindowAxis& axis = spec.axes[static_cast<size_t>(a)];
    axis.explicit_before = at(spec.axis_dim(a), 0);
    axis.explicit_after = at(spec.axis_dim(a), 1);
  }
  return ok_status();
}

}  // namespace

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

template <int N>
Result<WindowSpec<N>> read_conv_spec(const AttrMap& attrs) {
  WindowSpec<N> spec;
  MR_TRY(read_layout(attrs, spec));
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
  MR_TRY(read_sizes(attrs, "strides", spec, &WindowAxis::stride));
  if (attrs.find("dilations") != nullptr) {
    MR_TRY(read_sizes(attrs, "dilations", spec, &WindowAxis::dilation));
  }
  MR_TRY(read_explicit_paddings(attrs, spec));
  return spec;
}

template <int N>
Result<WindowSpec<N>> read_pool_spec(const AttrMap& attrs) {
  MR_TRY_ASSIGN(WindowSpec<N> spec, read_conv_spec<N>(attrs));
  MR_TRY(read_sizes(attrs, "ksize", spec, &WindowAxis::window));
  return spec;
}

template <int N>
Result<WindowGeometry<N>> window_geometry(const WindowSpec<N>& spec, const Shape& input) {
  if (input.rank() != spec.kRank) {
    return invalid_argument("the input must have rank ", spec.kRank, ", got ", input);
  }
  WindowGeometry<N> geometry;
  for (int a = 0; a < N; ++a) {
    const auto i = static_cast<size_t>(a);
    MR_TRY_ASSIGN(geometry[i], axis_geometry(spec.axes[i], spec.padding, input[spec.axis_dim(a)],
                                             kAxisNames<N>[i]));
  }
  return geometry;
}

template <int N>
Result<Shape> batch_shape(const WindowSpec<N>& spec, int64_t batch, std::span<const int64_t> sizes,
                          int64_t channels) {
  std::array<int64_t, N + 2> dims{};
  dims[0] = batch;
  dims[static_cast<size_t>(spec.channel_dim())] = channels;
  for (int a = 0; a < N; ++a) {
    dims[static_cast<size_t>(spec.axis_dim(a))] = sizes[static_cast<size_t>(a)];
  }
  return Shape::make(dims);
}

template <int N>
Result<Shape> output_shape(const WindowSpec<N>& spec, int64_t batch,
                           const WindowGeometry<N>& geometry, int64_t channels) {
  std::array<int64_t, N> sizes{};
  for (size_t a = 0; a < sizes.size(); ++a) sizes[a] = geometry[a].output;
  return batch_shape(spec, batch, sizes, channels);
}

template <int N>
PartialShape partial_batch_shape(const WindowSpec<N>& spec, int64_t batch, int64_t channels) {
  PartialShape out = PartialShape::of_rank(spec.kRank);
  out.set_dim(0, batch);
  out.set_dim(spec.channel_dim(), channels);
  return out;
}

template <int N>
Result<PartialShape> partial_output_shape(const WindowSpec<N>& spec, const PartialShape& input,
                                          int64_t channels) {
  PartialShape out = partial_batch_shape(spec, input.dim(0), channels);
  for (int a = 0; a < N; ++a) {
    const WindowAxis& axis = spec.axes[static_cast<size_t>(a)];
    const int64_t size = input.dim(spec.axis_dim(a));
    if (size < 0 || axis.window < 0) continue;
    MR_TRY_ASSIGN(const AxisGeometry g,
                  axis_geometry(axis, spec.padding, size, kAxisNames<N>[static_cast<size_t>(a)]));
    out.set_dim(spec.axis_dim(a), g.output);
  }
  return out;
}

#define MR_FOR_AXES(N)                                                                          \
  template Result<WindowSpec<N>> read_conv_spec<N>(const AttrMap&);                             \
  template Result<WindowSpec<N>> read_pool_spec<N>(const AttrMap&);                             \
  template Result<WindowGeometry<N>> window_geometry(const WindowSpec<N>&, const Shape&);       \
  template Result<Shape> batch_shape(const WindowSpec<N>&, int64_t, std::span<const int64_t>,   \
                                     int64_t);                                                  \
  template Result<Shape> output_shape(const WindowSpec<N>&, int64_t, const WindowGeometry<N>&,  \
                                      int64_t);                                                 \
  template Result<PartialShape> partial_output_shape(const WindowSpec<N>&, const PartialShape&, \
                                                     int64_t);                                  \
  template PartialShape partial_batch_shape(const WindowSpec<N>&, int64_t, int64_t);
MR_FOR_AXES(2)
MR_FOR_AXES(3)
#undef MR_FOR_AXES

}  // namespace millrace
