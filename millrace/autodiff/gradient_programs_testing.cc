#include "millrace/autodiff/gradient_programs_testing.h"

#include "millrace/api/ops.h"
#include "millrace/ops/math/math_testing.h"

namespace millrace {
namespace {

using Exprs = std::vector<Expr>;
using Tensors = Program::Tensors;

Expr scalar(const Scope& s, int32_t value) { return s.constant(value); }
Expr vector(const Scope& s, std::initializer_list<int32_t> values) {
  return s.constant(Tensor::vector<int32_t>(values));
}
Expr longs(const Scope& s, std::initializer_list<int64_t> values) {
  return s.constant(Tensor::vector<int64_t>(values));
}

// Points of these shapes.
std::vector<Tensor> points(std::initializer_list<Shape> shapes) {
  std::vector<Tensor> out;
  for (const Shape& shape : shapes) {
    std::vector<Complex128> values;
    for (double v : spread_numbers(static_cast<size_t>(shape.num_elements()), -2, 2, out.size())) {
      values.push_back(v);
    }
    out.push_back(make_tensor(DType::kDouble, shape, values));
  }
  return out;
}

// A program of one result, differentiated by what it is fed. The result is squared, so that second
// derivatives are not zero.
OpProgram plain(std::vector<std::string> ops, std::initializer_list<Shape> shapes,
                Expr (*build)(const Scope&, const Exprs&)) {
  Program program{.name = ops[0], .points = points(shapes)};
  program.build = [build](const Scope& s, const Exprs& x) {
    Expr y = build(s, x);
    return Tensors{x, {ops::square(s, y)}};
  };
  return {std::move(ops), std::move(program)};
}

// The same differentiated by the variable that holds what is fed.
OpProgram of_variable(std::vector<std::string> ops, const Shape& shape,
                      Expr (*build)(const Scope&, Expr variable)) {
  Program program{.name = ops[0], .points = points({shape})};
  program.build = [build, shape](const Scope& s, const Exprs& x) {
    Expr variable = ops::var_handle_op(s, DType::kDouble, shape);
    Operation assign = ops::assign_variable_op(s, variable, x[0]);
    Expr y = build(s.with_control({assign}), variable);
    return Tensors{{variable}, {ops::square(s, y)}};
  };
  return {std::move(ops), std::move(program)};
}
OpProgram of_reference(std::vector<std::string> ops, const Shape& shape,
                       Expr (*build)(const Scope&, Expr variable)) {
  Program program{.name = ops[0], .points = points({shape})};
  program.build = [build, shape](const Scope& s, const Exprs& x) {
    Expr variable = ops::variable_v2(s, DType::kDouble, shape);
    Operation assign = s.operation_of(ops::assign(s, variable, x[0]));
    Expr y = build(s.with_control({assign}), variable);
    return Tensors{{variable}, {ops::square(s, y)}};
  };
  return {std::move(ops), std::move(program)};
}

Expr stack(const Scope& s, Expr list, Expr shape) {
  return ops::tensor_list_stack(s, list, shape, DType::kDouble);
}

void add_lists(std::vector<OpProgram>& all) {
  all.push_back(plain(
      {"OptionalFromValue", "OptionalGetValue"}, {{2}, {3}}, [](const Scope& s, const Exprs& x) {
        Expr optional = ops::optional_from_value(s, {ops::sin(s, x[0]), x[1]});
        std::vector<Expr> parts = ops::optional_get_value(
            s, optional, {DType::kDouble, DType::kDouble}, {PartialShape({2}), PartialShape({3})});
        return ops::concat_v2(s, {parts[0] * parts[0], parts[1]}, scalar(s, 0));
      }));
  all.push_back(plain({"TensorListStack", "TensorListFromTensor"}, {{3, 2}},
                      [](const Scope& s, const Exprs& x) {
                        Expr list = ops::tensor_list_from_tensor(s, x[0], vector(s, {2}));
                        return stack(s, list, vector(s, {2}));
                      }));
  all.push_back(plain(
      {"TensorListPushBack", "TensorListPopBack"}, {{2}, {2}}, [](const Scope& s, const Exprs& x) {
        Expr shape = vector(s, {2});
        Expr list = ops::empty_tensor_list(s, shape, scalar(s, -1), DType::kDouble);
        list = ops::tensor_list_push_back(s, list, x[0]);
        list = ops::tensor_list_push_back(s, list, x[1]);
        auto last = ops::tensor_list_pop_back(s, list, shape, DType::kDouble);
        auto first = ops::tensor_list_pop_back(s, last.output_handle, shape, DType::kDouble);
        return last.tensor * ops::sin(s, first.tensor);
      }));
  all.push_back(
      plain({"TensorListSetItem", "TensorListGetItem"}, {{2}, {2}, {2}},
            [](const Scope& s, const Exprs& x) {
              Expr shape = vector(s, {2});
              Expr list = ops::tensor_list_reserve(s, shape, scalar(s, 3), DType::kDouble);
              list = ops::tensor_list_set_item(s, list, scalar(s, 0), x[0]);
              list = ops::tensor_list_set_item(s, list, scalar(s, 2), x[1]);
              list = ops::tensor_list_set_item(s, list, scalar(s, 0), x[2]);
              auto item = [&](int32_t i) {
                return ops::tensor_list_get_item(s, list, scalar(s, i), shape, DType::kDouble);
              };
              return item(0) * item(2) + item(1) + item(2);
            }));
  all.push_back(plain({"TensorListGather"}, {{3, 2}}, [](const Scope& s, const Exprs& x) {
    Expr list = ops::tensor_list_from_tensor(s, x[0], vector(s, {2}));
    return ops::tensor_list_gather(s, list, vector(s, {2, 0, 2}), vector(s, {2}), DType::kDouble);
  }));
  all.push_back(plain({"TensorListScatter"}, {{2, 2}}, [](const Scope& s, const Exprs& x) {
    Expr list = ops::tensor_list_scatter(s, x[0], vector(s, {2, 0}), vector(s, {2}));
    return stack(s, list, vector(s, {2}));
  }));
  all.push_back(plain({"TensorListScatterV2"}, {{2, 2}}, [](const Scope& s, const Exprs& x) {
    Expr list =
        ops::tensor_list_scatter_v2(s, x[0], vector(s, {2, 0}), vector(s, {2}), scalar(s, 4));
    return stack(s, list, vector(s, {2}));
  }));
  all.push_back(plain(
      {"TensorListScatterIntoExistingList"}, {{2, 2}, {3, 2}}, [](const Scope& s, const Exprs& x) {
        Expr list = ops::tensor_list_from_tensor(s, x[1], vector(s, {2}));
        list = ops::tensor_list_scatter_into_existing_list(s, list, x[0], vector(s, {3, 1}));
        return stack(s, list, vector(s, {2}));
      }));
  all.push_back(
      plain({"TensorListConcat", "TensorListSplit"}, {{4, 2}}, [](const Scope& s, const Exprs& x) {
        Expr list = ops::tensor_list_split(s, x[0], vector(s, {-1, 2}), longs(s, {1, 3}));
        return ops::tensor_list_concat(s, list, DType::kDouble).tensor;
      }));
  all.push_back(plain({"TensorListConcatV2"}, {{4, 2}}, [](const Scope& s, const Exprs& x) {
    Expr list = ops::tensor_list_split(s, x[0], vector(s, {-1, 2}), longs(s, {1, 3}));
    return ops::tensor_list_concat_v2(s, list, vector(s, {-1, 2}), longs(s, {}), DType::kDouble)
        .tensor;
  }));
  for (int32_t size : {1, 5}) {
    Program program{.name = str_cat("TensorListResize to ", size), .points = points({{3, 2}})};
    program.build = [size](const Scope& s, const Exprs& x) {
      Expr list = ops::tensor_list_from_tensor(s, x[0], vector(s, {2}));
      list = ops::tensor_list_resize(s, list, scalar(s, size));
      return Tensors{x, {ops::square(s, stack(s, list, vector(s, {2})))}};
    };
    all.push_back({{"TensorListResize"}, std::move(program)});
  }
  all.push_back(
      plain({"TensorListConcatLists"}, {{3, 2}, {1, 2}}, [](const Scope& s, const Exprs& x) {
        Expr a = ops::tensor_list_from_tensor(s, x[0], vector(s, {2}));
        Expr b = ops::tensor_list_from_tensor(s, x[1], vector(s, {2}));
        return stack(s, ops::tensor_list_concat_lists(s, a, b, DType::kDouble), vector(s, {2}));
      }));
  all.push_back(plain({"TensorListPushBackBatch"}, {{2, 3}}, [](const Scope& s, const Exprs& x) {
    Expr shape = vector(s, {3});
    Expr list = ops::empty_tensor_list(s, shape, scalar(s, -1), DType::kDouble);
    Expr lists = ops::tensor_list_push_back_batch(s, ops::pack(s, {list, list}), x[0]);
    return stack(s, ops::unpack(s, lists, 2)[1], shape);
  }));
}

void add_arrays(std::vector<OpProgram>& all) {
  all.push_back(plain({"TensorArrayReadV3", "TensorArrayWriteV3", "TensorArrayGradV3"}, {{2}, {2}},
                      [](const Scope& s, const Exprs& x) {
                        auto array = ops::tensor_array_v3(s, scalar(s, 2), DType::kDouble);
                        Expr flow = array.flow;
                        for (int32_t i : {0, 1}) {
                          flow = ops::tensor_array_write_v3(s, array.handle, scalar(s, i),
                                                            x[static_cast<size_t>(i)], flow);
                        }
                        auto read = [&](int32_t i) {
                          return ops::tensor_array_read_v3(s, array.handle, scalar(s, i), flow,
                                                           DType::kDouble);
                        };
                        return read(0) * ops::sin(s, read(1));
                      }));
  all.push_back(plain({"TensorArrayGatherV3", "TensorArrayScatterV3"}, {{3, 2}},
                      [](const Scope& s, const Exprs& x) {
                        auto array = ops::tensor_array_v3(s, scalar(s, 3), DType::kDouble);
                        Expr flow = ops::tensor_array_scatter_v3(
                            s, array.handle, vector(s, {2, 0, 1}), x[0], array.flow);
                        return ops::tensor_array_gather_v3(s, array.handle, vector(s, {0, 2}), flow,
                                                           DType::kDouble);
                      }));
  all.push_back(plain(
      {"TensorArrayConcatV3", "TensorArraySplitV3"}, {{4, 2}}, [](const Scope& s, const Exprs& x) {
        auto array = ops::tensor_array_v3(s, scalar(s, 2), DType::kDouble);
        Expr flow = ops::tensor_array_split_v3(s, array.handle, x[0], longs(s, {1, 3}), array.flow);
        return ops::tensor_array_concat_v3(s, array.handle, flow, DType::kDouble).value;
      }));
}

void add_variables(std::vector<OpProgram>& all) {
  all.push_back(of_variable({"ReadVariableOp"}, {2, 3}, [](const Scope& s, Expr variable) {
    Expr value = ops::read_variable_op(s, variable, DType::kDouble);
    return value * ops::sin(s, value);
  }));
  all.push_back(of_variable({"ResourceGather"}, {4, 2}, [](const Scope& s, Expr variable) {
    return ops::resource_gather(s, variable, vector(s, {3, 0, 3}), DType::kDouble);
  }));
  all.push_back(of_variable({"ResourceGather"}, {2, 3, 2}, [](const Scope& s, Expr variable) {
    Expr indices = ops::reshape(s, vector(s, {2, 0, 2, 1, 1, 0}), vector(s, {2, 3}));
    Expr rows = ops::resource_gather(s, variable, indices, DType::kDouble, {.batch_dims = 1});
    return rows * ops::sin(s, rows);
  }));
  all.push_back(of_reference({"RefIdentity"}, {2, 3}, [](const Scope& s, Expr variable) {
    return ops::sin(s, ops::ref_identity(s, variable));
  }));
}

// Ops of which only some results or operands have gradients.
void add_partial(std::vector<OpProgram>& all) {
  const auto svd = [](const Scope& s, const Exprs& x) {
    Exprs flat;
    for (Expr part : call_multi("Svd", {x[0]})) flat.push_back(reshape(part, vector(s, {-1})));
    return concat(flat, 0);
  };
  all.push_back(plain({"Svd"}, {{3, 2}}, svd));
  all.push_back(plain({"Svd"}, {{2, 2, 4}}, svd));
  // The phases of u and v cancel.
  all.push_back(plain({"Svd"}, {{3, 2}, {3, 2}}, [](const Scope&, const Exprs& x) {
    const Exprs parts =
        call_multi("Svd", {call("Complex", {x[0], x[1]}, {{"Tout", DType::kComplex128}})});
    if (parts.empty()) return Expr();
    const AttrMap real = {{"Tout", DType::kDouble}};
    const Expr turn = call("BatchMatMulV2", {parts[1], parts[2]}, {{"adj_y", true}});
    return call("Real", {turn}, real) + call("Imag", {turn}, real) * 2.0 +
           call("Real", {parts[0]}, real);
  }));
  // Of a group of one.
  all.push_back(plain({"CollectiveReduceV2"}, {{2, 3}}, [](const Scope& s, const Exprs& x) {
    return ops::collective_reduce_v2(s, x[0], scalar(s, 1), scalar(s, 1), scalar(s, 7), {}, "Add",
                                     "Div");
  }));
  all.push_back(plain({"Betainc"}, {{3}}, [](const Scope& s, const Exprs& x) {
    return call("Betainc",
                {s.constant(Tensor::vector<double>({0.5, 2, 3})),
                 s.constant(Tensor::vector<double>({1.5, 0.25, 4})), call("Sigmoid", {x[0]})});
  }));
}

}  // namespace

std::vector<OpProgram> op_programs() {
  std::vector<OpProgram> all;
  add_partial(all);
  add_lists(all);
  add_arrays(all);
  add_variables(all);
  return all;
}

}  // namespace millrace
