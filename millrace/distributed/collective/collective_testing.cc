#include "millrace/distributed/collective/collective_testing.h"

#include <atomic>

#include "millrace/kernel/device_name.h"

namespace millrace {

Collectives::Done PendingResult::done() {
  return [self = Ref<PendingResult>(this)](Result<Tensor> result) {
    MutexLock lock(self->mu_);
    MR_CHECK(!self->ready_);  // once
    self->ready_ = true;
    self->status_ = result.status();
    if (result.ok()) self->value_ = *std::move(result);
    self->changed_.notify_all();
  };
}

bool PendingResult::ready() const {
  MutexLock lock(mu_);
  return ready_;
}

Result<Tensor> PendingResult::wait() {
  MutexLock lock(mu_);
  while (!ready_) changed_.wait(mu_);
  if (!status_.ok()) return status_;
  return value_;
}

CollectiveCluster::CollectiveCluster(Transport transport, int members, const Ref<Timer>& timer)
    : members_(members) {
  static std::atomic<int> next{0};
  cluster_ = InProcessCluster::create({.name = str_cat("collective", next++),
                                       .transport = transport,
                                       .jobs = {{"worker", members}},
                                       .worker_timer = timer})
                 .value();
}

Collectives::Request CollectiveCluster::request(int member, int64_t instance) const {
  return {.op = "CollectiveReduce",
          .group_key = 1,
          .group_size = members_,
          .instance_key = instance,
          .device = task(member) + "/device:CPU:0"};
}

Ref<Collectives> CollectiveCluster::collectives(const std::string& device) const {
  const DeviceName name = DeviceName::parse(device).value();
  return cluster_->worker(name.task_name()).value()->collectives();
}

Ref<PendingResult> CollectiveCluster::reduce(Collectives::Request request, Tensor input,
                                             Collectives::Merge merge, Collectives::Final final) {
  const Ref<PendingResult> result = make_ref<PendingResult>();
  const Ref<Collectives> own = collectives(request.device);
  own->reduce(std::move(request), std::move(input), merge, final, result->done());
  return result;
}

Ref<PendingResult> CollectiveCluster::reduce(int member, int64_t instance, Tensor input,
                                             Collectives::Merge merge, Collectives::Final final) {
  return reduce(request(member, instance), std::move(input), merge, final);
}

Ref<PendingResult> CollectiveCluster::gather(int member, int64_t instance, Tensor input) {
  const Ref<PendingResult> result = make_ref<PendingResult>();
  Collectives::Request asked = request(member, instance);
  collectives(asked.device)->gather(asked, std::move(input), result->done());
  return result;
}

Ref<PendingResult> CollectiveCluster::send(int member, int64_t instance, Tensor input) {
  const Ref<PendingResult> result = make_ref<PendingResult>();
  Collectives::Request asked = request(member, instance);
  collectives(asked.device)->broadcast_send(asked, std::move(input), result->done());
  return result;
}

Ref<PendingResult> CollectiveCluster::recv(int member, int64_t instance, DType dtype, Shape shape) {
  const Ref<PendingResult> result = make_ref<PendingResult>();
  Collectives::Request asked = request(member, instance);
  collectives(asked.device)->broadcast_recv(asked, dtype, std::move(shape), result->done());
  return result;
}

void CollectiveCluster::stop(int member) { MR_CHECK_OK(cluster_->stop(task(member))); }
void CollectiveCluster::restart(int member) { MR_CHECK_OK(cluster_->restart(task(member))); }

}  // namespace millrace
