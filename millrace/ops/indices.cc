#include "millrace/ops/indices.h"

#include <algorithm>

#include "millrace/ops/array/host_ints.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {

Result<Indices> Indices::read(KernelContext& ctx, const Tensor& tensor) {
  Indices out;
  MR_TRY_ASSIGN(out.copy_, ctx.allocate_temp(DType::kInt64, tensor.shape()));
  const std::span<int64_t> to = out.copy_.mutable_data<int64_t>();
  MR_TRY(dispatch<IndexTypes>(tensor.dtype(),
                              [&]<class I>() { std::ranges::copy(tensor.data<I>(), to.begin()); }));
  out.values_ = to;
  return out;
}

Result<Indices> Indices::read_below(KernelContext& ctx, const Tensor& tensor, int64_t limit,
                                    std::string_view what) {
  MR_TRY_ASSIGN(Indices out, read(ctx, tensor));
  for (int64_t i = 0; i < out.size(); ++i) {
    if (out[i] >= 0 && out[i] < limit) continue;
    return invalid_argument(what, position_text(out.shape(), i), " = ", out[i], " is not in [0, ",
                            limit, ")");
  }
  return out;
}

}  // namespace millrace
