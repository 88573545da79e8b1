#include "millrace/tensor/dtype.h"

#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/resource_handle.h"
#include "millrace/tensor/variant.h"

namespace millrace {

constexpr DTypeInfo kDTypeInfo[kNumDTypes] = {
    {"invalid", 0},
    {"float", 4},
    {"double", 8},
    {"int32", 4},
    {"uint8", 1},
    {"int16", 2},
    {"int8", 1},
    {"string", sizeof(std::string)},
    {"complex64", 8},
    {"int64", 8},
    {"bool", 1},
    {"qint8", 1},
    {"quint8", 1},
    {"qint32", 4},
    {"bfloat16", 2},
    {"qint16", 2},
    {"quint16", 2},
    {"uint16", 2},
    {"complex128", 16},
    {"half", 2},
    {"resource", sizeof(ResourceHandle)},
    {"variant", sizeof(Variant)},
    {"uint32", 4},
    {"uint64", 8},
    {"float8_e5m2", 1},
    {"float8_e4m3fn", 1},
    {"float8_e4m3fnuz", 1},
    {"float8_e4m3b11fnuz", 1},
    {"float8_e5m2fnuz", 1},
    {"int4", 1},
    {"uint4", 1},
    {"int2", 1},
    {"uint2", 1},
    {"float4_e2m1fn", 1},
};

namespace {

template <class... Ts>
constexpr bool sizes_agree(TypeList<Ts...>) {
  return ((kDTypeInfo[static_cast<int>(dtype_of<Ts>)].size == sizeof(Ts)) && ...);
}
static_assert(sizes_agree(PlainTypes()));

}  // namespace

std::string dtype_name(DType t) {
  if (!is_valid(t)) {
    return t == DType::kInvalid ? std::string("invalid")
                                : str_cat("dtype(", static_cast<int32_t>(t), ')');
  }
  return str_cat(kDTypeInfo[static_cast<int>(base_type(t))].name, is_ref(t) ? "_ref" : "");
}

DType dtype_from_name(std::string_view name) {
  constexpr std::string_view kRefSuffix = "_ref";
  if (name.size() > kRefSuffix.size() && name.ends_with(kRefSuffix)) {
    name.remove_suffix(kRefSuffix.size());
    const DType base = dtype_from_name(name);
    return base == DType::kInvalid || is_ref(base) ? DType::kInvalid : ref_type(base);
  }
  if (name == "float32") return DType::kFloat;
  if (name == "float64") return DType::kDouble;
  if (name == "float16") return DType::kHalf;
  for (int i = 1; i < kNumDTypes; ++i) {
    if (kDTypeInfo[i].name == name) return static_cast<DType>(i);
  }
  return DType::kInvalid;
}

void append_to(std::string& out, TypeSet set) {
  out += '{';
  bool first = true;
  for (int i = 1; i < kNumDTypes; ++i) {
    if (!set.contains(static_cast<DType>(i))) continue;
    if (!first) out += ", ";
    first = false;
    out += kDTypeInfo[i].name;
  }
  out += '}';
}

Status dispatch_failed(DType dtype, TypeSet expected) {
  if (!is_valid(dtype)) {
    return invalid_argument("expected a dtype of ", expected, ", got ", dtype, ", which is none");
  }
  return unimplemented("dtype ", dtype, " is not supported here, expected one of ", expected);
}

}  // namespace millrace
