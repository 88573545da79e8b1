// One Adagrad step on the rows of a table that 4,096 ids name: lookup, loss, gradient, update. It
// should not cost more because the table is large.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/embedding.h"
#include "millrace/api/ops.h"
#include "millrace/api/optimizers.h"
#include "millrace/tensor/allocator.h"

namespace millrace {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kIds = 4096;

struct Training {
  std::unique_ptr<ClientSession> session;
  std::shared_ptr<Callable> step;
  int64_t rows;
  uint64_t state = 1;

  // Other ids every time.
  Tensor ids() {
    Tensor out = Tensor::allocate(DType::kInt64, {kIds}).value();
    for (int64_t& id : out.mutable_data<int64_t>()) {
      state = state * 6364136223846793005 + 1442695040888963407;
      id = static_cast<int64_t>((state >> 24) % static_cast<uint64_t>(rows));
    }
    return out;
  }
};

Result<Training> make_training(int64_t rows) {
  Scope root = Scope::make_root();
  Variables vars(root);
  Variable& table =
      vars.get(root, "table", {rows, kWidth}, DType::kFloat, initializers::constant(0.5));
  Expr ids = ops::placeholder(root, DType::kInt64, {.shape = PartialShape({kIds})});
  Expr loss = ops::l2loss(root, embedding_lookup(root, {table.handle}, ids));
  Operation train = Adagrad(vars, 0.1).minimize(root, loss);
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
  Training out;
  out.rows = rows;
  out.session = std::make_unique<ClientSession>(std::move(session));
  MR_TRY(out.session->run({}, {}, {vars.initialize()}).status());
  MR_TRY_ASSIGN(out.step, out.session->make_callable({ids}, {loss}, {train}));
  return out;
}

// Alternating steps on ten thousand and on ten million rows: medians, their ratio, and the most
// that a step allocates.
void adagrad_step(benchmark::State& state) {
  Result<Training> trainings[2] = {make_training(10'000), make_training(10'000'000)};
  std::vector<double> seconds[2];
  int64_t peak[2] = {0, 0};
  for (auto _ : state) {
    for (int k = 0; k < 2; ++k) {
      if (!trainings[k].ok()) return state.SkipWithError(trainings[k].status().to_string().c_str());
      Tensor ids = trainings[k]->ids();
      std::vector<Tensor> out;
      int64_t before = cpu_allocator().stats().bytes_in_use;
      cpu_allocator().reset_peak();
      auto start = std::chrono::steady_clock::now();
      Status status = trainings[k]->step->run(std::span(&ids, 1), out);
      seconds[k].push_back(
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      if (!status.ok()) return state.SkipWithError(status.to_string().c_str());
      peak[k] = std::max(peak[k], cpu_allocator().stats().peak_bytes_in_use - before);
    }
  }
  for (auto& s : seconds) std::sort(s.begin(), s.end());
  double small = seconds[0][seconds[0].size() / 2], large = seconds[1][seconds[1].size() / 2];
  state.counters["small_us"] = small * 1e6;
  state.counters["large_us"] = large * 1e6;
  state.counters["ratio"] = large / small;
  state.counters["small_MiB"] = static_cast<double>(peak[0]) / (1 << 20);
  state.counters["large_MiB"] = static_cast<double>(peak[1]) / (1 << 20);
}
BENCHMARK(adagrad_step)->Iterations(501)->UseRealTime();

}  // namespace
}  // namespace millrace

BENCHMARK_MAIN();
