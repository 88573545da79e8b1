#include "millrace/ops/tensor_list/list_ops.h"

#include <gtest/gtest.h>

#include "millrace/graph/graph_builder.h"
#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered =
    register_for_tests({register_array_ops, register_math_ops, register_tensor_list_ops});

Tensor f(float x) { return Tensor::scalar(x); }
Tensor i32(int32_t x) { return Tensor::scalar(x); }
Tensor i64s(std::initializer_list<int64_t> values) { return Tensor::vector(values); }
Tensor floats(std::initializer_list<float> values) { return Tensor::vector(values); }
Tensor dims(std::initializer_list<int32_t> values) { return Tensor::vector(values); }
const Tensor kAnyShape = i32(-1);

void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}
void expect_invalid(const Status& status, std::string_view part) {
  expect_error(status, Code::kInvalidArgument, part);
}

const TensorList& list_in(const Tensor& handle) { return *as_tensor_list(handle.item<Variant>()); }

Result<Tensor> empty(DType dtype = DType::kFloat, Tensor shape = kAnyShape, int most = -1) {
  return OpTester("EmptyTensorList")
      .input(std::move(shape))
      .input(i32(most))
      .attr("element_dtype", dtype)
      .run_one();
}
Result<Tensor> reserve(int n, Tensor shape = kAnyShape, DType dtype = DType::kFloat) {
  return OpTester("TensorListReserve")
      .input(std::move(shape))
      .input(i32(n))
      .attr("element_dtype", dtype)
      .run_one();
}
Result<Tensor> push(Tensor list, Tensor x, bool movable = false) {
  return OpTester("TensorListPushBack")
      .movable(movable)
      .input(std::move(list))
      .input(std::move(x))
      .run_one();
}
struct Popped {
  Tensor list, element;
};
Result<Popped> pop(Tensor list, DType dtype = DType::kFloat, Tensor shape = kAnyShape,
                   bool movable = false) {
  MR_TRY_ASSIGN(std::vector<Tensor> out, OpTester("TensorListPopBack")
                                             .movable(movable)
                                             .input(std::move(list))
                                             .input(std::move(shape))
                                             .attr("element_dtype", dtype)
                                             .run());
  return Popped{std::move(out[0]), std::move(out[1])};
}
Result<Tensor> get(const Tensor& list, int i, DType dtype = DType::kFloat,
                   Tensor shape = kAnyShape) {
  return OpTester("TensorListGetItem")
      .input(list)
      .input(i32(i))
      .input(std::move(shape))
      .attr("element_dtype", dtype)
      .run_one();
}
Result<Tensor> set(Tensor list, int i, Tensor x, bool movable = false, bool resizes = false) {
  return OpTester("TensorListSetItem")
      .movable(movable)
      .input(std::move(list))
      .input(i32(i))
      .input(std::move(x))
      .attr("resize_if_index_out_of_bounds", resizes)
      .run_one();
}
Result<Tensor> stack(const Tensor& list, DType dtype = DType::kFloat, Tensor shape = kAnyShape,
                     int64_t count = -1) {
  return OpTester("TensorListStack")
      .input(list)
      .input(std::move(shape))
      .attr("element_dtype", dtype)
      .attr("num_elements", count)
      .run_one();
}
Result<Tensor> from_tensor(Tensor rows, Tensor shape = kAnyShape) {
  return OpTester("TensorListFromTensor").input(std::move(rows)).input(std::move(shape)).run_one();
}
Result<Tensor> gather(const Tensor& list, Tensor indices, DType dtype = DType::kFloat,
                      Tensor shape = kAnyShape) {
  return OpTester("TensorListGather")
      .input(list)
      .input(std::move(indices))
      .input(std::move(shape))
      .attr("element_dtype", dtype)
      .run_one();
}
Result<Tensor> scatter(Tensor rows, Tensor indices, Tensor shape = kAnyShape) {
  return OpTester("TensorListScatter")
      .input(std::move(rows))
      .input(std::move(indices))
      .input(std::move(shape))
      .run_one();
}
Result<Tensor> scatter_v2(Tensor rows, Tensor indices, int n) {
  return OpTester("TensorListScatterV2")
      .input(std::move(rows))
      .input(std::move(indices))
      .input(kAnyShape)
      .input(i32(n))
      .run_one();
}
Result<Tensor> scatter_into(Tensor list, Tensor rows, Tensor indices) {
  return OpTester("TensorListScatterIntoExistingList")
      .input(std::move(list))
      .input(std::move(rows))
      .input(std::move(indices))
      .run_one();
}
Result<std::vector<Tensor>> concat(const Tensor& list, Tensor shape = kAnyShape,
                                   Tensor leading_dims = i64s({}), DType dtype = DType::kFloat) {
  return OpTester("TensorListConcatV2")
      .input(list)
      .input(std::move(shape))
      .input(std::move(leading_dims))
      .attr("element_dtype", dtype)
      .run();
}
Result<Tensor> split(Tensor rows, Tensor lengths, Tensor shape = kAnyShape) {
  return OpTester("TensorListSplit")
      .input(std::move(rows))
      .input(std::move(shape))
      .input(std::move(lengths))
      .run_one();
}
Result<Tensor> resize(const Tensor& list, int n) {
  return OpTester("TensorListResize").input(list).input(i32(n)).run_one();
}
int length(const Tensor& list) {
  return OpTester("TensorListLength").input(list).run_one().value().item<int32_t>();
}
Tensor list_of(std::initializer_list<Tensor> elements, DType dtype = DType::kFloat) {
  Tensor list = empty(dtype).value();
  for (const Tensor& x : elements) list = push(list, x).value();
  return list;
}

TEST(TensorListOps, PushAndPop) {
  const Tensor one = push(empty().value(), f(1)).value();
  const Tensor two = push(one, floats({2, 3})).value();
  EXPECT_EQ(length(one), 1);
  EXPECT_EQ(length(two), 2);
  const Popped last = pop(two).value();
  expect_tensor_equal(last.element, floats({2, 3}));
  EXPECT_EQ(length(last.list), 1);
  expect_tensor_equal(pop(last.list).value().element, f(1));
  EXPECT_EQ(length(two), 2) << "a list is a value";
  expect_invalid(pop(empty().value()).status(), "empty");
  expect_invalid(pop(two, DType::kInt32).status(), "type int32, got one with float");
  expect_invalid(pop(two, DType::kFloat, dims({3})).status(), "[3], but the element has shape [2]");
  expect_invalid(pop(two, DType::kFloat, i32(3)).status(), "scalar");
}

TEST(TensorListOps, RefusesWhatDoesNotFit) {
  expect_invalid(push(empty().value(), i32(1)).status(), "type int32, got one with float");
  expect_invalid(push(empty(DType::kFloat, dims({-1, 2})).value(), floats({1, 2})).status(),
                 "shape [?,2]");
  const Tensor full = push(empty(DType::kFloat, kAnyShape, 1).value(), f(1)).value();
  expect_invalid(push(full, f(1)).status(), "1 elements, not 2");
  expect_invalid(push(Tensor::scalar(Variant()), f(1)).status(), "must be a list of tensors");
  expect_invalid(push(random_tensor(DType::kVariant, {}, 1), f(1)).status(), "list of tensors");
  expect_invalid(push(random_tensor(DType::kVariant, {2}, 1), f(1)).status(), "list of tensors");
  expect_invalid(empty(DType::kFloat, i32(2)).status(), "scalar");
  expect_invalid(empty(DType::kFloat, dims({-2})).status(), "-2");
  expect_invalid(empty(DType::kFloat, random_tensor(DType::kInt32, {1, 1}, 1)).status(), "vector");
  expect_invalid(reserve(-1).status(), "negative");
  expect_invalid(resize(full, 2).status(), "1 elements, not 2");
  expect_invalid(resize(full, -2).status(), "negative");
}

TEST(TensorListOps, HoldsAllTypes) {
  for (int t = 1; t < kNumDTypes; ++t) {
    const DType dtype = static_cast<DType>(t);
    SCOPED_TRACE(dtype_name(dtype));
    for (const Shape& shape : {Shape{3}, Shape{3, 2}, Shape{3, 0}, Shape{0, 2}}) {
      const Tensor rows = random_tensor(dtype, shape, 5);
      const Tensor list = from_tensor(rows).value();
      const Tensor row_shape = shape.rank() == 1 ? dims({}) : dims({-1});
      if (shape.dim(0) > 0) {
        expect_tensor_equal(stack(list, dtype, row_shape).value(), rows);
        expect_tensor_equal(get(list, 1, dtype).value(), rows.row(1));
        const Tensor moved = scatter(rows, dims({2, 0, 1})).value();
        expect_tensor_equal(gather(moved, dims({2, 0, 1}), dtype).value(), rows);
      }
      const Tensor cut = split(rows, i64s({0, shape.dim(0)})).value();
      const std::vector<Tensor> joined = concat(cut, kAnyShape, i64s({}), dtype).value();
      expect_tensor_equal(joined[0], rows);
      expect_tensor_equal(joined[1], i64s({0, shape.dim(0)}));
    }
    const Tensor unset = reserve(2, dims({2}), dtype).value();
    const Tensor zeros = Tensor::zeros(dtype, {2, 2}).value();
    expect_tensor_equal(stack(unset, dtype).value(), zeros);
    expect_tensor_equal(get(unset, 0, dtype).value(), zeros.row(0));
    expect_tensor_equal(pop(unset, dtype).value().element, zeros.row(0));
  }
}

// What a loop does: every list is used once, by the op that changes it.
TEST(TensorListOps, AChainChangesOneListInPlace) {
  Tensor list = empty().value();
  list = push(std::move(list), f(0), true).value();
  const VariantObject* const object = list.item<Variant>().object.get();
  const void* const buffer = list.raw();
  for (int i = 1; i < 100; ++i) {
    list = push(std::move(list), f(static_cast<float>(i)), true).value();
  }
  const Tensor* const chunk = &list_in(list).get(0);
  list = set(std::move(list), 3, f(-3), true).value();
  for (int i = 99; i > 50; --i) {
    Popped popped = pop(std::move(list), DType::kFloat, kAnyShape, true).value();
    EXPECT_EQ(popped.element.item<float>(), static_cast<float>(i));
    EXPECT_TRUE(popped.element.writable());
    list = std::move(popped.list);
  }
  EXPECT_EQ(list.item<Variant>().object.get(), object);
  EXPECT_EQ(list.raw(), buffer);
  EXPECT_EQ(&list_in(list).get(0), chunk);
  EXPECT_EQ(list_in(list).get(3).item<float>(), -3);

  const Tensor held = list;
  const Tensor next = push(std::move(list), f(1), true).value();
  EXPECT_EQ(length(held), 51);
  EXPECT_EQ(length(next), 52);
  EXPECT_EQ(&list_in(next).get(0), &list_in(held).get(0)) << "chunks are shared";
}

TEST(TensorListOps, GetAndSet) {
  const Tensor list = reserve(3).value();
  const Tensor one = set(list, 1, floats({1, 2})).value();
  expect_tensor_equal(get(one, 1).value(), floats({1, 2}));
  expect_tensor_equal(get(one, 0).value(), floats({0, 0}));
  expect_tensor_equal(get(list, 0, DType::kFloat, dims({3})).value(), floats({0, 0, 0}));
  expect_invalid(get(list, 0).status(), "it is ? and no element is set");
  expect_invalid(get(list, 0, DType::kFloat, dims({-1})).status(), "it is [?]");
  expect_invalid(get(one, 3).status(), "[0, 3) of a list with 3 elements, got 3");
  expect_invalid(get(one, 0, DType::kDouble).status(), "double");
  expect_invalid(get(one, 1, DType::kFloat, dims({3})).status(), "[3]");
  expect_invalid(set(list, 3, f(1)).status(), "[0, 3)");
  expect_invalid(OpTester("TensorListGetItem")
                     .input(list)
                     .input(dims({0}))
                     .input(kAnyShape)
                     .attr("element_dtype", DType::kFloat)
                     .run()
                     .status(),
                 "must be a scalar");
  EXPECT_EQ(length(set(list, 5, f(1), false, true).value()), 6);
  expect_invalid(set(empty(DType::kFloat, kAnyShape, 2).value(), 5, f(1), false, true).status(),
                 "2 elements, not 6");
  const Tensor mixed = list_of({f(1), floats({1})});
  const Tensor longer = resize(mixed, 3).value();
  expect_invalid(get(longer, 2).status(), "one shape");
  EXPECT_EQ(length(resize(mixed, 0).value()), 0);
}

TEST(TensorListOps, NegativeIndices) {
  const Tensor list = list_of({f(1)});
  expect_invalid(get(list, -1).status(), "-1");
  expect_invalid(set(list, -1, f(1)).status(), "-1");
  expect_invalid(set(list, -1, f(1), false, true).status(), "-1");
  expect_invalid(gather(list, dims({-1})).status(), "-1");
  expect_invalid(scatter(floats({1}), dims({-1})).status(), "-1");
  expect_invalid(scatter_into(list, floats({1}), dims({-2147483647 - 1})).status(), "negative");
}

TEST(TensorListOps, Stack) {
  const Tensor list = list_of({floats({1, 2}), floats({3, 4})});
  const Tensor rows = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  expect_tensor_equal(stack(list).value(), rows);
  expect_tensor_equal(stack(list, DType::kFloat, dims({2}), 2).value(), rows);
  expect_invalid(stack(list, DType::kFloat, kAnyShape, 3).status(), "3 elements, got one with 2");
  expect_invalid(stack(list, DType::kFloat, dims({3})).status(), "[3]");
  expect_invalid(stack(list, DType::kInt32).status(), "int32");
  expect_invalid(stack(list_of({f(1), floats({1})})).status(), "element 1 has shape [1]");
  expect_invalid(stack(empty().value()).status(), "?");
  expect_invalid(stack(empty(DType::kFloat, dims({2})).value(), DType::kFloat, dims({3})).status(),
                 "[3] is not that of the list's elements, [2]");
  EXPECT_EQ(stack(empty().value(), DType::kFloat, dims({2})).value().shape(), (Shape{0, 2}));
  expect_tensor_equal(stack(set(reserve(2).value(), 1, floats({1, 2})).value()).value(),
                      Tensor::of<float>({2, 2}, {0, 0, 1, 2}));
}

// Large enough for several threads, in few and in many pieces.
TEST(TensorListOps, JoinsInParallel) {
  for (const Shape& shape : {Shape{3, 300001}, Shape{300001, 3}}) {
    const Tensor rows = random_tensor(DType::kFloat, shape, 3);
    const Tensor list = from_tensor(rows).value();
    expect_tensor_equal(OpTester("TensorListStack")
                            .threads(4)
                            .input(list)
                            .input(kAnyShape)
                            .attr("element_dtype", DType::kFloat)
                            .run_one()
                            .value(),
                        rows);
    const Tensor cut = split(rows, i64s({1, 0, shape.dim(0) - 2, 0, 0, 1}), kAnyShape).value();
    expect_tensor_equal(OpTester("TensorListConcat")
                            .threads(4)
                            .input(cut)
                            .attr("element_dtype", DType::kFloat)
                            .run()
                            .value()[0],
                        rows);
  }
}

TEST(TensorListOps, FromTensor) {
  expect_invalid(from_tensor(f(1)).status(), "scalar");
  expect_invalid(from_tensor(floats({1}), dims({2})).status(), "[2]");
  EXPECT_EQ(length(from_tensor(floats({})).value()), 0);
  expect_error(from_tensor(Tensor::zeros(DType::kFloat, {int64_t{1} << 40, 0}).value()).status(),
               Code::kResourceExhausted, "16777216");
}

TEST(TensorListOps, GatherAndScatter) {
  const Tensor rows = Tensor::of<float>({2, 2}, {1, 2, 3, 4});
  const Tensor list = scatter(rows, dims({3, 1})).value();
  EXPECT_EQ(length(list), 4);
  expect_tensor_equal(gather(list, dims({1, 0, 1})).value(),
                      Tensor::of<float>({3, 2}, {3, 4, 0, 0, 3, 4}));
  expect_invalid(gather(list, dims({0})).status(), "?");
  expect_invalid(gather(list, dims({})).status(), "?");
  EXPECT_EQ(gather(list, dims({}), DType::kFloat, dims({2})).value().shape(), (Shape{0, 2}));
  expect_invalid(gather(list, dims({4})).status(), "[0, 4)");
  expect_invalid(gather(list, dims({1}), DType::kFloat, dims({3})).status(), "[3]");
  expect_invalid(gather(list_of({f(1), floats({1})}), dims({0, 1})).status(), "one shape");

  expect_invalid(scatter(rows, dims({1})).status(), "1 indices");
  expect_invalid(scatter(f(1), dims({1})).status(), "scalar");
  expect_invalid(scatter(rows, dims({0, 1}), dims({3})).status(), "[3]");
  EXPECT_EQ(length(scatter_v2(rows, dims({0, 1}), 5).value()), 5);
  EXPECT_EQ(length(scatter_v2(rows, dims({0, 6}), -1).value()), 7);
  expect_invalid(scatter_v2(rows, dims({0, 1}), 1).status(), "[0, 1)");
  expect_invalid(scatter_v2(rows, dims({0, 1}), -2).status(), "-2");
  EXPECT_EQ(length(scatter(floats({1}), dims({2147483646})).value()), 2147483647);

  const Tensor more = scatter_into(list, Tensor::of<float>({1, 2}, {8, 9}), dims({5})).value();
  EXPECT_EQ(length(more), 6);
  EXPECT_EQ(length(list), 4);
  expect_tensor_equal(get(more, 5).value(), floats({8, 9}));
  expect_tensor_equal(get(more, 3).value(), floats({1, 2}));
  expect_invalid(scatter_into(list, Tensor::vector<int32_t>({1}), dims({5})).status(), "int32");
  expect_invalid(scatter_into(list, floats({1, 2}), dims({5})).status(), "1 indices");
}

TEST(TensorListOps, ConcatAndSplit) {
  const Tensor rows = Tensor::of<float>({3, 2}, {1, 2, 3, 4, 5, 6});
  const Tensor list = split(rows, i64s({1, 0, 2})).value();
  expect_tensor_equal(concat(list).value()[1], i64s({1, 0, 2}));
  expect_invalid(split(rows, i64s({1, 1})).status(), "sum 3");
  expect_invalid(split(rows, i64s({4, -1})).status(), "sum 3");
  expect_invalid(split(rows, i64s({-1, 4})).status(), "negative");
  expect_invalid(split(f(1), i64s({1})).status(), "scalar");
  expect_invalid(split(rows, i64s({3}), dims({})).status(), "scalars");
  expect_invalid(split(rows, i64s({3}), dims({-1, 3})).status(), "[?,3]");
  expect_invalid(split(rows, i64s({1, 2}), dims({1, 2})).status(), "[1,2]");

  const Tensor sparse = set(reserve(3).value(), 1, rows).value();
  const std::vector<Tensor> same = concat(sparse).value();
  EXPECT_EQ(same[0].shape(), (Shape{9, 2}));
  const std::vector<Tensor> other = concat(sparse, dims({-1, 2}), i64s({1, 9, 0})).value();
  expect_tensor_equal(other[1], i64s({1, 3, 0}));
  expect_tensor_equal(other[0].rows(1, 4), rows);
  expect_tensor_equal(other[0].rows(0, 1), Tensor::zeros(DType::kFloat, {1, 2}).value());
  expect_invalid(concat(sparse, kAnyShape, i64s({-1})).status(), "-1");
  expect_invalid(concat(sparse, dims({2, 2})).status(), "[2,2], but element 1 has shape [3,2]");
  expect_invalid(concat(sparse, dims({})).status(), "scalars");
  expect_invalid(concat(list_of({f(1)})).status(), "element 0 has shape []");
  expect_invalid(concat(list_of({rows, floats({1})})).status(), "element 1 has shape [1]");
  expect_invalid(concat(empty().value()).status(), "?");
  expect_invalid(concat(resize(list, 4).value(), dims({-1, 2})).status(), "element 3 is not set");
  expect_invalid(concat(reserve(2, dims({3, 2})).value(), kAnyShape,
                        i64s({int64_t{1} << 62, int64_t{1} << 62}))
                     .status(),
                 "too large");
  EXPECT_EQ(concat(empty().value(), dims({-1, 2})).value()[0].shape(), (Shape{0, 2}));
  EXPECT_EQ(concat(reserve(2, dims({3, 2})).value()).value()[0].shape(), (Shape{6, 2}));
}

TEST(TensorListOps, ElementShape) {
  const auto shape_of_list = [](const Tensor& list, DType type) {
    return OpTester("TensorListElementShape").input(list).attr("shape_type", type).run_one();
  };
  expect_tensor_equal(
      shape_of_list(empty(DType::kFloat, dims({-1, 2})).value(), DType::kInt32).value(),
      dims({-1, 2}));
  expect_tensor_equal(shape_of_list(empty().value(), DType::kInt64).value(),
                      Tensor::scalar<int64_t>(-1));
  const Tensor large = empty(DType::kFloat, i64s({int64_t{1} << 40})).value();
  expect_invalid(shape_of_list(large, DType::kInt32).status(), "int32");
  expect_tensor_equal(shape_of_list(large, DType::kInt64).value(), i64s({int64_t{1} << 40}));
}

TEST(TensorListOps, PushBackBatchAndConcatLists) {
  const auto batch = [](std::initializer_list<Tensor> lists) {
    Tensor all = Tensor::zeros(DType::kVariant, {static_cast<int64_t>(lists.size())}).value();
    size_t i = 0;
    for (const Tensor& list : lists) all.mutable_data<Variant>()[i++] = list.item<Variant>();
    return all;
  };
  const auto push_batch = [](Tensor lists, Tensor rows) {
    return OpTester("TensorListPushBackBatch")
        .input(std::move(lists))
        .input(std::move(rows))
        .run_one();
  };
  const auto join = [](Tensor a, Tensor b) {
    return OpTester("TensorListConcatLists")
        .input(std::move(a))
        .input(std::move(b))
        .attr("element_dtype", DType::kFloat)
        .run_one();
  };
  const Tensor one = list_of({f(1)}), none = empty().value();
  const Tensor lists = batch({one, none});
  const Tensor pushed = push_batch(lists, floats({8, 9})).value();
  EXPECT_EQ(as_tensor_list(pushed.data<Variant>()[0])->get(1).item<float>(), 8);
  EXPECT_EQ(as_tensor_list(pushed.data<Variant>()[1])->get(0).item<float>(), 9);
  EXPECT_EQ(length(one), 1);
  expect_invalid(push_batch(lists, floats({8})).status(), "2 lists");
  expect_invalid(push_batch(lists, dims({8, 9})).status(), "list 0");
  expect_invalid(push_batch(batch({one, Tensor::scalar(Variant())}), floats({8, 9})).status(),
                 "element 1");

  const Tensor both = join(list_of({f(1), f(2)}), resize(one, 2).value()).value();
  expect_tensor_equal(stack(both, DType::kFloat, dims({})).value(), floats({1, 2, 1, 0}));
  EXPECT_EQ(join(lists, lists).value().shape(), Shape{2});
  expect_invalid(join(one, lists).status(), "shape");
  expect_invalid(join(one, empty(DType::kInt32).value()).status(), "int32");
  expect_invalid(join(one, Tensor::scalar(Variant())).status(), "something else");
  expect_invalid(
      join(empty(DType::kFloat, dims({1})).value(), empty(DType::kFloat, dims({2})).value())
          .status(),
      "[1] and [2]");
}

TEST(TensorListOps, ListsOfLists) {
  const Tensor inner = list_of({f(1), f(2)});
  Tensor outer = push(empty(DType::kVariant, dims({})).value(), inner).value();
  outer = push(outer, empty().value()).value();
  const Tensor read = get(outer, 0, DType::kVariant).value();
  expect_tensor_equal(stack(read).value(), floats({1, 2}));
  const Tensor changed = set(outer, 0, push(read, f(3)).value()).value();
  EXPECT_EQ(length(get(changed, 0, DType::kVariant).value()), 3);
  EXPECT_EQ(length(get(outer, 0, DType::kVariant).value()), 2);
  const Tensor lists = stack(outer, DType::kVariant).value();
  EXPECT_EQ(lists.shape(), Shape{2});
  EXPECT_EQ(length(pop(from_tensor(lists).value(), DType::kVariant).value().element), 0);
}

Result<Tensor> add_n(std::vector<Tensor> lists, bool movable = false) {
  return OpTester("AddN").movable(movable).input_list(std::move(lists)).run_one();
}
Result<Tensor> zeros_like(const Tensor& x) { return OpTester("ZerosLike").input(x).run_one(); }

TEST(TensorListOps, ZerosLikeAndAddN) {
  const Tensor a = list_of({f(1), f(2)}), b = list_of({f(10), f(20)});
  expect_tensor_equal(stack(add_n({a, b, a}).value()).value(), floats({12, 24}));
  expect_tensor_equal(stack(add_n({a, a}).value()).value(), floats({2, 4}));
  expect_tensor_equal(stack(a).value(), floats({1, 2}));
  expect_tensor_equal(stack(zeros_like(a).value()).value(), floats({0, 0}));
  expect_tensor_equal(stack(zeros_like(reserve(2, dims({})).value()).value()).value(),
                      floats({0, 0}));
  expect_tensor_equal(
      stack(add_n({reserve(2).value(), set(reserve(2).value(), 1, f(5)).value()}).value()).value(),
      floats({0, 5}));
  expect_invalid(add_n({a, list_of({f(1)})}).status(), "2 and 1");
  expect_invalid(add_n({a, Tensor::zeros(DType::kVariant, {1}).value()}).status(), "shape");
  expect_error(add_n({a, random_tensor(DType::kVariant, {}, 1)}).status(), Code::kInvalidArgument,
               "type");
  expect_error(zeros_like(random_tensor(DType::kVariant, {}, 1)).status(), Code::kUnimplemented,
               "cannot be added");

  const Tensor nothing = Tensor::scalar(Variant());
  expect_tensor_equal(stack(add_n({nothing, a}).value()).value(), floats({1, 2}));
  expect_tensor_equal(stack(add_n({a, nothing}).value()).value(), floats({1, 2}));
  EXPECT_FALSE(zeros_like(nothing).value().item<Variant>().object);

  const Tensor outer = list_of({a, b}, DType::kVariant);
  const Tensor sum = add_n({outer, outer}).value();
  expect_tensor_equal(stack(get(sum, 1, DType::kVariant).value()).value(), floats({20, 40}));
  const Tensor zeros = zeros_like(outer).value();
  expect_tensor_equal(stack(get(zeros, 1, DType::kVariant).value()).value(), floats({0, 0}));
}

TEST(TensorListOps, AddNChangesWhatItAloneHolds) {
  std::vector<Tensor> lists = {list_of({f(1)}), list_of({f(2)})};
  const VariantObject* const object = lists[0].item<Variant>().object.get();
  const Tensor sum = add_n(std::move(lists), true).value();
  EXPECT_EQ(sum.item<Variant>().object.get(), object);
}

TEST(TensorListOps, PassThroughIdentities) {
  const Tensor list = list_of({f(1)});
  for (const char* op : {"Identity", "StopGradient"}) {
    EXPECT_EQ(length(OpTester(op).input(list).run_one().value()), 1) << op;
  }
}

// What inference knows of lists: the type and shape of their elements.
class TensorListShapes : public testing::Test {
 protected:
  Expr make(const char* op, Tensor shape, AttrMap attrs) {
    return call(op, {b_.constant(shape), b_.constant(i32(2))}, std::move(attrs));
  }
  Expr list(Tensor shape, DType dtype = DType::kFloat) {
    return make("EmptyTensorList", std::move(shape), {{"element_dtype", dtype}});
  }
  Expr tensor(PartialShape shape, DType dtype = DType::kFloat) {
    return b_.emit("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}})[0];
  }
  std::string known(Expr e) {
    if (!e.valid()) return std::string(b_.status().message());
    const TensorFacts& facts = graph_->facts(GraphBuilder::output(e));
    std::string text = facts.shape.to_string();
    for (const auto& part : facts.resource) text += str_cat(" ", part.dtype, part.shape);
    return text;
  }
  Expr int_constant(int32_t x) { return b_.constant(i32(x)); }

  Ref<Graph> graph_ = make_ref<Graph>();
  GraphBuilder b_{*graph_};
};

TEST_F(TensorListShapes, ListsKnowTheirElements) {
  const Expr l = list(dims({-1, 2}));
  EXPECT_EQ(known(l), "[] float[?,2]");
  EXPECT_EQ(known(make("TensorListReserve", kAnyShape, {{"element_dtype", DType::kInt32}})),
            "[] int32?");
  const Expr pushed = call("TensorListPushBack", {l, tensor({3, 2})});
  EXPECT_EQ(known(pushed), "[] float[?,2]");
  const std::vector<Expr> popped =
      call_multi("TensorListPopBack", {pushed, b_.constant(dims({4, -1}))},
                 {{"element_dtype", DType::kFloat}});
  EXPECT_EQ(known(popped[0]), "[] float[?,2]");
  EXPECT_EQ(known(popped[1]), "[4,2]");
  EXPECT_EQ(known(call("TensorListGetItem", {l, int_constant(0), b_.constant(kAnyShape)},
                       {{"element_dtype", DType::kFloat}})),
            "[?,2]");
  EXPECT_EQ(known(call("TensorListSetItem", {l, int_constant(0), tensor(PartialShape())})),
            "[] float[?,2]");
  EXPECT_EQ(known(call("TensorListStack", {l, b_.constant(kAnyShape)},
                       {{"element_dtype", DType::kFloat}, {"num_elements", int64_t{5}}})),
            "[5,?,2]");
  EXPECT_EQ(known(call("TensorListGather", {l, tensor({7}, DType::kInt32), b_.constant(kAnyShape)},
                       {{"element_dtype", DType::kFloat}})),
            "[7,?,2]");
  EXPECT_EQ(known(call("TensorListFromTensor", {tensor({5, 2}), b_.constant(dims({-1}))})),
            "[] float[?]");
  EXPECT_EQ(known(call("TensorListConcat", {l}, {{"element_dtype", DType::kFloat}})), "[?,2]");
  EXPECT_EQ(known(call("TensorListSplit",
                       {tensor({5, 2}), b_.constant(dims({-1, 2})), tensor({3}, DType::kInt64)})),
            "[] float[?,2]");
  EXPECT_EQ(known(call("TensorListResize", {l, int_constant(3)})), "[] float[?,2]");
  EXPECT_EQ(known(call("TensorListScatterIntoExistingList",
                       {l, tensor({4, 1, 2}), tensor({4}, DType::kInt32)})),
            "[] float[?,2]");
  EXPECT_EQ(known(call("TensorListConcatLists", {l, list(dims({3, -1}))},
                       {{"element_dtype", DType::kFloat}})),
            "[] float[3,2]");
  EXPECT_EQ(known(call("AddN", {l, list(dims({3, -1}))})), "[] float[3,2]");
  EXPECT_EQ(known(call("ZerosLike", {l})), "[] float[?,2]");
  EXPECT_EQ(known(call("Identity", {l})), "[] float[?,2]");
  const Expr shape = call("TensorListElementShape", {l}, {{"shape_type", DType::kInt32}});
  EXPECT_EQ(known(shape), "[2]");
  EXPECT_EQ(graph_->facts(GraphBuilder::output(shape)).value->elements[1], 2);
  EXPECT_TRUE(b_.status().ok()) << b_.status().to_string();
}

// The error of a builder in which `add` adds something wrong for a list of [?,2] floats.
template <class F>
Status error_of(F add) {
  const Ref<Graph> graph = make_ref<Graph>();
  GraphBuilder b(*graph);
  add(b, call("EmptyTensorList", {b.constant(dims({-1, 2})), b.constant(i32(-1))},
              {{"element_dtype", DType::kFloat}}));
  return b.status();
}

TEST(TensorListShapeRules, RefuseWhatCannotFit) {
  const AttrMap dtype = {{"element_dtype", DType::kFloat}};
  expect_invalid(error_of([](GraphBuilder& b, Expr list) {
                   call("TensorListPushBack", {list, b.constant(floats({1, 2}))});
                 }),
                 "shape [?,2], that of the list's elements, got shape [2]");
  expect_invalid(error_of([](GraphBuilder& b, Expr list) {
                   call("TensorListPushBack", {list, b.constant(i32(1))});
                 }),
                 "type int32, got one with float");
  expect_invalid(error_of([&](GraphBuilder& b, Expr list) {
                   call("TensorListStack", {list, b.constant(dims({-1, 3}))}, dtype);
                 }),
                 "[?,3] is not that of the list's elements, [?,2]");
  expect_invalid(error_of([&](GraphBuilder& b, Expr list) {
                   call("TensorListGetItem", {list, b.constant(i32(-1)), b.constant(kAnyShape)},
                        dtype);
                 }),
                 "negative");
  expect_invalid(error_of([](GraphBuilder& b, Expr list) {
                   call("TensorListSetItem", {list, b.constant(i32(0)), b.constant(f(1))});
                 }),
                 "[?,2]");
  expect_invalid(error_of([](GraphBuilder& b, Expr) {
                   call("TensorListFromTensor", {b.constant(f(1)), b.constant(kAnyShape)});
                 }),
                 "rank");
  expect_invalid(error_of([&](GraphBuilder& b, Expr list) {
                   call("AddN",
                        {list, call("EmptyTensorList",
                                    {b.constant(dims({1, 3})), b.constant(i32(-1))}, dtype)});
                 }),
                 "float [1,3]");
}

TEST(TensorListShapeRules, OfUnknownLists) {
  const OpRegistry& ops = OpRegistry::global();
  const auto rule = [&](const char* op, const AttrMap& attrs, const char* inputs) {
    const Result<std::string> out = infer_shapes(ops, op, attrs, inputs);
    return out.ok() ? *out : std::string(code_name(out.status().code()));
  };
  const AttrMap dtype = {{"element_dtype", DType::kFloat}};
  EXPECT_EQ(rule("EmptyTensorList", dtype, "?;[]"), "[]");
  EXPECT_EQ(rule("EmptyTensorList", dtype, "[2,2];[]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("EmptyTensorList", dtype, "=-1;[2]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListReserve", dtype, "=-1;=-3"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListPushBack", {}, "?;[2]"), "[]");
  EXPECT_EQ(rule("TensorListPushBack", {}, "[1];[2]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListPopBack", dtype, "[];=[2,-1]"), "[];[2,?]");
  EXPECT_EQ(rule("TensorListStack", dtype, "[];=[2]"), "[?,2]");
  EXPECT_EQ(rule("TensorListStack", dtype, "[];=-1"), "?");
  EXPECT_EQ(rule("TensorListGather", dtype, "[];[3];=[2]"), "[3,2]");
  EXPECT_EQ(rule("TensorListGather", dtype, "[];[3,1];=[2]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListScatter", {}, "[3,2];[3];=[2]"), "[]");
  EXPECT_EQ(rule("TensorListScatter", {}, "[3,2];[2];=[2]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListScatterV2", {}, "[3,2];[3];=[2];[1]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListConcatV2", dtype, "[];=[-1,2];[0]"), "[?,2];[?]");
  EXPECT_EQ(rule("TensorListConcatV2", dtype, "[];=[];[0]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListConcatV2", dtype, "[];=[-1];[]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListSplit", {}, "[3,2];=[-1,3];[2]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListLength", {}, "[]"), "[]");
  EXPECT_EQ(rule("TensorListElementShape", {{"shape_type", DType::kInt32}}, "[]"), "?");
  EXPECT_EQ(rule("TensorListResize", {}, "[];=-1"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListPushBackBatch", {}, "[3];[3,2]"), "[3]");
  EXPECT_EQ(rule("TensorListPushBackBatch", {}, "[3];[2,2]"), "INVALID_ARGUMENT");
  EXPECT_EQ(rule("TensorListConcatLists", dtype, "[3];[?]"), "[3]");
}

}  // namespace
}  // namespace millrace
