#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/scratch.h"
#include "millrace/tensor/dispatch.h"

// TopK, TopKV2: the k largest elements of each row, largest first; smallest first where `sorted`
// does not ask for an order, as TensorFlow's heap leaves them. Of equal elements the one with the
// lower index comes first; NaN is larger than every number. InTopK, InTopKV2: whether a given class
// is among the k largest.

namespace millrace {
namespace {

Status check_row_length(int64_t n) {
  if (n <= std::numeric_limits<int32_t>::max()) return ok_status();
  return invalid_argument("rows of ", n, " elements are too long for int32 indices");
}

Status set_top_k_shapes(ShapeContext& c, std::optional<int64_t> k) {
  MR_TRY_ASSIGN(const PartialShape input, c.with_rank_at_least(0, 1));
  if (k && *k < 0) return invalid_argument("Need k >= 0, got ", *k);
  if (!input.rank_known()) return ok_status();
  const int last = input.rank() - 1;
  MR_TRY(check_row_length(input.dim(last)));
  if (k && input.dim_known(last) && *k > input.dim(last)) {
    return invalid_argument("input must have last dimension >= k = ", *k, ", got ", input);
  }
  PartialShape out = input;
  out.set_dim(last, k.value_or(PartialShape::kUnknownDim));
  c.set_output(0, out);
  c.set_output(1, std::move(out));
  return ok_status();
}

Status top_k_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const int64_t k, c.attr<int64_t>("k"));
  return set_top_k_shapes(c, k);
}

Status top_k_v2_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(1, 0).status());
  return set_top_k_shapes(c, c.input_scalar(1));
}

// The gradient of each value goes to the element it was taken from: rows of the input laid end to
// end, the places of the values in that line are index + row number * row length.
Status top_k_grad(GradientContext& c) {
  OpBuilder& builder = c.builder();
  const Expr x = c.input(0), indices = c.output(1), shape = shape_of(x);
  const Expr last = rank(x) - 1.0, zero = int32_scalar(builder, 0);
  const Expr columns = call("Gather", {shape, last});
  const Expr k = call("Gather", {shape_of(indices), last});
  const Expr outer = call("Slice", {shape, int32_vector(builder, {0}), expand_dims(last, zero)});
  const Expr rows = call("Prod", {outer, int32_vector(builder, {0})});
  const Expr starts = range(zero, rows, int32_scalar(builder, 1)) * columns;
  const Expr row_shape = concat({expand_dims(rows, zero), expand_dims(k, zero)}, 0);
  const Expr places = reshape(indices, row_shape) + expand_dims(starts, int32_scalar(builder, 1));
  const Expr flat = int32_vector(builder, {-1});
  const Expr dense =
      call("UnsortedSegmentSum", {reshape(c.gradient(0), flat), reshape(places, flat), size_of(x)});
  c.set(0, reshape(dense, shape));
  return ok_status();
}

// An integer that orders as the values do; zeros of both signs are equal.
template <class T>
uint64_t order_key(T value) {
  if constexpr (std::is_integral_v<T>) {
    constexpr uint64_t kSign = uint64_t{1} << 63;
    if constexpr (std::is_signed_v<T>) return static_cast<uint64_t>(int64_t{value}) ^ kSign;
    return value;
  } else {
    const double v = static_cast<double>(value);
    if (v != v) return ~uint64_t{0};
    const auto bits = std::bit_cast<uint64_t>(v + 0.0);
    return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
  }
}

struct Entry {
  uint64_t key;
  int64_t index;
};

// Moves the k largest of the n entries to the front, in order: from the largest, or not `sorted`,
// from the smallest of them.
void select_largest(Entry* entries, int64_t n, int64_t k, bool sorted) {
  const auto before = [](const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key > b.key : a.index < b.index;
  };
  if (sorted && k <= 16) {
    std::partial_sort(entries, entries + k, entries + n, before);
    return;
  }
  if (k < n) std::nth_element(entries, entries + k, entries + n, before);
  if (sorted) {
    std::sort(entries, entries + k, before);
  } else {
    std::sort(entries, entries + k, [](const Entry& a, const Entry& b) {
      return a.key != b.key ? a.key < b.key : a.index < b.index;
    });
  }
}

// [rows, k] of [rows, n]; false: there is not enough memory.
template <class T>
bool top_k_of_rows(KernelContext& ctx, int64_t rows, int64_t n, int64_t k, bool sorted,
                   const T* from, T* to, int32_t* places) {
  std::atomic<bool> short_of_memory{false};
  ctx.parallel_for(rows, 50 + 3 * static_cast<double>(n), [&](int64_t begin, int64_t end) {
    Scratch<Entry> scratch(k > 1 ? n : 0);
    Entry* const entries = scratch.data();
    if (entries == nullptr) {
      short_of_memory = true;
      return;
    }
    for (int64_t row = begin; row < end; ++row) {
      const T* x = from + row * n;
      if (k == 1) {
        int64_t best = 0;
        for (int64_t i = 1; i < n; ++i) {
          if (order_key(x[i]) > order_key(x[best])) best = i;
        }
        to[row] = x[best];
        places[row] = static_cast<int32_t>(best);
        continue;
      }
      for (int64_t i = 0; i < n; ++i) entries[i] = {order_key(x[i]), i};
      select_largest(entries, n, k, sorted);
      for (int64_t i = 0; i < k; ++i) {
        const int64_t index = entries[i].index;
        to[row * k + i] = x[index];
        places[row * k + i] = static_cast<int32_t>(index);
      }
    }
  });
  return !short_of_memory;
}

Status top_k(KernelContext& ctx, int64_t k, bool sorted) {
  const Tensor& input = ctx.input(0);
  if (input.rank() < 1) return invalid_argument("input must have rank 1 or more, got []");
  const int64_t n = input.dim(input.rank() - 1);
  if (k < 0) return invalid_argument("Need k >= 0, got ", k);
  if (k > n)
    return invalid_argument("input must have last dimension >= k = ", k, ", got ", input.shape());
  MR_TRY(check_row_length(n));
  MR_TRY_ASSIGN(const Shape shape, input.shape().with_dim(input.rank() - 1, k));
  MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(0, shape));
  MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(1, shape));
  if (shape.num_elements() == 0) return ok_status();
  bool done = false;
  MR_TRY(dispatch<RealTypes>(input.dtype(), [&]<class T>() {
    done = top_k_of_rows(ctx, shape.num_elements() / k, n, k, sorted, input.data<T>().data(),
                         values->mutable_data<T>().data(), indices->mutable_data<int32_t>().data());
  }));
  if (!done) return resource_exhausted("OOM when ordering rows of ", n, " elements");
  return ok_status();
}

class TopKKernel final : public Kernel {
 public:
  TopKKernel(int64_t k, bool sorted) : k_(k), sorted_(sorted) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t k, node.attr<int64_t>("k"));
    MR_TRY_ASSIGN(const bool sorted, node.attr<bool>("sorted"));
    return std::unique_ptr<Kernel>(std::make_unique<TopKKernel>(k, sorted));
  }
  Status compute(KernelContext& ctx) const override { return top_k(ctx, k_, sorted_); }

 private:
  int64_t k_;
  bool sorted_;
};

class TopKV2Kernel final : public Kernel {
 public:
  explicit TopKV2Kernel(bool sorted) : sorted_(sorted) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool sorted, node.attr<bool>("sorted"));
    return std::unique_ptr<Kernel>(std::make_unique<TopKV2Kernel>(sorted));
  }
  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 1, 0));
    MR_TRY_ASSIGN(const int64_t k, ctx.int_scalar_input(1));
    return top_k(ctx, k, sorted_);
  }

 private:
  bool sorted_;
};

Status in_top_k_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape predictions, c.with_rank(0, 2));
  MR_TRY_ASSIGN(const PartialShape targets, c.with_rank(1, 1));
  if (c.num_inputs() > 2) MR_TRY(c.with_rank(2, 0).status());
  const int64_t rows = predictions.dim(0), count = targets.dim(0);
  if (rows >= 0 && count >= 0 && rows != count) {
    return invalid_argument("there must be one target per row of predictions, got ", targets,
                            " for ", predictions);
  }
  c.set_output(0, {std::max(rows, count)});
  return ok_status();
}

template <class Target>
bool in_top(const float* row, int64_t classes, Target target, int64_t k) {
  // A class that does not exist, or a row with infinities or NaN, cannot be ranked.
  if (target < 0 || target >= classes || !std::isfinite(row[target])) return false;
  int64_t larger = 0;
  for (int64_t i = 0; i < classes; ++i) {
    if (!std::isfinite(row[i])) return false;
    larger += row[i] > row[target];
  }
  return larger < k;
}

Status in_top_k(KernelContext& ctx, int64_t k) {
  MR_TRY(expect_rank(ctx, 0, 2));
  MR_TRY(expect_rank(ctx, 1, 1));
  const Tensor &predictions = ctx.input(0), &targets = ctx.input(1);
  if (predictions.dim(0) != targets.dim(0)) {
    return invalid_argument("there must be one target per row of predictions, got ",
                            targets.shape(), " for ", predictions.shape());
  }
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, targets.shape()));
  const int64_t classes = predictions.dim(1);
  const float* const rows = predictions.data<float>().data();
  bool* const found = out->mutable_data<bool>().data();
  return dispatch<IndexTypes>(targets.dtype(), [&]<class Target>() {
    const Target* target = targets.data<Target>().data();
    ctx.parallel_for(targets.dim(0), 10 + static_cast<double>(classes),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         found[i] = in_top(rows + i * classes, classes, target[i], k);
                       }
                     });
  });
}

class InTopKKernel final : public Kernel {
 public:
  explicit InTopKKernel(int64_t k) : k_(k) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t k, node.attr<int64_t>("k"));
    return std::unique_ptr<Kernel>(std::make_unique<InTopKKernel>(k));
  }
  Status compute(KernelContext& ctx) const override { return in_top_k(ctx, k_); }

 private:
  int64_t k_;
};

Status in_top_k_v2(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 2, 0));
  MR_TRY_ASSIGN(const int64_t k, ctx.int_scalar_input(2));
  return in_top_k(ctx, k);
}

}  // namespace

void register_top_k(Registry& registry) {
  registry.add(
      {.name = "TopK",
       .doc = "The k largest elements of each row of the last dimension, and their places.",
       .inputs = {{"input", "T"}},
       .outputs = {{"values", "T"}, {"indices", "int32"}},
       .types = {{"T", kRealNumbers}},
       .attrs = {{"k", "int >= 0"}, {"sorted", "bool = true"}},
       .traits = {.cost = 100},
       .shape = top_k_shape,
       .gradient = top_k_grad,
       .deprecated_since = 7,
       .deprecation = "Use TopKV2 instead"});
  registry.add(
      {.name = "TopKV2",
       .doc = "The k largest elements of each row of the last dimension, and their places.",
       .inputs = {{"input", "T"}, {"k", "host(int32)"}},
       .outputs = {{"values", "T"}, {"indices", "int32"}},
       .types = {{"T", kRealNumbers}},
       .attrs = {{"sorted", "bool = true"}},
       .traits = {.cost = 100},
       .shape = top_k_v2_shape,
       .gradient = top_k_grad});
  registry.add({.name = "InTopK",
                .doc = "For each row, whether the target class is among the k largest predictions.",
                .inputs = {{"predictions", "float"}, {"targets", "T"}},
                .outputs = {{"precision", "bool"}},
                .types = {{"T", kIndexTypes, DType::kInt32}},
                .attrs = {{"k", "int"}},
                .traits = {.cannot_differentiate = true, .cost = 10},
                .shape = in_top_k_shape});
  registry.add({.name = "InTopKV2",
                .doc = "For each row, whether the target class is among the k largest predictions.",
                .inputs = {{"predictions", "float"}, {"targets", "T"}, {"k", "host(T)"}},
                .outputs = {{"precision", "bool"}},
                .types = {{"T", kIndexTypes, DType::kInt32}},
                .traits = {.cannot_differentiate = true, .cost = 10},
                .shape = in_top_k_shape});
  registry.kernel<TopKKernel>("TopK", DeviceKind::kCpu);
  registry.kernel<TopKV2Kernel>("TopKV2", DeviceKind::kCpu);
  registry.kernel<InTopKKernel>("InTopK", DeviceKind::kCpu);
  registry.kernel({.op = "InTopKV2", .function = &in_top_k_v2});
}

}  // namespace millrace
