// test-labels: threads
#include "millrace/device/simulated/simulated_device.h"

#include <gtest/gtest.h>

#include <cstring>

namespace millrace {
namespace {

struct SimulatedDeviceTest : testing::Test {
  const KernelRegistry none;
  Ref<SimulatedDevice> device =
      make_simulated_device(DeviceName::parse("/job:localhost/replica:0/task:0").value(), none)
          .value();
};

TEST_F(SimulatedDeviceTest, OnlyItsCopiesGiveWhatMemoryHolds) {
  const Tensor x = Tensor::vector<float>({1, 2, 3});
  Result<Tensor> there = copy_from_host(*device, x);
  ASSERT_TRUE(there.ok()) << there.status().to_string();
  EXPECT_EQ(there->buffer()->space(), MemorySpace::kDevice);
  Result<Tensor> back = copy_to_host(*device, *there);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_TRUE(bit_equal(*back, x));
  EXPECT_NE(std::memcmp(there->raw(), x.raw(), x.bytes()), 0);
}

TEST_F(SimulatedDeviceTest, FreedMemoryIsReusedBehindTheWorkThatReadsIt) {
  device->stream()->hold();
  const void* memory = nullptr;
  std::vector<Result<Tensor>> copies(3, Tensor());
  for (int32_t i = 0; i < 3; ++i) {
    Result<Tensor> there = copy_from_host(*device, Tensor::scalar(i));
    ASSERT_TRUE(there.ok());
    // A copy is still to read what the tensors before had: they share nothing with this one.
    EXPECT_NE(there->raw(), memory);
    memory = there->raw();
    device->copy_to_host(*there, [&copies, i](Result<Tensor> copied) {
      copies[static_cast<size_t>(i)] = std::move(copied);
    });
  }
  // What no other stream uses is there again at once.
  const void* unused = copy_from_host(*device, Tensor::scalar(7))->raw();
  EXPECT_EQ(copy_from_host(*device, Tensor::scalar(8))->raw(), unused);
  device->stream()->resume();
  ASSERT_TRUE(device->synchronize().ok());
  for (int32_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(copies[static_cast<size_t>(i)].ok());
    EXPECT_EQ(copies[static_cast<size_t>(i)]->item<int32_t>(), i);
  }
}

TEST_F(SimulatedDeviceTest, ADeviceThatIsLostSaysSoEverywhere) {
  Result<Tensor> there = copy_from_host(*device, Tensor::scalar(1.0F));
  device->stream()->fail(unavailable("lost"));
  EXPECT_EQ(copy_to_host(*device, *there).status().code(), Code::kUnavailable);
  EXPECT_EQ(device->synchronize().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace millrace
