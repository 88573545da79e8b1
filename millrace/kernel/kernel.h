#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/status.h"
#include "millrace/graph/attr_value.h"
#include "millrace/kernel/device.h"
#include "millrace/kernel/step.h"
#include "millrace/kernel/value.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class KernelContext;
struct OpDef;

// The node that a kernel is made for. Attributes have been checked against the op's definition and
// defaults are filled in.
struct KernelNode {
  std::string name;
  const OpDef* op = nullptr;
  AttrMap attrs;
  std::vector<DType> input_types;
  std::vector<DType> output_types;
  Device* device = nullptr;
  // Where kernels that own state keep it under the node's name: one per session and device.
  std::string session_prefix;
  // On a device with memory of its own: which inputs and outputs are in the host's instead, one
  // flag each. Empty: none.
  std::vector<bool> host_inputs;
  std::vector<bool> host_outputs;

  template <class T>
  Result<T> attr(std::string_view attr_name) const {
    return read_attr<T>(attrs, attr_name);
  }
  int num_inputs() const { return static_cast<int>(input_types.size()); }
  int num_outputs() const { return static_cast<int>(output_types.size()); }
};

// What runs a node. Immutable once made: any number of threads may call compute() at once. State
// that lasts lives in the device's ResourceManager.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Reads the inputs, sets every output. Checks its inputs before it touches data: sizes, ranks and
  // indices come from the user.
  virtual Status compute(KernelContext& ctx) const = 0;
};

// A kernel that may have to wait for something: it never holds a thread meanwhile.
class AsyncKernel : public Kernel {
 public:
  using Done = UniqueFunction<void(Status)>;
  // Calls `done` exactly once, perhaps before it returns. `ctx` stays valid until then.
  virtual void compute_async(KernelContext& ctx, Done done) const = 0;
  // For callers that may block: runs compute_async and waits.
  Status compute(KernelContext& ctx) const final;
};

// What a kernel sees of the run: inputs, outputs, device, step. Used by one thread at a time.
class KernelContext {
 public:
  // Filled in by whoever runs the kernel: an executor, a test, an eager call.
  struct Args {
    const KernelNode* node = nullptr;
    Step* step = nullptr;  // held by the caller until compute() returns or calls back
    Device* device = nullptr;
    Value* const* inputs = nullptr;  // one pointer per input
    Value* outputs = nullptr;        // in a row, empty
    int num_inputs = 0;
    int num_outputs = 0;
    // Bit i: nobody else will look at input i, so its tensor may be taken. Inputs past 63 never
    // are.
    uint64_t movable = 0;
    uint64_t frame = 0;
    uint64_t iteration = 0;
    bool input_dead = false;  // only Send and Recv kernels run then
    // Whether node->host_outputs has something to say, and the node's declared types: an executor
    // keeps those of all its nodes close together. By default both are taken from the node.
    bool host_outputs = false;
    const DType* output_types = nullptr;
    // Memory set aside for the outputs, one entry per output, null where there is none; or null:
    // none for any. A buffer of plain elements that nobody else holds and nobody writes. The output
    // that fits it takes it over, and the entry is null from then on: it is memory like any other,
    // kept by reference for as long as somebody needs it. Who planned it may have it back from a
    // value that is dropped and holds the last reference, and plans another otherwise.
    Ref<Buffer>* planned = nullptr;
    // Bit i: the host may read the elements of input i. Tests narrow it to what the op declares.
    uint64_t readable = ~uint64_t{0};
  };
  explicit KernelContext(const Args& args) : args_(args) {
    if (args_.output_types == nullptr) take_types_of_node();
  }
  KernelContext(const KernelContext&) = delete;
  KernelContext& operator=(const KernelContext&) = delete;

  int num_inputs() const { return args_.num_inputs; }
  int num_outputs() const { return args_.num_outputs; }
  const KernelNode& node() const { return *args_.node; }
  DType output_type(int i) const { return args_.output_types[i]; }

  // Input i, which is a tensor (a reference given to a by-value argument was read already).
  const Tensor& input(int i) const { return args_.inputs[i]->tensor; }
  // Input i, a reference argument.
  RefCell& input_ref(int i) const { return *args_.inputs[i]->cell; }
  bool input_is_ref(int i) const { return args_.inputs[i]->is_ref(); }
  // Input i as it is: for kernels that hand values on (Identity, Switch, Merge).
  const Value& input_value(int i) const { return *args_.inputs[i]; }
  // Hands over input i, leaving nothing behind when the caller is its last user.
  Value take_input(int i);
  // INTERNAL where a test finds that input i, whose elements the host is about to read, is not
  // declared host(...). All that follow begin with it.
  Status check_host(int i) const {
    if (i >= 64 || ((args_.readable >> i) & 1) != 0) [[likely]]
      return ok_status();
    return not_declared_host(i);
  }
  // The single element of a scalar (or one-element) input; INVALID_ARGUMENT otherwise.
  template <class T>
  Result<T> scalar_input(int i) const {
    MR_TRY(check_scalar(i, dtype_of<T>));
    return input(i).data<T>()[0];
  }
  // Input i (int32 or int64, rank 0 or 1) as int64s; INVALID_ARGUMENT otherwise.
  Result<std::vector<int64_t>> int_vector_input(int i) const;
  // Input i (int32 or int64, one element); INVALID_ARGUMENT otherwise.
  Result<int64_t> int_scalar_input(int i) const;
  // Input i (a shape vector) as a checked shape; INVALID_ARGUMENT otherwise.
  Result<Shape> shape_input(int i) const;

  // Sets output i to a fresh tensor of its type, uninitialised, and returns it to be written: in
  // the memory planned for it where that fits.
  // RESOURCE_EXHAUSTED "OOM when allocating tensor with shape ..." when memory is short.
  Result<Tensor*> allocate_output(int i, const Shape& shape);
  // As allocate_output, but over the memory of one of `candidates` (input numbers) when that input
  // may be taken, is not seen by anybody else, and has the same bytes: element k of the output may
  // then be written once element k of the inputs has been read.
  Result<Tensor*> forward_or_allocate_output(std::initializer_list<int> candidates, int i,
                                             const Shape& shape);
  // Memory for the kernel's own use.
  Result<Tensor> allocate_temp(DType dtype, const Shape& shape);
  // Sets output i. The dtype must be the declared one (checked by the executor: INTERNAL).
  void set_output(int i, Tensor tensor) { args_.outputs[i] = Value::of(std::move(tensor)); }
  void set_output_value(int i, Value value) { args_.outputs[i] = std::move(value); }
  void set_output_ref(int i, Ref<RefCell> cell);
  void set_output_dead(int i) { args_.outputs[i].set_dead(); }
  Value& output_value(int i) { return args_.outputs[i]; }

  Step& step() const { return *args_.step; }
  Device& device() const { return *args_.device; }
  // Where a kernel that only enqueues does so; null on other devices.
  Stream* stream() const { return args_.step->stream(device()); }
  ResourceManager& resources() const { return device().resources(); }
  CancellationToken* cancel() const { return args_.step->cancel.get(); }
  uint64_t frame() const { return args_.frame; }
  uint64_t iteration() const { return args_.iteration; }
  bool input_dead() const { return args_.input_dead; }
  // What this kernel has allocated so far, for traces.
  int64_t allocated_bytes() const { return allocated_bytes_; }

  // Calls body(begin, end) over [0, n) on the pool's threads; see ThreadPool::parallel_for. The
  // ranges depend on n and the cost alone, so results do not depend on the number of threads.
  void parallel_for(int64_t n, double cost_ns_per_unit,
                    FunctionRef<void(int64_t, int64_t)> body) const;

 private:
  void take_types_of_node();
  bool movable(int i) const { return i < 64 && ((args_.movable >> i) & 1) != 0; }
  // Where output i is allocated.
  Allocator& output_allocator(int i) const {
    bool host = args_.host_outputs && args_.node->host_outputs[static_cast<size_t>(i)];
    return host ? device().host_allocator() : device().allocator();
  }
  // The memory planned for output i, when it holds such a tensor; else null.
  Ref<Buffer> take_planned(const Allocator& allocator, int i, const Shape& shape) const;
  Status not_declared_host(int i) const;
  Status check_scalar(int i, DType dtype) const;
  Result<Tensor*> allocate_output_in(Allocator& allocator, int i, const Shape& shape);

  Args args_;
  int64_t allocated_bytes_ = 0;
};

// INVALID_ARGUMENT naming the input when its rank is not `rank`.
Status expect_rank(const KernelContext& ctx, int input, int rank);
// INVALID_ARGUMENT naming both inputs unless they have one shape.
Status expect_same_shape(const KernelContext& ctx, int a, int b);

}  // namespace millrace
