#include "millrace/io/image/jpeg.h"

#ifdef MILLRACE_HAS_JPEG

#include <jpeglib.h>

#include <csetjmp>
#include <cstdio>
#include <cstdlib>

namespace millrace {
namespace {

constexpr std::string_view kXmpName("http://ns.adobe.com/xap/1.0/\0", 29);
constexpr size_t kMaxMarkerBytes = 65533;

// As the decoder's: libjpeg leaves failing calls by longjmp, over nothing that must be destroyed.
class Encoder {
 public:
  Encoder() {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) {
      Encoder& self = *static_cast<Encoder*>(info->client_data);
      info->err->format_message(info, self.message_);
      std::longjmp(self.place_, 1);
    };
    errors_.emit_message = [](j_common_ptr, int) {};
    errors_.output_message = [](j_common_ptr) {};
    info_.client_data = this;
  }
  ~Encoder() {
    if (created_) jpeg_destroy_compress(&info_);
    std::free(bytes_);
  }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  bool encode(const uint8_t* pixels, int64_t height, int64_t width, int channels,
              const JpegEncodeOptions& options) {
    if (setjmp(place_) != 0) return false;
    jpeg_create_compress(&info_);
    created_ = true;
    info_.client_data = this;
    jpeg_mem_dest(&info_, &bytes_, &size_);
    info_.image_width = static_cast<JDIMENSION>(width);
    info_.image_height = static_cast<JDIMENSION>(height);
    info_.input_components = channels;
    info_.in_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&info_);
    if (options.optimize_size) info_.optimize_coding = TRUE;
    info_.density_unit = options.density_in_inches ? 1 : 2;
    info_.X_density = static_cast<UINT16>(options.x_density);
    info_.Y_density = static_cast<UINT16>(options.y_density);
    jpeg_set_quality(&info_, options.quality, TRUE);
    if (options.progressive) jpeg_simple_progression(&info_);
    if (!options.chroma_downsampling) {
      for (int i = 0; i < info_.num_components; ++i) {
        info_.comp_info[i].h_samp_factor = 1;
        info_.comp_info[i].v_samp_factor = 1;
      }
    }
    jpeg_start_compress(&info_, TRUE);
    if (!options.xmp_metadata.empty()) write_xmp(options.xmp_metadata);
    const int64_t stride = width * channels;
    for (int64_t y = 0; y < height; ++y) {
      JSAMPROW row = const_cast<uint8_t*>(pixels + y * stride);
      jpeg_write_scanlines(&info_, &row, 1);
    }
    jpeg_finish_compress(&info_);
    return true;
  }

  Status error() const { return invalid_argument("JPEG encoding failed: ", message_); }
  std::string_view bytes() const { return {reinterpret_cast<const char*>(bytes_), size_}; }

 private:
  void write_xmp(const std::string& xmp) {
    jpeg_write_m_header(&info_, JPEG_APP0 + 1, static_cast<unsigned>(kXmpName.size() + xmp.size()));
    for (const char c : kXmpName) jpeg_write_m_byte(&info_, static_cast<unsigned char>(c));
    for (const char c : xmp) jpeg_write_m_byte(&info_, static_cast<unsigned char>(c));
  }

  bool created_ = false;
  jpeg_compress_struct info_{};
  jpeg_error_mgr errors_{};
  unsigned char* bytes_ = nullptr;
  unsigned long size_ = 0;
  std::jmp_buf place_{};
  char message_[JMSG_LENGTH_MAX] = {};
};

}  // namespace

Result<std::string> encode_jpeg(const Tensor& image, const JpegEncodeOptions& options) {
  if (image.dtype() != DType::kUInt8 || image.rank() != 3 ||
      (image.dim(2) != 1 && image.dim(2) != 3)) {
    return invalid_argument("an image for JPEG must be uint8 of [height, width, 1 or 3], got ",
                            image.dtype(), " ", image.shape());
  }
  if (image.dim(0) < 1 || image.dim(1) < 1 || image.dim(0) > JPEG_MAX_DIMENSION ||
      image.dim(1) > JPEG_MAX_DIMENSION) {
    return invalid_argument("an image for JPEG must have 1 to ", JPEG_MAX_DIMENSION,
                            " rows and columns, got ", image.shape());
  }
  if (options.quality < 0 || options.quality > 100) {
    return invalid_argument("quality must be in [0,100], got ", options.quality);
  }
  for (const int density : {options.x_density, options.y_density}) {
    if (density < 0 || density > 65535) {
      return invalid_argument("density must be in [0,65535], got ", density);
    }
  }
  if (options.xmp_metadata.size() > kMaxMarkerBytes - kXmpName.size()) {
    return invalid_argument("xmp_metadata must have at most ", kMaxMarkerBytes - kXmpName.size(),
                            " bytes, got ", options.xmp_metadata.size());
  }
  Encoder encoder;
  if (!encoder.encode(image.data<uint8_t>().data(), image.dim(0), image.dim(1),
                      static_cast<int>(image.dim(2)), options)) {
    return encoder.error();
  }
  return std::string(encoder.bytes());
}

}  // namespace millrace

#else

namespace millrace {

Result<std::string> encode_jpeg(const Tensor&, const JpegEncodeOptions&) {
  return unimplemented("this build of Millrace has no libjpeg to encode JPEG images with");
}

}  // namespace millrace

#endif
