#pragma once

// Ops that make, reshape, cut, join and look up tensors.

namespace millrace {

class Registry;

void register_array_ops(Registry& registry);

void register_bitcast(Registry& registry);      // Bitcast CheckNumerics
void register_concat(Registry& registry);       // ConcatV2 Concat ConcatOffset Pack
void register_constant(Registry& registry);     // Const
void register_diag(Registry& registry);         // Diag DiagPart MatrixBandPart
void register_dynamic(Registry& registry);      // DynamicPartition DynamicStitch
void register_fill(Registry& registry);         // Fill ZerosLike OnesLike Range
void register_gather(Registry& registry);       // Gather GatherV2
void register_gather_nd(Registry& registry);    // GatherNd ScatterNd
void register_identity(Registry& registry);     // Identity IdentityN RefIdentity Snapshot ...
                                                // PreventGradient
void register_lin_space(Registry& registry);    // LinSpace
void register_matrix_diag(Registry& registry);  // MatrixDiag MatrixDiagPart MatrixSetDiag, V2, V3
void register_mirror_pad(Registry& registry);   // MirrorPad MirrorPadGrad
void register_one_hot(Registry& registry);      // OneHot
void register_pad(Registry& registry);          // Pad PadV2
void register_parallel_concat(Registry& registry);   // ParallelConcat
void register_placeholder(Registry& registry);       // Placeholder PlaceholderV2
                                                     // PlaceholderWithDefault
void register_reshape(Registry& registry);           // Reshape ExpandDims Squeeze
void register_reverse_sequence(Registry& registry);  // ReverseSequence
void register_roll(Registry& registry);              // Roll
void register_shape_of(Registry& registry);          // Shape ShapeN Size Rank
void register_slice(Registry& registry);             // Slice
void register_space_batch(Registry& registry);       // SpaceToBatchND BatchToSpaceND ...
void register_space_depth(Registry& registry);       // SpaceToDepth DepthToSpace
void register_sparse_to_dense(Registry& registry);   // SparseToDense
void register_split(Registry& registry);             // Split SplitV Unpack
void register_strided_slice(Registry& registry);     // StridedSlice StridedSliceGrad
void register_tensor_scatter(Registry& registry);    // TensorScatterUpdate TensorScatterAdd ...
void register_tile(Registry& registry);              // Tile BroadcastTo
void register_transpose(Registry& registry);  // Transpose ConjugateTranspose InvertPermutation
                                              // ReverseV2 Reverse
void register_unique(Registry& registry);     // Unique UniqueWithCounts ListDiff
void register_where(Registry& registry);      // Where

}  // namespace millrace
