#include "millrace/graph/op_def.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

Result<AttrDef> parse(const char* type) {
  Result<OpDef> op = parse_op_spec({.name = "Op", .doc = "", .attrs = {{"a", type}}});
  if (!op.ok()) return op.status();
  return op->attrs[0];
}

TEST(OpSpecTest, ReadsAttributes) {
  EXPECT_EQ(parse("int = 3 >= 1")->default_value, AttrValue(3));
  EXPECT_EQ(parse("int=3>=1")->minimum, 1);
  EXPECT_EQ(parse("int >= -2")->minimum, -2);
  EXPECT_TRUE(parse("int")->default_value.empty());
  EXPECT_EQ(parse("float = 1e-3")->default_value, AttrValue(1e-3f));
  EXPECT_EQ(parse("bool = true")->default_value, AttrValue(true));
  EXPECT_EQ(parse("string = \"\\t\"")->default_value, AttrValue("\t"));
  EXPECT_EQ(parse("string = 'SAME' in {'SAME', \"VALID\"}")->allowed_strings.size(), 2u);
  EXPECT_EQ(parse("list(int) = [1, 1,1,1]")->default_value,
            AttrValue(std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(parse("list(string) = ['a','b']")->default_value,
            AttrValue(std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(parse("list(type) = [float, int32] >= 1")->default_value,
            AttrValue(std::vector<DType>{DType::kFloat, DType::kInt32}));
  EXPECT_EQ(parse("list(type) = [] in {float,int64,string} >= 0")->allowed_types,
            (TypeSet{DType::kFloat, DType::kInt64, DType::kString}));
  EXPECT_EQ(parse("type = int32 in {int32,int64}")->default_value, AttrValue(DType::kInt32));
  EXPECT_EQ(parse("shape = [2,?]")->default_value, AttrValue(PartialShape{2, -1}));
  EXPECT_EQ(parse("shape = <unknown>")->default_value, AttrValue(PartialShape()));
  EXPECT_EQ(parse("list(shape) = [[], [2]]")->default_value,
            AttrValue(std::vector<PartialShape>{PartialShape::scalar(), PartialShape{2}}));
  EXPECT_EQ(parse("func")->type, "func");
}

TEST(OpSpecTest, RefusesWhatItCannotRead) {
  for (const char* bad :
       {"", "integer", "int = x", "int = ", "list(int", "list(number)", "string = 'a",
        "string in {'a'", "int in {1}", "bool >= 1", "int = 0 >= 1", "int 3", "type = float_ref",
        "string = 'c' in {'a','b'}", "list(int) = [1,,2]"}) {
    EXPECT_EQ(parse(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(OpSpecTest, ReadsArguments) {
  const OpDef op = parse_op_spec({.name = "Op",
                                  .doc = "",
                                  .inputs = {{"a", "T"},
                                             {"b", "float"},
                                             {"c", "N * T"},
                                             {"d", "list(Tin)"},
                                             {"e", "ref(T)"},
                                             {"f", "ref(N*int32)"},
                                             {"g", "host(N*int32)"},
                                             {"h", "ref(host(T))"},
                                             {"i", "string"}},
                                  .types = {{"T", kFloating}},
                                  .attrs = {{"N", "int"}, {"Tin", "list(type) >= 0"}}})
                       .value();
  EXPECT_EQ(op.inputs[0].type_attr, "T");
  EXPECT_EQ(op.inputs[1].dtype, DType::kFloat);
  EXPECT_EQ(op.inputs[2].number_attr, "N");
  EXPECT_EQ(op.inputs[3].type_list_attr, "Tin");
  EXPECT_TRUE(op.inputs[4].is_ref);
  // A number of tensors is at least one unless the definition says otherwise.
  EXPECT_EQ(op.find_attr("N")->minimum, 1);
  EXPECT_EQ(op.find_attr("Tin")->minimum, 0);

  AttrMap attrs = {{"T", DType::kDouble}, {"N", 2}, {"Tin", std::vector<DType>{DType::kBool}}};
  const DType d = DType::kDouble;
  EXPECT_EQ(*expand_types(op.inputs, attrs),
            (std::vector<DType>{d, DType::kFloat, d, d, DType::kBool, ref_type(d),
                                ref_type(DType::kInt32), ref_type(DType::kInt32), DType::kInt32,
                                DType::kInt32, ref_type(d), DType::kString}));
  // What is declared so, and what only the host can hold.
  EXPECT_EQ(*expand_host(op.inputs, attrs),
            (std::vector<bool>{false, false, false, false, false, false, false, false, true, true,
                               true, true}));
  attrs.set("N", int64_t{1} << 60);
  EXPECT_EQ(expand_types(op.inputs, attrs).status().code(), Code::kInvalidArgument);
}

TEST(OpSpecTest, RefusesBadArguments) {
  for (const char* bad :
       {"U", "M*float", "list(T)", "ref(T", "T extra", "host(T", "host", "host(T))", ""}) {
    EXPECT_FALSE(
        parse_op_spec({.name = "Op", .doc = "", .inputs = {{"a", bad}}, .types = {{"T", {}}}}).ok())
        << bad;
  }
  EXPECT_FALSE(
      parse_op_spec({.name = "Op", .doc = "", .inputs = {{"a", "float"}, {"a", "float"}}}).ok());
  EXPECT_FALSE(parse_op_spec({.name = "no good", .doc = ""}).ok());
}

class CheckAttrsTest : public testing::Test {
 protected:
  std::string check(AttrMap attrs) { return std::string(check_attrs(op_, attrs).message()); }
  const OpDef op_ = parse_op_spec({.name = "Op",
                                   .doc = "",
                                   .types = {{"T", kFloating}},
                                   .attrs = {{"n", "int = 1 >= 1"},
                                             {"list", "list(int) = [1] >= 1"},
                                             {"many", "list(type) = []"},
                                             {"mode", "string = 'a' in {'a','b'}"}}})
                        .value();
};

TEST_F(CheckAttrsTest, FillsDefaults) {
  AttrMap attrs = {{"T", DType::kFloat}, {"_class", std::vector<std::string>{"loc:@x"}}};
  ASSERT_TRUE(check_attrs(op_, attrs).ok());
  EXPECT_EQ(*read_attr<int64_t>(attrs, "n"), 1);
  EXPECT_EQ(*read_attr<std::string>(attrs, "mode"), "a");
}

TEST_F(CheckAttrsTest, SaysWhatIsWrong) {
  EXPECT_EQ(check({}), "NodeDef missing attr 'T' from Op<name=Op>");
  EXPECT_EQ(check({{"T", DType::kFloat}, {"x", 1}}),
            "NodeDef mentions attr 'x' not in Op<name=Op>");
  EXPECT_EQ(check({{"T", 1}}),
            "AttrValue had value with type 'int' when 'type' expected, for attr 'T'");
  EXPECT_NE(check({{"T", DType::kString}}).find("not in the list of allowed values"),
            std::string::npos);
  EXPECT_NE(check({{"T", ref_type(DType::kFloat)}}), "");
  EXPECT_EQ(check({{"T", DType::kFloat}, {"many", std::vector<DType>{ref_type(DType::kFloat)}}}),
            "");
  EXPECT_NE(check({{"T", static_cast<DType>(77)}}), "");
  EXPECT_EQ(check({{"T", DType::kFloat}, {"n", 0}}),
            "Value for attr 'n' of 0 must be at least minimum 1");
  EXPECT_EQ(check({{"T", DType::kFloat}, {"list", EmptyList()}}),
            "Length for attr 'list' of 0 must be at least minimum 1");
  EXPECT_NE(check({{"T", DType::kFloat}, {"mode", "c"}}), "");
}

}  // namespace
}  // namespace millrace
