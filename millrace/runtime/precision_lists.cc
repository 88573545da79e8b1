#include <algorithm>
#include <span>
#include <string_view>

#include "millrace/base/env.h"
#include "millrace/base/str_cat.h"
#include "millrace/runtime/mixed_precision.h"

namespace millrace {
namespace {

constexpr const char* kAllowed[] = {
    "BatchMatMul",
    "BatchMatMulV2",
    "BlockLSTM",
    "BlockLSTMGrad",
    "BlockLSTMGradV2",
    "BlockLSTMV2",
    "Conv2D",
    "Conv2DBackpropFilter",
    "Conv2DBackpropInput",
    "Conv3D",
    "Conv3DBackpropFilterV2",
    "Conv3DBackpropInputV2",
    "DepthwiseConv2dNative",
    "DepthwiseConv2dNativeBackpropFilter",
    "DepthwiseConv2dNativeBackpropInput",
    "Einsum",
    "GRUBlockCell",
    "GRUBlockCellGrad",
    "LSTMBlockCell",
    "LSTMBlockCellGrad",
    "MatMul",
};
constexpr const char* kInferred[] = {
    "Add",
    "AddN",
    "AddV2",
    "AvgPool",
    "AvgPool3D",
    "AvgPool3DGrad",
    "AvgPoolGrad",
    "BiasAdd",
    "BiasAddGrad",
    "BiasAddV1",
    "Elu",
    "EluGrad",
    "Erf",
    "Erfc",
    "FloorDiv",
    "FusedBatchNormGradV2",
    "FusedBatchNormGradV3",
    "FusedBatchNormV2",
    "FusedBatchNormV3",
    "Inv",
    "Log",
    "Log1p",
    "LogSoftmax",
    "Mul",
    "Prod",
    "RealDiv",
    "Reciprocal",
    "Rsqrt",
    "Selu",
    "SeluGrad",
    "Sigmoid",
    "SigmoidGrad",
    "Softmax",
    "Softplus",
    "SoftplusGrad",
    "Softsign",
    "SoftsignGrad",
    "Sqrt",
    "Square",
    "SquaredDifference",
    "Sub",
    "Tanh",
    "TanhGrad",
};
constexpr const char* kDenied[] = {
    "Exp",
    "Expm1",
    "L2Loss",
    "Mean",
    "Pow",
    "SoftmaxCrossEntropyWithLogits",
    "SparseSoftmaxCrossEntropyWithLogits",
    "Sum",
};
constexpr const char* kCleared[] = {
    "Abs",
    "ArgMax",
    "ArgMin",
    "BatchToSpace",
    "BatchToSpaceND",
    "BroadcastTo",
    "Ceil",
    "CheckNumerics",
    "Concat",
    "ConcatV2",
    "DepthToSpace",
    "DynamicPartition",
    "DynamicStitch",
    "EnsureShape",
    "Equal",
    "ExpandDims",
    "Fill",
    "Floor",
    "Gather",
    "GatherNd",
    "GatherV2",
    "Greater",
    "GreaterEqual",
    "Identity",
    "IsFinite",
    "IsInf",
    "IsNan",
    "Less",
    "LessEqual",
    "Max",
    "MaxPool",
    "MaxPool3D",
    "MaxPool3DGrad",
    "MaxPool3DGradGrad",
    "MaxPoolGrad",
    "MaxPoolGradGrad",
    "Maximum",
    "Merge",
    "Min",
    "Minimum",
    "MirrorPad",
    "MirrorPadGrad",
    "Neg",
    "NotEqual",
    "OneHot",
    "OnesLike",
    "Pack",
    "Pad",
    "PadV2",
    "PreventGradient",
    "Rank",
    "Relu",
    "Relu6",
    "Relu6Grad",
    "ReluGrad",
    "Reshape",
    "ResizeNearestNeighbor",
    "ResizeNearestNeighborGrad",
    "Reverse",
    "ReverseSequence",
    "ReverseV2",
    "Round",
    "ScatterNd",
    "Select",
    "SelectV2",
    "Shape",
    "Sign",
    "Size",
    "Slice",
    "Snapshot",
    "SpaceToBatch",
    "SpaceToBatchND",
    "SpaceToDepth",
    "Split",
    "SplitV",
    "Squeeze",
    "StopGradient",
    "StridedSlice",
    "StridedSliceGrad",
    "Switch",
    "Tile",
    "TopK",
    "TopKV2",
    "Transpose",
    "Unpack",
    "Where",
    "ZerosLike",
};

// Calls change(op) for each op that the environment lists.
template <class F>
void for_each_listed(const std::string& variable, F change) {
  std::string_view listed = env_string(variable.c_str());
  while (!listed.empty()) {
    const size_t comma = std::min(listed.find(','), listed.size());
    if (comma > 0) change(std::string(listed.substr(0, comma)));
    listed.remove_prefix(std::min(comma + 1, listed.size()));
  }
}

}  // namespace

std::unordered_map<std::string, PrecisionList> precision_lists() {
  std::unordered_map<std::string, PrecisionList> lists;
  const struct {
    PrecisionList list;
    std::span<const char* const> ops;
    const char* name;
  } own[] = {{PrecisionList::kAllow, kAllowed, "ALLOWLIST"},
             {PrecisionList::kInfer, kInferred, "INFERLIST"},
             {PrecisionList::kDeny, kDenied, "DENYLIST"},
             {PrecisionList::kClear, kCleared, "CLEARLIST"}};
  for (const auto& [list, ops, name] : own) {
    for (const char* op : ops) lists.emplace(op, list);
  }
  for (const auto& [list, ops, name] : own) {
    const std::string variable = str_cat("TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_", name);
    for_each_listed(variable + "_ADD",
                    [&, to = list](std::string op) { lists[std::move(op)] = to; });
    for_each_listed(variable + "_REMOVE", [&, from = list](const std::string& op) {
      const auto at = lists.find(op);
      if (at != lists.end() && at->second == from) lists.erase(at);
    });
  }
  return lists;
}

}  // namespace millrace
