#include <google/protobuf/map_field.h>
#include <google/protobuf/reflection.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "python/src/message_view.h"

// The part of reflection for map fields that protobuf keeps for language bindings.
namespace google::protobuf::python {

class MapReflectionFriend {
 public:
  static bool insert_or_lookup(Message& m, const FieldDescriptor* f, const MapKey& key,
                               MapValueRef* value) {
    return m.GetReflection()->InsertOrLookupMapValue(&m, f, key, value);
  }
  static bool lookup(const Message& m, const FieldDescriptor* f, const MapKey& key,
                     MapValueConstRef* value) {
    return m.GetReflection()->LookupMapValue(m, f, key, value);
  }
  static bool erase(Message& m, const FieldDescriptor* f, const MapKey& key) {
    return m.GetReflection()->DeleteMapValue(&m, f, key);
  }
  static int size(const Message& m, const FieldDescriptor* f) {
    return m.GetReflection()->MapSize(m, f);
  }
  static MapIterator begin(Message& m, const FieldDescriptor* f) {
    return m.GetReflection()->MapBegin(&m, f);
  }
  static MapIterator end(Message& m, const FieldDescriptor* f) {
    return m.GetReflection()->MapEnd(&m, f);
  }
};

}  // namespace google::protobuf::python

namespace millrace::python {

namespace {

using Field = pb::FieldDescriptor;
using Maps = pb::python::MapReflectionFriend;

// A repeated field of the message that `owner` is a view of.
struct RepeatedView {
  MessageView& view() const { return checked_view(owner); }
  int size() const {
    const pb::Message& message = view().read();
    return message.GetReflection()->FieldSize(message, field);
  }

  nb::object owner;
  const Field* field;
};
struct ScalarsView : RepeatedView {};
struct MessagesView : RepeatedView {};

// A map field of the message that `owner` is a view of.
struct MapView {
  MessageView& view() const { return checked_view(owner); }
  const Field* key() const { return field->message_type()->map_key(); }
  const Field* value() const { return field->message_type()->map_value(); }

  nb::object owner;
  const Field* field;
};
struct ScalarMapView : MapView {};
struct MessageMapView : MapView {};

// Messages made for a container while Python code may run. Once they are made, target() gives the
// message to put them in, unless that code has moved it to another arena.
class Insertion {
 public:
  explicit Insertion(MessageView& view) : view_(view), arena_(view.home()) {}

  pb::Arena* arena() const { return arena_.get(); }
  pb::Message& target() const {
    if (view_.home() != arena_) {
      raise_python(PyExc_RuntimeError, "the message was parsed or cleared while it was added to");
    }
    return view_.write();
  }

 private:
  MessageView& view_;
  std::shared_ptr<pb::Arena> arena_;
};

// Repeated fields.

nb::object item_at(const RepeatedView& self, int index) {
  MessageView& view = self.view();
  const pb::Message& message = view.read();
  if (!is_message(self.field)) {
    return scalar_to_python(self.field, get_scalar_at(message, self.field, index));
  }
  pb::Message* element =
      message.GetReflection()->MutableRepeatedMessage(&view.write(), self.field, index);
  return object_of_element(view, element);
}

nb::list to_list(const RepeatedView& self) {
  nb::list list;
  for (int i = 0; i < self.size(); ++i) list.append(item_at(self, i));
  return list;
}

nb::object tuple_of(nb::handle values) {
  nb::object tuple = nb::steal(PySequence_Tuple(values.ptr()));
  if (!tuple.is_valid()) throw nb::python_error();
  return tuple;
}

void append(const RepeatedView& self, nb::handle value) {
  if (self.size() == std::numeric_limits<int>::max()) {
    raise_python(PyExc_ValueError, std::string(self.field->full_name()) + " is full");
  }
  if (!is_message(self.field)) {
    const Scalar scalar = scalar_from_python(self.field, value);
    add_scalar(self.view().write(), self.field, scalar);
    return;
  }
  const Insertion insertion(self.view());
  pb::Message* element = new_element(*self.view().prototype, insertion.arena(), self.field, value);
  pb::Message& message = insertion.target();
  message.GetReflection()->UnsafeArenaAddAllocatedMessage(&message, self.field, element);
}

void extend(const RepeatedView& self, nb::handle values) {
  const nb::object items = tuple_of(values);
  self.view().write();
  for (nb::handle item : nb::borrow<nb::tuple>(items)) append(self, item);
}

nb::object add(const MessagesView& self, const nb::kwargs& fields) {
  append(self, fields);
  return item_at(self, self.size() - 1);
}

// A Python index as one of this list. Raises IndexError.
int index_of(const RepeatedView& self, nb::handle index) {
  Py_ssize_t i = PyNumber_AsSsize_t(index.ptr(), PyExc_IndexError);
  if (i == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  const int size = self.size();
  if (i < 0) i += size;
  if (i < 0 || i >= size) throw nb::index_error("list index out of range");
  return static_cast<int>(i);
}

struct Slice {
  Py_ssize_t start, stop, step, count;
};

Slice slice_of(const RepeatedView& self, nb::handle slice) {
  Slice result{};
  if (PySlice_Unpack(slice.ptr(), &result.start, &result.stop, &result.step) < 0) {
    throw nb::python_error();
  }
  result.count = PySlice_AdjustIndices(self.size(), &result.start, &result.stop, result.step);
  return result;
}

nb::object get_item(const RepeatedView& self, nb::handle index) {
  if (!PySlice_Check(index.ptr())) return item_at(self, index_of(self, index));
  const nb::object all = to_list(self);
  return all[index];
}

// Removes the elements whose indices, in ascending order, are given. Messages stay with their
// views.
void erase(const RepeatedView& self, const std::vector<int>& indices) {
  pb::Message& message = self.view().write();
  if (indices.empty()) return;
  const pb::Reflection* reflection = message.GetReflection();
  const int size = self.size();
  int to = indices.front();
  size_t next = 0;
  for (int from = to; from < size; ++from) {
    if (next < indices.size() && indices[next] == from) {
      ++next;
    } else {
      reflection->SwapElements(&message, self.field, to++, from);
    }
  }
  for (int i = to; i < size; ++i) {
    if (is_message(self.field)) {
      reflection->UnsafeArenaReleaseLast(&message, self.field);
    } else {
      reflection->RemoveLast(&message, self.field);
    }
  }
}

void delete_item(const RepeatedView& self, nb::handle index) {
  std::vector<int> indices;
  if (PySlice_Check(index.ptr())) {
    const Slice slice = slice_of(self, index);
    for (Py_ssize_t i = 0; i < slice.count; ++i) {
      indices.push_back(static_cast<int>(slice.start + i * slice.step));
    }
    std::sort(indices.begin(), indices.end());
  } else {
    indices.push_back(index_of(self, index));
  }
  erase(self, indices);
}

nb::object pop(const RepeatedView& self, nb::handle index) {
  const int i = index_of(self, index);
  nb::object value = item_at(self, i);
  erase(self, {i});
  return value;
}

void insert(const RepeatedView& self, Py_ssize_t index, nb::handle value) {
  append(self, value);
  const int last = self.size() - 1;
  if (index < 0) index += last;
  const int at = static_cast<int>(std::clamp<Py_ssize_t>(index, 0, last));
  pb::Message& message = self.view().write();
  for (int i = last; i > at; --i) {
    message.GetReflection()->SwapElements(&message, self.field, i, i - 1);
  }
}

nb::object find(const RepeatedView& self, nb::handle value) {
  return to_list(self).attr("index")(value);
}

void reverse(const RepeatedView& self) {
  pb::Message& message = self.view().write();
  for (int i = 0, j = self.size() - 1; i < j; ++i, --j) {
    message.GetReflection()->SwapElements(&message, self.field, i, j);
  }
}

// Puts the elements into the order of `values`, which holds them all.
void reorder(const MessagesView& self, const nb::list& values) {
  std::vector<pb::Message*> order;
  for (nb::handle value : values) order.push_back(&checked_view(value).write());
  pb::Message& message = self.view().write();
  const pb::Reflection* reflection = message.GetReflection();
  std::vector<pb::Message*> present;
  for (int i = 0; i < self.size(); ++i) {
    present.push_back(reflection->MutableRepeatedMessage(&message, self.field, i));
  }
  if (!std::is_permutation(present.begin(), present.end(), order.begin(), order.end())) {
    raise_python(PyExc_ValueError, "list modified during sort");
  }
  for (size_t i = 0; i < present.size(); ++i) {
    reflection->UnsafeArenaReleaseLast(&message, self.field);
  }
  for (pb::Message* element : order) {
    reflection->UnsafeArenaAddAllocatedMessage(&message, self.field, element);
  }
}

// Replaces all elements by `values`, or none when one of them is refused.
void assign(const ScalarsView& self, const nb::list& values) {
  std::vector<Scalar> scalars;
  for (nb::handle value : values) scalars.push_back(scalar_from_python(self.field, value));
  pb::Message& message = self.view().write();
  clear_field(message, self.field);
  for (const Scalar& scalar : scalars) add_scalar(message, self.field, scalar);
}

void set_item(const ScalarsView& self, nb::handle index, nb::handle value) {
  if (PySlice_Check(index.ptr())) {
    nb::list list = to_list(self);
    if (PyObject_SetItem(list.ptr(), index.ptr(), tuple_of(value).ptr()) < 0) {
      throw nb::python_error();
    }
    assign(self, list);
    return;
  }
  const Scalar scalar = scalar_from_python(self.field, value);
  const int i = index_of(self, index);
  set_scalar_at(self.view().write(), self.field, i, scalar);
}

nb::list sorted(const RepeatedView& self, const nb::kwargs& how) {
  nb::list list = to_list(self);
  list.attr("sort")(**how);
  return list;
}

nb::object equal(const RepeatedView& self, nb::handle other) {
  const RepeatedView* view = nullptr;
  nb::object right;
  if (nb::try_cast(other, view) && view != nullptr) {
    right = to_list(*view);
  } else if (PyList_Check(other.ptr())) {
    right = nb::borrow(other);
  } else {
    return nb::borrow(Py_NotImplemented);
  }
  return nb::bool_(to_list(self).equal(right));
}

void bind_repeated(nb::module_& m, nb::handle abc) {
  nb::class_<RepeatedView> base(m, "RepeatedField", "A repeated field of a message, list-like.");
  base.def("__len__", &RepeatedView::size)
      .def("__getitem__", &get_item)
      .def("__delitem__", &delete_item)
      .def("__iter__", [](nb::handle self) { return nb::steal(PySeqIter_New(self.ptr())); })
      .def("__contains__",
           [](const RepeatedView& self, nb::handle value) {
             return nb::cast<bool>(to_list(self).attr("__contains__")(value));
           })
      .def("__eq__", &equal, nb::arg().none())
      .def("__repr__", [](const RepeatedView& self) { return nb::repr(to_list(self)); })
      .def("__copy__", &to_list)
      .def("__deepcopy__",
           [](const RepeatedView& self, nb::handle memo) {
             return nb::module_::import_("copy").attr("deepcopy")(to_list(self), memo);
           })
      .def("__reduce__",
           [](const RepeatedView& self) {
             return nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(&PyList_Type)),
                                   nb::make_tuple(to_list(self)));
           })
      .def("append", &append, nb::arg("value").none())
      .def("extend", &extend, nb::arg("values").none())
      .def("MergeFrom", &extend, nb::arg("other").none())
      .def("__iadd__",
           [](nb::object self, nb::handle values) {
             extend(nb::cast<const RepeatedView&>(self), values);
             return self;
           })
      .def("insert", &insert, nb::arg("index"), nb::arg("value").none())
      .def("pop", &pop, nb::arg("index") = -1)
      .def(
          "remove",
          [](const RepeatedView& self, nb::handle value) { delete_item(self, find(self, value)); },
          nb::arg("value").none())
      .def("index", &find, nb::arg("value").none())
      .def(
          "count",
          [](const RepeatedView& self, nb::handle value) {
            return to_list(self).attr("count")(value);
          },
          nb::arg("value").none())
      .def("reverse", &reverse)
      .def("clear", [](const RepeatedView& self) { clear_field(self.view().write(), self.field); });
  base.attr("__hash__") = nb::none();
  nb::class_<ScalarsView, RepeatedView>(m, "RepeatedScalarField")
      .def("__setitem__", &set_item, nb::arg(), nb::arg().none())
      .def("sort",
           [](const ScalarsView& self, const nb::kwargs& how) { assign(self, sorted(self, how)); });
  nb::class_<MessagesView, RepeatedView>(m, "RepeatedMessageField")
      .def("add", &add, "Appends a message made of the fields and returns it.")
      .def("__setitem__",
           [](const MessagesView& self, nb::handle, nb::handle) {
             raise_python(PyExc_TypeError,
                          std::string(self.field->full_name()) +
                              ": elements cannot be assigned; use field[i].CopyFrom(value)");
           })
      .def("sort", [](const MessagesView& self, const nb::kwargs& how) {
        reorder(self, sorted(self, how));
      });
  abc.attr("MutableSequence").attr("register")(base);
}

// Maps.

pb::MapKey map_key(const Field* field, nb::handle value) {
  const Scalar scalar = scalar_from_python(field, value);
  pb::MapKey key;
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      key.SetInt32Value(std::get<int32_t>(scalar));
      break;
    case Field::CPPTYPE_INT64:
      key.SetInt64Value(std::get<int64_t>(scalar));
      break;
    case Field::CPPTYPE_UINT32:
      key.SetUInt32Value(std::get<uint32_t>(scalar));
      break;
    case Field::CPPTYPE_UINT64:
      key.SetUInt64Value(std::get<uint64_t>(scalar));
      break;
    case Field::CPPTYPE_BOOL:
      key.SetBoolValue(std::get<bool>(scalar));
      break;
    default:
      key.SetStringValue(std::get<std::string>(scalar));
  }
  return key;
}

nb::object key_to_python(const Field* field, const pb::MapKey& key) {
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      return scalar_to_python(field, key.GetInt32Value());
    case Field::CPPTYPE_INT64:
      return scalar_to_python(field, key.GetInt64Value());
    case Field::CPPTYPE_UINT32:
      return scalar_to_python(field, key.GetUInt32Value());
    case Field::CPPTYPE_UINT64:
      return scalar_to_python(field, key.GetUInt64Value());
    case Field::CPPTYPE_BOOL:
      return scalar_to_python(field, key.GetBoolValue());
    default:
      return scalar_to_python(field, key.GetStringValue());
  }
}

Scalar map_scalar(const Field* field, const pb::MapValueConstRef& value) {
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      return value.GetInt32Value();
    case Field::CPPTYPE_INT64:
      return value.GetInt64Value();
    case Field::CPPTYPE_UINT32:
      return value.GetUInt32Value();
    case Field::CPPTYPE_UINT64:
      return value.GetUInt64Value();
    case Field::CPPTYPE_FLOAT:
      return value.GetFloatValue();
    case Field::CPPTYPE_DOUBLE:
      return value.GetDoubleValue();
    case Field::CPPTYPE_BOOL:
      return value.GetBoolValue();
    case Field::CPPTYPE_ENUM:
      return static_cast<int32_t>(value.GetEnumValue());
    default:
      return value.GetStringValue();
  }
}

void set_map_scalar(const Field* field, pb::MapValueRef& value, const Scalar& scalar) {
  switch (field->cpp_type()) {
    case Field::CPPTYPE_INT32:
      value.SetInt32Value(std::get<int32_t>(scalar));
      break;
    case Field::CPPTYPE_INT64:
      value.SetInt64Value(std::get<int64_t>(scalar));
      break;
    case Field::CPPTYPE_UINT32:
      value.SetUInt32Value(std::get<uint32_t>(scalar));
      break;
    case Field::CPPTYPE_UINT64:
      value.SetUInt64Value(std::get<uint64_t>(scalar));
      break;
    case Field::CPPTYPE_FLOAT:
      value.SetFloatValue(std::get<float>(scalar));
      break;
    case Field::CPPTYPE_DOUBLE:
      value.SetDoubleValue(std::get<double>(scalar));
      break;
    case Field::CPPTYPE_BOOL:
      value.SetBoolValue(std::get<bool>(scalar));
      break;
    case Field::CPPTYPE_ENUM:
      value.SetEnumValue(std::get<int32_t>(scalar));
      break;
    default:
      value.SetStringValue(std::get<std::string>(scalar));
  }
}

// `fresh` lies on the arena of the message; what the value was before stays with its views.
void set_map_message(pb::Message& message, const Field* field, const pb::MapKey& key,
                     pb::Message* fresh) {
  pb::MapValueRef value;
  Maps::insert_or_lookup(message, field, key, &value);
  fresh->GetReflection()->Swap(value.MutableMessageValue(), fresh);
}

// An entry's nested levels on the wire: the entry itself and its value.
constexpr int kMapLevels = 2;

nb::object value_to_python(const MapView& self, const pb::MapValueConstRef& value) {
  if (!is_message(self.value())) {
    return scalar_to_python(self.value(), map_scalar(self.value(), value));
  }
  // Views are how Python changes the value; the map lies on an arena of ours and is not constant.
  auto* message = const_cast<pb::Message*>(&value.GetMessageValue());
  return object_of_element(self.view(), message, kMapLevels);
}

int map_size(const MapView& self) { return Maps::size(self.view().read(), self.field); }

bool has_key(const MapView& self, nb::handle key) {
  const pb::MapKey wanted = map_key(self.key(), key);
  pb::MapValueConstRef value;
  return Maps::lookup(self.view().read(), self.field, wanted, &value);
}

// The value of a key, or nothing.
nb::object look_up(const MapView& self, nb::handle key) {
  const pb::MapKey wanted = map_key(self.key(), key);
  pb::MapValueConstRef value;
  if (!Maps::lookup(self.view().read(), self.field, wanted, &value)) return {};
  return value_to_python(self, value);
}

// A key that is not there comes to be, with the default value.
nb::object get_or_create(const MapView& self, nb::handle key) {
  const pb::MapKey wanted = map_key(self.key(), key);
  pb::MapValueRef value;
  Maps::insert_or_lookup(self.view().write(), self.field, wanted, &value);
  return value_to_python(self, value);
}

nb::object get(const MapView& self, nb::handle key, nb::object otherwise) {
  nb::object value = look_up(self, key);
  return value.is_valid() ? value : std::move(otherwise);
}

void set_entry(const ScalarMapView& self, nb::handle key, nb::handle value) {
  const pb::MapKey wanted = map_key(self.key(), key);
  const Scalar scalar = scalar_from_python(self.value(), value);
  pb::MapValueRef to;
  Maps::insert_or_lookup(self.view().write(), self.field, wanted, &to);
  set_map_scalar(self.value(), to, scalar);
}

void delete_entry(const MapView& self, nb::handle key) {
  const pb::MapKey wanted = map_key(self.key(), key);
  if (!Maps::erase(self.view().write(), self.field, wanted)) {
    PyErr_SetObject(PyExc_KeyError, key.ptr());
    throw nb::python_error();
  }
}

// All entries, in the order of the keys.
nb::dict to_dict(const MapView& self) {
  nb::dict dict;
  if (map_size(self) == 0) return dict;
  std::vector<pb::MapKey> keys;
  {
    pb::Message& message = self.view().write();
    const pb::MapIterator end = Maps::end(message, self.field);
    for (pb::MapIterator i = Maps::begin(message, self.field); i != end; ++i) {
      keys.push_back(i.GetKey());
    }
  }
  std::sort(keys.begin(), keys.end());
  for (const pb::MapKey& key : keys) {
    const nb::object python_key = key_to_python(self.key(), key);
    pb::MapValueConstRef value;
    if (Maps::lookup(self.view().read(), self.field, key, &value)) {
      dict[python_key] = value_to_python(self, value);
    }
  }
  return dict;
}

// Pairs of a mapping.
nb::object items_of(nb::handle mapping) {
  nb::object items = nb::steal(PyMapping_Items(mapping.ptr()));
  if (items.is_valid()) return items;
  PyErr_Clear();
  raise_python(PyExc_TypeError, "expected a mapping, got " + describe(mapping));
}

void update_scalars(const ScalarMapView& self, nb::handle mapping) {
  const nb::object items = items_of(mapping);
  for (nb::handle item : nb::borrow<nb::list>(items)) set_entry(self, item[0], item[1]);
}

void update_messages(const MessageMapView& self, nb::handle mapping) {
  const nb::object items = items_of(mapping);
  for (nb::handle item : nb::borrow<nb::list>(items)) {
    const pb::MapKey key = map_key(self.key(), item[0]);
    const Insertion insertion(self.view());
    pb::Message* element =
        new_element(*self.view().prototype, insertion.arena(), self.value(), item[1]);
    set_map_message(insertion.target(), self.field, key, element);
  }
}

nb::object pop_entry(const MapView& self, nb::handle key, const nb::args& otherwise) {
  nb::object value = look_up(self, key);
  if (!value.is_valid() && otherwise.size() > 0) return nb::borrow(otherwise[0]);
  delete_entry(self, key);
  return value;
}

nb::object equal_maps(const MapView& self, nb::handle other) {
  const MapView* view = nullptr;
  nb::object right;
  if (nb::try_cast(other, view) && view != nullptr) {
    right = to_dict(*view);
  } else if (PyDict_Check(other.ptr())) {
    right = nb::borrow(other);
  } else {
    return nb::borrow(Py_NotImplemented);
  }
  return nb::bool_(to_dict(self).equal(right));
}

void bind_maps(nb::module_& m, nb::handle abc) {
  nb::class_<MapView> base(m, "MapField",
                           "A map field of a message, dict-like; keys that are asked for with [] "
                           "come to be.");
  base.def("__len__", &map_size)
      .def("__contains__", &has_key, nb::arg().none())
      .def("__getitem__", &get_or_create, nb::arg().none())
      .def("__delitem__", &delete_entry, nb::arg().none())
      .def("__iter__", [](const MapView& self) { return nb::iter(to_dict(self).keys()); })
      .def("__eq__", &equal_maps, nb::arg().none())
      .def("__repr__", [](const MapView& self) { return nb::repr(to_dict(self)); })
      .def("__copy__", &to_dict)
      .def("__deepcopy__",
           [](const MapView& self, nb::handle memo) {
             return nb::module_::import_("copy").attr("deepcopy")(to_dict(self), memo);
           })
      .def("__reduce__",
           [](const MapView& self) {
             return nb::make_tuple(nb::handle(reinterpret_cast<PyObject*>(&PyDict_Type)),
                                   nb::make_tuple(to_dict(self)));
           })
      .def("get", &get, nb::arg("key").none(), nb::arg("default") = nb::none())
      .def("keys", [](const MapView& self) { return to_dict(self).attr("keys")(); })
      .def("values", [](const MapView& self) { return to_dict(self).attr("values")(); })
      .def("items", [](const MapView& self) { return to_dict(self).attr("items")(); })
      .def("pop", &pop_entry)
      .def("clear", [](const MapView& self) { clear_field(self.view().write(), self.field); })
      .def("GetEntryClass",
           [](const MapView& self) { return class_of(self.field->message_type()); });
  base.attr("__hash__") = nb::none();
  nb::class_<ScalarMapView, MapView>(m, "ScalarMapField")
      .def("__setitem__", &set_entry, nb::arg().none(), nb::arg().none())
      .def("setdefault",
           [](const ScalarMapView& self, nb::handle key, nb::handle value) {
             if (!has_key(self, key)) set_entry(self, key, value);
             return look_up(self, key);
           })
      .def("update", &update_scalars, nb::arg("other").none())
      .def("MergeFrom", &update_scalars, nb::arg("other").none());
  nb::class_<MessageMapView, MapView>(m, "MessageMapField")
      .def("__setitem__",
           [](const MessageMapView& self, nb::handle, nb::handle) {
             raise_python(PyExc_ValueError,
                          std::string(self.field->full_name()) +
                              ": values cannot be assigned; use field[key].CopyFrom(value)");
           })
      .def("get_or_create", &get_or_create, nb::arg("key").none())
      .def("update", &update_messages, nb::arg("other").none())
      .def("MergeFrom", &update_messages, nb::arg("other").none());
  abc.attr("MutableMapping").attr("register")(base);
}

}  // namespace

nb::object repeated_of(nb::handle object, const Field* field) {
  if (is_message(field)) return nb::cast(MessagesView{{nb::borrow(object), field}});
  return nb::cast(ScalarsView{{nb::borrow(object), field}});
}

nb::object map_of(nb::handle object, const Field* field) {
  if (is_message(field->message_type()->map_value())) {
    return nb::cast(MessageMapView{{nb::borrow(object), field}});
  }
  return nb::cast(ScalarMapView{{nb::borrow(object), field}});
}

void merge_map(pb::Message& message, pb::Arena* arena, const Field* field, nb::handle mapping) {
  const Field* key_field = field->message_type()->map_key();
  const Field* value_field = field->message_type()->map_value();
  const nb::object items = items_of(mapping);
  for (nb::handle item : nb::borrow<nb::list>(items)) {
    const pb::MapKey key = map_key(key_field, item[0]);
    if (is_message(value_field)) {
      set_map_message(message, field, key, new_element(message, arena, value_field, item[1]));
    } else {
      const Scalar scalar = scalar_from_python(value_field, item[1]);
      pb::MapValueRef value;
      Maps::insert_or_lookup(message, field, key, &value);
      set_map_scalar(value_field, value, scalar);
    }
  }
}

void bind_message_containers(nb::module_& m) {
  const nb::module_ abc = nb::module_::import_("_collections_abc");
  bind_repeated(m, abc);
  bind_maps(m, abc);
}

}  // namespace millrace::python
