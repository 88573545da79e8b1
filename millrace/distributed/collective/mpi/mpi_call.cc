#include "millrace/distributed/collective/mpi/mpi_call.h"

#include "millrace/base/log.h"
#include "millrace/ops/collective/merge.h"

namespace millrace {
namespace {

constexpr int64_t kMilli = 1'000'000;

std::string describe_work(const MpiCall::Work& work) {
  switch (work.kind) {
    case MpiCall::Kind::kReduce:
      return str_cat(merge_name(work.merge),
                     work.final == Collectives::Final::kDiv ? " and Div" : "", " of ", work.dtype,
                     " ", work.shape);
    case MpiCall::Kind::kGather: {
      std::vector<std::string> dims = {"?"};  // the one that may differ
      for (int i = 1; i < work.shape.rank(); ++i) dims.push_back(str_cat(work.shape.dim(i)));
      return str_cat("rows of ", work.dtype, " [", str_join(dims, ","), "]");
    }
    case MpiCall::Kind::kBroadcast:
      break;
  }
  return str_cat(MpiCall::kBroadcast, work.dtype, " ", work.shape);
}

}  // namespace

MpiCall::MpiCall(Collectives::Request request, Work work, Collectives::Done done)
    : request_(std::move(request)),
      work_(std::move(work)),
      what_(describe_work(work_)),
      name_(str_cat(request_.op, " instance ", request_.instance_key, " of group ",
                    request_.group_key)),
      input_stays_(work_.input.valid() ? work_.input.buffer() : nullptr),
      call_(make_ref<WaitingCall<Result<Tensor>>>(request_.cancel, std::move(done))) {}

int64_t MpiCall::number() const {
  if (work_.kind == Kind::kGather) return work_.shape.dim(0);
  return work_.input.valid() ? 1 : 0;
}

void MpiCall::begin(const Ref<Timer>& timer, const Ref<WaitWatch>& watch, Describe describe) {
  timer_ = timer;
  watch_ = watch;
  describe_ = std::move(describe);
  watch_ticket_ = watch->begin(Ref<MpiCall>(this));
}

void MpiCall::watch(GivenUp given_up) {
  const Ref<MpiCall> self(this);
  struct Told : RefCounted {
    GivenUp call;
  };
  const Ref<Told> told = make_ref<Told>();
  told->call = std::move(given_up);
  if (request_.timeout_ms > 0) {
    deadline_ = timer_->schedule(request_.timeout_ms * kMilli, [self, told] {
      const Status late =
          deadline_exceeded(self->waits(), "; not done in ", self->request_.timeout_ms, " ms");
      if (!self->take()) return;
      told->call(self, late);
      self->answer_taken(late);
    });
    if (over_) settle();
  }
  call_->watch([self, told](const Status& reason) {
    self->over_ = true;
    self->settle();
    told->call(self, reason);
    self->call_->answer_taken(reason);
  });
}

void MpiCall::settle() {
  if (const uint64_t ticket = watch_ticket_.exchange(0); ticket != 0) watch_->end(ticket);
  if (const uint64_t ticket = deadline_.exchange(0); ticket != 0) timer_->remove(ticket);
}

bool MpiCall::take() {
  if (!call_->take()) return false;
  over_ = true;
  settle();
  return true;
}

void MpiCall::answer(Result<Tensor> result) {
  if (take()) answer_taken(std::move(result));
}

void MpiCall::tell(int64_t waited_ms) {
  if (!over_) MR_NOTICE(waits(), ", since ", waited_ms / 1000, " s");
}

}  // namespace millrace
