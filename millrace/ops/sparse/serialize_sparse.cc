// Sparse tensors as strings, their three tensors as serialised TensorProtos, or as variants that
// hold those tensors.

#include <algorithm>

#include "millrace/kernel/registry.h"
#include "millrace/ops/element.h"
#include "millrace/ops/sparse/sparse_input.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/tensor_proto.h"
#include "millrace/tensor/tensor_variant.h"
#include "proto/tensor.pb.h"

namespace millrace {
namespace {

template <class Packed>
Result<Packed> pack(const Tensor& tensor) {
  if constexpr (std::is_same_v<Packed, Variant>) {
    return Variant{make_ref<TensorVariant>(tensor)};
  } else {
    tensorflow::TensorProto proto;
    MR_TRY(tensor_to_proto(tensor, proto));
    return proto.SerializeAsString();
  }
}

// The tensor in element i; INVALID_ARGUMENT for what is none.
Result<Tensor> unpack(const Tensor& packed, int64_t i) {
  const auto at = static_cast<size_t>(i);
  if (packed.dtype() == DType::kVariant) {
    const Ref<VariantObject>& object = packed.data<Variant>()[at].object;
    if (!object || object->type_name() != TensorVariant::kTypeName) {
      return invalid_argument("Could not parse serialized_sparse[", i / 3, ", ", i % 3,
                              "]: it holds ",
                              object ? object->type_name() : std::string_view("nothing"));
    }
    return static_cast<const TensorVariant&>(*object).tensor();
  }
  const std::string& text = packed.data<std::string>()[at];
  tensorflow::TensorProto proto;
  if (text.size() > static_cast<size_t>(INT32_MAX) ||
      !proto.ParseFromArray(text.data(), static_cast<int>(text.size())) || proto.dtype() == 0) {
    return invalid_argument("Could not parse serialized_sparse[", i / 3, ", ", i % 3, "]");
  }
  Result<Tensor> tensor = tensor_from_proto(proto);
  if (tensor.ok()) return tensor;
  return tensor.status().with_prefix(
      str_cat("Could not construct serialized_sparse[", i / 3, ", ", i % 3, "]"));
}

Status serialize_shape(ShapeContext& c) {
  MR_TRY(sparse_rank(c, 0).status());
  c.set_output(0, PartialShape{3});
  return ok_status();
}

Status serialize_many_shape(ShapeContext& c) {
  MR_TRY(sparse_rank(c, 0).status());
  MR_TRY_ASSIGN(const PartialShape shape, c.input_as_shape(2));
  const bool known = shape.rank_known() && shape.rank() > 0;
  c.set_output(0, PartialShape{known ? shape.dim(0) : PartialShape::kUnknownDim, 3});
  return ok_status();
}

Status deserialize_many_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape packed, c.with_rank(0, 2));
  MR_TRY(packed.merge(PartialShape{PartialShape::kUnknownDim, 3}).status());
  c.set_output(0, PartialShape::of_rank(2));
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, PartialShape::of_rank(1));
  return ok_status();
}

Status deserialize_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape packed, c.with_rank_at_least(0, 1));
  const int rank = packed.rank_known() ? packed.rank() : 0;
  if (rank > 0 && packed.dim_known(rank - 1) && packed.dim(rank - 1) != 3) {
    return invalid_argument("serialized_sparse must have a last dimension of 3, got shape ",
                            packed);
  }
  c.set_output(0, PartialShape::of_rank(2));
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, PartialShape::of_rank(1));
  return ok_status();
}

// Input i in memory that is nobody else's.
Result<Tensor> kept(const KernelContext& ctx, int i) {
  const Tensor& input = ctx.input(i);
  if (input.buffer() && input.buffer()->borrowed()) return input.clone();
  return input;
}

template <class Packed>
Status serialize_sparse(KernelContext& ctx) {
  MR_TRY(SparseInput::read(ctx, 0, "sparse").status());
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{3}));
  const std::span<Packed> packed = out->mutable_data<Packed>();
  for (int i = 0; i < 3; ++i) {
    MR_TRY_ASSIGN(const Tensor part, kept(ctx, i));
    MR_TRY_ASSIGN(packed[static_cast<size_t>(i)], pack<Packed>(part));
  }
  return ok_status();
}

// Elements [begin, end) of a vector, as a tensor of its own.
Result<Tensor> copy_range(const Tensor& from, int64_t begin, int64_t end) {
  MR_TRY_ASSIGN(Tensor out, Tensor::allocate(from.dtype(), Shape{end - begin}));
  with_element(from.dtype(), [&]<class T>() {
    const T* source = static_cast<const T*>(from.raw());
    std::copy(source + begin, source + end, static_cast<T*>(out.mutable_raw()));
  });
  return out;
}

// Elements [begin, end) of a sparse tensor without the first dimension: indices and values.
template <class Packed>
struct PackedRow {
  Packed indices, values;
};
template <class Packed>
Result<PackedRow<Packed>> serialize_row(const SparseInput& sparse, int64_t begin, int64_t end) {
  PackedRow<Packed> row;
  MR_TRY_ASSIGN(Tensor indices,
                Tensor::allocate(DType::kInt64, Shape{end - begin, sparse.rank - 1}));
  int64_t* index = indices.mutable_data<int64_t>().data();
  for (int64_t i = begin; i < end; ++i) {
    const std::span<const int64_t> rest = sparse.index(i).subspan(1);
    index = std::copy(rest.begin(), rest.end(), index);
  }
  MR_TRY_ASSIGN(const Tensor values, copy_range(*sparse.values, begin, end));
  MR_TRY_ASSIGN(row.indices, pack<Packed>(indices));
  MR_TRY_ASSIGN(row.values, pack<Packed>(values));
  return row;
}

template <class Packed>
Status serialize_many_sparse(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SparseInput sparse, SparseInput::read(ctx, 0, "sparse"));
  if (sparse.rank < 2) {
    return invalid_argument("Rank of input SparseTensor should be > 1, but saw rank: ",
                            sparse.rank);
  }
  const int64_t rows = sparse.shape.dim(0);
  MR_TRY(check_row_by_row(rows));
  const int inner = sparse.rank - 1;
  MR_TRY_ASSIGN(const Shape packed_shape, Shape::make(std::vector<int64_t>{rows, 3}));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, packed_shape));
  Packed* packed = out->mutable_data<Packed>().data();
  Tensor shape = *Tensor::allocate(DType::kInt64, Shape{inner});
  const std::span<const int64_t> sizes = sparse.shape.dims().subspan(1);
  std::copy(sizes.begin(), sizes.end(), shape.mutable_data<int64_t>().begin());
  MR_TRY_ASSIGN(const Packed packed_sizes, pack<Packed>(shape));
  // There may be far more rows without elements than with some, and they are all alike.
  MR_TRY_ASSIGN(const PackedRow<Packed> none, serialize_row<Packed>(sparse, 0, 0));
  int64_t at = 0;
  for (int64_t row = 0; row < rows; ++row, packed += 3) {
    const int64_t begin = at;
    while (at < sparse.count && sparse.index(at)[0] == row) ++at;
    PackedRow<Packed> parts = none;
    if (at > begin) {
      MR_TRY_ASSIGN(parts, serialize_row<Packed>(sparse, begin, at));
    }
    packed[0] = std::move(parts.indices);
    packed[1] = std::move(parts.values);
    packed[2] = packed_sizes;
  }
  if (at < sparse.count) {
    return invalid_argument("indices[", at, "] is out of order: rows must not decrease");
  }
  return ok_status();
}

struct Row {
  Tensor indices, values, shape;
};

// Joins sparse tensors: a matrix of three columns for rows, or any shape of them that ends in 3.
template <bool kMatrix>
class DeserializeSparse : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return std::make_unique<DeserializeSparse>();
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& packed = ctx.input(0);
    if (kMatrix && packed.rank() != 2) {
      return invalid_argument("serialized_sparse must be a matrix of 3 columns, got shape ",
                              packed.shape());
    }
    if (packed.rank() < 1 || packed.dim(packed.rank() - 1) != 3) {
      return invalid_argument("serialized_sparse must have a last dimension of 3, got shape ",
                              packed.shape());
    }
    std::vector<Row> rows;
    std::vector<int64_t> sizes;
    int64_t count = 0;
    for (int64_t i = 0; i < packed.num_elements() / 3; ++i) {
      MR_TRY_ASSIGN(Row row, read(packed, i, ctx.output_type(1)));
      const auto rank = static_cast<size_t>(row.shape.dim(0));
      if (i == 0) sizes.assign(rank, 0);
      if (sizes.size() != rank) {
        return invalid_argument(
            "Inconsistent rank across SparseTensors: rank prior to SparseTensor[", i,
            "] was: ", sizes.size() + 1, " but rank of SparseTensor[", i, "] is: ", rank + 1);
      }
      for (size_t k = 0; k < rank; ++k) {
        sizes[k] = std::max(sizes[k], row.shape.data<int64_t>()[k]);
      }
      count += row.values.dim(0);
      rows.push_back(std::move(row));
    }
    const std::span<const int64_t> outer = packed.shape().dims().first(packed.rank() - 1U);
    sizes.insert(sizes.begin(), outer.begin(), outer.end());
    return write(ctx, rows, sizes, outer.size(), count);
  }

 private:
  static Result<Row> read(const Tensor& packed, int64_t i, DType dtype) {
    Row row;
    MR_TRY_ASSIGN(row.indices, unpack(packed, i * 3 + 0));
    MR_TRY_ASSIGN(row.values, unpack(packed, i * 3 + 1));
    MR_TRY_ASSIGN(row.shape, unpack(packed, i * 3 + 2));
    if (row.values.dtype() != dtype) {
      return invalid_argument("Requested SparseTensor of type ", dtype, " but SparseTensor[", i,
                              "].values.dtype() == ", row.values.dtype());
    }
    const bool fits = row.indices.dtype() == DType::kInt64 && row.indices.rank() == 2 &&
                      row.values.rank() == 1 && row.shape.dtype() == DType::kInt64 &&
                      row.shape.rank() == 1 && row.indices.dim(0) == row.values.dim(0) &&
                      row.indices.dim(1) == row.shape.dim(0);
    if (!fits) {
      return invalid_argument("SparseTensor[", i, "] is none: indices ", row.indices.shape(),
                              ", values ", row.values.shape(), ", shape ", row.shape.shape());
    }
    return row;
  }

  static Status write(KernelContext& ctx, const std::vector<Row>& rows,
                      const std::vector<int64_t>& sizes, size_t num_outer, int64_t count) {
    const auto rank = static_cast<int64_t>(sizes.size());
    const size_t num_inner = sizes.size() - num_outer;
    MR_TRY_ASSIGN(Tensor * indices, ctx.allocate_output(0, Shape{count, rank}));
    MR_TRY_ASSIGN(Tensor * values, ctx.allocate_output(1, Shape{count}));
    MR_TRY_ASSIGN(Tensor * shape, ctx.allocate_output(2, Shape{rank}));
    std::copy(sizes.begin(), sizes.end(), shape->mutable_data<int64_t>().begin());
    int64_t* index = indices->mutable_data<int64_t>().data();
    int64_t at = 0;
    for (size_t row = 0; row < rows.size(); ++row) {
      const std::span<const int64_t> from = rows[row].indices.data<int64_t>();
      const int64_t n = rows[row].values.dim(0);
      for (int64_t i = 0; i < n; ++i) {
        auto left = static_cast<int64_t>(row);
        for (size_t d = num_outer; d-- > 0; left /= sizes[d]) index[d] = left % sizes[d];
        const auto rest = from.subspan(static_cast<size_t>(i) * num_inner, num_inner);
        index = std::copy(rest.begin(), rest.end(), index + num_outer);
      }
      with_element(values->dtype(), [&]<class T>() {
        const T* source = static_cast<const T*>(rows[row].values.raw());
        std::copy(source, source + n, static_cast<T*>(values->mutable_raw()) + at);
      });
      at += n;
    }
    return ok_status();
  }
};

}  // namespace

void register_serialize_sparse(Registry& registry) {
  static const Status& decoder =
      *new Status(register_variant_decoder(TensorVariant::kTypeName, &TensorVariant::decode));
  MR_CHECK_OK(decoder);
  const OpTraits traits = {.cannot_differentiate = true, .cost = 100};
  const TypeSet packed = {DType::kString, DType::kVariant};
  OpSpec serialize = {.name = "SerializeSparse",
                      .doc = "A sparse tensor as three strings, or three variants.",
                      .inputs = {{"sparse_indices", "int64"},
                                 {"sparse_values", "T"},
                                 {"sparse_shape", "host(int64)"}},
                      .outputs = {{"serialized_sparse", "out_type"}},
                      .types = {{"T", kSparseTypes}, {"out_type", packed, DType::kString}},
                      .traits = traits,
                      .shape = serialize_shape,
                      .no_gradient = "packs tensors"};
  registry.add(serialize);
  serialize.name = "SerializeManySparse";
  serialize.doc = "The rows of a sparse tensor, each as three strings, or three variants.";
  serialize.shape = serialize_many_shape;
  registry.add(serialize);
  const auto add = [&](const char* op, DType type, KernelFunction kernel) {
    registry.kernel(
        {.op = std::string_view(op), .constraints = {{"out_type", {type}}}, .function = kernel});
  };
  add("SerializeSparse", DType::kString, serialize_sparse<std::string>);
  add("SerializeSparse", DType::kVariant, serialize_sparse<Variant>);
  add("SerializeManySparse", DType::kString, serialize_many_sparse<std::string>);
  add("SerializeManySparse", DType::kVariant, serialize_many_sparse<Variant>);
  OpSpec deserialize = {.name = "DeserializeManySparse",
                        .doc = "Joins sparse tensors, each given as three strings, as rows of one.",
                        .inputs = {{"serialized_sparse", "string"}},
                        .outputs = {{"sparse_indices", "int64"},
                                    {"sparse_values", "dtype"},
                                    {"sparse_shape", "host(int64)"}},
                        .types = {{"dtype", kSparseTypes}},
                        .traits = traits,
                        .shape = deserialize_many_shape,
                        .no_gradient = "unpacks tensors"};
  registry.add(deserialize);
  registry.kernel<DeserializeSparse<true>>("DeserializeManySparse", DeviceKind::kCpu);
  deserialize.name = "DeserializeSparse";
  deserialize.doc = "Joins sparse tensors of three strings or variants in the shape they stand in.";
  deserialize.inputs = {{"serialized_sparse", "Tserialized"}};
  deserialize.types = {{"dtype", kSparseTypes}, {"Tserialized", packed, DType::kString}};
  deserialize.shape = deserialize_shape;
  registry.add(deserialize);
  registry.kernel<DeserializeSparse<false>>("DeserializeSparse", DeviceKind::kCpu);
}

}  // namespace millrace
