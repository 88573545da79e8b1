#include "millrace/distributed/distributed_testing.h"

#include <atomic>
#include <thread>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

struct StuckCount {
  Mutex mu;
  CondVar changed;
  int count MR_GUARDED_BY(mu) = 0;
};

StuckCount& stuck() {
  static StuckCount* count = new StuckCount;
  return *count;
}

class TestStuck : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return std::make_unique<TestStuck>();
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    auto shared = std::make_shared<Done>(std::move(done));
    CancellationToken* cancel = ctx.cancel();
    uint64_t ticket = cancel->on_cancel([shared, cancel] { (*shared)(cancel->status()); });
    if (ticket == 0) (*shared)(cancel->status());
    StuckCount& s = stuck();
    MutexLock lock(s.mu);
    ++s.count;
    s.changed.notify_all();
  }
};

std::string unique_cluster_name() {
  static std::atomic<int> next{0};
  return str_cat("cluster_", next.fetch_add(1));
}

}  // namespace

void register_test_ops() {
  static const bool once = [] {
    MR_CHECK_OK(register_ops());
    Registry registry(OpRegistry::global(), KernelRegistry::global());
    registry.add({.name = "TestStuck",
                  .doc = "Waits until the step is cancelled.",
                  .outputs = {{"y", "float"}},
                  .traits = {.stateful = true},
                  .shape = shape_rules::unknown});
    registry.kernel<TestStuck>("TestStuck", DeviceKind::kCpu);
    MR_CHECK(registry.status().ok());
    return true;
  }();
  (void)once;
}

ClusterTest::ClusterTest(InProcessCluster::Options options) : name_(unique_cluster_name()) {
  register_test_ops();
  options.name = name_;
  cluster_ = InProcessCluster::create(options).value();
}

Expr ClusterTest::add(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) {
  std::vector<Expr> outputs = graph_.builder().emit(op, std::move(inputs), std::move(attrs));
  MR_CHECK_OK(graph_.builder().status());
  return outputs[0];
}

std::string ClusterTest::add_target(std::string_view op, std::vector<Expr> inputs, AttrMap attrs) {
  std::vector<Output> outputs;
  for (Expr e : inputs) outputs.push_back(GraphBuilder::output(e));
  const NodeId node = graph_.builder().add(op, "", std::move(outputs), std::move(attrs)).value();
  return std::string(graph_.graph().node(node).name());
}

Expr ClusterTest::placeholder(DType dtype) { return add("Placeholder", {}, {{"dtype", dtype}}); }

std::string ClusterTest::name(Expr e) {
  return graph_.graph().output_name(GraphBuilder::output(e));
}

Session& ClusterTest::open(SessionOptions options) {
  MR_CHECK_OK(graph_.builder().status());
  session_.reset();
  if (options.target.empty()) options.target = str_cat("inprocess://", name_);
  session_ = Session::create(Ref<Graph>(&graph_.graph()), options).value();
  return *session_;
}

Result<float> ClusterTest::run(Expr fetch, const Session::Feeds& feeds, const RunOptions& options) {
  MR_TRY_ASSIGN(std::vector<Tensor> out, session_->run(feeds, {name(fetch)}, {}, options));
  return out[0].item<float>();
}

namespace {

// The sum over all workers, once it is zero or ten seconds have passed.
size_t wait_for_none(const InProcessCluster& cluster, FunctionRef<size_t(const Worker&)> count) {
  const Deadline deadline = Deadline::after_millis(10'000);
  for (;;) {
    size_t sum = 0;
    for (const std::string& task : cluster.workers()->tasks()) {
      Result<Ref<Worker>> worker = cluster.worker(task);
      if (worker.ok()) sum += count(**worker);
    }
    if (sum == 0 || deadline.expired()) return sum;
    std::this_thread::yield();
  }
}

}  // namespace

size_t ClusterTest::open_steps() const {
  return wait_for_none(*cluster_, [](const Worker& worker) { return worker.steps().size(); });
}

size_t ClusterTest::registered_graphs() const {
  return wait_for_none(
      *cluster_, [](const Worker& worker) { return static_cast<size_t>(worker.num_graphs()); });
}

void wait_for_stuck(int count) {
  StuckCount& s = stuck();
  MutexLock lock(s.mu);
  while (s.count < count) s.changed.wait(s.mu);
}

int stuck_so_far() {
  StuckCount& s = stuck();
  MutexLock lock(s.mu);
  return s.count;
}

}  // namespace millrace
