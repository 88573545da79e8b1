#include "millrace/device/null/null_device.h"

#include <gtest/gtest.h>

#include <thread>

#include "millrace/graph/op_def.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

// Runs nodes "a", "b", ... with outputs float and a reference to int32.
struct NullDeviceTest : testing::Test {
  Ref<NullDevice> device =
      make_null_device(DeviceName::parse("/job:j/replica:0/task:0").value()).value();
  KernelRegistry kernels;
  OpDef op;
  Ref<Step> step = make_ref<Step>();

  struct Run {
    KernelNode node;
    std::unique_ptr<Kernel> kernel;
    Value outputs[2];
    std::unique_ptr<KernelContext> context;
    int done = 0;
    Status status;
  };

  void SetUp() override {
    ASSERT_TRUE(register_null_kernels(kernels).ok());
    op.name = "Anything";
  }

  std::unique_ptr<Run> start(std::string name) {
    auto run = std::make_unique<Run>();
    run->node.name = std::move(name);
    run->node.op = &op;
    run->node.device = device.get();
    run->node.output_types = {DType::kFloat, ref_type(DType::kInt32)};
    run->kernel = make_kernel(kernels, run->node, DeviceKind::kNull).value();
    KernelContext::Args args;
    args.node = &run->node;
    args.step = step.get();
    args.device = device.get();
    args.outputs = run->outputs;
    args.num_outputs = 2;
    run->context = std::make_unique<KernelContext>(args);
    static_cast<AsyncKernel&>(*run->kernel)
        .compute_async(*run->context, [r = run.get()](Status status) {
          ++r->done;
          r->status = std::move(status);
        });
    return run;
  }
};

TEST_F(NullDeviceTest, GivesEmptyOutputsAndLogsTheOrder) {
  EXPECT_EQ(device->name(), "/job:j/replica:0/task:0/device:NULL:0");
  auto a = start("a");
  auto b = start("b");
  EXPECT_EQ(a->done, 1);
  EXPECT_TRUE(a->status.ok());
  EXPECT_EQ(a->outputs[0].tensor.dtype(), DType::kFloat);
  EXPECT_EQ(a->outputs[0].tensor.shape(), Shape{0});
  ASSERT_TRUE(a->outputs[1].is_ref());
  EXPECT_EQ(a->outputs[1].cell->read().dtype(), DType::kInt32);
  EXPECT_EQ(device->log(), (std::vector<std::string>{"a", "b"}));
}

TEST_F(NullDeviceTest, HeldKernelsFinishWhenTold) {
  device->hold();
  auto a = start("a");
  auto b = start("b");
  auto c = start("c");
  EXPECT_EQ(a->done + b->done + c->done, 0);
  EXPECT_TRUE(device->finish("b", internal("made to fail")).ok());
  EXPECT_EQ(b->status, internal("made to fail"));
  EXPECT_EQ(device->finish("b").code(), Code::kNotFound);
  EXPECT_EQ(device->held(), (std::vector<std::string>{"a", "c"}));
  device->resume();
  EXPECT_EQ(a->done + b->done + c->done, 3);
  EXPECT_EQ(start("d")->done, 1);
}

TEST_F(NullDeviceTest, WaitsForAKernelToStart) {
  device->hold();
  std::unique_ptr<Run> a;
  std::thread starter([&] { a = start("a"); });
  EXPECT_TRUE(device->wait_held("a"));
  starter.join();
  EXPECT_EQ(a->done, 0);
  device->resume();
  EXPECT_EQ(a->done, 1);
}

}  // namespace
}  // namespace millrace
