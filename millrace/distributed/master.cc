#include "millrace/distributed/master.h"

#include <map>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/call_group.h"
#include "millrace/distributed/remote_executable.h"
#include "millrace/graph/function_calls.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/runtime/partition.h"
#include "proto/function.pb.h"

namespace millrace {
namespace {

// Which devices a session sees, and by which incarnation it knows each task.
struct Discovered {
  DeviceSet devices;
  std::map<std::string, uint64_t> incarnations;
};

class MasterBackend : public SessionBackend {
 public:
  MasterBackend(Ref<WorkerCache> workers, const MasterOptions& options, Discovered discovered,
                Ref<Device> host)
      : workers_(std::move(workers)),
        options_(options),
        discovered_(std::move(discovered)),
        host_(std::move(host)),
        unique_(random_incarnation()),
        watch_(make_ref<WaitWatch>(options.timer, options.report_after_ms)) {}
  ~MasterBackend() override {
    watch_->stop();
    MutexLock lock(mu_);
    if (keeper_) keeper_->stop();
  }

  const DeviceSet& devices() const override { return discovered_.devices; }
  Device& host_device() override { return *host_; }

  Result<Ref<Executable>> prepare(const Subgraph& graph, const Signature& signature,
                                  const std::string& session) override {
    MR_TRY_ASSIGN(std::vector<Partition> parts,
                  partition(graph, PartitionBy::kTask, discovered_.devices));
    const Ref<LeaseKeeper> keeper = keeper_of(session);
    Ref<RemoteExecutable> executable = make_ref<RemoteExecutable>(workers_, keeper, watch_);
    std::vector<RegisterGraphRequest> requests;
    for (const Partition& part : parts) {
      RegisterGraphRequest request;
      request.session = unique_name(session);
      MR_TRY_ASSIGN(request.graph_def, part.graph.to_graph_def_bytes());
      request.incarnation = discovered_.incarnations.at(part.location);
      request.kernel_label = options_.kernel_label;
      MR_TRY_ASSIGN(request.functions, functions_of(part.graph));
      request.lease_ms = keeper->keep(part.location, request.incarnation);
      requests.push_back(std::move(request));
      MR_TRY(executable->add_part(part.location, part.graph));
    }
    MR_TRY(executable->check_fetches(signature.fetches.size()));
    MR_TRY(executable->register_parts(std::move(requests), options_.call_timeout_ms));
    return Ref<Executable>(std::move(executable));
  }

  // Kernels are elsewhere: the functions that they call go with each graph.
  Ref<FunctionRunner> make_function_runner(const Graph& graph, const std::string&) override {
    MutexLock lock(mu_);
    functions_ = graph.shared_functions();
    return nullptr;
  }

  void close(const std::string& session) override {
    keeper_of(session)->stop();
    for (const auto& [task, incarnation] : discovered_.incarnations) {
      Result<Ref<WorkerInterface>> worker = workers_->find(task);
      if (worker.ok()) (*worker)->delete_session(unique_name(session), [](const Status&) {});
    }
  }

  Status reset_where(std::span<const std::string> containers,
                     FunctionRef<bool(const DeviceName&)> which) override {
    Ref<CallGroup> group = make_ref<CallGroup>("reset");
    std::vector<std::string> names(containers.begin(), containers.end());
    for (const auto& [task, incarnation] : discovered_.incarnations) {
      MR_TRY_ASSIGN(const DeviceName name, DeviceName::parse(task));
      if (!which(name)) continue;
      MR_TRY_ASSIGN(Ref<WorkerInterface> worker, workers_->find(task));
      group->expect(task);
      worker->reset(names, [group, task = task, workers = workers_](Status status) {
        workers->report(task, status);
        group->answer(task, std::move(status));
      });
    }
    return group->wait(options_.call_timeout_ms);
  }

 private:
  // What nodes of the graph name as functions, and what these call.
  Result<std::string> functions_of(const Subgraph& graph) {
    Ref<FunctionLibrary> library;
    {
      MutexLock lock(mu_);
      library = functions_;
    }
    std::vector<std::string> names;
    for (NodeId id = 0; id < graph.size(); ++id) {
      if (graph.node(id).erased) continue;
      for (const auto& [name, value] : *graph.node(id).attrs) collect_functions(value, names);
    }
    if (!library || names.empty()) return std::string();
    MR_TRY_ASSIGN(const auto functions, check_no_recursion(names, [&](std::string_view name) {
                    return library->find(name);
                  }));
    tensorflow::FunctionDefLibrary message;
    for (const Ref<Function>& function : functions) {
      function_to_proto(*function, *message.add_function());
    }
    return message.SerializeAsString();
  }

  // Of the session, for whom the backend is.
  Ref<LeaseKeeper> keeper_of(const std::string& session) {
    MutexLock lock(mu_);
    if (!keeper_) {
      keeper_ =
          make_ref<LeaseKeeper>(workers_, unique_name(session), options_.lease_ms, options_.timer);
    }
    return keeper_;
  }

  // Sessions of other processes may have the same name.
  std::string unique_name(const std::string& session) const {
    return str_cat(unique_, "_", session);
  }

  const Ref<WorkerCache> workers_;
  const MasterOptions options_;
  const Discovered discovered_;
  const Ref<Device> host_;
  const uint64_t unique_;
  const Ref<WaitWatch> watch_;
  Mutex mu_;
  Ref<FunctionLibrary> functions_ MR_GUARDED_BY(mu_);  // the session's graph's
  Ref<LeaseKeeper> keeper_ MR_GUARDED_BY(mu_);         // null until the session has a graph
};

using Answers = std::map<std::string, std::vector<Device::Info>>;

// The devices of each of `tasks`.
Result<Answers> ask_devices(const Ref<WorkerCache>& workers, const std::vector<std::string>& tasks,
                            int64_t timeout_ms) {
  struct Collected : RefCounted {
    Mutex mu;
    Answers answers MR_GUARDED_BY(mu);
  };
  Ref<Collected> collected = make_ref<Collected>();
  Ref<CallGroup> group = make_ref<CallGroup>("get_status");
  for (const std::string& task : tasks) {
    MR_TRY_ASSIGN(Ref<WorkerInterface> worker, workers->find(task));
    group->expect(task);
    worker->get_status([group, collected, workers, task](Result<WorkerStatus> status) {
      workers->report(task, status.status());
      Status answer = status.status();
      if (status.ok() && status->devices.empty())
        answer = internal("task ", task, " has no devices");
      if (answer.ok()) {
        MutexLock lock(collected->mu);
        collected->answers[task] = std::move(status->devices);
      }
      group->answer(task, std::move(answer));
    });
  }
  MR_TRY(group->wait(timeout_ms));
  MutexLock lock(collected->mu);
  return std::move(collected->answers);
}

Result<Discovered> discover(const Ref<WorkerCache>& workers, const MasterOptions& options) {
  MR_TRY_ASSIGN(const DeviceFilters filters, DeviceFilters::parse(options.device_filters));
  MR_TRY(workers->find(options.task).status());
  std::vector<std::string> tasks;
  for (const std::string& task : workers->tasks()) {
    MR_TRY_ASSIGN(DeviceName name, DeviceName::parse(task));
    if (task == options.task || filters.keep(name)) tasks.push_back(task);
  }
  MR_TRY_ASSIGN(Answers answers, ask_devices(workers, tasks, options.call_timeout_ms));
  Discovered out;
  std::vector<Device::Info> devices;
  int client = -1;
  for (auto& [task, infos] : answers) {
    out.incarnations[task] = infos[0].incarnation;
    for (Device::Info& info : infos) {
      bool own = task == options.task;
      if (!own && !filters.keep(info.name)) continue;
      if (own && client < 0 && info.kind == DeviceKind::kCpu)
        client = static_cast<int>(devices.size());
      devices.push_back(std::move(info));
    }
  }
  if (client < 0) return internal("the session's task ", options.task, " has no CPU");
  out.devices = DeviceSet(std::move(devices), client);
  return out;
}

}  // namespace

Result<Ref<SessionBackend>> make_master_backend(Ref<WorkerCache> workers,
                                                const MasterOptions& options) {
  MR_TRY_ASSIGN(Discovered discovered, discover(workers, options));
  MR_TRY_ASSIGN(Ref<Device> host, make_cpu_device(discovered.devices.client().name));
  return Ref<SessionBackend>(
      make_ref<MasterBackend>(std::move(workers), options, std::move(discovered), std::move(host)));
}

}  // namespace millrace
