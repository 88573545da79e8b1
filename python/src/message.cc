#include "python/src/message.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/message_differencer.h>

#include <limits>
#include <utility>
#include <vector>

#include "python/src/message_view.h"

namespace millrace::python {

namespace {

using Field = pb::FieldDescriptor;

// Kept for good by the module.
PyObject* decode_error_class = nullptr;
PyObject* encode_error_class = nullptr;

std::string type_name(const MessageView& view) { return std::string(view.type()->full_name()); }

MessageView& message_argument(nb::handle object) {
  MessageView* view = view_of(object);
  if (view == nullptr) {
    raise_python(PyExc_TypeError, "expected a message, got " + describe(object));
  }
  return *view;
}

// The bytes of a bytes-like object, held while this lives.
class Buffer {
 public:
  explicit Buffer(nb::handle data) {
    if (PyObject_GetBuffer(data.ptr(), &buffer_, PyBUF_SIMPLE) < 0) {
      PyErr_Clear();
      raise_python(PyExc_TypeError, "expected bytes, got " + describe(data));
    }
  }
  ~Buffer() { PyBuffer_Release(&buffer_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const void* data() const { return buffer_.buf; }
  Py_ssize_t size() const { return buffer_.len; }

 private:
  Py_buffer buffer_;
};

// Reads a new message; raises DecodeError.
void parse(pb::Message& message, const Buffer& bytes) {
  const std::string name(message.GetDescriptor()->full_name());
  if (bytes.size() > std::numeric_limits<int>::max()) {
    raise_python(decode_error_class, name + ": " + std::to_string(bytes.size()) +
                                         " bytes are more than the 2 GiB of a message");
  }
  bool parsed = false;
  {
    const pb::LogSilencer silence;
    parsed = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  }
  if (!parsed) {
    raise_python(decode_error_class, "the " + std::to_string(bytes.size()) +
                                         " bytes are not a message of type " + name +
                                         ", or are cut short");
  }
}

Py_ssize_t parse_from_string(MessageView& self, nb::handle data) {
  const Buffer bytes(data);
  const std::shared_ptr<pb::Arena> arena = self.fresh_home();
  pb::Message* fresh = self.prototype->New(arena.get());
  parse(*fresh, bytes);
  self.replace(arena, fresh);
  return bytes.size();
}

Py_ssize_t merge_from_string(MessageView& self, nb::handle data) {
  const Buffer bytes(data);
  const std::unique_ptr<pb::Message> fresh(self.prototype->New());
  parse(*fresh, bytes);
  self.write().MergeFrom(*fresh);
  return bytes.size();
}

size_t byte_size(MessageView& self) { return self.read().ByteSizeLong(); }

nb::bytes serialize(MessageView& self, bool deterministic) {
  const size_t size = byte_size(self);
  if (size > static_cast<size_t>(std::numeric_limits<int>::max())) {
    raise_python(encode_error_class, type_name(self) + ": its " + std::to_string(size) +
                                         " bytes are more than the 2 GiB of a message");
  }
  nb::object bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!bytes.is_valid()) throw nb::python_error();
  // The allocation may have run Python code that changed the message.
  const pb::Message& message = self.read();
  if (message.ByteSizeLong() != size) {
    raise_python(PyExc_RuntimeError, type_name(self) + " changed while it was written");
  }
  pb::io::ArrayOutputStream stream(PyBytes_AsString(bytes.ptr()), static_cast<int>(size));
  pb::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(deterministic);
  const pb::LogSilencer silence;
  message.SerializeWithCachedSizes(&coded);
  return nb::borrow<nb::bytes>(bytes);
}

nb::bytes serialize_to_string(MessageView& self, nb::handle deterministic) {
  return serialize(self, deterministic.is_none() || nb::cast<bool>(deterministic));
}

void clear(MessageView& self) {
  const std::shared_ptr<pb::Arena> arena = self.fresh_home();
  self.replace(arena, self.prototype->New(arena.get()));
}

void copy_from(MessageView& self, nb::handle other) {
  MessageView& from = message_argument(other);
  if (&from == &self) return;
  if (from.type() != self.type()) {
    raise_python(PyExc_TypeError, "expected a " + type_name(self) + ", got a " + type_name(from));
  }
  const std::shared_ptr<pb::Arena> arena = self.fresh_home();
  pb::Message* fresh = self.prototype->New(arena.get());
  fresh->MergeFrom(from.read());
  self.replace(arena, fresh);
}

nb::object copy(MessageView& self) {
  MessageView view = MessageView::root(*self.prototype);
  view.message->MergeFrom(self.read());
  return make_object(std::move(view));
}

bool has_field(MessageView& self, nb::handle name) {
  const Field* field = find_field(self.type(), name);
  if (!field->has_presence()) {
    raise_python(PyExc_ValueError,
                 std::string(field->full_name()) +
                     (field->is_repeated() ? " is repeated; its length says what is there"
                                           : " does not know whether it was set: it has no "
                                             "presence in proto3"));
  }
  const pb::Message& message = self.read();
  return message.GetReflection()->HasField(message, field);
}

void clear_named_field(MessageView& self, nb::handle name) {
  // A oneof may be cleared by its own name.
  if (PyUnicode_Check(name.ptr())) {
    const pb::OneofDescriptor* oneof = self.type()->FindOneofByName(nb::cast<std::string>(name));
    if (oneof != nullptr) {
      pb::Message& message = self.write();
      const Field* set = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
      if (set != nullptr) clear_field(message, set);
      return;
    }
  }
  clear_field(self.write(), find_field(self.type(), name));
}

nb::object which_oneof(MessageView& self, nb::handle name) {
  const auto text =
      nb::cast<std::string>(PyBytes_Check(name.ptr()) ? name.attr("decode")() : nb::borrow(name));
  const pb::OneofDescriptor* oneof = self.type()->FindOneofByName(text);
  if (oneof == nullptr) {
    raise_python(PyExc_ValueError, "message " + type_name(self) + " has no oneof \"" + text + "\"");
  }
  const pb::Message& message = self.read();
  const Field* set = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  return set == nullptr ? nb::none() : nb::cast(std::string(set->name()));
}

nb::list list_fields(nb::handle object) {
  MessageView& self = message_argument(object);
  const pb::Message& message = self.read();
  std::vector<const Field*> fields;
  message.GetReflection()->ListFields(message, &fields);
  const nb::object by_name = object.attr("DESCRIPTOR").attr("fields_by_name");
  nb::list result;
  for (const Field* field : fields) {
    result.append(
        nb::make_tuple(by_name[nb::cast(std::string(field->name()))], field_value(object, field)));
  }
  return result;
}

// Equal bytes are equal messages. Others may be too: 0.0 and -0.0 are. Copies, because comparing
// looks at the repeated form of maps.
bool equal_messages(MessageView& left, MessageView& right) {
  const pb::Message& a = left.read();
  const pb::Message& b = right.read();
  if (&a == &b) return true;
  const auto write = [](const pb::Message& message, std::string& to) {
    const pb::LogSilencer silence;
    pb::io::StringOutputStream stream(&to);
    pb::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    return message.SerializePartialToCodedStream(&coded);
  };
  std::string a_bytes, b_bytes;
  if (write(a, a_bytes) && write(b, b_bytes) && a_bytes == b_bytes) return true;
  const std::unique_ptr<pb::Message> a_copy(a.New());
  const std::unique_ptr<pb::Message> b_copy(b.New());
  a_copy->MergeFrom(a);
  b_copy->MergeFrom(b);
  return pb::util::MessageDifferencer::Equals(*a_copy, *b_copy);
}

nb::object equal(MessageView& self, nb::handle other) {
  MessageView* view = view_of(other);
  if (view == nullptr) return nb::borrow(Py_NotImplemented);
  return nb::bool_(view->type() == self.type() && equal_messages(self, *view));
}

void construct(nb::pointer_and_handle<MessageView> self, const nb::kwargs& fields) {
  const nb::object known = nb::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(self.h.ptr())), "DESCRIPTOR"));
  if (!known.is_valid()) {
    PyErr_Clear();
    raise_python(PyExc_TypeError, "Message has no fields; use the class of a message type");
  }
  const auto name = nb::cast<std::string>(known.attr("full_name"));
  const pb::Descriptor* type = pb::DescriptorPool::generated_pool()->FindMessageTypeByName(name);
  MessageView view =
      MessageView::root(*pb::MessageFactory::generated_factory()->GetPrototype(type));
  merge_value(*view.message, view.arena.get(), fields);
  new (self.p) MessageView(std::move(view));
}

nb::object from_string(nb::handle type, nb::handle data) {
  nb::object message = type();
  parse_from_string(checked_view(message), data);
  return message;
}

int depth_below(const MessageView& holder, int levels) {
  const int depth = holder.depth + levels;
  if (depth > kDeepestNesting) {
    raise_python(PyExc_ValueError, "messages cannot be nested more than " +
                                       std::to_string(kDeepestNesting) + " levels deep");
  }
  return depth;
}

nb::object make_error(nb::module_& m, const char* name, const char* doc) {
  nb::object type = nb::steal(PyErr_NewExceptionWithDoc(
      (std::string("millrace.protos.") + name).c_str(), doc, PyExc_ValueError, nullptr));
  if (!type.is_valid()) throw nb::python_error();
  m.attr(name) = type;
  return type;
}

}  // namespace

MessageView MessageView::root(const pb::Message& prototype) {
  MessageView view;
  view.prototype = &prototype;
  view.arena = std::make_shared<pb::Arena>();
  view.message = prototype.New(view.arena.get());
  view.is_root = true;
  return view;
}

const pb::Message& MessageView::read() {
  if (message != nullptr) return *message;
  MessageView& holder = checked_view(parent);
  const pb::Message& in = holder.read();
  if (!in.GetReflection()->HasField(in, parent_field)) return *prototype;
  return write();
}

pb::Message& MessageView::write() {
  if (message == nullptr) {
    MessageView& holder = checked_view(parent);
    pb::Message& in = holder.write();
    const pb::Reflection* reflection = in.GetReflection();
    if (!reflection->HasField(in, parent_field)) {
      // Set by hand: another member of a oneof is taken out, not destroyed.
      if (const pb::OneofDescriptor* oneof = parent_field->containing_oneof(); oneof != nullptr) {
        const Field* held = reflection->GetOneofFieldDescriptor(in, oneof);
        if (held != nullptr) clear_field(in, held);
      }
    }
    message = reflection->MutableMessage(&in, parent_field);
    arena = holder.arena;
    parent.reset();
  }
  return *message;
}

const std::shared_ptr<pb::Arena>& MessageView::home() {
  return message != nullptr ? arena : checked_view(parent).home();
}

std::shared_ptr<pb::Arena> MessageView::fresh_home() {
  return is_root ? std::make_shared<pb::Arena>() : home();
}

void MessageView::replace(const std::shared_ptr<pb::Arena>& on, pb::Message* fresh) {
  if (is_root) {
    message = fresh;
    arena = on;
  } else {
    reflection()->Swap(&write(), fresh);
  }
}

MessageView* view_of(nb::handle object) {
  MessageView* view = nullptr;
  return nb::try_cast(object, view) ? view : nullptr;
}

MessageView& checked_view(nb::handle object) { return *nb::inst_ptr<MessageView>(object); }

nb::object make_object(MessageView view) {
  nb::object object = nb::inst_alloc(class_of(view.type()));
  new (nb::inst_ptr<MessageView>(object)) MessageView(std::move(view));
  nb::inst_mark_ready(object);
  return object;
}

nb::object object_of_element(MessageView& holder, pb::Message* element, int levels) {
  MessageView view;
  view.prototype = pb::MessageFactory::generated_factory()->GetPrototype(element->GetDescriptor());
  view.arena = holder.arena;
  view.message = element;
  view.depth = depth_below(holder, levels);
  return make_object(std::move(view));
}

nb::object field_value(nb::handle object, const Field* field) {
  if (field->is_map()) return map_of(object, field);
  if (field->is_repeated()) return repeated_of(object, field);
  MessageView& holder = checked_view(object);
  const pb::Message& message = holder.read();
  if (!is_message(field)) return scalar_to_python(field, get_scalar(message, field));
  if (message.GetReflection()->HasField(message, field)) {
    return object_of_element(holder,
                             message.GetReflection()->MutableMessage(&holder.write(), field));
  }
  MessageView view;
  view.prototype = pb::MessageFactory::generated_factory()->GetPrototype(field->message_type());
  view.parent = nb::borrow(object);
  view.parent_field = field;
  view.depth = depth_below(holder, 1);
  return make_object(std::move(view));
}

nb::handle decode_error() { return decode_error_class; }
nb::handle encode_error() { return encode_error_class; }

const pb::Message* message_from_python(nb::handle object) {
  MessageView* view = view_of(object);
  return view == nullptr ? nullptr : &view->read();
}

nb::object message_to_python(const pb::Message& message) {
  // The generated type's own default instance: a dynamic message has none that we know.
  pb::Message* to_fill = nullptr;
  nb::object object =
      new_python_message(std::string(message.GetDescriptor()->full_name()).c_str(), to_fill);
  to_fill->CopyFrom(message);
  return object;
}

nb::object message_to_python(std::unique_ptr<pb::Message> message) {
  return message_to_python(*message);
}

nb::object new_python_message(const char* full_name, pb::Message*& to_fill) {
  const pb::Descriptor* type =
      pb::DescriptorPool::generated_pool()->FindMessageTypeByName(full_name);
  if (type == nullptr) {
    raise_python(PyExc_LookupError, std::string("no message type ") + full_name);
  }
  nb::object object =
      make_object(MessageView::root(*pb::MessageFactory::generated_factory()->GetPrototype(type)));
  to_fill = checked_view(object).message;
  return object;
}

void bind_messages(nb::module_& m) {
  decode_error_class =
      make_error(m, "DecodeError", "Bytes or text that are not a message of the type.")
          .release()
          .ptr();
  encode_error_class =
      make_error(m, "EncodeError", "A message that cannot be written.").release().ptr();

  nb::class_<MessageView> message(m, "Message", "Base of the classes of all message types.");
  message.def("__init__", &construct)
      .def("__eq__", &equal, nb::arg().none())
      .def("__copy__", &copy)
      .def(
          "__deepcopy__", [](MessageView& self, nb::handle) { return copy(self); },
          nb::arg("memo").none())
      .def("__reduce__",
           [](nb::handle self) {
             return nb::make_tuple(
                 nb::module_::import_("millrace.protos").attr("_restore"),
                 nb::make_tuple(self.type(), serialize(message_argument(self), true)));
           })
      .def("Clear", &clear, "Empties the message.")
      .def("ClearField", &clear_named_field, nb::arg("field_name").none(),
           "Empties a field, or whatever member of a oneof is set.")
      .def("HasField", &has_field, nb::arg("field_name").none(),
           "Whether a message field or a member of a oneof is set.")
      .def("WhichOneof", &which_oneof, nb::arg("oneof_group"),
           "The name of the member of a oneof that is set, or None.")
      .def("ListFields", &list_fields, "(field, value) of every field that is set.")
      .def("CopyFrom", &copy_from, nb::arg("other_msg").none(),
           "Makes this message equal to another of its type.")
      .def(
          "MergeFrom",
          [](MessageView& self, nb::handle other) { merge_message(self, message_argument(other)); },
          nb::arg("msg").none(),
          "Sets what the other message has set; lists are appended, maps merged.")
      .def(
          "SetInParent", [](MessageView& self) { self.write(); },
          "Makes this message present in the message that holds it.")
      .def("SerializeToString", &serialize_to_string, nb::kw_only(),
           nb::arg("deterministic") = nb::none(),
           "The message in wire format; entries of maps in the order of their keys unless "
           "deterministic is False.")
      .def("SerializePartialToString", &serialize_to_string, nb::kw_only(),
           nb::arg("deterministic") = nb::none(), "The same as SerializeToString.")
      .def("ParseFromString", &parse_from_string, nb::arg("serialized").none(),
           "Replaces the contents by a message in wire format; raises DecodeError and changes "
           "nothing when the bytes are not one.")
      .def("MergeFromString", &merge_from_string, nb::arg("serialized").none(),
           "MergeFrom of a message in wire format.")
      .def("ByteSize", &byte_size, "The size of the message in wire format.")
      .def(
          "IsInitialized", [](MessageView&) { return true; },
          "True: no field is required in proto3.")
      .def("FindInitializationErrors", [](MessageView&) { return nb::list(); })
      .def("DiscardUnknownFields", [](MessageView& self) { self.write().DiscardUnknownFields(); });
  message.attr("__hash__") = nb::none();
  const nb::handle classmethod(reinterpret_cast<PyObject*>(&PyClassMethod_Type));
  message.attr("FromString") = classmethod(
      nb::cpp_function(&from_string, nb::name("FromString"), nb::arg("s").none(), nb::is_method(),
                       "A message read from wire format; raises DecodeError."));

  bind_message_containers(m);
  bind_message_types(m);
  bind_message_formats(m);
}

}  // namespace millrace::python
