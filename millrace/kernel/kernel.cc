#include "millrace/kernel/kernel.h"

#include "millrace/base/mutex.h"
#include "millrace/base/thread_pool.h"
#include "millrace/graph/op_def.h"

namespace millrace {
namespace {

// "shape": the argument's name, or where it is a list "input 1".
std::string input_name(const KernelContext& ctx, int input) {
  const OpDef* op = ctx.node().op;
  if (op != nullptr) {
    for (size_t i = 0; i < op->inputs.size() && !op->inputs[i].is_list(); ++i) {
      if (static_cast<int>(i) == input) return op->inputs[i].name;
    }
  }
  return str_cat("input ", input);
}

// "input 1 (shape)": the number, and the argument's name where it is one tensor.
std::string input_label(const KernelContext& ctx, int input) {
  const std::string number = str_cat("input ", input), name = input_name(ctx, input);
  return name == number ? number : str_cat(number, " (", name, ")");
}

[[gnu::cold]] Status allocation_error(const Status& error, DType dtype, const Shape& shape,
                                      const Device& device, const Allocator& allocator) {
  if (error.code() != Code::kResourceExhausted) return error;
  return resource_exhausted("OOM when allocating tensor with shape ", shape, " and type ", dtype,
                            " on ", device.name(), " by allocator ", allocator.name());
}

// Elements of an int32 or int64 tensor.
int64_t int_element(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == DType::kInt32 ? tensor.data<int32_t>()[static_cast<size_t>(i)]
                                         : tensor.data<int64_t>()[static_cast<size_t>(i)];
}

}  // namespace

Status AsyncKernel::compute(KernelContext& ctx) const {
  struct {
    Mutex mu;
    CondVar changed;
    bool done = false;
    Status status;
  } wait;
  compute_async(ctx, [&wait](Status status) {
    // Notified with the lock held: the waiter may destroy `wait` as soon as it has the lock.
    MutexLock lock(wait.mu);
    wait.status = std::move(status);
    wait.done = true;
    wait.changed.notify_one();
  });
  MutexLock lock(wait.mu);
  while (!wait.done) wait.changed.wait(wait.mu);
  return std::move(wait.status);
}

void KernelContext::take_types_of_node() {
  if (args_.node == nullptr) return;
  args_.output_types = args_.node->output_types.data();
  args_.host_outputs = !args_.node->host_outputs.empty();
}

Value KernelContext::take_input(int i) {
  Value& input = *args_.inputs[i];
  if (!movable(i)) return input;
  Value taken = std::move(input);
  input.clear();  // NOLINT(bugprone-use-after-move): its state says what to drop
  return taken;
}

Status KernelContext::not_declared_host(int i) const {
  return internal("the kernel reads ", input_label(*this, i),
                  " on the host; its op must declare it host(...)");
}

Status KernelContext::check_scalar(int i, DType dtype) const {
  MR_TRY(check_host(i));
  const Tensor& tensor = input(i);
  if (tensor.dtype() != dtype || tensor.num_elements() != 1) [[unlikely]] {
    return invalid_argument(input_label(*this, i), " must be a ", dtype, " scalar, got ",
                            tensor.dtype(), " ", tensor.shape());
  }
  return ok_status();
}

Result<std::vector<int64_t>> KernelContext::int_vector_input(int i) const {
  MR_TRY(check_host(i));
  const Tensor& tensor = input(i);
  if (!kIndexTypes.contains(tensor.dtype()) || tensor.rank() > 1) {
    return invalid_argument(input_label(*this, i), " must be an int32 or int64 vector, got ",
                            tensor.dtype(), " ", tensor.shape());
  }
  std::vector<int64_t> values(static_cast<size_t>(tensor.num_elements()));
  for (size_t k = 0; k < values.size(); ++k) {
    values[k] = int_element(tensor, static_cast<int64_t>(k));
  }
  return values;
}

Result<int64_t> KernelContext::int_scalar_input(int i) const {
  MR_TRY(check_host(i));
  const Tensor& tensor = input(i);
  if (!kIndexTypes.contains(tensor.dtype()) || tensor.num_elements() != 1) {
    return invalid_argument(input_label(*this, i), " must be an int32 or int64 scalar, got ",
                            tensor.dtype(), " ", tensor.shape());
  }
  return int_element(tensor, 0);
}

Result<Shape> KernelContext::shape_input(int i) const {
  const Tensor& tensor = input(i);
  if (tensor.rank() != 1) {
    return invalid_argument(input_label(*this, i), " must be a shape vector, got ", tensor.dtype(),
                            " ", tensor.shape());
  }
  MR_TRY_ASSIGN(std::vector<int64_t> dims, int_vector_input(i));
  Result<Shape> shape = Shape::make(dims);
  if (!shape.ok()) return shape.status().with_prefix(input_label(*this, i));
  return shape;
}

Ref<Buffer> KernelContext::take_planned(const Allocator& allocator, int i,
                                        const Shape& shape) const {
  if (args_.planned == nullptr) return nullptr;
  Ref<Buffer>& planned = args_.planned[i];
  const DType dtype = output_type(i);
  size_t bytes;
  if (!planned || !is_plain(dtype) || planned->allocator() != &allocator || !planned->writable() ||
      __builtin_mul_overflow(static_cast<size_t>(shape.num_elements()), dtype_size(dtype),
                             &bytes) ||
      bytes > planned->bytes()) {
    return nullptr;
  }
  return std::move(planned);
}

Result<Tensor*> KernelContext::allocate_output_in(Allocator& allocator, int i, const Shape& shape) {
  DType dtype = output_type(i);
  Ref<Buffer> memory = take_planned(allocator, i, shape);
  if (!memory) {
    Result<Ref<Buffer>> buffer = Buffer::allocate(dtype, shape.num_elements(), allocator);
    if (!buffer.ok()) [[unlikely]] {
      return allocation_error(buffer.status(), dtype, shape, device(), allocator);
    }
    memory = std::move(*buffer);
    allocated_bytes_ += static_cast<int64_t>(memory->bytes());
  }
  Value& output = args_.outputs[i];
  if (!output.empty()) [[unlikely]]
    output.clear();
  output.tensor.assign(dtype, shape, std::move(memory));
  output.state = Value::State::kTensor;
  return &output.tensor;
}

Result<Tensor*> KernelContext::allocate_output(int i, const Shape& shape) {
  return allocate_output_in(output_allocator(i), i, shape);
}

Result<Tensor*> KernelContext::forward_or_allocate_output(std::initializer_list<int> candidates,
                                                          int i, const Shape& shape) {
  Allocator& allocator = output_allocator(i);
  DType dtype = output_type(i);
  for (int candidate : candidates) {
    if (!movable(candidate)) continue;
    const Value& input = *args_.inputs[candidate];
    const Tensor& tensor = input.tensor;
    if (input.state != Value::State::kTensor || tensor.num_elements() != shape.num_elements() ||
        !tensor.writable()) {
      continue;
    }
    if (tensor.dtype() != dtype && (!is_plain(dtype) || !is_plain(tensor.dtype()) ||
                                    dtype_size(tensor.dtype()) != dtype_size(dtype))) {
      continue;
    }
    // A kernel may count on the alignment and the memory that a fresh output would have.
    if (reinterpret_cast<uintptr_t>(tensor.raw()) % Allocator::kAlignment != 0 ||
        (tensor.buffer()->allocator() != &allocator &&
         tensor.buffer()->space() != allocator.space())) {
      continue;
    }
    Value& output = args_.outputs[i];
    if (!output.empty()) [[unlikely]]
      output.clear();
    // The input keeps its reference, for the kernel still has to read it.
    output.tensor.assign(dtype, shape, tensor.buffer(), tensor.offset());
    output.state = Value::State::kTensor;
    return &output.tensor;
  }
  return allocate_output_in(allocator, i, shape);
}

Result<Tensor> KernelContext::allocate_temp(DType dtype, const Shape& shape) {
  Allocator& allocator = device().allocator();
  Result<Tensor> tensor = Tensor::allocate(dtype, shape, allocator);
  if (!tensor.ok()) return allocation_error(tensor.status(), dtype, shape, device(), allocator);
  allocated_bytes_ += static_cast<int64_t>(tensor->bytes());
  return tensor;
}

void KernelContext::set_output_ref(int i, Ref<RefCell> cell) {
  Value& output = args_.outputs[i];
  output.clear();
  output.cell = std::move(cell);
  output.state = Value::State::kRef;
}

void KernelContext::parallel_for(int64_t n, double cost_ns_per_unit,
                                 FunctionRef<void(int64_t, int64_t)> body) const {
  const Step& step = *args_.step;
  step.pool->parallel_for(n, cost_ns_per_unit, body, step.threads_in_kernel(), step.cancel.get());
}

Status expect_rank(const KernelContext& ctx, int input, int rank) {
  const Shape& shape = ctx.input(input).shape();
  if (shape.rank() == rank) [[likely]]
    return ok_status();
  if (rank > 1) {
    return invalid_argument(input_label(ctx, input), " must have rank ", rank, ", got shape ",
                            shape);
  }
  return invalid_argument(input_name(ctx, input), " must be a ", rank == 0 ? "scalar" : "vector",
                          ", got shape ", shape);
}

Status expect_same_shape(const KernelContext& ctx, int a, int b) {
  const Shape& shape_a = ctx.input(a).shape();
  const Shape& shape_b = ctx.input(b).shape();
  if (shape_a == shape_b) [[likely]]
    return ok_status();
  return invalid_argument(input_label(ctx, a), " and ", input_label(ctx, b),
                          " must have the same shape, got ", shape_a, " and ", shape_b);
}

}  // namespace millrace
