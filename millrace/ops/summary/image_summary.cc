#include <algorithm>
#include <cmath>

#include "millrace/io/image/png.h"
#include "millrace/ops/summary/summary_op.h"
#include "millrace/tensor/half.h"
#include "proto/summary.pb.h"

namespace millrace {
namespace {

Status check_depth(int64_t channels, int64_t colours) {
  if (channels > colours) {
    return invalid_argument("expected depth <= bad_color.size, got depth = ", channels,
                            ", bad_color.size = ", colours);
  }
  return ok_status();
}

// Unknown sizes are negative.
Status check_sizes(int64_t height, int64_t width, int64_t channels) {
  if (channels >= 0 && channels != 1 && channels != 3 && channels != 4) {
    return invalid_argument("Tensor must be 4-D with last dim 1, 3, or 4, not ", channels);
  }
  if (height == 0 || width == 0) {
    return invalid_argument("images must not be empty, got ", height, " x ", width, " pixels");
  }
  return ok_status();
}

Status image_summary_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  MR_TRY_ASSIGN(const PartialShape images, c.with_rank(1, 4));
  MR_TRY(check_sizes(images.dim(1), images.dim(2), images.dim(3)));
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

class ImageSummary : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<ImageSummary>();
    MR_TRY_ASSIGN(kernel->max_images_, node.attr<int64_t>("max_images"));
    MR_TRY_ASSIGN(const Tensor colour, node.attr<Tensor>("bad_color"));
    if (colour.dtype() != DType::kUInt8 || colour.rank() != 1) {
      return invalid_argument("bad_color must be a vector of uint8, got ", colour);
    }
    kernel->bad_colour_.assign(colour.data<uint8_t>().begin(), colour.data<uint8_t>().end());
    return kernel;
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const std::string tag, tag_input(ctx));
    const Tensor& images = ctx.input(1);
    if (images.rank() != 4) {
      return invalid_argument("Tensor must be 4-D with last dim 1, 3, or 4, not ", images.shape());
    }
    const int64_t channels = images.dim(3);
    MR_TRY(check_sizes(images.dim(1), images.dim(2), channels));
    tensorflow::Summary summary;
    for (int64_t i = 0; i < std::min(images.dim(0), max_images_); ++i) {
      MR_TRY_ASSIGN(const Tensor pixels, as_bytes(images.row(i)));
      tensorflow::Summary::Value& value = *summary.add_value();
      value.set_tag(numbered_tag(tag, "image", i, max_images_));
      tensorflow::Summary::Image& image = *value.mutable_image();
      image.set_height(static_cast<int32_t>(pixels.dim(0)));
      image.set_width(static_cast<int32_t>(pixels.dim(1)));
      image.set_colorspace(static_cast<int32_t>(channels));
      MR_TRY_ASSIGN(*image.mutable_encoded_image_string(), encode_png(pixels));
    }
    return set_summary(ctx, summary);
  }

 private:
  Result<Tensor> as_bytes(const Tensor& image) const {
    switch (image.dtype()) {
      case DType::kUInt8:
        return image;
      case DType::kHalf:
        return scaled<Half>(image);
      case DType::kDouble:
        return scaled<double>(image);
      default:
        return scaled<float>(image);
    }
  }

  // Numbers that are never negative are scaled so that the largest is 255, others so that 0 is 128
  // and the largest by size is off by 127. Pixels with numbers that are not finite get the bad
  // colour.
  template <class T>
  Result<Tensor> scaled(const Tensor& image) const {
    const int64_t channels = image.dim(2);
    MR_TRY(check_depth(channels, static_cast<int64_t>(bad_colour_.size())));
    MR_TRY_ASSIGN(Tensor out, Tensor::allocate(DType::kUInt8, image.shape()));
    const std::span<const T> from = image.data<T>();
    float low = 0, high = 0;
    for (const T element : from) {
      const float x = static_cast<float>(element);
      if (!std::isfinite(x)) continue;
      low = std::min(low, x);
      high = std::max(high, x);
    }
    const float top = std::max(-low, high);
    const float offset = low < 0 ? 128 : 0;
    const float scale = top < 1e-6F ? 0 : (low < 0 ? 127 : 255) / top;
    uint8_t* to = out.mutable_data<uint8_t>().data();
    for (size_t i = 0; i < from.size(); i += static_cast<size_t>(channels), to += channels) {
      const std::span<const T> pixel = from.subspan(i, static_cast<size_t>(channels));
      const bool finite =
          std::ranges::all_of(pixel, [](T x) { return std::isfinite(static_cast<float>(x)); });
      for (size_t c = 0; c < pixel.size(); ++c) {
        to[c] = finite ? static_cast<uint8_t>(static_cast<float>(pixel[c]) * scale + offset)
                       : bad_colour_[c];
      }
    }
    return out;
  }

  int64_t max_images_ = 0;
  std::vector<uint8_t> bad_colour_;
};

}  // namespace

void register_image_summary(Registry& registry) {
  registry.add(
      {.name = "ImageSummary",
       .doc = "A summary of images [batch, height, width, 1, 3 or 4], as PNG.",
       .inputs = {{"tag", "string"}, {"tensor", "T"}},
       .outputs = {{"summary", "string"}},
       .types = {{"T",
                  {DType::kUInt8, DType::kFloat, DType::kHalf, DType::kDouble},
                  DType::kFloat}},
       .attrs = {{"max_images", "int = 3 >= 1", "How many of the batch are shown."},
                 {"bad_color", "tensor = uint8 [255,0,0,255]", "For numbers that are not finite."}},
       .traits = {.cannot_differentiate = true, .cost = 1e5F},
       .shape = image_summary_shape,
       .no_gradient = kSummaryNoGradient});
  registry.kernel<ImageSummary>("ImageSummary", DeviceKind::kCpu);
}

}  // namespace millrace
