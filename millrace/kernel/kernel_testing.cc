#include "millrace/kernel/kernel_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "millrace/base/env.h"
#include "millrace/base/thread_pool.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/kernel/op_env_device_testing.h"

namespace millrace {
namespace {

constexpr int64_t kDeadlineMillis = 10'000;

// Fuzzers wait less.
int64_t deadline_millis() {
  static const int64_t millis =
      env_int("MILLRACE_TEST_DEADLINE_MS", kDeadlineMillis, 1, kDeadlineMillis);
  return millis;
}

class TestDevice final : public Device {
 public:
  explicit TestDevice(Info info) : Device(std::move(info), make_ref<ResourceManager>()) {}

  Allocator& allocator() override { return cpu_allocator(); }
  Allocator& host_allocator() override { return cpu_allocator(); }
  void copy_to_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }
  void copy_from_host(const Tensor& from, UniqueFunction<void(Result<Tensor>)> done) override {
    done(from);
  }
};

// What inference may know of an input: its shape, and the elements of a small integer one.
TensorFacts facts_of(Value& value) {
  TensorFacts facts;
  Tensor tensor = value.is_ref() ? value.cell->read() : value.tensor;
  if (!tensor.valid()) return facts;
  facts.shape = tensor.shape();
  if (value.is_ref()) return facts;
  if (tensor.dtype() == DType::kResource && tensor.num_elements() == 1) {
    facts.resource = tensor.item<ResourceHandle>().contents;
  }
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

// Compares what the rules say, given `inputs`, with the real outputs.
void check_inference(const KernelNode& node, const std::vector<TensorFacts>& inputs,
                     std::string_view known, std::vector<Value>& outputs) {
  std::vector<const TensorFacts*> pointers;
  for (const TensorFacts& facts : inputs) pointers.push_back(&facts);
  ShapeContext context(*node.op, node.attrs, pointers, node.input_types, node.output_types);
  Result<std::vector<TensorFacts>> inferred = infer(context);
  if (!inferred.ok()) {
    ADD_FAILURE() << node.op->name << ": the kernel runs, but the shape rule, given " << known
                  << ", says: " << inferred.status().to_string();
    return;
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].dead()) continue;
    TensorFacts real = facts_of(outputs[i]);
    const TensorFacts& rule = (*inferred)[i];
    if (!rule.shape.compatible(real.shape)) {
      ADD_FAILURE() << node.op->name << ": output " << i << " has shape " << real.shape.to_string()
                    << ", but the shape rule, given " << known << ", says "
                    << rule.shape.to_string();
    }
    if (!rule.value || !real.value) continue;
    bool agree = rule.value->is_scalar == real.value->is_scalar &&
                 rule.value->elements.size() == real.value->elements.size();
    for (size_t k = 0; agree && k < real.value->elements.size(); ++k) {
      agree = !rule.value->elements[k] || rule.value->elements[k] == real.value->elements[k];
    }
    if (!agree) {
      ADD_FAILURE() << node.op->name << ": output " << i << " is " << outputs[i].tensor.to_string()
                    << ", but the value rule, given " << known << ", says otherwise";
    }
  }
}

// The inputs whose elements a kernel may read on the host, as bits.
Result<uint64_t> readable_inputs(const KernelNode& node) {
  MR_TRY_ASSIGN(const std::vector<bool> host, expand_host(node.op->inputs, node.attrs));
  uint64_t bits = 0;
  for (size_t i = 0; i < std::min<size_t>(host.size(), 64); ++i) bits |= uint64_t{host[i]} << i;
  return bits;
}

Ref<Device> (*make_env_device)() = nullptr;

// Where `tensor` is to be while the device works on it, and after that.
Status move(Device& device, Tensor& tensor, bool to_device) {
  if (!tensor.valid() || lives_on_host(tensor.dtype())) return ok_status();
  MR_TRY_ASSIGN(tensor, to_device ? copy_from_host(device, tensor) : copy_to_host(device, tensor));
  return ok_status();
}

// What a kernel on such a device is given: the inputs in its memory, but for what it wants on the
// host. Kept with the kernels of an environment.
class DeviceInputs final : public Kernel {
 public:
  Status fill(const std::vector<Value>& inputs, const KernelNode& node) {
    values_ = inputs;
    for (size_t i = 0; i < values_.size(); ++i) {
      Value& value = values_[i];
      if (value.is_ref()) {
        MutexLock lock(value.cell->mu);
        MR_TRY(move(*node.device, value.cell->tensor, true));
      } else if (!node.host_inputs[i]) {
        MR_TRY(move(*node.device, value.tensor, true));
      }
    }
    return ok_status();
  }
  std::vector<Value>& values() { return values_; }
  Status compute(KernelContext&) const override { return ok_status(); }

 private:
  std::vector<Value> values_;
};

// Returns when the stream has passed all work, and whoever waits for it has been told.
Status wait_for_stream(Device& device) {
  struct {
    Mutex mu;
    CondVar changed;
    bool done = false;
    Status status;
  } wait;
  MR_TRY(device.stream()->then([&wait](Status reached) {
    MutexLock lock(wait.mu);
    wait.done = true;
    wait.status = std::move(reached);
    wait.changed.notify_one();
  }));
  MutexLock lock(wait.mu);
  while (!wait.done) wait.changed.wait(wait.mu);
  return wait.status;
}

}  // namespace

void set_op_env_device(Ref<Device> (*make)()) { make_env_device = make; }

bool register_for_tests(std::initializer_list<void (*)(Registry&)> families) {
  static Registry* registry = new Registry(OpRegistry::global(), KernelRegistry::global());
  static auto* seen = new std::set<void (*)(Registry&)>;
  for (auto family : families) {
    if (!seen->insert(family).second) continue;
    family(*registry);
    if (registry->status().ok()) continue;
    std::fprintf(stderr, "registration failed: %s\n", registry->status().to_string().c_str());
    std::abort();
  }
  return true;
}

Ref<Device> make_test_device(std::string_view name) {
  Device::Info info;
  info.name = DeviceName::parse(name).value();
  info.incarnation = 1;
  return make_ref<TestDevice>(std::move(info));
}

Ref<RefCell> make_ref_cell(Tensor tensor) {
  Ref<RefCell> cell = make_ref<RefCell>();
  MutexLock lock(cell->mu);
  cell->tensor = std::move(tensor);
  return cell;
}

OpEnv::OpEnv(const OpRegistry& ops, const KernelRegistry& kernels)
    : ops_(ops),
      kernels_(kernels),
      device_(make_env_device != nullptr ? make_env_device() : make_test_device()),
      rendezvous_(make_local_rendezvous()) {}

// What it keeps may hold the device: an iterator does.
OpEnv::~OpEnv() { device_->resources().clear(); }

void OpEnv::next_step() {
  resources().clear_container(make_ref<Step>(step_id_++)->container());
  rendezvous_ = make_local_rendezvous();
}

bool OpRun::done() const {
  MutexLock lock(mu_);
  return done_;
}

void OpRun::start(const Kernel& kernel) {
  auto finish = [self = Ref<OpRun>(this)](Status status) {
    MutexLock lock(self->mu_);
    EXPECT_FALSE(self->done_) << self->node_.op->name << ": done was called twice";
    self->status_ = std::move(status);
    self->done_ = true;
    self->finished_.notify_all();
  };
  if (const auto* async = dynamic_cast<const AsyncKernel*>(&kernel)) {
    async->compute_async(*context_, std::move(finish));
  } else {
    finish(kernel.compute(*context_));
  }
}

Result<std::vector<Value>> OpRun::wait() {
  auto wait_until = [this](Deadline deadline) MR_REQUIRES(mu_) {
    while (!done_ && finished_.wait_until(mu_, deadline)) {
    }
    return done_;
  };
  {
    MutexLock lock(mu_);
    if (!wait_until(Deadline::after_millis(deadline_millis()))) {
      lock.unlock();
      step_->cancel->cancel(cancelled("the test waited too long"));
      lock.lock();
      // Its memory cannot be given back while the kernel may still write to it.
      MR_CHECK(wait_until(Deadline::after_millis(kDeadlineMillis)) &&
               "the kernel does not obey cancellation");
      return deadline_exceeded(node_.op->name, " was not done after ", deadline_millis(), " ms");
    }
    MR_TRY(status_);
  }
  if (Device& device = *node_.device; device.info().own_memory) {
    MR_TRY(wait_for_stream(device));
    MR_TRY(step_->error());
    for (Value& value : outputs_) {
      if (value.state == Value::State::kTensor) MR_TRY(move(device, value.tensor, false));
    }
    for (Value& value : inputs_) {
      if (!value.is_ref()) continue;
      MutexLock variable(value.cell->mu);
      MR_TRY(move(device, value.cell->tensor, false));
    }
  }
  MR_TRY(check_outputs());
  if (check_shapes_) {
    check_inference(node_, facts_, "the input values", outputs_);
    std::vector<TensorFacts> shapes = facts_;
    for (TensorFacts& facts : shapes) {
      facts.value.reset();
      facts.constant = nullptr;
    }
    check_inference(node_, shapes, "the input shapes", outputs_);
    check_inference(node_, std::vector<TensorFacts>(facts_.size()), "nothing", outputs_);
  }
  return outputs_;
}

Status OpRun::check_outputs() const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const Value& value = outputs_[i];
    DType declared = node_.output_types[i];
    Status error;
    if (value.empty()) {
      error = internal(node_.op->name, ": output ", i, " was not set");
    } else if (value.is_ref() && !is_ref(declared)) {
      error = internal(node_.op->name, ": output ", i, " is a reference, declared is ", declared);
    } else if (value.state == Value::State::kTensor && value.tensor.dtype() != declared) {
      error = internal(node_.op->name, ": output ", i, " is ", value.tensor.dtype(),
                       ", declared is ", declared);
    }
    if (error.ok()) continue;
    ADD_FAILURE() << error.to_string();
    return error;
  }
  return ok_status();
}

OpTester::OpTester(std::string_view op)
    : own_env_(std::make_unique<OpEnv>()), env_(*own_env_), op_(op) {}
OpTester::OpTester(OpEnv& env, std::string_view op) : env_(env), op_(op) {}
OpTester::~OpTester() = default;

OpTester& OpTester::attr(std::string_view name, AttrValue value) {
  attrs_.set(name, std::move(value));
  return *this;
}
OpTester& OpTester::input(Tensor tensor) {
  arguments_.emplace_back().values.push_back(Value::of(std::move(tensor)));
  return *this;
}
OpTester& OpTester::input_ref(Ref<RefCell> cell) {
  Value& value = arguments_.emplace_back().values.emplace_back();
  value.state = Value::State::kRef;
  value.cell = std::move(cell);
  return *this;
}
OpTester& OpTester::input_ref_list(std::vector<Ref<RefCell>> cells) {
  Argument& argument = arguments_.emplace_back();
  argument.list = true;
  for (Ref<RefCell>& cell : cells) {
    Value& value = argument.values.emplace_back();
    value.state = Value::State::kRef;
    value.cell = std::move(cell);
  }
  return *this;
}
OpTester& OpTester::input_list(std::vector<Tensor> tensors) {
  Argument& argument = arguments_.emplace_back();
  argument.list = true;
  for (Tensor& tensor : tensors) argument.values.push_back(Value::of(std::move(tensor)));
  return *this;
}
OpTester& OpTester::clear_inputs() {
  arguments_.clear();
  return *this;
}
OpTester& OpTester::name(std::string_view name) {
  name_ = std::string(name);
  return *this;
}
OpTester& OpTester::label(std::string_view label) {
  label_ = std::string(label);
  return *this;
}
OpTester& OpTester::movable(bool movable) {
  movable_ = movable;
  return *this;
}
OpTester& OpTester::planned(std::vector<Ref<Buffer>>& buffers) {
  planned_ = &buffers;
  return *this;
}

OpTester& OpTester::device(Device& device) {
  device_ = &device;
  return *this;
}
OpTester& OpTester::threads(int n) {
  threads_ = n;
  return *this;
}
OpTester& OpTester::check_shapes(bool check) {
  check_shapes_ = check;
  return *this;
}

Result<KernelNode> OpTester::make_node(std::vector<Value>& inputs) const {
  KernelNode node;
  MR_TRY_ASSIGN(node.op, env_.ops_.lookup(op_));
  node.attrs = attrs_;
  node.name = name_;
  node.device = device_ != nullptr ? device_ : env_.device_.get();
  node.session_prefix = env_.session_prefix_;

  std::vector<DType> types;
  for (Value& value : inputs) {
    if (!value.is_ref()) {
      types.push_back(value.tensor.dtype());
    } else if (Tensor tensor = value.cell->read(); tensor.valid()) {
      types.push_back(ref_type(tensor.dtype()));
    } else {
      // An uninitialised variable takes the type of what is assigned to it.
      const AttrValue* type = attrs_.find("T");
      if (type == nullptr) type = attrs_.find("dtype");
      DType dtype = type != nullptr && type->get<DType>() != nullptr ? *type->get<DType>()
                    : inputs.back().is_ref()                         ? DType::kInvalid
                                                                     : inputs.back().tensor.dtype();
      if (dtype == DType::kInvalid) {
        return invalid_argument(op_, ": the type of an uninitialised reference must be given");
      }
      types.push_back(ref_type(dtype));
    }
  }
  for (size_t i = 0; i < arguments_.size() && i < node.op->inputs.size(); ++i) {
    const ArgDef& arg = node.op->inputs[i];
    if (!arguments_[i].list || !arg.is_list()) continue;
    if (!arg.number_attr.empty() && node.attrs.find(arg.number_attr) == nullptr) {
      node.attrs.set(arg.number_attr, static_cast<int64_t>(arguments_[i].values.size()));
    }
    if (!arg.type_list_attr.empty() && node.attrs.find(arg.type_list_attr) == nullptr) {
      std::vector<DType> list;
      for (const Value& value : arguments_[i].values) list.push_back(value.tensor.dtype());
      node.attrs.set(arg.type_list_attr, std::move(list));
    }
  }
  MR_TRY(infer_type_attrs(*node.op, types, node.attrs));
  MR_TRY(check_attrs(*node.op, node.attrs));
  MR_TRY_ASSIGN(node.input_types, expand_types(node.op->inputs, node.attrs));
  MR_TRY_ASSIGN(node.output_types, expand_types(node.op->outputs, node.attrs));
  if (node.input_types.size() != inputs.size()) {
    return invalid_argument(op_, ": expected ", node.input_types.size(), " inputs, got ",
                            inputs.size());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    DType declared = node.input_types[i];
    if (base_type(types[i]) != base_type(declared) || (is_ref(declared) && !is_ref(types[i]))) {
      return invalid_argument(op_, ": input ", i, " must be ", declared, ", got ", types[i]);
    }
    // A reference given to a by-value argument is read.
    if (inputs[i].is_ref() && !is_ref(declared)) inputs[i] = Value::of(inputs[i].cell->read());
  }
  return node;
}

Result<Ref<OpRun>> OpTester::start() {
  if (name_.empty()) name_ = str_cat(op_, "_", env_.next_node_++);
  Ref<OpRun> run(new OpRun);
  for (Argument& argument : arguments_) {
    for (Value& value : argument.values) {
      run->inputs_.push_back(movable_ && !value.is_ref() ? std::move(value) : value);
    }
  }
  MR_TRY_ASSIGN(run->node_, make_node(run->inputs_));
  KernelNode& node = run->node_;
  const bool own_memory = node.device->info().own_memory;
  if (own_memory) {
    MR_TRY_ASSIGN(node.host_inputs, expand_host(node.op->inputs, node.attrs));
    MR_TRY_ASSIGN(node.host_outputs, expand_host(node.op->outputs, node.attrs));
  }
  MR_TRY_ASSIGN(std::unique_ptr<Kernel> kernel,
                make_kernel(env_.kernels_, node, node.device->kind(), label_));

  run->check_shapes_ = check_shapes_;
  for (Value& value : run->inputs_) {
    run->facts_.push_back(facts_of(value));
    run->input_pointers_.push_back(&value);
  }
  // With movable inputs the facts must not hold on to the tensors.
  for (size_t i = 0; !movable_ && i < run->inputs_.size(); ++i) {
    if (!run->inputs_[i].is_ref()) run->facts_[i].constant = &run->inputs_[i].tensor;
  }
  if (own_memory) {
    auto there = std::make_unique<DeviceInputs>();
    MR_TRY(there->fill(run->inputs_, node));
    for (size_t i = 0; i < run->inputs_.size(); ++i) run->input_pointers_[i] = &there->values()[i];
    env_.made_.push_back(std::move(there));
  }
  run->outputs_.resize(node.output_types.size());
  if (threads_ > 0) run->pool_ = std::make_unique<ThreadPool>(threads_);

  run->step_ = make_ref<Step>(env_.step_id_);
  if (run->pool_) run->step_->pool = run->pool_.get();
  run->step_->rendezvous = env_.rendezvous_;
  run->step_->cancel = make_ref<CancellationToken>();
  run->step_->functions = env_.functions_;

  KernelContext::Args args;
  args.node = &node;
  args.step = run->step_.get();
  args.device = node.device;
  args.inputs = run->input_pointers_.data();
  args.outputs = run->outputs_.data();
  args.num_inputs = node.num_inputs();
  args.num_outputs = node.num_outputs();
  args.movable = movable_ ? ~uint64_t{0} : 0;
  if (planned_ != nullptr) {
    MR_CHECK(static_cast<int>(planned_->size()) == node.num_outputs());
    args.planned = planned_->data();
  }
  MR_TRY_ASSIGN(args.readable, readable_inputs(node));
  run->context_.emplace(args);
  // Kept to the end of the environment: state of a kernel may go with it.
  env_.made_.push_back(std::move(kernel));
  run->start(*env_.made_.back());
  return run;
}

Result<std::vector<Value>> OpTester::run_values() {
  MR_TRY_ASSIGN(Ref<OpRun> run, start());
  return run->wait();
}

Result<std::vector<Tensor>> OpTester::run() {
  MR_TRY_ASSIGN(std::vector<Value> values, run_values());
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    Value& value = values[i];
    if (value.dead()) return failed_precondition(op_, ": output ", i, " is dead");
    tensors.push_back(value.is_ref() ? value.cell->read() : std::move(value.tensor));
  }
  return tensors;
}

Result<Tensor> OpTester::run_one() {
  MR_TRY_ASSIGN(std::vector<Tensor> tensors, run());
  if (tensors.size() != 1) {
    return invalid_argument(op_, ": expected an op with one output, it has ", tensors.size());
  }
  return std::move(tensors[0]);
}

}  // namespace millrace
