#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/value.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

struct TableSpec {
  enum class Kind : uint8_t {
    kConstant,  // filled once; nothing is found before
    kMutable,
    kDense,  // mutable, and two keys stand for nothing
  };
  Kind kind = Kind::kConstant;
  DType key_dtype = DType::kInvalid, value_dtype = DType::kInvalid;
  Shape key_shape = {}, value_shape = {};
  friend bool operator==(const TableSpec&, const TableSpec&) = default;
};

// A map from keys to values, both plain numbers or strings, or tensors of them, that steps share.
// Thread-safe: a call sees all of another one or nothing.
class LookupTable final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "LookupTable";

  // `reserved`: keys that nobody may use, as tensors of the key's type and shape.
  LookupTable(std::string_view container, std::string_view name, const TableSpec& spec,
              std::vector<Tensor> reserved);

  const TableSpec& spec() const { return spec_; }
  // Its name in the form of a reference; see ops/queue/handle.h.
  const Ref<RefCell>& handle() const { return handle_; }

  int64_t size() const;
  // The shape of values for such keys; INVALID_ARGUMENT when they cannot be keys. A dense table
  // takes one key or a vector of them.
  Result<Shape> values_shape(const Shape& keys) const;
  // Writes the values of keys, and the default where there is none, to `out`, of values_shape().
  // FAILED_PRECONDITION before a constant table is filled.
  Status find(const Tensor& keys, const Tensor& default_value, Tensor& out) const;
  // Fills a constant table: FAILED_PRECONDITION when that happened before, INVALID_ARGUMENT for two
  // values of one key.
  Status initialize(const Tensor& keys, const Tensor& values);
  // Adds or replaces.
  Status insert(const Tensor& keys, const Tensor& values);
  // The table has these and nothing else.
  Status import(const Tensor& keys, const Tensor& values);
  Status remove(const Tensor& keys);
  // All keys and all values, in the order that they came, as far as none was removed.
  Result<std::pair<Tensor, Tensor>> export_all() const;

  std::string describe() const override;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view key) const;
  };
  // Keys are their bytes; a key of several strings has their lengths between.
  using Index = std::unordered_map<std::string, size_t, Hash, std::equal_to<>>;
  // Keys and their values, row by row, `values` of the table's type.
  struct Contents {
    Index index;
    std::vector<const std::string*> keys;  // of the rows
    std::string plain;                     // the values' bytes
    std::vector<std::string> strings;      // or strings
  };

  Status check_pairs(const Tensor& keys, const Tensor& values) const;
  Status check_not_reserved(std::string_view key) const;
  Status put(Contents& contents, const Tensor& keys, const Tensor& values, bool once) const;
  bool same_value(const Contents& contents, size_t row, const Tensor& values, int64_t from) const;
  void set_value(Contents& contents, size_t row, const Tensor& values, int64_t from) const;

  const TableSpec spec_;
  const std::string title_;
  const Ref<RefCell> handle_;
  std::vector<std::string> reserved_;

  mutable Mutex mu_;
  bool initialized_ MR_GUARDED_BY(mu_) = false;
  Contents contents_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
