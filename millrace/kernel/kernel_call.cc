#include "millrace/kernel/kernel_call.h"

#include "millrace/graph/elementwise_tree.h"
#include "millrace/graph/graph_builder.h"

namespace millrace {

Status uninitialized(const RefCell& cell) {
  return failed_precondition("Attempting to use uninitialized value ", cell.name,
                             "; run its initializer first, for example with "
                             "sess.run(tf.global_variables_initializer())");
}

Status prepare_inputs(const KernelNode& node, const InputNeeds& needs, Value** inputs,
                      Value* copies) {
  for (int i = 0; i < node.num_inputs(); ++i) {
    if (inputs[i]->is_ref()) {
      if (!is_ref(node.input_types[static_cast<size_t>(i)])) {
        MR_TRY(read_reference(*inputs[i], copies[i]));
        inputs[i] = &copies[i];
      } else if (!needs.uninitialized_ok && !inputs[i]->cell->read().valid()) {
        return uninitialized(*inputs[i]->cell);
      }
    } else if (i < 32 && (needs.retains >> i & 1) != 0 && inputs[i]->tensor.buffer() &&
               inputs[i]->tensor.buffer()->borrowed()) {
      MR_TRY_ASSIGN(Tensor copy, inputs[i]->tensor.clone());
      copies[i] = Value::of(std::move(copy));
      inputs[i] = &copies[i];
    }
  }
  return ok_status();
}

Status wrong_output(const Value& output, int i, DType declared) {
  if (output.empty()) return internal("the kernel did not set output ", i);
  return internal("output ", i, " is declared ", declared, ", the kernel set ",
                  output.tensor.dtype());
}

Status with_inputs(const Status& status, std::span<Value* const> inputs) {
  constexpr size_t kMaxShown = 8;
  if (status.code() != Code::kInvalidArgument || inputs.empty()) return status;
  std::string line = "inputs: ";
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i == kMaxShown) {
      line += str_cat(", and ", inputs.size() - i, " more");
      break;
    }
    const Value& value = *inputs[i];
    const Tensor tensor = value.is_ref() ? value.cell->read() : value.tensor;
    if (i > 0) line += ", ";
    line += tensor.valid() ? str_cat(user_type_name(tensor.dtype()), " ", tensor.shape()) : "none";
  }
  return status.with_line(line);
}

Status annotate_error(const Status& status, const KernelNode& node, OriginId origin) {
  if (status.ok()) return status;
  // A kernel that stands for several nodes has said which of them failed, if it was one.
  if (node.attrs.find(kStandsForAttr) != nullptr &&
      status.message().find("[[{{node ") != std::string::npos) {
    return status;
  }
  Status out = status.with_prefix(str_cat(node.op->name, " \"", node.name, "\""));
  std::string where = describe_origin(origin);
  if (!where.empty()) out = out.with_line(where);
  return out.with_line(str_cat("[[{{node ", node.name, "}}]]"));
}

}  // namespace millrace
