#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <set>

#include "millrace/base/mutex.h"
#include "millrace/io/bundle_index.h"

namespace millrace {
namespace {

constexpr int32_t kMostShards = 99999;  // five digits
constexpr std::string_view kAside = ".tempstate";

std::string_view name_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

// The smallest number of shards, `wanted` or more, under which no file has a name of the first
// `wanted` shards.
Result<int32_t> free_number(FileSystem& fs, const std::string& prefix, int32_t wanted) {
  for (int32_t total = wanted; total <= kMostShards; ++total) {
    bool taken = false;
    for (int32_t shard = 0; shard < wanted && !taken; ++shard) {
      MR_TRY_ASSIGN(taken, fs.exists(data_path(prefix, shard, total)));
    }
    if (!taken) return total;
  }
  return resource_exhausted("no name is left for the data files of '", prefix, "'");
}

// True for "-00000-of-00001".
bool is_shard_suffix(std::string_view text) {
  constexpr std::string_view kPattern = "-00000-of-00000";
  if (text.size() != kPattern.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(text[i])) != 0;
    if (kPattern[i] == '0' ? !digit : text[i] != kPattern[i]) return false;
  }
  return true;
}

// What a process that was killed more than a minute ago left aside.
bool is_leftover(FileSystem& fs, const std::string& path) {
  constexpr int64_t kNanosecondsPerMinute = 60'000'000'000;
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const int64_t now_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  Result<FileInfo> info = fs.info(path);
  return info.ok() && info->modified_ns < now_ns - kNanosecondsPerMinute;
}

// Removes what the new checkpoint does not need. It is complete, so no error matters.
void remove_rest(FileSystem& fs, const std::string& prefix, int32_t used, int32_t total) {
  const std::string directory = directory_of(prefix);
  Result<std::vector<std::string>> names = fs.list(directory);
  if (!names.ok()) return;
  std::set<std::string> kept;
  for (int32_t shard = 0; shard < used; ++shard) {
    kept.emplace(name_of(data_path(prefix, shard, total)));
  }
  const std::string data = str_cat(name_of(prefix), ".data");
  const std::string index = str_cat(name_of(prefix), ".index", kAside);
  for (const std::string& name : *names) {
    const std::string path =
        str_cat(prefix.substr(0, prefix.size() - name_of(prefix).size()), name);
    const bool old_data = name.starts_with(data) && !kept.contains(name) &&
                          is_shard_suffix(std::string_view(name).substr(data.size()));
    const bool aside = name.starts_with(index) ||
                       (name.starts_with(data) && name.find(kAside) != std::string::npos);
    if (old_data || (aside && is_leftover(fs, path))) (void)fs.remove(path).ok();
  }
}

// Renames the data files, or none of them.
Status move_data_files(FileSystem& fs, const std::string& directory,
                       const std::vector<std::string>& from, const std::vector<std::string>& to) {
  Status status;
  size_t moved = 0;
  for (; status.ok() && moved < from.size(); ++moved) status = fs.rename(from[moved], to[moved]);
  if (status.ok()) status = fs.sync_directory(directory);
  if (!status.ok()) {
    while (moved-- > 0) (void)fs.rename(to[moved], from[moved]).ok();
  }
  return status;
}

Status move_into_place(FileSystem& fs, const std::string& prefix,
                       const std::vector<std::string>& data_files, const BundleIndex& index,
                       const std::string& index_aside) {
  MR_TRY(index.write(fs, index_aside));
  std::vector<std::string> names;
  for (size_t i = 0; i < data_files.size(); ++i) {
    names.push_back(data_path(prefix, static_cast<int32_t>(i), index.num_shards));
  }
  const std::string directory = directory_of(prefix);
  MR_TRY(move_data_files(fs, directory, data_files, names));
  MR_TRY(fs.rename(index_aside, index_path(prefix)));
  return fs.sync_directory(directory);
}

}  // namespace

std::string index_path(std::string_view prefix) { return str_cat(prefix, ".index"); }

std::string data_path(std::string_view prefix, int32_t shard, int32_t num_shards) {
  char suffix[48];
  std::snprintf(suffix, sizeof(suffix), ".data-%05d-of-%05d", shard, num_shards);
  return str_cat(prefix, suffix);
}

std::string path_aside(std::string_view path) {
  static std::atomic<uint64_t> counter{0};
  return str_cat(path, kAside, static_cast<long long>(getpid()), "-",
                 counter.fetch_add(1, std::memory_order_relaxed));
}

Status commit_bundle(FileSystem& fs, const std::string& prefix,
                     const std::vector<std::string>& data_files, BundleIndex index) {
  static Mutex turns;
  MutexLock lock(turns);
  const auto used = static_cast<int32_t>(data_files.size());
  MR_TRY_ASSIGN(index.num_shards, free_number(fs, prefix, std::max(used, 1)));
  const std::string index_aside = path_aside(index_path(prefix));
  Status status = move_into_place(fs, prefix, data_files, index, index_aside);
  if (!status.ok()) {
    (void)fs.remove(index_aside).ok();
    return status;
  }
  remove_rest(fs, prefix, used, index.num_shards);
  return ok_status();
}

}  // namespace millrace
