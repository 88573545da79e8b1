#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/nn/batch_norm_loops.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// FusedBatchNorm (V2 and V3: x may be of half precision, statistics are float) and its gradient.
//
//   y = (x - mean) * rsqrt(variance + epsilon) * scale + offset
//
// per channel, with the statistics of x itself while training. The reserve spaces are mean and
// (biased) variance for the gradient.

namespace millrace {
namespace {

// Where the channels of x are: NHWC and NDHWC, or NCHW and NCDHW.
struct NormLayout {
  bool channels_last = true;
  int rank = 4;
  int channel_dim() const { return channels_last ? rank - 1 : 1; }
};

Result<NormLayout> parse_layout(const AttrValue* format) {
  const std::string* const text = format == nullptr ? nullptr : format->get<std::string>();
  for (const std::string_view known : {"NHWC", "NCHW", "NDHWC", "NCDHW"}) {
    if (text == nullptr || *text != known) continue;
    return NormLayout{known.back() == 'C', static_cast<int>(known.size())};
  }
  return invalid_argument("data_format must be NHWC, NCHW, NDHWC or NCDHW, got ",
                          text == nullptr ? "none" : *text);
}
Result<NormLayout> read_layout(const AttrMap& attrs) {
  return parse_layout(attrs.find("data_format"));
}

// x (input `at`) with the channels that the vectors `first` to `last` have too.
Result<PartialShape> with_channels(ShapeContext& c, int at, int first, int last,
                                   int64_t* channels) {
  MR_TRY_ASSIGN(const NormLayout layout, read_layout(c.attrs()));
  MR_TRY_ASSIGN(PartialShape x, c.with_rank(at, layout.rank));
  PartialShape vector{x.dim(layout.channel_dim())};
  for (int i = first; i <= last; ++i) {
    MR_TRY_ASSIGN(const PartialShape given, c.with_rank(i, 1));
    MR_TRY_ASSIGN(vector, vector.merge(given));
  }
  *channels = vector.dim(0);
  x.set_dim(layout.channel_dim(), *channels);
  return x;
}

Status fused_batch_norm_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool training, c.attr<bool>("is_training"));
  MR_TRY_ASSIGN(const float factor, c.attr<float>("exponential_avg_factor"));
  // Statistics that are not used may be empty.
  const bool uses_statistics = !training || factor != 1;
  MR_TRY(c.with_rank(3, 1).status());
  MR_TRY(c.with_rank(4, 1).status());
  int64_t channels = -1;
  MR_TRY_ASSIGN(PartialShape x, with_channels(c, 0, 1, uses_statistics ? 4 : 2, &channels));
  c.set_output(0, std::move(x));
  for (int i = 1; i < 5; ++i) c.set_output(i, PartialShape{channels});
  if (c.num_outputs() > 5) c.set_output(5, PartialShape::scalar());
  return ok_status();
}

Status fused_batch_norm_grad_shape(ShapeContext& c) {
  int64_t channels = -1;
  MR_TRY_ASSIGN(const PartialShape x, with_channels(c, 1, 2, 4, &channels));
  MR_TRY_ASSIGN(PartialShape dx, x.merge(c.input(0)));
  c.set_output(0, std::move(dx));
  for (int i = 1; i < 3; ++i) c.set_output(i, PartialShape{channels});
  for (int i = 3; i < 5; ++i) c.set_output(i, PartialShape{0});
  return ok_status();
}

// Sums over all but the channels, and vectors of channels spread over x, for gradient rules.
class PerChannel {
 public:
  PerChannel(const NormLayout& layout, Expr x, Expr scale)
      : layout_(layout), builder_(*x.builder()) {
    const DType type = scale.dtype();
    count_ = cast(size_of(x), type) / cast(size_of(scale), type);
  }
  // Elements of each channel.
  Expr count() const { return count_; }
  Expr sum(Expr x) const {
    std::vector<int32_t> axes;
    for (int i = 0; i < layout_.rank; ++i) {
      if (i != layout_.channel_dim()) axes.push_back(i);
    }
    return millrace::sum(x, builder_.constant(Tensor::vector(std::span<const int32_t>(axes))));
  }
  Expr spread(Expr vector) const {
    if (layout_.channels_last) return vector;
    std::vector<int32_t> sizes(static_cast<size_t>(layout_.rank - 1), 1);
    sizes[0] = -1;
    return reshape(vector, builder_.constant(Tensor::vector(std::span<const int32_t>(sizes))));
  }

 private:
  NormLayout layout_;
  OpBuilder& builder_;
  Expr count_;
};

Status fused_batch_norm_grad(GradientContext& c, const char* op) {
  MR_TRY_ASSIGN(const bool training, c.attr<bool>("is_training"));
  MR_TRY_ASSIGN(const double factor, c.attr<float>("exponential_avg_factor"));
  MR_TRY_ASSIGN(const double epsilon, c.attr<float>("epsilon"));
  const AttrMap attrs = {{"data_format", c.attr_value("data_format")},
                         {"epsilon", c.attr_value("epsilon")},
                         {"is_training", training}};
  const Expr x = c.input(0), scale = c.input(1);
  const Expr mean = training ? c.output(3) : c.input(3);
  const Expr variance = training ? c.output(4) : c.input(4);
  std::vector<Expr> inputs = {c.gradient(0), x, scale, mean, variance};
  if (c.num_outputs() > 5) inputs.push_back(c.output(5));
  const std::vector<Expr> grads = call_multi(op, inputs, attrs);
  if (grads.empty()) return ok_status();
  Expr dx = grads[0];
  c.set(1, grads[1]);
  c.set(2, grads[2]);
  if (!training) {
    const Expr scaled = scale * rsqrt(variance + epsilon);
    Expr dmean = -(grads[2] * scaled);
    Expr dvariance = grads[1] * scale / (variance + epsilon) * -0.5;
    for (int i : {1, 3}) {
      if (c.has_gradient(i)) dmean = dmean + c.gradient(i);
      if (c.has_gradient(i + 1)) dvariance = dvariance + c.gradient(i + 1);
    }
    c.set(0, dx);
    c.set(3, dmean);
    c.set(4, dvariance);
    return ok_status();
  }
  // What came back for the statistics: 1 and 2 are the moving ones, 3 and 4 those of x.
  if (factor != 1) {
    if (c.has_gradient(1)) c.set(3, c.gradient(1) * (1 - factor));
    if (c.has_gradient(2)) c.set(4, c.gradient(2) * (1 - factor));
  }
  MR_TRY_ASSIGN(const NormLayout layout, read_layout(attrs));
  const PerChannel channels(layout, x, scale);
  const Expr n = channels.count();
  const auto add = [&](Expr term) { dx = dx + cast(term, dx.dtype()); };
  for (int i : {1, 3}) {
    const double weight = i == 1 ? factor : 1;
    if (c.has_gradient(i))
      add(channels.spread(c.gradient(i) * weight / n) + zeros_like(cast(x, n.dtype())));
    if (!c.has_gradient(i + 1)) continue;
    // The moving variance takes the unbiased one.
    const Expr divisor = i == 1 ? call("Maximum", {n - 1.0, constant_like(n, 1)}) : n;
    const Expr slope = c.gradient(i + 1) * (2 * weight) / divisor;
    add((cast(x, n.dtype()) - channels.spread(mean)) * channels.spread(slope));
  }
  c.set(0, dx);
  return ok_status();
}

Status fused_batch_norm_v1_grad(GradientContext& c) {
  return fused_batch_norm_grad(c, "FusedBatchNormGrad");
}
Status fused_batch_norm_v2_grad(GradientContext& c) {
  return fused_batch_norm_grad(c, "FusedBatchNormGradV2");
}
Status fused_batch_norm_v3_grad(GradientContext& c) {
  return fused_batch_norm_grad(c, "FusedBatchNormGradV3");
}

// With r = rsqrt(variance + epsilon), xm = x - mean, D = sum(dy), P = sum(dy xm), n elements:
//   dx = scale r (dy - D / n - xm P r^2 / n), or scale r dy where the statistics were given,
//   dscale = r P, doffset = D,
// and g, gs, go the gradients of the three.
Status fused_batch_norm_grad_grad(GradientContext& c) {
  MR_TRY_ASSIGN(const bool training, c.attr<bool>("is_training"));
  MR_TRY_ASSIGN(const double epsilon, c.attr<float>("epsilon"));
  MR_TRY_ASSIGN(const NormLayout layout, parse_layout(&c.attr_value("data_format")));
  const Expr scale = c.input(2), mean = c.input(3), variance = c.input(4);
  if (!scale.valid()) return ok_status();
  const DType type = scale.dtype(), x_type = c.input_type(1);
  const PerChannel channels(layout, c.input(1), scale);
  const auto spread = [&](Expr e) { return channels.spread(e); };
  const auto sum = [&](Expr e) { return channels.sum(e); };
  const Expr dy = cast(c.input(0), type), g = cast(c.gradient(0), type);
  const Expr gs = c.gradient(1), go = c.gradient(2);
  const Expr n = channels.count();
  const Expr r = rsqrt(variance + epsilon), scaled = scale * r;
  const Expr xm = cast(c.input(1), type) - spread(mean);
  const Expr d = sum(dy), p = sum(dy * xm), s = sum(g * dy);
  Expr ddy = g * spread(scaled) + xm * spread(gs * r) + spread(go);
  Expr dx = dy * spread(gs * r);
  Expr dscale = s, dmean = -(gs * r * d), dr = scale * s + gs * p;
  if (training) {
    const Expr sum_g = sum(g), h = sum(g * xm);
    const Expr rr = square(r) / n, k = scaled * rr;
    ddy = ddy - spread(scaled * sum_g / n) - xm * spread(k * h);
    dx = dx - (dy * spread(k * h) + g * spread(k * p));
    dscale = dscale - d * sum_g / n - p * h * rr;
    dmean = dmean + k * (d * h + sum_g * p);
    dr = dr - scale * (d * sum_g / n) - scale * p * h * rr * 3.0;
  }
  c.set(0, cast(ddy, x_type));
  c.set(1, cast(dx, x_type));
  c.set(2, dscale * r);
  c.set(3, dmean);
  c.set(4, dr * r * square(r) * -0.5);
  return ok_status();
}

// x as [outer, channels, inner]: inner is 1 where channels are last.
struct NormSizes {
  int64_t outer = 0, channels = 0, inner = 1;
  int64_t count() const { return outer * inner; }
};

Result<NormSizes> norm_sizes(const NormLayout& layout, const Tensor& x) {
  if (x.rank() != layout.rank) {
    return invalid_argument("x must have rank ", layout.rank, ", got ", x.shape());
  }
  NormSizes sizes{.channels = x.dim(layout.channel_dim())};
  if (x.num_elements() == 0) return sizes;
  sizes.outer = layout.channels_last ? x.num_elements() / sizes.channels : x.dim(0);
  sizes.inner = x.num_elements() / sizes.channels / sizes.outer;
  return sizes;
}

Status expect_channels(const KernelContext& ctx, int input, int64_t channels) {
  const Shape& shape = ctx.input(input).shape();
  if (shape.rank() == 1 && shape[0] == channels) return ok_status();
  return invalid_argument("input ", input, " must have one element for each of the ", channels,
                          " channels, got ", shape);
}

// How the work is shared: parts of the rows where channels are last, channels elsewhere. It depends
// on the sizes alone.
class Parts {
 public:
  explicit Parts(const NormSizes& sizes) : sizes_(sizes) {
    rows_ = std::clamp<int64_t>(8192 / std::max<int64_t>(1, sizes.channels), 8, 256);
    parts_ = std::clamp<int64_t>((sizes.outer + rows_ - 1) / rows_, 1, 16);
  }
  int64_t count() const { return parts_; }
  int64_t begin(int64_t part) const { return sizes_.outer * part / parts_; }
  double cost() const {
    return 0.5 * static_cast<double>(sizes_.outer / parts_ + 1) *
           static_cast<double>(sizes_.channels);
  }
  // Calls body(first row, rows) for the blocks of a part: few enough rows to stay in the cache.
  template <class Body>
  void for_each_block(int64_t part, Body body) const {
    for (int64_t r = begin(part); r < begin(part + 1); r += rows_) {
      body(r, std::min(rows_, begin(part + 1) - r));
    }
  }

 private:
  NormSizes sizes_;
  int64_t rows_, parts_;
};

// Elements of a channel that are summed at once.
constexpr int64_t kPlaneBlock = 4096;

template <class Body>
void for_each_plane_block(int64_t n, Body body) {
  for (int64_t i = 0; i < n; i += kPlaneBlock) body(i, std::min(kPlaneBlock, n - i));
}

double plane_cost(const NormSizes& sizes) { return 0.5 * static_cast<double>(sizes.count()); }

// Mean and biased variance of every channel of x, which has elements.
template <class C>
Status statistics(KernelContext& ctx, const NormSizes& sizes, const C* x, C* mean, C* variance) {
  const BatchNormLoops<C>& loops = isa_table<BatchNormLoops<C>>();
  const int64_t channels = sizes.channels, inner = sizes.inner;
  if (inner > 1) {
    ctx.parallel_for(channels, plane_cost(sizes), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        int64_t count = 0;
        mean[c] = variance[c] = 0;
        for (int64_t o = 0; o < sizes.outer; ++o) {
          for_each_plane_block(inner, [&](int64_t first, int64_t n) {
            loops.add_plane_statistics(x + (o * channels + c) * inner + first, n, count, &mean[c],
                                       &variance[c]);
            count += n;
          });
        }
      }
    });
  } else {
    const Parts parts(sizes);
    const int64_t dims[] = {parts.count(), 4, channels};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor temp, ctx.allocate_temp(dtype_of<C>, shape));
    C* const all = temp.mutable_data<C>().data();
    ctx.parallel_for(parts.count(), parts.cost(), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        C* const part = all + p * 4 * channels;
        std::fill_n(part, 2 * channels, C{});
        int64_t count = 0;
        parts.for_each_block(p, [&](int64_t row, int64_t rows) {
          loops.add_statistics(x + row * channels, rows, channels, count, part + 2 * channels, part,
                               part + channels);
          count += rows;
        });
      }
    });
    std::copy_n(all, channels, mean);
    std::copy_n(all + channels, channels, variance);
    for (int64_t p = 1; p < parts.count(); ++p) {
      const C* const part = all + p * 4 * channels;
      const double count = static_cast<double>(parts.begin(p));
      const double added = static_cast<double>(parts.begin(p + 1) - parts.begin(p));
      const C weight = static_cast<C>(added / (count + added));
      const C spread = static_cast<C>(count * added / (count + added));
      for (int64_t c = 0; c < channels; ++c) {
        const C delta = part[c] - mean[c];
        mean[c] += delta * weight;
        variance[c] += part[channels + c] + delta * delta * spread;
      }
    }
  }
  for (int64_t c = 0; c < channels; ++c) variance[c] /= static_cast<C>(sizes.count());
  return ok_status();
}

// Calls rows(first element, rows) or plane(first element, n, channel) over all of x.
template <class Rows, class Plane>
void for_each_piece(KernelContext& ctx, const NormSizes& sizes, Rows rows, Plane plane) {
  if (sizes.inner > 1) {
    ctx.parallel_for(sizes.outer * sizes.channels, 0.5 * static_cast<double>(sizes.inner),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         plane(i * sizes.inner, sizes.inner, i % sizes.channels);
                       }
                     });
  } else {
    ctx.parallel_for(
        sizes.outer, 0.5 * static_cast<double>(sizes.channels),
        [&](int64_t begin, int64_t end) { rows(begin * sizes.channels, end - begin); });
  }
}

template <class T>
class FusedBatchNormKernel final : public Kernel {
 public:
  using C = ComputeType<T>;

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<FusedBatchNormKernel>();
    MR_TRY_ASSIGN(kernel->layout_, read_layout(node.attrs));
    MR_TRY_ASSIGN(kernel->training_, node.attr<bool>("is_training"));
    MR_TRY_ASSIGN(kernel->epsilon_, node.attr<float>("epsilon"));
    MR_TRY_ASSIGN(kernel->factor_, node.attr<float>("exponential_avg_factor"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& x = ctx.input(0);
    MR_TRY_ASSIGN(const NormSizes sizes, norm_sizes(layout_, x));
    const bool uses_statistics = !training_ || factor_ != 1;
    for (int i = 1; i < 5; ++i) {
      // Statistics that are not used may have any length.
      MR_TRY(i < 3 || uses_statistics ? expect_channels(ctx, i, sizes.channels)
                                      : expect_rank(ctx, i, 1));
    }
    Tensor* outputs[5];
    for (int i = 1; i < 5; ++i) {
      MR_TRY_ASSIGN(outputs[i], ctx.allocate_output(i, Shape{sizes.channels}));
    }
    if (ctx.num_outputs() > 5) {
      MR_TRY_ASSIGN(Tensor * unused, ctx.allocate_output(5, Shape()));
      unused->mutable_data<C>()[0] = 0;
    }
    C* const mean = outputs[3]->mutable_data<C>().data();
    C* const variance = outputs[4]->mutable_data<C>().data();
    const auto vector = [&](int i) { return ctx.input(i).template data<C>().data(); };
    Tensor converted = x;
    if (x.num_elements() > 0) {
      MR_TRY_ASSIGN(converted, as_compute_type<T>(ctx, x));
    }
    if (!training_) {
      std::copy_n(vector(3), sizes.channels, mean);
      std::copy_n(vector(4), sizes.channels, variance);
    } else if (x.num_elements() > 0) {
      MR_TRY(statistics(ctx, sizes, converted.data<C>().data(), mean, variance));
    } else {
      std::fill_n(mean, sizes.channels, std::numeric_limits<C>::quiet_NaN());
      std::fill_n(variance, sizes.channels, std::numeric_limits<C>::quiet_NaN());
    }
    update_moving(ctx, sizes, mean, variance, outputs[1]->mutable_data<C>().data(),
                  outputs[2]->mutable_data<C>().data());

    MR_TRY_ASSIGN(Tensor * y, ctx.allocate_output(0, x.shape()));
    if (x.num_elements() == 0) return ok_status();
    MR_TRY_ASSIGN(Tensor scale_tensor, ctx.allocate_temp(dtype_of<C>, Shape{sizes.channels}));
    C* const scale = scale_tensor.mutable_data<C>().data();
    for (int64_t c = 0; c < sizes.channels; ++c) {
      scale[c] = vector(1)[c] / std::sqrt(variance[c] + static_cast<C>(epsilon_));
    }
    MR_TRY_ASSIGN(Tensor result, compute_buffer<T>(ctx, *y));
    const C* const from = converted.data<C>().data();
    C* const to = result.mutable_data<C>().data();
    const C* const offset = vector(2);
    const BatchNormLoops<C>& loops = isa_table<BatchNormLoops<C>>();
    for_each_piece(
        ctx, sizes,
        [&](int64_t at, int64_t rows) {
          loops.normalize(from + at, rows, sizes.channels, mean, scale, offset, to + at);
        },
        [&](int64_t at, int64_t n, int64_t c) {
          loops.normalize_plane(from + at, n, mean[c], scale[c], offset[c], to + at);
        });
    finish_output<T>(ctx, result, *y);
    return ok_status();
  }

 private:
  void update_moving(KernelContext& ctx, const NormSizes& sizes, const C* mean, const C* variance,
                     C* moving_mean, C* moving_variance) const {
    const C count = static_cast<C>(sizes.count());
    const C unbiased = training_ ? count / std::max<C>(count - 1, 1) : 1;
    for (int64_t c = 0; c < sizes.channels; ++c) {
      moving_mean[c] = mean[c];
      moving_variance[c] = variance[c] * unbiased;
      if (!training_ || factor_ == 1) continue;
      const C weight = factor_;
      const C old_mean = ctx.input(3).template data<C>()[static_cast<size_t>(c)];
      const C old_variance = ctx.input(4).template data<C>()[static_cast<size_t>(c)];
      // Nothing was seen: the old values stay.
      const bool empty = sizes.count() == 0;
      moving_mean[c] = empty ? old_mean : (1 - weight) * old_mean + weight * moving_mean[c];
      moving_variance[c] =
          empty ? old_variance : (1 - weight) * old_variance + weight * moving_variance[c];
    }
  }

  NormLayout layout_;
  bool training_ = true;
  float epsilon_ = 0, factor_ = 1;
};

// sum(dy) and sum(dy (x - mean)) of every channel.
template <class C>
Status products(KernelContext& ctx, const NormSizes& sizes, const C* dy, const C* x, const C* mean,
                C* sum, C* product) {
  const BatchNormLoops<C>& loops = isa_table<BatchNormLoops<C>>();
  const int64_t channels = sizes.channels, inner = sizes.inner;
  if (inner > 1) {
    ctx.parallel_for(channels, plane_cost(sizes), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        sum[c] = product[c] = 0;
        for (int64_t o = 0; o < sizes.outer; ++o) {
          for_each_plane_block(inner, [&](int64_t first, int64_t n) {
            const int64_t at = (o * channels + c) * inner + first;
            loops.add_plane_products(dy + at, x + at, n, mean[c], &sum[c], &product[c]);
          });
        }
      }
    });
    return ok_status();
  }
  const Parts parts(sizes);
  const int64_t dims[] = {parts.count(), 4, channels};
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor temp, ctx.allocate_temp(dtype_of<C>, shape));
  C* const all = temp.mutable_data<C>().data();
  ctx.parallel_for(parts.count(), parts.cost(), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      C* const part = all + p * 4 * channels;
      C* const block = part + 2 * channels;
      std::fill_n(part, 2 * channels, C{});
      parts.for_each_block(p, [&](int64_t row, int64_t rows) {
        std::fill_n(block, 2 * channels, C{});
        loops.add_products(dy + row * channels, x + row * channels, rows, channels, mean, block,
                           block + channels);
        for (int64_t c = 0; c < 2 * channels; ++c) part[c] += block[c];
      });
    }
  });
  for (int64_t c = 0; c < channels; ++c) {
    sum[c] = product[c] = 0;
    for (int64_t p = 0; p < parts.count(); ++p) {
      sum[c] += all[p * 4 * channels + c];
      product[c] += all[(p * 4 + 1) * channels + c];
    }
  }
  return ok_status();
}

template <class T>
class FusedBatchNormGradKernel final : public Kernel {
 public:
  using C = ComputeType<T>;

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<FusedBatchNormGradKernel>();
    MR_TRY_ASSIGN(kernel->layout_, read_layout(node.attrs));
    MR_TRY_ASSIGN(kernel->training_, node.attr<bool>("is_training"));
    MR_TRY_ASSIGN(kernel->epsilon_, node.attr<float>("epsilon"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& x = ctx.input(1);
    MR_TRY_ASSIGN(const NormSizes sizes, norm_sizes(layout_, x));
    MR_TRY(expect_same_shape(ctx, 0, 1));
    for (int i = 2; i < 5; ++i) MR_TRY(expect_channels(ctx, i, sizes.channels));
    const int64_t channels = sizes.channels;
    MR_TRY_ASSIGN(Tensor * dx, ctx.allocate_output(0, x.shape()));
    MR_TRY_ASSIGN(Tensor * dscale_tensor, ctx.allocate_output(1, Shape{channels}));
    MR_TRY_ASSIGN(Tensor * doffset_tensor, ctx.allocate_output(2, Shape{channels}));
    for (int i = 3; i < 5; ++i) MR_TRY(ctx.allocate_output(i, Shape{0}).status());
    C* const dscale = dscale_tensor->mutable_data<C>().data();
    C* const doffset = doffset_tensor->mutable_data<C>().data();
    if (x.num_elements() == 0) {
      std::fill_n(dscale, channels, C{});
      std::fill_n(doffset, channels, C{});
      return ok_status();
    }
    MR_TRY_ASSIGN(const Tensor dy_tensor, as_compute_type<T>(ctx, ctx.input(0)));
    MR_TRY_ASSIGN(const Tensor x_tensor, as_compute_type<T>(ctx, x));
    const C* const dy = dy_tensor.data<C>().data();
    const C* const from = x_tensor.data<C>().data();
    const auto vector = [&](int i) { return ctx.input(i).template data<C>().data(); };
    const C* const mean = vector(3);
    MR_TRY(products(ctx, sizes, dy, from, mean, doffset, dscale));

    const int64_t dims[] = {3, channels};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor temp, ctx.allocate_temp(dtype_of<C>, shape));
    C* const shift = temp.mutable_data<C>().data();
    C* const slope = shift + channels;
    C* const scale = slope + channels;
    const C count = static_cast<C>(sizes.count());
    for (int64_t c = 0; c < channels; ++c) {
      const C spread = vector(4)[c] + static_cast<C>(epsilon_);
      const C inverse = 1 / std::sqrt(spread);
      scale[c] = vector(2)[c] * inverse;
      shift[c] = training_ ? doffset[c] / count : 0;
      slope[c] = training_ ? dscale[c] / count / spread : 0;
      dscale[c] *= inverse;
    }
    MR_TRY_ASSIGN(Tensor result, compute_buffer<T>(ctx, *dx));
    C* const to = result.mutable_data<C>().data();
    const BatchNormLoops<C>& loops = isa_table<BatchNormLoops<C>>();
    for_each_piece(
        ctx, sizes,
        [&](int64_t at, int64_t rows) {
          loops.differentiate(dy + at, from + at, rows, channels, mean, shift, slope, scale,
                              to + at);
        },
        [&](int64_t at, int64_t n, int64_t c) {
          loops.differentiate_plane(dy + at, from + at, n, mean[c], shift[c], slope[c], scale[c],
                                    to + at);
        });
    finish_output<T>(ctx, result, *dx);
    return ok_status();
  }

 private:
  NormLayout layout_;
  bool training_ = true;
  float epsilon_ = 0;
};

template <class... Ts>
void register_kernels(Registry& registry, const char* forward, const char* backward, bool has_u,
                      TypeList<Ts...>) {
  const auto add = [&](const char* op, DType type, KernelFactory factory) {
    KernelDef def{.op = op, .constraints = {{"T", {type}}}, .factory = factory};
    if (has_u) def.constraints.push_back({"U", {DType::kFloat}});
    registry.kernel(def);
  };
  (add(forward, dtype_of<Ts>, &FusedBatchNormKernel<Ts>::make), ...);
  (add(backward, dtype_of<Ts>, &FusedBatchNormGradKernel<Ts>::make), ...);
}

void register_version(Registry& registry, const std::string& version) {
  const bool first = version.empty(), third = version == "V3";
  const std::string u = first ? "T" : "U";
  std::vector<OpSpec::Type> types = {
      {"T", first ? TypeSet{DType::kFloat, DType::kDouble}
                  : TypeSet{DType::kHalf, DType::kBFloat16, DType::kFloat}}};
  std::vector<OpSpec::Type> grad_types = types;
  if (!first) {
    types.push_back(
        {"U", third ? TypeSet{DType::kBFloat16, DType::kFloat} : TypeSet{DType::kFloat}});
    grad_types.push_back({"U", {DType::kFloat}});
  }
  const OpSpec::Attr format = {"data_format",
                               third ? "string = 'NHWC' in {'NHWC','NCHW','NDHWC','NCDHW'}"
                                     : "string = 'NHWC' in {'NHWC','NCHW'}"};
  std::vector<OpSpec::Arg> outputs = {{"y", "T"},
                                      {"batch_mean", u},
                                      {"batch_variance", u},
                                      {"reserve_space_1", u},
                                      {"reserve_space_2", u}};
  std::vector<OpSpec::Arg> grad_inputs = {{"y_backprop", "T"},
                                          {"x", "T"},
                                          {"scale", first ? "T" : "float"},
                                          {"reserve_space_1", u},
                                          {"reserve_space_2", u}};
  if (third) {
    outputs.push_back({"reserve_space_3", u});
    grad_inputs.push_back({"reserve_space_3", u});
  }
  registry.add({.name = "FusedBatchNorm" + version,
                .doc = "Normalises every channel of x to mean offset and deviation scale: by the "
                       "statistics of x while training, else by those given.",
                .inputs = {{"x", "T"}, {"scale", u}, {"offset", u}, {"mean", u}, {"variance", u}},
                .outputs = outputs,
                .types = types,
                .attrs = {{"epsilon", "float = 1e-4"},
                          {"exponential_avg_factor", "float = 1"},
                          format,
                          {"is_training", "bool = true"}},
                .traits = {.cost = 2,
                           .affine_in = 1,
                           .shifted_by = 1 << 2 | 1 << 3,
                           .image_inputs = 1,
                           .image_outputs = 1},
                .shape = fused_batch_norm_shape,
                .gradient = first   ? fused_batch_norm_v1_grad
                            : third ? fused_batch_norm_v3_grad
                                    : fused_batch_norm_v2_grad});
  registry.add({.name = "FusedBatchNormGrad" + version,
                .doc = "The gradient of FusedBatchNorm" + version + ".",
                .inputs = grad_inputs,
                .outputs = {{"x_backprop", "T"},
                            {"scale_backprop", u},
                            {"offset_backprop", u},
                            {third ? "reserve_space_4" : "reserve_space_3", u},
                            {third ? "reserve_space_5" : "reserve_space_4", u}},
                .types = grad_types,
                .attrs = {{"epsilon", "float = 1e-4"}, format, {"is_training", "bool = true"}},
                .traits = {.cost = 3, .image_inputs = 3, .image_outputs = 1},
                .shape = fused_batch_norm_grad_shape,
                .gradient = fused_batch_norm_grad_grad});
}

}  // namespace

void register_fused_batch_norm(Registry& registry) {
  using MixedTypes = TypeList<Half, BFloat16, float>;
  for (const char* version : {"", "V2", "V3"}) register_version(registry, version);
  register_kernels(registry, "FusedBatchNorm", "FusedBatchNormGrad", false,
                   TypeList<float, double>());
  register_kernels(registry, "FusedBatchNormV2", "FusedBatchNormGradV2", true, MixedTypes());
  register_kernels(registry, "FusedBatchNormV3", "FusedBatchNormGradV3", true, MixedTypes());
}

}  // namespace millrace
