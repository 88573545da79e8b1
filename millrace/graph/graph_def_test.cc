#include "millrace/graph/graph_def.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "millrace/graph/function.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/graph/toy_ops.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/attr_value.pb.h"
#include "proto/graph.pb.h"
#include "proto/meta_graph.pb.h"
#include "proto/op_def.pb.h"

namespace millrace {
namespace {

constexpr std::string_view kConst = R"(
node { name: "a" op: "Const" attr { key: "dtype" value { type: DT_FLOAT } }
  attr { key: "value" value { tensor { dtype: DT_FLOAT tensor_shape { dim { size: 2 } } float_val: 1 } } } })";

// A loop over a [2]: m is what enters or comes back, b the body's result.
constexpr std::string_view kLoop = R"(
node { name: "n" op: "NextIteration" input: "b" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "m" op: "Merge" input: "e" input: "n" attr { key: "T" value { type: DT_FLOAT } }
  attr { key: "N" value { i: 2 } } }
node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_BOOL } }
  attr { key: "shape" value { shape {} } } }
node { name: "c" op: "LoopCond" input: "p" }
node { name: "s" op: "Switch" input: "m" input: "c" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "b" op: "Add" input: "s:1" input: "s:1" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "x" op: "Exit" input: "s" attr { key: "T" value { type: DT_FLOAT } } }
node { name: "e" op: "Enter" input: "a" attr { key: "T" value { type: DT_FLOAT } }
  attr { key: "frame_name" value { s: "f" } } })";

std::string identity(std::string_view name, std::string_view input, std::string_view more = "") {
  return str_cat("node { name: \"", name, "\" op: \"Identity\" input: \"", input,
                 "\" attr { key: \"T\" value { type: DT_FLOAT } } ", more, " }\n");
}

void expect_ok(const Status& status) { EXPECT_TRUE(status.ok()) << status.to_string(); }

class GraphDefTest : public ::testing::Test {
 protected:
  Result<ImportResult> import(std::string_view text, const ImportOptions& options = {}) {
    return import_graph_def_text(text, options, *graph_);
  }
  const Node& node(std::string_view name) { return graph_->node(graph_->lookup(name).value()); }

  // What another graph becomes by way of bytes.
  Ref<Graph> round_trip() {
    Ref<Graph> copy = make_ref<Graph>(toy_registry());
    std::string bytes = export_graph_def_bytes(*graph_).value();
    Status status = import_graph_def_bytes(bytes, {}, *copy).status();
    EXPECT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(export_graph_def_bytes(*copy).value(), bytes);
    return copy;
  }

  Ref<Graph> graph_ = make_ref<Graph>(toy_registry());
};

TEST_F(GraphDefTest, NodesStandInAnyOrder) {
  expect_ok(import(identity("y", "x:0") + identity("x", "a") + std::string(kConst)).status());
  EXPECT_EQ(graph_->num_nodes(), 3);
  EXPECT_EQ(node("y").input(0), (Output{node("x").id(), 0}));
  EXPECT_EQ(node("y").output_shape(0), (PartialShape{2}));
}

TEST_F(GraphDefTest, AnOrderThatServesIsKept) {
  expect_ok(import(std::string(kConst) + identity("y", "a") + identity("x", "a")).status());
  EXPECT_EQ(node("a").id(), 0);
  EXPECT_EQ(node("y").id(), 1);
  EXPECT_EQ(node("x").id(), 2);
}

TEST_F(GraphDefTest, ExportWritesTheFormatsNames) {
  expect_ok(import(std::string(kConst) + std::string(kLoop) + identity("z", "s:0", "input: \"^a\""))
                .status());
  tensorflow::GraphDef def;
  expect_ok(export_graph_def(*graph_, def));
  const auto& z = def.node(node("z").id());
  ASSERT_EQ(z.input_size(), 2);
  EXPECT_EQ(z.input(0), "s");
  EXPECT_EQ(z.input(1), "^a");
  EXPECT_EQ(def.node(node("b").id()).input(0), "s:1");
  EXPECT_EQ(def.versions().min_consumer(), 0);
  // Defaults are written out.
  EXPECT_EQ(def.node(node("e").id()).attr().at("parallel_iterations").i(), 10);
}

TEST_F(GraphDefTest, LoopsComeBack) {
  expect_ok(import(std::string(kConst) + std::string(kLoop)).status());
  EXPECT_EQ(node("m").input(1), (Output{node("n").id(), 0}));
  EXPECT_GT(node("n").id(), node("m").id());
  Ref<Graph> copy = round_trip();
  EXPECT_EQ(copy->node(copy->find("m")).input(1), (Output{copy->find("n"), 0}));
}

TEST_F(GraphDefTest, AShapeThatEntersALoopIsNotTakenForAllIterations) {
  expect_ok(import(std::string(kConst) + std::string(kLoop)).status());
  EXPECT_EQ(node("e").output_shape(0), (PartialShape{2}));
  EXPECT_FALSE(node("m").output_shape(0).rank_known());
  EXPECT_FALSE(node("b").output_shape(0).rank_known());
}

TEST_F(GraphDefTest, UnknownOpsAreKeptAndListedOnce) {
  Result<ImportResult> result =
      import(std::string(kConst) +
             "node { name: \"u\" op: \"Mystery\" input: \"a\" attr { key: \"k\" value { i: 3 } } }"
             "node { name: \"w\" op: \"Mystery\" input: \"u:1\" input: \"^a\" }"
             "node { name: \"r\" op: \"Riddle\" }" +
             identity("x", "u:2"));
  expect_ok(result.status());
  EXPECT_EQ(result->unknown_ops, (std::vector<std::string>{"Mystery", "Riddle"}));
  ASSERT_EQ(node("u").num_outputs(), 3);
  EXPECT_EQ(node("u").output_type(1), DType::kInvalid);
  EXPECT_EQ(node("u").output_type(2), DType::kFloat);
  EXPECT_EQ(node("u").op_name(), "Mystery");
  EXPECT_EQ(node("u").attr<int64_t>("k").value(), 3);
  EXPECT_EQ(round_trip()->num_nodes(), 5);
}

TEST_F(GraphDefTest, AnUnknownOpGivesAReferenceWhereOneIsNeeded) {
  expect_ok(
      import(
          std::string(kConst) + "node { name: \"u\" op: \"Mystery\" }" + identity("x", "u") +
          "node { name: \"w\" op: \"Assign\" input: \"u\" input: \"a\" attr { key: \"T\" value { "
          "type: DT_FLOAT } } }")
          .status());
  EXPECT_EQ(node("u").output_type(0), ref_type(DType::kFloat));
}

TEST_F(GraphDefTest, AttributesOfEveryKindComeBack) {
  expect_ok(import(R"(node { name: "o" op: "Options"
    attr { key: "i" value { i: 4 } } attr { key: "f" value { f: nan } } attr { key: "b" value { b: true } }
    attr { key: "s" value { s: "VALID" } } attr { key: "shape" value { shape { dim { size: -1 } } } }
    attr { key: "ints" value { list { i: [1, -2] } } } attr { key: "floats" value { list { f: 0.5 } } }
    attr { key: "bools" value { list { b: [true, false] } } }
    attr { key: "strings" value { list { s: ["", "\377\000"] } } }
    attr { key: "types" value { list { type: [DT_HALF, DT_FLOAT] } } }
    attr { key: "shapes" value { list { shape { unknown_rank: true } shape {} } } }
    attr { key: "_tensors" value { list { tensor { dtype: DT_STRING tensor_shape {} string_val: "q" } } } }
    attr { key: "_f" value { func { name: "g" attr { key: "n" value { list {} } } } } }
    attr { key: "_fs" value { list { func { name: "g" } func { name: "h" } } } } })")
                .status());
  EXPECT_EQ(node("o").attr<std::vector<bool>>("bools").value(), (std::vector<bool>{true, false}));
  EXPECT_EQ(node("o").attr<std::vector<int64_t>>("two").value(), (std::vector<int64_t>{1, 2}));
  Ref<Graph> copy = round_trip();
  EXPECT_EQ(copy->node(0).attrs(), node("o").attrs());
}

TEST_F(GraphDefTest, TypesNewerThanWeAreKeptWhereNothingUsesThem) {
  tensorflow::GraphDef def;
  auto& proto = *def.add_node();
  proto.set_name("x");
  proto.set_op("NoOp");
  (*proto.mutable_attr())["_type"].set_type(static_cast<tensorflow::DataType>(90));
  expect_ok(import_graph_def(def, {}, *graph_).status());
  EXPECT_EQ(node("x").attr<DType>("_type").value(), static_cast<DType>(90));
  round_trip();

  proto.set_name("y");
  proto.set_op("Placeholder");
  (*proto.mutable_attr())["dtype"].set_type(static_cast<tensorflow::DataType>(90));
  Status status = import_graph_def(def, {}, *graph_).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("dtype(90)"), std::string_view::npos) << status.to_string();
}

TEST_F(GraphDefTest, OriginsTravel) {
  NodeSpec spec = {.name = "x", .op = "NoOp"};
  spec.origin = intern_origin({"train.py", 14, "main", "h = f(x)"});
  expect_ok(graph_->add(std::move(spec)).status());
  Ref<Graph> copy = round_trip();
  EXPECT_EQ(origin_of(copy->node(0).origin()), (Origin{"train.py", 14, "main", "h = f(x)"}));
  EXPECT_EQ(copy->node(0).attrs().find("_mr_origin"), nullptr);
}

TEST_F(GraphDefTest, VersionsAreKept) {
  expect_ok(import("versions { producer: 21 } node { name: \"x\" op: \"NoOp\" }").status());
  EXPECT_EQ(graph_->producer_version(), 21);
  // The older of two: what the first graph may use stays usable.
  expect_ok(import("versions { producer: 100 } node { name: \"y\" op: \"NoOp\" }").status());
  EXPECT_EQ(graph_->producer_version(), 21);
  expect_ok(import("versions { producer: 5 } node { name: \"z\" op: \"Old\" }").status());
  EXPECT_EQ(graph_->producer_version(), 5);
}

TEST_F(GraphDefTest, ProducersNewerThanWeAreRead) {
  expect_ok(import("versions { producer: 999999 min_consumer: 12 }").status());
}

TEST_F(GraphDefTest, PrefixRenamesNodesAndColocation) {
  ImportOptions options;
  options.prefix = "p";
  options.default_device = "/cpu:1";
  expect_ok(
      import(
          std::string(kConst) +
              identity("x", "a",
                       "attr { key: \"_class\" value { list { s: [\"loc:@a\", \"loc:@zz\"] } } }"),
          options)
          .status());
  EXPECT_EQ(node("p/x").input(0).node, node("p/a").id());
  EXPECT_EQ(node("p/x").device(), "/cpu:1");
  EXPECT_EQ(node("p/x").attr<std::vector<std::string>>("_class").value(),
            (std::vector<std::string>{"loc:@p/a", "loc:@zz"}));
}

TEST_F(GraphDefTest, TakenNamesAreRefusedOrMadeUnique) {
  expect_ok(import(kConst).status());
  Status status = import(kConst).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("Const \"a\""), std::string_view::npos);
  ImportOptions options;
  options.uniquify_names = true;
  options.return_outputs = {"x"};
  Result<ImportResult> result =
      import(std::string(kConst) + identity("x", "a") + identity("a_1", "x"), options);
  expect_ok(result.status());
  EXPECT_EQ(result->outputs[0], (Output{node("x").id(), 0}));
  EXPECT_EQ(node("x").input(0).node, node("a_2").id());
}

TEST_F(GraphDefTest, InputsAreReplacedByTensorsOfTheGraph) {
  expect_ok(import(kConst).status());
  ImportOptions options;
  options.prefix = "p";
  options.input_map = {{"in", {node("a").id(), 0}}};
  options.return_outputs = {"x", "in:0"};
  Result<ImportResult> result = import(identity("x", "in:0"), options);
  expect_ok(result.status());
  EXPECT_EQ(node("p/x").input(0).node, node("a").id());
  EXPECT_EQ(node("p/x").output_shape(0), (PartialShape{2}));
  EXPECT_EQ(result->outputs, (std::vector<Output>{{node("p/x").id(), 0}, {node("a").id(), 0}}));

  options.prefix = "q";
  options.input_map.push_back({"misspelt", {node("a").id(), 0}});
  Status status = import(identity("x", "in:0"), options).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("misspelt"), std::string_view::npos);
}

TEST_F(GraphDefTest, OptionsAreChecked) {
  const int count = graph_->num_nodes();
  for (int which = 0; which < 6; ++which) {
    ImportOptions options;
    if (which == 0) options.prefix = "a b";
    if (which == 1) options.input_map = {{"a", {7, 0}}};
    if (which == 2) options.input_map = {{"^a", {0, 0}}};
    if (which == 3) options.control_dependencies = {12};
    if (which == 4) options.return_outputs = {"a:3"};
    if (which == 5) options.return_outputs = {"nope"};
    EXPECT_EQ(import(kConst, options).status().code(), Code::kInvalidArgument) << which;
  }
  EXPECT_EQ(graph_->num_nodes(), count);
}

TEST_F(GraphDefTest, ControlDependenciesReachTheFirstNodes) {
  expect_ok(import("node { name: \"first\" op: \"NoOp\" }").status());
  ImportOptions options;
  options.control_dependencies = {node("first").id()};
  expect_ok(import(std::string(kConst) + identity("x", "a"), options).status());
  ASSERT_EQ(node("a").control_inputs().size(), 1u);
  EXPECT_EQ(node("a").control_inputs()[0], node("first").id());
  EXPECT_TRUE(node("x").control_inputs().empty());
}

TEST_F(GraphDefTest, InternalNamesNeedLeave) {
  ImportOptions options;
  options.allow_internal_names = true;
  expect_ok(import("node { name: \"_x\" op: \"NoOp\" }", options).status());
  EXPECT_EQ(import("node { name: \"_y\" op: \"NoOp\" }").status().code(), Code::kInvalidArgument);
}

TEST_F(GraphDefTest, PartsOfAGraphAreExportedAndExtendAnother) {
  expect_ok(import(std::string(kConst) + identity("x", "a") + identity("y", "x")).status());
  Ref<Graph> copy = make_ref<Graph>(toy_registry());
  expect_ok(
      import_graph_def_bytes(export_graph_def_bytes(*graph_, 0, 2).value(), {}, *copy).status());
  expect_ok(import_graph_def_bytes(export_graph_def_bytes(*graph_, 2).value(), {}, *copy).status());
  EXPECT_EQ(export_graph_def_bytes(*copy).value(), export_graph_def_bytes(*graph_).value());
  EXPECT_EQ(export_graph_def_bytes(*graph_, 2, 1).status().code(), Code::kOutOfRange);
}

TEST_F(GraphDefTest, AFailedImportLeavesAFullGraph) {
  expect_ok(import(kConst).status());
  std::string before = export_graph_def_bytes(*graph_).value();
  // The last node is wrong; the function and the nodes before it are not.
  Status status =
      import(
          "versions { producer: 3 } library { function { signature { name: \"f\" } } }" +
          identity("x", "a") +
          "node { name: \"y\" op: \"MatMul\" input: \"x\" input: \"x\" attr { key: \"T\" value { "
          "type: DT_FLOAT } } }")
          .status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_EQ(export_graph_def_bytes(*graph_).value(), before);
}

TEST_F(GraphDefTest, BytesThatAreNoGraph) {
  std::string bytes = "\x0a\xff\xff\xff\xff\x0f garbage";
  EXPECT_EQ(import_graph_def_bytes(bytes, {}, *graph_).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(import_graph_def_bytes("\x0a\x03\x0a\x01\xff", {}, *graph_).status().code(),
            Code::kInvalidArgument);  // a name that is no UTF-8
  expect_ok(import_graph_def_bytes("", {}, *graph_).status());
}

TEST_F(GraphDefTest, LongChainsUseNoStack) {
  std::string text(kConst);
  for (int i = 20000; i > 0; --i) {
    text += identity(str_cat("n", i), i == 1 ? "a" : str_cat("n", i - 1));
  }
  expect_ok(import(text).status());
  EXPECT_EQ(node("n20000").output_shape(0), (PartialShape{2}));
}

TEST_F(GraphDefTest, NestedAttributesUpToTheLimit) {
  AttrValue value = 1;
  for (int i = 0; i < 32; ++i) value = FunctionAttr{"f", {{"n", value}}};
  tensorflow::AttrValue proto;
  expect_ok(attr_to_proto(value, proto));
  EXPECT_EQ(attr_from_proto(proto).value(), value);
  EXPECT_EQ(attr_to_proto(FunctionAttr{"f", {{"n", value}}}, proto).code(), Code::kInvalidArgument);
}

TEST_F(GraphDefTest, LargeTensorsOfOneValueAreWrittenAsThatValue) {
  const auto size = [](const AttrValue& value) {
    tensorflow::AttrValue proto;
    expect_ok(attr_to_proto(value, proto));
    EXPECT_EQ(attr_from_proto(proto).value(), value);
    return proto.ByteSizeLong();
  };
  for (int i = 1; i < kNumDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!type_set_of<PlainTypes>.contains(dtype)) continue;
    Tensor tensor = Tensor::allocate(dtype, Shape{16, 65, 3}).value();
    std::memset(tensor.mutable_raw(), 1, tensor.bytes());
    EXPECT_LT(size(tensor), 64u) << dtype_name(dtype);
    EXPECT_LT(size(std::vector<TensorAttr>{{tensor}, {tensor}}), 128u);
    static_cast<char*>(tensor.mutable_raw())[tensor.bytes() - 1] = 0;
    EXPECT_GT(size(tensor), tensor.bytes());
  }
  Tensor zeros = Tensor::allocate(DType::kFloat, Shape{257}).value();
  std::ranges::fill(zeros.mutable_data<float>(), -0.0f);
  tensorflow::AttrValue proto;
  expect_ok(attr_to_proto(zeros, proto));
  EXPECT_TRUE(std::signbit(tensor_from_proto(proto.tensor())->data<float>()[256]));
}

TEST_F(GraphDefTest, OpDefinitionsComeBack) {
  for (const OpDef* op : toy_registry().list()) {
    tensorflow::OpDef proto, again;
    op_def_to_proto(*op, proto);
    Result<OpDef> read = op_def_from_proto(proto);
    ASSERT_TRUE(read.ok()) << read.status().to_string();
    op_def_to_proto(*read, again);
    EXPECT_EQ(proto.SerializeAsString(), again.SerializeAsString()) << op->name;
    EXPECT_EQ(read->doc, op->doc);
  }
}

TEST_F(GraphDefTest, MetaGraphListsItsOps) {
  expect_ok(
      import(std::string(kConst) + identity("x", "a") + "node { name: \"u\" op: \"Mystery\" }")
          .status());
  tensorflow::MetaGraphDef meta;
  expect_ok(export_meta_graph(*graph_, meta));
  const auto& ops = meta.meta_info_def().stripped_op_list();
  ASSERT_EQ(ops.op_size(), 2);
  EXPECT_EQ(ops.op(0).name(), "Const");
  EXPECT_EQ(ops.op(1).name(), "Identity");
  Ref<Graph> copy = make_ref<Graph>(toy_registry());
  expect_ok(import_meta_graph(meta, {}, *copy).status());
  EXPECT_EQ(export_graph_def_bytes(*copy).value(), export_graph_def_bytes(*graph_).value());
}

TEST_F(GraphDefTest, MetaGraphDefaultsAreTheProducers) {
  auto add_attr = [](tensorflow::OpDef& op, std::string_view name, int64_t value) {
    auto& attr = *op.add_attr();
    attr.set_name(std::string(name));
    attr.set_type("int");
    attr.mutable_default_value()->set_i(value);
  };
  tensorflow::MetaGraphDef meta;
  auto& op = *meta.mutable_meta_info_def()->mutable_stripped_op_list()->add_op();
  op.set_name("Options");
  add_attr(op, "i", 7);
  add_attr(op, "newer", 1);
  auto& node_def = *meta.mutable_graph_def()->add_node();
  node_def.set_name("o");
  node_def.set_op("Options");
  (*node_def.mutable_attr())["newer"].set_i(1);
  expect_ok(import_meta_graph(meta, {}, *graph_).status());
  EXPECT_EQ(node("o").attr<int64_t>("i").value(), 7);
  EXPECT_EQ(node("o").attrs().find("newer"), nullptr);

  // Another value than the default means something that we cannot do.
  node_def.set_name("q");
  (*node_def.mutable_attr())["newer"].set_i(2);
  Status status = import_meta_graph(meta, {}, *graph_).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("newer"), std::string_view::npos);
}

}  // namespace
}  // namespace millrace
