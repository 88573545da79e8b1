#include <map>

#include "millrace/base/str_cat.h"
#include "millrace/kernel/trace.h"
#include "proto/step_stats.pb.h"

namespace millrace {
namespace {

void fill(const TraceEvent& event, int64_t wall_offset_ns, tensorflow::NodeExecStats& stats) {
  int64_t start = event.start_ns + wall_offset_ns;
  int64_t duration = event.end_ns - event.start_ns;
  int64_t scheduled = event.scheduled_ns != 0 ? event.scheduled_ns + wall_offset_ns : start;
  stats.set_node_name(event.node);
  stats.set_all_start_micros(start / 1000);
  stats.set_all_start_nanos(start);
  // The kernel is all there is of a node: both ends agree.
  stats.set_op_end_rel_micros(duration / 1000);
  stats.set_op_end_rel_nanos(duration);
  stats.set_all_end_rel_micros(duration / 1000);
  stats.set_all_end_rel_nanos(duration);
  stats.set_scheduled_micros(scheduled / 1000);
  stats.set_scheduled_nanos(scheduled);
  stats.set_thread_id(event.thread);
  const std::string transfer = event.peer.empty() ? "" : str_cat(event.tensor, " @", event.peer);
  stats.set_timeline_label(str_cat(event.node, " = ", event.op, "(", transfer, ")"));
  for (const TraceEvent::Block& block : event.blocks) {
    if (block.output < 0) continue;
    tensorflow::NodeOutput* const output = stats.add_output();
    output->set_slot(block.output);
    tensorflow::AllocationDescription* const memory =
        output->mutable_tensor_description()->mutable_allocation_description();
    memory->set_allocator_name(event.device);
    memory->set_requested_bytes(block.bytes);
    memory->set_allocated_bytes(block.bytes);
    memory->set_has_single_reference(block.exclusive);
    memory->set_ptr(reinterpret_cast<uintptr_t>(block.buffer));
  }
  if (event.allocated_bytes != 0) {
    tensorflow::AllocatorMemoryUsed* memory = stats.add_memory();
    memory->set_allocator_name(event.device);
    memory->set_total_bytes(event.allocated_bytes);
  }
}

}  // namespace

void to_step_stats(const std::vector<TraceEvent>& events, int64_t wall_offset_ns,
                   tensorflow::StepStats& stats) {
  std::map<std::string, tensorflow::DeviceStepStats*> devices;
  for (tensorflow::DeviceStepStats& device : *stats.mutable_dev_stats()) {
    devices[device.device()] = &device;
  }
  for (const TraceEvent& event : events) {
    if (event.kind == TraceEvent::Kind::kQueueWait) continue;
    std::string name = event.device;
    if (event.kind == TraceEvent::Kind::kCopy) name += "/memcpy";
    if (event.kind == TraceEvent::Kind::kCall) name += "/call";
    tensorflow::DeviceStepStats*& device = devices[name];
    if (device == nullptr) {
      device = stats.add_dev_stats();
      device->set_device(name);
    }
    fill(event, wall_offset_ns, *device->add_node_stats());
    (*device->mutable_thread_names())[event.thread] = str_cat("thread ", event.thread);
  }
}

}  // namespace millrace
