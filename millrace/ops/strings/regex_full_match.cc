// Whether strings match regular expressions.

#include <optional>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/map_strings.h"
#include "millrace/ops/strings/regex.h"

namespace millrace {
namespace {

Status same_shape(ShapeContext& c) {
  c.set_output(0, c.input(0));
  return c.num_inputs() > 1 ? c.with_rank(1, 0).status() : ok_status();
}

Status match_all(KernelContext& ctx, const Regex& regex) {
  return map_strings<bool>(
      ctx, [&](const std::string& s) -> Result<bool> { return regex.full_match(s); });
}

Status full_match(KernelContext& ctx) {
  if (ctx.input(1).shape().rank() != 0) {
    return invalid_argument("pattern must be a scalar, got shape ", ctx.input(1).shape());
  }
  MR_TRY_ASSIGN(const Regex regex, Regex::parse(ctx.input(1).data<std::string>()[0]));
  return match_all(ctx, regex);
}

class StaticFullMatch : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const std::string pattern, node.attr<std::string>("pattern"));
    MR_TRY_ASSIGN(Regex regex, Regex::parse(pattern));
    return std::make_unique<StaticFullMatch>(std::move(regex));
  }
  explicit StaticFullMatch(Regex regex) : regex_(std::move(regex)) {}
  Status compute(KernelContext& ctx) const override { return match_all(ctx, regex_); }

 private:
  const Regex regex_;
};

}  // namespace

void register_regex_full_match(Registry& registry) {
  registry.add({.name = "RegexFullMatch",
                .doc = "Whether each string, as a whole, matches a regular expression.",
                .inputs = {{"input", "string"}, {"pattern", "string"}},
                .outputs = {{"output", "bool"}},
                .shape = same_shape});
  registry.kernel("RegexFullMatch", DeviceKind::kCpu, full_match);
  registry.add({.name = "StaticRegexFullMatch",
                .doc = "Whether each string, as a whole, matches a regular expression.",
                .inputs = {{"input", "string"}},
                .outputs = {{"output", "bool"}},
                .attrs = {{"pattern", "string"}},
                .shape = same_shape});
  registry.kernel<StaticFullMatch>("StaticRegexFullMatch", DeviceKind::kCpu);
}

}  // namespace millrace
