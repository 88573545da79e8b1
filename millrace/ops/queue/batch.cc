#include "millrace/ops/queue/batch.h"

#include <algorithm>

#include "millrace/ops/element.h"

namespace millrace {
namespace {

// Whether a tensor with these dimensions is of shape `declared`.
bool fits(const PartialShape& declared, std::span<const int64_t> dims) {
  if (!declared.rank_known()) return true;
  if (declared.rank() != static_cast<int>(dims.size())) return false;
  for (int i = 0; i < declared.rank(); ++i) {
    if (declared.dim_known(i) && declared.dim(i) != dims[static_cast<size_t>(i)]) return false;
  }
  return true;
}

Status check_types(const KernelContext& ctx, int first, const QueueSpec& spec) {
  const size_t count = static_cast<size_t>(ctx.num_inputs() - first);
  if (count != spec.types.size()) {
    return invalid_argument("Wrong number of components in tuple. Expected ", spec.types.size(),
                            ", got ", count);
  }
  for (size_t i = 0; i < count; ++i) {
    const DType dtype = ctx.input(first + static_cast<int>(i)).dtype();
    if (dtype != spec.types[i]) {
      return invalid_argument("Type mismatch in tuple component ", i, ". Expected ", spec.types[i],
                              ", got ", dtype);
    }
  }
  return ok_status();
}

// Copies all of `from` to the low corner of `to`, which has the same rank and is nowhere smaller.
template <class T>
void copy_to_corner(const Tensor& from, Tensor& to) {
  const Shape& small = from.shape();
  const Shape& large = to.shape();
  const T* source = static_cast<const T*>(from.raw());
  T* target = static_cast<T*>(to.mutable_raw());
  const int rank = small.rank();
  const int64_t run = rank == 0 ? 1 : small.dim(rank - 1);
  const int64_t runs = run == 0 ? 0 : small.num_elements() / run;
  std::vector<int64_t> at(static_cast<size_t>(rank), 0);
  for (int64_t r = 0; r < runs; ++r) {
    int64_t offset = 0;
    for (int d = 0; d < rank; ++d) offset = offset * large.dim(d) + at[static_cast<size_t>(d)];
    std::copy_n(source + r * run, run, target + offset);
    for (int d = rank - 2; d >= 0; --d) {
      if (++at[static_cast<size_t>(d)] < small.dim(d)) break;
      at[static_cast<size_t>(d)] = 0;
    }
  }
}

// The shape of a row that holds component `c` of all elements.
Result<Shape> row_shape(const QueueSpec& spec, std::span<const QueueElement> elements, size_t c) {
  if (spec.kind != QueueKind::kPaddingFifo) return spec.shapes[c].to_shape();
  std::vector<int64_t> dims;
  for (int64_t dim : spec.shapes[c].dims()) dims.push_back(std::max<int64_t>(dim, 0));
  for (const QueueElement& element : elements) {
    for (int d = 0; d < element[c].rank(); ++d) {
      dims[static_cast<size_t>(d)] = std::max(dims[static_cast<size_t>(d)], element[c].dim(d));
    }
  }
  return Shape::make(dims);
}

void zero(Tensor& tensor) {
  // Elements that are not plain are made empty.
  if (!is_plain(tensor.dtype())) return;
  std::fill_n(static_cast<char*>(tensor.mutable_raw()), tensor.bytes(), '\0');
}

}  // namespace

Result<Tensor> own_memory(Tensor tensor) {
  if (!tensor.buffer() || !tensor.buffer()->borrowed()) return tensor;
  return tensor.clone();
}

Result<QueueElement> element_from_inputs(KernelContext& ctx, int first, const QueueSpec& spec) {
  MR_TRY(check_types(ctx, first, spec));
  for (size_t i = 0; i < spec.types.size(); ++i) {
    const Shape& shape = ctx.input(first + static_cast<int>(i)).shape();
    if (!fits(spec.shapes[i], shape.dims())) {
      return invalid_argument("Shape mismatch in tuple component ", i, ". Expected ",
                              spec.shapes[i], ", got ", shape);
    }
  }
  QueueElement element;
  element.reserve(spec.types.size());
  for (int i = first; i < ctx.num_inputs(); ++i) {
    MR_TRY_ASSIGN(Tensor component, own_memory(ctx.take_input(i).tensor));
    element.push_back(std::move(component));
  }
  return element;
}

Result<std::vector<QueueElement>> split_inputs(const KernelContext& ctx, int first,
                                               const QueueSpec& spec) {
  MR_TRY(check_types(ctx, first, spec));
  int64_t batch = 0;
  for (size_t i = 0; i < spec.types.size(); ++i) {
    const Shape& shape = ctx.input(first + static_cast<int>(i)).shape();
    if (shape.rank() == 0) {
      return invalid_argument("tuple component ", i, " must have a batch dimension, got a scalar");
    }
    if (i == 0) batch = shape.dim(0);
    if (shape.dim(0) != batch) {
      return invalid_argument(
          "All input tensors must have the same size in dimension 0. Component ", i, " has ",
          shape.dim(0), ", expected ", batch);
    }
    if (!fits(spec.shapes[i], shape.dims().subspan(1))) {
      PartialShape expected = {batch};
      for (int64_t dim : spec.shapes[i].dims()) expected.add_dim(dim);
      return invalid_argument("Shape mismatch in tuple component ", i, ". Expected ", expected,
                              ", got ", shape);
    }
  }
  std::vector<QueueElement> elements(static_cast<size_t>(batch));
  for (int64_t row = 0; row < batch; ++row) {
    QueueElement& element = elements[static_cast<size_t>(row)];
    element.reserve(spec.types.size());
    for (int i = first; i < ctx.num_inputs(); ++i) {
      MR_TRY_ASSIGN(Tensor component, ctx.input(i).row(row).clone());
      element.push_back(std::move(component));
    }
  }
  return elements;
}

Status check_can_stack(const QueueSpec& spec) {
  for (size_t i = 0; i < spec.shapes.size(); ++i) {
    const PartialShape& shape = spec.shapes[i];
    const bool enough =
        spec.kind == QueueKind::kPaddingFifo ? shape.rank_known() : shape.fully_known();
    if (enough) continue;
    return invalid_argument("DequeueMany and DequeueUpTo of a ", queue_kind_name(spec.kind),
                            " require the components to have specified shapes, but component ", i,
                            " has shape ", shape);
  }
  return ok_status();
}

Status stack_to_outputs(KernelContext& ctx, const QueueSpec& spec,
                        std::span<const QueueElement> elements) {
  for (size_t c = 0; c < spec.types.size(); ++c) {
    MR_TRY_ASSIGN(Shape shape, row_shape(spec, elements, c));
    MR_TRY_ASSIGN(Shape batch, Shape{static_cast<int64_t>(elements.size())}.concat(shape));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(static_cast<int>(c), batch));
    bool zeroed = false;
    for (size_t i = 0; i < elements.size(); ++i) {
      const Tensor& component = elements[i][c];
      Tensor row = out->row(static_cast<int64_t>(i));
      if (component.shape() == shape) {
        copy_elements(component, row);
        continue;
      }
      if (!zeroed) {
        Tensor rest = out->rows(static_cast<int64_t>(i), batch.dim(0));
        zero(rest);
        zeroed = true;
      }
      with_element(component.dtype(), [&]<class T>() { copy_to_corner<T>(component, row); });
    }
  }
  return ok_status();
}

}  // namespace millrace
