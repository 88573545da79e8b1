#include "millrace/autodiff/gradient_check_testing.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "millrace/api/ops.h"
#include "millrace/autodiff/gradients.h"
#include "millrace/ops/math/math_testing.h"

namespace millrace {
namespace {

constexpr TypeSet kDoubles = {DType::kDouble, DType::kComplex128};

bool is_differentiable(DType type) { return (kFloating | kComplex).contains(type); }

// Positive: so the gradient of a maximum among equals lies between nothing and all, however often
// it is taken.
Tensor random_weights(const Tensor& like, uint64_t seed) {
  const bool complex = kComplex.contains(like.dtype());
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> draw(0.5, 1.5);
  std::vector<Complex128> values(static_cast<size_t>(like.num_elements()));
  for (Complex128& value : values) {
    value = Complex128(draw(random), complex ? draw(random) : 0);
  }
  return make_tensor(complex ? DType::kComplex128 : DType::kDouble, like.shape(), values);
}

// 0 where there is no gradient.
double component(const Tensor& gradient, size_t element, bool imaginary) {
  if (!gradient.valid()) return 0;
  const Complex128 value = values_of(gradient)[element];
  return imaginary ? value.imag() : value.real();
}

bool near(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * std::max({1.0, std::abs(a), std::abs(b)});
}

}  // namespace

std::vector<double> spread_numbers(size_t count, double low, double high, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t first = std::lround(low * 32), last = std::lround(high * 32);
  std::vector<int64_t> cells;
  while (cells.size() < count) {
    const size_t begin = cells.size();
    for (int64_t cell = first; cell < last; ++cell) cells.push_back(cell);
    std::shuffle(cells.begin() + static_cast<ptrdiff_t>(begin), cells.end(), random);
  }
  std::uniform_real_distribution<double> inside(0.25, 0.75);
  std::vector<double> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back((static_cast<double>(cells[i]) + inside(random)) / 32);
  }
  return out;
}

GradientCheck::GradientCheck(const Program& program, Facts facts)
    : program_(program), facts_(facts), root_(Scope::make_root()) {}

Result<std::unique_ptr<GradientCheck>> GradientCheck::create(const Program& program, Facts facts) {
  std::unique_ptr<GradientCheck> check(new GradientCheck(program, facts));
  MR_TRY(check->build());
  return check;
}

Expr GradientCheck::feed(const Tensor& value) {
  const bool known = facts_ == Facts::kKnown;
  if (known && !is_differentiable(value.dtype())) return root_.constant(value);
  const PartialShape shape = known ? PartialShape(value.shape()) : PartialShape::unknown();
  return ops::placeholder(root_, value.dtype(), {.shape = shape});
}

Status GradientCheck::build() {
  for (const Tensor& point : program_.points) {
    fed_.push_back(feed(point));
    feed_values_.push_back(point);
    single_precision_ |= is_differentiable(point.dtype()) && !kDoubles.contains(point.dtype());
  }
  tensors_ = program_.build(root_, fed_);
  std::erase_if(tensors_.ys, [](Expr y) { return y.valid() && !is_differentiable(y.dtype()); });
  for (Expr y : tensors_.ys) single_precision_ |= y.valid() && !kDoubles.contains(y.dtype());
  MR_TRY(root_.status());
  MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root_));
  session_ = std::make_unique<ClientSession>(std::move(session));
  ClientSession::Feeds feeds;
  for (size_t i = 0; i < fed_.size(); ++i) feeds.emplace_back(fed_[i], feed_values_[i]);
  MR_TRY_ASSIGN(values_, session_->run(feeds, tensors_.ys));
  return ok_status();
}

bool GradientCheck::finite() const {
  for (const Tensor& value : values_) {
    for (const Complex128 element : values_of(value)) {
      if (!std::isfinite(element.real()) || !std::isfinite(element.imag())) return false;
    }
  }
  return true;
}

// The sum of the real parts of w * y in double, for fresh weights w, which are fed.
Expr GradientCheck::weighted(Expr y, const Tensor& value, uint64_t seed) {
  feed_values_.push_back(random_weights(value, seed));
  const DType wide = feed_values_.back().dtype();
  Expr w = feed(feed_values_.back());
  fed_.push_back(w);
  Expr product = ops::mul(root_, w, y.dtype() == wide ? y : cast(y, wide));
  if (wide == DType::kComplex128) {
    product = ops::real(root_, product, {.tout = DType::kDouble});
  }
  return ops::sum(root_, ops::reshape(root_, product, int32_vector(root_.builder(), {-1})),
                  int32_scalar(root_.builder(), 0));
}

Status GradientCheck::differentiate() {
  if (tensors_.ys.empty()) return invalid_argument("the program has no results to differentiate");
  std::vector<Expr> terms;
  for (size_t i = 0; i < tensors_.ys.size(); ++i) {
    terms.push_back(weighted(tensors_.ys[i], values_[i], i + 1));
  }
  num_weights_ = terms.size();
  first_sum_ = ops::add_n(root_, terms);
  MR_TRY(root_.status());

  std::vector<Expr> xs;
  std::vector<size_t> feeds;  // of which xs are the tensors
  for (size_t i = 0; i < tensors_.xs.size(); ++i) {
    if (!tensors_.xs[i].valid()) continue;
    xs.push_back(tensors_.xs[i]);
    feeds.push_back(i);
  }
  const size_t num_points = program_.points.size();
  std::vector<Expr> fetches;
  std::vector<Tensor*> results;
  first_.resize(num_points);
  second_.resize(num_points + num_weights_);
  auto fetch = [&](const Gradient& gradient, Tensor& result) {
    fetches.push_back(to_dense(gradient));
    results.push_back(&result);
  };

  MR_TRY_ASSIGN(std::vector<Gradient> first,
                gradients(root_.builder(), std::span(&first_sum_, 1), xs));
  terms.clear();
  for (size_t i = 0; i < first.size(); ++i) {
    if (!first[i].valid()) continue;
    fetch(first[i], first_[feeds[i]]);
    terms.push_back(weighted(fetches.back(), program_.points[feeds[i]], 1000 + i));
  }
  if (!terms.empty()) {
    second_sum_ = ops::add_n(root_, terms);
    MR_TRY(root_.status());
    for (size_t i = 0; i < num_weights_; ++i) {
      xs.push_back(fed_[num_points + i]);
      feeds.push_back(num_points + i);
    }
    Result<std::vector<Gradient>> second =
        gradients(root_.builder(), std::span(&second_sum_, 1), xs);
    if (!second.ok()) return second.status().with_prefix("second order");
    for (size_t i = 0; i < second->size(); ++i) {
      if ((*second)[i].valid()) fetch((*second)[i], second_[feeds[i]]);
    }
  }
  MR_TRY(root_.status());
  if (fetches.empty()) return ok_status();
  MR_TRY_ASSIGN(std::shared_ptr<Callable> callable, session_->make_callable(fed_, fetches));
  std::vector<Tensor> fetched;
  MR_TRY(callable->run(feed_values_, fetched));
  for (size_t i = 0; i < fetched.size(); ++i) *results[i] = fetched[i];
  return ok_status();
}

Result<GradientCheck::Sums> GradientCheck::sums_at(size_t feed, size_t element, bool imaginary,
                                                   double step) {
  if (sums_ == nullptr) {
    std::vector<Expr> fetches = {first_sum_};
    if (second_sum_.valid()) fetches.push_back(second_sum_);
    MR_TRY_ASSIGN(sums_, session_->make_callable(fed_, fetches));
  }
  std::vector<Tensor> feeds = feed_values_;
  std::vector<Complex128> values = values_of(feeds[feed]);
  values[element] += imaginary ? Complex128(0, step) : Complex128(step, 0);
  feeds[feed] = make_tensor(feeds[feed].dtype(), feeds[feed].shape(), values);
  std::vector<Tensor> fetched;
  MR_TRY(sums_->run(feeds, fetched));
  Sums sums{.first = fetched[0].data<double>()[0]};
  if (second_sum_.valid()) sums.second = fetched[1].data<double>()[0];
  return sums;
}

Status GradientCheck::for_each_component(
    size_t num_feeds,
    const std::function<Status(size_t feed, size_t element, bool imaginary)>& check) {
  for (size_t f = 0; f < num_feeds; ++f) {
    const DType type = feed_values_[f].dtype();
    const bool moves =
        f >= program_.points.size() || (f < tensors_.xs.size() && tensors_.xs[f].valid());
    if (!moves || !is_differentiable(type)) continue;
    for (int64_t e = 0; e < feed_values_[f].num_elements(); ++e) {
      MR_TRY(check(f, static_cast<size_t>(e), false));
      if (kComplex.contains(type)) MR_TRY(check(f, static_cast<size_t>(e), true));
    }
  }
  return ok_status();
}

std::string GradientCheck::place(int order, size_t feed, size_t element, bool imaginary) const {
  const bool weight = feed >= program_.points.size();
  return str_cat(program_.name, facts_ == Facts::kKnown ? "" : " (unknown shapes)", ": order ",
                 order, ", ", weight ? "gradient of output " : "input ",
                 weight ? feed - program_.points.size() : feed, ", element ", element,
                 imaginary ? ", imaginary part" : "");
}

Status GradientCheck::check_differences() {
  const double h = single_precision_ ? 3e-3 : 1e-4;
  const double tolerance = single_precision_ ? 1e-2 : 1e-6;
  const size_t num_points = program_.points.size();
  return for_each_component(
      num_points + num_weights_, [&](size_t f, size_t e, bool imaginary) -> Status {
        MR_TRY_ASSIGN(Sums up, sums_at(f, e, imaginary, h));
        MR_TRY_ASSIGN(Sums down, sums_at(f, e, imaginary, -h));
        MR_TRY_ASSIGN(Sums up2, sums_at(f, e, imaginary, 2 * h));
        MR_TRY_ASSIGN(Sums down2, sums_at(f, e, imaginary, -2 * h));
        auto differ = [&](double Sums::*sum) {
          return (8 * (up.*sum - down.*sum) - (up2.*sum - down2.*sum)) / (12 * h);
        };
        for (int order = f < num_points ? 1 : 2; order <= 2; ++order) {
          const double expected = differ(order == 1 ? &Sums::first : &Sums::second);
          const double got = component(order == 1 ? first_[f] : second_[f], e, imaginary);
          if (near(got, expected, tolerance)) continue;
          return internal(place(order, f, e, imaginary), ": expected ", expected, ", got ", got,
                          "; the tensor is ", feed_values_[f].to_string());
        }
        return ok_status();
      });
}

Status GradientCheck::check_one_sided() {
  const double small = 1e-6, large = 1e-5, tolerance = 1e-2;
  // A derivative of each order to either side, NaN where there is none.
  auto one_sided = [&](size_t f, size_t e, bool imaginary, const Sums& here,
                       double sign) -> Result<Sums> {
    MR_TRY_ASSIGN(Sums near_by, sums_at(f, e, imaginary, sign * small));
    MR_TRY_ASSIGN(Sums further, sums_at(f, e, imaginary, sign * large));
    Sums slopes;
    for (double Sums::*sum : {&Sums::first, &Sums::second}) {
      const double slope = (near_by.*sum - here.*sum) / (sign * small);
      const double again = (further.*sum - here.*sum) / (sign * large);
      slopes.*sum = near(slope, again, tolerance) ? slope : std::nan("");
    }
    return slopes;
  };
  return for_each_component(
      program_.points.size(), [&](size_t f, size_t e, bool imaginary) -> Status {
        MR_TRY_ASSIGN(Sums here, sums_at(f, e, imaginary, 0));
        MR_TRY_ASSIGN(Sums up, one_sided(f, e, imaginary, here, 1));
        MR_TRY_ASSIGN(Sums down, one_sided(f, e, imaginary, here, -1));
        for (int order : {1, 2}) {
          double Sums::*sum = order == 1 ? &Sums::first : &Sums::second;
          const double least = std::min(up.*sum, down.*sum), most = std::max(up.*sum, down.*sum);
          if (!std::isfinite(least) || !std::isfinite(most)) continue;
          const double got = component(order == 1 ? first_[f] : second_[f], e, imaginary);
          const double room = tolerance * std::max({1.0, std::abs(least), std::abs(most)});
          if (got >= least - room && got <= most + room) continue;
          return internal(place(order, f, e, imaginary), ": expected a number in [", least, ", ",
                          most, "], got ", got, "; the tensor is ", feed_values_[f].to_string());
        }
        return ok_status();
      });
}

Status GradientCheck::check_shapes() {
  for (const std::vector<Tensor>* order : {&first_, &second_}) {
    for (size_t f = 0; f < order->size(); ++f) {
      const Tensor& gradient = (*order)[f];
      if (!gradient.valid() || gradient.shape() == feed_values_[f].shape()) continue;
      return internal(program_.name, ": the gradient of feed ", f, " has shape ", gradient.shape(),
                      ", expected ", feed_values_[f].shape());
    }
  }
  return ok_status();
}

}  // namespace millrace
