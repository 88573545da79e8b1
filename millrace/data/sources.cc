// Datasets of tensors and numbers that are there already.

#include <random>

#include "millrace/data/counting_iterator.h"
#include "millrace/data/dataset_op.h"
#include "millrace/data/random_numbers.h"
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

// The rows of a sparse tensor, each as indices, values and shape.
class SparseTensorSliceDataset final : public Dataset {
 public:
  SparseTensorSliceDataset(ElementSpec spec, Tensor indices, Tensor values, Tensor shape,
                           std::vector<int64_t> begins)
      : Dataset("SparseTensorSlice", std::move(spec)),
        indices_(std::move(indices)),
        values_(std::move(values)),
        shape_(std::move(shape)),
        begins_(std::move(begins)) {}
  int64_t size() const override { return shape_.data<int64_t>()[0]; }
  Status get(int64_t row, Element& out) const {
    // Rows without values have no entry: begins_ is searched.
    auto values = indices_.data<int64_t>();
    const int64_t width = indices_.dim(1);
    const auto first_at_least = [&](int64_t r) {
      size_t low = 0, high = begins_.size() - 1;
      while (low < high) {
        const size_t middle = (low + high) / 2;
        if (values[static_cast<size_t>(begins_[middle] * width)] < r) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return begins_[low];
    };
    const int64_t begin = first_at_least(row), end = first_at_least(row + 1);
    MR_TRY_ASSIGN(Tensor indices, Tensor::allocate(DType::kInt64, Shape{end - begin, width - 1}));
    auto to = indices.mutable_data<int64_t>();
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t k = 1; k < width; ++k) {
        to[static_cast<size_t>((i - begin) * (width - 1) + k - 1)] =
            values[static_cast<size_t>(i * width + k)];
      }
    }
    out = {std::move(indices), values_.rows(begin, end), shape_.rows(1, shape_.dim(0))};
    return ok_status();
  }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override {
    return std::make_unique<CountingIterator<SparseTensorSliceDataset>>(*this, iteration);
  }

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    for (int i = 0; i < 3; ++i) MR_TRY(expect_rank(ctx, i, i == 0 ? 2 : 1));
    MR_TRY_ASSIGN(Tensor indices, kept_input(ctx, 0));
    MR_TRY_ASSIGN(Tensor values, kept_input(ctx, 1));
    MR_TRY_ASSIGN(Tensor shape, kept_input(ctx, 2));
    const int64_t count = indices.dim(0), width = indices.dim(1);
    if (width < 1 || values.dim(0) != count || shape.dim(0) != width) {
      return invalid_argument("indices ", indices.shape(), ", values ", values.shape(),
                              " and dense_shape ", shape.shape(), " are of no sparse tensor");
    }
    if (shape.data<int64_t>()[0] < 0) {
      return invalid_argument("dense_shape must not be negative, got ", shape.data<int64_t>()[0]);
    }
    std::vector<int64_t> begins;
    auto index = indices.data<int64_t>();
    int64_t last = -1;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = index[static_cast<size_t>(i * width)];
      if (row < last || row >= shape.data<int64_t>()[0]) {
        return unimplemented("the SparseTensor must be ordered by its first dimension: row ", row,
                             " comes after ", last, ", of ", shape.data<int64_t>()[0]);
      }
      if (row > last) begins.push_back(i);
      last = row;
    }
    begins.push_back(count);
    ElementSpec spec = {{DType::kInt64, values.dtype(), DType::kInt64},
                        {PartialShape{-1, width - 1}, PartialShape{-1}, PartialShape{width - 1}}};
    return make_ref<SparseTensorSliceDataset>(std::move(spec), std::move(indices),
                                              std::move(values), std::move(shape),
                                              std::move(begins));
  }

 private:
  const Tensor indices_, values_, shape_;
  const std::vector<int64_t> begins_;
};

// Random numbers without end.
class RandomDataset final : public Dataset {
 public:
  RandomDataset(ElementSpec spec, int64_t seed, int64_t seed2)
      : Dataset("Random", std::move(spec)), seed_(seed), seed2_(seed2) {}
  int64_t size() const override { return kInfinite; }
  Result<std::unique_ptr<Iterator>> iterate(const Iteration& iteration) const override;

  static Result<Ref<Dataset>> make(KernelContext& ctx) {
    MR_TRY_ASSIGN(ElementSpec spec, spec_of(ctx.node()));
    MR_TRY_ASSIGN(const int64_t seed, ctx.int_scalar_input(0));
    MR_TRY_ASSIGN(const int64_t seed2, ctx.int_scalar_input(1));
    if (seed != 0 || seed2 != 0) return make_ref<RandomDataset>(std::move(spec), seed, seed2);
    std::random_device device;
    return make_ref<RandomDataset>(std::move(spec), device(), device());
  }

  const int64_t seed_, seed2_;
};

class RandomIterator final : public IteratorOf<RandomDataset> {
 public:
  RandomIterator(const RandomDataset& dataset, const Iteration& iteration)
      : IteratorOf(dataset, iteration), numbers_(dataset.seed_, dataset.seed2_, 0) {}

 protected:
  Status fields(StateFields& state) override { return numbers_.fields(state); }
  Status produce(Element& out, bool& end) override {
    end = false;
    out = {Tensor::scalar(static_cast<int64_t>(numbers_.next() >> 32))};
    return ok_status();
  }

 private:
  RandomNumbers numbers_;
};

Result<std::unique_ptr<Iterator>> RandomDataset::iterate(const Iteration& iteration) const {
  return std::make_unique<RandomIterator>(*this, iteration);
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

Status make_sparse_slices(KernelContext& ctx) {
  MR_TRY_ASSIGN(Ref<Dataset> dataset, SparseTensorSliceDataset::make(ctx));
  ctx.set_output(0, dataset_tensor(std::move(dataset)));
  return ok_status();
}

Status sparse_slices_shape(ShapeContext& c) {
  MR_TRY(c.with_rank(0, 2).status());
  MR_TRY(c.with_rank(1, 1).status());
  MR_TRY(c.with_rank(2, 1).status());
  return shape_rules::scalar(c);
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
  registry.add({.name = "SparseTensorSliceDataset",
                .doc = "A dataset of the rows of a sparse tensor.",
                .inputs = {{"indices", "host(int64)"},
                           {"values", "host(Tvalues)"},
                           {"dense_shape", "host(int64)"}},
                .outputs = {{"handle", "variant"}},
                .types = {{"Tvalues", {}}},
                .traits = {.stateful = true, .cannot_differentiate = true},
                .shape = sparse_slices_shape});
  registry.kernel("SparseTensorSliceDataset", DeviceKind::kCpu, make_sparse_slices);
  for (const char* name : {"RandomDataset", "ExperimentalRandomDataset"}) {
    add_dataset_op(registry,
                   {.name = std::string_view(name),
                    .doc = "A dataset of random numbers below 2^32, without end.",
                    .inputs = {{"seed", "int64"}, {"seed2", "int64"}},
                    .traits = {.stateful = true}},
                   dataset_kernel<RandomDataset::make>);
  }
}

}  // namespace millrace::data
