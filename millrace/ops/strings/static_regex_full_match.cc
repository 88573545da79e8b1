// Whether strings match a regular expression that the graph has.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/strings/map_strings.h"
#include "millrace/ops/strings/regex.h"

namespace millrace {
namespace {

Status same_shape(ShapeContext& c) {
  c.set_output(0, c.input(0));
  return ok_status();
}

class StaticFullMatch : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const std::string pattern, node.attr<std::string>("pattern"));
    MR_TRY_ASSIGN(Regex regex, Regex::parse(pattern));
    return std::make_unique<StaticFullMatch>(std::move(regex));
  }
  explicit StaticFullMatch(Regex regex) : regex_(std::move(regex)) {}
  Status compute(KernelContext& ctx) const override {
    return map_strings<bool>(
        ctx, [&](const std::string& s) -> Result<bool> { return regex_.full_match(s); });
  }

 private:
  const Regex regex_;
};

}  // namespace

void register_static_regex_full_match(Registry& registry) {
  registry.add({.name = "StaticRegexFullMatch",
                .doc = "Whether each string, as a whole, matches a regular expression.",
                .inputs = {{"input", "string"}},
                .outputs = {{"output", "bool"}},
                .attrs = {{"pattern", "string"}},
                .shape = same_shape});
  registry.kernel<StaticFullMatch>("StaticRegexFullMatch", DeviceKind::kCpu);
}

}  // namespace millrace
