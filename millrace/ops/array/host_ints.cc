#include "millrace/ops/array/host_ints.h"

namespace millrace {

Status HostInts::read(const KernelContext& ctx, int i, std::string_view what) {
  MR_TRY(ctx.check_host(i));
  const Tensor& tensor = ctx.input(i);
  if (!kIndexTypes.contains(tensor.dtype()) || tensor.num_elements() > kMax) {
    return invalid_argument("'", what, "' must hold at most ", kMax,
                            " integers of type int32 or int64, got ", tensor.dtype(), " ",
                            tensor.shape());
  }
  size_ = static_cast<int>(tensor.num_elements());
  for (int k = 0; k < size_; ++k) values_[k] = int_at(tensor, k);
  return ok_status();
}

Status HostInts::read_vector(const KernelContext& ctx, int i, std::string_view what) {
  if (ctx.input(i).rank() != 1) {
    return invalid_argument("'", what, "' must be a vector, got shape ", ctx.input(i).shape());
  }
  return read(ctx, i, what);
}

Status HostInts::read_vector(const KernelContext& ctx, int i, std::string_view what, int size) {
  const Shape& shape = ctx.input(i).shape();
  if (shape.rank() != 1 || shape.dim(0) != size) {
    return invalid_argument("'", what, "' must be a vector of ", size, " elements, got shape ",
                            shape);
  }
  return read(ctx, i, what);
}

std::string position_text(const Shape& shape, int64_t flat) {
  if (shape.is_scalar()) return "";
  std::string text;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    text = str_cat(i == 0 ? "[" : ",", flat % shape.dim(i), text);
    flat /= shape.dim(i);
  }
  return text + "]";
}

}  // namespace millrace
