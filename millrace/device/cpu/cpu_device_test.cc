#include "millrace/device/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include "millrace/kernel/resource_manager.h"

namespace millrace {
namespace {

const DeviceName kTask = DeviceName::parse("/job:localhost/replica:0/task:0").value();

TEST(CpuDevice, NameAndKind) {
  Ref<Device> device = make_cpu_device(kTask).value();
  EXPECT_EQ(device->name(), "/job:localhost/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(device->kind(), DeviceKind::kCpu);
  EXPECT_NE(device->info().incarnation, 0u);
  EXPECT_EQ(device->stream(), nullptr);
  EXPECT_EQ(&device->allocator(), &cpu_allocator());
  EXPECT_TRUE(device->synchronize().ok());
}

TEST(CpuDevice, RefusesOtherNames) {
  for (const char* name : {"", "/job:a/replica:0", "/job:a/replica:0/task:0/gpu:0"}) {
    EXPECT_EQ(make_cpu_device(DeviceName::parse(name).value()).status().code(),
              Code::kInvalidArgument)
        << name;
  }
}

TEST(CpuDevice, CopiesShareTheBuffer) {
  Ref<Device> device = make_cpu_device(kTask).value();
  Tensor x = Tensor::vector<float>({1, 2});
  int calls = 0;
  auto expect_shared = [&](Result<Tensor> y) {
    ++calls;
    EXPECT_TRUE(y->shares_buffer_with(x));
  };
  device->copy_to_host(x, expect_shared);
  device->copy_from_host(x, expect_shared);
  EXPECT_EQ(calls, 2);
}

TEST(CpuDevice, VirtualDevicesAreApart) {
  std::vector<Ref<Device>> devices = make_cpu_devices(kTask, 3).value();
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[2]->name(), "/job:localhost/replica:0/task:0/device:CPU:2");
  EXPECT_NE(&devices[0]->resources(), &devices[1]->resources());
  EXPECT_NE(devices[0]->info().incarnation, devices[1]->info().incarnation);
  EXPECT_EQ(make_cpu_devices(kTask, 0).status().code(), Code::kInvalidArgument);
}

TEST(CpuDevice, MayShareResources) {
  Ref<ResourceManager> resources = make_ref<ResourceManager>();
  EXPECT_EQ(&make_cpu_device(kTask, resources).value()->resources(), resources.get());
}

}  // namespace
}  // namespace millrace
