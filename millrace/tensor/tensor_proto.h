#pragma once

#include "millrace/base/status.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/tensor.h"

namespace tensorflow {
class TensorProto;
class TensorShapeProto;
}  // namespace tensorflow

namespace millrace {

// Reads a tensor from any of TensorProto's encodings (raw content, typed fields, "last value
// repeats"). Lengths, shape and dtype are checked against the bytes really there before anything is
// allocated: INVALID_ARGUMENT says what disagrees. A shape with more elements than values (the last
// one repeats) is legal, so a small message can ask for a large tensor: everything made from one
// message, variants' tensors included, may take 2 GiB in memory, beyond is RESOURCE_EXHAUSTED.
// Variants nest up to 32 deep; one of a type that has no decoder is NOT_FOUND.
Result<Tensor> tensor_from_proto(const tensorflow::TensorProto& proto);

enum class TensorEncoding {
  kContent,     // packed bytes, for feeds and fetches
  kTypedField,  // one typed value per element, for people and for readers without the packed form
};
// Writes a host tensor; RESOURCE_EXHAUSTED at 2 GiB and over, UNIMPLEMENTED for a variant that
// cannot leave the process.
Status tensor_to_proto(const Tensor& tensor, tensorflow::TensorProto& proto,
                       TensorEncoding encoding = TensorEncoding::kContent);

Result<PartialShape> shape_from_proto(const tensorflow::TensorShapeProto& proto);
void shape_to_proto(const PartialShape& shape, tensorflow::TensorShapeProto& proto);

}  // namespace millrace
