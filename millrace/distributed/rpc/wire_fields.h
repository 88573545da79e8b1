#pragma once

#include <cstddef>
#include <vector>

#include "millrace/base/status.h"
#include "millrace/distributed/rpc/message.h"
#include "millrace/kernel/value.h"
#include "millrace/tensor/tensor.h"

namespace google::protobuf {
class MessageLite;
}

namespace millrace {

// Messages of proto/worker_call.proto.
class RecvTensorAnswer;
class WireStatus;
class WireTensor;

// What the calls of worker_wire.h are made of: fields, errors and tensors.
namespace worker_wire {

// A message of fields alone.
Message to_message(const google::protobuf::MessageLite& fields);
// The fields of a message; INVALID_ARGUMENT for bytes that are none of that kind.
template <class Fields>
Result<Fields> parse(const Message& message) {
  Fields fields;
  if (fields.ParseFromString(message.fields)) return fields;
  return invalid_argument("expected a ", fields.GetTypeName(), ", got ", message.fields.size(),
                          " bytes that are none");
}

void put_status(const Status& status, WireStatus& out);
// UNKNOWN for a code that there is not.
Status get_status(const WireStatus& in);

// Elements of plain types become a part of the message, all others bytes in `out`. UNIMPLEMENTED
// for what cannot leave the process.
Status put_tensor(const Tensor& tensor, WireTensor& out, Message& message);
Status put_value(const Value& value, RecvTensorAnswer& out, Message& message);

// Takes tensors out of a message, in the order in which they were put there: the parts one after
// another, each checked against what is said of it. They share the message's memory.
class TensorReader {
 public:
  explicit TensorReader(const Message& message) : parts_(message.parts) {}

  Result<Tensor> next(const WireTensor& in);
  Result<Value> value(const RecvTensorAnswer& in);

 private:
  const std::vector<Message::Part>& parts_;
  size_t next_ = 0;
};

}  // namespace worker_wire
}  // namespace millrace
