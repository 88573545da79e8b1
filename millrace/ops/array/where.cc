#include <initializer_list>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

using WhereTypes = ConcatTypes<NumberTypes, TypeList<bool>>;

Status where_shape(ShapeContext& c) {
  c.set_output(0, PartialShape{-1, c.input(0).rank()});
  return ok_status();
}

template <class T>
Status where_typed(KernelContext& ctx) {
  const Tensor& input = ctx.input(0);
  const T* data = input.data<T>().data();
  const int64_t n = input.num_elements();
  const int rank = input.rank();
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) count += data[i] != T{} ? 1 : 0;
  MR_TRY_ASSIGN(const Shape shape, Shape::make(std::initializer_list<int64_t>{count, rank}));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  int64_t* to = out->mutable_data<int64_t>().data();
  // The input may be a variable that changes meanwhile: no more rows are written than were counted.
  int64_t row = 0;
  for (int64_t i = 0; i < n && row < count; ++i) {
    if (data[i] == T{}) continue;
    int64_t rest = i;
    for (int k = rank - 1; k >= 0; --k) {
      to[row * rank + k] = rest % input.dim(k);
      rest /= input.dim(k);
    }
    ++row;
  }
  for (int64_t k = row * rank; k < count * rank; ++k) to[k] = 0;
  return ok_status();
}

Status where_cpu(KernelContext& ctx) {
  return dispatch<WhereTypes>(ctx.input(0).dtype(), [&]<class T>() { return where_typed<T>(ctx); });
}

}  // namespace

void register_where(Registry& registry) {
  registry.add({.name = "Where",
                .doc = "The positions of the elements that are true or not zero, one per row.",
                .inputs = {{"input", "T"}},
                .outputs = {{"index", "int64"}},
                .types = {{"T", type_set_of<WhereTypes>, DType::kBool}},
                .traits = {.cannot_differentiate = true, .cost = 1},
                .shape = where_shape});
  registry.kernel("Where", DeviceKind::kCpu, where_cpu);
}

}  // namespace millrace
