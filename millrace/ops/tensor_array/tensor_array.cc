#include "millrace/ops/tensor_array/tensor_array.h"

#include <algorithm>
#include <utility>

#include "millrace/ops/math/elementwise.h"
#include "millrace/ops/queue/handle.h"

namespace millrace {
namespace {

constexpr OpInfo kAdd{"Add", kNumbers, ""};

// How many elements that nobody wrote may be read at once: the size comes from the user.
constexpr int64_t kMaxUnwritten = 1 << 20;

}  // namespace

TensorArray::TensorArray(std::string name, Options options)
    : name_(std::move(name)),
      dtype_(options.dtype),
      identical_element_shapes_(options.identical_element_shapes),
      clear_after_read_(options.clear_after_read),
      dynamic_size_(options.dynamic_size),
      element_shape_(std::move(options.element_shape)),
      size_(options.size) {}

PartialShape TensorArray::element_shape() const {
  MutexLock lock(mu_);
  return element_shape_;
}

Status TensorArray::write(int64_t index, Tensor value) {
  MutexLock lock(mu_);
  MR_TRY(check_open());
  return write_locked(index, std::move(value));
}

Result<Tensor> TensorArray::read(int64_t index) {
  MutexLock lock(mu_);
  MR_TRY(check_open());
  return read_locked(index);
}

Status TensorArray::write_many(std::span<const int64_t> indices, std::vector<Tensor> values) {
  MR_CHECK(indices.size() == values.size());
  MutexLock lock(mu_);
  MR_TRY(check_open());
  for (size_t i = 0; i < values.size(); ++i) {
    MR_TRY(write_locked(indices[i], std::move(values[i])));
  }
  return ok_status();
}

Result<std::vector<Tensor>> TensorArray::read_many(std::span<const int64_t> indices) {
  MutexLock lock(mu_);
  MR_TRY(check_open());
  std::vector<Tensor> values;
  values.reserve(indices.size());
  for (int64_t index : indices) {
    MR_TRY_ASSIGN(Tensor value, read_locked(index));
    values.push_back(std::move(value));
  }
  return values;
}

Status TensorArray::write_all(std::vector<Tensor> values) {
  MutexLock lock(mu_);
  MR_TRY(check_open());
  const int64_t count = static_cast<int64_t>(values.size());
  if (!dynamic_size_ && count != size_) {
    return invalid_argument("TensorArray ", name_, " has size ", size_,
                            " and is not resizeable, but there are ", count, " elements to write");
  }
  written_together_ = count;
  for (int64_t i = 0; i < count; ++i) {
    MR_TRY(write_locked(i, std::move(values[static_cast<size_t>(i)])));
  }
  return ok_status();
}

Result<std::vector<Tensor>> TensorArray::read_all() {
  MutexLock lock(mu_);
  MR_TRY(check_open());
  const int64_t count = is_gradient_ && written_together_ > 0 ? written_together_ : size_;
  if (count - static_cast<int64_t>(elements_.size()) > kMaxUnwritten) {
    return resource_exhausted("TensorArray ", name_, " has size ", count, ", but only ",
                              elements_.size(), " of its elements were written");
  }
  std::vector<Tensor> values;
  for (int64_t i = 0; i < count; ++i) {
    MR_TRY_ASSIGN(Tensor value, read_locked(i));
    values.push_back(std::move(value));
  }
  return values;
}

Result<int64_t> TensorArray::size() const {
  MutexLock lock(mu_);
  MR_TRY(check_open());
  return size_;
}

void TensorArray::close() {
  std::unordered_map<int64_t, Element> dropped;  // ends after the lock
  MutexLock lock(mu_);
  dropped.swap(elements_);
  closed_ = true;
}

Result<Ref<TensorArray>> TensorArray::make_gradient(std::string name) {
  MutexLock lock(mu_);
  MR_TRY(check_open());
  if (summed_) {
    return invalid_argument("TensorArray ", name_,
                            " has no gradient: an index of it was written several times");
  }
  dynamic_size_ = false;
  Ref<TensorArray> gradient = make_ref<TensorArray>(
      std::move(name), Options{.dtype = dtype_,
                               .element_shape = element_shape_,
                               .identical_element_shapes = identical_element_shapes_,
                               .size = size_});
  MutexLock gradient_lock(gradient->mu_);
  gradient->is_gradient_ = true;
  gradient->written_together_ = written_together_;
  for (const auto& [index, element] : elements_) {
    if (!element.written) continue;
    gradient->elements_[index] = {.shape = element.shape, .written = true};
  }
  return gradient;
}

std::string TensorArray::describe() const {
  MutexLock lock(mu_);
  return str_cat("TensorArray ", dtype_, " ", element_shape_, ", ", size_, " elements");
}

Status TensorArray::check_open() const {
  if (!closed_) return ok_status();
  return invalid_argument("TensorArray ", name_, " has already been closed.");
}

Status TensorArray::write_locked(int64_t index, Tensor value) {
  const auto refuse = [&](const auto&... why) {
    return invalid_argument("TensorArray ", name_, ": Could not write to TensorArray index ", index,
                            " because ", why...);
  };
  if (index < 0) return refuse("it is negative");
  if (index >= size_ && !dynamic_size_) {
    return refuse("the array is not resizeable and size is: ", size_);
  }
  if (value.dtype() != dtype_) {
    return refuse("the value dtype is ", value.dtype(), " but TensorArray dtype is ", dtype_);
  }
  const PartialShape shape(value.shape());
  if (!element_shape_.compatible(shape)) {
    return refuse("the value shape is ", shape,
                  " which is incompatible with the TensorArray's element shape: ", element_shape_);
  }
  Element& element = elements_[index];
  if (element.read) return refuse("it has already been read.");
  if (element.written) {
    if (!is_gradient_) return refuse("it has already been written to.");
    return add_to(element, index, std::move(value));
  }
  if (identical_element_shapes_) element_shape_ = shape;
  size_ = std::max(size_, index + 1);
  element.shape = value.shape();
  element.tensor = std::move(value);
  element.written = true;
  return ok_status();
}

Status TensorArray::add_to(Element& element, int64_t index, Tensor value) {
  if (element.shape != value.shape()) {
    return invalid_argument("TensorArray ", name_, ": Could not aggregate to TensorArray index ",
                            index, " because the existing shape is ", element.shape,
                            " but the new input shape is ", value.shape());
  }
  if (!element.tensor.valid()) {
    element.tensor = std::move(value);
    return ok_status();
  }
  const BinaryFunction add(kAdd, dtype_);
  if (!add) {
    return unimplemented("TensorArray ", name_, ": elements of type ", dtype_, " cannot be added");
  }
  summed_ = true;
  Tensor sum = element.tensor;
  element.tensor = Tensor();
  if (!sum.writable()) {
    MR_TRY_ASSIGN(sum, sum.clone());
  }
  add(sum.raw(), value.raw(), sum.mutable_raw(), sum.num_elements());
  element.tensor = std::move(sum);
  return ok_status();
}

Result<Tensor> TensorArray::read_locked(int64_t index) {
  if (index < 0 || index >= size_) {
    return invalid_argument("TensorArray ", name_, ": Tried to read from index ", index,
                            " but array size is: ", size_);
  }
  const auto found = elements_.find(index);
  if (found == elements_.end() || !found->second.written) {
    if (!element_shape_.fully_known()) {
      return invalid_argument("TensorArray ", name_, ": Could not read from TensorArray index ",
                              index, ": nothing was written there, and the element shape ",
                              element_shape_, " is not fully defined");
    }
    MR_TRY_ASSIGN(Shape shape, element_shape_.to_shape());
    elements_[index] = {.shape = std::move(shape), .written = true};
  }
  Element& element = elements_[index];
  if (element.cleared) {
    return invalid_argument("TensorArray ", name_, ": Could not read index ", index,
                            " twice because it was cleared after a previous read (perhaps try "
                            "setting clear_after_read = false?)");
  }
  if (!element.tensor.valid()) {
    MR_TRY_ASSIGN(element.tensor, Tensor::zeros(dtype_, element.shape));
  }
  element.read = true;
  if (!clear_after_read_) return element.tensor;
  element.cleared = true;
  return std::exchange(element.tensor, Tensor());
}

Result<PartialShape> tensor_array_shape(const ShapeContext& c, DType dtype) {
  MR_TRY(c.with_rank(0, 0).status());
  MR_TRY(c.with_rank(c.num_inputs() - 1, 0).status());
  const std::vector<ResourceHandle::DTypeAndShape>& known = c.input_facts(0).resource;
  if (known.size() != 1) return PartialShape::unknown();
  if (known[0].dtype != dtype) {
    return invalid_argument("the TensorArray holds ", known[0].dtype, ", this op expects ", dtype);
  }
  return known[0].shape;
}

Status flow_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(c.num_inputs() - 1, 0).status());
  c.set_output(0, PartialShape::scalar());
  return ok_status();
}

Status expect_flow(const KernelContext& ctx) { return expect_rank(ctx, ctx.num_inputs() - 1, 0); }

Result<Ref<TensorArray>> tensor_array_input(const KernelContext& ctx, DType dtype) {
  MR_TRY(expect_flow(ctx));
  MR_TRY_ASSIGN(Ref<TensorArray> array, resource_input<TensorArray>(ctx, 0));
  if (array->dtype() != dtype) {
    return invalid_argument("TensorArray ", array->name(), " holds ", array->dtype(),
                            ", this op expects ", dtype);
  }
  return array;
}

void pass_flow(KernelContext& ctx) {
  ctx.set_output_value(0, ctx.take_input(ctx.num_inputs() - 1));
}

GradientArray gradient_array(const GradientContext& g, Expr flow) {
  const std::vector<Expr> made =
      call_multi("TensorArrayGradV3", {g.input(0), flow}, {{"source", g.source()}});
  if (made.size() != 2) return {};
  return {made[0], made[1]};
}

}  // namespace millrace
