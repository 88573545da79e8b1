#include "millrace/tensor/dlpack.h"

#include <gtest/gtest.h>

#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

// A DLPack tensor over an array of six floats; counts calls of its deleter.
struct Foreign {
  alignas(64) float data[8] = {0, 1, 2, 3, 4, 5, 6, 7};
  int64_t shape[2] = {2, 3};
  int64_t strides[2] = {3, 1};
  int deleted = 0;
  DLManagedTensor managed = {
      {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0},
      this,
      [](DLManagedTensor* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; }};

  Code import_code() { return from_dlpack(&managed).status().code(); }
};

const Tensor& rows_of_six() {
  static const Tensor* const t = new Tensor(Tensor::of<float>({2, 3}, {0, 1, 2, 3, 4, 5}));
  return *t;
}

TEST(DLPackTest, CompactInputIsShared) {
  Foreign foreign;
  for (int64_t* strides : {static_cast<int64_t*>(nullptr), foreign.strides}) {
    foreign.deleted = 0;
    foreign.managed.dl_tensor.strides = strides;
    {
      const Tensor t = from_dlpack(&foreign.managed).value();
      EXPECT_EQ(t.raw(), foreign.data);
      EXPECT_FALSE(t.writable());
      expect_tensor_equal(t, rows_of_six());
      EXPECT_EQ(foreign.deleted, 0);
    }
    EXPECT_EQ(foreign.deleted, 1);
  }
}

TEST(DLPackTest, ByteOffset) {
  Foreign foreign;
  foreign.managed.dl_tensor.byte_offset = 8;
  EXPECT_EQ(from_dlpack(&foreign.managed).value().data<float>()[0], 2);
}

TEST(DLPackTest, StridedInputIsCopied) {
  Foreign foreign;
  foreign.managed.dl_tensor.strides = foreign.strides;
  foreign.strides[0] = 1;
  foreign.strides[1] = 2;
  expect_tensor_equal(from_dlpack(&foreign.managed).value(),
                      Tensor::of<float>({2, 3}, {0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(foreign.deleted, 1);
  foreign.strides[0] = 0;
  foreign.strides[1] = -1;
  foreign.managed.dl_tensor.byte_offset = 12;
  expect_tensor_equal(from_dlpack(&foreign.managed).value(),
                      Tensor::of<float>({2, 3}, {3, 2, 1, 3, 2, 1}));
  EXPECT_EQ(foreign.deleted, 2);
}

TEST(DLPackTest, MisalignedInputIsCopied) {
  Foreign foreign;
  foreign.managed.dl_tensor.byte_offset = 2;
  const Tensor t = from_dlpack(&foreign.managed).value();
  EXPECT_EQ(foreign.deleted, 1);
  EXPECT_EQ(memcmp(t.raw(), reinterpret_cast<char*>(foreign.data) + 2, 24), 0);
}

TEST(DLPackTest, EmptyAndScalar) {
  Foreign foreign;
  foreign.shape[1] = 0;
  foreign.managed.dl_tensor.data = nullptr;
  EXPECT_EQ(from_dlpack(&foreign.managed).value().shape(), (Shape{2, 0}));
  EXPECT_EQ(foreign.deleted, 1);
  Foreign scalar;
  scalar.managed.dl_tensor.ndim = 0;
  scalar.managed.dl_tensor.shape = nullptr;
  scalar.managed.deleter = nullptr;
  expect_tensor_equal(from_dlpack(&scalar.managed).value(), Tensor::scalar(0.0f));
}

TEST(DLPackTest, BadInputStaysWithTheCaller) {
  const auto refused = [](auto change) {
    Foreign foreign;
    foreign.managed.dl_tensor.strides = foreign.strides;
    change(foreign, foreign.managed.dl_tensor);
    const Code code = foreign.import_code();
    EXPECT_EQ(foreign.deleted, 0);
    return code;
  };
  EXPECT_EQ(from_dlpack(nullptr).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Foreign&, DLTensor& t) { t.ndim = -1; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Foreign&, DLTensor& t) { t.ndim = 300; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Foreign&, DLTensor& t) { t.shape = nullptr; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Foreign&, DLTensor& t) { t.data = nullptr; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Foreign& f, DLTensor&) { f.shape[0] = -2; }), Code::kInvalidArgument);
  EXPECT_EQ(refused([](Foreign& f, DLTensor&) { f.shape[0] = int64_t{1} << 62; }),
            Code::kInvalidArgument);
  for (const int64_t stride : {std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min(), int64_t{1} << 61}) {
    EXPECT_EQ(refused([&](Foreign& f, DLTensor&) { f.strides[0] = stride; }),
              Code::kInvalidArgument);
  }
  EXPECT_EQ(refused([](Foreign&, DLTensor& t) { t.dtype.lanes = 4; }), Code::kUnimplemented);
  EXPECT_EQ(refused([](Foreign&, DLTensor& t) { t.dtype.code = 99; }), Code::kUnimplemented);
}

TEST(DLPackTest, NamesTheDevice) {
  Foreign foreign;
  foreign.managed.dl_tensor.device = {kDLCUDA, 1};
  const Status status = from_dlpack(&foreign.managed).status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_NE(status.message().find("CUDA:1"), std::string_view::npos);
  foreign.managed.dl_tensor.device = {-5, 0};
  EXPECT_EQ(foreign.import_code(), Code::kUnimplemented);
}

TEST(DLPackTest, ThereAndBack) {
  for (const Shape& shape : {Shape(), Shape{0}, Shape{2, 3}, Shape{1, 2, 1, 2, 1, 2, 1, 2}}) {
    for (int i = 1; i < kNumDTypes; ++i) {
      const Tensor tensor = random_tensor(static_cast<DType>(i), shape, 5);
      const Result<DLManagedTensor*> managed = to_dlpack(tensor);
      if (!managed.ok()) {
        EXPECT_EQ(managed.status().code(), Code::kUnimplemented);
        continue;
      }
      EXPECT_FALSE(tensor.writable());
      const Result<Tensor> again = from_dlpack(*managed);
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      expect_tensor_equal(*again, tensor);
    }
  }
}

TEST(DLPackTest, ExportKeepsTheBufferUntilDeleted) {
  Tensor tensor = Tensor::vector<float>({1, 2});
  DLManagedTensor* const managed = to_dlpack(tensor).value();
  EXPECT_FALSE(tensor.writable());
  managed->deleter(managed);
  EXPECT_TRUE(tensor.writable());
}

}  // namespace
}  // namespace millrace
