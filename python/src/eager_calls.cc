#include "python/src/eager_calls.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <memory>
#include <optional>
#include <unordered_map>

#include "millrace/base/hash.h"
#include "millrace/eager/interruptible.h"
#include "millrace/eager/tape.h"
#include "python/src/arguments.h"
#include "python/src/array.h"
#include "python/src/elements.h"
#include "python/src/gil.h"
#include "python/src/graph.h"
#include "python/src/origin.h"
#include "python/src/signals.h"
#include "python/src/status.h"

// Calls of ops that run at once.

namespace millrace::python {

namespace {

// Kernels that run longer than it takes to let other threads have the interpreter do so without
// it; those that may call Python or wait for somebody who does always do.
constexpr int64_t kManyElements = 1 << 15;

bool takes_long(const eager::PreparedOp& op, std::span<eager::EagerTensor* const> inputs) {
  if (op.way != eager::PreparedOp::Way::kPlain) return true;
  for (const eager::EagerTensor* input : inputs) {
    if (input->shape().num_elements() > kManyElements) return true;
  }
  return false;
}

Status run_op(eager::PreparedOp& op, std::span<eager::EagerTensor* const> inputs,
              eager::TensorRef* outputs) {
  if (!takes_long(op, inputs)) return eager_context().run(op, inputs, 0, outputs);
  Status status = [&] {
    const WithoutGil without;
    const eager::Interruptible interruptible(interrupted_here());
    return eager_context().run(op, inputs, 0, outputs);
  }();
  raise_interrupt();
  return status;
}

class EagerArguments final : public Arguments {
 public:
  using Arguments::Arguments;

  // Runs the op; the outputs.
  std::vector<eager::TensorRef> run(bool once) {
    eager::Op op(op_, std::move(attrs_), Context::here().eager_device());
    op.once = once;
    std::vector<eager::EagerTensor*> inputs;
    for (nb::handle input : inputs_) inputs.push_back(&eager_tensor(input));
    Result<Ref<eager::PreparedOp>> prepared = eager_context().prepare(op, inputs);
    check_eager(prepared.status());
    attrs_ = (*prepared)->node.attrs;
    std::vector<eager::TensorRef> outputs((*prepared)->node.output_types.size());
    check_eager(run_op(**prepared, inputs, outputs.data()));
    return outputs;
  }
  // All of the op, once it ran.
  const AttrMap& attrs() const { return attrs_; }

 private:
  bool is_tensor(nb::handle value) const override { return is_eager_tensor(value); }
  DType type_of(nb::handle tensor) const override { return eager_tensor(tensor).dtype(); }
  nb::object make_constant(const ArgDef&, Tensor value) override {
    return wrap_value(std::move(value));
  }
  nb::object convert_value(const ArgDef& arg, nb::handle value, DType want, DType prefer) override {
    if (!arg.is_ref) {
      nb::object read = read_variable(value);
      if (read.is_valid() && (want == DType::kInvalid || type_of(read) == want)) return read;
    }
    nb::object made = converted(arg, value, want, prefer);
    if (is_eager_tensor(made)) return made;
    raise_type_error(str_cat("'", op_.name, "' Op: argument '", arg.name, "' is ", describe(value),
                             ", which has no value before its graph runs"));
  }
  std::string describe(nb::handle value) const override {
    if (!is_tensor(value)) return nb::cast<std::string>(nb::repr(value));
    const eager::EagerTensor& tensor = eager_tensor(value);
    return str_cat("a tensor (", type_label(tensor.dtype()), ", shape ", tensor.shape(), ")");
  }
  // A tensor says the type of the numbers before it.
  DType said_later(const ArgDef& arg) const override {
    if (arg.type_attr.empty()) return DType::kInvalid;
    for (size_t i = 0; i < op_.inputs.size(); ++i) {
      const ArgDef& other = op_.inputs[i];
      const nb::handle value = PyTuple_GET_ITEM(arguments_.ptr(), static_cast<Py_ssize_t>(i));
      if (other.type_attr == arg.type_attr && is_eager_tensor(value)) return type_of(value);
    }
    return DType::kInvalid;
  }
  void push(const ArgDef& arg, nb::handle tensor) override {
    inputs_.push_back(tensor);
    read_.emplace_back(&arg, nb::borrow(tensor));
  }
  void swap_inputs() override { std::swap(inputs_[0], inputs_[1]); }

  std::vector<nb::handle> inputs_;  // read_ keeps them
};

bool is_symbolic(nb::handle value) {
  if (is_tensor(value)) return true;
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) return false;
  for (nb::handle item : value) {
    if (is_tensor(item)) return true;
  }
  return false;
}

// A name scope outside of graphs: what the names of variables begin with.
class EagerScope {
 public:
  explicit EagerScope(nb::handle given) : before_(Context::here().eager_scope) {
    std::string& scope = Context::here().eager_scope;
    const std::string own = given.is_none() ? "" : nb::cast<std::string>(nb::str(given));
    if (own.empty()) {
      scope.clear();
    } else {
      scope = own.back() == '/' ? own : str_cat(scope, own, "/");
    }
    name_ = scope;
  }
  void close() { Context::here().eager_scope = before_; }
  const std::string& name() const { return name_; }

 private:
  std::string name_, before_;
};

// `with init_scope():` outside of all graphs and tapes of this thread.
class InitScope {
 public:
  void enter() {
    graphs_ = Context::here().take_graphs();
    paused_ = std::make_unique<eager::StopRecording>();
  }
  void exit() {
    paused_ = nullptr;
    Context::here().restore_graphs(std::move(graphs_));
  }

 private:
  std::vector<Context::OpenGraph> graphs_;
  std::unique_ptr<eager::StopRecording> paused_;
};

class EagerMode final : public Mode {
 public:
  nb::object call(PyOp& op, nb::handle name, nb::handle arguments, bool second_first) override {
    if (nb::object quick = call_plain(op, arguments); quick.is_valid()) return quick;
    check_arguments(op, arguments);
    // Tensors of a graph keep their operations in it, whatever the thread's mode.
    for (size_t i = 0; i < op.def->inputs.size(); ++i) {
      if (is_symbolic(PyTuple_GET_ITEM(arguments.ptr(), static_cast<Py_ssize_t>(i)))) {
        return graph_mode().call(op, name, arguments, second_first);
      }
    }
    EagerArguments made(op, op.def->name, arguments);
    made.read(op, second_first);
    std::vector<eager::TensorRef> outputs = made.run(false);
    return shape_results(op, made.attrs(), nb::none(), [&](int i) {
      return wrap_eager(std::move(outputs[static_cast<size_t>(i)]));
    });
  }

  nb::object constant(nb::handle array, nb::handle dtype, nb::handle) override {
    const DType expected = dtype.is_none() ? DType::kInvalid : dtype_from_object(dtype);
    Tensor value;
    if (!tensor_from_scalar(array, expected, value)) {
      value = tensor_from_array(array, expected, Sharing::kCopy);
    }
    return wrap_value(std::move(value));
  }

  nb::object open_scope(nb::handle name, nb::handle) override { return nb::cast(EagerScope(name)); }

 private:
  static Py_ssize_t number(size_t i) { return static_cast<Py_ssize_t>(i); }

  // Reads the attributes of a call, and keeps what they came to for the next one with the very same
  // objects. Only of such that do not change.
  static bool learn(PyOp& op, nb::handle arguments) {
    std::vector<nb::object> objects;
    AttrMap attrs;
    for (size_t i = 0; i < op.attrs.size(); ++i) {
      nb::handle value = PyTuple_GET_ITEM(arguments.ptr(), number(op.def->inputs.size() + i));
      PyObject* p = value.ptr();
      const bool constant = p == Py_None || PyBool_Check(p) || PyLong_CheckExact(p) ||
                            PyFloat_CheckExact(p) || PyUnicode_CheckExact(p) ||
                            value.type().is(dtype_object(DType::kFloat).type());
      if (!constant) return false;
      objects.push_back(nb::borrow(value));
      if (value.is_none()) {
        if (op.attrs[i]->default_value.empty()) return false;
        continue;
      }
      attrs.set(op.attrs[i]->name, attr_from_python(op.def->name, *op.attrs[i], value));
    }
    op.eager = std::make_unique<eager::Op>(*op.def, std::move(attrs));
    op.last_attrs = std::move(objects);
    return true;
  }

  // A tensor for an input that is a variable, a number or a list of numbers, of the type that is
  // taken where no other input says one. Invalid for anything else.
  static nb::object plain_input(const OpDef& op, const ArgDef& arg, nb::handle value) {
    if (nb::object read = read_variable(value); read.is_valid()) return read;
    DType type = arg.dtype;
    if (type == DType::kInvalid) {
      const AttrDef* attr = op.find_attr(arg.type_attr);
      const DType* preferred = attr != nullptr ? attr->default_value.get<DType>() : nullptr;
      if (preferred != nullptr) type = *preferred;
    }
    Tensor made;
    if (!tensor_from_scalar(value, type, made) && !tensor_from_numbers(value, type, made))
      return {};
    return wrap_value(std::move(made));
  }

  // Most calls: tensors and what is quickly made one for inputs, attributes as in the call before,
  // at most one output, which may be a list. Invalid where it is not so.
  static nb::object call_plain(PyOp& op, nb::handle arguments) {
    constexpr size_t kFew = 4;
    const OpDef& def = *op.def;
    const size_t num_inputs = def.inputs.size(), num_attrs = op.attrs.size();
    if (!op.plain || !PyTuple_Check(arguments.ptr()) || num_inputs > kFew ||
        static_cast<size_t>(PyTuple_GET_SIZE(arguments.ptr())) != num_inputs + num_attrs) {
      return {};
    }
    eager::EagerTensor* inputs[kFew];
    nb::object made[kFew];
    for (size_t i = 0; i < num_inputs; ++i) {
      nb::handle value = PyTuple_GET_ITEM(arguments.ptr(), number(i));
      if (!is_eager_tensor(value)) {
        made[i] = plain_input(def, def.inputs[i], value);
        if (!made[i].is_valid()) return {};
        value = made[i];
      }
      inputs[i] = &eager_tensor(value);
    }
    if (Context::here().eager_device() != nullptr) return {};
    bool known = op.eager != nullptr;
    for (size_t i = 0; known && i < num_attrs; ++i) {
      known = op.last_attrs[i].is(PyTuple_GET_ITEM(arguments.ptr(), number(num_inputs + i)));
    }
    if (!known && !learn(op, arguments)) return {};
    const std::span<eager::EagerTensor* const> given(inputs, num_inputs);
    Result<Ref<eager::PreparedOp>> prepared = eager_context().prepare(*op.eager, given);
    // What does not fit says so better on the long way.
    if (!prepared.ok()) return {};
    if (def.outputs.size() == 1 && !def.outputs[0].is_list()) {
      eager::TensorRef output;
      check_eager(run_op(**prepared, given, &output));
      return wrap_eager(std::move(output));
    }
    std::vector<eager::TensorRef> outputs((*prepared)->node.output_types.size());
    check_eager(run_op(**prepared, given, outputs.data()));
    if (outputs.empty()) return nb::none();
    nb::list parts;
    for (eager::TensorRef& output : outputs) parts.append(wrap_eager(std::move(output)));
    return parts;
  }
};

}  // namespace

Mode& eager_mode() {
  static EagerMode mode;
  return mode;
}

bool runs_eagerly() { return Context::here().runs_eagerly(); }

namespace {

// A function of eager_runtime().functions, to be called.
class FunctionCall {
 public:
  FunctionCall(const std::string& name, const nb::list& inputs, const nb::list& outputs)
      : op_(make(name, inputs, outputs)) {}

  nb::list call(const nb::list& arguments) const {
    std::vector<eager::EagerTensor*> tensors;
    for (nb::handle argument : arguments) {
      if (!is_eager_tensor(argument)) raise_type_error("a function takes tensors that have values");
      tensors.push_back(&eager_tensor(argument));
    }
    std::vector<eager::TensorRef> outputs = run(tensors);
    nb::list out;
    for (eager::TensorRef& output : outputs) out.append(wrap_eager(std::move(output)));
    return out;
  }

  // Raises what goes wrong.
  std::vector<eager::TensorRef> run(std::span<eager::EagerTensor* const> tensors) const {
    std::vector<eager::TensorRef> outputs;
    Status status = [&]() -> Status {
      const WithoutGil without;
      const eager::StopRecording stop;  // what a tape needs of it, who calls records
      const eager::Interruptible interruptible(interrupted_here());
      MR_TRY_ASSIGN(const Ref<eager::PreparedOp> prepared, eager_context().prepare(op_, tensors));
      outputs.resize(prepared->node.output_types.size());
      return eager_context().run(*prepared, tensors, 0, outputs.data());
    }();
    raise_interrupt();
    check_eager(status);
    return outputs;
  }

 private:
  static eager::Op make(const std::string& name, const nb::list& inputs, const nb::list& outputs) {
    const auto types = [](const nb::list& list) {
      std::vector<DType> out;
      for (nb::handle type : list) out.push_back(dtype_from_object(type));
      return out;
    };
    return unwrap(eager_context().op(
        "StatefulPartitionedCall",
        {{"f", FunctionAttr{name, {}}}, {"Tin", types(inputs)}, {"Tout", types(outputs)}}));
  }

  eager::Op op_;
};

// Calls that a traced function is known for, by types and shapes: of those with tensors alone,
// while no tape records. What most calls are, so they are answered here.
class FunctionTable {
 public:
  // NotImplemented where nothing is known for such arguments, a tuple.
  nb::object call(nb::handle arguments) const {
    const auto unknown = [] { return nb::borrow(Py_NotImplemented); };
    if (eager::Tape::innermost() != nullptr || !runs_eagerly()) return unknown();
    std::vector<eager::EagerTensor*> tensors;
    const auto found = entries_.find(key_of(arguments, tensors));
    if (found == entries_.end() || !found->second->covers(tensors)) return unknown();
    const std::shared_ptr<const Entry> entry = found->second;
    tensors.insert(tensors.end(), entry->captured.begin(), entry->captured.end());
    std::vector<eager::TensorRef> outputs = entry->call->run(tensors);
    if (entry->pack.is_none()) return wrap_eager(std::move(outputs[0]));
    nb::list out;
    for (eager::TensorRef& output : outputs) out.append(wrap_eager(std::move(output)));
    return entry->pack(out);
  }

  // Such arguments are answered by `call` from now on, with `captured` behind them. `pack` makes
  // the result of the list of tensors; None where it is the first one.
  void add(nb::handle arguments, nb::object call, nb::list captured, nb::object pack) {
    constexpr size_t kMaxEntries = 4096;
    std::vector<eager::EagerTensor*> tensors;
    const uint64_t key = key_of(arguments, tensors);
    if (key == 0) return;
    auto entry = std::make_shared<Entry>();
    for (const eager::EagerTensor* t : tensors) entry->kinds.emplace_back(t->dtype(), t->shape());
    entry->call = nb::cast<const FunctionCall*>(call);
    entry->pack = std::move(pack);
    for (nb::handle value : captured) entry->captured.push_back(&eager_tensor(value));
    entry->kept = nb::make_tuple(std::move(call), std::move(captured));
    if (entries_.size() >= kMaxEntries) entries_.clear();
    entries_[key] = std::move(entry);
  }

 private:
  struct Entry {
    std::vector<std::pair<DType, Shape>> kinds;
    const FunctionCall* call = nullptr;
    std::vector<eager::EagerTensor*> captured;
    nb::object pack, kept;  // the second keeps the other two

    bool covers(std::span<eager::EagerTensor* const> tensors) const {
      if (tensors.size() != kinds.size()) return false;
      for (size_t i = 0; i < tensors.size(); ++i) {
        if (tensors[i]->dtype() != kinds[i].first || tensors[i]->shape() != kinds[i].second) {
          return false;
        }
      }
      return true;
    }
  };

  // 0 for what is no tuple of tensors.
  static uint64_t key_of(nb::handle arguments, std::vector<eager::EagerTensor*>& tensors) {
    const Py_ssize_t count = PyTuple_GET_SIZE(arguments.ptr());
    tensors.reserve(static_cast<size_t>(count) + 8);
    uint64_t key = hash_combine(1, static_cast<uint64_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) {
      const nb::handle argument = PyTuple_GET_ITEM(arguments.ptr(), i);
      if (!is_eager_tensor(argument)) return 0;
      eager::EagerTensor& tensor = eager_tensor(argument);
      key = hash_combine(key, static_cast<uint64_t>(tensor.dtype()));
      const Shape& shape = tensor.shape();
      for (int d = 0; d < shape.rank(); ++d) {
        key = hash_combine(key, static_cast<uint64_t>(shape.dim(d)));
      }
      tensors.push_back(&tensor);
    }
    return key == 0 ? 1 : key;
  }

  std::unordered_map<uint64_t, std::shared_ptr<const Entry>> entries_;
};

}  // namespace

void bind_eager_calls(nb::module_& m) {
  nb::class_<FunctionCall>(m, "FunctionCall")
      .def(nb::init<const std::string&, const nb::list&, const nb::list&>())
      .def("__call__", &FunctionCall::call);
  nb::class_<FunctionTable>(m, "FunctionTable")
      .def(nb::init<>())
      .def("call", &FunctionTable::call)
      .def("add", &FunctionTable::add, nb::arg("arguments"), nb::arg("call"), nb::arg("captured"),
           nb::arg("pack").none());
  nb::class_<EagerScope>(m, "EagerScope")
      .def_prop_ro("name", &EagerScope::name)
      .def("close", &EagerScope::close);
  m.def("executing_eagerly", &runs_eagerly);
  // Whether operations run at once where no graph is open: said by the program, once and for all,
  // or suggested by what it uses, which counts as long as nobody has said it.
  m.def("choose_eager", [](bool on) { Context::choose_eager(on); });
  m.def("suggest_eager", [] { Context::suggest_eager(); });
  m.def("eager_enabled", &Context::eager_enabled);
  nb::class_<InitScope>(m, "init_scope")
      .def(nb::init<>())
      .def("__enter__", &InitScope::enter)
      .def("__exit__", [](InitScope& self, nb::args) { self.exit(); });
  m.def("destroy_resource", [](nb::handle handle) {
    if (!is_eager_tensor(handle)) return;
    // Fails only when somebody has cleared all state, and the variable with it.
    (void)eager_context().execute("DestroyResourceOp", {eager::TensorRef(&eager_tensor(handle))});
  });
  // Its background work ends first, and that may need the interpreter.
  m.def("destroy_iterator", [](nb::handle handle) {
    if (!is_eager_tensor(handle)) return;
    const eager::TensorRef iterator(&eager_tensor(handle));
    const WithoutGil without;
    (void)eager_context().execute("DestroyResourceOp", {iterator});
  });
  // The device that ops on this thread ask for; None: they leave it to what they are given.
  m.def(
      "set_eager_device",
      [](nb::handle name) {
        Device* device = nullptr;
        if (!name.is_none()) {
          device = unwrap(eager_context().find_device(nb::cast<std::string>(name)));
        }
        Context::here().set_eager_device(device);
      },
      nb::arg("name").none());
  m.def("eager_device", []() -> nb::object {
    const Device* device = Context::here().eager_device();
    return device == nullptr ? nb::none() : nb::cast(device->name());
  });
  m.def("eager_devices", [] {
    nb::list names;
    for (const Ref<Device>& device : eager_context().devices()) names.append(device->name());
    return names;
  });
  m.def("start_eager_trace", [] { eager_context().start_trace(); });
  // What ran since then, as the text of a file for Perfetto.
  m.def("stop_eager_trace", [] {
    const std::string text = chrome_trace(unwrap(eager_context().stop_trace()));
    return nb::bytes(text.data(), text.size());
  });
  // A tensor of a Python number or of a list of such, of type `dtype` or, where that is None, of
  // the one that they have by default. NotImplemented for other values and in graphs.
  m.def(
      "constant_of_numbers",
      [](nb::handle value, nb::handle dtype) -> nb::object {
        const DType type = dtype.is_none() ? DType::kInvalid : dtype_from_object(dtype);
        Tensor made;
        if (!runs_eagerly() ||
            !(tensor_from_scalar(value, type, made) || tensor_from_numbers(value, type, made))) {
          return nb::borrow(Py_NotImplemented);
        }
        return wrap_value(std::move(made));
      },
      nb::arg("value").none(), nb::arg("dtype").none());
  m.def("clear_eager_cache", [] { eager_context().clear_cache(); });
  // An op as it is called by name: execute("Add", [a, b], {"T": tf.float32}); a list of tensors.
  // `once`: see eager::Op.
  m.def(
      "execute",
      [](const std::string& name, nb::list inputs, nb::dict attrs, bool once) {
        const OpDef* def = &*unwrap(eager_context().ops().lookup(name));
        AttrMap given;
        for (auto [key, value] : attrs) {
          const std::string attr_name = nb::cast<std::string>(key);
          given.set(attr_name, attr_from_python(name, def, attr_name, value));
        }
        eager::Op op(*def, std::move(given), Context::here().eager_device());
        op.once = once;
        std::vector<eager::EagerTensor*> tensors;
        for (nb::handle input : inputs) {
          if (!is_eager_tensor(input)) raise_type_error("execute takes tensors that have values");
          tensors.push_back(&eager_tensor(input));
        }
        Result<Ref<eager::PreparedOp>> prepared = eager_context().prepare(op, tensors);
        check_eager(prepared.status());
        std::vector<eager::TensorRef> outputs((*prepared)->node.output_types.size());
        check_eager(run_op(**prepared, tensors, outputs.data()));
        nb::list out;
        for (eager::TensorRef& output : outputs) out.append(wrap_eager(std::move(output)));
        return out;
      },
      nb::arg("op"), nb::arg("inputs"), nb::arg("attrs"), nb::arg("once") = false);
}

void run_binary(const eager::Op& op, std::span<eager::EagerTensor* const> inputs,
                eager::TensorRef& output) {
  const Context& here = Context::here();
  const bool quick = here.eager_device() == nullptr &&
                     inputs[0]->shape().num_elements() <= kManyElements &&
                     inputs[1]->shape().num_elements() <= kManyElements;
  if (quick) [[likely]]
    return check_eager(eager_context().run_one(op, inputs, output));
  const eager::Op placed(op.def(), AttrMap(), here.eager_device());
  Status status;
  {
    const WithoutGil without;
    status = eager_context().run_one(placed, inputs, output);
  }
  check_eager(status);
}

}  // namespace millrace::python
