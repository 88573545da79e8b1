#pragma once

namespace millrace {

// Functions that the C library does not have, to about fourteen digits; NaN outside their domains,
// no value of digamma at its poles. All take and give any double.

// log |gamma(x)|, without the C library's global sign.
double log_gamma(double x);
// Its derivative.
double digamma(double x);
// The sum of (q + k)^-x over k = 0, 1, ..., for x > 1.
double hurwitz_zeta(double x, double q);
// The n-th derivative of digamma, for n = 0, 1, ...
double polygamma(double n, double x);
// The part of the integral of gamma(a) below x, and above; a > 0, x >= 0.
double lower_gamma(double a, double x);
double upper_gamma(double a, double x);
// The derivative of lower_gamma by a.
double lower_gamma_by_a(double a, double x);
// How x, a value drawn from the gamma distribution of a, moves with a when its quantile stays:
// minus lower_gamma_by_a over the density.
double gamma_sample_by_a(double a, double x);
// The part of the integral of beta(a, b) below x; a, b > 0, 0 <= x <= 1.
double lower_beta(double a, double b, double x);
// The inverse of erf, and of the normal distribution function.
double inverse_erf(double x);
double normal_quantile(double p);
// exp(-|x|) times the modified Bessel function of the first kind of order 0 or 1.
double scaled_bessel(int order, double x);
// The same without the factor.
double bessel_i(int order, double x);
// exp(x) times the modified Bessel function of the second kind of order 0 or 1, x >= 0.
double scaled_bessel_k(int order, double x);
// The Bessel functions of the first and second kind of order 0 or 1; the second for x >= 0.
double bessel_j(int order, double x);
double bessel_y(int order, double x);
// exp(-x^2) times the integral of exp(t^2) from 0 to x.
double dawson(double x);
// The integral of exp(t) / t up to x, x >= 0.
double exponential_integral(double x);
// The integrals of cos(pi t^2 / 2) and sin(pi t^2 / 2) from 0 to x.
double fresnel_cosine(double x);
double fresnel_sine(double x);
// The integral of log(t) / (1 - t) from 1 to x, x >= 0: the dilogarithm of 1 - x.
double spence(double x);

}  // namespace millrace
