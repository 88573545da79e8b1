// Whole files, and the names of files.

#include <fnmatch.h>

#include <algorithm>

#include "millrace/base/file_access.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"

namespace millrace {
namespace {

Status read_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  return shape_rules::scalar(c);
}

Status write_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 0).status());
  return c.with_rank(1, 0).status();
}

Status matching_shape(ShapeContext& c) {
  MR_TRY(c.with_rank_at_most(0, 1).status());
  c.set_output(0, PartialShape{PartialShape::kUnknownDim});
  return ok_status();
}

Status check_scalar(const KernelContext& ctx, int i, std::string_view name) {
  if (ctx.input(i).rank() == 0) return ok_status();
  return invalid_argument(name, " must be a scalar, got shape ", ctx.input(i).shape());
}

Status read_whole_file(KernelContext& ctx) {
  MR_TRY(check_scalar(ctx, 0, "filename"));
  const std::string& path = ctx.input(0).data<std::string>()[0];
  MR_TRY_ASSIGN(const FilePlace place, ctx.device().files().resolve(path, FileAccess::Use::kRead));
  MR_TRY_ASSIGN(std::string contents, read_file(*place.fs, place.path));
  ctx.set_output(0, Tensor::scalar<std::string>(std::move(contents)));
  return ok_status();
}

Status write_whole_file(KernelContext& ctx) {
  MR_TRY(check_scalar(ctx, 0, "filename"));
  MR_TRY(check_scalar(ctx, 1, "contents"));
  const std::string& path = ctx.input(0).data<std::string>()[0];
  MR_TRY_ASSIGN(const FilePlace place, ctx.device().files().resolve(path, FileAccess::Use::kWrite));
  MR_TRY(place.fs->mkdir_all(directory_of(place.path)));
  return write_file_atomically(*place.fs, place.path, ctx.input(1).data<std::string>()[0]);
}

// The paths that `pattern` matches, part by part: `*`, `?` and `[a-z]` match within a name.
Status add_matches(FileSystem& fs, const std::string& folder, std::string_view pattern,
                   std::vector<std::string>& found) {
  const size_t slash = std::min(pattern.find('/'), pattern.size());
  const std::string part(pattern.substr(0, slash));
  const bool last = slash == pattern.size();
  const std::string_view rest = last ? std::string_view() : pattern.substr(slash + 1);
  const auto go = [&](const std::string& name) -> Status {
    const std::string path = folder + name;
    if (!last) return add_matches(fs, path + "/", rest, found);
    MR_TRY_ASSIGN(const bool exists, fs.exists(path));
    if (exists) found.push_back(path);
    return ok_status();
  };
  if (part.find_first_of("*?[\\") == std::string::npos) return go(part);
  const Result<std::vector<std::string>> names = fs.list(folder.empty() ? "." : folder);
  if (!names.ok()) return ok_status();  // no folder, or none that may be looked into
  for (const std::string& name : *names) {
    if (::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
    MR_TRY(go(name));
  }
  return ok_status();
}

// A pattern is judged by the folder before its first wildcard, and each file by itself.
Status match_pattern(const FileAccess& files, const std::string& pattern,
                     std::vector<std::string>& found) {
  const size_t wild = std::min(pattern.find_first_of("*?[\\"), pattern.size());
  const std::string fixed =
      wild == pattern.size() ? pattern : directory_of(pattern.substr(0, wild) + "x");
  MR_TRY_ASSIGN(const FilePlace base, find_file(pattern));
  MR_TRY(files.resolve(fixed, FileAccess::Use::kRead).status());
  std::vector<std::string> paths;
  MR_TRY(add_matches(*base.fs, "", base.path, paths));
  const std::string scheme = pattern.substr(0, pattern.size() - base.path.size());
  for (const std::string& path : paths) {
    std::string whole = scheme + path;
    if (files.resolve(whole, FileAccess::Use::kRead).ok()) found.push_back(std::move(whole));
  }
  return ok_status();
}

Status matching_files(KernelContext& ctx) {
  if (ctx.input(0).rank() > 1) {
    return invalid_argument("pattern must be a scalar or a vector, got shape ",
                            ctx.input(0).shape());
  }
  std::vector<std::string> found;
  for (const std::string& pattern : ctx.input(0).data<std::string>()) {
    MR_TRY(match_pattern(ctx.device().files(), pattern, found));
  }
  std::sort(found.begin(), found.end());
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{static_cast<int64_t>(found.size())}));
  std::move(found.begin(), found.end(), out->mutable_data<std::string>().begin());
  return ok_status();
}

}  // namespace

void register_files(Registry& registry) {
  registry.add({.name = "ReadFile",
                .doc = "The contents of a file.",
                .inputs = {{"filename", "string"}},
                .outputs = {{"contents", "string"}},
                .traits = {.stateful = true, .blocks = true},
                .shape = read_shape});
  registry.kernel("ReadFile", DeviceKind::kCpu, read_whole_file);
  registry.add({.name = "WriteFile",
                .doc = "Writes a file whole, making the folders that it needs.",
                .inputs = {{"filename", "string"}, {"contents", "string"}},
                .traits = {.stateful = true, .blocks = true},
                .shape = write_shape});
  registry.kernel("WriteFile", DeviceKind::kCpu, write_whole_file);
  registry.add({.name = "MatchingFiles",
                .doc = "The files that patterns match, sorted. Wildcards match within a name.",
                .inputs = {{"pattern", "string"}},
                .outputs = {{"filenames", "string"}},
                .traits = {.stateful = true, .blocks = true},
                .shape = matching_shape});
  registry.kernel("MatchingFiles", DeviceKind::kCpu, matching_files);
}

}  // namespace millrace
