#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/distributed/clock_offsets.h"
#include "millrace/distributed/worker_interface.h"

namespace millrace {

// Which tasks a cluster has and where they are. A job is a name and tasks by number, with gaps
// allowed; what an address means is the transport's business.
class ClusterSpec {
 public:
  // Reads "worker|host:2222;host:2223,ps|host:2224": jobs separated by commas, each a name and the
  // addresses of tasks 0, 1, ... INVALID_ARGUMENT as for add().
  static Result<ClusterSpec> parse(std::string_view text);

  // INVALID_ARGUMENT for a job name that is not a letter followed by letters, digits and "_", a
  // negative number, an empty address, and a task or an address that is there already.
  Status add(std::string_view job, int task, std::string_view address);

  const std::map<std::string, std::map<int, std::string>>& jobs() const { return jobs_; }
  // "/job:J/replica:0/task:T" of every task, by job and number.
  std::vector<std::string> task_names() const;
  // NOT_FOUND naming the tasks there are.
  Result<std::string> address(std::string_view task_name) const;
  std::string to_string() const;

 private:
  std::map<std::string, std::map<int, std::string>> jobs_;
};

// Which tasks and devices a session uses, by partial names.
class DeviceFilters {
 public:
  // INVALID_ARGUMENT for what is no partial name of a device.
  static Result<DeviceFilters> parse(const std::vector<std::string>& texts);

  // True when some filter agrees with `name`, as far as both say something, or there is none: the
  // name of a task agrees with "/job:ps" and with "/job:ps/device:CPU:0".
  bool keep(const DeviceName& name) const;

 private:
  std::vector<DeviceName> filters_;
};

// The name of a task, in the form that all of distributed/ uses.
std::string task_name(std::string_view job, int task);

// How the tasks of a cluster are reached, and which of them answered last. Thread-safe.
class WorkerCache : public RefCounted {
 public:
  // ALREADY_EXISTS for a second interface to one task.
  Status add(std::string task, Ref<WorkerInterface> worker);
  // NOT_FOUND naming the tasks there are.
  Result<Ref<WorkerInterface>> find(std::string_view task) const;
  std::vector<std::string> tasks() const;

  // Says how a call to a task ended: UNAVAILABLE means that it is gone, anything else that it
  // answered.
  void report(std::string_view task, const Status& status);
  // False for tasks whose last call could not reach them, and for unknown ones.
  bool alive(std::string_view task) const;

  // How far the clocks of the tasks are from ours, as far as somebody asked.
  const Ref<ClockOffsets>& clocks() const { return clocks_; }

 private:
  struct Entry {
    Ref<WorkerInterface> worker;
    bool alive = true;
  };
  const Ref<ClockOffsets> clocks_ = make_ref<ClockOffsets>();
  mutable Mutex mu_;
  std::map<std::string, Entry, std::less<>> entries_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
