#include "millrace/graph/attr_value.h"

#include <algorithm>
#include <bit>
#include <type_traits>

#include "millrace/base/hash.h"

namespace millrace {

namespace {

template <class T>
inline constexpr bool is_vector = false;
template <class T>
inline constexpr bool is_vector<std::vector<T>> = true;

template <class T>
constexpr std::string_view kind_of() {
  if constexpr (is_vector<T>) {
    using E = typename T::value_type;
    if constexpr (std::is_same_v<E, int64_t>) return "list(int)";
    if constexpr (std::is_same_v<E, float>) return "list(float)";
    if constexpr (std::is_same_v<E, bool>) return "list(bool)";
    if constexpr (std::is_same_v<E, std::string>) return "list(string)";
    if constexpr (std::is_same_v<E, DType>) return "list(type)";
    if constexpr (std::is_same_v<E, PartialShape>) return "list(shape)";
    if constexpr (std::is_same_v<E, TensorAttr> || std::is_same_v<E, Tensor>) return "list(tensor)";
    if constexpr (std::is_same_v<E, FunctionAttr>) return "list(func)";
  } else {
    if constexpr (std::is_same_v<T, std::monostate>) return "none";
    if constexpr (std::is_same_v<T, int64_t>) return "int";
    if constexpr (std::is_same_v<T, float>) return "float";
    if constexpr (std::is_same_v<T, bool>) return "bool";
    if constexpr (std::is_same_v<T, std::string>) return "string";
    if constexpr (std::is_same_v<T, DType>) return "type";
    if constexpr (std::is_same_v<T, PartialShape>) return "shape";
    if constexpr (std::is_same_v<T, TensorAttr> || std::is_same_v<T, Tensor>) return "tensor";
    if constexpr (std::is_same_v<T, FunctionAttr>) return "func";
    if constexpr (std::is_same_v<T, AttrPlaceholder>) return "placeholder";
    if constexpr (std::is_same_v<T, EmptyList>) return "list";
  }
}

// An element as text. Long strings are cut: this is for messages.
void write(std::string& out, std::monostate) { out += "none"; }
void write(std::string& out, int64_t v) { append_to(out, v); }
void write(std::string& out, float v) { append_to(out, v); }
void write(std::string& out, bool v) { append_to(out, v); }
void write(std::string& out, DType v) { append_to(out, v); }
void write(std::string& out, const PartialShape& v) { append_to(out, v); }
void write(std::string& out, const TensorAttr& v) { out += v.tensor.to_string(); }
void write(std::string& out, const AttrPlaceholder& v) { out += "$" + v.name; }
void write(std::string& out, EmptyList) { out += "[]"; }
void write(std::string& out, const std::string& v) {
  constexpr size_t kLongest = 200;
  out += '"';
  out.append(v, 0, kLongest);
  if (v.size() > kLongest) out += "...";
  out += '"';
}
void write(std::string& out, const FunctionAttr& v) {
  out += v.name;
  if (v.attrs.empty()) return;
  out += '[';
  bool first = true;
  for (const auto& [name, value] : v.attrs) {
    if (!first) out += ", ";
    first = false;
    out += name + "=" + value.to_string();
  }
  out += ']';
}
template <class T>
void write(std::string& out, const std::vector<T>& v) {
  constexpr size_t kMost = 32;
  out += '[';
  for (size_t i = 0; i < std::min(v.size(), kMost); ++i) {
    if (i > 0) out += ',';
    write(out, static_cast<const T&>(v[i]));
  }
  if (v.size() > kMost) out += ",...";
  out += ']';
}

uint64_t mix(uint64_t h, std::monostate) { return h; }
uint64_t mix(uint64_t h, int64_t v) { return hash_combine(h, static_cast<uint64_t>(v)); }
uint64_t mix(uint64_t h, float v) { return hash_combine(h, std::bit_cast<uint32_t>(v)); }
uint64_t mix(uint64_t h, bool v) { return hash_combine(h, v ? 1 : 0); }
uint64_t mix(uint64_t h, const std::string& v) { return hash_combine(h, hash_bytes(v)); }
uint64_t mix(uint64_t h, DType v) { return hash_combine(h, static_cast<uint64_t>(v)); }
uint64_t mix(uint64_t h, const PartialShape& v) {
  h = hash_combine(h, static_cast<uint64_t>(v.rank()));
  for (int64_t d : v.dims()) h = mix(h, d);
  return h;
}
uint64_t mix(uint64_t h, const TensorAttr& v) {
  const Tensor& t = v.tensor;
  h = mix(h, t.dtype());
  if (!t.valid()) return h;
  h = mix(h, PartialShape(t.shape()));
  if (t.dtype() == DType::kString) {
    for (const std::string& s : t.data<std::string>()) h = mix(h, s);
  } else if (is_plain(t.dtype()) && t.bytes() > 0) {
    h = hash_combine(h, hash_bytes(t.raw(), t.bytes()));
  }
  return h;
}
uint64_t mix(uint64_t h, const FunctionAttr& v) {
  h = mix(h, v.name);
  for (const auto& [name, value] : v.attrs) h = hash_combine(mix(h, name), value.hash());
  return h;
}
uint64_t mix(uint64_t h, const AttrPlaceholder& v) { return mix(h, v.name); }
uint64_t mix(uint64_t h, EmptyList) { return h; }
template <class T>
uint64_t mix(uint64_t h, const std::vector<T>& v) {
  h = hash_combine(h, v.size());
  for (size_t i = 0; i < v.size(); ++i) h = mix(h, static_cast<const T&>(v[i]));
  return h;
}

template <class T>
bool same(const T& a, const T& b) {
  return a == b;
}
bool same(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return same(x, y); });
}

bool is_empty_list(const AttrValue::Storage& storage) {
  return std::visit(
      [](const auto& v) {
        using T = std::decay_t<decltype(v)>;
        if constexpr (is_vector<T>) return v.empty();
        return std::is_same_v<T, EmptyList>;
      },
      storage);
}

}  // namespace

AttrValue::AttrValue() = default;
AttrValue::AttrValue(int64_t v) : storage_(v) {}
AttrValue::AttrValue(int v) : storage_(int64_t{v}) {}
AttrValue::AttrValue(float v) : storage_(v) {}
AttrValue::AttrValue(bool v) : storage_(v) {}
AttrValue::AttrValue(const char* v) : storage_(std::string(v)) {}
AttrValue::AttrValue(std::string_view v) : storage_(std::string(v)) {}
AttrValue::AttrValue(std::string v) : storage_(std::move(v)) {}
AttrValue::AttrValue(DType v) : storage_(v) {}
AttrValue::AttrValue(PartialShape v) : storage_(std::move(v)) {}
AttrValue::AttrValue(const Shape& v) : storage_(PartialShape(v)) {}
AttrValue::AttrValue(Tensor v) : storage_(TensorAttr{std::move(v)}) {}
AttrValue::AttrValue(FunctionAttr v) : storage_(std::move(v)) {}
AttrValue::AttrValue(AttrPlaceholder v) : storage_(std::move(v)) {}
AttrValue::AttrValue(EmptyList v) : storage_(v) {}
AttrValue::AttrValue(std::vector<int64_t> v) : storage_(std::move(v)) {}
AttrValue::AttrValue(std::vector<float> v) : storage_(std::move(v)) {}
AttrValue::AttrValue(std::vector<bool> v) : storage_(std::move(v)) {}
AttrValue::AttrValue(std::vector<std::string> v) : storage_(std::move(v)) {}
AttrValue::AttrValue(std::vector<DType> v) : storage_(std::move(v)) {}
AttrValue::AttrValue(std::vector<PartialShape> v) : storage_(std::move(v)) {}
AttrValue::AttrValue(std::vector<TensorAttr> v) : storage_(std::move(v)) {}
AttrValue::AttrValue(std::vector<FunctionAttr> v) : storage_(std::move(v)) {}
AttrValue::AttrValue(const AttrValue& other) = default;
AttrValue::AttrValue(AttrValue&& other) noexcept = default;
AttrValue& AttrValue::operator=(const AttrValue& other) = default;
AttrValue& AttrValue::operator=(AttrValue&& other) noexcept = default;
AttrValue::~AttrValue() = default;

void append_to(std::string& out, const AttrValue& value) { out += value.to_string(); }

AttrMap::AttrMap() = default;
AttrMap::AttrMap(const AttrMap&) = default;
AttrMap::AttrMap(AttrMap&&) noexcept = default;
AttrMap& AttrMap::operator=(const AttrMap&) = default;
AttrMap& AttrMap::operator=(AttrMap&&) noexcept = default;
AttrMap::~AttrMap() = default;

AttrMap::AttrMap(std::initializer_list<std::pair<std::string_view, AttrValue>> attrs) {
  entries_.reserve(attrs.size());
  for (const auto& [name, value] : attrs) set(name, value);
}

const AttrValue* AttrMap::find(std::string_view name) const {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const auto& entry, std::string_view n) { return entry.first < n; });
  return it != entries_.end() && it->first == name ? &it->second : nullptr;
}

void AttrMap::set(std::string_view name, AttrValue value) {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const auto& entry, std::string_view n) { return entry.first < n; });
  if (it != entries_.end() && it->first == name) {
    it->second = std::move(value);
  } else {
    entries_.emplace(it, std::string(name), std::move(value));
  }
}

void AttrMap::erase(std::string_view name) {
  std::erase_if(entries_, [name](const auto& entry) { return entry.first == name; });
}

bool AttrMap::empty() const { return entries_.empty(); }
size_t AttrMap::size() const { return entries_.size(); }
const std::pair<std::string, AttrValue>* AttrMap::begin() const { return entries_.data(); }
const std::pair<std::string, AttrValue>* AttrMap::end() const {
  return entries_.data() + entries_.size();
}

bool operator==(const AttrMap& a, const AttrMap& b) { return a.entries_ == b.entries_; }

std::string_view AttrValue::kind() const {
  return std::visit([](const auto& v) { return kind_of<std::decay_t<decltype(v)>>(); }, storage_);
}

std::string AttrValue::to_string() const {
  std::string out;
  std::visit([&out](const auto& v) { write(out, v); }, storage_);
  return out;
}

uint64_t AttrValue::hash() const {
  if (is_empty_list(storage_)) return hash_bytes("list");
  return std::visit(
      [](const auto& v) { return mix(hash_bytes(kind_of<std::decay_t<decltype(v)>>()), v); },
      storage_);
}

bool operator==(const AttrValue& a, const AttrValue& b) {
  if (a.storage_.index() != b.storage_.index()) {
    return (a.get<EmptyList>() != nullptr && is_empty_list(b.storage_)) ||
           (b.get<EmptyList>() != nullptr && is_empty_list(a.storage_));
  }
  return std::visit(
      [&b](const auto& v) { return same(v, std::get<std::decay_t<decltype(v)>>(b.storage_)); },
      a.storage_);
}

template <class T>
Result<T> read_attr(const AttrMap& attrs, std::string_view name) {
  const AttrValue* value = attrs.find(name);
  if (value == nullptr) return invalid_argument("No attr named '", name, "'");
  if constexpr (std::is_same_v<T, Tensor>) {
    if (const auto* tensor = value->get<TensorAttr>()) return tensor->tensor;
  } else if constexpr (std::is_same_v<T, std::vector<Tensor>>) {
    if (const auto* list = value->get<std::vector<TensorAttr>>()) {
      std::vector<Tensor> tensors;
      tensors.reserve(list->size());
      for (const TensorAttr& t : *list) tensors.push_back(t.tensor);
      return tensors;
    }
  } else {
    if (const T* typed = value->get<T>()) return *typed;
  }
  if constexpr (is_vector<T>) {
    if (value->get<EmptyList>() != nullptr) return T();
  }
  return invalid_argument("attr '", name, "' is a ", value->kind(), ", expected ", kind_of<T>());
}

#define MR_INSTANTIATE(T)                                            \
  template Result<T> read_attr<T>(const AttrMap&, std::string_view); \
  template Result<std::vector<T>> read_attr<std::vector<T>>(const AttrMap&, std::string_view);
MR_INSTANTIATE(int64_t)
MR_INSTANTIATE(float)
MR_INSTANTIATE(bool)
MR_INSTANTIATE(std::string)
MR_INSTANTIATE(DType)
MR_INSTANTIATE(PartialShape)
MR_INSTANTIATE(Tensor)
MR_INSTANTIATE(FunctionAttr)
#undef MR_INSTANTIATE

}  // namespace millrace
