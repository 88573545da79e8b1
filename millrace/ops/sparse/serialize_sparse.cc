// Sparse tensors as strings: their three tensors as serialised TensorProtos.

#include <algorithm>

#include "millrace/kernel/registry.h"
#include "millrace/ops/element.h"
#include "millrace/ops/sparse/sparse_input.h"
#include "millrace/tensor/dispatch.h"
#include "millrace/tensor/tensor_proto.h"
#include "proto/tensor.pb.h"

namespace millrace {
namespace {

inline constexpr TypeSet kTypes = type_set_of<ConcatTypes<PlainTypes, TypeList<std::string>>>;

Result<std::string> serialize(const Tensor& tensor) {
  tensorflow::TensorProto proto;
  MR_TRY(tensor_to_proto(tensor, proto));
  return proto.SerializeAsString();
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
  MR_TRY_ASSIGN(const PartialShape strings, c.with_rank(0, 2));
  MR_TRY(strings.merge(PartialShape{PartialShape::kUnknownDim, 3}).status());
  c.set_output(0, PartialShape::of_rank(2));
  c.set_output(1, PartialShape::of_rank(1));
  c.set_output(2, PartialShape::of_rank(1));
  return ok_status();
}

Status serialize_sparse(KernelContext& ctx) {
  MR_TRY(SparseInput::read(ctx, 0, "sparse").status());
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{3}));
  const std::span<std::string> strings = out->mutable_data<std::string>();
  for (int i = 0; i < 3; ++i) {
    MR_TRY_ASSIGN(strings[static_cast<size_t>(i)], serialize(ctx.input(i)));
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
struct RowText {
  std::string indices, values;
};
Result<RowText> serialize_row(const SparseInput& sparse, int64_t begin, int64_t end) {
  RowText text;
  MR_TRY_ASSIGN(Tensor indices,
                Tensor::allocate(DType::kInt64, Shape{end - begin, sparse.rank - 1}));
  int64_t* index = indices.mutable_data<int64_t>().data();
  for (int64_t i = begin; i < end; ++i) {
    const std::span<const int64_t> rest = sparse.index(i).subspan(1);
    index = std::copy(rest.begin(), rest.end(), index);
  }
  MR_TRY_ASSIGN(const Tensor values, copy_range(*sparse.values, begin, end));
  MR_TRY_ASSIGN(text.indices, serialize(indices));
  MR_TRY_ASSIGN(text.values, serialize(values));
  return text;
}

Status serialize_many_sparse(KernelContext& ctx) {
  MR_TRY_ASSIGN(const SparseInput sparse, SparseInput::read(ctx, 0, "sparse"));
  if (sparse.rank < 2) {
    return invalid_argument("Rank of input SparseTensor should be > 1, but saw rank: ",
                            sparse.rank);
  }
  const int64_t rows = sparse.shape.dim(0);
  MR_TRY(check_row_by_row(rows));
  const int inner = sparse.rank - 1;
  MR_TRY_ASSIGN(const Shape strings_shape, Shape::make(std::vector<int64_t>{rows, 3}));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, strings_shape));
  std::string* strings = out->mutable_data<std::string>().data();
  Tensor shape = *Tensor::allocate(DType::kInt64, Shape{inner});
  const std::span<const int64_t> sizes = sparse.shape.dims().subspan(1);
  std::copy(sizes.begin(), sizes.end(), shape.mutable_data<int64_t>().begin());
  MR_TRY_ASSIGN(const std::string shape_text, serialize(shape));
  // There may be far more rows without elements than with some, and they are all alike.
  MR_TRY_ASSIGN(const RowText none, serialize_row(sparse, 0, 0));
  int64_t at = 0;
  for (int64_t row = 0; row < rows; ++row, strings += 3) {
    const int64_t begin = at;
    while (at < sparse.count && sparse.index(at)[0] == row) ++at;
    RowText text = none;
    if (at > begin) {
      MR_TRY_ASSIGN(text, serialize_row(sparse, begin, at));
    }
    strings[0] = std::move(text.indices);
    strings[1] = std::move(text.values);
    strings[2] = shape_text;
  }
  if (at < sparse.count) {
    return invalid_argument("indices[", at, "] is out of order: rows must not decrease");
  }
  return ok_status();
}

struct Row {
  Tensor indices, values, shape;
};

class DeserializeManySparse : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return std::make_unique<DeserializeManySparse>();
  }

  Status compute(KernelContext& ctx) const override {
    const Tensor& strings = ctx.input(0);
    if (strings.rank() != 2 || strings.dim(1) != 3) {
      return invalid_argument("serialized_sparse must be a matrix of 3 columns, got shape ",
                              strings.shape());
    }
    std::vector<Row> rows;
    std::vector<int64_t> sizes;
    int64_t count = 0;
    for (int64_t i = 0; i < strings.dim(0); ++i) {
      MR_TRY_ASSIGN(Row row, read(strings, i, ctx.output_type(1)));
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
    sizes.insert(sizes.begin(), strings.dim(0));
    return write(ctx, rows, sizes, count);
  }

 private:
  static Result<Tensor> parse(const Tensor& strings, int64_t i, int column) {
    const std::string& text = strings.data<std::string>()[static_cast<size_t>(i * 3 + column)];
    tensorflow::TensorProto proto;
    if (text.size() > static_cast<size_t>(INT32_MAX) ||
        !proto.ParseFromArray(text.data(), static_cast<int>(text.size())) || proto.dtype() == 0) {
      return invalid_argument("Could not parse serialized_sparse[", i, ", ", column, "]");
    }
    Result<Tensor> tensor = tensor_from_proto(proto);
    if (!tensor.ok()) {
      return tensor.status().with_prefix(
          str_cat("Could not construct serialized_sparse[", i, ", ", column, "]"));
    }
    return tensor;
  }

  static Result<Row> read(const Tensor& strings, int64_t i, DType dtype) {
    Row row;
    MR_TRY_ASSIGN(row.indices, parse(strings, i, 0));
    MR_TRY_ASSIGN(row.values, parse(strings, i, 1));
    MR_TRY_ASSIGN(row.shape, parse(strings, i, 2));
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
                      const std::vector<int64_t>& sizes, int64_t count) {
    const auto rank = static_cast<int64_t>(sizes.size());
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
        *index++ = static_cast<int64_t>(row);
        const auto rest =
            from.subspan(static_cast<size_t>(i * (rank - 1)), static_cast<size_t>(rank - 1));
        index = std::copy(rest.begin(), rest.end(), index);
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
  const std::vector<OpSpec::Arg> sparse = {
      {"sparse_indices", "int64"}, {"sparse_values", "T"}, {"sparse_shape", "host(int64)"}};
  const OpTraits traits = {.cannot_differentiate = true, .cost = 100};
  registry.add({.name = "SerializeSparse",
                .doc = "A sparse tensor as three strings.",
                .inputs = sparse,
                .outputs = {{"serialized_sparse", "string"}},
                .types = {{"T", kTypes}},
                .traits = traits,
                .shape = serialize_shape});
  registry.kernel("SerializeSparse", DeviceKind::kCpu, serialize_sparse);
  registry.add({.name = "SerializeManySparse",
                .doc = "The rows of a sparse tensor, each as three strings.",
                .inputs = sparse,
                .outputs = {{"serialized_sparse", "string"}},
                .types = {{"T", kTypes}},
                .traits = traits,
                .shape = serialize_many_shape});
  registry.kernel("SerializeManySparse", DeviceKind::kCpu, serialize_many_sparse);
  registry.add({.name = "DeserializeManySparse",
                .doc = "Joins sparse tensors, each given as three strings, as rows of one.",
                .inputs = {{"serialized_sparse", "string"}},
                .outputs = {{"sparse_indices", "int64"},
                            {"sparse_values", "dtype"},
                            {"sparse_shape", "host(int64)"}},
                .types = {{"dtype", kTypes}},
                .traits = traits,
                .shape = deserialize_many_shape});
  registry.kernel<DeserializeManySparse>("DeserializeManySparse", DeviceKind::kCpu);
}

}  // namespace millrace
