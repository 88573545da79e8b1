// EncodeJpeg, EncodeJpegVariableQuality, EncodePng, ExtractJpegShape.

#include "millrace/graph/shape_context.h"
#include "millrace/io/image/jpeg.h"
#include "millrace/io/image/png.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

// Unknown sizes are negative.
Status check_jpeg_sizes(int64_t height, int64_t width, int64_t channels,
                        const std::string& format) {
  if (height == 0 || width == 0 || (channels >= 0 && channels != 1 && channels != 3)) {
    return invalid_argument("image must be [height, width, 1 or 3] and not empty, got [", height,
                            ",", width, ",", channels, "]");
  }
  const int64_t wanted = format == "grayscale" ? 1 : format == "rgb" ? 3 : channels;
  if (channels < 0 || channels == wanted) return ok_status();
  return invalid_argument("format '", format, "' expects ", wanted, " channels, got ", channels);
}

// The attributes of EncodeJpeg, for its shape rule and its kernel.
struct JpegAttrs {
  std::string format;
  JpegEncodeOptions options;
};

Status check_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return ok_status();
  return invalid_argument(name, " must be in [", min, ",", max, "], got ", value);
}

template <class Node>
Result<int> int_attr(const Node& node, const char* name, int64_t min, int64_t max) {
  MR_TRY_ASSIGN(const int64_t value, node.template attr<int64_t>(name));
  MR_TRY(check_range(name, value, min, max));
  return static_cast<int>(value);
}

template <class Node>
Result<JpegAttrs> read_jpeg_attrs(const Node& node) {
  JpegAttrs attrs;
  JpegEncodeOptions& options = attrs.options;
  MR_TRY_ASSIGN(attrs.format, node.template attr<std::string>("format"));
  MR_TRY_ASSIGN(options.quality, int_attr(node, "quality", 0, 100));
  MR_TRY_ASSIGN(options.progressive, node.template attr<bool>("progressive"));
  MR_TRY_ASSIGN(options.optimize_size, node.template attr<bool>("optimize_size"));
  MR_TRY_ASSIGN(options.chroma_downsampling, node.template attr<bool>("chroma_downsampling"));
  MR_TRY_ASSIGN(const std::string unit, node.template attr<std::string>("density_unit"));
  options.density_in_inches = unit == "in";
  MR_TRY_ASSIGN(options.x_density, int_attr(node, "x_density", 0, 65535));
  MR_TRY_ASSIGN(options.y_density, int_attr(node, "y_density", 0, 65535));
  MR_TRY_ASSIGN(options.xmp_metadata, node.template attr<std::string>("xmp_metadata"));
  return attrs;
}

Status encode_jpeg_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape image, c.with_rank(0, 3));
  std::string format;
  if (c.num_inputs() == 1) {
    MR_TRY_ASSIGN(JpegAttrs attrs, read_jpeg_attrs(c));
    format = std::move(attrs.format);
  } else {
    MR_TRY(c.with_rank(1, 0).status());
    if (const auto quality = c.input_scalar(1)) MR_TRY(check_range("quality", *quality, 0, 100));
  }
  MR_TRY(check_jpeg_sizes(image.dim(0), image.dim(1), image.dim(2), format));
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

Status encode_png_shape(ShapeContext& c) {
  MR_TRY(int_attr(c, "compression", -1, 9).status());
  MR_TRY_ASSIGN(const PartialShape image, c.with_rank_at_least(0, 3));
  if (!image.rank_known()) return ok_status();
  const std::span<const int64_t> dims = image.dims();
  for (const int64_t dim : dims) {
    if (dim == 0) return invalid_argument("image must not be empty, got ", image);
  }
  if (dims.back() > 4) return invalid_argument("image must have 1 to 4 channels, got ", image);
  MR_TRY_ASSIGN(PartialShape outer, PartialShape::make(dims.first(dims.size() - 3)));
  c.set_output(0, std::move(outer));
  return ok_status();
}

Status jpeg_shape_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  c.set_output(0, PartialShape({3}));
  return ok_status();
}

Status set_string(KernelContext& ctx, std::string text) {
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
  out->mutable_data<std::string>()[0] = std::move(text);
  return ok_status();
}

class EncodeJpeg : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(JpegAttrs attrs, read_jpeg_attrs(node));
    return std::make_unique<EncodeJpeg>(std::move(attrs));
  }
  explicit EncodeJpeg(JpegAttrs attrs) : attrs_(std::move(attrs)) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& image = ctx.input(0);
    MR_TRY(expect_rank(ctx, 0, 3));
    MR_TRY(check_jpeg_sizes(image.dim(0), image.dim(1), image.dim(2), attrs_.format));
    MR_TRY_ASSIGN(std::string bytes, encode_jpeg(image, attrs_.options));
    return set_string(ctx, std::move(bytes));
  }

 private:
  const JpegAttrs attrs_;
};

Status encode_with_quality(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 3));
  MR_TRY(expect_rank(ctx, 1, 0));
  JpegEncodeOptions options;
  MR_TRY_ASSIGN(options.quality, ctx.scalar_input<int32_t>(1));
  MR_TRY_ASSIGN(std::string bytes, encode_jpeg(ctx.input(0), options));
  return set_string(ctx, std::move(bytes));
}

class EncodePng : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int compression, int_attr(node, "compression", -1, 9));
    return std::make_unique<EncodePng>(compression);
  }
  explicit EncodePng(int compression) : compression_(compression) {}

  // One string for each image of a batch.
  Status compute(KernelContext& ctx) const override {
    const Tensor& images = ctx.input(0);
    if (images.rank() < 3) {
      return invalid_argument("image must have rank 3 or more, got ", images.shape());
    }
    const std::span<const int64_t> dims = images.shape().dims();
    const size_t outer = dims.size() - 3;
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims.first(outer)));
    if (images.num_elements() == 0) {
      return invalid_argument("image must not be empty, got ", images.shape());
    }
    MR_TRY_ASSIGN(const Tensor flat, images.reshaped({shape.num_elements(), dims[outer],
                                                      dims[outer + 1], dims[outer + 2]}));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    for (int64_t i = 0; i < flat.dim(0); ++i) {
      MR_TRY_ASSIGN(out->mutable_data<std::string>()[static_cast<size_t>(i)],
                    encode_png(flat.row(i), compression_));
    }
    return ok_status();
  }

 private:
  const int compression_;
};

template <class T>
Status extract_jpeg_shape(KernelContext& ctx) {
  MR_TRY_ASSIGN(const std::string bytes, ctx.scalar_input<std::string>(0));
  MR_TRY(expect_rank(ctx, 0, 0));
  MR_TRY_ASSIGN(const JpegShape shape, read_jpeg_shape(bytes));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{3}));
  T* const to = out->mutable_data<T>().data();
  to[0] = static_cast<T>(shape.height);
  to[1] = static_cast<T>(shape.width);
  to[2] = static_cast<T>(shape.channels);
  return ok_status();
}

}  // namespace

void register_encode_image(Registry& registry) {
  registry.add({.name = "EncodeJpeg",
                .doc = "An image [height, width, 1 or 3] as JPEG.",
                .inputs = {{"image", "uint8"}},
                .outputs = {{"contents", "string"}},
                .attrs = {{"format", "string = '' in {'','grayscale','rgb'}"},
                          {"quality", "int = 95", "0 to 100; more is better and longer."},
                          {"progressive", "bool = false"},
                          {"optimize_size", "bool = false"},
                          {"chroma_downsampling", "bool = true"},
                          {"density_unit", "string = 'in' in {'in','cm'}"},
                          {"x_density", "int = 300"},
                          {"y_density", "int = 300"},
                          {"xmp_metadata", "string = ''"}},
                .traits = {.cannot_differentiate = true, .cost = 1e5F},
                .shape = encode_jpeg_shape});
  registry.add({.name = "EncodeJpegVariableQuality",
                .doc = "An image [height, width, 1 or 3] as JPEG of a quality from 0 to 100.",
                .inputs = {{"images", "uint8"}, {"quality", "host(int32)"}},
                .outputs = {{"contents", "string"}},
                .traits = {.cannot_differentiate = true, .cost = 1e5F},
                .shape = encode_jpeg_shape});
  registry.add({.name = "EncodePng",
                .doc = "Images [..., height, width, 1 to 4] as PNG.",
                .inputs = {{"image", "T"}},
                .outputs = {{"contents", "string"}},
                .types = {{"T", {DType::kUInt8, DType::kUInt16}, DType::kUInt8}},
                .attrs = {{"compression", "int = -1", "zlib's level, -1 for its default."}},
                .traits = {.cannot_differentiate = true, .cost = 1e5F},
                .shape = encode_png_shape});
  registry.add({.name = "ExtractJpegShape",
                .doc = "Height, width and channels of a JPEG image, without decoding it.",
                .inputs = {{"contents", "string"}},
                .outputs = {{"image_shape", "output_type"}},
                .types = {{"output_type", {DType::kInt32, DType::kInt64}, DType::kInt32}},
                .traits = {.cannot_differentiate = true, .cost = 1e3F},
                .shape = jpeg_shape_shape});
  registry.kernel<EncodeJpeg>("EncodeJpeg", DeviceKind::kCpu);
  registry.kernel("EncodeJpegVariableQuality", DeviceKind::kCpu, encode_with_quality);
  registry.kernel<EncodePng>("EncodePng", DeviceKind::kCpu);
  registry.kernel({.op = "ExtractJpegShape",
                   .constraints = {{"output_type", {DType::kInt32}}},
                   .function = &extract_jpeg_shape<int32_t>});
  registry.kernel({.op = "ExtractJpegShape",
                   .constraints = {{"output_type", {DType::kInt64}}},
                   .function = &extract_jpeg_shape<int64_t>});
}

}  // namespace millrace
