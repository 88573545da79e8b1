#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "millrace/distributed/cluster.h"
#include "millrace/distributed/simulation/simulated_network_testing.h"
#include "millrace/distributed/worker.h"

namespace millrace {

// A cluster of two parameter servers and two workers, each a process of its own: real workers, real
// leases and real messages, on a simulated network and in simulated time. Not thread-safe.
class SimulatedCluster {
 public:
  // How often something goes wrong, for each message that is sent.
  struct Chances {
    double reset = 0;    // its connection ends, and both ends are told
    double silence = 0;  // its connection ends, and nobody is told
    double cut = 0;      // nothing passes between the two for a while
    double crash = 0;    // one of the two ends at that word, and is started again later
  };
  // Bugs put in on purpose, for tests of the simulation itself.
  struct Bugs {
    bool lost_abort = false;         // a master's aborts and cancellations never arrive
    bool doubled_update = false;     // who lost the answer of a run does it again as another one
    bool missing_deadline = false;   // nobody notices that a peer is silent
    bool renumbered_update = false;  // a run that is tried again has another number
  };
  // What a client has of its process.
  struct Process : RefCounted {
    std::string task;
    uint64_t life = 0;
    bool first = true;  // no process had the name before
    Ref<ProcessTimer> timer;
    Ref<Device> device;
    Ref<Worker> worker;
    Ref<WorkerCache> ways;  // to all tasks, for masters
  };

  SimulatedCluster(uint64_t seed, const Chances& chances, const Bugs& bugs);
  ~SimulatedCluster();
  SimulatedCluster(const SimulatedCluster&) = delete;
  SimulatedCluster& operator=(const SimulatedCluster&) = delete;

  static const std::vector<std::string>& tasks();  // workers last

  // Called when a process begins, and when it is over.
  UniqueFunction<void(const Ref<Process>&)> on_start, on_end;
  void start_all();
  // Ends all processes and what they have said: nothing happens any more.
  void end_all();

  SimulatedTime& time() { return *time_; }
  SimulatedNetwork& network() { return *network_; }
  const Bugs& bugs() const { return bugs_; }
  // The number of the process that is the task now; 0: none is.
  uint64_t life(const std::string& task) const;

  // Nothing goes wrong any more; what is down comes back when it would.
  void calm();
  int crashes() const { return crashes_; }

  // What its workers have: steps, and how many graphs and sessions. Empty: nothing.
  std::string leftovers() const;

 private:
  void start(const std::string& task);
  void crash(const std::string& task);
  void kill(const std::string& task);
  void maybe_fail(const std::string& from, const std::string& to);
  // Frees what a process had.
  void end(const Ref<Process>& process);

  const Ref<SimulatedTime> time_;
  const Ref<SimulatedNetwork> network_;
  Chances chances_;
  const Bugs bugs_;
  std::map<std::string, Ref<Process>> processes_;
  std::map<std::string, int> starts_;
  int crashes_ = 0;
};

}  // namespace millrace
