#include "millrace/distributed/master.h"

#include <map>

#include "millrace/device/cpu/cpu_device.h"
#include "millrace/distributed/call_group.h"
#include "millrace/distributed/copy_sources.h"
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

class MasterBackend final : public Master {
 public:
  MasterBackend(Ref<WorkerCache> workers, const MasterOptions& options, Discovered discovered,
                Ref<Device> host)
      : workers_(std::move(workers)),
        options_(options),
        discovered_(std::move(discovered)),
        host_(std::move(host)),
        identity_(options.identity != 0 ? options.identity : random_incarnation()),
        step_ids_(make_ref<StepIds>(identity_)),
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
    MR_TRY_ASSIGN(const Registering begun, begin_prepare(graph, signature, session));
    MR_TRY(begun.answers->wait(options_.call_timeout_ms));
    return Ref<Executable>(begun.executable);
  }

  void prepare_async(const Subgraph& graph, const Signature& signature, const std::string& session,
                     UniqueFunction<void(Result<Ref<Executable>>)> done) override {
    Result<Registering> begun = begin_prepare(graph, signature, session);
    if (!begun.ok()) return done(begun.status());
    begun->answers->then(options_.timer, options_.call_timeout_ms,
                         [executable = std::move(begun->executable),
                          done = std::move(done)](const Status& status) mutable {
                           if (!status.ok()) return done(status);
                           done(Ref<Executable>(std::move(executable)));
                         });
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
  struct Registering {
    Ref<RemoteExecutable> executable;
    Ref<CallGroup> answers;
  };

  // Cuts the graph and asks the tasks to register the parts.
  Result<Registering> begin_prepare(const Subgraph& graph, const Signature& signature,
                                    const std::string& session) {
    Subgraph spread = graph;
    copy_sources(spread, discovered_.devices);
    MR_TRY_ASSIGN(std::vector<Partition> parts,
                  partition(spread, PartitionBy::kTask, discovered_.devices));
    const Ref<LeaseKeeper> keeper = keeper_of(session);
    Ref<RemoteExecutable> executable = make_ref<RemoteExecutable>(
        workers_, options_.task, keeper, watch_, step_ids_, options_.timer);
    std::vector<RegisterGraphRequest> requests;
    for (const Partition& part : parts) {
      RegisterGraphRequest request;
      request.session = unique_name(session);
      MR_TRY_ASSIGN(request.graph_def, part.graph.to_graph_def_bytes());
      request.incarnation = discovered_.incarnations.at(part.location);
      request.kernel_label = options_.kernel_label;
      request.scope = options_.scope;
      MR_TRY_ASSIGN(request.functions, functions_of(part.graph));
      request.lease_ms = keeper->keep(part.location, request.incarnation);
      requests.push_back(std::move(request));
      MR_TRY(executable->add_part(part.location, part.graph));
    }
    MR_TRY(executable->find_traffic(parts));
    MR_TRY(executable->check_fetches(signature.fetches.size()));
    Ref<CallGroup> answers = executable->register_parts(std::move(requests));
    return Registering{std::move(executable), std::move(answers)};
  }

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
    return str_cat(identity_, "_", session);
  }

  const Ref<WorkerCache> workers_;
  const MasterOptions options_;
  const Discovered discovered_;
  const Ref<Device> host_;
  const uint64_t identity_;
  const Ref<StepIds> step_ids_;
  const Ref<WaitWatch> watch_;
  Mutex mu_;
  Ref<FunctionLibrary> functions_ MR_GUARDED_BY(mu_);  // the session's graph's
  Ref<LeaseKeeper> keeper_ MR_GUARDED_BY(mu_);         // null until the session has a graph
};

// What the tasks of a session say of their devices.
struct Asked : RefCounted {
  const Ref<CallGroup> answers = make_ref<CallGroup>("get_status");
  Mutex mu;
  std::map<std::string, std::vector<Device::Info>> devices MR_GUARDED_BY(mu);  // by task
};

Status check_devices(const std::string& task, const std::vector<Device::Info>& devices) {
  if (devices.empty()) return internal("task ", task, " has no devices");
  for (const Device::Info& device : devices) {
    if (device.name.task_name() == task) continue;
    return invalid_argument("expected task ", task, " at its address in the cluster, got ",
                            device.name.task_name(), ": do all tasks know the same addresses?");
  }
  return ok_status();
}

// Asks the tasks that the options do not leave out.
Result<Ref<Asked>> ask_devices(const Ref<WorkerCache>& workers, const MasterOptions& options) {
  MR_TRY_ASSIGN(const DeviceFilters filters, DeviceFilters::parse(options.device_filters));
  MR_TRY(workers->find(options.task).status());
  std::vector<std::pair<std::string, Ref<WorkerInterface>>> tasks;
  for (const std::string& task : workers->tasks()) {
    MR_TRY_ASSIGN(DeviceName name, DeviceName::parse(task));
    if (task != options.task && !filters.keep(name)) continue;
    MR_TRY_ASSIGN(Ref<WorkerInterface> worker, workers->find(task));
    tasks.emplace_back(task, std::move(worker));
  }
  const Ref<Asked> asked = make_ref<Asked>();
  for (const auto& [task, worker] : tasks) asked->answers->expect(task);
  for (const auto& [task, worker] : tasks) {
    worker->get_status([asked, workers, task = task](Result<WorkerStatus> status) {
      workers->report(task, status.status());
      Status answer = status.ok() ? check_devices(task, status->devices) : status.status();
      if (answer.ok()) {
        MutexLock lock(asked->mu);
        asked->devices[task] = std::move(status->devices);
      }
      asked->answers->answer(task, std::move(answer));
    });
  }
  return asked;
}

// The master, once all have answered.
Result<Ref<Master>> make_master(const Ref<WorkerCache>& workers, const MasterOptions& options,
                                Asked& asked) {
  MR_TRY_ASSIGN(const DeviceFilters filters, DeviceFilters::parse(options.device_filters));
  Discovered discovered;
  std::vector<Device::Info> devices;
  int client = -1;
  {
    MutexLock lock(asked.mu);
    for (auto& [task, infos] : asked.devices) {
      discovered.incarnations[task] = infos[0].incarnation;
      for (Device::Info& info : infos) {
        bool own = task == options.task;
        if (!own && !filters.keep(info.name)) continue;
        if (own && client < 0 && info.kind == DeviceKind::kCpu)
          client = static_cast<int>(devices.size());
        devices.push_back(std::move(info));
      }
    }
  }
  if (client < 0) return internal("the session's task ", options.task, " has no CPU");
  discovered.devices = DeviceSet(std::move(devices), client);
  MR_TRY_ASSIGN(Ref<Device> host, make_cpu_device(discovered.devices.client().name));
  return Ref<Master>(
      make_ref<MasterBackend>(workers, options, std::move(discovered), std::move(host)));
}

}  // namespace

Result<Ref<SessionBackend>> make_master_backend(Ref<WorkerCache> workers,
                                                const MasterOptions& options) {
  MR_TRY_ASSIGN(const Ref<Asked> asked, ask_devices(workers, options));
  MR_TRY(asked->answers->wait(options.call_timeout_ms));
  MR_TRY_ASSIGN(Ref<Master> master, make_master(workers, options, *asked));
  return Ref<SessionBackend>(std::move(master));
}

void start_master(Ref<WorkerCache> workers, const MasterOptions& options,
                  UniqueFunction<void(Result<Ref<Master>>)> done) {
  Result<Ref<Asked>> asked = ask_devices(workers, options);
  if (!asked.ok()) return done(asked.status());
  (*asked)->answers->then(options.timer, options.call_timeout_ms,
                          [asked = *asked, workers = std::move(workers), options,
                           done = std::move(done)](const Status& status) mutable {
                            if (!status.ok()) return done(status);
                            done(make_master(workers, options, *asked));
                          });
}

}  // namespace millrace
