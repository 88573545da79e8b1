#include "millrace/graph/attr_value.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace {
namespace {

TEST(AttrMapTest, KeepsNamesInOrderAndReplaces) {
  AttrMap attrs = {{"b", 2}, {"a", 1}, {"c", 3}};
  attrs.set("b", 5);
  attrs.erase("c");
  ASSERT_EQ(attrs.size(), 2u);
  EXPECT_EQ(attrs.begin()->first, "a");
  EXPECT_EQ(*read_attr<int64_t>(attrs, "b"), 5);
  EXPECT_EQ(attrs.find("c"), nullptr);
}

TEST(AttrValueTest, ReadsByKind) {
  AttrMap attrs = {{"f", 1.5f},
                   {"types", std::vector<DType>{DType::kFloat}},
                   {"tensor", Tensor::scalar<int32_t>(7)},
                   {"tensors", std::vector<TensorAttr>{{Tensor::scalar<int32_t>(7)}}}};
  EXPECT_EQ(*read_attr<float>(attrs, "f"), 1.5f);
  EXPECT_EQ(read_attr<std::vector<DType>>(attrs, "types")->size(), 1u);
  EXPECT_EQ(read_attr<Tensor>(attrs, "tensor")->item<int32_t>(), 7);
  EXPECT_EQ((*read_attr<std::vector<Tensor>>(attrs, "tensors"))[0].item<int32_t>(), 7);
  EXPECT_EQ(read_attr<int64_t>(attrs, "f").status().message(), "attr 'f' is a float, expected int");
  EXPECT_EQ(read_attr<int64_t>(attrs, "g").status().message(), "No attr named 'g'");
}

TEST(AttrValueTest, EmptyListIsAnyEmptyVector) {
  const AttrMap attrs = {{"x", EmptyList()}};
  EXPECT_TRUE(read_attr<std::vector<std::string>>(attrs, "x")->empty());
  EXPECT_TRUE(read_attr<std::vector<Tensor>>(attrs, "x")->empty());
  EXPECT_FALSE(read_attr<int64_t>(attrs, "x").ok());
  const AttrValue floats = std::vector<float>();
  EXPECT_EQ(AttrValue(EmptyList()), floats);
  EXPECT_EQ(AttrValue(EmptyList()).hash(), floats.hash());
  EXPECT_NE(AttrValue(EmptyList()), AttrValue(std::vector<float>{1}));
}

TEST(AttrValueTest, FloatsCompareByBits) {
  EXPECT_EQ(AttrValue(NAN), AttrValue(NAN));
  EXPECT_EQ(AttrValue(NAN).hash(), AttrValue(NAN).hash());
  EXPECT_NE(AttrValue(0.0f), AttrValue(-0.0f));
  EXPECT_EQ(AttrValue(std::vector<float>{NAN}), AttrValue(std::vector<float>{NAN}));
}

TEST(AttrValueTest, HashFollowsKindAndValue) {
  const Tensor text = Tensor::vector<std::string>({"a", "b"});
  EXPECT_EQ(AttrValue(text).hash(), AttrValue(*text.clone()).hash());
  EXPECT_NE(AttrValue(1).hash(), AttrValue(true).hash());
  EXPECT_NE(AttrValue(FunctionAttr{"f", {{"T", DType::kFloat}}}).hash(),
            AttrValue(FunctionAttr{"f", {{"T", DType::kInt32}}}).hash());
  // Compared between processes, so it may not depend on this one.
  EXPECT_EQ(AttrValue("SAME").hash(), 8560827850398305696u);
}

TEST(AttrValueTest, Text) {
  EXPECT_EQ(AttrValue("SAME").to_string(), "\"SAME\"");
  EXPECT_EQ(AttrValue(std::vector<int64_t>{1, 2}).to_string(), "[1,2]");
  EXPECT_EQ(AttrValue(std::vector<bool>{true}).to_string(), "[true]");
  EXPECT_EQ(AttrValue(PartialShape{2, -1}).to_string(), "[2,?]");
  EXPECT_EQ(AttrValue(FunctionAttr{"f", {{"T", DType::kFloat}}}).to_string(), "f[T=float]");
  EXPECT_EQ(AttrValue(std::vector<DType>{}).kind(), "list(type)");
  EXPECT_EQ(AttrValue(EmptyList()).kind(), "list");
}

}  // namespace
}  // namespace millrace
