#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "millrace/graph/gradient.h"
#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/ops/random/stateless.h"
#include "millrace/tensor/dispatch.h"

// Distributions that take another number of random bits for every value: each value has a stretch
// of the stream of its own, long enough for any but the unluckiest.

namespace millrace {
namespace {

constexpr uint64_t kBlocksPerValue = 256;

using DrawnTypes = ConcatTypes<FloatingTypes, TypeList<int32_t, int64_t>>;

// Uniform and normal numbers of one stretch, two to a block, the second of a pair first.
class Doubles {
 public:
  explicit Doubles(Philox stream) : stream_(stream) {}

  double uniform() {
    if (uniforms_left_ == 0) {
      const Philox::Block b = stream_.next();
      uniforms_[0] = uniform_double(b[0], b[1]);
      uniforms_[1] = uniform_double(b[2], b[3]);
      uniforms_left_ = 2;
    }
    return uniforms_[--uniforms_left_];
  }
  double normal() {
    if (normals_left_ == 0) {
      const Philox::Block b = stream_.next();
      normal_pair(b[0], b[1], b[2], b[3], normals_);
      normals_left_ = 2;
    }
    return normals_[--normals_left_];
  }

 private:
  Philox stream_;
  double uniforms_[2] = {};
  double normals_[2] = {};
  int uniforms_left_ = 0;
  int normals_left_ = 0;
};

// Marsaglia and Tsang, "A simple method for generating gamma variables". Below 1 a value of
// alpha + 1 is scaled down.
double gamma_value(double alpha, Doubles random) {
  if (!(alpha >= 0)) return std::numeric_limits<double>::quiet_NaN();
  if (alpha == 0 || std::isinf(alpha)) return alpha;
  if (alpha == 1.0) return -std::log1p(-random.uniform());
  const bool small = alpha < 1;
  const double d = alpha + (small ? 1 : 0) - 1.0 / 3;
  const double c = 1.0 / 3 / std::sqrt(d);
  for (;;) {
    const double x = random.normal();
    double v = 1 + c * x;
    if (v <= 0) continue;
    v = v * v * v;
    const double u = random.uniform();
    const bool inside =
        u < 1 - 0.0331 * (x * x) * (x * x) || std::log(u) < 0.5 * x * x + d * (1 - v + std::log(v));
    if (!inside) continue;
    const double value = d * v;
    return small ? value * std::pow(random.uniform(), 1 / alpha) : value;
  }
}

// Below 10 by products of uniform numbers (Knuth); above by transformed rejection (Hörmann, "The
// transformed rejection method for generating Poisson random variables"). Values above `most` are
// rejected too; where that leaves next to none, because of a rate far beyond it, it is `most`.
double poisson_value(double rate, Doubles random, double most) {
  if (!(rate >= 0) || std::isinf(rate)) return std::numeric_limits<double>::quiet_NaN();
  if (rate < 10) {
    const double least = std::exp(-rate);
    double product = 1;
    for (double k = 0;; ++k) {
      product *= random.uniform();
      if (product <= least) return k;
      if (k >= most) return most;
    }
  }
  const double log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * std::sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4);
  for (uint64_t tries = 0; tries < kBlocksPerValue; ++tries) {
    const double u = random.uniform() - 0.5;
    const double v = random.uniform();
    const double shifted = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / shifted + b) * u + rate + 0.43);
    if (k > most) continue;
    if (shifted >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) return k;
    if (k < 0 || (shifted < 0.013 && v > shifted)) continue;
    const double s = std::log(v * inverse_alpha / (a / (shifted * shifted) + b));
    if (s <= -rate + k * log_rate - std::lgamma(k + 1)) return k;
  }
  return std::min(std::floor(rate), most);
}

// The largest value of T that a double holds exactly.
template <class T>
double largest_value() {
  if constexpr (std::is_same_v<T, int64_t>) return 0x1p63 - 1024;
  return static_cast<double>(std::numeric_limits<T>::max());
}

// The parameters come after the shape: values of shape S for each of P parameters are S + P.
Status shape_and_parameters(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, 0));
  const PartialShape& parameters = c.input(1);
  if (!shape.rank_known() || !parameters.rank_known()) return ok_status();
  for (int i = 0; i < parameters.rank(); ++i) shape.add_dim(parameters.dim(i));
  c.set_output(0, std::move(shape));
  return ok_status();
}

// Each value is moved by alpha alone, at its own quantile.
Status random_gamma_grad(GradientContext& c) {
  const Expr alpha = c.input(1);
  c.set(1, sum_to_shape_of(c.gradient() * call("RandomGammaGrad", {alpha, c.output(0)}), alpha));
  return ok_status();
}

// Of ops without state the shape is that of the output, which ends with that of the parameters, the
// last input.
Status whole_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, 0));
  const PartialShape& parameters = c.input(c.num_inputs() - 1);
  if (shape.rank_known() && parameters.rank_known()) {
    const int front = shape.rank() - parameters.rank();
    bool fits = front >= 0;
    for (int i = 0; fits && i < parameters.rank(); ++i) {
      const int64_t size = shape.dim(front + i), own = parameters.dim(i);
      fits = size < 0 || own < 0 || size == own;
    }
    if (!fits) {
      return invalid_argument("Shape passed in must end with broadcasted shape: ", shape,
                              " does not end with ", parameters);
    }
  }
  c.set_output(0, std::move(shape));
  return ok_status();
}

// Of an op without state the parameters come last.
Status stateless_gamma_grad(GradientContext& c) {
  const int last = c.num_inputs() - 1;
  const Expr alpha = c.input(last);
  c.set(last, sum_to_shape_of(c.gradient() * call("RandomGammaGrad", {alpha, c.output(0)}), alpha));
  return ok_status();
}

template <bool kGamma>
class PerParameter final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    return std::unique_ptr<Kernel>(new PerParameter(std::move(source)));
  }
  explicit PerParameter(RandomSource source) : source_(std::move(source)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Shape samples_shape, ctx.shape_input(0));
    const Tensor& parameters = ctx.input(1 + source_.num_inputs());
    MR_TRY_ASSIGN(const Shape shape, output_shape(samples_shape, parameters.shape()));
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    const int64_t n = shape.num_elements();
    if (n == 0) return source_.check(ctx);
    MR_TRY_ASSIGN(const Philox stream,
                  source_.reserve(ctx, static_cast<uint64_t>(n) * kBlocksPerValue));
    std::vector<double> values(static_cast<size_t>(parameters.num_elements()));
    MR_TRY(dispatch<DrawnTypes>(parameters.dtype(), [&]<class P>() {
      const P* x = parameters.data<P>().data();
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(x[i]);
    }));
    return dispatch<DrawnTypes>(out->dtype(), [&]<class T>() {
      draw(ctx, stream, values, out->mutable_data<T>().data(), n);
    });
  }

 private:
  // Ops without state are given the shape of their output, which ends with the parameters'.
  Result<Shape> output_shape(const Shape& given, const Shape& parameters) const {
    if (source_.num_inputs() == 0) return given.concat(parameters);
    const int front = given.rank() - parameters.rank();
    bool fits = front >= 0;
    for (int i = 0; fits && i < parameters.rank(); ++i) {
      fits = given.dim(front + i) == parameters.dim(i);
    }
    if (fits) return given;
    return invalid_argument("Shape passed in must end with broadcasted shape: ", given,
                            " does not end with ", parameters);
  }

  // Parameter by parameter in the stream, sample by sample in memory.
  template <class T>
  static void draw(const KernelContext& ctx, const Philox& stream,
                   const std::vector<double>& parameters, T* y, int64_t n) {
    const auto width = static_cast<int64_t>(parameters.size());
    const int64_t samples = n / width;
    ctx.parallel_for(n, 200, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t parameter = i / samples, sample = i % samples;
        Philox part = stream;
        part.skip(static_cast<uint64_t>(i) * kBlocksPerValue);
        const double value = one<T>(parameters[static_cast<size_t>(parameter)], part);
        y[sample * width + parameter] = static_cast<T>(value);
      }
    });
  }

  template <class T>
  static double one(double parameter, const Philox& stream) {
    if constexpr (kGamma) {
      return gamma_value(parameter, Doubles(stream));
    } else {
      const double value = poisson_value(parameter, Doubles(stream), largest_value<T>());
      return std::is_integral_v<T> && std::isnan(value) ? 0 : value;
    }
  }

  RandomSource source_;
};

constexpr TypeSet kPoissonTypes = kFloating | kIndexTypes;

}  // namespace

void register_random_gamma(Registry& registry) {
  const OpTraits traits{.stateful = true, .cost = 200};
  const char* no_gradient = "draw random numbers";
  registry.add({.name = "RandomGamma",
                .doc = "Values of gamma distributions of rate 1: `shape` of them for each alpha.",
                .inputs = {{"shape", "host(S)"}, {"alpha", "T"}},
                .outputs = {{"output", "T"}},
                .types = {{"S", kIndexTypes}, {"T", kFloating}},
                .attrs = {{"seed", "int = 0"}, {"seed2", "int = 0"}},
                .traits = traits,
                .shape = shape_and_parameters,
                .gradient = random_gamma_grad});
  registry.add({.name = "RandomPoisson",
                .doc = "Values of Poisson distributions: `shape` of them for each rate.",
                .inputs = {{"shape", "host(S)"}, {"rate", "dtype"}},
                .outputs = {{"output", "dtype"}},
                .types = {{"S", kIndexTypes}, {"dtype", kFloating}},
                .attrs = {{"seed", "int = 0"}, {"seed2", "int = 0"}},
                .traits = traits,
                .shape = shape_and_parameters,
                .no_gradient = no_gradient});
  registry.add({.name = "RandomPoissonV2",
                .doc = "Values of Poisson distributions: `shape` of them for each rate.",
                .inputs = {{"shape", "host(S)"}, {"rate", "R"}},
                .outputs = {{"output", "dtype"}},
                .types = {{"S", kIndexTypes},
                          {"R", kPoissonTypes, DType::kDouble},
                          {"dtype", kPoissonTypes, DType::kInt64}},
                .attrs = {{"seed", "int = 0"}, {"seed2", "int = 0"}},
                .traits = traits,
                .shape = shape_and_parameters,
                .no_gradient = no_gradient});
  StatelessOp gamma = {.spec = {.doc = "Values of gamma distributions of rate 1, one for each "
                                       "element of the shape, which ends with that of alpha.",
                                .outputs = {{"output", "dtype"}},
                                .types = {{"dtype", kFloating}, {"T", kIndexTypes, DType::kInt32}},
                                .traits = {.cost = 200},
                                .shape = with_stream<whole_shape>,
                                .gradient = stateless_gamma_grad},
                       .before = {{"shape", "host(T)"}},
                       .after = {{"alpha", "dtype"}},
                       .with_seed = "StatelessRandomGammaV2"};
  add_stateless(registry, gamma);
  gamma.spec.types = {{"dtype", kFloating}, {"Tshape", kIndexTypes, DType::kInt32}};
  gamma.before = {{"shape", "host(Tshape)"}};
  gamma.with_seed = nullptr;
  gamma.with_key = "StatelessRandomGammaV3";
  add_stateless(registry, gamma);
  add_stateless(registry,
                {.spec = {.doc = "Values of Poisson distributions, one for each element of the "
                                 "shape, which ends with that of lam.",
                          .outputs = {{"output", "dtype"}},
                          .types = {{"Rtype", kPoissonTypes},
                                    {"dtype", kPoissonTypes},
                                    {"T", kIndexTypes, DType::kInt32}},
                          .traits = {.cost = 200},
                          .shape = with_stream<whole_shape>,
                          .no_gradient = no_gradient},
                 .before = {{"shape", "host(T)"}},
                 .after = {{"lam", "Rtype"}},
                 .with_seed = "StatelessRandomPoisson"});
  for (const char* op : {"RandomGamma", "StatelessRandomGammaV2", "StatelessRandomGammaV3"}) {
    registry.kernel({.op = op, .factory = PerParameter<true>::make});
  }
  for (const char* op : {"RandomPoisson", "RandomPoissonV2", "StatelessRandomPoisson"}) {
    registry.kernel({.op = op, .factory = PerParameter<false>::make});
  }
}

}  // namespace millrace
