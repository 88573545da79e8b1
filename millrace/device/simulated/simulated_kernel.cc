// Kernels of the CPU as those of a device that only enqueues.

#include <algorithm>
#include <utility>

#include "millrace/device/simulated/simulated_device.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel_call.h"

namespace millrace {
namespace {

size_t index(int i) { return static_cast<size_t>(i); }

bool flag(const std::vector<bool>& flags, int i) { return !flags.empty() && flags[index(i)]; }

// What is known of a tensor without looking at elements that are on the device.
TensorFacts facts_of(const Value& value, bool host) {
  TensorFacts facts;
  if (value.is_ref()) return facts;
  const Tensor& tensor = value.tensor;
  facts.shape = tensor.shape();
  if (!host) return facts;
  facts.constant = &tensor;
  if (kIndexTypes.contains(tensor.dtype()) && tensor.rank() <= 1 &&
      tensor.num_elements() <= kMaxValueElements) {
    PartialValue known;
    known.is_scalar = tensor.rank() == 0;
    for (size_t i = 0; i < static_cast<size_t>(tensor.num_elements()); ++i) {
      known.elements.emplace_back(tensor.dtype() == DType::kInt32 ? tensor.data<int32_t>()[i]
                                                                  : tensor.data<int64_t>()[i]);
    }
    facts.value = std::move(known);
  }
  return facts;
}

// A tensor over the memory of `tensor` that does not keep it: work on a stream comes before the
// work of whoever gets the memory next.
Tensor unowned(const Tensor& tensor) {
  if (!tensor.buffer() || tensor.buffer()->space() != MemorySpace::kDevice) return tensor;
  return Tensor(tensor.dtype(), tensor.shape(),
                Buffer::borrow(tensor.raw(), tensor.bytes(), nullptr, MemorySpace::kDevice));
}

// One call: enqueued, then run on the thread of the stream. Deletes itself.
class Call {
 public:
  Call(SimulatedDevice& device, const Kernel& kernel, const KernelNode& outer,
       const KernelNode& inner, const KernelContext& ctx)
      : device_(device), kernel_(kernel), outer_(outer), inner_(inner), step_(&ctx.step()) {
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      Value value = ctx.input_value(i);
      if (value.state == Value::State::kTensor) value.tensor = unowned(value.tensor);
      inputs_.push_back(std::move(value));
    }
    outputs_.resize(outer.output_types.size());
    frame_ = ctx.frame();
    iteration_ = ctx.iteration();
  }

  // The outputs were promised: the work writes them.
  void run_into(std::vector<Tensor> promised) {
    promised_ = std::move(promised);
    device_.stream()->enqueue([this] { run(); });
  }
  // The outputs are made by the work: `done` follows when `ctx` has them.
  void run_and_tell(KernelContext& ctx, AsyncKernel::Done done) {
    context_of_caller_ = &ctx;
    done_ = std::move(done);
    device_.stream()->enqueue([this] { run(); });
  }
  // Without the stream: all of it is on the host.
  void run_here(KernelContext& ctx, AsyncKernel::Done done) {
    context_of_caller_ = &ctx;
    done_ = std::move(done);
    run();
  }

 private:
  void run() {
    if (step_->stopped()) return end(cancelled("the step was stopped"));
    Status status = read_inputs();
    if (!status.ok()) return end(std::move(status));
    for (Value& input : inputs_) pointers_.push_back(&input);
    KernelContext::Args args;
    args.node = &inner_;
    args.step = step_;
    args.device = &device_.host();
    args.inputs = pointers_.data();
    args.outputs = outputs_.data();
    args.num_inputs = inner_.num_inputs();
    args.num_outputs = inner_.num_outputs();
    args.frame = frame_;
    args.iteration = iteration_;
    context_.emplace(args);
    if (const auto* async = dynamic_cast<const AsyncKernel*>(&kernel_)) {
      async->compute_async(*context_, [this](Status status) { end(std::move(status)); });
    } else {
      end(kernel_.compute(*context_));
    }
  }

  Status read_inputs() {
    for (Value& input : inputs_) {
      if (input.is_ref()) {
        MutexLock lock(input.cell->mu);
        MR_TRY(read(input.cell->tensor));
      } else if (input.state == Value::State::kTensor) {
        MR_TRY(read(input.tensor));
      }
    }
    return ok_status();
  }
  static Status read(Tensor& tensor) {
    if (!tensor.buffer() || tensor.buffer()->space() != MemorySpace::kDevice) return ok_status();
    MR_TRY_ASSIGN(tensor, SimulatedDevice::read(tensor));
    return ok_status();
  }

  void end(Status status) {
    if (status.ok()) {
      status = check_outputs(inner_.output_types.data(), inner_.num_outputs(), outputs_.data());
    }
    if (Status written = write_back(); status.ok()) status = std::move(written);
    if (status.ok()) status = promised_.empty() ? set_outputs() : fill_promised();
    AsyncKernel::Done done = std::move(done_);
    if (!done && !status.ok()) step_->fail(annotate_error(status, outer_, 0));
    delete this;
    if (done) done(std::move(status));
  }

  // Variables that the work has seen in host memory go back to the device.
  Status write_back() {
    for (Value& input : inputs_) {
      if (!input.is_ref()) continue;
      MutexLock lock(input.cell->mu);
      if (!input.cell->tensor.valid() || lives_on_host(input.cell->tensor.dtype())) continue;
      MR_TRY_ASSIGN(input.cell->tensor, copy_from_host(device_, input.cell->tensor));
    }
    return ok_status();
  }

  Status fill_promised() {
    for (size_t i = 0; i < promised_.size(); ++i) {
      const Tensor& made = outputs_[i].tensor;
      if (made.shape() != promised_[i].shape()) {
        return internal("output ", i, " has shape ", made.shape(), ", the shape rule said ",
                        promised_[i].shape());
      }
      SimulatedDevice::write(made, promised_[i]);
    }
    return ok_status();
  }

  Status set_outputs() {
    for (int i = 0; i < inner_.num_outputs(); ++i) {
      Value& output = outputs_[index(i)];
      if (output.state == Value::State::kTensor && !flag(outer_.host_outputs, i)) {
        MR_TRY_ASSIGN(output.tensor, copy_from_host(device_, output.tensor));
      }
      context_of_caller_->set_output_value(i, std::move(output));
    }
    return ok_status();
  }

  SimulatedDevice& device_;
  const Kernel& kernel_;
  const KernelNode& outer_;
  const KernelNode& inner_;
  Step* const step_;  // lives until the stream has passed the work of its run
  uint64_t frame_ = 0;
  uint64_t iteration_ = 0;
  std::vector<Value> inputs_, outputs_;
  std::vector<Value*> pointers_;
  std::vector<Tensor> promised_;
  std::optional<KernelContext> context_;
  KernelContext* context_of_caller_ = nullptr;
  AsyncKernel::Done done_;
};

class SimulatedKernel final : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    if (node.device == nullptr || node.device->kind() != DeviceKind::kSimulated) {
      return internal("a simulated kernel was asked for on another device");
    }
    auto& device = static_cast<SimulatedDevice&>(*node.device);
    for (const KernelDef* def : device.kernels().list(node.op->name)) {
      if (def->device == DeviceKind::kAny) return unimplemented("there is one for every device");
    }
    auto made = std::make_unique<SimulatedKernel>(device, node);
    MR_TRY_ASSIGN(made->kernel_, make_kernel(device.kernels(), made->inner_, DeviceKind::kCpu));
    return std::unique_ptr<Kernel>(std::move(made));
  }
  SimulatedKernel(SimulatedDevice& device, const KernelNode& node)
      : device_(device), outer_(node), inner_(node) {
    inner_.device = &device.host();
    inner_.host_inputs.clear();
    inner_.host_outputs.clear();
    auto on_device = [](const std::vector<bool>& host, int count) {
      return static_cast<int>(std::count(host.begin(), host.end(), true)) < count;
    };
    inputs_on_device_ = on_device(outer_.host_inputs, outer_.num_inputs());
    outputs_on_device_ = on_device(outer_.host_outputs, outer_.num_outputs());
    for (const auto* types : {&outer_.input_types, &outer_.output_types}) {
      for (DType type : *types) has_state_ |= is_ref(type) || lives_on_host(type);
    }
    has_state_ |= outer_.op->traits.stateful;
    outputs_in_host_memory_ = std::find(outer_.host_outputs.begin(), outer_.host_outputs.end(),
                                        true) != outer_.host_outputs.end();
  }

  void compute_async(KernelContext& ctx, Done done) const override {
    device_.called(outer_.name);
    Call* call = new Call(device_, *kernel_, outer_, inner_, ctx);
    if (!has_state_ && !inputs_on_device_ && !outputs_on_device_) {
      return call->run_here(ctx, std::move(done));
    }
    std::vector<Tensor> promised;
    if (!has_state_ && !outputs_in_host_memory_ && allocate_outputs(ctx, promised)) {
      for (int i = 0; i < ctx.num_outputs(); ++i) ctx.set_output(i, promised[index(i)]);
      for (Tensor& output : promised) output = unowned(output);
      call->run_into(std::move(promised));
      return done(ok_status());
    }
    call->run_and_tell(ctx, std::move(done));
  }

 private:
  // False when the shapes depend on elements, or something is wrong, which the kernel will say.
  bool allocate_outputs(const KernelContext& ctx, std::vector<Tensor>& outputs) const {
    std::vector<TensorFacts> facts;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      facts.push_back(facts_of(ctx.input_value(i), flag(outer_.host_inputs, i)));
    }
    std::vector<const TensorFacts*> pointers;
    for (const TensorFacts& f : facts) pointers.push_back(&f);
    ShapeContext context(*outer_.op, outer_.attrs, pointers, outer_.input_types,
                         outer_.output_types);
    Result<std::vector<TensorFacts>> inferred = infer(context);
    if (!inferred.ok() || inferred->empty()) return false;
    for (int i = 0; i < ctx.num_outputs(); ++i) {
      const PartialShape& known = (*inferred)[index(i)].shape;
      if (!known.fully_known()) return false;
      Result<Shape> shape = Shape::make(known.dims());
      if (!shape.ok()) return false;
      Result<Tensor> output = Tensor::allocate(ctx.output_type(i), *shape, device_.allocator());
      if (!output.ok()) return false;
      outputs.push_back(std::move(*output));
    }
    return true;
  }

  SimulatedDevice& device_;
  const KernelNode outer_;
  KernelNode inner_;
  std::unique_ptr<Kernel> kernel_;
  bool inputs_on_device_ = false;
  bool outputs_on_device_ = false;
  bool outputs_in_host_memory_ = false;
  bool has_state_ = false;  // its effects are ordered with other work, and its outputs with them
};

}  // namespace

Status register_simulated_kernels(KernelRegistry& registry) {
  return registry.add(
      {.op = "*", .device = DeviceKind::kSimulated, .factory = &SimulatedKernel::make});
}

}  // namespace millrace
