#include <algorithm>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/strings/map_strings.h"

namespace millrace {
namespace {

// Scalars go with every string of the others, which have one shape.
Status string_join_shape(ShapeContext& c) {
  PartialShape out = PartialShape::scalar();
  bool unknown = false;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const PartialShape& shape = c.input(i);
    if (!shape.rank_known()) {
      unknown = true;
    } else if (shape.rank() > 0) {
      if (out.rank() == 0) {
        out = shape;
        continue;
      }
      Result<PartialShape> both = out.merge(shape);
      if (!both.ok()) {
        return invalid_argument("inputs must be scalars or have one shape: input ", i, " is ",
                                shape, ", those before it are ", out);
      }
      out = std::move(both).value();
    }
  }
  // An unknown one may be a scalar.
  if (unknown && out.rank() == 0) return ok_status();
  c.set_output(0, std::move(out));
  return ok_status();
}

class StringJoin : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string separator, node.attr<std::string>("separator"));
    return std::make_unique<StringJoin>(std::move(separator));
  }
  explicit StringJoin(std::string separator) : separator_(std::move(separator)) {}

  Status compute(KernelContext& ctx) const override {
    Shape shape;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const Shape& given = ctx.input(i).shape();
      if (given.rank() == 0 || given == shape) continue;
      if (shape.rank() > 0) {
        return invalid_argument("inputs must be scalars or have one shape, got ", shape, " and ",
                                given, " for input ", i);
      }
      shape = given;
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    std::string* to = out->mutable_data<std::string>().data();
    const int n = ctx.num_inputs();
    ctx.parallel_for(shape.num_elements(), kStringCost * n, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) {
        for (int i = 0; i < n; ++i) {
          const Tensor& input = ctx.input(i);
          if (i > 0) to[k] += separator_;
          to[k] += input.data<std::string>()[input.rank() == 0 ? 0 : static_cast<size_t>(k)];
        }
      }
    });
    return ok_status();
  }

 private:
  const std::string separator_;
};

// The dimensions that `axes` name, each in [0, rank).
Result<std::vector<int>> read_axes(std::span<const int64_t> axes, int rank) {
  std::vector<int> out;
  for (const int64_t axis : axes) {
    if (axis < -rank || axis >= rank) {
      return out_of_range("Invalid reduction dimension ", axis, " for input with ", rank,
                          " dimension(s)");
    }
    const int plain = static_cast<int>(axis < 0 ? axis + rank : axis);
    if (std::find(out.begin(), out.end(), plain) != out.end()) {
      return invalid_argument("Duplicate reduction dimension ", axis);
    }
    out.push_back(plain);
  }
  return out;
}

Status reduce_join_shape(ShapeContext& c) {
  const std::optional<std::vector<int64_t>> axes = c.input_vector(1);
  const PartialShape& shape = c.input(0);
  if (!axes || !shape.rank_known()) return ok_status();
  MR_TRY_ASSIGN(const bool keep_dims, c.attr<bool>("keep_dims"));
  MR_TRY_ASSIGN(const std::vector<int> joined, read_axes(*axes, shape.rank()));
  PartialShape out = PartialShape::scalar();
  for (int i = 0; i < shape.rank(); ++i) {
    const bool gone = std::find(joined.begin(), joined.end(), i) != joined.end();
    if (!gone) {
      out.add_dim(shape.dim(i));
    } else if (keep_dims) {
      out.add_dim(1);
    }
  }
  c.set_output(0, std::move(out));
  return ok_status();
}

class ReduceJoin : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string separator, node.attr<std::string>("separator"));
    MR_TRY_ASSIGN(const bool keep_dims, node.attr<bool>("keep_dims"));
    return std::make_unique<ReduceJoin>(std::move(separator), keep_dims);
  }
  ReduceJoin(std::string separator, bool keep_dims)
      : separator_(std::move(separator)), keep_dims_(keep_dims) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& x = ctx.input(0);
    const std::span<const int32_t> given = ctx.input(1).data<int32_t>();
    const std::vector<int64_t> axes(given.begin(), given.end());
    MR_TRY_ASSIGN(const std::vector<int> joined, read_axes(axes, x.rank()));
    // Kept dimensions in their order, joined ones in the order given, the first the fastest.
    std::vector<Dim> kept, parts;
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides(static_cast<size_t>(x.rank()), 1);
    for (int i = x.rank() - 2; i >= 0; --i) {
      strides[static_cast<size_t>(i)] = strides[static_cast<size_t>(i) + 1] * x.dim(i + 1);
    }
    for (int i = 0; i < x.rank(); ++i) {
      if (std::find(joined.begin(), joined.end(), i) == joined.end()) {
        kept.push_back({x.dim(i), strides[static_cast<size_t>(i)]});
        sizes.push_back(x.dim(i));
      } else if (keep_dims_) {
        sizes.push_back(1);
      }
    }
    for (size_t i = joined.size(); i > 0; --i) {
      parts.push_back({x.dim(joined[i - 1]), strides[static_cast<size_t>(joined[i - 1])]});
    }
    MR_TRY_ASSIGN(const Shape shape, Shape::make(sizes));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    const std::span<const std::string> from = x.data<std::string>();
    const std::span<std::string> to = out->mutable_data<std::string>();
    int64_t count = 1;
    for (const Dim& part : parts) count *= part.size;
    for (size_t k = 0; k < to.size(); ++k) {
      const int64_t base = offset_of(static_cast<int64_t>(k), kept);
      for (int64_t i = 0; i < count; ++i) {
        if (i > 0) to[k] += separator_;
        to[k] += from[static_cast<size_t>(base + offset_of(i, parts))];
      }
    }
    return ok_status();
  }

 private:
  struct Dim {
    int64_t size, stride;
  };
  // Of element `flat` of a box of these dimensions, the last the fastest.
  static int64_t offset_of(int64_t flat, const std::vector<Dim>& dims) {
    int64_t offset = 0;
    for (size_t i = dims.size(); i > 0; --i) {
      offset += flat % dims[i - 1].size * dims[i - 1].stride;
      flat /= dims[i - 1].size;
    }
    return offset;
  }

  const std::string separator_;
  const bool keep_dims_;
};

}  // namespace

void register_string_join(Registry& registry) {
  registry.add({.name = "StringJoin",
                .doc = "Strings of all inputs one after the other, element by element.",
                .inputs = {{"inputs", "N*string", "Scalars, or of one shape."}},
                .outputs = {{"output", "string"}},
                .attrs = {{"N", "int >= 0"}, {"separator", "string = ''"}},
                .traits = {.cannot_differentiate = true, .cost = 60},
                .shape = string_join_shape});
  registry.add({.name = "ReduceJoin",
                .doc = "Strings along some dimensions one after the other.",
                .inputs = {{"inputs", "string"},
                           {"reduction_indices", "host(int32)", "The first varies fastest."}},
                .outputs = {{"output", "string"}},
                .attrs = {{"keep_dims", "bool = false"}, {"separator", "string = ''"}},
                .traits = {.cannot_differentiate = true, .cost = 60},
                .shape = reduce_join_shape});
  registry.kernel<StringJoin>("StringJoin", DeviceKind::kCpu);
  registry.kernel<ReduceJoin>("ReduceJoin", DeviceKind::kCpu);
}

}  // namespace millrace
