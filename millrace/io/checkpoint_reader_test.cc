// Checkpoints that TensorFlow wrote (tests/data/checkpoints), and those of version 1.

#include "millrace/io/checkpoint_reader.h"

#include <gtest/gtest.h>

#include "millrace/base/file_systems.h"
#include "millrace/base/file_testing.h"
#include "millrace/io/bundle_index.h"
#include "millrace/io/bundle_writer.h"
#include "millrace/io/checkpoint_v1.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const std::string kData = "tests/data/checkpoints/";

class CheckpointReaderTest : public testing::Test {
 protected:
  Ref<CheckpointReader> open(const std::string& prefix) {
    return CheckpointReader::open(fs_, prefix).value();
  }
  FileSystem& fs_ = posix_file_system();
  TemporaryDirectory directory_;
};

TEST_F(CheckpointReaderTest, ReadsAllTypesOfTensorFlow) {
  // The same under a compressed index.
  for (const char* file : {"types.index", "snappy.index"}) {
    const std::string prefix = directory_ / "types";
    const std::string data = read_file(fs_, kData + "types.data-00000-of-00001").value();
    ASSERT_TRUE(write_file_atomically(fs_, data_path(prefix, 0, 1), data).ok());
    ASSERT_TRUE(
        write_file_atomically(fs_, index_path(prefix), read_file(fs_, kData + file).value()).ok());
    const Ref<CheckpointReader> from = open(prefix);
    EXPECT_EQ(from->tensors().size(), 24U);
    expect_tensor_equal(from->read("float32").value(),
                        Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6}));
    expect_tensor_equal(from->read("int64").value(),
                        Tensor::of<int64_t>({2, 3}, {1, 2, 3, 4, 5, 6}));
    expect_tensor_equal(from->read("bool").value(),
                        Tensor::of<bool>({2, 3}, {true, false, true, false, false, true}));
    EXPECT_EQ(from->read("string").value().data<std::string>()[3], std::string(200, 'x'));
    EXPECT_EQ(from->read("string").value().data<std::string>()[4], std::string_view("\0\xFF", 2));
    EXPECT_EQ(from->read("scalar").value().item<float>(), 7.5F);
    EXPECT_EQ(from->read("empty").value().shape(), (Shape{0, 3}));
    for (const StoredTensor& tensor : from->tensors()) {
      EXPECT_TRUE(from->read(tensor.name).ok()) << tensor.name;
    }
  }
}

TEST_F(CheckpointReaderTest, WritesTheBytesThatTensorFlowWrites) {
  const Ref<CheckpointReader> from = open(kData + "plain");
  std::unique_ptr<BundleWriter> to =
      std::move(BundleWriter::create(fs_, directory_ / "plain")).value();
  for (const char* name : {"a", "scope/b"}) {
    ASSERT_TRUE(to->add(name, from->read(name).value()).ok());
  }
  ASSERT_TRUE(to->finish().ok());
  for (const char* suffix : {".index", ".data-00000-of-00001"}) {
    EXPECT_EQ(read_file(fs_, directory_ / "plain" + suffix).value(),
              read_file(fs_, kData + "plain" + suffix).value());
  }
}

TEST_F(CheckpointReaderTest, ReadsPartitionedTensorsOfTensorFlow) {
  const Ref<CheckpointReader> from = open(kData + "partitioned");
  const Tensor v = from->read("v").value();
  ASSERT_EQ(v.shape(), (Shape{12, 5}));
  for (int i = 0; i < 60; ++i) EXPECT_EQ(v.data<float>()[static_cast<size_t>(i)], i);
  expect_tensor_equal(from->read("c").value(), Tensor::of<int32_t>({2, 3}, {1, 2, 3, 4, 5, 6}));
  Tensor part = Tensor::allocate(DType::kFloat, Shape{5, 2}).value();
  ASSERT_TRUE(from->read(*from->find("v"), TensorSlice({{3, 5}, {1, 2}}), part).ok());
  EXPECT_EQ(part.data<float>()[0], 16);
  EXPECT_EQ(part.data<float>()[9], 37);
}

TEST_F(CheckpointReaderTest, ReadsVersionOneOfTensorFlow) {
  const Ref<CheckpointReader> from = open(kData + "v1");
  expect_tensor_equal(from->read("a").value(), Tensor::vector<float>({1, 2, 3}));
  EXPECT_EQ(from->read("scope/b").value().item<int32_t>(), 5);
  EXPECT_EQ(from->find("p")->slices.size(), 3U);
  const Tensor p = from->read("p").value();
  ASSERT_EQ(p.shape(), (Shape{7, 2}));
  for (const float x : p.data<float>()) EXPECT_EQ(x, 2.5F);
}

TEST_F(CheckpointReaderTest, VersionOneComesBackFromSeveralFiles) {
  const Tensor rows = Tensor::of<int64_t>({3, 2}, {1, 2, 3, 4, 5, 6});
  const auto part = [&](int64_t begin, int64_t end) {
    return V1Slice{"v", rows.shape(), TensorSlice({{begin, end - begin}, {}}),
                   rows.rows(begin, end)};
  };
  const Tensor text = Tensor::scalar(std::string("hello"));
  ASSERT_TRUE(write_v1(fs_, directory_ / "m-0", {part(0, 1), {"s", {}, {}, text}}).ok());
  ASSERT_TRUE(write_v1(fs_, directory_ / "m-1", {part(1, 3)}).ok());
  const Ref<CheckpointReader> from = open(directory_ / "m-?");
  expect_tensor_equal(from->read("v").value(), rows);
  expect_tensor_equal(from->read("s").value(), text);
  EXPECT_EQ(open(directory_ / "m-[^0]")->read("v").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(CheckpointReader::open(fs_, directory_ / "x*").status().code(), Code::kNotFound);
}

TEST_F(CheckpointReaderTest, VersionOneRefusesSlicesThatNoMessageHolds) {
  // Its bytes are never touched. In a message each may take ten.
  const Tensor tensor = Tensor::allocate(DType::kInt8, Shape{1 << 28}).value();
  const V1Slice slice{"v", tensor.shape(), TensorSlice::whole(1), tensor};
  const Status status = write_v1(fs_, directory_ / "large", {slice});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("too large to serialize"), std::string_view::npos);
  EXPECT_FALSE(fs_.exists(directory_ / "large").value());
}

TEST_F(CheckpointReaderTest, VersionOneNoticesEveryFlippedOrMissingByte) {
  FileSystem& fs = memory_file_system();
  const std::string path = "damaged/m";
  const Tensor text = Tensor::vector<std::string>({"hello", ""});
  ASSERT_TRUE(write_v1(fs, path, {{"s", {2}, TensorSlice::whole(1), text}}).ok());
  const std::string bytes = read_file(fs, path).value();
  for (size_t at = 0; at < 2 * bytes.size(); ++at) {
    std::string bad = bytes.substr(0, at / 2);
    if (at % 2 == 0) {
      bad = bytes;
      bad[at / 2] = static_cast<char>(bad[at / 2] ^ 4);
    }
    ASSERT_TRUE(write_file_atomically(fs, path, bad).ok());
    Result<Ref<CheckpointReader>> from = CheckpointReader::open(fs, path);
    Result<Tensor> back = from.ok() ? (*from)->read("s") : Result<Tensor>(from.status());
    if (back.ok()) {
      expect_tensor_equal(*back, text);
    } else {
      EXPECT_EQ(back.status().code(), Code::kDataLoss) << back.status().to_string();
    }
  }
}

}  // namespace
}  // namespace millrace
