#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/random/philox.h"

// ExtractGlimpse: a window of every image around a place of its own. What lies outside is noise: a
// function of the image's number alone, since the op has no state.

namespace millrace {
namespace {

enum class Noise : uint8_t { kUniform, kGaussian, kZero };

Result<Noise> read_noise(const AttrMap& attrs) {
  MR_TRY_ASSIGN(const bool uniform, read_attr<bool>(attrs, "uniform_noise"));
  MR_TRY_ASSIGN(const std::string noise, read_attr<std::string>(attrs, "noise"));
  if (noise == "zero") return Noise::kZero;
  if (noise == "gaussian") return Noise::kGaussian;
  if (noise == "uniform") return uniform ? Noise::kUniform : Noise::kGaussian;
  return invalid_argument("noise must be uniform, gaussian or zero, got ", noise);
}

Status glimpse_shape(ShapeContext& c) {
  MR_TRY(read_noise(c.attrs()).status());
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank(0, 4));
  MR_TRY_ASSIGN(const PartialShape offsets, with_shape(c, 2, {input.dim(0), 2}));
  MR_TRY_ASSIGN(const PartialShape size, sizes_input(c, 1, 2));
  c.set_output(0, PartialShape({offsets.dim(0), size.dim(0), size.dim(1), input.dim(3)}));
  return ok_status();
}

// Noise like the elements of one image.
class NoiseSource {
 public:
  NoiseSource(Noise kind, int64_t number, const float* image, int64_t n)
      : kind_(kind), words_(Philox(static_cast<uint64_t>(number), 0)) {
    if (n == 0 || kind == Noise::kZero) return;
    const auto [low, high] = std::minmax_element(image, image + n);
    low_ = *low;
    high_ = *high;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; ++i) sum += image[i];
    mean_ = sum / static_cast<double>(n);
    for (int64_t i = 0; i < n; ++i) squares += (image[i] - mean_) * (image[i] - mean_);
    deviation_ = std::sqrt(squares / static_cast<double>(n));
  }
  float next() {
    if (kind_ == Noise::kZero) return 0;
    if (kind_ == Noise::kUniform) return low_ + static_cast<float>(fraction()) * (high_ - low_);
    // Box and Muller.
    const double radius = std::sqrt(-2 * std::log(1 - fraction()));
    return static_cast<float>(mean_ +
                              deviation_ * radius * std::cos(6.283185307179586 * fraction()));
  }

 private:
  double fraction() { return static_cast<double>(words_.next()) * 0x1p-32; }

  Noise kind_;
  PhiloxWords words_;
  float low_ = 0, high_ = 0;
  double mean_ = 0, deviation_ = 0;
};

// Towards zero, bounded so that windows can be moved by it.
int64_t whole(float at) {
  constexpr float kMost = 1e12F;
  return at == at ? static_cast<int64_t>(std::clamp(at, -kMost, kMost)) : -(int64_t{1} << 40);
}

class GlimpseKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<GlimpseKernel>();
    MR_TRY_ASSIGN(kernel->centered_, node.attr<bool>("centered"));
    MR_TRY_ASSIGN(kernel->normalized_, node.attr<bool>("normalized"));
    MR_TRY_ASSIGN(kernel->noise_, read_noise(node.attrs));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 4));
    MR_TRY(expect_rank(ctx, 2, 2));
    const Tensor &input = ctx.input(0), &offsets = ctx.input(2);
    const int64_t batch = input.dim(0), channels = input.dim(3);
    MR_TRY_ASSIGN(const std::vector<int64_t> size, ctx.int_vector_input(1));
    if (size.size() != 2) return invalid_argument("size must have 2 elements, got ", size.size());
    if (offsets.dim(0) != batch || offsets.dim(1) != 2) {
      return invalid_argument("offsets must have shape [", batch, ",2], got ", offsets.shape());
    }
    const int64_t dims[] = {batch, size[0], size[1], channels};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    const int64_t image_size = input.dim(1) * input.dim(2) * channels;
    const int64_t glimpse_size = size[0] * size[1] * channels;
    ctx.parallel_for(batch, static_cast<double>(glimpse_size), [&](int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) {
        const float* const offset = offsets.data<float>().data() + 2 * n;
        const int64_t top = start(offset[0], input.dim(1), size[0]);
        const int64_t left = start(offset[1], input.dim(2), size[1]);
        const float* const image = input.data<float>().data() + n * image_size;
        float* to = out->mutable_data<float>().data() + n * glimpse_size;
        NoiseSource noise(noise_, n, image, image_size);
        for (int64_t y = top; y < top + size[0]; ++y) {
          for (int64_t x = left; x < left + size[1]; ++x, to += channels) {
            if (y >= 0 && y < input.dim(1) && x >= 0 && x < input.dim(2)) {
              std::copy_n(image + (y * input.dim(2) + x) * channels, channels, to);
            } else {
              std::generate_n(to, channels, [&] { return noise.next(); });
            }
          }
        }
      }
    });
    return ok_status();
  }

 private:
  // Where the window begins along one axis.
  int64_t start(float offset, int64_t size, int64_t window) const {
    const float length = static_cast<float>(size);
    float at = normalized_ ? offset * length : offset;
    if (centered_) at = at / 2 + length / 2;
    return whole(at - static_cast<float>(window) / 2);
  }

  bool centered_ = true, normalized_ = true;
  Noise noise_ = Noise::kUniform;
};

}  // namespace

void register_glimpse(Registry& registry) {
  registry.add({.name = "ExtractGlimpse",
                .doc = "A window of every image, around a place of its own.",
                .inputs = {{"input", "float"}, {"size", "host(int32)"}, {"offsets", "float"}},
                .outputs = {{"glimpse", "float"}},
                .attrs = {{"centered", "bool = true"},
                          {"normalized", "bool = true"},
                          {"uniform_noise", "bool = true"},
                          {"noise", "string = 'uniform'"}},
                .traits = {.cannot_differentiate = true, .cost = 1},
                .shape = glimpse_shape,
                .no_gradient = "prepares images for training or for people"});
  registry.kernel({.op = "ExtractGlimpse", .factory = &GlimpseKernel::make});
}

}  // namespace millrace
