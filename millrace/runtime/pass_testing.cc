#include "millrace/runtime/pass_testing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "millrace/base/mutex.h"
#include "millrace/device/cpu/cpu_device.h"
#include "millrace/graph/elementwise_tree.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/rendezvous.h"
#include "millrace/ops/register_ops.h"
#include "millrace/runtime/partition.h"
#include "millrace/runtime/plan_set.h"

namespace millrace {
namespace {

struct ConstKernel : Kernel {
  explicit ConstKernel(Tensor v) : value(std::move(v)) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(Tensor value, node.attr<Tensor>("value"));
    return std::make_unique<ConstKernel>(std::move(value));
  }
  Status compute(KernelContext& ctx) const override {
    ctx.set_output(0, value);
    return ok_status();
  }
  Tensor value;
};

Status identity(KernelContext& ctx) {
  ctx.set_output_value(0, ctx.take_input(0));
  return ok_status();
}

// Where element i of a tensor of shape `all` is in one of `shape` that is broadcast to it.
size_t broadcast_from(int64_t i, const Shape& all, const Shape& shape) {
  int64_t at = 0, step = 1;
  for (int d = 1; d <= shape.rank(); ++d) {
    const int64_t size = all[all.rank() - d];
    if (shape[shape.rank() - d] != 1) at += i % size * step;
    step *= shape[shape.rank() - d];
    i /= size;
  }
  return static_cast<size_t>(at);
}

template <class T, class R, class F>
Result<Tensor> map2(const Tensor& a, const Tensor& b, F f) {
  MR_TRY_ASSIGN(Shape shape, broadcast_shapes(a.shape(), b.shape()));
  MR_TRY_ASSIGN(Tensor out, Tensor::allocate(dtype_of<R>, shape));
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    out.mutable_data<R>()[static_cast<size_t>(i)] =
        f(a.data<T>()[broadcast_from(i, shape, a.shape())],
          b.data<T>()[broadcast_from(i, shape, b.shape())]);
  }
  return out;
}

template <class F>
Result<Tensor> arithmetic(const Tensor& a, const Tensor& b, F f) {
  if (a.dtype() == DType::kFloat) return map2<float, float>(a, b, f);
  // Wraps round like hardware does.
  return map2<int32_t, int32_t>(a, b, [&](int32_t x, int32_t y) {
    return static_cast<int32_t>(f(static_cast<uint32_t>(x), static_cast<uint32_t>(y)));
  });
}

Result<Tensor> compute_pair(std::string_view op, const Tensor& a, const Tensor& b) {
  if (op == "Add" || op == "AddV2") return arithmetic(a, b, [](auto x, auto y) { return x + y; });
  if (op == "Sub") return arithmetic(a, b, [](auto x, auto y) { return x - y; });
  if (op == "Mul") return arithmetic(a, b, [](auto x, auto y) { return x * y; });
  const auto less = [](auto x, auto y) { return x < y; };
  if (a.dtype() == DType::kFloat) return map2<float, bool>(a, b, less);
  return map2<int32_t, bool>(a, b, less);
}

Status pair(KernelContext& ctx) {
  MR_TRY_ASSIGN(Tensor out, compute_pair(ctx.node().op->name, ctx.input(0), ctx.input(1)));
  ctx.set_output(0, std::move(out));
  return ok_status();
}

// Sums along the last dimensions, as many as `axes` has elements.
Result<Tensor> compute_sums(const Tensor& x, const Tensor& axes, bool keep_dims) {
  const int folded = static_cast<int>(axes.num_elements());
  if (folded > x.rank()) return invalid_argument("too many dimensions");
  std::vector<int64_t> dims(x.shape().dims().begin(), x.shape().dims().end() - folded);
  MR_TRY_ASSIGN(const Shape kept, Shape::make(dims));
  if (keep_dims) dims.resize(static_cast<size_t>(x.rank()), 1);
  MR_TRY_ASSIGN(const Shape shape, Shape::make(dims));
  MR_TRY_ASSIGN(Tensor out, Tensor::zeros(DType::kInt32, shape));
  const auto to = out.mutable_data<int32_t>();
  const size_t row = to.empty() ? 1 : x.data<int32_t>().size() / to.size();
  for (size_t i = 0; i < x.data<int32_t>().size(); ++i) {
    to[i / row] = static_cast<int32_t>(static_cast<uint32_t>(to[i / row]) +
                                       static_cast<uint32_t>(x.data<int32_t>()[i]));
  }
  return out;
}

struct SumRows : Kernel {
  explicit SumRows(bool keep) : keep_dims(keep) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool keep, node.attr<bool>("keep_dims"));
    return std::make_unique<SumRows>(keep);
  }
  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(Tensor out, compute_sums(ctx.input(0), ctx.input(1), keep_dims));
    ctx.set_output(0, std::move(out));
    return ok_status();
  }
  bool keep_dims;
};

Status fused_pairs(KernelContext& ctx) {
  MR_TRY_ASSIGN(const ElementwiseTree tree,
                ElementwiseTree::read(ctx.node().attrs, ctx.num_inputs()));
  std::vector<Tensor> values;
  for (int i = 0; i < ctx.num_inputs(); ++i) values.push_back(ctx.input(i));
  for (const ElementwiseTree::Stage& stage : tree.stages) {
    const Tensor& a = values[static_cast<size_t>(stage.operands[0])];
    const Tensor& b = values[static_cast<size_t>(stage.operands[1])];
    MR_TRY_ASSIGN(Tensor value, stage.op == "SumRows" ? compute_sums(a, b, stage.keep_dims)
                                                      : compute_pair(stage.op, a, b));
    values.push_back(std::move(value));
  }
  for (int i = 0; i < ctx.num_outputs(); ++i) {
    const size_t stage = static_cast<size_t>(tree.results[static_cast<size_t>(i)]);
    ctx.set_output(i, values[static_cast<size_t>(ctx.num_inputs()) + stage]);
  }
  return ok_status();
}

// What Mul gives for each of N pairs, added to each other and to M others.
struct SumOfMul : Kernel {
  explicit SumOfMul(int n) : pairs(n) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const int64_t n, node.attr<int64_t>("N"));
    return std::make_unique<SumOfMul>(static_cast<int>(n));
  }
  Status compute(KernelContext& ctx) const override {
    const int m = ctx.num_inputs() - 2 * pairs;
    MR_TRY_ASSIGN(Shape shape,
                  broadcast_shapes(ctx.input(m).shape(), ctx.input(m + pairs).shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    const auto element = [&](int input, size_t i) {
      const auto data = ctx.input(input).data<int32_t>();
      return static_cast<uint32_t>(data[data.size() == 1 ? 0 : i]);
    };
    for (size_t i = 0; i < static_cast<size_t>(shape.num_elements()); ++i) {
      uint32_t sum = 0;
      for (int t = 0; t < m; ++t) sum += element(t, i);
      for (int t = m; t < m + pairs; ++t) sum += element(t, i) * element(pairs + t, i);
      out->mutable_data<int32_t>()[i] = static_cast<int32_t>(sum);
    }
    return ok_status();
  }
  int pairs;
};
Status sum_all(KernelContext& ctx) {
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, ctx.input(0).shape()));
  for (int t = 1; t < ctx.num_inputs(); ++t) MR_TRY(expect_same_shape(ctx, 0, t));
  for (size_t i = 0; i < static_cast<size_t>(out->num_elements()); ++i) {
    uint32_t sum = 0;
    for (int t = 0; t < ctx.num_inputs(); ++t) {
      sum += static_cast<uint32_t>(ctx.input(t).data<int32_t>()[i]);
    }
    out->mutable_data<int32_t>()[i] = static_cast<int32_t>(sum);
  }
  return ok_status();
}
Status size_of(KernelContext& ctx) {
  ctx.set_output(0, Tensor::scalar(static_cast<int32_t>(ctx.input(0).num_elements())));
  return ok_status();
}
Status keep_and_flip(KernelContext& ctx) {
  ctx.set_output(0, ctx.input(0));
  MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(1, ctx.input(0).shape()));
  for (size_t i = 0; i < out->data<int32_t>().size(); ++i) {
    out->mutable_data<int32_t>()[i] = ~ctx.input(0).data<int32_t>()[i];
  }
  return ok_status();
}
Status as_shape(KernelContext& ctx) {
  MR_TRY_ASSIGN(Shape shape, ctx.shape_input(1));
  MR_TRY_ASSIGN(Tensor out, ctx.input(0).reshaped(shape));
  ctx.set_output(0, std::move(out));
  return ok_status();
}
Status as_shape_rule(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, c.input_as_shape(1));
  c.set_output(0, std::move(shape));
  return ok_status();
}
// The dimensions of a matrix as they are, or swapped.
Status permute(KernelContext& ctx) {
  MR_TRY(expect_rank(ctx, 0, 2));
  MR_TRY_ASSIGN(std::vector<int64_t> order, ctx.int_vector_input(1));
  if (order.size() != 2 || order[0] + order[1] != 1) return invalid_argument("no permutation");
  const Tensor& x = ctx.input(0);
  const bool swap = order[0] == 1;
  const int64_t rows = x.dim(0), columns = x.dim(1);
  MR_TRY_ASSIGN(Tensor * out,
                ctx.allocate_output(0, swap ? Shape{columns, rows} : Shape{rows, columns}));
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t to = swap ? i % columns * rows + i / columns : i;
    out->mutable_data<int32_t>()[static_cast<size_t>(to)] =
        x.data<int32_t>()[static_cast<size_t>(i)];
  }
  return ok_status();
}
struct Product : Kernel {
  Product(bool x, bool y) : transpose_x(x), transpose_y(y) {}
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const bool x, node.attr<bool>("transpose_x"));
    MR_TRY_ASSIGN(const bool y, node.attr<bool>("transpose_y"));
    return std::make_unique<Product>(x, y);
  }
  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 2));
    MR_TRY(expect_rank(ctx, 1, 2));
    const Tensor &x = ctx.input(0), &y = ctx.input(1);
    const int64_t m = x.dim(transpose_x ? 1 : 0), k = x.dim(transpose_x ? 0 : 1);
    const int64_t n = y.dim(transpose_y ? 0 : 1);
    if (k != y.dim(transpose_y ? 1 : 0)) return invalid_argument("inner dimensions differ");
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, Shape{m, n}));
    const auto element = [](const Tensor& t, int64_t i, int64_t j, bool transposed) {
      const int64_t at = transposed ? j * t.dim(1) + i : i * t.dim(1) + j;
      return static_cast<uint32_t>(t.data<int32_t>()[static_cast<size_t>(at)]);
    };
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        uint32_t sum = 0;
        for (int64_t p = 0; p < k; ++p) {
          sum += element(x, i, p, transpose_x) * element(y, p, j, transpose_y);
        }
        out->mutable_data<int32_t>()[static_cast<size_t>(i * n + j)] = static_cast<int32_t>(sum);
      }
    }
    return ok_status();
  }
  bool transpose_x, transpose_y;
};
Status product_rule(ShapeContext& c) {
  MR_TRY_ASSIGN(const bool transpose_x, c.attr<bool>("transpose_x"));
  MR_TRY_ASSIGN(const bool transpose_y, c.attr<bool>("transpose_y"));
  MR_TRY_ASSIGN(const PartialShape x, c.with_rank(0, 2));
  MR_TRY_ASSIGN(const PartialShape y, c.with_rank(1, 2));
  c.set_output(0, {x.dim(transpose_x ? 1 : 0), y.dim(transpose_y ? 0 : 1)});
  return ok_status();
}
Status permute_rule(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape x, c.with_rank(0, 2));
  const auto order = c.input_vector(1);
  PartialShape out = PartialShape::of_rank(2);
  for (int i = 0; order && i < 2; ++i) {
    out.set_dim(i, x.dim(static_cast<int>((*order)[static_cast<size_t>(i)])));
  }
  c.set_output(0, std::move(out));
  return ok_status();
}
// Adds all up when any axis is named.
Status sum_over(KernelContext& ctx) {
  MR_TRY_ASSIGN(std::vector<int64_t> axes, ctx.int_vector_input(1));
  if (axes.empty()) {
    ctx.set_output(0, ctx.input(0));
    return ok_status();
  }
  uint32_t sum = 0;
  for (int32_t v : ctx.input(0).data<int32_t>()) sum += static_cast<uint32_t>(v);
  ctx.set_output(0, Tensor::scalar(static_cast<int32_t>(sum)));
  return ok_status();
}

Status fail(KernelContext&) { return invalid_argument("told to fail"); }
Status large(KernelContext& ctx) {
  return ctx.allocate_output(0, Shape({ctx.input(0).item<int32_t>(), 1 << 20})).status();
}
Status endless(KernelContext& ctx) {
  while (!ctx.cancel()->cancelled()) std::this_thread::yield();
  return ctx.cancel()->status();
}

struct TickKernel : Kernel {
  static Result<std::unique_ptr<Kernel>> make(const KernelNode&) {
    return std::make_unique<TickKernel>();
  }
  Status compute(KernelContext& ctx) const override {
    ctx.set_output(0, Tensor::scalar<int32_t>(++count));
    return ok_status();
  }
  mutable std::atomic<int32_t> count{0};
};

struct VarKernel : Kernel {
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    auto kernel = std::make_unique<VarKernel>();
    kernel->cell->name = node.name;
    return kernel;
  }
  Status compute(KernelContext& ctx) const override {
    ctx.set_output_ref(0, cell);
    return ok_status();
  }
  Ref<RefCell> cell = make_ref<RefCell>();
};

Status assign(KernelContext& ctx) {
  RefCell& cell = ctx.input_ref(0);
  {
    MutexLock lock(cell.mu);
    cell.tensor = ctx.input(1);
  }
  ctx.set_output_value(0, ctx.take_input(0));
  return ok_status();
}

// x * scale + shift, column by column.
Status normalize(KernelContext& ctx) {
  MR_TRY_ASSIGN(const Tensor scaled, compute_pair("Mul", ctx.input(0), ctx.input(1)));
  MR_TRY_ASSIGN(Tensor out, compute_pair("Add", scaled, ctx.input(2)));
  ctx.set_output(0, std::move(out));
  ctx.set_output(1, ctx.input(1));
  return ok_status();
}

Status handle(KernelContext& ctx) { return ctx.allocate_output(0, Shape()).status(); }
Status nothing(KernelContext&) { return ok_status(); }

void register_toys(Registry& r) {
  auto both = [&](std::string_view op, KernelFunction f) {
    r.kernel(op, DeviceKind::kCpu, f);
    r.kernel(op, DeviceKind::kCuda, f);
  };
  r.add({.name = "Const",
         .doc = "A value.",
         .outputs = {{"output", "dtype"}},
         .types = {{"dtype", {}}},
         .attrs = {{"value", "tensor"}},
         .traits = {.constant = true},
         .shape = shape_rules::unknown});
  r.kernel<ConstKernel>("Const", DeviceKind::kCpu);
  r.kernel<ConstKernel>("Const", DeviceKind::kCuda);
  auto unary = [&](const char* name, OpTraits traits, const char* out = "T") {
    r.add({.name = name,
           .doc = "One in, one out.",
           .inputs = {{"x", "T"}},
           .outputs = {{"y", out}},
           .types = {{"T", {}}},
           .traits = traits,
           .shape = shape_rules::unknown});
  };
  unary("Identity", {.forwards = true, .may_alias = 1});
  both("Identity", identity);
  unary("CpuOnly", {.may_alias = 1});
  r.kernel("CpuOnly", DeviceKind::kCpu, identity);
  r.add({.name = "SizeOf",
         .doc = "How many elements x has.",
         .inputs = {{"x", "T"}},
         .outputs = {{"y", "int32"}},
         .types = {{"T", {}}},
         .traits = {.metadata_only = true},
         .shape = shape_rules::scalar,
         .value = [](ValueContext& c) {
           const int64_t n = c.input_shape(0).num_elements();
           if (n >= 0) c.set_output(0, {.is_scalar = true, .elements = {n}});
         }});
  both("SizeOf", size_of);
  unary("Fail", {});
  both("Fail", fail);
  unary("Large", {});
  both("Large", large);
  unary("Endless", {});
  both("Endless", endless);
  auto two = [&](const char* name, OpTraits traits, const char* out = "T") {
    traits.elementwise = true;
    traits.fused_by = "_FusedToys";
    r.add({.name = name,
           .doc = "Two in, one out.",
           .inputs = {{"x", "T"}, {"y", "T"}},
           .outputs = {{"z", out}},
           .types = {{"T", {DType::kInt32, DType::kFloat}}},
           .traits = traits,
           .shape = shape_rules::broadcast});
    both(name, pair);
  };
  for (const char* name : {"Add", "AddV2"}) {
    two(name,
        {.commutative = true, .neutral = Neutral::kMinusZero, .affine_in = 3, .shifted_by = 3});
  }
  two("Mul",
      {.commutative = true, .neutral = Neutral::kOne, .summed_by = "SumOfMul", .affine_in = 3});
  two("Sub", {.neutral = Neutral::kZero, .affine_in = 3, .shifted_by = 3});
  two("Less", {}, "bool");
  r.add({.name = "Normalize",
         .doc = "x * scale + shift, column by column, and scale.",
         .inputs = {{"x", "T"}, {"scale", "T"}, {"shift", "T"}},
         .outputs = {{"y", "T"}, {"used", "T"}},
         .types = {{"T", {DType::kInt32, DType::kFloat}}},
         .attrs = {{"is_training", "bool = false"}},
         .traits = {.affine_in = 1, .shifted_by = 4},
         .shape = [](ShapeContext& c) {
           c.set_output(0, c.input(0));
           c.set_output(1, c.input(1));
           return ok_status();
         }});
  r.kernel("Normalize", DeviceKind::kCpu, normalize);
  r.add({.name = "_FusedToys",
         .doc = "A tree of the five, and of SumRows.",
         .inputs = {{"inputs", "list(Tin)"}},
         .outputs = {{"outputs", "list(Tout)"}},
         .attrs = {{"Tin", "list(type) >= 1"},
                   {"Tout", "list(type) >= 1"},
                   {"stages", "list(string)"},
                   {"arities", "list(int)"},
                   {"operands", "list(int)"},
                   {"results", "list(int)"}},
         .shape = shape_rules::unknown});
  r.kernel("_FusedToys", DeviceKind::kCpu, fused_pairs);
  r.add({.name = "SumRows",
         .doc = "Sums along the last dimensions, as many as there are axes.",
         .inputs = {{"x", "T"}, {"axes", "int32"}},
         .outputs = {{"y", "T"}},
         .types = {{"T", {DType::kInt32}}},
         .attrs = {{"keep_dims", "bool = false"}},
         .traits = {.folds = true},
         .shape = shape_rules::unknown});
  r.kernel<SumRows>("SumRows", DeviceKind::kCpu);
  r.add({.name = "SumOfMul",
         .doc = "Products of pairs and others, added up.",
         .inputs = {{"added", "M*T"}, {"x", "N*T"}, {"y", "N*T"}},
         .outputs = {{"z", "T"}},
         .types = {{"T", {DType::kInt32, DType::kFloat}}},
         .attrs = {{"M", "int >= 0"}, {"N", "int >= 1"}},
         .shape = shape_rules::unknown});
  r.kernel({.op = "SumOfMul", .constraints = {{"T", {DType::kInt32}}}, .factory = SumOfMul::make});
  r.add({.name = "SumAll",
         .doc = "The sum of integers of one shape.",
         .inputs = {{"x", "N*T"}},
         .outputs = {{"z", "T"}},
         .types = {{"T", {DType::kInt32, DType::kFloat}}},
         .attrs = {{"N", "int >= 1"}},
         .traits = {.aggregate = true},
         .shape = shape_rules::merged});
  r.kernel({.op = "SumAll", .constraints = {{"T", {DType::kInt32}}}, .function = sum_all});
  auto with_list = [&](const char* name, OpTraits traits, ShapeRule rule, KernelFunction f) {
    r.add({.name = name,
           .doc = "A tensor and a list of what to do with it.",
           .inputs = {{"x", "T"}, {"list", "int32"}},
           .outputs = {{"y", "T"}},
           .types = {{"T", {DType::kInt32}}},
           .traits = traits,
           .shape = rule});
    both(name, f);
  };
  with_list("AsShape", {.same_when_same_shape = true}, as_shape_rule, as_shape);
  r.add({.name = "Reshape",
         .doc = "x in another shape.",
         .inputs = {{"x", "T"}, {"shape", "Tshape"}},
         .outputs = {{"y", "T"}},
         .types = {{"T", {}}, {"Tshape", {DType::kInt32, DType::kInt64}}},
         .traits = {.forwards = true},
         .shape = as_shape_rule});
  both("Reshape", as_shape);
  with_list("Permute", {.permutes = true}, permute_rule, permute);
  auto product = [&](const char* name, OpTraits traits) {
    r.add({.name = name,
           .doc = "Of two matrices of integers.",
           .inputs = {{"x", "T"}, {"y", "T"}},
           .outputs = {{"z", "T"}},
           .types = {{"T", {DType::kInt32}}},
           .attrs = {{"transpose_x", "bool = false"}, {"transpose_y", "bool = false"}},
           .traits = traits,
           .shape = product_rule});
    r.kernel<Product>(name, DeviceKind::kCpu);
  };
  product("Product", {.filter_channels = 1, .approximated_by = "CloseProduct"});
  product("CloseProduct", {.filter_channels = 1});
  with_list("SumOver", {.same_when_empty = 2}, shape_rules::unknown, sum_over);
  r.add({.name = "KeepAndFlip",
         .doc = "x and its complement.",
         .inputs = {{"x", "int32"}},
         .outputs = {{"same", "int32"}, {"complement", "int32"}},
         .shape = shape_rules::unknown});
  both("KeepAndFlip", keep_and_flip);
  r.add({.name = "Tick",
         .doc = "Counts its runs.",
         .outputs = {{"count", "int32"}},
         .traits = {.stateful = true},
         .shape = shape_rules::unknown});
  r.kernel<TickKernel>("Tick", DeviceKind::kCpu);
  r.add({.name = "Var",
         .doc = "A variable.",
         .outputs = {{"ref", "ref(T)"}},
         .types = {{"T", {}}},
         .traits = {.stateful = true, .owns_state = true},
         .shape = shape_rules::unknown});
  r.kernel<VarKernel>("Var", DeviceKind::kCpu);
  r.kernel<VarKernel>("Var", DeviceKind::kCuda);
  r.add({.name = "Assign",
         .doc = "Sets a variable.",
         .inputs = {{"ref", "ref(T)"}, {"value", "T"}},
         .outputs = {{"out", "ref(T)"}},
         .types = {{"T", {}}},
         .traits = {.allows_uninitialized_input = true},
         .shape = shape_rules::unknown});
  both("Assign", assign);
  r.add({.name = "Handle",
         .doc = "A resource.",
         .outputs = {{"handle", "resource"}},
         .traits = {.stateful = true, .owns_state = true},
         .shape = shape_rules::unknown});
  both("Handle", handle);
  r.add({.name = "UseHandle",
         .doc = "Uses a resource.",
         .inputs = {{"handle", "resource"}},
         .traits = {.stateful = true},
         .shape = shape_rules::no_outputs});
  both("UseHandle", nothing);
}

}  // namespace

ToyOps& ToyOps::get() {
  static ToyOps* toys = [] {
    auto* t = new ToyOps;
    Registry registry(t->ops, t->kernels);
    register_control_ops(registry);
    register_toys(registry);
    MR_CHECK(registry.status().ok());
    return t;
  }();
  return *toys;
}

ToyGraph::ToyGraph() : graph(ToyOps::get().ops) {}

Output ToyGraph::add(std::string_view op, std::vector<Output> inputs, AttrMap attrs,
                     ToyPlace place) {
  const OpDef* def = graph.registry().find(op);
  MR_CHECK(def != nullptr);
  if (!inputs.empty() && def->find_attr("T") != nullptr && attrs.find("T") == nullptr) {
    attrs.set("T", base_type(graph.output_type(inputs[0])));
  }
  if (def->find_attr("N") != nullptr) attrs.set("N", static_cast<int64_t>(inputs.size()));
  if (place.name.empty()) place.name = str_cat(op, "_", graph.size());
  const DeviceId device = graph.devices().intern(place.device);
  return {
      graph.add(place.name, op, std::move(inputs), place.after, std::move(attrs), device).value(),
      0};
}

Output ToyGraph::constant(Tensor value, ToyPlace place) {
  DType dtype = value.dtype();
  return add("Const", {}, {{"dtype", dtype}, {"value", std::move(value)}}, std::move(place));
}

Output ToyGraph::feed(DType dtype, int position, ToyPlace place) {
  return add("_Arg", {}, {{"T", dtype}, {"index", position}}, std::move(place));
}

void ToyGraph::fetch(Output value, int position, ToyPlace place) {
  add("_Retval", {value}, {{"index", position}}, std::move(place));
}

const SubNode& ToyGraph::node(std::string_view name) const { return node_named(graph, name); }

const std::string& ToyGraph::device(std::string_view name) const {
  return graph.device_name(node(name));
}

const SubNode& node_named(const Subgraph& graph, std::string_view name) {
  for (const SubNode& node : graph.nodes()) {
    if (!node.erased && node.name == name) return node;
  }
  static const SubNode* none = new SubNode;
  ADD_FAILURE() << "no node is called " << name;
  return *none;
}

int count_op(const Subgraph& graph, std::string_view op) {
  int n = 0;
  for (const SubNode& node : graph.nodes()) n += !node.erased && node.op->name == op;
  return n;
}

std::vector<Ref<Device>> toy_devices(int per_task, int tasks) {
  std::vector<Ref<Device>> out;
  for (int t = 0; t < tasks; ++t) {
    DeviceName task = DeviceName::parse(str_cat("/job:worker/replica:0/task:", t)).value();
    std::vector<Ref<Device>> made = make_cpu_devices(task, per_task).value();
    out.insert(out.end(), made.begin(), made.end());
  }
  return out;
}

DeviceSet device_set(const std::vector<Ref<Device>>& devices) {
  std::vector<Device::Info> infos;
  for (const Ref<Device>& device : devices) infos.push_back(device->info());
  return DeviceSet(std::move(infos), 0);
}

DeviceSet named_devices(std::vector<std::string> names) {
  std::vector<Device::Info> infos;
  for (const std::string& name : names) {
    Device::Info& info = infos.emplace_back();
    info.name = DeviceName::parse(name).value();
    info.kind = *info.name.type == "GPU"    ? DeviceKind::kCuda
                : *info.name.type == "NULL" ? DeviceKind::kNull
                                            : DeviceKind::kCpu;
    info.incarnation = 0xfedcba9876543210 + infos.size();
  }
  return DeviceSet(std::move(infos), 0);
}

Result<std::vector<Tensor>> run_toy(const Subgraph& graph, const std::vector<Ref<Device>>& devices,
                                    std::vector<Tensor> feeds, int fetches) {
  DeviceSet all = device_set(devices);
  std::vector<Subgraph> tasks;
  if (devices.front()->info().name.task == devices.back()->info().name.task) {
    tasks.push_back(graph);
  } else {
    MR_TRY_ASSIGN(std::vector<Partition> parts, partition(graph, PartitionBy::kTask, all));
    // As a master would ship them.
    for (const Partition& part : parts) {
      MR_TRY_ASSIGN(std::string bytes, part.graph.to_graph_def_bytes());
      MR_TRY_ASSIGN(Subgraph arrived, Subgraph::from_graph_def_bytes(bytes, graph.registry()));
      tasks.push_back(std::move(arrived));
    }
  }
  CompileOptions options;
  options.kernels = &ToyOps::get().kernels;
  std::vector<Ref<PlanSet>> sets;
  for (const Subgraph& task : tasks) {
    MR_TRY_ASSIGN(Ref<PlanSet> set, PlanSet::build(task, devices, all, options));
    sets.push_back(std::move(set));
  }

  // Each task has a step of its own; they meet in one rendezvous.
  Ref<Step> first = Step::make_shared(1);
  std::vector<Ref<Step>> steps;
  for (const Ref<PlanSet>& set : sets) {
    Ref<Step> step = make_ref<Step>(1);
    step->rendezvous = first->rendezvous;
    step->cancel = first->cancel;
    step->hold_feeds(feeds);
    step->fetches.resize(static_cast<size_t>(fetches));
    steps.push_back(step);
    set->run_async(step, nullptr);
  }
  const Deadline deadline = Deadline::after_millis(10'000);
  std::string late;
  Status status;
  std::vector<Tensor> out(static_cast<size_t>(fetches));
  for (const Ref<Step>& step : steps) {
    if (!step->wait(deadline)) {
      late = str_join(step->rendezvous->waiting(), "\n  ");
      step->fail(cancelled("the test waited too long"));
      step->wait();
    }
    if (status.ok()) status = step->status();
    for (size_t i = 0; i < out.size(); ++i) {
      if (step->fetches[i].valid()) out[i] = std::move(step->fetches[i]);
    }
  }
  if (!late.empty()) return deadline_exceeded("still waited for:\n  ", late);
  MR_TRY(status);
  return out;
}

}  // namespace millrace
