// test-labels: threads
//
// A save goes on beside training: the file holds the values of the moment of the save, whatever
// happens to the variables meanwhile.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "millrace/base/file_testing.h"
#include "millrace/io/background_saves.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool kRegistered = register_for_tests({register_io_ops, register_state_ops});

Tensor filled(float value) {
  Tensor tensor = Tensor::allocate(DType::kFloat, Shape{100'000}).value();
  for (float& x : tensor.mutable_data<float>()) x = value;
  return tensor;
}

// Keeps a checkpoint's saves waiting until it is opened.
class Gate {
 public:
  explicit Gate(const std::string& prefix) {
    const std::string key = str_cat("://", posix_file_system().real_path(prefix).value());
    MR_CHECK_OK(BackgroundSaves::global().start(key, [this] {
      open_.wait(false);
      return ok_status();
    }));
  }
  ~Gate() {
    open();
    BackgroundSaves::global().finish_all();
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_ = false;
};

class SaveAsyncTest : public testing::Test {
 protected:
  Status save(const std::string& prefix, const Tensor& tensor) {
    return OpTester(*env_, "SaveV2")
        .attr("_asynchronous", true)
        .input(Tensor::scalar(prefix))
        .input(Tensor::vector<std::string>({"v"}))
        .input(Tensor::vector<std::string>({""}))
        .input_list({tensor})
        .run()
        .status();
  }
  Status wait(const std::string& prefix) {
    return OpTester(*env_, "SaveV2Wait").input(Tensor::scalar(prefix)).run().status();
  }
  // What all elements are that were saved.
  float restore(const std::string& prefix) {
    const std::vector<Tensor> back = OpTester(*env_, "RestoreV2")
                                         .attr("dtypes", std::vector<DType>{DType::kFloat})
                                         .input(Tensor::scalar(prefix))
                                         .input(Tensor::vector<std::string>({"v"}))
                                         .input(Tensor::vector<std::string>({""}))
                                         .run()
                                         .value();
    for (const float x : back[0].data<float>()) EXPECT_EQ(x, back[0].data<float>()[0]);
    return back[0].data<float>()[0];
  }

  std::unique_ptr<OpEnv> env_ = std::make_unique<OpEnv>();
  TemporaryDirectory directory_;
  const std::string prefix_ = directory_ / "model";
};

TEST_F(SaveAsyncTest, AMergeWaitsForPartsOfItsTask) {
  const std::string part = directory_ / "part";
  const auto merge = [&] {
    return OpTester(*env_, "MergeV2Checkpoints")
        .input(Tensor::vector<std::string>({part}))
        .input(Tensor::scalar(prefix_))
        .run()
        .status();
  };
  Gate gate(part);
  ASSERT_TRUE(save(part, filled(2)).ok());
  std::thread opens([&] { gate.open(); });
  EXPECT_TRUE(merge().ok());
  opens.join();
  EXPECT_EQ(restore(prefix_), 2);
}

TEST_F(SaveAsyncTest, ReferenceVariablesAreSavedAsTheyWere) {
  const Ref<RefCell> cell = make_ref_cell(filled(1));
  Gate gate(prefix_);
  for (int round = 0; round < 3; ++round) {  // the last of them counts
    ASSERT_TRUE(save(prefix_, cell->read()).ok());
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(OpTester(*env_, "AssignAdd").input_ref(cell).input(filled(1)).run_values().ok());
    }
  }
  gate.open();
  ASSERT_TRUE(wait(prefix_).ok());
  EXPECT_EQ(restore(prefix_), 11);
  EXPECT_EQ(cell->read().data<float>()[0], 16);
}

TEST_F(SaveAsyncTest, ResourceVariablesAreSavedAsTheyWere) {
  const Tensor handle = OpTester(*env_, "VarHandleOp")
                            .attr("dtype", DType::kFloat)
                            .attr("shape", PartialShape())
                            .attr("shared_name", "v")
                            .run_one()
                            .value();
  const auto run = [&](const char* op, float value) {
    return OpTester(*env_, op).input(handle).input(filled(value)).run().status();
  };
  ASSERT_TRUE(run("AssignVariableOp", 1).ok());
  Gate gate(prefix_);
  const auto read = [&] {
    return OpTester(*env_, "ReadVariableOp")
        .attr("dtype", DType::kFloat)
        .input(handle)
        .run_one()
        .value();
  };
  ASSERT_TRUE(save(prefix_, read()).ok());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(run("AssignAddVariableOp", 1).ok());
  gate.open();
  EXPECT_EQ(restore(prefix_), 1);  // waits for the save
  EXPECT_EQ(read().data<float>()[0], 6);
}

TEST_F(SaveAsyncTest, TrainingGoesOnInOtherThreads) {
  const Ref<RefCell> cell = make_ref_cell(filled(0));
  std::atomic<bool> stop = false;
  std::thread training([&] {
    while (!stop) {
      MR_CHECK_OK(OpTester(*env_, "AssignAdd")
                      .attr("use_locking", true)
                      .input_ref(cell)
                      .input(filled(1))
                      .run_values()
                      .status());
    }
  });
  OpEnv saver;
  for (int i = 0; i < 10; ++i) {
    const std::string prefix = directory_ / str_cat("model-", i % 3);
    ASSERT_TRUE(OpTester(saver, "SaveV2")
                    .attr("_asynchronous", true)
                    .input(Tensor::scalar(prefix))
                    .input(Tensor::vector<std::string>({"v"}))
                    .input(Tensor::vector<std::string>({""}))
                    .input_list({filled(static_cast<float>(i))})
                    .run()
                    .ok());
  }
  ASSERT_TRUE(OpTester(saver, "SaveV2Wait").input(Tensor::scalar(std::string())).run().ok());
  stop = true;
  training.join();
  EXPECT_EQ(restore(directory_ / "model-0"), 9);
  EXPECT_EQ(restore(directory_ / "model-2"), 8);
}

TEST_F(SaveAsyncTest, MemoryThatIsOnlyLentIsCopied) {
  std::vector<float> lent(1000, 1);
  Gate gate(prefix_);
  ASSERT_TRUE(save(prefix_, Tensor(DType::kFloat, Shape{1000},
                                   Buffer::borrow(lent.data(), lent.size() * sizeof(float), {})))
                  .ok());
  lent.assign(1000, 2);
  gate.open();
  EXPECT_EQ(restore(prefix_), 1);
}

TEST_F(SaveAsyncTest, ErrorsAreToldOnceToWhoWaits) {
  const std::string prefix = directory_ / "gone/model";
  {
    ASSERT_TRUE(posix_file_system().mkdir_all(directory_ / "gone").ok());
    Gate gate(prefix);
    ASSERT_TRUE(save(prefix, filled(1)).ok());
    const std::vector<std::string> names = posix_file_system().list(directory_ / "gone").value();
    for (const std::string& name : names) {
      ASSERT_TRUE(posix_file_system().remove(directory_ / str_cat("gone/", name)).ok());
    }
    ASSERT_TRUE(posix_file_system().remove(directory_ / "gone").ok());
  }
  EXPECT_EQ(wait(prefix).code(), Code::kNotFound);
  EXPECT_TRUE(wait(prefix).ok());
  EXPECT_TRUE(wait("").ok());
}

TEST_F(SaveAsyncTest, TheEndOfASessionWaits) {
  Gate gate(prefix_);
  ASSERT_TRUE(save(prefix_, filled(3)).ok());
  std::thread opener([&] { gate.open(); });
  env_ = nullptr;
  EXPECT_TRUE(posix_file_system().exists(prefix_ + ".index").value());
  opener.join();
  env_ = std::make_unique<OpEnv>();
  EXPECT_EQ(restore(prefix_), 3);
}

}  // namespace
}  // namespace millrace
