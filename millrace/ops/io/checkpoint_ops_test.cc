#include <gtest/gtest.h>
#include <unistd.h>

#include "millrace/base/file_access.h"
#include "millrace/base/file_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool kRegistered = register_for_tests({register_io_ops, register_random_ops});

using Strings = std::vector<std::string>;

Tensor strings(const Strings& values) {
  return Tensor::vector(std::span<const std::string>(values));
}

class CheckpointOpsTest : public testing::Test {
 protected:
  Status save(const std::string& prefix, const Strings& names, const Strings& slices,
              std::vector<Tensor> tensors) {
    return OpTester(env_, "SaveV2")
        .input(Tensor::scalar(prefix))
        .input(strings(names))
        .input(strings(slices))
        .input_list(std::move(tensors))
        .run()
        .status();
  }
  Result<std::vector<Tensor>> restore(const std::string& prefix, const Strings& names,
                                      const Strings& slices, std::vector<DType> dtypes) {
    return OpTester(env_, "RestoreV2")
        .attr("dtypes", std::move(dtypes))
        .input(Tensor::scalar(prefix))
        .input(strings(names))
        .input(strings(slices))
        .run();
  }

  OpEnv env_;
  TemporaryDirectory directory_;
  const std::string prefix_ = directory_ / "new folder/model.ckpt";
  const Tensor rows_ = Tensor::of<float>({2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor text_ = Tensor::scalar(std::string("hello"));
};

TEST_F(CheckpointOpsTest, RestoresWhatWasSaved) {
  ASSERT_TRUE(save(prefix_, {"rows", "text"}, {"", ""}, {rows_, text_}).ok());
  const std::vector<Tensor> back = restore(prefix_, {"text", "rows", "rows"}, {"", "", "2 3 -:1,2"},
                                           {DType::kString, DType::kFloat, DType::kFloat})
                                       .value();
  expect_tensor_equal(back[0], text_);
  expect_tensor_equal(back[1], rows_);
  expect_tensor_equal(back[2], Tensor::of<float>({2, 2}, {2, 3, 5, 6}));
}

TEST_F(CheckpointOpsTest, MistakesSayWhatIsThere) {
  ASSERT_TRUE(save(prefix_, {"rows"}, {""}, {rows_}).ok());
  const auto error = [&](const char* name, const char* slice, DType dtype) {
    return restore(prefix_, {name}, {slice}, {dtype}).status();
  };
  Status status = error("row", "", DType::kFloat);
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_NE(status.message().find("nearest names there: 'rows'"), std::string_view::npos);
  status = error("rows", "", DType::kInt32);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("expected dtype int32 does not equal original dtype float"),
            std::string_view::npos);
  status = error("rows", "3 2 -:-", DType::kFloat);
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("[3,2]"), std::string_view::npos);
  EXPECT_EQ(error("rows", "nonsense", DType::kFloat).code(), Code::kInvalidArgument);
  EXPECT_EQ(restore(directory_ / "none", {"x"}, {""}, {DType::kFloat}).status().code(),
            Code::kNotFound);
  EXPECT_EQ(save(prefix_, {"a", "b"}, {"", ""}, {rows_}).code(), Code::kInvalidArgument);
  EXPECT_EQ(save(prefix_, {"a"}, {"2 3 0,1:-"}, {rows_}).code(), Code::kInvalidArgument);
}

TEST_F(CheckpointOpsTest, PartsAreMerged) {
  const std::string a = directory_ / "temp/part-00000-of-00002";
  const std::string b = directory_ / "temp/part-00001-of-00002";
  ASSERT_TRUE(save(a, {"v"}, {"2 3 0,1:-"}, {rows_.rows(0, 1)}).ok());
  ASSERT_TRUE(save(b, {"v"}, {"2 3 1,1:-"}, {rows_.rows(1, 2)}).ok());
  ASSERT_TRUE(OpTester(env_, "MergeV2Checkpoints")
                  .input(strings({a, b}))
                  .input(Tensor::scalar(prefix_))
                  .run()
                  .ok());
  expect_tensor_equal(restore(prefix_, {"v"}, {""}, {DType::kFloat}).value()[0], rows_);
  EXPECT_FALSE(posix_file_system().exists(directory_ / "temp").value());
}

TEST_F(CheckpointOpsTest, VersionOne) {
  const std::string file = directory_ / "old";
  ASSERT_TRUE(OpTester(env_, "SaveSlices")
                  .input(Tensor::scalar(file))
                  .input(strings({"v", "v", "text"}))
                  .input(strings({"2 3 0,1:-", "2 3 1,1:-", ""}))
                  .input_list({rows_.rows(0, 1), rows_.rows(1, 2), text_})
                  .run()
                  .ok());
  expect_tensor_equal(restore(file, {"v"}, {""}, {DType::kFloat}).value()[0], rows_);
  expect_tensor_equal(OpTester(env_, "Restore")
                          .attr("dt", DType::kString)
                          .input(Tensor::scalar(directory_ / "ol?"))
                          .input(Tensor::scalar(std::string("text")))
                          .run_one()
                          .value(),
                      text_);
  expect_tensor_equal(OpTester(env_, "RestoreSlice")
                          .attr("dt", DType::kFloat)
                          .input(Tensor::scalar(file))
                          .input(Tensor::scalar(std::string("v")))
                          .input(Tensor::scalar(std::string("2 3 -:2,1")))
                          .run_one()
                          .value(),
                      Tensor::of<float>({2, 1}, {3, 6}));
  ASSERT_TRUE(OpTester(env_, "Save")
                  .input(Tensor::scalar(file))
                  .input(strings({"v"}))
                  .input_list({text_})
                  .run()
                  .ok());
  expect_tensor_equal(restore(file, {"v"}, {""}, {DType::kString}).value()[0], text_);
}

TEST_F(CheckpointOpsTest, NamesOfParts) {
  EXPECT_EQ(OpTester(env_, "ShardedFilename")
                .input(Tensor::scalar(std::string("a/b")))
                .input(Tensor::scalar(3))
                .input(Tensor::scalar(123))
                .run_one()
                .value()
                .item<std::string>(),
            "a/b-00003-of-00123");
  EXPECT_EQ(OpTester(env_, "ShardedFilespec")
                .input(Tensor::scalar(std::string("a/b")))
                .input(Tensor::scalar(123))
                .run_one()
                .value()
                .item<std::string>(),
            "a/b-????"
            "?-of-00123");
}

TEST_F(CheckpointOpsTest, StaysWithinTheFoldersOfItsDevice) {
  FileSystem& fs = posix_file_system();
  ASSERT_TRUE(fs.mkdir_all(directory_ / "open").ok());
  ASSERT_TRUE(save(directory_ / "closed", {"v"}, {""}, {rows_}).ok());
  env_.device().set_files(FileAccess::only({.write = {directory_ / "open"}}).value());
  EXPECT_EQ(save(directory_ / "x", {"v"}, {""}, {rows_}).code(), Code::kPermissionDenied);
  EXPECT_EQ(restore(directory_ / "closed", {"v"}, {""}, {DType::kFloat}).status().code(),
            Code::kPermissionDenied);
  // Its files would lie beside the folder.
  EXPECT_EQ(save(directory_ / "open", {"v"}, {""}, {rows_}).code(), Code::kPermissionDenied);
  ASSERT_TRUE(save(directory_ / "open/y", {"v"}, {""}, {rows_}).ok());
  ASSERT_TRUE(restore(directory_ / "open/../open/y", {"v"}, {""}, {DType::kFloat}).ok());
  // A link that leads out of the folder.
  const std::string data = directory_ / "open/y.data-00000-of-00001";
  ASSERT_TRUE(fs.remove(data).ok());
  ASSERT_EQ(symlink((directory_ / "closed.data-00000-of-00001").c_str(), data.c_str()), 0);
  EXPECT_EQ(restore(directory_ / "open/y", {"v"}, {""}, {DType::kFloat}).status().code(),
            Code::kPermissionDenied);
}

// The state of random ops.

class OpStatesTest : public CheckpointOpsTest {
 protected:
  Status save_states() {
    return OpTester(env_, "SaveV2")
        .attr("_op_states", "_STATE")
        .input(Tensor::scalar(prefix_))
        .input(strings({"rows"}))
        .input(strings({""}))
        .input_list({rows_})
        .run()
        .status();
  }
  Status restore_states() {
    return OpTester(env_, "RestoreV2")
        .attr("_op_states", "_STATE")
        .attr("dtypes", std::vector<DType>{DType::kFloat})
        .input(Tensor::scalar(prefix_))
        .input(strings({"rows"}))
        .input(strings({""}))
        .run()
        .status();
  }
  Tensor draw() {
    return OpTester(env_, "RandomUniform")
        .name("draw")
        .attr("dtype", DType::kFloat)
        .input(Tensor::vector<int32_t>({4}))
        .run_one()
        .value();
  }
};

TEST_F(OpStatesTest, NumbersComeAgain) {
  (void)draw();
  ASSERT_TRUE(save_states().ok());
  const Tensor next = draw();
  ASSERT_TRUE(restore_states().ok());
  expect_tensor_equal(draw(), next);
}

TEST_F(OpStatesTest, CheckpointsWithoutThemChangeNone) {
  ASSERT_TRUE(save(prefix_, {"rows"}, {""}, {rows_}).ok());
  const Tensor first = draw();
  ASSERT_TRUE(restore_states().ok());
  EXPECT_FALSE(bit_equal(draw(), first));
}

TEST_F(OpStatesTest, OtherEntriesAreErrors) {
  const auto code_of = [&](const Tensor& entry) {
    MR_CHECK_OK(save(prefix_, {"rows", "_STATE"}, {"", ""}, {rows_, entry}));
    return restore_states().code();
  };
  EXPECT_EQ(code_of(rows_), Code::kInvalidArgument);
  EXPECT_EQ(code_of(strings({"a", "b"})), Code::kInvalidArgument);
  EXPECT_EQ(code_of(Tensor::scalar(std::string("\1cut"))), Code::kDataLoss);
  EXPECT_EQ(code_of(Tensor::scalar(std::string("\2"))), Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
