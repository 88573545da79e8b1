#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/tensor/dispatch.h"

// SampleDistortedBoundingBox and V2: a random part of an image that holds enough of its objects.

namespace millrace {
namespace {

using SizeTypes = TypeList<uint8_t, int8_t, int16_t, int32_t, int64_t>;

// What the attributes say.
struct Limits {
  float min_aspect = 0.75F, max_aspect = 1.33F;  // width / height
  float min_area = 0.05F, max_area = 1;          // of the whole image
  int64_t attempts = 100;

  static Result<Limits> read(const AttrMap& attrs) {
    MR_TRY_ASSIGN(const std::vector<float> aspects,
                  read_attr<std::vector<float>>(attrs, "aspect_ratio_range"));
    MR_TRY_ASSIGN(const std::vector<float> areas,
                  read_attr<std::vector<float>>(attrs, "area_range"));
    MR_TRY_ASSIGN(const int64_t attempts, read_attr<int64_t>(attrs, "max_attempts"));
    if (aspects.size() != 2 || !(aspects[0] > 0 && aspects[1] > 0) || aspects[0] > 1e6F ||
        aspects[1] > 1e6F) {
      return invalid_argument("aspect_ratio_range must be two positive numbers, got [",
                              str_join(aspects, ","), "]");
    }
    if (areas.size() != 2 || !(areas[0] > 0 && areas[1] > 0 && areas[0] <= 1 && areas[1] <= 1)) {
      return invalid_argument("area_range must be two numbers in (0, 1], got [",
                              str_join(areas, ","), "]");
    }
    if (attempts <= 0 || attempts > 1000000) {
      return invalid_argument("max_attempts must be between 1 and 1000000, got ", attempts);
    }
    return Limits{aspects[0], aspects[1], areas[0], areas[1], attempts};
  }
};

Status check_covered(double covered) {
  if (covered >= 0) return ok_status();
  return invalid_argument("min_object_covered must not be negative, got ", covered);
}

Status check_image(int64_t height, int64_t width) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (height > 0 && width > 0 && height < kMost && width < kMost) return ok_status();
  return invalid_argument("image height and width must be positive and below 2^31, got ", height,
                          " x ", width);
}

Status no_boxes() {
  return invalid_argument(
      "no bounding boxes were given; set use_image_if_no_bounding_boxes to take the image");
}

Status distorted_box_shape(ShapeContext& c) {
  MR_TRY(Limits::read(c.attrs()).status());
  MR_TRY(with_shape(c, 0, {3}).status());
  if (const auto size = c.input_vector(0)) MR_TRY(check_image((*size)[0], (*size)[1]));
  MR_TRY_ASSIGN(const PartialShape boxes, with_shape(c, 1, {-1, -1, 4}));
  MR_TRY_ASSIGN(const bool whole_if_none, c.attr<bool>("use_image_if_no_bounding_boxes"));
  if (!whole_if_none && boxes.num_elements() == 0) return no_boxes();
  if (c.num_inputs() == 2) {
    MR_TRY_ASSIGN(const float covered, c.attr<float>("min_object_covered"));
    MR_TRY(check_covered(covered));
  } else {
    MR_TRY(c.with_rank(2, 0).status());
    if (const auto covered = number_input(c, 2)) MR_TRY(check_covered(*covered));
  }
  c.set_output(0, PartialShape({3}));
  c.set_output(1, PartialShape({3}));
  c.set_output(2, PartialShape({1, 1, 4}));
  return ok_status();
}

// Pixels [y, y + height) x [x, x + width).
struct Rectangle {
  int64_t y = 0, x = 0, height = 0, width = 0;
  double area() const { return static_cast<double>(height) * static_cast<double>(width); }
  double common(const Rectangle& other) const {
    const int64_t rows = std::min(y + height, other.y + other.height) - std::max(y, other.y);
    const int64_t columns = std::min(x + width, other.x + other.width) - std::max(x, other.x);
    return rows <= 0 || columns <= 0 ? 0 : static_cast<double>(rows) * static_cast<double>(columns);
  }
};

// Numbers from a stream of random bits.
class Draws {
 public:
  explicit Draws(Philox stream) : words_(stream) {}
  float fraction() { return static_cast<float>(words_.next() >> 8) * 0x1p-24F; }
  int64_t below(int64_t n) {
    return static_cast<int64_t>(words_.next64() % static_cast<uint64_t>(n));
  }

 private:
  PhiloxWords words_;
};

// A rectangle of this aspect ratio within the limits, anywhere on the image. False: there is none.
bool draw_rectangle(Draws& draws, const Limits& limits, double aspect, int64_t height,
                    int64_t width, Rectangle* out) {
  const double whole = static_cast<double>(height) * static_cast<double>(width);
  const double least = limits.min_area * whole, most = limits.max_area * whole;
  const auto width_of = [&](int64_t h) {
    return static_cast<int64_t>(std::llround(static_cast<double>(h) * aspect));
  };
  const auto rows = [&](double area) {
    return static_cast<int64_t>(
        std::llround(std::min(std::sqrt(area / aspect), static_cast<double>(height))));
  };
  int64_t low = rows(least), high = rows(most);
  if (width_of(high) > width) {
    high = static_cast<int64_t>((static_cast<double>(width) + 0.5 - 1e-7) / aspect);
    if (width_of(high) > width) --high;
  }
  high = std::min(high, height);
  low = std::min(low, high);
  if (low < high) low += draws.below(high - low + 1);
  Rectangle r{.height = low, .width = width_of(low)};
  // Rounding may have left the limits by one row.
  if (r.area() < least) r = {.height = low + 1, .width = width_of(low + 1)};
  if (r.area() > most) r = {.height = low - 1, .width = width_of(low - 1)};
  if (r.area() < least || r.area() > most || r.width > width || r.height > height || r.width <= 0 ||
      r.height <= 0) {
    return false;
  }
  if (r.height < height) r.y = draws.below(height - r.height);
  if (r.width < width) r.x = draws.below(width - r.width);
  *out = r;
  return true;
}

class DistortedBoxKernel final : public Kernel {
 public:
  explicit DistortedBoxKernel(RandomSource source) : source_(std::move(source)) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    auto kernel = std::make_unique<DistortedBoxKernel>(std::move(source));
    if (node.num_inputs() == 2) {
      MR_TRY_ASSIGN(kernel->min_covered_, node.attr<float>("min_object_covered"));
    }
    MR_TRY_ASSIGN(kernel->limits_, Limits::read(node.attrs));
    MR_TRY_ASSIGN(kernel->whole_if_none_, node.attr<bool>("use_image_if_no_bounding_boxes"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& size = ctx.input(0);
    if (size.rank() != 1 || size.dim(0) != 3) {
      return invalid_argument("image_size must have 3 elements, got ", size.shape());
    }
    int64_t height = 0, width = 0;
    MR_TRY(dispatch<SizeTypes>(size.dtype(), [&]<class T>() {
      height = static_cast<int64_t>(size.data<T>()[0]);
      width = static_cast<int64_t>(size.data<T>()[1]);
    }));
    MR_TRY(check_image(height, width));
    float covered = min_covered_;
    if (ctx.num_inputs() > 2) {
      MR_TRY(expect_rank(ctx, 2, 0));
      covered = ctx.input(2).data<float>()[0];
    }
    MR_TRY(check_covered(covered));
    MR_TRY_ASSIGN(const std::vector<Rectangle> objects, read_objects(ctx, height, width));
    // Each attempt takes at most seven words, in two blocks.
    MR_TRY_ASSIGN(const Philox stream,
                  source_.reserve(ctx, 2 * static_cast<uint64_t>(limits_.attempts)));
    const Rectangle r = sample(stream, objects, covered, height, width);
    const int64_t begin[] = {r.y, r.x, 0}, extent[] = {r.height, r.width, -1};
    for (int i = 0; i < 2; ++i) {
      MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(i, Shape{3}));
      MR_TRY(dispatch<SizeTypes>(out->dtype(), [&]<class T>() {
        for (size_t k = 0; k < 3; ++k) {
          out->mutable_data<T>()[k] = static_cast<T>(i == 0 ? begin[k] : extent[k]);
        }
      }));
    }
    MR_TRY_ASSIGN(Tensor * box, ctx.allocate_output(2, Shape{1, 1, 4}));
    const auto part = [](int64_t a, int64_t b) {
      return static_cast<float>(a) / static_cast<float>(b);
    };
    box->mutable_data<float>()[0] = part(r.y, height);
    box->mutable_data<float>()[1] = part(r.x, width);
    box->mutable_data<float>()[2] = part(r.y + r.height, height);
    box->mutable_data<float>()[3] = part(r.x + r.width, width);
    return ok_status();
  }

 private:
  Result<std::vector<Rectangle>> read_objects(KernelContext& ctx, int64_t height,
                                              int64_t width) const {
    const Tensor& boxes = ctx.input(1);
    if (boxes.rank() != 3 || boxes.dim(2) != 4) {
      return invalid_argument("bounding_boxes must have shape [batch, n, 4], got ", boxes.shape());
    }
    std::vector<Rectangle> objects;
    const auto all = boxes.data<float>();
    for (size_t i = 0; i < all.size(); i += 4) {
      // A copy, which does not change between check and use.
      const float box[] = {all[i], all[i + 1], all[i + 2], all[i + 3]};
      for (size_t k = 0; k < 2; ++k) {
        const float low = box[k], high = box[k + 2];
        if (!(low >= 0 && high <= 1 && low < high)) {
          return invalid_argument(
              "bounding boxes must be [y1, x1, y2, x2] with 0 <= y1 < y2 <= 1 "
              "and 0 <= x1 < x2 <= 1, got [",
              box[0], ",", box[1], ",", box[2], ",", box[3], "]");
        }
      }
      const auto place = [](float at, int64_t size) {
        return static_cast<int64_t>(at * static_cast<float>(size));
      };
      Rectangle r{.y = place(box[0], height), .x = place(box[1], width)};
      r.height = place(box[2], height) - r.y;
      r.width = place(box[3], width) - r.x;
      objects.push_back(r);
    }
    if (objects.empty()) {
      if (!whole_if_none_) return no_boxes();
      objects.push_back({.height = height, .width = width});
    }
    return objects;
  }

  Rectangle sample(Philox stream, const std::vector<Rectangle>& objects, float covered,
                   int64_t height, int64_t width) const {
    for (int64_t i = 0; i < limits_.attempts; ++i, stream.skip(2)) {
      Draws draws(stream);
      const double aspect =
          limits_.min_aspect + draws.fraction() * (limits_.max_aspect - limits_.min_aspect);
      Rectangle r;
      if (!draw_rectangle(draws, limits_, aspect, height, width, &r)) continue;
      const bool enough = std::any_of(objects.begin(), objects.end(), [&](const Rectangle& object) {
        return object.area() >= 1 && r.common(object) / object.area() >= covered;
      });
      if (enough) return r;
    }
    return {.height = height, .width = width};
  }

  RandomSource source_;
  Limits limits_;
  float min_covered_ = 0.1F;
  bool whole_if_none_ = false;
};

}  // namespace

void register_distorted_box(Registry& registry) {
  for (const bool second : {false, true}) {
    OpSpec spec{.name = second ? "SampleDistortedBoundingBoxV2" : "SampleDistortedBoundingBox",
                .doc =
                    "A random part of an image, as begin and size of a slice and as a box, that "
                    "covers some of its bounding boxes.",
                .inputs = {{"image_size", "T"}, {"bounding_boxes", "float"}},
                .outputs = {{"begin", "T"}, {"size", "T"}, {"bboxes", "float"}},
                .types = {{"T", type_set_of<SizeTypes>}},
                .attrs = {{"seed", "int = 0"}, {"seed2", "int = 0"}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = distorted_box_shape};
    if (second) {
      spec.inputs.push_back({"min_object_covered", "float"});
    } else {
      spec.attrs.push_back({"min_object_covered", "float = 0.1"});
    }
    spec.attrs.push_back({"aspect_ratio_range", "list(float) = [0.75,1.33]"});
    spec.attrs.push_back({"area_range", "list(float) = [0.05,1]"});
    spec.attrs.push_back({"max_attempts", "int = 100"});
    spec.attrs.push_back({"use_image_if_no_bounding_boxes", "bool = false"});
    registry.add(spec);
    registry.kernel<DistortedBoxKernel>(spec.name, DeviceKind::kCpu);
  }
}

}  // namespace millrace
