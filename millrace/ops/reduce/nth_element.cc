// NthElement: what stands at a place when the last dimension is sorted.

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status check_n(int64_t n) {
  if (n >= 0) return ok_status();
  return invalid_argument("n must be non-negative but is ", n);
}
Status check_size(int64_t size, int64_t n) {
  if (size > n) return ok_status();
  return invalid_argument("input must have last dimension > n = ", n, " but is ", size);
}
Status check_rank(int rank) {
  if (rank > 0) return ok_status();
  return invalid_argument("input must be at least rank 1 but is rank 0");
}
Status check_scalar(const PartialShape& n) {
  if (!n.rank_known() || n.rank() == 0) return ok_status();
  return invalid_argument("n must be a scalar but has rank ", n.rank());
}

Status nth_shape(ShapeContext& c) {
  const PartialShape& input = c.input(0);
  MR_TRY(check_scalar(c.input(1)));
  const std::optional<int64_t> n = c.input_scalar(1);
  if (n) MR_TRY(check_n(*n));
  if (!input.rank_known()) return ok_status();
  MR_TRY(check_rank(input.rank()));
  const int64_t size = input.dim(input.rank() - 1);
  if (n && size >= 0) MR_TRY(check_size(size, *n));
  std::vector<int64_t> dims;
  for (int i = 0; i + 1 < input.rank(); ++i) dims.push_back(input.dim(i));
  MR_TRY_ASSIGN(PartialShape shape, PartialShape::make(dims));
  c.set_output(0, std::move(shape));
  return ok_status();
}

// Elements that are equal to the one found share its gradient.
Status nth_grad(GradientContext& c) {
  const Expr x = c.input(0), last = int32_scalar(c.builder(), -1);
  const Expr same = cast(equal(expand_dims(c.output(0), last), x), x.dtype());
  c.set(0, same / sum(same, last, true) * expand_dims(c.gradient(), last));
  return ok_status();
}

class NthElement final : public Kernel {
 public:
  explicit NthElement(bool reverse) : reverse_(reverse) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool reverse, node.attr<bool>("reverse"));
    return std::unique_ptr<Kernel>(std::make_unique<NthElement>(reverse));
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& input = ctx.input(0);
    MR_TRY(check_scalar(ctx.input(1).shape()));
    MR_TRY_ASSIGN(const int64_t n, ctx.int_scalar_input(1));
    MR_TRY(check_n(n));
    MR_TRY(check_rank(input.rank()));
    const int64_t size = input.dim(input.rank() - 1);
    MR_TRY(check_size(size, n));
    const auto front = static_cast<size_t>(input.rank() - 1);
    MR_TRY_ASSIGN(const Shape shape, Shape::make(input.shape().dims().first(front)));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    return dispatch<RealTypes>(input.dtype(), [&]<class T>() {
      const T* const x = input.data<T>().data();
      T* const y = out->mutable_data<T>().data();
      const double cost = static_cast<double>(size) * 10;
      ctx.parallel_for(shape.num_elements(), cost, [&](int64_t begin, int64_t end) {
        std::vector<T> row(static_cast<size_t>(size));
        for (int64_t i = begin; i < end; ++i) {
          std::copy_n(x + i * size, size, row.begin());
          if (reverse_) {
            std::nth_element(row.begin(), row.begin() + n, row.end(), std::greater<>());
          } else {
            std::nth_element(row.begin(), row.begin() + n, row.end(), std::less<>());
          }
          y[i] = row[static_cast<size_t>(n)];
        }
      });
    });
  }

 private:
  bool reverse_;
};

}  // namespace

void register_nth_element(Registry& registry) {
  registry.add({.name = "NthElement",
                .doc = "What stands at place n when the last dimension is sorted.",
                .inputs = {{"input", "T"}, {"n", "host(int32)"}},
                .outputs = {{"values", "T"}},
                .types = {{"T", kRealNumbers}},
                .attrs = {{"reverse", "bool = false", "Whether to sort falling."}},
                .traits = {.cost = 10},
                .shape = nth_shape,
                .gradient = nth_grad});
  registry.kernel({.op = "NthElement", .factory = NthElement::make});
}

}  // namespace millrace
