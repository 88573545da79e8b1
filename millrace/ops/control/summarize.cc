#include "millrace/ops/control/summarize.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

std::string number_text(double x, int few, int many, bool single) {
  if (std::isnan(x)) return "nan";
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", few, x);
  const bool exact = single ? std::strtof(text, nullptr) == static_cast<float>(x)
                            : std::strtod(text, nullptr) == x;
  if (!exact) std::snprintf(text, sizeof text, "%.*g", many, x);
  return text;
}

std::string escaped(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '"':
      case '\'':
      case '\\':
        out += '\\';
        out += c;
        break;
      default:
        if (c >= 0x20 && c < 0x7f) {
          out += c;
        } else {
          char octal[8];
          std::snprintf(octal, sizeof octal, "\\%03o", static_cast<unsigned char>(c));
          out += octal;
        }
    }
  }
  return out;
}

template <class T>
std::string element_text(const T& x) {
  if constexpr (std::is_same_v<T, std::string>) {
    return escaped(x);
  } else if constexpr (std::is_same_v<T, double>) {
    return number_text(x, 15, 17, false);
  } else if constexpr (std::is_integral_v<T>) {
    return str_cat(static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(x));
  } else if constexpr (kComplex.contains(dtype_of<T>)) {
    return str_cat("(", element_text(x.real()), ",", element_text(x.imag()), ")");
  } else {
    return number_text(static_cast<double>(static_cast<float>(x)), 6, 9, true);
  }
}

template <class T>
class Summary {
 public:
  Summary(const Tensor& tensor, int64_t limit)
      : shape_(tensor.shape()), elements_(tensor.data<T>()), limit_(limit) {}

  std::string text() {
    if (shape_.rank() == 0) {
      if (limit_ > 0) out_ += element_text(elements_[0]);
    } else if (limit_ > 0) {
      append_dim(0);
    }
    if (limit_ < shape_.num_elements()) out_ += "...";
    return std::move(out_);
  }

 private:
  void append_dim(int dim) {
    const bool innermost = dim == shape_.rank() - 1;
    for (int64_t i = 0; i < shape_.dim(dim); ++i) {
      if (next_ >= limit_) {
        if (innermost && dim > 0) out_ += "...";
        return;
      }
      if (innermost) {
        if (i > 0) out_ += ' ';
        out_ += element_text(elements_[static_cast<size_t>(next_++)]);
      } else {
        out_ += '[';
        append_dim(dim + 1);
        out_ += ']';
      }
    }
  }

  const Shape& shape_;
  const std::span<const T> elements_;
  const int64_t limit_;
  int64_t next_ = 0;
  std::string out_;
};

}  // namespace

std::string summarize(const Tensor& tensor, int64_t max_elements) {
  const int64_t count = tensor.num_elements();
  const int64_t limit = max_elements < 0 ? count : std::min(max_elements, count);
  using Types = ConcatTypes<NumberTypes, TypeList<bool, std::string>>;
  if (!type_set_of<Types>.contains(tensor.dtype())) return tensor.to_string(limit);
  std::string out;
  MR_CHECK_OK(
      dispatch<Types>(tensor.dtype(), [&]<class T>() { out = Summary<T>(tensor, limit).text(); }));
  return out;
}

}  // namespace millrace
