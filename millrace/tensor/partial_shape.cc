#include "millrace/tensor/partial_shape.h"

#include <algorithm>
#include <charconv>

namespace millrace {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

PartialShape::PartialShape(const Shape& shape)
    : rank_known_(true), dims_(shape.dims().begin(), shape.dims().end()) {}

PartialShape::PartialShape(std::initializer_list<int64_t> dims) : rank_known_(true), dims_(dims) {}

Result<PartialShape> PartialShape::make(std::span<const int64_t> dims) {
  PartialShape shape;
  shape.rank_known_ = true;
  shape.dims_.assign(dims.begin(), dims.end());
  std::vector<int64_t> known;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < kUnknownDim) {
      return invalid_argument("dimension ", i, " of shape [", str_join(dims, ","),
                              "] must be -1 (unknown) or more, got ", dims[i]);
    }
    known.push_back(dims[i] == kUnknownDim ? 1 : dims[i]);
  }
  MR_TRY(Shape::make(known).status());
  return shape;
}

PartialShape PartialShape::of_rank(int rank) {
  MR_CHECK(rank >= 0 && rank <= Shape::kMaxRank);
  PartialShape shape;
  shape.rank_known_ = true;
  shape.dims_.assign(static_cast<size_t>(rank), kUnknownDim);
  return shape;
}

Result<PartialShape> PartialShape::parse(std::string_view text) {
  const std::string_view whole = text;
  text = trim(text);
  if (text == "?") return unknown();
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') {
    return invalid_argument("expected a shape such as \"?\", \"[]\" or \"[2,?]\", got \"", whole,
                            '"');
  }
  text = trim(text.substr(1, text.size() - 2));
  std::vector<int64_t> dims;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view part = trim(text.substr(0, comma));
    int64_t size = kUnknownDim;
    if (part != "?") {
      const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), size);
      if (part.empty() || error != std::errc() || end != part.data() + part.size()) {
        return invalid_argument("expected a size or \"?\" in shape \"", whole, "\", got \"", part,
                                '"');
      }
    }
    dims.push_back(size);
    if (comma == text.size()) break;
    text = trim(text.substr(comma + 1));
    if (text.empty()) {
      return invalid_argument("expected a size after the last comma of shape \"", whole, '"');
    }
  }
  return make(dims);
}

bool PartialShape::fully_known() const {
  return rank_known_ && std::none_of(dims_.begin(), dims_.end(), [](int64_t d) { return d < 0; });
}

Result<Shape> PartialShape::to_shape() const {
  if (!fully_known()) {
    return invalid_argument("expected a fully known shape, got ", to_string());
  }
  return Shape::make(dims_);
}

int64_t PartialShape::num_elements() const {
  if (!fully_known()) return -1;
  const Result<Shape> shape = Shape::make(dims_);
  return shape.ok() ? shape->num_elements() : -1;
}

bool PartialShape::compatible(const PartialShape& other) const {
  if (!rank_known_ || !other.rank_known_) return true;
  if (dims_.size() != other.dims_.size()) return false;
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (dims_[i] >= 0 && other.dims_[i] >= 0 && dims_[i] != other.dims_[i]) return false;
  }
  return true;
}

Result<PartialShape> PartialShape::merge(const PartialShape& other) const {
  if (!rank_known_) return other;
  if (!other.rank_known_) return *this;
  if (dims_.size() != other.dims_.size()) {
    return invalid_argument("Shapes must be equal rank, but are ", dims_.size(), " and ",
                            other.dims_.size(), ": shapes ", to_string(), " and ",
                            other.to_string());
  }
  std::vector<int64_t> dims = dims_;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t theirs = other.dims_[i];
    if (dims[i] >= 0 && theirs >= 0 && dims[i] != theirs) {
      return invalid_argument("Dimension ", i, " in both shapes must be equal, but are ", dims[i],
                              " and ", theirs, ". Shapes are ", to_string(), " and ",
                              other.to_string(), ".");
    }
    if (dims[i] < 0) dims[i] = theirs;
  }
  return make(dims);
}

PartialShape PartialShape::common(const PartialShape& other) const {
  if (rank() != other.rank()) return PartialShape::unknown();
  PartialShape out = *this;
  for (int i = 0; i < rank(); ++i) {
    if (dim(i) != other.dim(i)) out.set_dim(i, kUnknownDim);
  }
  return out;
}

std::string PartialShape::to_string() const {
  if (!rank_known_) return "?";
  std::string out = "[";
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (i > 0) out += ',';
    if (dims_[i] < 0) {
      out += '?';
    } else {
      append_to(out, dims_[i]);
    }
  }
  out += ']';
  return out;
}

}  // namespace millrace
