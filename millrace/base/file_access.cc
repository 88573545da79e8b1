#include "millrace/base/file_access.h"

#include <algorithm>

namespace millrace {
namespace {

bool lies_in(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

void drop_slashes_at_end(std::string& path) {
  while (!path.empty() && path.back() == '/') path.pop_back();
}

}  // namespace

const Ref<FileAccess>& FileAccess::all() {
  static const Ref<FileAccess>* const everything = new Ref<FileAccess>(make_ref<FileAccess>());
  return *everything;
}

Status FileAccess::add(FileAccess& access, const std::vector<std::string>& folders, bool write) {
  for (const std::string& folder : folders) {
    MR_TRY_ASSIGN(FilePlace place, find_file(folder));
    Result<FileInfo> info = place.fs->info(place.path);
    if (!info.ok() || !info->is_directory) {
      return invalid_argument("expected a folder that files may be used in, got '", folder, "'",
                              info.ok() ? ", a file" : ": ", info.status().message());
    }
    MR_TRY_ASSIGN(std::string path, place.fs->real_path(place.path));
    drop_slashes_at_end(path);
    access.folders_.push_back({std::move(place.scheme), std::move(path), write});
  }
  return ok_status();
}

Result<Ref<FileAccess>> FileAccess::only(const Folders& folders) {
  Ref<FileAccess> access = make_ref<FileAccess>();
  access->all_ = false;
  MR_TRY(add(*access, folders.read, false));
  MR_TRY(add(*access, folders.write, true));
  return access;
}

Ref<FileAccess> FileAccess::none(Status refusal) {
  Ref<FileAccess> out = make_ref<FileAccess>();
  out->all_ = false;
  out->refusal_ = std::move(refusal);
  return out;
}

Result<FilePlace> FileAccess::resolve(std::string_view path, Use use) const {
  MR_TRY(refusal_);
  MR_TRY_ASSIGN(FilePlace place, find_file(path));
  if (all_) return place;
  MR_TRY_ASSIGN(place.path, place.fs->real_path(place.path));
  const bool allowed = std::any_of(folders_.begin(), folders_.end(), [&](const Folder& folder) {
    return (folder.write || use == Use::kRead) && folder.scheme == place.scheme &&
           lies_in(place.path, folder.path);
  });
  if (allowed) return place;
  return permission_denied("'", path, "' may not be ", use == Use::kRead ? "read" : "written",
                           " here: it lies outside of the folders that are open to graphs");
}

}  // namespace millrace
