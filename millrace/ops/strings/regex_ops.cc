// Strings matched against regular expressions, and rewritten by them. The pattern is a scalar input
// or, in the ops named Static, an attribute.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/map_strings.h"
#include "millrace/ops/strings/regex.h"

namespace millrace {
namespace {

// As input 0; the others are scalars.
Status same_shape(ShapeContext& c) {
  for (int i = 1; i < c.num_inputs(); ++i) {
    MR_TRY(c.with_rank(i, 0).status());
  }
  c.set_output(0, c.input(0));
  return ok_status();
}

Result<std::string> scalar_input(KernelContext& ctx, int index, std::string_view name) {
  const Tensor& input = ctx.input(index);
  if (input.rank() != 0) {
    return invalid_argument(name, " must be scalar, but received ", input.shape());
  }
  return input.data<std::string>()[0];
}

Status full_match(KernelContext& ctx, const Regex& regex) {
  return map_strings<bool>(
      ctx, [&](const std::string& s) -> Result<bool> { return regex.full_match(s); });
}

Status regex_full_match(KernelContext& ctx) {
  MR_TRY_ASSIGN(const std::string pattern, scalar_input(ctx, 1, "Pattern"));
  MR_TRY_ASSIGN(const Regex regex, Regex::parse(pattern));
  return full_match(ctx, regex);
}

class StaticFullMatch : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const std::string pattern, node.attr<std::string>("pattern"));
    MR_TRY_ASSIGN(Regex regex, Regex::parse(pattern));
    return std::make_unique<StaticFullMatch>(std::move(regex));
  }
  explicit StaticFullMatch(Regex regex) : regex_(std::move(regex)) {}
  Status compute(KernelContext& ctx) const override { return full_match(ctx, regex_); }

 private:
  const Regex regex_;
};

Status replace(KernelContext& ctx, const Regex& regex, const std::string& rewrite, bool all) {
  return map_strings<std::string>(
      ctx, [&](const std::string& s) { return regex.replace(s, rewrite, all); });
}

class RegexReplace : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool all, node.attr<bool>("replace_global"));
    return std::make_unique<RegexReplace>(all);
  }
  explicit RegexReplace(bool all) : all_(all) {}
  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const std::string pattern, scalar_input(ctx, 1, "Pattern"));
    MR_TRY_ASSIGN(const std::string rewrite, scalar_input(ctx, 2, "Rewrite"));
    MR_TRY_ASSIGN(const Regex regex, Regex::parse(pattern));
    return replace(ctx, regex, rewrite, all_);
  }

 private:
  const bool all_;
};

class StaticReplace : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const std::string pattern, node.attr<std::string>("pattern"));
    MR_TRY_ASSIGN(std::string rewrite, node.attr<std::string>("rewrite"));
    MR_TRY_ASSIGN(const bool all, node.attr<bool>("replace_global"));
    MR_TRY_ASSIGN(Regex regex, Regex::parse(pattern));
    return std::make_unique<StaticReplace>(std::move(regex), std::move(rewrite), all);
  }
  StaticReplace(Regex regex, std::string rewrite, bool all)
      : regex_(std::move(regex)), rewrite_(std::move(rewrite)), all_(all) {}
  Status compute(KernelContext& ctx) const override { return replace(ctx, regex_, rewrite_, all_); }

 private:
  const Regex regex_;
  const std::string rewrite_;
  const bool all_;
};

}  // namespace

void register_regex_ops(Registry& registry) {
  const OpSpec::Arg input = {"input", "string"}, pattern = {"pattern", "string"};
  registry.add({.name = "RegexFullMatch",
                .doc = "Whether each string, as a whole, matches a regular expression.",
                .inputs = {input, pattern},
                .outputs = {{"output", "bool"}},
                .shape = same_shape});
  registry.kernel("RegexFullMatch", DeviceKind::kCpu, regex_full_match);
  registry.add({.name = "StaticRegexFullMatch",
                .doc = "Whether each string, as a whole, matches a regular expression.",
                .inputs = {input},
                .outputs = {{"output", "bool"}},
                .attrs = {{"pattern", "string"}},
                .shape = same_shape});
  registry.kernel<StaticFullMatch>("StaticRegexFullMatch", DeviceKind::kCpu);
  registry.add({.name = "RegexReplace",
                .doc = "Replaces what matches a regular expression; \\1 in rewrite is a group.",
                .inputs = {input, pattern, {"rewrite", "string"}},
                .outputs = {{"output", "string"}},
                .attrs = {{"replace_global", "bool = true"}},
                .shape = same_shape});
  registry.kernel<RegexReplace>("RegexReplace", DeviceKind::kCpu);
  registry.add(
      {.name = "StaticRegexReplace",
       .doc = "Replaces what matches a regular expression; \\1 in rewrite is a group.",
       .inputs = {input},
       .outputs = {{"output", "string"}},
       .attrs = {{"pattern", "string"}, {"rewrite", "string"}, {"replace_global", "bool = true"}},
       .shape = same_shape});
  registry.kernel<StaticReplace>("StaticRegexReplace", DeviceKind::kCpu);
}

}  // namespace millrace
