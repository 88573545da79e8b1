#pragma once

#include <string>
#include <utility>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/graph/attr_value.h"
#include "python/src/calls.h"

namespace millrace::python {

// The arguments of one call of an op, read one after another: values become tensors, attributes
// are worked out, types are checked. What tensors are, a kind of mode says in a derived class.
class Arguments {
 public:
  // `arguments`: the inputs, then the attributes of PyOp::attrs. `name`: of the call, for messages.
  Arguments(const PyOp& op, std::string name, nb::handle arguments)
      : op_(*op.def), name_(std::move(name)), arguments_(arguments) {}

  // Reads all. `second_first`: the second of two inputs says the type of the first.
  void read(const PyOp& op, bool second_first);

 protected:
  ~Arguments() = default;

  virtual bool is_tensor(nb::handle value) const = 0;
  virtual DType type_of(nb::handle tensor) const = 0;
  virtual nb::object make_constant(const ArgDef& arg, Tensor value) = 0;
  // A value that is neither a tensor nor a plain number: by way of converted().
  virtual nb::object convert_value(const ArgDef& arg, nb::handle value, DType want,
                                   DType prefer) = 0;
  // For messages: "'x:0' (float32, shape [2,3])" of a tensor; the value itself where it is none.
  virtual std::string describe(nb::handle value) const = 0;
  // The type that a later input gives to the type attribute of `arg`; kInvalid where none is asked.
  virtual DType said_later(const ArgDef&) const { return DType::kInvalid; }
  // Takes the next input.
  virtual void push(const ArgDef& arg, nb::handle tensor) = 0;
  // The two inputs of a binary op that were read in the other order.
  virtual void swap_inputs() = 0;

  // What convert_to_tensor makes of the value, in whatever mode the thread is.
  nb::object converted(const ArgDef& arg, nb::handle value, DType want, DType prefer) const;

  const OpDef& op_;
  std::string name_;
  nb::handle arguments_;
  std::vector<std::pair<const ArgDef*, nb::object>> read_;  // what the inputs were
  AttrMap attrs_;

 private:
  void read_input(const ArgDef& arg, nb::handle value);
  void read_attr_value(const AttrDef& def, nb::handle value);
  // The type an argument must have; kInvalid when it may still be any.
  DType wanted(const ArgDef& arg) const;
  // The type to prefer for values that do not say theirs.
  DType preferred(const ArgDef& arg) const;
  nb::object convert(const ArgDef& arg, nb::handle value, DType want, DType prefer);
  nb::object convert_item(const ArgDef& arg, nb::handle value, Py_ssize_t i, DType want);
  // The type attribute of `arg` is `type` from now on.
  void settle(const ArgDef& arg, DType type, nb::handle tensor);
  // `tensor`: what has the type; none for the value of an attribute.
  void check_type(const AttrDef& def, std::string_view parameter, DType type,
                  nb::handle tensor = {}) const;
  void check_allowed(const AttrDef& def, const AttrValue& value) const;
  void read_list(const ArgDef& arg, nb::handle value);
  template <class Item>
  void read_numbered(const ArgDef& arg, Py_ssize_t count, const Item& item,
                     std::vector<nb::object>& tensors);
  [[noreturn]] void raise_mismatch(const ArgDef& arg, nb::handle value, DType want) const;
  template <class Item>
  [[noreturn]] void raise_list_mismatch(const ArgDef& arg, Py_ssize_t count, const Item& item,
                                        DType want) const;
  [[noreturn]] void raise_length(const ArgDef& arg, int64_t count, int64_t minimum) const;
};

// Raises TypeError unless there is one argument for each input and attribute.
void check_arguments(const PyOp& op, nb::handle arguments);
// A TypeError that says where the user's call stands.
[[noreturn]] void raise_type_error(const std::string& message);
// The name that Python programs know a type by.
std::string type_label(DType dtype);

// The outputs of a call in the form that the op's function returns: a tensor, a list, or a named
// tuple; `operation` for none. `attrs`: all of the call.
nb::object shape_results(PyOp& op, const AttrMap& attrs, nb::handle operation,
                         FunctionRef<nb::object(int)> output);

}  // namespace millrace::python
