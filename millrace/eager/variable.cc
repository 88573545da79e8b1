#include "millrace/eager/variable.h"

#include "millrace/eager/tape.h"

namespace millrace::eager {

Result<Variable> Variable::create(Ref<EagerContext> context, const Tensor& value, Options options) {
  Variable out;
  out.state_ = make_ref<State>();
  State& state = *out.state_;
  state.context = std::move(context);
  state.name = std::move(options.name);
  state.dtype = value.dtype();
  state.trainable = options.trainable;
  MR_TRY_ASSIGN(state.handle, state.context->execute_one("VarHandleOp", {},
                                                         {{"dtype", value.dtype()},
                                                          {"shape", value.shape()},
                                                          {"debug_name", state.name}}));
  // The variable's own copy: what the caller holds may change.
  MR_TRY_ASSIGN(Tensor own, value.clone());
  MR_TRY(out.assign(state.context->tensor(std::move(own))));
  return out;
}

Variable::State::~State() {
  // Fails only when somebody has cleared the device's resources, and the variable with them.
  if (handle) (void)context->execute("DestroyResourceOp", {handle});
}

Result<TensorRef> Variable::read() const {
  if (state_->trainable) variable_accessed(*state_->handle);
  return state_->context->execute_one("ReadVariableOp", {state_->handle},
                                      {{"dtype", state_->dtype}});
}

Status Variable::update(std::string_view op, TensorRef value) const {
  return state_->context
      ->execute(op, {state_->handle, std::move(value)}, {{"dtype", state_->dtype}})
      .status();
}

Status Variable::assign(TensorRef value) const {
  return update("AssignVariableOp", std::move(value));
}
Status Variable::assign_add(TensorRef delta) const {
  return update("AssignAddVariableOp", std::move(delta));
}
Status Variable::assign_sub(TensorRef delta) const {
  return update("AssignSubVariableOp", std::move(delta));
}

}  // namespace millrace::eager
