#pragma once

#include <pthread.h>

#include <string>
#include <string_view>

#include "millrace/kernel/kernel.h"
#include "millrace/kernel/resource_manager.h"
#include "millrace/kernel/value.h"

// The storage behind both kinds of variables, and how kernels find it.

namespace millrace {

class ShapeContext;

// A resource variable: a tensor that ops share through a handle.
//
// What read() returned never changes: a writer holds the lock for its whole update, and copies the
// tensor first when somebody else holds its buffer (see VariableUpdate). Threads that use elements
// without keeping the tensor hold the lock shared instead, which spares writers that copy. Writers
// go before readers who come later, so that a stream of readers cannot shut them out. Nobody takes
// the lock twice.
class ResourceVariable : public Resource {
 public:
  static constexpr std::string_view kTypeName = "Variable";

  ResourceVariable(std::string name, DType dtype, PartialShape shape)
      : name_(std::move(name)), dtype_(dtype), shape_(std::move(shape)) {}

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  // What every value has; declared by the handle that made the variable.
  const PartialShape& shape() const { return shape_; }

  // The value as it is now, sharing the buffer; not valid before the first assignment.
  Tensor read() const;
  std::string describe() const override;

  void lock() { pthread_rwlock_wrlock(&lock_); }
  void unlock() { pthread_rwlock_unlock(&lock_); }
  void lock_shared() const { pthread_rwlock_rdlock(&lock_); }
  void unlock_shared() const { pthread_rwlock_unlock(&lock_); }
  // For who holds the lock.
  Tensor& tensor() { return tensor_; }
  const Tensor& tensor() const { return tensor_; }

 protected:
  ~ResourceVariable() override { pthread_rwlock_destroy(&lock_); }

 private:
  const std::string name_;
  const DType dtype_;
  const PartialShape shape_;
  mutable pthread_rwlock_t lock_ = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
  Tensor tensor_;
};

// The cell of a reference variable, with what its node declared.
class VariableCell : public RefCell {
 public:
  VariableCell(std::string variable_name, DType dtype, PartialShape shape)
      : dtype_(dtype), shape_(std::move(shape)) {
    name = std::move(variable_name);
  }
  DType dtype() const { return dtype_; }
  // Unknown when any value will do.
  const PartialShape& shape() const { return shape_; }

 private:
  const DType dtype_;
  const PartialShape shape_;
};

// Where a node's state lives: its attributes `container` and `shared_name`. INVALID_ARGUMENT for
// names that cannot be used.
struct StateName {
  std::string container;  // empty: the default one
  std::string shared_name;
  static Result<StateName> make(const KernelNode& node);
};

// The container of that name: the default one when it is empty.
std::string_view container_or_default(std::string_view container);

// The handle in input i; INVALID_ARGUMENT unless it is a single one, of this device.
Result<const ResourceHandle*> handle_input(const KernelContext& ctx, int i);
// The same, INVALID_ARGUMENT also when it names no variable.
Result<const ResourceHandle*> variable_handle_input(const KernelContext& ctx, int i);
// The variable in input i; FAILED_PRECONDITION when nothing was ever assigned to it.
Result<Ref<ResourceVariable>> variable_input(const KernelContext& ctx, int i);
// "Error while reading resource variable ...".
Status uninitialized_variable(const ResourceHandle& handle);
// "Attempting to use uninitialized value ...", of a reference variable.
Status uninitialized_value(const RefCell& cell);
// INVALID_ARGUMENT when the variable's type is not the one that an op asks for.
Status check_variable_type(const ResourceVariable& variable, DType asked);

// Makes `storage`, which the caller has locked, hold the elements of `value`: takes its buffer when
// nobody else sees it, else copies into the buffer that is there when it fits and nobody else sees
// that, else into a new one.
Status store_value(KernelContext& ctx, Tensor value, Tensor& storage);

// What inference knows of the variable behind the resource in input i; nothing when there is
// nothing.
ResourceHandle::DTypeAndShape variable_facts(const ShapeContext& c, int i);
// The same for an op that uses elements of type `dtype`: INVALID_ARGUMENT for another one.
Result<PartialShape> variable_shape(const ShapeContext& c, int i, DType dtype);

}  // namespace millrace
