#include "millrace/distributed/simulation/simulation_drive_testing.h"

#include <cinttypes>
#include <cstdio>
#include <map>

#include "millrace/base/env.h"

namespace millrace {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kDoneAfter = 120 * kSecond;
// What nobody wants any more is gone: a lease, and twice a lease for steps without a run.
constexpr int64_t kForgottenAfter = 25 * kSecond;

}  // namespace

SimulatedCluster::Chances chances_of_kind(uint64_t kind) {
  SimulatedCluster::Chances chances;
  kind %= 6;
  if (kind == 1 || kind == 5) chances.reset = 0.02;
  if (kind == 2 || kind == 5) chances.silence = 0.01;
  if (kind == 3 || kind == 5) chances.cut = 0.005;
  if (kind == 4 || kind == 5) chances.crash = 0.005;
  return chances;
}

SimulationResult drive(
    uint64_t seed, const SimulatedCluster::Bugs& bugs, const SimulatedCluster::Chances& chances,
    Verdict& verdict, FunctionRef<bool()> over,
    FunctionRef<Ref<SimulatedClient>(SimulatedCluster&, const Ref<SimulatedCluster::Process>&)>
        make_client,
    bool in_haste) {
  SimulationResult result;
  std::map<std::string, Ref<SimulatedClient>> clients;
  SimulatedCluster cluster(seed, chances, bugs);
  cluster.on_start = [&](const Ref<SimulatedCluster::Process>& process) {
    Ref<SimulatedClient> client = over() ? nullptr : make_client(cluster, process);
    if (!client) return;
    clients[process->task] = client;
    client->begin(in_haste);
  };
  cluster.on_end = [&](const Ref<SimulatedCluster::Process>& process) {
    const auto it = clients.find(process->task);
    if (it == clients.end()) return;
    result.runs += it->second->runs();
    result.failed_runs += it->second->failed_runs();
    result.lost_runs += it->second->lost_runs();
    it->second->end();
    clients.erase(it);
  };
  cluster.start_all();
  SimulatedTime& time = cluster.time();
  time.schedule(kCalmAfterNs, [&] { cluster.calm(); });
  const auto proceed = [&] { return verdict.failure.empty() && time.run_one(); };
  while (!over() && time.now_ns() < kDoneAfter && proceed()) continue;
  if (!over()) {
    std::string waits = "nobody is done in time:";
    for (const auto& [task, client] : clients) {
      waits += str_cat("\n  the client on ", task, " ", client->state());
    }
    for (const std::string& call : cluster.network().waiting()) waits += str_cat("\n  ", call);
    verdict.fail(waits + cluster.leftovers());
  }
  cluster.calm();
  const int64_t until = time.now_ns() + kForgottenAfter;
  while (time.now_ns() < until && proceed()) continue;
  if (const std::string left = cluster.leftovers(); !left.empty()) {
    verdict.fail(str_cat("something is left:", left));
  }
  result.failure = verdict.failure;
  result.digest = time.digest();
  result.messages = cluster.network().messages();
  result.crashes = cluster.crashes();
  cluster.end_all();
  return result;
}

std::string run_seeds(int64_t count, FunctionRef<SimulationResult(uint64_t seed)> simulate) {
  count = env_int("MILLRACE_SIMULATED_SEEDS", count, 1, 1'000'000'000);
  const int64_t first = env_int("MILLRACE_SIMULATED_FIRST_SEED", 1, 0, INT64_MAX / 2);
  SimulationResult sum;
  for (int64_t seed = first; seed < first + count; ++seed) {
    const SimulationResult result = simulate(static_cast<uint64_t>(seed));
    if (!result.failure.empty()) return str_cat("seed ", seed, ": ", result.failure);
    sum.messages += result.messages;
    sum.runs += result.runs;
    sum.failed_runs += result.failed_runs;
    sum.crashes += result.crashes;
  }
  std::printf("%" PRId64 " seeds: %" PRId64 " messages, %d runs, %d of them failed, %d crashes\n",
              count, sum.messages, sum.runs, sum.failed_runs, sum.crashes);
  return "";
}

}  // namespace millrace
