// The gradient of a recurrent layer's weights, unrolled and in a loop: 35 steps of an LSTM of 650
// on a batch of 20, in milliseconds. The first argument is 0 where the optimiser leaves sums of
// products alone; the second is 1 where gradients wait for each other, as those of Python's
// Optimizer.minimize() do.

#include <benchmark/benchmark.h>

#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"

namespace millrace {
namespace {

constexpr int64_t kSteps = 35, kBatch = 20, kHidden = 650;

using Exprs = std::vector<Expr>;

Tensor numbers(const Shape& shape) {
  Tensor out = Tensor::allocate(DType::kFloat, shape).value();
  uint32_t bits = 1;
  for (float& x : out.mutable_data<float>()) {
    bits = bits * 1664525 + 1013904223;
    x = (static_cast<float>(bits >> 8) * 0x1p-23F - 1) * 0.05F;
  }
  return out;
}

// State and output after a step.
Exprs cell(const Scope& s, Expr weights, Expr now, const Exprs& state) {
  const Expr gates = matmul(ops::concat_v2(s, {now, state[1]}, s.constant(1)), weights);
  const Exprs part = ops::split(s, s.constant(1), gates, 4);
  const Expr next = state[0] * ops::sigmoid(s, part[2]) + ops::sigmoid(s, part[0]) * tanh(part[1]);
  return {next, tanh(next) * ops::sigmoid(s, part[3])};
}

Expr unrolled(const Scope& s, Expr rows, Expr weights, Exprs state) {
  for (const Expr now : ops::unpack(s, rows, kSteps)) state = cell(s, weights, now, state);
  return state[1];
}

Expr looped(const Scope& s, Expr rows, Expr weights, const Exprs& state) {
  const Exprs out = while_loop(
      s, {s.constant(0), state[0], state[1]},
      [](const Scope& c, const Exprs& v) {
        return ops::less(c, v[0], c.constant(static_cast<int32_t>(kSteps)));
      },
      [&](const Scope& c, const Exprs& v) {
        const Expr now = ops::gather(c, rows, v[0]);
        const Exprs next = cell(c, weights, now, {v[1], v[2]});
        return Exprs{v[0] + 1.0, next[0], next[1]};
      });
  return out.empty() ? Expr() : out[2];
}

void weights_gradient(benchmark::State& state, Expr (*layer)(const Scope&, Expr, Expr, Exprs)) {
  const Scope s = Scope::make_root();
  const Expr rows = ops::placeholder_v2(s, DType::kFloat, {kSteps, kBatch, kHidden});
  const Expr weights = ops::placeholder_v2(s, DType::kFloat, {2 * kHidden, 4 * kHidden});
  const Expr zeros = s.constant(Tensor::zeros(DType::kFloat, {kBatch, kHidden}).value());
  const Expr output = layer(s, rows, weights, {zeros, zeros});
  const auto found = gradients(s.builder(), Exprs{output}, Exprs{weights}, {},
                               {.gate_operations = state.range(1) != 0});
  if (!found.ok()) return state.SkipWithError(found.status().to_string().c_str());
  const Expr sum = ops::sum(s, (*found)[0].values, s.constant(Tensor::vector<int32_t>({0, 1})));
  SessionOptions options;
  if (state.range(0) == 0) options.disabled_passes = {"sums_of_products"};
  Result<ClientSession> session = ClientSession::create(s, options);
  if (!session.ok()) return state.SkipWithError(session.status().to_string().c_str());
  auto callable = session->make_callable({rows, weights}, {sum}, {});
  if (!callable.ok()) return state.SkipWithError(callable.status().to_string().c_str());
  const std::vector<Tensor> values = {numbers({kSteps, kBatch, kHidden}),
                                      numbers({2 * kHidden, 4 * kHidden})};
  std::vector<Tensor> out;
  for (auto _ : state) {
    const Status status = (*callable)->run(values, out);
    if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
  }
  state.counters["sum"] = out[0].item<float>();
}

void unrolled_lstm(benchmark::State& state) {
  weights_gradient(state, [](const Scope& s, Expr rows, Expr weights, Exprs zeros) {
    return unrolled(s, rows, weights, std::move(zeros));
  });
}
BENCHMARK(unrolled_lstm)
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({1, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void lstm_in_a_loop(benchmark::State& state) {
  weights_gradient(state, [](const Scope& s, Expr rows, Expr weights, Exprs zeros) {
    return looped(s, rows, weights, zeros);
  });
}
BENCHMARK(lstm_in_a_loop)
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({1, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

}  // namespace
}  // namespace millrace
