#include "millrace/graph/elementwise_tree.h"

#include "millrace/base/str_cat.h"

namespace millrace {
namespace {

constexpr size_t kMaxArity = 64;
constexpr std::string_view kKeepDims = " keep_dims";

Result<ElementwiseTree::Stage> read_stage(const std::string& text) {
  const size_t colon = text.find(':');
  const DType type =
      colon == std::string::npos ? DType::kInvalid : dtype_from_name(text.substr(colon + 1));
  if (type == DType::kInvalid) {
    return invalid_argument("stages must be written as \"Add:float\", got \"", text, "\"");
  }
  ElementwiseTree::Stage stage{text.substr(0, colon), type, {}};
  stage.keep_dims = stage.op.ends_with(kKeepDims);
  if (stage.keep_dims) stage.op.resize(stage.op.size() - kKeepDims.size());
  return stage;
}

}  // namespace

void ElementwiseTree::write(AttrMap& attrs) const {
  std::vector<std::string> names;
  std::vector<int64_t> arities, operands;
  for (const Stage& stage : stages) {
    names.push_back(str_cat(stage.op, stage.keep_dims ? kKeepDims : "", ":", stage.type));
    arities.push_back(static_cast<int64_t>(stage.operands.size()));
    operands.insert(operands.end(), stage.operands.begin(), stage.operands.end());
  }
  attrs.set("stages", std::move(names));
  attrs.set("arities", std::move(arities));
  attrs.set("operands", std::move(operands));
  attrs.set("results", std::vector<int64_t>(results.begin(), results.end()));
}

Result<ElementwiseTree> ElementwiseTree::read(const AttrMap& attrs, int num_inputs) {
  MR_TRY_ASSIGN(const auto names, read_attr<std::vector<std::string>>(attrs, "stages"));
  MR_TRY_ASSIGN(const auto arities, read_attr<std::vector<int64_t>>(attrs, "arities"));
  MR_TRY_ASSIGN(const auto operands, read_attr<std::vector<int64_t>>(attrs, "operands"));
  MR_TRY_ASSIGN(const auto results, read_attr<std::vector<int64_t>>(attrs, "results"));
  if (names.empty() || names.size() > kMaxStages || num_inputs < 1 || num_inputs > kMaxInputs) {
    return invalid_argument("a tree must have 1 to ", kMaxStages, " stages and 1 to ", kMaxInputs,
                            " inputs, got ", names.size(), " and ", num_inputs);
  }
  if (arities.size() != names.size()) {
    return invalid_argument("'arities' must have one number for each of ", names.size(),
                            " stages, got ", arities.size());
  }
  ElementwiseTree tree;
  size_t at = 0;
  for (size_t s = 0; s < names.size(); ++s) {
    MR_TRY_ASSIGN(Stage stage, read_stage(names[s]));
    const uint64_t arity = static_cast<uint64_t>(arities[s]);
    if (arity == 0 || arity > kMaxArity || arity > operands.size() - at) {
      return invalid_argument("stage ", s, " cannot have ", arities[s], " operands of the ",
                              operands.size() - at, " left");
    }
    for (uint64_t i = 0; i < arity; ++i) {
      const int64_t operand = operands[at++], limit = num_inputs + static_cast<int64_t>(s);
      if (operand < 0 || operand >= limit) {
        return invalid_argument("an operand of stage ", s, " must be below ", limit, ", got ",
                                operand);
      }
      stage.operands.push_back(static_cast<int>(operand));
    }
    tree.stages.push_back(std::move(stage));
  }
  if (at != operands.size()) {
    return invalid_argument("'operands' has ", operands.size() - at, " numbers too many");
  }
  std::vector<bool> seen(names.size(), false);
  for (int64_t result : results) {
    if (result < 0 || static_cast<uint64_t>(result) >= names.size() ||
        seen[static_cast<size_t>(result)]) {
      return invalid_argument("'results' must name stages below ", names.size(),
                              ", none twice, got ", result);
    }
    seen[static_cast<size_t>(result)] = true;
    tree.results.push_back(static_cast<int>(result));
  }
  if (results.empty()) return invalid_argument("'results' must name a stage");
  return tree;
}

}  // namespace millrace
