// test-labels: threads
// test-links: ops
#include "millrace/runtime/local_function_runner.h"

#include <gtest/gtest.h>

#include "millrace/base/thread_pool.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/step.h"
#include "millrace/runtime/executor_testing.h"

namespace millrace {
namespace {

// y = f(x), by the step's function runner.
class CallKernel : public AsyncKernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(FunctionAttr f, node.attr<FunctionAttr>("f"));
    return std::make_unique<CallKernel>(std::move(f));
  }
  explicit CallKernel(FunctionAttr f) : f_(std::move(f)) {}
  void compute_async(KernelContext& ctx, Done done) const override {
    FunctionRunner& functions = *ctx.step().functions;
    Result<FunctionRunner::Handle> handle = functions.instantiate(f_.name, f_.attrs);
    if (!handle.ok()) return done(handle.status());
    functions.run(*handle, {ctx.input(0)}, ctx.step(),
                  [&ctx, done = std::move(done)](Result<std::vector<Tensor>> results) mutable {
                    if (!results.ok()) return done(results.status());
                    ctx.set_output(0, std::move((*results)[0]));
                    done(ok_status());
                  });
  }

 private:
  const FunctionAttr f_;
};

void register_call(Registry& registry) {
  registry.add({.name = "TestCall",
                .doc = "Calls a function.",
                .inputs = {{"x", "float"}},
                .outputs = {{"y", "float"}},
                .attrs = {{"f", "func"}},
                .shape = shape_rules::unknown});
  registry.kernel<CallKernel>("TestCall", DeviceKind::kCpu);
}

// A function of a float that gives a float.
Ref<Function> function(std::string name, std::vector<Function::BodyNode> nodes,
                       std::string result) {
  Ref<Function> f = make_ref<Function>();
  f->signature.name = std::move(name);
  f->signature.inputs = {{.name = "x", .dtype = DType::kFloat}};
  f->signature.outputs = {{.name = "y", .dtype = DType::kFloat}};
  f->nodes = std::move(nodes);
  f->returns = {{"y", std::move(result)}};
  return f;
}
Function::BodyNode calls(const std::string& callee) {
  return {"call", "TestCall", {"x"}, "", {{"f", FunctionAttr{callee, {}}}}};
}

class LocalFunctionRunnerTest : public testing::Test {
 protected:
  LocalFunctionRunnerTest() {
    TestGraph registers_ops;
    static const bool registered = [] {
      Registry registry(OpRegistry::global(), KernelRegistry::global());
      register_call(registry);
      return registry.status().ok();
    }();
    EXPECT_TRUE(registered);
    DeviceName task = DeviceName::parse("/job:localhost/replica:0/task:0").value();
    device_ = make_cpu_device(task).value();
    runner_ = make_function_runner(library_, OpRegistry::global(), device_, {});
    add(function("twice", {{"n", "Add", {"x", "x"}, "", {{"T", DType::kFloat}}}}, "n:z:0"));
  }
  void add(Ref<Function> f) { EXPECT_TRUE(library_->add(std::move(f)).ok()); }

  Result<Tensor> call(const std::string& name, std::vector<Tensor> args, Ref<Step> step = nullptr) {
    if (!step) step = Step::make_shared(1);
    step->functions = runner_;
    MR_TRY_ASSIGN(FunctionRunner::Handle handle, runner_->instantiate(name, {}));
    step->begin(1, nullptr);
    Result<std::vector<Tensor>> out = Status(Code::kUnknown, "");
    runner_->run(handle, std::move(args), *step, [&](Result<std::vector<Tensor>> results) {
      out = std::move(results);
      step->end_part();
    });
    step->wait();
    MR_TRY(out.status());
    return (*out)[0];
  }
  Result<Tensor> call(const std::string& name, float x) { return call(name, {Tensor::scalar(x)}); }

  Ref<FunctionLibrary> library_ = make_ref<FunctionLibrary>();
  Ref<Device> device_;
  Ref<FunctionRunner> runner_;
};

TEST_F(LocalFunctionRunnerTest, RunsAFunction) {
  EXPECT_EQ(call("twice", 3).value().item<float>(), 6);
  EXPECT_EQ(runner_->instantiate("twice", {}).value(), runner_->instantiate("twice", {}).value());
}

TEST_F(LocalFunctionRunnerTest, Mistakes) {
  EXPECT_EQ(call("thrice", 3).status().code(), Code::kNotFound);
  EXPECT_EQ(call("twice", std::vector<Tensor>{}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(call("twice", {Tensor::scalar<int32_t>(1)}).status().code(), Code::kInvalidArgument);
  Status error;
  Ref<Step> step = Step::make_shared(1);
  runner_->run(77, {}, *step, [&](auto results) { error = results.status(); });
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
}

// Every call waits for the next: with threads that wait, one would not be enough.
TEST_F(LocalFunctionRunnerTest, DeepCallsNeedOneThread) {
  constexpr int kDepth = 30;
  for (int i = 0; i < kDepth; ++i) {
    const std::string next = i + 1 < kDepth ? str_cat("f", i + 1) : "twice";
    add(function(str_cat("f", i), {calls(next)}, "call:y:0"));
  }
  ThreadPool one(1);
  Ref<Step> step = Step::make_shared(1);
  step->pool = &one;
  EXPECT_EQ(call("f0", {Tensor::scalar(2.0F)}, step).value().item<float>(), 4);
}

TEST_F(LocalFunctionRunnerTest, FallsWithItsCaller) {
  Ref<Step> step = Step::make_shared(1);
  step->fail(aborted("the caller failed"));
  add(function("f", {calls("twice")}, "call:y:0"));
  EXPECT_EQ(call("f", {Tensor::scalar(2.0F)}, step).status().code(), Code::kAborted);
}

}  // namespace
}  // namespace millrace
