// MirrorPad: the input continued beyond its edges by its mirror image, with the edge itself
// (SYMMETRIC) or without (REFLECT). MirrorPadGrad sums what came from one element.

#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/element.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The larger size of a dimension, from the smaller one (`grow`), or the other way round.
Result<int64_t> mirrored_size(int i, int64_t size, int64_t before, int64_t after, bool reflect,
                              bool grow) {
  if (before < 0 || after < 0) {
    return invalid_argument("paddings must be non-negative: ", before, " ", after);
  }
  int64_t both, other;
  if (__builtin_add_overflow(before, after, &both) ||
      (grow && __builtin_add_overflow(size, both, &other))) {
    return invalid_argument("dimension ", i, " becomes too large with paddings ", before, " and ",
                            after);
  }
  if (!grow) other = size - both;
  const int64_t inner = grow ? size : other;
  const int64_t most = reflect ? std::max<int64_t>(inner - 1, 0) : inner;
  if (inner < 0 || before > most || after > most) {
    return invalid_argument("paddings must be ", reflect ? "less than" : "no greater than",
                            " the dimension size: ", before, " and ", after,
                            " do not fit dimension ", i, " of size ", inner);
  }
  return other;
}

template <bool kGrow>
Status mirror_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape paddings, c.with_rank(1, 2));
  MR_TRY_ASSIGN(std::string mode, c.attr<std::string>("mode"));
  const bool reflect = std::string_view(mode) == "REFLECT";
  PartialShape in = c.input(0);
  if (!in.rank_known()) {
    if (!paddings.compatible(PartialShape{PartialShape::kUnknownDim, 2}) ||
        (paddings.dim_known(0) && paddings.dim(0) > Shape::kMaxRank)) {
      return invalid_argument("paddings must have shape [rank,2], got ", paddings);
    }
    if (paddings.dim_known(0)) {
      c.set_output(0, PartialShape::of_rank(static_cast<int>(paddings.dim(0))));
    }
    return ok_status();
  }
  if (!paddings.compatible(PartialShape{in.rank(), 2})) {
    return invalid_argument("paddings must have shape ", PartialShape{in.rank(), 2},
                            " for an input of shape ", in, ", got ", paddings);
  }
  PartialShape out = PartialShape::of_rank(in.rank());
  const Tensor* constant = c.input_facts(1).constant;
  for (int i = 0; constant != nullptr && i < in.rank(); ++i) {
    if (!in.dim_known(i)) continue;
    MR_TRY_ASSIGN(const int64_t size, mirrored_size(i, in.dim(i), int_at(*constant, 2 * i),
                                                    int_at(*constant, 2 * i + 1), reflect, kGrow));
    out.set_dim(i, size);
  }
  MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
  c.set_output(0, std::move(out));
  return ok_status();
}

// Each is linear, and the other its transpose.
template <bool kGrow>
Status mirror_grad(GradientContext& g) {
  g.set(0, call(kGrow ? "MirrorPadGrad" : "MirrorPad", {g.gradient(), g.input(1)},
                {{"mode", g.attr_value("mode")}}));
  return ok_status();
}

// For every position of the larger tensor, the one of the smaller that it mirrors.
class MirrorPlan {
 public:
  Status make(const KernelContext& ctx, bool reflect, bool grow) {
    const Tensor& in = ctx.input(0);
    if (!(ctx.input(1).shape() == Shape{in.rank(), 2})) {
      return invalid_argument("paddings must have shape ", Shape{in.rank(), 2},
                              " for an input of shape ", in.shape(), ", got ",
                              ctx.input(1).shape());
    }
    HostInts paddings, sizes;
    MR_TRY(paddings.read(ctx, 1, "paddings"));
    for (int i = 0; i < in.rank(); ++i) {
      MR_TRY_ASSIGN(const int64_t size, mirrored_size(i, in.dim(i), paddings[2 * i],
                                                      paddings[2 * i + 1], reflect, grow));
      sizes.add(size);
    }
    MR_TRY_ASSIGN(other_, Shape::make(sizes.span()));
    const Shape& large = grow ? other_ : in.shape();
    const Shape& small = grow ? in.shape() : other_;
    if (large.num_elements() == 0) return ok_status();
    int64_t stride = 1;
    places_.resize(static_cast<size_t>(in.rank()));
    for (int i = in.rank() - 1; i >= 0; --i) {
      const int64_t size = small.dim(i), before = paddings[2 * i];
      std::vector<int64_t>& places = places_[static_cast<size_t>(i)];
      for (int64_t k = 0; k < large.dim(i); ++k) {
        int64_t at = k - before;
        if (at < 0) at = reflect ? -at : -at - 1;
        if (at >= size) at = 2 * size - at - (reflect ? 2 : 1);
        places.push_back(at * stride);
      }
      stride *= size;
    }
    return ok_status();
  }
  // The shape of the output.
  const Shape& other() const { return other_; }
  int64_t row_length() const {
    return places_.empty() ? 1 : static_cast<int64_t>(places_.back().size());
  }
  // Calls f(k, place) for the elements of row `row` (along the last dimension) of the larger
  // tensor.
  template <class F>
  void for_row(int64_t row, F f) const {
    if (places_.empty()) return f(0, 0);
    int64_t base = 0, left = row;
    for (size_t i = places_.size() - 1; i > 0; --i) {
      const std::vector<int64_t>& places = places_[i - 1];
      base += places[static_cast<size_t>(left) % places.size()];
      left /= static_cast<int64_t>(places.size());
    }
    const std::vector<int64_t>& last = places_.back();
    const int64_t first = row * row_length();
    for (size_t k = 0; k < last.size(); ++k) f(first + static_cast<int64_t>(k), base + last[k]);
  }

 private:
  Shape other_;
  std::vector<std::vector<int64_t>> places_;  // by dimension, in elements of the smaller tensor
};

template <bool kGrow>
class Mirror : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string mode, node.attr<std::string>("mode"));
    return std::make_unique<Mirror>(std::string_view(mode) == "REFLECT");
  }
  explicit Mirror(bool reflect) : reflect_(reflect) {}

  Status compute(KernelContext& ctx) const override {
    MirrorPlan plan;
    MR_TRY(plan.make(ctx, reflect_, kGrow));
    const Tensor& in = ctx.input(0);
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, plan.other()));
    if (out->num_elements() == 0) return ok_status();
    if constexpr (kGrow) {
      with_element(in.dtype(), [&]<class T>() {
        const T* from = static_cast<const T*>(in.raw());
        T* to = static_cast<T*>(out->mutable_raw());
        const int64_t length = plan.row_length();
        const double cost = copy_cost(in.dtype()) * 2 * static_cast<double>(length) + 5;
        ctx.parallel_for(out->num_elements() / length, cost, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            plan.for_row(row, [&](int64_t k, int64_t place) { to[k] = from[place]; });
          }
        });
      });
      return ok_status();
    } else {
      return dispatch<NumberTypes>(in.dtype(), [&]<class T>() -> Status {
        using C = ComputeType<T>;
        MR_TRY_ASSIGN(Tensor sums, compute_buffer<T>(ctx, *out));
        const T* from = in.data<T>().data();
        C* sum = sums.mutable_data<C>().data();
        std::fill_n(sum, out->num_elements(), C{});
        for (int64_t row = 0; row < in.num_elements() / plan.row_length(); ++row) {
          plan.for_row(row, [&](int64_t k, int64_t place) {
            sum[place] = wrapping_add(sum[place], static_cast<C>(from[k]));
          });
        }
        finish_output<T>(ctx, sums, *out);
        return ok_status();
      });
    }
  }

 private:
  const bool reflect_;
};

}  // namespace

void register_mirror_pad(Registry& registry) {
  const auto add = [&](const char* name, const char* doc, ShapeRule shape, GradientRule gradient) {
    registry.add({.name = name,
                  .doc = doc,
                  .inputs = {{"input", "T"}, {"paddings", "host(Tpaddings)", "[rank,2]."}},
                  .outputs = {{"output", "T"}},
                  .types = {{"T", {}}, {"Tpaddings", kIndexTypes, DType::kInt32}},
                  .attrs = {{"mode", "string in {'REFLECT','SYMMETRIC'}",
                             "Without or with the edge itself."}},
                  .traits = {.cost = 1, .each_dimension_in = "paddings"},
                  .shape = shape,
                  .gradient = gradient});
  };
  add("MirrorPad", "The input continued by its mirror image.", mirror_shape<true>,
      mirror_grad<true>);
  add("MirrorPadGrad", "The gradient of MirrorPad: what came from one element, summed.",
      mirror_shape<false>, mirror_grad<false>);
  registry.kernel<Mirror<true>>("MirrorPad", DeviceKind::kCpu);
  registry.kernel(
      {.op = "MirrorPadGrad", .constraints = {{"T", kNumbers}}, .factory = Mirror<false>::make});
}

}  // namespace millrace
