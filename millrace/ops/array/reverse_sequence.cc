#include <algorithm>

#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/array/host_ints.h"
#include "millrace/ops/rows.h"

namespace millrace {
namespace {

struct SequenceDims {
  int64_t seq = 0;
  int64_t batch = 0;

  template <class Source>
  static Result<SequenceDims> read(const Source& node) {
    SequenceDims dims;
    MR_TRY_ASSIGN(dims.seq, node.template attr<int64_t>("seq_dim"));
    MR_TRY_ASSIGN(dims.batch, node.template attr<int64_t>("batch_dim"));
    return dims;
  }
  Status check(int rank) const {
    if (seq < 0) return invalid_argument("Invalid seq_dim ", seq);
    if (batch < 0) return invalid_argument("Invalid batch_dim ", batch);
    if (seq >= rank) {
      return invalid_argument("seq_dim must be < input rank, got ", seq, " and ", rank);
    }
    if (batch >= rank) {
      return invalid_argument("batch_dim must be < input rank, got ", batch, " and ", rank);
    }
    return ok_status();
  }
};

// That both are one dimension, or a length is too large, shows when the op runs.
Status reverse_sequence_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const PartialShape lengths, c.with_rank(1, 1));
  MR_TRY_ASSIGN(const SequenceDims dims, SequenceDims::read(c));
  PartialShape out = c.input(0);
  if (out.rank_known()) {
    MR_TRY(dims.check(out.rank()));
    const int batch = static_cast<int>(dims.batch);
    if (lengths.dim_known(0)) {
      if (out.dim_known(batch) && out.dim(batch) != lengths.dim(0)) {
        return invalid_argument("seq_lengths must have one element for each of the ",
                                out.dim(batch), " rows of batch_dim ", batch, " of ", out, ", got ",
                                lengths.dim(0));
      }
      out.set_dim(batch, lengths.dim(0));
      MR_TRY_ASSIGN(out, PartialShape::make(out.dims()));
    }
  }
  c.set_output(0, std::move(out));
  return ok_status();
}

Status reverse_sequence_grad(GradientContext& g) {
  g.set(0, call("ReverseSequence", {g.gradient(), g.input(1)},
                {{"seq_dim", g.attr_value("seq_dim")}, {"batch_dim", g.attr_value("batch_dim")}}));
  return ok_status();
}

class ReverseSequence : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(const SequenceDims dims, SequenceDims::read(node));
    return std::make_unique<ReverseSequence>(dims);
  }
  explicit ReverseSequence(SequenceDims dims) : dims_(dims) {}

  Status compute(KernelContext& ctx) const override {
    const Tensor& x = ctx.input(0);
    const Shape& shape = x.shape();
    MR_TRY(expect_rank(ctx, 1, 1));
    MR_TRY(dims_.check(shape.rank()));
    if (dims_.seq == dims_.batch) {
      return invalid_argument("batch_dim == seq_dim == ", dims_.seq);
    }
    MR_TRY_ASSIGN(const std::vector<int64_t> lengths, ctx.int_vector_input(1));
    MR_TRY(check_lengths(lengths, shape));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    if (shape.num_elements() == 0) return ok_status();
    reverse(ctx, lengths, x, *out);
    return ok_status();
  }

 private:
  Status check_lengths(const std::vector<int64_t>& lengths, const Shape& shape) const {
    const int64_t rows = shape.dim(static_cast<int>(dims_.batch));
    const int64_t longest = shape.dim(static_cast<int>(dims_.seq));
    if (static_cast<int64_t>(lengths.size()) != rows) {
      return invalid_argument("Length of seq_lengths != input.dims(", dims_.batch, "), (",
                              lengths.size(), " vs. ", rows, ")");
    }
    for (size_t i = 0; i < lengths.size(); ++i) {
      if (lengths[i] < 0) return invalid_argument("seq_lens(", i, ") < 0, got ", lengths[i]);
      if (lengths[i] > longest) {
        return invalid_argument("seq_lens(", i, ") > input.dims(", dims_.seq, "), got ", lengths[i],
                                " and ", longest);
      }
    }
    return ok_status();
  }

  // Runs of elements behind both dimensions move together.
  void reverse(const KernelContext& ctx, const std::vector<int64_t>& lengths, const Tensor& x,
               Tensor& out) const {
    const Shape& shape = x.shape();
    const int last = static_cast<int>(std::max(dims_.seq, dims_.batch));
    int64_t run = 1, seq_stride = 1, batch_stride = 1;
    for (int i = shape.rank() - 1; i > last; --i) run *= shape.dim(i);
    for (int i = last; i >= 0; --i) {
      if (i > dims_.seq) seq_stride *= shape.dim(i);
      if (i > dims_.batch) batch_stride *= shape.dim(i);
    }
    const int64_t steps = shape.dim(static_cast<int>(dims_.seq));
    const int64_t rows = shape.dim(static_cast<int>(dims_.batch));
    const auto source = [&](int64_t i) {
      const int64_t length = lengths[static_cast<size_t>(i / batch_stride % rows)];
      const int64_t step = i / seq_stride % steps;
      return step < length ? i + (length - 1 - 2 * step) * seq_stride : i;
    };
    gather_rows(ctx, x, shape.num_elements() / run, run, source, out);
  }

  const SequenceDims dims_;
};

}  // namespace

void register_reverse_sequence(Registry& registry) {
  registry.add(
      {.name = "ReverseSequence",
       .doc = "The beginning of each sequence of a batch, of a length of its own, backwards.",
       .inputs = {{"input", "T"}, {"seq_lengths", "host(Tlen)", "For each row of batch_dim."}},
       .outputs = {{"output", "T"}},
       .types = {{"T", {}}, {"Tlen", kIndexTypes, DType::kInt64}},
       .attrs = {{"seq_dim", "int", "The dimension that is reversed."}, {"batch_dim", "int = 0"}},
       .traits = {.cost = 1},
       .shape = reverse_sequence_shape,
       .gradient = reverse_sequence_grad});
  registry.kernel<ReverseSequence>("ReverseSequence", DeviceKind::kCpu);
}

}  // namespace millrace
