#include <gtest/gtest.h>

#include <limits>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_sparse_ops});

using Longs = std::initializer_list<int64_t>;

Tensor longs(Longs values) { return Tensor::vector<int64_t>(values); }
Tensor indices(int64_t count, int64_t rank, Longs values) {
  return Tensor::of<int64_t>({count, rank}, values);
}
Tensor strings(std::initializer_list<std::string> values) { return Tensor::vector(values); }

void expect_invalid(const Status& status, std::string_view part) {
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}
Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
}

Result<std::vector<Tensor>> combine(const char* operation, const Tensor& a, const Tensor& b) {
  return OpTester("DenseToDenseSetOperation")
      .attr("set_operation", operation)
      .input(a)
      .input(b)
      .run();
}

TEST(Sets, OfDenseTensors) {
  const Tensor a = Tensor::of<int32_t>({2, 3}, {5, 1, 5, 2, 3, 4});
  const Tensor b = Tensor::of<int32_t>({2, 2}, {1, 9, 4, 2});
  const struct {
    const char* operation;
    Longs places;
    std::initializer_list<int32_t> values;
    Longs shape;
  } rows[] = {{"union", {0, 0, 0, 1, 0, 2, 1, 0, 1, 1, 1, 2}, {1, 5, 9, 2, 3, 4}, {2, 3}},
              {"intersection", {0, 0, 1, 0, 1, 1}, {1, 2, 4}, {2, 2}},
              {"a-b", {0, 0, 1, 0}, {5, 3}, {2, 1}},
              {"b-a", {0, 0}, {9}, {2, 1}}};
  for (const auto& row : rows) {
    const std::vector<Tensor> out = combine(row.operation, a, b).value();
    const auto count = static_cast<int64_t>(row.values.size());
    expect_tensor_equal(out[0], Tensor::of<int64_t>({count, 2}, row.places));
    expect_tensor_equal(out[1], Tensor::vector<int32_t>(row.values));
    expect_tensor_equal(out[2], Tensor::vector<int64_t>(row.shape));
  }
  expect_invalid(combine("union", a, Tensor::of<int32_t>({1, 2}, {1, 2})).status(), "Mismatched");
  expect_invalid(combine("union", a, Tensor::vector<int32_t>({1, 2})).status(), "rank 2");
  expect_invalid(combine("xor", a, b).status(), "set_operation");
}

TEST(Sets, OfSparseTensors) {
  const Tensor at = indices(3, 2, {0, 0, 0, 1, 2, 0});
  const auto size = [](const Tensor& places, const Tensor& values, Longs shape) {
    return OpTester("SetSize").input(places).input(values).input(longs(shape)).run_one();
  };
  expect_tensor_equal(*size(at, strings({"a", "a", "b"}), {3, 2}),
                      Tensor::vector<int32_t>({1, 0, 1}));
  const Tensor unordered = indices(2, 2, {1, 0, 0, 0});
  expect_invalid(size(unordered, strings({"a", "b"}), {2, 2}).status(),
                 "indices[1] = [0,0] is out of order");
  expect_invalid(size(at, strings({"a", "a", "b"}), {2, 2}).status(), "out of bounds");
  expect_invalid(size(at, strings({"a"}), {3, 2}).status(), "set_values.shape[0]");
  const std::vector<Tensor> both = OpTester("SparseToSparseSetOperation")
                                       .attr("set_operation", "union")
                                       .input(at)
                                       .input(strings({"b", "a", "c"}))
                                       .input(longs({3, 2}))
                                       .input(indices(1, 2, {1, 0}))
                                       .input(strings({"z"}))
                                       .input(longs({3, 1}))
                                       .run()
                                       .value();
  expect_tensor_equal(both[0], indices(4, 2, {0, 0, 0, 1, 1, 0, 2, 0}));
  expect_tensor_equal(both[1], strings({"a", "b", "z", "c"}));
  expect_tensor_equal(both[2], longs({3, 2}));
  EXPECT_FALSE(shapes("SetSize", "[?,3];[?];[2]").ok());
  EXPECT_EQ(*shapes("DenseToDenseSetOperation", "[2,3,4];[2,3,5]", {{"set_operation", "union"}}),
            "[?,3];[?];[3]");
}

TEST(EditDistance, OfEachPair) {
  const auto measure = [](bool normalize) {
    return OpTester("EditDistance")
        .attr("normalize", normalize)
        .input(indices(7, 2, {0, 0, 0, 1, 0, 2, 1, 0, 2, 0, 2, 1, 2, 2}))
        .input(strings({"c", "a", "t", "x", "d", "o", "g"}))
        .input(longs({3, 3}))
        .input(indices(7, 2, {0, 0, 0, 1, 2, 0, 2, 1, 2, 2, 2, 3, 3, 0}))
        .input(strings({"a", "t", "d", "i", "g", "s", "y"}))
        .input(longs({4, 4}))
        .run_one();
  };
  expect_tensor_equal(*measure(false), Tensor::vector<float>({1, 1, 2, 1}));
  expect_tensor_equal(*measure(true), Tensor::vector<float>(
                                          {0.5F, std::numeric_limits<float>::infinity(), 0.5F, 1}));
  // The last index says nothing: programs give sequences of any length a shape of one.
  expect_tensor_equal(*OpTester("EditDistance")
                           .attr("normalize", false)
                           .input(indices(3, 2, {0, 0, 0, 7, 0, 7}))
                           .input(strings({"c", "a", "t"}))
                           .input(longs({1, 1}))
                           .input(indices(2, 2, {0, 0, 0, 1}))
                           .input(strings({"a", "t"}))
                           .input(longs({1, 1}))
                           .run_one(),
                      Tensor::vector<float>({1}));
  EXPECT_EQ(*shapes("EditDistance", "[?,2];[?];=[3,4];[?,2];[?];=[5,4]"), "[5]");
  EXPECT_FALSE(shapes("EditDistance", "[?,2];[?];[2];[?,3];[?];[3]").ok());
}

// A shape with far more rows than elements, which cost no more than their strings.
TEST(SerializeSparse, EmptyRowsAreAlike) {
  constexpr int64_t kRows = 200'000;
  const Tensor rows = OpTester("SerializeManySparse")
                          .input(indices(1, 2, {kRows - 1, 4}))
                          .input(Tensor::vector<int32_t>({7}))
                          .input(longs({kRows, 5}))
                          .run_one()
                          .value();
  const std::span<const std::string> text = rows.data<std::string>();
  EXPECT_EQ(text[0], text[3]);
  EXPECT_EQ(text[1], text[4]);
  const Tensor last = rows.rows(kRows - 2, kRows);
  const std::vector<Tensor> back =
      OpTester("DeserializeManySparse").attr("dtype", DType::kInt32).input(last).run().value();
  expect_tensor_equal(back[0], indices(1, 2, {1, 4}));
  expect_tensor_equal(back[1], Tensor::vector<int32_t>({7}));
  expect_tensor_equal(back[2], longs({2, 5}));
  EXPECT_EQ(OpTester("SerializeManySparse")
                .input(indices(0, 2, {}))
                .input(Tensor::vector<int32_t>({}))
                .input(longs({100'000'000, 5}))
                .run()
                .status()
                .code(),
            Code::kResourceExhausted);
}

TEST(SerializeSparse, RowsComeBack) {
  const Tensor at = indices(3, 3, {0, 1, 0, 2, 0, 0, 2, 1, 1});
  const Tensor values = strings({"a", "", "b"});
  const Tensor rows = OpTester("SerializeManySparse")
                          .input(at)
                          .input(values)
                          .input(longs({4, 2, 2}))
                          .run_one()
                          .value();
  EXPECT_EQ(rows.shape(), (Shape{4, 3}));
  const auto read = [&](DType dtype, const Tensor& from) {
    return OpTester("DeserializeManySparse").attr("dtype", dtype).input(from).run();
  };
  const std::vector<Tensor> back = read(DType::kString, rows).value();
  expect_tensor_equal(back[0], at);
  expect_tensor_equal(back[1], values);
  expect_tensor_equal(back[2], longs({4, 2, 2}));
  expect_invalid(
      read(DType::kInt64, rows).status(),
      "Requested SparseTensor of type int64 but SparseTensor[0].values.dtype() == string");
  Tensor broken = *Tensor::allocate(DType::kString, Shape{1, 3});
  broken.mutable_data<std::string>()[0] = "\xff";
  expect_invalid(read(DType::kString, broken).status(), "Could not parse serialized_sparse[0, 0]");
  const Tensor unordered = indices(2, 2, {1, 0, 0, 0});
  expect_invalid(OpTester("SerializeManySparse")
                     .input(unordered)
                     .input(longs({1, 2}))
                     .input(longs({2, 2}))
                     .run_one()
                     .status(),
                 "out of order");
}

TEST(SerializeSparse, AsVariantsAndAlongSeveralDimensions) {
  const auto serialize = [](DType type, int64_t at, float value) {
    return OpTester("SerializeSparse")
        .attr("out_type", type)
        .input(indices(1, 1, {at}))
        .input(Tensor::vector<float>({value}))
        .input(longs({at + 2}))
        .run_one()
        .value();
  };
  for (DType type : {DType::kString, DType::kVariant}) {
    const auto read = [&](const Tensor& from) {
      return OpTester("DeserializeSparse").attr("dtype", DType::kFloat).input(from).run();
    };
    const Tensor one = serialize(type, 3, 0.5F);
    const std::vector<Tensor> alone = read(one).value();
    expect_tensor_equal(alone[0], indices(1, 1, {3}));
    expect_tensor_equal(alone[1], Tensor::vector<float>({0.5F}));
    expect_tensor_equal(alone[2], longs({5}));
    Tensor many = *Tensor::allocate(type, Shape{1, 2, 3});
    const Tensor other = serialize(type, 1, 2);
    for (size_t k = 0; k < 3; ++k) {
      if (type == DType::kString) {
        many.mutable_data<std::string>()[k] = one.data<std::string>()[k];
        many.mutable_data<std::string>()[k + 3] = other.data<std::string>()[k];
      } else {
        many.mutable_data<Variant>()[k] = one.data<Variant>()[k];
        many.mutable_data<Variant>()[k + 3] = other.data<Variant>()[k];
      }
    }
    const std::vector<Tensor> joined = read(many).value();
    expect_tensor_equal(joined[0], indices(2, 3, {0, 0, 3, 0, 1, 1}));
    expect_tensor_equal(joined[1], Tensor::vector<float>({0.5F, 2}));
    expect_tensor_equal(joined[2], longs({1, 2, 5}));
    expect_invalid(read(*Tensor::allocate(type, Shape{3})).status(), "serialized_sparse[0, 0]");
    expect_invalid(read(*Tensor::allocate(type, Shape{2})).status(), "");
  }
}

}  // namespace
}  // namespace millrace
