// What loops cost beyond their kernels: iterations with and without a gradient, the memory that
// saved values take, and a recurrent network as a loop against the same network unrolled.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"
#include "millrace/tensor/allocator.h"

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;

Exprs gradients_of(const Scope& root, Expr y, const Exprs& xs,
                   const GradientOptions& options = {}) {
  auto found = gradients(root.builder(), std::span(&y, 1), xs, {}, options);
  if (!found.ok()) {
    root.builder().fail(found.status());
    return {};
  }
  Exprs out;
  for (const Gradient& g : *found) out.push_back(to_dense(g));
  return out;
}

struct Program {
  std::shared_ptr<Callable> callable;
  std::unique_ptr<ClientSession> session;
  std::vector<Tensor> feeds;
};

Result<Program> make_program(const Scope& root, const Exprs& feeds, std::vector<Tensor> values,
                             const Exprs& fetches, int threads) {
  SessionOptions options;
  options.threads = threads;
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root, options));
  Program out;
  out.session = std::make_unique<ClientSession>(std::move(session));
  MR_TRY_ASSIGN(out.callable, out.session->make_callable(feeds, fetches));
  out.feeds = std::move(values);
  return out;
}

void run(benchmark::State& state, Result<Program> program, int64_t iterations) {
  if (!program.ok()) return state.SkipWithError(program.status().to_string().c_str());
  std::vector<Tensor> out;
  for (auto _ : state) {
    Status status = program->callable->run(program->feeds, out);
    if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
  }
  cpu_allocator().reset_peak();
  int64_t before = cpu_allocator().stats().bytes_in_use;
  Status status = program->callable->run(program->feeds, out);
  state.counters["bytes_per_iteration"] =
      static_cast<double>(cpu_allocator().stats().peak_bytes_in_use - before) /
      static_cast<double>(iterations);
  state.counters["per_iteration"] = benchmark::Counter(
      static_cast<double>(iterations),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// x <- x * w, `count` times; `size` elements.
Expr power_loop(const Scope& root, Expr x, Expr w, int32_t count) {
  Expr n = root.constant(count);
  Exprs out = while_loop(
      root, {root.constant(int32_t{0}), x},
      [&](const Scope& s, const Exprs& v) { return ops::less(s, v[0], n); },
      [&](const Scope&, const Exprs& v) { return Exprs{v[0] + 1.0, v[1] * w}; });
  return out.empty() ? Expr() : out[1];
}

void loop(benchmark::State& state, bool with_gradient, bool recompute) {
  Scope root = Scope::make_root();
  int64_t size = state.range(1);
  Expr x = ops::placeholder(root, DType::kFloat, {.shape = PartialShape({size})});
  Expr w = ops::placeholder(root, DType::kFloat, {.shape = PartialShape({size})});
  Expr y = power_loop(root, x, w, static_cast<int32_t>(state.range(0)));
  GradientOptions options;
  options.recompute = recompute;
  Exprs fetches = with_gradient ? gradients_of(root, y, {x, w}, options) : Exprs{y};
  std::vector<float> ones(static_cast<size_t>(size), 1.0F);
  Tensor value = Tensor::vector<float>(ones);
  run(state, make_program(root, {x, w}, {value, value}, fetches, /*threads=*/1), state.range(0));
}
void loop_forward(benchmark::State& state) { loop(state, false, false); }
BENCHMARK(loop_forward)->Args({10000, 1});
void loop_gradient(benchmark::State& state) { loop(state, true, false); }
BENCHMARK(loop_gradient)->Args({10000, 1})->Args({1000, 1})->Args({1000, 10000});
void loop_gradient_recomputed(benchmark::State& state) { loop(state, true, true); }
BENCHMARK(loop_gradient_recomputed)->Args({10000, 1})->Args({1000, 10000});

// The gradient of 64 layers of tanh over 1 MiB each: what is kept, and what is computed again.
void layers_gradient(benchmark::State& state, const GradientOptions& options) {
  constexpr int64_t kSize = 1 << 18;
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat, {.shape = PartialShape({kSize})});
  Expr y = x;
  for (int i = 0; i < 64; ++i) y = ops::tanh(root, y * 1.01);
  Exprs fetches = gradients_of(root, ops::l2loss(root, y), {x}, options);
  Result<Program> program = make_program(root, {x}, {Tensor::zeros(DType::kFloat, {kSize}).value()},
                                         fetches, /*threads=*/1);
  if (!program.ok()) return state.SkipWithError(program.status().to_string().c_str());
  std::vector<Tensor> out;
  int64_t before = 0;
  for (auto _ : state) {
    out.clear();
    before = cpu_allocator().stats().bytes_in_use;
    cpu_allocator().reset_peak();
    Status status = program->callable->run(program->feeds, out);
    if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
  }
  state.counters["peak_MiB"] =
      static_cast<double>(cpu_allocator().stats().peak_bytes_in_use - before) / (1 << 20);
}
void layers_kept(benchmark::State& state) { layers_gradient(state, {}); }
BENCHMARK(layers_kept)->Unit(benchmark::kMillisecond);
void layers_recomputed(benchmark::State& state) { layers_gradient(state, {.recompute = true}); }
BENCHMARK(layers_recomputed)->Unit(benchmark::kMillisecond);
void layers_in_32_mib(benchmark::State& state) {
  layers_gradient(state, {.memory_budget = 32 << 20});
}
BENCHMARK(layers_in_32_mib)->Unit(benchmark::kMillisecond);

// An LSTM over time: batch 32, hidden 256, 100 steps.
struct Lstm {
  static constexpr int64_t kBatch = 32, kHidden = 256, kSteps = 100;
  Scope root = Scope::make_root();
  Expr x, w, b;
  Exprs fetches;

  static Exprs cell(const Scope& s, Expr x, Expr h, Expr c, Expr w, Expr b) {
    Expr axis = s.constant(int32_t{1});
    Expr joined = ops::concat_v2(s, {x, h}, axis);
    Expr gates = ops::bias_add(s, ops::mat_mul(s, joined, w), b);
    std::vector<Expr> parts = ops::split(s, axis, gates, 4);
    Expr next_c =
        ops::sigmoid(s, parts[0]) * c + ops::sigmoid(s, parts[1]) * ops::tanh(s, parts[2]);
    return {ops::sigmoid(s, parts[3]) * ops::tanh(s, next_c), next_c};
  }

  explicit Lstm(bool unrolled) {
    x = ops::placeholder(root, DType::kFloat, {.shape = PartialShape({kSteps, kBatch, kHidden})});
    w = ops::placeholder(root, DType::kFloat, {.shape = PartialShape({2 * kHidden, 4 * kHidden})});
    b = ops::placeholder(root, DType::kFloat, {.shape = PartialShape({4 * kHidden})});
    Expr zero = root.constant(Tensor::zeros(DType::kFloat, {kBatch, kHidden}).value());
    Expr h = zero, c = zero;
    if (unrolled) {
      for (Expr step : ops::unpack(root, x, kSteps)) {
        Exprs next = cell(root, step, h, c, w, b);
        h = next[0];
        c = next[1];
      }
    } else {
      Exprs out = foldl(root, {x}, {h, c}, [&](const Scope& s, const Exprs& v) {
        return cell(s, v[2], v[0], v[1], w, b);
      });
      if (!out.empty()) h = out[0];
    }
    Expr loss = ops::l2loss(root, h);
    fetches = gradients_of(root, loss, {x, w, b});
    fetches.push_back(loss);
  }

  Result<Program> program(int threads) {
    MR_TRY(root.status());
    auto random = [](const Shape& shape, float scale) {
      Tensor t = Tensor::allocate(DType::kFloat, shape).value();
      uint32_t state = 1;
      for (float& v : t.mutable_data<float>()) {
        state = state * 1664525 + 1013904223;
        v = scale * (static_cast<float>(state >> 8) / (1 << 23) - 1);
      }
      return t;
    };
    return make_program(root, {x, w, b},
                        {random({kSteps, kBatch, kHidden}, 1),
                         random({2 * kHidden, 4 * kHidden}, 0.05F), random({4 * kHidden}, 0.1F)},
                        fetches, threads);
  }
};

// Median over alternating runs of loop time over unrolled time, forward and backward.
void lstm_loop_over_unrolled(benchmark::State& state) {
  Result<Program> programs[2] = {Lstm(false).program(0), Lstm(true).program(0)};
  std::vector<double> ratios;
  std::vector<Tensor> out;
  double seconds[2] = {0, 0};
  for (auto _ : state) {
    for (int i = 0; i < 2; ++i) {
      if (!programs[i].ok()) return state.SkipWithError(programs[i].status().to_string().c_str());
      auto start = std::chrono::steady_clock::now();
      Status status = programs[i]->callable->run(programs[i]->feeds, out);
      if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
      seconds[i] = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    ratios.push_back(seconds[0] / seconds[1]);
  }
  std::sort(ratios.begin(), ratios.end());
  state.counters["ratio"] = ratios[ratios.size() / 2];
  state.counters["loop_ms"] = seconds[0] * 1e3;
  state.counters["unrolled_ms"] = seconds[1] * 1e3;
}
BENCHMARK(lstm_loop_over_unrolled)->Iterations(21)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace millrace

BENCHMARK_MAIN();
