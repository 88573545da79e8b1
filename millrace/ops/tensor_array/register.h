#pragma once

namespace millrace {

class Registry;

// Arrays of tensors that live for one step: TensorArrayV3 and the ops on it.
void register_tensor_array_ops(Registry& registry);

// Its parts, one per source.
void register_arrays(Registry& registry);                 // making, size, closing
void register_tensor_array_elements(Registry& registry);  // one element at a time
void register_tensor_array_batches(Registry& registry);   // many at once

}  // namespace millrace
