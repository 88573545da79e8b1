#include <gtest/gtest.h>

#include <cmath>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/nn/nn_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_image_ops});

using Doubles = std::vector<double>;

// A resize along one axis as a matrix [resized, original], from its definition.
std::vector<Doubles> matrix(const std::string& op, int64_t original, int64_t resized, bool align,
                            bool half_pixel) {
  std::vector<Doubles> rows;
  const double scale = align && resized > 1
                           ? static_cast<double>(original - 1) / static_cast<double>(resized - 1)
                           : static_cast<double>(original) / static_cast<double>(resized);
  const auto clamped = [&](double i) {
    return static_cast<size_t>(std::clamp(i, 0.0, static_cast<double>(original - 1)));
  };
  for (int64_t o = 0; o < resized; ++o) {
    Doubles row(static_cast<size_t>(original));
    const double i = static_cast<double>(o);
    const double at = half_pixel ? (i + 0.5) * scale - 0.5 : i * scale;
    const double base = std::floor(at), t = at - base;
    if (op == "ResizeNearestNeighbor") {
      const double place = half_pixel ? (i + 0.5) * scale : at;
      row[clamped(align ? std::round(place) : std::floor(place))] = 1;
    } else if (op == "ResizeBilinear") {
      row[clamped(base)] += 1 - t;
      row[clamped(std::ceil(at))] += t;
    } else if (op == "ResizeBicubic") {
      const double a = half_pixel ? -0.5 : -0.75;
      double sum = 0;
      for (int k = -1; k <= 2; ++k) {
        const double d = std::abs(t - k);
        const double w = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                                : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
        const bool inside = base + k >= 0 && base + k <= static_cast<double>(original - 1);
        if (half_pixel && !inside) continue;
        row[clamped(base + k)] += w;
        sum += w;
      }
      for (double& w : row) w /= half_pixel ? sum : 1;
    } else {
      const double end = static_cast<double>(o + 1) * scale;
      for (int64_t k = 0; k < original; ++k) {
        const double low = static_cast<double>(k);
        // What lies past the image is its last element.
        const double high = k + 1 == original ? std::max(end, low + 1) : low + 1;
        row[static_cast<size_t>(k)] =
            std::max(0.0, std::min(high, end) - std::max(low, at)) / (end - at);
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// images [batch, height, width, channels] under two matrices, or back under their transposes.
Doubles apply(const std::vector<Doubles>& rows, const std::vector<Doubles>& columns,
              const Doubles& in, int64_t batch, int64_t channels, bool back) {
  const size_t big_h = rows.size(), small_h = rows[0].size(), c = static_cast<size_t>(channels);
  const size_t big_w = columns.size(), small_w = columns[0].size();
  Doubles out(static_cast<size_t>(batch) * c * (back ? small_h * small_w : big_h * big_w));
  for (size_t n = 0; n < static_cast<size_t>(batch); ++n) {
    for (size_t y = 0; y < big_h; ++y) {
      for (size_t x = 0; x < big_w; ++x) {
        for (size_t i = 0; i < small_h; ++i) {
          for (size_t j = 0; j < small_w; ++j) {
            for (size_t k = 0; k < c; ++k) {
              const size_t big = ((n * big_h + y) * big_w + x) * c + k;
              const size_t small = ((n * small_h + i) * small_w + j) * c + k;
              const double w = rows[y][i] * columns[x][j];
              if (back) {
                out[small] += w * in[big];
              } else {
                out[big] += w * in[small];
              }
            }
          }
        }
      }
    }
  }
  return out;
}

void expect_near(const Tensor& got, const Doubles& want, double tolerance) {
  const Doubles values = doubles_of(got);
  ASSERT_EQ(values.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(values[i], want[i], tolerance) << i;
}

TEST(Resize, AgreesWithItsMatrix) {
  std::mt19937 random(5);
  const Shape images[] = {{2, 4, 3, 2}, {1, 1, 1, 3}, {1, 5, 8, 1}};
  const std::pair<int64_t, int64_t> sizes[] = {{4, 3}, {8, 6}, {3, 2}, {1, 1}, {7, 12}};
  for (const char* op :
       {"ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic", "ResizeArea"}) {
    const bool area = std::string(op) == "ResizeArea";
    const bool nearest = std::string(op) == "ResizeNearestNeighbor";
    for (const Shape& shape : images) {
      for (const auto& [height, width] : sizes) {
        for (int centers = 0; centers < (area ? 1 : 3); ++centers) {
          const bool align = centers == 1, half_pixel = centers == 2;
          SCOPED_TRACE(str_cat(op, " ", shape, " to ", height, " x ", width,
                               align ? " align_corners" : "", half_pixel ? " half_pixel" : ""));
          const auto rows = matrix(op, shape[1], height, align, half_pixel);
          const auto columns = matrix(op, shape[2], width, align, half_pixel);
          const auto with_attrs = [&](OpTester& t) -> OpTester& {
            if (!area) t.attr("half_pixel_centers", half_pixel);
            return t.attr("align_corners", align);
          };
          const Shape resized{shape[0], height, width, shape[3]};
          for (DType type : kFloatingTypes) {
            const double tolerance = type == DType::kHalf       ? 1e-2
                                     : type == DType::kBFloat16 ? 1e-1
                                                                : 2e-2;  // bicubic: 1024 steps
            const Tensor image = random_tensor(type, shape, random);
            OpTester forward(op);
            with_attrs(forward).input(image);
            Result<Tensor> got = forward
                                     .input(Tensor::vector<int32_t>({static_cast<int32_t>(height),
                                                                     static_cast<int32_t>(width)}))
                                     .run_one();
            ASSERT_TRUE(got.ok()) << got.status().to_string();
            EXPECT_EQ(got->dtype(), nearest ? type : DType::kFloat);
            expect_near(*got, apply(rows, columns, doubles_of(image), shape[0], shape[3], false),
                        tolerance);

            const bool has_gradient = std::string(op) != "ResizeBicubic" || type == DType::kFloat ||
                                      type == DType::kDouble;
            if (!has_gradient) continue;
            const Tensor dy = random_tensor(nearest ? type : DType::kFloat, resized, random);
            OpTester backward(str_cat(op, "Grad"));
            with_attrs(backward).input(dy);
            if (nearest) {
              backward.input(Tensor::vector<int32_t>(
                  {static_cast<int32_t>(shape[1]), static_cast<int32_t>(shape[2])}));
            } else {
              backward.input(image);
            }
            got = backward.run_one();
            ASSERT_TRUE(got.ok()) << got.status().to_string();
            expect_near(*got, apply(rows, columns, doubles_of(dy), shape[0], shape[3], true),
                        8 * tolerance);
          }
        }
      }
    }
  }
}

// Values of TensorFlow.
TEST(Resize, KnownValues) {
  const Tensor image = Tensor::of<float>({1, 2, 2, 1}, {1, 2, 3, 4});
  const auto run = [&](const char* op) {
    return OpTester(op).input(image).input(Tensor::vector<int32_t>({1, 4})).run_one().value();
  };
  expect_near(run("ResizeBilinear"), {1, 1.5, 2, 2}, 1e-6);
  expect_near(run("ResizeNearestNeighbor"), {1, 1, 2, 2}, 0);
  expect_near(run("ResizeBicubic"), {1, 1.5, 2, 2.09375}, 1e-5);
  expect_near(run("ResizeArea"), {2, 2, 3, 3}, 1e-6);
}

TEST(Resize, IntegersAreExact) {
  const Tensor image = Tensor::of<uint8_t>({1, 1, 3, 1}, {0, 100, 255});
  OpTester nearest("ResizeNearestNeighbor"), bilinear("ResizeBilinear");
  nearest.input(image).input(Tensor::vector<int32_t>({2, 3}));
  EXPECT_TRUE(
      bit_equal(*nearest.run_one(), Tensor::of<uint8_t>({1, 2, 3, 1}, {0, 100, 255, 0, 100, 255})));
  bilinear.attr("align_corners", true).input(image).input(Tensor::vector<int32_t>({1, 5}));
  EXPECT_TRUE(
      bit_equal(*bilinear.run_one(), Tensor::of<float>({1, 1, 5, 1}, {0, 50, 100, 177.5, 255})));
}

// Floats cannot tell the last columns of this image apart.
TEST(Resize, FindsTheEndOfVeryLongImages) {
  Tensor image = *Tensor::zeros(DType::kUInt8, Shape{1, 1, (1 << 25) + 2, 1});
  image.mutable_data<uint8_t>().back() = 200;
  for (const char* op : {"ResizeNearestNeighbor", "ResizeBilinear"}) {
    OpTester resize(op);
    resize.attr("align_corners", true).input(image).input(Tensor::vector<int32_t>({1, 3}));
    expect_near(*resize.run_one(), {0, 0, 200}, 0);
  }
}

TEST(Resize, EmptyBatches) {
  for (const char* op :
       {"ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic", "ResizeArea"}) {
    OpTester tester(op);
    tester.input(Tensor::zeros(DType::kFloat, {0, 2, 2, 1}).value());
    // So large that nothing but the shape may be made.
    tester.input(Tensor::vector<int32_t>({2000000000, 2000000000}));
    EXPECT_EQ(tester.run_one()->shape(), Shape({0, 2000000000, 2000000000, 1}));
  }
}

TEST(Resize, BadInputs) {
  const auto error = [](const Shape& image, std::initializer_list<int32_t> size, bool both) {
    OpTester op("ResizeBilinear");
    op.attr("align_corners", both).attr("half_pixel_centers", both);
    return error_of(
        op.input(Tensor::zeros(DType::kFloat, image).value()).input(Tensor::vector<int32_t>(size)));
  };
  EXPECT_HAS(error({1, 2, 2, 1}, {0, 3}, false), "must be positive");
  EXPECT_HAS(error({1, 2, 2, 1}, {3}, false), "2 elements");
  EXPECT_HAS(error({2, 2, 1}, {3, 3}, false), "rank 4");
  EXPECT_HAS(error({1, 0, 2, 1}, {3, 3}, false), "non-zero size");
  EXPECT_HAS(error({1, 2, 2, 1}, {3, 3}, true), "half_pixel_centers must be false");
  OpTester grad("ResizeBilinearGrad");
  grad.input(Tensor::zeros(DType::kFloat, {1, 2, 2, 1}).value());
  grad.input(Tensor::zeros(DType::kFloat, {1, 2, 2, 3}).value());
  EXPECT_HAS(error_of(grad), "INVALID_ARGUMENT");
}

TEST(Resize, Shapes) {
  const OpRegistry& ops = OpRegistry::global();
  EXPECT_EQ(*infer_shapes(ops, "ResizeBilinear", {{"T", DType::kFloat}}, "[?,4,4,3];=[8,?]"),
            "[?,8,?,3]");
  EXPECT_EQ(*infer_shapes(ops, "ResizeBilinear", {{"T", DType::kFloat}}, "?;?"), "[?,?,?,?]");
  EXPECT_EQ(*infer_shapes(ops, "ResizeBilinearGrad", {{"T", DType::kFloat}}, "[2,8,8,?];[?,4,4,3]"),
            "[2,4,4,3]");
  EXPECT_FALSE(
      infer_shapes(ops, "ResizeBilinear", {{"T", DType::kFloat}}, "[?,4,4,3];=[8,4,3]").ok());
}

}  // namespace
}  // namespace millrace
