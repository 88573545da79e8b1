// Numbers to strings and back.

#include <cstdio>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/map_strings.h"
#include "millrace/ops/strings/parse_number.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// How printf is asked for one number. Only what was checked gets into the format.
struct NumberFormat {
  std::string flag;  // at most one of " +-0#"
  int width = -1;
  int precision = -1;
  char letter = 'f';  // 'f', 'e' or 'g'

  template <class V>
  std::string print(const char* length, char conversion, V value) const {
    std::string format = str_cat("%", flag);
    if (width >= 0) append_to(format, str_cat(width));
    if (precision >= 0) append_to(format, str_cat(".", precision));
    append_to(format, str_cat(length, std::string_view(&conversion, 1)));
    const int size = std::snprintf(nullptr, 0, format.c_str(), value);
    std::string out(static_cast<size_t>(size) + 1, '\0');
    std::snprintf(out.data(), out.size(), format.c_str(), value);
    out.pop_back();
    return out;
  }
  std::string print(double x) const { return print("", letter, x); }
  std::string print(const std::string& s) const {
    std::string out = s;
    if (width < 0 || out.size() >= static_cast<size_t>(width)) return out;
    const size_t missing = static_cast<size_t>(width) - out.size();
    out.insert(flag == "-" ? out.size() : 0, missing, ' ');
    return out;
  }
};

class AsString : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const DType dtype, node.attr<DType>("T"));
    MR_TRY_ASSIGN(const int64_t precision, node.attr<int64_t>("precision"));
    MR_TRY_ASSIGN(const bool scientific, node.attr<bool>("scientific"));
    MR_TRY_ASSIGN(const bool shortest, node.attr<bool>("shortest"));
    MR_TRY_ASSIGN(const int64_t width, node.attr<int64_t>("width"));
    NumberFormat format;
    MR_TRY_ASSIGN(format.flag, node.attr<std::string>("fill"));
    if ((kIntegers | TypeSet{DType::kBool}).contains(dtype)) {
      if (scientific || shortest) {
        return invalid_argument("scientific and shortest format not supported for datatype ",
                                dtype);
      }
      if (precision >= 0) {
        return invalid_argument("precision not supported for datatype ", dtype);
      }
    }
    if (scientific && shortest) {
      return invalid_argument("Cannot select both scientific and shortest notation");
    }
    if (format.flag.size() > 1) {
      return invalid_argument("Fill string must be one or fewer characters");
    }
    if (!format.flag.empty() &&
        std::string_view(" +-0#").find(format.flag[0]) == std::string_view::npos) {
      return invalid_argument("Fill argument not supported: \"", format.flag, "\"");
    }
    constexpr int64_t kMost = 1000;
    if (width > kMost || precision > kMost) {
      return invalid_argument("width and precision must be at most ", kMost, ", got ", width,
                              " and ", precision);
    }
    format.width = static_cast<int>(width);
    format.precision = static_cast<int>(precision);
    format.letter = scientific ? 'e' : shortest ? 'g' : 'f';
    return std::make_unique<AsString>(std::move(format));
  }
  explicit AsString(NumberFormat format) : format_(std::move(format)) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& x = ctx.input(0);
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, x.shape()));
    std::string* to = out->mutable_data<std::string>().data();
    using Types = ConcatTypes<NumberTypes, TypeList<bool, std::string>>;
    return dispatch<Types>(x.dtype(), [&]<class T>() {
      const T* from = x.data<T>().data();
      ctx.parallel_for(x.num_elements(), 300, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = text(from[i]);
      });
    });
  }

 private:
  template <class T>
  std::string text(const T& x) const {
    if constexpr (std::is_same_v<T, bool>) {
      return x ? "true" : "false";
    } else if constexpr (std::is_same_v<T, std::string>) {
      return format_.print(x);
    } else if constexpr (std::is_integral_v<T>) {
      NumberFormat format = format_;
      // Not for integers, or not for unsigned ones.
      if (format.flag == "#" ||
          (!std::is_signed_v<T> && format.flag != "0" && format.flag != "-")) {
        format.flag.clear();
      }
      if constexpr (std::is_signed_v<T>) {
        return format.print("ll", 'd', static_cast<long long>(x));
      } else {
        return format.print("ll", 'u', static_cast<unsigned long long>(x));
      }
    } else if constexpr (kComplex.contains(dtype_of<T>)) {
      return str_cat("(", format_.print(static_cast<double>(x.real())), ",",
                     format_.print(static_cast<double>(x.imag())), ")");
    } else {
      return format_.print(static_cast<double>(x));
    }
  }

  const NumberFormat format_;
};

Status string_to_number_cpu(KernelContext& ctx) {
  using Types = TypeList<float, double, int32_t, int64_t>;
  return dispatch<Types>(ctx.output_type(0), [&]<class T>() {
    return map_strings<T>(ctx, [](const std::string& s) -> Result<T> {
      T value;
      if (parse_number(s, value)) return value;
      return invalid_argument("StringToNumberOp could not correctly convert string: ", s);
    });
  });
}

}  // namespace

void register_as_string(Registry& registry) {
  registry.add({.name = "AsString",
                .doc = "Each element as text.",
                .inputs = {{"input", "T"}},
                .outputs = {{"output", "string"}},
                .types = {{"T", kNumbers | TypeSet{DType::kBool, DType::kString}}},
                .attrs = {{"precision", "int = -1", "Digits after the point; negative: six."},
                          {"scientific", "bool = false", "With an exponent."},
                          {"shortest", "bool = false", "With or without, whichever is shorter."},
                          {"width", "int = -1", "At least so many characters."},
                          {"fill", "string = ''", "A flag of printf: ' ', '+', '-', '0' or '#'."}},
                .traits = {.cannot_differentiate = true, .cost = 300},
                .shape = shape_rules::unchanged});
  registry.add({.name = "StringToNumber",
                .doc = "The number that each string spells.",
                .inputs = {{"string_tensor", "string"}},
                .outputs = {{"output", "out_type"}},
                .types = {{"out_type",
                           {DType::kFloat, DType::kDouble, DType::kInt32, DType::kInt64},
                           DType::kFloat}},
                .traits = {.cannot_differentiate = true, .cost = 60},
                .shape = shape_rules::unchanged});
  registry.kernel<AsString>("AsString", DeviceKind::kCpu);
  registry.kernel("StringToNumber", DeviceKind::kCpu, string_to_number_cpu);
}

}  // namespace millrace
