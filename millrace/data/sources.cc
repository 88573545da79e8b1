// Datasets of tensors and numbers that are there already.

#include "millrace/data/counting_iterator.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/elements_dataset.h"
#include "millrace/graph/shape_context.h"
#include "millrace/tensor/dispatch.h"

namespace millrace::data {
namespace {

// One element.
class TensorDataset final : public Dataset {
 public:
  TensorDataset(ElementSpec spec, Element components)
      : Dataset("Tensor", std::move(spec)), components_(std::move(components)) {}
  int64_t size() const override { return 1; }
  Status get(int64_t, Element& out) const {
    out = components_;
    return ok_status();
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    return std::make_unique<CountingIterator<TensorDataset>>(*this, iteration);
  }

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node(), "Toutput_types"));
    MR_TRY_ASSIGN(Element components, kept_inputs(ctx, 0, ctx.num_inputs()));
    return make_ref<TensorDataset>(std::move(spec), std::move(components));
  }

 private:
  const Element components_;
};

// The rows of tensors.
class TensorSliceDataset final : public Dataset {
 public:
  TensorSliceDataset(ElementSpec spec, Element components)
      : Dataset("TensorSlice", std::move(spec)), components_(std::move(components)) {}
  int64_t size() const override { return components_[0].dim(0); }
  Status get(int64_t i, Element& out) const {
    out.resize(components_.size());
    for (size_t c = 0; c < components_.size(); ++c) out[c] = components_[c].row(i);
    return ok_status();
  }
  Status get_rows(int64_t begin, int64_t end, BatchRows& rows) const {
    return rows.add_range(components_, begin, end);
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    return std::make_unique<CountingIterator<TensorSliceDataset>>(*this, iteration);
  }

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node(), "Toutput_types"));
    if (ctx.num_inputs() == 0) return invalid_argument("expected at least one component, got none");
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      const Tensor& input = ctx.input(i);
      if (input.rank() < 1) {
        return invalid_argument("component ", i, " must have at least one dimension, got a scalar");
      }
      if (input.dim(0) != ctx.input(0).dim(0)) {
        return invalid_argument("all components must have one size of the first dimension, got ",
                                ctx.input(0).dim(0), " for component 0 and ", input.dim(0),
                                " for component ", i);
      }
    }
    MR_TRY_ASSIGN(Element components, kept_inputs(ctx, 0, ctx.num_inputs()));
    return make_ref<TensorSliceDataset>(std::move(spec), std::move(components));
  }

 private:
  const Element components_;
};

// start, start + step, ... before stop.
class RangeDataset final : public Dataset {
 public:
  RangeDataset(ElementSpec spec, int64_t start, int64_t step, int64_t count)
      : Dataset("Range", std::move(spec)), start_(start), step_(step), count_(count) {}
  int64_t size() const override { return count_; }
  Status get(int64_t i, Element& out) const {
    out.resize(1);
    if (spec().types[0] == DType::kInt64) {
      out[0] = Tensor::scalar(number(i));
      return ok_status();
    }
    return dispatch<RealTypes>(spec().types[0],
                               [&]<class T>() { out[0] = Tensor::scalar(convert<T>(number(i))); });
  }
  Status get_rows(int64_t begin, int64_t end, BatchRows& rows) const {
    MR_TRY_ASSIGN(const Shape shape, Shape::make({{end - begin}}));
    MR_TRY_ASSIGN(Tensor numbers, Tensor::allocate(spec().types[0], shape));
    MR_TRY(dispatch<RealTypes>(numbers.dtype(), [&]<class T>() {
      const std::span<T> to = numbers.mutable_data<T>();
      for (size_t k = 0; k < to.size(); ++k) {
        to[k] = convert<T>(number(begin + static_cast<int64_t>(k)));
      }
    }));
    return rows.add_range({std::move(numbers)}, 0, end - begin);
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    return std::make_unique<CountingIterator<RangeDataset>>(*this, iteration);
  }

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(const int64_t start, ctx.int_scalar_input(0));
    MR_TRY_ASSIGN(const int64_t stop, ctx.int_scalar_input(1));
    MR_TRY_ASSIGN(const int64_t step, ctx.int_scalar_input(2));
    if (step == 0) return invalid_argument("step must be a non-zero integer.");
    if (spec.types.size() != 1 || !type_set_of<RealTypes>.contains(spec.types[0])) {
      return invalid_argument("a range has one component, of a type of real numbers");
    }
    // In 128 bits, as ends may be far apart.
    const auto distance = static_cast<__int128>(stop) - start;
    __int128 count = 0;
    if (step > 0 && distance > 0) count = (distance + step - 1) / step;
    if (step < 0 && distance < 0) count = (-distance - step - 1) / -static_cast<__int128>(step);
    if (count > INT64_MAX) return invalid_argument("the range has more elements than 2^63-1");
    return make_ref<RangeDataset>(std::move(spec), start, step, static_cast<int64_t>(count));
  }

 private:
  // Between the ends, though the product need not be.
  int64_t number(int64_t i) const {
    return static_cast<int64_t>(static_cast<uint64_t>(start_) +
                                static_cast<uint64_t>(i) * static_cast<uint64_t>(step_));
  }
  template <class T>
  static T convert(int64_t value) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(value);
    } else {
      return static_cast<T>(static_cast<float>(value));
    }
  }

  const int64_t start_, step_, count_;
};

// INVALID_ARGUMENT unless `given` are so many times `element`.
Status check_list(const std::vector<DType>& given, const std::vector<DType>& element) {
  const size_t size = element.size();
  bool fits = size > 0 && given.size() % size == 0;
  for (size_t i = 0; fits && i < given.size(); ++i) fits = given[i] == element[i % size];
  if (fits) return ok_status();
  return invalid_argument("expected tensors for elements of [", str_join(element, ","), "], got [",
                          str_join(given, ","), "]");
}

Status list_shape(ShapeContext& c) {
  MR_TRY_ASSIGN(const auto given, c.attr<std::vector<DType>>("Tinput_types"));
  MR_TRY_ASSIGN(const auto element, c.attr<std::vector<DType>>("output_types"));
  MR_TRY(check_list(given, element));
  return dataset_shape(c);
}

Result<Ref<Dataset>> make_list(KernelContext& ctx) {
  MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
  MR_TRY(check_list(ctx.node().input_types, spec.types));
  const auto components = static_cast<int>(spec.types.size());
  std::vector<Element> elements;
  for (int i = 0; i < ctx.num_inputs(); i += components) {
    MR_TRY_ASSIGN(Element element, kept_inputs(ctx, i, components));
    MR_TRY(check_element(element, spec));
    elements.push_back(std::move(element));
  }
  return Ref<Dataset>(make_ref<ElementsDataset>("List", std::move(spec), std::move(elements)));
}

Status slices_shape(ShapeContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i) {
    MR_TRY_ASSIGN(const PartialShape shape, c.with_rank_at_least(i, 1));
    if (!shape.rank_known() || !c.input(0).rank_known()) continue;
    if (shape.dim_known(0) && c.input(0).dim_known(0) && shape.dim(0) != c.input(0).dim(0)) {
      return invalid_argument("all components must have one size of the first dimension, got ",
                              c.input(0), " for component 0 and ", shape, " for component ", i);
    }
  }
  return dataset_shape(c);
}

}  // namespace

void register_sources(Registry& registry) {
  const OpSpec::Attr types = {"Toutput_types", "list(type) >= 1"};
  const OpSpec::Attr shapes = {"output_shapes", "list(shape) >= 1"};
  add_source_op(registry,
                {.name = "TensorDataset",
                 .doc = "A dataset of one element, the components.",
                 .inputs = {{"components", "list(Toutput_types)"}},
                 .attrs = {types, shapes},
                 .traits = {.stateful = true}},
                dataset_kernel<TensorDataset::make>);
  add_source_op(registry,
                {.name = "TensorSliceDataset",
                 .doc = "A dataset of the rows of the components.",
                 .inputs = {{"components", "list(Toutput_types)"}},
                 .attrs = {types,
                           shapes,
                           {"is_files", "bool = false"},
                           {"replicate_on_split", "bool = false"}},
                 .traits = {.stateful = true},
                 .shape = slices_shape},
                dataset_kernel<TensorSliceDataset::make>);
  add_dataset_op(registry,
                 {.name = "RangeDataset",
                  .doc = "A dataset of the numbers from start to before stop.",
                  .inputs = {{"start", "int64"}, {"stop", "int64"}, {"step", "int64"}},
                  .attrs = {{"replicate_on_split", "bool = false"}},
                  .traits = {.stateful = true}},
                 dataset_kernel<RangeDataset::make>);
  add_dataset_op(registry,
                 {.name = "ListDataset",
                  .doc = "A dataset of the tensors, as many for an element as it has components.",
                  .inputs = {{"tensors", "list(Tinput_types)"}},
                  .attrs = {{"Tinput_types", "list(type) >= 1"}},
                  .traits = {.stateful = true},
                  .shape = list_shape},
                 dataset_kernel<make_list>);
}

}  // namespace millrace::data
