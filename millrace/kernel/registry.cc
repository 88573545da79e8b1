#include "millrace/kernel/registry.h"

#include <algorithm>
#include <deque>
#include <map>

#include "millrace/base/mutex.h"

namespace millrace {
namespace {

constexpr std::string_view kAnyOp = "*";

class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(KernelFunction function) : function_(function) {}
  Status compute(KernelContext& ctx) const override { return function_(ctx); }

 private:
  KernelFunction function_;
};

bool holds(const KernelDef::Constraint& constraint, const AttrMap& attrs) {
  const AttrValue* value = attrs.find(constraint.attr);
  if (value == nullptr) return false;
  if (const DType* type = value->get<DType>()) return constraint.types.contains(*type);
  if (const auto* types = value->get<std::vector<DType>>()) {
    return std::all_of(types->begin(), types->end(),
                       [&](DType type) { return constraint.types.contains(type); });
  }
  return value->get<EmptyList>() != nullptr;
}

bool serves(const KernelDef& def, DeviceKind device, const AttrMap& attrs) {
  return def.device == device &&
         std::all_of(def.constraints.begin(), def.constraints.end(),
                     [&](const KernelDef::Constraint& c) { return holds(c, attrs); });
}

bool same_choice(const KernelDef& a, const KernelDef& b) {
  return a.device == b.device && a.priority == b.priority && a.label == b.label &&
         std::equal(a.constraints.begin(), a.constraints.end(), b.constraints.begin(),
                    b.constraints.end(),
                    [](const KernelDef::Constraint& x, const KernelDef::Constraint& y) {
                      return x.attr == y.attr && x.types == y.types;
                    });
}

// "CPU, T in {float, double}, label reference".
std::string describe(const KernelDef& def) {
  std::string text(device_type(def.device));
  for (const KernelDef::Constraint& c : def.constraints) {
    text += str_cat(", ", c.attr, " in ", c.types);
  }
  if (!def.label.empty()) text += str_cat(", label ", def.label);
  return text;
}

// "T=float, Tidx=int32": what chooses a kernel.
std::string type_attrs(const AttrMap& attrs) {
  std::string text;
  for (const auto& [name, value] : attrs) {
    if (value.get<DType>() == nullptr && value.get<std::vector<DType>>() == nullptr) continue;
    if (!text.empty()) text += ", ";
    text += str_cat(name, "=", value);
  }
  return text;
}

Status no_kernel(const KernelRegistry& registry, const KernelNode& node, std::string_view op,
                 DeviceKind device, std::string_view label) {
  std::string message =
      str_cat("No registered '", op, "' OpKernel for ", device_type(device), " devices");
  if (!label.empty()) message += str_cat(" with label ", label);
  message += str_cat(" that takes node \"", node.name, "\" with [", type_attrs(node.attrs), "]; ");
  std::vector<const KernelDef*> known = registry.list(op);
  if (known.empty()) {
    message += "there are none for any device or type";
  } else {
    message += "registered:";
    for (const KernelDef* def : known) message += str_cat("\n  ", describe(*def));
  }
  return Status(Code::kNotFound, message);
}

}  // namespace

template class SpecList<KernelDef::Constraint>;

struct KernelRegistry::Impl {
  // Definitions of one op, by falling priority; equals in the order of registration.
  using Defs = std::vector<const KernelDef*>;

  mutable Mutex mu;
  std::deque<KernelDef> defs MR_GUARDED_BY(mu);
  std::map<std::string, Defs, std::less<>> by_op MR_GUARDED_BY(mu);

  const Defs* find_op(std::string_view op) const MR_REQUIRES(mu) {
    auto it = by_op.find(op);
    return it == by_op.end() ? nullptr : &it->second;
  }
};

KernelRegistry::KernelRegistry() : impl_(new Impl) {}
KernelRegistry::~KernelRegistry() { delete impl_; }

KernelRegistry& KernelRegistry::global() {
  // Never destroyed: kernels may be looked up while the process ends.
  static KernelRegistry* registry = new KernelRegistry;
  return *registry;
}

Status KernelRegistry::add(KernelDef def) {
  if (def.op.empty()) return invalid_argument("a kernel was registered without an op's name");
  if ((def.function == nullptr) == (def.factory == nullptr)) {
    return invalid_argument("a kernel of ", def.op,
                            " must be given as a function or as a factory: exactly one of the two");
  }
  for (const KernelDef::Constraint& c : def.constraints) {
    if (c.attr.empty() || c.types.empty()) {
      return invalid_argument("a kernel of ", def.op, " has a constraint without ",
                              c.attr.empty() ? "attribute" : "types");
    }
  }
  MutexLock lock(impl_->mu);
  Impl::Defs& defs = impl_->by_op[std::string(def.op)];
  for (const KernelDef* known : defs) {
    if (same_choice(*known, def)) {
      return already_exists("a kernel of ", def.op, " is registered twice: ", describe(def),
                            ", priority ", def.priority);
    }
  }
  const KernelDef* added = &impl_->defs.emplace_back(std::move(def));
  auto place = std::upper_bound(
      defs.begin(), defs.end(), added,
      [](const KernelDef* a, const KernelDef* b) { return a->priority > b->priority; });
  defs.insert(place, added);
  return ok_status();
}

std::vector<const KernelDef*> KernelRegistry::find(std::string_view op, DeviceKind device,
                                                   const AttrMap& attrs) const {
  std::vector<const KernelDef*> found;
  MutexLock lock(impl_->mu);
  auto add = [&](std::string_view name, DeviceKind kind) MR_REQUIRES(impl_->mu) {
    const Impl::Defs* defs = impl_->find_op(name);
    if (defs == nullptr) return;
    for (const KernelDef* def : *defs) {
      if (serves(*def, kind, attrs)) found.push_back(def);
    }
  };
  add(op, device);
  if (found.empty()) add(kAnyOp, device);
  add(op, DeviceKind::kAny);
  return found;
}

bool KernelRegistry::any(std::string_view op, DeviceKind device, const AttrMap& attrs) const {
  return !find(op, device, attrs).empty();
}

std::vector<const KernelDef*> KernelRegistry::list(std::string_view op) const {
  MutexLock lock(impl_->mu);
  const Impl::Defs* defs = impl_->find_op(op);
  return defs == nullptr ? Impl::Defs() : *defs;
}

Result<std::unique_ptr<Kernel>> make_kernel(const KernelRegistry& registry, const KernelNode& node,
                                            DeviceKind device, std::string_view label) {
  std::string_view op = node.op != nullptr ? std::string_view(node.op->name) : std::string_view();
  Status refusal;
  for (const KernelDef* def : registry.find(op, device, node.attrs)) {
    if (!label.empty() && def->label != label) continue;
    if (def->function != nullptr) {
      return std::unique_ptr<Kernel>(std::make_unique<FunctionKernel>(def->function));
    }
    Result<std::unique_ptr<Kernel>> kernel = def->factory(node);
    if (kernel.ok() || kernel.status().code() != Code::kUnimplemented) return kernel;
    // The last to refuse is the most general one, so its reason says most.
    refusal = kernel.status();
  }
  if (!refusal.ok()) return refusal;
  return no_kernel(registry, node, op, device, label);
}

void Registry::add(const OpSpec& spec) {
  Result<OpDef> def = parse_op_spec(spec);
  Status status = def.ok() ? ops_.add(std::move(def).value()) : def.status();
  if (status_.ok() && !status.ok()) status_ = status.with_prefix(str_cat("op ", spec.name));
}

void Registry::kernel(const KernelDef& def) {
  Status status = [&]() -> Status {
    if (def.op != kAnyOp) {
      MR_TRY_ASSIGN(const OpDef* op, ops_.lookup(def.op));
      for (const KernelDef::Constraint& c : def.constraints) {
        if (op->find_attr(c.attr) == nullptr) {
          return invalid_argument(def.op, " has no attribute ", c.attr, " to choose a kernel by");
        }
      }
    }
    return kernels_.add(def);
  }();
  if (status_.ok() && !status.ok()) status_ = status.with_prefix(str_cat("kernel of ", def.op));
}

void Registry::kernel_of_type(SpecText op, DeviceKind device, DType type, KernelFunction function,
                              KernelFactory factory) {
  KernelDef def = {.op = op, .device = device, .function = function, .factory = factory};
  if (type != DType::kInvalid) def.constraints.push_back({"T", {type}});
  kernel(def);
}

}  // namespace millrace
