#include <nanobind/stl/string.h>

#include "millrace/kernel/graph_rights.h"
#include "millrace/kernel/registry.h"
#include "python/src/array.h"
#include "python/src/gil.h"
#include "python/src/status.h"

// PyFunc: an operation that calls a Python function, known by a token (see ops/py_func.py).

namespace millrace::python {

namespace {

class PyFunc final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(std::string token, node.attr<std::string>("token"));
    return std::make_unique<PyFunc>(std::move(token));
  }
  explicit PyFunc(std::string token) : token_(std::move(token)) {}

  Status compute(KernelContext& ctx) const override {
    if (interpreter_ends()) return cancelled("the Python interpreter is going away");
    WithGil gil;
    try {
      return call(ctx);
    } catch (nb::python_error& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) {
        // Of the main thread, which waits for this run and raises it again.
        error.restore();
        return cancelled("interrupted");
      }
      return status_from_exception(error);
    } catch (std::exception& error) {
      return internal(error.what());
    }
  }

 private:
  Status call(KernelContext& ctx) const {
    nb::list arguments;
    for (int i = 0; i < ctx.num_inputs(); ++i) arguments.append(array_from_tensor(ctx.input(i)));
    nb::list types;
    for (int i = 0; i < ctx.num_outputs(); ++i) types.append(dtype_object(ctx.output_type(i)));
    nb::object results = library("millrace.ops.py_func", "call")(token_, arguments, types);
    int i = 0;
    for (nb::handle result : results) {
      const DType type = ctx.output_type(i);
      // The function may keep its array and write to it.
      Tensor tensor = tensor_from_array(result, type, Sharing::kCopy);
      if (tensor.dtype() != type) {
        return invalid_argument("the function of py_func returned ", dtype_name(tensor.dtype()),
                                " as value ", i, ", but Tout says ", dtype_name(type));
      }
      ctx.set_output(i++, std::move(tensor));
    }
    return ok_status();
  }

  std::string token_;
};

}  // namespace

void bind_py_func(nb::module_&) {
  Registry registry(OpRegistry::global(), KernelRegistry::global());
  for (const bool stateful : {true, false}) {
    const std::string name = stateful ? "PyFunc" : "PyFuncStateless";
    registry.add(
        {.name = name,
         .doc = "Calls a Python function, which takes and gives NumPy arrays.",
         .inputs = {{"input", "list(Tin)"}},
         .outputs = {{"output", "list(Tout)"}},
         .attrs = {{"token", "string"}, {"Tin", "list(type) >= 0"}, {"Tout", "list(type) >= 0"}},
         .traits = {.stateful = stateful, .blocks = true, .cannot_differentiate = true},
         .no_gradient = "what the function computes is not known"});
    registry.kernel<PyFunc>(name, DeviceKind::kCpu);
    mark_reach({name}, Reach::kPyFunc);
  }
  check(registry.status());
}

}  // namespace millrace::python
