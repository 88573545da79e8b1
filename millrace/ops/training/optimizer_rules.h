#pragma once

#include "millrace/ops/training/adaptive_rules.h"
#include "millrace/ops/training/descent_rules.h"
#include "millrace/ops/training/proximal_rules.h"

// The table of optimisers. An entry has
//
//   info   names, in the order of the op's arguments;
//   Step   what happens to one element (or vector of them): made once per pass from the scalar
//          arguments, then called with the gradient and the slots, which it updates.
//
// apply.cc makes the dense ops of it, sparse_apply.cc the sparse ones, both for reference and for
// resource variables.

namespace millrace {
inline namespace MR_ISA_NAMESPACE {

template <class... Rules>
struct RuleList {};
using OptimizerRules =
    RuleList<GradientDescent, Momentum, KerasMomentum, AddSign, PowerSign, Adagrad, AdagradV2,
             Adadelta, Adam, AdamW, Lamb, AdamWithAmsgrad, AdaMax, RmsProp, CenteredRmsProp,
             ProximalGradientDescent, ProximalAdagrad, AdagradDa, Ftrl, FtrlV2>;

}  // namespace MR_ISA_NAMESPACE
}  // namespace millrace
