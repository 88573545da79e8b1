#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "python/src/binding.h"

// Messages as Python sees them, shared by the message_*.cc files.
//
// Every Python message object is a view of a message that lies on an arena, which the view keeps
// alive. On an arena nothing is freed before the arena goes, so a view of a submessage stays good
// whatever happens to the messages around it: when the parent is cleared, parsed anew or gone, the
// view is of a message on its own. What is taken out of a parent is released or swapped out, never
// cleared in place, so such a view keeps its contents too.
//
// Map fields are used through the map alone. The repeated form that reflection offers beside it is
// a cache that changes made through views would not reach; text format uses it, on copies.

namespace millrace::python {

namespace pb = google::protobuf;

// A Python message object: `Message` and its subclasses, one per type.
struct MessageView {
  // An empty message of its own.
  static MessageView root(const pb::Message& prototype);

  const pb::Descriptor* type() const { return prototype->GetDescriptor(); }
  const pb::Reflection* reflection() const { return prototype->GetReflection(); }

  // The message; while it is not set, the default instance of its type.
  const pb::Message& read();
  // The message, set in its parent when it was not.
  pb::Message& write();
  // The arena that the message lies on, or would.
  const std::shared_ptr<pb::Arena>& home();
  // Makes `fresh`, which lies on `on`, the contents. What was there before stays with its views.
  // `on` is home(), or for a root any arena.
  void replace(const std::shared_ptr<pb::Arena>& on, pb::Message* fresh);
  // Where the contents of replace() are best made: a root starts again with an arena of its own.
  std::shared_ptr<pb::Arena> fresh_home();

  const pb::Message* prototype = nullptr;
  std::shared_ptr<pb::Arena> arena;
  pb::Message* message = nullptr;  // on arena; null while the parent has no such field
  // While message is null: the Python message object and its field that may come to hold it.
  nb::object parent;
  const pb::FieldDescriptor* parent_field = nullptr;
  int depth = 0;  // of nesting below the root
  bool is_root = false;
};

// The view of a Python message object, or null for any other object.
MessageView* view_of(nb::handle object);
// The same for an object that is known to be one.
MessageView& checked_view(nb::handle object);

// A message's nesting is bounded, as it is for readers of the wire format, because much of what is
// done with messages recurses.
inline constexpr int kDeepestNesting = 100;

// The class of a type, made on first use and kept for good.
nb::handle class_of(const pb::Descriptor* type);
nb::object make_object(MessageView view);
// A view of `element`, which is set and lies on the arena of `holder`, `levels` below it.
nb::object object_of_element(MessageView& holder, pb::Message* element, int levels = 1);

// A field's value as an attribute of `object` gives it: a scalar, a message (set or not), or a view
// of a repeated field or map.
nb::object field_value(nb::handle object, const pb::FieldDescriptor* field);
nb::object repeated_of(nb::handle object, const pb::FieldDescriptor* field);
nb::object map_of(nb::handle object, const pb::FieldDescriptor* field);

// Adds a Python value to a field the way a keyword of a constructor does: scalars are set, lists
// appended, mappings merged, messages given as messages or dicts merged; None does nothing.
// `message` lies on `arena` and is new: Python code that runs meanwhile cannot reach it. Raises
// TypeError or ValueError.
void merge_field(pb::Message& message, pb::Arena* arena, const pb::FieldDescriptor* field,
                 nb::handle value);
// The same for a whole message and a message of its type, or a dict of its fields.
void merge_value(pb::Message& message, pb::Arena* arena, nb::handle value);
void merge_map(pb::Message& message, pb::Arena* arena, const pb::FieldDescriptor* field,
               nb::handle mapping);
// A message of `field`'s type on `arena`, made from a message or a dict.
pb::Message* new_element(const pb::Message& holder, pb::Arena* arena,
                         const pb::FieldDescriptor* field, nb::handle value);
// Empties a field; messages taken out of it stay with their views.
void clear_field(pb::Message& message, const pb::FieldDescriptor* field);
// Merges also where the two are parts of one another.
void merge_message(MessageView& to, MessageView& from);

// The field of a name, given as str or bytes. Raises ValueError.
const pb::FieldDescriptor* find_field(const pb::Descriptor* type, nb::handle name);

// A scalar on its way between a field and Python, an enum as its number. Conversions may run Python
// code, which may change any message: convert first, then look at the message. From Python they
// raise TypeError or ValueError.
using Scalar = std::variant<int32_t, int64_t, uint32_t, uint64_t, float, double, bool, std::string>;
Scalar scalar_from_python(const pb::FieldDescriptor* field, nb::handle value);
nb::object scalar_to_python(const pb::FieldDescriptor* field, const Scalar& value);
Scalar get_scalar(const pb::Message& message, const pb::FieldDescriptor* field);
Scalar get_scalar_at(const pb::Message& message, const pb::FieldDescriptor* field, int index);
void set_scalar(pb::Message& message, const pb::FieldDescriptor* field, const Scalar& value);
void set_scalar_at(pb::Message& message, const pb::FieldDescriptor* field, int index,
                   const Scalar& value);
void add_scalar(pb::Message& message, const pb::FieldDescriptor* field, const Scalar& value);
nb::object default_scalar(const pb::FieldDescriptor* field);

inline bool is_message(const pb::FieldDescriptor* field) {
  return field->cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
}

// "3.5 (float)": what came, in an error.
std::string describe(nb::handle value);
[[noreturn]] void raise_python(PyObject* type, const std::string& text);

// Text that a message could not be read from, or bytes; a message too large to write. Classes of
// the module, both ValueErrors.
nb::handle decode_error();
nb::handle encode_error();

// What each file adds to the module.
void bind_message_containers(nb::module_& m);
void bind_message_types(nb::module_& m);
void bind_message_formats(nb::module_& m);

}  // namespace millrace::python
