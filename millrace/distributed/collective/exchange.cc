#include "millrace/distributed/collective/exchange.h"

#include <algorithm>
#include <memory>

#include "millrace/base/log.h"
#include "millrace/distributed/patience.h"

namespace millrace {
namespace {

constexpr int64_t kChunkBytes = 1 << 20;
// Chunks that were asked for and have not come.
constexpr int kInFlight = 8;
constexpr int64_t kMilli = 1'000'000;

}  // namespace

int64_t chunk_elements(DType dtype) {
  return std::max<int64_t>(1, kChunkBytes / static_cast<int64_t>(dtype_size(dtype)));
}

Exchange::Exchange(Ref<CollectiveGroup> group, Collectives::Request request, std::string what,
                   const Tensor& input, Collectives::Done done)
    : group_(std::move(group)),
      request_(std::move(request)),
      what_(std::move(what)),
      name_(str_cat(request_.op, " instance ", request_.instance_key, " of group ",
                    request_.group_key)),
      input_stays_(input.buffer()),
      call_(make_ref<WaitingCall<Result<Tensor>>>(request_.cancel, std::move(done))) {}

void Exchange::begin(const Ref<WaitWatch>& watch) {
  const Ref<Exchange> self(this);
  watch_ = watch;
  watch_ticket_ = watch->begin(self);
  if (request_.timeout_ms > 0) {
    deadline_ = group_->links().timer().schedule(request_.timeout_ms * kMilli, [self] {
      const Status late =
          deadline_exceeded(self->waits(), "; not done in ", self->request_.timeout_ms, " ms");
      if (!self->group_->expire(*self, late)) self->fail(late);
    });
  }
  group_->begin(self);
  call_->watch([self](const Status& reason) {
    self->over_ = true;
    self->settle();
    self->group_->leave(*self, aborted(self->name_, ": ", task_of_member(self->group_->member()),
                                       " has left it: ", reason.message()));
    self->call_->answer_taken(reason);
  });
}

void Exchange::settle() {
  if (const uint64_t ticket = watch_ticket_.exchange(0); ticket != 0) watch_->end(ticket);
  if (const uint64_t ticket = deadline_.exchange(0); ticket != 0) {
    group_->links().timer().remove(ticket);
  }
  // What the timer has holds the exchange, and with it the task.
  std::set<uint64_t> repeats;
  {
    MutexLock lock(mu_);
    repeats.swap(repeats_);
  }
  for (const uint64_t ticket : repeats) group_->links().timer().remove(ticket);
}

void Exchange::answer(Result<Tensor> result) {
  over_ = true;
  settle();
  call_->answer(std::move(result));
}

void Exchange::end(const Status& reason) { answer(reason); }

void Exchange::fail(const Status& status) {
  if (!call_->take()) return;
  over_ = true;
  settle();
  const bool all = status.code() == Code::kInvalidArgument;
  group_->leave(*this, all ? status
                           : aborted(name_, ": ", task_of_member(group_->member()),
                                     " has failed: ", status.message()));
  call_->answer_taken(status);
}

void Exchange::finish(Tensor result) {
  group_->finished(*this);
  answer(std::move(result));
}

void Exchange::enter(Ref<CollectiveEpoch> epoch, int64_t sequence) {
  epoch_ = std::move(epoch);
  sequence_ = sequence;
  entered_ = true;
}

void Exchange::start() {
  later([this] {
    if (over_) return;
    if (Status status = run(); !status.ok()) return fail(status);
    started_ = true;
    ask_for_more();
  });
}

void Exchange::later(UniqueFunction<void()> task) {
  const Ref<Exchange> self(this);
  {
    MutexLock lock(mu_);
    queue_.push_back(std::move(task));
    if (std::exchange(draining_, true)) return;
  }
  for (;;) {
    UniqueFunction<void()> next;
    {
      MutexLock lock(mu_);
      draining_ = !queue_.empty();
      if (!draining_) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next();
  }
}

void Exchange::publish(Slot slot, Tensor value, int readers) {
  if (readers > 0) group_->publish(*this, slot, std::move(value), readers);
}

void Exchange::pull(Pull pull) {
  to_pull_.push_back(std::move(pull));
  if (started_) ask_for_more();
}

void Exchange::ask_for_more() {
  while (!to_pull_.empty() && in_flight_ < kInFlight && !over_) {
    Pull next = std::move(to_pull_.front());
    to_pull_.pop_front();
    ++in_flight_;
    {
      MutexLock lock(mu_);
      ++asked_[next.from];
    }
    ask(std::move(next));
  }
  if (to_pull_.empty() && in_flight_ == 0 && !over_) {
    if (Status status = all_pulled(); !status.ok()) fail(status);
  }
}

void Exchange::ask(Pull pull) {
  const std::string& member = epoch_->view.members[static_cast<size_t>(pull.from)];
  RecvChunkRequest request = {.group_key = request_.group_key,
                              .epoch = epoch_->view.epoch,
                              .member = member,
                              .rank = pull.from,
                              .asker = rank(),
                              .instance_key = request_.instance_key,
                              .sequence = sequence_,
                              .what = what_,
                              .phase = pull.slot.phase,
                              .chunk = pull.slot.chunk};
  pull.asked_ns = group_->links().timer().now_ns();
  group_->links().recv_chunk(
      task_of_member(member), std::move(request), epoch_->over,
      [self = Ref<Exchange>(this), pull = std::move(pull)](Result<Tensor> value) mutable {
        if (!value.ok() && self->repeats(pull, value.status())) {
          return self->ask_again(std::move(pull));
        }
        self->later(
            [self = self.get(), pull = std::move(pull), value = std::move(value)]() mutable {
              self->pulled(std::move(pull), std::move(value));
            });
      });
}

void Exchange::ask_again(Pull pull) {
  pull.repeated = true;
  MutexLock lock(mu_);
  if (over_) return;
  // The ticket is known to the task when it is due, which takes the lock.
  const std::shared_ptr<uint64_t> ticket = std::make_shared<uint64_t>(0);
  *ticket = group_->links().timer().schedule(
      repeat_after_ms(lost_after_ms(), 0) * kMilli,
      [self = Ref<Exchange>(this), ticket, pull = std::move(pull)]() mutable {
        {
          MutexLock due(self->mu_);
          self->repeats_.erase(*ticket);
        }
        self->ask(std::move(pull));
      });
  repeats_.insert(*ticket);
}

bool Exchange::repeats(const Pull& pull, const Status& status) const {
  const int64_t took_ns = group_->links().timer().now_ns() - pull.asked_ns;
  return status.code() == Code::kUnavailable && !pull.repeated && !epoch_->over->cancelled() &&
         took_ns < lost_after_ms() * kMilli / 10;
}

void Exchange::pulled(Pull pull, Result<Tensor> value) {
  --in_flight_;
  {
    MutexLock lock(mu_);
    const auto it = asked_.find(pull.from);
    if (--it->second == 0) asked_.erase(it);
  }
  if (over_) return;
  if (!value.ok()) return lost(pull.from, value.status());
  if (value->dtype() != pull.dtype || value->num_elements() != pull.elements) {
    return fail(invalid_argument(name_, ": expected ", pull.elements, " elements of ", pull.dtype,
                                 " from ", epoch_->who(pull.from), ", got ", value->dtype(), " ",
                                 value->shape()));
  }
  pull.use(*value);
  ask_for_more();
}

void Exchange::lost(int from, const Status& status) {
  const Status reason =
      status.code() == Code::kInvalidArgument || status.code() == Code::kAborted
          ? status  // of the peer, who knows more
          : aborted(name_, ": ", epoch_->who(rank()), " has lost ", epoch_->who(from),
                    ", for which it waited: ", status.message());
  group_->end_epoch(epoch_->view.epoch, reason, /*tell=*/true);
}

Tensor Exchange::slice(const Tensor& tensor, int64_t begin, int64_t count) {
  const size_t offset = static_cast<size_t>(begin) * dtype_size(tensor.dtype());
  return Tensor(tensor.dtype(), Shape({count}), tensor.buffer(), tensor.offset() + offset);
}

std::string Exchange::waits() const {
  if (!entered_) {
    return str_cat(name_, ": waits for the group to form on ", group_->links().leader());
  }
  std::vector<std::string> ranks;
  {
    MutexLock lock(mu_);
    for (const auto& [rank, count] : asked_) ranks.push_back(epoch_->who(rank));
  }
  return ranks.empty() ? name_ : str_cat(name_, ": waits for ", str_join(ranks, ", "));
}

void Exchange::tell(int64_t waited_ms) {
  if (!over_) MR_NOTICE(waits(), ", since ", waited_ms / 1000, " s");
}

}  // namespace millrace
