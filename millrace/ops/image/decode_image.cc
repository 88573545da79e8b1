// Images from the bytes of files: DecodeJpeg, DecodeAndCropJpeg, DecodePng, DecodeGif, DecodeBmp
// and DecodeImage. As in TensorFlow the bytes say what they are, and most of the ops take most
// formats.

#include "millrace/graph/shape_context.h"
#include "millrace/io/image/image.h"
#include "millrace/io/image/jpeg.h"
#include "millrace/io/image/png.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

enum class Op : uint8_t { kJpeg, kCropJpeg, kPng, kGif, kBmp, kAny };

constexpr const char* kNames[] = {"DecodeJpeg", "DecodeAndCropJpeg", "DecodePng",
                                  "DecodeGif",  "DecodeBmp",         "DecodeImage"};

Status check_channels(int64_t channels) {
  if (channels == 0 || channels == 1 || channels == 3 || channels == 4) return ok_status();
  return invalid_argument("channels must be 0, 1, 3, or 4, got ", channels);
}

// Of DecodeJpeg and DecodeAndCropJpeg, for their shape rule and their kernels.
template <class Node>
Result<JpegDecodeOptions> read_jpeg_options(const Node& node) {
  JpegDecodeOptions options;
  MR_TRY_ASSIGN(const int64_t ratio, node.template attr<int64_t>("ratio"));
  if (ratio != 1 && ratio != 2 && ratio != 4 && ratio != 8) {
    return invalid_argument("ratio must be 1, 2, 4, or 8, got ", ratio);
  }
  options.ratio = static_cast<int>(ratio);
  MR_TRY_ASSIGN(options.fancy_upscaling, node.template attr<bool>("fancy_upscaling"));
  MR_TRY_ASSIGN(options.try_recover_truncated, node.template attr<bool>("try_recover_truncated"));
  MR_TRY_ASSIGN(options.acceptable_fraction, node.template attr<float>("acceptable_fraction"));
  MR_TRY_ASSIGN(const std::string dct, node.template attr<std::string>("dct_method"));
  if (dct != "" && dct != "INTEGER_FAST" && dct != "INTEGER_ACCURATE") {
    return invalid_argument(
        "dct_method must be one of {'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}, got '", dct, "'");
  }
  options.accurate_dct = dct == "INTEGER_ACCURATE";
  return options;
}

Status image_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  if (c.num_inputs() == 2) {
    MR_TRY_ASSIGN(const PartialShape window, c.with_rank(1, 1));
    if (window.dim_known(0) && window.dim(0) != 4) {
      return invalid_argument("crop_window must have four elements, got ", window);
    }
  }
  constexpr int64_t kUnknown = PartialShape::kUnknownDim;
  MR_TRY_ASSIGN(const int64_t channels, c.attr<int64_t>("channels"));
  MR_TRY(check_channels(channels));
  if (c.attrs().find("expand_animations") != nullptr) {
    MR_TRY_ASSIGN(const bool frames, c.attr<bool>("expand_animations"));
    if (frames) return ok_status();
  }
  c.set_output(0, PartialShape({kUnknown, kUnknown, channels == 0 ? kUnknown : channels}));
  return ok_status();
}

Status jpeg_shape(ShapeContext& c) {
  MR_TRY(read_jpeg_options(c).status());
  return image_shape(c);
}

Status gif_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  constexpr int64_t kUnknown = PartialShape::kUnknownDim;
  c.set_output(0, PartialShape({kUnknown, kUnknown, kUnknown, 3}));
  return ok_status();
}

// Pixels of 8 bits in the wider type that DecodeImage was asked for.
Result<Tensor> widened(const Tensor& image, DType dtype, Allocator& allocator) {
  if (dtype == image.dtype()) return image;
  MR_TRY_ASSIGN(Tensor out, Tensor::allocate(dtype, image.shape(), allocator));
  const auto convert = [&]<class From, class To>(const From* from, To* to, auto function) {
    for (int64_t i = 0; i < image.num_elements(); ++i) to[i] = function(from[i]);
  };
  if (dtype == DType::kUInt16) {
    convert(image.data<uint8_t>().data(), out.mutable_data<uint16_t>().data(),
            [](uint8_t x) { return static_cast<uint16_t>(x * 256); });
  } else if (image.dtype() == DType::kUInt8) {
    convert(image.data<uint8_t>().data(), out.mutable_data<float>().data(),
            [](uint8_t x) { return static_cast<float>(x) * (1.0F / 255); });
  } else {
    convert(image.data<uint16_t>().data(), out.mutable_data<float>().data(),
            [](uint16_t x) { return static_cast<float>(x) * (1.0F / 65535); });
  }
  return out;
}

template <Op kOp>
class DecodeImage : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<DecodeImage>();
    if constexpr (kOp != Op::kGif) {
      MR_TRY_ASSIGN(const int64_t channels, node.attr<int64_t>("channels"));
      MR_TRY(check_channels(channels));
      kernel->channels_ = static_cast<int>(channels);
    }
    if constexpr (kOp == Op::kAny) {
      MR_TRY_ASSIGN(kernel->expand_, node.attr<bool>("expand_animations"));
    }
    if constexpr (kOp == Op::kJpeg || kOp == Op::kCropJpeg) {
      MR_TRY_ASSIGN(kernel->jpeg_, read_jpeg_options(node));
      kernel->jpeg_.crop = kOp == Op::kCropJpeg;
    }
    kernel->jpeg_.channels = kernel->channels_;
    return kernel;
  }

  Status compute(KernelContext& ctx) const override {
    if (ctx.input(0).rank() != 0) {
      return invalid_argument("contents must be scalar, got shape ", ctx.input(0).shape());
    }
    const std::string& bytes = ctx.input(0).data<std::string>()[0];
    if (bytes.empty()) return invalid_argument("Input is empty.");
    const ImageFormat format = image_format(bytes);
    MR_TRY(check_format(format));
    MR_TRY_ASSIGN(Tensor image, decode(ctx, bytes, format));
    MR_TRY_ASSIGN(image, widened(image, ctx.output_type(0), ctx.device().host_allocator()));
    if (image.rank() == 4) {
      MR_TRY_ASSIGN(image, take_frames(std::move(image)));
    } else if constexpr (kOp == Op::kGif) {
      MR_TRY_ASSIGN(image, image.reshaped({1, image.dim(0), image.dim(1), image.dim(2)}));
    }
    ctx.set_output(0, std::move(image));
    return ok_status();
  }

 private:
  static Status check_format(ImageFormat format) {
    const std::string_view name = image_format_name(format);
    if (format == ImageFormat::kUnknown) {
      return invalid_argument("Unknown image file format. One of JPEG, PNG, GIF, BMP required.");
    }
    if (kOp == Op::kCropJpeg && format != ImageFormat::kJpeg) {
      return invalid_argument("DecodeAndCropJpeg operation can run on JPEG only, but detected ",
                              name, ".");
    }
    const bool bmp = format == ImageFormat::kBmp;
    if (bmp != (kOp == Op::kBmp) && kOp != Op::kAny) {
      return invalid_argument(
          "Trying to decode ", name, " format using a wrong op. Use `decode_image`",
          bmp ? " or `decode_bmp`" : "", " instead. Op used: ", kNames[static_cast<int>(kOp)]);
    }
    return ok_status();
  }

  Result<Tensor> decode(KernelContext& ctx, const std::string& bytes, ImageFormat format) const {
    Allocator& allocator = ctx.device().host_allocator();
    if (format == ImageFormat::kJpeg) {
      JpegDecodeOptions options = jpeg_;
      if constexpr (kOp == Op::kCropJpeg) {
        MR_TRY(expect_rank(ctx, 1, 1));
        MR_TRY_ASSIGN(const std::vector<int64_t> window, ctx.int_vector_input(1));
        if (window.size() != 4) {
          return invalid_argument("crop_window must have four elements, got ", window.size());
        }
        options.crop_y = window[0];
        options.crop_x = window[1];
        options.crop_height = window[2];
        options.crop_width = window[3];
      }
      return decode_jpeg(bytes, options, allocator);
    }
    if (format == ImageFormat::kPng) {
      const bool narrow = ctx.output_type(0) == DType::kUInt8;
      return decode_png(bytes, channels_, narrow ? DType::kUInt8 : DType::kUInt16, allocator);
    }
    if (format == ImageFormat::kBmp) return decode_bmp(bytes, channels_, allocator);
    if (channels_ != 0 && channels_ != 3) {
      return invalid_argument("channels must be 0 or 3 for GIF, got ", channels_);
    }
    return decode_gif(bytes, /*first_only=*/!expand_, allocator);
  }

  // Only some ops give all frames of an animation.
  Result<Tensor> take_frames(Tensor frames) const {
    if (kOp == Op::kGif || (kOp == Op::kAny && expand_)) return frames;
    if (frames.dim(0) == 1) return frames.row(0);
    return invalid_argument("Got ", frames.dim(0),
                            " frames, but animated gifs can only be decoded by tf.image.decode_gif "
                            "or tf.image.decode_image");
  }

  int channels_ = kOp == Op::kGif ? 3 : 0;
  bool expand_ = true;
  JpegDecodeOptions jpeg_;
};

}  // namespace

void register_decode_image(Registry& registry) {
  const OpSpec::Attr channels = {"channels", "int = 0", "0 for as many as the image has."};
  const auto add_jpeg = [&](const char* name, const char* doc, bool crop) {
    SpecList<OpSpec::Arg> inputs = {{"contents", "string"}};
    if (crop) inputs = {{"contents", "string"}, {"crop_window", "host(int32)"}};
    registry.add({.name = name,
                  .doc = doc,
                  .inputs = inputs,
                  .outputs = {{"image", "uint8"}},
                  .attrs = {channels,
                            {"ratio", "int = 1", "Divides the size: 1, 2, 4 or 8."},
                            {"fancy_upscaling", "bool = true"},
                            {"try_recover_truncated", "bool = false"},
                            {"acceptable_fraction", "float = 1"},
                            {"dct_method", "string = ''"}},
                  .traits = {.cannot_differentiate = true, .cost = 1e5F},
                  .shape = jpeg_shape});
  };
  add_jpeg("DecodeJpeg", "The pixels of a JPEG image.", false);
  add_jpeg("DecodeAndCropJpeg", "A window of a JPEG image: [y, x, height, width].", true);
  registry.add({.name = "DecodePng",
                .doc = "The pixels of a PNG image.",
                .inputs = {{"contents", "string"}},
                .outputs = {{"image", "dtype"}},
                .types = {{"dtype", {DType::kUInt8, DType::kUInt16}, DType::kUInt8}},
                .attrs = {channels},
                .traits = {.cannot_differentiate = true, .cost = 1e5F},
                .shape = image_shape});
  registry.add({.name = "DecodeGif",
                .doc = "All frames of a GIF image, [frames, height, width, 3].",
                .inputs = {{"contents", "string"}},
                .outputs = {{"image", "uint8"}},
                .traits = {.cannot_differentiate = true, .cost = 1e5F},
                .shape = gif_shape});
  registry.add({.name = "DecodeBmp",
                .doc = "The pixels of a BMP image.",
                .inputs = {{"contents", "string"}},
                .outputs = {{"image", "uint8"}},
                .attrs = {channels},
                .traits = {.cannot_differentiate = true, .cost = 1e5F},
                .shape = image_shape});
  registry.add(
      {.name = "DecodeImage",
       .doc = "The pixels of a JPEG, PNG, GIF or BMP image; GIF has a dimension more.",
       .inputs = {{"contents", "string"}},
       .outputs = {{"image", "dtype"}},
       .types = {{"dtype", {DType::kUInt8, DType::kUInt16, DType::kFloat}, DType::kUInt8}},
       .attrs = {channels, {"expand_animations", "bool = true", "False for the first frame."}},
       .traits = {.cannot_differentiate = true, .cost = 1e5F},
       .shape = image_shape});
  registry.kernel<DecodeImage<Op::kJpeg>>("DecodeJpeg", DeviceKind::kCpu);
  registry.kernel<DecodeImage<Op::kCropJpeg>>("DecodeAndCropJpeg", DeviceKind::kCpu);
  registry.kernel<DecodeImage<Op::kPng>>("DecodePng", DeviceKind::kCpu);
  registry.kernel<DecodeImage<Op::kGif>>("DecodeGif", DeviceKind::kCpu);
  registry.kernel<DecodeImage<Op::kBmp>>("DecodeBmp", DeviceKind::kCpu);
  registry.kernel<DecodeImage<Op::kAny>>("DecodeImage", DeviceKind::kCpu);
}

}  // namespace millrace
