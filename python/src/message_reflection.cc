#include <google/protobuf/descriptor.pb.h>

#include <string>

#include "python/src/message_types.h"

namespace millrace::python {

namespace {

struct FileType {
  const pb::FileDescriptor* file;
};

struct OneofType {
  const pb::OneofDescriptor* oneof;
  bool operator==(const OneofType& other) const { return oneof == other.oneof; }
};

struct EnumValueType {
  const pb::EnumValueDescriptor* value;
};

// The options that a .proto file gives, as a message.
nb::object options_of(const pb::Message& options) {
  const std::string bytes = options.SerializeAsString();
  return class_of(options.GetDescriptor())
      .attr("FromString")(nb::bytes(bytes.data(), bytes.size()));
}

nb::object field_of(const pb::FieldDescriptor* field) {
  return class_of(field->containing_type()).attr(std::string(field->name()).c_str());
}

nb::list oneofs_of(const MessageType& self) {
  nb::list all;
  for (int i = 0; i < self.type->oneof_decl_count(); ++i) {
    all.append(nb::cast(OneofType{self.type->oneof_decl(i)}));
  }
  return all;
}

nb::dict oneofs_by_name(const MessageType& self) {
  nb::dict all;
  for (nb::handle oneof : oneofs_of(self)) all[oneof.attr("name")] = oneof;
  return all;
}

nb::dict enum_values(const EnumType& self, bool by_name) {
  nb::dict all;
  for (int i = 0; i < self.type->value_count(); ++i) {
    const pb::EnumValueDescriptor* value = self.type->value(i);
    const nb::object key =
        by_name ? nb::object(nb::cast(std::string(value->name()))) : nb::cast(value->number());
    if (!all.contains(key)) all[key] = EnumValueType{value};  // of aliases the first
  }
  return all;
}

template <class T>
std::string text_of(const T& text) {
  return std::string(text);
}

}  // namespace

void bind_reflection(nb::module_& m, nb::class_<FieldType>& field, nb::class_<MessageType>& message,
                     nb::class_<EnumType>& enumeration) {
  nb::class_<FileType>(m, "FileDescriptor", "A .proto file.")
      .def_prop_ro("name", [](const FileType& self) { return text_of(self.file->name()); })
      .def_prop_ro("package", [](const FileType& self) { return text_of(self.file->package()); });

  nb::class_<OneofType>(m, "OneofDescriptor", "Fields of a message type of which one is set.")
      .def("__eq__", [](const OneofType& self, const OneofType& other) { return self == other; })
      .def("__hash__",
           [](const OneofType& self) { return nb::hash(nb::cast(self.oneof->index())); })
      .def("__repr__",
           [](const OneofType& self) { return "<oneof " + text_of(self.oneof->full_name()) + ">"; })
      .def_prop_ro("name", [](const OneofType& self) { return text_of(self.oneof->name()); })
      .def_prop_ro("full_name",
                   [](const OneofType& self) { return text_of(self.oneof->full_name()); })
      .def_prop_ro("index", [](const OneofType& self) { return self.oneof->index(); })
      .def_prop_ro("containing_type",
                   [](const OneofType& self) {
                     return class_of(self.oneof->containing_type()).attr("DESCRIPTOR");
                   })
      .def_prop_ro("fields", [](const OneofType& self) {
        nb::list fields;
        for (int i = 0; i < self.oneof->field_count(); ++i) {
          fields.append(field_of(self.oneof->field(i)));
        }
        return fields;
      });

  nb::class_<EnumValueType>(m, "EnumValueDescriptor", "A value of an enum.")
      .def_prop_ro("name", [](const EnumValueType& self) { return text_of(self.value->name()); })
      .def_prop_ro("number", [](const EnumValueType& self) { return self.value->number(); });

  enumeration
      .def_prop_ro("values_by_name", [](const EnumType& self) { return enum_values(self, true); })
      .def_prop_ro("values_by_number",
                   [](const EnumType& self) { return enum_values(self, false); })
      .def_prop_ro("file", [](const EnumType& self) { return FileType{self.type->file()}; })
      .def_prop_ro("is_closed", [](const EnumType&) { return false; });

  field
      .def_prop_ro("is_extension", [](const FieldType& self) { return self.field->is_extension(); })
      .def_prop_ro("has_presence", [](const FieldType& self) { return self.field->has_presence(); })
      .def_prop_ro("json_name",
                   [](const FieldType& self) { return text_of(self.field->json_name()); })
      .def_prop_ro("camelcase_name",
                   [](const FieldType& self) { return text_of(self.field->camelcase_name()); })
      .def_prop_ro("file", [](const FieldType& self) { return FileType{self.field->file()}; })
      .def_prop_ro("containing_oneof",
                   [](const FieldType& self) -> nb::object {
                     const pb::OneofDescriptor* oneof = self.field->containing_oneof();
                     return oneof == nullptr ? nb::none() : nb::cast(OneofType{oneof});
                   })
      .def_prop_ro("has_options",
                   [](const FieldType& self) { return self.field->options().ByteSizeLong() > 0; })
      .def("GetOptions", [](const FieldType& self) { return options_of(self.field->options()); });

  message.def_prop_ro("oneofs", &oneofs_of)
      .def_prop_ro("oneofs_by_name", &oneofs_by_name)
      .def_prop_ro("file", [](const MessageType& self) { return FileType{self.type->file()}; })
      .def_prop_ro("is_extendable", [](const MessageType&) { return false; })
      .def_prop_ro("extensions_by_name", [](const MessageType&) { return nb::dict(); })
      .def_prop_ro("has_options",
                   [](const MessageType& self) { return self.type->options().ByteSizeLong() > 0; })
      .def("GetOptions", [](const MessageType& self) { return options_of(self.type->options()); });
}

}  // namespace millrace::python
