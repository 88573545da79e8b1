#include "millrace/io/tensor_slice.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "proto/tensor_slice.pb.h"

namespace millrace {
namespace {

// Reads a number, all of `text`, that is not negative.
bool parse_size(std::string_view text, int64_t& out) {
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, out);
  return error == std::errc() && at == end && out >= 0;
}

// Takes what stands before `separator` off the front of `text`; all of it when there is none.
std::string_view take_until(std::string_view& text, char separator) {
  const size_t at = text.find(separator);
  const std::string_view front = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return front;
}

}  // namespace

Result<TensorSlice> TensorSlice::parse(std::string_view text) {
  const auto wrong = [text] {
    return invalid_argument("expected a slice such as '0,5:-', got '", text, "'");
  };
  std::vector<Extent> extents;
  for (std::string_view rest = text; !rest.empty();) {
    const bool more = rest.find(':') != std::string_view::npos;
    std::string_view part = take_until(rest, ':');
    if (more && rest.empty()) return wrong();
    Extent extent;
    if (part != "-") {
      const std::string_view start = take_until(part, ',');
      if (!parse_size(start, extent.start) || !parse_size(part, extent.length)) return wrong();
    }
    extents.push_back(extent);
  }
  if (extents.size() > static_cast<size_t>(Shape::kMaxRank)) return wrong();
  return TensorSlice(std::move(extents));
}

Result<TensorSlice> TensorSlice::from_proto(const tensorflow::TensorSliceProto& proto) {
  if (proto.extent_size() > Shape::kMaxRank) {
    return invalid_argument("a slice of ", proto.extent_size(), " dimensions");
  }
  std::vector<Extent> extents;
  for (const tensorflow::TensorSliceProto::Extent& from : proto.extent()) {
    const bool has_length = from.has_length_case() != 0;
    const Extent extent{from.start(), has_length ? from.length() : kWhole};
    if (extent.start < 0 || (has_length ? extent.length < 0 : extent.start != 0)) {
      return invalid_argument("a slice that begins at ", from.start(), " of length ",
                              from.length());
    }
    extents.push_back(extent);
  }
  return TensorSlice(std::move(extents));
}

void TensorSlice::to_proto(tensorflow::TensorSliceProto& proto) const {
  proto.clear_extent();
  for (const Extent& extent : extents_) {
    tensorflow::TensorSliceProto::Extent* to = proto.add_extent();
    if (extent.length == kWhole) continue;
    to->set_start(extent.start);
    to->set_length(extent.length);
  }
}

Result<TensorSlice> TensorSlice::within(const Shape& shape) const {
  if (rank() != shape.rank()) {
    return invalid_argument("the slice '", *this, "' has ", rank(), " dimensions, its tensor ",
                            shape, " has ", shape.rank());
  }
  TensorSlice out = *this;
  for (int i = 0; i < rank(); ++i) {
    Extent& extent = out.extents_[static_cast<size_t>(i)];
    if (extent.length == kWhole) extent = {0, shape.dim(i)};
    if (extent.start > shape.dim(i) || extent.length > shape.dim(i) - extent.start) {
      return invalid_argument("the slice '", *this, "' does not lie within its tensor ", shape);
    }
  }
  return out;
}

Result<Shape> TensorSlice::shape() const {
  std::vector<int64_t> dims;
  for (const Extent& extent : extents_) dims.push_back(extent.length);
  return Shape::make(dims);
}

bool TensorSlice::intersect(const TensorSlice& a, const TensorSlice& b, TensorSlice& out) {
  out.extents_.resize(a.extents_.size());
  for (size_t i = 0; i < a.extents_.size(); ++i) {
    const Extent& x = a.extents_[i];
    const Extent& y = b.extents_[i];
    const int64_t start = std::max(x.start, y.start);
    const int64_t end = std::min(x.start + x.length, y.start + y.length);
    if (start >= end) return false;
    out.extents_[i] = {start, end - start};
  }
  return true;
}

std::string TensorSlice::to_string() const {
  std::string out;
  for (const Extent& extent : extents_) {
    if (!out.empty()) out += ':';
    out += extent.length == kWhole ? "-" : str_cat(extent.start, ",", extent.length);
  }
  return out;
}

Result<ShapeAndSlice> ShapeAndSlice::parse(std::string_view text) {
  const auto wrong = [text](std::string_view why) {
    return invalid_argument("expected sizes and a slice such as '10 20 0,5:-', got '", text,
                            "': ", why);
  };
  std::vector<int64_t> sizes;
  std::string_view rest = text;
  while (rest.find(' ') != std::string_view::npos) {
    int64_t size = 0;
    if (!parse_size(take_until(rest, ' '), size)) return wrong("a size is no number");
    sizes.push_back(size);
  }
  Result<Shape> whole = Shape::make(sizes);
  if (!whole.ok()) return wrong(whole.status().message());
  Result<TensorSlice> slice = TensorSlice::parse(rest);
  if (!slice.ok()) return wrong(slice.status().message());
  Result<TensorSlice> box = slice->within(*whole);
  if (!box.ok()) return wrong(box.status().message());
  MR_TRY_ASSIGN(Shape shape, box->shape());
  return ShapeAndSlice{std::move(*whole), std::move(*slice), std::move(shape)};
}

namespace {

// Whether a slice of a tensor of shape `whole` has elements of `box`.
bool overlaps(const TensorSlice& slice, const TensorSlice& box, const Shape& whole) {
  for (int i = 0; i < box.rank(); ++i) {
    const TensorSlice::Extent& a = slice.extents()[static_cast<size_t>(i)];
    const TensorSlice::Extent& b = box.extents()[static_cast<size_t>(i)];
    const int64_t end = a.length == TensorSlice::kWhole ? whole.dim(i) : a.start + a.length;
    if (std::max(a.start, b.start) >= std::min(end, b.start + b.length)) return false;
  }
  return true;
}

}  // namespace

Status check_disjoint(const std::vector<TensorSlice>& others, const TensorSlice& box,
                      const Shape& whole) {
  if (others.size() >= kMostSlices) {
    return resource_exhausted("a tensor ", whole, " in more than ", kMostSlices, " slices");
  }
  for (const TensorSlice& other : others) {
    if (overlaps(other, box, whole)) {
      return invalid_argument("the slices '", other, "' and '", box, "' overlap");
    }
  }
  return ok_status();
}

namespace {

void copy_run(const Tensor& from, int64_t from_at, Tensor& to, int64_t to_at, int64_t count) {
  if (from.dtype() == DType::kString) {
    const std::string* source = from.data<std::string>().data() + from_at;
    std::copy(source, source + count, to.mutable_data<std::string>().data() + to_at);
    return;
  }
  const size_t size = dtype_size(from.dtype());
  std::memcpy(static_cast<char*>(to.mutable_raw()) + static_cast<size_t>(to_at) * size,
              static_cast<const char*>(from.raw()) + static_cast<size_t>(from_at) * size,
              static_cast<size_t>(count) * size);
}

}  // namespace

void copy_overlap(const Tensor& part, const TensorSlice& from, const TensorSlice& to, Tensor& out) {
  TensorSlice overlap;
  if (!TensorSlice::intersect(from, to, overlap)) return;
  const std::vector<TensorSlice::Extent>& box = overlap.extents();
  const int rank = overlap.rank();
  // Dimensions from `last` on are runs of neighbours in both tensors.
  int last = rank;
  int64_t run = 1;
  while (last > 0) {
    const auto i = static_cast<size_t>(last - 1);
    run *= box[i].length;
    --last;
    if (box[i].length != part.dim(last) || box[i].length != out.dim(last)) break;
  }
  std::vector<int64_t> at(static_cast<size_t>(last), 0);
  for (bool done = false; !done;) {
    int64_t from_at = 0;
    int64_t to_at = 0;
    for (int d = 0; d < rank; ++d) {
      const auto i = static_cast<size_t>(d);
      const int64_t place = box[i].start + (d < last ? at[i] : 0);
      from_at = from_at * part.dim(d) + place - from.extents()[i].start;
      to_at = to_at * out.dim(d) + place - to.extents()[i].start;
    }
    copy_run(part, from_at, out, to_at, run);
    done = true;
    for (auto d = static_cast<size_t>(last); d-- > 0 && done;) {
      done = ++at[d] == box[d].length;
      if (done) at[d] = 0;
    }
  }
}

namespace {

// A number that sorts as its bytes do: how many bytes, then those, the highest first.
void put_ordered(std::string& out, uint64_t value) {
  int bytes = 0;
  while (bytes < 8 && value >> (8 * bytes) != 0) ++bytes;
  out.push_back(static_cast<char>(bytes));
  while (bytes-- > 0) out.push_back(static_cast<char>(value >> (8 * bytes)));
}

void put_ordered(std::string& out, std::string_view text) {
  for (const char c : text) {
    out.push_back(c);
    if (c == '\0') out.push_back('\xFF');
    if (c == '\xFF') out.push_back('\0');
  }
  out.append("\0\1", 2);
}

// A signed number that sorts as its bytes do. k bytes hold 7k-1 bits of value and the sign; a
// positive number begins with k ones and a zero, a negative one with the opposite.
void put_ordered_signed(std::string& out, int64_t value) {
  const uint64_t magnitude =
      value < 0 ? ~static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  size_t k = 1;
  while (k < 10 && (magnitude >> (7 * k - 1)) != 0) ++k;
  uint8_t bytes[10];
  for (size_t i = 0; i < 10; ++i) {  // big-endian, with the sign in front
    bytes[9 - i] = i < 8 ? static_cast<uint8_t>(static_cast<uint64_t>(value) >> (8 * i))
                         : (value < 0 ? 0xFF : 0);
  }
  // Ones of the header: the first k bits; xor turns them over for negative numbers.
  uint8_t* first = bytes + 10 - k;
  first[0] ^= static_cast<uint8_t>(0xFF00U >> std::min<size_t>(k, 8));
  if (k > 8) first[1] ^= static_cast<uint8_t>(0xFF00U >> (k - 8));
  out.append(reinterpret_cast<const char*>(first), k);
}

}  // namespace

std::string slice_key(std::string_view name, const TensorSlice& slice) {
  std::string key;
  put_ordered(key, uint64_t{0});
  put_ordered(key, name);
  put_ordered(key, static_cast<uint64_t>(slice.rank()));
  for (const TensorSlice::Extent& extent : slice.extents()) {
    put_ordered_signed(key, extent.start);
    put_ordered_signed(key, extent.length);
  }
  return key;
}

}  // namespace millrace
