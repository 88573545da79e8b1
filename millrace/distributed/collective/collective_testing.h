#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/in_process_cluster.h"
#include "millrace/kernel/collectives.h"

namespace millrace {

// What a call of a collective operation comes to.
class PendingResult : public RefCounted {
 public:
  // To be given to the call.
  Collectives::Done done();
  bool ready() const;
  // Waits for it.
  Result<Tensor> wait();

 private:
  mutable Mutex mu_;
  CondVar changed_;
  bool ready_ MR_GUARDED_BY(mu_) = false;
  Status status_ MR_GUARDED_BY(mu_);
  Tensor value_ MR_GUARDED_BY(mu_);
};

// Members of group 1, one on each task of a cluster in this process.
class CollectiveCluster {
 public:
  using Transport = InProcessCluster::Transport;

  CollectiveCluster(Transport transport, int members, const Ref<Timer>& timer = real_timer());

  int size() const { return members_; }
  InProcessCluster& cluster() { return *cluster_; }
  static std::string task(int member) { return task_name("worker", member); }

  Collectives::Request request(int member, int64_t instance) const;
  Ref<PendingResult> reduce(int member, int64_t instance, Tensor input,
                            Collectives::Merge merge = Collectives::Merge::kAdd,
                            Collectives::Final final = Collectives::Final::kId);
  Ref<PendingResult> reduce(Collectives::Request request, Tensor input,
                            Collectives::Merge merge = Collectives::Merge::kAdd,
                            Collectives::Final final = Collectives::Final::kId);
  Ref<PendingResult> gather(int member, int64_t instance, Tensor input);
  Ref<PendingResult> send(int member, int64_t instance, Tensor input);
  Ref<PendingResult> recv(int member, int64_t instance, DType dtype, Shape shape);

  void stop(int member);
  void restart(int member);

 private:
  // Of the task that a request's device is on.
  Ref<Collectives> collectives(const std::string& device) const;

  const int members_;
  std::unique_ptr<InProcessCluster> cluster_;
};

}  // namespace millrace
