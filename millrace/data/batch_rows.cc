#include "millrace/data/batch_rows.h"

#include <algorithm>
#include <cstring>
#include <string>

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
  rows_ = capacity_ = 0;
  refused_ = false;
  columns_.clear();
}

Status BatchRows::add(Element& element) {
  if (rows_ == 0) {
    begin(limit_);
    for (const Tensor& component : element) start(component.dtype(), component.shape());
  }
  refused_ = true;
  MR_TRY(check_columns(element.size()));
  for (size_t i = 0; i < element.size(); ++i) {
    MR_TRY(check(i, element[i].dtype(), element[i].shape()));
  }
  refused_ = false;
  MR_TRY(make_room(1));
  for (size_t i = 0; i < element.size(); ++i) {
    Tensor& component = element[i];
    Column& column = columns_[i];
    if (column.row_bytes != 0) {
      std::memcpy(static_cast<char*>(column.batch.mutable_raw()) +
                      static_cast<size_t>(rows_) * column.row_bytes,
                  component.raw(), column.row_bytes);
    } else if (component.dtype() == DType::kString && component.writable()) {
      std::ranges::move(
          component.mutable_data<std::string>(),
          column.batch.mutable_data<std::string>().begin() + rows_ * component.num_elements());
    } else {
      copy_into(component, column.batch, rows_ * component.num_elements());
    }
  }
  ++rows_;
  return ok_status();
}

Status BatchRows::add_range(const Element& tensors, int64_t begin, int64_t end) {
  if (rows_ == 0) {
    this->begin(limit_);
    for (const Tensor& tensor : tensors) {
      start(tensor.dtype(), tensor.shape().without_first());
      columns_.back().batch = tensor.rows(begin, end);
    }
    rows_ = capacity_ = end - begin;
    return ok_status();
  }
  MR_TRY(check_columns(tensors.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    MR_TRY(check(i, tensors[i].dtype(), tensors[i].shape().without_first()));
  }
  MR_TRY(make_room(end - begin));
  for (size_t i = 0; i < tensors.size(); ++i) {
    Column& column = columns_[i];
    copy_into(tensors[i].rows(begin, end), column.batch, rows_ * column.shape.num_elements());
  }
  rows_ += end - begin;
  return ok_status();
}

Status BatchRows::add_string(std::string_view value) {
  if (rows_ == 0) {
    begin(limit_);
    start(DType::kString, Shape());
  }
  MR_TRY(check_columns(1));
  MR_TRY(check(0, DType::kString, Shape()));
  MR_TRY(make_room(1));
  columns_[0].batch.mutable_data<std::string>()[static_cast<size_t>(rows_++)].assign(value);
  return ok_status();
}

void BatchRows::start(DType dtype, const Shape& shape) {
  const size_t bytes = static_cast<size_t>(shape.num_elements()) * dtype_size(dtype);
  columns_.push_back({dtype, shape, is_plain(dtype) ? bytes : 0, Tensor()});
}

Status BatchRows::check_columns(size_t count) const {
  if (count == columns_.size()) [[likely]]
    return ok_status();
  return invalid_argument("elements of a batch must have one number of components, got ",
                          columns_.size(), " and ", count);
}

Status BatchRows::check(size_t column, DType dtype, const Shape& shape) const {
  const Column& first = columns_[column];
  if (shape == first.shape && dtype == first.dtype) [[likely]]
    return ok_status();
  return invalid_argument(
      "Cannot batch tensors with different shapes in component ", column,
      ". First element had shape ", first.shape, " and element ", rows_, " had shape ", shape,
      dtype == first.dtype ? std::string() : str_cat("; types ", first.dtype, " and ", dtype));
}

// As much as the first rows promise, then twice as much each time.
Status BatchRows::make_room(int64_t more) {
  if (rows_ + more <= capacity_) [[likely]]
    return ok_status();
  int64_t rows = std::max(usual_, 2 * capacity_);
  if (capacity_ == 0) {
    int64_t bytes = 1;
    for (const Column& column : columns_) {
      bytes = std::max(bytes, static_cast<int64_t>(column.row_bytes));
    }
    rows = std::max({rows, kFirstBytes / bytes, kFirstRows});
  }
  rows = std::max(std::min(rows, limit_), rows_ + more);
  for (Column& column : columns_) {
    MR_TRY_ASSIGN(const Shape shape, Shape{rows}.concat(column.shape));
    MR_TRY_ASSIGN(Tensor larger, Tensor::allocate(column.dtype, shape));
    if (rows_ > 0) copy_into(column.batch.rows(0, rows_), larger, 0);
    column.batch = std::move(larger);
  }
  capacity_ = rows;
  return ok_status();
}

void BatchRows::finish(Element& out) {
  out.clear();
  for (Column& column : columns_) {
    out.push_back(rows_ == capacity_ ? std::move(column.batch) : column.batch.rows(0, rows_));
  }
  columns_.clear();
  usual_ = rows_;
}

}  // namespace millrace::data
