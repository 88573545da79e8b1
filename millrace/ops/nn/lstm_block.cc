#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/linalg/context_parallel.h"
#include "millrace/ops/linalg/gemm.h"
#include "millrace/ops/nn/recurrent_loops.h"
#include "millrace/ops/nn/recurrent_sizes.h"
#include "millrace/ops/nn/staged_rows.h"
#include "millrace/tensor/dispatch.h"

// An LSTM cell as one op, and a layer of them over a sequence. One pass makes all gates of a unit
// from the product of [x, h_prev] and the kernel. Of a sequence, the products with x are made at
// once for all steps, and the gradient of the kernel after all.

namespace millrace {
namespace {

using Names = RecurrentShapes::Names;

// What LSTMBlockCell and BlockLSTM read after the sequence's length, and what their gradients do.
constexpr std::string_view kInputs[] = {"x",   "cs_prev", "h_prev",  "w",     "wci", "wcf",
                                        "wco", "b",       "i",       "cs",    "f",   "o",
                                        "ci",  "co",      "cs_grad", "h_grad"};
constexpr std::string_view kSequenceInputs[] = {"x", "cs_prev", "h_prev", "w", "wci", "wcf", "wco",
                                                "b", "i",       "cs",     "f", "o",   "ci",  "co",
                                                "h", "cs_grad", "h_grad"};
enum Input : int {
  kX,
  kCsPrev,
  kHPrev,
  kKernel,
  kWci,
  kWcf,
  kWco,
  kBias,
  kI,
  kCs,
  kF,
  kO,
  kCi,
  kCo
};
constexpr size_t kForward = 8;  // that the ops themselves have

Names names_of(bool sequence, bool gradient) {
  const Names all = sequence ? Names(kSequenceInputs) : Names(kInputs);
  return gradient ? all : all.first(kForward);
}

Status check_shapes(RecurrentShapes& shapes, bool sequence, bool peephole, bool gradient) {
  MR_TRY(shapes.read_inputs(kX, sequence, kCsPrev, 2));
  MR_TRY(shapes.read_vector(kBias, 4));
  MR_TRY(shapes.read_kernel(kKernel, 4));
  for (int i = kWci; i <= kWco; ++i) {
    MR_TRY(peephole ? shapes.read_vector(i, 1) : shapes.read_any_vector(i));
  }
  return gradient ? shapes.read_values(kI, sequence) : ok_status();
}

// How many steps of a sequence are computed, of `steps`.
Status check_length(int64_t length, int64_t steps) {
  if (length >= 0 && (steps < 0 || length <= steps)) return ok_status();
  return invalid_argument("seq_len_max must be at least 0 and at most the ", steps,
                          " steps of x, got ", length);
}

// Reads the shapes of an op whose sequence's length, if it has one, is input 0.
Result<RecurrentShapes> shapes_of(ShapeContext& c, bool sequence, bool gradient) {
  MR_TRY_ASSIGN(const bool peephole, c.attr<bool>("use_peephole"));
  if (sequence) MR_TRY(c.with_rank(0, 0).status());
  RecurrentShapes shapes = RecurrentShapes::of(c, sequence ? 1 : 0, names_of(sequence, gradient));
  MR_TRY(check_shapes(shapes, sequence, peephole, gradient));
  if (const auto length = sequence ? c.input_scalar(0) : std::nullopt) {
    MR_TRY(check_length(*length, shapes.sizes().steps));
  }
  return shapes;
}

template <bool sequence>
Status lstm_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const RecurrentShapes shapes, shapes_of(c, sequence, /*gradient=*/false));
  for (int i = 0; i < 7; ++i) c.set_output(i, shapes.values(sequence));
  return ok_status();
}

Status lstm_cell_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const RecurrentShapes shapes, shapes_of(c, false, /*gradient=*/true));
  const RecurrentSizes& sizes = shapes.sizes();
  c.set_output(0, shapes.values(false));
  c.set_output(1, {sizes.batch, sizes.cells < 0 ? -1 : 4 * sizes.cells});
  for (int i = 0; i < 3; ++i) {
    MR_TRY_ASSIGN(PartialShape vector, c.with_rank(kWci + i, 1));
    c.set_output(2 + i, std::move(vector));
  }
  return ok_status();
}

Status lstm_sequence_grad_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const RecurrentShapes shapes, shapes_of(c, true, /*gradient=*/true));
  const RecurrentSizes& sizes = shapes.sizes();
  const int64_t gates = sizes.cells < 0 ? -1 : 4 * sizes.cells;
  const int64_t rows = sizes.cells < 0 || sizes.inputs < 0 ? -1 : sizes.cells + sizes.inputs;
  c.set_output(0, {sizes.steps, sizes.batch, sizes.inputs});
  for (int i = 1; i < 3; ++i) c.set_output(i, shapes.values(false));
  c.set_output(3, {rows, gates});
  for (int i = 0; i < 3; ++i) {
    MR_TRY_ASSIGN(PartialShape vector, c.with_rank(1 + kWci + i, 1));
    c.set_output(4 + i, std::move(vector));
  }
  c.set_output(7, {gates});
  return ok_status();
}

// Gradients come back through the state and the output alone, as in TensorFlow.
Status only_state_and_output(const GradientContext& c) {
  for (int i : {0, 2, 3, 4, 5}) {
    if (c.has_gradient(i)) {
      return unimplemented("the gates of an LSTM op have no gradients, its outputs cs and h do");
    }
  }
  return ok_status();
}

Status lstm_cell_grad(GradientContext& c) {
  MR_TRY(only_state_and_output(c));
  std::vector<Expr> inputs;
  for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.input(i));
  for (int i = 0; i < 6; ++i) inputs.push_back(c.output(i));
  inputs.push_back(c.gradient(1));
  inputs.push_back(c.gradient(6));
  const std::vector<Expr> grads =
      call_multi("LSTMBlockCellGrad", inputs, {{"use_peephole", c.attr_value("use_peephole")}});
  if (grads.empty()) return ok_status();
  const Expr x = c.input(kX), h_prev = c.input(kHPrev), w = c.input(kKernel), gates = grads[1];
  const Expr both = matmul(gates, w, false, true);
  const std::vector<Expr> starts =
      call_multi("ConcatOffset", {int32_scalar(c.builder(), 1), shape_of(x), shape_of(h_prev)});
  if (starts.empty()) return ok_status();
  c.set(kX, call("Slice", {both, starts[0], shape_of(x)}));
  c.set(kCsPrev, grads[0]);
  c.set(kHPrev, call("Slice", {both, starts[1], shape_of(h_prev)}));
  c.set(kKernel, matmul(concat({x, h_prev}, 1), gates, true, false));
  for (size_t i = 0; i < 3; ++i) c.set(kWci + static_cast<int>(i), grads[2 + i]);
  c.set(kBias, call("BiasAddGrad", {gates}));
  return ok_status();
}

template <bool v2>
Status lstm_sequence_grad(GradientContext& c) {
  MR_TRY(only_state_and_output(c));
  std::vector<Expr> inputs;
  for (int i = 0; i < c.num_inputs(); ++i) inputs.push_back(c.input(i));
  for (int i = 0; i < 7; ++i) inputs.push_back(c.output(i));
  inputs.push_back(c.gradient(1));
  inputs.push_back(c.gradient(6));
  const std::vector<Expr> grads = call_multi(v2 ? "BlockLSTMGradV2" : "BlockLSTMGrad", inputs,
                                             {{"use_peephole", c.attr_value("use_peephole")}});
  for (size_t i = 0; i < grads.size(); ++i) c.set(static_cast<int>(i) + 1, grads[i]);
  return ok_status();
}

// What a node says of itself.
struct LstmOptions {
  bool peephole = false;
  float forget_bias = 0, clip = 0;
  // The place of each of LstmUnits' gates among the columns of the kernel.
  std::array<int, 4> columns = {0, 1, 2, 3};

  static Result<LstmOptions> of(const KernelNode& node) {
    LstmOptions options;
    MR_TRY_ASSIGN(options.peephole, node.attr<bool>("use_peephole"));
    if (node.op->find_attr("forget_bias") != nullptr) {
      MR_TRY_ASSIGN(options.forget_bias, node.attr<float>("forget_bias"));
    }
    if (node.op->find_attr("cell_clip") != nullptr) {
      MR_TRY_ASSIGN(options.clip, node.attr<float>("cell_clip"));
    }
    if (std::string_view(node.op->name).ends_with("V2")) options.columns = {0, 2, 1, 3};
    return options;
  }
};

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

// c[m, n] = a[m, k] b[k, n] of rows that lie lda, ldb and ldc apart; `transpose_a`: a lies as
// [k, m], `transpose_b`: b as [n, k].
template <class C>
struct Matrix {
  const C* data;
  int64_t step;
  bool transposed = false;
};
template <class C>
Status multiply(KernelContext& ctx, int64_t m, int64_t n, int64_t k, Matrix<C> a, Matrix<C> b, C* c,
                int64_t ldc, bool accumulate) {
  const StridedSource<C> left(a.data, a.transposed ? 1 : a.step, a.transposed ? a.step : 1);
  const StridedSource<C> right(b.data, b.transposed ? b.step : 1, b.transposed ? 1 : b.step);
  return gemm<C>({m, n, k, left, right, c, ldc, accumulate}, ContextParallel{ctx});
}

constexpr double kGatesNs = 4, kGatesGradNs = 1.5;

template <class T>
class LstmKernel final : public Kernel {
 public:
  using C = ComputeType<T>;

  LstmKernel(const LstmOptions& options, bool sequence) : options_(options), sequence_(sequence) {}
  template <bool sequence>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const LstmOptions options, LstmOptions::of(node));
    return std::unique_ptr<Kernel>(std::make_unique<LstmKernel>(options, sequence));
  }

  Status compute(KernelContext& ctx) const override {
    const int first = sequence_ ? 1 : 0;
    RecurrentShapes shapes = RecurrentShapes::of(ctx, first, names_of(sequence_, false));
    MR_TRY(check_shapes(shapes, sequence_, options_.peephole, false));
    const RecurrentSizes& s = shapes.sizes();
    int64_t steps = 1;
    if (sequence_) {
      MR_TRY(expect_rank(ctx, 0, 0));
      MR_TRY_ASSIGN(steps, ctx.scalar_input<int64_t>(0));
      MR_TRY(check_length(steps, s.steps));
    }
    MR_TRY_ASSIGN(const Shape shape, shapes.values(sequence_).to_shape());
    Tensor inputs[kForward], outputs[7];
    for (size_t i = 0; i < kForward; ++i) {
      MR_TRY_ASSIGN(inputs[i], as_compute_type<T>(ctx, ctx.input(first + static_cast<int>(i))));
    }
    Tensor* given[7];
    std::array<C*, 7> out;
    for (size_t i = 0; i < 7; ++i) {
      MR_TRY_ASSIGN(given[i], ctx.allocate_output(static_cast<int>(i), shape));
      MR_TRY_ASSIGN(outputs[i], compute_buffer<T>(ctx, *given[i]));
      out[i] = outputs[i].template mutable_data<C>().data();
      const int64_t done = steps * s.batch * s.cells;
      std::fill(out[i] + done, out[i] + outputs[i].num_elements(), C{});
    }
    if (steps > 0 && s.batch > 0 && s.cells > 0) MR_TRY(run(ctx, s, steps, inputs, out));
    for (size_t i = 0; i < 7; ++i) finish_output<T>(ctx, outputs[i], *given[i]);
    return ok_status();
  }

 private:
  Status run(KernelContext& ctx, const RecurrentSizes& s, int64_t steps, const Tensor* inputs,
             const std::array<C*, 7>& out) const {
    const auto in = [&](int i) { return inputs[i].template data<C>().data(); };
    const int64_t gates = 4 * s.cells, values = s.batch * s.cells;
    const int64_t dims[] = {steps * s.batch, gates};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor sums_tensor, ctx.allocate_temp(dtype_of<C>, shape));
    C* const sums = sums_tensor.mutable_data<C>().data();
    const C* const w = in(kKernel);
    if (sequence_) {
      MR_TRY(multiply<C>(ctx, steps * s.batch, gates, s.inputs, {in(kX), s.inputs}, {w, gates},
                         sums, gates, false));
    }
    for (int64_t step = 0; step < steps; ++step) {
      const C* const h_prev = step == 0 ? in(kHPrev) : out[6] + (step - 1) * values;
      C* const now = sums + step * s.batch * gates;
      if (sequence_) {
        MR_TRY(multiply<C>(ctx, s.batch, gates, s.cells, {h_prev, s.cells},
                           {w + s.inputs * gates, gates}, now, gates, true));
      } else {
        MR_TRY(multiply_joined(ctx, s, in(kX), h_prev, w, now));
      }
      const C* const cs_prev = step == 0 ? in(kCsPrev) : out[1] + (step - 1) * values;
      const auto& loops = isa_table<RecurrentLoops<C>>();
      for_units(ctx, s.batch, s.cells, kGatesNs, [&](int64_t row, int64_t first, int64_t last) {
        LstmUnits<C> u;
        for (size_t g = 0; g < 4; ++g) {
          const int64_t column = options_.columns[g] * s.cells + first;
          u.sums[g] = now + row * gates + column;
          u.bias[g] = in(kBias) + column;
        }
        const int64_t at = row * s.cells + first, in_all = step * values + at;
        u.cs_prev = cs_prev + at;
        for (int p = 0; p < 3; ++p) {
          u.peephole[p] = options_.peephole ? in(kWci + p) + first : nullptr;
        }
        u.forget_bias = static_cast<C>(options_.forget_bias);
        u.clip = static_cast<C>(options_.clip);
        u.i = out[0] + in_all;
        u.cs = out[1] + in_all;
        u.f = out[2] + in_all;
        u.o = out[3] + in_all;
        u.ci = out[4] + in_all;
        u.co = out[5] + in_all;
        u.h = out[6] + in_all;
        loops.lstm(last - first, u);
      });
    }
    return ok_status();
  }

  // One product, as the cell made of other ops has it: to the bit.
  static Status multiply_joined(KernelContext& ctx, const RecurrentSizes& s, const C* x,
                                const C* h_prev, const C* w, C* sums) {
    const int64_t width = s.inputs + s.cells;
    const int64_t dims[] = {s.batch, width};
    MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
    MR_TRY_ASSIGN(Tensor joined_tensor, ctx.allocate_temp(dtype_of<C>, shape));
    C* const joined = joined_tensor.mutable_data<C>().data();
    for (int64_t row = 0; row < s.batch; ++row) {
      std::copy_n(x + row * s.inputs, s.inputs, joined + row * width);
      std::copy_n(h_prev + row * s.cells, s.cells, joined + row * width + s.inputs);
    }
    return matmul<C>(s.batch, 4 * s.cells, width, MatrixView<C>::of(joined, width),
                     MatrixView<C>::of(w, 4 * s.cells), sums, ContextParallel{ctx});
  }

  const LstmOptions options_;
  const bool sequence_;
};

// Adds, for each of `columns`, the sum of a[r] * b[r] (or of a[r], without b) over rows.
template <class C>
void add_rows(KernelContext& ctx, int64_t rows, int64_t columns, const C* a, int64_t a_step,
              const C* b, int64_t b_step, C* sums) {
  ctx.parallel_for(columns, 0.5 * static_cast<double>(rows), [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      const C* const x = a + r * a_step;
      const C* const y = b == nullptr ? nullptr : b + r * b_step;
      for (int64_t c = begin; c < end; ++c) sums[c] += y == nullptr ? x[c] : x[c] * y[c];
    }
  });
}

// LSTMBlockCellGrad, and BlockLSTMGrad in both orders of gates.
template <class T>
class LstmGradKernel final : public Kernel {
 public:
  using C = ComputeType<T>;

  LstmGradKernel(const LstmOptions& options, bool sequence)
      : options_(options), sequence_(sequence) {}
  template <bool sequence>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const LstmOptions options, LstmOptions::of(node));
    return std::unique_ptr<Kernel>(std::make_unique<LstmGradKernel>(options, sequence));
  }

  Status compute(KernelContext& ctx) const override {
    const int first = sequence_ ? 1 : 0;
    const Names names = names_of(sequence_, true);
    RecurrentShapes shapes = RecurrentShapes::of(ctx, first, names);
    MR_TRY(check_shapes(shapes, sequence_, options_.peephole, true));
    const RecurrentSizes& s = shapes.sizes();
    int64_t steps = 1;
    if (sequence_) {
      MR_TRY(expect_rank(ctx, 0, 0));
      MR_TRY_ASSIGN(steps, ctx.scalar_input<int64_t>(0));
      MR_TRY(check_length(steps, s.steps));
    }
    std::vector<Tensor> inputs;
    for (size_t i = 0; i < names.size(); ++i) {
      MR_TRY_ASSIGN(Tensor input, as_compute_type<T>(ctx, ctx.input(first + static_cast<int>(i))));
      inputs.push_back(std::move(input));
    }
    MR_TRY_ASSIGN(const std::vector<Shape> wanted, output_shapes(ctx, s, first));
    std::vector<Tensor*> given;
    std::vector<Tensor> outputs;
    std::vector<C*> out;
    for (size_t i = 0; i < wanted.size(); ++i) {
      MR_TRY_ASSIGN(Tensor * output, ctx.allocate_output(static_cast<int>(i), wanted[i]));
      MR_TRY_ASSIGN(Tensor buffer, compute_buffer<T>(ctx, *output));
      given.push_back(output);
      outputs.push_back(std::move(buffer));
      const auto data = outputs.back().template mutable_data<C>();
      std::fill(data.begin(), data.end(), C{});
      out.push_back(data.data());
    }
    const auto in = [&](size_t i) { return inputs[i].template data<C>().data(); };
    if (s.batch > 0 && s.cells > 0) MR_TRY(run(ctx, s, steps, in, out));
    for (size_t i = 0; i < given.size(); ++i) finish_output<T>(ctx, outputs[i], *given[i]);
    return ok_status();
  }

 private:
  Result<std::vector<Shape>> output_shapes(const KernelContext& ctx, const RecurrentSizes& s,
                                           int first) const {
    const Shape& wci = ctx.input(first + kWci).shape();
    const Shape& wcf = ctx.input(first + kWcf).shape();
    const Shape& wco = ctx.input(first + kWco).shape();
    const Shape& state = ctx.input(first + kCsPrev).shape();
    const int64_t dims[] = {s.batch, 4 * s.cells};
    MR_TRY_ASSIGN(const Shape gates, Shape::make(dims));
    if (!sequence_) return std::vector<Shape>{state, gates, wci, wcf, wco};
    return std::vector<Shape>{ctx.input(first + kX).shape(),
                              state,
                              state,
                              ctx.input(first + kKernel).shape(),
                              wci,
                              wcf,
                              wco,
                              ctx.input(first + kBias).shape()};
  }

  template <class In>
  Status run(KernelContext& ctx, const RecurrentSizes& s, int64_t steps, In in,
             const std::vector<C*>& out) const {
    const int64_t gates = 4 * s.cells, values = s.batch * s.cells;
    const size_t h = kCo + 1, cs_grad = sequence_ ? h + 1 : h, h_grad = cs_grad + 1;
    C* const cs_prev_grad = out[sequence_ ? 1 : 0];
    C* const h_prev_grad = sequence_ ? out[2] : nullptr;
    C* sums_grad = sequence_ ? nullptr : out[1];
    Tensor sums_grad_tensor;
    if (sequence_) {
      const int64_t dims[] = {steps * s.batch, gates};
      MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
      MR_TRY_ASSIGN(sums_grad_tensor, ctx.allocate_temp(dtype_of<C>, shape));
      sums_grad = sums_grad_tensor.mutable_data<C>().data();
    }
    const C* const w = in(kKernel);
    for (int64_t step = steps - 1; step >= 0; --step) {
      const C* const cs_prev = step == 0 ? in(kCsPrev) : in(kCs) + (step - 1) * values;
      C* const now = sums_grad + step * s.batch * gates;
      const auto& loops = isa_table<RecurrentLoops<C>>();
      for_units(ctx, s.batch, s.cells, kGatesGradNs, [&](int64_t row, int64_t first, int64_t last) {
        const int64_t at = row * s.cells + first, in_all = step * values + at;
        LstmGradUnits<C> u;
        u.i = in(kI) + in_all;
        u.cs = in(kCs) + in_all;
        u.f = in(kF) + in_all;
        u.o = in(kO) + in_all;
        u.ci = in(kCi) + in_all;
        u.co = in(kCo) + in_all;
        u.cs_prev = cs_prev + at;
        for (size_t p = 0; p < 3; ++p) {
          u.peephole[p] = options_.peephole ? in(kWci + p) + first : nullptr;
        }
        u.cs_grad = in(cs_grad) + in_all;
        u.h_grad = in(h_grad) + in_all;
        const bool last_step = step == steps - 1;
        u.cs_grad_after = last_step ? nullptr : cs_prev_grad + at;
        u.h_grad_after = last_step ? nullptr : h_prev_grad + at;
        for (size_t g = 0; g < 4; ++g) {
          u.sums_grad[g] = now + row * gates + options_.columns[g] * s.cells + first;
        }
        u.cs_prev_grad = cs_prev_grad + at;
        loops.lstm_grad(last - first, u);
      });
      if (sequence_) {
        MR_TRY(multiply<C>(ctx, s.batch, s.cells, gates, {now, gates},
                           {w + s.inputs * gates, gates, true}, h_prev_grad, s.cells, false));
      }
    }
    const size_t peephole = sequence_ ? 4 : 2;
    if (options_.peephole) add_peephole_grads(ctx, s, steps, in, sums_grad, &out[peephole]);
    return sequence_ ? finish_sequence(ctx, s, steps, in, sums_grad, out) : ok_status();
  }

  template <class In>
  void add_peephole_grads(KernelContext& ctx, const RecurrentSizes& s, int64_t steps, In in,
                          const C* sums_grad, C* const* out) const {
    const int64_t gates = 4 * s.cells;
    const auto column = [&](int gate) {
      return sums_grad + options_.columns[static_cast<size_t>(gate)] * s.cells;
    };
    using U = LstmUnits<C>;
    for (const auto& [gate, to] : {std::pair{U::kInput, out[0]}, {U::kForget, out[1]}}) {
      add_rows(ctx, steps > 0 ? s.batch : 0, s.cells, column(gate), gates, in(kCsPrev), s.cells,
               to);
      if (steps < 2) continue;
      add_rows(ctx, (steps - 1) * s.batch, s.cells, column(gate) + s.batch * gates, gates, in(kCs),
               s.cells, to);
    }
    add_rows(ctx, steps * s.batch, s.cells, column(U::kOutput), gates, in(kCs), s.cells, out[2]);
  }

  // The gradients of x, the kernel and the bias, from those of all steps' sums.
  template <class In>
  Status finish_sequence(KernelContext& ctx, const RecurrentSizes& s, int64_t steps, In in,
                         const C* sums_grad, const std::vector<C*>& out) const {
    const int64_t gates = 4 * s.cells, rows = steps * s.batch;
    if (steps == 0) {
      // Nothing was computed: the states went through.
      return ok_status();
    }
    MR_TRY(multiply<C>(ctx, rows, s.inputs, gates, {sums_grad, gates}, {in(kKernel), gates, true},
                       out[0], s.inputs, false));
    MR_TRY(multiply<C>(ctx, s.inputs, gates, rows, {in(kX), s.inputs, true}, {sums_grad, gates},
                       out[3], gates, false));
    C* const of_h = out[3] + s.inputs * gates;
    MR_TRY(multiply<C>(ctx, s.cells, gates, s.batch, {in(kHPrev), s.cells, true},
                       {sums_grad, gates}, of_h, gates, false));
    MR_TRY(multiply<C>(ctx, s.cells, gates, (steps - 1) * s.batch, {in(kCo + 1), s.cells, true},
                       {sums_grad + s.batch * gates, gates}, of_h, gates, true));
    add_rows<C>(ctx, rows, gates, sums_grad, gates, nullptr, 0, out[7]);
    return ok_status();
  }

  const LstmOptions options_;
  const bool sequence_;
};

// The arguments named, all of type T, after the sequence's length where there is one.
std::vector<OpSpec::Arg> arguments(Names names, bool sequence) {
  std::vector<OpSpec::Arg> out;
  if (sequence) out.push_back({"seq_len_max", "host(int64)"});
  for (std::string_view name : names) out.push_back({name, "T"});
  return out;
}

struct LstmOp {
  const char *name, *grad, *doc;
  bool sequence;
  const char* clip;
  GradientRule gradient;
};

template <class... Ts>
void register_kernels(Registry& registry, const LstmOp& op, TypeList<Ts...>) {
  const auto kernels = [&]<class T>() {
    const auto add = [&](const char* name, KernelFactory factory) {
      registry.kernel({.op = name, .constraints = {{"T", {dtype_of<T>}}}, .factory = factory});
    };
    using Forward = LstmKernel<T>;
    using Backward = LstmGradKernel<T>;
    add(op.name, op.sequence ? &Forward::template make<true> : &Forward::template make<false>);
    add(op.grad, op.sequence ? &Backward::template make<true> : &Backward::template make<false>);
  };
  (kernels.template operator()<Ts>(), ...);
}

}  // namespace

void register_lstm_block(Registry& registry) {
  constexpr std::string_view kOutputs[] = {"i", "cs", "f", "o", "ci", "co", "h"};
  constexpr std::string_view kCellGrads[] = {"cs_prev_grad", "dgates", "wci_grad", "wcf_grad",
                                             "wco_grad"};
  constexpr std::string_view kSequenceGrads[] = {"x_grad",   "cs_prev_grad", "h_prev_grad",
                                                 "w_grad",   "wci_grad",     "wcf_grad",
                                                 "wco_grad", "b_grad"};
  const LstmOp ops[] = {
      {"LSTMBlockCell", "LSTMBlockCellGrad",
       "A step of an LSTM: gates i, ci, f, o of [x, h_prev] w + b, forget_bias added to f, and "
       "the state cs = ci i + cs_prev f, clipped to cell_clip where that is above zero, and the "
       "output h = tanh(cs) o. With use_peephole, gates see the state.",
       false, "float = 3.0", lstm_cell_grad},
      {"BlockLSTM", "BlockLSTMGrad",
       "LSTMBlockCell for the first seq_len_max steps of x, [time, batch, inputs]; zeros after "
       "them.",
       true, "float = 3.0", lstm_sequence_grad<false>},
      {"BlockLSTMV2", "BlockLSTMGradV2",
       "BlockLSTM with the kernel's columns in the order i, f, ci, o, without a forget bias.", true,
       "float = 0.0", lstm_sequence_grad<true>},
  };
  for (const LstmOp& op : ops) {
    const bool v2 = std::string_view(op.name).ends_with("V2");
    std::vector<OpSpec::Attr> attrs;
    if (!v2) attrs.push_back({"forget_bias", "float = 1.0"});
    attrs.push_back({"cell_clip", op.clip});
    attrs.push_back({"use_peephole", "bool = false"});
    registry.add({.name = op.name,
                  .doc = op.doc,
                  .inputs = arguments(names_of(op.sequence, false), op.sequence),
                  .outputs = arguments(kOutputs, false),
                  .types = {{"T", type_set_of<FloatingTypes>}},
                  .attrs = attrs,
                  .traits = {.cost = 100},
                  .shape = op.sequence ? lstm_shape<true> : lstm_shape<false>,
                  .gradient = op.gradient});
    registry.add(
        {.name = op.grad,
         .doc = str_cat("The gradients of ", op.name, ", by what comes back for cs and h."),
         .inputs = arguments(names_of(op.sequence, true), op.sequence),
         .outputs = arguments(op.sequence ? Names(kSequenceGrads) : Names(kCellGrads), false),
         .types = {{"T", type_set_of<FloatingTypes>}},
         .attrs = {{"use_peephole", "bool"}},
         .traits = {.cost = 100},
         .shape = op.sequence ? lstm_sequence_grad_shape : lstm_cell_grad_shape,
         .no_gradient = "has no second derivative in TensorFlow either"});
    register_kernels(registry, op, FloatingTypes());
  }
}

}  // namespace millrace
