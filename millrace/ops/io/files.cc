// Whole files, and the names of files.

#include <fnmatch.h>

#include <algorithm>

#include "millrace/base/cancellation.h"
#include "millrace/base/file_access.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/io/matching_files.h"

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

// No pattern is followed through more folders and names: "*/../*/../*" visits ever more of them.
constexpr int64_t kMostVisited = 10'000'000;

// The paths that `pattern` matches, part by part: `*`, `?` and `[a-z]` match within a name.
Result<std::vector<std::string>> find_matches(FileSystem& fs, std::string_view pattern,
                                              const CancellationToken* cancel) {
  std::vector<std::string> paths = {""};
  int64_t visited = 0;
  for (bool last = false; !last && !paths.empty();) {
    const size_t slash = std::min(pattern.find('/'), pattern.size());
    last = slash == pattern.size();
    const std::string part(pattern.substr(0, slash));
    pattern.remove_prefix(last ? slash : slash + 1);
    const bool wild = part.find_first_of("*?[\\") != std::string::npos;
    std::vector<std::string> found;
    for (const std::string& folder : paths) {
      if (cancel != nullptr && cancel->cancelled()) return cancel->status();
      std::vector<std::string> names = {part};
      if (wild) {
        Result<std::vector<std::string>> listed = fs.list(folder.empty() ? "." : folder);
        if (!listed.ok()) continue;  // no folder, or none that may be looked into
        names = std::move(*listed);
      }
      visited += static_cast<int64_t>(names.size());
      if (visited > kMostVisited) {
        return resource_exhausted("the pattern leads to more than ", kMostVisited, " files");
      }
      for (const std::string& name : names) {
        if (wild && ::fnmatch(part.c_str(), name.c_str(), FNM_PERIOD) != 0) continue;
        found.push_back(last ? folder + name : str_cat(folder, name, "/"));
        if (!last) continue;
        MR_TRY_ASSIGN(const bool exists, fs.exists(found.back()));
        if (!exists) found.pop_back();
      }
    }
    paths = std::move(found);
  }
  return paths;
}

}  // namespace

Status match_pattern(const FileAccess& files, const std::string& pattern,
                     const CancellationToken* cancel, std::vector<std::string>& found) {
  const size_t wild = std::min(pattern.find_first_of("*?[\\"), pattern.size());
  const std::string fixed =
      wild == pattern.size() ? pattern : directory_of(pattern.substr(0, wild) + "x");
  MR_TRY_ASSIGN(const FilePlace base, find_file(pattern));
  MR_TRY(files.resolve(fixed, FileAccess::Use::kRead).status());
  MR_TRY_ASSIGN(const std::vector<std::string> paths, find_matches(*base.fs, base.path, cancel));
  const std::string scheme = pattern.substr(0, pattern.size() - base.path.size());
  for (const std::string& path : paths) {
    std::string whole = scheme + path;
    if (files.resolve(whole, FileAccess::Use::kRead).ok()) found.push_back(std::move(whole));
  }
  return ok_status();
}

namespace {

Status matching_files(KernelContext& ctx) {
  if (ctx.input(0).rank() > 1) {
    return invalid_argument("pattern must be a scalar or a vector, got shape ",
                            ctx.input(0).shape());
  }
  std::vector<std::string> found;
  for (const std::string& pattern : ctx.input(0).data<std::string>()) {
    MR_TRY(match_pattern(ctx.device().files(), pattern, ctx.cancel(), found));
  }
  std::sort(found.begin(), found.end());
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{static_cast<int64_t>(found.size())}));
  std::move(found.begin(), found.end(), out->mutable_data<std::string>().begin());
  return ok_status();
}

}  // namespace

void register_files(Registry& registry) {
  mark_reach({"ReadFile", "WriteFile", "MatchingFiles"}, Reach::kFiles);
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
