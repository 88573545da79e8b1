#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/distributed/in_process_cluster.h"
#include "millrace/runtime/executor_testing.h"
#include "millrace/session/session.h"

// Graphs on the tasks of a cluster in this process, for tests.

namespace millrace {

inline constexpr std::string_view kTask0 = "/job:worker/replica:0/task:0";
inline constexpr std::string_view kTask1 = "/job:worker/replica:0/task:1";

// Registers "TestStuck": a float that never comes; it ends when the step is cancelled.
void register_test_ops();

// A graph whose nodes say which task they are on, a cluster and a session over it. The op
// TestStuck is registered.
class ClusterTest {
 public:
  explicit ClusterTest(InProcessCluster::Options options = {});

  TestGraph& graph() { return graph_; }
  InProcessCluster& cluster() { return *cluster_; }
  const std::string& cluster_name() const { return name_; }

  // What follows is placed there; "" anywhere.
  void on(std::string_view device) { graph_.builder().context().device = std::string(device); }
  Expr add(std::string_view op, std::vector<Expr> inputs, AttrMap attrs = {});
  // Adds a node without outputs; its name.
  std::string add_target(std::string_view op, std::vector<Expr> inputs, AttrMap attrs = {});
  Expr placeholder(DType dtype);
  Expr constant(float value) { return graph_.builder().constant(Tensor::scalar<float>(value)); }
  std::string name(Expr e);

  // A session over the cluster; replaces the one before. The graph must be without errors.
  Session& open(SessionOptions options = {});
  Session& session() { return *session_; }
  void close() { session_.reset(); }
  // A scalar float, or the error.
  Result<float> run(Expr fetch, const Session::Feeds& feeds = {}, const RunOptions& options = {});

  // What the workers know between them: steps, graphs. Tasks are told of an end without waiting for
  // it, so both wait up to ten seconds to become none.
  size_t open_steps() const;
  size_t registered_graphs() const;

 private:
  TestGraph graph_;
  std::string name_;
  std::unique_ptr<InProcessCluster> cluster_;
  std::unique_ptr<Session> session_;
};

// Answers get_status when it has devices, keep_session with `kept_answer` when there is one, and
// nothing else ever.
class SilentWorker : public WorkerInterface {
 public:
  explicit SilentWorker(std::vector<Device::Info> devices = {}) : devices_(std::move(devices)) {}

  void get_status(UniqueFunction<void(Result<WorkerStatus>)> done) override {
    if (!devices_.empty()) done(WorkerStatus{devices_});
  }
  void register_graph(RegisterGraphRequest, UniqueFunction<void(Result<std::string>)>) override {}
  void deregister_graph(std::string, StatusDone) override {}
  void run_graph(RunGraphRequest, Ref<CancellationToken>,
                 UniqueFunction<void(Status, RunGraphResponse)>) override {}
  void recv_tensor(RecvTensorRequest, Ref<CancellationToken>,
                   UniqueFunction<void(Status, Value)>) override {}
  void give_tensor(int64_t, std::string, Value, StatusDone) override {}
  void abort_step(int64_t, Status, StatusDone) override {}
  void cleanup_step(int64_t, StatusDone) override {}
  void keep_session(KeepSessionRequest request, StatusDone done) override {
    kept.push_back(std::move(request));
    if (kept_answer) done(*kept_answer);
  }
  void delete_session(std::string session, StatusDone) override {
    deleted.push_back(std::move(session));
  }
  void get_activity(int64_t, UniqueFunction<void(Result<WorkerActivity>)>) override {}
  void reset(std::vector<std::string>, StatusDone) override {}

  std::vector<std::string> deleted;
  std::vector<KeepSessionRequest> kept;
  std::optional<Status> kept_answer;

 private:
  const std::vector<Device::Info> devices_;
};

// Returns when `count` TestStuck kernels have started since the process began.
void wait_for_stuck(int count);
int stuck_so_far();

}  // namespace millrace
