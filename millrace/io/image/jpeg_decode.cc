#include "millrace/io/image/image.h"
#include "millrace/io/image/jpeg.h"

#ifdef MILLRACE_HAS_JPEG

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

namespace millrace {
namespace {

// What libjpeg may take for itself: the coefficients of progressive images.
constexpr long kMaxWorkspace = long{2} << 30;
// Progressive images have about ten scans; each goes over the whole image.
constexpr int kMaxScans = 500;

// libjpeg's state for one image. It leaves failing calls by longjmp: each member function that
// calls it sets the place to come back to and has nothing to destroy between there and the call.
class Decoder {
 public:
  Decoder(std::string_view bytes, bool recover) : bytes_(bytes), recover_(recover) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) {
      Decoder& self = of(info);
      info->err->format_message(info, self.message_);
      std::longjmp(self.place_, 1);
    };
    // Of damage that libjpeg gets over it says nothing to anybody.
    errors_.emit_message = [](j_common_ptr, int) {};
    errors_.output_message = [](j_common_ptr) {};
  }
  ~Decoder() {
    if (created_) jpeg_destroy_decompress(&info_);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  jpeg_decompress_struct& info() { return info_; }
  Status error() const {
    return invalid_argument("Invalid JPEG data, size ", bytes_.size(), ": ", message_);
  }

  bool read_header() {
    if (setjmp(place_) != 0) return false;
    jpeg_create_decompress(&info_);
    created_ = true;
    info_.client_data = this;
    info_.mem->max_memory_to_use = kMaxWorkspace;
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.fill_input_buffer = fill;
    source_.skip_input_data = skip;
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(bytes_.data());
    source_.bytes_in_buffer = bytes_.size();
    info_.src = &source_;
    progress_.progress_monitor = [](j_common_ptr info) {
      if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number > kMaxScans) {
        std::snprintf(of(info).message_, JMSG_LENGTH_MAX, "more than %d scans", kMaxScans);
        std::longjmp(of(info).place_, 1);
      }
    };
    info_.progress = &progress_;
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool calculate_size() {
    if (setjmp(place_) != 0) return false;
    jpeg_calc_output_dimensions(&info_);
    return true;
  }
  bool start() {
    if (setjmp(place_) != 0) return false;
    return jpeg_start_decompress(&info_) != FALSE;
  }
#ifdef LIBJPEG_TURBO_VERSION_NUMBER
  // Leaves out columns before `first` and from `first` + `width` on, as far as it can: both are
  // then those that rows have.
  bool leave_out_columns(JDIMENSION& first, JDIMENSION& width) {
    if (setjmp(place_) != 0) return false;
    jpeg_crop_scanline(&info_, &first, &width);
    return true;
  }
  bool skip_rows(JDIMENSION count) {
    if (setjmp(place_) != 0) return false;
    return jpeg_skip_scanlines(&info_, count) == count;
  }
#endif
  bool read_row(uint8_t* to) {
    if (setjmp(place_) != 0) return false;
    JSAMPROW row = to;
    return jpeg_read_scanlines(&info_, &row, 1) == 1;
  }
  // What comes after the last row: it may be missing or damaged.
  void finish() {
    if (setjmp(place_) != 0) return;
    jpeg_abort_decompress(&info_);
  }

 private:
  static Decoder& of(j_common_ptr info) { return *static_cast<Decoder*>(info->client_data); }
  static boolean fill(j_decompress_ptr info) {
    static constexpr JOCTET kEnd[] = {0xff, JPEG_EOI};
    Decoder& self = of(reinterpret_cast<j_common_ptr>(info));
    if (!self.recover_ || self.ended_) ERREXIT(info, JERR_INPUT_EOF);
    self.ended_ = true;
    self.source_.next_input_byte = kEnd;
    self.source_.bytes_in_buffer = sizeof(kEnd);
    return TRUE;
  }
  static void skip(j_decompress_ptr info, long count) {
    jpeg_source_mgr& source = *info->src;
    if (count <= 0) return;
    const size_t step = std::min(static_cast<size_t>(count), source.bytes_in_buffer);
    source.next_input_byte += step;
    source.bytes_in_buffer -= step;
    if (step < static_cast<size_t>(count)) fill(info);
  }

  const std::string_view bytes_;
  const bool recover_;
  bool created_ = false;
  bool ended_ = false;  // and an end was put there
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  std::jmp_buf place_{};
  char message_[JMSG_LENGTH_MAX] = {};
};

Status check_options(const JpegDecodeOptions& options) {
  if (options.channels != 0 && options.channels != 1 && options.channels != 3) {
    return invalid_argument("channels must be 0, 1, or 3 for JPEG, got ", options.channels);
  }
  const int ratio = options.ratio;
  if (ratio != 1 && ratio != 2 && ratio != 4 && ratio != 8) {
    return invalid_argument("ratio must be 1, 2, 4, or 8, got ", ratio);
  }
  return ok_status();
}

// Each block of 64 pixels takes two bits or more of the data, or one in progressive images; only
// arithmetic coding can do with less.
Status check_data(const jpeg_decompress_struct& info, size_t bytes) {
  const uint64_t pixels = uint64_t{info.image_width} * info.image_height;
  const uint64_t per_byte = info.arith_code != FALSE         ? 1 << 16
                            : info.progressive_mode != FALSE ? 512
                                                             : 256;
  if (pixels / per_byte <= bytes) return ok_status();
  return invalid_argument("Invalid JPEG data, size ", bytes, ": too short for an image of ",
                          info.image_height, " x ", info.image_width, " pixels");
}

// Inks as they are on paper; with Adobe's marker files have them inverted.
void inks_to_rgb(const uint8_t* from, int64_t width, bool inverted, uint8_t* to) {
  for (int64_t x = 0; x < width; ++x, from += 4, to += 3) {
    const int black = inverted ? from[3] : 255 - from[3];
    for (int i = 0; i < 3; ++i) {
      const int ink = inverted ? from[i] : 255 - from[i];
      to[i] = static_cast<uint8_t>(black * ink / 255);
    }
  }
}

struct Window {
  int64_t y = 0, x = 0, height = 0, width = 0;
};

Result<Window> find_window(const JpegDecodeOptions& options, int64_t height, int64_t width) {
  if (!options.crop) return Window{0, 0, height, width};
  const Window w = {options.crop_y, options.crop_x, options.crop_height, options.crop_width};
  if (w.height <= 0 || w.width <= 0 || w.y < 0 || w.x < 0 || w.y > height - w.height ||
      w.x > width - w.width) {
    return invalid_argument("Invalid JPEG data or crop window: y ", w.y, ", x ", w.x, ", height ",
                            w.height, ", width ", w.width, " of an image of ", height, " x ", width,
                            " pixels");
  }
  return w;
}

// Colours of neighbouring samples are mixed: what is left out must end as far from the window.
constexpr int64_t kMargin = 16;

// Goes to where the window begins, or before: gives the first row and column that will be read.
// False when the data break.
bool go_to(Decoder& decoder, const Window& window, int64_t& y, int64_t& x) {
  y = x = 0;
#ifdef LIBJPEG_TURBO_VERSION_NUMBER
  const jpeg_decompress_struct& info = decoder.info();
  if (window.width < int64_t{info.output_width}) {
    const int64_t begin = std::max<int64_t>(window.x - kMargin, 0);
    const int64_t end =
        std::min<int64_t>(window.x + window.width + kMargin, int64_t{info.output_width});
    auto first = static_cast<JDIMENSION>(begin), width = static_cast<JDIMENSION>(end - begin);
    if (!decoder.leave_out_columns(first, width)) return false;
    x = first;
  }
  if (window.y > kMargin) {
    y = window.y - kMargin;
    if (!decoder.skip_rows(static_cast<JDIMENSION>(y))) return false;
  }
#endif
  return true;
}

// Reads the rows of the window into `to` and returns how many came before the data broke.
int64_t read_rows(Decoder& decoder, const Window& window, int64_t channels, uint8_t* to) {
  int64_t y = 0, x = 0;
  if (!go_to(decoder, window, y, x)) return 0;
  const jpeg_decompress_struct& info = decoder.info();
  const int64_t in_file = info.output_components;
  const bool direct = in_file == channels && window.width == int64_t{info.output_width};
  const size_t row_bytes = static_cast<size_t>(in_file) * static_cast<size_t>(info.output_width);
  std::vector<uint8_t> scratch(direct && y == window.y ? 0 : row_bytes);
  for (; y < window.y; ++y) {
    if (!decoder.read_row(scratch.data())) return 0;
  }
  for (y = 0; y < window.height; ++y, to += window.width * channels) {
    if (!decoder.read_row(direct ? to : scratch.data())) return y;
    if (direct) continue;
    const uint8_t* const from = scratch.data() + (window.x - x) * in_file;
    if (in_file == channels) {
      std::memcpy(to, from, static_cast<size_t>(window.width * channels));
    } else {
      inks_to_rgb(from, window.width, info.saw_Adobe_marker != FALSE, to);
    }
  }
  return window.height;
}

}  // namespace

Result<Tensor> decode_jpeg(std::string_view bytes, const JpegDecodeOptions& options,
                           Allocator& allocator) {
  MR_TRY(check_options(options));
  Decoder decoder(bytes, options.try_recover_truncated);
  if (!decoder.read_header()) return decoder.error();
  jpeg_decompress_struct& info = decoder.info();
  if (!options.try_recover_truncated && options.acceptable_fraction >= 1) {
    MR_TRY(check_data(info, bytes.size()));
  }
  const int channels = options.channels == 0 ? std::min(info.num_components, 3) : options.channels;
  if (channels == 2) return invalid_argument("JPEG images of two channels are not supported");
  const bool inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = channels == 1 ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
  info.do_fancy_upsampling = options.fancy_upscaling ? TRUE : FALSE;
  info.dct_method = options.accurate_dct ? JDCT_ISLOW : JDCT_IFAST;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(options.ratio);
  if (!decoder.calculate_size()) return decoder.error();
  MR_TRY(check_image_size("JPEG", 1, info.output_height, info.output_width, channels));
  MR_TRY_ASSIGN(const Window window, find_window(options, info.output_height, info.output_width));
  if (!decoder.start()) return decoder.error();
  MR_TRY_ASSIGN(
      Tensor image,
      Tensor::allocate(DType::kUInt8, Shape{window.height, window.width, channels}, allocator));
  const std::span<uint8_t> pixels = image.mutable_data<uint8_t>();
  const int64_t rows = read_rows(decoder, window, channels, pixels.data());
  if (rows < window.height) {
    const double wanted = std::min(1.0, static_cast<double>(options.acceptable_fraction));
    // Not "less than": a fraction that is no number accepts nothing.
    if (!(static_cast<double>(rows) >= wanted * static_cast<double>(window.height))) {
      return decoder.error();
    }
    std::ranges::fill(pixels.subspan(static_cast<size_t>(rows * window.width * channels)),
                      uint8_t{0});
  }
  decoder.finish();
  return image;
}

Result<JpegShape> read_jpeg_shape(std::string_view bytes) {
  Decoder decoder(bytes, /*recover=*/false);
  if (!decoder.read_header()) return decoder.error();
  const jpeg_decompress_struct& info = decoder.info();
  return JpegShape{info.image_height, info.image_width, info.num_components};
}

}  // namespace millrace

#else

namespace millrace {

Result<Tensor> decode_jpeg(std::string_view, const JpegDecodeOptions&, Allocator&) {
  return unimplemented("this build of Millrace has no libjpeg to decode JPEG images with");
}

Result<JpegShape> read_jpeg_shape(std::string_view) {
  return unimplemented("this build of Millrace has no libjpeg to read JPEG images with");
}

}  // namespace millrace

#endif
