#include "millrace/distributed/server.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

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
           const nb::bytes& config) {
    Server::Options options;
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
  ~PyServer() {
    WithoutGil no_gil;
    server_.reset();
  }

 private:
  std::unique_ptr<Server> server_;
};

}  // namespace

void bind_server(nb::module_& m) {
  check(Server::register_targets());
  nb::class_<PyServer>(m, "Server")
      .def(nb::init<const std::vector<PyServer::TaskAddress>&, std::string, int, int,
                    const nb::bytes&>(),
           nb::arg("cluster"), nb::arg("job"), nb::arg("task"), nb::arg("cpu_devices"),
           nb::arg("config"))
      .def_prop_ro("address", &PyServer::address);
  m.def("grpc_available", [] { return grpc_available().ok(); });
  // What the server at a target has: (name, ms left of its lease or -1, graphs) of each session,
  // and (id, session, what it waits for) of each step.
  m.def("server_activity", [](const std::string& target) {
    Result<WorkerActivity> activity = interruptible([target] { return Server::activity(target); });
    std::vector<std::tuple<std::string, int64_t, int>> sessions;
    std::vector<std::tuple<int64_t, std::string, std::vector<std::string>>> steps;
    const WorkerActivity got = unwrap(std::move(activity));
    for (const auto& session : got.sessions) {
      sessions.emplace_back(session.name, session.lease_left_ms, session.graphs);
    }
    for (const auto& step : got.steps) steps.emplace_back(step.id, step.session, step.waits_for);
    return std::make_tuple(sessions, steps);
  });
  m.def("stop_cluster", [](const std::string& target) {
    check(interruptible([target] { return Server::stop_cluster(target); }));
  });
  // After how many milliseconds a wait is told of; 0: never.
  m.def("report_after_ms", &report_after_ms);
  m.def("reset_servers", [](const std::string& target, const std::vector<std::string>& containers) {
    check(interruptible([target, containers] { return Server::reset(target, containers); }));
  });
}

}  // namespace millrace::python
