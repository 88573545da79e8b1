#pragma once

#include "python/src/message_view.h"

// Types of messages as Python sees them: what Google's package calls descriptors.

namespace millrace::python {

// A field of a message type: describes it, and is the attribute of the type's class that reads and
// sets it.
struct FieldType {
  const pb::FieldDescriptor* field;
};

// A message type, as the attribute DESCRIPTOR of its class.
struct MessageType {
  const pb::Descriptor* type;
};

// An enum. Its values are plain ints.
struct EnumType {
  const pb::EnumDescriptor* type;
};

// Adds what text_format and json_format of Google's package ask besides, so that they read and
// write these messages as well.
void bind_reflection(nb::module_& m, nb::class_<FieldType>& field, nb::class_<MessageType>& message,
                     nb::class_<EnumType>& enumeration);

}  // namespace millrace::python
