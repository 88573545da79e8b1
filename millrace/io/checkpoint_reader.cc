#include "millrace/io/checkpoint_reader.h"

#include <algorithm>
#include <span>

#include "millrace/io/bundle_index.h"
#include "millrace/io/bundle_reader.h"
#include "millrace/io/safetensors.h"

namespace millrace {
namespace {

// How many letters must be changed, added or left out; `limit` or more is `limit`.
size_t edit_distance(std::string_view a, std::string_view b, size_t limit) {
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    size_t least = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({change, row[j] + 1, row[j - 1] + 1});
      least = std::min(least, row[j]);
    }
    if (least >= limit) return limit;
  }
  return std::min(row[b.size()], limit);
}

std::string_view last_part(std::string_view name) { return name.substr(name.rfind('/') + 1); }

// "; nearest names there: ...", or nothing when none is near.
std::string nearest_names(std::string_view name, const std::vector<StoredTensor>& tensors) {
  constexpr size_t kMostNames = 4;
  constexpr size_t kMostCompared = 10000;
  constexpr size_t kLongest = 256;
  if (name.size() > kLongest) return "";
  const size_t limit = std::min<size_t>(8, name.size() / 2 + 2);
  std::vector<std::pair<size_t, std::string_view>> near;
  for (size_t i = 0; i < std::min(tensors.size(), kMostCompared); ++i) {
    const std::string& other = tensors[i].name;
    if (other.size() > kLongest) continue;
    size_t distance = edit_distance(name, other, limit);
    // The same variable under another scope.
    if (distance == limit && last_part(name) == last_part(other)) distance = limit - 1;
    if (distance < limit) near.emplace_back(distance, other);
  }
  std::sort(near.begin(), near.end());
  std::string out;
  for (size_t i = 0; i < std::min(near.size(), kMostNames); ++i) {
    out += str_cat(i == 0 ? "; nearest names there: '" : ", '", near[i].second, "'");
  }
  return out;
}

bool by_name(const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; }

}  // namespace

Result<Ref<CheckpointReader>> CheckpointReader::open(FileSystem& fs, const std::string& prefix) {
  if (prefix.ends_with(".safetensors")) {
    MR_TRY_ASSIGN(Ref<SafetensorsReader> reader, SafetensorsReader::open(fs, prefix));
    return Ref<CheckpointReader>(std::move(reader));
  }
  MR_TRY_ASSIGN(const bool is_v2, fs.exists(index_path(prefix)));
  if (is_v2) return BundleReader::open(fs, prefix);
  Result<Ref<CheckpointReader>> v1 = open_v1(fs, prefix);
  if (v1.ok() || v1.status().code() != Code::kNotFound) return v1;
  return not_found("Unsuccessful TensorSliceReader constructor: Failed to find any matching files ",
                   "for ", prefix, ": there is no '", index_path(prefix),
                   "' and no file of version 1");
}

void CheckpointReader::set_tensors(std::vector<StoredTensor> tensors) {
  tensors_ = std::move(tensors);
  if (std::is_sorted(tensors_.begin(), tensors_.end(), by_name)) return;
  std::sort(tensors_.begin(), tensors_.end(), by_name);
}

const StoredTensor* CheckpointReader::find(std::string_view name) const {
  const auto place = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return place != tensors_.end() && place->name == name ? &*place : nullptr;
}

Result<const StoredTensor*> CheckpointReader::get(std::string_view name) const {
  if (const StoredTensor* tensor = find(name)) return tensor;
  return not_found("Tensor name \"", name, "\" not found in checkpoint files ", prefix_, ": Key ",
                   name, " not found in checkpoint", nearest_names(name, tensors_));
}

Result<Tensor> CheckpointReader::read(std::string_view name) const {
  MR_TRY_ASSIGN(const StoredTensor* tensor, get(name));
  const TensorSlice all = TensorSlice::whole(tensor->shape.rank());
  MR_TRY(check_present(*tensor, all));
  MR_TRY_ASSIGN(Tensor out, Tensor::allocate(tensor->dtype, tensor->shape));
  MR_TRY(read(*tensor, all, out));
  return out;
}

Result<std::vector<SlicePiece>> pieces_of(const StoredTensor& tensor, const TensorSlice& box) {
  if (tensor.slices.empty()) {
    MR_TRY_ASSIGN(TensorSlice all, TensorSlice::whole(tensor.shape.rank()).within(tensor.shape));
    return std::vector<SlicePiece>{{0, std::move(all)}};
  }
  std::vector<SlicePiece> pieces;
  std::vector<TensorSlice> overlaps;
  MR_TRY_ASSIGN(const Shape wanted, box.shape());
  int64_t missing = wanted.num_elements();
  TensorSlice overlap;
  for (size_t i = 0; i < tensor.slices.size() && missing >= 0; ++i) {
    MR_TRY_ASSIGN(TensorSlice stored, tensor.slices[i].within(tensor.shape));
    if (!TensorSlice::intersect(stored, box, overlap)) continue;
    MR_TRY(check_disjoint(overlaps, overlap, tensor.shape)
               .with_prefix(str_cat("'", tensor.name, "' is stored in slices")));
    MR_TRY_ASSIGN(const Shape shape, overlap.shape());
    missing -= shape.num_elements();
    overlaps.push_back(overlap);
    pieces.push_back({i, std::move(stored)});
  }
  if (missing != 0) {
    constexpr size_t kMostShown = 8;
    const std::span<const TensorSlice> shown =
        std::span(tensor.slices).first(std::min(tensor.slices.size(), kMostShown));
    return invalid_argument("the slice '", box, "' of '", tensor.name, "' ", tensor.shape,
                            " is not all there: the checkpoint stores '", str_join(shown, "', '"),
                            "'", tensor.slices.size() > kMostShown ? " ..." : "");
  }
  return pieces;
}

}  // namespace millrace
