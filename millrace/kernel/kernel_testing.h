#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/mutex.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/function_runner.h"
#include "millrace/kernel/kernel.h"
#include "millrace/kernel/registry.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/value.h"

// Runs single ops in tests, without graph or executor:
//
//   static const bool registered = register_for_tests({register_linalg_ops});
//
//   TEST(MatMul, Transposed) {
//     Result<Tensor> y = OpTester("MatMul").attr("transpose_a", true).input(a).input(b).run_one();
//   }
//
// Ops that share state run in one OpEnv:
//
//   OpEnv env;
//   Tensor handle = OpTester(env, "VarHandleOp").attr(...).run_one().value();
//   OpTester(env, "AssignVariableOp").input(handle).input(value).run();
//
// Every run that succeeds also checks, failing the test where they do not hold: all outputs are set
// and of the declared type, and the op's shape and value rules agree with the real outputs, given
// the input values, only the input shapes, and nothing.

namespace millrace {

class OpRun;
class ThreadPool;

// Calls the functions with the process's registries, each once however many tests ask for it. A
// failed registration ends the process. Returns true, so that it can initialise a static.
bool register_for_tests(std::initializer_list<void (*)(Registry&)> families);

// A host device named `name` with resources of its own.
Ref<Device> make_test_device(
    std::string_view name = "/job:localhost/replica:0/task:0/device:CPU:0");

// What ops of one test share: device and resources, step, rendezvous. Kernels live as long as it
// does.
class OpEnv {
 public:
  explicit OpEnv(const OpRegistry& ops = OpRegistry::global(),
                 const KernelRegistry& kernels = KernelRegistry::global());
  ~OpEnv();
  OpEnv(const OpEnv&) = delete;
  OpEnv& operator=(const OpEnv&) = delete;

  Device& device() const { return *device_; }
  ResourceManager& resources() const { return device_->resources(); }
  Rendezvous& rendezvous() const { return *rendezvous_; }
  // Drops the step's container and starts another step.
  void next_step();
  void set_functions(Ref<FunctionRunner> functions) { functions_ = std::move(functions); }

 private:
  friend class OpTester;
  friend class OpRun;

  const OpRegistry& ops_;
  const KernelRegistry& kernels_;
  Ref<Device> device_;
  Ref<Rendezvous> rendezvous_;
  Ref<FunctionRunner> functions_;
  int64_t step_id_ = 1;
  std::string session_prefix_ = "test";
  int next_node_ = 0;
  std::vector<std::unique_ptr<Kernel>> made_;
};

// A run that was started: for ops that wait for another one.
class OpRun : public RefCounted {
 public:
  bool done() const;
  // The outputs. An op that is not done after ten seconds is cancelled and gives DEADLINE_EXCEEDED.
  Result<std::vector<Value>> wait();
  void cancel() { step_->cancel->cancel(cancelled("cancelled by the test")); }

 private:
  friend class OpTester;
  OpRun() = default;
  void start(const Kernel& kernel);
  Status check_outputs() const;

  KernelNode node_;
  std::vector<TensorFacts> facts_;
  bool check_shapes_ = true;
  std::unique_ptr<ThreadPool> pool_;
  Ref<Step> step_;
  std::vector<Value> inputs_;
  std::vector<Value*> input_pointers_;
  std::vector<Value> outputs_;
  std::optional<KernelContext> context_;

  mutable Mutex mu_;
  CondVar finished_;
  bool done_ MR_GUARDED_BY(mu_) = false;
  Status status_ MR_GUARDED_BY(mu_);
};

// Builds one node and runs it. The setters return the tester, to be chained. Each call of input(),
// input_ref() or input_list() gives one argument of the op's definition. Type and number attributes
// follow from the inputs where not given.
class OpTester {
 public:
  // In an environment of its own.
  explicit OpTester(std::string_view op);
  // In `env`, which outlives the tester and its runs.
  OpTester(OpEnv& env, std::string_view op);
  ~OpTester();

  OpTester& attr(std::string_view name, AttrValue value);
  OpTester& input(Tensor tensor);
  OpTester& input_ref(Ref<RefCell> cell);
  OpTester& input_list(std::vector<Tensor> tensors);
  OpTester& input_ref_list(std::vector<Ref<RefCell>> cells);
  // Drops all inputs: for another run of the same node.
  OpTester& clear_inputs();
  // The node's name; "<op>_<n>", unique in the environment, when not given.
  OpTester& name(std::string_view name);
  // Only kernels registered with this label.
  OpTester& label(std::string_view label);
  // Lets the kernel take its inputs. The tester then gives its own references up, so the inputs are
  // good for one run; a caller who wants memory reused moves tensors in.
  OpTester& movable(bool movable);
  // Memory planned for the outputs, one entry for each, as KernelContext::Args says. It outlives
  // the runs, which leave the entries that they did not take.
  OpTester& planned(std::vector<Ref<Buffer>>& buffers);
  // Another device than the environment's; it outlives the runs.
  OpTester& device(Device& device);
  // Runs with a pool of `n` threads instead of the process's.
  OpTester& threads(int n);
  // Leaves the comparison of inferred and real shapes out.
  OpTester& check_shapes(bool check);

  // The outputs, which must be tensors, none of them dead; references are read.
  Result<std::vector<Tensor>> run();
  // The output of an op that has one.
  Result<Tensor> run_one();
  // The outputs as they are.
  Result<std::vector<Value>> run_values();
  // Makes the node and its kernel and starts it; errors up to there are returned.
  Result<Ref<OpRun>> start();

 private:
  struct Argument {
    std::vector<Value> values;
    bool list = false;
  };

  Result<KernelNode> make_node(std::vector<Value>& inputs) const;

  std::unique_ptr<OpEnv> own_env_;
  OpEnv& env_;
  std::string op_;
  std::string name_;
  std::string label_;
  AttrMap attrs_;
  std::vector<Argument> arguments_;
  bool movable_ = false;
  bool check_shapes_ = true;
  int threads_ = 0;
  Device* device_ = nullptr;
  std::vector<Ref<Buffer>>* planned_ = nullptr;
};

// A reference variable for input_ref(); without a tensor it is uninitialised.
Ref<RefCell> make_ref_cell(Tensor tensor = Tensor());

}  // namespace millrace
