#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/file_access.h"
#include "millrace/device/gpu_library.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/trace.h"
#include "millrace/kernel/update_log.h"
#include "millrace/runtime/executor.h"
#include "millrace/tensor/dtype.h"

namespace tensorflow {
class ConfigProto;
class RunMetadata;
class RunOptions;
}  // namespace tensorflow

namespace millrace {

// A task of a cluster: its job, its number there, its address.
struct SessionTask {
  std::string job;
  int number = 0;
  std::string address;
};

// What a session is made with.
struct SessionOptions {
  // Where it runs: empty for this process; "scheme://address" for a registered backend.
  std::string target;
  // How many virtual CPU devices there are in this process: "/device:CPU:0" and so on.
  int cpu_devices = 1;
  // Which GPUs of this process it has, and how much of their memory.
  GpuOptions gpu = {};
  // At most this many threads of the process's pool for one run; 0: all.
  int threads = 0;
  // Only devices that match one of these partial names are used; empty: all.
  std::vector<std::string> device_filters;
  bool soft_placement = false;
  bool log_placement = false;
  // 0: no passes; 1: the exact ones; 2: also those that round differently, but as well.
  int optimizer_level = 2;
  // Names of passes that are left out, besides those that MILLRACE_DISABLE_PASSES lists.
  std::vector<std::string> disabled_passes;
  // kHalf or kBFloat16: products of float32, and what stands between them, are computed in that
  // type on CPUs (GPUs); see docs/optimisation.md. kFloat: they are not.
  DType cpu_precision = DType::kFloat;
  DType gpu_precision = DType::kFloat;
  // For every run that does not say otherwise; 0: none.
  int64_t timeout_ms = 0;
  Gear gear = Gear::kAuto;
  // Plans are kept by signature; beyond so many bytes, those used longest ago are dropped.
  int64_t max_plan_bytes = int64_t{256} << 20;
  // Besides its general plan a signature gets plans made for the shapes that its feeds keep having,
  // in the background, within max_plan_bytes. Results are the same.
  bool shape_plans = true;
  // Runs whose work is all on a device that records, such as a GPU, are recorded after some time
  // and then run as a whole (docs/devices.md). Results are the same.
  bool record_runs = true;
  // A run is to hold at most about so many bytes of tensors at once, as far as their sizes are
  // known before it begins; 0: as many as it likes. To that end cheap values are computed twice
  // (millrace/runtime/recompute.h). Plans are then made for the shapes of what is fed before the
  // first run with these shapes, and of up to ShapePlans::kMost shapes.
  int64_t memory_limit = 0;
  // So many partial runs may be open at once; past it they are RESOURCE_EXHAUSTED.
  int max_partial_runs = 1 << 20;
  // The files that graphs may reach, on devices of this process; null: all.
  Ref<FileAccess> files;
  // What graphs may reach on the devices of a cluster, besides what its servers let them.
  GraphRights rights = {};
  // On a cluster: variables and all other state are the session's own, and end with it. Sessions of
  // one process alone have no other state.
  bool isolate_state = false;
  // The cluster that the session is to run on, where it brings one: its servers are the tasks that
  // stand here, whatever they were started as. Sessions of one process alone have none.
  std::vector<SessionTask> cluster;
  // The target in the client's own words, where the session is made for a client elsewhere.
  std::string asked_target;
  // Kernels with this label where an op has one ("reference"): for tests.
  std::string kernel_label;

  // What a ConfigProto asks for; fields that mean nothing here are ignored.
  static Result<SessionOptions> from_proto(const tensorflow::ConfigProto& config);
};

// What one run is asked for besides its tensors.
struct RunOptions {
  int64_t timeout_ms = 0;  // 0: the session's
  bool trace = false;
  // Where to write the trace for Chrome or Perfetto; empty: nowhere.
  std::string trace_path;
  // Stops the run when cancelled.
  Ref<CancellationToken> cancel;
  // Asked some ten times a second, on the thread that called run(), while that waits for steps on
  // other threads: true stops the run, which is CANCELLED then. For signals.
  bool (*interrupted)() = nullptr;
  // Of a run over a cluster that is tried again, also by another session, when a task was lost: its
  // changes of state that are made already are not made again.
  UpdateId update;

  static RunOptions from_proto(const tensorflow::RunOptions& options);
};

// What a run tells besides its tensors.
struct RunMetadata {
  std::vector<TraceEvent> events;  // when traced
  int64_t wall_offset_ns = 0;      // see TraceCollector
  std::string plans;               // when traced: the plans that ran
  TraceMemory memory;              // when traced: what the tensors of this process held

  void to_proto(tensorflow::RunMetadata& metadata) const;
};

}  // namespace millrace
