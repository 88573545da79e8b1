// Sums of products by an equation: both inputs are arranged as batches of matrices, multiplied, and
// the result is arranged as the equation says.

#include <algorithm>
#include <memory>
#include <utility>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/linalg/einsum_labels.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using EinsumTypes =
    ConcatTypes<FloatingTypes, TypeList<int32_t, int64_t, uint32_t, uint64_t>, ComplexTypes>;

bool has(const EinsumLabels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

Status einsum_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const std::string text, c.attr<std::string>("equation"));
  std::vector<int> ranks;
  std::vector<std::vector<int64_t>> dims;
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.input(i).rank_known()) return einsum_sides(text, c.num_inputs()).status();
    ranks.push_back(c.input(i).rank());
    dims.emplace_back(c.input(i).dims().begin(), c.input(i).dims().end());
  }
  MR_TRY_ASSIGN(const EinsumEquation equation, EinsumEquation::parse(text, ranks));
  MR_TRY_ASSIGN(const std::vector<int64_t> sizes, einsum_sizes(equation, dims, equation.output));
  PartialShape out = PartialShape::scalar();
  for (int64_t size : sizes) out.add_dim(size);
  c.set_output(0, std::move(out));
  return ok_status();
}

bool wide(std::string_view side) { return side.find("...") != std::string_view::npos; }

// A side with each of its letters once.
std::string each_once(std::string_view side) {
  std::string out;
  for (char c : side) {
    if (c == '.' || out.find(c) == std::string::npos) out += c;
  }
  return out;
}

// A side without the letters, and without the "...", that are not in `others`.
std::string only(std::string_view side, std::string_view others) {
  std::string out;
  for (char c : side) {
    if (others.find(c) != std::string_view::npos) out += c;
  }
  return out;
}

// The gradient of input `i`: the other input and the output's gradient, summed to its labels. What
// it has alone was summed over, so all of it has one gradient. Of labels that it has twice only the
// diagonal was used.
Status einsum_grad(GradientContext& g) {
  MR_TRY_ASSIGN(const std::string text, g.attr<std::string>("equation"));
  MR_TRY_ASSIGN(const std::vector<std::string> sides, einsum_sides(text, g.num_inputs()));
  const std::string& out = sides.back();
  for (int i = 0; i < g.num_inputs(); ++i) {
    const std::string& own = sides[static_cast<size_t>(i)];
    const std::string other = g.num_inputs() == 2 ? sides[static_cast<size_t>(1 - i)] : "";
    const std::string once = each_once(own);
    const std::string reached = only(once, out + other);
    Expr dx = g.gradient();
    if (g.num_inputs() == 2) {
      const Expr factor = g.input(1 - i);
      const bool complex = kComplex.contains(factor.dtype());
      dx = call("Einsum", {dx, complex ? call("Conj", {factor}) : factor},
                {{"equation", out + "," + other + "->" + reached}});
    } else {
      dx = call("Einsum", std::vector<Expr>{dx}, {{"equation", out + "->" + reached}});
    }
    if (reached != once || (wide(own) && !wide(out))) {
      dx = call("Einsum", {dx, ones_like(g.input(i))},
                {{"equation", reached + "," + own + "->" + once}});
    }
    if (once != own) {
      dx = call("Einsum", std::vector<Expr>{dx}, {{"equation", once + "->" + own}});
    }
    g.set(i, wide(own) ? sum_to_shape_of(dx, g.input(i)) : dx);
  }
  return ok_status();
}

// Labels with their sizes, and how far apart their elements lie in some tensor.
struct Axes {
  std::vector<int64_t> sizes, steps;
  int64_t count() const {
    int64_t n = 1;
    for (int64_t size : sizes) n *= size;
    return n;
  }
};

// The axes `labels` of a tensor whose dimensions have the labels `own`: a label that is there twice
// walks along the diagonal, one that is broadcast stays.
Axes axes_of(const EinsumLabels& labels, const std::vector<int64_t>& sizes, const EinsumLabels& own,
             std::span<const int64_t> dims) {
  Axes axes{sizes, std::vector<int64_t>(labels.size(), 0)};
  int64_t step = 1;
  for (size_t d = own.size(); d-- > 0;) {
    for (size_t k = 0; k < labels.size(); ++k) {
      if (labels[k] == own[d] && dims[d] != 1) axes.steps[k] += step;
    }
    step *= dims[d];
  }
  return axes;
}

// Calls f(offset) for every place of the axes, the last axis fastest.
template <class F>
void for_each_place(const Axes& axes, F f) {
  std::vector<int64_t> at(axes.sizes.size(), 0);
  int64_t offset = 0;
  for (int64_t n = axes.count(); n > 0; --n) {
    f(offset);
    for (size_t k = at.size(); k-- > 0;) {
      offset += axes.steps[k];
      if (++at[k] < axes.sizes[k]) break;
      offset -= axes.steps[k] * at[k];
      at[k] = 0;
    }
  }
}

template <class T>
class Einsum final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string equation, node.attr<std::string>("equation"));
    return std::unique_ptr<Kernel>(std::make_unique<Einsum>(std::move(equation)));
  }
  explicit Einsum(std::string equation) : text_(std::move(equation)) {}

  Status compute(KernelContext& ctx) const override {
    std::vector<int> ranks;
    std::vector<std::vector<int64_t>> dims;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      ranks.push_back(ctx.input(i).shape().rank());
      dims.emplace_back(ctx.input(i).shape().dims().begin(), ctx.input(i).shape().dims().end());
    }
    MR_TRY_ASSIGN(EinsumEquation e, EinsumEquation::parse(text_, ranks));
    MR_TRY_ASSIGN(const Shape shape, shape_of(e, dims, e.output));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    EinsumLabels once;
    for (int label : e.output) {
      if (!has(once, label)) once.push_back(label);
    }
    if (once.size() == e.output.size()) return compute(ctx, e, dims, *out);
    const EinsumLabels written = std::exchange(e.output, once);
    MR_TRY_ASSIGN(const Shape diagonal_shape, shape_of(e, dims, once));
    MR_TRY_ASSIGN(Tensor diagonal, ctx.allocate_temp(dtype_of<T>, diagonal_shape));
    MR_TRY(compute(ctx, e, dims, diagonal));
    const std::span<T> to = out->template mutable_data<T>();
    std::fill(to.begin(), to.end(), T{});
    const std::vector<int64_t> sizes(diagonal_shape.dims().begin(), diagonal_shape.dims().end());
    const T* from = diagonal.template data<T>().data();
    for_each_place(axes_of(once, sizes, written, shape.dims()),
                   [&](int64_t at) { to[static_cast<size_t>(at)] = *from++; });
    return ok_status();
  }

 private:
  using Dims = std::vector<std::vector<int64_t>>;

  // Sets `out` to the result of an equation whose output has each label once.
  static Status compute(KernelContext& ctx, const EinsumEquation& e, const Dims& dims,
                        Tensor& out) {
    if (ctx.num_inputs() == 1) return arrange(e, dims, ctx.input(0), e.inputs[0], e.output, out);
    EinsumLabels batch, rows, inner, columns;
    for (int label : e.output) {
      const bool left = has(e.inputs[0], label), right = has(e.inputs[1], label);
      (left && right ? batch : left ? rows : columns).push_back(label);
    }
    for (int label : e.inputs[0]) {
      if (has(e.inputs[1], label) && !has(e.output, label) && !has(inner, label)) {
        inner.push_back(label);
      }
    }
    MR_TRY_ASSIGN(const Tensor a, arranged(ctx, e, dims, 0, {batch, rows, inner}));
    MR_TRY_ASSIGN(const Tensor b, arranged(ctx, e, dims, 1, {batch, inner, columns}));
    EinsumLabels made = batch;
    made.insert(made.end(), rows.begin(), rows.end());
    made.insert(made.end(), columns.begin(), columns.end());
    MR_TRY_ASSIGN(const Shape product_shape, shape_of(e, dims, made));
    Tensor product = out;
    if (made != e.output) {
      MR_TRY_ASSIGN(product, ctx.allocate_temp(dtype_of<T>, product_shape));
    }
    MR_TRY_ASSIGN(const Shape batches, shape_of(e, dims, batch));
    MR_TRY_ASSIGN(const Shape m, shape_of(e, dims, rows));
    MR_TRY_ASSIGN(const Shape k, shape_of(e, dims, inner));
    MR_TRY_ASSIGN(const Shape n, shape_of(e, dims, columns));
    MR_TRY(multiply(ctx, batches.num_elements(), m.num_elements(), k.num_elements(),
                    n.num_elements(), a, b, product));
    return made == e.output ? ok_status() : arrange(e, dims, product, made, e.output, out);
  }

  static Result<Shape> shape_of(const EinsumEquation& e, const Dims& dims,
                                const EinsumLabels& labels) {
    MR_TRY_ASSIGN(const std::vector<int64_t> sizes, einsum_sizes(e, dims, labels));
    return Shape::make(sizes);
  }

  // Input `i` with its labels in the order of `groups`, summed over those that are in none.
  static Result<Tensor> arranged(KernelContext& ctx, const EinsumEquation& e, const Dims& dims,
                                 int i, std::initializer_list<EinsumLabels> groups) {
    EinsumLabels labels;
    for (const EinsumLabels& group : groups) {
      labels.insert(labels.end(), group.begin(), group.end());
    }
    const Tensor& input = ctx.input(i);
    MR_TRY_ASSIGN(const Shape shape, shape_of(e, dims, labels));
    if (labels == e.inputs[static_cast<size_t>(i)] && shape == input.shape()) return input;
    MR_TRY_ASSIGN(Tensor out, ctx.allocate_temp(dtype_of<T>, shape));
    MR_TRY(arrange(e, dims, input, e.inputs[static_cast<size_t>(i)], labels, out));
    return out;
  }

  // Sets `out`, of dimensions `labels`, to `from`, of dimensions `own`; sums over the others.
  static Status arrange(const EinsumEquation& e, const Dims& dims, const Tensor& from,
                        const EinsumLabels& own, const EinsumLabels& labels, Tensor& out) {
    EinsumLabels summed;
    for (int label : own) {
      if (!has(labels, label) && !has(summed, label)) summed.push_back(label);
    }
    MR_TRY_ASSIGN(const std::vector<int64_t> sizes, einsum_sizes(e, dims, labels));
    MR_TRY_ASSIGN(const std::vector<int64_t> more, einsum_sizes(e, dims, summed));
    const Axes kept = axes_of(labels, sizes, own, from.shape().dims());
    const Axes gone = axes_of(summed, more, own, from.shape().dims());
    const T* const data = from.template data<T>().data();
    T* to = out.template mutable_data<T>().data();
    for_each_place(kept, [&](int64_t at) {
      SumType<T> sum{};
      for_each_place(
          gone, [&](int64_t offset) { sum = sum + static_cast<SumType<T>>(data[at + offset]); });
      *to++ = static_cast<T>(sum);
    });
    return ok_status();
  }

  static Status multiply(KernelContext& ctx, int64_t batches, int64_t m, int64_t k, int64_t n,
                         const Tensor& a, const Tensor& b, Tensor& out) {
    const T* const left = a.template data<T>().data();
    const T* const right = b.template data<T>().data();
    const std::span<T> to = out.template mutable_data<T>();
    if (k == 0) std::fill(to.begin(), to.end(), T{});
    if (to.empty() || k == 0) return ok_status();
    for (int64_t i = 0; i < batches; ++i) {
      MR_TRY(matmul(m, n, k, MatrixView<T>::of(left + i * m * k, k),
                    MatrixView<T>::of(right + i * k * n, n), to.data() + i * m * n,
                    ContextParallel{ctx}));
    }
    return ok_status();
  }

  const std::string text_;
};

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel(
       {.op = "Einsum", .constraints = {{"T", {dtype_of<Ts>}}}, .factory = &Einsum<Ts>::make}),
   ...);
}

}  // namespace

void register_einsum(Registry& registry) {
  registry.add({.name = "Einsum",
                .doc = "The sum of products that an equation names: \"ij,jk->ik\".",
                .inputs = {{"inputs", "N*T"}},
                .outputs = {{"output", "T"}},
                .types = {{"T", type_set_of<EinsumTypes>}},
                .attrs = {{"equation", "string"}, {"N", "int >= 1"}},
                .traits = {.cost = 50},
                .shape = einsum_shape,
                .gradient = einsum_grad});
  register_kernels(registry, EinsumTypes());
}

}  // namespace millrace
