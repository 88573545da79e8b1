#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "millrace/graph/shape_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/math/math_testing.h"
#include "millrace/ops/register_ops.h"
#include "millrace/ops/strings/string_hashes.h"
#include "millrace/tensor/half.h"
#include "millrace/tensor/tensor_testing.h"

namespace millrace {
namespace {

const bool registered = register_for_tests({register_strings_ops});

using Strings = std::initializer_list<std::string>;

Tensor strings(Strings values) { return Tensor::vector(values); }
Tensor text(std::string value) { return Tensor::scalar(std::move(value)); }
Tensor matrix(Shape shape, Strings values) { return Tensor::of(std::move(shape), values); }

void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.to_string();
}
void expect_invalid(const Status& status, std::string_view part) {
  expect_error(status, Code::kInvalidArgument, part);
}
Result<std::string> shapes(std::string_view op, std::string_view inputs, AttrMap attrs = {}) {
  return infer_shapes(OpRegistry::global(), op, std::move(attrs), inputs);
}

TEST(StringJoin, ScalarsGoWithAll) {
  const auto join = [](std::vector<Tensor> inputs, const char* separator = "") {
    return OpTester("StringJoin")
        .attr("separator", separator)
        .input_list(std::move(inputs))
        .run_one();
  };
  expect_tensor_equal(*join({text("a"), strings({"x", "y"}), strings({"1", ""})}, "-"),
                      strings({"a-x-1", "a-y-"}));
  expect_tensor_equal(*join({text("a"), text("b")}), text("ab"));
  expect_tensor_equal(*join({strings({}), text("b")}), strings({}));
  expect_invalid(join({strings({"a"}), strings({"b", "c"})}).status(), "one shape");
  EXPECT_EQ(*shapes("StringJoin", "[];[2,?];[2,3]", {{"N", 3}}), "[2,3]");
  EXPECT_EQ(*shapes("StringJoin", "[];?", {{"N", 2}}), "?");
  EXPECT_FALSE(shapes("StringJoin", "[2];[3]", {{"N", 2}}).ok());
}

Result<Tensor> reduce_join(const Tensor& x, const Tensor& axes, const AttrMap& attrs = {}) {
  OpTester tester("ReduceJoin");
  for (const auto& [name, value] : attrs) tester.attr(name, value);
  return tester.input(x).input(axes).run_one();
}

TEST(ReduceJoin, TheFirstDimensionIsTheFastest) {
  const Tensor x = matrix({2, 2}, {"a", "b", "c", "d"});
  const auto axes = [](std::initializer_list<int32_t> values) { return Tensor::vector(values); };
  expect_tensor_equal(*reduce_join(x, axes({0})), strings({"ac", "bd"}));
  expect_tensor_equal(*reduce_join(x, Tensor::scalar<int32_t>(-1)), strings({"ab", "cd"}));
  expect_tensor_equal(*reduce_join(x, axes({1, 0}), {{"separator", "-"}}), text("a-b-c-d"));
  expect_tensor_equal(*reduce_join(x, axes({0, 1})), text("acbd"));
  expect_tensor_equal(*reduce_join(x, axes({-2}), {{"keep_dims", true}}),
                      matrix({1, 2}, {"ac", "bd"}));
  expect_tensor_equal(*reduce_join(x, axes({})), x);
  expect_tensor_equal(*reduce_join(matrix({0, 2}, {}), axes({0})), strings({"", ""}));
  EXPECT_EQ(reduce_join(matrix({0, 2}, {}), axes({1}))->shape(), (Shape{0}));
  expect_error(reduce_join(x, axes({2})).status(), Code::kOutOfRange,
               "Invalid reduction dimension 2 for input with 2 dimension(s)");
  expect_error(reduce_join(text("a"), axes({0})).status(), Code::kOutOfRange, "Invalid reduction");
  expect_invalid(reduce_join(x, axes({0, -2})).status(), "Duplicate reduction dimension -2");
}

TEST(DecodeRaw, NumbersOfEveryType) {
  const auto decode = [](const Tensor& bytes, DType type, bool little = true) {
    return OpTester("DecodeRaw")
        .attr("out_type", type)
        .attr("little_endian", little)
        .input(bytes)
        .run_one();
  };
  expect_tensor_equal(*decode(strings({"abcd", "efgh"}), DType::kInt16),
                      Tensor::of<int16_t>({2, 2}, {25185, 25699, 26213, 26727}));
  expect_tensor_equal(*decode(strings({"abcd", "efgh"}), DType::kInt16, false),
                      Tensor::of<int16_t>({2, 2}, {24930, 25444, 25958, 26472}));
  expect_tensor_equal(*decode(text(std::string("\0\1\2", 3)), DType::kBool),
                      Tensor::vector<bool>({false, true, true}));
  EXPECT_EQ(decode(text(""), DType::kInt16)->shape(), (Shape{0}));
  EXPECT_EQ(decode(matrix({2, 0}, {}), DType::kFloat)->shape(), (Shape{2, 0, 0}));
  for (DType type : kernel_types("DecodeRaw", "out_type")) {
    for (bool little : {true, false}) {
      const std::vector<Complex128> values = {1, 0, 1};
      const Tensor x = make_tensor(type, {3}, values);
      std::string bytes(static_cast<const char*>(x.raw()), x.bytes());
      const size_t size = dtype_size(type) / (kComplex.contains(type) ? 2 : 1);
      for (size_t i = 0; !little && i < bytes.size(); i += size) {
        std::reverse(bytes.begin() + static_cast<ptrdiff_t>(i),
                     bytes.begin() + static_cast<ptrdiff_t>(i + size));
      }
      expect_tensor_equal(*decode(text(bytes), type, little), x);
    }
  }
  expect_invalid(decode(strings({"short", "longer"}), DType::kUInt8).status(),
                 "strings to all be the same size, but element 1 has size 5 != 6");
  expect_invalid(decode(strings({"123"}), DType::kInt16).status(),
                 "has length 3 that is not a multiple of 2, the size of int16");
}

TEST(DecodePaddedRaw, CutsAndFills) {
  const auto decode = [](int32_t length, bool little = true) {
    return OpTester("DecodePaddedRaw")
        .attr("out_type", DType::kInt16)
        .attr("little_endian", little)
        .input(strings({"a", "", "bcdef"}))
        .input(Tensor::scalar(length))
        .run_one();
  };
  expect_tensor_equal(*decode(4), Tensor::of<int16_t>({3, 2}, {0x61, 0, 0, 0, 0x6362, 0x6564}));
  expect_tensor_equal(*decode(2, false), Tensor::of<int16_t>({3, 1}, {0x6100, 0, 0x6263}));
  expect_invalid(decode(3).status(), "fixed_length (3) must be a multiple of the size");
  expect_invalid(decode(0).status(), "fixed_length (0) must be greater than zero");
}

TEST(Base64, BothWays) {
  const auto encode = [](const Tensor& x, bool pad) {
    return *OpTester("EncodeBase64").attr("pad", pad).input(x).run_one();
  };
  const auto decode = [](const std::string& s) {
    return OpTester("DecodeBase64").input(text(s)).run_one();
  };
  const Tensor plain = strings({"", "a", "ab", "abc", "\xff\xfe\xfd"});
  expect_tensor_equal(encode(plain, false), strings({"", "YQ", "YWI", "YWJj", "__79"}));
  expect_tensor_equal(encode(plain, true), strings({"", "YQ==", "YWI=", "YWJj", "__79"}));
  for (bool pad : {false, true}) {
    expect_tensor_equal(*OpTester("DecodeBase64").input(encode(plain, pad)).run_one(), plain);
  }
  expect_invalid(decode("a").status(), "1 modulo 4");
  for (const char* bad : {"YQ=", "a===", "Y Q=", "+/+/", "YQ==YQ==", "====", "YWJj=", "\x80YWJ"}) {
    expect_invalid(decode(bad).status(), "");
  }
}

// The numbers are TensorFlow's, of the bytes (7 i + n) mod 251.
TEST(HashBuckets, KnownValues) {
  struct Known {
    int64_t size, fast, plain, strong;
  };
  const Known known[] = {
      {0, 1936946117179621455, 105434511174508091, 4000455894396949930},
      {1, 550085751958558782, 2499542889307245882, 815350846967364532},
      {3, 50737162503519588, 664798910978920875, 1451094827129420406},
      {4, 74291032824012392, 1071300106493060473, 3022344890527612340},
      {7, 3398365883158499592, 3552175740516232787, 143896633639933716},
      {8, 3403648104430010920, 1792776028251320487, 1545362645342024449},
      {15, 3575310498258597009, 848429028861713032, 3397845013302140737},
      {16, 663651183927826904, 995847565073455182, 2251175663895049194},
      {17, 3125010364355856015, 3561695271940059064, 3074790914098741302},
      {31, 2801713092741292786, 1934025981943740632, 1595360475393106071},
      {32, 3992320350721670009, 2782484674102228036, 28980956633190090},
      {33, 1299301519085802221, 1671907256595274647, 2607052182989887589},
      {50, 1565001286816019038, 2773088732060145836, 806514224725008200},
      {63, 2174774667395056767, 4482637198782834436, 731354590578630957},
      {64, 496021707010269990, 2194319048294259613, 4092587612575457254},
      {65, 3209512396189334845, 2521291561056467249, 4304687877223247682},
      {100, 3529443128402560788, 3315819662128981252, 1164353899511504842},
      {127, 3068020987706356438, 2069542020998681411, 4204190100534857681},
      {128, 637281534562233924, 1588978728133749898, 986363599160088138},
      {129, 2623547578443077797, 30336917363350208, 3814549271651465448},
      {200, 1672961196389352237, 4015088224781339632, 4118608021555507180},
  };
  constexpr int64_t kBuckets = int64_t{1} << 62;
  for (const Known& k : known) {
    std::string bytes;
    for (int64_t i = 0; i < k.size; ++i) bytes += static_cast<char>((i * 7 + k.size) % 251);
    const auto bucket = [&](const char* op) {
      OpTester tester(op);
      if (op == std::string("StringToHashBucketStrong")) {
        tester.attr("key", std::vector<int64_t>{123, -5});
      }
      return tester.attr("num_buckets", kBuckets).input(text(bytes)).run_one()->item<int64_t>();
    };
    EXPECT_EQ(bucket("StringToHashBucketFast"), k.fast) << k.size;
    EXPECT_EQ(bucket("StringToHashBucket"), k.plain) << k.size;
    EXPECT_EQ(bucket("StringToHashBucketStrong"), k.strong) << k.size;
  }
  expect_invalid(OpTester("StringToHashBucketStrong")
                     .attr("key", std::vector<int64_t>{1})
                     .attr("num_buckets", 2)
                     .input(text("a"))
                     .run()
                     .status(),
                 "Key must have 2 elements");
}

struct Split {
  Tensor indices, values, shape;
};
Split split(const char* op, const Tensor& x, const char* separator, const AttrMap& attrs = {}) {
  OpTester tester(op);
  for (const auto& [name, value] : attrs) tester.attr(name, value);
  std::vector<Tensor> out = *tester.input(x).input(text(separator)).run();
  return {out[0], out[1], out[2]};
}

TEST(StringSplit, AtAnyCharacter) {
  Split s = split("StringSplit", strings({"a b  c", " ", ""}), " ");
  expect_tensor_equal(s.indices, Tensor::of<int64_t>({3, 2}, {0, 0, 0, 1, 0, 2}));
  expect_tensor_equal(s.values, strings({"a", "b", "c"}));
  expect_tensor_equal(s.shape, Tensor::vector<int64_t>({3, 3}));
  s = split("StringSplit", strings({"a b  c", " "}), " ", {{"skip_empty", false}});
  expect_tensor_equal(s.values, strings({"a", "b", "", "c", "", ""}));
  expect_tensor_equal(split("StringSplit", strings({"abc", "d"}), "").values,
                      strings({"a", "b", "c", "d"}));
  expect_tensor_equal(split("StringSplit", strings({"a,b;c"}), ",;").values,
                      strings({"a", "b", "c"}));
  s = split("StringSplit", strings({}), ",");
  EXPECT_EQ(s.indices.shape(), (Shape{0, 2}));
  expect_tensor_equal(s.shape, Tensor::vector<int64_t>({0, 0}));
  EXPECT_FALSE(OpTester("StringSplit").input(text("a")).input(text(",")).run().ok());
  EXPECT_FALSE(OpTester("StringSplit").input(strings({"a"})).input(strings({","})).run().ok());
}

TEST(StringSplit, AtASeparator) {
  const Tensor x = strings({"a<> b  c", "  ", "", "1,2,,3", " x y ", "1<><>2", ",a"});
  const auto pieces = [&](const char* separator, int max) {
    return split("StringSplitV2", x, separator, {{"maxsplit", max}}).values;
  };
  expect_tensor_equal(pieces("", -1),
                      strings({"a<>", "b", "c", "1,2,,3", "x", "y", "1<><>2", ",a"}));
  expect_tensor_equal(pieces("", 0), x);
  expect_tensor_equal(pieces("", 1),
                      strings({"a<>", "b  c", "1,2,,3", "", "x", "y ", "1<><>2", "", ",a", ""}));
  expect_tensor_equal(pieces("", 2),
                      strings({"a<>", "b", "c", "1,2,,3", "x", "y", "", "1<><>2", ",a"}));
  expect_tensor_equal(pieces(",", -1), strings({"a<> b  c", "  ", "", "1", "2", "", "3", " x y ",
                                                "1<><>2", "", "a"}));
  expect_tensor_equal(pieces("<>", 1),
                      strings({"a", " b  c", "  ", "", "1,2,,3", " x y ", "1", "<>2", ",a"}));
  expect_tensor_equal(pieces("<>", 0), x);
}

TEST(Substr, PositionsAndLengths) {
  const auto cut = [](const Tensor& x, const Tensor& pos, const Tensor& len,
                      const char* unit = "BYTE") {
    return OpTester("Substr").attr("unit", unit).input(x).input(pos).input(len).run_one();
  };
  const auto ints = [](std::initializer_list<int32_t> values) { return Tensor::vector(values); };
  const auto at = [](int64_t value) { return Tensor::scalar(value); };
  expect_tensor_equal(*cut(strings({"hello", "worlds"}), ints({1, -2}), ints({3, 3})),
                      strings({"ell", "ds"}));
  expect_tensor_equal(*cut(text("hello"), ints({1, 5}), ints({3, 3})), strings({"ell", ""}));
  expect_tensor_equal(*cut(text("hello"), at(2), at(-1)), text("llo"));
  expect_tensor_equal(*cut(text("hello"), at(2), at(std::numeric_limits<int64_t>::max())),
                      text("llo"));
  expect_tensor_equal(*cut(matrix({2, 1}, {"hello", "abc"}), ints({0, 1, 2}), ints({1, 2, 3})),
                      matrix({2, 3}, {"h", "el", "llo", "a", "bc", "c"}));
  expect_tensor_equal(*cut(text("h\xc3\xa9llo"), at(1), at(2), "UTF8_CHAR"), text("\xc3\xa9l"));
  expect_tensor_equal(*cut(text("h\xc3\xa9llo"), at(-2), at(5), "UTF8_CHAR"), text("lo"));
  expect_tensor_equal(*cut(text("h\xc3\xa9llo"), at(5), at(5), "UTF8_CHAR"), text(""));
  EXPECT_EQ(cut(strings({}), ints({}), ints({}))->shape(), (Shape{0}));
  for (int64_t bad : {int64_t{6}, int64_t{-6}, std::numeric_limits<int64_t>::min()}) {
    expect_invalid(cut(text("hello"), at(bad), at(3)).status(),
                   str_cat("pos ", bad, " out of range for string b'hello' at index 0"));
    expect_invalid(cut(text("h\xc3\xa9llo"), at(bad), at(3), "UTF8_CHAR").status(), "out of range");
  }
  expect_invalid(cut(text("a"), ints({0, 1, 2}), ints({1, 2})).status(), "[3] vs. [2]");
  EXPECT_FALSE(cut(strings({"a", "b"}), ints({0, 0, 0}), ints({1, 1, 1})).ok());
  EXPECT_EQ(*shapes("Substr", "[2,1];[3];[?]"), "[2,3]");
  EXPECT_FALSE(shapes("Substr", "[2];[3];[4]").ok());
}

TEST(Strings, LengthCaseAndSpace) {
  const Tensor x = strings({" H\xc3\xa9llo\t", "", "\v \r"});
  expect_tensor_equal(*OpTester("StringLength").input(x).run_one(),
                      Tensor::vector<int32_t>({8, 0, 3}));
  expect_tensor_equal(*OpTester("StringLength").attr("unit", "UTF8_CHAR").input(x).run_one(),
                      Tensor::vector<int32_t>({7, 0, 3}));
  expect_tensor_equal(*OpTester("StringStrip").input(x).run_one(),
                      strings({"H\xc3\xa9llo", "", ""}));
  const Tensor letters = strings({"az[AZ@`{"});
  expect_tensor_equal(*OpTester("StringLower").input(letters).run_one(), strings({"az[az@`{"}));
  expect_tensor_equal(*OpTester("StringUpper").input(letters).run_one(), strings({"AZ[AZ@`{"}));
  OpTester utf8("StringUpper");
  expect_tensor_equal(*utf8.attr("encoding", "utf-8").input(text("ab")).run_one(), text("AB"));
  expect_error(utf8.clear_inputs().input(x).run().status(), Code::kUnimplemented, "ASCII");
  expect_invalid(OpTester("StringLower").attr("encoding", "latin").input(x).run().status(),
                 "only utf-8");
}

TEST(AsString, Formats) {
  const auto written = [](const Tensor& x, const AttrMap& attrs = {}) {
    OpTester tester("AsString");
    for (const auto& [name, value] : attrs) tester.attr(name, value);
    return tester.input(x).run_one();
  };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const Tensor x = Tensor::vector<float>({1.5F, -1.0F / 3, 1e10F, NAN, -kInf});
  expect_tensor_equal(*written(x),
                      strings({"1.500000", "-0.333333", "10000000000.000000", "nan", "-inf"}));
  expect_tensor_equal(*written(x, {{"precision", 2}}),
                      strings({"1.50", "-0.33", "10000000000.00", "nan", "-inf"}));
  expect_tensor_equal(*written(x, {{"scientific", true}}),
                      strings({"1.500000e+00", "-3.333333e-01", "1.000000e+10", "nan", "-inf"}));
  expect_tensor_equal(*written(x, {{"shortest", true}}),
                      strings({"1.5", "-0.333333", "1e+10", "nan", "-inf"}));
  expect_tensor_equal(
      *written(x, {{"width", 10}, {"fill", "0"}}),
      strings({"001.500000", "-00.333333", "10000000000.000000", "       nan", "      -inf"}));
  const Tensor n = Tensor::vector<int32_t>({1, -20});
  expect_tensor_equal(*written(n), strings({"1", "-20"}));
  expect_tensor_equal(*written(n, {{"width", 4}, {"fill", "0"}}), strings({"0001", "-020"}));
  expect_tensor_equal(*written(n, {{"width", 4}, {"fill", "-"}}), strings({"1   ", "-20 "}));
  expect_tensor_equal(*written(n, {{"width", 4}, {"fill", "+"}}), strings({"  +1", " -20"}));
  expect_tensor_equal(*written(Tensor::vector<uint64_t>({~uint64_t{0}}), {{"fill", "+"}}),
                      strings({"18446744073709551615"}));
  expect_tensor_equal(*written(Tensor::vector<bool>({true, false}), {{"width", 9}}),
                      strings({"true", "false"}));
  expect_tensor_equal(*written(Tensor::scalar(Complex64(1.5F, -2)), {{"shortest", true}}),
                      text("(1.5,-2)"));
  expect_tensor_equal(*written(Tensor::scalar(Half(0.5F))), text("0.500000"));
  expect_tensor_equal(*written(text("ab"), {{"width", 4}}), text("  ab"));
  expect_tensor_equal(*written(text("ab"), {{"width", 4}, {"fill", "-"}}), text("ab  "));
  expect_invalid(written(n, {{"precision", 0}}).status(), "precision not supported");
  expect_invalid(written(n, {{"shortest", true}}).status(), "scientific and shortest");
  expect_invalid(written(x, {{"shortest", true}, {"scientific", true}}).status(),
                 "Cannot select both");
  expect_invalid(written(x, {{"fill", "ab"}}).status(), "Fill string must be one or fewer");
  expect_invalid(written(x, {{"fill", "n"}}).status(), "Fill argument not supported");
  expect_invalid(written(x, {{"width", int64_t{1} << 40}}).status(), "at most");
}

TEST(StringToNumber, WhatItTakes) {
  const auto number = [](const std::string& s, DType type) {
    return OpTester("StringToNumber").attr("out_type", type).input(text(s)).run_one();
  };
  const std::pair<const char*, double> numbers[] = {
      {"1", 1},     {"-1.5", -1.5},      {" 3 ", 3},   {"1e3", 1000},       {"inf", INFINITY},
      {"0x10", 16}, {"+5", 5},           {".5", 0.5},  {"-INF", -INFINITY}, {"5.", 5},
      {"\t7\n", 7}, {"1e400", INFINITY}, {"1e-400", 0}};
  for (const auto& [s, value] : numbers) {
    EXPECT_EQ(number(s, DType::kDouble)->item<double>(), value) << s;
    EXPECT_EQ(number(s, DType::kFloat)->item<float>(), static_cast<float>(value)) << s;
  }
  EXPECT_EQ(number("1e50", DType::kFloat)->item<float>(), INFINITY);
  EXPECT_TRUE(std::isnan(number("-nan", DType::kFloat)->item<float>()));
  for (const char* bad :
       {"10foobar", "", " ", "1_0", "Infinity", "0x1p3", "0x", "--1", "1e", "+"}) {
    expect_invalid(number(bad, DType::kFloat).status(),
                   str_cat("could not correctly convert string: ", bad));
  }
  EXPECT_EQ(number("-2147483648", DType::kInt32)->item<int32_t>(), INT32_MIN);
  EXPECT_EQ(number(" 007 ", DType::kInt64)->item<int64_t>(), 7);
  for (const char* bad : {"2147483648", "1.0", "", "+5", "0x10", " - 1"}) {
    expect_invalid(number(bad, DType::kInt32).status(), "could not correctly convert string");
  }
}

}  // namespace
}  // namespace millrace
