#include <gtest/gtest.h>

#include <list>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_queue_ops});

void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}

class Stages : public testing::Test {
 protected:
  OpTester& on(const char* op, int capacity = 0, DType first = DType::kFloat) {
    return testers_.emplace_back(env_, op)
        .attr("dtypes", std::vector<DType>{first, DType::kString})
        .attr("capacity", capacity)
        .attr("shared_name", "area");
  }
  Ref<OpRun> put(float x, int capacity = 0) {
    return on("Stage", capacity)
        .input_list({Tensor::scalar(x), Tensor::scalar(std::string("word"))})
        .start()
        .value();
  }
  static void expect_got(const Ref<OpRun>& run, float x) {
    const Result<std::vector<Value>> out = run->wait();
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    EXPECT_EQ((*out)[0].tensor.item<float>(), x);
    EXPECT_EQ((*out)[1].tensor.item<std::string>(), "word");
  }
  int size(int capacity = 0) { return on("StageSize", capacity).run_one()->item<int32_t>(); }

  OpEnv env_;
  std::list<OpTester> testers_;
};

TEST_F(Stages, GiveInTheOrderOfPutting) {
  ASSERT_TRUE(put(1)->wait().ok());
  ASSERT_TRUE(put(2)->wait().ok());
  EXPECT_EQ(size(), 2);
  expect_got(on("Unstage").start().value(), 1);
  expect_got(on("Unstage").start().value(), 2);
  EXPECT_EQ(size(), 0);
}

TEST_F(Stages, WaitForTensorsAndForRoom) {
  const Ref<OpRun> get = on("Unstage", 1).start().value();
  EXPECT_FALSE(get->done());
  ASSERT_TRUE(put(1, 1)->wait().ok());
  expect_got(get, 1);
  ASSERT_TRUE(put(2, 1)->wait().ok());
  const Ref<OpRun> waits = put(3, 1);
  EXPECT_FALSE(waits->done());
  expect_got(on("Unstage", 1).start().value(), 2);
  ASSERT_TRUE(waits->wait().ok());
  EXPECT_EQ(size(1), 1);
}

TEST_F(Stages, MustAgree) {
  ASSERT_TRUE(put(1)->wait().ok());
  expect_error(on("Unstage", 0, DType::kInt32).run().status(), Code::kInvalidArgument,
               "has dtypes");
  expect_error(on("Unstage", 2).run().status(), Code::kInvalidArgument, "has capacity");
  expect_error(on("Unstage").attr("memory_limit", 1).run().status(), Code::kUnimplemented,
               "memory_limit");
}

}  // namespace
}  // namespace millrace
