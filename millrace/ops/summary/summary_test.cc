#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "millrace/io/image/png.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/ops/summary/summary_op.h"
#include "millrace/tensor/tensor_proto.h"
#include "millrace/tensor/tensor_testing.h"
#include "proto/summary.pb.h"

namespace millrace {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Tensor text(const char* s) { return Tensor::scalar<std::string>(s); }

tensorflow::Summary parse(const Result<Tensor>& bytes) {
  EXPECT_TRUE(bytes.ok()) << bytes.status().to_string();
  tensorflow::Summary summary;
  if (bytes.ok()) {
    EXPECT_TRUE(summary.ParseFromString(bytes->item<std::string>()));
  }
  return summary;
}

class SummaryOps : public testing::Test {
 protected:
  static void SetUpTestSuite() { ASSERT_TRUE(register_ops().ok()); }
};

TEST_F(SummaryOps, ScalarsHaveTags) {
  const auto summary = parse(OpTester("ScalarSummary")
                                 .input(Tensor::vector<std::string>({"a", "b"}))
                                 .input(Tensor::vector<double>({1.5, -2}))
                                 .run_one());
  ASSERT_EQ(summary.value_size(), 2);
  EXPECT_EQ(summary.value(0).tag(), "a");
  EXPECT_EQ(summary.value(0).simple_value(), 1.5F);
  EXPECT_EQ(summary.value(1).tag(), "b");
  EXPECT_EQ(summary.value(1).simple_value(), -2.0F);
  EXPECT_EQ(OpTester("ScalarSummary")
                .input(text("a"))
                .input(Tensor::vector<float>({1, 2}))
                .run_one()
                .status()
                .code(),
            Code::kInvalidArgument);
}

TEST_F(SummaryOps, TagsAreText) {
  for (const char* good : {"", "a", "\u00e9", "\u20ac/x", "\U0001f600"}) {
    EXPECT_EQ(text_of(good), good);
  }
  EXPECT_EQ(text_of("a\xff"), "a\ufffd");
  for (const char* bad : {"\x80", "\xc3", "\xf5"}) EXPECT_EQ(text_of(bad), "\ufffd");
  for (const char* bad : {"\xc0\x80", "\xe2\x82", "\xc3\xff"}) {
    EXPECT_EQ(text_of(bad), "\ufffd\ufffd");
  }
  for (const char* bad : {"\xe0\x80\x80", "\xed\xa0\x80"}) {
    EXPECT_EQ(text_of(bad), "\ufffd\ufffd\ufffd");
  }
}

TEST_F(SummaryOps, HistogramsCount) {
  const auto summary = parse(OpTester("HistogramSummary")
                                 .input(text("h"))
                                 .input(Tensor::vector<float>({-1, 0, 0, 2}))
                                 .run_one());
  const tensorflow::HistogramProto& histogram = summary.value(0).histo();
  EXPECT_EQ(histogram.num(), 4);
  EXPECT_EQ(histogram.min(), -1);
  EXPECT_EQ(histogram.max(), 2);
  EXPECT_EQ(histogram.sum(), 1);
  EXPECT_EQ(histogram.sum_squares(), 5);
  ASSERT_EQ(histogram.bucket_size(), histogram.bucket_limit_size());
  double total = 0, last = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < histogram.bucket_size(); ++i) {
    EXPECT_GT(histogram.bucket_limit(i), last);
    // Empty ones next to each other are one.
    if (i > 0) {
      EXPECT_TRUE(histogram.bucket(i) > 0 || histogram.bucket(i - 1) > 0);
    }
    last = histogram.bucket_limit(i);
    total += histogram.bucket(i);
  }
  EXPECT_EQ(total, 4);
  for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(OpTester("HistogramSummary")
                  .input(text("h"))
                  .input(Tensor::vector<float>({1, bad}))
                  .run_one()
                  .status()
                  .code(),
              Code::kInvalidArgument);
  }
}

TEST_F(SummaryOps, AnEmptyHistogramHasOneBucket) {
  const auto summary = parse(OpTester("HistogramSummary")
                                 .input(text("h"))
                                 .input(Tensor::vector(std::span<const float>()))
                                 .run_one());
  ASSERT_EQ(summary.value(0).histo().bucket_size(), 1);
  EXPECT_EQ(summary.value(0).histo().bucket_limit(0), DBL_MAX);
}

TEST_F(SummaryOps, ImagesAreScaledToWhatCanBeSeen) {
  const auto pixels = [](std::initializer_list<float> values, int64_t max) {
    const int64_t n = static_cast<int64_t>(values.size());
    const auto summary = parse(OpTester("ImageSummary")
                                   .input(text("i"))
                                   .input(Tensor::of<float>(Shape{1, 1, n, 1}, values))
                                   .attr("max_images", max)
                                   .run_one());
    EXPECT_EQ(summary.value(0).tag(), max == 1 ? "i/image" : "i/image/0");
    EXPECT_EQ(summary.value(0).image().width(), n);
    const Tensor image =
        decode_png(summary.value(0).image().encoded_image_string(), 1, DType::kUInt8).value();
    return std::vector<int>(image.data<uint8_t>().begin(), image.data<uint8_t>().end());
  };
  EXPECT_EQ(pixels({0, 1, 2}, 3), (std::vector<int>{0, 127, 255}));
  EXPECT_EQ(pixels({-4, 0, 2}, 1), (std::vector<int>{1, 128, 191}));
  EXPECT_EQ(pixels({0, kNan, 2}, 1), (std::vector<int>{0, 255, 255}));  // the bad colour's red
  EXPECT_EQ(pixels({0, 0}, 1), (std::vector<int>{0, 0}));
}

TEST_F(SummaryOps, ImagesOfBytesStayAsTheyAre) {
  Tensor images = Tensor::zeros(DType::kUInt8, Shape{5, 2, 3, 4}).value();
  for (size_t i = 0; i < 120; ++i) images.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i);
  const auto summary = parse(OpTester("ImageSummary").input(text("i")).input(images).run_one());
  ASSERT_EQ(summary.value_size(), 3);
  const Tensor second =
      decode_png(summary.value(1).image().encoded_image_string(), 0, DType::kUInt8).value();
  EXPECT_TRUE(bit_equal(second, images.row(1)));
  const Tensor two = Tensor::zeros(DType::kFloat, Shape{1, 2, 3, 2}).value();
  EXPECT_EQ(OpTester("ImageSummary").input(text("i")).input(two).run_one().status().code(),
            Code::kInvalidArgument);
}

TEST_F(SummaryOps, SoundsAreWav) {
  const auto summary = parse(OpTester("AudioSummaryV2")
                                 .input(text("s"))
                                 .input(Tensor::of<float>(Shape{1, 2, 1}, {0.5F, -2}))
                                 .input(Tensor::scalar<float>(8000))
                                 .run_one());
  const tensorflow::Summary::Audio& audio = summary.value(0).audio();
  EXPECT_EQ(summary.value(0).tag(), "s/audio/0");
  EXPECT_EQ(audio.content_type(), "audio/wav");
  EXPECT_EQ(audio.length_frames(), 2);
  const std::string& wav = audio.encoded_audio_string();
  ASSERT_EQ(wav.size(), 48U);
  EXPECT_EQ(wav.substr(0, 4) + wav.substr(8, 8), "RIFFWAVEfmt ");
  EXPECT_EQ(wav.substr(44), std::string("\x00\x40\x00\x80", 4));  // 16384 and -32768
  for (const float rate : {0.0F, kNan, 1e20F}) {
    EXPECT_EQ(OpTester("AudioSummaryV2")
                  .input(text("s"))
                  .input(Tensor::of<float>(Shape{1, 1}, {0}))
                  .input(Tensor::scalar<float>(rate))
                  .run_one()
                  .status()
                  .code(),
              Code::kInvalidArgument);
  }
}

TEST_F(SummaryOps, TensorsKeepTypeAndShape) {
  const Tensor tensor = Tensor::of<int64_t>(Shape{2, 1}, {3, 4});
  tensorflow::SummaryMetadata metadata;
  metadata.mutable_plugin_data()->set_plugin_name("p");
  const auto summary = parse(OpTester("TensorSummaryV2")
                                 .input(text("t"))
                                 .input(tensor)
                                 .input(text(metadata.SerializeAsString().c_str()))
                                 .run_one());
  EXPECT_EQ(summary.value(0).tag(), "t");
  EXPECT_EQ(summary.value(0).metadata().plugin_data().plugin_name(), "p");
  EXPECT_TRUE(bit_equal(tensor_from_proto(summary.value(0).tensor()).value(), tensor));
}

TEST_F(SummaryOps, MergedTagsDiffer) {
  const auto one = [](const char* tag) {
    return OpTester("ScalarSummary")
        .input(text(tag))
        .input(Tensor::scalar<float>(1))
        .run_one()
        .value();
  };
  const auto merge = [](const Tensor& a, const Tensor& b) {
    return OpTester("MergeSummary").input_list({a, b}).run_one();
  };
  EXPECT_EQ(parse(merge(one("a"), one("b"))).value_size(), 2);
  EXPECT_EQ(merge(one("a"), one("a")).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(merge(one("a"), text("\xff")).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
