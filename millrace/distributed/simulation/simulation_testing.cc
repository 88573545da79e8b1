#include "millrace/distributed/simulation/simulation_testing.h"

#include <algorithm>
#include <array>

#include "millrace/distributed/simulation/simulated_graph_testing.h"

namespace millrace {
namespace {

constexpr int kServers = 2;

std::string server(int number) { return task_name("ps", number); }

// How often what goes wrong in the run of a seed.
SimulatedCluster::Chances chances_of(uint64_t seed) { return chances_of_kind(seed / 3); }

// Asynchronous updates.

constexpr int64_t kPlaces = 256;
constexpr int kUpdatesEach = 4;

// What is added on the first server follows from what is fed, so that a step is one call there; on
// the second one from what is read there too: two calls.
struct UpdateGraph {
  NamedGraph named;
  std::string place, amount;
  std::array<std::string, kServers> update, updated, initialised, initialise, value;

  explicit UpdateGraph(int worker) {
    const DType f = DType::kFloat;
    named.on(str_cat("/job:worker/task:", worker));
    const Expr index = named.add("Placeholder", {}, {{"dtype", DType::kInt32}});
    const Expr one = named.add("Placeholder", {}, {{"dtype", f}});
    const Expr doubled = named.add("Add", {one, one});
    const Expr half = named.constant(Tensor::scalar(0.5F));
    const Expr sent = named.add("Mul", {doubled, half});
    place = named.name(index);
    amount = named.name(one);
    for (int s = 0; s < kServers; ++s) {
      const auto i = static_cast<size_t>(s);
      named.on(str_cat("/job:ps/task:", s));
      const Expr handle = named.add(
          "VarHandleOp", {},
          {{"dtype", f}, {"shape", PartialShape(Shape({kPlaces}))}, {"shared_name", "updates"}});
      Tensor none = Tensor::zeros(f, Shape({kPlaces})).value();
      initialise[i] =
          named.name(named.add_node("AssignVariableOp", {handle, named.constant(none)}));
      initialised[i] = named.name(named.add("VarIsInitializedOp", {handle}));
      value[i] = named.name(named.add("ReadVariableOp", {handle}, {{"dtype", f}}));
      Expr added = sent;
      if (s > 0) {
        const Expr before = named.add("ResourceGather", {handle, index}, {{"dtype", f}});
        named.on(str_cat("/job:worker/task:", worker));
        const Expr zero = named.constant(Tensor::scalar(0.0F));
        added = named.add("Add", {sent, named.add("Mul", {before, zero})});
        named.on(str_cat("/job:ps/task:", s));
      }
      const NodeId apply = named.add_node("ResourceScatterAdd", {handle, index, added});
      update[i] = named.name(apply);
      named.after({apply});
      const Expr now = named.add("ResourceGather", {handle, index}, {{"dtype", f}});
      named.after({});
      named.on(str_cat("/job:worker/task:", worker));
      updated[i] = named.name(named.add("Identity", {now}));
    }
  }
};

struct Update {
  bool acknowledged = false;
  std::array<uint64_t, kServers> lives{};  // of the servers when it began
};

struct UpdatesRun : Verdict {
  std::vector<Update> updates;
  std::array<int, 2> acknowledged{};
  bool audited = false;
  bool all_updated() const {
    return std::all_of(acknowledged.begin(), acknowledged.end(),
                       [](int count) { return count >= kUpdatesEach; });
  }
};

class Updater final : public SimulatedClient {
 public:
  // `tries_again`: an update that fails is tried until it is acknowledged, by the same id, instead
  // of another one.
  Updater(SimulatedCluster& cluster, Ref<SimulatedCluster::Process> process, int worker,
          UpdatesRun& run, bool tries_again)
      : SimulatedClient(cluster, std::move(process), graph_of(worker).named.graph()),
        graph_(graph_of(worker)),
        worker_(worker),
        run_(run),
        tries_again_(tries_again),
        stream_(static_cast<int64_t>(cluster_.time().random() >> 1) | 1) {}

  void go_on() override {
    if (worker_ == 0) return look_after_servers();
    update();
  }

 private:
  using SimulatedClient::run;

  static UpdateGraph& graph_of(int worker) {
    static auto* graphs = new std::array<UpdateGraph, 2>{UpdateGraph(0), UpdateGraph(1)};
    return (*graphs)[static_cast<size_t>(worker)];
  }

  // The chief's: gives values to variables of servers that have none, until all are done.
  void look_after_servers() {
    run({.fetches = {graph_.initialised.begin(), graph_.initialised.end()}}, {},
        [this](const Status& status, const Fetches& initialised) {
          if (!status.ok()) return fail(status);
          Signature missing;
          for (size_t s = 0; s < kServers; ++s) {
            if (!initialised[s].item<bool>()) missing.targets.push_back(graph_.initialise[s]);
          }
          if (missing.targets.empty()) return update();
          run(missing, {}, [this](const Status& done, const Fetches&) {
            if (!done.ok()) return fail(done);
            update();
          });
        });
  }

  void update() {
    if (run_.all_updated()) return end_of_run();
    if (under_way_ && tries_again_) return apply();
    if (run_.acknowledged[static_cast<size_t>(worker_)] >= kUpdatesEach) return pause(500);
    number_ = run_.updates.size();
    under_way_ = true;
    if (number_ >= kPlaces) return run_.fail(str_cat(kPlaces, " updates were not enough"));
    Update& begun = run_.updates.emplace_back();
    for (int s = 0; s < kServers; ++s)
      begun.lives[static_cast<size_t>(s)] = cluster_.life(server(s));
    apply();
  }

  void apply() {
    Signature signature = {.feeds = {graph_.place, graph_.amount},
                           .fetches = {graph_.updated.begin(), graph_.updated.end()}};
    signature.targets.assign(graph_.update.begin(), graph_.update.end());
    UpdateId id;
    if (tries_again_) {
      id = {stream_, static_cast<int64_t>(number_)};
      if (cluster_.bugs().renumbered_update) id.number = ++tries_;
    }
    run(
        signature, {Tensor::scalar(static_cast<int32_t>(number_)), Tensor::scalar(1.0F)},
        [this](const Status& status, const Fetches& updated) { applied(status, updated); }, id);
  }

  void applied(const Status& status, const Fetches& updated) {
    if (!status.ok()) {
      if (cluster_.bugs().doubled_update && status.code() == Code::kUnavailable) return apply();
      // A server that has just begun, or another's session: there is nothing to be mended here.
      if (status.code() == Code::kFailedPrecondition || status.code() == Code::kNotFound) {
        return pause(200);
      }
      return tries_again_ ? fail_in_haste(status) : fail(status);
    }
    under_way_ = false;
    for (const Tensor& value : updated) {
      const float there = value.item<float>();
      if (there != 1) run_.fail(str_cat("update ", number_, " is there ", there, " times"));
    }
    run_.updates[number_].acknowledged = true;
    ++run_.acknowledged[static_cast<size_t>(worker_)];
    pause(cluster_.time().between(0, 1500));
  }

  void end_of_run() {
    if (worker_ != 0) return close();
    if (cluster_.time().now_ns() < kCalmAfterNs) return pause(500);
    run({.fetches = {graph_.value.begin(), graph_.value.end()}}, {},
        [this](const Status& status, const Fetches& values) {
          if (!status.ok()) return fail(status);
          audit(values);
          close();
        });
  }

  void audit(const Fetches& values) {
    for (size_t u = 0; u < run_.updates.size(); ++u) {
      const Update& update = run_.updates[u];
      for (size_t s = 0; s < kServers; ++s) {
        const float there = values[s].data<float>()[u];
        const std::string what = str_cat("update ", u, " is there ", there, " times on ps ", s);
        if (there != 0 && there != 1) run_.fail(what);
        const bool lived = update.lives[s] == cluster_.life(server(static_cast<int>(s)));
        if (update.acknowledged && lived && there != 1) {
          run_.fail(str_cat(what, ", which has lived since it was acknowledged"));
        }
      }
    }
    run_.audited = true;
  }

  UpdateGraph& graph_;
  const int worker_;
  UpdatesRun& run_;
  const bool tries_again_;
  const int64_t stream_;
  bool under_way_ = false;  // an update
  size_t number_ = 0;       // of the update that is under way
  int64_t tries_ = 0;
};

// Synchronous steps.

constexpr int kSteps = 12;
constexpr int kSaveEvery = 3;
constexpr int64_t kModulus = 65'521;

using Weights = std::array<int64_t, kServers>;

// What a step makes of the weights: each step matters, and so does their order.
Weights step_of(const Weights& w, int step) {
  return {(w[0] * 31 + 3 * step) % kModulus, (w[1] * 31 + 3 * step + 7 + w[0]) % kModulus};
}

struct StepGraph {
  NamedGraph named;
  std::string number;
  std::array<std::string, kServers> weight, assign, fed, restore;

  StepGraph() {
    const DType i64 = DType::kInt64;
    const auto constant = [&](int64_t value) { return named.constant(Tensor::scalar(value)); };
    named.on("/job:worker/task:0");
    const Expr step = named.add("Placeholder", {}, {{"dtype", i64}});
    number = named.name(step);
    std::array<Expr, kServers> handles, reads, gradients;
    for (int s = 0; s < kServers; ++s) {
      const auto i = static_cast<size_t>(s);
      named.on(str_cat("/job:ps/task:", s));
      handles[i] =
          named.add("VarHandleOp", {},
                    {{"dtype", i64}, {"shape", PartialShape(Shape())}, {"shared_name", "weight"}});
      reads[i] = named.add("ReadVariableOp", {handles[i]}, {{"dtype", i64}});
      named.on("/job:worker/task:0");
      const Expr saved = named.add("Placeholder", {}, {{"dtype", i64}});
      fed[i] = named.name(saved);
      named.on(str_cat("/job:ps/task:", s));
      restore[i] = named.name(named.add_node("AssignVariableOp", {handles[i], saved}));
      // Each server's gradient from another worker, the second from the first one's weight too.
      named.on(str_cat("/job:worker/task:", s));
      gradients[i] = named.add("Mul", {step, constant(3)});
      if (s == 1) {
        gradients[i] = named.add("Add", {gradients[i], named.add("Add", {reads[0], constant(7)})});
      }
    }
    for (int s = 0; s < kServers; ++s) {
      const auto i = static_cast<size_t>(s);
      named.on(str_cat("/job:ps/task:", s));
      const Expr scaled = named.add("Mul", {reads[i], constant(31)});
      const Expr next =
          named.add("FloorMod", {named.add("Add", {scaled, gradients[i]}), constant(kModulus)});
      named.after({NamedGraph::node(gradients[i])});
      assign[i] = named.name(named.add_node("AssignVariableOp", {handles[i], next}));
      named.after({});
      weight[i] = named.name(next);
    }
  }
};

struct StepsRun : Verdict {
  Weights saved = {1, 2};
  int saved_step = 0;  // steps that led there
  bool done = false;
};

class Trainer final : public SimulatedClient {
 public:
  Trainer(SimulatedCluster& cluster, Ref<SimulatedCluster::Process> process, StepsRun& run)
      : SimulatedClient(cluster, std::move(process), graph().named.graph()), run_(run) {}

  // In a new session: from what was saved.
  void go_on() override {
    if (restored_) return step();
    weights_ = run_.saved;
    step_ = run_.saved_step;
    const StepGraph& g = graph();
    run({.feeds = {g.fed.begin(), g.fed.end()}, .targets = {g.restore.begin(), g.restore.end()}},
        {Tensor::scalar(weights_[0]), Tensor::scalar(weights_[1])},
        [this](const Status& status, const Fetches&) {
          if (!status.ok()) return begin_anew(status);
          restored_ = true;
          step();
        });
  }

 private:
  static StepGraph& graph() {
    static auto* graph = new StepGraph;
    return *graph;
  }

  void begin_anew(const Status& status) {
    restored_ = false;
    fail(status);
  }

  void step() {
    if (step_ == kSteps) {
      run_.done = true;
      return close();
    }
    const StepGraph& g = graph();
    run({.feeds = {g.number},
         .fetches = {g.weight.begin(), g.weight.end()},
         .targets = {g.assign.begin(), g.assign.end()}},
        {Tensor::scalar(static_cast<int64_t>(step_))},
        [this](const Status& status, const Fetches& weights) {
          if (!status.ok()) return begin_anew(status);
          stepped({weights[0].item<int64_t>(), weights[1].item<int64_t>()});
        });
  }

  void stepped(const Weights& got) {
    const Weights expected = step_of(weights_, step_);
    if (got != expected) {
      run_.fail(str_cat("step ", step_, " gave ", got[0], " and ", got[1], ", expected ",
                        expected[0], " and ", expected[1]));
    }
    weights_ = got;
    ++step_;
    if (step_ % kSaveEvery == 0) {
      run_.saved = weights_;
      run_.saved_step = step_;
    }
    pause(cluster_.time().between(0, 1500));
  }

  StepsRun& run_;
  bool restored_ = false;  // in this session
  Weights weights_{};
  int step_ = 0;
};

SimulationResult run_updates(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                             const SimulatedCluster::Chances& chances, bool try_again) {
  UpdatesRun run;
  return drive(
      seed, bugs, chances, run, [&] { return run.audited; },
      [&](SimulatedCluster& cluster, const Ref<SimulatedCluster::Process>& process) {
        Ref<SimulatedClient> client;
        for (int worker = 0; worker < 2; ++worker) {
          if (process->task != task_name("worker", worker)) continue;
          client = make_ref<Updater>(cluster, process, worker, run, try_again);
        }
        return client;
      });
}

}  // namespace

SimulationResult simulate_updates(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                                  const SimulatedCluster::Chances& chances) {
  return run_updates(seed, bugs, chances, /*try_again=*/false);
}

SimulationResult simulate_tries(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                                const SimulatedCluster::Chances& chances) {
  return run_updates(seed, bugs, chances, /*try_again=*/true);
}

SimulationResult simulate_synchronous(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                                      const SimulatedCluster::Chances& chances) {
  StepsRun run;
  return drive(
      seed, bugs, chances, run, [&] { return run.done; },
      [&](SimulatedCluster& cluster, const Ref<SimulatedCluster::Process>& process) {
        Ref<SimulatedClient> client;
        if (process->task == task_name("worker", 0)) {
          client = make_ref<Trainer>(cluster, process, run);
        }
        return client;
      });
}

SimulationResult simulate(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                          const SimulatedCluster::Chances* chances) {
  const SimulatedCluster::Chances by_seed = chances != nullptr ? *chances : chances_of(seed);
  switch (seed % 3) {
    case 0:
      return simulate_updates(seed, bugs, by_seed);
    case 1:
      return simulate_synchronous(seed, bugs, by_seed);
    default:
      return simulate_tries(seed, bugs, by_seed);
  }
}

}  // namespace millrace
