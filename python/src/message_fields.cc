#include <cstdint>
#include <limits>
#include <utility>

#include "python/src/message_view.h"

namespace millrace::python {

namespace {

using Field = pb::FieldDescriptor;

constexpr size_t kLongestValueShown = 60;

[[noreturn]] void raise_expected(const Field* field, const char* expected, nb::handle value) {
  raise_python(PyExc_TypeError, std::string(field->full_name()) + ": expected " + expected +
                                    ", got " + describe(value));
}

[[noreturn]] void raise_out_of_range(const Field* field, nb::handle value) {
  raise_python(PyExc_ValueError, std::string(field->full_name()) + ": " + describe(value) +
                                     " is out of the range of " + field->cpp_type_name());
}

template <class T>
T to_integer(const Field* field, nb::handle value) {
  nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    raise_expected(field, "an int", value);
  }
  if constexpr (std::is_same_v<T, uint64_t>) {
    const unsigned long long number = PyLong_AsUnsignedLongLong(index.ptr());
    if (number == static_cast<unsigned long long>(-1) && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      raise_out_of_range(field, value);
    }
    return number;
  } else {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
    if (overflow != 0 || number < static_cast<long long>(std::numeric_limits<T>::min()) ||
        number > static_cast<long long>(std::numeric_limits<T>::max())) {
      raise_out_of_range(field, value);
    }
    return static_cast<T>(number);
  }
}

double to_double(const Field* field, nb::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
      PyErr_Clear();
      raise_expected(field, "a float", value);
    }
    throw nb::python_error();
  }
  return number;
}

bool is_numpy_bool(nb::handle value) {
  const std::string name =
      nb::cast<std::string>(nb::str(nb::handle(value.type()).attr("__name__")));
  return (name == "bool_" || name == "bool") &&
         nb::cast<std::string>(nb::str(nb::handle(value.type()).attr("__module__"))) == "numpy";
}

bool to_bool(const Field* field, nb::handle value) {
  if (value.ptr() == Py_True) return true;
  if (value.ptr() == Py_False) return false;
  if (PyIndex_Check(value.ptr()) == 0 && !is_numpy_bool(value)) {
    raise_expected(field, "a bool", value);
  }
  const int truth = PyObject_IsTrue(value.ptr());
  if (truth < 0) throw nb::python_error();
  return truth != 0;
}

std::string to_string(const Field* field, nb::handle value) {
  const bool is_text = field->type() == Field::TYPE_STRING;
  if (PyBytes_Check(value.ptr())) {
    std::string bytes(PyBytes_AsString(value.ptr()),
                      static_cast<size_t>(PyBytes_Size(value.ptr())));
    if (is_text) {
      nb::object text = nb::steal(
          PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "strict"));
      if (!text.is_valid()) {
        PyErr_Clear();
        raise_python(PyExc_ValueError, std::string(field->full_name()) +
                                           ": expected text in UTF-8, got " + describe(value));
      }
    }
    return bytes;
  }
  if (!is_text) raise_expected(field, "bytes", value);
  if (!PyUnicode_Check(value.ptr())) raise_expected(field, "a str", value);
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) throw nb::python_error();
  return {text, static_cast<size_t>(size)};
}

int to_enum(const Field* field, nb::handle value) {
  if (PyUnicode_Check(value.ptr()) == 0) return to_integer<int32_t>(field, value);
  const auto name = nb::cast<std::string>(value);
  const pb::EnumValueDescriptor* known = field->enum_type()->FindValueByName(name);
  if (known == nullptr) {
    raise_python(PyExc_ValueError, std::string(field->full_name()) + ": enum " +
                                       std::string(field->enum_type()->full_name()) +
                                       " has no value " + describe(value));
  }
  return known->number();
}

nb::object text_or_bytes(const Field* field, const std::string& value) {
  const auto size = static_cast<Py_ssize_t>(value.size());
  PyObject* object = field->type() == Field::TYPE_BYTES
                         ? PyBytes_FromStringAndSize(value.data(), size)
                         : PyUnicode_DecodeUTF8(value.data(), size, "strict");
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

// The accessors of reflection for one C++ type of field, with its conversions.
#define MR_KIND(kind, CppType, Access, from_python, to_python)                     \
  struct kind {                                                                    \
    using Type = CppType;                                                          \
    static Type from(const Field* f, nb::handle value) { return from_python; }     \
    static nb::object to(const Field* f, const Type& value) {                      \
      static_cast<void>(f);                                                        \
      return to_python;                                                            \
    }                                                                              \
    static Type get(const pb::Message& m, const Field* f) {                        \
      return Type(m.GetReflection()->Get##Access(m, f));                           \
    }                                                                              \
    static Type get_at(const pb::Message& m, const Field* f, int i) {              \
      return Type(m.GetReflection()->GetRepeated##Access(m, f, i));                \
    }                                                                              \
    static void set(pb::Message& m, const Field* f, const Type& value) {           \
      m.GetReflection()->Set##Access(&m, f, value);                                \
    }                                                                              \
    static void set_at(pb::Message& m, const Field* f, int i, const Type& value) { \
      m.GetReflection()->SetRepeated##Access(&m, f, i, value);                     \
    }                                                                              \
    static void add(pb::Message& m, const Field* f, const Type& value) {           \
      m.GetReflection()->Add##Access(&m, f, value);                                \
    }                                                                              \
  }
MR_KIND(Int32, int32_t, Int32, to_integer<int32_t>(f, value), nb::steal(PyLong_FromLong(value)));
MR_KIND(Int64, int64_t, Int64, to_integer<int64_t>(f, value),
        nb::steal(PyLong_FromLongLong(value)));
MR_KIND(Uint32, uint32_t, UInt32, to_integer<uint32_t>(f, value),
        nb::steal(PyLong_FromUnsignedLong(value)));
MR_KIND(Uint64, uint64_t, UInt64, to_integer<uint64_t>(f, value),
        nb::steal(PyLong_FromUnsignedLongLong(value)));
MR_KIND(Float, float, Float, static_cast<float>(to_double(f, value)),
        nb::steal(PyFloat_FromDouble(static_cast<double>(value))));
MR_KIND(Double, double, Double, to_double(f, value), nb::steal(PyFloat_FromDouble(value)));
MR_KIND(Bool, bool, Bool, to_bool(f, value), nb::steal(PyBool_FromLong(value ? 1 : 0)));
MR_KIND(Enum, int32_t, EnumValue, to_enum(f, value), nb::steal(PyLong_FromLong(value)));
MR_KIND(String, std::string, String, to_string(f, value), text_or_bytes(f, value));
#undef MR_KIND

template <class Call>
auto with_kind(const Field* field, Call call) {
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      return call(Int32{});
    case Field::CPPTYPE_INT64:
      return call(Int64{});
    case Field::CPPTYPE_UINT32:
      return call(Uint32{});
    case Field::CPPTYPE_UINT64:
      return call(Uint64{});
    case Field::CPPTYPE_FLOAT:
      return call(Float{});
    case Field::CPPTYPE_DOUBLE:
      return call(Double{});
    case Field::CPPTYPE_BOOL:
      return call(Bool{});
    case Field::CPPTYPE_ENUM:
      return call(Enum{});
    case Field::CPPTYPE_STRING:
      return call(String{});
    case Field::CPPTYPE_MESSAGE:
      break;
  }
  raise_python(PyExc_TypeError, std::string(field->full_name()) + " is a message, not a scalar");
}

// Takes the message that a oneof holds out of it, before another member is set.
void release_oneof(pb::Message& message, const Field* field) {
  const pb::OneofDescriptor* oneof = field->containing_oneof();
  if (oneof == nullptr) return;
  const pb::Reflection* reflection = message.GetReflection();
  const Field* held = reflection->GetOneofFieldDescriptor(message, oneof);
  if (held != nullptr && held != field && is_message(held)) {
    reflection->UnsafeArenaReleaseMessage(&message, held);
  }
}

}  // namespace

std::string describe(nb::handle value) {
  nb::object repr = nb::steal(PyObject_Repr(value.ptr()));
  std::string text;
  if (repr.is_valid()) {
    text = nb::cast<std::string>(repr);
  } else {
    PyErr_Clear();
    text = "a value";
  }
  if (text.size() > kLongestValueShown) {
    // Back to the start of a character.
    size_t end = kLongestValueShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end) + "...";
  }
  return text + " (" + nb::cast<std::string>(nb::handle(value.type()).attr("__name__")) + ")";
}

void raise_python(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  throw nb::python_error();
}

Scalar scalar_from_python(const Field* field, nb::handle value) {
  return with_kind(field, [&]<class K>(K) { return Scalar(K::from(field, value)); });
}

nb::object scalar_to_python(const Field* field, const Scalar& value) {
  return with_kind(field,
                   [&]<class K>(K) { return K::to(field, std::get<typename K::Type>(value)); });
}

Scalar get_scalar(const pb::Message& message, const Field* field) {
  return with_kind(field, [&]<class K>(K) { return Scalar(K::get(message, field)); });
}

Scalar get_scalar_at(const pb::Message& message, const Field* field, int index) {
  return with_kind(field, [&]<class K>(K) { return Scalar(K::get_at(message, field, index)); });
}

void set_scalar(pb::Message& message, const Field* field, const Scalar& value) {
  release_oneof(message, field);
  with_kind(field, [&]<class K>(K) { K::set(message, field, std::get<typename K::Type>(value)); });
}

void set_scalar_at(pb::Message& message, const Field* field, int index, const Scalar& value) {
  with_kind(field, [&]<class K>(K) {
    K::set_at(message, field, index, std::get<typename K::Type>(value));
  });
}

void add_scalar(pb::Message& message, const Field* field, const Scalar& value) {
  with_kind(field, [&]<class K>(K) { K::add(message, field, std::get<typename K::Type>(value)); });
}

nb::object default_scalar(const Field* field) {
  const pb::Message* prototype =
      pb::MessageFactory::generated_factory()->GetPrototype(field->containing_type());
  return scalar_to_python(field, get_scalar(*prototype, field));
}

const Field* find_field(const pb::Descriptor* type, nb::handle name) {
  std::string text;
  if (PyBytes_Check(name.ptr())) {
    text.assign(PyBytes_AsString(name.ptr()), static_cast<size_t>(PyBytes_Size(name.ptr())));
  } else if (PyUnicode_Check(name.ptr())) {
    text = nb::cast<std::string>(name);
  } else {
    raise_python(PyExc_TypeError, "expected the name of a field, got " + describe(name));
  }
  const Field* field = type->FindFieldByName(text);
  if (field == nullptr) {
    raise_python(PyExc_ValueError,
                 "message " + std::string(type->full_name()) + " has no field \"" + text + "\"");
  }
  return field;
}

pb::Message* new_element(const pb::Message& holder, pb::Arena* arena, const Field* field,
                         nb::handle value) {
  const pb::Message* prototype =
      holder.GetReflection()->GetMessageFactory()->GetPrototype(field->message_type());
  pb::Message* element = prototype->New(arena);
  merge_value(*element, arena, value);
  return element;
}

void merge_field(pb::Message& message, pb::Arena* arena, const Field* field, nb::handle value) {
  if (value.is_none()) return;
  const pb::Reflection* reflection = message.GetReflection();
  if (field->is_map()) {
    merge_map(message, arena, field, value);
    return;
  }
  if (field->is_repeated()) {
    // A copy: what converts an element may be Python code that changes the list.
    nb::object values = nb::steal(PySequence_Tuple(value.ptr()));
    if (!values.is_valid()) {
      if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
      PyErr_Clear();
      raise_expected(field, "a list of values", value);
    }
    for (nb::handle item : nb::borrow<nb::tuple>(values)) {
      if (is_message(field)) {
        pb::Message* element = new_element(message, arena, field, item);
        reflection->UnsafeArenaAddAllocatedMessage(&message, field, element);
      } else {
        add_scalar(message, field, scalar_from_python(field, item));
      }
    }
  } else if (is_message(field)) {
    pb::Message* merged = new_element(message, arena, field, value);
    if (reflection->HasField(message, field)) {
      reflection->MutableMessage(&message, field)->MergeFrom(*merged);
    } else {
      release_oneof(message, field);
      reflection->UnsafeArenaSetAllocatedMessage(&message, merged, field);
    }
  } else {
    set_scalar(message, field, scalar_from_python(field, value));
  }
}

void merge_value(pb::Message& message, pb::Arena* arena, nb::handle value) {
  const pb::Descriptor* type = message.GetDescriptor();
  if (MessageView* view = view_of(value); view != nullptr) {
    if (view->type() != type) {
      raise_python(PyExc_TypeError, "expected a " + std::string(type->full_name()) + ", got a " +
                                        std::string(view->type()->full_name()));
    }
    message.MergeFrom(view->read());
    return;
  }
  if (!PyDict_Check(value.ptr())) {
    raise_python(PyExc_TypeError, "expected a " + std::string(type->full_name()) +
                                      " or a dict of its fields, got " + describe(value));
  }
  // Nested dicts are bounded as views are.
  static thread_local int depth = 0;
  if (depth > kDeepestNesting) {
    raise_python(PyExc_ValueError, "messages cannot be nested more than " +
                                       std::to_string(kDeepestNesting) + " levels deep");
  }
  struct Nesting {
    Nesting() { ++depth; }
    ~Nesting() { --depth; }
  } nesting;
  nb::object items = nb::steal(PyDict_Items(value.ptr()));
  for (nb::handle item : nb::borrow<nb::list>(items)) {
    merge_field(message, arena, find_field(type, item[0]), item[1]);
  }
}

void clear_field(pb::Message& message, const Field* field) {
  const pb::Reflection* reflection = message.GetReflection();
  if (!field->is_repeated()) {
    if (!is_message(field)) {
      reflection->ClearField(&message, field);
    } else if (reflection->HasField(message, field)) {
      reflection->UnsafeArenaReleaseMessage(&message, field);
    }
    return;
  }
  pb::Message* taken = message.New(message.GetArena());
  reflection->SwapFields(&message, taken, {field});
}

void merge_message(MessageView& to, MessageView& from) {
  if (to.type() != from.type()) {
    raise_python(PyExc_TypeError, "expected a " + std::string(to.type()->full_name()) + ", got a " +
                                      std::string(from.type()->full_name()));
  }
  if (to.home() != from.home()) {
    to.write().MergeFrom(from.read());
    return;
  }
  std::unique_ptr<pb::Message> copy(from.prototype->New());
  copy->MergeFrom(from.read());
  to.write().MergeFrom(*copy);
}

}  // namespace millrace::python
