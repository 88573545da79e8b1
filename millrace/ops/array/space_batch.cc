// SpaceToBatchND and BatchToSpaceND, and their older forms for images: blocks of space become rows
// of the batch. Element o of a block of sizes s, at position i of the blocked tensor, is element
// i * s + o - before of the plain one; it belongs to batch row o * batch + b.

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/array/strided_copy.h"

namespace millrace {
namespace {

// Sizes of blocks for dimensions 1, 2, ... and what is added (or cut off) at both ends of each.
struct Blocks {
  std::vector<int64_t> sizes;
  std::vector<int64_t> margins;  // before and after; -1: not known

  int rank() const { return static_cast<int>(sizes.size()); }
  int64_t size(int i) const { return sizes[static_cast<size_t>(i)]; }
  int64_t before(int i) const { return margins[2 * static_cast<size_t>(i)]; }
  int64_t after(int i) const { return margins[2 * static_cast<size_t>(i) + 1]; }

  // Elements of one block; INVALID_ARGUMENT when that overflows or a size is not positive.
  Result<int64_t> elements() const {
    int64_t product = 1;
    for (int i = 0; i < rank(); ++i) {
      if (size(i) < 1) {
        return invalid_argument("All values in block_shape must be positive, got value, ", size(i),
                                " at index ", i, ".");
      }
      if (__builtin_mul_overflow(product, size(i), &product)) {
        return invalid_argument("the product of block sizes is too large");
      }
    }
    return product;
  }
};

// The size of dimension i + 1 after SpaceToBatch of one of `size`.
Result<int64_t> blocked_size(const Blocks& blocks, int i, int64_t size) {
  const int64_t before = blocks.before(i), after = blocks.after(i);
  if (before < 0 || after < 0) {
    return invalid_argument("Paddings must be non-negative, got ", before, " and ", after);
  }
  if (__builtin_add_overflow(size, before, &size) || __builtin_add_overflow(size, after, &size)) {
    return invalid_argument("dimension ", i + 1, " becomes too large with paddings ", before,
                            " and ", after);
  }
  if (size % blocks.size(i) != 0) {
    return invalid_argument("padded_shape[", i, "]=", size, " is not divisible by block_shape[", i,
                            "]=", blocks.size(i));
  }
  return size / blocks.size(i);
}

// The same after BatchToSpace.
Result<int64_t> plain_size(const Blocks& blocks, int i, int64_t size) {
  const int64_t before = blocks.before(i), after = blocks.after(i);
  if (before < 0 || after < 0) {
    return invalid_argument("Crops must be non-negative, got ", before, " and ", after);
  }
  if (__builtin_mul_overflow(size, blocks.size(i), &size)) {
    return invalid_argument("dimension ", i + 1, " becomes too large");
  }
  if (before > size || after > size - before) {
    return invalid_argument("cropped_shape[", i, "] must be non-negative, got a size of ", size,
                            " and crops ", before, " and ", after);
  }
  return size - before - after;
}

// The shape of the output, where `in` is known.
Result<PartialShape> output_shape(const Blocks& blocks, const PartialShape& in, bool to_batch) {
  if (in.rank() < blocks.rank() + 1) {
    return invalid_argument("input must have rank ", blocks.rank() + 1, " or more, got ", in);
  }
  MR_TRY_ASSIGN(const int64_t elements, blocks.elements());
  PartialShape out = in;
  if (in.dim_known(0)) {
    int64_t batch = in.dim(0);
    if (!to_batch) {
      if (batch % elements != 0) {
        return invalid_argument("Input batch dimension (", batch,
                                ") is not divisible by product of block sizes (", elements, ")");
      }
      batch /= elements;
    } else if (__builtin_mul_overflow(batch, elements, &batch)) {
      return invalid_argument("the batch becomes too large");
    }
    out.set_dim(0, batch);
  }
  for (int i = 0; i < blocks.rank(); ++i) {
    const bool known = in.dim_known(i + 1) && !blocks.margins.empty();
    int64_t size = PartialShape::kUnknownDim;
    if (known) {
      MR_TRY_ASSIGN(size, to_batch ? blocked_size(blocks, i, in.dim(i + 1))
                                   : plain_size(blocks, i, in.dim(i + 1)));
    }
    out.set_dim(i + 1, size);
  }
  return PartialShape::make(out.dims());
}

Status check_margins(const PartialShape& margins, int64_t rank) {
  const PartialShape expected = {rank, 2};
  if (margins.compatible(expected)) return ok_status();
  return invalid_argument("paddings or crops must have shape ", expected, ", got ", margins);
}

std::vector<int64_t> known_margins(const TensorFacts& facts) {
  std::vector<int64_t> out;
  if (facts.constant == nullptr) return out;
  for (int64_t i = 0; i < facts.constant->num_elements(); ++i) {
    out.push_back(int_at(*facts.constant, i));
  }
  return out;
}

template <bool kToBatch>
Status nd_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape sizes, c.with_rank(1, 1));
  MR_TRY(check_margins(c.input(2), sizes.dim(0)));
  MR_TRY_ASSIGN(PartialShape in, c.with_rank_at_least(0, 1));
  const std::optional<std::vector<int64_t>> known = c.input_vector(1);
  if (!known) {
    if (!in.rank_known()) return ok_status();
    PartialShape out = PartialShape::of_rank(in.rank());
    // Dimensions after those of the blocks stay as they are.
    const int64_t rank = in.rank();
    const int64_t first = sizes.dim_known(0) ? std::min(sizes.dim(0), rank) + 1 : rank;
    for (int64_t i = first; i < in.rank(); ++i) {
      out.set_dim(static_cast<int>(i), in.dim(static_cast<int>(i)));
    }
    c.set_output(0, std::move(out));
    return ok_status();
  }
  if (!in.rank_known()) return ok_status();
  const Blocks blocks{*known, known_margins(c.input_facts(2))};
  MR_TRY_ASSIGN(PartialShape out, output_shape(blocks, in, kToBatch));
  c.set_output(0, std::move(out));
  return ok_status();
}

template <bool kToBatch>
Status image_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape in, c.with_rank(0, 4));
  MR_TRY(check_margins(c.input(1), 2));
  MR_TRY_ASSIGN(const int64_t size, c.attr<int64_t>("block_size"));
  const Blocks blocks{{size, size}, known_margins(c.input_facts(1))};
  MR_TRY_ASSIGN(PartialShape out, output_shape(blocks, in, kToBatch));
  c.set_output(0, std::move(out));
  return ok_status();
}

template <bool kToBatch>
Status nd_grad(GradientContext& g) {
  g.set(0, call(kToBatch ? "BatchToSpaceND" : "SpaceToBatchND",
                {g.gradient(), g.input(1), g.input(2)}));
  return ok_status();
}

template <bool kToBatch>
Status image_grad(GradientContext& g) {
  g.set(0, call(kToBatch ? "BatchToSpace" : "SpaceToBatch", {g.gradient(), g.input(1)},
                {{"block_size", g.attr_value("block_size")}}));
  return ok_status();
}

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(static_cast<size_t>(shape.rank()));
  int64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = stride;
    stride *= shape.dim(i);
  }
  return strides;
}

// Copies one element of every block, at `offsets`, between the plain and the blocked tensor.
void copy_offset(const KernelContext& ctx, const Blocks& blocks, std::span<const int64_t> offsets,
                 int64_t row, bool to_batch, Tensor& out) {
  const Tensor& in = ctx.input(0);
  const Shape& plain = to_batch ? in.shape() : out.shape();
  const Shape& blocked = to_batch ? out.shape() : in.shape();
  const std::vector<int64_t> plain_strides = strides_of(plain),
                             blocked_strides = strides_of(blocked);
  StridedCopy copy;
  const auto add_dim = [&](int64_t size, int64_t plain_stride, int64_t blocked_stride) {
    copy.add_dim(size, to_batch ? plain_stride : blocked_stride,
                 to_batch ? blocked_stride : plain_stride);
  };
  const int64_t batch = plain.dim(0);
  add_dim(batch, plain_strides[0], blocked_strides[0]);
  int64_t plain_offset = 0, blocked_offset = row * batch * blocked_strides[0];
  for (int i = 0; i < blocks.rank(); ++i) {
    const size_t d = static_cast<size_t>(i) + 1;
    const int64_t size = blocks.size(i), shift = offsets[static_cast<size_t>(i)] - blocks.before(i);
    // The positions whose element lies inside the plain tensor.
    const int64_t first = shift >= 0 ? 0 : (-shift + size - 1) / size;
    const int64_t last_inside = plain.dim(i + 1) - 1 - shift;
    const int64_t last =
        last_inside < 0 ? -1 : std::min(last_inside / size, blocked.dim(i + 1) - 1);
    if (last < first) return;
    plain_offset += (first * size + shift) * plain_strides[d];
    blocked_offset += first * blocked_strides[d];
    add_dim(last - first + 1, last == first ? 0 : size * plain_strides[d], blocked_strides[d]);
  }
  for (int i = blocks.rank() + 1; i < plain.rank(); ++i) {
    add_dim(plain.dim(i), plain_strides[static_cast<size_t>(i)],
            blocked_strides[static_cast<size_t>(i)]);
  }
  copy.run(ctx, in, to_batch ? plain_offset : blocked_offset, out,
           to_batch ? blocked_offset : plain_offset);
}

Status run_blocks(KernelContext& ctx, const Blocks& blocks, bool to_batch) {
  MR_TRY_ASSIGN(const PartialShape known, output_shape(blocks, ctx.input(0).shape(), to_batch));
  MR_TRY_ASSIGN(const Shape shape, known.to_shape());
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  const bool padded = to_batch && std::any_of(blocks.margins.begin(), blocks.margins.end(),
                                              [](int64_t margin) { return margin > 0; });
  if (padded && is_plain(out->dtype())) {
    MR_TRY_ASSIGN(const Tensor zero, Tensor::zeros(out->dtype(), Shape()));
    fill_tensor(ctx, zero, *out);
  }
  if (ctx.input(0).num_elements() == 0) return ok_status();
  std::vector<int64_t> offsets(blocks.sizes.size());
  MR_TRY_ASSIGN(const int64_t elements, blocks.elements());
  for (int64_t row = 0; row < elements; ++row) {
    copy_offset(ctx, blocks, offsets, row, to_batch, *out);
    for (size_t i = offsets.size(); i > 0 && ++offsets[i - 1] == blocks.sizes[i - 1]; --i) {
      offsets[i - 1] = 0;
    }
  }
  return ok_status();
}

Result<std::vector<int64_t>> read_margins(const KernelContext& ctx, int i, int64_t rank) {
  MR_TRY(check_margins(ctx.input(i).shape(), rank));
  std::vector<int64_t> out;
  for (int64_t k = 0; k < 2 * rank; ++k) out.push_back(int_at(ctx.input(i), k));
  return out;
}

template <bool kToBatch>
Status nd_cpu(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 1, 1));
  Blocks blocks;
  MR_TRY_ASSIGN(blocks.sizes, ctx.int_vector_input(1));
  MR_TRY_ASSIGN(blocks.margins, read_margins(ctx, 2, blocks.rank()));
  return run_blocks(ctx, blocks, kToBatch);
}

template <bool kToBatch>
class ImageBlocks : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t size, node.attr<int64_t>("block_size"));
    return std::make_unique<ImageBlocks>(size);
  }
  explicit ImageBlocks(int64_t size) : size_(size) {}
  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 4));
    Blocks blocks{{size_, size_}, {}};
    MR_TRY_ASSIGN(blocks.margins, read_margins(ctx, 1, 2));
    return run_blocks(ctx, blocks, kToBatch);
  }

 private:
  const int64_t size_;
};

template <bool kToBatch>
void register_direction(Registry& registry) {
  const std::string nd = kToBatch ? "SpaceToBatchND" : "BatchToSpaceND";
  const std::string image = kToBatch ? "SpaceToBatch" : "BatchToSpace";
  const std::string doc =
      kToBatch ? "Blocks of space, padded with zeros, become rows of the batch."
               : "Rows of the batch become blocks of space, of which margins are cut off.";
  const char* const margins = kToBatch ? "paddings" : "crops";
  const char* const nd_type = kToBatch ? "Tpaddings" : "Tcrops";
  const char* const image_type = kToBatch ? "Tpaddings" : "Tidx";
  registry.add({.name = nd,
                .doc = doc,
                .inputs = {{"input", "T", "[batch, space..., rest...]."},
                           {"block_shape", "host(Tblock_shape)"},
                           {margins, str_cat("host(", nd_type, ")"), "[dimensions of space, 2]."}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}},
                          {"Tblock_shape", kIndexTypes, DType::kInt32},
                          {nd_type, kIndexTypes, DType::kInt32}},
                .traits = {.cost = 0.7F},
                .shape = nd_shape<kToBatch>,
                .gradient = nd_grad<kToBatch>});
  registry.add({.name = image,
                .doc = doc,
                .inputs = {{"input", "T", "[batch, height, width, depth]."},
                           {margins, str_cat("host(", image_type, ")")}},
                .outputs = {{"output", "T"}},
                .types = {{"T", {}}, {image_type, kIndexTypes, DType::kInt32}},
                .attrs = {{"block_size", "int >= 2"}},
                .traits = {.cost = 0.7F},
                .shape = image_shape<kToBatch>,
                .gradient = image_grad<kToBatch>});
  registry.kernel(nd, DeviceKind::kCpu, nd_cpu<kToBatch>);
  registry.kernel<ImageBlocks<kToBatch>>(image, DeviceKind::kCpu);
}

}  // namespace

void register_space_batch(Registry& registry) {
  register_direction<true>(registry);
  register_direction<false>(registry);
}

}  // namespace millrace
