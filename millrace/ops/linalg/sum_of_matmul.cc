#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/tensor/dispatch.h"

// The sum of products is one product: of the left matrices side by side and the right ones on top
// of each other. Its k runs through all of them. It is added to the other terms.

namespace millrace {
namespace {

// "[2,3] (transposed)".
std::string operand(const std::string& shape, bool transposed) {
  return transposed ? shape + " (transposed)" : shape;
}

Status sum_of_matmul_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool transpose_a, c.attr<bool>("transpose_a"));
  MR_TRY_ASSIGN(const bool transpose_b, c.attr<bool>("transpose_b"));
  MR_TRY_ASSIGN(const int64_t added, c.attr<int64_t>("M"));
  const int first = static_cast<int>(added), products = (c.num_inputs() - first) / 2;
  PartialShape sum = PartialShape::of_rank(2);
  for (int i = 0; i < first; ++i) {
    MR_TRY_ASSIGN(const PartialShape term, c.with_rank(i, 2));
    Result<PartialShape> both = sum.merge(term);
    if (!both.ok()) {
      return invalid_argument("terms of one shape are added up, but term ", i, " has shape ", term,
                              ", those before it ", sum);
    }
    sum = std::move(both).value();
  }
  for (int i = 0; i < products; ++i) {
    MR_TRY_ASSIGN(const PartialShape a, c.with_rank(first + i, 2));
    MR_TRY_ASSIGN(const PartialShape b, c.with_rank(first + products + i, 2));
    const int64_t inner_a = a.dim(transpose_a ? 0 : 1), inner_b = b.dim(transpose_b ? 1 : 0);
    if (inner_a >= 0 && inner_b >= 0 && inner_a != inner_b) {
      return invalid_argument("inner dimensions of product ", i,
                              " differ: ", operand(a.to_string(), transpose_a), " x ",
                              operand(b.to_string(), transpose_b));
    }
    const PartialShape product{a.dim(transpose_a ? 1 : 0), b.dim(transpose_b ? 0 : 1)};
    Result<PartialShape> both = sum.merge(product);
    if (!both.ok()) {
      return invalid_argument("terms of one shape are added up, but product ", i, " has shape ",
                              product, ", those before it ", sum);
    }
    sum = std::move(both).value();
  }
  c.set_output(0, std::move(sum));
  return ok_status();
}

// Lines whose k elements lie in several matrices, one after the other.
template <class T, class S>
class JoinedSource final : public GemmSource<T> {
 public:
  void append(const MatrixView<S>& lines, int64_t k) {
    if (k == 0) return;
    side_by_side_ &= lines.row_step == 1;
    parts_.push_back({lines, k_});
    k_ += k;
  }
  int64_t k() const { return k_; }

  void pack(int64_t line, int64_t count, int64_t k, int64_t depth, int width,
            T* out) const override {
    if constexpr (std::is_same_v<S, T>) {
      if (side_by_side_) {
        copy_panels(line, count, k, depth, width, out);
        return;
      }
    }
    for (; count > 0; line += width, count -= width, out += width * depth) {
      const int64_t here = std::min<int64_t>(count, width);
      for (int64_t done = 0; done < depth;) {
        const size_t part = part_of(k + done);
        const auto& [lines, begin] = parts_[part];
        const int64_t take = std::min(depth - done, end_of(part) - (k + done));
        StridedSource<T, S>(lines.data, lines.row_step, lines.column_step)
            .pack(line, here, k + done - begin, take, width, out + done * width);
        done += take;
      }
    }
  }

 private:
  struct Part {
    MatrixView<S> lines;
    int64_t begin;  // of its elements among the k
  };

  size_t part_of(int64_t k) const {
    const auto after = std::ranges::upper_bound(parts_, k, {}, &Part::begin);
    return static_cast<size_t>(after - parts_.begin()) - 1;
  }
  int64_t end_of(size_t part) const {
    return part + 1 < parts_.size() ? parts_[part + 1].begin : k_;
  }

  void copy_panels(int64_t line, int64_t count, int64_t k, int64_t depth, int width, T* out) const {
    constexpr int64_t kElements = 128;
    const auto copy_lines = isa_table<GemmKernels<T>>().copy_lines;
    const int64_t whole = count / width * width;
    const int rest = static_cast<int>(count - whole);
    if (rest > 0) std::fill_n(out + whole * depth, width * depth, T{});
    size_t part = part_of(k);
    for (int64_t first = 0; first < depth; first += kElements) {
      const int64_t length = std::min(kElements, depth - first);
      const T* elements[kElements];
      for (int64_t p = 0; p < length; ++p) {
        const int64_t at = k + first + p;
        if (at == end_of(part)) ++part;
        const auto& [lines, begin] = parts_[part];
        elements[p] = lines.data + line + (at - begin) * lines.column_step;
      }
      T* to = out + first * width;
      for (int64_t i = 0; i < whole; i += width) {
        copy_lines(elements, i, width, width, length, to + i * depth);
      }
      if (rest > 0) copy_lines(elements, whole, rest, width, length, to + whole * depth);
    }
  }

  std::vector<Part> parts_;
  int64_t k_ = 0;
  bool side_by_side_ = true;
};

template <class S>
class SumOfMatMul final : public Kernel {
 public:
  SumOfMatMul(int added, bool transpose_a, bool transpose_b)
      : added_(added), transpose_a_(transpose_a), transpose_b_(transpose_b) {}

  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t added, node.attr<int64_t>("M"));
    MR_TRY_ASSIGN(const bool transpose_a, node.attr<bool>("transpose_a"));
    MR_TRY_ASSIGN(const bool transpose_b, node.attr<bool>("transpose_b"));
    return std::unique_ptr<Kernel>(
        std::make_unique<SumOfMatMul>(static_cast<int>(added), transpose_a, transpose_b));
  }

  Status compute(KernelContext& ctx) const override {
    using T = SumType<S>;
    const int products = (ctx.num_inputs() - added_) / 2;
    // The lines of the right matrices are their columns.
    JoinedSource<T, S> left, right;
    for (int i = 0; i < products; ++i) {
      const Tensor &a = ctx.input(added_ + i), &b = ctx.input(added_ + products + i);
      MR_TRY(check_product(ctx, i, products));
      const int64_t k = a.dim(transpose_a_ ? 0 : 1);
      left.append(view(a, transpose_a_), k);
      right.append(view(b, !transpose_b_), k);
    }
    const int64_t m = rows(ctx.input(added_)), n = columns(ctx.input(added_ + products));
    const int64_t dims[] = {m, n};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(const std::vector<const S*> added, added_terms(ctx, shape));
    MR_TRY_ASSIGN(Tensor * out, added_ > 0 ? ctx.forward_or_allocate_output({0}, 0, shape)
                                           : ctx.allocate_output(0, shape));
    MR_TRY_ASSIGN(Tensor sums, compute_buffer<S>(ctx, *out));
    T* const c = sums.mutable_data<T>().data();
    add_up(ctx, added, m * n, c);
    MR_TRY(gemm<T>({m, n, left.k(), left, right, c, n, /*accumulate=*/added_ > 0},
                   ContextParallel{ctx}));
    finish_output<S>(ctx, sums, *out);
    return ok_status();
  }

 private:
  static MatrixView<S> view(const Tensor& matrix, bool transposed) {
    const auto as_it_is = MatrixView<S>::of(matrix.data<S>().data(), matrix.dim(1));
    return transposed ? as_it_is.transposed() : as_it_is;
  }
  int64_t rows(const Tensor& a) const { return a.dim(transpose_a_ ? 1 : 0); }
  int64_t columns(const Tensor& b) const { return b.dim(transpose_b_ ? 0 : 1); }

  // Whether product i exists and has the shape of those before it.
  Status check_product(KernelContext& ctx, int i, int products) const {
    MR_TRY(expect_rank(ctx, added_ + i, 2));
    MR_TRY(expect_rank(ctx, added_ + products + i, 2));
    const Tensor &a = ctx.input(added_ + i), &b = ctx.input(added_ + products + i);
    if (a.dim(transpose_a_ ? 0 : 1) != b.dim(transpose_b_ ? 1 : 0)) {
      return invalid_argument("inner dimensions of product ", i,
                              " differ: ", operand(a.shape().to_string(), transpose_a_), " x ",
                              operand(b.shape().to_string(), transpose_b_));
    }
    const int64_t m = rows(ctx.input(added_)), n = columns(ctx.input(added_ + products));
    if (rows(a) != m || columns(b) != n) {
      return invalid_argument("terms of one shape are added up, but product ", i, " has shape [",
                              rows(a), ',', columns(b), "], those before it [", m, ',', n, ']');
    }
    return ok_status();
  }

  Result<std::vector<const S*>> added_terms(KernelContext& ctx, const Shape& shape) const {
    std::vector<const S*> out;
    for (int i = 0; i < added_; ++i) {
      if (ctx.input(i).shape() != shape) {
        return invalid_argument("terms of one shape are added up, but term ", i, " has shape ",
                                ctx.input(i).shape(), ", the products ", shape);
      }
      out.push_back(ctx.input(i).data<S>().data());
    }
    return out;
  }

  // `sums` may be the first of the terms.
  template <class T>
  static void add_up(KernelContext& ctx, const std::vector<const S*>& terms, int64_t count,
                     T* sums) {
    for (size_t t = 0; t < terms.size(); ++t) {
      const S* const term = terms[t];
      if (static_cast<const void*>(term) == sums) continue;
      ctx.parallel_for(count, 0.5, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          sums[i] = t == 0 ? static_cast<T>(term[i]) : sums[i] + static_cast<T>(term[i]);
        }
      });
    }
  }

  int added_;
  bool transpose_a_;
  bool transpose_b_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel({.op = "_SumOfMatMul",
                    .constraints = {{"T", {dtype_of<Ts>}}},
                    .factory = &SumOfMatMul<Ts>::make}),
   ...);
}

}  // namespace

void register_sum_of_matmul(Registry& registry) {
  registry.add({.name = "_SumOfMatMul",
                .doc = "The sum of the products of matrices a[i] and b[i], and of others: AddN of "
                       "MatMul, which the optimiser replaces by it.",
                .inputs = {{"added", "M*T"}, {"a", "N*T"}, {"b", "N*T"}},
                .outputs = {{"sum", "T"}},
                .types = {{"T", type_set_of<FloatingTypes>}},
                .attrs = {{"M", "int >= 0"},
                          {"N", "int >= 1"},
                          {"transpose_a", "bool = false"},
                          {"transpose_b", "bool = false"}},
                .traits = {.may_alias = 1, .cost = 50},
                .shape = sum_of_matmul_shape,
                .no_gradient = "stands in graphs whose gradients are there already"});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
