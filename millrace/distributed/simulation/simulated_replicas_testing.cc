#include "millrace/distributed/simulation/simulated_replicas_testing.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "millrace/distributed/simulation/simulated_graph_testing.h"

namespace millrace {
namespace {

constexpr int kServers = 2;
constexpr int kWorkers = 2;
constexpr int64_t kSteps = 8;
constexpr int64_t kSaveEvery = 2;
// Numbers of a chief's runs in an era: what prepares the model, steps, and what ends the era.
constexpr int64_t kRestore = 0, kFirstStep = 1, kFence = int64_t{1} << 62;

using Names = std::vector<std::string>;

// The variables of the model: weight and slot of each server, and the count of steps.
struct Model {
  std::array<double, kServers> weight{1, 2}, slot{};
  int64_t step = 0;
  bool operator==(const Model&) const = default;

  std::string text() const {
    return str_cat("step ", step, ", weights ", weight[0], " and ", weight[1], ", slots ", slot[0],
                   " and ", slot[1]);
  }
};

// What a program with SyncReplicasOptimizer makes, on one worker.
struct ReplicaGraph {
  NamedGraph named;
  Names variables, initialised, restore, fed;  // in the order of Model
  std::string train, reached, reached_era, began;
  Names given, keep_place;
  std::string join_reached, join_era;
  Names join;
  // The chief's.
  std::string era, step, update, updated;
  std::string begin;

  ReplicaGraph(int worker, const ReplicaBugs& bugs) : own_(str_cat("/job:worker/task:", worker)) {
    add_variables();
    add_places();
    add_giving(worker, bugs);
    add_chief(bugs);
  }

 private:
  static constexpr DType kCount = DType::kInt64, kNumber = DType::kDouble;

  static std::string server(size_t s) { return str_cat("/job:ps/task:", s); }
  Expr number(double value) { return named.constant(Tensor::scalar(value)); }
  Expr count(int64_t value) { return named.constant(Tensor::scalar(value)); }

  Expr variable(DType dtype, const char* name) {
    return named.add("VarHandleOp", {},
                     {{"dtype", dtype}, {"shape", PartialShape(Shape())}, {"shared_name", name}});
  }
  Expr read(Expr handle, DType dtype) {
    return named.add("ReadVariableOp", {handle}, {{"dtype", dtype}});
  }
  NodeId assign(Expr handle, Expr value) {
    return named.add_node("AssignVariableOp", {handle, value});
  }

  void add_variable(Expr handle, DType dtype, const std::string& device) {
    named.on(device);
    variables.push_back(named.name(read(handle, dtype)));
    initialised.push_back(named.name(named.add("VarIsInitializedOp", {handle})));
    named.on(own_);
    const Expr saved = named.add("Placeholder", {}, {{"dtype", dtype}});
    fed.push_back(named.name(saved));
    named.on(device);
    restore.push_back(named.name(assign(handle, saved)));
  }

  void add_variables() {
    for (size_t s = 0; s < kServers; ++s) {
      named.on(server(s));
      weights_[s] = variable(kNumber, "weight");
      slots_[s] = variable(kNumber, "slot");
      accumulators_[s] = named.add("ResourceConditionalAccumulator", {},
                                   {{"dtype", kNumber},
                                    {"shape", PartialShape(Shape())},
                                    {"shared_name", "weight/grad_accum"}});
      add_variable(weights_[s], kNumber, server(s));
      add_variable(slots_[s], kNumber, server(s));
    }
    named.on(server(0));
    global_step_ = variable(kCount, "global_step");
    add_variable(global_step_, kCount, server(0));
    gate_ = named.add("StepGate", {}, {{"shared_name", "sync_step_gate"}});
  }

  // Where a worker is: its own step and era, from the gate.
  void add_places() {
    named.on(own_);
    local_step_ = variable(kCount, "sync_rep_local_step");
    local_era_ = variable(kCount, "sync_rep_era");
    named.on(server(0));
    const std::vector<Expr> now = named.add_all("StepGateWait", {gate_, count(0), count(-1)});
    join = keep(now, join_reached, join_era);
  }

  Names keep(const std::vector<Expr>& now, std::string& step_name, std::string& era_name) {
    named.on(own_);
    const Expr step = named.add("Identity", {now[0]}), era = named.add("Identity", {now[1]});
    step_name = named.name(step);
    era_name = named.name(era);
    return {named.name(assign(local_step_, step)), named.name(assign(local_era_, era))};
  }

  void add_giving(int worker, const ReplicaBugs& bugs) {
    std::array<Expr, kServers> reads;
    for (size_t s = 0; s < kServers; ++s) {
      named.on(server(s));
      reads[s] = read(weights_[s], kNumber);
    }
    named.on(server(0));
    const Expr data = read(global_step_, kCount);
    named.on(own_);
    const Expr local_step = read(local_step_, kCount);
    began = named.name(local_step);
    const Expr era = bugs.nameless_era ? count(0) : read(local_era_, kCount);
    const Expr seen = named.add("Cast", {data}, {{"DstT", kNumber}});
    std::vector<NodeId> all;
    for (size_t s = 0; s < kServers; ++s) {
      named.on(own_);
      // Each gradient is of both servers' weights, of the step, and of who gives it.
      Expr gradient = named.add("Mul", {reads[s], number(0.37)});
      gradient = named.add("Sub", {gradient, named.add("Mul", {reads[1 - s], number(0.11)})});
      gradient = named.add("Add", {gradient, named.add("Mul", {seen, number(0.013 + worker)})});
      const Expr giver = named.constant(Tensor::scalar(own_));
      named.on(server(s));
      const Expr added = named.add("ResourceAccumulatorGiveGradient",
                                   {accumulators_[s], era, local_step, giver, gradient});
      all.push_back(NamedGraph::node(added));
      given.push_back(named.name(added));
    }
    named.on(server(0));
    named.after(all);
    const std::vector<Expr> now = named.add_all("StepGateWait", {gate_, era, local_step});
    named.after({});
    keep_place = keep(now, reached, reached_era);
  }

  void add_chief(const ReplicaBugs& bugs) {
    named.on(own_);
    const Expr era_fed = named.add("Placeholder", {}, {{"dtype", kCount}});
    const Expr step_fed = named.add("Placeholder", {}, {{"dtype", kCount}});
    era = named.name(era_fed);
    step = named.name(step_fed);
    const Expr required = named.constant(Tensor::scalar(int32_t{kWorkers}));
    std::array<Expr, kServers> means;
    std::vector<NodeId> takes, updates, begins;
    for (size_t s = 0; s < kServers; ++s) {
      named.on(server(s));
      means[s] = named.add("ResourceAccumulatorTakeStep",
                           {accumulators_[s], era_fed, step_fed, required}, {{"dtype", kNumber}});
      takes.push_back(NamedGraph::node(means[s]));
    }
    named.on(server(0));
    named.after(takes);
    const NodeId all_taken = named.add_node("NoOp", {});
    for (size_t s = 0; s < kServers; ++s) {
      named.on(server(s));
      if (bugs.early_update) {
        named.after({});
      } else {
        named.after({all_taken});
      }
      const Expr mean = named.add("Identity", {means[s]});
      named.after({});
      updates.push_back(named.add_node("ResourceApplyMomentum",
                                       {weights_[s], slots_[s], number(0.25), mean, number(0.5)}));
    }
    named.on(server(0));
    named.after(updates);
    const NodeId counted = named.add_node("AssignAddVariableOp", {global_step_, count(1)});
    named.after({counted});
    const Expr now = read(global_step_, kCount);
    update = named.name(named.add_node("StepGateOpen", {gate_, now}));
    updated = named.name(now);
    named.after({});
    const Expr at = read(global_step_, kCount);
    for (size_t s = 0; s < kServers; ++s) {
      named.on(server(s));
      begins.push_back(named.add_node("ResourceAccumulatorBegin", {accumulators_[s], era_fed, at}));
    }
    named.on(server(0));
    named.after(begins);
    begin = named.name(named.add_node("StepGateReset", {gate_, era_fed, at}));
    named.after({});
  }

  const std::string own_;
  std::array<Expr, kServers> weights_, slots_, accumulators_;
  Expr global_step_, gate_, local_step_, local_era_;
};

// What outlives processes: the checkpoint, and the file beside it; and what is known of the run.
struct ReplicasRun : Verdict {
  ReplicaBugs bugs;
  const std::vector<Model>* expected = nullptr;  // by step; null: this run finds out
  std::vector<Model> seen;

  Model saved;
  int64_t era = 0;                               // 0: none has begun
  std::map<std::string, uint64_t> incarnations;  // of the servers that have the model; empty: none
  bool done = false;

  void check(const Model& model, int64_t step, const char* where) {
    if (model.step != step) {
      return fail(str_cat(where, ": the model is of ", model.text(), ", the gate at step ", step));
    }
    if (expected == nullptr) {
      seen.resize(static_cast<size_t>(step) + 1);
      seen[static_cast<size_t>(step)] = model;
    } else if (const Model& wanted = (*expected)[static_cast<size_t>(step)]; model != wanted) {
      fail(str_cat(where, ": the model is of ", model.text(), ", expected ", wanted.text()));
    }
  }
};

class Replica : public SimulatedClient {
 public:
  Replica(SimulatedCluster& cluster, Ref<SimulatedCluster::Process> process, int worker,
          ReplicasRun& run)
      : Replica(cluster, std::move(process), graph_of(worker, run.bugs), run) {}

  // In a new session: when the model is ready, and the gate has said where it is.
  void go_on() override { wait_for_model(); }

 protected:
  Replica(SimulatedCluster& cluster, Ref<SimulatedCluster::Process> process, ReplicaGraph& graph,
          ReplicasRun& run)
      : SimulatedClient(cluster, std::move(process), graph.named.graph()),
        graph_(graph),
        run_(run),
        stream_(random_number()) {}

  int64_t random_number() { return static_cast<int64_t>(cluster_.time().random() >> 2) | 1; }

  static ReplicaGraph& graph_of(int worker, const ReplicaBugs& bugs) {
    using Key = std::array<int, 3>;
    static auto* graphs = new std::map<Key, std::unique_ptr<ReplicaGraph>>;
    std::unique_ptr<ReplicaGraph>& graph =
        (*graphs)[Key{worker, bugs.nameless_era, bugs.early_update}];
    if (!graph) graph = std::make_unique<ReplicaGraph>(worker, bugs);
    return *graph;
  }

  void wait_for_model() {
    run({.fetches = graph_.initialised}, {}, [this](const Status& status, const Fetches& has) {
      if (!status.ok()) return fail_in_haste(status);
      for (const Tensor& one : has) {
        if (!one.item<bool>()) return pause(200);
      }
      join();
    });
  }

  void join() {
    run({.fetches = {graph_.join_reached, graph_.join_era}, .targets = graph_.join}, {},
        [this](const Status& status, const Fetches& now) {
          if (!status.ok()) return fail_in_haste(status);
          reached(now);
        });
  }

  // Through the gate, at a step: nobody can end it without this worker.
  virtual void reached(const Fetches& now) { next(now[0].item<int64_t>()); }

  // The next step, or a look now and then whether the training was set back.
  void next(int64_t step) {
    if (run_.done) return close();
    if (step >= kSteps) return pause(2000, [this] { join(); });
    pause(cluster_.time().between(0, 2500), [this] { train(); });
  }

  void train() {
    Signature signature = {.fetches = {graph_.reached, graph_.reached_era, graph_.began}};
    signature.fetches.insert(signature.fetches.end(), graph_.given.begin(), graph_.given.end());
    signature.targets = graph_.keep_place;
    run(signature, {},
        [this](const Status& status, const Fetches& now) {
          if (!status.ok()) return fail_in_haste(status);
          ++number_;
          reached(now);
        },
        {stream_, number_});
  }

  ReplicaGraph& graph_;
  ReplicasRun& run_;
  const int64_t stream_;
  int64_t number_ = 0;  // of the step, for tries
};

class Chief final : public Replica {
 public:
  Chief(SimulatedCluster& cluster, Ref<SimulatedCluster::Process> process, ReplicasRun& run)
      : Replica(cluster, std::move(process), graph_of(0, run.bugs), run) {}

  void go_on() override {
    run({.fetches = graph_.initialised}, {}, [this](const Status& status, const Fetches& has) {
      if (!status.ok()) return fail_in_haste(status);
      const bool all =
          std::all_of(has.begin(), has.end(), [](const Tensor& one) { return one.item<bool>(); });
      if (all && run_.incarnations == incarnations()) return resume();
      fence();
    });
  }

 private:
  static constexpr int kReads = 2 * kServers + 1;

  std::map<std::string, uint64_t> incarnations() const {
    std::map<std::string, uint64_t> out;
    for (int s = 0; s < kServers; ++s) {
      const std::string task = task_name("ps", s);
      out[task] = incarnation(task);
    }
    return out;
  }

  // A server was lost: the whole model goes back. First, what was begun before that ends.
  void fence() {
    if (run_.era == 0) return set_back();
    run({.fetches = graph_.initialised}, {},
        [this](const Status& status, const Fetches&) {
          if (!status.ok()) return fail_in_haste(status);
          set_back();
        },
        {run_.era, kFence});
  }

  void set_back() {
    run_.era = random_number();
    run_.incarnations.clear();
    const Model& to = run_.saved;
    std::vector<Tensor> values;
    for (size_t s = 0; s < kServers; ++s) {
      values.push_back(Tensor::scalar(to.weight[s]));
      values.push_back(Tensor::scalar(to.slot[s]));
    }
    values.push_back(Tensor::scalar(to.step));
    run({.feeds = graph_.fed, .targets = graph_.restore}, std::move(values),
        [this](const Status& status, const Fetches&) {
          if (!status.ok()) return fail_in_haste(status);
          run_.incarnations = incarnations();
          resume();
        },
        {run_.era, kRestore});
  }

  void read_model(UniqueFunction<void(const Model&)> done) {
    run({.fetches = graph_.variables}, {},
        [this, done = std::move(done)](const Status& status, const Fetches& values) mutable {
          if (!status.ok()) return fail_in_haste(status);
          Model model;
          for (size_t s = 0; s < kServers; ++s) {
            model.weight[s] = values[2 * s].item<double>();
            model.slot[s] = values[2 * s + 1].item<double>();
          }
          model.step = values[kReads - 1].item<int64_t>();
          done(model);
        });
  }

  void save(const Model& model) {
    run_.check(model, model.step, "what is saved");
    run_.saved = model;
  }

  // The model is there, perhaps with a step half applied. The era begins where it has not.
  void resume() {
    read_model([this](const Model& model) {
      if (run_.bugs.torn_save) save(model);
      const int64_t step = model.step;
      run({.feeds = {graph_.era}, .targets = {graph_.begin}}, {Tensor::scalar(run_.era)},
          [this, step](const Status& status, const Fetches&) {
            if (!status.ok()) return fail_in_haste(status);
            update(step);
            join();
          },
          {run_.era, kFirstStep + step});
    });
  }

  // What the chief's other thread does: one step after another.
  void update(int64_t step) {
    if (step >= kSteps) return;
    UpdateId id = {run_.era, kFirstStep + step};
    if (run_.bugs.forgotten_step) id = {};
    run(
        {.feeds = {graph_.era, graph_.step},
         .fetches = {graph_.updated},
         .targets = {graph_.update}},
        {Tensor::scalar(run_.era), Tensor::scalar(step)},
        [this, step](const Status& status, const Fetches& now) {
          if (!status.ok()) return fail_in_haste(status);
          if (now[0].item<int64_t>() != step + 1) {
            run_.fail(str_cat("step ", step, " led to step ", now[0].item<int64_t>()));
          }
          update(step + 1);
        },
        id);
  }

  void reached(const Fetches& now) override {
    const int64_t step = now[0].item<int64_t>();
    // Right after the session began, the chief may have given its gradient of this step already.
    const bool stepped = now.size() > 2;
    if (!stepped && step < kSteps) return next(step);
    read_model([this, step](const Model& model) {
      run_.check(model, step, "after a step");
      if (step % kSaveEvery == 0) save(model);
      if (step < kSteps || cluster_.time().now_ns() < kCalmAfterNs) return next(step);
      run_.done = true;
      close();
    });
  }
};

SimulationResult run_replicas(uint64_t seed, const SimulatedCluster::Bugs& bugs,
                              const SimulatedCluster::Chances& chances, ReplicasRun& run) {
  return drive(
      seed, bugs, chances, run, [&] { return run.done; },
      [&](SimulatedCluster& cluster, const Ref<SimulatedCluster::Process>& process) {
        Ref<SimulatedClient> client;
        if (process->task == task_name("worker", 0)) {
          client = make_ref<Chief>(cluster, process, run);
        } else if (process->task == task_name("worker", 1)) {
          client = make_ref<Replica>(cluster, process, 1, run);
        }
        return client;
      },
      /*in_haste=*/true);
}

// The models after each step when nothing goes wrong.
const std::vector<Model>& undisturbed() {
  static const auto* models = [] {
    ReplicasRun run;
    MR_CHECK(run_replicas(1, {}, {}, run).failure.empty());
    run.seen[0] = Model();
    return new std::vector<Model>(std::move(run.seen));
  }();
  return *models;
}

}  // namespace

SimulationResult simulate_replicas(uint64_t seed, const ReplicaBugs& bugs,
                                   const SimulatedCluster::Bugs& cluster_bugs) {
  ReplicasRun run;
  run.bugs = bugs;
  run.expected = &undisturbed();
  return run_replicas(seed, cluster_bugs, chances_of_kind(seed), run);
}

}  // namespace millrace
