#include "millrace/ops/state/variable.h"

#include <utility>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/recorder.h"
#include "millrace/ops/device_engine.h"

namespace millrace {
namespace {

// A variable as recorded work uses it.
class RecordedVariable final : public RecordedState {
 public:
  RecordedVariable(const KernelContext& ctx, const ResourceHandle& handle,
                   Ref<ResourceVariable> variable)
      : resources_(&ctx.resources()),
        container_(container_or_default(handle.container)),
        name_(handle.name),
        variable_(std::move(variable)) {
    const Tensor now = variable_->read();
    dtype_ = now.dtype();
    if (!now.valid()) return;
    shape_ = now.shape();
    data_ = now.raw();
  }

  const void* identity() const override { return variable_.get(); }
  bool lock() override {
    const auto found = resources_->lookup<ResourceVariable>(container_, name_);
    if (!found.ok() || found->get() != variable_.get()) return false;
    variable_->lock();
    const Tensor& now = variable_->tensor();
    if (now.valid() && now.dtype() == dtype_ && now.raw() == data_ && now.shape() == shape_ &&
        (!written || now.writable())) {
      return true;
    }
    variable_->unlock();
    return false;
  }
  void unlock() override { variable_->unlock(); }

 private:
  const Ref<ResourceManager> resources_;
  const std::string container_, name_;
  const Ref<ResourceVariable> variable_;
  DType dtype_ = DType::kInvalid;
  Shape shape_;
  const void* data_ = nullptr;
};

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_container_name(std::string_view name) {
  if (!is_letter_or_digit(name[0]) && name[0] != '.') return false;
  for (char c : name) {
    if (!is_letter_or_digit(c) && c != '-' && c != '.' && c != '/') return false;
  }
  return true;
}

// True when the tensor alone holds its buffer, all of it.
bool owns_buffer(const Tensor& tensor) {
  return tensor.writable() && tensor.offset() == 0 && tensor.buffer()->bytes() == tensor.bytes();
}

}  // namespace

Tensor ResourceVariable::read() const {
  lock_shared();
  Tensor now = tensor_;
  unlock_shared();
  return now;
}

std::string ResourceVariable::describe() const {
  const Tensor now = read();
  if (!now.valid()) return str_cat("Variable ", dtype_, " ", shape_, " (uninitialized)");
  return str_cat("Variable ", dtype_, " ", now.shape());
}

Result<StateName> StateName::make(const KernelNode& node) {
  StateName name;
  MR_TRY_ASSIGN(name.container, node.attr<std::string>("container"));
  MR_TRY_ASSIGN(name.shared_name, node.attr<std::string>("shared_name"));
  if (!name.container.empty() && !is_container_name(name.container)) {
    return invalid_argument(
        "container must begin with a letter, digit or '.' and go on with "
        "letters, digits, '-', '.' or '/', got '",
        name.container, "'");
  }
  if (name.shared_name.starts_with('_')) {
    return invalid_argument("shared_name must not begin with '_', got '", name.shared_name, "'");
  }
  return name;
}

std::string_view container_or_default(std::string_view container) {
  return container.empty() ? ResourceManager::kDefaultContainer : container;
}

Result<const ResourceHandle*> handle_input(const KernelContext& ctx, int i) {
  const Tensor& tensor = ctx.input(i);
  if (tensor.dtype() != DType::kResource || tensor.num_elements() != 1) {
    return invalid_argument("input ", i, " must be one resource handle, got ", tensor.dtype(), " ",
                            tensor.shape());
  }
  const ResourceHandle& handle = tensor.item<ResourceHandle>();
  if (handle.device != ctx.device().name()) {
    // One device has several spellings.
    const Result<DeviceName> device = DeviceName::parse(handle.device);
    if (!device.ok() || device->to_string() != ctx.device().name()) {
      return invalid_argument("resource ", handle.name, " is on device '", handle.device,
                              "', this op runs on ", ctx.device().name());
    }
  }
  return &handle;
}

Result<const ResourceHandle*> variable_handle_input(const KernelContext& ctx, int i) {
  MR_TRY_ASSIGN(const ResourceHandle* handle, handle_input(ctx, i));
  if (handle->type_name != ResourceVariable::kTypeName) {
    return invalid_argument(
        "input ", i, " must be the handle of a ", ResourceVariable::kTypeName, ", got that of a ",
        handle->type_name.empty() ? "nothing" : handle->type_name, " named '", handle->name, "'");
  }
  return handle;
}

Status uninitialized_variable(const ResourceHandle& handle) {
  return failed_precondition("Error while reading resource variable ", handle.name,
                             " from container ", container_or_default(handle.container),
                             ". This could mean that the variable was uninitialized: run its "
                             "initializer first, for example with "
                             "sess.run(tf.global_variables_initializer())");
}

Status uninitialized_value(const RefCell& cell) {
  return failed_precondition("Attempting to use uninitialized value ", cell.name,
                             "; run its initializer first, for example with "
                             "sess.run(tf.global_variables_initializer())");
}

Result<Ref<ResourceVariable>> variable_input(const KernelContext& ctx, int i) {
  MR_TRY_ASSIGN(const ResourceHandle* handle, variable_handle_input(ctx, i));
  Result<Ref<ResourceVariable>> found = ctx.resources().lookup<ResourceVariable>(
      container_or_default(handle->container), handle->name);
  if (!found.ok()) return uninitialized_variable(*handle);
  if (Recorder* const recorder = as_recorder(ctx.device())) {
    recorder->uses(std::make_unique<RecordedVariable>(ctx, *handle, *found));
  }
  return found;
}

Status check_variable_type(const ResourceVariable& variable, DType asked) {
  if (variable.dtype() == asked) return ok_status();
  return invalid_argument("variable ", variable.name(), " holds ", variable.dtype(),
                          ", this op expects ", asked);
}

Status store_value(KernelContext& ctx, Tensor value, Tensor& storage) {
  if (owns_buffer(value)) {
    std::swap(storage, value);
    return ok_status();
  }
  if (storage.dtype() == value.dtype() && storage.shape() == value.shape() && storage.writable()) {
    if (DeviceEngine* const device = device_engine(ctx)) {
      return device->copy(ctx, value.raw(), storage.mutable_raw(), value.bytes());
    }
    copy_elements(value, storage);
    return ok_status();
  }
  MR_TRY_ASSIGN(storage, clone_on_device(ctx, value));
  return ok_status();
}

ResourceHandle::DTypeAndShape variable_facts(const ShapeContext& c, int i) {
  const std::vector<ResourceHandle::DTypeAndShape>& known = c.input_facts(i).resource;
  return known.size() == 1 ? known[0] : ResourceHandle::DTypeAndShape{};
}

Result<PartialShape> variable_shape(const ShapeContext& c, int i, DType dtype) {
  MR_TRY_ASSIGN(PartialShape handle, c.with_rank(i, 0));
  ResourceHandle::DTypeAndShape facts = variable_facts(c, i);
  if (facts.dtype != DType::kInvalid && facts.dtype != dtype) {
    return invalid_argument("the variable holds ", facts.dtype, ", this op expects ", dtype);
  }
  return std::move(facts.shape);
}

}  // namespace millrace
