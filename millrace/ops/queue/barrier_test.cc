#include <gtest/gtest.h>

#include <limits>
#include <list>
#include <numeric>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_queue_ops});

using Strings = std::initializer_list<std::string>;

void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}

Tensor floats(std::initializer_list<float> values) { return Tensor::vector(values); }

// A barrier of a float and an int64 [2], and the ops on it.
class Barriers : public testing::Test {
 protected:
  void SetUp() override {
    OpTester tester(env_, "Barrier");
    tester.attr("component_types", kTypes)
        .attr("shapes", std::vector<PartialShape>{Shape{}, Shape{2}});
    Result<std::vector<Value>> made = tester.run_values();
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    handle_ = (*made)[0];
  }
  OpTester& on(const std::string& op) {
    return testers_.emplace_back(env_, op).input_ref(handle_.cell);
  }
  Status insert(int component, Strings keys, const Tensor& values) {
    return on("BarrierInsertMany")
        .attr("component_index", component)
        .input(Tensor::vector<std::string>(keys))
        .input(values)
        .run()
        .status();
  }
  Status insert_second(Strings keys) {
    std::vector<int64_t> numbers(keys.size() * 2);
    std::iota(numbers.begin(), numbers.end(), 0);
    const Tensor values = Tensor::vector(std::span<const int64_t>(numbers))
                              .reshaped(Shape{static_cast<int64_t>(keys.size()), 2})
                              .value();
    return insert(1, keys, values);
  }
  Ref<OpRun> start_take(int32_t n, bool small = false) {
    return on("BarrierTakeMany")
        .attr("component_types", kTypes)
        .attr("allow_small_batch", small)
        .input(Tensor::scalar(n))
        .start()
        .value();
  }
  void expect_keys(const Ref<OpRun>& run, Strings keys) {
    Result<std::vector<Value>> out = run->wait();
    ASSERT_TRUE(out.ok()) << out.status().to_string();
    expect_tensor_equal((*out)[1].tensor, Tensor::vector<std::string>(keys));
  }
  Status close(bool cancel_pending = false) {
    return on("BarrierClose").attr("cancel_pending_enqueues", cancel_pending).run().status();
  }
  int size(const char* kind) {
    return on(str_cat("Barrier", kind, "Size")).run_one().value().item<int32_t>();
  }

  const std::vector<DType> kTypes = {DType::kFloat, DType::kInt64};
  OpEnv env_;
  std::list<OpTester> testers_;
  Value handle_;
};

TEST_F(Barriers, GivesCompleteElementsInTheOrderOfTheirKeys) {
  ASSERT_TRUE(insert(0, {"b", "a"}, floats({1, 2})).ok());
  ASSERT_TRUE(insert(0, {"c"}, floats({3})).ok());
  EXPECT_EQ(size("Ready"), 0);
  EXPECT_EQ(size("Incomplete"), 3);
  ASSERT_TRUE(insert_second({"c", "a", "b"}).ok());
  EXPECT_EQ(size("Ready"), 3);
  EXPECT_EQ(size("Incomplete"), 0);
  const std::vector<Value> out = start_take(3)->wait().value();
  constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();
  expect_tensor_equal(out[0].tensor, Tensor::vector<int64_t>({kFirst, kFirst, kFirst + 1}));
  expect_tensor_equal(out[1].tensor, Tensor::vector<std::string>({"a", "b", "c"}));
  expect_tensor_equal(out[2].tensor, floats({2, 1, 3}));
  expect_tensor_equal(out[3].tensor,
                      Tensor::vector<int64_t>({2, 3, 4, 5, 0, 1}).reshaped(Shape{3, 2}).value());
}

TEST_F(Barriers, ATakeWaits) {
  const Ref<OpRun> take = start_take(2);
  ASSERT_TRUE(insert(0, {"a"}, floats({1})).ok());
  ASSERT_TRUE(insert(0, {"b"}, floats({2})).ok());
  ASSERT_TRUE(insert_second({"b"}).ok());
  EXPECT_FALSE(take->done());
  ASSERT_TRUE(insert_second({"a"}).ok());
  expect_keys(take, {"a", "b"});
}

TEST_F(Barriers, ClosedOneIsCompletedButGetsNoKeys) {
  ASSERT_TRUE(insert(0, {"a", "b"}, floats({1, 2})).ok());
  const Ref<OpRun> waiting = start_take(1);
  const Ref<OpRun> hopeless = start_take(2);
  ASSERT_TRUE(close().ok());
  expect_error(close(), Code::kCancelled, "already closed");
  expect_error(insert(0, {"c"}, floats({3})), Code::kCancelled, "is closed");
  EXPECT_TRUE(insert(0, {}, floats({})).ok());
  expect_error(start_take(3)->wait().status(), Code::kOutOfRange, "requested 3, total size 2");
  expect_error(start_take(3, true)->wait().status(), Code::kOutOfRange, "requested 0");
  ASSERT_TRUE(insert_second({"a"}).ok());
  expect_keys(waiting, {"a"});
  ASSERT_TRUE(insert_second({"b"}).ok());
  expect_error(hopeless->wait().status(), Code::kOutOfRange, "insufficient elements");
  expect_keys(start_take(3, true), {"b"});
  expect_error(start_take(1)->wait().status(), Code::kOutOfRange, "requested 1, total size 0");
}

TEST_F(Barriers, GivesUpWhatIsNotComplete) {
  ASSERT_TRUE(insert(0, {"a", "b"}, floats({1, 2})).ok());
  ASSERT_TRUE(insert_second({"b"}).ok());
  ASSERT_TRUE(close().ok());
  ASSERT_TRUE(close(true).ok());
  EXPECT_EQ(size("Incomplete"), 0);
  expect_error(insert_second({"a"}), Code::kCancelled, "is closed");
  expect_error(insert(0, {}, floats({})), Code::kCancelled, "is closed");
  expect_keys(start_take(1), {"b"});
}

TEST_F(Barriers, RefusesWhatDoesNotFit) {
  expect_error(insert(2, {"a"}, floats({1})), Code::kInvalidArgument, "out of range");
  expect_error(insert(-1, {"a"}, floats({1})), Code::kInvalidArgument, "out of range");
  expect_error(insert(1, {"a"}, floats({1})), Code::kInvalidArgument, "type int64");
  expect_error(insert(0, {"a", "b"}, floats({1})), Code::kInvalidArgument, "row of values");
  expect_error(insert(0, {"a"}, *floats({1}).reshaped(Shape{1, 1})), Code::kInvalidArgument,
               "Shape mismatch");
  expect_error(insert(0, {"a"}, *floats({}).reshaped(Shape{1, 0})), Code::kInvalidArgument,
               "no elements");
  expect_error(insert(0, {"a", "a"}, floats({1, 2})), Code::kInvalidArgument, "Key a already has");
  ASSERT_TRUE(insert(0, {"a"}, floats({1})).ok());
  expect_error(insert(0, {"b", "a"}, floats({1, 2})), Code::kInvalidArgument, "Key a already has");
  EXPECT_EQ(size("Incomplete"), 1) << "all or nothing";
  expect_error(on("BarrierTakeMany")
                   .attr("component_types", std::vector<DType>{DType::kFloat})
                   .input(Tensor::scalar<int32_t>(1))
                   .run()
                   .status(),
               Code::kInvalidArgument, "this op expects");
}

TEST_F(Barriers, IsSharedByThoseWhoAgree) {
  const auto make = [&](const std::vector<DType>& types, const std::vector<PartialShape>& shapes) {
    return OpTester(env_, "Barrier")
        .attr("component_types", types)
        .attr("shapes", shapes)
        .attr("shared_name", "shared")
        .run_values()
        .status();
  };
  ASSERT_TRUE(make({DType::kFloat}, {Shape{2}}).ok());
  EXPECT_TRUE(make({DType::kFloat}, {Shape{2}}).ok());
  expect_error(make({DType::kInt32}, {Shape{2}}), Code::kInvalidArgument, "component types");
  expect_error(make({DType::kFloat}, {}), Code::kInvalidArgument, "component shapes");
  expect_error(make({DType::kFloat}, {Shape{2}, Shape{}}), Code::kInvalidArgument, "one shape");
  expect_error(make({DType::kFloat}, {Shape{0}}), Code::kInvalidArgument, "Empty tensors");
}

}  // namespace
}  // namespace millrace
