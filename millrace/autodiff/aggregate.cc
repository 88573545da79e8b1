#include "millrace/autodiff/aggregate.h"

#include <algorithm>

namespace millrace {

Gradient sum_gradients(const std::vector<Gradient>& gradients) {
  if (gradients.empty()) return {};
  if (gradients.size() == 1) return gradients[0];
  if (std::all_of(gradients.begin(), gradients.end(),
                  [](const Gradient& g) { return g.is_slices(); })) {
    std::vector<Expr> values, indices;
    DType index_type = DType::kInt32;
    for (const Gradient& g : gradients) {
      if (g.indices.dtype() == DType::kInt64) index_type = DType::kInt64;
    }
    for (const Gradient& g : gradients) {
      values.push_back(g.values);
      indices.push_back(cast(g.indices, index_type));
    }
    return {concat(values, 0), concat(indices, 0), gradients[0].dense_shape};
  }
  std::vector<Expr> dense;
  for (const Gradient& g : gradients) dense.push_back(to_dense(g));
  return {call("AddN", dense), {}, {}};
}

}  // namespace millrace
