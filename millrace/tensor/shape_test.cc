#include "millrace/tensor/shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "millrace/tensor/partial_shape.h"

namespace millrace {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

Code make_code(std::vector<int64_t> dims) { return Shape::make(dims).status().code(); }

TEST(ShapeTest, Basics) {
  EXPECT_EQ(Shape().rank(), 0);
  EXPECT_EQ(Shape().num_elements(), 1);
  EXPECT_EQ(Shape().to_string(), "[]");
  const Shape shape{2, 3};
  EXPECT_EQ(shape.to_string(), "[2,3]");
  EXPECT_EQ(shape.num_elements(), 6);
  EXPECT_EQ(shape[1], 3);
  EXPECT_NE(shape, (Shape{3, 2}));
  EXPECT_EQ((Shape{4, 0, 5}).num_elements(), 0);
}

TEST(ShapeTest, RefusesBadSizes) {
  EXPECT_EQ(make_code({2, -1}), Code::kInvalidArgument);
  EXPECT_EQ(make_code({kMax}), Code::kOk);
  EXPECT_EQ(make_code({kMax, 2}), Code::kInvalidArgument);
  EXPECT_EQ(make_code({int64_t{1} << 32, int64_t{1} << 31}), Code::kInvalidArgument);
  EXPECT_EQ(make_code({0, int64_t{1} << 40, int64_t{1} << 40}), Code::kInvalidArgument);
  EXPECT_EQ(make_code(std::vector<int64_t>(254, 1)), Code::kOk);
  EXPECT_EQ(make_code(std::vector<int64_t>(255, 1)), Code::kInvalidArgument);
  EXPECT_EQ(Shape::make(std::vector<int64_t>{2, -3}).status().message(),
            "dimension 1 of shape [2,-3] must not be negative, got -3");
}

TEST(ShapeTest, CopiesAndMovesEveryRank) {
  for (int rank = 0; rank < 12; ++rank) {
    std::vector<int64_t> dims;
    for (int i = 0; i < rank; ++i) dims.push_back(i + 1);
    const Shape shape = Shape::make(dims).value();
    Shape copy = shape;
    EXPECT_EQ(copy, shape);
    Shape moved = std::move(copy);
    EXPECT_EQ(moved, shape);
    Shape assigned{9, 9, 9, 9, 9, 9, 9, 9};
    assigned = moved;
    EXPECT_EQ(assigned, shape);
    assigned = Shape{1, 2, 3, 4, 5, 6, 7, 8, 9};
    assigned = std::move(moved);
    EXPECT_EQ(assigned, shape);
    EXPECT_EQ(assigned.num_elements(), shape.num_elements());
    const Shape& self = assigned;
    assigned = self;
    EXPECT_EQ(assigned, shape);
  }
}

TEST(ShapeTest, Derived) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.with_dim(1, 7).value(), (Shape{2, 7, 4}));
  EXPECT_EQ(shape.with_dim(1, kMax).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(shape.with_dim(1, -1).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(shape.without_first(), (Shape{3, 4}));
  EXPECT_EQ((Shape{0, 5}).without_first().num_elements(), 5);
  EXPECT_EQ(shape.concat(Shape{5}).value(), (Shape{2, 3, 4, 5}));
  EXPECT_EQ(shape.concat(shape).value().rank(), 6);
  EXPECT_EQ(shape.concat(Shape{kMax}).status().code(), Code::kInvalidArgument);
}

TEST(ShapeTest, NormalizeAxis) {
  EXPECT_EQ(normalize_axis(-1, 3).value(), 2);
  EXPECT_EQ(normalize_axis(2, 3).value(), 2);
  for (const int64_t axis : {int64_t{3}, int64_t{-4}, kMax, -kMax - 1}) {
    EXPECT_EQ(normalize_axis(axis, 3).status().code(), Code::kInvalidArgument) << axis;
  }
  EXPECT_EQ(normalize_axis(0, 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(normalize_axis(5, 2, "split_dim").status().message(),
            "split_dim must be in [-2,2) for rank 2, got 5");
}

PartialShape parse(std::string_view text) { return PartialShape::parse(text).value(); }

TEST(PartialShapeTest, TextLeadsBack) {
  for (const char* text : {"?", "[]", "[2,?]", "[?]", "[0,1,2,3,4,5,6,7]"}) {
    EXPECT_EQ(parse(text).to_string(), text);
  }
  EXPECT_EQ(parse(" [ 2 , ? ] "), (PartialShape{2, -1}));
  for (const char* text : {"", "[", "2", "[2", "[,]", "[2,]", "[-1]x", "[-5]", "[a]", "[2 3]",
                           "[99999999999999999999]", "[9223372036854775807,2]"}) {
    EXPECT_EQ(PartialShape::parse(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(PartialShapeTest, WhatIsKnown) {
  EXPECT_EQ(PartialShape().rank(), -1);
  EXPECT_EQ(PartialShape::scalar().rank(), 0);
  EXPECT_EQ(PartialShape::scalar().num_elements(), 1);
  EXPECT_EQ(PartialShape::of_rank(2).to_string(), "[?,?]");
  EXPECT_EQ(parse("[2,3]").num_elements(), 6);
  EXPECT_EQ(parse("[2,?]").num_elements(), -1);
  EXPECT_EQ(parse("[2,3]").to_shape().value(), (Shape{2, 3}));
  EXPECT_EQ(parse("[2,?]").to_shape().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(PartialShape().to_shape().status().code(), Code::kInvalidArgument);
  EXPECT_EQ(PartialShape(Shape{2, 0}), parse("[2,0]"));
}

TEST(PartialShapeTest, Merge) {
  EXPECT_EQ(parse("[2,?]").merge(parse("[?,3]")).value(), parse("[2,3]"));
  EXPECT_EQ(parse("?").merge(parse("[?,3]")).value(), parse("[?,3]"));
  EXPECT_EQ(parse("[?,3]").merge(parse("?")).value(), parse("[?,3]"));
  for (const char* other : {"[3,?]", "[2]", "[]"}) {
    EXPECT_FALSE(parse("[2,?]").compatible(parse(other))) << other;
    EXPECT_EQ(parse("[2,?]").merge(parse(other)).status().code(), Code::kInvalidArgument) << other;
  }
  EXPECT_EQ(parse("[9223372036854775807,?]").merge(parse("[?,2]")).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
