#include <algorithm>

#include "millrace/io/bundle_writer.h"

namespace millrace {
namespace {

// Adds an entry of a part to the whole.
Status merge_entry(const std::string& key, BundleEntry entry, BundleIndex& whole) {
  const auto [place, fresh] = whole.entries.try_emplace(key, entry);
  if (fresh) return ok_status();
  BundleEntry& there = place->second;
  if (there.slices.empty() || entry.slices.empty()) {
    const bool slice = key.starts_with('\0');  // as slice_key() makes them
    return invalid_argument("two of the checkpoints to merge have ",
                            slice ? "one slice of a tensor" : str_cat("'", key, "'"));
  }
  if (there.dtype != entry.dtype || there.shape != entry.shape) {
    return invalid_argument("slices of '", key, "' must be of one tensor, got ", there.dtype,
                            there.shape, " and ", entry.dtype, entry.shape);
  }
  for (TensorSlice& slice : entry.slices) {
    MR_TRY_ASSIGN(const TensorSlice box, slice.within(there.shape));
    MR_TRY(check_disjoint(there.slices, box, there.shape).with_prefix(key));
    there.slices.push_back(std::move(slice));
  }
  return ok_status();
}

}  // namespace

Status merge_bundles(FileSystem& fs, const std::vector<std::string>& parts,
                     const std::string& prefix) {
  BundleIndex whole;
  std::vector<std::string> data_files;
  for (const std::string& part : parts) {
    MR_TRY_ASSIGN(BundleIndex index, BundleIndex::read(fs, index_path(part)));
    // Only files that hold something are moved.
    std::map<int32_t, int32_t> shards;
    for (auto& [key, entry] : index.entries) {
      if (entry.slices.empty()) {
        const auto [place, fresh] =
            shards.try_emplace(entry.shard, static_cast<int32_t>(data_files.size()));
        if (fresh) data_files.push_back(data_path(part, entry.shard, index.num_shards));
        entry.shard = place->second;
      }
      MR_TRY(merge_entry(key, std::move(entry), whole));
    }
  }
  for (const std::string& file : data_files) MR_TRY(fs.info(file).status());
  MR_TRY(fs.mkdir_all(directory_of(prefix)));
  MR_TRY(commit_bundle(fs, prefix, data_files, std::move(whole)));
  for (const std::string& part : parts) {
    if (part != prefix) (void)fs.remove(index_path(part)).ok();
  }
  return ok_status();
}

}  // namespace millrace
