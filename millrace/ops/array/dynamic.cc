// Rows dealt out to several tensors, and put together again.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/indices.h"
#include "millrace/ops/rows.h"

namespace millrace {
namespace {

bool is_prefix(const Shape& prefix, const Shape& shape) {
  return prefix.rank() <= shape.rank() &&
         std::equal(prefix.dims().begin(), prefix.dims().end(), shape.dims().begin());
}

// [first] followed by the dimensions of `shape` from `skip` on.
Result<Shape> rows_of(int64_t first, const Shape& shape, int skip) {
  HostInts dims;
  dims.add(first);
  for (int i = skip; i < shape.rank(); ++i) dims.add(shape.dim(i));
  return Shape::make(dims.span());
}

Status dynamic_partition_shape(ShapeContext& c) {
  const PartialShape& data = c.input(0);
  const PartialShape& partitions = c.input(1);
  if (!data.rank_known() || !partitions.rank_known()) return ok_status();
  bool fits = partitions.rank() <= data.rank();
  for (int i = 0; fits && i < partitions.rank(); ++i) {
    fits = data.dim(i) == partitions.dim(i) || !data.dim_known(i) || !partitions.dim_known(i);
  }
  if (!fits) {
    return invalid_argument("the shape of 'data' must begin with that of 'partitions', got ", data,
                            " and ", partitions);
  }
  PartialShape part = PartialShape({-1});
  for (int i = partitions.rank(); i < data.rank(); ++i) part.add_dim(data.dim(i));
  for (int i = 0; i < c.num_outputs(); ++i) c.set_output(i, part);
  return ok_status();
}

// The gradients of the parts, put back where their rows came from.
Status dynamic_partition_grad(GradientContext& g) {
  OpBuilder& b = g.builder();
  const Expr partitions = g.input(1);
  const Expr positions = reshape(range(int32_scalar(b, 0), size_of(partitions), int32_scalar(b, 1)),
                                 shape_of(partitions));
  std::vector<Expr> inputs = call_multi("DynamicPartition", {positions, partitions},
                                        {{"num_partitions", g.num_outputs()}});
  for (int i = 0; i < g.num_outputs(); ++i) inputs.push_back(g.gradient(i));
  const Expr rows = call("DynamicStitch", inputs, {{"N", g.num_outputs()}});
  g.set(0, reshape(rows, shape_of(g.input(0))));
  return ok_status();
}

Status dynamic_partition_cpu(KernelContext& ctx) {
  const Tensor& data = ctx.input(0);
  const Tensor& partitions = ctx.input(1);
  if (!is_prefix(partitions.shape(), data.shape())) {
    return invalid_argument("the shape of 'data' must begin with that of 'partitions', got ",
                            data.shape(), " and ", partitions.shape());
  }
  const int64_t rows = partitions.num_elements();
  const int n = ctx.num_outputs();
  MR_TRY_ASSIGN(const Indices part_of, Indices::read_below(ctx, partitions, n, "partitions"));
  // The rows of each part, one part after the other; ends[i] is where those of part i end.
  MR_TRY_ASSIGN(Tensor sorted, ctx.allocate_temp(DType::kInt64, Shape{rows}));
  int64_t* const order = sorted.mutable_data<int64_t>().data();
  std::vector<int64_t> counts(static_cast<size_t>(n));
  for (int64_t part : part_of.span()) ++counts[static_cast<size_t>(part)];
  std::vector<int64_t> ends(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), ends.begin(), int64_t{0});
  for (int64_t i = 0; i < rows; ++i) order[ends[static_cast<size_t>(part_of[i])]++] = i;

  const int64_t run = rows == 0 ? 0 : data.num_elements() / rows;
  for (int i = 0; i < n; ++i) {
    const int64_t count = counts[static_cast<size_t>(i)];
    const int64_t* first = order + ends[static_cast<size_t>(i)] - count;
    MR_TRY_ASSIGN(const Shape shape, rows_of(count, data.shape(), partitions.rank()));
    MR_TRY_ASSIGN(Tensor * part, ctx.allocate_output(i, shape));
    gather_rows(ctx, data, count, run, [first](int64_t k) { return first[k]; }, *part);
  }
  return ok_status();
}

Status dynamic_stitch_shape(ShapeContext& c) {
  const int n = c.num_inputs() / 2;
  PartialShape rest;
  int64_t rows = 0;
  for (int i = 0; i < n; ++i) {
    const PartialShape& indices = c.input(i);
    const PartialShape& data = c.input(n + i);
    if (const auto known = c.input_vector(i); known && rows >= 0) {
      for (int64_t index : *known) rows = std::max(rows, index + 1);
    } else {
      rows = -1;
    }
    if (!indices.rank_known() || !data.rank_known()) continue;
    if (indices.rank() > data.rank()) {
      return invalid_argument("the shape of data[", i, "] must begin with that of indices[", i,
                              "], got ", data, " and ", indices);
    }
    for (int k = 0; k < indices.rank(); ++k) {
      if (data.dim(k) != indices.dim(k) && data.dim_known(k) && indices.dim_known(k)) {
        return invalid_argument("the shape of data[", i, "] must begin with that of indices[", i,
                                "], got ", data, " and ", indices);
      }
    }
    MR_TRY_ASSIGN(const PartialShape own,
                  PartialShape::make(data.dims().subspan(static_cast<size_t>(indices.rank()))));
    Result<PartialShape> both = rest.merge(own);
    if (!both.ok()) {
      return invalid_argument("rows of data[", i, "] are ", own, ", those before it ", rest);
    }
    rest = std::move(both).value();
  }
  if (!rest.rank_known()) return ok_status();
  std::vector<int64_t> dims = {rows};
  dims.insert(dims.end(), rest.dims().begin(), rest.dims().end());
  MR_TRY_ASSIGN(PartialShape out, PartialShape::make(dims));
  c.set_output(0, std::move(out));
  return ok_status();
}

void dynamic_stitch_value(ValueContext& c) {
  const int n = c.num_inputs() / 2;
  PartialValue out;
  bool any = false;
  for (int i = 0; i < n; ++i) {
    const PartialValue *indices = c.input(i), *data = c.input(n + i);
    if (indices == nullptr || !indices->fully_known()) return;
    if (c.input_shape(n + i).rank() != c.input_shape(i).rank()) return;
    any |= data != nullptr;
    for (size_t k = 0; k < indices->elements.size(); ++k) {
      const int64_t at = *indices->elements[k];
      if (at < 0 || at >= kMaxValueElements) return;
      if (out.elements.size() <= static_cast<size_t>(at)) {
        out.elements.resize(static_cast<size_t>(at) + 1);
      }
      out.elements[static_cast<size_t>(at)] = data == nullptr ? std::nullopt : data->elements[k];
    }
  }
  if (any) c.set_output(0, std::move(out));
}

// Every piece of data gets the rows it was written to, but for those that were written again: the
// numbers of the rows, stitched in the same way, tell.
Status dynamic_stitch_grad(GradientContext& g) {
  const int n = g.num_inputs() / 2;
  const Expr flat = int32_vector(g.builder(), {-1}), one = int32_scalar(g.builder(), 1);
  std::vector<Expr> indices, numbers;
  Expr next = int32_scalar(g.builder(), 0);
  for (int i = 0; i < n; ++i) {
    indices.push_back(reshape(g.input(i), flat));
    const Expr end = next + size_of(g.input(i));
    numbers.push_back(range(next, end, one));
    next = end;
  }
  std::vector<Expr> stitched = indices;
  stitched.insert(stitched.end(), numbers.begin(), numbers.end());
  const Expr last = call("DynamicStitch", stitched);
  for (int i = 0; i < n; ++i) {
    const Expr at = indices[static_cast<size_t>(i)];
    const Expr stayed = equal(call("Gather", {last, at}), numbers[static_cast<size_t>(i)]);
    const Expr rows = call("Gather", {g.gradient(), at});
    g.set(n + i, reshape(select(stayed, rows, zeros_like(rows)), shape_of(g.input(n + i))));
  }
  return ok_status();
}

Status dynamic_stitch_cpu(KernelContext& ctx) {
  const int n = ctx.num_inputs() / 2;
  const Shape& first_rows = ctx.input(n).shape();
  std::vector<int64_t> all;
  int64_t rows = 0;
  for (int i = 0; i < n; ++i) {
    const Tensor& indices = ctx.input(i);
    const Shape& data = ctx.input(n + i).shape();
    if (!is_prefix(indices.shape(), data)) {
      return invalid_argument("the shape of data[", i, "] must begin with that of indices[", i,
                              "], got ", data, " and ", indices.shape());
    }
    const auto rest = data.dims().subspan(static_cast<size_t>(indices.rank()));
    const auto first = first_rows.dims().subspan(static_cast<size_t>(ctx.input(0).rank()));
    if (!std::equal(rest.begin(), rest.end(), first.begin(), first.end())) {
      return invalid_argument("all data must have rows of one shape: data[", i, "] is ", data,
                              ", data[0] is ", first_rows);
    }
    const size_t before = all.size();
    all.insert(all.end(), indices.data<int32_t>().begin(), indices.data<int32_t>().end());
    for (size_t k = before; k < all.size(); ++k) {
      if (all[k] < 0) {
        return invalid_argument("indices[", i, "] holds ", all[k], " at ", k - before,
                                ", expected no negative index");
      }
      rows = std::max(rows, all[k] + 1);
    }
  }
  MR_TRY_ASSIGN(const Shape shape, rows_of(rows, first_rows, ctx.input(0).rank()));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
  if (shape.num_elements() == 0) return ok_status();
  // Rows that no index names are zero.
  if (is_plain(out->dtype())) {
    std::vector<bool> named(static_cast<size_t>(rows));
    for (int64_t index : all) named[static_cast<size_t>(index)] = true;
    if (std::find(named.begin(), named.end(), false) != named.end()) {
      std::memset(out->mutable_raw(), 0, out->bytes());
    }
  }
  const int64_t run = shape.num_elements() / rows;
  std::span<const int64_t> left = all;
  for (int i = 0; i < n; ++i) {
    const auto count = static_cast<size_t>(ctx.input(i).num_elements());
    scatter_rows(ctx, BinaryFunction(), ctx.input(n + i), left.first(count), run, *out);
    left = left.subspan(count);
  }
  return ok_status();
}

}  // namespace

void register_dynamic(Registry& registry) {
  registry.add({.name = "DynamicPartition",
                .doc = "Deals the rows of data out to num_partitions tensors, as partitions say.",
                .inputs = {{"data", "T"}, {"partitions", "int32"}},
                .outputs = {{"outputs", "num_partitions*T"}},
                .types = {{"T", {}}},
                .attrs = {{"num_partitions", "int >= 1"}},
                .traits = {.cost = 1},
                .shape = dynamic_partition_shape,
                .gradient = dynamic_partition_grad});
  const char* const kDynamicStitch[] = {"DynamicStitch", "ParallelDynamicStitch"};
  for (const char* name : kDynamicStitch) {
    registry.add(
        {.name = name,
         .doc = "Writes the rows of each data to the rows that its indices name, in order.",
         .inputs = {{"indices", "host(N*int32)"}, {"data", "N*T"}},
         .outputs = {{"merged", "T"}},
         .types = {{"T", {}}},
         .attrs = {{"N", "int >= 1"}},
         .traits = {.cost = 1},
         .shape = dynamic_stitch_shape,
         .value = dynamic_stitch_value,
         .gradient = dynamic_stitch_grad});
    registry.kernel(name, DeviceKind::kCpu, dynamic_stitch_cpu);
  }
  registry.kernel("DynamicPartition", DeviceKind::kCpu, dynamic_partition_cpu);
}

}  // namespace millrace
