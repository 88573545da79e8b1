// Checkpoints of version 2: what is written is read, whole or in slices, and what is damaged is
// noticed.

#include <gtest/gtest.h>

#include "millrace/base/file_systems.h"
#include "millrace/base/file_testing.h"
#include "millrace/io/bundle_reader.h"
#include "millrace/io/bundle_writer.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

TensorSlice slice(std::string_view text) { return TensorSlice::parse(text).value(); }

Tensor matrix() { return Tensor::of<float>({4, 3}, {0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32}); }

class BundleTest : public testing::Test {
 protected:
  explicit BundleTest(FileSystem& fs = posix_file_system()) : fs_(fs) {}
  std::unique_ptr<BundleWriter> writer(const std::string& prefix) {
    return std::move(BundleWriter::create(fs_, prefix)).value();
  }
  Ref<CheckpointReader> open(const std::string& prefix) {
    return CheckpointReader::open(fs_, prefix).value();
  }
  Result<Tensor> read_slice(const CheckpointReader& reader, std::string_view name,
                            std::string_view text) {
    MR_TRY_ASSIGN(const StoredTensor* tensor, reader.get(name));
    MR_TRY_ASSIGN(const TensorSlice box, slice(text).within(tensor->shape));
    MR_TRY_ASSIGN(const Shape shape, box.shape());
    MR_TRY_ASSIGN(Tensor out, Tensor::allocate(tensor->dtype, shape));
    MR_TRY(reader.read(*tensor, box, out));
    return out;
  }

  TemporaryDirectory directory_;
  FileSystem& fs_;
  const std::string prefix_ = directory_ / "model.ckpt";
};

TEST_F(BundleTest, ATensorThatChangesWhileItIsSavedIsReadAllTheSame) {
  Tensor tensor = Tensor::zeros(DType::kInt64, Shape{100'000}).value();
  FaultyFileSystem meddling(fs_);
  meddling.before_write = [&] {
    for (int64_t& element : tensor.mutable_data<int64_t>()) ++element;
  };
  const auto to = std::move(BundleWriter::create(meddling, prefix_)).value();
  ASSERT_TRUE(to->add("v", tensor).ok());
  ASSERT_TRUE(to->finish().ok());
  EXPECT_TRUE(open(prefix_)->read("v").ok());
}

TEST_F(BundleTest, BytesThatAreNoBoolsBecomeSome) {
  std::unique_ptr<BundleWriter> to = writer(prefix_);
  ASSERT_TRUE(to->add("v", Tensor::vector<uint8_t>({0, 1, 2, 255})).ok());
  ASSERT_TRUE(to->finish().ok());
  BundleIndex index = BundleIndex::read(fs_, index_path(prefix_)).value();
  index.entries.at("v").dtype = DType::kBool;
  ASSERT_TRUE(index.write(fs_, index_path(prefix_)).ok());
  const Tensor bools = open(prefix_)->read("v").value();
  EXPECT_EQ(std::string_view(static_cast<const char*>(bools.raw()), 4),
            std::string_view("\0\1\1\1", 4));
}

TEST_F(BundleTest, EveryTypeComesBack) {
  std::unique_ptr<BundleWriter> to = writer(prefix_);
  std::map<std::string, Tensor> saved;
  for (int i = 1; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!is_plain(dtype) && dtype != DType::kString) continue;
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{2, 3}}) {
      const std::string name = str_cat(dtype, shape);
      saved[name] = random_tensor(dtype, shape, 1);
      ASSERT_TRUE(to->add(name, saved[name]).ok());
    }
  }
  ASSERT_TRUE(to->finish().ok());
  const Ref<CheckpointReader> from = open(prefix_);
  EXPECT_EQ(from->tensors().size(), saved.size());
  for (const auto& [name, tensor] : saved) expect_tensor_equal(from->read(name).value(), tensor);
}

TEST_F(BundleTest, WhatCannotBeSavedIsRefused) {
  std::unique_ptr<BundleWriter> to = writer(prefix_);
  EXPECT_EQ(to->add("v", random_tensor(DType::kVariant, Shape{}, 1)).code(), Code::kUnimplemented);
  EXPECT_EQ(to->add("", matrix()).code(), Code::kInvalidArgument);
  ASSERT_TRUE(to->add("x", matrix()).ok());
  EXPECT_EQ(to->add("x", matrix()).code(), Code::kInvalidArgument);
  to = nullptr;
  EXPECT_TRUE(fs_.list(directory_.path()).value().empty());
}

TEST_F(BundleTest, SlicesBecomeAnySlice) {
  std::unique_ptr<BundleWriter> to = writer(prefix_);
  const Shape whole{4, 3};
  ASSERT_TRUE(to->add_slice("v", whole, slice("0,1:-"), matrix().rows(0, 1)).ok());
  ASSERT_TRUE(to->add_slice("v", whole, slice("1,3:0,2"),
                            Tensor::of<float>({3, 2}, {10, 11, 20, 21, 30, 31}))
                  .ok());
  EXPECT_EQ(to->add_slice("v", whole, slice("3,1:2,2"), matrix().rows(0, 1)).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(to->add_slice("v", whole, slice("3,1:1,2"), Tensor::of<float>({1, 2}, {0, 0})).code(),
            Code::kInvalidArgument);
  ASSERT_TRUE(
      to->add_slice("v", whole, slice("1,3:2,1"), Tensor::of<float>({3, 1}, {12, 22, 32})).ok());
  ASSERT_TRUE(to->add_slice("w", whole, slice("0,4:-"), matrix()).ok());
  ASSERT_TRUE(to->finish().ok());

  const Ref<CheckpointReader> from = open(prefix_);
  expect_tensor_equal(from->read("v").value(), matrix());
  EXPECT_TRUE(from->find("w")->slices.empty());
  for (const char* name : {"v", "w"}) {
    expect_tensor_equal(read_slice(*from, name, "0,2:1,2").value(),
                        Tensor::of<float>({2, 2}, {1, 2, 11, 12}));
    expect_tensor_equal(read_slice(*from, name, "1,3:0,2").value(),
                        Tensor::of<float>({3, 2}, {10, 11, 20, 21, 30, 31}));
  }
}

TEST_F(BundleTest, GapsAreRefused) {
  std::unique_ptr<BundleWriter> to = writer(prefix_);
  ASSERT_TRUE(to->add_slice("v", {4, 3}, slice("0,1:-"), matrix().rows(0, 1)).ok());
  ASSERT_TRUE(to->add_slice("v", {4, 3}, slice("2,2:-"), matrix().rows(2, 4)).ok());
  ASSERT_TRUE(to->finish().ok());
  const Ref<CheckpointReader> from = open(prefix_);
  EXPECT_EQ(from->read("v").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(read_slice(*from, "v", "0,2:-").status().code(), Code::kInvalidArgument);
  expect_tensor_equal(read_slice(*from, "v", "2,2:-").value(), matrix().rows(2, 4));
}

TEST_F(BundleTest, MissingNamesComeWithTheNearest) {
  std::unique_ptr<BundleWriter> to = writer(prefix_);
  for (const char* name : {"dense/kernel", "dense/bias", "global_step"}) {
    ASSERT_TRUE(to->add(name, matrix()).ok());
  }
  ASSERT_TRUE(to->finish().ok());
  const Status status = open(prefix_)->get("dense_1/kernel").status();
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("Tensor name \"dense_1/kernel\" not found in checkpoint files"),
            std::string_view::npos);
  EXPECT_NE(status.message().find("'dense/kernel'"), std::string_view::npos) << status.to_string();
  EXPECT_EQ(CheckpointReader::open(fs_, directory_ / "none").status().code(), Code::kNotFound);
}

TEST_F(BundleTest, PartsAreMerged) {
  const std::string a = directory_ / "temp/part-0";
  const std::string b = directory_ / "temp/part-1";
  for (int round = 0; round < 3; ++round) {  // saved over, too
    std::unique_ptr<BundleWriter> to = writer(a);
    ASSERT_TRUE(to->add("x", Tensor::scalar(round)).ok());
    ASSERT_TRUE(to->add_slice("v", {4, 3}, slice("0,1:-"), matrix().rows(0, 1)).ok());
    ASSERT_TRUE(to->finish().ok());
    to = writer(b);
    ASSERT_TRUE(to->add_slice("v", {4, 3}, slice("1,3:-"), matrix().rows(1, 4)).ok());
    ASSERT_TRUE(to->finish().ok());
    ASSERT_TRUE(merge_bundles(fs_, {a, b}, prefix_).ok());
    EXPECT_EQ(open(prefix_)->read("x").value().item<int>(), round);
    expect_tensor_equal(open(prefix_)->read("v").value(), matrix());
    EXPECT_TRUE(fs_.list(directory_ / "temp").value().empty());
    EXPECT_EQ(fs_.list(directory_.path()).value().size(), 4U);  // temp, an index, two data files
  }
}

TEST_F(BundleTest, PartsThatDoNotFitAreNotMerged) {
  for (const char* name : {"a", "b"}) {
    std::unique_ptr<BundleWriter> to = writer(directory_ / name);
    ASSERT_TRUE(to->add("x", matrix()).ok());
    ASSERT_TRUE(to->finish().ok());
  }
  EXPECT_EQ(merge_bundles(fs_, {directory_ / "a", directory_ / "b"}, prefix_).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(merge_bundles(fs_, {directory_ / "a", directory_ / "c"}, prefix_).code(),
            Code::kNotFound);
  expect_tensor_equal(open(directory_ / "a")->read("x").value(), matrix());
}

TEST_F(BundleTest, AReaderGoesOnWhileTheNameIsSavedOver) {
  for (int round = 0; round < 3; ++round) {
    std::unique_ptr<BundleWriter> to = writer(prefix_);
    ASSERT_TRUE(to->add("x", Tensor::scalar(round)).ok());
    const Ref<CheckpointReader> before = round == 0 ? nullptr : open(prefix_);
    ASSERT_TRUE(to->finish().ok());
    if (before) {
      EXPECT_EQ(before->read("x").value().item<int>(), round - 1);
    }
    EXPECT_EQ(open(prefix_)->read("x").value().item<int>(), round);
    EXPECT_EQ(fs_.list(directory_.path()).value().size(), 2U);
  }
}

TEST_F(BundleTest, AnIndexAloneStillNamesItsTensors) {
  std::unique_ptr<BundleWriter> to = writer(prefix_);
  ASSERT_TRUE(to->add("x", matrix()).ok());
  ASSERT_TRUE(to->finish().ok());
  ASSERT_TRUE(fs_.remove(data_path(prefix_, 0, 1)).ok());
  const Ref<CheckpointReader> from = open(prefix_);
  EXPECT_EQ(from->find("x")->shape, (Shape{4, 3}));
  EXPECT_EQ(from->read("x").status().code(), Code::kNotFound);
}

class DamageTest : public BundleTest {
 protected:
  DamageTest() : BundleTest(memory_file_system()) {}
};

TEST_F(DamageTest, EveryFlippedOrMissingByteIsNoticed) {
  std::unique_ptr<BundleWriter> to = writer(prefix_);
  ASSERT_TRUE(to->add("s", Tensor::vector<std::string>({"", "abc", "d"})).ok());
  ASSERT_TRUE(to->add("x", Tensor::scalar(1.5)).ok());
  ASSERT_TRUE(to->add_slice("v", {4, 3}, slice("0,1:-"), matrix().rows(0, 1)).ok());
  ASSERT_TRUE(to->add_slice("v", {4, 3}, slice("1,3:-"), matrix().rows(1, 4)).ok());
  ASSERT_TRUE(to->finish().ok());
  std::map<std::string, Tensor> good;
  const Ref<CheckpointReader> written = open(prefix_);
  for (const StoredTensor& tensor : written->tensors()) {
    good[tensor.name] = written->read(tensor.name).value();
  }
  const auto check = [&] {
    Result<Ref<CheckpointReader>> from = CheckpointReader::open(fs_, prefix_);
    if (!from.ok()) {
      EXPECT_EQ(from.status().code(), Code::kDataLoss) << from.status().to_string();
      return;
    }
    for (const auto& [name, tensor] : good) {
      Result<Tensor> back = (*from)->read(name);
      if (back.ok()) {
        expect_tensor_equal(*back, tensor);
      } else {
        EXPECT_EQ(back.status().code(), Code::kDataLoss) << back.status().to_string();
      }
    }
  };
  for (const std::string& path : {index_path(prefix_), data_path(prefix_, 0, 1)}) {
    const std::string bytes = read_file(fs_, path).value();
    for (size_t at = 0; at < bytes.size(); ++at) {
      std::string bad = bytes;
      bad[at] = static_cast<char>(bad[at] ^ (1 << at % 8));
      ASSERT_TRUE(write_file_atomically(fs_, path, bad).ok());
      check();
      ASSERT_TRUE(write_file_atomically(fs_, path, bytes.substr(0, at)).ok());
      check();
    }
    ASSERT_TRUE(write_file_atomically(fs_, path, bytes).ok());
  }
}

}  // namespace
}  // namespace millrace
