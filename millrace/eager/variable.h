#pragma once

#include <string>
#include <string_view>

#include "millrace/eager/eager_context.h"

namespace millrace::eager {

// A resource variable that lives as long as somebody holds it: its handle, and what ops make of it.
// Who reads a trainable one tells the tapes of the thread. A small value; copies are the same
// variable. Thread-safe, as variables are.
class Variable {
 public:
  // Of no use but to be assigned to.
  Variable() = default;
  struct Options {
    std::string name = "Variable";
    bool trainable = true;
  };
  // With this value to begin with, on the context's default device.
  static Result<Variable> create(Ref<EagerContext> context, const Tensor& value, Options options);
  static Result<Variable> create(Ref<EagerContext> context, const Tensor& value) {
    return create(std::move(context), value, Options());
  }

  // What ops on variables take, and what gradients are asked for by.
  const TensorRef& handle() const { return state_->handle; }
  DType dtype() const { return state_->dtype; }
  bool trainable() const { return state_->trainable; }
  const std::string& name() const { return state_->name; }

  // The value now; later updates do not change it.
  Result<TensorRef> read() const;
  Status assign(TensorRef value) const;
  Status assign_add(TensorRef delta) const;
  Status assign_sub(TensorRef delta) const;

 private:
  struct State : RefCounted {
    ~State() override;
    Ref<EagerContext> context;
    TensorRef handle;
    std::string name;
    DType dtype = DType::kInvalid;
    bool trainable = true;
  };
  Status update(std::string_view op, TensorRef value) const;

  Ref<State> state_;
};

}  // namespace millrace::eager
