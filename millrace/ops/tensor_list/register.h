#pragma once

namespace millrace {

class Registry;

// Lists of tensors that are values: EmptyTensorList and the ops on it.
void register_tensor_list_ops(Registry& registry);

// Its parts, one per source.
void register_tensor_lists(Registry& registry);          // making, length, shape, resizing, joining
void register_tensor_list_elements(Registry& registry);  // one element at a time
void register_tensor_list_batches(Registry& registry);   // many, as rows of one tensor
void register_tensor_list_pieces(Registry& registry);    // many, as pieces of one tensor

}  // namespace millrace
