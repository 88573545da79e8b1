#include "millrace/distributed/simulation/simulated_members_testing.h"

#include <algorithm>
#include <array>

namespace millrace {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kCalmAfter = 20 * kSecond;
constexpr int64_t kDoneAfter = 150 * kSecond;
constexpr int64_t kForgottenAfter = 10 * kSecond;
constexpr int kSteps = 6;
constexpr int kMembers = 4;
constexpr int64_t kElements = 9;  // some more than members, so that a ring has parts of all sizes
constexpr int64_t kModulus = 65'521;
constexpr int64_t kEndMs = 30'000;

enum Instance : int64_t { kStates = 1, kState, kGradient, kEnd };

using State = std::array<int64_t, kElements>;

int64_t gradient(int64_t member, int64_t step, int64_t i) {
  return (member + 1) * 1000 + step * 10 + i;
}

// The state after so many steps.
State state_after(int64_t steps) {
  State state{};
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t i = 0; i < kElements; ++i) {
      int64_t& value = state[static_cast<size_t>(i)];
      for (int64_t m = 0; m < kMembers; ++m) value += gradient(m, step, i);
      value = value * 31 % kModulus;
    }
  }
  return state;
}

Tensor vector_of(std::span<const int64_t> values) { return Tensor::vector<int64_t>(values); }

struct MembersRun {
  std::string failure;
  std::map<std::string, bool> done;  // by task
  int runs = 0, failed_runs = 0;

  void fail(std::string what) {
    if (failure.empty()) failure = std::move(what);
  }
  bool all_done() const {
    return done.size() == kMembers &&
           std::all_of(done.begin(), done.end(), [](const auto& task) { return task.second; });
  }
  bool some_done() const {
    return std::any_of(done.begin(), done.end(), [](const auto& task) { return task.second; });
  }
};

// What a program with BroadcastVariablesHook does, without a thread.
class Member final : public RefCounted {
 public:
  Member(SimulatedCluster& cluster, Ref<SimulatedCluster::Process> process, int number,
         MembersRun& run)
      : cluster_(cluster), process_(std::move(process)), number_(number), run_(run) {}

  void begin() { catch_up(); }
  void end() { over_ = true; }
  // It was started again when the others had come to their end: nobody will ever come.
  bool abandoned() const {
    const auto done = std::count_if(run_.done.begin(), run_.done.end(),
                                    [](const auto& task) { return task.second; });
    return !process_->first && done == kMembers - 1 && !run_.done[process_->task];
  }
  void give_up() {
    finish();
    over_ = true;
    cancel_->cancel(cancelled("nobody comes"));
  }
  const char* doing() const { return doing_; }

 private:
  using Use = UniqueFunction<void(const Tensor&)>;

  Collectives::Request request(const char* doing, Instance instance) {
    doing_ = doing;
    ++run_.runs;
    return {.op = "Simulated",
            .group_key = 1,
            .group_size = kMembers,
            .instance_key = instance,
            .device = process_->device->name(),
            .timeout_ms = ending_ ? kEndMs : 0,
            .hint = step_ % 2 == 0 ? Collectives::Hint::kRing : Collectives::Hint::kTree,
            .cancel = cancel_};
  }

  // Goes on from a fresh stack, as a caller who was woken; after an error by catching up.
  Collectives::Done then(Use use) {
    return [self = Ref<Member>(this), use = std::move(use)](Result<Tensor> result) mutable {
      if (self->over_) return;
      self->process_->timer->schedule(
          0, [self, use = std::move(use), result = std::move(result)]() mutable {
            if (result.ok()) return use(*result);
            ++self->run_.failed_runs;
            self->failed(result.status());
          });
    };
  }

  void failed(const Status& status) {
    if (status.code() == Code::kDeadlineExceeded && ending_) return finish();
    if (status.code() != Code::kAborted) {
      return run_.fail(str_cat(process_->task, " got ", status.to_string()));
    }
    catch_up();
  }

  Collectives& collectives() { return *process_->worker->collectives(); }

  void catch_up() {
    const int64_t own[] = {step_, ending_ ? 1 : 0, number_};
    collectives().gather(request("gathers states", kStates),
                         vector_of(own).reshaped({1, 3}).value(),
                         then([this](const Tensor& states) { take_states(states); }));
  }

  void take_states(const Tensor& states) {
    const std::span<const int64_t> all = states.data<int64_t>();
    if (states.shape() != Shape({kMembers, 3})) {
      return run_.fail(str_cat("states of shape ", states.shape()));
    }
    size_t first = 0;
    for (size_t m = 0; m < kMembers; ++m) {
      if (all[m * 3 + 2] != static_cast<int64_t>(m)) run_.fail("states are not by rank");
      if (all[m * 3] > all[first * 3]) first = m;
      others_end_ = others_end_ || all[m * 3 + 1] != 0;
    }
    const int64_t step = all[first * 3];
    Use use = [this, step](const Tensor& state) {
      step_ = step;
      check(state.data<int64_t>());
      others_end_ ? finish_together() : pause();
    };
    if (static_cast<int64_t>(first) == number_) {
      return collectives().broadcast_send(request("sends its state", kState), vector_of(state_),
                                          then(std::move(use)));
    }
    collectives().broadcast_recv(request("receives a state", kState), DType::kInt64, {kElements},
                                 then(std::move(use)));
  }

  void check(std::span<const int64_t> state) {
    const State expected = state_after(step_);
    std::copy(state.begin(), state.end(), state_.begin());
    if (state_ != expected) {
      run_.fail(str_cat(process_->task, " has ", state_[0], " after step ", step_, ", expected ",
                        expected[0]));
    }
  }

  void pause() {
    doing_ = "pauses";
    process_->timer->schedule(cluster_.time().between(0, 1500) * 1'000'000,
                              [self = Ref<Member>(this)] { self->step(); });
  }

  void step() {
    if (step_ == kSteps) return finish_together();
    std::array<int64_t, kElements> own;
    for (int64_t i = 0; i < kElements; ++i) {
      own[static_cast<size_t>(i)] = gradient(number_, step_, i);
    }
    collectives().reduce(request("sums gradients", kGradient), vector_of(own),
                         Collectives::Merge::kAdd, Collectives::Final::kId,
                         then([this](const Tensor& sum) {
                           State next = state_;
                           for (size_t i = 0; i < next.size(); ++i) {
                             next[i] = (next[i] + sum.data<int64_t>()[i]) * 31 % kModulus;
                           }
                           ++step_;
                           check(next);
                           pause();
                         }));
  }

  void finish_together() {
    ending_ = true;
    collectives().reduce(request("waits for the others to end", kEnd), Tensor::scalar(int64_t{0}),
                         Collectives::Merge::kMax, Collectives::Final::kId,
                         then([this](const Tensor&) { finish(); }));
  }

  void finish() {
    doing_ = "is done";
    run_.done[process_->task] = true;
  }

  SimulatedCluster& cluster_;
  const Ref<SimulatedCluster::Process> process_;
  const int64_t number_;
  MembersRun& run_;
  const char* doing_ = "has not begun";
  const Ref<CancellationToken> cancel_ = make_ref<CancellationToken>();
  bool over_ = false;
  bool ending_ = false, others_end_ = false;
  int64_t step_ = 0;
  State state_{};
};

SimulatedCluster::Chances chances_of(uint64_t seed) {
  SimulatedCluster::Chances chances;
  const uint64_t kind = seed % 6;
  if (kind == 1 || kind == 5) chances.reset = 0.01;
  if (kind == 2 || kind == 5) chances.silence = 0.005;
  if (kind == 3 || kind == 5) chances.cut = 0.003;
  if (kind == 4 || kind == 5) chances.crash = 0.003;
  return chances;
}

}  // namespace

SimulationResult simulate_members(uint64_t seed, const SimulatedCluster::Bugs& bugs) {
  MembersRun run;
  std::map<std::string, Ref<Member>> members;
  SimulatedCluster cluster(seed, chances_of(seed), bugs);
  cluster.on_start = [&](const Ref<SimulatedCluster::Process>& process) {
    const auto& tasks = SimulatedCluster::tasks();
    const auto number = std::find(tasks.begin(), tasks.end(), process->task) - tasks.begin();
    // Where others have come to their end and left, one that is started again finds nobody.
    if (run.some_done()) {
      run.done[process->task] = true;
      return;
    }
    members[process->task] = make_ref<Member>(cluster, process, static_cast<int>(number), run);
    members[process->task]->begin();
  };
  cluster.on_end = [&](const Ref<SimulatedCluster::Process>& process) {
    const auto it = members.find(process->task);
    if (it == members.end()) return;
    it->second->end();
    members.erase(it);
  };
  cluster.start_all();
  SimulatedTime& time = cluster.time();
  time.schedule(kCalmAfter, [&] { cluster.calm(); });
  const auto proceed = [&] { return run.failure.empty() && time.run_one(); };
  while (!run.all_done() && time.now_ns() < kDoneAfter && proceed()) {
    for (const auto& [task, member] : members) {
      if (member->abandoned()) member->give_up();
    }
  }
  if (!run.all_done()) {
    std::string waits = "nobody is done in time:";
    for (const auto& [task, member] : members) {
      waits += str_cat("\n  the member on ", task, " ", member->doing());
    }
    for (const std::string& call : cluster.network().waiting()) waits += str_cat("\n  ", call);
    run.fail(waits + cluster.leftovers());
  }
  cluster.calm();
  const int64_t until = time.now_ns() + kForgottenAfter;
  while (time.now_ns() < until && proceed()) continue;
  if (const std::string left = cluster.leftovers(); !left.empty()) {
    run.fail(str_cat("something is left:", left));
  }
  SimulationResult result;
  result.failure = run.failure;
  result.digest = time.digest();
  result.messages = cluster.network().messages();
  result.runs = run.runs;
  result.failed_runs = run.failed_runs;
  result.crashes = cluster.crashes();
  cluster.end_all();
  return result;
}

}  // namespace millrace
