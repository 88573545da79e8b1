#include "millrace/distributed/rpc/wire_fields.h"

#include <algorithm>

#include "millrace/tensor/tensor_proto.h"
#include "proto/tensor.pb.h"
#include "proto/worker_call.pb.h"

namespace millrace::worker_wire {

Message to_message(const google::protobuf::MessageLite& fields) {
  Message message;
  fields.AppendToString(&message.fields);
  return message;
}

void put_status(const Status& status, WireStatus& out) {
  out.set_code(static_cast<int32_t>(status.code()));
  out.set_message(std::string(status.message()));
}

Status get_status(const WireStatus& in) {
  if (in.code() == 0) return ok_status();
  const bool known = in.code() > 0 && in.code() <= static_cast<int32_t>(Code::kUnauthenticated);
  return Status(known ? static_cast<Code>(in.code()) : Code::kUnknown, in.message());
}

Status put_tensor(const Tensor& tensor, WireTensor& out, Message& message) {
  if (!is_plain(tensor.dtype())) {
    tensorflow::TensorProto proto;
    MR_TRY(tensor_to_proto(tensor, proto));
    proto.SerializeToString(out.mutable_content());
    return ok_status();
  }
  out.set_dtype(static_cast<int32_t>(tensor.dtype()));
  for (const int64_t dim : tensor.shape().dims()) out.add_dim(dim);
  out.set_in_part(true);
  message.parts.push_back({tensor.buffer(), tensor.offset(), tensor.bytes()});
  return ok_status();
}

Status put_value(const Value& value, RecvTensorAnswer& out, Message& message) {
  if (value.dead()) {
    out.set_dead(true);
    return ok_status();
  }
  if (value.state == Value::State::kTensor) {
    return put_tensor(value.tensor, *out.mutable_value(), message);
  }
  return unimplemented("a reference to a variable does not leave its task");
}

Result<Tensor> TensorReader::next(const WireTensor& in) {
  if (!in.in_part()) {
    tensorflow::TensorProto proto;
    if (!proto.ParseFromString(in.content())) {
      return invalid_argument("expected a TensorProto, got ", in.content().size(),
                              " bytes that are none");
    }
    return tensor_from_proto(proto);
  }
  const auto dtype = static_cast<DType>(in.dtype());
  if (!is_valid(dtype) || !is_plain(dtype)) {
    return invalid_argument("expected a type of plain elements, got number ", in.dtype());
  }
  MR_TRY_ASSIGN(const Shape shape, Shape::make({in.dim().data(), size_t(in.dim_size())}));
  if (next_ == parts_.size()) {
    return invalid_argument("the elements of a tensor of shape ", shape, " are missing");
  }
  const Message::Part& part = parts_[next_++];
  size_t bytes;
  if (__builtin_mul_overflow(static_cast<size_t>(shape.num_elements()), dtype_size(dtype),
                             &bytes) ||
      bytes != part.size) {
    return invalid_argument("expected the elements of ", dtype, " ", shape, ", got ", part.size,
                            " bytes");
  }
  if (dtype == DType::kBool) {
    const auto* begin = static_cast<const unsigned char*>(part.data());
    const auto* wrong = std::find_if(begin, begin + bytes, [](auto byte) { return byte > 1; });
    if (wrong != begin + bytes) {
      return invalid_argument("expected bytes 0 and 1 in a bool tensor, got ", int{*wrong});
    }
  }
  return Tensor(dtype, shape, part.buffer, part.offset);
}

Result<Value> TensorReader::value(const RecvTensorAnswer& in) {
  Value value;
  if (in.dead()) {
    value.set_dead();
    return value;
  }
  MR_TRY_ASSIGN(Tensor tensor, next(in.value()));
  return Value::of(std::move(tensor));
}

}  // namespace millrace::worker_wire
