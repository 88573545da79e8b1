#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>

#include "millrace/base/clock.h"
#include "millrace/base/file_systems.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct Contents : RefCounted {
  Mutex mu;
  std::string bytes MR_GUARDED_BY(mu);
  int64_t modified_ns MR_GUARDED_BY(mu) = wall_micros() * 1000;
};

class MemoryReadableFile final : public ReadableFile {
 public:
  explicit MemoryReadableFile(Ref<Contents> contents) : contents_(std::move(contents)) {}

  Result<size_t> read_at(uint64_t offset, size_t size, char* out) const override {
    Contents& contents = *contents_;
    MutexLock lock(contents.mu);
    if (offset >= contents.bytes.size()) return size_t{0};
    const size_t n = std::min<uint64_t>(size, contents.bytes.size() - offset);
    std::memcpy(out, contents.bytes.data() + offset, n);
    return n;
  }
  Result<uint64_t> size() const override {
    MutexLock lock(contents_->mu);
    return uint64_t{contents_->bytes.size()};
  }

 private:
  const Ref<Contents> contents_;
};

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(std::string path, Ref<Contents> contents)
      : path_(std::move(path)), contents_(std::move(contents)) {}

  Status append(std::string_view data) override {
    if (!contents_) return failed_precondition("cannot write '", path_, "': it is closed");
    MutexLock lock(contents_->mu);
    contents_->bytes.append(data);
    contents_->modified_ns = wall_micros() * 1000;
    return ok_status();
  }
  Status flush() override { return append({}); }
  Status sync() override { return append({}); }
  Status close() override {
    contents_ = nullptr;
    return ok_status();
  }

 private:
  const std::string path_;
  Ref<Contents> contents_;
};

// "a//b/" becomes "a/b".
std::string tidy(std::string_view path) {
  std::string out;
  for (const char c : path) {
    if (c != '/' || (!out.empty() && out.back() != '/')) out += c;
  }
  if (!out.empty() && out.back() == '/') out.pop_back();
  return out;
}

class MemoryFileSystem final : public FileSystem {
 public:
  Result<Ref<ReadableFile>> open_readable(const std::string& path) override {
    MutexLock lock(mu_);
    const auto found = files_.find(tidy(path));
    if (found == files_.end()) {
      return file_error("open", path, is_directory(tidy(path)) ? EISDIR : ENOENT);
    }
    return Ref<ReadableFile>(make_ref<MemoryReadableFile>(found->second));
  }
  Result<Ref<WritableFile>> open_writable(const std::string& path) override {
    return open(path, true);
  }
  Result<Ref<WritableFile>> open_append(const std::string& path) override {
    return open(path, false);
  }

  Status rename(const std::string& from, const std::string& to) override {
    MutexLock lock(mu_);
    const std::string source = tidy(from);
    const std::string target = tidy(to);
    if (is_directory(target)) return file_error("rename", from, EISDIR);
    if (source.empty()) return file_error("rename", from, EINVAL);
    if (below_a_file(target)) return file_error("rename", from, ENOTDIR);
    if (files_.count(source) != 0) {
      move_file(source, target);
      return ok_status();
    }
    if (!is_directory(source)) return file_error("rename", from, ENOENT);
    if (target.starts_with(source + "/")) return file_error("rename", from, EINVAL);
    directories_.erase(source);
    directories_.insert(target);
    for (const std::string& path : below(source)) {
      move_file(path, target + path.substr(source.size()));
    }
    return ok_status();
  }

  Status remove(const std::string& path) override {
    MutexLock lock(mu_);
    const std::string name = tidy(path);
    if (files_.erase(name) != 0) return ok_status();
    if (!below(name).empty()) return file_error("remove", path, ENOTEMPTY);
    return directories_.erase(name) != 0 ? ok_status() : file_error("remove", path, ENOENT);
  }

  Result<bool> exists(const std::string& path) override {
    MutexLock lock(mu_);
    return files_.count(tidy(path)) != 0 || is_directory(tidy(path));
  }

  Result<FileInfo> info(const std::string& path) override {
    MutexLock lock(mu_);
    const auto found = files_.find(tidy(path));
    if (found != files_.end()) {
      MutexLock contents_lock(found->second->mu);
      return FileInfo{.size = found->second->bytes.size(),
                      .is_directory = false,
                      .modified_ns = found->second->modified_ns};
    }
    if (!is_directory(tidy(path))) return file_error("look at", path, ENOENT);
    return FileInfo{.size = 0, .is_directory = true, .modified_ns = 0};
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    MutexLock lock(mu_);
    const std::string name = tidy(path);
    if (!is_directory(name)) {
      return file_error("list", path, files_.count(name) != 0 ? ENOTDIR : ENOENT);
    }
    const size_t skip = name.empty() ? 0 : name.size() + 1;
    std::set<std::string> names;
    for (const std::string& entry : below(name)) {
      names.insert(entry.substr(skip, entry.find('/', skip) - skip));
    }
    return std::vector<std::string>(names.begin(), names.end());
  }

  Status mkdir_all(const std::string& path) override {
    MutexLock lock(mu_);
    const std::string name = tidy(path);
    for (size_t end = name.find('/'); !name.empty(); end = name.find('/', end + 1)) {
      const std::string part = name.substr(0, end);
      if (files_.count(part) != 0) return file_error("make the directory", path, ENOTDIR);
      directories_.insert(part);
      if (end == std::string::npos) break;
    }
    return ok_status();
  }
  Status sync_directory(const std::string&) override { return ok_status(); }
  Result<std::string> real_path(const std::string& path) override { return tidy(path); }

 private:
  Result<Ref<WritableFile>> open(const std::string& path, bool emptied) {
    MutexLock lock(mu_);
    const std::string name = tidy(path);
    if (name.empty()) return file_error("open", path, EISDIR);
    if (is_directory(name)) return file_error("open", path, EISDIR);
    if (below_a_file(name)) return file_error("open", path, ENOTDIR);
    Ref<Contents>& contents = files_[name];
    if (!contents || emptied) contents = make_ref<Contents>();  // who reads keeps the old bytes
    return Ref<WritableFile>(make_ref<MemoryWritableFile>(path, contents));
  }

  bool is_directory(const std::string& name) const MR_REQUIRES(mu_) {
    if (name.empty() || directories_.count(name) != 0) return true;
    const auto next = files_.lower_bound(name + "/");
    return next != files_.end() && next->first.starts_with(name + "/");
  }
  bool below_a_file(const std::string& name) const MR_REQUIRES(mu_) {
    for (size_t end = name.find('/'); end != std::string::npos; end = name.find('/', end + 1)) {
      if (files_.count(name.substr(0, end)) != 0) return true;
    }
    return false;
  }
  // Everything in a directory and the ones in it.
  std::vector<std::string> below(const std::string& name) const MR_REQUIRES(mu_) {
    const std::string prefix = name.empty() ? "" : name + "/";
    std::vector<std::string> paths;
    for (auto i = files_.lower_bound(prefix); i != files_.end(); ++i) {
      if (!i->first.starts_with(prefix)) break;
      paths.push_back(i->first);
    }
    for (auto i = directories_.lower_bound(prefix); i != directories_.end(); ++i) {
      if (!i->starts_with(prefix)) break;
      paths.push_back(*i);
    }
    return paths;
  }
  void move_file(const std::string& from, const std::string& to) MR_REQUIRES(mu_) {
    const auto file = files_.find(from);
    if (file == files_.end()) {
      directories_.erase(from);
      directories_.insert(to);
      return;
    }
    Ref<Contents> contents = std::move(file->second);
    files_.erase(file);
    files_[to] = std::move(contents);
  }

  Mutex mu_;
  std::map<std::string, Ref<Contents>> files_ MR_GUARDED_BY(mu_);
  std::set<std::string> directories_ MR_GUARDED_BY(mu_);
};

}  // namespace

FileSystem& memory_file_system() {
  static MemoryFileSystem* const instance = new MemoryFileSystem;
  return *instance;
}

}  // namespace millrace
