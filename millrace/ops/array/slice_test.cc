#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "millrace/graph/shape_testing.h"
#include "millrace/ops/array/array_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/tensor/tensor_testing.h"

// Slice StridedSlice StridedSliceGrad Pad PadV2.

namespace millrace {
namespace {

const bool registered = register_for_tests({register_array_ops});

Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {},
                           const TestConstants& constants = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs, constants);
}
Result<std::string> values(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_values(OpRegistry::global(), op, std::move(attrs), inputs);
}

OpTester& slice(OpTester& tester, const Tensor& x, const Index& begin, const Index& size) {
  return tester.input(x).input(int_vector(begin)).input(int_vector(size));
}

TEST(Slice, EveryType) {
  for (DType dtype : moved_types()) {
    const Tensor x = random_tensor(dtype, {5, 4, 3}, 1);
    const std::pair<Index, Index> rows[] = {{{1, 1, 1}, {3, 2, 2}}, {{0, 0, 0}, {-1, -1, -1}},
                                            {{2, 0, 0}, {2, 4, 3}}, {{5, 0, 0}, {0, -1, 1}},
                                            {{1, 3, 0}, {4, 1, 3}}, {{0, 2, 1}, {5, 0, 2}}};
    for (const auto& [begin, size] : rows) {
      OpTester tester("Slice");
      const Result<Tensor> y = slice(tester, x, begin, size).run_one();
      ASSERT_TRUE(y.ok()) << y.status().to_string();
      expect_tensor_equal(*y, pick(x, y->shape(), [&, at = &begin](Index index) {
        for (size_t i = 0; i < index.size(); ++i) index[i] += (*at)[i];
        return flat_index(x.shape(), index);
      }));
      for (int i = 0; i < 3; ++i) {
        const size_t k = static_cast<size_t>(i);
        EXPECT_EQ(y->dim(i), size[k] == -1 ? x.dim(i) - begin[k] : size[k]);
      }
    }
    OpTester rows_only("Slice");
    EXPECT_TRUE(slice(rows_only, x, {1, 0, 0}, {2, -1, -1}).run_one()->shares_buffer_with(x));
  }
}

TEST(Slice, ErrorsAndRules) {
  const Tensor x = random_tensor(DType::kFloat, {5, 4}, 1);
  const struct {
    Index begin, size;
    const char* part;
  } rows[] = {{{-1, 0}, {1, 1}, "'begin' must be in [0, 5]"},
              {{6, 0}, {0, 1}, "got 6"},
              {{0, 2}, {1, 3}, "'size' must be in [0, 2]"},
              {{0, 0}, {-2, 1}, "got -2"},
              {{0}, {1}, "1-D tensors of size 2"},
              {{0, 0}, {1, 1, 1}, "1-D tensors of size 2"}};
  for (const auto& row : rows) {
    OpTester tester("Slice");
    expect_invalid(slice(tester, x, row.begin, row.size), row.part);
  }
  EXPECT_EQ(*shapes("Slice", "[5,?];=[1,2];=[-1,3]"), "[4,3]");
  EXPECT_EQ(*shapes("Slice", "[5,?];[2];[2]"), "[?,?]");
  EXPECT_EQ(*shapes("Slice", "?;[2];=[?,3]"), "[?,3]");
  EXPECT_FALSE(shapes("Slice", "[5];=[1];=[5]").ok());
  EXPECT_EQ(*values("Slice", "=[1,?,3];=[1];=[2]", {{"T", DType::kInt32}}), "[?,3]");
}

// A random slice, and what it takes of each dimension of the input, worked out one index at a time.
struct RandomSlice {
  Index begin, end, strides;
  AttrMap masks;
  std::vector<Index> taken;  // per dimension of the input
  Index output;

  RandomSlice(std::mt19937& random, const Shape& input) {
    auto pick_from = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    int64_t bits[5] = {};  // begin, end, ellipsis, new axis, shrink
    bool had_ellipsis = false;
    int dim = 0;
    auto entry = [&](int64_t b, int64_t e, int64_t s) {
      begin.push_back(b);
      end.push_back(e);
      strides.push_back(s);
      return int64_t{1} << (begin.size() - 1);
    };
    auto keep = [&](Index indices) {
      output.push_back(static_cast<int64_t>(indices.size()));
      taken.push_back(std::move(indices));
      ++dim;
    };
    while (dim < input.rank() || pick_from(0, 3) == 0) {
      const int64_t kind = pick_from(0, 5);
      if (kind == 0) {
        bits[3] |= entry(pick_from(-9, 9), pick_from(-9, 9), 0);
        output.push_back(1);
      } else if (kind == 1 && !had_ellipsis) {
        had_ellipsis = true;
        bits[2] |= entry(0, 0, 0);
        const int64_t whole = pick_from(0, input.rank() - dim);
        for (int64_t i = 0; i < whole; ++i) {
          Index all;
          for (int64_t k = 0; k < input.dim(dim); ++k) all.push_back(k);
          keep(all);
        }
        // What is left must be named, or the ellipsis would stand for it too.
      } else if (dim == input.rank()) {
        break;
      } else if (kind == 2 && input.dim(dim) > 0) {
        const int64_t n = input.dim(dim), at = pick_from(-n, n - 1);
        bits[4] |= entry(at, pick_from(-9, 9), pick_from(1, 2));
        taken.push_back({at < 0 ? at + n : at});
        ++dim;
      } else {
        const int64_t n = input.dim(dim),
                      step = pick_from(0, 1) ? pick_from(1, 3) : -pick_from(1, 3);
        const int64_t b = pick_from(-n - 2, n + 2), e = pick_from(-n - 2, n + 2);
        const int64_t bit = entry(b, e, step);
        const bool from_edge = pick_from(0, 3) == 0, to_edge = pick_from(0, 3) == 0;
        if (from_edge) bits[0] |= bit;
        if (to_edge) bits[1] |= bit;
        const int64_t first = b < 0 ? b + n : b, last = e < 0 ? e + n : e;
        int64_t at = step > 0 ? (from_edge ? 0 : std::max<int64_t>(first, 0))
                              : (from_edge ? n - 1 : std::min(first, n - 1));
        Index indices;
        for (; at >= 0 && at < n; at += step) {
          if (!to_edge && (step > 0 ? at >= last : at <= last)) break;
          indices.push_back(at);
        }
        keep(indices);
      }
    }
    const char* names[] = {"begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask",
                           "shrink_axis_mask"};
    for (size_t i = 0; i < 5; ++i) masks.set(names[i], bits[i]);
  }

  OpTester& apply(OpTester& tester, DType dtype) const {
    for (const auto& [name, value] : masks) tester.attr(name, value);
    return tester.input(int_vector(begin, dtype))
        .input(int_vector(end, dtype))
        .input(int_vector(strides, dtype));
  }
};

// All elements of the box spanned by `taken`, in row-major order.
Tensor taken_from(const Tensor& x, const RandomSlice& s) {
  std::vector<int64_t> sizes;
  for (const Index& indices : s.taken) sizes.push_back(static_cast<int64_t>(indices.size()));
  const Tensor box = pick(x, *Shape::make(sizes), [&](Index index) {
    for (size_t i = 0; i < index.size(); ++i) index[i] = s.taken[i][static_cast<size_t>(index[i])];
    return flat_index(x.shape(), index);
  });
  return *box.reshaped(*Shape::make(s.output));
}

TEST(StridedSlice, RandomSlicesAndTheirGradients) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(str_cat("seed ", seed));
  std::mt19937 random(seed);
  const std::vector<DType> types = moved_types();
  for (int round = 0; round < 400; ++round) {
    const DType dtype = types[static_cast<size_t>(round) % types.size()];
    const DType index = round % 2 == 0 ? DType::kInt32 : DType::kInt64;
    std::vector<int64_t> dims;
    for (int i = static_cast<int>(random() % 5); i > 0; --i) dims.push_back(random() % 6);
    const Tensor x = random_tensor(dtype, *Shape::make(dims), 1);
    const RandomSlice s(random, x.shape());
    SCOPED_TRACE(str_cat("input ", x.shape(), " begin ", AttrValue(s.begin), " end ",
                         AttrValue(s.end), " strides ", AttrValue(s.strides), " ellipsis ",
                         *s.masks.find("ellipsis_mask"), " new ", *s.masks.find("new_axis_mask"),
                         " shrink ", *s.masks.find("shrink_axis_mask")));
    OpTester tester("StridedSlice");
    tester.input(x);
    const Result<Tensor> y = s.apply(tester, index).run_one();
    ASSERT_TRUE(y.ok()) << y.status().to_string();
    expect_tensor_equal(*y, taken_from(x, s));

    OpTester back("StridedSliceGrad");
    back.input(int_vector(dims, index));
    const Result<Tensor> dx = s.apply(back, index).input(*y).run_one();
    ASSERT_TRUE(dx.ok()) << dx.status().to_string();
    expect_tensor_equal(*dx, pick(x, x.shape(), [&](const Index& at) {
      for (size_t i = 0; i < at.size(); ++i) {
        const Index& t = s.taken[i];
        if (std::find(t.begin(), t.end(), at[i]) == t.end()) return int64_t{-1};
      }
      return flat_index(x.shape(), at);
    }));
    if (HasFailure()) return;
  }
}

TEST(StridedSlice, Errors) {
  const Tensor x = random_tensor(DType::kFloat, {5, 4}, 1);
  auto run = [&](const Index& begin, const Index& end, const Index& strides, const char* mask,
                 int64_t bits, std::string_view part) {
    expect_invalid(OpTester("StridedSlice")
                       .attr(mask, bits)
                       .input(x)
                       .input(int_vector(begin, DType::kInt64))
                       .input(int_vector(end, DType::kInt64))
                       .input(int_vector(strides, DType::kInt64)),
                   part);
  };
  run({0}, {1}, {0}, "begin_mask", 0, "strides[0] must not be 0");
  run({0, 0, 0}, {1, 1, 1}, {1, 1, 1}, "begin_mask", 0, "does not fit an input of rank 2");
  run({5}, {6}, {1}, "shrink_axis_mask", 1, "slice index 5 of dimension 0 out of bounds");
  run({-6}, {0}, {1}, "shrink_axis_mask", 1, "out of bounds");
  run({INT64_MIN}, {0}, {1}, "shrink_axis_mask", 1, "out of bounds");
  run({1}, {2}, {-1}, "shrink_axis_mask", 1, "must be positive");
  run({0, 0}, {0, 0}, {1, 1}, "ellipsis_mask", 3, "one ellipsis");
  run({0, 0}, {1}, {1}, "begin_mask", 0, "one length");
  run(Index(63), Index(63), Index(63, 1), "new_axis_mask", -1, "at most");
  expect_invalid(OpTester("StridedSliceGrad")
                     .input(int_vector({5}))
                     .input(int_vector({0}))
                     .input(int_vector({2}))
                     .input(int_vector({1}))
                     .input(x),
                 "'dy' must have the shape of the slice, [2]");
}

TEST(StridedSlice, ExtremeNumbers) {
  const Tensor x = Tensor::vector<int32_t>({1, 2, 3});
  auto run = [&](int64_t begin, int64_t end, int64_t stride) {
    return *OpTester("StridedSlice")
                .input(x)
                .input(int_vector({begin}, DType::kInt64))
                .input(int_vector({end}, DType::kInt64))
                .input(int_vector({stride}, DType::kInt64))
                .run_one();
  };
  expect_tensor_equal(run(INT64_MIN, INT64_MAX, 1), x);
  expect_tensor_equal(run(INT64_MAX, INT64_MIN, -1), Tensor::vector<int32_t>({3, 2, 1}));
  expect_tensor_equal(run(1, INT64_MAX, INT64_MAX), Tensor::vector<int32_t>({2}));
  expect_tensor_equal(run(1, INT64_MIN, INT64_MIN), Tensor::vector<int32_t>({2}));
}

TEST(StridedSlice, Rules) {
  EXPECT_EQ(*shapes("StridedSlice", "[5,?];=[1,0];=[4,2];=[2,1]"), "[2,?]");
  EXPECT_EQ(*shapes("StridedSlice", "[5,?];=[1];=[?];=[1]", {{"shrink_axis_mask", 1}}), "[?]");
  EXPECT_EQ(*shapes("StridedSlice", "[5,6];=[?];=[4];=[1]"), "[?,6]");
  EXPECT_EQ(*shapes("StridedSlice", "[5];[1];[1];[1]", {{"begin_mask", 1}, {"end_mask", 1}}),
            "[?]");
  EXPECT_EQ(*shapes("StridedSlice", "[5];=[0,?];=[0,?];=[1,1]",
                    {{"new_axis_mask", 1}, {"begin_mask", 2}, {"end_mask", 2}}),
            "[1,5]");
  EXPECT_EQ(*shapes("StridedSlice", "?;=[0];=[1];=[1]"), "?");
  EXPECT_FALSE(shapes("StridedSlice", "[5];=[7];=[8];=[1]", {{"shrink_axis_mask", 1}}).ok());
  EXPECT_EQ(*shapes("StridedSliceGrad", "=[5,?];[1];[1];[1];?"), "[5,?]");
  const AttrMap ints = {{"T", DType::kInt32}, {"shrink_axis_mask", 1}};
  EXPECT_EQ(*values("StridedSlice", "=[4,?,6];=[-1];=[0];=[1]", ints), "6");
  EXPECT_EQ(*values("StridedSlice", "=[4,?,6];=[1];=[0];=[1]", ints), "?");
  EXPECT_EQ(*values("StridedSlice", "=[4,?,6];=[?];=[0];=[1]", ints), "?");
  EXPECT_EQ(*values("StridedSlice", "=[4,?,6];=[0];=[3];=[2]", {{"T", DType::kInt32}}), "[4,6]");
}

TEST(Pad, EveryType) {
  for (DType dtype : moved_types()) {
    if (dtype == DType::kResource || dtype == DType::kVariant) continue;
    const Tensor fill = random_tensor(dtype, {}, 7);
    for (const Shape& shape : {Shape{2, 3}, Shape{0, 2}}) {
      const Tensor x = random_tensor(dtype, shape, 1);
      const Tensor paddings = Tensor::of<int32_t>({2, 2}, {1, 2, 0, 3});
      const Shape out{shape.dim(0) + 3, shape.dim(1) + 3};
      auto inside = [&](Index at) {
        at[0] -= 1;
        const bool in = at[0] >= 0 && at[0] < shape.dim(0) && at[1] < shape.dim(1);
        return in ? flat_index(shape, at) : -1;
      };
      expect_tensor_equal(*OpTester("Pad").input(x).input(paddings).run_one(),
                          pick(x, out, inside));
      const Tensor padded = *OpTester("PadV2").input(x).input(paddings).input(fill).run_one();
      Tensor all = *OpTester("ConcatV2")
                        .input_list({*x.reshaped({x.num_elements()}), *fill.reshaped({1})})
                        .input(Tensor::scalar<int32_t>(0))
                        .run_one();
      expect_tensor_equal(padded, pick(all, out, [&](const Index& at) {
                            const int64_t source = inside(at);
                            return source < 0 ? x.num_elements() : source;
                          }));
    }
  }
}

TEST(Pad, ErrorsAndRules) {
  const Tensor x = random_tensor(DType::kFloat, {2}, 1);
  expect_invalid(OpTester("Pad").input(x).input(Tensor::of<int32_t>({1, 2}, {-1, 0})), "negative");
  expect_invalid(OpTester("Pad").input(x).input(int_vector({1, 1})), "expected [1,2]");
  expect_invalid(OpTester("Pad").input(x).input(Tensor::of<int64_t>({1, 2}, {INT64_MAX, 0})),
                 "too large");
  EXPECT_EQ(*shapes("Pad", "[2,?];[2,2]", {}, {{1, Tensor::of<int32_t>({2, 2}, {1, 1, 1, 1})}}),
            "[4,?]");
  EXPECT_EQ(*shapes("Pad", "?;[2,2]"), "[?,?]");
  EXPECT_FALSE(shapes("Pad", "[2];[2,2]").ok());
}

}  // namespace
}  // namespace millrace
