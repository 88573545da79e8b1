#include "millrace/api/control_flow.h"

#include <memory>

#include "millrace/tensor/leading_dimension.h"

namespace millrace {
namespace {

// Code of a branch as the graph's builders take it.
auto in_scope(const Branch& branch) {
  return [&branch](FunctionBuilder& inside, const std::vector<Expr>&) {
    return branch(Scope(inside));
  };
}

Branch one_result(const std::function<Expr(const Scope&)>& branch) {
  return [&branch](const Scope& scope) { return std::vector<Expr>{branch(scope)}; };
}

Expr first(const std::vector<Expr>& results) { return results.empty() ? Expr() : results[0]; }

// The size of dimension 0 of the elements; -1 when it is not known.
int64_t known_length(const std::vector<Expr>& elements) {
  for (Expr e : elements) {
    PartialShape shape = e.shape();
    if (shape.rank() > 0 && shape.dim_known(0)) return shape.dim(0);
  }
  return -1;
}

// The same as an int32 scalar: a constant where it is known.
Expr length_of(const Scope& scope, const std::vector<Expr>& elements) {
  int64_t length = known_length(elements);
  if (length >= 0) return scope.constant(static_cast<int32_t>(length));
  GraphBuilder& b = scope.builder();
  Expr sizes = shape_of(elements[0]);
  return call("StridedSlice",
              {sizes, int32_vector(b, {0}), int32_vector(b, {1}), int32_vector(b, {1})},
              {{"shrink_axis_mask", int64_t{1}}});
}

// Carries `initial` over the elements and stacks the first results of each step, as many as there
// are `stacked_types`; without any, the carried values after the last step are the result.
std::vector<Expr> over_elements(const Scope& scope, const std::vector<Expr>& elements,
                                const std::vector<Expr>& initial,
                                const std::vector<DType>& stacked_types, const LoopBody& f,
                                const LoopOptions& options, bool reverse, SourceLocation where) {
  GraphBuilder& b = scope.builder();
  size_t num_stacked = stacked_types.size();
  Expr length = length_of(scope, elements);
  std::vector<Expr> lists;
  for (Expr e : elements) {
    lists.push_back(call("TensorListFromTensor", {e, element_shape(b, without_first(e.shape()))}));
  }
  std::vector<Expr> variables = {scope.constant(int32_t{0})};
  variables.insert(variables.end(), initial.begin(), initial.end());
  for (size_t k = 0; k < num_stacked; ++k) {
    variables.push_back(call("TensorListReserve", {b.constant(Tensor::scalar<int32_t>(-1)), length},
                             {{"element_dtype", stacked_types[k]}}));
  }
  if (!scope.ok()) return {};
  size_t first_list = 1 + initial.size();
  std::vector<PartialShape> stacked_shapes(num_stacked);
  LoopOptions loop = options;
  if (!options.shape_invariants.empty()) {
    loop.shape_invariants.insert(loop.shape_invariants.begin(), PartialShape::scalar());
    loop.shape_invariants.resize(variables.size(), PartialShape::scalar());
  }
  std::vector<Expr> out = while_loop(
      scope, variables,
      [&](const Scope&, const std::vector<Expr>& v) { return less(v[0], length); },
      [&](const Scope& s, const std::vector<Expr>& v) {
        Expr at = reverse ? length - v[0] - 1.0 : v[0];
        std::vector<Expr> arguments(v.begin() + 1, v.begin() + static_cast<ptrdiff_t>(first_list));
        for (size_t k = 0; k < elements.size(); ++k) {
          PartialShape shape = without_first(elements[k].shape());
          arguments.push_back(call("TensorListGetItem",
                                   {lists[k], at, element_shape(s.builder(), shape)},
                                   {{"element_dtype", elements[k].dtype()}}));
        }
        std::vector<Expr> made = f(s, arguments);
        size_t expected = initial.empty() ? num_stacked : initial.size();
        if (made.size() != expected) {
          s.builder().fail(
              invalid_argument("expected ", expected, " results of each step, got ", made.size()));
          return std::vector<Expr>();
        }
        std::vector<Expr> next = {v[0] + 1.0};
        if (!initial.empty()) next.insert(next.end(), made.begin(), made.end());
        for (size_t k = 0; k < num_stacked; ++k) {
          Expr own = s.builder().import(made[k]);
          stacked_shapes[k] = own.shape();
          next.push_back(call("TensorListSetItem", {v[first_list + k], v[0], own}));
        }
        return next;
      },
      loop, where);
  if (out.empty()) return {};
  std::vector<Expr> results;
  if (num_stacked == 0) {
    results.assign(out.begin() + 1, out.end());
    return results;
  }
  for (size_t k = 0; k < num_stacked; ++k) {
    results.push_back(
        call("TensorListStack", {out[first_list + k], element_shape(b, stacked_shapes[k])},
             {{"element_dtype", stacked_types[k]}, {"num_elements", known_length(elements)}}));
  }
  return results;
}

bool check_elements(const Scope& scope, const std::vector<Expr>& elements) {
  if (!scope.ok()) return false;
  for (Expr e : elements) {
    if (!e.valid() || e.shape().rank() == 0) {
      scope.builder().fail(
          invalid_argument("expected elements of at least one dimension, got ",
                           e.valid() ? e.shape().to_string() : std::string("no tensor")));
      return false;
    }
  }
  if (!elements.empty()) return true;
  scope.builder().fail(invalid_argument("expected at least one tensor to go over"));
  return false;
}

}  // namespace

std::vector<Expr> cond(const Scope& scope, Expr predicate, const Branch& then_branch,
                       const Branch& else_branch, SourceLocation where) {
  return scope.build(where, [&](GraphBuilder& b) {
    return add_if(b, predicate, in_scope(then_branch), in_scope(else_branch),
                  scope.name_or("cond"));
  });
}

Expr cond(const Scope& scope, Expr predicate, const std::function<Expr(const Scope&)>& then_branch,
          const std::function<Expr(const Scope&)>& else_branch, SourceLocation where) {
  return first(cond(scope, predicate, one_result(then_branch), one_result(else_branch), where));
}

std::vector<Expr> switch_case(const Scope& scope, Expr index, const std::vector<Branch>& branches,
                              SourceLocation where) {
  using Code = decltype(in_scope(branches[0]));
  std::vector<Code> code;
  for (const Branch& branch : branches) code.push_back(in_scope(branch));
  std::vector<BuildFunction> functions(code.begin(), code.end());
  return scope.build(
      where, [&](GraphBuilder& b) { return add_case(b, index, functions, scope.name_or("case")); });
}

std::vector<Expr> while_loop(const Scope& scope, const std::vector<Expr>& initial,
                             const LoopCondition& condition, const LoopBody& body,
                             const LoopOptions& options, SourceLocation where) {
  bool limited = options.maximum_iterations >= 0;
  std::vector<Expr> variables = initial;
  WhileOptions loop;
  loop.name = scope.name_or("while");
  loop.parallel_iterations = options.parallel_iterations;
  loop.shape_invariants = options.shape_invariants;
  if (limited) {
    variables.push_back(scope.constant(int64_t{0}, where));
    if (!loop.shape_invariants.empty()) loop.shape_invariants.push_back(PartialShape::scalar());
  }
  std::vector<Expr> out = scope.build(where, [&](GraphBuilder& b) {
    return add_while(
        b, variables,
        [&](FunctionBuilder& inside, const std::vector<Expr>& v) {
          std::vector<Expr> own(v.begin(), v.begin() + static_cast<ptrdiff_t>(initial.size()));
          Expr go_on = condition(Scope(inside), own);
          if (limited && go_on.valid()) {
            go_on = logical_and(
                go_on, less(v.back(),
                            inside.constant(Tensor::scalar<int64_t>(options.maximum_iterations))));
          }
          return std::vector<Expr>{go_on};
        },
        [&](FunctionBuilder& inside, const std::vector<Expr>& v) {
          std::vector<Expr> own(v.begin(), v.begin() + static_cast<ptrdiff_t>(initial.size()));
          std::vector<Expr> next = body(Scope(inside), own);
          if (limited) next.push_back(v.back() + 1.0);
          return next;
        },
        loop);
  });
  if (limited && !out.empty()) out.pop_back();
  return out;
}

std::vector<Expr> map_fn(const Scope& scope, const std::vector<Expr>& elements, const LoopBody& f,
                         const LoopOptions& options, SourceLocation where) {
  if (!check_elements(scope, elements)) return {};
  // What f gives, found out by building it once aside.
  std::vector<DType> types;
  {
    FunctionBuilder aside(scope.builder());
    std::vector<Expr> arguments;
    for (size_t k = 0; k < elements.size(); ++k) {
      arguments.push_back(aside.add_parameter(str_cat("element_", k), elements[k].dtype(),
                                              {.shape = without_first(elements[k].shape())}));
    }
    std::vector<Expr> made = f(Scope(aside), arguments);
    if (!aside.status().ok()) {
      scope.builder().fail(aside.status());
      return {};
    }
    for (Expr e : made) types.push_back(e.dtype());
  }
  return over_elements(scope, elements, {}, types, f, options, /*reverse=*/false, where);
}

std::vector<Expr> foldl(const Scope& scope, const std::vector<Expr>& elements,
                        const std::vector<Expr>& initial, const LoopBody& f,
                        const LoopOptions& options, SourceLocation where) {
  if (!check_elements(scope, elements)) return {};
  return over_elements(scope, elements, initial, {}, f, options, /*reverse=*/false, where);
}

std::vector<Expr> foldr(const Scope& scope, const std::vector<Expr>& elements,
                        const std::vector<Expr>& initial, const LoopBody& f,
                        const LoopOptions& options, SourceLocation where) {
  if (!check_elements(scope, elements)) return {};
  return over_elements(scope, elements, initial, {}, f, options, /*reverse=*/true, where);
}

std::vector<Expr> scan(const Scope& scope, const std::vector<Expr>& elements,
                       const std::vector<Expr>& initial, const LoopBody& f,
                       const LoopOptions& options, SourceLocation where) {
  if (!check_elements(scope, elements)) return {};
  std::vector<DType> types;
  for (Expr e : initial) types.push_back(e.dtype());
  return over_elements(scope, elements, initial, types, f, options, /*reverse=*/false, where);
}

}  // namespace millrace
