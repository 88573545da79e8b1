#include "millrace/io/example_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "millrace/io/feature_list_parser.h"
#include "proto/example.pb.h"

namespace millrace {
namespace {

using Form = FeatureSpec::Form;
using Feature = tensorflow::Feature;

Feature ints(std::initializer_list<int64_t> values) {
  Feature feature;
  feature.mutable_int64_list();
  for (const int64_t value : values) feature.mutable_int64_list()->add_value(value);
  return feature;
}
Feature floats(std::initializer_list<float> values) {
  Feature feature;
  feature.mutable_float_list();
  for (const float value : values) feature.mutable_float_list()->add_value(value);
  return feature;
}
Feature strings(std::initializer_list<std::string> values) {
  Feature feature;
  feature.mutable_bytes_list();
  for (const std::string& value : values) feature.mutable_bytes_list()->add_value(value);
  return feature;
}

std::string example(std::initializer_list<std::pair<const char*, Feature>> features) {
  tensorflow::Example message;
  for (const auto& [key, feature] : features) {
    (*message.mutable_features()->mutable_feature())[key] = feature;
  }
  return message.SerializeAsString();
}

Result<ParsedFeature> parse(const FeatureSpec& spec, const std::vector<std::string>& examples,
                            Tensor default_value = {}, bool single = false) {
  if (!default_value.valid()) {
    MR_TRY_ASSIGN(default_value, Tensor::zeros(spec.dtype, Shape{0}));
  }
  MR_TRY_ASSIGN(const auto parser, ExampleParser::make({spec}, {.single = single}));
  MR_TRY_ASSIGN(auto results,
                parser->parse({.serialized = examples, .defaults = {&default_value, 1}}));
  return std::move(results[0]);
}

std::string text(const Result<ParsedFeature>& result) {
  if (!result.ok()) return result.status().to_string();
  return result->values.to_string(100);
}

TEST(ExampleParserTest, FixedFeaturesAreRowsOfABatch) {
  const FeatureSpec spec{.key = "x", .dtype = DType::kInt64, .shape = Shape{2}};
  EXPECT_EQ(text(parse(spec, {example({{"x", ints({1, -2})}}),
                              example({{"x", ints({1L << 40, 4})}, {"y", ints({9})}})})),
            "int64 [2,2] {1, -2, 1099511627776, 4}");
  EXPECT_EQ(text(parse({.key = "s", .dtype = DType::kString}, {example({{"s", strings({"hi"})}})})),
            "string [1] {\"hi\"}");
}

TEST(ExampleParserTest, WhatIsMissingHasTheDefaultOrIsAnError) {
  const FeatureSpec spec{.key = "x", .dtype = DType::kFloat, .shape = Shape{2}};
  const std::vector<std::string> examples = {example({{"x", floats({1, 2})}}),
                                             example({{"x", Feature()}}), ""};
  EXPECT_EQ(text(parse(spec, examples, Tensor::vector<float>({7, 8}))),
            "float [3,2] {1, 2, 7, 8, 7, 8}");
  EXPECT_EQ(parse(spec, examples).status().to_string(),
            "INVALID_ARGUMENT: Name: <unknown>, Feature: x (data type: float) is required but "
            "could not be found.");
}

TEST(ExampleParserTest, WhatDoesNotFitNamesTheFirstExample) {
  const FeatureSpec spec{.key = "x", .dtype = DType::kFloat, .shape = Shape{2}};
  const std::string good = example({{"x", floats({1, 2})}});
  EXPECT_EQ(parse(spec, {good, example({{"x", floats({1})}}), "bad"}).status().message(),
            "Name: <unknown>, Key: x, Index: 1.  Number of float values != expected.  Values "
            "size: 1 but output shape: [2]");
  EXPECT_EQ(parse(spec, {good, example({{"x", ints({1, 2})}})}).status().message(),
            "Name: <unknown>, Key: x, Index: 1.  Data types don't match. Expected type: float  "
            "Feature is: int64_list");
  EXPECT_EQ(parse(spec, {good, "bad"}).status().code(), Code::kInvalidArgument);
}

TEST(ExampleParserTest, TheLastOfSeveralFeaturesWithOneKeyWins) {
  const FeatureSpec spec{.key = "x", .dtype = DType::kInt64};
  const std::string both = example({{"x", ints({1})}}) + example({{"x", ints({2})}});
  EXPECT_EQ(text(parse(spec, {both})), "int64 [1] {2}");
}

TEST(ExampleParserTest, NumbersMayBeUnpacked) {
  // features { feature { key: "x" value { int64_list { value: 1 value: 300 } } } }
  const std::string ints("\x0a\x10\x0a\x0e\x0a\x01x\x12\x09\x1a\x07\x08\x01\x08\xac\x02\x08\x00",
                         18);
  EXPECT_EQ(text(parse({.key = "x", .dtype = DType::kInt64, .shape = Shape{3}}, {ints})),
            "int64 [1,3] {1, 300, 0}");
  // The same with float_list { value: 0.5 }.
  const std::string floats("\x0a\x0e\x0a\x0c\x0a\x01x\x12\x07\x12\x05\x0d\0\0\0\x3f", 16);
  EXPECT_EQ(text(parse({.key = "x", .dtype = DType::kFloat}, {floats})), "float [1] {0.5}");
}

// Any bytes as packed numbers: the same are numbers for us and for messages, and the same ones.
TEST(ExampleParserTest, PackedNumbersAreThoseOfMessages) {
  const auto field = [](char tag, const std::string& bytes) {
    return std::string{tag, static_cast<char>(bytes.size())} + bytes;
  };
  const unsigned seed = 20261116;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  int read = 0, refused = 0;
  for (int round = 0; round < 5000; ++round) {
    std::string packed(random() % 40, '\0');
    const unsigned ends = 1 + random() % 12;  // one byte in so many ends a number
    for (char& c : packed) c = static_cast<char>((random() & 0x7F) | (random() % ends ? 0x80 : 0));
    const std::string feature = field('\x1a', field('\x0a', packed));
    Feature message;
    const bool whole = message.ParseFromString(feature);
    const Result<ParsedFeature> parsed =
        parse({.key = "x", .dtype = DType::kInt64, .form = Form::kRagged},
              {field('\x0a', field('\x0a', field('\x0a', "x") + field('\x12', feature)))});
    ASSERT_EQ(parsed.ok(), whole) << testing::PrintToString(packed);
    ++(whole ? read : refused);
    if (!whole) continue;
    const auto& expected = message.int64_list().value();
    const std::span<const int64_t> got = parsed->values.data<int64_t>();
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
  }
  EXPECT_GT(read, 500);
  EXPECT_GT(refused, 500);
}

TEST(ExampleParserTest, VariableFeaturesArePadded) {
  const FeatureSpec spec{
      .key = "x", .dtype = DType::kInt64, .form = Form::kVariable, .shape = Shape{2}};
  const std::vector<std::string> examples = {example({{"x", ints({1, 2})}}), "",
                                             example({{"x", ints({3, 4, 5, 6})}})};
  EXPECT_EQ(text(parse(spec, examples, Tensor::scalar<int64_t>(-1))),
            "int64 [3,2,2] {1, 2, -1, -1, -1, -1, -1, -1, 3, 4, 5, 6}");
  EXPECT_EQ(text(parse(spec, examples)), "int64 [3,2,2] {1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 5, 6}");
  EXPECT_EQ(text(parse(spec, {examples[2]}, {}, true)), "int64 [2,2] {3, 4, 5, 6}");
  EXPECT_EQ(parse(spec, {example({{"x", ints({1})}})}).status().code(), Code::kInvalidArgument);
}

TEST(ExampleParserTest, SparseAndRaggedFeaturesHaveTheirPlaces) {
  const std::vector<std::string> examples = {example({{"x", strings({"a", "b"})}}), "",
                                             example({{"x", strings({"c"})}})};
  FeatureSpec spec{.key = "x", .dtype = DType::kString, .form = Form::kSparse};
  ParsedFeature sparse = parse(spec, examples).value();
  EXPECT_EQ(sparse.values.to_string(), "string [3] {\"a\", \"b\", \"c\"}");
  EXPECT_EQ(sparse.indices.to_string(), "int64 [3,2] {0, 0, 0, 1, 2, 0}");
  EXPECT_EQ(sparse.shape.to_string(), "int64 [2] {3, 2}");
  sparse = parse(spec, {examples[0]}, {}, true).value();
  EXPECT_EQ(sparse.indices.to_string(), "int64 [2,1] {0, 1}");
  EXPECT_EQ(sparse.shape.to_string(), "int64 [1] {2}");
  spec.form = Form::kRagged;
  spec.splits_dtype = DType::kInt32;
  EXPECT_EQ(parse(spec, examples)->splits.to_string(), "int32 [4] {0, 2, 2, 3}");
}

std::vector<FeatureSpec> every_form() {
  std::vector<FeatureSpec> specs;
  for (const DType dtype : {DType::kInt64, DType::kFloat, DType::kString}) {
    for (const Form form : {Form::kFixed, Form::kVariable, Form::kSparse, Form::kRagged}) {
      specs.push_back({.key = str_cat(dtype), .dtype = dtype, .form = form});
    }
  }
  return specs;
}

TEST(ExampleParserTest, FlippedAndCutBytesAreReadOrRefused) {
  const std::string good =
      example({{"int64", ints({300})}, {"float", floats({0.5})}, {"string", strings({"abc"})}});
  const auto parser = ExampleParser::make(every_form(), {}).value();
  std::vector<Tensor> defaults;
  for (const FeatureSpec& spec : parser->specs()) {
    defaults.push_back(Tensor::zeros(spec.dtype, Shape{}).value());
  }
  const auto parses = [&](const std::string& bytes) {
    const auto result = parser->parse({.serialized = {&bytes, 1}, .defaults = defaults});
    EXPECT_TRUE(result.ok() || result.status().code() == Code::kInvalidArgument);
    return result.ok();
  };
  EXPECT_TRUE(parses(good));
  for (size_t i = 0; i < good.size(); ++i) {
    parses(good.substr(0, i));
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      parses(bad);
    }
  }
}

TEST(ExampleParserTest, ReadsWhatMessagesOfRandomFeaturesHold) {
  const unsigned seed = 7;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::vector<std::string> examples;
  std::string expected;
  for (int e = 0; e < 100; ++e) {
    Feature feature = ints({});
    for (unsigned n = random() % 5; n > 0; --n) {
      const auto value = static_cast<int64_t>(random()) << (random() % 33);
      feature.mutable_int64_list()->add_value(random() % 2 == 0 ? value : -value);
      expected += str_cat(expected.empty() ? "" : ", ", feature.int64_list().value().rbegin()[0]);
    }
    examples.push_back(example({{"other", strings({"x"})}, {"x", feature}}));
  }
  const auto parsed =
      parse({.key = "x", .dtype = DType::kInt64, .form = Form::kSparse}, examples).value();
  EXPECT_EQ(parsed.values.to_string(1000),
            str_cat("int64 [", parsed.values.dim(0), "] {", expected, "}"));
}

std::string sequence(std::initializer_list<std::pair<const char*, std::vector<Feature>>> lists) {
  tensorflow::SequenceExample message;
  (*message.mutable_context()->mutable_feature())["c"] = ints({5});
  for (const auto& [key, steps] : lists) {
    auto& list = (*message.mutable_feature_lists()->mutable_feature_list())[key];
    for (const Feature& step : steps) *list.add_feature() = step;
  }
  return message.SerializeAsString();
}

TEST(FeatureListParserTest, ListsOfABatchInEveryForm) {
  using ListForm = FeatureListSpec::Form;
  const std::vector<std::string> examples = {sequence({{"x", {ints({1}), ints({2})}}}),
                                             sequence({}), sequence({{"x", {ints({3})}}})};
  FeatureListSpec spec{.key = "x", .dtype = DType::kInt64, .missing_is_empty = true};
  const auto parse = [&](bool single = false) {
    const auto parser = FeatureListParser::make({spec}, single).value();
    const std::span<const std::string> all = examples;
    return std::move(parser->parse(single ? all.first(1) : all, {}).value()[0]);
  };
  EXPECT_EQ(parse().values.to_string(), "int64 [3,2] {1, 2, 0, 0, 3, 0}");
  EXPECT_EQ(parse().lengths.to_string(), "int64 [3] {2, 0, 1}");
  EXPECT_EQ(parse(true).values.to_string(), "int64 [2] {1, 2}");
  spec.form = ListForm::kSparse;
  EXPECT_EQ(parse().indices.to_string(9), "int64 [3,3] {0, 0, 0, 0, 1, 0, 2, 0, 0}");
  EXPECT_EQ(parse().shape.to_string(), "int64 [3] {3, 2, 1}");
  EXPECT_EQ(parse(true).indices.to_string(), "int64 [2,2] {0, 0, 1, 0}");
  spec.form = ListForm::kRagged;
  EXPECT_EQ(parse().inner_splits.to_string(), "int64 [4] {0, 1, 2, 3}");
  EXPECT_EQ(parse().outer_splits.to_string(), "int64 [4] {0, 2, 2, 3}");
}

TEST(FeatureListParserTest, FlippedAndCutBytesAreReadOrRefused) {
  using ListForm = FeatureListSpec::Form;
  const std::string good = sequence({{"x", {floats({1}), floats({2})}}, {"y", {strings({"a"})}}});
  std::vector<FeatureListSpec> specs;
  for (const ListForm form : {ListForm::kDense, ListForm::kSparse, ListForm::kRagged}) {
    specs.push_back({.key = "x", .dtype = DType::kFloat, .form = form});
    specs.push_back({.key = "y", .dtype = DType::kString, .form = form});
  }
  const auto parser = FeatureListParser::make(specs, false).value();
  const auto parses = [&](const std::string& bytes) {
    const auto result = parser->parse({&bytes, 1}, {});
    EXPECT_TRUE(result.ok() || result.status().code() == Code::kInvalidArgument);
    return result.ok();
  };
  EXPECT_TRUE(parses(good));
  for (size_t i = 0; i < good.size() * 8; ++i) {
    parses(good.substr(0, i / 8));
    std::string bad = good;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << (i % 8)));
    parses(bad);
  }
}

}  // namespace
}  // namespace millrace
