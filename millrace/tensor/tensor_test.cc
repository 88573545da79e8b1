#include "millrace/tensor/tensor.h"

#include <gtest/gtest.h>

#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/tensor_testing.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

TEST(TensorTest, NoTensor) {
  const Tensor none{};
  EXPECT_FALSE(none.valid());
  EXPECT_FALSE(none.writable());
  EXPECT_EQ(none.raw(), nullptr);
  EXPECT_EQ(none.to_string(), "no tensor");
  EXPECT_EQ(none.clone().status().code(), Code::kInvalidArgument);
}

TEST(TensorTest, EveryDTypeOfManyShapes) {
  for (int i = 1; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    SCOPED_TRACE(dtype_name(dtype));
    for (const Shape& shape :
         {Shape(), Shape{0}, Shape{3, 0, 2}, Shape{2, 3}, Shape{1, 2, 1, 2, 1, 2, 1, 2}}) {
      const Tensor tensor = random_tensor(dtype, shape, 7);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.raw()) % Allocator::kAlignment, 0u);
      const Tensor copy = tensor.clone().value();
      EXPECT_FALSE(copy.shares_buffer_with(tensor));
      expect_tensor_equal(copy, tensor);
      EXPECT_TRUE(tensor.to_string().starts_with(str_cat(dtype, ' ', shape, " {")));
      const Tensor zeros = Tensor::zeros(dtype, shape).value();
      EXPECT_TRUE(bit_equal(zeros, Tensor::zeros(dtype, shape).value()));
    }
  }
}

TEST(TensorTest, SharingIsVisible) {
  Tensor a = Tensor::vector<float>({1, 2, 3});
  EXPECT_TRUE(a.writable());
  {
    const Tensor b = a;
    EXPECT_TRUE(a.shares_buffer_with(b));
    EXPECT_FALSE(a.writable());
  }
  EXPECT_TRUE(a.writable());
}

TEST(TensorTest, Views) {
  const Tensor t = Tensor::of<int32_t>({3, 2}, {1, 2, 3, 4, 5, 6});
  expect_tensor_equal(t.rows(1, 3), Tensor::of<int32_t>({2, 2}, {3, 4, 5, 6}));
  expect_tensor_equal(t.row(2), Tensor::vector<int32_t>({5, 6}));
  expect_tensor_equal(t.rows(3, 3), Tensor::of<int32_t>({0, 2}, {}));
  expect_tensor_equal(t.reshaped(Shape{2, 3}).value().row(1), Tensor::vector<int32_t>({4, 5, 6}));
  EXPECT_EQ(t.reshaped(Shape{4}).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(t.bit_cast_to(DType::kFloat).bit_cast_to(DType::kInt32).row(0).data<int32_t>()[1], 2);
  EXPECT_EQ(Tensor::zeros(DType::kFloat, Shape{2, 0}).value().row(1).num_elements(), 0);
}

TEST(TensorTest, BitEquality) {
  EXPECT_FALSE(bit_equal(Tensor::scalar(0.0f), Tensor::scalar(-0.0f)));
  EXPECT_TRUE(bit_equal(Tensor::scalar(NAN), Tensor::scalar(NAN)));
  EXPECT_FALSE(bit_equal(Tensor::scalar(1.0f), Tensor::vector<float>({1})));
  EXPECT_FALSE(bit_equal(Tensor::scalar<std::string>("a"), Tensor::scalar<std::string>("b")));
}

TEST(TensorTest, Text) {
  EXPECT_EQ(Tensor::of<float>({2, 2}, {1, 2.5, 3, 4}).to_string(3), "float [2,2] {1, 2.5, 3, ...}");
  EXPECT_EQ(Tensor::vector<int8_t>({-1, 65}).to_string(), "int8 [2] {-1, 65}");
  EXPECT_EQ(Tensor::scalar<std::string>("a\"\n").to_string(), R"(string [] {"a\"\x0a"})");
  EXPECT_EQ(Tensor::scalar(true).to_string(), "bool [] {true}");
  EXPECT_EQ(Tensor::scalar(Half(0.5)).to_string(), "half [] {0.5}");
  EXPECT_EQ(Tensor::scalar(Complex64(1, -2)).to_string(), "complex64 [] {(1,-2)}");
  EXPECT_EQ(Tensor::vector<float>({1}).to_string(0), "float [1] {...}");
  EXPECT_EQ(Tensor::scalar(Variant()).to_string(), "variant [] {nothing}");
}

TEST(TensorTest, TooLarge) {
  const Shape huge{std::numeric_limits<int64_t>::max()};
  EXPECT_EQ(Tensor::allocate(DType::kFloat, huge).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Tensor::allocate(DType::kUInt8, huge).status().code(), Code::kInvalidArgument);
  const Status status = Tensor::allocate(DType::kUInt8, Shape{int64_t{1} << 55}).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted) << status.to_string();
  EXPECT_EQ(Tensor::allocate(DType::kInvalid, Shape()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Tensor::allocate(ref_type(DType::kFloat), Shape()).status().code(),
            Code::kInvalidArgument);
}

TEST(BufferTest, BorrowedMemoryIsReleasedOnceAndNeverWritable) {
  const float data[2] = {1, 2};
  int released = 0;
  {
    const Tensor t(DType::kFloat, Shape{2},
                   Buffer::borrow(data, sizeof(data), [&] { ++released; }));
    EXPECT_EQ(t.raw(), data);
    EXPECT_FALSE(t.writable());
    const Tensor second = t;
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(BufferTest, OwnedForeignMemoryIsWritableWhenUnique) {
  float data[2] = {1, 2};
  Tensor t(DType::kFloat, Shape{}, Buffer::own(data, sizeof(data), {}), sizeof(float));
  EXPECT_TRUE(t.writable());
  EXPECT_EQ(t.item<float>(), 2);
  EXPECT_EQ(t.buffer()->allocator(), nullptr);
}

class CountedVariant : public VariantObject {
 public:
  explicit CountedVariant(int* alive) : alive_(alive) { ++*alive_; }
  std::string_view type_name() const override { return "CountedVariant"; }
  Status encode(std::string&, std::vector<Tensor>&) const override {
    return unimplemented("a CountedVariant cannot leave the process");
  }

 protected:
  ~CountedVariant() override { --*alive_; }

 private:
  int* alive_;
};

TEST(BufferTest, EndsItsElements) {
  int alive = 0;
  {
    Tensor t = Tensor::allocate(DType::kVariant, Shape{3}).value();
    for (Variant& v : t.mutable_data<Variant>()) v.object = make_ref<CountedVariant>(&alive);
    EXPECT_EQ(alive, 3);
    const Tensor copy = t.clone().value();
    EXPECT_TRUE(bit_equal(copy, t));
    EXPECT_EQ(alive, 3);
  }
  EXPECT_EQ(alive, 0);
}

// Memory that no CPU code may touch: the allocator gives out addresses only.
class FakeDeviceAllocator : public Allocator {
 public:
  const char* name() const override { return "fake"; }
  MemorySpace space() const override { return MemorySpace::kDevice; }
  void* allocate(size_t bytes) override {
    in_use_ += static_cast<int64_t>(bytes);
    return reinterpret_cast<void*>(uintptr_t{1} << 40);
  }
  void deallocate(void*, size_t bytes) override { in_use_ -= static_cast<int64_t>(bytes); }
  AllocatorStats stats() const override { return {.bytes_in_use = in_use_}; }
  void reset_peak() override {}

 private:
  int64_t in_use_ = 0;
};

TEST(BufferTest, DeviceMemoryIsNotTouched) {
  FakeDeviceAllocator device;
  {
    const Tensor t = Tensor::allocate(DType::kFloat, Shape{4}, device).value();
    EXPECT_EQ(device.stats().bytes_in_use, 16);
    EXPECT_EQ(t.to_string(), "float [4] {in device memory}");
  }
  EXPECT_EQ(device.stats().bytes_in_use, 0);
  EXPECT_EQ(Tensor::allocate(DType::kString, Shape{4}, device).status().code(),
            Code::kInvalidArgument);
}

TEST(VariantTest, DecodersAreFoundByName) {
  const VariantDecoder decoder = [](std::string_view, std::vector<Tensor>) {
    return Result<Ref<VariantObject>>(out_of_range("decoder was called"));
  };
  EXPECT_TRUE(register_variant_decoder("TensorTest.Decoder", decoder).ok());
  EXPECT_EQ(register_variant_decoder("TensorTest.Decoder", decoder).code(), Code::kAlreadyExists);
  EXPECT_EQ(register_variant_decoder("", decoder).code(), Code::kInvalidArgument);
  EXPECT_EQ(decode_variant("TensorTest.Decoder", "", {}).status().code(), Code::kOutOfRange);
  EXPECT_EQ(decode_variant("TensorTest.Nobody", "", {}).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace millrace
