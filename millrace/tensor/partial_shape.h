#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/tensor/shape.h"

namespace millrace {

// A shape of which some sizes, or the rank itself, may be unknown. Unknown sizes are -1.
class PartialShape {
 public:
  static constexpr int64_t kUnknownDim = -1;

  // Of unknown rank.
  PartialShape() = default;
  PartialShape(  // NOLINT(google-explicit-constructor): every shape is a partial one
      const Shape& shape);
  // Of these sizes, not checked: what an op's rule makes of a user's sizes, infer() checks.
  PartialShape(std::initializer_list<int64_t> dims);  // NOLINT(google-explicit-constructor)

  // INVALID_ARGUMENT for a size below -1, an overflowing product of the known sizes, or too many
  // dimensions.
  static Result<PartialShape> make(std::span<const int64_t> dims);
  static PartialShape unknown() { return PartialShape(); }
  static PartialShape scalar() { return PartialShape({}); }
  // Of rank `rank` (0 <= rank <= Shape::kMaxRank), all sizes unknown.
  static PartialShape of_rank(int rank);
  // Reads "?", "[]", "[2,?]"; what to_string() writes.
  static Result<PartialShape> parse(std::string_view text);

  bool rank_known() const { return rank_known_; }
  // -1 when unknown.
  int rank() const { return rank_known_ ? static_cast<int>(dims_.size()) : -1; }
  // The rank must be known, 0 <= i < rank(). -1 when that size is unknown.
  int64_t dim(int i) const { return dims_[static_cast<size_t>(i)]; }
  bool dim_known(int i) const { return dim(i) >= 0; }
  std::span<const int64_t> dims() const { return dims_; }
  bool fully_known() const;
  // The shape, when fully known; INVALID_ARGUMENT otherwise.
  Result<Shape> to_shape() const;
  // -1 when not known.
  int64_t num_elements() const;

  void set_dim(int i, int64_t size) { dims_[static_cast<size_t>(i)] = size; }
  void add_dim(int64_t size) { dims_.push_back(size); }

  // True when some full shape matches both.
  bool compatible(const PartialShape& other) const;
  // What both know together; INVALID_ARGUMENT when they contradict each other.
  Result<PartialShape> merge(const PartialShape& other) const;
  // What holds for shapes of either kind: sizes in which they agree.
  PartialShape common(const PartialShape& other) const;

  // "?" for unknown rank, "[2,?]" else.
  std::string to_string() const;

  friend bool operator==(const PartialShape&, const PartialShape&) = default;

 private:
  bool rank_known_ = false;
  std::vector<int64_t> dims_;
};

inline void append_to(std::string& out, const PartialShape& shape) { out += shape.to_string(); }

}  // namespace millrace
