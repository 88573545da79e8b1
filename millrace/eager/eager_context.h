#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/eager/prepared_op.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/trace.h"

namespace millrace::eager {

struct ContextOptions {
  // All of one task. The first is a CPU, in whose memory the elements lie that only the host can
  // hold. Devices live as long as the context and keep its state: variables, queues, tables.
  std::vector<Ref<Device>> devices;
  // Runs, in place of the first one, the ops that keep state which no handle names, such as where a
  // stream of random numbers stands: the same but for its resources, which are the context's alone.
  // Null: the first one does.
  Ref<Device> own_state;
  // Where ops run that ask for no device and have no input on one: a device's number.
  size_t default_device = 0;
  // Ops that ask for a device without kernels for them run on the first one instead of failing.
  bool soft_placement = true;
  const OpRegistry* ops = nullptr;  // null: the global ones
  const KernelRegistry* kernels = nullptr;
  // For ops that run functions; null: there are none.
  Ref<FunctionRunner> functions;
  // At most so many threads inside one kernel.
  int max_threads = 1 << 20;
};

// Runs ops at once, one by one. What an op needs to run, its kernel before all, is worked out at
// the first call and found again by op, attributes, types of inputs and device.
//
//   MR_TRY_ASSIGN(TensorRef sum, context->execute_one("Add", {a, b}));
//
// Calls run in the order in which a thread makes them; on a device that enqueues they enqueue and
// return. Thread-safe.
class EagerContext final : public RefCounted {
 public:
  // INVALID_ARGUMENT for options that do not fit together.
  static Result<Ref<EagerContext>> create(ContextOptions options);

  std::span<const Ref<Device>> devices() const { return options_.devices; }
  // The CPU of this process.
  Device& host() const { return *options_.devices[0]; }
  // NOT_FOUND, with the devices there are.
  Result<Device*> find_device(std::string_view name) const;
  const OpRegistry& ops() const { return *options_.ops; }

  // A value of the host's.
  TensorRef tensor(Tensor value) const { return make_ref<EagerTensor>(std::move(value), host()); }
  // The elements in memory that the host may read; waits for a device that is still at work.
  Result<Tensor> to_host(const EagerTensor& tensor) const;
  // The tensor in the memory of `device`: itself where it is there.
  Result<TensorRef> to_device(TensorRef tensor, Device& device) const;

  // An op to execute, perhaps often. NOT_FOUND for an unknown name. `device`: a full device name;
  // empty: chosen for each call.
  Result<Op> op(std::string_view name, AttrMap attrs = {}, std::string_view device = {}) const;

  // Executes an op; the outputs in order. UNIMPLEMENTED for ops that have a meaning in graphs only,
  // with what to use instead; INVALID_ARGUMENT for inputs and attributes that do not fit; else the
  // kernel's own errors. All begin with the op's name.
  //
  // An input that the caller gives up and that nobody else holds may be written over: one that was
  // moved into `inputs`. (A list in braces copies what stands in it.)
  Result<std::vector<TensorRef>> execute(const Op& op, std::vector<TensorRef> inputs);
  Result<std::vector<TensorRef>> execute(std::string_view op, std::vector<TensorRef> inputs,
                                         AttrMap attrs = {});
  // The same for an op with one output.
  Result<TensorRef> execute_one(const Op& op, std::vector<TensorRef> inputs);
  Result<TensorRef> execute_one(std::string_view op, std::vector<TensorRef> inputs,
                                AttrMap attrs = {});

  // Execute in two halves, for callers with lists of their own. How `op` runs on such inputs:
  Result<Ref<PreparedOp>> prepare(const Op& op, std::span<EagerTensor* const> inputs);
  // ... and running it: fills `outputs`, as many as it has. Bit i of `movable`: input i, held by
  // the caller alone, may be written over and left empty.
  Status run(PreparedOp& op, std::span<EagerTensor* const> inputs, uint64_t movable,
             TensorRef* outputs);
  // Both for an op with one output, without what most calls do not need: for those who count
  // nanoseconds. The inputs are borrowed.
  Status run_one(const Op& op, std::span<EagerTensor* const> inputs, TensorRef& output);

  // From now on what runs is recorded: the calls of all threads, and the nodes of the functions
  // that they call. What was recorded before is dropped. Costs a test of one flag when it is off.
  void start_trace();
  // Ends it and gives what was recorded, by start time; calls that still run are left out.
  // FAILED_PRECONDITION when nothing is recorded.
  Result<std::vector<TraceEvent>> stop_trace();

  // Forgets how ops run, and with that where the random streams stand that ops with the same seeds
  // share.
  void clear_cache();
  // For tests and statistics.
  size_t cached_ops() const;

 protected:
  ~EagerContext() override;

 private:
  explicit EagerContext(ContextOptions options);

  Device* place(const Op& op, std::span<EagerTensor* const> inputs) const;
  PreparedOp* find(const Op& op, std::span<EagerTensor* const> inputs, Ref<PreparedOp>& holder,
                   Status& error);
  Result<Ref<PreparedOp>> find_or_make(const Op& op, Device* wanted, uint64_t hash,
                                       std::span<EagerTensor* const> inputs);
  Result<Ref<PreparedOp>> make(const Op& op, Device* wanted,
                               std::span<EagerTensor* const> inputs) const;
  Status make_kernel(PreparedOp& prepared) const;
  Ref<TraceCollector> trace() const;  // null: nothing is recorded
  Status run_traced(PreparedOp& op, std::span<EagerTensor* const> inputs, uint64_t movable,
                    TensorRef* outputs);
  Status run_untraced(PreparedOp& op, std::span<EagerTensor* const> inputs, uint64_t movable,
                      TensorRef* outputs);
  Status run_kernel(PreparedOp& op, std::span<EagerTensor* const> inputs, uint64_t movable,
                    TensorRef* outputs);
  Status compute(PreparedOp& op, Step& step, Value* const* inputs, size_t num_inputs,
                 uint64_t movable, Value* outputs) const;
  Result<std::vector<Tensor>> call(FunctionRunner::Handle function, std::vector<Tensor> args);
  Status run_functional(PreparedOp& op, std::span<EagerTensor* const> inputs, TensorRef* outputs);

  struct Cache;
  const ContextOptions options_;
  const uint64_t id_;
  const Ref<Step> step_;  // of all calls that end when their kernel returns
  const std::unique_ptr<Cache> cache_;
  std::atomic<bool> traced_{false};
};

}  // namespace millrace::eager
