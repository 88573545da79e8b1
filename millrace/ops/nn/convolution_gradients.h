#pragma once

#include "millrace/graph/gradient.h"

namespace millrace {

// The gradients of a convolution and of its two backward ops, which are one trilinear form in
// image, filter and output gradient: the gradient of each product is the other two. `Family` has
// the ops' names, kForward(x, filter), kBackwardInput(shape of x, filter, dy) and
// kBackwardFilter(x, shape of filter, dy), and kAttrs, the attributes that all three share.
template <class Family>
struct ConvolutionGradients {
  static Status of_forward(GradientContext& c) {
    const Expr x = c.input(0), filter = c.input(1), dy = c.gradient();
    c.set(0, backward_input(c, x, filter, dy));
    c.set(1, backward_filter(c, x, filter, dy));
    return ok_status();
  }
  static Status of_backward_input(GradientContext& c) {
    const Expr filter = c.input(1), dy = c.input(2), g = c.gradient();
    c.set(1, backward_filter(c, g, filter, dy));
    c.set(2, forward(c, g, filter));
    return ok_status();
  }
  static Status of_backward_filter(GradientContext& c) {
    const Expr x = c.input(0), dy = c.input(2), g = c.gradient();
    c.set(0, backward_input(c, x, g, dy));
    c.set(2, forward(c, x, g));
    return ok_status();
  }

 private:
  static AttrMap attrs(const GradientContext& c) {
    AttrMap out;
    for (const char* name : Family::kAttrs) out.set(name, c.attr_value(name));
    return out;
  }
  static Expr forward(const GradientContext& c, Expr x, Expr filter) {
    return call(Family::kForward, {x, filter}, attrs(c));
  }
  static Expr backward_input(const GradientContext& c, Expr x, Expr filter, Expr dy) {
    return call(Family::kBackwardInput, {shape_of(x), filter, dy}, attrs(c));
  }
  static Expr backward_filter(const GradientContext& c, Expr x, Expr filter, Expr dy) {
    return call(Family::kBackwardFilter, {x, shape_of(filter), dy}, attrs(c));
  }
};

}  // namespace millrace
