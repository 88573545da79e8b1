#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class AttrValue;

// Attributes by name, in name order. A few dozen at most, so a sorted vector.
class AttrMap {
 public:
  AttrMap();
  AttrMap(std::initializer_list<std::pair<std::string_view, AttrValue>> attrs);
  AttrMap(const AttrMap&);
  AttrMap(AttrMap&&) noexcept;
  AttrMap& operator=(const AttrMap&);
  AttrMap& operator=(AttrMap&&) noexcept;
  ~AttrMap();

  // Null when there is none.
  const AttrValue* find(std::string_view name) const;
  // Adds or replaces.
  void set(std::string_view name, AttrValue value);
  void erase(std::string_view name);
  bool empty() const;
  size_t size() const;

  const std::pair<std::string, AttrValue>* begin() const;
  const std::pair<std::string, AttrValue>* end() const;

  friend bool operator==(const AttrMap& a, const AttrMap& b);

 private:
  std::vector<std::pair<std::string, AttrValue>> entries_;
};

// A function by name, with values for the attributes of its signature.
struct FunctionAttr {
  std::string name;
  AttrMap attrs;
  friend bool operator==(const FunctionAttr&, const FunctionAttr&) = default;
};

// Inside a function's body: the value of the enclosing function's attribute of this name.
struct AttrPlaceholder {
  std::string name;
  friend bool operator==(const AttrPlaceholder&, const AttrPlaceholder&) = default;
};

// A list whose element kind is not known, because it is empty. Equal to an empty list of any kind.
struct EmptyList {
  friend bool operator==(EmptyList, EmptyList) { return true; }
};

// Compares by dtype, shape and bits.
struct TensorAttr {
  Tensor tensor;
  friend bool operator==(const TensorAttr& a, const TensorAttr& b) {
    return bit_equal(a.tensor, b.tensor);
  }
};

// The value of one attribute. Equality is by value, floats by bits.
class AttrValue {
 public:
  using Storage =
      std::variant<std::monostate, int64_t, float, bool, std::string, DType, PartialShape,
                   TensorAttr, FunctionAttr, AttrPlaceholder, EmptyList, std::vector<int64_t>,
                   std::vector<float>, std::vector<bool>, std::vector<std::string>,
                   std::vector<DType>, std::vector<PartialShape>, std::vector<TensorAttr>,
                   std::vector<FunctionAttr>>;

  // None of them is inline: what a variant of so many kinds becomes is compiled once.
  AttrValue();
  AttrValue(int64_t v);                    // NOLINT
  AttrValue(int v);                        // NOLINT
  AttrValue(float v);                      // NOLINT
  AttrValue(bool v);                       // NOLINT
  AttrValue(const char* v);                // NOLINT
  AttrValue(std::string_view v);           // NOLINT
  AttrValue(std::string v);                // NOLINT
  AttrValue(DType v);                      // NOLINT
  AttrValue(PartialShape v);               // NOLINT
  AttrValue(const Shape& v);               // NOLINT
  AttrValue(Tensor v);                     // NOLINT
  AttrValue(FunctionAttr v);               // NOLINT
  AttrValue(AttrPlaceholder v);            // NOLINT
  AttrValue(EmptyList v);                  // NOLINT
  AttrValue(std::vector<int64_t> v);       // NOLINT
  AttrValue(std::vector<float> v);         // NOLINT
  AttrValue(std::vector<bool> v);          // NOLINT
  AttrValue(std::vector<std::string> v);   // NOLINT
  AttrValue(std::vector<DType> v);         // NOLINT
  AttrValue(std::vector<PartialShape> v);  // NOLINT
  AttrValue(std::vector<TensorAttr> v);    // NOLINT
  AttrValue(std::vector<FunctionAttr> v);  // NOLINT
  AttrValue(const AttrValue& other);
  AttrValue(AttrValue&& other) noexcept;
  AttrValue& operator=(const AttrValue& other);
  AttrValue& operator=(AttrValue&& other) noexcept;
  ~AttrValue();

  bool empty() const { return std::holds_alternative<std::monostate>(storage_); }
  // Null when the value is of another kind. An EmptyList reads as any vector: see read().
  template <class T>
  const T* get() const {
    return std::get_if<T>(&storage_);
  }
  const Storage& storage() const { return storage_; }

  // "int", "list(type)", "func", ...: the kinds of op definitions; "list" for an EmptyList.
  std::string_view kind() const;
  // For messages: 3, "SAME", float, [1,2], ...
  std::string to_string() const;
  // The same for equal values, in this process and others: for common subexpressions and plan keys.
  uint64_t hash() const;

  friend bool operator==(const AttrValue& a, const AttrValue& b);

 private:
  Storage storage_;
};

void append_to(std::string& out, const AttrValue& value);

// Reads attribute `name` as a T: int64_t, float, bool, std::string, DType, PartialShape, Tensor,
// FunctionAttr, or a std::vector of one of them. INVALID_ARGUMENT when it is absent or of another
// kind.
template <class T>
Result<T> read_attr(const AttrMap& attrs, std::string_view name);

}  // namespace millrace
