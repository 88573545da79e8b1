#pragma once

#include <cstdint>
#include <string>

#include "millrace/graph/function.h"
#include "millrace/graph/op_def.h"
#include "millrace/graph/origin.h"

// Conversions that import, export and functions share. Inside graph/ only.

namespace google::protobuf {
template <class Key, class T>
class Map;
class MessageLite;
}  // namespace google::protobuf

namespace tensorflow {
class AttrValue;
class OpDef;
}  // namespace tensorflow

namespace millrace {

// How deep functions may stand in the attributes of functions.
inline constexpr int kMaxAttrDepth = 32;

// Where an exported node keeps its origin: [file, line, function, code].
inline constexpr std::string_view kOriginAttr = "_mr_origin";

// What an import may still allocate beyond the bytes it was given: a few bytes may stand for a
// large constant ("last value repeats") or for many outputs (a number attribute).
struct ImportBudget {
  int64_t constant_bytes = int64_t{2} << 30;
  int64_t outputs = int64_t{1} << 20;
};

using AttrProtoMap = google::protobuf::Map<std::string, tensorflow::AttrValue>;

// As attr_from_proto() of graph_def.h; constants are charged to `budget`, RESOURCE_EXHAUSTED when
// it is spent.
Result<AttrValue> attr_from_proto(const tensorflow::AttrValue& proto, ImportBudget& budget);
// All attributes of a node or function. The message names the attribute.
Result<AttrMap> attrs_from_proto(const AttrProtoMap& protos, ImportBudget& budget);
Status attrs_to_proto(const AttrMap& attrs, AttrProtoMap& protos);

Result<OpDef> op_def_from_proto(const tensorflow::OpDef& proto, ImportBudget& budget);
Result<Ref<Function>> function_from_proto(const tensorflow::FunctionDef& proto,
                                          ImportBudget& budget);

// As the functions without "write", but what cannot be written is an error.
Status write_op_def(const OpDef& op, tensorflow::OpDef& proto);
Status write_function_def(const Function& function, tensorflow::FunctionDef& proto);

// The same bytes for equal messages of one build.
std::string deterministic_bytes(const google::protobuf::MessageLite& message);

// Takes kOriginAttr out of `attrs`; 0 when it is not there. INVALID_ARGUMENT when it is malformed.
Result<OriginId> take_origin(AttrMap& attrs);
void put_origin(OriginId origin, AttrMap& attrs);

// The number of attribute values that stand inside functions of `value`, or -1 past `limit` values
// or past kMaxAttrDepth.
int64_t nested_values(const AttrValue& value, int64_t limit);
// Whether a placeholder stands in `value`, at any depth. `value` must be within kMaxAttrDepth.
bool has_placeholder(const AttrValue& value);

}  // namespace millrace
