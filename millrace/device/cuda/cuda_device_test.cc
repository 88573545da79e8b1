#include "millrace/device/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include "millrace/base/thread_pool.h"
#include "millrace/device/cuda/cuda_testing.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

Tensor numbers(int64_t n) {
  Tensor out = Tensor::allocate(DType::kInt64, Shape{n}).value();
  for (int64_t i = 0; i < n; ++i) out.mutable_data<int64_t>()[static_cast<size_t>(i)] = i * i;
  return out;
}

TEST(CudaDevice, SaysWhatItIs) {
  MR_SKIP_WITHOUT_GPU();
  const Ref<Device> gpu = first_gpu();
  EXPECT_EQ(gpu->name(), "/job:localhost/replica:0/task:0/device:GPU:0");
  EXPECT_EQ(gpu->kind(), DeviceKind::kCuda);
  EXPECT_TRUE(gpu->info().own_memory);
  EXPECT_GT(gpu->info().memory_limit, 0);
}

TEST(CudaDevice, CopiesThereAndBack) {
  MR_SKIP_WITHOUT_GPU();
  const Ref<Device> gpu = first_gpu();
  // Small ones go between kernels, large ones beside them.
  for (int64_t n : {0, 1, 1000, 3'000'000}) {
    const Tensor x = numbers(n);
    Result<Tensor> there = copy_from_host(*gpu, x);
    ASSERT_TRUE(there.ok()) << there.status().to_string();
    EXPECT_EQ(there->buffer()->space(), MemorySpace::kDevice);
    Result<Tensor> back = copy_to_host(*gpu, *there);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_TRUE(bit_equal(*back, x)) << n;
  }
  EXPECT_TRUE(gpu->synchronize().ok());
}

TEST(CudaDevice, FreedMemoryIsUsedAgainBehindTheCopiesThatReadIt) {
  MR_SKIP_WITHOUT_GPU();
  const Ref<Device> gpu = first_gpu();
  constexpr int kRounds = 50;
  struct {
    Mutex mu;
    CondVar changed;
    int left = kRounds;
  } state;
  std::vector<Tensor> back(kRounds);
  for (int i = 0; i < kRounds; ++i) {
    Tensor x = Tensor::allocate(DType::kInt64, Shape{100'000}).value();
    std::fill_n(x.mutable_data<int64_t>().data(), 100'000, i);
    Tensor there = copy_from_host(*gpu, x).value();
    gpu->copy_to_host(there, [&, i](Result<Tensor> copied) {
      MutexLock lock(state.mu);
      if (copied.ok()) back[static_cast<size_t>(i)] = std::move(*copied);
      --state.left;
      state.changed.notify_one();
    });
  }
  MutexLock lock(state.mu);
  while (state.left > 0) state.changed.wait(state.mu);
  for (int i = 0; i < kRounds; ++i) {
    const Tensor& copied = back[static_cast<size_t>(i)];
    ASSERT_TRUE(copied.valid());
    for (int64_t value : copied.data<int64_t>()) ASSERT_EQ(value, i);
  }
}

TEST(CudaDevice, MemoryHasALimitAndCanBeHadAgain) {
  MR_SKIP_WITHOUT_GPU();
  GpuOptions options;
  options.virtual_megabytes = {{64}};
  const Ref<Device> gpu = first_gpu(options);
  EXPECT_EQ(gpu->info().memory_limit, 64 << 20);
  const Shape large{100 << 20}, half{30 << 20};
  EXPECT_EQ(Tensor::allocate(DType::kUInt8, large, gpu->allocator()).status().code(),
            Code::kResourceExhausted);
  // What is kept for reuse in one size makes room for another.
  for (int64_t n : {30 << 20, 40 << 20, 50 << 20}) {
    Result<Tensor> got = Tensor::allocate(DType::kUInt8, Shape{n}, gpu->allocator());
    EXPECT_TRUE(got.ok()) << n << ": " << got.status().to_string();
  }
  Result<Tensor> first = Tensor::allocate(DType::kUInt8, half, gpu->allocator());
  ASSERT_TRUE(first.ok());
  EXPECT_FALSE(Tensor::allocate(DType::kUInt8, Shape{50 << 20}, gpu->allocator()).ok());
}

TEST(CudaDevice, VirtualDevicesShareAGpu) {
  MR_SKIP_WITHOUT_GPU();
  const DeviceName task = DeviceName::parse("/job:localhost/replica:0/task:0").value();
  const auto make = [&](const GpuOptions& options) {
    return millrace_gpu_library(GpuLibrary::kVersion)->make_devices(task, options);
  };
  GpuOptions options;
  options.virtual_megabytes = {{100, 200}};
  auto devices = make(options);
  ASSERT_TRUE(devices.ok()) << devices.status().to_string();
  ASSERT_GE(devices->size(), 2u);
  EXPECT_EQ((*devices)[1]->name(), "/job:localhost/replica:0/task:0/device:GPU:1");
  EXPECT_EQ((*devices)[1]->info().memory_limit, 200 << 20);
  const Tensor x = numbers(1000);
  for (const Ref<Device>& device : *devices) {
    EXPECT_TRUE(bit_equal(copy_to_host(*device, copy_from_host(*device, x).value()).value(), x));
  }
  options.count = 1;
  EXPECT_EQ(make(options)->size(), 1u);
  for (const char* wrong : {"x", "0,0", "99", "0,", "-1"}) {
    options.visible = wrong;
    EXPECT_EQ(make(options).status().code(), Code::kInvalidArgument) << wrong;
  }
  options = {};
  options.memory_fraction = 2;
  EXPECT_EQ(make(options).status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
