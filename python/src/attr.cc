#include <nanobind/stl/string.h>

#include "millrace/graph/graph_def.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/attr_value.pb.h"
#include "proto/tensor.pb.h"
#include "proto/tensor_shape.pb.h"
#include "python/src/array.h"
#include "python/src/graph.h"
#include "python/src/message.h"
#include "python/src/status.h"

// Attributes between Python and graphs.

namespace millrace::python {

namespace {

[[noreturn]] void raise_kind(std::string_view op, std::string_view name, const char* expected,
                             nb::handle value) {
  PyErr_Format(PyExc_TypeError, "%s: expected %s for argument '%s', got %R of type '%s'.",
               std::string(op).c_str(), expected, std::string(name).c_str(), value.ptr(),
               Py_TYPE(value.ptr())->tp_name);
  throw nb::python_error();
}

struct Reader {
  std::string_view op;
  std::string_view name;

  int64_t integer(nb::handle value) const {
    if (PyBool_Check(value.ptr()) || PyFloat_Check(value.ptr())) {
      // A float that is a whole number is a number of the user's arithmetic.
      if (!PyFloat_Check(value.ptr()) ||
          PyFloat_AS_DOUBLE(value.ptr()) !=
              static_cast<double>(static_cast<int64_t>(PyFloat_AS_DOUBLE(value.ptr())))) {
        raise_kind(op, name, "int", value);
      }
      return static_cast<int64_t>(PyFloat_AS_DOUBLE(value.ptr()));
    }
    nb::object index = nb::steal(PyNumber_Index(value.ptr()));
    if (!index.is_valid()) {
      PyErr_Clear();
      nb::object inner = nb::getattr(value, "value", nb::none());  // a Dimension
      if (inner.is_none() || !PyLong_Check(inner.ptr())) raise_kind(op, name, "int", value);
      index = inner;
    }
    const long long number = PyLong_AsLongLong(index.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
    return number;
  }
  float real(nb::handle value) const {
    const double number = PyFloat_AsDouble(value.ptr());
    if (number == -1 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      raise_kind(op, name, "float", value);
    }
    return static_cast<float>(number);
  }
  bool boolean(nb::handle value) const {
    if (PyBool_Check(value.ptr()) || PyLong_Check(value.ptr()) ||
        PyObject_IsInstance(value.ptr(), library("numpy", "bool_").ptr()) == 1) {
      return PyObject_IsTrue(value.ptr()) == 1;
    }
    raise_kind(op, name, "bool", value);
  }
  std::string text(nb::handle value) const {
    if (PyUnicode_Check(value.ptr())) return nb::cast<std::string>(value);
    if (PyBytes_Check(value.ptr())) {
      return {PyBytes_AS_STRING(value.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(value.ptr()))};
    }
    raise_kind(op, name, "string", value);
  }
  DType type(nb::handle value) const {
    try {
      return base_type(dtype_from_object(value));
    } catch (nb::python_error&) {
      raise_kind(op, name, "DataType", value);
    }
  }
  Tensor tensor(nb::handle value) const {
    if (const google::protobuf::Message* message = message_from_python(value)) {
      tensorflow::TensorProto proto;
      if (message->GetDescriptor() != proto.GetDescriptor()) {
        raise_kind(op, name, "TensorProto", value);
      }
      proto.CopyFrom(*message);
      return unwrap_value(tensor_from_proto(proto));
    }
    return tensor_from_array(value, DType::kInvalid, Sharing::kCopy);
  }
  FunctionAttr function(nb::handle value) const {
    if (PyUnicode_Check(value.ptr())) return {nb::cast<std::string>(value), {}};
    if (const google::protobuf::Message* message = message_from_python(value)) {
      tensorflow::AttrValue proto;
      if (message->GetDescriptor() != proto.func().GetDescriptor()) {
        raise_kind(op, name, "NameAttrList", value);
      }
      proto.mutable_func()->CopyFrom(*message);
      return *unwrap_value(attr_from_proto(proto)).get<FunctionAttr>();
    }
    if (nb::hasattr(value, "add_to_graph"))
      value.attr("add_to_graph")(Context::here().default_graph().python());
    if (!nb::hasattr(value, "name")) raise_kind(op, name, "function", value);
    return {nb::cast<std::string>(value.attr("name")), {}};
  }

  template <class T, class F>
  std::vector<T> list(nb::handle value, F element) const {
    if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) ||
        !nb::iterable::check_(value)) {
      raise_kind(op, name, "list", value);
    }
    std::vector<T> out;
    for (nb::handle e : value) out.push_back(element(e));
    return out;
  }

  AttrValue read(std::string_view type_name, nb::handle v) const {
    if (type_name == "int") return integer(v);
    if (type_name == "float") return real(v);
    if (type_name == "bool") return boolean(v);
    if (type_name == "string") return text(v);
    if (type_name == "type") return type(v);
    if (type_name == "shape") return shape_from_python(v);
    if (type_name == "tensor") return tensor(v);
    if (type_name == "func") return function(v);
    const auto each = [this](auto method) {
      return [this, method](nb::handle e) { return (this->*method)(e); };
    };
    if (type_name == "list(int)") return list<int64_t>(v, each(&Reader::integer));
    if (type_name == "list(float)") return list<float>(v, each(&Reader::real));
    if (type_name == "list(bool)") return list<bool>(v, each(&Reader::boolean));
    if (type_name == "list(string)") return list<std::string>(v, each(&Reader::text));
    if (type_name == "list(type)") return list<DType>(v, each(&Reader::type));
    if (type_name == "list(shape)") {
      return list<PartialShape>(v, [](nb::handle e) { return shape_from_python(e); });
    }
    if (type_name == "list(tensor)") {
      return list<TensorAttr>(v, [this](nb::handle e) { return TensorAttr{tensor(e)}; });
    }
    if (type_name == "list(func)") return list<FunctionAttr>(v, each(&Reader::function));
    raise_value_error(internal(op, ": attr '", name, "' has the unknown kind ", type_name));
  }
};

nb::object proto_of(const AttrValue& value,
                    const google::protobuf::Message& (*part)(const tensorflow::AttrValue&)) {
  tensorflow::AttrValue proto;
  check(attr_to_proto(value, proto));
  const google::protobuf::Message& message = part(proto);
  std::unique_ptr<google::protobuf::Message> copy(message.New());
  copy->CopyFrom(message);
  return message_to_python(std::move(copy));
}

struct Writer {
  nb::object operator()(const std::monostate&) const { return nb::none(); }
  nb::object operator()(int64_t v) const { return nb::int_(v); }
  nb::object operator()(float v) const { return nb::float_(v); }
  nb::object operator()(bool v) const { return nb::bool_(v); }
  nb::object operator()(const std::string& v) const { return nb::bytes(v.data(), v.size()); }
  nb::object operator()(DType v) const { return nb::borrow(dtype_object(v)); }
  nb::object operator()(const PartialShape& v) const {
    return proto_of(v, [](const tensorflow::AttrValue& p) -> const google::protobuf::Message& {
      return p.shape();
    });
  }
  nb::object operator()(const TensorAttr& v) const {
    return proto_of(AttrValue(v.tensor),
                    [](const tensorflow::AttrValue& p) -> const google::protobuf::Message& {
                      return p.tensor();
                    });
  }
  nb::object operator()(const FunctionAttr& v) const {
    return proto_of(v, [](const tensorflow::AttrValue& p) -> const google::protobuf::Message& {
      return p.func();
    });
  }
  nb::object operator()(const AttrPlaceholder& v) const { return nb::str(v.name.c_str()); }
  nb::object operator()(const EmptyList&) const { return nb::list(); }
  template <class T>
  nb::object operator()(const std::vector<T>& v) const {
    nb::list out;
    for (const T& e : v) out.append((*this)(e));
    return out;
  }
  nb::object operator()(const std::vector<bool>& v) const {
    nb::list out;
    for (const bool e : v) out.append(nb::bool_(e));
    return out;
  }
};

}  // namespace

namespace {

// The kind of an attribute that no definition has.
std::string kind_of_one(nb::handle value) {
  if (PyBool_Check(value.ptr())) return "bool";
  if (PyLong_Check(value.ptr())) return "int";
  return PyFloat_Check(value.ptr()) ? "float" : "string";
}
std::string kind_of(nb::handle value) {
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) return kind_of_one(value);
  if (nb::len(value) == 0) return "list(string)";
  return str_cat("list(", kind_of_one(value[nb::int_(0)]), ")");
}

}  // namespace

AttrValue attr_from_python(std::string_view op, const OpDef* def, const std::string& name,
                           nb::handle value) {
  const AttrDef* attr = def != nullptr ? def->find_attr(name) : nullptr;
  if (attr != nullptr) return attr_from_python(op, *attr, value);
  return attr_from_python(op, AttrDef{.name = name, .type = kind_of(value)}, value);
}

AttrValue attr_from_python(std::string_view op, const AttrDef& def, nb::handle value) {
  return Reader{op, def.name}.read(def.type, value);
}

nb::object attr_to_python(const AttrValue& value) { return std::visit(Writer(), value.storage()); }

nb::object shape_tuple(const PartialShape& shape) {
  if (!shape.rank_known()) return nb::none();
  PyObject* tuple = PyTuple_New(shape.rank());
  for (int i = 0; i < shape.rank(); ++i) {
    PyObject* size = shape.dim_known(i) ? PyLong_FromLongLong(shape.dim(i)) : Py_NewRef(Py_None);
    PyTuple_SET_ITEM(tuple, i, size);
  }
  return nb::steal(tuple);
}

PartialShape shape_from_python(nb::handle shape) {
  nb::object dims = library("millrace.core.shapes", "as_dims")(shape);
  if (dims.is_none()) return PartialShape::unknown();
  std::vector<int64_t> sizes;
  for (nb::handle size : dims) {
    sizes.push_back(size.is_none() ? PartialShape::kUnknownDim : nb::cast<int64_t>(size));
  }
  return unwrap_value(PartialShape::make(sizes));
}

}  // namespace millrace::python
