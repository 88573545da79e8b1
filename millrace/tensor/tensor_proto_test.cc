#include "millrace/tensor/tensor_proto.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "millrace/tensor/complex.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/quantized.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/tensor_testing.h"
#include "millrace/tensor/variant.h"
#include "proto/tensor.pb.h"

namespace millrace {
namespace {

using tensorflow::TensorProto;

TensorProto proto_of(const std::string& text) {
  TensorProto proto;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &proto)) << text;
  return proto;
}

Tensor read(const std::string& text) {
  const Result<Tensor> tensor = tensor_from_proto(proto_of(text));
  EXPECT_TRUE(tensor.ok()) << tensor.status().to_string();
  return tensor.ok() ? *tensor : Tensor();
}

Code code_of(const std::string& text) { return tensor_from_proto(proto_of(text)).status().code(); }

class RoundTripTest : public testing::TestWithParam<int> {};

TEST_P(RoundTripTest, BothEncodings) {
  const auto dtype = static_cast<DType>(GetParam());
  for (const Shape& shape :
       {Shape(), Shape{0, 3}, Shape{5}, Shape{2, 3}, Shape{1, 2, 1, 2, 1, 2, 1, 1}}) {
    const Tensor tensor = random_tensor(dtype, shape, 3);
    for (const TensorEncoding encoding : {TensorEncoding::kContent, TensorEncoding::kTypedField}) {
      TensorProto proto;
      ASSERT_TRUE(tensor_to_proto(tensor, proto, encoding).ok());
      TensorProto parsed;
      ASSERT_TRUE(parsed.ParseFromString(proto.SerializeAsString()));
      const Result<Tensor> again = tensor_from_proto(parsed);
      ASSERT_TRUE(again.ok()) << again.status().to_string();
      if (dtype != DType::kVariant) {
        expect_tensor_equal(*again, tensor);
        continue;
      }
      TensorProto second;
      ASSERT_TRUE(tensor_to_proto(*again, second, encoding).ok());
      EXPECT_EQ(second.SerializeAsString(), proto.SerializeAsString());
    }
  }
}
INSTANTIATE_TEST_SUITE_P(EveryDType, RoundTripTest, testing::Range(1, kNumDTypes),
                         [](const auto& info) {
                           return dtype_name(static_cast<DType>(info.param));
                         });

TEST(TensorProtoTest, LastValueRepeats) {
  expect_tensor_equal(read("dtype: DT_FLOAT tensor_shape { dim { size: 4 } } float_val: [1, 2]"),
                      Tensor::vector<float>({1, 2, 2, 2}));
  expect_tensor_equal(
      read("dtype: DT_STRING tensor_shape { dim { size: 3 } } string_val: ['a', 'b']"),
      Tensor::vector<std::string>({"a", "b", "b"}));
  expect_tensor_equal(
      read("dtype: DT_COMPLEX64 tensor_shape { dim { size: 3 } } scomplex_val: [1, 2, 3, 4, 5]"),
      Tensor::vector<Complex64>({{1, 2}, {3, 4}, {3, 4}}));
  EXPECT_EQ(read("dtype: DT_RESOURCE tensor_shape { dim { size: 2 } } "
                 "resource_handle_val { name: 'v' }")
                .data<ResourceHandle>()[1]
                .name,
            "v");
  const Tensor wide = read(
      "dtype: DT_HALF tensor_shape { dim { size: 1000 } dim { size: 1000 } } "
      "half_val: 15360");
  EXPECT_EQ(wide.data<Half>()[999999], Half(1));
}

TEST(TensorProtoTest, NoValuesAreZeros) {
  expect_tensor_equal(read("dtype: DT_INT32 tensor_shape { dim { size: 2 } }"),
                      Tensor::vector<int32_t>({0, 0}));
  expect_tensor_equal(read("dtype: DT_STRING"), Tensor::scalar<std::string>(""));
  EXPECT_FALSE(read("dtype: DT_VARIANT").item<Variant>().object);
}

TEST(TensorProtoTest, ExtraValuesAreIgnored) {
  expect_tensor_equal(read("dtype: DT_INT64 int64_val: [1, 2, 3]"), Tensor::scalar<int64_t>(1));
}

TEST(TensorProtoTest, EmptyTensorIgnoresData) {
  const Tensor t = read("dtype: DT_FLOAT tensor_shape { dim { size: 0 } } tensor_content: 'abc'");
  EXPECT_EQ(t.num_elements(), 0);
}

TEST(TensorProtoTest, OldAndNarrowForms) {
  expect_tensor_equal(read("dtype: DT_BFLOAT16 int_val: 16256"), Tensor::scalar(BFloat16(1)));
  expect_tensor_equal(read("dtype: DT_BFLOAT16 half_val: 16256"), Tensor::scalar(BFloat16(1)));
  expect_tensor_equal(read("dtype: DT_UINT8 int_val: 255"), Tensor::scalar<uint8_t>(255));
  expect_tensor_equal(read("dtype: DT_INT4 int_val: -3"), Tensor::scalar(Int4(-3)));
  expect_tensor_equal(read("dtype: DT_BOOL tensor_content: '\\007'"), Tensor::scalar(true));
  expect_tensor_equal(read("dtype: DT_INT4 tensor_content: '\\017'"), Tensor::scalar(Int4(-1)));
}

TEST(TensorProtoTest, PackedStrings) {
  expect_tensor_equal(
      read(
          "dtype: DT_STRING tensor_shape { dim { size: 3 } } tensor_content: '\\002\\000\\001abc'"),
      Tensor::vector<std::string>({"ab", "", "c"}));
  const Tensor longer = Tensor::scalar(std::string(300, 'x'));
  TensorProto proto;
  ASSERT_TRUE(tensor_to_proto(longer, proto).ok());
  EXPECT_EQ(proto.tensor_content().substr(0, 3), "\xac\x02x");
  expect_tensor_equal(tensor_from_proto(proto).value(), longer);
}

TEST(TensorProtoTest, MalformedIsInvalidArgument) {
  for (const char* text : {
           "",
           "dtype: DT_FLOAT_REF",
           "dtype: 77",
           "dtype: DT_FLOAT tensor_shape { unknown_rank: true }",
           "dtype: DT_FLOAT tensor_shape { unknown_rank: true dim { size: 2 } }",
           "dtype: DT_FLOAT tensor_shape { dim { size: -1 } }",
           "dtype: DT_FLOAT tensor_shape { dim { size: -7 } }",
           "dtype: DT_FLOAT tensor_shape { dim { size: 9223372036854775807 } dim { size: 2 } }",
           "dtype: DT_FLOAT tensor_content: 'abc'",
           "dtype: DT_FLOAT tensor_shape { dim { size: 2 } } tensor_content: 'abcd'",
           "dtype: DT_STRING tensor_shape { dim { size: 2 } } tensor_content: '\\001'",
           "dtype: DT_STRING tensor_content: '\\005abc'",
           "dtype: DT_STRING tensor_content: '\\001abc'",
           "dtype: DT_STRING tensor_content: '\\377\\377\\377\\377\\177'",
           "dtype: DT_STRING tensor_content: '\\377\\377\\377\\377\\377\\001'",
           "dtype: DT_STRING tensor_content: '\\200'",
           "dtype: DT_STRING tensor_shape { dim { size: 60000000 } } tensor_content: 'abc'",
           "dtype: DT_RESOURCE tensor_content: '\\002ab'",
           "dtype: DT_VARIANT tensor_content: '\\002ab'",
           "dtype: DT_RESOURCE resource_handle_val { dtypes_and_shapes { shape { dim { size: -9 } "
           "} } }",
       }) {
    EXPECT_EQ(code_of(text), Code::kInvalidArgument) << text;
  }
  TensorProto deep;
  for (int i = 0; i < 255; ++i) deep.mutable_tensor_shape()->add_dim()->set_size(1);
  deep.set_dtype(tensorflow::DT_FLOAT);
  EXPECT_EQ(tensor_from_proto(deep).status().code(), Code::kInvalidArgument);
}

TEST(TensorProtoTest, SmallMessagesCannotAskForEverything) {
  for (const char* text : {
           "dtype: DT_UINT8 tensor_shape { dim { size: 4611686018427387904 } } int_val: 1",
           "dtype: DT_DOUBLE tensor_shape { dim { size: 4611686018427387904 } }",
           "dtype: DT_UINT8 tensor_shape { dim { size: 2147483649 } } int_val: 1",
           "dtype: DT_STRING tensor_shape { dim { size: 100000000 } }",
           "dtype: DT_STRING tensor_shape { dim { size: 60000000 } } "
           "string_val: '0123456789012345678901234567890123456789'",
           "dtype: DT_VARIANT tensor_shape { dim { size: 1000000000 } }",
       }) {
    EXPECT_EQ(code_of(text), Code::kResourceExhausted) << text;
  }
}

TEST(TensorProtoTest, VariantsOfUnknownTypeAndDepth) {
  EXPECT_EQ(code_of("dtype: DT_VARIANT variant_val { type_name: 'Nobody' }"), Code::kNotFound);
  random_tensor(DType::kVariant, Shape(), 1);  // makes its type known
  TensorProto proto = proto_of("dtype: DT_FLOAT float_val: 1");
  for (int depth = 1; depth <= 33; ++depth) {
    TensorProto outer;
    outer.set_dtype(tensorflow::DT_VARIANT);
    auto* const variant = outer.add_variant_val();
    variant->set_type_name("millrace.TestVariant");
    *variant->add_tensors() = proto;
    proto = outer;
    EXPECT_EQ(tensor_from_proto(proto).status().code(),
              depth <= 32 ? Code::kOk : Code::kInvalidArgument);
  }
}

class LocalVariant : public VariantObject {
 public:
  std::string_view type_name() const override { return "LocalVariant"; }
  Status encode(std::string&, std::vector<Tensor>&) const override {
    return unimplemented("stays here");
  }
};

TEST(TensorProtoTest, WhatCannotBeWritten) {
  TensorProto proto;
  EXPECT_EQ(tensor_to_proto(Tensor(), proto).code(), Code::kInvalidArgument);
  EXPECT_EQ(tensor_to_proto(Tensor::scalar(Variant{make_ref<LocalVariant>()}), proto).code(),
            Code::kUnimplemented);
  static char byte;
  const Shape large{int64_t{1} << 31};
  const Tensor huge(DType::kUInt8, large, Buffer::borrow(&byte, size_t{1} << 31, {}));
  EXPECT_EQ(tensor_to_proto(huge, proto).code(), Code::kResourceExhausted);
  const Tensor away(DType::kUInt8, Shape(), Buffer::borrow(&byte, 1, {}, MemorySpace::kDevice));
  EXPECT_EQ(tensor_to_proto(away, proto).code(), Code::kInvalidArgument);
}

TEST(TensorProtoTest, Shapes) {
  for (const char* text : {"?", "[]", "[2,?]", "[0]"}) {
    const PartialShape shape = PartialShape::parse(text).value();
    tensorflow::TensorShapeProto proto;
    shape_to_proto(shape, proto);
    EXPECT_EQ(shape_from_proto(proto).value(), shape);
  }
}

}  // namespace
}  // namespace millrace
