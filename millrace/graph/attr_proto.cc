#include <algorithm>
#include <charconv>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "millrace/graph/graph_def.h"
#include "millrace/graph/message_conversion.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/attr_value.pb.h"

namespace millrace {
namespace {

using AttrProto = tensorflow::AttrValue;

// Names and codes are text that other programs made; past this an origin is not worth keeping.
constexpr size_t kMaxOriginText = 4096;

Result<AttrValue> read_value(const AttrProto& proto, ImportBudget& budget, int depth);

Status charge_tensor(const tensorflow::TensorProto& proto, ImportBudget& budget) {
  int64_t bytes = static_cast<int64_t>(dtype_size(base_type(static_cast<DType>(proto.dtype()))));
  for (const auto& dim : proto.tensor_shape().dim()) {
    // What cannot be a shape is refused with a better message when the tensor is read.
    if (dim.size() < 0 || __builtin_mul_overflow(bytes, dim.size(), &bytes)) return ok_status();
  }
  int64_t beyond = bytes - static_cast<int64_t>(proto.ByteSizeLong());
  if (beyond <= 0) return ok_status();
  if (beyond > budget.constant_bytes) {
    return resource_exhausted("a constant of ", bytes, " bytes: expected at most ",
                              budget.constant_bytes, " bytes more than the message holds");
  }
  budget.constant_bytes -= beyond;
  return ok_status();
}

Result<Tensor> read_tensor(const tensorflow::TensorProto& proto, ImportBudget& budget) {
  MR_TRY(charge_tensor(proto, budget));
  return tensor_from_proto(proto);
}

Result<AttrMap> read_map(const AttrProtoMap& protos, ImportBudget& budget, int depth) {
  // In name order, because AttrMap appends cheaply and inserts slowly.
  std::vector<std::pair<std::string_view, const AttrProto*>> sorted;
  sorted.reserve(protos.size());
  for (const auto& [name, value] : protos) sorted.emplace_back(name, &value);
  std::sort(sorted.begin(), sorted.end());
  AttrMap attrs;
  for (const auto& [name, proto] : sorted) {
    if (name.empty()) return invalid_argument("attribute with an empty name");
    Result<AttrValue> value = read_value(*proto, budget, depth);
    if (!value.ok()) return value.status().with_prefix(str_cat("attribute \"", name, "\""));
    attrs.set(name, *std::move(value));
  }
  return attrs;
}

Result<FunctionAttr> read_function(const tensorflow::NameAttrList& proto, ImportBudget& budget,
                                   int depth) {
  if (depth >= kMaxAttrDepth) {
    return invalid_argument("functions nested in attributes: expected at most ", kMaxAttrDepth,
                            " levels, found more");
  }
  MR_TRY_ASSIGN(AttrMap attrs, read_map(proto.attr(), budget, depth + 1));
  return FunctionAttr{proto.name(), std::move(attrs)};
}

Result<AttrValue> read_list(const AttrProto::ListValue& list, ImportBudget& budget, int depth) {
  int kinds = (list.s_size() > 0) + (list.i_size() > 0) + (list.f_size() > 0) +
              (list.b_size() > 0) + (list.type_size() > 0) + (list.shape_size() > 0) +
              (list.tensor_size() > 0) + (list.func_size() > 0);
  if (kinds > 1) {
    return invalid_argument("a list: expected elements of one kind, found ", kinds, " kinds");
  }
  if (list.s_size() > 0) return std::vector<std::string>(list.s().begin(), list.s().end());
  if (list.i_size() > 0) return std::vector<int64_t>(list.i().begin(), list.i().end());
  if (list.f_size() > 0) return std::vector<float>(list.f().begin(), list.f().end());
  if (list.b_size() > 0) return std::vector<bool>(list.b().begin(), list.b().end());
  if (list.type_size() > 0) {
    std::vector<DType> types;
    for (int type : list.type()) types.push_back(static_cast<DType>(type));
    return types;
  }
  if (list.shape_size() > 0) {
    std::vector<PartialShape> shapes;
    for (const auto& proto : list.shape()) {
      MR_TRY_ASSIGN(shapes.emplace_back(), shape_from_proto(proto));
    }
    return shapes;
  }
  if (list.tensor_size() > 0) {
    std::vector<TensorAttr> tensors;
    for (const auto& proto : list.tensor()) {
      MR_TRY_ASSIGN(tensors.emplace_back().tensor, read_tensor(proto, budget));
    }
    return tensors;
  }
  if (list.func_size() > 0) {
    std::vector<FunctionAttr> functions;
    for (const auto& proto : list.func()) {
      MR_TRY_ASSIGN(functions.emplace_back(), read_function(proto, budget, depth));
    }
    return functions;
  }
  return EmptyList{};
}

Result<AttrValue> read_value(const AttrProto& proto, ImportBudget& budget, int depth) {
  switch (proto.value_case()) {
    case AttrProto::kS:
      return proto.s();
    case AttrProto::kI:
      return int64_t{proto.i()};
    case AttrProto::kF:
      return proto.f();
    case AttrProto::kB:
      return proto.b();
    case AttrProto::kType:
      return static_cast<DType>(proto.type());
    case AttrProto::kShape: {
      MR_TRY_ASSIGN(PartialShape shape, shape_from_proto(proto.shape()));
      return shape;
    }
    case AttrProto::kTensor: {
      MR_TRY_ASSIGN(Tensor tensor, read_tensor(proto.tensor(), budget));
      return tensor;
    }
    case AttrProto::kPlaceholder:
      return AttrPlaceholder{proto.placeholder()};
    case AttrProto::kFunc: {
      MR_TRY_ASSIGN(FunctionAttr function, read_function(proto.func(), budget, depth));
      return function;
    }
    case AttrProto::kList:
      return read_list(proto.list(), budget, depth);
    case AttrProto::VALUE_NOT_SET:
      break;
  }
  return invalid_argument("expected a value, found none");
}

Status write_map(const AttrMap& attrs, AttrProtoMap& protos, int depth);

Status write_function(const FunctionAttr& function, tensorflow::NameAttrList& proto, int depth) {
  if (depth >= kMaxAttrDepth) {
    return invalid_argument("functions nested in attributes: expected at most ", kMaxAttrDepth,
                            " levels, found more");
  }
  proto.set_name(function.name);
  return write_map(function.attrs, *proto.mutable_attr(), depth + 1);
}

// Writes one alternative of AttrValue::Storage.
// Past this many bytes a tensor is written short where it can be.
constexpr size_t kShortTensorBytes = 1024;

bool all_alike(const Tensor& tensor) {
  const size_t size = dtype_size(tensor.dtype());
  const char* bytes = static_cast<const char*>(tensor.raw());
  return std::memcmp(bytes, bytes + size, tensor.bytes() - size) == 0;
}

// Large tensors of one value repeated are written as that value, which every reader repeats.
Status write_tensor(const Tensor& tensor, tensorflow::TensorProto& proto) {
  const bool on_host = !tensor.buffer() || tensor.buffer()->space() != MemorySpace::kDevice;
  if (!on_host || !is_plain(tensor.dtype()) || tensor.bytes() <= kShortTensorBytes ||
      !all_alike(tensor)) {
    return tensor_to_proto(tensor, proto);
  }
  MR_TRY_ASSIGN(Tensor one, Tensor::allocate(tensor.dtype(), Shape{1}));
  std::memcpy(one.mutable_raw(), tensor.raw(), dtype_size(tensor.dtype()));
  MR_TRY(tensor_to_proto(one, proto, TensorEncoding::kTypedField));
  shape_to_proto(tensor.shape(), *proto.mutable_tensor_shape());
  return ok_status();
}

struct Writer {
  AttrProto& proto;
  int depth;

  Status operator()(std::monostate) { return ok_status(); }
  Status operator()(int64_t v) { return proto.set_i(v), ok_status(); }
  Status operator()(float v) { return proto.set_f(v), ok_status(); }
  Status operator()(bool v) { return proto.set_b(v), ok_status(); }
  Status operator()(const std::string& v) { return proto.set_s(v), ok_status(); }
  Status operator()(DType v) { return proto.set_type(wire(v)), ok_status(); }
  Status operator()(const PartialShape& v) {
    shape_to_proto(v, *proto.mutable_shape());
    return ok_status();
  }
  Status operator()(const TensorAttr& v) { return write_tensor(v.tensor, *proto.mutable_tensor()); }
  Status operator()(const FunctionAttr& v) {
    return write_function(v, *proto.mutable_func(), depth);
  }
  Status operator()(const AttrPlaceholder& v) { return proto.set_placeholder(v.name), ok_status(); }
  Status operator()(EmptyList) { return list(), ok_status(); }
  Status operator()(const std::vector<int64_t>& v) {
    for (int64_t x : v) list().add_i(x);
    return operator()(EmptyList{});
  }
  Status operator()(const std::vector<float>& v) {
    for (float x : v) list().add_f(x);
    return operator()(EmptyList{});
  }
  Status operator()(const std::vector<bool>& v) {
    for (bool x : v) list().add_b(x);
    return operator()(EmptyList{});
  }
  Status operator()(const std::vector<std::string>& v) {
    for (const std::string& x : v) list().add_s(x);
    return operator()(EmptyList{});
  }
  Status operator()(const std::vector<DType>& v) {
    for (DType x : v) list().add_type(wire(x));
    return operator()(EmptyList{});
  }
  Status operator()(const std::vector<PartialShape>& v) {
    for (const PartialShape& x : v) shape_to_proto(x, *list().add_shape());
    return operator()(EmptyList{});
  }
  Status operator()(const std::vector<TensorAttr>& v) {
    for (const TensorAttr& x : v) MR_TRY(write_tensor(x.tensor, *list().add_tensor()));
    return operator()(EmptyList{});
  }
  Status operator()(const std::vector<FunctionAttr>& v) {
    for (const FunctionAttr& x : v) MR_TRY(write_function(x, *list().add_func(), depth));
    return operator()(EmptyList{});
  }

  AttrProto::ListValue& list() { return *proto.mutable_list(); }
  static tensorflow::DataType wire(DType v) { return static_cast<tensorflow::DataType>(v); }
};

Status write_map(const AttrMap& attrs, AttrProtoMap& protos, int depth) {
  for (const auto& [name, value] : attrs) {
    Status status = std::visit(Writer{protos[name], depth}, value.storage());
    if (!status.ok()) return status.with_prefix(str_cat("attribute \"", name, "\""));
  }
  return ok_status();
}

// The functions directly in `value`.
std::span<const FunctionAttr> functions_in(const AttrValue& value) {
  if (const auto* function = value.get<FunctionAttr>()) return {function, 1};
  if (const auto* list = value.get<std::vector<FunctionAttr>>()) return *list;
  return {};
}

// False when `left` values or the depth are exceeded.
bool count_values(const AttrValue& value, int depth, int64_t& left) {
  for (const FunctionAttr& function : functions_in(value)) {
    if (depth >= kMaxAttrDepth) return false;
    left -= 1 + static_cast<int64_t>(function.attrs.size());
    if (left < 0) return false;
    for (const auto& [name, nested] : function.attrs) {
      if (!count_values(nested, depth + 1, left)) return false;
    }
  }
  return true;
}

}  // namespace

Result<AttrValue> attr_from_proto(const AttrProto& proto, ImportBudget& budget) {
  return read_value(proto, budget, 0);
}

Result<AttrValue> attr_from_proto(const AttrProto& proto) {
  ImportBudget budget;
  return read_value(proto, budget, 0);
}

Result<AttrMap> attrs_from_proto(const AttrProtoMap& protos, ImportBudget& budget) {
  return read_map(protos, budget, 0);
}

Status attr_to_proto(const AttrValue& value, AttrProto& proto) {
  proto.Clear();
  return std::visit(Writer{proto, 0}, value.storage());
}

Status attrs_to_proto(const AttrMap& attrs, AttrProtoMap& protos) {
  return write_map(attrs, protos, 0);
}

Result<OriginId> take_origin(AttrMap& attrs) {
  const AttrValue* value = attrs.find(kOriginAttr);
  if (value == nullptr) return OriginId{0};
  const auto* parts = value->get<std::vector<std::string>>();
  Origin origin;
  bool good = parts != nullptr && parts->size() == 4;
  if (good) {
    const std::string& line = (*parts)[1];
    auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), origin.line);
    good = error == std::errc() && end == line.data() + line.size();
  }
  if (!good) {
    return invalid_argument("attribute \"", kOriginAttr,
                            "\": expected [file, line, function, code], found ", *value);
  }
  origin.file = (*parts)[0];
  origin.function = (*parts)[2];
  origin.code = (*parts)[3];
  attrs.erase(kOriginAttr);
  if (origin.file.size() + origin.function.size() + origin.code.size() > kMaxOriginText) {
    return OriginId{0};
  }
  return intern_origin(origin);
}

void put_origin(OriginId id, AttrMap& attrs) {
  if (id == 0) return;
  const Origin& origin = origin_of(id);
  attrs.set(kOriginAttr, std::vector<std::string>{origin.file, str_cat(origin.line),
                                                  origin.function, origin.code});
}

int64_t nested_values(const AttrValue& value, int64_t limit) {
  int64_t left = limit;
  return count_values(value, 0, left) ? limit - left : -1;
}

bool has_placeholder(const AttrValue& value) {
  if (value.get<AttrPlaceholder>() != nullptr) return true;
  for (const FunctionAttr& function : functions_in(value)) {
    for (const auto& [name, nested] : function.attrs) {
      if (has_placeholder(nested)) return true;
    }
  }
  return false;
}

}  // namespace millrace
