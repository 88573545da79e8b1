#include "millrace/io/example_parser.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "millrace/base/mutex.h"
#include "millrace/io/parsed_values.h"
#include "millrace/io/wire.h"

namespace millrace {

using Form = FeatureSpec::Form;

Result<FeatureSpec> FeatureSpec::dense(DType dtype, const PartialShape& shape) {
  FeatureSpec spec{.dtype = dtype};
  std::vector<int64_t> dims;
  bool known = shape.rank_known();
  for (int i = 0; known && i < shape.rank(); ++i) {
    if (shape.dim(i) != PartialShape::kUnknownDim) {
      dims.push_back(shape.dim(i));
    } else if (i == 0) {
      spec.form = Form::kVariable;
    } else {
      known = false;
    }
  }
  if (!known) {
    return invalid_argument(
        "the shape of a dense feature must be known but for its first dimension, got ", shape);
  }
  MR_TRY_ASSIGN(spec.shape, Shape::make(dims));
  return spec;
}

FeatureIndex::FeatureIndex(const std::vector<std::string_view>& keys)
    : keys_(keys.begin(), keys.end()) {
  const size_t size = std::bit_ceil(2 * keys.size() + 1);
  mask_ = size - 1;
  heads_.assign(size, -1);
  next_.assign(keys.size(), -1);
  for (size_t i = 0; i < keys.size(); ++i) {
    next_[i] = std::exchange(heads_[hash(keys[i]) & mask_], static_cast<int32_t>(i));
  }
}

// Keys are short and mostly differ in their ends.
uint64_t FeatureIndex::hash(std::string_view key) {
  const char* first = key.data();
  const char* last = first + key.size();
  uint64_t head = 0, tail = 0;
  if (key.size() >= 8) {
    std::memcpy(&head, first, 8);
    std::memcpy(&tail, last - 8, 8);
  } else if (key.size() >= 4) {
    std::memcpy(&head, first, 4);
    std::memcpy(&tail, last - 4, 4);
  } else if (!key.empty()) {
    head = static_cast<unsigned char>(*first) | static_cast<uint64_t>(first[key.size() / 2]) << 8;
    tail = static_cast<unsigned char>(last[-1]);
  }
  uint64_t x = (head ^ std::rotl(tail, 29) ^ key.size()) * 0x9E3779B97F4A7C15ULL;
  return x ^ (x >> 32);
}

Result<std::unique_ptr<ExampleParser>> ExampleParser::make(std::vector<FeatureSpec> specs,
                                                           const Options& options) {
  for (const FeatureSpec& spec : specs) MR_TRY(check_feature_type(spec.key, spec.dtype));
  return std::unique_ptr<ExampleParser>(new ExampleParser(std::move(specs), options));
}

namespace {

std::vector<std::string_view> keys_of(const std::vector<FeatureSpec>& specs) {
  std::vector<std::string_view> keys;
  for (const FeatureSpec& spec : specs) keys.emplace_back(spec.key);
  return keys;
}

}  // namespace

ExampleParser::ExampleParser(std::vector<FeatureSpec> specs, const Options& options)
    : specs_(std::move(specs)), options_(options), index_(keys_of(specs_)) {}

// One call of parse(). First every example is looked through: features of fixed size are written,
// the values of others counted. Then those have their places, and are written.
struct ExampleParser::Pass {
  Pass(const ExampleParser& parser, const Batch& batch)
      : parser(parser), batch(batch), found(batch.serialized.size() * parser.specs_.size()) {}

  struct Found {
    FeatureView feature;
    int64_t count = 0;
  };

  size_t num_specs() const { return parser.specs_.size(); }
  Found& at(int64_t example, size_t spec) {
    return found[static_cast<size_t>(example) * num_specs() + spec];
  }

  Status error(int64_t example, std::string_view key, std::string_view what) const {
    const std::string_view name = name_of(example);
    if (parser.options_.context) {
      return invalid_argument("Name: ", name, ", Context feature: ", key, ".  ", what);
    }
    return invalid_argument("Name: ", name, ", Key: ", key, ", Index: ", example, ".  ", what);
  }
  std::string_view name_of(int64_t example) const {
    if (batch.names.empty()) return "<unknown>";
    return batch.names[static_cast<size_t>(example)];
  }

  // Finds the example's features; of several with one key the last counts.
  Status find(int64_t example) {
    const std::string& bytes = batch.serialized[static_cast<size_t>(example)];
    if (!find_in(example, bytes)) return cannot_parse_example(name_of(example), bytes);
    return ok_status();
  }
  bool find_in(int64_t example, std::string_view bytes) {
    uint32_t tag;
    for (WireReader message(bytes); !message.done();) {
      if (!message.tag(tag)) return false;
      std::string_view features;
      if (tag != wire_tag(1, WireType::kBytes)) {
        if (!message.skip(tag)) return false;
        continue;
      }
      if (!message.bytes(features)) return false;
      for (WireReader map(features); !map.done();) {
        std::string_view key, value;
        if (!read_map_entry(map, key, value)) return false;
        bool whole = true;
        parser.index_.find(key, [&](size_t spec) {
          Found& entry = at(example, spec);
          whole = entry.feature.parse(value) && whole;
        });
        if (!whole) return false;
      }
    }
    return true;
  }

  Status scan(int64_t example) {
    MR_TRY(find(example));
    for (size_t i = 0; i < num_specs(); ++i) {
      const FeatureSpec& spec = parser.specs_[i];
      Found& entry = at(example, i);
      if (entry.feature.missing()) {
        if (spec.form == Form::kFixed) MR_TRY(write_default(example, i));
        continue;
      }
      if (entry.feature.dtype() != spec.dtype) {
        return error(example, spec.key, type_mismatch(entry.feature.dtype(), spec.dtype));
      }
      entry.count = entry.feature.count();
      if (entry.count < 0) return error(example, spec.key, "Can't parse serialized Example.");
      const int64_t stride = spec.shape.num_elements();
      if (spec.form == Form::kFixed) {
        if (entry.count != stride) {
          return error(example, spec.key,
                       str_cat("Number of ", feature_type_name(spec.dtype),
                               " values != expected.  Values size: ", entry.count,
                               " but output shape: ", spec.shape));
        }
        read_values(entry.feature, results[i].values, example * stride, stride);
      } else if (spec.form == Form::kVariable && entry.count % stride != 0) {
        return error(example, spec.key,
                     str_cat("Number of ", feature_type_name(spec.dtype),
                             " values is not a multiple of stride length. Saw ", entry.count,
                             " values but output shape is: ", spec.shape));
      }
    }
    return ok_status();
  }

  Status write_default(int64_t example, size_t i) {
    const FeatureSpec& spec = parser.specs_[i];
    const Tensor& value = batch.defaults[i];
    if (value.num_elements() == 0) {
      if (parser.options_.context) {
        return invalid_argument("Name: ", name_of(example), ", Context feature '", spec.key,
                                "' is required but could not be found.");
      }
      return invalid_argument("Name: ", name_of(example), ", Feature: ", spec.key,
                              " (data type: ", spec.dtype, ") is required but could not be found.");
    }
    copy_values(value, 0, results[i].values, example * value.num_elements(), value.num_elements());
    return ok_status();
  }

  int64_t size() const { return static_cast<int64_t>(batch.serialized.size()); }
  Status check_defaults() const;
  Status allocate_fixed(Allocator& allocator);
  // Tensors for the counted values; places[i * (size + 1) + e] is where those of example e begin.
  Status allocate_counted(Allocator& allocator);
  void write_counted(int64_t example);

  const ExampleParser& parser;
  const Batch& batch;
  std::vector<Found> found;
  std::vector<ParsedFeature> results{parser.specs_.size()};
  std::vector<int64_t> places, longest;
  int64_t total_counted = 0;
};

Status ExampleParser::Pass::check_defaults() const {
  if (batch.defaults.size() != num_specs()) {
    return invalid_argument("expected a default for each of ", num_specs(), " features, got ",
                            batch.defaults.size());
  }
  for (size_t i = 0; i < num_specs(); ++i) {
    const FeatureSpec& spec = parser.specs_[i];
    const Tensor& value = batch.defaults[i];
    if (spec.form != Form::kFixed && spec.form != Form::kVariable) continue;
    if (spec.form == Form::kVariable && spec.shape.num_elements() == 0) {
      return invalid_argument("feature '", spec.key, "' has values of no elements, ", spec.shape);
    }
    if (value.num_elements() == 0) continue;
    if (spec.form == Form::kVariable ? value.num_elements() != 1 : value.shape() != spec.shape) {
      return invalid_argument("the default of feature '", spec.key, "' must have shape ",
                              spec.form == Form::kVariable ? Shape{} : spec.shape, ", got ",
                              value.shape());
    }
    if (value.dtype() != spec.dtype) {
      return invalid_argument("the default of feature '", spec.key, "' must be ", spec.dtype,
                              ", got ", value.dtype());
    }
  }
  return ok_status();
}

Status ExampleParser::Pass::allocate_fixed(Allocator& allocator) {
  for (size_t i = 0; i < num_specs(); ++i) {
    const FeatureSpec& spec = parser.specs_[i];
    if (spec.form != Form::kFixed) continue;
    Shape shape = spec.shape;
    if (!parser.options_.single) {
      MR_TRY_ASSIGN(shape, Shape{size()}.concat(spec.shape));
    }
    MR_TRY_ASSIGN(results[i].values, Tensor::allocate(spec.dtype, std::move(shape), allocator));
  }
  return ok_status();
}

Status ExampleParser::Pass::allocate_counted(Allocator& allocator) {
  const size_t row = static_cast<size_t>(size()) + 1;
  places.assign(num_specs() * row, 0);
  longest.assign(num_specs(), 0);
  const auto make = [&](DType dtype, std::initializer_list<int64_t> dims) -> Result<Tensor> {
    MR_TRY_ASSIGN(Shape shape, Shape::make({dims.begin(), dims.size()}));
    return Tensor::allocate(dtype, std::move(shape), allocator);
  };
  for (size_t i = 0; i < num_specs(); ++i) {
    const FeatureSpec& spec = parser.specs_[i];
    if (spec.form == Form::kFixed) continue;
    int64_t* place = &places[i * row];
    for (int64_t e = 0; e < size(); ++e) {
      const int64_t count = at(e, i).count;
      place[e + 1] = place[e] + count;
      longest[i] = std::max(longest[i], count);
    }
    const int64_t total = place[size()];
    total_counted += total;
    ParsedFeature& result = results[i];
    if (spec.form == Form::kVariable) {
      const int64_t steps = longest[i] / spec.shape.num_elements();
      MR_TRY_ASSIGN(
          Shape shape,
          (parser.options_.single ? Shape{steps} : Shape{size(), steps}).concat(spec.shape));
      MR_TRY_ASSIGN(result.values, Tensor::allocate(spec.dtype, std::move(shape), allocator));
      continue;
    }
    MR_TRY_ASSIGN(result.values, make(spec.dtype, {total}));
    if (spec.form == Form::kRagged) {
      const size_t splits = parser.options_.single ? 0 : row;
      MR_TRY_ASSIGN(result.splits, make_splits({place, splits}, spec.splits_dtype, allocator));
      continue;
    }
    MR_TRY_ASSIGN(result.indices, make(DType::kInt64, {total, parser.options_.single ? 1 : 2}));
    result.shape = parser.options_.single ? Tensor::vector<int64_t>({total})
                                          : Tensor::vector<int64_t>({size(), longest[i]});
  }
  return ok_status();
}

void ExampleParser::Pass::write_counted(int64_t example) {
  const size_t row = static_cast<size_t>(size()) + 1;
  for (size_t i = 0; i < num_specs(); ++i) {
    const FeatureSpec& spec = parser.specs_[i];
    if (spec.form == Form::kFixed) continue;
    const Found& entry = at(example, i);
    ParsedFeature& result = results[i];
    const int64_t place = places[i * row + static_cast<size_t>(example)];
    if (spec.form == Form::kVariable) {
      const int64_t begin = example * longest[i];
      if (entry.count > 0) read_values(entry.feature, result.values, begin, entry.count);
      fill_values(batch.defaults[i], result.values, begin + entry.count, longest[i] - entry.count);
      continue;
    }
    if (entry.count == 0) continue;
    read_values(entry.feature, result.values, place, entry.count);
    if (spec.form == Form::kRagged) continue;
    int64_t* index = result.indices.mutable_data<int64_t>().data();
    index += place * (parser.options_.single ? 1 : 2);
    for (int64_t k = 0; k < entry.count; ++k) {
      if (!parser.options_.single) *index++ = example;
      *index++ = k;
    }
  }
}

Result<std::vector<ParsedFeature>> ExampleParser::parse(const Batch& batch, ParallelLoop loop,
                                                        Allocator& allocator) const {
  if (!batch.names.empty() && batch.names.size() != batch.serialized.size()) {
    return invalid_argument("expected a name for each of ", batch.serialized.size(),
                            " examples, got ", batch.names.size());
  }
  Pass pass(*this, batch);
  if (options_.single && pass.size() != 1) {
    return invalid_argument("expected a single example, got ", pass.size());
  }
  MR_TRY(pass.check_defaults());
  MR_TRY(pass.allocate_fixed(allocator));
  size_t bytes = 0;
  for (const std::string& example : batch.serialized) bytes += example.size();
  const auto examples = static_cast<double>(std::max<size_t>(batch.serialized.size(), 1));
  const double cost = 50 + 25 * static_cast<double>(specs_.size()) +
                      static_cast<double>(bytes) / 16 / examples;  // nanoseconds
  FirstError error;
  loop(pass.size(), cost, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      Status status = pass.scan(e);
      if (!status.ok()) return error.note(e, std::move(status));
    }
  });
  MR_TRY(error.take());
  const bool counted = std::any_of(specs_.begin(), specs_.end(), [](const FeatureSpec& spec) {
    return spec.form != Form::kFixed;
  });
  if (counted) {
    MR_TRY(pass.allocate_counted(allocator));
    const double write_cost = 10 * static_cast<double>(specs_.size()) +
                              3 * static_cast<double>(pass.total_counted) / examples;
    loop(pass.size(), write_cost, [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) pass.write_counted(e);
    });
  }
  return std::move(pass.results);
}

}  // namespace millrace
