#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/kernel/registry.h"
#include "millrace/ops/random/fill_blocks.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/ops/random/stateless.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

Status check_bounds(int64_t low, int64_t high) {
  if (low < high) return ok_status();
  return invalid_argument("Need minval < maxval, got ", low, " >= ", high);
}

// The bounds are the last two inputs.
Status uniform_int_shape(ShapeContext& c) {
  const int last = c.num_inputs() - 1;
  MR_TRY(c.with_rank(last - 1, 0).status());
  MR_TRY(c.with_rank(last, 0).status());
  MR_TRY(random_shape(c));
  const std::optional<int64_t> low = c.input_scalar(last - 1), high = c.input_scalar(last);
  if (low && high && c.output(0).num_elements() > 0) MR_TRY(check_bounds(*low, *high));
  return ok_status();
}

void fill(const KernelContext& ctx, const Philox& stream, int32_t low, int32_t high, int32_t* out,
          int64_t n) {
  const uint32_t range = static_cast<uint32_t>(high) - static_cast<uint32_t>(low);
  fill_from_blocks<4>(ctx, stream, 12, out, n, [=](const uint32_t* w, int32_t* y) {
    for (int i = 0; i < 4; ++i) {
      y[i] = static_cast<int32_t>(static_cast<uint32_t>(low) + w[i] % range);
    }
  });
}

void fill(const KernelContext& ctx, const Philox& stream, int64_t low, int64_t high, int64_t* out,
          int64_t n) {
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  fill_from_blocks<2>(ctx, stream, 16, out, n, [=](const uint32_t* w, int64_t* y) {
    for (int i = 0; i < 2; ++i) {
      const uint64_t bits = w[2 * i] | uint64_t{w[2 * i + 1]} << 32;
      y[i] = static_cast<int64_t>(static_cast<uint64_t>(low) + bits % range);
    }
  });
}

template <class T>
class RandomUniformInt final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    return std::unique_ptr<Kernel>(new RandomUniformInt(std::move(source)));
  }
  explicit RandomUniformInt(RandomSource source) : source_(std::move(source)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 1));
    const int first = 1 + source_.num_inputs();
    MR_TRY(expect_rank(ctx, first, 0));
    MR_TRY(expect_rank(ctx, first + 1, 0));
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    MR_TRY_ASSIGN(const T low, ctx.scalar_input<T>(first));
    MR_TRY_ASSIGN(const T high, ctx.scalar_input<T>(first + 1));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    const int64_t n = shape.num_elements();
    if (n == 0) return source_.check(ctx);
    MR_TRY(check_bounds(low, high));
    MR_TRY_ASSIGN(const Philox stream,
                  source_.reserve(ctx, static_cast<uint64_t>(n) * kBlocksPerElement));
    fill(ctx, stream, low, high, out->mutable_data<T>().data(), n);
    return ok_status();
  }

 private:
  RandomSource source_;
};

// Any integer of a type, as likely as any other.
class RandomBits final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    return std::unique_ptr<Kernel>(new RandomBits(std::move(source)));
  }
  explicit RandomBits(RandomSource source) : source_(std::move(source)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 1));
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    const int64_t n = shape.num_elements();
    MR_TRY_ASSIGN(const Philox stream,
                  source_.reserve(ctx, static_cast<uint64_t>(n) * kBlocksPerElement));
    using Types = TypeList<int32_t, int64_t, uint32_t, uint64_t>;
    return dispatch<Types>(out->dtype(), [&]<class T>() {
      T* const y = out->mutable_data<T>().data();
      if constexpr (sizeof(T) == 4) {
        fill_from_blocks<4>(ctx, stream, 4, y, n, [](const uint32_t* w, T* to) {
          for (int i = 0; i < 4; ++i) to[i] = static_cast<T>(w[i]);
        });
      } else {
        fill_from_blocks<2>(ctx, stream, 4, y, n, [](const uint32_t* w, T* to) {
          for (int i = 0; i < 2; ++i) {
            to[i] = static_cast<T>(w[2 * i] | uint64_t{w[2 * i + 1]} << 32);
          }
        });
      }
    });
  }

 private:
  RandomSource source_;
};

constexpr TypeSet kBitTypes = {DType::kInt32, DType::kInt64, DType::kUInt32, DType::kUInt64};

// Both forms of an op without state; the type of the shape has another name in each.
void register_without_state(Registry& registry, OpSpec spec, const std::string& name,
                            std::vector<OpSpec::Arg> after, OpSpec::Type output) {
  spec.outputs = {{"output", "dtype"}};
  StatelessOp op = {.spec = spec, .after = std::move(after)};
  op.spec.types = {output, {"T", kIndexTypes, DType::kInt32}};
  op.before = {{"shape", "host(T)"}};
  op.with_seed = name.c_str();
  add_stateless(registry, op);
  const std::string v2 = name + "V2";
  op.spec.types = {output, {"Tshape", kIndexTypes, DType::kInt32}};
  op.before = {{"shape", "host(Tshape)"}};
  op.with_seed = nullptr;
  op.with_key = v2.c_str();
  add_stateless(registry, op);
}

}  // namespace

void register_random_uniform_int(Registry& registry) {
  registry.add(
      {.name = "RandomUniformInt",
       .doc = "Integers evenly distributed over [minval, maxval), but for the slight bias "
              "of a remainder.",
       .inputs = {{"shape", "host(T)"}, {"minval", "host(Tout)"}, {"maxval", "host(Tout)"}},
       .outputs = {{"output", "Tout"}},
       .types = {{"Tout", kIndexTypes}, {"T", kIndexTypes}},
       .attrs = {{"seed", "int = 0"}, {"seed2", "int = 0"}},
       .traits = {.stateful = true, .cannot_differentiate = true, .cost = 3},
       .shape = uniform_int_shape});
  const OpTraits traits = {.cannot_differentiate = true, .cost = 3};
  register_without_state(registry,
                         {.doc = "Integers evenly distributed over [minval, maxval), but for the "
                                 "slight bias of a remainder.",
                          .traits = traits,
                          .shape = with_stream<uniform_int_shape>},
                         "StatelessRandomUniformInt",
                         {{"minval", "host(dtype)"}, {"maxval", "host(dtype)"}},
                         {"dtype", kIndexTypes});
  register_without_state(registry,
                         {.doc = "Any integers of a type, each as likely.",
                          .traits = traits,
                          .shape = with_stream<random_shape>},
                         "StatelessRandomUniformFullInt", {}, {"dtype", kBitTypes, DType::kUInt64});
  for (const char* op :
       {"RandomUniformInt", "StatelessRandomUniformInt", "StatelessRandomUniformIntV2"}) {
    const char* const type = op[0] == 'R' ? "Tout" : "dtype";
    registry.kernel({.op = op,
                     .constraints = {{type, {DType::kInt32}}},
                     .factory = RandomUniformInt<int32_t>::make});
    registry.kernel({.op = op,
                     .constraints = {{type, {DType::kInt64}}},
                     .factory = RandomUniformInt<int64_t>::make});
  }
  for (const char* op : {"StatelessRandomUniformFullInt", "StatelessRandomUniformFullIntV2"}) {
    registry.kernel({.op = op, .factory = RandomBits::make});
  }
}

}  // namespace millrace
