#pragma once

#include <memory>

#include "python/src/binding.h"

namespace google::protobuf {
class Message;
}

namespace millrace::python {

// The message behind a Python message object, or null when `object` is something else. Borrowed:
// good until the object, or a message that holds it, is changed or goes. A submessage that is not
// set is the type's default instance.
const google::protobuf::Message* message_from_python(nb::handle object);

// A Python object of the message's class (millrace.protos.GraphDef for a GraphDef) with a copy of
// it.
nb::object message_to_python(const google::protobuf::Message& message);
nb::object message_to_python(std::unique_ptr<google::protobuf::Message> message);
// An empty message of a type ("tensorflow.GraphDef") for the caller to fill in place, without the
// copy: `to_fill` is good until Python code runs.
nb::object new_python_message(const char* full_name, google::protobuf::Message*& to_fill);

}  // namespace millrace::python
