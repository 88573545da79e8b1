"""Functions of which TensorFlow 2 renamed or reordered the arguments."""

from millrace.compat.v2.arguments import reordered
from millrace.core.export import export
from millrace.io import decoding as _decoding
from millrace.io import parsing as _parsing
from millrace.ops import along as _along
from millrace.ops import array as _array
from millrace.ops import check as _check
from millrace.ops import confusion as _confusion
from millrace.ops import gather as _gather
from millrace.ops import numerics as _numerics
from millrace.ops import ordering as _ordering
from millrace.ops import partition as _partition
from millrace.ops import reduce as _reduce
from millrace.ops import segments as _segments
from millrace.ops import space as _space
from millrace.ops import strings as _strings
from millrace.ops.image import boxes as _boxes
from millrace.ops.nn import activations as _activations
from millrace.ops.nn import conv as _conv
from millrace.ops.nn import cross_entropy as _cross_entropy
from millrace.ops.nn import depthwise_conv as _depthwise_conv
from millrace.ops.nn import dilated_conv as _dilated_conv
from millrace.ops.nn import embedding as _embedding
from millrace.ops.nn import morphology as _morphology
from millrace.ops.nn import normalization as _normalization
from millrace.ops.nn import pool as _pool
from millrace.ops.nn import sampling as _sampling
from millrace.ops.sparse import arrange as _arrange
from millrace.ops.sparse import strings as _sparse_strings

decode_csv = export(v2="io.decode_csv")(
    reordered(
        _decoding.decode_csv,
        "records record_defaults field_delim use_quote_delim na_value select_cols name",
    )
)
parse_example = export(v2="io.parse_example")(
    reordered(_parsing.parse_example, "serialized features example_names name")
)
parse_single_example = export(v2="io.parse_single_example")(
    reordered(_parsing.parse_single_example, "serialized features example_names name")
)
argmax = export(v2=("argmax", "math.argmax"))(
    reordered(_along.argmax, "input axis output_type name")
)
argmin = export(v2=("argmin", "math.argmin"))(
    reordered(_along.argmin, "input axis output_type name")
)
ones_like = export(v2="ones_like")(reordered(_array.ones_like, "input dtype name", input="tensor"))
pad = export(v2="pad")(reordered(_array.pad, "tensor paddings mode constant_values name"))
shape = export(v2="shape")(reordered(_array.shape, "input out_type name"))
size = export(v2="size")(reordered(_array.size, "input out_type name"))
transpose = export(v2="transpose")(reordered(_array.transpose, "a perm conjugate name"))
zeros_like = export(v2="zeros_like")(
    reordered(_array.zeros_like, "input dtype name", input="tensor")
)
assert_equal = export(v2=("assert_equal", "debugging.assert_equal"))(
    reordered(_check.assert_equal, "x y message summarize name")
)
assert_greater = export(v2=("assert_greater", "debugging.assert_greater"))(
    reordered(_check.assert_greater, "x y message summarize name")
)
assert_greater_equal = export(v2="debugging.assert_greater_equal")(
    reordered(_check.assert_greater_equal, "x y message summarize name")
)
assert_less = export(v2=("assert_less", "debugging.assert_less"))(
    reordered(_check.assert_less, "x y message summarize name")
)
assert_less_equal = export(v2="debugging.assert_less_equal")(
    reordered(_check.assert_less_equal, "x y message summarize name")
)
assert_near = export(v2="debugging.assert_near")(
    reordered(_check.assert_near, "x y rtol atol message summarize name")
)
assert_negative = export(v2="debugging.assert_negative")(
    reordered(_check.assert_negative, "x message summarize name")
)
assert_non_negative = export(v2="debugging.assert_non_negative")(
    reordered(_check.assert_non_negative, "x message summarize name")
)
assert_non_positive = export(v2="debugging.assert_non_positive")(
    reordered(_check.assert_non_positive, "x message summarize name")
)
assert_none_equal = export(v2="debugging.assert_none_equal")(
    reordered(_check.assert_none_equal, "x y summarize message name")
)
assert_positive = export(v2="debugging.assert_positive")(
    reordered(_check.assert_positive, "x message summarize name")
)
assert_rank = export(v2=("assert_rank", "debugging.assert_rank"))(
    reordered(_check.assert_rank, "x rank message name")
)
assert_rank_at_least = export(v2="debugging.assert_rank_at_least")(
    reordered(_check.assert_rank_at_least, "x rank message name")
)
assert_rank_in = export(v2="debugging.assert_rank_in")(
    reordered(_check.assert_rank_in, "x ranks message name")
)
assert_scalar = export(v2="debugging.assert_scalar")(
    reordered(_check.assert_scalar, "tensor message name")
)
confusion_matrix = export(v2="math.confusion_matrix")(
    reordered(_confusion.confusion_matrix, "labels predictions num_classes weights dtype name")
)
gather = export(v2="gather")(
    reordered(_gather.gather, "params indices validate_indices axis batch_dims name")
)
gather_nd = export(v2="gather_nd")(reordered(_gather.gather_nd, "params indices batch_dims name"))
crop_and_resize = export(v2="image.crop_and_resize")(
    reordered(
        _boxes.crop_and_resize, "image boxes box_indices crop_size method extrapolation_value name"
    )
)
draw_bounding_boxes = export(v2="image.draw_bounding_boxes")(
    reordered(_boxes.draw_bounding_boxes, "images boxes colors name")
)
crelu = export(v2="nn.crelu")(reordered(_activations.crelu, "features axis name"))
in_top_k = export(v2=("math.in_top_k", "nn.in_top_k"))(
    reordered(_activations.in_top_k, "targets predictions k name")
)
conv1d = export(v2="nn.conv1d")(
    reordered(_conv.conv1d, "input filters stride padding data_format dilations name")
)
conv2d = export(v2="nn.conv2d")(
    reordered(_conv.conv2d, "input filters strides padding data_format dilations name")
)
conv2d_transpose = export(v2="nn.conv2d_transpose")(
    reordered(
        _conv.conv2d_transpose,
        "input filters output_shape strides padding data_format dilations name",
    )
)
conv3d = export(v2="nn.conv3d")(
    reordered(_conv.conv3d, "input filters strides padding data_format dilations name")
)
conv3d_transpose = export(v2="nn.conv3d_transpose")(
    reordered(
        _conv.conv3d_transpose,
        "input filters output_shape strides padding data_format dilations name",
    )
)
sigmoid_cross_entropy_with_logits = export(v2="nn.sigmoid_cross_entropy_with_logits")(
    reordered(_cross_entropy.sigmoid_cross_entropy_with_logits, "labels logits name")
)
softmax_cross_entropy_with_logits = export(v2="nn.softmax_cross_entropy_with_logits")(
    reordered(_cross_entropy.softmax_cross_entropy_with_logits, "labels logits axis name")
)
sparse_softmax_cross_entropy_with_logits = export(v2="nn.sparse_softmax_cross_entropy_with_logits")(
    reordered(_cross_entropy.sparse_softmax_cross_entropy_with_logits, "labels logits name")
)
weighted_cross_entropy_with_logits = export(v2="nn.weighted_cross_entropy_with_logits")(
    reordered(_cross_entropy.weighted_cross_entropy_with_logits, "labels logits pos_weight name")
)
depthwise_conv2d = export(v2="nn.depthwise_conv2d")(
    reordered(
        _depthwise_conv.depthwise_conv2d, "input filter strides padding data_format dilations name"
    )
)
separable_conv2d = export(v2="nn.separable_conv2d")(
    reordered(
        _depthwise_conv.separable_conv2d,
        "input depthwise_filter pointwise_filter strides padding data_format dilations name",
    )
)
convolution = export(v2="nn.convolution")(
    reordered(_dilated_conv.convolution, "input filters strides padding data_format dilations name")
)
embedding_lookup = export(v2="nn.embedding_lookup")(
    reordered(_embedding.embedding_lookup, "params ids max_norm name")
)
embedding_lookup_sparse = export(v2="nn.embedding_lookup_sparse")(
    reordered(_embedding.embedding_lookup_sparse, "params sp_ids sp_weights combiner max_norm name")
)
safe_embedding_lookup_sparse = export(v2="nn.safe_embedding_lookup_sparse")(
    reordered(
        _embedding.safe_embedding_lookup_sparse,
        "embedding_weights sparse_ids sparse_weights combiner default_id max_norm name",
    )
)
dilation2d = export(v2="nn.dilation2d")(
    reordered(_morphology.dilation2d, "input filters strides padding dilations name")
)
batch_norm_with_global_normalization = export(v2="nn.batch_norm_with_global_normalization")(
    reordered(
        _normalization.batch_norm_with_global_normalization,
        "input mean variance beta gamma variance_epsilon scale_after_normalization name",
    )
)
moments = export(v2="nn.moments")(reordered(_normalization.moments, "x axes shift keepdims name"))
sufficient_statistics = export(v2="nn.sufficient_statistics")(
    reordered(_normalization.sufficient_statistics, "x axes shift keepdims name")
)
weighted_moments = export(v2="nn.weighted_moments")(
    reordered(_normalization.weighted_moments, "x axes frequency_weights keepdims name")
)
avg_pool = export(v2=("nn.avg_pool", "nn.avg_pool2d"))(
    reordered(_pool.avg_pool, "input ksize strides padding data_format name")
)
fractional_avg_pool = export(v2="nn.fractional_avg_pool")(
    reordered(_pool.fractional_avg_pool, "value pooling_ratio pseudo_random overlapping seed name")
)
fractional_max_pool = export(v2="nn.fractional_max_pool")(
    reordered(_pool.fractional_max_pool, "value pooling_ratio pseudo_random overlapping seed name")
)
max_pool = export(v2="nn.max_pool")(
    reordered(_pool.max_pool, "input ksize strides padding data_format name")
)
max_pool_with_argmax = export(v2="nn.max_pool_with_argmax")(
    reordered(
        _pool.max_pool_with_argmax,
        "input ksize strides padding data_format output_dtype include_batch_in_index name",
    )
)
pool = export(v2="nn.pool")(
    reordered(
        _pool.pool, "input window_shape pooling_type strides padding data_format dilations name"
    )
)
nce_loss = export(v2="nn.nce_loss")(
    reordered(
        _sampling.nce_loss,
        "weights biases labels inputs num_sampled num_classes num_true sampled_values "
        "remove_accidental_hits name",
    )
)
sampled_softmax_loss = export(v2="nn.sampled_softmax_loss")(
    reordered(
        _sampling.sampled_softmax_loss,
        "weights biases labels inputs num_sampled num_classes num_true sampled_values "
        "remove_accidental_hits seed name",
    )
)
verify_tensor_all_finite = export(v2="debugging.assert_all_finite")(
    reordered(_numerics.verify_tensor_all_finite, "x message name")
)
tuple_ = export(v2="tuple")(reordered(_ordering.tuple_, "tensors control_inputs name"))
boolean_mask = export(v2="boolean_mask")(
    reordered(_partition.boolean_mask, "tensor mask axis name")
)
count_nonzero = export(v2="math.count_nonzero")(
    reordered(_reduce.count_nonzero, "input axis keepdims dtype name")
)
sparse_segment_mean = export(v2="sparse.segment_mean")(
    reordered(_segments.sparse_segment_mean, "data indices segment_ids num_segments name")
)
sparse_segment_sqrt_n = export(v2="sparse.segment_sqrt_n")(
    reordered(_segments.sparse_segment_sqrt_n, "data indices segment_ids num_segments name")
)
sparse_segment_sum = export(v2="sparse.segment_sum")(
    reordered(_segments.sparse_segment_sum, "data indices segment_ids num_segments name")
)
batch_to_space = export(v2="batch_to_space")(
    reordered(_space.batch_to_space, "input block_shape crops name")
)
depth_to_space = export(v2="nn.depth_to_space")(
    reordered(_space.depth_to_space, "input block_size data_format name")
)
space_to_batch = export(v2=("nn.space_to_batch", "space_to_batch"))(
    reordered(_space.space_to_batch, "input block_shape paddings name")
)
space_to_depth = export(v2="nn.space_to_depth")(
    reordered(_space.space_to_depth, "input block_size data_format name")
)
sparse_concat = export(v2="sparse.concat")(
    reordered(_arrange.sparse_concat, "axis sp_inputs expand_nonconcat_dims name")
)
serialize_many_sparse = export(v2="io.serialize_many_sparse")(
    reordered(_sparse_strings.serialize_many_sparse, "sp_input out_type name")
)
serialize_sparse = export(v2="io.serialize_sparse")(
    reordered(_sparse_strings.serialize_sparse, "sp_input out_type name")
)
length = export(v2="strings.length")(reordered(_strings.length, "input unit name"))
reduce_join = export(v2="strings.reduce_join")(
    reordered(_strings.reduce_join, "inputs axis keepdims separator name")
)
string_to_hash_bucket = export(v2="strings.to_hash_bucket")(
    reordered(_strings.string_to_hash_bucket, "input num_buckets name")
)
string_to_number = export(v2="strings.to_number")(
    reordered(_strings.string_to_number, "input out_type name")
)
substr = export(v2="strings.substr")(reordered(_strings.substr, "input pos len unit name"))
