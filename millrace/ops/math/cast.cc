#include "millrace/ops/math/cast.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/math/cast_loops.h"
#include "millrace/ops/stream.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

constexpr TypeSet kDifferentiable = kFloating | kComplex;

Status cast_grad(GradientContext& c) {
  const DType from = base_type(c.input_type(0));
  if (kDifferentiable.contains(from) && kDifferentiable.contains(c.gradient().dtype())) {
    c.set(0, cast(c.gradient(), from));
  }
  return ok_status();
}

void cast_value(ValueContext& c) {
  const PartialValue* x = c.input(0);
  const Result<DType> from = c.attr<DType>("SrcT"), to = c.attr<DType>("DstT");
  if (x == nullptr || !from.ok() || !to.ok()) return;
  if (!kIndexTypes.contains(*from) || !kIndexTypes.contains(*to)) return;
  PartialValue y = *x;
  for (auto& e : y.elements) {
    if (e && *to == DType::kInt32) e = static_cast<int32_t>(*e);
  }
  c.set_output(0, std::move(y));
}

template <class T>
inline constexpr bool kIsQuantized = requires(T t) { t.value; } && !requires { T::kMax; };
template <class T>
inline constexpr bool kIsNarrowInt = requires { T::kMax; };

// `v` as an integer in [low, high], towards zero. What does not fit, NaN too, is the least integer
// in types of 32 and 64 bits with a sign, as processors have it and programs test for, and the
// nearest integer (0 for NaN) in others.
template <class I, class F>
I to_integer(F v, I low, I high) {
  if constexpr (sizeof(I) >= 4 && std::is_signed_v<I>) {
    if (low == std::numeric_limits<I>::min()) {
      // -low is a power of two: exact in F, while high may not be.
      const bool fits = v >= static_cast<F>(low) && v < -static_cast<F>(low);
      return fits ? static_cast<I>(v) : low;
    }
  }
  if (v != v) return 0;
  if (v <= static_cast<F>(low)) return low;
  if (v >= static_cast<F>(high)) return high;
  return static_cast<I>(v);
}

template <class To, class From>
To convert(From v) {
  if constexpr (is_complex_v<From>) {
    if constexpr (is_complex_v<To>) {
      using P = typename RealPart<To>::Type;
      return To(static_cast<P>(v.real()), static_cast<P>(v.imag()));
    } else {
      return convert<To>(v.real());
    }
  } else if constexpr (is_complex_v<To>) {
    return To(convert<typename RealPart<To>::Type>(v), 0);
  } else if constexpr (std::is_same_v<To, bool>) {
    return v != From{};
  } else if constexpr (std::is_integral_v<To>) {
    if constexpr (std::is_floating_point_v<From>) {
      return to_integer<To>(v, std::numeric_limits<To>::min(), std::numeric_limits<To>::max());
    } else {
      return static_cast<To>(v);
    }
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(v);
  } else if constexpr (kIsQuantized<To>) {
    return To{convert<decltype(To::value)>(v)};
  } else if constexpr (kIsNarrowInt<To>) {
    if constexpr (std::is_floating_point_v<From>)
      return To(to_integer<int>(v, To::kMin, To::kMax));
    else
      return To(static_cast<int>(static_cast<uint8_t>(v)));
  } else {
    return To(static_cast<float>(v));  // half, bfloat16 and the eight-bit floats
  }
}

// The wide type that holds every T.
template <class T>
struct WideType {
  using Type = double;
};
template <class T>
  requires(is_complex_v<T>)
struct WideType<T> {
  using Type = Complex128;
};
template <class T>
  requires(std::is_integral_v<T> || kIsQuantized<T> || kIsNarrowInt<T>)
struct WideType<T> {
  using Type = std::conditional_t<std::is_same_v<T, uint64_t>, uint64_t, int64_t>;
};

template <class T>
auto widen(T v) {
  using Wide = typename WideType<T>::Type;
  if constexpr (kIsQuantized<T> || kIsNarrowInt<T>) {
    return static_cast<Wide>(v.value);
  } else if constexpr (is_complex_v<T>) {
    return Wide(v.real(), v.imag());
  } else if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<Wide>(v);
  } else {
    return static_cast<Wide>(static_cast<float>(v));
  }
}

using Loop = void (*)(const void* from, void* to, int64_t n);

template <class From, class To>
void convert_loop(const void* from, void* to, int64_t n) {
  const From* x = static_cast<const From*>(from);
  To* y = static_cast<To*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
}

template <class From>
void widen_loop(const void* from, void* to, int64_t n) {
  const From* x = static_cast<const From*>(from);
  auto* y = static_cast<typename WideType<From>::Type*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = widen(x[i]);
}

using FrequentTypes = TypeList<float, double, int32_t, int64_t, uint8_t, bool>;

// Null when the pair is not a frequent one.
Loop direct_loop(DType from, DType to) {
  Loop loop = isa_table<CastLoops>().find(from, to);
  if (loop != nullptr) return loop;
  if (!type_set_of<FrequentTypes>.contains(from) || !type_set_of<FrequentTypes>.contains(to)) {
    return nullptr;
  }
  Status found = dispatch<FrequentTypes>(from, [&]<class From>() {
    return dispatch<FrequentTypes>(to, [&]<class To>() { loop = convert_loop<From, To>; });
  });
  return found.ok() ? loop : nullptr;
}

// Asks for the `next` elements after the first m, while these are converted: parts are so short
// that processors do not foresee what is read far enough.
void fetch(const char* x, int64_t m, int64_t next, size_t size) {
  constexpr int64_t kLine = 64;
  const char* const from = x + static_cast<size_t>(m) * size;
  const int64_t bytes = next * static_cast<int64_t>(size);
  for (int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(from + i);
}

class Cast final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool truncate, node.attr<bool>("Truncate"));
    MR_TRY_ASSIGN(const CastFunction function, CastFunction::make(base_type(node.input_types[0]),
                                                                  node.output_types[0], truncate));
    return std::unique_ptr<Kernel>(new Cast(function, truncate));
  }
  Cast(const CastFunction& function, bool truncate) : function_(function), truncate_(truncate) {}

  Status compute(KernelContext& ctx) const override {
    if (function_.is_copy()) {
      ctx.set_output_value(0, ctx.take_input(0));
      return ok_status();
    }
    const char* x = static_cast<const char*>(ctx.input(0).raw());
    const size_t in_size = dtype_size(ctx.input(0).dtype());
    const Shape shape = ctx.input(0).shape();
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    char* y = static_cast<char*>(out->mutable_raw());
    if (DeviceEngine* const device = device_engine(ctx)) {
      return device->cast(ctx, ctx.input(0).dtype(), out->dtype(), truncate_, x, y,
                          shape.num_elements());
    }
    const size_t out_size = dtype_size(out->dtype());
    const bool stream = static_cast<int64_t>(out->bytes()) >= kStreamBytes;
    ctx.parallel_for(shape.num_elements(), function_.cost(), [&](int64_t begin, int64_t end) {
      char* const to = y + static_cast<size_t>(begin) * out_size;
      write_parts(stream, end - begin, to, out_size, [&](int64_t i, int64_t m, char* part) {
        const char* const from = x + static_cast<size_t>(begin + i) * in_size;
        if (stream) fetch(from, m, std::min(m, end - begin - i - m), in_size);
        function_(from, part, m);
      });
    });
    return ok_status();
  }

 private:
  const CastFunction function_;
  const bool truncate_;
};

}  // namespace

template <class Wide>
Status CastFunction::set_narrow(DType to) {
  return dispatch<PlainTypes>(to, [&]<class To>() { narrow_ = convert_loop<Wide, To>; });
}

Result<CastFunction> CastFunction::make(DType from, DType to, bool truncate) {
  CastFunction out;
  if (from == to) return out;
  if (!is_plain(from) || !is_plain(to)) {
    return unimplemented("Cast ", from, " to ", to, " is not supported");
  }
  out.in_size_ = dtype_size(from);
  out.out_size_ = dtype_size(to);
  out.direct_ = direct_loop(from, to);
  out.blocks_ = to == DType::kFloat ? float_blocks(from) : float_blocks(to);
  out.to_float_ = to == DType::kFloat && out.blocks_.to_float != nullptr;
  out.from_float_ = from == DType::kFloat && out.blocks_.from_float != nullptr;
  if (truncate && kFloating.contains(from)) out.set_truncated(to);
  MR_TRY(dispatch<PlainTypes>(from, [&]<class From>() {
    using Wide = typename WideType<From>::Type;
    out.widen_ = widen_loop<From>;
    out.wide_size_ = sizeof(Wide);
    return out.template set_narrow<Wide>(to);
  }));
  return out;
}

void CastFunction::set_truncated(DType to) {
  const int bits = to == DType::kFloat      ? 23
                   : to == DType::kHalf     ? 10
                   : to == DType::kBFloat16 ? 7
                                            : 52;
  if (bits == 52) return;
  dropped_bits_ = (uint64_t{1} << (52 - bits)) - 1;
  direct_ = nullptr;
  from_float_ = false;
}

void CastFunction::operator()(const void* from, void* to, int64_t n) const {
  const char* x = static_cast<const char*>(from);
  char* y = static_cast<char*>(to);
  if (direct_ != nullptr) return direct_(x, y, n);
  if (to_float_) return blocks_.to_float(x, reinterpret_cast<float*>(y), n);
  if (from_float_) return blocks_.from_float(reinterpret_cast<const float*>(x), y, n);
  alignas(64) char block[8192];
  const int64_t step = static_cast<int64_t>(sizeof block / wide_size_);
  for (int64_t i = 0; i < n; i += step) {
    const int64_t m = std::min(step, n - i);
    widen_(x + static_cast<size_t>(i) * in_size_, block, m);
    if (dropped_bits_ != 0) drop_bits(reinterpret_cast<double*>(block), m);
    narrow_(block, y + static_cast<size_t>(i) * out_size_, m);
  }
}

void CastFunction::drop_bits(double* values, int64_t n) const {
  for (int64_t i = 0; i < n; ++i) {
    if (values[i] != values[i]) continue;
    values[i] = std::bit_cast<double>(std::bit_cast<uint64_t>(values[i]) & ~dropped_bits_);
  }
}

void register_cast(Registry& registry) {
  registry.add(
      {.name = "Cast",
       .doc = "x as another type. Integers wrap; real numbers become integers towards zero, "
              "saturating, NaN as 0; of complex numbers the real part is taken.",
       .inputs = {{"x", "SrcT"}},
       .outputs = {{"y", "DstT"}},
       .types = {{"SrcT", {}}, {"DstT", {}}},
       .attrs = {{"Truncate", "bool = false",
                  "Drop what the result's mantissa cannot hold instead of rounding."}},
       .traits =
           {.elementwise = true, .may_alias = 1, .cost = 0.5F, .fused_by = "_FusedElementwise"},
       .shape = shape_rules::unchanged,
       .value = cast_value,
       .gradient = cast_grad});
  registry.kernel<Cast>("Cast", DeviceKind::kCpu);
}

}  // namespace millrace
