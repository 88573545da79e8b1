#include "millrace/distributed/step_rendezvous.h"

#include "millrace/distributed/patience.h"

namespace millrace {
namespace {

constexpr size_t kKeptValues = 256;
// A reference to a larger one, a variable's value perhaps, would cost a copy at its next update.
constexpr size_t kKeptBytes = size_t{16} << 10;

}  // namespace

Device* TaskContext::find_device(std::string_view full_name) const {
  for (const Ref<Device>& device : devices) {
    if (device->name() == full_name) return device.get();
  }
  Result<DeviceName> parsed = DeviceName::parse(full_name);
  if (!parsed.ok()) return nullptr;
  for (const Ref<Device>& device : devices) {
    if (device->info().name == *parsed) return device.get();
  }
  return nullptr;
}

// A receive that a peer was asked for. It ends once: by the answer, by the caller's cancellation or
// by an abort, whichever takes `done` first. So a peer that never answers holds up nobody.
struct StepRendezvous::RemoteRecv : RefCounted {
  Ref<StepRendezvous> owner;
  std::string key;
  std::string task;
  uint64_t number = 0;                                          // in remote_; 0: not there yet
  Ref<CancellationToken> call = make_ref<CancellationToken>();  // ends the question to the peer
  Ref<CancellationToken> cancel;                                // the caller's; null: none
  // Of the questions, of which there is one at a time.
  int repeated = 0;
  Status lost;  // what became of the first connection

  Mutex mu;
  uint64_t ticket MR_GUARDED_BY(mu) = 0;
  Done done MR_GUARDED_BY(mu);

  bool over() {
    MutexLock lock(mu);
    return !done;
  }

  void finish(Status status, Value value, bool from_peer) {
    Done callback;
    uint64_t taken_ticket = 0;
    {
      MutexLock lock(mu);
      if (!done) return;
      callback = std::move(done);
      taken_ticket = ticket;
    }
    owner->forget(*this);
    if (from_peer && !status.ok()) owner->note_outside();
    if (taken_ticket != 0) cancel->remove(taken_ticket);
    if (!from_peer) call->cancel(status);
    callback(std::move(status), std::move(value));
  }
};

StepRendezvous::StepRendezvous(int64_t step_id, Ref<const TaskContext> task)
    : step_id_(step_id), task_(std::move(task)), here_(make_local_rendezvous()) {}

Status StepRendezvous::send(std::string_view key, Value value) {
  return here_->send(key, std::move(value));
}

void StepRendezvous::recv(std::string_view key, Ref<CancellationToken> cancel, Done done) {
  std::string_view sender = key.substr(0, key.find(';'));
  if (task_->find_device(sender) != nullptr || is_given(key)) {
    return here_->recv(key, std::move(cancel), std::move(done));
  }
  Result<RendezvousKey> parsed = RendezvousKey::parse(key);
  if (!parsed.ok()) return done(parsed.status(), Value());
  Result<DeviceName> device = DeviceName::parse(sender);
  if (device.ok() && !device->complete()) {
    device = invalid_argument("rendezvous key \"", key, "\": expected the sender's full name");
  }
  if (!device.ok()) return done(device.status(), Value());
  recv_remote(device->task_name(), key, std::move(cancel), std::move(done));
}

void StepRendezvous::expect(std::vector<std::string> given) {
  MutexLock lock(mu_);
  for (std::string& key : given) given_.insert(std::move(key));
}

Status StepRendezvous::give(std::string_view key, Value value) {
  {
    MutexLock lock(mu_);
    if (!came_.insert(std::string(key)).second) return aborted_;
  }
  return here_->send(key, std::move(value));
}

bool StepRendezvous::is_given(std::string_view key) const {
  MutexLock lock(mu_);
  return !given_.empty() && given_.contains(std::string(key));
}

void StepRendezvous::recv_here(std::string_view key, Ref<CancellationToken> cancel, Done done) {
  const Ref<CancellationToken> mine =
      cancel ? CancellationToken::make_child(std::move(cancel)) : make_ref<CancellationToken>();
  Ref<CancellationToken> before;
  Value again;
  {
    MutexLock lock(mu_);
    const auto it = handed_out_.find(std::string(key));
    if (it != handed_out_.end()) {
      again = it->second;
    } else {
      before = std::exchange(asked_[std::string(key)], mine);
    }
  }
  if (!again.empty()) return done(ok_status(), std::move(again));
  if (before) before->cancel(aborted("rendezvous key ", key, " was asked for again"));
  here_->recv(key, mine,
              [self = Ref<StepRendezvous>(this), key = std::string(key), asker = mine.get(),
               done = std::move(done)](Status status, Value value) mutable {
                self->hand_out(key, asker, status, value);
                done(std::move(status), std::move(value));
              });
}

void StepRendezvous::hand_out(const std::string& key, const CancellationToken* asker,
                              const Status& status, const Value& value) {
  Ref<CancellationToken> ended;  // after the lock
  Value dropped;
  MutexLock lock(mu_);
  const auto it = asked_.find(key);
  if (it != asked_.end() && it->second.get() == asker) {
    ended = std::move(it->second);
    asked_.erase(it);
  }
  const bool small = value.dead() || value.tensor.bytes() <= kKeptBytes;
  if (!status.ok() || !small || !aborted_.ok()) return;
  handed_out_.emplace(key, value);
  handed_out_order_.push_back(key);
  if (handed_out_order_.size() <= kKeptValues) return;
  const auto oldest = handed_out_.find(handed_out_order_.front());
  dropped = std::move(oldest->second);
  handed_out_.erase(oldest);
  handed_out_order_.pop_front();
}

void StepRendezvous::recv_remote(const std::string& task, std::string_view key,
                                 Ref<CancellationToken> cancel, Done done) {
  Result<Ref<WorkerInterface>> peer = task_->peers->find(task);
  if (!peer.ok()) return done(peer.status(), Value());
  Ref<RemoteRecv> recv = make_ref<RemoteRecv>();
  recv->owner = Ref<StepRendezvous>(this);
  recv->key = std::string(key);
  recv->task = task;
  recv->cancel = cancel;
  {
    MutexLock lock(recv->mu);
    recv->done = std::move(done);
  }
  if (cancel) {
    // By bare pointer: the receive holds the token, and takes the callback back when it ends.
    uint64_t ticket = cancel->on_cancel([recv, token = cancel.get()] {
      recv->finish(token->status(), Value(), /*from_peer=*/false);
    });
    if (ticket == 0) return recv->finish(cancel->status(), Value(), /*from_peer=*/false);
    MutexLock lock(recv->mu);
    recv->ticket = ticket;
  }
  Status ended;
  {
    MutexLock lock(mu_);
    ended = aborted_;
    if (ended.ok()) {
      recv->number = ++last_remote_;
      remote_.emplace(recv->number, recv);
    }
  }
  if (!ended.ok()) return recv->finish(std::move(ended), Value(), /*from_peer=*/false);
  // A cancellation may have come before the receive was in the table.
  if (recv->over()) return forget(*recv);
  ask(*peer, recv);
}

void StepRendezvous::ask(const Ref<WorkerInterface>& peer, const Ref<RemoteRecv>& recv) {
  peer->recv_tensor({step_id_, recv->key}, recv->call, [peer, recv](Status status, Value value) {
    const TaskContext& task = *recv->owner->task_;
    task.peers->report(recv->task, status);
    const bool lost =
        status.code() == Code::kUnavailable && !is_silent_peer(status) && peer->needs_lease();
    if (lost && recv->repeated < kMaxRepeats && task.timer && !recv->over()) {
      if (recv->lost.ok()) recv->lost = status;
      const int64_t pause = repeat_after_ms(lost_after_ms(), recv->repeated++);
      task.timer->schedule(pause * 1'000'000, [peer, recv] {
        if (!recv->over()) recv->owner->ask(peer, recv);
      });
      return;
    }
    // The value was handed out, or the task knows nothing of the step any more.
    if (!recv->lost.ok() && (lost || status.code() == Code::kAborted)) status = recv->lost;
    if (!status.ok()) {
      status = status.with_prefix(str_cat("waiting for ", recv->key, " from ", recv->task));
    } else if (task.counters) {
      task.counters->with_task(recv->task).received(value.tensor.bytes());
    }
    recv->finish(std::move(status), std::move(value), /*from_peer=*/true);
  });
}

void StepRendezvous::forget(const RemoteRecv& recv) {
  Ref<RemoteRecv> dropped;
  MutexLock lock(mu_);
  auto it = remote_.find(recv.number);
  if (it == remote_.end()) return;
  dropped = std::move(it->second);
  remote_.erase(it);
}

void StepRendezvous::note_outside() {
  MutexLock lock(mu_);
  if (aborted_.ok()) outside_ = true;
}

void StepRendezvous::abort(Status reason) {
  std::map<uint64_t, Ref<RemoteRecv>> remote;
  std::unordered_map<std::string, Value> handed_out;
  {
    MutexLock lock(mu_);
    if (!aborted_.ok()) return;
    aborted_ = reason;
    remote.swap(remote_);
    handed_out.swap(handed_out_);
    handed_out_order_.clear();
  }
  here_->abort(reason);
  for (auto& [number, recv] : remote) recv->finish(reason, Value(), /*from_peer=*/false);
}

void StepRendezvous::abort_from_outside(Status reason) {
  note_outside();
  abort(std::move(reason));
}

bool StepRendezvous::ended_from_outside() const {
  MutexLock lock(mu_);
  return outside_;
}

std::vector<std::string> StepRendezvous::waiting() const {
  std::vector<std::string> out = here_->waiting();
  MutexLock lock(mu_);
  for (const auto& [number, recv] : remote_)
    out.push_back(str_cat(recv->key, " from ", recv->task));
  return out;
}

}  // namespace millrace
