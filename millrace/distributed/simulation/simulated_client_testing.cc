#include "millrace/distributed/simulation/simulated_client_testing.h"

#include "millrace/kernel/step.h"
#include "millrace/runtime/place.h"

namespace millrace {
namespace {

constexpr int64_t kMilli = 1'000'000;

}  // namespace

SimulatedClient::SimulatedClient(SimulatedCluster& cluster, Ref<SimulatedCluster::Process> process,
                                 Ref<Graph> graph)
    : cluster_(cluster), process_(std::move(process)), graph_(std::move(graph)) {}

void SimulatedClient::begin(bool in_haste) {
  in_haste_ = in_haste;
  // A lease, and what a message may be late: then tasks know nothing of who was here before.
  const int64_t lost = lost_after_ms();
  const int64_t wait = process_->first || in_haste ? 0 : lease_ms_for(lost) + 2 * lost;
  state_ = "waits for the end of leases";
  process_->timer->schedule(wait * kMilli, [self = Ref<SimulatedClient>(this)] { self->open(); });
}

void SimulatedClient::end() {
  ended_ = true;
  // For the sake of what is freed so: nobody hears of it.
  cancel_steps("the process has ended");
  ready_.clear();
  view_ = nullptr;
  master_ = nullptr;
}

void SimulatedClient::cancel_steps(std::string_view reason) {
  const std::map<int64_t, Ref<Step>> steps = std::move(steps_);
  steps_.clear();
  for (const auto& [number, step] : steps) step->cancel->cancel(cancelled(reason));
}

void SimulatedClient::open() {
  state_ = "asks for devices";
  MasterOptions options;
  options.task = process_->task;
  options.timer = process_->timer;
  options.report_after_ms = 0;
  options.identity = cluster_.time().random() | 1;
  session_ = str_cat(options.identity, "_s");
  start_master(
      process_->ways, options, [self = Ref<SimulatedClient>(this)](Result<Ref<Master>> master) {
        if (self->ended_) return;
        if (!master.ok()) {
          return self->in_haste_ ? self->fail_in_haste(master.status())
                                 : self->fail(master.status());
        }
        self->master_ = *std::move(master);
        self->view_ =
            std::make_unique<SessionGraph>(self->graph_, self->master_->devices(), PlaceOptions());
        MR_CHECK_OK(self->view_->extend());
        self->go_on();
      });
}

void SimulatedClient::close() {
  state_ = "is done";
  session_.clear();
  cancel_steps("the session is closed");
  ready_.clear();
  view_ = nullptr;
  if (master_) master_->close("s");
  master_ = nullptr;
}

void SimulatedClient::fail(const Status& status) {
  if (ended_) return;
  const std::string session = session_;
  close();
  state_ = str_cat("ends session ", session, " after ", status.to_string());
  to_retire_ = static_cast<int>(process_->ways->tasks().size());
  for (const std::string& task : process_->ways->tasks()) retire(task, session);
}

void SimulatedClient::fail_in_haste(const Status& status) {
  if (ended_) return;
  close();
  state_ = str_cat("makes another session after ", status.to_string());
  process_->timer->schedule(50 * kMilli, [self = Ref<SimulatedClient>(this)] {
    if (!self->ended_) self->open();
  });
}

void SimulatedClient::retire(const std::string& task, const std::string& session) {
  if (ended_) return;
  process_->ways->find(task).value()->delete_session(
      session, [self = Ref<SimulatedClient>(this), task, session](const Status& status) {
        if (self->ended_) return;
        if (!status.ok()) {
          self->process_->timer->schedule(100 * kMilli,
                                          [self, task, session] { self->retire(task, session); });
        } else if (--self->to_retire_ == 0) {
          self->open();
        }
      });
}

void SimulatedClient::pause(int64_t ms) {
  pause(ms, [this] { go_on(); });
}

void SimulatedClient::pause(int64_t ms, UniqueFunction<void()> what) {
  state_ = "pauses";
  process_->timer->schedule(ms * kMilli, [self = Ref<SimulatedClient>(this), session = session_,
                                          what = std::move(what)]() mutable {
    if (!self->ended_ && self->session_ == session) what();
  });
}

uint64_t SimulatedClient::incarnation(const std::string& task) const {
  for (const Device::Info& info : master_->devices().devices()) {
    if (info.name.task_name() == task) return info.incarnation;
  }
  return 0;
}

void SimulatedClient::make_ready(const Signature& signature,
                                 UniqueFunction<void(Result<Ref<Executable>>)> done) {
  const auto it = ready_.find(signature.key());
  if (it != ready_.end()) return done(it->second);
  Subgraph pruned = view_->prune(signature).value();
  MR_CHECK_OK(place(pruned, master_->devices(), PlaceOptions()));
  place_control_flow(pruned);
  state_ = "registers graphs";
  master_->prepare_async(
      pruned, signature, "s",
      [self = Ref<SimulatedClient>(this), master = master_, key = signature.key(),
       done = std::move(done)](Result<Ref<Executable>> executable) mutable {
        if (self->ended_ || self->master_ != master) return;
        if (executable.ok()) self->ready_[key] = *executable;
        done(std::move(executable));
      });
}

void SimulatedClient::run(const Signature& signature, std::vector<Tensor> feeds,
                          UniqueFunction<void(const Status&, Fetches)> done, UpdateId update) {
  make_ready(signature, [self = Ref<SimulatedClient>(this), count = signature.fetches.size(),
                         update, feeds = std::move(feeds),
                         done = std::move(done)](Result<Ref<Executable>> executable) mutable {
    if (!executable.ok()) return done(executable.status(), {});
    const Ref<Step> step = Step::make_shared(++self->runs_);
    step->pool = &self->cluster_.time().pool();
    step->max_threads = 1;
    step->hold_feeds(std::move(feeds));
    step->fetches.resize(count);
    step->rendezvous->update = update;
    self->state_ = "runs";
    self->steps_.emplace(step->id, step);
    (*executable)
        ->run_async(step, [self, session = self->session_,
                           done = std::move(done)](Step& ended) mutable {
          if (self->ended_ || self->session_ != session) return;
          self->steps_.erase(ended.id);
          const Code code = ended.status().code();
          if (code != Code::kOk) ++self->failed_runs_;
          if (code != Code::kOk && code != Code::kFailedPrecondition && code != Code::kNotFound) {
            ++self->lost_runs_;
          }
          // From a fresh stack, as a caller who was woken.
          self->process_->timer->schedule(
              0, [self, session, status = ended.status(), fetches = std::move(ended.fetches),
                  done = std::move(done)]() mutable {
                if (self->session_ == session) done(status, std::move(fetches));
              });
        });
  });
}

}  // namespace millrace
