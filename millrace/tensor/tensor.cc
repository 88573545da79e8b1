#include "millrace/tensor/tensor.h"

#include <algorithm>
#include <cstring>

#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"

namespace millrace {
namespace {

bool on_host(const Tensor& tensor) {
  return tensor.buffer() && tensor.buffer()->space() != MemorySpace::kDevice;
}

// A tensor of no elements may be without memory.
bool readable(const Tensor& tensor) { return tensor.num_elements() == 0 || on_host(tensor); }

void append_quoted(std::string& out, std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  constexpr size_t kMaxShown = 64;
  out += '"';
  for (const char c : text.substr(0, kMaxShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += text.size() > kMaxShown ? "\"..." : "\"";
}

template <class T>
void append_element(std::string& out, const T& value) {
  if constexpr (dtype_of<T> == DType::kString) {
    append_quoted(out, value);
  } else if constexpr (dtype_of<T> == DType::kResource) {
    out += str_cat(value.type_name, ' ');
    append_quoted(out, value.name);
    if (!value.device.empty()) out += str_cat(" on ", value.device);
  } else if constexpr (dtype_of<T> == DType::kVariant) {
    out += value.object ? value.object->type_name() : std::string_view("nothing");
  } else if constexpr (is_complex_v<T>) {
    append_complex(out, value);
  } else if constexpr (requires { value.value; }) {
    append_to(out, static_cast<int>(value.value));
  } else {
    append_to(out, value);
  }
}

using AllTypes = ConcatTypes<PlainTypes, TypeList<std::string, ResourceHandle, Variant>>;
using ObjectTypes = TypeList<std::string, ResourceHandle, Variant>;

bool element_equal(const std::string& a, const std::string& b) { return a == b; }
bool element_equal(const ResourceHandle& a, const ResourceHandle& b) { return a == b; }
bool element_equal(const Variant& a, const Variant& b) { return a.object == b.object; }

}  // namespace

Result<Tensor> Tensor::allocate(DType dtype, Shape shape, Allocator& allocator) {
  Result<Ref<Buffer>> buffer = Buffer::allocate(dtype, shape.num_elements(), allocator);
  if (!buffer.ok()) [[unlikely]] {
    return buffer.status().with_prefix(str_cat("a tensor of ", dtype, ' ', shape));
  }
  Result<Tensor> result{Tensor()};
  Tensor& tensor = *result;
  tensor.buffer_ = std::move(*buffer);
  tensor.shape_ = std::move(shape);
  tensor.dtype_ = dtype;
  return result;
}

Result<Tensor> Tensor::zeros(DType dtype, Shape shape) {
  Result<Tensor> result = allocate(dtype, std::move(shape));
  if (result.ok() && is_plain(dtype)) std::memset(result->mutable_raw(), 0, result->bytes());
  return result;
}

Result<Tensor> Tensor::reshaped(Shape shape) const {
  if (shape.num_elements() != num_elements()) {
    return invalid_argument("cannot reshape a tensor of shape ", shape_, " (", num_elements(),
                            " elements) to ", shape, " (", shape.num_elements(), " elements)");
  }
  Tensor result = *this;
  result.shape_ = std::move(shape);
  return result;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  MR_CHECK(rank() >= 1 && begin >= 0 && begin <= end && end <= dim(0));
  const Shape row_shape = shape_.without_first();
  Tensor result = *this;
  result.shape_ = shape_.with_dim(0, end - begin).value();
  if (num_elements() > 0) {
    result.offset_ += static_cast<size_t>(begin * row_shape.num_elements()) * dtype_size(dtype_);
  }
  return result;
}

Tensor Tensor::row(int64_t i) const {
  MR_CHECK(rank() >= 1 && i >= 0 && i < dim(0));
  Tensor result;
  result.shape_ = shape_.without_first();
  result.offset_ =
      offset_ + static_cast<size_t>(i * result.shape_.num_elements()) * dtype_size(dtype_);
  result.buffer_ = buffer_;
  result.dtype_ = dtype_;
  return result;
}

Tensor Tensor::bit_cast_to(DType dtype) const {
  MR_CHECK(valid() && is_valid(dtype) && is_plain(dtype) && is_plain(dtype_) &&
           dtype_size(dtype) == dtype_size(dtype_));
  Tensor result = *this;
  result.dtype_ = dtype;
  return result;
}

Result<Tensor> Tensor::clone(Allocator& allocator) const {
  if (!valid()) return invalid_argument("cannot copy a tensor that is not there");
  MR_TRY_ASSIGN(Tensor copy, allocate(dtype_, shape_, allocator));
  copy_elements(*this, copy);
  return copy;
}

std::string Tensor::to_string(int64_t max_elements) const {
  if (!valid()) return "no tensor";
  std::string out = str_cat(dtype_, ' ', shape_, " {");
  if (!readable(*this)) return out + "in device memory}";
  const int64_t shown = std::min(std::max<int64_t>(max_elements, 0), num_elements());
  MR_CHECK_OK(dispatch<AllTypes>(dtype_, [&]<class T>() {
    const std::span<const T> elements = data<T>();
    for (int64_t i = 0; i < shown; ++i) {
      if (i > 0) out += ", ";
      append_element(out, elements[static_cast<size_t>(i)]);
    }
  }));
  if (shown < num_elements()) out += shown > 0 ? ", ..." : "...";
  out += '}';
  return out;
}

void copy_elements(const Tensor& from, Tensor& to) {
  MR_CHECK(from.dtype() == to.dtype() && from.num_elements() == to.num_elements());
  MR_CHECK(readable(from) && readable(to));
  if (from.num_elements() == 0 || from.raw() == to.raw()) return;
  if (is_plain(from.dtype())) {
    std::memcpy(to.mutable_raw(), from.raw(), from.bytes());
    return;
  }
  MR_CHECK_OK(dispatch<ObjectTypes>(from.dtype(), [&]<class T>() {
    const std::span<const T> source = from.data<T>();
    std::copy(source.begin(), source.end(), to.mutable_data<T>().begin());
  }));
}

bool bit_equal(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.num_elements() == 0 || a.raw() == b.raw()) return true;
  MR_CHECK(readable(a) && readable(b));
  if (is_plain(a.dtype())) return std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
  bool equal = false;
  MR_CHECK_OK(dispatch<ObjectTypes>(a.dtype(), [&]<class T>() {
    const std::span<const T> left = a.data<T>();
    const std::span<const T> right = b.data<T>();
    equal = std::equal(left.begin(), left.end(), right.begin(),
                       [](const T& x, const T& y) { return element_equal(x, y); });
  }));
  return equal;
}

}  // namespace millrace
