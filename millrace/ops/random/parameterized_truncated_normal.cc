// ParameterizedTruncatedNormal: normal distributions between bounds, by one of three ways to draw
// and reject (Robert, "Simulation of truncated normal variables").

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <type_traits>
#include <vector>

#include "millrace/graph/size_rules.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/accumulate.h"
#include "millrace/ops/random/distributions.h"
#include "millrace/ops/random/random_state.h"
#include "millrace/tensor/dispatch.h"

namespace millrace {
namespace {

// How often a value may be rejected; the stream has room for so many draws of each.
constexpr int64_t kMaxRejections = 1000;
// Where one distribution serves for all values, they are drawn in batches of this size.
constexpr int64_t kBatchSize = 100;
// Batches with fewer values than this are drawn one after the other from one part of the stream.
constexpr int64_t kValuesOfPart = 16384;

// Numbers from one part of the stream, as many at a time as a block gives.
template <class T>
class Draws {
 public:
  using C = ComputeType<T>;
  static constexpr int kSize = std::is_same_v<T, double> ? 2 : 4;

  explicit Draws(Philox stream) : stream_(stream) {}

  void uniform(C* out) {
    const Philox::Block b = stream_.next();
    if constexpr (std::is_same_v<T, double>) {
      out[0] = uniform_double(b[0], b[1]);
      out[1] = uniform_double(b[2], b[3]);
    } else {
      for (size_t i = 0; i < 4; ++i) out[i] = one(b[i]);
    }
  }
  void normal(C* out) {
    const Philox::Block b = stream_.next();
    if constexpr (std::is_same_v<T, double>) {
      normal_pair(b[0], b[1], b[2], b[3], out);
    } else {
      normal_pair(b[0], b[1], out);
      normal_pair(b[2], b[3], out + 2);
    }
  }

 private:
  static float one(uint32_t word) {
    if constexpr (std::is_same_v<T, float>) {
      return uniform_float(word);
    } else if constexpr (std::is_same_v<T, Half>) {
      return static_cast<float>(uniform_half(word));
    } else {
      return static_cast<float>(uniform_bfloat16(word));
    }
  }

  Philox stream_;
};

// A distribution, turned such that its lower bound is the finite or the nearer one: `deviation` is
// then negative. Bounds are in deviations from the mean.
template <class C>
struct Truncated {
  C mean, deviation, lower, upper;

  static Result<Truncated> make(C mean, C deviation, C minimum, C maximum) {
    if (!std::isfinite(mean) || !(deviation > 0) || !(minimum < maximum) ||
        (!std::isfinite(minimum) && !std::isfinite(maximum))) {
      return invalid_argument(
          "Invalid parameters: expected a finite mean, a positive stddev and minval below maxval, ",
          "one of them finite; got mean ", mean, ", stddev ", deviation, ", minval ", minimum,
          ", maxval ", maximum);
    }
    if ((std::isinf(minimum) && minimum < 0) || maximum < mean) {
      std::swap(minimum, maximum);
      deviation = -deviation;
    }
    return Truncated{mean, deviation, (minimum - mean) / deviation, (maximum - mean) / deviation};
  }

  // False when values were rejected too often, which bounds that were checked do not do.
  template <class T>
  bool draw(Draws<T>& draws, T* y, int64_t n) const {
    constexpr C kInside = static_cast<C>(1.3);
    if ((lower < -kInside && upper >= 0) || (upper > kInside && lower <= 0)) {
      return draw_normal(draws, y, n);
    }
    const C root = std::sqrt(lower * lower + 4);
    const C cutoff =
        2 * std::exp(static_cast<C>(0.5) + lower * (lower - root) / 4) / (lower + root);
    if (upper - lower < cutoff) {
      draw_uniform(draws, y, n);
    } else {
      draw_exponential(draws, y, n);
    }
    return true;
  }

 private:
  template <class T>
  T value(C z) const {
    return static_cast<T>(z * deviation + mean);
  }

  // Normal values, those outside rejected: at least every other one is inside.
  template <class T>
  bool draw_normal(Draws<T>& draws, T* y, int64_t n) const {
    int64_t rejected = 0;
    for (int64_t done = 0; done < n;) {
      C z[Draws<T>::kSize];
      draws.normal(z);
      for (int i = 0; i < Draws<T>::kSize && done < n; ++i) {
        if (z[i] >= lower && z[i] <= upper) {
          y[done++] = value<T>(z[i]);
          rejected = 0;
        } else if (++rejected > kMaxRejections) {
          return false;
        }
      }
    }
    return true;
  }

  // Uniform values between bounds that are near to each other.
  template <class T>
  void draw_uniform(Draws<T>& draws, T* y, int64_t n) const {
    const C highest = lower < 0 ? 0 : lower * lower;
    int64_t rejected = 0;
    for (int64_t done = 0; done < n;) {
      C z[Draws<T>::kSize], u[Draws<T>::kSize];
      draws.uniform(z);
      draws.uniform(u);
      for (int i = 0; i < Draws<T>::kSize && done < n; ++i) {
        z[i] = z[i] * (upper - lower) + lower;
        if (u[i] <= std::exp((highest - z[i] * z[i]) / 2) || rejected + 1 >= kMaxRejections) {
          y[done++] = value<T>(z[i]);
          rejected = 0;
        } else {
          ++rejected;
        }
      }
    }
  }

  // Exponential values from the lower bound on, for tails.
  template <class T>
  void draw_exponential(Draws<T>& draws, T* y, int64_t n) const {
    const C alpha = (lower + std::sqrt(lower * lower + 4)) / 2;
    int64_t rejected = 0;
    for (int64_t done = 0; done < n;) {
      C u[Draws<T>::kSize];
      draws.uniform(u);
      for (int i = 0; i < Draws<T>::kSize && done < n; i += 2) {
        const C z = -std::log(u[i]) / alpha + lower;
        const C x = lower < alpha ? alpha - z : lower - alpha;
        if ((u[i + 1] <= std::exp(-x * x / 2) && z < upper) || rejected + 1 >= kMaxRejections) {
          y[done++] = value<T>(z);
          rejected = 0;
        } else {
          ++rejected;
        }
      }
    }
  }
};

Status truncated_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(PartialShape shape, sizes_input(c, 0));
  if (shape.rank() == 0) return invalid_argument("shape must not be empty");
  for (int i = 1; i <= 4; ++i) {
    MR_TRY(c.with_rank_at_most(i, 1).status());
    const int64_t given = c.input(i).num_elements();
    if (given < 0 || given == 1 || !shape.rank_known() || !shape.dim_known(0)) continue;
    if (given != shape.dim(0)) {
      return invalid_argument("input ", i, " must have one element or shape[0] = ", shape.dim(0),
                              ", got shape ", c.input(i));
    }
  }
  c.set_output(0, std::move(shape));
  return ok_status();
}

class TruncatedNormalBetween final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(RandomSource source, RandomSource::make(node));
    return std::unique_ptr<Kernel>(new TruncatedNormalBetween(std::move(source)));
  }
  explicit TruncatedNormalBetween(RandomSource source) : source_(std::move(source)) {}

  Status compute(KernelContext& ctx) const override {
    MR_TRY_ASSIGN(const Shape shape, ctx.shape_input(0));
    if (shape.rank() == 0) return invalid_argument("shape must not be empty");
    int64_t batches = shape.dim(0);
    bool same = true;
    for (int i = 1; i <= 4; ++i) {
      const Shape& given = ctx.input(i).shape();
      if (given.rank() > 1) {
        return invalid_argument("input ", i, " must be a scalar or a vector, got shape ", given);
      }
      if (given.num_elements() != 1 && given.num_elements() != batches) {
        return invalid_argument("input ", i, " must have one element or shape[0] = ", batches,
                                ", got shape ", given);
      }
      same = same && given.num_elements() == 1;
    }
    MR_TRY_ASSIGN(Tensor * out, ctx.allocate_output(0, shape));
    const int64_t n = shape.num_elements();
    if (n == 0) return ok_status();
    int64_t batch = n / batches;
    if (same) {
      batch = kBatchSize;
      batches = (n - 1) / batch + 1;
    }
    MR_TRY_ASSIGN(const Philox stream, source_.reserve(ctx, blocks(batches, batch)));
    Status status;
    MR_TRY(dispatch<FloatingTypes>(
        out->dtype(), [&]<class T>() { status = draw<T>(ctx, stream, batches, batch, *out); }));
    return status;
  }

 private:
  // Of the stream, before this batch.
  static uint64_t blocks(int64_t batches, int64_t batch) {
    return static_cast<uint64_t>(batches) * 2 * kMaxRejections * static_cast<uint64_t>(batch + 3) /
           4;
  }

  template <class T>
  using Distribution = Truncated<typename Draws<T>::C>;

  // Of each batch, or one for all.
  template <class T>
  static Result<std::vector<Distribution<T>>> distributions(const KernelContext& ctx) {
    const int64_t count = std::max({ctx.input(1).num_elements(), ctx.input(2).num_elements(),
                                    ctx.input(3).num_elements(), ctx.input(4).num_elements()});
    std::vector<Distribution<T>> out;
    for (int64_t b = 0; b < count; ++b) {
      typename Draws<T>::C p[4];
      for (int i = 0; i < 4; ++i) {
        const Tensor& given = ctx.input(i + 1);
        const int64_t at = given.num_elements() == 1 ? 0 : b;
        p[i] = static_cast<typename Draws<T>::C>(given.data<T>()[static_cast<size_t>(at)]);
      }
      MR_TRY_ASSIGN(const Distribution<T> made, Distribution<T>::make(p[0], p[1], p[2], p[3]));
      out.push_back(made);
    }
    return out;
  }

  template <class T>
  static Status draw(const KernelContext& ctx, const Philox& stream, int64_t batches, int64_t batch,
                     Tensor& out) {
    const int64_t n = out.num_elements();
    MR_TRY_ASSIGN(const std::vector<Distribution<T>> given, distributions<T>(ctx));
    T* y = out.mutable_data<T>().data();
    const int64_t part = std::max<int64_t>(kValuesOfPart / batch, 1);  // in batches
    std::atomic<bool> drawn{true};
    ctx.parallel_for((batches - 1) / part + 1, 40.0 * static_cast<double>(part * batch),
                     [&](int64_t begin, int64_t end) {
                       for (int64_t i = begin; i < end; ++i) {
                         Philox place = stream;
                         place.skip(blocks(i * part, batch));
                         Draws<T> draws(place);
                         for (int64_t b = i * part; b < std::min((i + 1) * part, batches); ++b) {
                           const int64_t first = b * batch;
                           const int64_t count = std::min(batch, n - first);
                           const auto& own = given[given.size() == 1 ? 0 : static_cast<size_t>(b)];
                           if (!own.draw(draws, y + first, count)) drawn = false;
                         }
                       }
                     });
    if (drawn) return ok_status();
    return internal("TruncatedNormal rejection sampler exceeded maximum iterations");
  }

  RandomSource source_;
};

}  // namespace

void register_parameterized_truncated_normal(Registry& registry) {
  registry.add({.name = "ParameterizedTruncatedNormal",
                .doc = "Values of normal distributions between bounds, one distribution for all or "
                       "one for each row.",
                .inputs = {{"shape", "host(T)"},
                           {"means", "dtype"},
                           {"stdevs", "dtype"},
                           {"minvals", "dtype"},
                           {"maxvals", "dtype"}},
                .outputs = {{"output", "dtype"}},
                .types = {{"dtype", kFloating}, {"T", kIndexTypes}},
                .attrs = {{"seed", "int = 0"}, {"seed2", "int = 0"}},
                .traits = {.stateful = true, .cannot_differentiate = true, .cost = 40},
                .shape = truncated_shape});
  registry.kernel({.op = "ParameterizedTruncatedNormal", .factory = TruncatedNormalBetween::make});
}

}  // namespace millrace
