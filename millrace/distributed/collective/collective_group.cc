#include "millrace/distributed/collective/collective_group.h"

#include <algorithm>

#include "millrace/distributed/collective/exchange.h"
#include "millrace/distributed/patience.h"

namespace millrace {
namespace {

// What peers may leave here before this member has joined.
constexpr size_t kMaxEarlyPulls = 1024;
constexpr int64_t kMilli = 1'000'000;

}  // namespace

CollectiveGroup::CollectiveGroup(Ref<CollectiveLinks> links, int64_t key, std::string member)
    : links_(std::move(links)), key_(key), member_(std::move(member)) {}

CollectiveGroup::~CollectiveGroup() = default;

Status CollectiveGroup::admit(const Exchange& exchange) {
  MR_TRY(stopped_);
  const Collectives::Request& request = exchange.request();
  if (!untold_.ok()) {
    told_steps_ = {request.step_id};
    return std::exchange(untold_, ok_status());
  }
  // What else a step that has failed begins must not pass for a part of the next.
  if (request.step_id != 0 && told_steps_.contains(request.step_id)) return last_reason_;
  if (!epoch_ && !joining_) {
    size_ = request.group_size;
    min_size_ = request.min_size;
    return ok_status();
  }
  if (request.group_size == size_ && request.min_size == min_size_) return ok_status();
  return invalid_argument(exchange.name(), ": expected a group of ", size_,
                          ", as other instances on ", member_, " say, got ", request.group_size);
}

void CollectiveGroup::start(const Ref<Exchange>& exchange, const Status& entered) {
  if (entered.ok()) return exchange->start();
  end_epoch(exchange->epoch()->view.epoch, entered, /*tell=*/true);
}

void CollectiveGroup::begin(const Ref<Exchange>& exchange) {
  Status refused, entered;
  bool in_epoch = false, must_join = false;
  {
    MutexLock lock(mu_);
    if (exchange->over()) return;
    refused = admit(*exchange);
    if (refused.ok() && epoch_) {
      in_epoch = true;
      entered = epoch_->enter(exchange);
    } else if (refused.ok()) {
      waiting_.push_back(exchange);
      must_join = !std::exchange(joining_, true);
      if (must_join) {
        ++attempt_;
        retries_ = 0;
        join_over_ = make_ref<CancellationToken>();
      }
    }
  }
  if (!refused.ok()) return exchange->end(refused);
  if (in_epoch) return start(exchange, entered);
  if (must_join) join();
}

void CollectiveGroup::join() {
  JoinGroupRequest request;
  Ref<CancellationToken> over;
  {
    MutexLock lock(mu_);
    if (!joining_) return;
    request = {.group_key = key_,
               .group_size = size_,
               .min_size = min_size_,
               .member = member_,
               .incarnation = links_->incarnation(),
               .attempt = attempt_,
               .last_number = last_number_};
    over = join_over_;
  }
  const int64_t attempt = request.attempt;
  links_->join(std::move(request), std::move(over),
               [self = Ref<CollectiveGroup>(this), attempt](Result<GroupView> view) {
                 self->joined(attempt, std::move(view));
               });
}

void CollectiveGroup::join_later() {
  int64_t delay_ms = lost_after_ms() / 4;
  MutexLock lock(mu_);
  if (!joining_) return;
  if (retries_ < kMaxRepeats) delay_ms = repeat_after_ms(lost_after_ms(), retries_++);
  join_ticket_ = links_->timer().schedule(delay_ms * kMilli,
                                          [self = Ref<CollectiveGroup>(this), attempt = attempt_] {
                                            {
                                              MutexLock due(self->mu_);
                                              if (self->attempt_ != attempt) return;
                                              self->join_ticket_ = 0;
                                            }
                                            self->join();
                                          });
}

void CollectiveGroup::stop_joining() {
  joining_ = false;
  // What the timer has holds the group, and with it the task.
  if (join_ticket_ != 0) links_->timer().remove(std::exchange(join_ticket_, 0));
}

void CollectiveGroup::joined(int64_t attempt, Result<GroupView> view) {
  std::vector<Ref<Exchange>> exchanges;
  std::vector<Status> entered;
  std::vector<ChunkPull> early;
  Status failed, over;
  {
    MutexLock lock(mu_);
    if (!joining_ || attempt != attempt_) return;
    if (view.ok() && view->epoch == early_end_) over = early_reason_;
    if (view.ok()) {
      const std::vector<std::string>& members = view->members;
      const auto own = std::find(members.begin(), members.end(), member_);
      if (own == members.end()) {
        failed = internal("group ", key_, " has formed without ", member_, ", which has joined it");
      } else {
        last_number_ = view->number;
        epoch_ = make_ref<CollectiveEpoch>(key_, *view, static_cast<int>(own - members.begin()));
      }
    } else if (view.status().code() != Code::kUnavailable || join_over_->cancelled() ||
               !stopped_.ok()) {
      failed = view.status().with_prefix(str_cat("group ", key_));
    }
    if (epoch_ || !failed.ok()) {
      stop_joining();
      exchanges.swap(waiting_);
      early = take_early();
    }
    if (epoch_) {
      for (const Ref<Exchange>& exchange : exchanges) entered.push_back(epoch_->enter(exchange));
    }
  }
  if (exchanges.empty() && failed.ok()) return join_later();
  if (!over.ok()) end_epoch(view->epoch, over, /*tell=*/false);
  for (size_t i = 0; i < exchanges.size(); ++i) {
    failed.ok() ? start(exchanges[i], entered[i]) : exchanges[i]->end(failed);
  }
  for (ChunkPull& pull : early) {
    recv_chunk(std::move(pull.request), nullptr,
               [call = pull.call](Result<Tensor> value) { call->answer(std::move(value)); });
  }
}

Status CollectiveGroup::no_such_epoch(const RecvChunkRequest& request) const {
  if (request.epoch == last_epoch_) return last_reason_;
  return aborted("group ", key_, ": ", task_of_member(member_), " is not in the epoch that rank ",
                 request.asker, " is in: it was started again, or has left");
}

void CollectiveGroup::recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                                 CollectiveLinks::ChunkDone done) {
  const Ref<ChunkCall> call = make_ref<ChunkCall>(std::move(cancel), std::move(done));
  CollectiveEpoch::Answer answer;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) {
      answer.value = stopped_;
    } else if (epoch_ && epoch_->view.epoch == request.epoch) {
      answer = epoch_->ask(request, call);
    } else if (joining_ && request.epoch != last_epoch_ && early_.size() < kMaxEarlyPulls) {
      // The others may know of the epoch already that this one is about to hear of.
      answer.waits = true;
      wait_early(request, call);
    } else {
      answer.value = no_such_epoch(request);
    }
  }
  if (!answer.disagree.ok()) end_epoch(request.epoch, answer.disagree, /*tell=*/true);
  if (answer.instead) answer.instead->answer(aborted("it was asked for again"));
  if (!answer.waits) return call->answer(std::move(answer.value));
  call->watch([self = Ref<CollectiveGroup>(this), request = std::move(request),
               call](const Status& reason) { self->drop_pull(request, call, reason); });
}

void CollectiveGroup::wait_early(const RecvChunkRequest& request, const Ref<ChunkCall>& call) {
  const uint64_t ticket = links_->timer().schedule(
      lost_after_ms() * kMilli, [self = Ref<CollectiveGroup>(this), request, call] {
        Status status;
        {
          MutexLock lock(self->mu_);
          if (!self->take_early(call)) return;
          status = self->no_such_epoch(request);
        }
        call->answer(status);
      });
  early_.push_back({{request, call}, ticket});
}

bool CollectiveGroup::take_early(const Ref<ChunkCall>& call) {
  const auto it = std::find_if(early_.begin(), early_.end(),
                               [&](const EarlyPull& early) { return early.pull.call == call; });
  if (it == early_.end()) return false;
  links_->timer().remove(it->ticket);
  early_.erase(it);
  return true;
}

std::vector<ChunkPull> CollectiveGroup::take_early() {
  std::vector<ChunkPull> out;
  for (EarlyPull& early : early_) {
    links_->timer().remove(early.ticket);
    out.push_back(std::move(early.pull));
  }
  early_.clear();
  return out;
}

void CollectiveGroup::drop_pull(const RecvChunkRequest& request, const Ref<ChunkCall>& call,
                                const Status& reason) {
  Status ended;
  {
    MutexLock lock(mu_);
    take_early(call);
    if (epoch_ && epoch_->view.epoch == request.epoch) {
      epoch_->drop(request, call);
      ended = reason.code() == Code::kInvalidArgument || reason.code() == Code::kAborted
                  ? reason
                  : aborted("instance ", request.instance_key, " of group ", key_, ": ",
                            epoch_->who(epoch_->rank), " has lost ", epoch_->who(request.asker),
                            ", which waited for it: ", reason.message());
    }
  }
  call->answer_taken(reason);
  if (!ended.ok()) end_epoch(request.epoch, ended, /*tell=*/true);
}

void CollectiveGroup::publish(const Exchange& exchange, Slot slot, Tensor value, int readers) {
  std::vector<Ref<ChunkCall>> calls;
  {
    MutexLock lock(mu_);
    if (exchange.epoch() != epoch_) return;
    calls = epoch_->publish(exchange, slot, value, readers);
  }
  for (const Ref<ChunkCall>& call : calls) call->answer(value);
}

void CollectiveGroup::finished(const Exchange& exchange) {
  std::vector<Ref<ChunkCall>> left;
  {
    MutexLock lock(mu_);
    if (exchange.epoch() != epoch_) return;
    left = epoch_->finish(exchange);
  }
  for (const Ref<ChunkCall>& call : left) {
    call->answer(invalid_argument(exchange.name(), " has no such chunk"));
  }
}

void CollectiveGroup::end_epoch(uint64_t epoch, const Status& reason, bool tell) {
  Ref<CollectiveEpoch> ended;
  std::vector<Ref<ChunkCall>> pulls;
  std::vector<Ref<Exchange>> exchanges;
  {
    MutexLock lock(mu_);
    if (joining_) {
      early_end_ = epoch;
      early_reason_ = reason;
    }
    if (!epoch_ || epoch_->view.epoch != epoch) return;
    ended = std::move(epoch_);
    last_epoch_ = epoch;
    last_reason_ = reason;
    exchanges = ended->under_way();
    pulls = ended->clear();
    told_steps_.clear();
    for (const Ref<Exchange>& exchange : exchanges) told_steps_.insert(exchange->request().step_id);
    if (exchanges.empty()) untold_ = reason;
  }
  // The others first: who waits here may end the process.
  if (tell) tell_others(*ended, reason);
  for (const Ref<ChunkCall>& call : pulls) call->answer(reason);
  ended->over->cancel(reason);
  for (const Ref<Exchange>& exchange : exchanges) exchange->end(reason);
}

void CollectiveGroup::tell_others(const CollectiveEpoch& epoch, const Status& reason) {
  std::set<std::string> tasks = {links_->leader()};
  for (const std::string& member : epoch.view.members) tasks.insert(task_of_member(member));
  for (const std::string& task : tasks) links_->end_group(task, {key_, epoch.view.epoch, reason});
}

void CollectiveGroup::leave(const Exchange& exchange, const Status& to_others) {
  Ref<CancellationToken> join_over;
  uint64_t epoch = 0;
  {
    MutexLock lock(mu_);
    const auto it = std::find_if(waiting_.begin(), waiting_.end(),
                                 [&](const auto& other) { return other.get() == &exchange; });
    if (it != waiting_.end()) {
      waiting_.erase(it);
      if (waiting_.empty()) {
        stop_joining();
        join_over = std::move(join_over_);
      }
    } else if (epoch_ && exchange.entered() && exchange.epoch() == epoch_) {
      epoch = epoch_->view.epoch;
    }
  }
  if (join_over) join_over->cancel(to_others);
  if (epoch != 0) end_epoch(epoch, to_others, /*tell=*/true);
}

bool CollectiveGroup::expire(const Exchange& exchange, const Status& reason) {
  Ref<CancellationToken> join_over;
  {
    MutexLock lock(mu_);
    // The leader's answer tells who has come.
    if (waiting_.size() == 1 && waiting_[0].get() == &exchange) join_over = join_over_;
  }
  if (join_over) join_over->cancel(reason);
  return join_over != nullptr;
}

void CollectiveGroup::shut_down(const Status& reason) {
  uint64_t epoch = 0;
  Ref<CancellationToken> join_over;
  std::vector<Ref<Exchange>> exchanges;
  std::vector<ChunkPull> early;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    stop_joining();
    join_over = std::move(join_over_);
    exchanges.swap(waiting_);
    early = take_early();
    if (epoch_) epoch = epoch_->view.epoch;
  }
  if (join_over) join_over->cancel(reason);
  for (const Ref<Exchange>& exchange : exchanges) exchange->end(reason);
  for (const ChunkPull& pull : early) pull.call->answer(reason);
  if (epoch != 0) end_epoch(epoch, reason, /*tell=*/false);
}

std::string CollectiveGroup::task_of(uint64_t epoch, int64_t rank) const {
  MutexLock lock(mu_);
  if (!epoch_ || epoch_->view.epoch != epoch || rank < 0 || rank >= epoch_->size()) return "";
  return task_of_member(epoch_->view.members[static_cast<size_t>(rank)]);
}

std::vector<std::pair<int64_t, std::string>> CollectiveGroup::waits() const {
  std::vector<Ref<Exchange>> exchanges;
  {
    MutexLock lock(mu_);
    exchanges = waiting_;
    if (epoch_) {
      const std::vector<Ref<Exchange>> begun = epoch_->under_way();
      exchanges.insert(exchanges.end(), begun.begin(), begun.end());
    }
  }
  std::vector<std::pair<int64_t, std::string>> out;
  for (const Ref<Exchange>& exchange : exchanges) {
    out.emplace_back(exchange->request().step_id, exchange->waits());
  }
  return out;
}

}  // namespace millrace
