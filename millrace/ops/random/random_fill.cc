// RandomUniform, RandomStandardNormal, TruncatedNormal: tensors of random floating numbers.

#include <memory>
#include <string>

#include "millrace/kernel/registry.h"
#include "millrace/ops/device_engine.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/fill_blocks.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/ops/random/stateless.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

struct Uniform {
  static constexpr auto kKind = DeviceEngine::Distribution::kUniform;

  template <class T>
  static void fill(const KernelContext& ctx, const Philox& stream, T* out, int64_t n) {
    if constexpr (std::is_same_v<T, double>) {
      fill_from_blocks<2>(ctx, stream, 4, out, n, [](const uint32_t* w, double* y) {
        y[0] = uniform_double(w[0], w[1]);
        y[1] = uniform_double(w[2], w[3]);
      });
    } else {
      fill_from_blocks<4>(ctx, stream, 4, out, n, [](const uint32_t* w, T* y) {
        for (int i = 0; i < 4; ++i) y[i] = convert<T>(w[i]);
      });
    }
  }

 private:
  template <class T>
  static T convert(uint32_t word) {
    if constexpr (std::is_same_v<T, float>) {
      return uniform_float(word);
    } else if constexpr (std::is_same_v<T, Half>) {
      return uniform_half(word);
    } else {
      return uniform_bfloat16(word);
    }
  }
};

struct Normal {
  static constexpr auto kKind = DeviceEngine::Distribution::kNormal;

  template <class T>
  static void fill(const KernelContext& ctx, const Philox& stream, T* out, int64_t n) {
    if constexpr (std::is_same_v<T, double>) {
      fill_from_blocks<2>(ctx, stream, 50, out, n, [](const uint32_t* w, double* y) {
        normal_pair(w[0], w[1], w[2], w[3], y);
      });
    } else {
      fill_from_blocks<4>(ctx, stream, 40, out, n, [](const uint32_t* w, T* y) {
        float pairs[4];
        normal_pair(w[0], w[1], pairs);
        normal_pair(w[2], w[3], pairs + 2);
        for (int i = 0; i < 4; ++i) y[i] = static_cast<T>(pairs[i]);
      });
    }
  }
};

// Numbers of the normal distribution, those beyond two standard deviations drawn again. A group of
// elements has a part of the stream of its own.
struct Truncated {
  static constexpr auto kKind = DeviceEngine::Distribution::kTruncatedNormal;

  template <class T>
  static void fill(const KernelContext& ctx, const Philox& stream, T* out, int64_t n) {
    constexpr bool kDouble = std::is_same_v<T, double>;
    constexpr int64_t kGroup = kDouble ? 2 : 4;
    constexpr uint64_t kBlocksPerGroup = kDouble ? 128 : 256;
    const int64_t groups = n / kGroup + (n % kGroup != 0 ? 1 : 0);
    ctx.parallel_for(groups, 80, [&](int64_t begin, int64_t end) {
      for (int64_t g = begin; g < end; ++g) {
        Philox part = stream;
        part.skip(static_cast<uint64_t>(g) * kBlocksPerGroup);
        fill_group(part, out + g * kGroup, std::min(kGroup, n - g * kGroup));
      }
    });
  }

 private:
  // A group that is cut short keeps the first of the elements it would have had.
  template <class T>
  static void fill_group(const Philox& stream, T* out, int64_t n) {
    PhiloxWords words(stream);
    for (int64_t kept = 0; kept < n;) {
      std::conditional_t<std::is_same_v<T, double>, double, float> pair[2];
      const uint32_t x0 = words.next(), x1 = words.next();
      if constexpr (std::is_same_v<T, double>) {
        const uint32_t x2 = words.next(), x3 = words.next();
        normal_pair(x0, x1, x2, x3, pair);
      } else {
        normal_pair(x0, x1, pair);
      }
      for (int i = 0; i < 2 && kept < n; ++i) {
        if (std::abs(pair[i]) < 2) out[kept++] = static_cast<T>(pair[i]);
      }
    }
  }
};

template <class Distribution>
class RandomFill final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    return std::unique_ptr<Kernel>(new RandomFill(std::move(source)));
  }
  explicit RandomFill(RandomSource source) : source_(std::move(source)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY(expect_rank(ctx, 0, 1));
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    const int64_t n = shape.num_elements();
    if (n == 0) return source_.check(ctx);
    MR_TRY_ASSIGN(const Philox stream,
                  source_.reserve(ctx, static_cast<uint64_t>(n) * kBlocksPerElement));
    if (DeviceEngine* const device = device_engine(ctx)) {
      return device->random(ctx, Distribution::kKind, out->dtype(), stream.place().data(),
                            out->mutable_raw(), n);
    }
    return dispatch<FloatingTypes>(out->dtype(), [&]<class T>() {
      Distribution::fill(ctx, stream, out->mutable_data<T>().data(), n);
    });
  }

 private:
  RandomSource source_;
};

template <class Distribution>
void register_fill(Registry& registry, const char* name, const char* without_state, const char* doc,
                   float cost) {
  registry.add({.name = name,
                .doc = doc,
                .inputs = {{"shape", "host(T)"}},
                .outputs = {{"output", "dtype"}},
                .types = {{"dtype", kFloating}, {"T", kIndexTypes}},
                .attrs = {{"seed", "int = 0",
                           "With seed2, where the numbers begin; 0 and 0: "
                           "somewhere at random."},
                          {"seed2", "int = 0"}},
                .traits = {.stateful = true, .cannot_differentiate = true, .cost = cost},
                .shape = random_shape});
  const auto add_without_state = [&](const char* shape_type, const char* with_seed,
                                     const char* with_key) {
    const std::string shape = std::string("host(") + shape_type + ")";
    add_stateless(registry, {.spec = {.doc = doc,
                                      .outputs = {{"output", "dtype"}},
                                      .types = {{"dtype", kFloating, DType::kFloat},
                                                {shape_type, kIndexTypes, DType::kInt32}},
                                      .traits = {.cannot_differentiate = true, .cost = cost},
                                      .shape = with_stream<random_shape>},
                             .before = {{"shape", shape.c_str()}},
                             .with_seed = with_seed,
                             .with_key = with_key});
  };
  add_without_state("T", without_state, nullptr);
  const std::string v2 = std::string(without_state) + "V2";
  add_without_state("Tshape", nullptr, v2.c_str());
  for (const char* op : {name, without_state, v2.c_str()}) {
    registry.kernel({.op = op,
                     .constraints = {{"dtype", kFloating}},
                     .factory = RandomFill<Distribution>::make});
  }
}

}  // namespace

void register_random_fill(Registry& registry) {
  register_fill<Uniform>(registry, "RandomUniform", "StatelessRandomUniform",
                         "Numbers evenly distributed over [0, 1).", 1);
  register_fill<Normal>(registry, "RandomStandardNormal", "StatelessRandomNormal",
                        "Numbers of the normal distribution with mean 0 and deviation 1.", 10);
  register_fill<Truncated>(
      registry, "TruncatedNormal", "StatelessTruncatedNormal",
      "Numbers of the normal distribution with mean 0 and deviation 1 that lie within (-2, 2).",
      20);
}

}  // namespace millrace
