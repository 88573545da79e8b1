#include "python/src/message_types.h"

#include <google/protobuf/descriptor_database.h>

#include <unordered_map>
#include <utility>
#include <vector>

namespace millrace::python {

namespace {

constexpr const char* kModule = "millrace.protos";

// Name without the package: "AttrValue.ListValue".
template <class Descriptor>
std::string local_name(const Descriptor* type) {
  const size_t package = type->file()->package().size();
  return std::string(type->full_name()).substr(package == 0 ? 0 : package + 1);
}

bool is_map_entry(const pb::Descriptor* type) { return type->map_key() != nullptr; }

nb::object name_of(const EnumType& self, nb::handle number) {
  const long long value = PyLong_AsLongLong(number.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    raise_python(PyExc_TypeError, "expected a number of enum " +
                                      std::string(self.type->full_name()) + ", got " +
                                      describe(number));
  }
  const pb::EnumValueDescriptor* known = value == static_cast<int>(value)
                                             ? self.type->FindValueByNumber(static_cast<int>(value))
                                             : nullptr;
  if (known == nullptr) {
    raise_python(PyExc_ValueError, "enum " + std::string(self.type->full_name()) +
                                       " has no name for " + describe(number));
  }
  return nb::cast(std::string(known->name()));
}

nb::object value_of(const EnumType& self, nb::handle name) {
  const pb::EnumValueDescriptor* known =
      PyUnicode_Check(name.ptr()) ? self.type->FindValueByName(nb::cast<std::string>(name))
                                  : nullptr;
  if (known == nullptr) {
    raise_python(PyExc_ValueError,
                 "enum " + std::string(self.type->full_name()) + " has no value " + describe(name));
  }
  return nb::cast(known->number());
}

nb::object enum_attribute(const EnumType& self, const std::string& name) {
  const pb::EnumValueDescriptor* known = self.type->FindValueByName(name);
  if (known == nullptr) {
    raise_python(PyExc_AttributeError,
                 "enum " + std::string(self.type->full_name()) + " has no value \"" + name + "\"");
  }
  return nb::cast(known->number());
}

nb::list enum_items(const EnumType& self, bool names, bool numbers) {
  nb::list items;
  for (int i = 0; i < self.type->value_count(); ++i) {
    nb::object name = nb::cast(std::string(self.type->value(i)->name()));
    nb::object number = nb::cast(self.type->value(i)->number());
    if (names && numbers) {
      items.append(nb::make_tuple(name, number));
    } else {
      items.append(names ? name : number);
    }
  }
  return items;
}

nb::handle enum_of(const pb::EnumDescriptor* type) {
  static auto& known = *new std::unordered_map<const pb::EnumDescriptor*, PyObject*>;
  if (const auto it = known.find(type); it != known.end()) return it->second;
  PyObject* made = nb::cast(EnumType{type}).release().ptr();
  return known.emplace(type, made).first->second;  // another thread may have been first
}

// The message whose attribute a field is asked for. Raises TypeError for anything else.
MessageView& holder_of(const pb::FieldDescriptor* field, nb::handle object) {
  MessageView* view = view_of(object);
  if (view == nullptr || view->type() != field->containing_type()) {
    raise_python(PyExc_TypeError, "expected a " +
                                      std::string(field->containing_type()->full_name()) +
                                      ", got " + describe(object));
  }
  return *view;
}

// As an attribute: the field itself on the class, its value on a message.
nb::object get_attribute(nb::object self, nb::handle object, nb::handle) {
  if (object.is_none()) return self;
  const pb::FieldDescriptor* field = nb::cast<FieldType&>(self).field;
  holder_of(field, object);
  return field_value(object, field);
}

void set_attribute(const FieldType& self, nb::handle object, nb::handle value) {
  const pb::FieldDescriptor* field = self.field;
  MessageView& holder = holder_of(field, object);
  const char* advice = nullptr;
  if (field->is_map()) {
    advice = "is a map and cannot be assigned; use its items";
  } else if (field->is_repeated()) {
    advice = "is repeated and cannot be assigned; use append, extend or del";
  } else if (is_message(field)) {
    advice = "is a message and cannot be assigned; use CopyFrom or its fields";
  }
  if (advice != nullptr) {
    raise_python(PyExc_AttributeError, std::string(field->full_name()) + " " + advice);
  }
  const Scalar scalar = scalar_from_python(field, value);
  set_scalar(holder.write(), field, scalar);
}

nb::object default_value(const FieldType& self) {
  if (self.field->is_repeated()) return nb::list();
  if (is_message(self.field)) return nb::none();
  return default_scalar(self.field);
}

nb::list fields_of(const MessageType& self) {
  const nb::handle type = class_of(self.type);
  nb::list fields;
  for (int i = 0; i < self.type->field_count(); ++i) {
    fields.append(type.attr(std::string(self.type->field(i)->name()).c_str()));
  }
  return fields;
}

nb::dict fields_by(const MessageType& self, const char* what) {
  nb::dict result;
  for (nb::handle field : fields_of(self)) result[field.attr(what)] = field;
  return result;
}

nb::list nested_types(const MessageType& self) {
  nb::list types;
  for (int i = 0; i < self.type->nested_type_count(); ++i) {
    const pb::Descriptor* nested = self.type->nested_type(i);
    if (!is_map_entry(nested)) types.append(class_of(nested).attr("DESCRIPTOR"));
  }
  return types;
}

nb::list enum_types(const MessageType& self) {
  nb::list types;
  for (int i = 0; i < self.type->enum_type_count(); ++i) {
    types.append(enum_of(self.type->enum_type(i)));
  }
  return types;
}

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

// google.protobuf.Any holds a message of any type as its name, after the last slash, and its bytes.
std::string type_in_any(nb::handle any) {
  const auto url = nb::cast<std::string>(any.attr("type_url"));
  return url.substr(url.rfind('/') + 1);
}

void add_any_methods(nb::dict& attributes) {
  const auto add = [&](const char* name, auto method, const auto&... arguments) {
    attributes[name] = nb::cpp_function(method, nb::name(name), nb::is_method(), arguments...);
  };
  add(
      "Pack",
      [](nb::handle self, nb::handle message, const std::string& prefix) {
        self.attr("value") = message.attr("SerializeToString")();
        self.attr("type_url") = prefix + (prefix.ends_with('/') ? "" : "/") +
                                nb::cast<std::string>(message.attr("DESCRIPTOR").attr("full_name"));
      },
      nb::arg("msg"), nb::arg("type_url_prefix") = "type.googleapis.com/", "Stores a message.");
  add(
      "Unpack",
      [](nb::handle self, nb::handle message) {
        const auto wanted = nb::cast<std::string>(message.attr("DESCRIPTOR").attr("full_name"));
        if (type_in_any(self) != wanted) return false;
        message.attr("ParseFromString")(self.attr("value"));
        return true;
      },
      nb::arg("msg"), "Reads the stored message into `msg`; False when it is of another type.");
  add(
      "Is",
      [](nb::handle self, nb::handle descriptor) {
        return type_in_any(self) == nb::cast<std::string>(descriptor.attr("full_name"));
      },
      nb::arg("descriptor"), "Whether a message of this type is stored.");
  add(
      "TypeName", [](nb::handle self) { return type_in_any(self); },
      "The full name of the stored message's type.");
}

nb::object make_class(const pb::Descriptor* type) {
  const std::string name = local_name(type);
  nb::dict attributes;
  attributes["__slots__"] = nb::tuple();
  attributes["__module__"] = kModule;
  attributes["__qualname__"] = name;
  attributes["__doc__"] = "Message type " + std::string(type->full_name()) + ".";
  attributes["DESCRIPTOR"] = nb::cast(MessageType{type});
  for (int i = 0; i < type->nested_type_count(); ++i) {
    const pb::Descriptor* nested = type->nested_type(i);
    if (is_map_entry(nested)) continue;
    attributes[std::string(nested->name()).c_str()] = class_of(nested);
  }
  for (int i = 0; i < type->enum_type_count(); ++i) {
    const pb::EnumDescriptor* nested = type->enum_type(i);
    attributes[std::string(nested->name()).c_str()] = enum_of(nested);
    for (int j = 0; j < nested->value_count(); ++j) {
      attributes[std::string(nested->value(j)->name()).c_str()] = nested->value(j)->number();
    }
  }
  for (int i = 0; i < type->field_count(); ++i) {
    const pb::FieldDescriptor* field = type->field(i);
    attributes[std::string(field->name()).c_str()] = nb::cast(FieldType{field});
    attributes[(upper(std::string(field->name())) + "_FIELD_NUMBER").c_str()] = field->number();
  }
  if (type->full_name() == "google.protobuf.Any") add_any_methods(attributes);
  const nb::handle base = nb::type<MessageView>();
  return nb::handle(base.type())(std::string(type->name()), nb::make_tuple(base), attributes);
}

// All files of the pool, which otherwise knows the values of an enum only once it was used.
const std::vector<const pb::FileDescriptor*>& all_files() {
  static const auto& files = *new std::vector<const pb::FileDescriptor*>([] {
    std::vector<std::string> names;
    pb::DescriptorPool::internal_generated_database()->FindAllFileNames(&names);
    std::vector<const pb::FileDescriptor*> found;
    for (const std::string& name : names) {
      const pb::FileDescriptor* file = pb::DescriptorPool::generated_pool()->FindFileByName(name);
      if (file != nullptr) found.push_back(file);
    }
    return found;
  }());
  return files;
}

// What a full name stands for: a class, an enum, the number of an enum's value, or None.
nb::object find_symbol(const std::string& full_name) {
  const pb::DescriptorPool* pool = pb::DescriptorPool::generated_pool();
  if (const pb::Descriptor* type = pool->FindMessageTypeByName(full_name); type != nullptr) {
    if (is_map_entry(type)) return nb::none();
    return nb::borrow(class_of(type));
  }
  if (const pb::EnumDescriptor* type = pool->FindEnumTypeByName(full_name); type != nullptr) {
    return nb::borrow(enum_of(type));
  }
  all_files();
  const pb::EnumValueDescriptor* value = pool->FindEnumValueByName(full_name);
  return value != nullptr ? nb::cast(value->number()) : nb::none();
}

// The full names of all message types and enums that are not nested.
nb::list type_names() {
  nb::list names;
  for (const pb::FileDescriptor* file : all_files()) {
    for (int i = 0; i < file->message_type_count(); ++i) {
      names.append(nb::cast(std::string(file->message_type(i)->full_name())));
    }
    for (int i = 0; i < file->enum_type_count(); ++i) {
      names.append(nb::cast(std::string(file->enum_type(i)->full_name())));
    }
  }
  return names;
}

}  // namespace

nb::handle class_of(const pb::Descriptor* type) {
  static auto& known = *new std::unordered_map<const pb::Descriptor*, PyObject*>;
  if (const auto it = known.find(type); it != known.end()) return it->second;
  PyObject* made = make_class(type).release().ptr();
  return known.emplace(type, made).first->second;  // another thread may have been first
}

void bind_message_types(nb::module_& m) {
  nb::class_<EnumType> enumeration(m, "EnumType", "An enum of messages; its values are ints.");
  enumeration
      .def("Name", &name_of, nb::arg("number").none(),
           "The name of a number; ValueError without one.")
      .def("Value", &value_of, nb::arg("name").none(),
           "The number of a name; ValueError without one.")
      .def("keys", [](const EnumType& self) { return enum_items(self, true, false); })
      .def("values", [](const EnumType& self) { return enum_items(self, false, true); })
      .def("items", [](const EnumType& self) { return enum_items(self, true, true); })
      .def("__getattr__", &enum_attribute)
      .def(
          "__repr__",
          [](const EnumType& self) { return "<enum " + std::string(self.type->full_name()) + ">"; })
      .def_prop_ro("name", [](const EnumType& self) { return std::string(self.type->name()); })
      .def_prop_ro("full_name",
                   [](const EnumType& self) { return std::string(self.type->full_name()); })
      .def_prop_ro("DESCRIPTOR", [](nb::object self) { return self; });

  nb::class_<FieldType> field(m, "FieldDescriptor", "A field of a message type.");
  field
      .def("__get__", &get_attribute, nb::arg("object").none(),
           nb::arg("owner").none() = nb::none())
      .def("__set__", &set_attribute, nb::arg("object"), nb::arg("value").none())
      .def("__repr__",
           [](const FieldType& self) {
             return "<field " + std::string(self.field->full_name()) + ">";
           })
      .def_prop_ro("name", [](const FieldType& self) { return std::string(self.field->name()); })
      .def_prop_ro("full_name",
                   [](const FieldType& self) { return std::string(self.field->full_name()); })
      .def_prop_ro("number", [](const FieldType& self) { return self.field->number(); })
      .def_prop_ro("index", [](const FieldType& self) { return self.field->index(); })
      .def_prop_ro("type",
                   [](const FieldType& self) { return static_cast<int>(self.field->type()); })
      .def_prop_ro("cpp_type",
                   [](const FieldType& self) { return static_cast<int>(self.field->cpp_type()); })
      .def_prop_ro("label",
                   [](const FieldType& self) {
                     return static_cast<int>(self.field->is_repeated()
                                                 ? pb::FieldDescriptor::LABEL_REPEATED
                                                 : pb::FieldDescriptor::LABEL_OPTIONAL);
                   })
      .def_prop_ro("is_repeated", [](const FieldType& self) { return self.field->is_repeated(); })
      .def_prop_ro("is_map", [](const FieldType& self) { return self.field->is_map(); })
      .def_prop_ro("default_value", &default_value)
      .def_prop_ro("containing_type",
                   [](const FieldType& self) {
                     return class_of(self.field->containing_type()).attr("DESCRIPTOR");
                   })
      .def_prop_ro("message_type",
                   [](const FieldType& self) -> nb::object {
                     if (!is_message(self.field)) return nb::none();
                     return class_of(self.field->message_type()).attr("DESCRIPTOR");
                   })
      .def_prop_ro("enum_type", [](const FieldType& self) -> nb::object {
        const pb::EnumDescriptor* type = self.field->enum_type();
        return type == nullptr ? nb::none() : nb::borrow(enum_of(type));
      });
  for (int i = 1; i <= pb::FieldDescriptor::MAX_TYPE; ++i) {
    const auto type = static_cast<pb::FieldDescriptor::Type>(i);
    field.attr(("TYPE_" + upper(pb::FieldDescriptor::TypeName(type))).c_str()) = i;
    const pb::FieldDescriptor::CppType cpp = pb::FieldDescriptor::TypeToCppType(type);
    field.attr(("CPPTYPE_" + upper(pb::FieldDescriptor::CppTypeName(cpp))).c_str()) =
        static_cast<int>(cpp);
  }
  field.attr("LABEL_OPTIONAL") = static_cast<int>(pb::FieldDescriptor::LABEL_OPTIONAL);
  field.attr("LABEL_REPEATED") = static_cast<int>(pb::FieldDescriptor::LABEL_REPEATED);

  nb::class_<MessageType> message(m, "Descriptor", "A message type.");
  message
      .def("__repr__",
           [](const MessageType& self) {
             return "<message type " + std::string(self.type->full_name()) + ">";
           })
      .def_prop_ro("name", [](const MessageType& self) { return std::string(self.type->name()); })
      .def_prop_ro("full_name",
                   [](const MessageType& self) { return std::string(self.type->full_name()); })
      .def_prop_ro("fields", &fields_of)
      .def_prop_ro("fields_by_name",
                   [](const MessageType& self) { return fields_by(self, "name"); })
      .def_prop_ro("fields_by_number",
                   [](const MessageType& self) { return fields_by(self, "number"); })
      .def_prop_ro("nested_types", &nested_types)
      .def_prop_ro("enum_types", &enum_types);
  bind_reflection(m, field, message, enumeration);

  m.def("find_proto", &find_symbol, nb::arg("full_name"),
        "The class, enum or enum value of a full name, or None.");
  m.def("proto_names", &type_names, "The full names of all message types and enums.");
}

}  // namespace millrace::python
