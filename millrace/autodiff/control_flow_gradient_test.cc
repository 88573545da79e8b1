// Gradients of branches and loops against the same computation written out, first and second order.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "millrace/api/client_session.h"
#include "millrace/api/control_flow.h"
#include "millrace/api/ops.h"
#include "millrace/autodiff/derivatives_testing.h"
#include "millrace/autodiff/gradients.h"
#include "millrace/graph/functional_builders.h"

namespace millrace {
namespace {

// One case: y as a function of xs (double tensors), with structured control flow and without.
struct Case {
  std::string name;
  std::vector<Tensor> xs;
  ScalarProgram structured;
  ScalarProgram unrolled;
};

Tensor vec(std::initializer_list<double> values) { return Tensor::vector<double>(values); }
Tensor num(double value) { return Tensor::scalar<double>(value); }

Expr i32(const Scope& s, int32_t v) { return s.constant(v); }
Expr f64(const Scope& s, double v) { return s.constant(v); }

// while (i < n) with i counted for the body: body(s, i, variables).
using Body = std::function<Exprs(const Scope&, Expr, const Exprs&)>;
Exprs count_loop(const Scope& s, Expr n, const Exprs& start, const Body& body) {
  Exprs initial = {i32(s, 0)};
  initial.insert(initial.end(), start.begin(), start.end());
  Exprs out = while_loop(
      s, initial, [&](const Scope& c, const Exprs& v) { return ops::less(c, v[0], n); },
      [&](const Scope& c, const Exprs& v) {
        Exprs next = body(c, v[0], Exprs(v.begin() + 1, v.end()));
        next.insert(next.begin(), v[0] + 1.0);
        return next;
      });
  return out.empty() ? out : Exprs(out.begin() + 1, out.end());
}

Expr one(const Exprs& e) { return e.empty() ? Expr() : e[0]; }

std::vector<Case> cases() {
  std::vector<Case> all;
  auto add = [&](std::string name, std::vector<Tensor> xs, ScalarProgram structured,
                 ScalarProgram unrolled) {
    all.push_back({std::move(name), std::move(xs), std::move(structured), std::move(unrolled)});
  };

  // Branches.
  for (double x0 : {-1.5, 2.0}) {
    add(
        x0 < 0 ? "IfThen" : "IfElse", {num(x0)},
        [](const Scope& s, const Exprs& x) {
          return cond(
              s, ops::less(s, x[0], f64(s, 0)),
              [&](const Scope& t) { return ops::sin(t, x[0]) * x[0]; },
              [&](const Scope& t) { return ops::exp(t, x[0]); });
        },
        [x0](const Scope& s, const Exprs& x) {
          return x0 < 0 ? ops::sin(s, x[0]) * x[0] : ops::exp(s, x[0]);
        });
    add(
        x0 < 0 ? "IfOneBranchIgnoresX" : "IfOtherBranchIgnoresX", {num(x0), vec({1, 2})},
        [](const Scope& s, const Exprs& x) {
          return cond(
              s, ops::less(s, x[0], f64(s, 0)),
              [&](const Scope& t) { return ops::square(t, x[1]); },
              [&](const Scope& t) { return ops::mul(t, x[0], ops::tanh(t, x[1])); });
        },
        [x0](const Scope& s, const Exprs& x) {
          return x0 < 0 ? ops::square(s, x[1]) : ops::mul(s, x[0], ops::tanh(s, x[1]));
        });
    add(
        x0 < 0 ? "NestedIfInner" : "NestedIfOuter", {num(x0), num(0.5)},
        [](const Scope& s, const Exprs& x) {
          return cond(
              s, ops::less(s, x[0], f64(s, 0)),
              [&](const Scope& t) {
                return cond(
                    t, ops::greater(t, x[1], f64(t, 0)),
                    [&](const Scope& u) { return ops::exp(u, x[1]) * x[0]; },
                    [&](const Scope& u) { return ops::sin(u, x[1]); });
              },
              [&](const Scope& t) { return ops::log(t, x[0]) * x[1]; });
        },
        [x0](const Scope& s, const Exprs& x) {
          return x0 < 0 ? ops::exp(s, x[1]) * x[0] : ops::log(s, x[0]) * x[1];
        });
  }
  add(
      "IfWithTwoResults", {num(0.7)},
      [](const Scope& s, const Exprs& x) {
        Exprs r = cond(
            s, s.constant(true),
            Branch([&](const Scope& t) { return Exprs{ops::sin(t, x[0]), ops::cos(t, x[0])}; }),
            Branch([&](const Scope& t) { return Exprs{ops::cos(t, x[0]), ops::exp(t, x[0])}; }));
        return r.empty() ? Expr() : r[0] * r[1];
      },
      [](const Scope& s, const Exprs& x) { return ops::sin(s, x[0]) * ops::cos(s, x[0]); });
  add(
      "IfReturnsItsInput", {vec({1, 2})},
      [](const Scope& s, const Exprs& x) {
        Expr r = cond(
            s, s.constant(false), [&](const Scope& t) { return ops::neg(t, x[0]); },
            [&](const Scope&) { return x[0]; });
        return ops::square(s, r);
      },
      [](const Scope& s, const Exprs& x) { return ops::square(s, x[0]); });
  add(
      "IfConstantBranch", {vec({1, 2})},
      [](const Scope& s, const Exprs& x) {
        Expr r = cond(
            s, s.constant(false), [&](const Scope& t) { return ops::neg(t, x[0]); },
            [&](const Scope& t) { return t.constant(vec({3, 4})); });
        return ops::mul(s, r, x[0]);
      },
      [](const Scope& s, const Exprs& x) { return ops::mul(s, s.constant(vec({3, 4})), x[0]); });
  for (int32_t branch : {-1, 0, 1, 2, 7}) {
    add(
        str_cat("Case", branch < 0 ? "Negative" : str_cat(branch)), {vec({0.3, 0.6})},
        [branch](const Scope& s, const Exprs& x) {
          Expr index = ops::placeholder_with_default(s, i32(s, branch), PartialShape({}));
          return one(switch_case(
              s, index,
              {[&](const Scope& t) { return Exprs{ops::sin(t, x[0])}; },
               [&](const Scope& t) { return Exprs{ops::exp(t, x[0]) * x[0]}; },
               [&](const Scope& t) { return Exprs{ops::square(t, ops::tanh(t, x[0]))}; }}));
        },
        [branch](const Scope& s, const Exprs& x) {
          if (branch == 0) return ops::sin(s, x[0]);
          if (branch == 1) return ops::exp(s, x[0]) * x[0];
          return ops::square(s, ops::tanh(s, x[0]));
        });
  }

  // Loops.
  for (int32_t n : {0, 1, 5}) {
    add(
        str_cat("Power", n), {num(1.1)},
        [n](const Scope& s, const Exprs& x) {
          return one(count_loop(s, i32(s, n), {x[0]}, [&](const Scope&, Expr, const Exprs& v) {
            return Exprs{v[0] * x[0]};
          }));
        },
        [n](const Scope&, const Exprs& x) {
          Expr y = x[0];
          for (int i = 0; i < n; ++i) y = y * x[0];
          return y;
        });
  }
  add(
      "Tanh", {vec({0.2, -0.4, 1.0})},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 4), {x[0]}, [&](const Scope& t, Expr, const Exprs& v) {
          return Exprs{ops::tanh(t, v[0] * 1.5)};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 4; ++i) y = ops::tanh(s, y * 1.5);
        return y;
      });
  add(
      "TripCountFromData", {num(5.0)},
      [](const Scope& s, const Exprs& x) {
        Exprs out = while_loop(
            s, {x[0]},
            [&](const Scope& t, const Exprs& v) { return ops::greater(t, v[0], f64(t, 1)); },
            [&](const Scope&, const Exprs& v) { return Exprs{v[0] * 0.5 * v[0] / (v[0] + 0.1)}; });
        return one(out);
      },
      [](const Scope&, const Exprs& x) {
        double value = 5.0;
        Expr y = x[0];
        while (value > 1) {
          value = value * 0.5 * value / (value + 0.1);
          y = y * 0.5 * y / (y + 0.1);
        }
        return y;
      });
  add(
      "TwoVariables", {num(0.3), num(1.2)},
      [](const Scope& s, const Exprs& x) {
        Exprs out =
            count_loop(s, i32(s, 3), {x[0], x[1]}, [&](const Scope& t, Expr, const Exprs& v) {
              return Exprs{v[1] * v[0], ops::sin(t, v[0])};
            });
        return out.empty() ? Expr() : out[0] + out[1];
      },
      [](const Scope& s, const Exprs& x) {
        Expr a = x[0], b = x[1];
        for (int i = 0; i < 3; ++i) {
          Expr next = b * a;
          b = ops::sin(s, a);
          a = next;
        }
        return a + b;
      });
  add(
      "Swap", {num(0.3), num(1.2)},
      [](const Scope& s, const Exprs& x) {
        Exprs out = count_loop(s, i32(s, 3), {x[0], x[1]}, [&](const Scope&, Expr, const Exprs& v) {
          return Exprs{v[1], v[0]};
        });
        return out.empty() ? Expr() : ops::exp(s, out[0]) * out[1];
      },
      [](const Scope& s, const Exprs& x) { return ops::exp(s, x[1]) * x[0]; });
  add(
      "OnlySecondExitUsed", {num(0.3), num(1.2)},
      [](const Scope& s, const Exprs& x) {
        Exprs out =
            count_loop(s, i32(s, 3), {x[0], x[1]}, [&](const Scope& t, Expr, const Exprs& v) {
              return Exprs{ops::exp(t, v[0]) * 0.5, v[1] * v[0]};
            });
        return out.empty() ? Expr() : out[1];
      },
      [](const Scope& s, const Exprs& x) {
        Expr a = x[0], b = x[1];
        for (int i = 0; i < 3; ++i) {
          b = b * a;
          a = ops::exp(s, a) * 0.5;
        }
        return b;
      });
  add(
      "InvariantMatrix", {vec({0.1, 0.2}), Tensor::of<double>({2, 2}, {0.5, -0.3, 0.8, 0.1})},
      [](const Scope& s, const Exprs& x) {
        Expr row = ops::expand_dims(s, x[0], i32(s, 0));
        return one(count_loop(s, i32(s, 4), {row}, [&](const Scope& t, Expr, const Exprs& v) {
          return Exprs{ops::tanh(t, ops::mat_mul(t, v[0], x[1]))};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = ops::expand_dims(s, x[0], i32(s, 0));
        for (int i = 0; i < 4; ++i) y = ops::tanh(s, ops::mat_mul(s, y, x[1]));
        return y;
      });
  add(
      "InvariantPassedAsVariable", {num(0.4), num(0.9)},
      [](const Scope& s, const Exprs& x) {
        Exprs out = count_loop(s, i32(s, 3), {x[0], x[1]}, [&](const Scope&, Expr, const Exprs& v) {
          return Exprs{v[0] * v[1], v[1]};
        });
        return out.empty() ? Expr() : out[0] * out[1];
      },
      [](const Scope&, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 3; ++i) y = y * x[1];
        return y * x[1];
      });
  add(
      "CounterInTheMaths", {num(0.4)},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 4), {x[0]}, [&](const Scope& t, Expr i, const Exprs& v) {
          return Exprs{v[0] * x[0] + ops::cast(t, i, DType::kDouble)};
        }));
      },
      [](const Scope&, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 4; ++i) y = y * x[0] + static_cast<double>(i);
        return y;
      });
  add(
      "BooleanVariable", {num(0.4)},
      [](const Scope& s, const Exprs& x) {
        Exprs out = while_loop(
            s, {s.constant(true), i32(s, 0), x[0]},
            [&](const Scope&, const Exprs& v) { return v[0]; },
            [&](const Scope& t, const Exprs& v) {
              return Exprs{ops::less(t, v[1], i32(t, 3)), v[1] + 1.0, ops::sin(t, v[2]) + x[0]};
            });
        return out.empty() ? Expr() : out[2];
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 4; ++i) y = ops::sin(s, y) + x[0];
        return y;
      });
  add(
      "ConstantReplacesVariable", {num(0.4)},
      [](const Scope& s, const Exprs& x) {
        Exprs out =
            count_loop(s, i32(s, 3), {x[0], x[0]}, [&](const Scope& t, Expr, const Exprs& v) {
              return Exprs{f64(t, 2), v[0] * v[1] * x[0]};
            });
        return out.empty() ? Expr() : out[1] + out[0];
      },
      [](const Scope& s, const Exprs& x) {
        Expr a = x[0], b = x[0];
        for (int i = 0; i < 3; ++i) {
          b = a * b * x[0];
          a = f64(s, 2);
        }
        return b + a;
      });
  add(
      "StopGradientInside", {num(0.4)},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 3), {x[0]}, [&](const Scope& t, Expr, const Exprs& v) {
          return Exprs{v[0] * ops::stop_gradient(t, ops::exp(t, v[0])) + x[0]};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 3; ++i) y = y * ops::stop_gradient(s, ops::exp(s, y)) + x[0];
        return y;
      });

  // Nested.
  add(
      "NestedLoops", {num(0.6)},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 3), {x[0]}, [&](const Scope& t, Expr, const Exprs& v) {
          return Exprs{one(count_loop(t, i32(t, 2), v, [&](const Scope& u, Expr, const Exprs& w) {
            return Exprs{ops::sin(u, w[0]) * x[0]};
          }))};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 6; ++i) y = ops::sin(s, y) * x[0];
        return y;
      });
  add(
      "NestedLoopOfChangingLength", {num(0.6)},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 4), {x[0]}, [&](const Scope& t, Expr i, const Exprs& v) {
          return Exprs{one(count_loop(t, i, v, [&](const Scope& u, Expr, const Exprs& w) {
            return Exprs{ops::tanh(u, w[0]) + x[0] * w[0]};
          }))};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 4; ++i) {
          for (int k = 0; k < i; ++k) y = ops::tanh(s, y) + x[0] * y;
        }
        return y;
      });
  add(
      "ThreeLoopsDeep", {num(0.5)},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 2), {x[0]}, [&](const Scope& t, Expr, const Exprs& v) {
          return Exprs{one(count_loop(t, i32(t, 2), v, [&](const Scope& u, Expr, const Exprs& w) {
            return Exprs{one(count_loop(u, i32(u, 2), w, [&](const Scope& c, Expr, const Exprs& z) {
              return Exprs{ops::sin(c, z[0]) + x[0] * z[0]};
            }))};
          }))};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 8; ++i) y = ops::sin(s, y) + x[0] * y;
        return y;
      });
  add(
      "IfInLoop", {num(0.9), num(0.5)},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 5), {x[0]}, [&](const Scope& t, Expr i, const Exprs& v) {
          Expr odd = ops::equal(t, ops::floor_mod(t, i, i32(t, 2)), i32(t, 1));
          return Exprs{cond(
              t, odd, [&](const Scope& u) { return ops::sin(u, v[0]) * x[1]; },
              [&](const Scope& u) { return ops::exp(u, v[0] * 0.1) + x[0]; })};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 5; ++i) {
          y = i % 2 == 1 ? ops::sin(s, y) * x[1] : ops::exp(s, y * 0.1) + x[0];
        }
        return y;
      });
  add(
      "IfOnInvariantInLoop", {num(0.9)},
      [](const Scope& s, const Exprs& x) {
        Expr flag = ops::greater(s, x[0], f64(s, 0));
        return one(count_loop(s, i32(s, 3), {x[0]}, [&](const Scope& t, Expr, const Exprs& v) {
          return Exprs{cond(
              t, flag, [&](const Scope& u) { return ops::sin(u, v[0]) + x[0]; },
              [&](const Scope& u) { return f64(u, 1); })};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 3; ++i) y = ops::sin(s, y) + x[0];
        return y;
      });
  add(
      "CaseInLoop", {num(0.9)},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 4), {x[0]}, [&](const Scope& t, Expr i, const Exprs& v) {
          return switch_case(t, i,
                             {[&](const Scope& u) { return Exprs{ops::sin(u, v[0])}; },
                              [&](const Scope&) { return Exprs{v[0] * v[0]}; },
                              [&](const Scope&) { return Exprs{v[0] + x[0]}; }});
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = ops::sin(s, x[0]);
        y = y * y;
        return y + x[0] + x[0];
      });
  for (double x0 : {0.8, -0.8}) {
    add(
        x0 > 0 ? "LoopInIfTaken" : "LoopInIfNotTaken", {num(x0)},
        [](const Scope& s, const Exprs& x) {
          return cond(
              s, ops::greater(s, x[0], f64(s, 0)),
              [&](const Scope& t) {
                return one(
                    count_loop(t, i32(t, 3), {x[0]}, [&](const Scope& u, Expr, const Exprs& v) {
                      return Exprs{ops::exp(u, v[0]) * 0.3 + x[0]};
                    }));
              },
              [&](const Scope& t) { return ops::square(t, x[0]); });
        },
        [x0](const Scope& s, const Exprs& x) {
          if (x0 < 0) return ops::square(s, x[0]);
          Expr y = x[0];
          for (int i = 0; i < 3; ++i) y = ops::exp(s, y) * 0.3 + x[0];
          return y;
        });
  }
  add(
      "LoopAfterLoop", {num(0.4)},
      [](const Scope& s, const Exprs& x) {
        auto step = [&](const Scope& t, Expr, const Exprs& v) {
          return Exprs{ops::sin(t, v[0]) + x[0]};
        };
        Exprs a = count_loop(s, i32(s, 2), {x[0]}, step);
        return one(count_loop(s, i32(s, 3), a, step));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[0];
        for (int i = 0; i < 5; ++i) y = ops::sin(s, y) + x[0];
        return y;
      });

  // Loops over elements, and lists.
  add(
      "Map", {Tensor::of<double>({3, 2}, {1, 2, 3, 4, 5, 6}), num(0.5)},
      [](const Scope& s, const Exprs& x) {
        return one(map_fn(s, {x[0]}, [&](const Scope& t, const Exprs& e) {
          return Exprs{ops::sin(t, e[0]) * x[1]};
        }));
      },
      [](const Scope& s, const Exprs& x) { return ops::sin(s, x[0]) * x[1]; });
  add(
      "MapTwoResults", {vec({1, 2, 3}), vec({4, 5, 6})},
      [](const Scope& s, const Exprs& x) {
        Exprs r = map_fn(s, {x[0], x[1]}, [&](const Scope& t, const Exprs& e) {
          return Exprs{e[0] * e[1], ops::exp(t, e[0] * 0.1)};
        });
        return r.empty() ? Expr() : r[0] * r[1];
      },
      [](const Scope& s, const Exprs& x) { return x[0] * x[1] * ops::exp(s, x[0] * 0.1); });
  add(
      "Fold", {vec({0.5, 0.6, 0.7}), num(0.5)},
      [](const Scope& s, const Exprs& x) {
        return one(foldl(s, {x[0]}, {x[1]}, [&](const Scope& t, const Exprs& e) {
          return Exprs{ops::sin(t, e[0]) * e[1]};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[1];
        for (int i = 0; i < 3; ++i) y = ops::sin(s, y) * ops::gather(s, x[0], i32(s, i));
        return y;
      });
  add(
      "FoldFromTheRight", {vec({0.5, 0.6, 0.7}), num(0.5)},
      [](const Scope& s, const Exprs& x) {
        return one(foldr(s, {x[0]}, {x[1]}, [&](const Scope& t, const Exprs& e) {
          return Exprs{ops::sin(t, e[0]) * e[1]};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[1];
        for (int i = 2; i >= 0; --i) y = ops::sin(s, y) * ops::gather(s, x[0], i32(s, i));
        return y;
      });
  add(
      "Scan", {vec({0.5, 0.6, 0.7}), num(0.5)},
      [](const Scope& s, const Exprs& x) {
        return one(scan(s, {x[0]}, {x[1]}, [&](const Scope& t, const Exprs& e) {
          return Exprs{ops::sin(t, e[0]) + e[1] * e[0]};
        }));
      },
      [](const Scope& s, const Exprs& x) {
        Expr y = x[1];
        Exprs all;
        for (int i = 0; i < 3; ++i) {
          Expr e = ops::gather(s, x[0], i32(s, i));
          y = ops::sin(s, y) + e * y;
          all.push_back(y);
        }
        return ops::pack(s, all);
      });
  add(
      "MapInLoop", {vec({0.5, 0.6})},
      [](const Scope& s, const Exprs& x) {
        return one(count_loop(s, i32(s, 2), {x[0]}, [&](const Scope& t, Expr, const Exprs& v) {
          return map_fn(t, {v[0]},
                        [&](const Scope& u, const Exprs& e) { return Exprs{ops::sin(u, e[0])}; });
        }));
      },
      [](const Scope& s, const Exprs& x) { return ops::sin(s, ops::sin(s, x[0])); });
  add(
      "GatherInLoop", {Tensor::of<double>({3, 2}, {1, 2, 3, 4, 5, 6})},
      [](const Scope& s, const Exprs& x) {
        Expr zero = s.constant(vec({0, 0}));
        return one(count_loop(s, i32(s, 3), {zero}, [&](const Scope& t, Expr i, const Exprs& v) {
          return Exprs{v[0] + ops::square(t, ops::gather(t, x[0], i))};
        }));
      },
      [](const Scope& s, const Exprs& x) { return ops::sum(s, ops::square(s, x[0]), i32(s, 0)); });
  add(
      "PushAndPop", {vec({0.5, 0.6}), vec({0.1, 0.2})},
      [](const Scope& s, const Exprs& x) {
        Expr shape = s.constant(Tensor::vector<int32_t>({2}));
        Expr list = ops::empty_tensor_list(s, shape, i32(s, -1), DType::kDouble);
        list = ops::tensor_list_push_back(s, list, ops::sin(s, x[0]));
        list = ops::tensor_list_push_back(s, list, ops::exp(s, x[1]));
        auto popped = ops::tensor_list_pop_back(s, list, shape, DType::kDouble);
        auto again = ops::tensor_list_pop_back(s, popped.output_handle, shape, DType::kDouble);
        return popped.tensor * again.tensor;
      },
      [](const Scope& s, const Exprs& x) { return ops::sin(s, x[0]) * ops::exp(s, x[1]); });
  add(
      "ListsInLoop", {vec({0.5, 0.6, 0.7})},
      [](const Scope& s, const Exprs& x) {
        Expr scalar = s.constant(Tensor::vector<int32_t>({}));
        Expr list = ops::empty_tensor_list(s, scalar, i32(s, -1), DType::kDouble);
        Exprs out = count_loop(s, i32(s, 3), {list}, [&](const Scope& t, Expr i, const Exprs& v) {
          Expr e = ops::gather(t, x[0], i);
          return Exprs{ops::tensor_list_push_back(t, v[0], ops::sin(t, e) * e)};
        });
        return out.empty()
                   ? Expr()
                   : ops::square(s, ops::tensor_list_stack(s, out[0], scalar, DType::kDouble));
      },
      [](const Scope& s, const Exprs& x) { return ops::square(s, ops::sin(s, x[0]) * x[0]); });
  // A recurrent layer: the gradient of its weights is a sum of products, one of each iteration.
  for (const int32_t trips : {0, 1, 4}) {
    for (const bool transposed : {false, true}) {
      const auto layer = [transposed](Expr h, Expr weights) {
        return tanh(matmul(h, weights, false, transposed)) * 0.5 + h;
      };
      add(
          str_cat("Recurrent", transposed ? "Transposed" : "", trips),
          {Tensor::of<double>({2, 3}, {0.3, -0.1, 0.4, 0.2, 0.5, -0.6}),
           Tensor::of<double>({3, 3}, {0.1, 0.2, -0.3, 0.4, 0.5, 0.6, -0.7, 0.8, 0.9})},
          [=](const Scope& s, const Exprs& x) {
            return one(count_loop(s, i32(s, trips), {x[0]},
                                  [&](const Scope&, Expr, const Exprs& v) {
                                    return Exprs{layer(v[0], x[1])};
                                  })) *
                   2.0;
          },
          [=](const Scope&, const Exprs& x) {
            Expr h = x[0];
            for (int32_t i = 0; i < trips; ++i) h = layer(h, x[1]);
            return h * 2.0;
          });
    }
  }
  return all;
}

class ControlFlowGradients : public testing::TestWithParam<int> {
 protected:
  static const std::vector<Case>& all() {
    static const std::vector<Case>& c = *new std::vector<Case>(cases());
    return c;
  }
  const Case& current() const { return all()[static_cast<size_t>(GetParam())]; }

  void compare(int order, bool recompute) {
    const Case& c = current();
    Result<Derivatives> structured = evaluate_derivatives(c.xs, c.structured, order, recompute);
    ASSERT_TRUE(structured.ok()) << c.name << ": " << structured.status().to_string();
    Result<Derivatives> unrolled = evaluate_derivatives(c.xs, c.unrolled, order);
    ASSERT_TRUE(unrolled.ok()) << c.name << ": " << unrolled.status().to_string();
    expect_same_derivatives(*structured, *unrolled, str_cat(c.name, " order ", order));
  }
};

TEST_P(ControlFlowGradients, Value) { compare(0, false); }
TEST_P(ControlFlowGradients, FirstOrder) { compare(1, false); }
TEST_P(ControlFlowGradients, SecondOrder) { compare(2, false); }
TEST_P(ControlFlowGradients, FirstOrderRecomputed) { compare(1, true); }

INSTANTIATE_TEST_SUITE_P(All, ControlFlowGradients,
                         testing::Range(0, static_cast<int>(cases().size())),
                         [](const testing::TestParamInfo<int>& info) {
                           static const std::vector<Case>& c = *new std::vector<Case>(cases());
                           return c[static_cast<size_t>(info.param)].name;
                         });

TEST(ControlFlowGradients, AreFortyCases) { EXPECT_GE(cases().size(), 40u); }

// The graph is as large for a thousand iterations as for two.
TEST(ControlFlowGradients, GraphSizeDoesNotDependOnTheTripCount) {
  auto nodes = [](int32_t n) {
    ScalarProgram program = [n](const Scope& s, const Exprs& x) {
      return one(count_loop(s, i32(s, n), {x[0]}, [&](const Scope& t, Expr, const Exprs& v) {
        return Exprs{ops::sin(t, v[0]) + x[0]};
      }));
    };
    return evaluate_derivatives({num(0.5)}, program, 2).value().nodes;
  };
  EXPECT_EQ(nodes(2), nodes(1000));
}

// The gradient of a recurrent layer's weights is multiplied once, after the loop: the body has the
// gradient of the state alone.
TEST(GradientsOfLoops, MultiplyWhatTheyCollectedOnce) {
  const auto products_in_body = [](int64_t rows, bool gated = false) {
    const Scope s = Scope::make_root();
    const Expr h = ops::placeholder_v2(s, DType::kFloat, PartialShape{rows, 8});
    const Expr weights = ops::placeholder_v2(s, DType::kFloat, PartialShape{8, 8});
    const Expr out = one(count_loop(s, i32(s, 3), {h}, [&](const Scope&, Expr, const Exprs& v) {
      return Exprs{tanh(matmul(v[0], weights))};
    }));
    const auto found = gradients(s.builder(), std::vector<Expr>{out}, std::vector<Expr>{weights},
                                 {}, {.gate_operations = gated});
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ((*found)[0].values.shape(), (PartialShape{8, 8}));
    const Graph& graph = s.builder().graph();
    int products = 0;
    for (NodeId id = 0; id < graph.num_nodes(); ++id) {
      const Result<FunctionAttr> body = graph.node(id).attr<FunctionAttr>("body");
      if (!body.ok()) continue;
      const Ref<Function> function = s.builder().graph().functions().find(body->name);
      for (const Function::BodyNode& node : function->nodes) products += node.op == "MatMul";
    }
    return products;
  };
  // One in the loop, one in its gradient; where lists would be larger than the sum, another.
  EXPECT_EQ(products_in_body(2), 2);
  EXPECT_EQ(products_in_body(9), 3);
  EXPECT_EQ(products_in_body(2, true), 2);
}

// What comes out of a body waits for all that does: nothing in it still reads what the weights'
// gradient then changes.
TEST(GradientsOfLoops, AreGatedTogether) {
  const Scope s = Scope::make_root();
  const Expr h = ops::placeholder_v2(s, DType::kFloat, PartialShape{2, 8});
  const Expr weights = ops::placeholder_v2(s, DType::kFloat, PartialShape{8, 8});
  const auto step = [&](const Scope&, Expr, const Exprs& v) {
    return Exprs{tanh(matmul(v[0], weights))};
  };
  const Expr out = one(count_loop(s, i32(s, 3), {h}, step));
  const Expr branch = one(cond(
      s, s.constant(true), [&](const Scope&) { return Exprs{matmul(out, weights)}; },
      [&](const Scope&) { return Exprs{out}; }));
  const auto found = gradients(s.builder(), std::vector<Expr>{branch},
                               std::vector<Expr>{weights, h}, {}, {.gate_operations = true});
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const Graph& graph = s.builder().graph();
  const auto groups_in = [&](NodeId id, const char* attr) {
    const Result<FunctionAttr> body = graph.node(id).attr<FunctionAttr>(attr);
    if (!body.ok()) return 0;
    int groups = 0;
    for (const Function::BodyNode& node : s.builder().graph().functions().find(body->name)->nodes) {
      groups += node.op == "NoOp";
    }
    return groups;
  };
  int in_loops = 0, in_branches = 0;
  for (NodeId id = 0; id < graph.num_nodes(); ++id) {
    in_loops += groups_in(id, "body");
    in_branches += groups_in(id, "then_branch");
  }
  EXPECT_EQ(in_loops, 1);
  EXPECT_EQ(in_branches, 1);
}

// A gradient that is computed in a branch, of what was drawn outside.
TEST(GradientsInABranch, UseTheValuesOutside) {
  Scope s = Scope::make_root();
  Expr x = s.constant(Tensor::vector<double>({2, 2, 2, 2}));
  Expr noise = call("RandomUniform", {s.constant(Tensor::vector<int32_t>({4}))},
                    {{"dtype", DType::kDouble}});
  Expr noise_after_loop = one(count_loop(s, i32(s, 3), {noise}, [](const Scope&, Expr, Exprs v) {
    return Exprs{v[0] * call("RandomUniform", {shape_of(v[0])}, {{"dtype", DType::kDouble}})};
  }));
  Expr y = x * noise_after_loop;
  Expr inside = cond(
      s, s.constant(true),
      [&](const Scope& t) {
        return cond(
            t, s.constant(true),
            [&](const Scope& u) {
              auto found = gradients(u.builder(), std::vector<Expr>{y}, std::vector<Expr>{x});
              if (!found.ok()) u.builder().fail(found.status());
              return found.ok() ? (*found)[0].values : Expr();
            },
            [&](const Scope&) { return x; });
      },
      [&](const Scope&) { return x; });
  ASSERT_TRUE(s.ok()) << s.status().to_string();
  auto session = ClientSession::create(s);
  ASSERT_TRUE(session.ok()) << session.status().to_string();
  Result<std::vector<Tensor>> got = session->run({}, {inside * 2.0, y});
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_TRUE(bit_equal((*got)[0], (*got)[1]));
}

// What was drawn in a body that runs again for its gradient is not drawn again.
TEST(RecomputedBody, DrawsOnce) {
  for (bool nested : {false, true}) {
    Scope s = Scope::make_root();
    Expr x = s.constant(Tensor::vector<double>({1, 1, 1, 1}));
    const auto times_noise = [](Expr v) {
      return v * call("RandomUniform", {shape_of(v)}, {{"dtype", DType::kDouble}});
    };
    Expr y = one(count_loop(s, i32(s, 3), {x}, [&](const Scope& c, Expr, Exprs v) {
      if (!nested) return Exprs{times_noise(v[0])};
      return Exprs{cond(
          c, s.constant(true),
          [&](const Scope& t) { return times_noise(t.builder().import(v[0])); },
          [&](const Scope&) { return v[0]; })};
    }));
    auto found =
        gradients(s.builder(), std::vector<Expr>{y}, std::vector<Expr>{x}, {}, {.recompute = true});
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    auto session = ClientSession::create(s);
    ASSERT_TRUE(session.ok()) << session.status().to_string();
    Result<std::vector<Tensor>> got = session->run({}, {(*found)[0].values, y});
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR((*got)[0].data<double>()[i], (*got)[1].data<double>()[i], 1e-12) << nested;
    }
  }
}

}  // namespace
}  // namespace millrace
