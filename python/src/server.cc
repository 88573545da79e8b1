#include "millrace/distributed/server.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "millrace/distributed/cluster_watch.h"
#include "millrace/distributed/grpc/grpc_transport.h"
#include "millrace/distributed/patience.h"
#include "python/src/binding.h"
#include "python/src/gil.h"
#include "python/src/interruptible.h"
#include "python/src/status.h"

// Servers: tasks that sessions with the target "grpc://ADDRESS" run on.

namespace millrace::python {

namespace {

class PyServer {
 public:
  using TaskAddress = std::tuple<std::string, int, std::string>;

  // `config`: a serialised ConfigProto, for the sessions of TensorFlow's clients.
  PyServer(const std::vector<TaskAddress>& cluster, std::string job, int task, int cpu_devices,
           const nb::bytes& config, int metrics_port) {
    Server::Options options;
    options.metrics_port = metrics_port;
    options.job = std::move(job);
    options.task = task;
    options.cpu_devices = cpu_devices;
    options.config.assign(config.c_str(), config.size());
    for (const auto& [name, number, address] : cluster) {
      check(options.cluster.add(name, number, address));
    }
    server_ = unwrap(Server::start(options));
  }
  const std::string& address() const { return server_->address(); }
  std::string metrics_url() const { return server_->metrics_url(); }
  ~PyServer() {
    WithoutGil no_gil;
    server_.reset();
  }

 private:
  std::unique_ptr<Server> server_;
};

// Names are what programs gave: bytes that may be no text.
nb::object text(const std::string& bytes) {
  PyObject* decoded =
      PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "backslashreplace");
  if (decoded == nullptr) throw nb::python_error();
  return nb::steal(decoded);
}

nb::dict step_dict(const WorkerActivity::Step& step) {
  nb::dict out;
  out["id"] = step.id;
  out["session"] = text(step.session);
  out["running_ms"] = step.running_ms;
  nb::list waits;
  for (size_t i = 0; i < step.waits_for.size(); ++i) {
    nb::dict wait;
    wait["for"] = text(step.waits_for[i]);
    wait["defined"] = text(step.defined[i]);
    waits.append(wait);
  }
  out["waits"] = waits;
  return out;
}

// What a task has and does, in the words of WorkerActivity.
nb::dict activity_dict(const WorkerActivity& activity) {
  nb::dict out;
  nb::list sessions, steps, transfers, queues;
  for (const WorkerActivity::Session& session : activity.sessions) {
    nb::dict each;
    each["name"] = text(session.name);
    each["lease_left_ms"] = session.lease_left_ms;
    each["graphs"] = session.graphs;
    sessions.append(each);
  }
  for (const WorkerActivity::Step& step : activity.steps) steps.append(step_dict(step));
  for (const WorkerActivity::Transfer& transfer : activity.transfers) {
    nb::dict each;
    each["peer"] = text(transfer.peer);
    each["kind"] = text(transfer.kind);
    each["received_bytes"] = transfer.received_bytes;
    each["sent_bytes"] = transfer.sent_bytes;
    transfers.append(each);
  }
  for (const WorkerActivity::Queue& queue : activity.queues) {
    nb::dict each;
    each["device"] = text(queue.device);
    each["container"] = text(queue.container);
    each["name"] = text(queue.name);
    each["size"] = queue.size;
    each["capacity"] = queue.capacity;
    each["closed"] = queue.closed;
    queues.append(each);
  }
  out["sessions"] = sessions;
  out["steps"] = steps;
  out["transfers"] = transfers;
  out["queues"] = queues;
  out["clock_ns"] = activity.clock_ns;
  out["up_ms"] = activity.up_ms;
  out["steps_begun"] = activity.steps_begun;
  out["steps_ended"] = activity.steps_ended;
  out["steps_failed"] = activity.steps_failed;
  return out;
}

class PyClusterWatch {
 public:
  explicit PyClusterWatch(const std::string& target)
      : watch_(unwrap(interruptible([target] { return ClusterWatch::begin(target); }))) {}
  ~PyClusterWatch() {
    WithoutGil no_gil;
    watch_ = nullptr;
  }

  // A dict for each task: name, address, error (None: it has answered), away_ms, and activity, None
  // where it has not.
  nb::list look(int64_t timeout_ms) {
    const auto tasks =
        interruptible([watch = watch_, timeout_ms] { return watch->look(timeout_ms); });
    nb::list out;
    for (const ClusterWatch::Task& task : tasks) {
      nb::dict each;
      each["name"] = text(task.name);
      each["address"] = text(task.address);
      each["away_ms"] = task.away_ms;
      each["error"] = task.status.ok() ? nb::none() : text(std::string(task.status.message()));
      each["activity"] = task.status.ok() ? nb::object(activity_dict(task.activity)) : nb::none();
      out.append(each);
    }
    return out;
  }

 private:
  Ref<ClusterWatch> watch_;
};

}  // namespace

void bind_server(nb::module_& m) {
  check(Server::register_targets());
  nb::class_<PyServer>(m, "Server")
      .def(nb::init<const std::vector<PyServer::TaskAddress>&, std::string, int, int,
                    const nb::bytes&, int>(),
           nb::arg("cluster"), nb::arg("job"), nb::arg("task"), nb::arg("cpu_devices"),
           nb::arg("config"), nb::arg("metrics_port"))
      .def_prop_ro("address", &PyServer::address)
      .def_prop_ro("metrics_url", &PyServer::metrics_url);
  nb::class_<PyClusterWatch>(m, "ClusterWatch")
      .def(nb::init<const std::string&>(), nb::arg("target"))
      .def("look", &PyClusterWatch::look, nb::arg("timeout_ms"));
  m.def("grpc_available", [] { return grpc_available().ok(); });
  // What the server at a target has and does.
  m.def("server_activity", [](const std::string& target) {
    return activity_dict(unwrap(interruptible([target] { return Server::activity(target); })));
  });
  m.def("stop_cluster", [](const std::string& target) {
    check(interruptible([target] { return Server::stop_cluster(target); }));
  });
  // After how many milliseconds a wait is told of; 0: never.
  m.def("report_after_ms", &report_after_ms);
  m.def("reset_servers", [](const std::string& target, const std::vector<std::string>& containers,
                            const std::vector<std::string>& device_filters) {
    check(interruptible([target, containers, device_filters] {
      return Server::reset(target, containers, device_filters);
    }));
  });
}

}  // namespace millrace::python
