#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/tensor/dispatch.h"

// FractionalMaxPool, FractionalAvgPool and their gradients (B. Graham, "Fractional Max-Pooling"):
// pools over regions of random sizes, one or two pixels apart from each other. A pooling sequence
// holds the first row (or column) of every region, and the end.

namespace millrace {
namespace {

using PoolTypes = TypeList<float, double, int32_t, int64_t>;

// Height and width divided by the ratios.
Result<std::pair<float, float>> read_ratios(const AttrMap& attrs) {
  MR_TRY_ASSIGN(const std::vector<float> ratio,
                read_attr<std::vector<float>>(attrs, "pooling_ratio"));
  if (ratio.size() != 4) {
    return invalid_argument("pooling_ratio must have 4 elements, got [", str_join(ratio, ","), "]");
  }
  for (float r : ratio) {
    if (!(r >= 1 && r < 1e9F)) {
      return invalid_argument("pooling_ratio must be 1 or more, got [", str_join(ratio, ","), "]");
    }
  }
  if (ratio[0] != 1 || ratio[3] != 1) {
    return unimplemented("pooling_ratio other than 1 in the batch or channel dimension: [",
                         str_join(ratio, ","), "]");
  }
  return std::pair<float, float>(ratio[1], ratio[2]);
}

// A float may round a very long size up.
int64_t pooled_size(int64_t size, float ratio) {
  if (size < 0) return -1;
  return std::min(static_cast<int64_t>(std::floor(static_cast<float>(size) / ratio)), size);
}

Status fractional_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const auto ratios, read_ratios(c.attrs()));
  MR_TRY_ASSIGN(const PartialShape value, c.with_rank(0, 4));
  const int64_t rows = pooled_size(value.dim(1), ratios.first);
  const int64_t columns = pooled_size(value.dim(2), ratios.second);
  if (rows == 0 || columns == 0) {
    return invalid_argument("pooling ", value, " leaves no rows or columns");
  }
  c.set_output(0, PartialShape({value.dim(0), rows, columns, value.dim(3)}));
  c.set_output(1, PartialShape({rows < 0 ? -1 : rows + 1}));
  c.set_output(2, PartialShape({columns < 0 ? -1 : columns + 1}));
  return ok_status();
}

// Where regions begin, and the last one ends: a sequence begins at or after 0, rises, and ends
// within `size` (-1: not known).
Status check_sequence(const std::vector<int64_t>& sequence, int64_t size) {
  bool good = sequence.size() >= 2 && sequence[0] >= 0 && (size < 0 || sequence.back() <= size);
  for (size_t i = 1; good && i < sequence.size(); ++i) good = sequence[i - 1] < sequence[i];
  if (good) return ok_status();
  return invalid_argument("a pooling sequence must rise from 0 to at most ", size, ", got [",
                          str_join(sequence, ","), "]");
}

// The number of regions that the sequence in input i cuts an axis of `size` into.
Result<int64_t> num_regions(const ShapeContext& c, int i, int64_t size) {
  MR_TRY_ASSIGN(const PartialShape sequence, c.with_rank(i, 1));
  if (const auto known = c.input_vector(i)) MR_TRY(check_sequence(*known, size));
  if (!sequence.dim_known(0)) return PartialShape::kUnknownDim;
  if (sequence.dim(0) >= 2) return sequence.dim(0) - 1;
  return invalid_argument("a pooling sequence must have 2 elements or more, got ", sequence);
}

// The shape rule of the gradient of pooling `input`: inputs [1, gradient] have the pooled shape,
// and the sequences follow.
Status fractional_grad_shape(ShapeContext& c, PartialShape input, int gradient) {
  MR_TRY_ASSIGN(const int64_t rows, num_regions(c, gradient + 1, input.dim(1)));
  MR_TRY_ASSIGN(const int64_t columns, num_regions(c, gradient + 2, input.dim(2)));
  const PartialShape pooled = {input.dim(0), rows, columns, input.dim(3)};
  for (int i = 1; i <= gradient; ++i) MR_TRY(with_shape(c, i, pooled).status());
  c.set_output(0, std::move(input));
  return ok_status();
}

Status fractional_max_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape input, c.with_rank(0, 4));
  return fractional_grad_shape(c, std::move(input), 2);
}

Status fractional_avg_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape sizes, sizes_input(c, 0, 4));
  return fractional_grad_shape(c, std::move(sizes), 1);
}

Status fractional_max_grad(GradientContext& c) {
  if (!kFloating.contains(c.input_type(0))) return ok_status();
  c.set(0, call("FractionalMaxPoolGrad",
                {c.input(0), c.output(0), c.gradient(0), c.output(1), c.output(2)},
                {{"overlapping", c.attr_value("overlapping")}}));
  return ok_status();
}
Status fractional_avg_grad(GradientContext& c) {
  if (!kFloating.contains(c.input_type(0))) return ok_status();
  c.set(0, call("FractionalAvgPoolGrad",
                {shape_of(c.input(0), DType::kInt64), c.gradient(0), c.output(1), c.output(2)},
                {{"overlapping", c.attr_value("overlapping")}}));
  return ok_status();
}

// The first element of each of `pooled` regions of `size` elements, and the end.
std::vector<int64_t> draw_sequence(PhiloxWords& words, int64_t size, int64_t pooled,
                                   bool pseudo_random) {
  std::vector<int64_t> steps(static_cast<size_t>(pooled), size / pooled);
  if (pseudo_random && pooled < size) {
    // ceil(alpha (i + u)): u is such that the first and last regions are no larger than the others.
    const double alpha = static_cast<double>(size) / static_cast<double>(pooled);
    const double k = static_cast<double>(size / pooled);
    const double most = std::min((k + 2) / alpha - 1, (static_cast<double>(size) + 1 - k) / alpha -
                                                          static_cast<double>(pooled - 1));
    const double u = static_cast<double>(words.next()) * 0x1p-32 * most;
    int64_t before = 1;
    for (int64_t i = 0; i < pooled; ++i) {
      // No region is empty, however that was rounded.
      const auto drawn = static_cast<int64_t>(std::ceil(alpha * (static_cast<double>(i + 1) + u)));
      const int64_t last = size + 2 - pooled + i;
      const int64_t next = i + 1 == pooled ? last : std::clamp(drawn, before + 1, last);
      steps[static_cast<size_t>(i)] = next - before;
      before = next;
    }
  } else {
    for (int64_t i = 0; i < size % pooled; ++i) ++steps[static_cast<size_t>(i)];
    for (int64_t i = pooled - 1; i > 0; --i) {
      const auto other = static_cast<size_t>(words.next64() % static_cast<uint64_t>(i + 1));
      std::swap(steps[static_cast<size_t>(i)], steps[other]);
    }
  }
  std::vector<int64_t> sequence = {0};
  for (int64_t step : steps) sequence.push_back(sequence.back() + step);
  return sequence;
}

// The regions of a pool over images [batch, height, width, channels].
struct Regions {
  int64_t batch, height, width, channels;
  std::vector<int64_t> rows, columns;
  bool overlapping;

  int64_t pooled_height() const { return static_cast<int64_t>(rows.size()) - 1; }
  int64_t pooled_width() const { return static_cast<int64_t>(columns.size()) - 1; }
  // One past the end of region i; overlapping ones have the first element of the next.
  int64_t end(const std::vector<int64_t>& sequence, int64_t i, int64_t size) const {
    return std::min(sequence[static_cast<size_t>(i) + 1] + (overlapping ? 1 : 0), size);
  }

  // Calls body(output element, first row, end, first column, end, image offset) for every pixel.
  template <class Body>
  void for_each(const KernelContext& ctx, Body body) const {
    const double cost = static_cast<double>(height * width) * static_cast<double>(channels);
    ctx.parallel_for(batch, cost, [&](int64_t first, int64_t last) {
      for (int64_t n = first; n < last; ++n) {
        for (int64_t i = 0; i < pooled_height(); ++i) {
          for (int64_t j = 0; j < pooled_width(); ++j) {
            const int64_t at = ((n * pooled_height() + i) * pooled_width() + j) * channels;
            body(at, rows[static_cast<size_t>(i)], end(rows, i, height),
                 columns[static_cast<size_t>(j)], end(columns, j, width),
                 n * height * width * channels);
          }
        }
      }
    });
  }
};

Result<std::vector<int64_t>> read_sequence(const KernelContext& ctx, int input, int64_t size) {
  MR_TRY(expect_rank(ctx, input, 1));
  MR_TRY_ASSIGN(std::vector<int64_t> sequence, ctx.int_vector_input(input));
  MR_TRY(check_sequence(sequence, size));
  return sequence;
}

template <class T>
void max_region(const Regions& r, const T* in, int64_t image, int64_t y0, int64_t y1, int64_t x0,
                int64_t x1, int64_t c, int64_t* best) {
  *best = -1;
  for (int64_t y = y0; y < y1; ++y) {
    for (int64_t x = x0; x < x1; ++x) {
      const int64_t at = image + (y * r.width + x) * r.channels + c;
      if (*best < 0 || in[at] > in[*best]) *best = at;
    }
  }
}

template <bool kMax>
class FractionalPoolKernel final : public Kernel {
 public:
  explicit FractionalPoolKernel(RandomSource source) : source_(std::move(source)) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    auto kernel = std::make_unique<FractionalPoolKernel>(std::move(source));
    MR_TRY_ASSIGN(kernel->ratios_, read_ratios(node.attrs));
    MR_TRY_ASSIGN(kernel->pseudo_random_, node.attr<bool>("pseudo_random"));
    MR_TRY_ASSIGN(kernel->overlapping_, node.attr<bool>("overlapping"));
    MR_TRY_ASSIGN(kernel->deterministic_, node.attr<bool>("deterministic"));
    MR_TRY_ASSIGN(kernel->seed_, node.attr<int64_t>("seed"));
    MR_TRY_ASSIGN(kernel->seed2_, node.attr<int64_t>("seed2"));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 4));
    const Tensor& value = ctx.input(0);
    const int64_t height = pooled_size(value.dim(1), ratios_.first);
    const int64_t width = pooled_size(value.dim(2), ratios_.second);
    if (height <= 0 || width <= 0) {
      return invalid_argument("pooling ", value.shape(), " leaves no rows or columns");
    }
    const int64_t dims[] = {value.dim(0), height, width, value.dim(3)};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    MR_TRY_ASSIGN(Tensor * rows, ctx.allocate_output(1, Shape{height + 1}));
    MR_TRY_ASSIGN(Tensor * columns, ctx.allocate_output(2, Shape{width + 1}));
    Philox stream(static_cast<uint64_t>(seed_), static_cast<uint64_t>(seed2_));
    if (!deterministic_) {
      MR_TRY_ASSIGN(stream, source_.reserve(ctx, static_cast<uint64_t>(height + width)));
    }
    PhiloxWords words(stream);
    Regions r{value.dim(0), value.dim(1), value.dim(2), value.dim(3), {}, {}, overlapping_};
    r.rows = draw_sequence(words, value.dim(1), height, pseudo_random_);
    r.columns = draw_sequence(words, value.dim(2), width, pseudo_random_);
    std::copy(r.rows.begin(), r.rows.end(), rows->mutable_data<int64_t>().begin());
    std::copy(r.columns.begin(), r.columns.end(), columns->mutable_data<int64_t>().begin());
    if (out->num_elements() == 0) return ok_status();
    return dispatch<PoolTypes>(out->dtype(), [&]<class T>() {
      const T* const in = value.data<T>().data();
      T* const to = out->mutable_data<T>().data();
      r.for_each(ctx,
                 [&](int64_t at, int64_t y0, int64_t y1, int64_t x0, int64_t x1, int64_t image) {
                   for (int64_t c = 0; c < r.channels; ++c) {
                     if constexpr (kMax) {
                       int64_t best = -1;
                       max_region(r, in, image, y0, y1, x0, x1, c, &best);
                       to[at + c] = in[best];
                     } else {
                       T sum = 0;
                       for (int64_t y = y0; y < y1; ++y) {
                         for (int64_t x = x0; x < x1; ++x) {
                           sum = wrapping_add(sum, in[image + (y * r.width + x) * r.channels + c]);
                         }
                       }
                       to[at + c] = sum / static_cast<T>((y1 - y0) * (x1 - x0));
                     }
                   }
                 });
    });
  }

 private:
  RandomSource source_;
  std::pair<float, float> ratios_;
  bool pseudo_random_ = false, overlapping_ = false, deterministic_ = false;
  int64_t seed_ = 0, seed2_ = 0;
};

template <bool kMax>
class FractionalPoolGradKernel final : public Kernel {
 public:
  explicit FractionalPoolGradKernel(bool overlapping) : overlapping_(overlapping) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool overlapping, node.attr<bool>("overlapping"));
    return std::unique_ptr<Kernel>(std::make_unique<FractionalPoolGradKernel>(overlapping));
  }

  Status compute(KernelContext& ctx) const override {
    constexpr int kGradient = kMax ? 2 : 1;
    Shape shape = ctx.input(0).shape();
    if constexpr (!kMax) {
      MR_TRY_ASSIGN(shape, ctx.shape_input(0));
    }
    if (shape.rank() != 4) return invalid_argument("the input must have rank 4, got ", shape);
    Regions r{shape[0], shape[1], shape[2], shape[3], {}, {}, overlapping_};
    MR_TRY_ASSIGN(r.rows, read_sequence(ctx, kGradient + 1, shape[1]));
    MR_TRY_ASSIGN(r.columns, read_sequence(ctx, kGradient + 2, shape[2]));
    const Shape expected{r.batch, r.pooled_height(), r.pooled_width(), r.channels};
    for (int i = kMax ? 1 : kGradient; i <= kGradient; ++i) {
      if (!(ctx.input(i).shape() == expected)) {
        return invalid_argument("input ", i, " must have shape ", expected, ", got ",
                                ctx.input(i).shape());
      }
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (out->num_elements() == 0) return ok_status();
    return dispatch<PoolTypes>(out->dtype(), [&]<class T>() {
      T* const to = out->mutable_data<T>().data();
      std::fill_n(to, out->num_elements(), T{});
      const T* const dy = ctx.input(kGradient).data<T>().data();
      const T* in = nullptr;
      if constexpr (kMax) in = ctx.input(0).data<T>().data();
      r.for_each(ctx,
                 [&](int64_t at, int64_t y0, int64_t y1, int64_t x0, int64_t x1, int64_t image) {
                   for (int64_t c = 0; c < r.channels; ++c) {
                     if constexpr (kMax) {
                       int64_t best = -1;
                       max_region(r, in, image, y0, y1, x0, x1, c, &best);
                       to[best] = wrapping_add(to[best], dy[at + c]);
                     } else {
                       const T part = dy[at + c] / static_cast<T>((y1 - y0) * (x1 - x0));
                       for (int64_t y = y0; y < y1; ++y) {
                         for (int64_t x = x0; x < x1; ++x) {
                           T& sum = to[image + (y * r.width + x) * r.channels + c];
                           sum = wrapping_add(sum, part);
                         }
                       }
                     }
                   }
                 });
    });
  }

 private:
  bool overlapping_;
};

}  // namespace

void register_fractional_pool(Registry& registry) {
  for (const bool max : {true, false}) {
    const std::string name = max ? "FractionalMaxPool" : "FractionalAvgPool";
    registry.add({.name = name,
                  .doc = max ? "The largest element of regions of random sizes."
                             : "The mean of regions of random sizes.",
                  .inputs = {{"value", "T"}},
                  .outputs = {{"output", "T"},
                              {"row_pooling_sequence", "host(int64)"},
                              {"col_pooling_sequence", "host(int64)"}},
                  .types = {{"T", type_set_of<PoolTypes>}},
                  .attrs = {{"pooling_ratio", "list(float) >= 4"},
                            {"pseudo_random", "bool = false"},
                            {"overlapping", "bool = false"},
                            {"deterministic", "bool = false"},
                            {"seed", "int = 0"},
                            {"seed2", "int = 0"}},
                  .traits = {.stateful = true, .cost = 4},
                  .shape = fractional_shape,
                  .gradient = max ? fractional_max_grad : fractional_avg_grad});
    std::vector<OpSpec::Arg> inputs = {{"orig_input_tensor_shape", "host(int64)"}};
    if (max) inputs = {{"orig_input", "T"}, {"orig_output", "T"}};
    inputs.push_back({"out_backprop", "T"});
    inputs.push_back({"row_pooling_sequence", "host(int64)"});
    inputs.push_back({"col_pooling_sequence", "host(int64)"});
    registry.add({.name = name + "Grad",
                  .doc = "The gradient of " + name + ".",
                  .inputs = inputs,
                  .outputs = {{"output", "T"}},
                  .types = {{"T", type_set_of<PoolTypes>}},
                  .attrs = {{"overlapping", "bool = false"}},
                  .traits = {.cost = 4},
                  .shape = max ? fractional_max_grad_shape : fractional_avg_grad_shape,
                  .no_gradient = "has no second derivative in TensorFlow either"});
  }
  const auto kernel = [&](const char* op, KernelFactory factory) {
    registry.kernel({.op = op, .constraints = {{"T", type_set_of<PoolTypes>}}, .factory = factory});
  };
  kernel("FractionalMaxPool", FractionalPoolKernel<true>::make);
  kernel("FractionalAvgPool", FractionalPoolKernel<false>::make);
  kernel("FractionalMaxPoolGrad", FractionalPoolGradKernel<true>::make);
  kernel("FractionalAvgPoolGrad", FractionalPoolGradKernel<false>::make);
}

}  // namespace millrace
