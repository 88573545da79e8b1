#include "millrace/runtime/fold_kernel.h"

#include "millrace/base/thread_pool.h"
#include "millrace/kernel/kernel.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/step.h"

namespace millrace {
namespace {

// With inputs of so many bytes and allocations up to so many, no kernel takes long, and it runs
// here: handing it over would.
constexpr size_t kSmallInputs = 16 << 10;
constexpr size_t kSmallAllocation = 256 << 10;

// What a kernel that runs on this thread may allocate at once.
thread_local size_t allocation_limit = KernelFolder::kMaxAllocation;

// Shared by all tensors that were ever folded, so it never ends.
class LimitedAllocator final : public Allocator {
 public:
  static LimitedAllocator& get() {
    static LimitedAllocator* allocator = new LimitedAllocator;
    return *allocator;
  }
  const char* name() const override { return "constant folding"; }
  MemorySpace space() const override { return MemorySpace::kHost; }
  void* allocate(size_t bytes) override {
    return bytes <= allocation_limit ? cpu_allocator().allocate(bytes) : nullptr;
  }
  void deallocate(void* data, size_t bytes) override { cpu_allocator().deallocate(data, bytes); }
  AllocatorStats stats() const override { return cpu_allocator().stats(); }
  void reset_peak() override {}
};

class LimitedDevice final : public Device {
 public:
  explicit LimitedDevice(Device& cpu) : Device(cpu.info(), make_ref<ResourceManager>()) {}
  Allocator& allocator() override { return LimitedAllocator::get(); }
  Allocator& host_allocator() override { return LimitedAllocator::get(); }
  void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }
};

}  // namespace

// One kernel at work, owned together with all it touches.
struct KernelFolder::Run : RefCounted {
  Ref<Device> device;
  KernelNode node;
  std::unique_ptr<Kernel> kernel;
  std::vector<Value> inputs, outputs;
  Ref<Step> step = Step::make_shared(0);

  Status compute() {
    std::vector<Value*> pointers;
    for (Value& input : inputs) pointers.push_back(&input);
    KernelContext::Args args;
    args.node = &node;
    args.step = step.get();
    args.device = device.get();
    args.inputs = pointers.data();
    args.outputs = outputs.data();
    args.num_inputs = node.num_inputs();
    args.num_outputs = node.num_outputs();
    KernelContext context(args);
    return kernel->compute(context);
  }

  // On this thread, if little memory will do.
  Status compute_small() {
    allocation_limit = kSmallAllocation;
    Status status = compute();
    allocation_limit = kMaxAllocation;
    return status;
  }

  // On another thread, so that it can be given up.
  Status compute_until(Deadline deadline) {
    step->begin(1, nullptr);
    step->pool->schedule_blocking([run = Ref<Run>(this)] {
      Status status = run->compute();
      if (!status.ok()) run->step->fail(status);
      run->step->end_part();
    });
    if (step->wait(deadline)) return step->status();
    Status late = deadline_exceeded("takes too long to fold");
    step->cancel->cancel(late);
    return late;
  }
};

KernelFolder::KernelFolder(Device& cpu, const KernelRegistry& kernels, int64_t budget_ms)
    : device_(make_ref<LimitedDevice>(cpu)), kernels_(kernels), left_ns_(budget_ms * 1'000'000) {}

KernelFolder::~KernelFolder() = default;

Result<std::vector<Tensor>> KernelFolder::run(const SubNode& node, std::vector<Tensor> inputs) {
  if (left_ns_ <= 0) return deadline_exceeded("the time for folding constants is used up");
  Ref<Run> run = make_ref<Run>();
  run->device = device_;
  run->node.name = node.name;
  run->node.op = node.op;
  run->node.attrs = *node.attrs;
  run->node.input_types = node.input_types;
  run->node.output_types = node.output_types;
  run->node.device = device_.get();
  MR_TRY_ASSIGN(run->kernel, make_kernel(kernels_, run->node, DeviceKind::kCpu));
  size_t bytes = 0;
  for (Tensor& input : inputs) {
    bytes += input.bytes();
    run->inputs.push_back(Value::of(std::move(input)));
  }
  run->outputs.resize(node.output_types.size());
  const int64_t began = monotonic_nanos();
  Status status = resource_exhausted("not tried");
  if (bytes <= kSmallInputs) status = run->compute_small();
  if (status.code() == Code::kResourceExhausted) {
    status = run->compute_until(Deadline::after_nanos(left_ns_));
  }
  left_ns_ -= monotonic_nanos() - began;
  MR_TRY(status);
  std::vector<Tensor> out;
  for (size_t i = 0; i < run->outputs.size(); ++i) {
    Value& output = run->outputs[i];
    if (output.state != Value::State::kTensor || output.tensor.dtype() != node.output_types[i]) {
      return internal(node.op->name, " \"", node.name, "\" did not set output ", i);
    }
    out.push_back(std::move(output.tensor));
  }
  return out;
}

}  // namespace millrace
