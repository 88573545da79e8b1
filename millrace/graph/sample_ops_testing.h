#pragma once

#include "millrace/graph/op_registry.h"

namespace millrace {

// A handful of ops under their usual names, without kernels, for tests of this folder: Const,
// Placeholder, Identity, Neg, Add, Mul, MatMul, Concat, ConcatV2, Shape, Sum, Reshape, Cast,
// ZerosLike, BroadcastGradientArgs, Pack (value rule), Variable, Assign, Enter, Merge,
// NextIteration, NoOp, Bundle (list of types), Old (deprecated).
void register_sample_ops(OpRegistry& registry);

}  // namespace millrace
