#include "millrace/ops/array/nd_index.h"

#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// The run that index vector `i` names, or -1 when it lies outside.
template <class I>
int64_t run_of(const Shape& params, const NdSizes& sizes, const I* indices, int64_t i) {
  int64_t run = 0;
  for (int k = 0; k < sizes.depth; ++k) {
    const int64_t index = indices[i * sizes.depth + k];
    if (index < 0 || index >= params.dim(k)) return -1;
    run = run * params.dim(k) + index;
  }
  return run;
}

}  // namespace

Result<NdSizes> NdSizes::make(const Shape& params, const Shape& indices) {
  if (indices.rank() == 0)
    return invalid_argument("'indices' must have rank 1 or more, got a scalar");
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth > params.rank()) {
    return invalid_argument("index vectors of ", depth,
                            " elements are too long for a tensor of shape ", params);
  }
  NdSizes sizes;
  sizes.depth = static_cast<int>(depth);
  for (int i = 0; i + 1 < indices.rank(); ++i) sizes.count *= indices.dim(i);
  for (int i = sizes.depth; i < params.rank(); ++i) sizes.run *= params.dim(i);
  return sizes;
}

Result<Tensor> find_runs(KernelContext& ctx, const Shape& params, const NdSizes& sizes,
                         const Tensor& indices) {
  MR_TRY_ASSIGN(Tensor out, ctx.allocate_temp(DType::kInt64, Shape{sizes.count}));
  int64_t* runs = out.mutable_data<int64_t>().data();
  MR_TRY(dispatch<IndexTypes>(indices.dtype(), [&]<class I>() -> Status {
    const I* data = indices.data<I>().data();
    for (int64_t i = 0; i < sizes.count; ++i) {
      runs[i] = run_of(params, sizes, data, i);
      if (runs[i] >= 0) [[likely]]
        continue;
      std::string vector;
      for (int k = 0; k < sizes.depth; ++k) {
        append_to(vector, str_cat(k == 0 ? "" : ",", data[i * sizes.depth + k]));
      }
      return invalid_argument("indices[", i, "] = [", vector, "] does not index into shape ",
                              params);
    }
    return ok_status();
  }));
  return out;
}

Status check_nd_updates(const PartialShape& shape, const PartialShape& indices,
                        const PartialShape& updates) {
  if (!shape.rank_known() || !indices.rank_known() || !updates.rank_known()) return ok_status();
  const int64_t depth = indices.dim(indices.rank() - 1);
  if (depth < 0) return ok_status();
  if (depth > shape.rank()) {
    return invalid_argument("index vectors of ", depth, " elements are too long for shape ", shape);
  }
  PartialShape expected = PartialShape::scalar();
  for (int i = 0; i + 1 < indices.rank(); ++i) expected.add_dim(indices.dim(i));
  for (int i = static_cast<int>(depth); i < shape.rank(); ++i) expected.add_dim(shape.dim(i));
  if (expected.compatible(updates)) return ok_status();
  return invalid_argument("'updates' must have shape ", expected, " for indices of shape ", indices,
                          " into shape ", shape, ", got ", updates);
}

}  // namespace millrace
