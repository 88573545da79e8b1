#include "millrace/api/embedding.h"

#include <optional>

namespace millrace {
namespace {

// A table as the builder sees it.
struct Table {
  Expr tensor;  // of the builder's graph
  bool is_resource = false;
  DType dtype = DType::kInvalid;
  PartialShape shape;
};

Result<Table> table_of(GraphBuilder& b, Expr given) {
  Table table;
  table.tensor = b.import(given);
  if (!table.tensor.valid()) return b.status();
  const TensorFacts& facts = b.graph().facts(GraphBuilder::output(table.tensor));
  table.dtype = table.tensor.dtype();
  table.shape = facts.shape;
  table.is_resource = table.dtype == DType::kResource;
  if (table.is_resource) {
    if (facts.resource.empty()) {
      return invalid_argument("an embedding table must be a variable of known dtype, got ",
                              b.graph().output_name(GraphBuilder::output(table.tensor)));
    }
    table.dtype = facts.resource[0].dtype;
    table.shape = facts.resource[0].shape;
  }
  if (table.shape.rank_known() && table.shape.rank() == 0) {
    return invalid_argument("an embedding table must have rows, got shape ", table.shape);
  }
  return table;
}

// Runs `code` so that what it makes goes where the table is. Inside a function that is up to the
// function's caller.
template <class F>
Expr beside(GraphBuilder& b, const Table& table, F code) {
  if (b.depth() > 0) return code();
  std::vector<std::string> before = b.context().colocate_with;
  const NodeId node = GraphBuilder::output(table.tensor).node;
  b.context().colocate_with.push_back(b.graph().node(node).name());
  const Expr result = code();
  b.context().colocate_with = std::move(before);
  return result;
}

Expr gather(GraphBuilder& b, const Table& table, Expr ids) {
  return beside(b, table, [&] {
    if (!table.is_resource) return call("Gather", {table.tensor, ids});
    return call("ResourceGather", {table.tensor, ids}, {{"dtype", table.dtype}});
  });
}

Expr shape_tensor(GraphBuilder& b, const Table& table) {
  return beside(b, table, [&] {
    if (!table.is_resource) return shape_of(table.tensor, DType::kInt64);
    return call("VariableShape", {table.tensor}, {{"out_type", DType::kInt64}});
  });
}

Expr slice(Expr vector, int32_t begin, int32_t size) {
  OpBuilder& b = *vector.builder();
  return call("Slice", {vector, int32_vector(b, {begin}), int32_vector(b, {size})});
}

// The number of the first row of each table.
Expr first_rows(GraphBuilder& b, const std::vector<Table>& tables) {
  std::vector<Expr> counts;
  for (const Table& table : tables) {
    if (table.shape.rank_known() && table.shape.dim_known(0)) {
      counts.push_back(b.constant(Tensor::vector<int64_t>({table.shape.dim(0)})));
    } else {
      counts.push_back(slice(shape_tensor(b, table), 0, 1));
    }
  }
  return call("Cumsum", {concat(counts, 0), int32_scalar(b, 0)}, {{"exclusive", true}});
}

// Where the row with an id is.
struct Places {
  Expr table;  // int32
  Expr row;
};

Places find_rows(GraphBuilder& b, const std::vector<Table>& tables, Expr ids,
                 PartitionStrategy strategy) {
  if (strategy == PartitionStrategy::kMod) {
    const Expr n = constant_like(ids, static_cast<double>(tables.size()));
    return {cast(call("FloorMod", {ids, n}), DType::kInt32), call("FloorDiv", {ids, n})};
  }
  // The number of tables after the first that begin at the id or before.
  const Expr firsts = first_rows(b, tables);
  ids = cast(ids, DType::kInt64);
  const Expr begun = greater_equal(expand_dims(ids, int32_scalar(b, 1)), slice(firsts, 1, -1));
  const Expr table = sum(cast(begun, DType::kInt32), int32_vector(b, {1}));
  return {table, ids - call("Gather", {firsts, table})};
}

// The rows of a vector of ids.
Expr gather_from_all(GraphBuilder& b, const std::vector<Table>& tables, Expr ids,
                     PartitionStrategy strategy) {
  const auto n = static_cast<int64_t>(tables.size());
  const Places places = find_rows(b, tables, ids, strategy);
  const Expr positions = range(int32_scalar(b, 0), size_of(ids), int32_scalar(b, 1));
  const AttrMap parts = {{"num_partitions", n}};
  const std::vector<Expr> rows = call_multi("DynamicPartition", {places.row, places.table}, parts);
  std::vector<Expr> stitched = call_multi("DynamicPartition", {positions, places.table}, parts);
  if (!b.status().ok()) return Expr();
  for (size_t i = 0; i < tables.size(); ++i) stitched.push_back(gather(b, tables[i], rows[i]));
  return call("DynamicStitch", stitched, {{"N", n}});
}

// The shape of one row: a constant where the tables tell it.
Expr row_shape(GraphBuilder& b, const std::vector<Table>& tables) {
  const PartialShape& shape = tables[0].shape;
  bool known = shape.rank_known();
  std::vector<int64_t> dims;
  for (int i = 1; known && i < shape.rank(); ++i) {
    known = shape.dim_known(i);
    dims.push_back(shape.dim(i));
  }
  if (known) return b.constant(Tensor::vector<int64_t>(dims));
  return slice(shape_tensor(b, tables[0]), 1, -1);
}

Status check_tables(const std::vector<Table>& tables) {
  if (tables.empty()) return invalid_argument("expected one or more embedding tables, got none");
  for (size_t i = 1; i < tables.size(); ++i) {
    const PartialShape &first = tables[0].shape, &other = tables[i].shape;
    bool same = tables[i].dtype == tables[0].dtype;
    if (first.rank_known() && other.rank_known()) {
      same = same && first.rank() == other.rank();
      for (int d = 1; same && d < first.rank(); ++d) {
        same = first.dim(d) == other.dim(d) || !first.dim_known(d) || !other.dim_known(d);
      }
    }
    if (!same) {
      return invalid_argument("embedding tables must have rows of one kind: table 0 is ",
                              tables[0].dtype, " ", first, ", table ", i, " is ", tables[i].dtype,
                              " ", other);
    }
  }
  return ok_status();
}

// x / max(1, norm / limit): what is short enough stays as it is, also in its gradient.
Expr limit_norm(Expr x, Expr ids, double limit) {
  const Expr axes = range(rank(ids), rank(x), int32_scalar(*x.builder(), 1));
  const Expr ratio = sum(square(x * (1 / limit)), axes, /*keep_dims=*/true);
  return x / sqrt(call("Maximum", {ratio, constant_like(x, 1)}));
}

Result<Expr> lookup(GraphBuilder& b, const std::vector<Expr>& given, Expr ids,
                    const EmbeddingOptions& options) {
  if (!(options.max_norm >= 0)) {
    return invalid_argument("max_norm must not be negative, got ", options.max_norm);
  }
  std::vector<Table> tables;
  for (Expr table : given) {
    MR_TRY_ASSIGN(Table seen, table_of(b, table));
    tables.push_back(std::move(seen));
  }
  MR_TRY(check_tables(tables));
  ids = b.import(ids);
  if (!ids.valid()) return b.status();
  if (ids.dtype() != DType::kInt32 && ids.dtype() != DType::kInt64) {
    return invalid_argument("embedding ids must be int32 or int64, got ", ids.dtype());
  }
  Expr rows;
  if (tables.size() == 1) {
    rows = gather(b, tables[0], ids);
  } else {
    const Expr flat = reshape(ids, int32_vector(b, {-1}));
    rows = reshape(gather_from_all(b, tables, flat, options.partition),
                   concat({shape_of(ids, DType::kInt64), row_shape(b, tables)}, 0));
  }
  if (options.max_norm > 0) rows = limit_norm(rows, ids, options.max_norm);
  return rows;
}

// `code` gives a Result<Expr>; its error becomes the scope's.
template <class F>
Expr in_scope(const Scope& scope, const char* name, SourceLocation where, F code) {
  if (!scope.ok()) return Expr();
  return scope.sub_scope(scope.name_or(name)).build(where, [&](GraphBuilder& b) {
    Result<Expr> result = code(b);
    if (result.ok()) return *result;
    const std::string origin = describe_origin(b.context().origin);
    b.fail(b.status().ok() ? result.status().with_prefix(name).with_line(origin) : result.status());
    return Expr();
  });
}

// `vector` with dimensions of size one after its own, as many as `like` has more.
Expr with_rank_of(Expr vector, Expr like) {
  OpBuilder& b = *vector.builder();
  const Expr more = expand_dims(rank(like) - rank(vector), int32_scalar(b, 0));
  return reshape(vector, concat({shape_of(vector), fill(more, int32_scalar(b, 1))}, 0));
}

Result<Expr> combine(GraphBuilder& b, Expr rows, const EmbeddingBags& bags, Combiner combiner) {
  const Expr of = b.import(bags.bags), count = b.import(bags.num_bags);
  const auto per_bag = [&](Expr x) { return call("UnsortedSegmentSum", {x, of, count}); };
  Expr weights;
  if (bags.weights.valid()) {
    weights = cast(b.import(bags.weights), rows.dtype());
    rows = rows * with_rank_of(weights, rows);
  } else {
    weights = fill(shape_of(of), constant_like(rows, 1));
  }
  const Expr total = per_bag(rows);
  if (combiner == Combiner::kSum) return total;
  Expr scale = combiner == Combiner::kMean ? per_bag(weights) : sqrt(per_bag(square(weights)));
  scale = select(equal(scale, zeros_like(scale)), ones_like(scale), scale);
  return total / with_rank_of(scale, total);
}

}  // namespace

Expr embedding_lookup(const Scope& scope, const std::vector<Expr>& tables, Expr ids,
                      const EmbeddingOptions& options, SourceLocation where) {
  return in_scope(scope, "embedding_lookup", where,
                  [&](GraphBuilder& b) { return lookup(b, tables, ids, options); });
}

Expr embedding_lookup_bags(const Scope& scope, const std::vector<Expr>& tables,
                           const EmbeddingBags& bags, Combiner combiner,
                           const EmbeddingOptions& options, SourceLocation where) {
  return in_scope(scope, "embedding_lookup_bags", where, [&](GraphBuilder& b) -> Result<Expr> {
    MR_TRY_ASSIGN(const Expr rows, lookup(b, tables, bags.ids, options));
    if (!rows.valid()) return b.status();
    return combine(b, rows, bags, combiner);
  });
}

}  // namespace millrace
