// The ops that make tables, or find those that others made under the same name.

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/registry.h"
#include "millrace/ops/queue/handle.h"
#include "millrace/ops/state/variable.h"
#include "millrace/ops/table/lookup_table.h"

namespace millrace {
namespace {

using Kind = TableSpec::Kind;

Result<TableSpec> read_spec(const AttrMap& attrs, Kind kind) {
  TableSpec spec{.kind = kind};
  MR_TRY_ASSIGN(spec.key_dtype, read_attr<DType>(attrs, "key_dtype"));
  MR_TRY_ASSIGN(spec.value_dtype, read_attr<DType>(attrs, "value_dtype"));
  for (const DType type : {spec.key_dtype, spec.value_dtype}) {
    if (is_plain(type) || type == DType::kString) continue;
    return invalid_argument("keys and values of a table are numbers or strings, got ", type);
  }
  if (attrs.find("value_shape") != nullptr) {
    MR_TRY_ASSIGN(const PartialShape shape, read_attr<PartialShape>(attrs, "value_shape"));
    if (!shape.fully_known()) {
      return invalid_argument("value_shape must be known, got ", shape);
    }
    MR_TRY_ASSIGN(spec.value_shape, Shape::make(shape.dims()));
  }
  if (kind == Kind::kMutable && spec.value_shape.rank() > 1) {
    return invalid_argument("Default value must be a vector, got value_shape ", spec.value_shape);
  }
  if (kind == Kind::kDense) {
    MR_TRY_ASSIGN(const int64_t buckets, read_attr<int64_t>(attrs, "initial_num_buckets"));
    if (buckets <= 0 || (buckets & (buckets - 1)) != 0) {
      return invalid_argument("Number of buckets must be a power of 2, got ", buckets);
    }
    MR_TRY_ASSIGN(const float load, read_attr<float>(attrs, "max_load_factor"));
    if (!(load > 0 && load < 1)) {
      return invalid_argument("max_load_factor must be between 0 and 1, got ", load);
    }
  }
  return spec;
}

template <Kind kKind>
Status handle_shape(ShapeContext& c) {
  if (is_ref(c.output_type(0))) {
    c.set_output(0, PartialShape{2});
    return ok_status();
  }
  c.set_output(0, PartialShape::scalar());
  const Result<TableSpec> spec = read_spec(c.attrs(), kKind);
  if (!spec.ok()) return ok_status();  // the run says so, as in TensorFlow
  c.set_output_resource(
      0, {{spec->key_dtype, kKind == Kind::kDense ? c.input(0) : PartialShape::scalar()},
          {spec->value_dtype, spec->value_shape}});
  return ok_status();
}

class TableKernel : public Kernel {
 public:
  template <Kind kKind>
  static Result<std::unique_ptr<Kernel>> make(const KernelNode& node) {
    MR_TRY_ASSIGN(StateName name, StateName::make(node));
    MR_TRY_ASSIGN(const bool by_node, node.attr<bool>("use_node_name_sharing"));
    if (name.shared_name.empty()) {
      name.shared_name =
          by_node ? node.name : ResourceManager::session_name(node.session_prefix, node.name);
    }
    MR_TRY_ASSIGN(TableSpec spec, read_spec(node.attrs, kKind));
    return std::make_unique<TableKernel>(std::move(name), std::move(spec),
                                         is_ref(node.output_types[0]));
  }
  // One that each run of the node makes anew, and that ends with the step.
  template <Kind kKind>
  static Result<std::unique_ptr<Kernel>> make_anonymous(const KernelNode& node) {
    MR_TRY_ASSIGN(TableSpec spec, read_spec(node.attrs, kKind));
    return std::make_unique<TableKernel>(StateName(), std::move(spec), false);
  }
  TableKernel(StateName name, TableSpec spec, bool reference)
      : name_(std::move(name)), spec_(std::move(spec)), reference_(reference) {}

  Status compute(KernelContext& ctx) const override {
    TableSpec spec = spec_;
    std::vector<Tensor> reserved;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      MR_TRY_ASSIGN(reserved.emplace_back(), ctx.input(i).clone());
      if (reserved[i].shape() != reserved[0].shape() || reserved[i].num_elements() == 0) {
        return invalid_argument("empty_key and deleted_key must have one shape with elements, got ",
                                reserved[0].shape(), " and ", reserved[i].shape());
      }
      spec.key_shape = reserved[0].shape();
    }
    const bool anonymous = name_.shared_name.empty();
    const std::string container =
        anonymous ? ctx.step().container() : std::string(container_or_default(name_.container));
    const std::string name = anonymous ? unique_step_name(ctx.node().name) : name_.shared_name;
    MR_TRY_ASSIGN(const Ref<LookupTable> table,
                  ctx.resources().lookup_or_create<LookupTable>(
                      container, name, [&]() -> Result<Ref<LookupTable>> {
                        return make_ref<LookupTable>(container, name, spec, reserved);
                      }));
    if (table->spec() != spec) {
      return invalid_argument("shared table '", name, "' goes from ", table->spec().key_dtype,
                              " to ", table->spec().value_dtype, " ", table->spec().value_shape,
                              ", this node expects another kind, from ", spec.key_dtype, " to ",
                              spec.value_dtype, " ", spec.value_shape);
    }
    if (reference_) {
      ctx.set_output_ref(0, table->handle());
    } else {
      ctx.set_output(
          0, make_handle(ctx, container, name, LookupTable::kTypeName,
                         {{spec.key_dtype, spec.key_shape}, {spec.value_dtype, spec.value_shape}}));
    }
    return ok_status();
  }

 private:
  const StateName name_;
  const TableSpec spec_;
  const bool reference_;
};

template <Kind kKind>
void register_kind(Registry& registry, const std::string& name, const char* doc,
                   std::vector<OpSpec::Attr> more = {}) {
  std::vector<OpSpec::Attr> attrs = {
      {"container", "string = ''"},
      {"shared_name", "string = ''", "Nodes with the same name share a table."},
      {"use_node_name_sharing", "bool = false"},
      {"key_dtype", "type"},
      {"value_dtype", "type"}};
  attrs.insert(attrs.end(), more.begin(), more.end());
  const auto keys = [](bool deleted) {
    std::vector<OpSpec::Arg> inputs;
    if (kKind != Kind::kDense) return inputs;
    inputs.push_back({"empty_key", "key_dtype", "A key that nobody uses."});
    if (deleted) inputs.push_back({"deleted_key", "key_dtype", "Another one."});
    return inputs;
  };
  for (const bool v2 : {false, true}) {
    registry.add({.name = name + (v2 ? "V2" : ""),
                  .doc = doc,
                  .inputs = keys(v2),
                  .outputs = {{"table_handle", v2 ? "resource" : "ref(string)"}},
                  .attrs = attrs,
                  .traits = {.stateful = true, .owns_state = true, .cannot_differentiate = true},
                  .shape = handle_shape<kKind>});
    registry.kernel({.op = name + (v2 ? "V2" : ""), .factory = TableKernel::make<kKind>});
  }
  attrs.erase(attrs.begin(), attrs.begin() + 3);  // without a name
  registry.add({.name = "Anonymous" + name,
                .doc = str_cat(doc, " It ends with the step."),
                .inputs = keys(true),
                .outputs = {{"table_handle", "resource"}},
                .attrs = attrs,
                .traits = {.stateful = true, .step_state = true, .cannot_differentiate = true},
                .shape = handle_shape<kKind>});
  registry.kernel({.op = "Anonymous" + name, .factory = TableKernel::make_anonymous<kKind>});
}

}  // namespace

void register_tables(Registry& registry) {
  register_kind<Kind::kConstant>(registry, "HashTable",
                                 "A map that is filled once, and then only read.");
  register_kind<Kind::kMutable>(registry, "MutableHashTable", "A map that can be added to.");
  register_kind<Kind::kMutable>(registry, "MutableHashTableOfTensors",
                                "A map to vectors, that can be added to.",
                                {{"value_shape", "shape = []"}});
  register_kind<Kind::kDense>(registry, "MutableDenseHashTable",
                              "A map between tensors of fixed shapes, that can be added to.",
                              {{"value_shape", "shape = []"},
                               {"initial_num_buckets", "int = 131072"},
                               {"max_load_factor", "float = 0.8"}});
}

}  // namespace millrace
