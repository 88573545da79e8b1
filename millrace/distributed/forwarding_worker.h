#pragma once

#include <string>
#include <vector>

#include "millrace/distributed/worker_interface.h"

namespace millrace {

// A worker that hands every call on to another one. Who derives from it says to which, and does
// some of the calls in another way.
class ForwardingWorker : public WorkerInterface {
 public:
  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override;
  void register_graph(RegisterGraphRequest request,
                      UniqueFunction<void(Result<std::string>)> done) override;
  void deregister_graph(std::string graph_handle, StatusDone done) override;
  void run_graph(RunGraphRequest request, Ref<CancellationToken> cancel,
                 UniqueFunction<void(Status, RunGraphResponse)> done) override;
  void recv_tensor(RecvTensorRequest request, Ref<CancellationToken> cancel,
                   UniqueFunction<void(Status, Value)> done) override;
  void give_tensor(int64_t step_id, std::string key, Value value, StatusDone done) override;
  void abort_step(int64_t step_id, Status reason, StatusDone done) override;
  void cleanup_step(int64_t step_id, StatusDone done) override;
  // True where there is no worker.
  bool needs_lease() const override;
  void keep_session(KeepSessionRequest request, StatusDone done) override;
  void delete_session(std::string session, StatusDone done) override;
  void get_activity(int64_t step_id, UniqueFunction<void(Result<WorkerActivity>)> done) override;
  void reset(std::vector<std::string> containers, StatusDone done) override;
  void join_group(JoinGroupRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<GroupView>)> done) override;
  void recv_chunk(RecvChunkRequest request, Ref<CancellationToken> cancel,
                  UniqueFunction<void(Result<Tensor>)> done) override;
  void end_group(EndGroupRequest request, StatusDone done) override;

 protected:
  // The worker that a call is for, or why there is none, which is then the call's answer. Asked for
  // every call, by several threads at once.
  virtual Result<Ref<WorkerInterface>> find_worker() const = 0;
};

}  // namespace millrace
