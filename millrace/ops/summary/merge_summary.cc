#include <algorithm>
#include <unordered_set>

#include "millrace/ops/summary/summary_op.h"
#include "proto/summary.pb.h"

namespace millrace {

Status set_summary(KernelContext& ctx, const tensorflow::Summary& summary) {
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape()));
  if (!summary.SerializeToString(&out->mutable_data<std::string>()[0])) {
    return resource_exhausted("a summary must have less than 2 GiB, this one has ",
                              summary.ByteSizeLong(), " bytes");
  }
  return ok_status();
}

std::string text_of(const std::string& bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size();) {
    const auto byte = [&](size_t k) {
      return static_cast<unsigned char>(k < bytes.size() ? bytes[k] : 0);
    };
    const unsigned lead = byte(i), second = byte(i + 1);
    size_t size = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (lead > 0xf4) size = 0;
    for (size_t k = 1; k < size; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) size = 0;
    }
    // Longer than need be, halves of pairs, and beyond the last character.
    if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
        (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f)) {
      size = 0;
    }
    out += size == 0 ? "\xef\xbf\xbd" : bytes.substr(i, size);
    i += std::max<size_t>(size, 1);
  }
  return out;
}

Result<std::string> tag_input(const KernelContext& ctx) {
  const Tensor& tag = ctx.input(0);
  if (tag.rank() != 0) return invalid_argument("tag must be a scalar, got shape ", tag.shape());
  return text_of(tag.data<std::string>()[0]);
}

std::string numbered_tag(const std::string& base, const char* kind, int64_t i, int64_t max) {
  return max > 1 ? str_cat(base, "/", kind, "/", i) : str_cat(base, "/", kind);
}

namespace {

Status merge_summary(KernelContext& ctx) {
  tensorflow::Summary merged;
  std::unordered_set<std::string> tags;
  for (int i = 0; i < ctx.num_inputs(); ++i) {
    for (const std::string& bytes : ctx.input(i).data<std::string>()) {
      tensorflow::Summary summary;
      if (!summary.ParseFromString(bytes)) {
        return invalid_argument("Could not parse one of the summary inputs: input ", i, " of ",
                                bytes.size(), " bytes");
      }
      for (tensorflow::Summary::Value& value : *summary.mutable_value()) {
        if (!value.tag().empty() && !tags.insert(value.tag()).second) {
          return invalid_argument("Duplicate tag ", value.tag(), " found in summary inputs");
        }
        *merged.add_value() = std::move(value);
      }
    }
  }
  return set_summary(ctx, merged);
}

}  // namespace

void register_merge_summary(Registry& registry) {
  registry.add({.name = "MergeSummary",
                .doc = "One summary with the values of several, whose tags must differ.",
                .inputs = {{"inputs", "N*string"}},
                .outputs = {{"summary", "string"}},
                .attrs = {{"N", "int >= 1"}},
                .traits = {.cannot_differentiate = true, .cost = 1e3F},
                .shape = shape_rules::scalar});
  registry.kernel("MergeSummary", DeviceKind::kCpu, merge_summary);
}

}  // namespace millrace
