// SpaceToDepth and DepthToSpace: blocks of an image become its depth, and back.

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/strided_copy.h"

namespace millrace {
namespace {

// Which dimension is which.
struct ImageLayout {
  int height, width, depth;
  int64_t block = 0;

  template <class Source>
  static Result<ImageLayout> read(const Source& node) {
    MR_TRY_ASSIGN(std::string format, node.template attr<std::string>("data_format"));
    const std::string_view name = format;
    ImageLayout layout = name == "NHWC" ? ImageLayout{1, 2, 3} : ImageLayout{2, 3, 1};
    MR_TRY_ASSIGN(layout.block, node.template attr<int64_t>("block_size"));
    if (name == "NCHW_VECT_C") {
      return unimplemented("data_format NCHW_VECT_C needs a device that computes in int8x4");
    }
    return layout;
  }
};

// `in` with space divided by the block size and depth multiplied by its square, or the other way
// round.
Result<PartialShape> moved_shape(const ImageLayout& layout, const PartialShape& in, bool to_depth) {
  PartialShape out = in;
  int64_t square;
  if (__builtin_mul_overflow(layout.block, layout.block, &square)) {
    return invalid_argument("block_size ", layout.block, " is too large");
  }
  const auto change = [&](int i, int64_t factor, bool divide) -> Status {
    if (!in.dim_known(i)) return ok_status();
    int64_t size = in.dim(i);
    if (divide) {
      if (size % factor != 0) {
        return invalid_argument("dimension ", i, " of ", in, " is not divisible by ", factor,
                                " for block_size ", layout.block);
      }
      size /= factor;
    } else if (__builtin_mul_overflow(size, factor, &size)) {
      return invalid_argument("dimension ", i, " of ", in, " becomes too large with block_size ",
                              layout.block);
    }
    out.set_dim(i, size);
    return ok_status();
  };
  MR_TRY(change(layout.height, layout.block, to_depth));
  MR_TRY(change(layout.width, layout.block, to_depth));
  MR_TRY(change(layout.depth, square, !to_depth));
  return PartialShape::make(out.dims());
}

template <bool kToDepth>
Status moved_shape_rule(ShapeContext& c) {
  MR_TRY_ASSIGN(std::string format, c.attr<std::string>("data_format"));
  if (std::string_view(format) == "NCHW_VECT_C") {
    return c.with_rank(0, 5).status();
  }
  MR_TRY_ASSIGN(const ImageLayout layout, ImageLayout::read(c));
  MR_TRY_ASSIGN(const PartialShape in, c.with_rank(0, 4));
  MR_TRY_ASSIGN(PartialShape out, moved_shape(layout, in, kToDepth));
  c.set_output(0, std::move(out));
  return ok_status();
}

template <bool kToDepth>
Status moved_grad(GradientContext& g) {
  g.set(0, call(kToDepth ? "DepthToSpace" : "SpaceToDepth", {g.gradient()},
                {{"block_size", g.attr_value("block_size")},
                 {"data_format", g.attr_value("data_format")}}));
  return ok_status();
}

template <bool kToDepth>
class MoveBlocks : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const ImageLayout layout, ImageLayout::read(node));
    return std::make_unique<MoveBlocks>(layout);
  }
  explicit MoveBlocks(const ImageLayout& layout) : layout_(layout) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 4));
    const Tensor& in = ctx.input(0);
    MR_TRY_ASSIGN(const PartialShape known, moved_shape(layout_, in.shape(), kToDepth));
    MR_TRY_ASSIGN(const Shape shape, known.to_shape());
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    const Shape& plain = kToDepth ? in.shape() : shape;
    const Shape& deep = kToDepth ? shape : in.shape();
    const int64_t b = layout_.block, channels = plain.dim(layout_.depth);
    int64_t p[4], d[4];
    strides(plain, p);
    strides(deep, d);
    const Part image = {plain.dim(0), p[0], d[0]};
    const Part y = {deep.dim(layout_.height), b * p[layout_.height], d[layout_.height]};
    const Part x = {deep.dim(layout_.width), b * p[layout_.width], d[layout_.width]};
    const Part in_y = {b, p[layout_.height], b * channels * d[layout_.depth]};
    const Part in_x = {b, p[layout_.width], channels * d[layout_.depth]};
    const Part channel = {channels, p[layout_.depth], d[layout_.depth]};
    StridedCopy copy;
    const auto add = [&](std::initializer_list<Part> parts) {
      for (const Part& part : parts) {
        copy.add_dim(part.size, kToDepth ? part.plain : part.deep,
                     kToDepth ? part.deep : part.plain);
      }
    };
    // In the order of the target's memory.
    const bool last = layout_.depth == 3;
    if (kToDepth) {
      last ? add({image, y, x, in_y, in_x, channel}) : add({image, in_y, in_x, channel, y, x});
    } else {
      last ? add({image, y, in_y, x, in_x, channel}) : add({image, channel, y, in_y, x, in_x});
    }
    copy.run(ctx, in, 0, *out, 0);
    return ok_status();
  }

 private:
  struct Part {
    int64_t size, plain, deep;
  };
  static void strides(const Shape& shape, int64_t* out) {
    out[3] = 1;
    for (int i = 2; i >= 0; --i) out[i] = out[i + 1] * shape.dim(i + 1);
  }

  const ImageLayout layout_;
};

template <bool kToDepth>
void register_direction(Registry& registry) {
  const char* const name = kToDepth ? "SpaceToDepth" : "DepthToSpace";
  registry.add({.name = name,
                .doc = kToDepth ? "The elements of each block of an image one behind the other."
                                : "Elements that lie one behind the other as blocks of an image.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}},
                .attrs = {{"block_size", "int >= 2"},
                          {"data_format", "string = 'NHWC' in {'NHWC','NCHW','NCHW_VECT_C'}"}},
                .traits = {.cost = 0.7F, .image_inputs = 1, .image_outputs = 1},
                .shape = moved_shape_rule<kToDepth>,
                .gradient = moved_grad<kToDepth>});
  registry.kernel<MoveBlocks<kToDepth>>(name, DeviceKind::kCpu);
}

}  // namespace

void register_space_depth(Registry& registry) {
  register_direction<true>(registry);
  register_direction<false>(registry);
}

}  // namespace millrace
