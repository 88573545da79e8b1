#pragma once

namespace millrace {

class Registry;

// Ops that fold or scan dimensions of a tensor, and sums by segment.
void register_reduce_ops(Registry& registry);

// Its parts, one per source.
void register_arg_reductions(Registry& registry);  // ArgMax ArgMin
void register_bincount(Registry& registry);        // Bincount
void register_linear_recurrence(Registry& registry);
void register_reductions(Registry& registry);       // All Any Max Mean Min Prod Sum
void register_scans(Registry& registry);            // Cumprod Cumsum
void register_segment_folds(Registry& registry);    // SegmentMax SegmentProd ... UnsortedSegmentX
void register_segment_sums(Registry& registry);     // SegmentSum SegmentMean UnsortedSegmentSum
void register_sparse_segments(Registry& registry);  // SparseSegmentSum Mean SqrtN ...

}  // namespace millrace
