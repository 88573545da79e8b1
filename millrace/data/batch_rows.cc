#include "millrace/data/batch_rows.h"

#include <algorithm>
#include <cstring>

#include "millrace/tensor/resource_handle.h"

namespace millrace::data {
namespace {

constexpr int64_t kFirstBytes = int64_t{1} << 20;
constexpr int64_t kFirstRows = 16;

template <class T>
void copy_objects(const Tensor& from, Tensor& to, int64_t at) {
  const std::span<const T> source = from.data<T>();
  const std::span<T> target = to.mutable_data<T>();
  std::copy(source.begin(), source.end(), target.begin() + at);
}

}  // namespace

void copy_into(const Tensor& from, Tensor& to, int64_t at) {
  switch (from.dtype()) {
    case DType::kString:
      return copy_objects<std::string>(from, to, at);
    case DType::kVariant:
      return copy_objects<Variant>(from, to, at);
    case DType::kResource:
      return copy_objects<ResourceHandle>(from, to, at);
    default: {
      const size_t size = dtype_size(from.dtype());
      if (from.num_elements() == 0) return;
      std::memcpy(static_cast<char*>(to.mutable_raw()) + static_cast<size_t>(at) * size, from.raw(),
                  from.bytes());
    }
  }
}

void BatchRows::begin(int64_t limit) {
  limit_ = limit;
  rows_ = 0;
}

Status BatchRows::start(const Element& element) {
  shapes_.clear();
  row_bytes_.clear();
  tensors_.clear();
  int64_t bytes = 1;
  for (const Tensor& component : element) {
    shapes_.push_back(component.shape());
    row_bytes_.push_back(is_plain(component.dtype()) ? component.bytes() : 0);
    bytes = std::max(bytes, static_cast<int64_t>(component.bytes()));
  }
  capacity_ = std::min(limit_, std::max({usual_, kFirstBytes / bytes, kFirstRows}));
  for (const Tensor& component : element) {
    MR_TRY_ASSIGN(const Shape shape, Shape{capacity_}.concat(component.shape()));
    MR_TRY_ASSIGN(Tensor tensor, Tensor::allocate(component.dtype(), shape));
    tensors_.push_back(std::move(tensor));
  }
  return ok_status();
}

Status BatchRows::grow(int64_t rows) {
  for (Tensor& tensor : tensors_) {
    MR_TRY_ASSIGN(const Shape shape, tensor.shape().with_dim(0, rows));
    MR_TRY_ASSIGN(Tensor larger, Tensor::allocate(tensor.dtype(), shape));
    copy_into(tensor, larger, 0);
    tensor = std::move(larger);
  }
  capacity_ = rows;
  return ok_status();
}

Status BatchRows::add(const Element& element) {
  if (rows_ == 0) MR_TRY(start(element));
  if (rows_ == capacity_) MR_TRY(grow(std::min(limit_, capacity_ * 2)));
  if (element.size() != tensors_.size()) {
    return invalid_argument("elements of a batch must have one number of components, got ",
                            tensors_.size(), " and ", element.size());
  }
  for (size_t i = 0; i < element.size(); ++i) {
    const Tensor& component = element[i];
    Tensor& batch = tensors_[i];
    if (component.shape() != shapes_[i] || component.dtype() != batch.dtype()) [[unlikely]] {
      return invalid_argument("Cannot batch tensors with different shapes in component ", i,
                              ". First element had shape ", shapes_[i], " and element ", rows_,
                              " had shape ", component.shape(),
                              component.dtype() == batch.dtype()
                                  ? std::string()
                                  : str_cat("; types ", batch.dtype(), " and ", component.dtype()));
    }
    if (row_bytes_[i] != 0) {
      std::memcpy(
          static_cast<char*>(batch.mutable_raw()) + static_cast<size_t>(rows_) * row_bytes_[i],
          component.raw(), row_bytes_[i]);
    } else {
      copy_into(component, batch, rows_ * component.num_elements());
    }
  }
  ++rows_;
  return ok_status();
}

void BatchRows::finish(Element& out) {
  out.clear();
  for (Tensor& tensor : tensors_) {
    out.push_back(rows_ == capacity_ ? std::move(tensor) : tensor.rows(0, rows_));
  }
  tensors_.clear();
  usual_ = rows_;
}

}  // namespace millrace::data
