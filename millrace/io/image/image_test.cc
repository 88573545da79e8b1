#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "millrace/io/image/image_testing.h"

namespace millrace {
namespace {

// A gentle slope in every channel, so that JPEG keeps it nearly.
Tensor ramp(int64_t height, int64_t width, int64_t channels, DType dtype = DType::kUInt8) {
  Tensor image = Tensor::zeros(dtype, Shape{height, width, channels}).value();
  for (int64_t i = 0; i < image.num_elements(); ++i) {
    const int64_t c = i % channels, x = i / channels % width, y = i / channels / width;
    const int64_t value = (x * (c + 1) + y * 2 + 10 * c) % 256;
    if (dtype == DType::kUInt8) {
      image.mutable_data<uint8_t>()[static_cast<size_t>(i)] = static_cast<uint8_t>(value);
    } else {
      image.mutable_data<uint16_t>()[static_cast<size_t>(i)] = static_cast<uint16_t>(value * 251);
    }
  }
  return image;
}

std::string number(int64_t value, int size) {
  std::string out;
  for (int i = 0; i < size; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

// Rows as they are in a file, from the bottom.
std::string bmp(int32_t width, int32_t height, int bits, const std::string& rows) {
  return "BM" + number(54 + static_cast<int64_t>(rows.size()), 4) + number(0, 4) + number(54, 4) +
         number(40, 4) + number(width, 4) + number(height, 4) + number(1, 2) + number(bits, 2) +
         std::string(24, '\0') + rows;
}

// Two frames of 3 x 2: one red, one that is blue in its second column and else transparent.
std::string gif() {
  const auto frame = [](const std::string& data) {
    return "," + number(0, 2) + number(0, 2) + number(2, 2) + number(3, 2) + number(0, 1) +
           number(2, 1) + number(static_cast<int64_t>(data.size()), 1) + data + number(0, 1);
  };
  // Codes of three bits: clear (4), six colours, end (5); the table grows to four bits on the way.
  const auto pack = [](const std::vector<int>& colours) {
    std::string out;
    uint32_t bits = 0;
    int held = 0, width = 3, next = 6;
    const auto put = [&](int code) {
      bits |= static_cast<uint32_t>(code) << held;
      for (held += width; held >= 8; held -= 8, bits >>= 8) out += static_cast<char>(bits);
    };
    put(4);
    for (size_t i = 0; i < colours.size(); ++i) {
      put(colours[i]);
      if (i > 0 && ++next == 1 << width) ++width;
    }
    put(5);
    if (held > 0) out += static_cast<char>(bits);
    return out;
  };
  const std::string colours("\xff\0\0\0\xff\0\0\0\xff\x10\x20\x30", 12);
  const std::string transparent = "!" + std::string("\xf9\x04\x01\0\0\x03\0", 7);
  return "GIF89a" + number(9, 2) + number(9, 2) + std::string("\x81\0\0", 3) + colours +
         frame(pack({0, 0, 0, 0, 0, 0})) + transparent + frame(pack({3, 2, 3, 2, 3, 2})) + ";";
}

std::vector<int> ints(const Tensor& image) {
  return std::vector<int>(image.data<uint8_t>().begin(), image.data<uint8_t>().end());
}

double mean_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.shape(), b.shape());
  double sum = 0;
  for (size_t i = 0; i < a.data<uint8_t>().size(); ++i) {
    sum += std::abs(int{a.data<uint8_t>()[i]} - int{b.data<uint8_t>()[i]});
  }
  return sum / static_cast<double>(a.num_elements());
}

TEST(Image, FormatsByTheirFirstBytes) {
  EXPECT_EQ(image_format(bmp(1, 1, 24, "abcd")), ImageFormat::kBmp);
  EXPECT_EQ(image_format(gif()), ImageFormat::kGif);
  EXPECT_EQ(image_format(encode_png(ramp(2, 2, 1)).value()), ImageFormat::kPng);
  EXPECT_EQ(image_format(encode_jpeg(ramp(2, 2, 1), {}).value()), ImageFormat::kJpeg);
  EXPECT_EQ(image_format("B"), ImageFormat::kUnknown);
}

TEST(Bmp, RowsColoursAndFilling) {
  const std::string rows = "abcdefxxghijklxx";  // two pixels and two bytes a row
  const Tensor up = decode_bmp(bmp(2, 2, 24, rows), 0).value();
  EXPECT_EQ(ints(up),
            (std::vector<int>{'i', 'h', 'g', 'l', 'k', 'j', 'c', 'b', 'a', 'f', 'e', 'd'}));
  const Tensor down = decode_bmp(bmp(2, -2, 24, rows), 3).value();
  EXPECT_EQ(ints(down),
            (std::vector<int>{'c', 'b', 'a', 'f', 'e', 'd', 'i', 'h', 'g', 'l', 'k', 'j'}));
  EXPECT_EQ(ints(decode_bmp(bmp(1, 1, 32, "abcd"), 4).value()),
            (std::vector<int>{'c', 'b', 'a', 'd'}));
  EXPECT_EQ(ints(decode_bmp(bmp(3, 1, 8, "abc"), 1).value()), (std::vector<int>{'a', 'b', 'c'}));
}

TEST(Bmp, RefusesWhatItDoesNotHold) {
  for (const std::string& bytes :
       {bmp(2, 2, 24, "too short"), bmp(1 << 30, 1 << 30, 32, "abcd"), bmp(0, 1, 24, "abcd"),
        bmp(1, INT32_MIN, 8, "abcd"), bmp(-1, 1, 24, "abcd"), bmp(1, 1, 16, "abcd"),
        bmp(1, 1, 24, "abcd").substr(0, 31)}) {
    EXPECT_EQ(decode_bmp(bytes, 0).status().code(), Code::kInvalidArgument);
  }
  EXPECT_EQ(decode_bmp(bmp(1, 1, 24, "abcd"), 4).status().code(), Code::kInvalidArgument);
}

TEST(Gif, FramesLieOverEachOther) {
  const Tensor frames = decode_gif(gif()).value();
  ASSERT_EQ(frames.shape(), (Shape{2, 3, 2, 3}));
  const std::vector<int> red = {255, 0, 0, 255, 0, 0}, both = {255, 0, 0, 0, 0, 255};
  for (int64_t y = 0; y < 3; ++y) {
    EXPECT_EQ(ints(frames.row(0).row(y)), red);
    EXPECT_EQ(ints(frames.row(1).row(y)), both);
  }
  EXPECT_EQ(decode_gif(gif(), /*first_only=*/true).value().dim(0), 1);
}

TEST(Gif, AHeaderAloneClaimsNothing) {
  std::string huge = gif();
  // The size of the first frame.
  for (size_t i = 30; i < 34; ++i) huge[i] = '\xff';
  const Status status = decode_gif(huge).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
}

TEST(Png, KeepsEveryType) {
  for (const DType dtype : {DType::kUInt8, DType::kUInt16}) {
    for (int channels = 1; channels <= 4; ++channels) {
      const Tensor image = ramp(7, 5, channels, dtype);
      const std::string bytes = encode_png(image, 7).value();
      EXPECT_TRUE(bit_equal(decode_png(bytes, 0, dtype).value(), image));
      for (int other = 1; other <= 4; ++other) {
        EXPECT_EQ(decode_png(bytes, other, dtype).value().shape(), (Shape{7, 5, other}));
      }
    }
  }
}

TEST(Png, ChangesTheWidthOfElements) {
  const std::string narrow = encode_png(ramp(3, 3, 1)).value();
  const Tensor wide = decode_png(narrow, 1, DType::kUInt16).value();
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(wide.data<uint16_t>()[i], ramp(3, 3, 1).data<uint8_t>()[i] * 257);
  }
  const Tensor back = decode_png(encode_png(wide).value(), 1, DType::kUInt8).value();
  EXPECT_TRUE(bit_equal(back, ramp(3, 3, 1)));
  const Tensor opaque = decode_png(narrow, 4, DType::kUInt8).value();
  EXPECT_EQ(opaque.data<uint8_t>()[3], 255);
}

TEST(Jpeg, ComesNear) {
  for (const int channels : {1, 3}) {
    const Tensor image = ramp(40, 30, channels);
    for (const bool progressive : {false, true}) {
      JpegEncodeOptions options;
      options.progressive = progressive;
      options.chroma_downsampling = false;
      options.xmp_metadata = "who knows";
      const std::string bytes = encode_jpeg(image, options).value();
      EXPECT_NE(bytes.find("who knows"), std::string::npos);
      const JpegShape shape = read_jpeg_shape(bytes).value();
      EXPECT_EQ((std::vector<int64_t>{shape.height, shape.width, shape.channels}),
                (std::vector<int64_t>{40, 30, channels}));
      const Tensor accurate = decode_jpeg(bytes, {.accurate_dct = true}).value();
      EXPECT_LT(mean_difference(accurate, image), 2);
      EXPECT_EQ(decode_jpeg(bytes, {.ratio = 4}).value().shape(), (Shape{10, 8, channels}));
      EXPECT_EQ(decode_jpeg(bytes, {.channels = 4 - channels}).value().dim(2), 4 - channels);
    }
  }
}

TEST(Jpeg, AWindowIsPartOfTheImage) {
  std::mt19937 random(7);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % n); };
  for (int i = 0; i < 60; ++i) {
    JpegEncodeOptions encoding;
    encoding.progressive = i % 2 == 1;
    encoding.chroma_downsampling = i % 3 != 0;
    const std::string bytes = encode_jpeg(ramp(90, 110, i % 5 == 0 ? 1 : 3), encoding).value();
    JpegDecodeOptions options;
    options.ratio = i % 4 == 0 ? 2 : 1;
    options.fancy_upscaling = i % 7 != 0;
    const Tensor whole = decode_jpeg(bytes, options).value();
    options.crop = true;
    options.crop_y = below(whole.dim(0));
    options.crop_x = below(whole.dim(1));
    options.crop_height = 1 + below(whole.dim(0) - options.crop_y);
    options.crop_width = 1 + below(whole.dim(1) - options.crop_x);
    SCOPED_TRACE(str_cat(i, ": ", options.crop_y, " ", options.crop_x, " ", options.crop_height,
                         " ", options.crop_width));
    const Tensor part = decode_jpeg(bytes, options).value();
    ASSERT_EQ(part.shape(), (Shape{options.crop_height, options.crop_width, whole.dim(2)}));
    for (int64_t y = 0; y < options.crop_height; ++y) {
      ASSERT_EQ(ints(part.row(y)),
                ints(whole.row(options.crop_y + y)
                         .rows(options.crop_x, options.crop_x + options.crop_width)));
    }
  }
}

TEST(Jpeg, AWindowLiesInTheImage) {
  const std::string bytes = encode_jpeg(ramp(40, 50, 3), {}).value();
  JpegDecodeOptions options;
  options.crop = true;
  options.crop_x = 9;
  options.crop_height = 20;
  for (const int64_t width : {int64_t{42}, int64_t{0}, int64_t{-1}, INT64_MAX}) {
    options.crop_width = width;
    EXPECT_EQ(decode_jpeg(bytes, options).status().code(), Code::kInvalidArgument);
  }
}

TEST(Jpeg, ReadsWhatThereIsWhenAsked) {
  const std::string bytes = encode_jpeg(ramp(64, 64, 3), {}).value();
  const std::string_view cut = std::string_view(bytes).substr(0, bytes.size() * 3 / 4);
  EXPECT_EQ(decode_jpeg(cut, {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(decode_jpeg(cut, {.acceptable_fraction = 0.99F}).status().code(),
            Code::kInvalidArgument);
  const Tensor whole = decode_jpeg(bytes, {}).value();
  const Tensor black = decode_jpeg(cut, {.acceptable_fraction = 0.1F}).value();
  EXPECT_EQ(ints(black.row(0)), ints(whole.row(0)));
  EXPECT_EQ(ints(black.row(63)), std::vector<int>(size_t{64} * 3, 0));
  const Tensor recovered = decode_jpeg(cut, {.try_recover_truncated = true}).value();
  EXPECT_EQ(ints(recovered.row(0)), ints(whole.row(0)));
}

// The size in a header is no reason to ask for memory.
TEST(Jpeg, AHeaderAloneClaimsNothing) {
  std::string bytes = encode_jpeg(ramp(8, 8, 1), {}).value();
  const size_t frame = bytes.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  for (size_t i = 5; i < 9; ++i) bytes[frame + i] = '\xf0';
  const Status status = decode_jpeg(bytes, {}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("too short"), std::string_view::npos) << status.message();
}

TEST(Image, RefusesWhatNoFileHolds) {
  EXPECT_EQ(encode_png(ramp(2, 2, 5)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(encode_png(Tensor::zeros(DType::kUInt8, Shape{0, 2, 1}).value()).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(encode_jpeg(ramp(2, 2, 2), {}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(encode_jpeg(ramp(2, 2, 3), {.quality = 101}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(encode_jpeg(ramp(70000, 1, 1), {}).status().code(), Code::kInvalidArgument);
}

// Every byte changed and every length: an image or INVALID_ARGUMENT.
TEST(Image, SurvivesDamage) {
  JpegEncodeOptions progressive;
  progressive.progressive = true;
  for (const std::string& whole :
       {encode_jpeg(ramp(9, 9, 3), {}).value(), encode_jpeg(ramp(9, 9, 3), progressive).value(),
        encode_png(ramp(6, 5, 3)).value(), encode_png(ramp(3, 3, 2, DType::kUInt16)).value(), gif(),
        bmp(2, 2, 24, "abcdefxxghijklxx")}) {
    EXPECT_TRUE(decode_any(whole, 0).ok());
    for (size_t i = 0; i < whole.size(); ++i) {
      for (const int flip : {0x01, 0x80, 0xff}) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ flip);
        const Status status = decode_any(damaged, static_cast<unsigned>(i));
        EXPECT_TRUE(status.ok() || status.code() == Code::kInvalidArgument) << status.to_string();
      }
      const Status cut = decode_any(whole.substr(0, i), static_cast<unsigned>(i));
      EXPECT_TRUE(cut.ok() || cut.code() == Code::kInvalidArgument) << cut.to_string();
    }
  }
}

}  // namespace
}  // namespace millrace
