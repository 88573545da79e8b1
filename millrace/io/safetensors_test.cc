#include "millrace/io/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "millrace/base/file_systems.h"
#include "millrace/base/file_testing.h"
#include "millrace/io/coding.h"
#include "millrace/io/json_reader.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

class SafetensorsTest : public testing::Test {
 protected:
  Ref<SafetensorsReader> open() { return SafetensorsReader::open(fs_, path_).value(); }
  // A file with this header and so many zero bytes.
  Status open_with(std::string_view header, size_t data_bytes) {
    std::string bytes;
    put_fixed64(bytes, header.size());
    bytes.append(header);
    bytes.append(data_bytes, '\0');
    MR_TRY(write_file_atomically(fs_, path_, bytes));
    return SafetensorsReader::open(fs_, path_).status();
  }
  TemporaryDirectory directory_;
  FileSystem& fs_ = posix_file_system();
  const std::string path_ = directory_ / "model.safetensors";
};

TEST_F(SafetensorsTest, EveryTypeComesBackWithoutACopy) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (int i = 1; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (safetensors_type(dtype).empty()) continue;
    for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{3, 5}}) {
      tensors.emplace_back(str_cat(dtype, shape), random_tensor(dtype, shape, 1));
    }
  }
  EXPECT_EQ(tensors.size(), 48U);
  const SafetensorsMetadata metadata = {{"format", "pt"}, {"\"a\\\n", "\xC3\xA9"}};
  ASSERT_TRUE(write_safetensors(fs_, path_, tensors, metadata).ok());
  std::vector<Tensor> views;
  for (const auto& [name, tensor] : tensors) views.push_back(open()->view(name).value());
  for (size_t i = 0; i < tensors.size(); ++i) {  // the reader is gone
    expect_tensor_equal(views[i], tensors[i].second);
    const bool copied = views[i].dtype() == DType::kBool;  // other bytes would be none
    EXPECT_EQ(views[i].buffer()->borrowed(), !copied);
    EXPECT_EQ(views[i].writable(), copied);
  }
  EXPECT_EQ(open()->metadata(), metadata);
}

TEST_F(SafetensorsTest, IsACheckpointLikeOthers) {
  const Tensor rows = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(write_safetensors(fs_, path_, {{"v", rows}}).ok());
  const Ref<CheckpointReader> from = CheckpointReader::open(fs_, path_).value();
  expect_tensor_equal(from->read("v").value(), rows);
  Tensor part = Tensor::allocate(DType::kFloat, Shape{2, 1}).value();
  ASSERT_TRUE(from->read(*from->find("v"), TensorSlice({{1, 2}, {1, 1}}), part).ok());
  expect_tensor_equal(part, Tensor::of<float>({2, 1}, {4, 6}));
  EXPECT_EQ(from->read("w").status().code(), Code::kNotFound);
}

TEST_F(SafetensorsTest, AFileThatIsCutShortMeanwhileIsAnError) {
  const Tensor large = Tensor::zeros(DType::kFloat, Shape{4, 100'000}).value();
  ASSERT_TRUE(write_safetensors(fs_, path_, {{"v", large}}).ok());
  const Ref<SafetensorsReader> from = open();
  ASSERT_EQ(truncate(path_.c_str(), 100), 0);
  EXPECT_EQ(from->read("v").status().code(), Code::kDataLoss);
  EXPECT_EQ(from->view("v").status().code(), Code::kDataLoss);
}

TEST_F(SafetensorsTest, BytesThatAreNoBoolsBecomeSome) {
  const std::string header = R"({"v":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})";
  std::string bytes;
  put_fixed64(bytes, header.size());
  bytes += header + std::string("\0\1\2", 3);
  ASSERT_TRUE(write_file_atomically(fs_, path_, bytes).ok());
  for (const Tensor& bools : {open()->read("v").value(), open()->view("v").value()}) {
    EXPECT_EQ(std::string_view(static_cast<const char*>(bools.raw()), 3),
              std::string_view("\0\1\1", 3));
  }
}

TEST_F(SafetensorsTest, WhatDoesNotLieAsItNeedsIsCopied) {
  const char* header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("b":{"shape":[1],"data_offsets":[1,5],"dtype":"F32"}}  )";
  ASSERT_TRUE(open_with(header, 5).ok());
  EXPECT_FALSE(open()->view("b").value().buffer()->borrowed());
}

TEST_F(SafetensorsTest, WrongHeadersAreRefused) {
  const auto entry = [](const char* name, const char* dtype, const char* shape, int begin,
                        int end) {
    return str_cat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                   ",\"data_offsets\":[", begin, ",", end, "]}");
  };
  EXPECT_TRUE(open_with("{}", 0).ok());
  EXPECT_TRUE(open_with(str_cat("{", entry("a", "F32", "[2]", 0, 8), "}"), 8).ok());
  const std::pair<std::string, size_t> wrong[] = {
      {"", 0},
      {" {}", 0},
      {"{}x", 0},
      {"[]", 0},
      {"{", 0},
      {"{}", 1},                                               // bytes of nobody
      {str_cat("{", entry("a", "F32", "[2]", 0, 8), "}"), 7},  // too few
      {str_cat("{", entry("a", "F32", "[2]", 0, 4), "}"), 4},  // for its shape
      {str_cat("{", entry("a", "F99", "[2]", 0, 8), "}"), 8},
      {str_cat("{", entry("a", "F32", "[-2]", 0, 8), "}"), 8},
      {str_cat("{", entry("a", "F32", "[02]", 0, 8), "}"), 8},
      {str_cat("{", entry("a", "F32", "[4294967296,4294967296]", 0, 0), "}"), 0},
      {str_cat("{", entry("a", "F32", "[1]", 4, 8), "}"), 8},  // a gap before
      {str_cat("{", entry("a", "F32", "[1]", 0, 4), ",", entry("b", "F32", "[1]", 5, 9), "}"), 9},
      {str_cat("{", entry("a", "F32", "[2]", 0, 8), ",", entry("b", "F32", "[1]", 4, 8), "}"), 8},
      {str_cat("{", entry("a", "F32", "[1]", 0, 4), ",", entry("a", "F32", "[1]", 4, 8), "}"), 8},
      {R"({"a":{"dtype":"F32","shape":[1]}})", 4},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4},
      {R"({"a":1})", 0},
      {R"({"__metadata__":{"a":1}})", 0},
      {"{\"\xFF\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4}};
  for (const auto& [header, bytes] : wrong) {
    const Status status = open_with(header, bytes);
    EXPECT_EQ(status.code(), Code::kDataLoss) << header << ": " << status.to_string();
  }
  for (const std::string_view bytes : {"", "1234567", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}"}) {
    ASSERT_TRUE(write_file_atomically(fs_, path_, bytes).ok());
    EXPECT_EQ(SafetensorsReader::open(fs_, path_).status().code(), Code::kDataLoss);
  }
}

TEST_F(SafetensorsTest, EveryFlippedOrMissingByteOfTheHeaderIsNoticedOrRead) {
  FileSystem& fs = memory_file_system();
  const std::string path = "safetensors_test/damaged";
  ASSERT_TRUE(write_safetensors(fs, path, {{"v", Tensor::scalar(1.0F)}, {"w", Tensor::scalar(2)}},
                                {{"k", "v"}})
                  .ok());
  const std::string bytes = read_file(fs, path).value();
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit <= 8; ++bit) {
      std::string bad = bytes;
      if (bit == 8) {
        bad.resize(at);
      } else {
        bad[at] = static_cast<char>(bad[at] ^ (1 << bit));
      }
      ASSERT_TRUE(write_file_atomically(fs, path, bad).ok());
      Result<Ref<SafetensorsReader>> from = SafetensorsReader::open(fs, path);
      if (!from.ok()) {
        EXPECT_EQ(from.status().code(), Code::kDataLoss) << from.status().to_string();
        continue;
      }
      for (const StoredTensor& tensor : (*from)->tensors()) {
        EXPECT_TRUE((*from)->view(tensor.name).ok());
      }
    }
  }
}

TEST_F(SafetensorsTest, IsWrittenTensorByTensor) {
  const std::vector<SafetensorsEntry> entries = {
      {.name = "a", .dtype = DType::kUInt8, .shape = Shape{3}},
      {.name = "b", .dtype = DType::kDouble, .shape = Shape{}}};
  const Tensor small = Tensor::vector<uint8_t>({1, 2, 3});
  {
    auto abandoned = SafetensorsWriter::create(fs_, path_, entries).value();
    ASSERT_TRUE(abandoned->add(Tensor::scalar(0.5)).ok());
  }
  EXPECT_TRUE(fs_.list(directory_of(path_)).value().empty());

  auto writer = SafetensorsWriter::create(fs_, path_, entries).value();
  ASSERT_EQ(writer->entries()[0].name, "b");  // the larger type lies first
  EXPECT_EQ(writer->add(small).code(), Code::kInvalidArgument);
  ASSERT_TRUE(writer->add(Tensor::scalar(0.5)).ok());
  EXPECT_EQ(writer->finish().code(), Code::kFailedPrecondition);
  ASSERT_TRUE(writer->add(small).ok());
  EXPECT_EQ(writer->add(small).code(), Code::kFailedPrecondition);
  ASSERT_TRUE(writer->finish().ok());
  EXPECT_EQ(writer->finish().code(), Code::kFailedPrecondition);
  expect_tensor_equal(open()->view("a").value(), small);
  expect_tensor_equal(open()->view("b").value(), Tensor::scalar(0.5));
}

TEST_F(SafetensorsTest, WhatTheFormatCannotHoldIsRefused) {
  const Tensor x = Tensor::scalar(1.0F);
  EXPECT_EQ(write_safetensors(fs_, path_, {{"s", Tensor::scalar(std::string("text"))}}).code(),
            Code::kUnimplemented);
  EXPECT_EQ(write_safetensors(fs_, path_, {{"x", x}, {"x", x}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(write_safetensors(fs_, path_, {{"\xFF", x}}).code(), Code::kInvalidArgument);
  EXPECT_EQ(write_safetensors(fs_, path_, {{"__metadata__", x}}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(fs_.list(directory_.path()).value().empty());
}

TEST(JsonReaderTest, Strings) {
  const auto read = [](std::string_view text) {
    std::string out;
    JsonReader json(text);
    return json.string(out) && json.at_end() ? out : "wrong";
  };
  EXPECT_EQ(read(R"( "a\"\\\/\b\f\n\r\tz" )"), "a\"\\/\b\f\n\r\tz");
  EXPECT_EQ(read(R"("\u0041\u00e9\u20ac\ud83d\ude00")"), "A\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80");
  for (const char* text : {"", "\"", "\"\\", "\"\\x\"", "\"\\u12\"", R"("\ud83d")", R"("\ude00")",
                           R"("\ud83d\u0041")", "\"\x01\"", "\"\xC0\x80\"", "\"\xED\xA0\x80\"",
                           "\"\xF4\x90\x80\x80\"", "\"\xE2\x82\"", "\"a\"b"}) {
    EXPECT_EQ(read(text), "wrong") << text;
  }
  std::string back;
  EXPECT_TRUE(JsonReader(json_quoted("a\"\\\n\x01\xC3\xA9")).string(back));
  EXPECT_EQ(back, "a\"\\\n\x01\xC3\xA9");
}

}  // namespace
}  // namespace millrace
