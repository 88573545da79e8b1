#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "millrace/graph/function.h"
#include "millrace/graph/graph_def.h"
#include "millrace/graph/toy_ops.h"

// Graphs that are wrong in one way each. Every one must give the right code and a message that
// names the node, what was expected and what was found, and must leave the graph as it was.

namespace millrace {
namespace {

// Stands before every row's text: a is float [2], i int32 [], p bool [], m float [2,3], v a float
// variable.
constexpr std::string_view kPrelude = R"(
node { name: "a" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1 } } } }
node { name: "i" op: "Const" attr { key: "dtype" value { type: DT_INT32 } }
  attr { key: "value" value { tensor { dtype: DT_INT32 tensor_shape {} int_val: 7 } } } }
node { name: "p" op: "Const" attr { key: "dtype" value { type: DT_BOOL } }
  attr { key: "value" value { tensor { dtype: DT_BOOL tensor_shape {} bool_val: true } } } }
node { name: "m" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 2 } dim { size: 3 } } } } }
node { name: "v" op: "Variable" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "shape" value { shape { dim { size: 2 } } } } }
)";

struct Row {
  std::string_view name;
  std::string text;
  Code code;
  std::vector<std::string_view> says;
};

constexpr Code kBad = Code::kInvalidArgument;

// Attributes, short to write.
std::string type_attr(std::string_view key, std::string_view type) {
  return str_cat("attr { key: \"", key, "\" value { type: ", type, " } } ");
}
std::string attr(std::string_view key, std::string_view value) {
  return str_cat("attr { key: \"", key, "\" value { ", value, " } } ");
}
const std::string kFloatT = type_attr("T", "DT_FLOAT");
const std::string kInt32T = type_attr("T", "DT_INT32");

std::string node(std::string_view name, std::string_view op, std::vector<std::string_view> inputs,
                 std::string_view attrs = "") {
  std::string text = str_cat("node { name: \"", name, "\" op: \"", op, "\" ");
  for (std::string_view input : inputs) text += str_cat("input: \"", input, "\" ");
  return str_cat(text, attrs, "}\n");
}

std::string library(std::string_view text) { return str_cat("library { ", text, " }\n"); }

// A FunctionDef f(x: float) -> (y: float) with this body; `rest` goes into it, too.
std::string function_def(std::string_view name, std::string_view body, std::string_view ret,
                         std::string_view rest = "") {
  return str_cat("function { signature { name: \"", name,
                 "\" input_arg { name: \"x\" type: DT_FLOAT } ",
                 "output_arg { name: \"y\" type: DT_FLOAT } } ", body,
                 " ret { key: \"y\" value: \"", ret, "\" } ", rest, " }\n");
}
std::string function(std::string_view name, std::string_view body, std::string_view ret,
                     std::string_view rest = "") {
  return library(function_def(name, body, ret, rest));
}
std::string body_node(std::string_view name, std::string_view op,
                      std::vector<std::string_view> inputs, std::string_view attrs = "") {
  return "node_def" + node(name, op, inputs, attrs).substr(4);
}
std::string signature(std::string_view text) {
  return library(str_cat("function { signature { ", text, " } }"));
}

// A function in an attribute, `levels` deep.
std::string nested_function(int levels) {
  std::string text = "i: 1";
  for (int i = 0; i < levels; ++i) {
    text = str_cat("func { name: \"g\" attr { key: \"n\" value { ", text, " } } }");
  }
  return text;
}

// Functions f0 -> f1 -> ... -> f0.
std::string ring_of_functions(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    std::string callee = str_cat("f", (i + 1) % count);
    text += function_def(str_cat("f", i), body_node("n", callee, {"x"}), "n:y:0");
  }
  return library(text);
}

std::string ring_of_nodes(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    text += node(str_cat("r", i), "Identity", {str_cat("r", (i + count - 1) % count)}, kFloatT);
  }
  return text;
}

std::string constant(std::string_view name, std::string_view dtype, std::string_view tensor) {
  return node(name, "Const", {},
              type_attr("dtype", dtype) + attr("value", str_cat("tensor { ", tensor, " }")));
}

const std::vector<Row>& rows() {
  static const auto* const rows = new std::vector<Row>{
      // The file.
      {"not text", "node {", kBad, {"text form", "line"}},
      {"unknown field", "nodes { name: \"x\" }", kBad, {"nodes"}},
      {"wrong field type", "node { name: 3 }", kBad, {"line", "column"}},
      {"unterminated string", "node { name: \"x }", kBad, {"line"}},
      {"negative producer", "versions { producer: -1 }", kBad, {"producer", "-1", "expected"}},
      {"min_consumer too new",
       "versions { producer: 3000 min_consumer: 3000 }",
       kBad,
       {"min_consumer", "2200", "3000"}},
      {"we are a bad consumer",
       "versions { producer: 21 bad_consumers: 5 bad_consumers: 2200 }",
       kBad,
       {"2200", "bad_consumers"}},

      // Names.
      {"no name", node("", "NoOp", {}), kBad, {"NoOp", "expected a name", "found \"\""}},
      {"name of the runtime", node("_x", "NoOp", {}), kBad, {"_x", "expected a name"}},
      {"name with a space", node("a b", "NoOp", {}), kBad, {"a b", "expected a name"}},
      {"name with a colon", node("x:0", "NoOp", {}), kBad, {"x:0", "expected a name"}},
      {"name with a caret", node("^x", "NoOp", {}), kBad, {"^x", "expected a name"}},
      {"name begins with a slash", node("/x", "NoOp", {}), kBad, {"/x", "expected a name"}},
      {"name with a zero byte", node("x\\000y", "NoOp", {}), kBad, {"NoOp", "expected a name"}},
      {"name is too long",
       node(std::string(70000, 'n'), "NoOp", {}),
       kBad,
       {"NoOp", "65536", "70000"}},
      {"two nodes of a name",
       node("x", "NoOp", {}) + node("x", "NoOp", {}),
       kBad,
       {"NoOp \"x\"", "two nodes"}},
      {"name of the prelude", node("a", "NoOp", {}), kBad, {"NoOp \"a\"", "two nodes"}},
      {"no op", node("x", "", {}), kBad, {"\"x\"", "expected an op"}},

      // Inputs.
      {"input does not exist",
       node("x", "Identity", {"nope"}, kFloatT),
       kBad,
       {"Identity \"x\"", "input 0", "expected a node", "nope"}},
      {"second input does not exist",
       node("x", "Add", {"a", "nope:1"}, kFloatT),
       kBad,
       {"Add \"x\"", "input 1", "nope"}},
      {"control input does not exist", node("x", "NoOp", {"^nope"}), kBad, {"NoOp \"x\"", "nope"}},
      {"empty input", node("x", "Identity", {""}, kFloatT), kBad, {"Identity \"x\"", "input 0"}},
      {"only a caret", node("x", "NoOp", {"^"}), kBad, {"NoOp \"x\"", "input 0", "\"^\""}},
      {"control input with an output", node("x", "NoOp", {"^a:0"}), kBad, {"NoOp \"x\"", "^a:0"}},
      {"two carets", node("x", "NoOp", {"^^a"}), kBad, {"NoOp \"x\"", "^^a"}},
      {"data after control",
       node("x", "Identity", {"^i", "a"}, kFloatT),
       kBad,
       {"Identity \"x\"", "input 1 \"a\"", "control", "found a data input"}},
      {"output number too high",
       node("x", "Identity", {"a:1"}, kFloatT),
       kBad,
       {"Identity \"x\"", "input 0", "below 1", "Const \"a\"", "found 1"}},
      {"output number far too high",
       node("x", "Identity", {"a:2147483647"}, kFloatT),
       kBad,
       {"Identity \"x\"", "below 1", "found 2147483647"}},
      {"output number does not fit",
       node("x", "Identity", {"a:99999999999"}, kFloatT),
       kBad,
       {"Identity \"x\"", "a:99999999999"}},
      {"output number with a leading zero",
       node("x", "Identity", {"a:00"}, kFloatT),
       kBad,
       {"Identity \"x\"", "a:00"}},
      {"negative output number",
       node("x", "Identity", {"a:-1"}, kFloatT),
       kBad,
       {"Identity \"x\"", "a:-1"}},
      {"output number is a word",
       node("x", "Identity", {"a:output:0"}, kFloatT),
       kBad,
       {"Identity \"x\"", "a:output:0"}},
      {"output of a node without outputs",
       node("n", "NoOp", {}) + node("x", "Identity", {"n"}, kFloatT),
       kBad,
       {"Identity \"x\"", "NoOp \"n\"", "below 0", "found 0"}},
      {"too few inputs",
       node("x", "Add", {"a"}, kFloatT),
       kBad,
       {"Add \"x\"", "expected 2 inputs", "found 1"}},
      {"too many inputs",
       node("x", "Add", {"a", "a", "a"}, kFloatT),
       kBad,
       {"Add \"x\"", "expected 2 inputs", "found 3"}},
      {"no inputs",
       node("x", "Identity", {}, kFloatT),
       kBad,
       {"Identity \"x\"", "expected 1 input", "found 0"}},
      {"inputs where none belong",
       node("x", "NoOp", {"a"}),
       kBad,
       {"NoOp \"x\"", "expected 0 inputs", "found 1"}},
      {"control inputs do not count",
       node("x", "Identity", {"^a"}, kFloatT),
       kBad,
       {"Identity \"x\"", "expected 1 input", "found 0"}},
      {"fewer inputs than N",
       node("x", "AddN", {"a"}, kFloatT + attr("N", "i: 2")),
       kBad,
       {"AddN \"x\"", "expected 2 inputs", "found 1"}},
      {"more inputs than N",
       node("x", "AddN", {"a", "a"}, kFloatT + attr("N", "i: 1")),
       kBad,
       {"AddN \"x\"", "expected 1 input", "found 2"}},
      {"huge N",
       node("x", "AddN", {"a"}, kFloatT + attr("N", "i: 9223372036854775807")),
       kBad,
       {"AddN \"x\"", "expected more than 2147483647 inputs", "found 1"}},
      {"fewer inputs than types",
       node("x", "IdentityN", {"a"}, attr("T", "list { type: [DT_FLOAT, DT_INT32] }")),
       kBad,
       {"IdentityN \"x\"", "expected 2 inputs", "found 1"}},

      // Types.
      {"type of an input",
       node("x", "Identity", {"i"}, kFloatT),
       kBad,
       {"Identity \"x\"", "input 0 \"i\"", "expected float", "found int32"}},
      {"types of two inputs differ",
       node("x", "Add", {"a", "i"}, kFloatT),
       kBad,
       {"Add \"x\"", "input 1 \"i\"", "expected float", "found int32"}},
      {"fixed type",
       node("x", "Split", {"a", "a"}, kFloatT + attr("num_split", "i: 2")),
       kBad,
       {"Split \"x\"", "input 0 \"a\"", "expected int32", "found float"}},
      {"type in a list",
       node("x", "IdentityN", {"a", "a"}, attr("T", "list { type: [DT_FLOAT, DT_INT32] }")),
       kBad,
       {"IdentityN \"x\"", "input 1", "expected int32", "found float"}},
      {"reference asked, value given",
       node("x", "Assign", {"a", "a"}, kFloatT),
       kBad,
       {"Assign \"x\"", "input 0 \"a\"", "expected float_ref", "found float"}},
      {"reference to another type",
       node("x", "Assign", {"v", "i"}, kInt32T),
       kBad,
       {"Assign \"x\"", "input 0 \"v\"", "expected int32_ref", "found float_ref"}},
      {"reference read as another type",
       node("x", "Identity", {"v"}, kInt32T),
       kBad,
       {"Identity \"x\"", "expected int32", "found float_ref"}},
      {"predicate is no bool",
       node("x", "Switch", {"a", "i"}, kFloatT),
       kBad,
       {"Switch \"x\"", "input 1 \"i\"", "expected bool", "found int32"}},
      {"unknown op used as two types",
       node("u", "Mystery", {}) + node("x", "Identity", {"u"}, kFloatT) +
           node("y", "Identity", {"u"}, kInt32T),
       kBad,
       {"Identity \"y\"", "\"u\"", "expected int32", "found float"}},

      // Attributes.
      {"attribute missing",
       node("x", "Identity", {"a"}),
       kBad,
       {"Identity \"x\"", "missing", "'T'"}},
      {"number missing", node("x", "AddN", {"a"}, kFloatT), kBad, {"AddN \"x\"", "missing", "'N'"}},
      {"value missing",
       node("x", "Const", {}, type_attr("dtype", "DT_FLOAT")),
       kBad,
       {"Const \"x\"", "'value'"}},
      {"attribute unknown",
       node("x", "NoOp", {}, attr("surprise", "i: 1")),
       kBad,
       {"NoOp \"x\"", "'surprise'"}},
      {"attribute without a name",
       node("x", "NoOp", {}, attr("", "i: 1")),
       kBad,
       {"NoOp \"x\"", "empty name"}},
      {"attribute without a value",
       node("x", "Identity", {"a"}, attr("T", "")),
       kBad,
       {"Identity \"x\"", "\"T\"", "expected a value"}},
      {"free attribute without a value",
       node("x", "NoOp", {}, attr("_x", "")),
       kBad,
       {"NoOp \"x\"", "\"_x\"", "expected a value"}},
      {"int for a type",
       node("x", "Identity", {"a"}, attr("T", "i: 1")),
       kBad,
       {"Identity \"x\"", "'T'", "'int'", "'type'"}},
      {"type for an int",
       node("x", "AddN", {"a"}, kFloatT + attr("N", "type: DT_FLOAT")),
       kBad,
       {"AddN \"x\"", "'N'", "'type'", "'int'"}},
      {"string for a bool",
       node("x", "Options", {}, attr("i", "i: 1") + attr("b", "s: \"yes\"")),
       kBad,
       {"Options \"x\"", "'b'", "'string'", "'bool'"}},
      {"int for a float",
       node("x", "Options", {}, attr("i", "i: 1") + attr("f", "i: 2")),
       kBad,
       {"Options \"x\"", "'f'", "'int'", "'float'"}},
      {"value for a list",
       node("x", "Options", {}, attr("i", "i: 1") + attr("ints", "i: 2")),
       kBad,
       {"Options \"x\"", "'ints'", "'int'", "'list(int)'"}},
      {"list for a value",
       node("x", "Options", {}, attr("i", "list { i: 1 }")),
       kBad,
       {"Options \"x\"", "'i'", "'list(int)'", "'int'"}},
      {"list of another kind",
       node("x", "Options", {}, attr("i", "i: 1") + attr("ints", "list { s: \"q\" }")),
       kBad,
       {"Options \"x\"", "'ints'", "'list(string)'", "'list(int)'"}},
      {"list of two kinds",
       node("x", "Options", {}, attr("i", "i: 1") + attr("ints", "list { i: 1 s: \"q\" }")),
       kBad,
       {"Options \"x\"", "\"ints\"", "one kind", "2 kinds"}},
      {"function for a type",
       node("x", "Identity", {"a"}, attr("T", "func { name: \"f\" }")),
       kBad,
       {"Identity \"x\"", "'T'", "'func'", "'type'"}},
      {"number below the minimum",
       node("x", "Options", {}, attr("i", "i: -1")),
       kBad,
       {"Options \"x\"", "'i'", "-1", "0"}},
      {"zero inputs in a list",
       node("x", "AddN", {}, kFloatT + attr("N", "i: 0")),
       kBad,
       {"AddN \"x\"", "'N'", "0", "1"}},
      {"list too short",
       node("x", "Options", {}, attr("i", "i: 1") + attr("two", "list { i: 1 }")),
       kBad,
       {"Options \"x\"", "'two'", "1", "2"}},
      {"empty list too short",
       node("x", "IdentityN", {}, attr("T", "list {}")),
       kBad,
       {"IdentityN \"x\"", "'T'", "0", "1"}},
      {"string not allowed",
       node("x", "Options", {}, attr("i", "i: 1") + attr("s", "s: \"FULL\"")),
       kBad,
       {"Options \"x\"", "'s'", "FULL", "SAME"}},
      {"type not allowed",
       constant("s", "DT_STRING", "dtype: DT_STRING tensor_shape {} string_val: \"q\"") +
           node("x", "Add", {"s", "s"}, type_attr("T", "DT_STRING")),
       kBad,
       {"Add \"x\"", "'T'", "string"}},
      {"type of no tensor",
       node("x", "Placeholder", {}, type_attr("dtype", "DT_INVALID")),
       kBad,
       {"Placeholder \"x\"", "dtype"}},
      {"type number of nobody",
       node("x", "Placeholder", {}, attr("dtype", "type: 77")),
       kBad,
       {"77"}},
      {"type in a list that is none",
       node("x", "IdentityN", {"a"}, attr("T", "list { type: 0 }")),
       kBad,
       {"IdentityN \"x\"", "T"}},
      {"placeholder outside of a function",
       node("x", "Identity", {"a"}, attr("T", "placeholder: \"T\"")),
       kBad,
       {"Identity \"x\"", "\"T\"", "placeholder"}},
      {"placeholder deep in an attribute",
       node("x", "NoOp", {},
            attr("_f", "func { name: \"f\" attr { key: \"n\" value { placeholder: \"T\" } } }")),
       kBad,
       {"NoOp \"x\"", "\"_f\"", "placeholder"}},
      {"functions nested too deep",
       node("x", "NoOp", {}, attr("_deep", nested_function(33))),
       kBad,
       {"NoOp \"x\"", "\"_deep\"", "32 levels"}},
      {"text nested past all measure",
       node("x", "NoOp", {}, attr("_deep", nested_function(5000))),
       kBad,
       {"text form", "too deep"}},
      {"origin is no list",
       node("x", "NoOp", {}, attr("_mr_origin", "s: \"here\"")),
       kBad,
       {"NoOp \"x\"", "_mr_origin", "expected", "here"}},
      {"origin without a line",
       node("x", "NoOp", {}, attr("_mr_origin", "list { s: [\"f\", \"one\", \"g\", \"c\"] }")),
       kBad,
       {"NoOp \"x\"", "_mr_origin", "one"}},

      // Shapes and constants.
      {"size below -1",
       node("x", "Placeholder", {},
            type_attr("dtype", "DT_FLOAT") + attr("shape", "shape { dim { size: -2 } }")),
       kBad,
       {"Placeholder \"x\"", "\"shape\"", "-2"}},
      {"sizes overflow",
       node("x", "Placeholder", {},
            type_attr("dtype", "DT_FLOAT") + attr("shape",
                                                  "shape { dim { size: 4294967296 } dim { size: "
                                                  "4294967296 } dim { size: 4 } }")),
       kBad,
       {"Placeholder \"x\"", "\"shape\"", "4294967296"}},
      {"unknown rank with sizes",
       node("x", "Placeholder", {},
            type_attr("dtype", "DT_FLOAT") +
                attr("shape", "shape { unknown_rank: true dim { size: 2 } }")),
       kBad,
       {"Placeholder \"x\"", "\"shape\"", "unknown rank", "1"}},
      {"shape in a list",
       node("x", "Options", {},
            attr("i", "i: 1") + attr("shapes", "list { shape { dim { size: -9 } } }")),
       kBad,
       {"Options \"x\"", "\"shapes\"", "-9"}},
      {"constant of another type",
       constant("x", "DT_INT32", "dtype: DT_FLOAT tensor_shape {} float_val: 1"),
       kBad,
       {"Const \"x\"", "'value'", "float", "int32"}},
      {"constant without a type",
       constant("x", "DT_FLOAT", "float_val: 1"),
       kBad,
       {"Const \"x\"", "\"value\"", "dtype"}},
      {"constant of a reference type",
       constant("x", "DT_FLOAT", "dtype: DT_FLOAT_REF"),
       kBad,
       {"Const \"x\"", "\"value\"", "float_ref"}},
      {"content too short",
       constant("x", "DT_FLOAT",
                "dtype: DT_FLOAT tensor_shape { dim { size: 2 } } tensor_content: \"abc\""),
       kBad,
       {"Const \"x\"", "\"value\"", "8", "3"}},
      {"content too long",
       constant("x", "DT_INT32", "dtype: DT_INT32 tensor_shape {} tensor_content: \"abcdefgh\""),
       kBad,
       {"Const \"x\"", "\"value\"", "4", "8"}},
      {"constant of unknown size",
       constant("x", "DT_FLOAT", "dtype: DT_FLOAT tensor_shape { dim { size: -1 } }"),
       kBad,
       {"Const \"x\"", "\"value\"", "known shape", "[?]"}},
      {"constant of unknown rank",
       constant("x", "DT_FLOAT", "dtype: DT_FLOAT tensor_shape { unknown_rank: true }"),
       kBad,
       {"Const \"x\"", "\"value\"", "known shape"}},
      {"constant whose size overflows",
       constant("x", "DT_FLOAT",
                "dtype: DT_FLOAT tensor_shape { dim { size: 4294967296 } dim { size: "
                "4294967296 } } float_val: 1"),
       kBad,
       {"Const \"x\"", "\"value\"", "4294967296"}},
      {"constant of a terabyte",
       constant("x", "DT_FLOAT",
                "dtype: DT_FLOAT tensor_shape { dim { size: 274877906944 } } float_val: 1"),
       Code::kResourceExhausted,
       {"Const \"x\"", "\"value\"", "expected at most", "1099511627776"}},
      {"many large constants",
       node("x", "NoOp", {},
            attr("_t",
                 "list { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 500000 } } } tensor { "
                 "dtype: DT_FLOAT tensor_shape { dim { size: 500000 } } } }")),
       Code::kResourceExhausted,
       {"NoOp \"x\"", "\"_t\"", "expected at most", "2000000"}},
      {"outputs without number",
       node("x", "Split", {"i", "a"}, kFloatT + attr("num_split", "i: 9223372036854775807")),
       Code::kResourceExhausted,
       {"Split \"x\"", "expected at most", "outputs"}},
      {"a million outputs twice",
       node("x", "Split", {"i", "a"}, kFloatT + attr("num_split", "i: 1000000")) +
           node("y", "Split", {"i", "a"}, kFloatT + attr("num_split", "i: 1000000")),
       Code::kResourceExhausted,
       {"Split \"y\"", "expected at most", "outputs", "found 999992"}},
      {"output number of an unknown op",
       node("u", "Mystery", {}) + node("x", "Identity", {"u:2000000000"}, kFloatT),
       Code::kResourceExhausted,
       {"Identity \"x\"", "input 0", "expected at most", "2000000001"}},
      {"shapes do not fit",
       node("x", "MatMul", {"m", "m"}, kFloatT),
       kBad,
       {"MatMul \"x\"", "[2,3] x [2,3]"}},
      {"rank does not fit",
       node("x", "MatMul", {"a", "m"}, kFloatT),
       kBad,
       {"MatMul \"x\"", "2", "[2]"}},
      {"shapes do not broadcast",
       constant("b", "DT_FLOAT", "dtype: DT_FLOAT tensor_shape { dim { size: 3 } } float_val: 1") +
           node("x", "Add", {"a", "b"}, kFloatT),
       kBad,
       {"Add \"x\"", "[2]", "[3]"}},
      {"predicate is no scalar",
       constant("b", "DT_BOOL", "dtype: DT_BOOL tensor_shape { dim { size: 3 } } bool_val: true") +
           node("x", "Switch", {"a", "b"}, kFloatT),
       kBad,
       {"Switch \"x\"", "0", "[3]"}},
      {"origin is shown",
       node("x", "MatMul", {"m", "m"},
            kFloatT +
                attr("_mr_origin", "list { s: [\"train.py\", \"14\", \"main\", \"h = x @ x\"] }")),
       kBad,
       {"MatMul \"x\"", "train.py:14", "h = x @ x"}},

      // Cycles and loops.
      {"a node takes itself",
       node("x", "Identity", {"x"}, kFloatT),
       kBad,
       {"Identity \"x\"", "no cycle", "1 node in a cycle", "x -> x"}},
      {"two nodes in a cycle",
       node("x", "Identity", {"y"}, kFloatT) + node("y", "Identity", {"x"}, kFloatT),
       kBad,
       {"2 nodes in a cycle", "Identity"}},
      {"a cycle through control",
       node("x", "NoOp", {"^y"}) + node("y", "NoOp", {"^x"}),
       kBad,
       {"2 nodes in a cycle", "NoOp"}},
      {"a node waits for itself",
       node("x", "NoOp", {"^x"}),
       kBad,
       {"NoOp \"x\"", "1 node in a cycle"}},
      {"a long cycle", ring_of_nodes(5000), kBad, {"5000 nodes in a cycle", "..."}},
      {"nodes after a cycle",
       node("z", "Identity", {"y"}, kFloatT) + node("x", "Identity", {"y"}, kFloatT) +
           node("y", "Identity", {"x"}, kFloatT),
       kBad,
       {"2 nodes in a cycle", "x", "y"}},
      {"a cycle through Merge alone",
       node("x", "Merge", {"a", "y"}, kFloatT + attr("N", "i: 2")) +
           node("y", "Identity", {"x"}, kFloatT),
       kBad,
       {"2 nodes in a cycle", "NextIteration"}},
      {"a cycle through NextIteration alone",
       node("x", "Add", {"a", "y"}, kFloatT) + node("y", "NextIteration", {"x"}, kFloatT),
       kBad,
       {"2 nodes in a cycle", "NextIteration to Merge"}},
      {"a control edge around a loop",
       node("x", "Merge", {"a", "^y"}, kFloatT + attr("N", "i: 1")) +
           node("y", "NextIteration", {"x"}, kFloatT),
       kBad,
       {"2 nodes in a cycle"}},
      {"a cycle inside a loop",
       node("x", "Merge", {"a", "y"}, kFloatT + attr("N", "i: 2")) +
           node("b", "Add", {"x", "c"}, kFloatT) + node("c", "Identity", {"b"}, kFloatT) +
           node("y", "NextIteration", {"c"}, kFloatT),
       kBad,
       {"2 nodes in a cycle"}},
      {"a loop that nothing enters",
       node("x", "Merge", {"y"}, kFloatT + attr("N", "i: 1")) +
           node("y", "NextIteration", {"x"}, kFloatT),
       kBad,
       {"Merge \"x\"", "expected an input from outside"}},
      {"the type changes around a loop",
       node("x", "Merge", {"a", "y"}, kFloatT + attr("N", "i: 2")) +
           node("y", "NextIteration", {"i"}, kInt32T),
       kBad,
       {"Merge \"x\"", "input 1 \"y\"", "expected float", "found int32"}},
      {"back edge from an output that is none",
       node("x", "Merge", {"a", "y:1"}, kFloatT + attr("N", "i: 2")) +
           node("y", "NextIteration", {"x"}, kFloatT),
       kBad,
       {"Merge \"x\"", "input 1", "below 1", "found 1"}},
      {"Merge without inputs",
       node("x", "Merge", {}, kFloatT + attr("N", "i: 0")),
       kBad,
       {"Merge \"x\"", "'N'"}},
      {"Enter without a frame",
       node("x", "Enter", {"a"}, kFloatT),
       kBad,
       {"Enter \"x\"", "'frame_name'"}},

      // Ops.
      {"op that is gone",
       "versions { producer: 21 } " + node("x", "Old", {}),
       Code::kUnimplemented,
       {"Old \"x\"", "10", "21", "Use Identity."}},

      // Functions.
      {"function without a name", signature(""), kBad, {"function signature", "expected a name"}},
      {"function with the name of an op",
       signature("name: \"Add\""),
       kBad,
       {"\"Add\"", "name of its own", "op"}},
      {"two functions of a name",
       library(function_def("f", "", "x") + function_def("f", "", "x")),
       kBad,
       {"\"f\"", "one definition"}},
      {"argument without a name",
       signature("name: \"f\" input_arg { type: DT_FLOAT }"),
       kBad,
       {"\"f\"", "input", "expected a name"}},
      {"argument without a type",
       signature("name: \"f\" input_arg { name: \"x\" }"),
       kBad,
       {"\"f\"", "input \"x\"", "expected one of type", "found 0"}},
      {"argument with two types",
       signature("name: \"f\" input_arg { name: \"x\" type: DT_FLOAT type_attr: \"T\" } attr { "
                 "name: \"T\" "
                 "type: \"type\" }"),
       kBad,
       {"\"f\"", "input \"x\"", "expected one of type", "found 2"}},
      {"argument with a type of nobody",
       signature("name: \"f\" input_arg { name: \"x\" type: 77 }"),
       kBad,
       {"77"}},
      {"argument whose attribute is missing",
       signature("name: \"f\" input_arg { name: \"x\" type_attr: \"T\" }"),
       kBad,
       {"\"f\"", "input \"x\"", "\"T\"", "found none"}},
      {"argument whose attribute is no type",
       signature("name: \"f\" input_arg { name: \"x\" type_attr: \"T\" } attr { name: \"T\" type: "
                 "\"int\" }"),
       kBad,
       {"\"f\"", "input \"x\"", "expected type type", "found int"}},
      {"two arguments of a name",
       signature(
           "name: \"f\" input_arg { name: \"x\" type: DT_FLOAT } input_arg { name: \"x\" type: "
           "DT_FLOAT }"),
       kBad,
       {"\"f\"", "\"x\"", "twice"}},
      {"attribute of an unknown kind",
       signature("name: \"f\" attr { name: \"n\" type: \"number\" }"),
       kBad,
       {"\"f\"", "\"n\"", "expected a kind", "number"}},
      {"attribute there twice",
       signature(
           "name: \"f\" attr { name: \"n\" type: \"int\" } attr { name: \"n\" type: \"int\" }"),
       kBad,
       {"\"f\"", "\"n\"", "twice"}},
      {"default of another kind",
       signature("name: \"f\" attr { name: \"n\" type: \"int\" default_value { s: \"q\" } }"),
       kBad,
       {"\"f\"", "\"n\"", "expected int", "found string"}},
      {"result without a source",
       signature("name: \"f\" output_arg { name: \"y\" type: DT_FLOAT }"),
       kBad,
       {"\"f\"", "result \"y\"", "found none"}},
      {"result of nobody",
       function("f", "", "x", "ret { key: \"z\" value: \"x\" }"),
       kBad,
       {"\"f\"", "ret \"z\"", "expected an output"}},
      {"result from nowhere",
       function("f", "", "nope:z:0"),
       kBad,
       {"\"f\"", "result \"y\"", "nope"}},
      {"result from a control edge",
       function("f", "", "^x"),
       kBad,
       {"\"f\"", "result \"y\"", "control"}},
      {"control result from nowhere",
       function("f", "", "x", "control_ret { key: \"c\" value: \"nope\" }"),
       kBad,
       {"\"f\"", "control result \"c\"", "nope"}},
      {"body node without a name",
       function("f", body_node("", "NoOp", {}), "x"),
       kBad,
       {"\"f\"", "NoOp", "expected a name"}},
      {"body node without an op",
       function("f", body_node("n", "", {}), "x"),
       kBad,
       {"\"f\"", "\"n\"", "expected an op"}},
      {"two body nodes of a name",
       function("f", body_node("n", "NoOp", {}) + body_node("n", "NoOp", {}), "x"),
       kBad,
       {"\"f\"", "NoOp \"n\"", "name of its own"}},
      {"body node with the name of an argument",
       function("f", body_node("x", "NoOp", {}), "x"),
       kBad,
       {"\"f\"", "NoOp \"x\"", "name of its own"}},
      {"body input from nowhere",
       function("f", body_node("n", "Identity", {"nope"}, kFloatT), "n:output:0"),
       kBad,
       {"\"f\"", "Identity \"n\"", "input 0", "nope"}},
      {"body input in the form of graphs",
       function(
           "f",
           body_node("m", "Identity", {"x"}, kFloatT) + body_node("n", "Identity", {"m"}, kFloatT),
           "n:output:0"),
       kBad,
       {"\"f\"", "Identity \"n\"", "input 0 \"m\"", "node:output"}},
      {"body control input with an output",
       function("f", body_node("m", "NoOp", {}) + body_node("n", "NoOp", {"^m:0"}), "x"),
       kBad,
       {"\"f\"", "NoOp \"n\"", "^m:0", "control"}},
      {"body data after control",
       function("f", body_node("m", "NoOp", {}) + body_node("n", "Identity", {"^m", "x"}, kFloatT),
                "n:output:0"),
       kBad,
       {"\"f\"", "Identity \"n\"", "input 1 \"x\"", "control"}},
      {"attributes of an argument that is none",
       function("f", "", "x", "arg_attr { key: 1 value { } }"),
       kBad,
       {"\"f\"", "arg_attr 1", "below 1"}},
      {"attribute of an argument that is not free",
       function("f", "", "x", "arg_attr { key: 0 value { attr { key: \"q\" value { i: 1 } } } }"),
       kBad,
       {"\"f\"", "arg_attr 0", "\"q\""}},
      {"function calls itself",
       function("f", body_node("n", "f", {"x"}), "n:y:0"),
       kBad,
       {"\"f\"", "reaches itself", "f -> f"}},
      {"functions call each other",
       ring_of_functions(2),
       kBad,
       {"reaches itself", "f0 -> f1 -> f0"}},
      {"a long ring of functions", ring_of_functions(3000), kBad, {"reaches itself", "..."}},
      {"function reaches itself through an attribute",
       function("f",
                body_node("n", "PartitionedCall", {"x"},
                          attr("Tin", "list { type: DT_FLOAT }") +
                              attr("Tout", "list { type: DT_FLOAT }") +
                              attr("f", "func { name: \"f\" }")),
                "n:output:0"),
       kBad,
       {"\"f\"", "reaches itself"}},
      {"function reaches itself through a default",
       signature("name: \"f\" attr { name: \"g\" type: \"func\" default_value { func { name: \"f\" "
                 "} } }"),
       kBad,
       {"\"f\"", "reaches itself"}},
      {"gradient of no function",
       "library { gradient { function_name: \"f\" gradient_func: \"g\" } }",
       kBad,
       {"\"f\"", "expected a function"}},
      {"two gradients",
       library(function_def("f", "", "x") +
               "gradient { function_name: \"f\" gradient_func: \"g\" } "
               "gradient { function_name: \"f\" gradient_func: \"h\" }"),
       kBad,
       {"\"f\"", "one gradient"}},
      {"call of a function with too few inputs",
       function("f", "", "x") + node("n", "f", {}),
       kBad,
       {"f \"n\"", "expected 1 input", "found 0"}},
      {"call of a function with another type",
       function("f", "", "x") + node("n", "f", {"i"}),
       kBad,
       {"f \"n\"", "input 0 \"i\"", "expected float", "found int32"}},
      {"output of a call that is none",
       function("f", "", "x") + node("n", "f", {"a"}) + node("z", "Identity", {"n:1"}, kFloatT),
       kBad,
       {"Identity \"z\"", "f \"n\"", "below 1", "found 1"}},
  };
  return *rows;
}

ImportOptions options() {
  ImportOptions options;
  options.max_constant_bytes = 3'000'000;
  return options;
}

TEST(BrokenGraphs, PreludeIsGood) {
  Ref<Graph> graph = make_ref<Graph>(toy_registry());
  MR_CHECK_OK(import_graph_def_text(kPrelude, options(), *graph).status());
  EXPECT_EQ(graph->num_nodes(), 5);
}

TEST(BrokenGraphs, AreAHundred) { EXPECT_GE(rows().size(), 100u); }

TEST(BrokenGraphs, GiveAStatusAndLeaveTheGraph) {
  for (const Row& row : rows()) {
    SCOPED_TRACE(row.name);
    Ref<Graph> graph = make_ref<Graph>(toy_registry());
    const int version = graph->producer_version();
    Status status = import_graph_def_text(str_cat(kPrelude, row.text), options(), *graph).status();
    EXPECT_EQ(status.code(), row.code) << status.to_string().substr(0, 1000);
    for (std::string_view part : row.says) {
      EXPECT_NE(status.message().find(part), std::string_view::npos)
          << "no '" << part << "' in: " << status.message().substr(0, 1000);
    }
    EXPECT_LT(status.message().size(), 4000u);
    EXPECT_EQ(graph->num_nodes(), 0);
    EXPECT_TRUE(graph->functions().names().empty());
    EXPECT_EQ(graph->producer_version(), version);
  }
}

}  // namespace
}  // namespace millrace
