#include "millrace/ops/nn/volume_geometry.h"

#include <string>
#include <vector>

namespace millrace {
namespace {

constexpr const char* kAxisNames[] = {"depth", "height", "width"};
constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;

Status read_sizes(const AttrMap& attrs, std::string_view name, const VolumeSpec& spec,
                  std::array<int64_t, 3>& out) {
  MR_TRY_ASSIGN(const std::vector<int64_t> sizes, read_attr<std::vector<int64_t>>(attrs, name));
  if (sizes.size() != 5) {
    return invalid_argument(name, " must have 5 elements, got [", str_join(sizes, ","), "]");
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
  for (int a = 0; a < 3; ++a) {
    out[static_cast<size_t>(a)] = sizes[static_cast<size_t>(spec.axis_dim(a))];
  }
  return ok_status();
}

bool is_text(const AttrMap& attrs, std::string_view name, std::string_view value) {
  const AttrValue* const found = attrs.find(name);
  const std::string* const text = found == nullptr ? nullptr : found->get<std::string>();
  return text != nullptr && *text == value;
}

}  // namespace

Result<VolumeSpec> read_volume_conv_spec(const AttrMap& attrs) {
  VolumeSpec spec;
  spec.channels_last = !is_text(attrs, "data_format", "NCDHW");
  spec.padding = is_text(attrs, "padding", "SAME") ? Padding::kSame : Padding::kValid;
  std::array<int64_t, 3> sizes{};
  MR_TRY(read_sizes(attrs, "strides", spec, sizes));
  for (size_t a = 0; a < 3; ++a) spec.axes[a].stride = sizes[a];
  if (attrs.find("dilations") != nullptr) {
    MR_TRY(read_sizes(attrs, "dilations", spec, sizes));
    for (size_t a = 0; a < 3; ++a) spec.axes[a].dilation = sizes[a];
  }
  return spec;
}

Result<VolumeSpec> read_volume_pool_spec(const AttrMap& attrs) {
  MR_TRY_ASSIGN(VolumeSpec spec, read_volume_conv_spec(attrs));
  std::array<int64_t, 3> sizes{};
  MR_TRY(read_sizes(attrs, "ksize", spec, sizes));
  for (size_t a = 0; a < 3; ++a) spec.axes[a].window = sizes[a];
  return spec;
}

Result<VolumeGeometry> volume_geometry(const VolumeSpec& spec, const Shape& volume) {
  if (volume.rank() != 5) return invalid_argument("the input must have rank 5, got ", volume);
  VolumeGeometry geometry;
  for (int a = 0; a < 3; ++a) {
    const auto i = static_cast<size_t>(a);
    MR_TRY_ASSIGN(geometry[i], axis_geometry(spec.axes[i], spec.padding, volume[spec.axis_dim(a)],
                                             kAxisNames[a]));
  }
  return geometry;
}

Result<Shape> volume_shape(const VolumeSpec& spec, int64_t batch, const VolumeGeometry& geometry,
                           int64_t channels) {
  std::array<int64_t, 5> dims{};
  dims[0] = batch;
  dims[static_cast<size_t>(spec.channel_dim())] = channels;
  for (int a = 0; a < 3; ++a) {
    dims[static_cast<size_t>(spec.axis_dim(a))] = geometry[static_cast<size_t>(a)].output;
  }
  return Shape::make(dims);
}

Result<PartialShape> partial_volume_shape(const VolumeSpec& spec, const PartialShape& input,
                                          int64_t channels) {
  PartialShape out = PartialShape::of_rank(5);
  out.set_dim(0, input.dim(0));
  out.set_dim(spec.channel_dim(), channels);
  for (int a = 0; a < 3; ++a) {
    MR_TRY_ASSIGN(const int64_t size, axis_output(spec.axes[static_cast<size_t>(a)], spec.padding,
                                                  input.dim(spec.axis_dim(a)), kAxisNames[a]));
    out.set_dim(spec.axis_dim(a), size);
  }
  return out;
}

}  // namespace millrace
