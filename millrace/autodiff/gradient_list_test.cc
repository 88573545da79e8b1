// docs/gradients.md lists the ops that have no gradient, by reason: the list is what the registry
// says. With MILLRACE_UPDATE_DOCS in the environment the test writes it.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "millrace/base/env.h"
#include "millrace/base/file.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/op_registry.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

constexpr const char* kPage = "docs/gradients.md";
constexpr std::string_view kBegin = "<!-- begin: ops without gradient -->\n";
constexpr std::string_view kEnd = "<!-- end: ops without gradient -->\n";

// Reasons that no fact of the definition tells.
const std::pair<const char*, const char*> kReasons[] = {
    {"StopGradient", "there to stop gradients"},
    {"Bitcast", "reads numbers as bits"},
    {"AdjustHue", "prepares images for training or for people"},
    {"AdjustSaturation", "prepares images for training or for people"},
    {"DrawBoundingBoxes", "prepares images for training or for people"},
    {"DrawBoundingBoxesV2", "prepares images for training or for people"},
    {"ExtractGlimpse", "prepares images for training or for people"},
    {"HSVToRGB", "prepares images for training or for people"},
    {"BatchCholeskyGrad", "has no second derivative in TensorFlow either"},
    {"BatchSelfAdjointEig", "an older form of SelfAdjointEigV2, which has one"},
    {"CholeskyGrad", "has no second derivative in TensorFlow either"},
    {"CropAndResizeGradBoxes", "has no second derivative in TensorFlow either"},
    {"Dilation2DBackpropFilter", "has no second derivative in TensorFlow either"},
    {"Dilation2DBackpropInput", "has no second derivative in TensorFlow either"},
    {"FractionalAvgPoolGrad", "has no second derivative in TensorFlow either"},
    {"FractionalMaxPoolGrad", "has no second derivative in TensorFlow either"},
    {"SelfAdjointEig", "an older form of SelfAdjointEigV2, which has one"},
    {"Bincount", "counts elements"},
    {"EditDistance", "counts what differs"},
    {"ListDiff", "which elements are there depends on their values"},
    {"Range", "which elements are there depends on their values"},
    {"Timestamp", "values from outside the graph"},
    {"Unique", "which elements are there depends on their values"},
    {"UniqueV2", "which elements are there depends on their values"},
    {"UniqueWithCounts", "which elements are there depends on their values"},
    {"UniqueWithCountsV2", "which elements are there depends on their values"},
};

bool may_have_gradients(const OpDef& op, const ArgDef& arg) {
  if (arg.dtype != DType::kInvalid) return has_gradients(arg.dtype);
  const AttrDef* attr = op.find_attr(arg.type_attr.empty() ? arg.type_list_attr : arg.type_attr);
  if (attr == nullptr || attr->allowed_types.empty()) return true;
  for (int i = 1; i < kNumDTypes; ++i) {
    const DType type = static_cast<DType>(i);
    if (attr->allowed_types.contains(type) && has_gradients(type)) return true;
  }
  return false;
}

bool any_may_have_gradients(const OpDef& op, const std::vector<ArgDef>& args) {
  return std::any_of(args.begin(), args.end(),
                     [&](const ArgDef& arg) { return may_have_gradients(op, arg); });
}

// Empty: it should have a rule.
std::string reason(const OpDef& op) {
  const OpTraits& is = op.traits;
  for (const auto& [name, why] : kReasons) {
    if (op.name == name) return why;
  }
  if (is.functional != FunctionalOp::kNone) return "run functions: the walk differentiates those";
  if (is.control_flow != ControlFlow::kNone) {
    return "what branches and loops become in a session: those are differentiated before";
  }
  if (is.send || is.recv) return "edges between devices, made after gradients";
  if (!is.cannot_differentiate && !is.argument && !is.result) return "";
  if (op.outputs.empty()) return "have no results";
  if (is.owns_state || is.step_state) return "make variables, queues and other state";
  if (op.find_attr("seed") != nullptr) return "draw random numbers";
  if (is.stateful) return "read or change state in place";
  if (op.inputs.empty()) return "values from outside the graph";
  if (!any_may_have_gradients(op, op.outputs)) return "the results are no real or complex numbers";
  if (!any_may_have_gradients(op, op.inputs)) return "no input is a real or complex number";
  if (is.metadata_only) return "look at shapes only";
  if (is.elementwise) return "piecewise constant: zero wherever there is a derivative";
  return "";
}

std::string table() {
  std::map<std::string, std::vector<std::string>> groups;
  for (const OpDef* op : OpRegistry::global().list()) {
    if (op->gradient == nullptr) groups[reason(*op)].push_back(op->name);
  }
  std::string out = "| why | ops |\n| --- | --- |\n";
  for (const auto& [why, ops] : groups) {
    out += str_cat("| ", why.empty() ? "**missing**" : why, " | `", str_join(ops, "` `"), "` |\n");
  }
  return out;
}

TEST(GradientList, EveryOpHasAGradientOrAReason) {
  ASSERT_TRUE(register_ops().ok());
  for (const OpDef* op : OpRegistry::global().list()) {
    if (op->gradient != nullptr) {
      EXPECT_FALSE(op->traits.cannot_differentiate) << op->name;
      continue;
    }
    EXPECT_NE(reason(*op), "") << op->name << " has neither a gradient nor a reason to have none";
  }
}

TEST(GradientList, StandsInTheDocumentation) {
  ASSERT_TRUE(register_ops().ok());
  Result<std::string> page = read_file(posix_file_system(), kPage);
  ASSERT_TRUE(page.ok()) << page.status().to_string();
  const size_t begin = page->find(kBegin), end = page->find(kEnd);
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  const size_t start = begin + kBegin.size();
  const std::string listed = page->substr(start, end - start);
  if (listed == table()) return;
  if (!env_string("MILLRACE_UPDATE_DOCS").empty()) {
    const std::string text = page->substr(0, start) + table() + page->substr(end);
    ASSERT_TRUE(write_file_atomically(posix_file_system(), kPage, text).ok());
  }
  EXPECT_EQ(listed, table()) << "run this test with MILLRACE_UPDATE_DOCS=1 and look at " << kPage;
}

}  // namespace
}  // namespace millrace
