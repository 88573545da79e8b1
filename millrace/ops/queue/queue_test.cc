#include "millrace/ops/queue/queue.h"

#include <gtest/gtest.h>

#include <list>

#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_queue_ops});

using Tensors = std::vector<Tensor>;

Tensor f(float x) { return Tensor::scalar(x); }
Tensor floats(std::initializer_list<float> values) { return Tensor::vector(values); }

// One queue and the ops on it, in the form with reference handles or in the one with resources.
class QueueForms : public testing::TestWithParam<bool> {
 protected:
  void make(std::string op, const AttrMap& attrs) {
    Result<Value> made = try_make(std::move(op), attrs);
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    handle_ = *made;
  }
  Result<Value> try_make(std::string op, const AttrMap& attrs, std::string_view name = {}) {
    OpTester tester(env_, form(op));
    for (const auto& [key, value] : attrs) tester.attr(key, value);
    if (!name.empty()) tester.name(name);
    MR_TRY_ASSIGN(std::vector<Value> outputs, tester.run_values());
    return outputs[0];
  }
  // A FIFO of float scalars.
  void make_fifo(int capacity) {
    make("FIFOQueue", {{"component_types", std::vector<DType>{DType::kFloat}},
                       {"shapes", std::vector<PartialShape>{PartialShape::scalar()}},
                       {"capacity", capacity}});
  }

  Ref<OpRun> start_enqueue(Tensors components) {
    return start(on_queue("QueueEnqueue").input_list(std::move(components)));
  }
  Ref<OpRun> start_enqueue_many(Tensors components) {
    return start(on_queue("QueueEnqueueMany").input_list(std::move(components)));
  }
  Ref<OpRun> start_dequeue(std::vector<DType> types = {DType::kFloat}) {
    return start(on_queue("QueueDequeue").attr("component_types", std::move(types)));
  }
  Ref<OpRun> start_dequeue_many(int n, std::vector<DType> types = {DType::kFloat}) {
    return start(on_queue("QueueDequeueMany")
                     .input(Tensor::scalar<int32_t>(n))
                     .attr("component_types", std::move(types)));
  }
  Ref<OpRun> start_dequeue_up_to(int n) {
    return start(on_queue("QueueDequeueUpTo")
                     .input(Tensor::scalar<int32_t>(n))
                     .attr("component_types", std::vector<DType>{DType::kFloat}));
  }
  Ref<OpRun> start_close(bool cancel_pending) {
    return start(on_queue("QueueClose").attr("cancel_pending_enqueues", cancel_pending));
  }

  Status enqueue(Tensors components) {
    return start_enqueue(std::move(components))->wait().status();
  }
  Status enqueue_many(Tensors components) {
    return start_enqueue_many(std::move(components))->wait().status();
  }
  Result<Tensors> dequeue(std::vector<DType> types = {DType::kFloat}) {
    return tensors(start_dequeue(std::move(types)));
  }
  Result<Tensors> dequeue_many(int n, std::vector<DType> types = {DType::kFloat}) {
    return tensors(start_dequeue_many(n, std::move(types)));
  }
  Status close(bool cancel_pending) { return start_close(cancel_pending)->wait().status(); }
  int size() { return on_queue("QueueSize").run_one().value().item<int32_t>(); }

  // The only output, a float scalar.
  float next() { return number(start_dequeue()); }
  static float number(const Ref<OpRun>& run) {
    const Result<Tensors> out = tensors(run);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return out.ok() ? (*out)[0].item<float>() : -1;
  }
  static Result<Tensors> tensors(const Ref<OpRun>& run) {
    MR_TRY_ASSIGN(std::vector<Value> values, run->wait());
    Tensors out;
    for (Value& value : values) out.push_back(std::move(value.tensor));
    return out;
  }

  OpTester& on_queue(const std::string& op) {
    OpTester& tester = testers_.emplace_back(env_, form(op));
    if (handle_.is_ref()) {
      tester.input_ref(handle_.cell);
    } else {
      tester.input(handle_.tensor);
    }
    return tester;
  }
  Ref<OpRun> start(OpTester& tester) { return tester.start().value(); }
  static std::string form(std::string op) { return GetParam() ? op + "V2" : op; }

  OpEnv env_;
  std::list<OpTester> testers_;
  Value handle_;
};

void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}

class SemanticsOfQueues : public QueueForms {};
class Queues : public QueueForms {};

std::string form_name(const testing::TestParamInfo<bool>& info) {
  return info.param ? "Resource" : "Reference";
}
INSTANTIATE_TEST_SUITE_P(Forms, SemanticsOfQueues, testing::Bool(), form_name);
INSTANTIATE_TEST_SUITE_P(Forms, Queues, testing::Bool(), form_name);

TEST_P(SemanticsOfQueues, EnqueueWithRoomIsDoneAtOnce) {
  make_fifo(2);
  EXPECT_TRUE(start_enqueue({f(1)})->done());
  EXPECT_TRUE(start_enqueue({f(2)})->done());
  EXPECT_EQ(size(), 2);
  EXPECT_EQ(next(), 1);
  EXPECT_EQ(next(), 2);
}

TEST_P(SemanticsOfQueues, FullQueueServesEnqueuesInTurn) {
  make_fifo(1);
  ASSERT_TRUE(enqueue({f(1)}).ok());
  Ref<OpRun> second = start_enqueue({f(2)}), third = start_enqueue({f(3)});
  EXPECT_FALSE(second->done());
  EXPECT_EQ(size(), 1) << "those who wait are not counted";
  EXPECT_EQ(next(), 1);
  EXPECT_TRUE(second->done());
  EXPECT_FALSE(third->done());
  EXPECT_EQ(next(), 2);
  EXPECT_TRUE(third->done());
  EXPECT_EQ(next(), 3);
}

TEST_P(SemanticsOfQueues, CloseComesAfterThoseWhoWait) {
  make_fifo(1);
  ASSERT_TRUE(enqueue({f(1)}).ok());
  Ref<OpRun> waiting = start_enqueue({f(2)});
  Ref<OpRun> closing = start_close(false);
  Ref<OpRun> late = start_enqueue({f(3)});
  EXPECT_FALSE(closing->done());
  EXPECT_EQ(next(), 1);
  EXPECT_TRUE(waiting->wait().ok());
  EXPECT_TRUE(closing->wait().ok());
  expect_error(late->wait().status(), Code::kCancelled, "is closed");
  expect_error(enqueue({f(4)}), Code::kCancelled, "is closed");
  EXPECT_EQ(next(), 2);
  expect_error(dequeue().status(), Code::kOutOfRange, "closed and has insufficient elements");
}

TEST_P(SemanticsOfQueues, CloseWithCancelFailsThoseWhoWait) {
  make_fifo(2);
  ASSERT_TRUE(enqueue({f(1)}).ok());
  Ref<OpRun> many = start_enqueue_many({floats({2, 3, 4})});
  Ref<OpRun> one = start_enqueue({f(5)});
  ASSERT_TRUE(close(true).ok());
  expect_error(many->wait().status(), Code::kCancelled, "is closed");
  expect_error(one->wait().status(), Code::kCancelled, "is closed");
  EXPECT_EQ(size(), 2) << "elements already put stay";
  EXPECT_EQ(next(), 1);
  EXPECT_EQ(next(), 2);
  expect_error(dequeue().status(), Code::kOutOfRange, "closed and has insufficient elements");
}

TEST_P(SemanticsOfQueues, SecondClose) {
  make_fifo(1);
  ASSERT_TRUE(close(false).ok());
  expect_error(close(false), Code::kCancelled, "already closed");
  EXPECT_TRUE(close(true).ok());
  EXPECT_TRUE(close(true).ok());
}

TEST_P(SemanticsOfQueues, EnqueueManyPutsAsRoomComes) {
  make_fifo(2);
  Ref<OpRun> many = start_enqueue_many({floats({1, 2, 3, 4})});
  EXPECT_EQ(size(), 2);
  EXPECT_EQ(next(), 1);
  EXPECT_EQ(size(), 2);
  EXPECT_FALSE(many->done());
  EXPECT_EQ(next(), 2);
  EXPECT_TRUE(many->wait().ok());
  EXPECT_EQ(next(), 3);
  EXPECT_EQ(next(), 4);
}

TEST_P(SemanticsOfQueues, EnqueueManyOfNothingDoesNothing) {
  make_fifo(1);
  EXPECT_TRUE(enqueue_many({floats({})}).ok());
  ASSERT_TRUE(close(false).ok());
  EXPECT_TRUE(enqueue_many({floats({})}).ok());
}

TEST_P(SemanticsOfQueues, DequeueWaitsForOne) {
  make_fifo(-1);
  Ref<OpRun> first = start_dequeue(), second = start_dequeue();
  EXPECT_FALSE(first->done());
  ASSERT_TRUE(enqueue({f(1)}).ok());
  EXPECT_EQ(number(first), 1);
  EXPECT_FALSE(second->done());
  ASSERT_TRUE(close(false).ok());
  expect_error(second->wait().status(), Code::kOutOfRange, "requested 1, current size 0");
}

TEST_P(SemanticsOfQueues, DequeueManyCollectsMoreThanFits) {
  make_fifo(2);
  Ref<OpRun> batch = start_dequeue_many(5);
  ASSERT_TRUE(enqueue_many({floats({1, 2, 3, 4})}).ok());
  EXPECT_EQ(size(), 0);
  EXPECT_FALSE(batch->done());
  Ref<OpRun> behind = start_dequeue();
  ASSERT_TRUE(enqueue_many({floats({5, 6})}).ok());
  expect_tensor_equal(tensors(batch).value()[0], floats({1, 2, 3, 4, 5}));
  EXPECT_EQ(number(behind), 6) << "first come, first served";
}

TEST_P(SemanticsOfQueues, DequeueManyPutsElementsBackWhenClosed) {
  make_fifo(-1);
  Ref<OpRun> batch = start_dequeue_many(3);
  ASSERT_TRUE(enqueue_many({floats({1, 2})}).ok());
  EXPECT_EQ(size(), 0);
  Ref<OpRun> behind = start_dequeue();
  ASSERT_TRUE(close(false).ok());
  expect_error(batch->wait().status(), Code::kOutOfRange,
               "closed and has insufficient elements (requested 3, current size 2)");
  EXPECT_EQ(number(behind), 1);
  EXPECT_EQ(next(), 2);
}

TEST_P(SemanticsOfQueues, DequeueUpToTakesTheRestOfAClosedQueue) {
  make_fifo(-1);
  Ref<OpRun> batch = start_dequeue_up_to(3);
  ASSERT_TRUE(enqueue_many({floats({1, 2})}).ok());
  EXPECT_FALSE(batch->done());
  ASSERT_TRUE(close(false).ok());
  expect_tensor_equal(tensors(batch).value()[0], floats({1, 2}));
  expect_error(start_dequeue_up_to(1)->wait().status(), Code::kOutOfRange, "is closed");
  expect_tensor_equal(tensors(start_dequeue_up_to(0)).value()[0], floats({}));
}

TEST_P(SemanticsOfQueues, CancelledStepsLeaveTheQueueUsable) {
  make_fifo(1);
  Ref<OpRun> batch = start_dequeue_many(3);
  ASSERT_TRUE(enqueue({f(1)}).ok());
  ASSERT_TRUE(enqueue({f(2)}).ok());
  batch->cancel();
  expect_error(batch->wait().status(), Code::kCancelled, "Dequeue operation was cancelled");
  EXPECT_EQ(size(), 2) << "what it had taken is back";

  Ref<OpRun> put = start_enqueue({f(3)}), behind = start_enqueue({f(4)});
  Ref<OpRun> closing = start_close(false);
  put->cancel();
  expect_error(put->wait().status(), Code::kCancelled, "Enqueue operation was cancelled");
  closing->cancel();
  expect_error(closing->wait().status(), Code::kCancelled, "Close operation was cancelled");
  EXPECT_EQ(next(), 1);
  EXPECT_EQ(next(), 2);
  EXPECT_TRUE(behind->wait().ok());
  EXPECT_EQ(next(), 4);
  EXPECT_TRUE(enqueue({f(5)}).ok()) << "the queue is open";
}

TEST_P(SemanticsOfQueues, CancellingTheFirstInLineServesTheNext) {
  make_fifo(-1);
  Ref<OpRun> batch = start_dequeue_many(2), one = start_dequeue();
  ASSERT_TRUE(enqueue({f(1)}).ok());
  EXPECT_FALSE(one->done());
  batch->cancel();
  EXPECT_EQ(number(one), 1);
}

TEST_P(SemanticsOfQueues, BatchesNeedKnownShapes) {
  make("FIFOQueue", {{"component_types", std::vector<DType>{DType::kFloat}}});
  ASSERT_TRUE(enqueue({f(1)}).ok());
  ASSERT_TRUE(enqueue({floats({2, 3})}).ok());
  expect_error(dequeue_many(1).status(), Code::kInvalidArgument, "specified shapes");
  EXPECT_EQ(next(), 1);
  expect_tensor_equal(dequeue().value()[0], floats({2, 3}));
}

TEST_P(SemanticsOfQueues, NegativeCapacityIsNoLimit) {
  make_fifo(-5);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(start_enqueue({f(1)})->done());
  EXPECT_EQ(size(), 1000);
}

TEST_P(SemanticsOfQueues, WrongTuples) {
  make("FIFOQueue", {{"component_types", std::vector<DType>{DType::kFloat, DType::kInt32}},
                     {"shapes", std::vector<PartialShape>{{2}, PartialShape::scalar()}}});
  const Tensor i = Tensor::scalar<int32_t>(1);
  const auto bad = [&](const Status& status, std::string_view part) {
    expect_error(status, Code::kInvalidArgument, part);
  };
  bad(enqueue({floats({1, 2})}), "components");
  bad(enqueue({floats({1, 2}), f(1)}), "float");
  bad(enqueue({floats({1, 2, 3}), i}), "Expected [2], got [3]");
  bad(enqueue_many({Tensor::of<float>({1, 2}, {1, 2}), i}), "batch dimension");
  bad(enqueue_many({Tensor::of<float>({1, 2}, {1, 2}), Tensor::vector<int32_t>({1, 2})}),
      "Component 1 has 2, expected 1");
  bad(enqueue_many({Tensor::of<float>({1, 1}, {1}), Tensor::vector<int32_t>({1})}), "[1,1]");
  bad(dequeue({DType::kFloat}).status(), "[float,int32]");
  bad(dequeue_many(-1, {DType::kFloat, DType::kInt32}).status(), "negative");
  EXPECT_EQ(size(), 0);
}

TEST_P(SemanticsOfQueues, RandomShuffleFollowsPhilox) {
  make("RandomShuffleQueue", {{"component_types", std::vector<DType>{DType::kFloat}},
                              {"shapes", std::vector<PartialShape>{PartialShape::scalar()}},
                              {"seed", 87654321},
                              {"seed2", 1234}});
  std::vector<float> left;
  for (int i = 0; i < 10; ++i) {
    left.push_back(static_cast<float>(i));
    ASSERT_TRUE(enqueue({f(left.back())}).ok());
  }
  for (uint32_t word : {0xd3ec9553u, 0x75296ac9u, 0x30a741f3u, 0xf288ebecu}) {
    const size_t chosen = word % left.size();
    EXPECT_EQ(next(), left[chosen]);
    left[chosen] = left.back();
    left.pop_back();
  }
}

TEST_P(SemanticsOfQueues, RandomShuffleKeepsSomeWhileOpen) {
  make("RandomShuffleQueue", {{"component_types", std::vector<DType>{DType::kFloat}},
                              {"shapes", std::vector<PartialShape>{PartialShape::scalar()}},
                              {"capacity", 10},
                              {"min_after_dequeue", 2}});
  ASSERT_TRUE(enqueue_many({floats({1, 2, 3})}).ok());
  ASSERT_TRUE(start_dequeue()->done());
  Ref<OpRun> waiting = start_dequeue_many(2);
  EXPECT_FALSE(waiting->done());
  ASSERT_TRUE(enqueue({f(4)}).ok());
  EXPECT_FALSE(waiting->done());
  EXPECT_EQ(size(), 2);
  ASSERT_TRUE(close(false).ok());
  EXPECT_TRUE(waiting->wait().ok());
  EXPECT_EQ(size(), 1);
  EXPECT_TRUE(dequeue().ok());
}

TEST_P(SemanticsOfQueues, RandomShuffleLosesNothing) {
  make("RandomShuffleQueue", {{"component_types", std::vector<DType>{DType::kFloat}},
                              {"shapes", std::vector<PartialShape>{PartialShape::scalar()}}});
  Ref<OpRun> batch = start_dequeue_many(4);
  ASSERT_TRUE(enqueue_many({floats({1, 2, 4})}).ok());
  ASSERT_TRUE(close(false).ok());
  EXPECT_EQ(batch->wait().status().code(), Code::kOutOfRange);
  EXPECT_EQ(next() + next() + next(), 7);
}

TEST_P(SemanticsOfQueues, PaddingFillsWithZeros) {
  make("PaddingFIFOQueue", {{"component_types", std::vector<DType>{DType::kFloat, DType::kString}},
                            {"shapes", std::vector<PartialShape>{{-1, 2}, {-1}}}});
  const std::vector<DType> types = {DType::kFloat, DType::kString};
  const Tensor a = Tensor::of<float>({1, 2}, {1, 2});
  const Tensor b = Tensor::of<float>({2, 2}, {3, 4, 5, 6});
  ASSERT_TRUE(enqueue({a, Tensor::vector<std::string>({"x", "y"})}).ok());
  ASSERT_TRUE(enqueue({b, Tensor::vector<std::string>({})}).ok());
  const Tensors batch = dequeue_many(2, types).value();
  expect_tensor_equal(batch[0], Tensor::of<float>({2, 2, 2}, {1, 2, 0, 0, 3, 4, 5, 6}));
  expect_tensor_equal(batch[1], Tensor::of<std::string>({2, 2}, {"x", "y", "", ""}));
  EXPECT_EQ(dequeue_many(0, types).value()[0].shape(), (Shape{0, 0, 2}));
  expect_error(enqueue({f(1), Tensor::vector<std::string>({})}), Code::kInvalidArgument, "[?,2]");
}

TEST_P(SemanticsOfQueues, PaddingInEveryDimension) {
  make("PaddingFIFOQueue", {{"component_types", std::vector<DType>{DType::kInt16}},
                            {"shapes", std::vector<PartialShape>{{-1, -1, -1}}}});
  ASSERT_TRUE(enqueue({Tensor::of<int16_t>({2, 1, 2}, {1, 2, 3, 4})}).ok());
  ASSERT_TRUE(enqueue({Tensor::of<int16_t>({1, 2, 1}, {5, 6})}).ok());
  ASSERT_TRUE(enqueue({Tensor::of<int16_t>({0, 1, 1}, {})}).ok());
  expect_tensor_equal(dequeue_many(3, {DType::kInt16}).value()[0],
                      Tensor::of<int16_t>({3, 2, 2, 2}, {1, 2, 0, 0, 3, 4, 0, 0,  //
                                                         5, 0, 6, 0, 0, 0, 0, 0,  //
                                                         0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_P(SemanticsOfQueues, PriorityIsTheFirstComponent) {
  make("PriorityQueue", {{"component_types", std::vector<DType>{DType::kFloat}},
                         {"shapes", std::vector<PartialShape>{PartialShape::scalar()}}});
  const std::vector<DType> types = {DType::kInt64, DType::kFloat};
  ASSERT_TRUE(
      enqueue_many({Tensor::vector<int64_t>({3, -1, 3, 2}), floats({30, 10, 31, 20})}).ok());
  Tensors batch = dequeue_many(3, types).value();
  expect_tensor_equal(batch[0], Tensor::vector<int64_t>({-1, 2, 3}));
  expect_tensor_equal(batch[1], floats({10, 20, 30}));
  // What goes back is before its equals.
  ASSERT_TRUE(enqueue({Tensor::scalar<int64_t>(3), f(32)}).ok());
  Ref<OpRun> too_many = start_dequeue_many(9, types);
  too_many->cancel();
  batch = dequeue_many(2, types).value();
  expect_tensor_equal(batch[1], floats({31, 32}));
  // A batch that waits is in order too.
  Ref<OpRun> pair = start_dequeue_many(2, types);
  ASSERT_TRUE(enqueue({Tensor::scalar<int64_t>(5), f(50)}).ok());
  ASSERT_TRUE(enqueue({Tensor::scalar<int64_t>(4), f(40)}).ok());
  expect_tensor_equal(pair->wait().value()[1].tensor, floats({40, 50}));
  expect_error(enqueue({Tensor::vector<int64_t>({1}), f(1)}), Code::kInvalidArgument, "[]");
  expect_error(enqueue({Tensor::scalar<int32_t>(1), f(1)}), Code::kInvalidArgument, "int64");
}

TEST_P(Queues, MoveAllTypesAndEmptyTensors) {
  for (int t = 1; t < kNumDTypes; ++t) {
    const DType dtype = static_cast<DType>(t);
    SCOPED_TRACE(dtype_name(dtype));
    for (const Shape& row : {Shape{}, Shape{2}, Shape{0}, Shape{2, 0, 3}}) {
      make("FIFOQueue", {{"component_types", std::vector<DType>{dtype}},
                         {"shapes", std::vector<PartialShape>{row}}});
      const Tensor rows = random_tensor(dtype, Shape{3}.concat(row).value(), 7);
      ASSERT_TRUE(enqueue_many({rows}).ok());
      ASSERT_TRUE(enqueue({rows.row(1)}).ok());
      expect_tensor_equal(dequeue_many(3, {dtype}).value()[0], rows);
      expect_tensor_equal(dequeue({dtype}).value()[0], rows.row(1));
      expect_tensor_equal(dequeue_many(0, {dtype}).value()[0], rows.rows(0, 0));
    }
  }
}

TEST_P(Queues, KeepNoBorrowedMemory) {
  make_fifo(-1);
  float fed = 1;
  const Tensor tensor(DType::kFloat, Shape{}, Buffer::borrow(&fed, sizeof fed, nullptr));
  ASSERT_TRUE(enqueue({tensor}).ok());
  fed = 2;
  EXPECT_EQ(next(), 1);
}

TEST_P(Queues, NamesAreSharedOrPrivate) {
  const AttrMap attrs = {{"component_types", std::vector<DType>{DType::kFloat}}};
  handle_ = try_make("FIFOQueue", attrs, "a").value();
  ASSERT_TRUE(enqueue({f(1)}).ok());
  handle_ = try_make("FIFOQueue", attrs, "b").value();
  EXPECT_EQ(size(), 0) << "another node, another queue";
  handle_ = try_make("FIFOQueue", attrs, "a").value();
  EXPECT_EQ(size(), 1) << "the node again, as by another signature";

  AttrMap shared = attrs;
  shared.set("shared_name", "s");
  handle_ = try_make("FIFOQueue", shared, "c").value();
  ASSERT_TRUE(enqueue({f(1)}).ok());
  handle_ = try_make("FIFOQueue", shared, "d").value();
  EXPECT_EQ(size(), 1);
  AttrMap elsewhere = shared;
  elsewhere.set("container", "elsewhere");
  handle_ = try_make("FIFOQueue", elsewhere, "e").value();
  EXPECT_EQ(size(), 0);
  env_.resources().clear_container("elsewhere");
  expect_error(enqueue({f(1)}), Code::kNotFound, "elsewhere");
}

TEST_P(Queues, SharingNeedsAgreement) {
  const AttrMap attrs = {{"component_types", std::vector<DType>{DType::kFloat}},
                         {"shapes", std::vector<PartialShape>{{2}}},
                         {"capacity", 3},
                         {"shared_name", "s"}};
  make("FIFOQueue", attrs);
  const auto differs = [&](std::string op, std::string_view name, AttrValue value,
                           std::string_view part) {
    AttrMap changed = attrs;
    if (!name.empty()) changed.set(name, std::move(value));
    expect_error(try_make(std::move(op), changed).status(), Code::kInvalidArgument, part);
  };
  differs("PaddingFIFOQueue", "", {}, "is a FIFOQueue, this node expects a PaddingFIFOQueue");
  differs("FIFOQueue", "capacity", 4, "has capacity 3, this node expects 4");
  differs("FIFOQueue", "component_types", std::vector<DType>{DType::kInt32}, "[float]");
  differs("FIFOQueue", "shapes", std::vector<PartialShape>{{3}}, "[[2]]");
}

TEST_P(Queues, BadAttributes) {
  const std::vector<DType> one = {DType::kFloat};
  const auto bad = [&](std::string op, const AttrMap& attrs, std::string_view part) {
    expect_error(try_make(std::move(op), attrs).status(), Code::kInvalidArgument, part);
  };
  bad("FIFOQueue", {{"component_types", std::vector<DType>{}}}, "component_types");
  bad("FIFOQueue", {{"component_types", one}, {"shapes", std::vector<PartialShape>{{1}, {2}}}},
      "one shape for each of the 1");
  bad("FIFOQueue", {{"component_types", one}, {"shapes", std::vector<PartialShape>{{-1}}}},
      "known sizes");
  bad("PaddingFIFOQueue", {{"component_types", one}}, "one shape for each");
  bad("PaddingFIFOQueue",
      {{"component_types", one}, {"shapes", std::vector<PartialShape>{PartialShape()}}},
      "known rank");
  bad("RandomShuffleQueue", {{"component_types", one}, {"min_after_dequeue", -1}},
      "min_after_dequeue");
  bad("RandomShuffleQueue", {{"component_types", one}, {"capacity", 2}, {"min_after_dequeue", 2}},
      "min_after_dequeue");
  bad("FIFOQueue", {{"component_types", one}, {"shared_name", "_x"}}, "_x");
  make_fifo(1);
  expect_error(
      on_queue("QueueDequeue").attr("component_types", one).attr("timeout_ms", 5).start().status(),
      Code::kInvalidArgument, "timeout_ms");
}

TEST(QueueHandles, MustNameAQueue) {
  const auto size_of = [](Tensor handle) {
    return OpTester("QueueSizeV2").input(std::move(handle)).run().status();
  };
  OpEnv env;
  ResourceHandle handle = {.device = env.device().name(), .container = "c", .name = "n"};
  expect_error(size_of(Tensor::scalar(handle)), Code::kInvalidArgument, "Queue");
  handle.type_name = "Queue";
  expect_error(size_of(Tensor::scalar(handle)), Code::kNotFound, "n");
  handle.device = "/job:other/replica:0/task:0/device:CPU:0";
  expect_error(size_of(Tensor::scalar(handle)), Code::kInvalidArgument, "other");
  expect_error(OpTester("QueueSize")
                   .input_ref(make_ref_cell(Tensor::vector<std::string>({"c"})))
                   .run()
                   .status(),
               Code::kInvalidArgument, "two strings");
}

// The shape rule of an op on a queue with components float [2,?] and int64 [].
std::string infer_on_queue(const char* op, AttrMap attrs, std::vector<TensorFacts> rest) {
  TensorFacts handle;
  handle.shape = PartialShape::scalar();
  handle.resource = {{DType::kFloat, {2, -1}}, {DType::kInt64, PartialShape::scalar()}};
  std::vector<const TensorFacts*> facts = {&handle};
  for (const TensorFacts& f : rest) facts.push_back(&f);
  const OpDef& def = *OpRegistry::global().find(op);
  if (Status checked = check_attrs(def, attrs); !checked.ok()) return checked.to_string();
  ShapeContext context(def, attrs, facts, expand_types(def.inputs, attrs).value(),
                       expand_types(def.outputs, attrs).value());
  const Result<std::vector<TensorFacts>> outputs = infer(context);
  if (!outputs.ok()) return std::string(outputs.status().message());
  std::string text;
  for (const TensorFacts& out : *outputs) text += out.shape.to_string() + ";";
  return text;
}

TEST(QueueShapes, FollowTheQueue) {
  const std::vector<DType> types = {DType::kFloat, DType::kInt64};
  const AttrMap take = {{"component_types", types}}, put = {{"Tcomponents", types}};
  TensorFacts three, unknown, negative;
  three.shape = negative.shape = PartialShape::scalar();
  three.value = PartialValue{true, {3}};
  negative.value = PartialValue{true, {-3}};
  EXPECT_EQ(infer_on_queue("QueueDequeueV2", take, {}), "[2,?];[];");
  EXPECT_EQ(infer_on_queue("QueueDequeueManyV2", take, {three}), "[3,2,?];[3];");
  EXPECT_EQ(infer_on_queue("QueueDequeueManyV2", take, {unknown}), "[?,2,?];[?];");
  EXPECT_EQ(infer_on_queue("QueueDequeueUpToV2", take, {three}), "[?,2,?];[?];");
  EXPECT_EQ(infer_on_queue("QueueSizeV2", {}, {}), "[];");
  EXPECT_NE(infer_on_queue("QueueDequeueManyV2", take, {negative}).find("negative"),
            std::string::npos);
  EXPECT_NE(
      infer_on_queue("QueueDequeueV2", {{"component_types", std::vector<DType>{types[0]}}}, {})
          .find("[float,int64]"),
      std::string::npos);
  TensorFacts bad;
  bad.shape = {3, 1};
  EXPECT_EQ(infer_on_queue("QueueEnqueueV2", put, {unknown, unknown}), "");
  EXPECT_NE(infer_on_queue("QueueEnqueueV2", put, {bad, unknown}).find("[2,?]"), std::string::npos);
  EXPECT_NE(infer_on_queue("QueueEnqueueManyV2", put, {unknown, three}).find("rank"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace
