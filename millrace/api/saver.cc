#include "millrace/api/saver.h"

#include "millrace/base/file_systems.h"
#include "millrace/io/bundle_index.h"
#include "millrace/io/tensor_slice.h"
#include "millrace/ops/io/checkpoint_inputs.h"

namespace millrace {
namespace {

// What the entry with the state of random ops is called, in Python's checkpoints too.
constexpr std::string_view kRandomState = "_RANDOM_STATE";

// What RestoreV2 calls all of a tensor of that shape, "10 20 -:-".
std::string whole(const Shape& shape) {
  std::string sizes;
  for (const int64_t size : shape.dims()) sizes += str_cat(size, " ");
  return str_cat(sizes, TensorSlice::whole(shape.rank()));
}

}  // namespace

Saver::Saver(Variables& model, const std::vector<Variable*>& variables) {
  const std::vector<Variable*> saved = variables.empty() ? model.all() : variables;
  const std::string state(variables.empty() ? kRandomState : "");
  const Scope scope = model.root().sub_scope("save");
  std::vector<std::string> names;
  std::vector<DType> dtypes;
  for (const Variable* variable : saved) {
    names.push_back(variable->name);
    dtypes.push_back(variable->dtype);
  }
  prefix_ = scope.output(
      scope.add("Placeholder", {}, {{"dtype", DType::kString}, {"shape", PartialShape::scalar()}}),
      0);
  const auto strings = [&scope](const std::vector<std::string>& values) {
    return scope.constant(Tensor::vector(std::span<const std::string>(values)));
  };
  std::vector<Expr> inputs = {prefix_, strings(names),
                              strings(std::vector<std::string>(names.size()))};
  for (const Variable* variable : saved) inputs.push_back(variable->read(scope));
  const AttrMap attrs = {{"dtypes", dtypes}, {kOpStatesAttr, state}};
  save_ = scope.add("SaveV2", inputs, attrs);
  AttrMap async_attrs = attrs;
  async_attrs.set(kAsynchronousAttr, true);
  save_async_ = scope.add("SaveV2", inputs, async_attrs);
  wait_ = scope.add("SaveV2Wait", {prefix_}, {});
  add_restore(scope, saved, strings(names), attrs);
}

// All values are there, and of the right shapes, before the first variable changes.
void Saver::add_restore(const Scope& scope, const std::vector<Variable*>& variables, Expr names,
                        const AttrMap& attrs) {
  std::vector<std::string> shapes;
  for (const Variable* variable : variables) shapes.push_back(whole(variable->shape));
  const Expr specs = scope.constant(Tensor::vector(std::span<const std::string>(shapes)));
  const Operation read = scope.add("RestoreV2", {prefix_, names, specs}, attrs);
  std::vector<Expr> values = scope.outputs(read);
  std::vector<Operation> checked;
  for (size_t i = 0; i < values.size(); ++i) {
    if (variables[i]->shape.rank() > 0) continue;
    // A spec cannot say the shape of a scalar.
    const Expr no_sizes = scope.constant(Tensor::vector<int32_t>({}));
    checked.push_back(scope.add("Reshape", {values[i], no_sizes}, {}));
    values[i] = scope.output(checked.back(), 0);
  }
  const Scope then = scope.with_control(checked);
  std::vector<Operation> assigned;
  for (size_t i = 0; i < values.size(); ++i) {
    assigned.push_back(variables[i]->assign(then, values[i]));
  }
  restore_ = scope.with_control(assigned).add("NoOp", {}, {});
}

Status Saver::run(ClientSession& session, const std::string& prefix,
                  const Operation& target) const {
  return session.run({{prefix_, Tensor::scalar(prefix)}}, {}, {target}).status();
}

Status Saver::save(ClientSession& session, const std::string& prefix) const {
  return run(session, prefix, save_);
}

Status Saver::save_async(ClientSession& session, const std::string& prefix) const {
  return run(session, prefix, save_async_);
}

Status Saver::wait(ClientSession& session, const std::string& prefix) const {
  return run(session, prefix, wait_);
}

Status Saver::restore(ClientSession& session, const std::string& prefix) const {
  return run(session, prefix, restore_);
}

bool Saver::exists(const std::string& prefix) {
  Result<FilePlace> place = find_file(prefix);
  if (!place.ok()) return false;
  Result<bool> found = place->fs->exists(index_path(place->path));
  return found.ok() && *found;
}

}  // namespace millrace
