// What the system around a kernel costs: one op per run, chains, fans, loops, and large feeds.

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/ops.h"

namespace millrace {
namespace {

void require(benchmark::State& state, const Status& status) {
  if (!status.ok()) state.SkipWithError(status.to_string().c_str());
}

// Runs `fetch` (fed with `x` where valid) once per iteration, in a gear.
void run_callable(benchmark::State& state, const Scope& root, std::vector<Expr> feeds,
                  std::vector<Tensor> values, std::vector<Expr> fetches, Gear gear,
                  std::vector<Operation> targets = {}, int threads = 0, int optimizer_level = 0) {
  SessionOptions options;
  options.gear = gear;
  options.threads = threads;
  options.optimizer_level = optimizer_level;
  Result<ClientSession> session = ClientSession::create(root, options);
  if (!session.ok()) return require(state, session.status());
  auto callable = session->make_callable(feeds, fetches, targets);
  if (!callable.ok()) return require(state, callable.status());
  std::vector<Tensor> out;
  for (auto _ : state) {
    Status status = (*callable)->run(values, out);
    if (!status.ok()) return require(state, status);
    benchmark::DoNotOptimize(out);
  }
}

void callable_one_op(benchmark::State& state) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat);
  run_callable(state, root, {x}, {Tensor::scalar<float>(1)}, {ops::neg(root, x)}, Gear::kAuto);
}
BENCHMARK(callable_one_op);

void run_by_name_one_op(benchmark::State& state) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat);
  Expr y = ops::neg(root, x);
  Result<ClientSession> session = ClientSession::create(root);
  Tensor value = Tensor::scalar<float>(1);
  for (auto _ : state) {
    auto out = session->run({{x, value}}, {y});
    if (!out.ok()) return require(state, out.status());
  }
}
BENCHMARK(run_by_name_one_op);

void empty_step(benchmark::State& state) {
  Scope root = Scope::make_root();
  run_callable(state, root, {}, {}, {}, Gear::kAuto, {ops::no_op(root)});
}
BENCHMARK(empty_step);

void count_nodes(benchmark::State& state, int64_t nodes) {
  state.counters["per_node"] =
      benchmark::Counter(static_cast<double>(nodes), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

void chain(benchmark::State& state, Gear gear, int optimizer_level = 0) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat);
  Expr one = root.constant(1.0f);
  Expr y = x;
  for (int64_t i = 0; i < state.range(0); ++i) y = ops::add(root, y, one);
  run_callable(state, root, {x}, {Tensor::scalar<float>(1)}, {y}, gear, {}, 0, optimizer_level);
  count_nodes(state, state.range(0));
}
void chain_straight(benchmark::State& state) { chain(state, Gear::kStraight); }
BENCHMARK(chain_straight)->Arg(1000)->Arg(10000);
// With the passes that run by default, which put several ops into one node.
void chain_fused(benchmark::State& state) { chain(state, Gear::kStraight, 2); }
BENCHMARK(chain_fused)->Arg(3)->Arg(1000);
void chain_parallel(benchmark::State& state) { chain(state, Gear::kParallel); }
BENCHMARK(chain_parallel)->Arg(1000)->Arg(10000);

void fan(benchmark::State& state, Gear gear) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat);
  std::vector<Expr> all;
  for (int64_t i = 0; i < state.range(0); ++i) all.push_back(ops::neg(root, x));
  run_callable(state, root, {x}, {Tensor::scalar<float>(1)}, {ops::add_n(root, all)}, gear);
  count_nodes(state, state.range(0));
}
void fan_straight(benchmark::State& state) { fan(state, Gear::kStraight); }
BENCHMARK(fan_straight)->Arg(1000)->Arg(10000);
void fan_parallel(benchmark::State& state) { fan(state, Gear::kParallel); }
BENCHMARK(fan_parallel)->Arg(1000)->Arg(10000);

// Independent matrix products: how much a second thread helps.
void parallel_gear_scaling(benchmark::State& state) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat);
  std::vector<Expr> all;
  for (int i = 0; i < 32; ++i) all.push_back(ops::mat_mul(root, x, x));
  run_callable(state, root, {x}, {Tensor::zeros(DType::kFloat, {128, 128}).value()},
               {ops::add_n(root, all)}, Gear::kParallel, {}, static_cast<int>(state.range(0)));
}
BENCHMARK(parallel_gear_scaling)->Arg(1)->Arg(2)->UseRealTime();

void loop(benchmark::State& state) {
  Scope root = Scope::make_root();
  Expr n = ops::enter(root, root.constant(static_cast<int32_t>(state.range(0))), "loop",
                      {.is_constant = true});
  Expr one = ops::enter(root, root.constant(int32_t{1}), "loop", {.is_constant = true});
  Expr start = ops::enter(root, root.constant(int32_t{0}), "loop");
  auto merge = ops::merge(root, {start, start});
  Expr cond = ops::loop_cond(root, ops::less(root, merge.output, n));
  auto branch = ops::switch_(root, merge.output, cond);
  Expr next = ops::next_iteration(root, ops::add(root, branch.output_true, one));
  require(state, root.graph()->set_back_edge(merge.operation.node, 1, GraphBuilder::output(next)));
  run_callable(state, root, {}, {}, {ops::exit(root, branch.output_false)}, Gear::kAuto);
  count_nodes(state, state.range(0));
}
BENCHMARK(loop)->Arg(10000);

// A feed of 100 MB that an op passes through, against a plain copy of as much.
void feed100mb(benchmark::State& state) {
  Scope root = Scope::make_root();
  Expr x = ops::placeholder(root, DType::kFloat);
  run_callable(state, root, {x}, {Tensor::zeros(DType::kFloat, {25'000'000}).value()},
               {ops::size(root, x)}, Gear::kAuto);
}
BENCHMARK(feed100mb);

void fetch100mb(benchmark::State& state) {
  Scope root = Scope::make_root();
  Expr shape = root.constant(Tensor::vector<int32_t>({25'000'000}));
  run_callable(state, root, {}, {}, {ops::fill(root, shape, root.constant(1.0f))}, Gear::kAuto);
}
BENCHMARK(fetch100mb);

void memset100mb(benchmark::State& state) {
  std::vector<char> to(100'000'000);
  for (auto _ : state) {
    std::memset(to.data(), 1, to.size());
    benchmark::DoNotOptimize(to.data());
  }
}
BENCHMARK(memset100mb);

}  // namespace
}  // namespace millrace

BENCHMARK_MAIN();
