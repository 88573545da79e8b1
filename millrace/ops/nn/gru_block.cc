#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/ops/nn/recurrent_loops.h"
#include "millrace/ops/nn/recurrent_sizes.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// A GRU cell as one op: two products, and after each one pass that makes all gates of a unit.

namespace millrace {
namespace {

using Names = RecurrentShapes::Names;

constexpr std::string_view kInputs[] = {"x",   "h_prev", "w_ru", "w_c", "b_ru",
                                        "b_c", "r",      "u",    "c",   "d_h"};
enum Input : int { kX, kHPrev, kGatesKernel, kKernel, kGatesBias, kBias, kR, kU, kC, kHGrad };
constexpr size_t kForward = 6;

Names names_of(bool gradient) { return gradient ? Names(kInputs) : Names(kInputs).first(kForward); }

Status check_shapes(RecurrentShapes& shapes, bool gradient) {
  MR_TRY(shapes.read_inputs(kX, /*sequence=*/false, kHPrev, 1));
  MR_TRY(shapes.read_vector(kBias, 1));
  MR_TRY(shapes.read_vector(kGatesBias, 2));
  MR_TRY(shapes.read_kernel(kGatesKernel, 2));
  MR_TRY(shapes.read_kernel(kKernel, 1));
  return gradient ? shapes.read_values(kR, /*sequence=*/false) : ok_status();
}

Status gru_shape(ShapeContext& c) {
  RecurrentShapes shapes = RecurrentShapes::of(c, 0, names_of(false));
  MR_TRY(check_shapes(shapes, false));
  for (int i = 0; i < 4; ++i) c.set_output(i, shapes.values(false));
  return ok_status();
}

Status gru_grad_shape(ShapeContext& c) {
  RecurrentShapes shapes = RecurrentShapes::of(c, 0, names_of(true));
  MR_TRY(check_shapes(shapes, true));
  const RecurrentSizes& s = shapes.sizes();
  c.set_output(0, {s.batch, s.inputs});
  c.set_output(1, shapes.values(false));
  c.set_output(2, shapes.values(false));
  MR_TRY_ASSIGN(const int64_t gates, multiply_sizes(2, s.cells));
  c.set_output(3, {s.batch, gates});
  return ok_status();
}

Status gru_grad(GradientContext& c) {
  for (int i = 0; i < 3; ++i) {
    if (c.has_gradient(i)) {
      return unimplemented("the gates of a GRU op have no gradients, its output h does");
    }
  }
  std::vector<Expr> inputs;
  for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.input(i));
  for (int i = 0; i < 3; ++i) inputs.push_back(c.output(i));
  inputs.push_back(c.gradient(3));
  const std::vector<Expr> grads = call_multi("GRUBlockCellGrad", inputs);
  if (grads.empty()) return ok_status();
  const Expr x = c.input(kX), h_prev = c.input(kHPrev), r = c.output(0);
  const Expr candidate = grads[2], gates = grads[3];
  c.set(kX, grads[0]);
  c.set(kHPrev, grads[1]);
  c.set(kGatesKernel, matmul(concat({x, h_prev}, 1), gates, true, false));
  c.set(kKernel, matmul(concat({x, h_prev * r}, 1), candidate, true, false));
  c.set(kGatesBias, call("BiasAddGrad", {gates}));
  c.set(kBias, call("BiasAddGrad", {candidate}));
  return ok_status();
}

// c[m, n] = a[m, k] b[n, k] transposed, or that added.
template <class C>
Status multiply_back(KernelContext& ctx, int64_t m, int64_t n, int64_t k, const C* a, const C* b,
                     C* c, bool accumulate = false) {
  const StridedSource<C> left(a, k, 1), right(b, k, 1);
  return gemm<C>({m, n, k, left, right, c, n, accumulate}, ContextParallel{ctx});
}

// Calls body(row, first, last): units [first, last) of a row of `cells`, on all threads.
template <class Body>
void for_units(KernelContext& ctx, int64_t rows, int64_t cells, double cost, Body body) {
  ctx.parallel_for(rows * cells, cost, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      const int64_t row = at / cells, first = at % cells;
      const int64_t last = std::min(cells, first + end - at);
      body(row, first, last);
      at += last - first;
    }
  });
}

template <class C>
Result<Tensor> temporary(KernelContext& ctx, int64_t rows, int64_t columns) {
  const int64_t dims[] = {rows, columns};
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  return ctx.allocate_temp(dtype_of<C>, shape);
}

// Converted inputs and outputs of a kernel.
template <class T>
class Arrays {
 public:
  using C = ComputeType<T>;

  Status read(KernelContext& ctx, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      MR_TRY_ASSIGN(Tensor input, as_compute_type<T>(ctx, ctx.input(static_cast<int>(i))));
      inputs_.push_back(std::move(input));
    }
    return ok_status();
  }
  Status make(KernelContext& ctx, int64_t rows, std::span<const int64_t> columns) {
    for (size_t i = 0; i < columns.size(); ++i) {
      const int64_t dims[] = {rows, columns[i]};
      MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
      MR_TRY_ASSIGN(Tensor * output, ctx.allocate_output(static_cast<int>(i), shape));
      MR_TRY_ASSIGN(Tensor buffer, compute_buffer<T>(ctx, *output));
      outputs_.push_back(output);
      buffers_.push_back(std::move(buffer));
    }
    return ok_status();
  }
  void finish(KernelContext& ctx) {
    for (size_t i = 0; i < outputs_.size(); ++i) finish_output<T>(ctx, buffers_[i], *outputs_[i]);
  }
  const C* in(int i) const { return inputs_[static_cast<size_t>(i)].template data<C>().data(); }
  C* out(int i) { return buffers_[static_cast<size_t>(i)].template mutable_data<C>().data(); }

 private:
  std::vector<Tensor> inputs_, buffers_;
  std::vector<Tensor*> outputs_;
};

template <class T>
Status gru_cell(KernelContext& ctx) {
  using C = ComputeType<T>;
  RecurrentShapes shapes = RecurrentShapes::of(ctx, 0, names_of(false));
  MR_TRY(check_shapes(shapes, false));
  const RecurrentSizes& s = shapes.sizes();
  const int64_t cells = s.cells, width = s.inputs + cells;
  Arrays<T> arrays;
  MR_TRY(arrays.read(ctx, kForward));
  const int64_t columns[] = {cells, cells, cells, cells};
  MR_TRY(arrays.make(ctx, s.batch, columns));
  if (s.batch == 0 || cells == 0) return ok_status();
  const auto& loops = isa_table<RecurrentLoops<C>>();
  const C* const x = arrays.in(kX);
  const C* const h_prev = arrays.in(kHPrev);
  MR_TRY_ASSIGN(Tensor joined_tensor, temporary<C>(ctx, s.batch, width));
  MR_TRY_ASSIGN(Tensor sums_tensor, temporary<C>(ctx, s.batch, 2 * cells));
  C* const joined = joined_tensor.mutable_data<C>().data();
  C* const sums = sums_tensor.mutable_data<C>().data();
  for (int64_t row = 0; row < s.batch; ++row) {
    std::copy_n(x + row * s.inputs, s.inputs, joined + row * width);
    std::copy_n(h_prev + row * cells, cells, joined + row * width + s.inputs);
  }
  const auto left = MatrixView<C>::of(joined, width);
  MR_TRY(matmul<C>(s.batch, 2 * cells, width, left,
                   MatrixView<C>::of(arrays.in(kGatesKernel), 2 * cells), sums,
                   ContextParallel{ctx}));
  for_units(ctx, s.batch, cells, 1.5, [&](int64_t row, int64_t first, int64_t last) {
    const int64_t at = row * cells + first, gate = row * 2 * cells + first;
    const C* const bias = arrays.in(kGatesBias) + first;
    // What the candidate sees takes the place of h_prev.
    loops.gru_gates(last - first, {sums + gate, sums + gate + cells, bias, bias + cells,
                                   h_prev + at, arrays.out(0) + at, arrays.out(1) + at,
                                   joined + row * width + s.inputs + first});
  });
  MR_TRY(matmul<C>(s.batch, cells, width, left, MatrixView<C>::of(arrays.in(kKernel), cells), sums,
                   ContextParallel{ctx}));
  for_units(ctx, s.batch, cells, 1.5, [&](int64_t row, int64_t first, int64_t last) {
    const int64_t at = row * cells + first;
    loops.gru(last - first, {sums + at, arrays.in(kBias) + first, arrays.out(1) + at, h_prev + at,
                             arrays.out(2) + at, arrays.out(3) + at});
  });
  arrays.finish(ctx);
  return ok_status();
}

template <class T>
Status gru_cell_grad(KernelContext& ctx) {
  using C = ComputeType<T>;
  RecurrentShapes shapes = RecurrentShapes::of(ctx, 0, names_of(true));
  MR_TRY(check_shapes(shapes, true));
  const RecurrentSizes& s = shapes.sizes();
  const int64_t cells = s.cells, inputs = s.inputs;
  Arrays<T> arrays;
  MR_TRY(arrays.read(ctx, std::size(kInputs)));
  const int64_t columns[] = {inputs, cells, cells, 2 * cells};
  MR_TRY(arrays.make(ctx, s.batch, columns));
  if (s.batch == 0) return ok_status();
  const auto& loops = isa_table<RecurrentLoops<C>>();
  const C* const h_prev = arrays.in(kHPrev);
  C *const d_x = arrays.out(0), *const d_h_prev = arrays.out(1);
  C *const d_candidate = arrays.out(2), *const d_gates = arrays.out(3);
  MR_TRY_ASSIGN(Tensor reset_tensor, temporary<C>(ctx, s.batch, cells));
  C* const reset_grad = reset_tensor.mutable_data<C>().data();
  for_units(ctx, s.batch, cells, 1, [&](int64_t row, int64_t first, int64_t last) {
    const int64_t at = row * cells + first;
    loops.gru_grad(last - first,
                   {h_prev + at, arrays.in(kU) + at, arrays.in(kC) + at, arrays.in(kHGrad) + at,
                    d_candidate + at, d_gates + row * 2 * cells + cells + first});
  });
  const C* const w = arrays.in(kKernel);
  MR_TRY(multiply_back(ctx, s.batch, cells, cells, d_candidate, w + inputs * cells, reset_grad));
  MR_TRY(multiply_back(ctx, s.batch, inputs, cells, d_candidate, w, d_x));
  for_units(ctx, s.batch, cells, 1, [&](int64_t row, int64_t first, int64_t last) {
    const int64_t at = row * cells + first;
    loops.gru_reset_grad(
        last - first, {h_prev + at, arrays.in(kR) + at, arrays.in(kU) + at, arrays.in(kHGrad) + at,
                       reset_grad + at, d_gates + row * 2 * cells + first, d_h_prev + at});
  });
  const C* const gates = arrays.in(kGatesKernel);
  MR_TRY(multiply_back(ctx, s.batch, inputs, 2 * cells, d_gates, gates, d_x, true));
  MR_TRY(multiply_back(ctx, s.batch, cells, 2 * cells, d_gates, gates + inputs * 2 * cells,
                       d_h_prev, true));
  arrays.finish(ctx);
  return ok_status();
}

std::vector<OpSpec::Arg> arguments(Names names) {
  std::vector<OpSpec::Arg> out;
  for (std::string_view name : names) out.push_back({name, "T"});
  return out;
}

template <class... Ts>
void register_kernels(Registry& registry, TypeList<Ts...>) {
  (registry.kernel<Ts>("GRUBlockCell", DeviceKind::kCpu, &gru_cell<Ts>), ...);
  (registry.kernel<Ts>("GRUBlockCellGrad", DeviceKind::kCpu, &gru_cell_grad<Ts>), ...);
}

}  // namespace

void register_gru_block(Registry& registry) {
  registry.add({.name = "GRUBlockCell",
                .doc = "A step of a gated recurrent unit: gates [r, u] = sigmoid([x, h_prev] w_ru "
                       "+ b_ru), candidate c = tanh([x, h_prev r] w_c + b_c), and h = u h_prev + "
                       "(1 - u) c.",
                .inputs = arguments(names_of(false)),
                .outputs = {{"r", "T"}, {"u", "T"}, {"c", "T"}, {"h", "T"}},
                .types = {{"T", type_set_of<FloatingTypes>}},
                .traits = {.cost = 100},
                .shape = gru_shape,
                .gradient = gru_grad});
  registry.add(
      {.name = "GRUBlockCellGrad",
       .doc = "The gradients of GRUBlockCell: of x and h_prev, and of the sums of products "
              "that c, r and u are made of.",
       .inputs = arguments(names_of(true)),
       .outputs = {{"d_x", "T"}, {"d_h_prev", "T"}, {"d_c_bar", "T"}, {"d_r_bar_u_bar", "T"}},
       .types = {{"T", type_set_of<FloatingTypes>}},
       .traits = {.cost = 100},
       .shape = gru_grad_shape,
       .no_gradient = "has no second derivative in TensorFlow either"});
  register_kernels(registry, FloatingTypes());
}

}  // namespace millrace
