#pragma once

#include <cstdint>

#include "millrace/kernel/kernel.h"
#include "millrace/tensor/partial_shape.h"

// Index vectors: how GatherNd, ScatterNd and their kin name parts of a tensor.

namespace millrace {

// How indices of shape [..., depth] walk through a tensor.
struct NdSizes {
  int depth = 0;
  int64_t count = 1;  // index vectors
  int64_t run = 1;    // elements that each of them names

  // INVALID_ARGUMENT unless indices of this shape can name parts of a tensor of shape `params`.
  static Result<NdSizes> make(const Shape& params, const Shape& indices);
};

// The number of the run that each index vector names, in a tensor of shape `params`;
// INVALID_ARGUMENT naming the first that lies outside.
Result<Tensor> find_runs(KernelContext& ctx, const Shape& params, const NdSizes& sizes,
                         const Tensor& indices);

// INVALID_ARGUMENT unless updates have the index vectors' shape followed by that of what each of
// them names in a tensor of shape `shape`.
Status check_nd_updates(const PartialShape& shape, const PartialShape& indices,
                        const PartialShape& updates);

}  // namespace millrace
