#include "millrace/distributed/task_graph.h"

#include <malloc.h>

#include <algorithm>
#include <string_view>

#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

DeviceSet device_set(const TaskContext& task) {
  std::vector<Device::Info> infos;
  for (const Ref<Device>& device : task.devices) infos.push_back(device->info());
  return DeviceSet(std::move(infos), 0);
}

// Whether a node sends or receives the tensor of this name.
bool carries(const KernelNode& node, std::string_view tensor) {
  if (!node.op->traits.send && !node.op->traits.recv) return false;
  const Result<std::string> name = node.attr<std::string>("tensor_name");
  return name.ok() && *name == tensor;
}

}  // namespace

Status GraphBytes::add(int64_t bytes) {
  const int64_t total = total_ += bytes;
  if (total <= limit_) return ok_status();
  return resource_exhausted(
      "task ", task_, " has graphs of ", (total - bytes) >> 20, " MiB, and ", bytes,
      " bytes more are past the ", limit_ >> 20,
      " MiB that MILLRACE_CLUSTER_MAX_GRAPH_MB allows it: close sessions, or use fewer "
      "different fetches and feeds");
}

void GraphBytes::drop(int64_t bytes) {
  total_ -= bytes;
  dropped_ += bytes;
}

void GraphBytes::give_back(int64_t at_least) {
  if (dropped_ < at_least) return;
  dropped_ = 0;
  ThreadPool::global().schedule_blocking([] { malloc_trim(0); });
}

Result<Ref<TaskGraph>> TaskGraph::compile(const Subgraph& parsed, Boundary boundary,
                                          Ref<TaskSession> session,
                                          const RegisterGraphRequest& request,
                                          const TaskContext& task, Ref<GraphBytes> bytes) {
  Ref<TaskGraph> graph(new TaskGraph);
  graph->boundary_ = std::move(boundary);
  graph->session_ = std::move(session);
  CompileOptions options;
  options.session_prefix = request.session;
  options.kernel_label = request.kernel_label;
  options.rights = request.scope.node_rights();
  MR_TRY_ASSIGN(graph->plans_,
                PlanSet::build(parsed, graph->session_->devices(), device_set(task), options));
  const std::vector<Ref<Plan>>& plans = graph->plans_->plans();
  graph->prompt_ = plans.size() == 1 && !plans[0]->has_frames && !plans[0]->has_dead &&
                   !plans[0]->enqueues && !graph->plans_->has_blocking();
  for (const Ref<Plan>& plan : plans) {
    for (const PlanStep& step : plan->steps) {
      if (!step.async) continue;
      graph->prompt_ &= step.runs_when_dead;  // a _Recv
      ++graph->receives_;
    }
  }
  graph->counted_ = std::move(bytes);
  MR_TRY(graph->counted_->add(graph->plans_->bytes()));
  return graph;
}

TaskGraph::~TaskGraph() {
  if (counted_) counted_->drop(plans_->bytes());
}

std::string TaskGraph::where_defined(const std::string& wait) const {
  const Result<RendezvousKey> key = RendezvousKey::parse(wait.substr(0, wait.find(" from ")));
  const size_t quote = std::min(wait.find('"'), wait.size() - 1);
  const std::string name = wait.substr(quote + 1, wait.rfind('"') - quote - 1);
  for (const Ref<Plan>& plan : plans_->plans()) {
    for (size_t i = 0; i < plan->steps.size(); ++i) {
      const KernelNode& node = *plan->steps[i].node;
      if (key.ok() ? carries(node, key->tensor_name) : node.name == name) {
        return describe_origin(plan->origins[i]);
      }
    }
  }
  return "";
}

}  // namespace millrace
