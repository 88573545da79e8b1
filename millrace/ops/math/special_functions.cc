#include "millrace/ops/math/special_functions.h"

#include <cmath>
#include <complex>
#include <initializer_list>
#include <limits>

namespace millrace {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kPi = 3.14159265358979323846;
constexpr double kEulerGamma = 0.57721566490153286061;
constexpr double kSqrtHalf = 0.70710678118654752440;
constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
constexpr int kMostTerms = 10000;

// B(2k) / (2k)!, k = 1, 2, ...: Euler and Maclaurin's summation.
constexpr double kBernoulli[] = {1.0 / 12,
                                 -1.0 / 720,
                                 1.0 / 30240,
                                 -1.0 / 1209600,
                                 1.0 / 47900160,
                                 -5.284190138687493e-10,
                                 1.3382536530684679e-11,
                                 -3.3896802963225828e-13,
                                 8.586062056277845e-15,
                                 -2.174868698558062e-16};

// x^a e^-x / gamma(a).
double gamma_density(double a, double x) { return std::exp(a * std::log(x) - x - log_gamma(a)); }

// The lower part as a series, for x < a + 1.
double lower_series(double a, double x) {
  double term = 1 / a, sum = term;
  for (int k = 1; k < kMostTerms; ++k) {
    term *= x / (a + k);
    sum += term;
    if (term < sum * kEpsilon) break;
  }
  return sum * gamma_density(a, x);
}

// The upper part as a continued fraction (Lentz's method), for x >= a + 1.
double upper_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double b = x + 1 - a, c = 1 / kTiny, d = 1 / b, result = d;
  for (int k = 1; k < kMostTerms; ++k) {
    const double factor = k * (a - k);
    b += 2;
    d = factor * d + b;
    c = b + factor / c;
    d = 1 / (std::abs(d) < kTiny ? kTiny : d);
    if (std::abs(c) < kTiny) c = kTiny;
    result *= c * d;
    if (std::abs(c * d - 1) < kEpsilon) break;
  }
  return result * gamma_density(a, x);
}

// The derivative of lower_gamma by a, over the density x^(a-1) e^-x / gamma(a). From the series for
// lower_gamma, s x^a e^-x / gamma(a+1): a term, the sum, and their derivatives go along.
double slope_by_series(double a, double x) {
  double term = 1, sum = 1, term_slope = 0, sum_slope = 0;
  for (int k = 1; k < kMostTerms; ++k) {
    const double factor = x / (a + k);
    term_slope = factor * (term_slope - term / (a + k));
    term *= factor;
    sum += term;
    sum_slope += term_slope;
    if (term < sum * kEpsilon && std::abs(term_slope) <= std::abs(sum_slope) * kEpsilon) break;
  }
  return (sum_slope + sum * (std::log(x) - digamma(a + 1))) * x / a;
}

// The same from the continued fraction of upper_gamma, f x^a e^-x / gamma(a), whose approximants
// are p / q, for x >= a + 1.
double slope_by_fraction(double a, double x) {
  struct Term {
    double p, q, p_slope, q_slope;  // the slopes by a
  };
  Term before = {1, x, 0, 0}, now = {x + 1, (x + 2 - a) * x, 0, -x};
  double f = now.p / now.q, f_slope = (now.p_slope - f * now.q_slope) / now.q;
  for (int k = 1; k < kMostTerms; ++k) {
    const double y = k + 1 - a, z = x + 2 * k + 2 - a, yk = y * k;
    Term next = {now.p * z - before.p * yk, now.q * z - before.q * yk,
                 now.p_slope * z - now.p - before.p_slope * yk + before.p * k,
                 now.q_slope * z - now.q - before.q_slope * yk + before.q * k};
    if (next.q != 0) {
      const double last = f_slope;
      f = next.p / next.q;
      f_slope = (next.p_slope - f * next.q_slope) / next.q;
      if (std::abs(f_slope - last) <= std::abs(f_slope) * kEpsilon) break;
    }
    before = now;
    now = next;
    if (std::abs(now.p) < 1e100) continue;
    for (Term* t : {&before, &now}) {
      for (double* v : {&t->p, &t->q, &t->p_slope, &t->q_slope}) *v *= 1e-100;
    }
  }
  return -(f_slope + f * (std::log(x) - digamma(a))) * x;
}

// The same where series and fraction are too long: Wilson and Hilferty's x = a u^3, in which
// u = 1 - 1 / (9 a) + z / (3 sqrt(a)) for the quantile z of the normal distribution.
double slope_of_large(double a, double x) {
  const double u = std::cbrt(x / a);
  return -(u * u * u + 3 * u * u * (1 / (18 * a) - (u - 1) / 2));
}

// The continued fraction of the incomplete beta function, for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300;
  const auto not_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / not_zero(1 - (a + b) * x / (a + 1)), result = d;
  for (int k = 1; k < kMostTerms; ++k) {
    const double m = k;
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    for (const double factor : {even, odd}) {
      d = 1 / not_zero(1 + factor * d);
      c = not_zero(1 + factor / c);
      result *= c * d;
    }
    if (std::abs(c * d - 1) < kEpsilon) break;
  }
  return result;
}

// The x < 0 below which the normal distribution has p < 1/2: an estimate to three digits
// (Abramowitz and Stegun 26.2.23) and Halley's method.
double lower_quantile(double p) {
  const double t = std::sqrt(-2 * std::log(p));
  double x = (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) -
             t;
  for (int step = 0; step < 3; ++step) {
    const double error = std::erfc(-x * kSqrtHalf) / 2 - p;
    const double ratio = error * std::exp(x * x / 2) * std::sqrt(2 * kPi);
    x -= ratio / (1 + x * ratio / 2);
  }
  return x;
}

// K0 and K1 as series around 0, for x <= 2.
double small_bessel_k(int order, double x) {
  const double square = x * x / 4, log = std::log(x / 2);
  double term = 1, harmonic = -kEulerGamma;  // digamma(k + 1)
  double sum = 0;
  for (int k = 0; k < 40; ++k) {
    // The terms of I0, or of I1 over x / 2.
    const double next = harmonic + 1.0 / (k + 1);
    sum += term * (order == 0 ? harmonic - log : log - (harmonic + next) / 2);
    harmonic = next;
    term *= square / ((k + 1.0) * (k + 1 + order));
  }
  return order == 0 ? sum : 1 / x + sum * x / 2;
}

// exp(x) times K0 or K1 by Temme's continued fraction, for x > 2.
double large_bessel_k(int order, double x) {
  double b = 2 * (1 + x), d = 1 / b, h = d, delta = d;
  double before = 0, now = 1, q = 0.25, c = q, a = -0.25;
  double sum = 1 + q * delta;
  for (int k = 2; k < kMostTerms; ++k) {
    a -= 2 * (k - 1);
    c = -a * c / k;
    const double next = (before - b * now) / a;
    before = now;
    now = next;
    q += c * next;
    b += 2;
    d = 1 / (b + a * d);
    delta *= b * d - 1;
    h += delta;
    const double change = q * delta;
    sum += change;
    if (std::abs(change) < std::abs(sum) * kEpsilon) break;
  }
  const double k0 = std::sqrt(kPi / (2 * x)) / sum;
  return order == 0 ? k0 : k0 * (x + 0.5 - h / 4) / x;
}

// Both integrals of Fresnel for x >= 0: the real part is that of cos.
std::complex<double> fresnel(double x) {
  constexpr double kFar = 1e8;
  if (x > kFar) return {0.5, 0.5};
  const double angle = kPi / 2 * x * x;
  if (x < 1.5) {
    // x exp(i angle) as a series, integrated term by term.
    double term = x, cosine = 0, sine = 0;
    for (int k = 0; k < 100 && term > kEpsilon * 1e-3 * x; ++k) {
      const double part = term / (2 * k + 1);
      double& sum = k % 2 == 0 ? cosine : sine;
      sum += k % 4 < 2 ? part : -part;
      term *= angle / (k + 1);
    }
    return {cosine, sine};
  }
  // The complementary error function's continued fraction (Lentz's method) for a complex argument.
  std::complex<double> b(1, -2 * angle), c = 1e300, d = 1.0 / b, h = d;
  for (int k = 1; k < kMostTerms; k += 2) {
    const double a = -static_cast<double>(k) * (k + 1);
    b += 4;
    d = 1.0 / (a * d + b);
    c = b + a / c;
    const std::complex<double> factor = c * d;
    h *= factor;
    if (std::abs(factor.real() - 1) + std::abs(factor.imag()) < kEpsilon) break;
  }
  h *= std::complex<double>(x, -x);
  return std::complex<double>(0.5, 0.5) * (1.0 - std::polar(1.0, angle) * h);
}

// The dilogarithm for |x| <= 1/2.
double small_dilogarithm(double x) {
  double power = x, sum = 0;
  for (int k = 1; k < 60; ++k, power *= x) sum += power / (static_cast<double>(k) * k);
  return sum;
}

}  // namespace

double log_gamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign);
}

double digamma(double x) {
  if (x != x || x == -kInfinity) return kNan;
  if (x == kInfinity) return x;
  if (x <= 0) {
    if (x == std::floor(x)) return kNan;  // a pole
    return digamma(1 - x) - kPi / std::tan(kPi * x);
  }
  double result = 0;
  for (; x < 10; ++x) result -= 1 / x;
  const double y = 1 / (x * x);
  const double tail =
      y * (1.0 / 12 - y * (1.0 / 120 -
                           y * (1.0 / 252 -
                                y * (1.0 / 240 - y * (1.0 / 132 - y * (691.0 / 32760 - y / 12))))));
  return result + std::log(x) - 0.5 / x - tail;
}

double hurwitz_zeta(double x, double q) {
  if (x != x || q != q || x < 1) return kNan;
  if (x == 1) return kInfinity;
  if (q <= 0) {
    if (q == std::floor(q)) return kInfinity;
    if (x != std::floor(x)) return kNan;  // a negative number to a fraction
    if (q < -1e6) return kNan;
  }
  double sum = 0;
  for (int k = 0; k < 10 || q <= 9; ++k, ++q) sum += std::pow(q, -x);
  // The rest as an integral and corrections from its end.
  const double end = std::pow(q, -x);
  sum += end * q / (x - 1) + end / 2;
  double factor = x, power = end / q;
  for (int k = 0; k < 10; ++k) {
    const double term = kBernoulli[k] * factor * power;
    sum += term;
    if (std::abs(term) <= std::abs(sum) * kEpsilon) break;
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2);
    power /= q * q;
  }
  return sum;
}

double polygamma(double n, double x) {
  if (n == 0) return digamma(x);
  if (!(n > 0) || n != std::floor(n)) return kNan;
  const double sign = std::fmod(n, 2) == 0 ? -1 : 1;
  return sign * std::exp(log_gamma(n + 1)) * hurwitz_zeta(n + 1, x);
}

double lower_gamma(double a, double x) {
  if (!(a > 0) || !(x >= 0)) return kNan;
  if (x == 0) return 0;
  if (x == kInfinity) return a == kInfinity ? kNan : 1;
  return x < a + 1 ? lower_series(a, x) : 1 - upper_fraction(a, x);
}

double upper_gamma(double a, double x) {
  if (!(a > 0) || !(x >= 0)) return kNan;
  if (x == 0) return 1;
  if (x == kInfinity) return a == kInfinity ? kNan : 0;
  return x < a + 1 ? 1 - lower_series(a, x) : upper_fraction(a, x);
}

double gamma_sample_by_a(double a, double x) {
  if (!(a > 0) || !(x >= 0) || a == kInfinity) return kNan;
  if (x == 0 || x == kInfinity) return 0;
  if (a > 1e6) return -slope_of_large(a, x);
  return x < a + 1 ? -slope_by_series(a, x) : -slope_by_fraction(a, x);
}

double lower_gamma_by_a(double a, double x) {
  const double sample = gamma_sample_by_a(a, x);
  return sample == 0 || sample != sample ? sample : -sample * gamma_density(a, x) / x;
}

double lower_beta(double a, double b, double x) {
  if (!(a > 0) || !(b > 0) || !(x >= 0 && x <= 1)) return kNan;
  if (x == 0 || x == 1) return x;
  const double front = std::exp(log_gamma(a + b) - log_gamma(a) - log_gamma(b) + a * std::log(x) +
                                b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                   : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double normal_quantile(double p) {
  if (!(p >= 0 && p <= 1)) return kNan;
  if (p == 0 || p == 1) return p == 0 ? -kInfinity : kInfinity;
  return p < 0.5 ? lower_quantile(p) : p == 0.5 ? 0 : -lower_quantile(1 - p);
}

double inverse_erf(double x) {
  const double size = std::abs(x);
  if (!(size <= 1)) return kNan;
  if (size == 1) return x * kInfinity;
  if (size >= 0.5) return std::copysign(lower_quantile((1 - size) / 2) * kSqrtHalf, x);
  // Halley's method from the first terms of the series.
  const double scale = std::sqrt(kPi) / 2;
  double y = x * scale * (1 + kPi / 12 * x * x);
  for (int step = 0; step < 2; ++step) {
    const double ratio = (std::erf(y) - x) * scale * std::exp(y * y);
    y -= ratio / (1 + y * ratio);
  }
  return y;
}

double scaled_bessel(int order, double x) {
  if (x != x) return x;
  const double size = std::abs(x), sign = order == 1 && x < 0 ? -1 : 1;
  if (size == kInfinity) return 0;
  if (size < 20) {
    double term = order == 1 ? size / 2 : 1, sum = term;
    const double square = size * size / 4;
    for (int k = 1; term > sum * kEpsilon; ++k) {
      term *= square / (k * (k + static_cast<double>(order)));
      sum += term;
    }
    return sign * sum * std::exp(-size);
  }
  // The terms of the asymptotic series fall for k < 2 |x|.
  double term = 1, sum = 1;
  for (int k = 1; k < 40 && std::abs(term) > kEpsilon; ++k) {
    const double odd = 2 * k - 1;
    term *= (odd * odd - 4 * order * order) / (8 * k * size);
    sum += term;
  }
  return sign * sum / std::sqrt(2 * kPi * size);
}

double bessel_i(int order, double x) {
  const double scaled = scaled_bessel(order, x);
  if (std::abs(x) == kInfinity) return order == 1 ? x : kInfinity;
  // In two steps: exp(|x|) alone may be infinite where the product is not.
  const double half = std::exp(std::abs(x) / 2);
  return scaled * half * half;
}

double scaled_bessel_k(int order, double x) {
  if (!(x >= 0)) return kNan;
  if (x == 0) return kInfinity;
  if (x == kInfinity) return 0;
  return x <= 2 ? small_bessel_k(order, x) * std::exp(x) : large_bessel_k(order, x);
}

double bessel_j(int order, double x) { return order == 0 ? ::j0(x) : ::j1(x); }

double bessel_y(int order, double x) {
  if (!(x >= 0)) return kNan;
  if (x == 0) return -kInfinity;
  return order == 0 ? ::y0(x) : ::y1(x);
}

double dawson(double x) {
  if (x != x) return x;
  const double square = x * x;
  if (std::abs(x) < 6) {
    double term = x, sum = x;
    for (int k = 1; k < kMostTerms; ++k) {
      term *= square / k;
      const double part = term / (2 * k + 1);
      sum += part;
      if (std::abs(part) <= std::abs(sum) * kEpsilon) break;
    }
    return sum * std::exp(-square);
  }
  // The terms of the asymptotic series fall for k < x^2.
  double term = 1, sum = 1;
  for (int k = 1; k < 36 && term > kEpsilon; ++k) {
    term *= (2 * k - 1) / (2 * square);
    sum += term;
  }
  return sum / (2 * x);
}

double exponential_integral(double x) {
  if (!(x >= 0)) return kNan;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  double term = 1, sum = 0;
  if (x < 40) {
    for (int k = 1; k < kMostTerms; ++k) {
      term *= x / k;
      const double part = term / k;
      sum += part;
      if (part <= sum * kEpsilon) break;
    }
    return kEulerGamma + std::log(x) + sum;
  }
  for (int k = 1; k < 40 && term > kEpsilon; ++k) {
    sum += term;
    term *= k / x;
  }
  return std::exp(x) / x * sum;
}

double fresnel_cosine(double x) {
  return x != x ? x : std::copysign(fresnel(std::abs(x)).real(), x);
}

double fresnel_sine(double x) { return x != x ? x : std::copysign(fresnel(std::abs(x)).imag(), x); }

double spence(double x) {
  if (!(x >= 0)) return kNan;
  if (x == kInfinity) return -kInfinity;
  const double log = std::log(x);
  if (x == 0) return kPi * kPi / 6;
  if (x > 1.5) return -log * log / 2 - spence(1 / x);
  if (x < 0.5) return kPi * kPi / 6 - log * std::log1p(-x) - small_dilogarithm(x);
  return small_dilogarithm(1 - x);
}

}  // namespace millrace
