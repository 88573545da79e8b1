#include "millrace/io/feature_list_parser.h"

#include <algorithm>

#include "millrace/io/parsed_values.h"
#include "millrace/io/wire.h"

namespace millrace {

using Form = FeatureListSpec::Form;

struct FeatureListParser::Steps {
  bool present = false;
  std::vector<FeatureView> features;
  std::vector<int64_t> counts;
  int64_t size() const { return static_cast<int64_t>(features.size()); }
};

namespace {

std::vector<std::string_view> keys_of(const std::vector<FeatureListSpec>& specs) {
  std::vector<std::string_view> keys;
  for (const FeatureListSpec& spec : specs) keys.emplace_back(spec.key);
  return keys;
}

bool read_steps(std::string_view message, std::vector<FeatureView>& features) {
  features.clear();
  uint32_t tag;
  for (WireReader list(message); !list.done();) {
    std::string_view feature;
    if (!list.tag(tag)) return false;
    if (tag != wire_tag(1, WireType::kBytes)) {
      if (!list.skip(tag)) return false;
      continue;
    }
    if (!list.bytes(feature) || !features.emplace_back().parse(feature)) return false;
  }
  return true;
}

}  // namespace

FeatureListParser::FeatureListParser(std::vector<FeatureListSpec> specs, bool single)
    : specs_(std::move(specs)), single_(single), index_(keys_of(specs_)) {}

Result<std::unique_ptr<FeatureListParser>> FeatureListParser::make(
    std::vector<FeatureListSpec> specs, bool single) {
  for (const FeatureListSpec& spec : specs) MR_TRY(check_feature_type(spec.key, spec.dtype));
  return std::unique_ptr<FeatureListParser>(new FeatureListParser(std::move(specs), single));
}

Status FeatureListParser::count(const FeatureListSpec& spec, std::string_view name,
                                Steps& steps) const {
  if (!steps.present && spec.form == Form::kDense && !spec.missing_is_empty) {
    return invalid_argument("Name: ", name, ", Feature list '", spec.key,
                            "' is required but could not be found.  Did you mean to include it in "
                            "feature_list_dense_missing_assumed_empty or "
                            "feature_list_dense_defaults?");
  }
  for (int64_t t = 0; t < steps.size(); ++t) {
    const FeatureView& feature = steps.features[static_cast<size_t>(t)];
    if (feature.dtype() != spec.dtype && (spec.form == Form::kDense || !feature.missing())) {
      return invalid_argument("Name: ", name, ", Feature list: ", spec.key, ", Index: ", t, ".  ",
                              type_mismatch(feature.dtype(), spec.dtype));
    }
    const int64_t count = feature.count();
    if (count < 0) {
      return invalid_argument("Name: ", name, ", Feature list: ", spec.key, ", Index: ", t,
                              ".  Can't parse serialized SequenceExample.");
    }
    if (spec.form == Form::kDense && count != spec.shape.num_elements()) {
      return invalid_argument("Name: ", name, ", Key: ", spec.key, ", Index: ", t, ".  Number of ",
                              feature_type_name(spec.dtype),
                              " values != expected.  values size: ", count,
                              " but output shape: ", spec.shape);
    }
    steps.counts.push_back(count);
  }
  return ok_status();
}

Result<std::vector<FeatureListParser::Steps>> FeatureListParser::scan(std::string_view serialized,
                                                                      std::string_view name) const {
  std::vector<Steps> found(specs_.size());
  uint32_t tag;
  for (WireReader message(serialized); !message.done();) {
    std::string_view lists;
    if (!message.tag(tag)) return cannot_parse_example(name, serialized);
    if (tag != wire_tag(2, WireType::kBytes)) {
      if (!message.skip(tag)) return cannot_parse_example(name, serialized);
      continue;
    }
    if (!message.bytes(lists)) return cannot_parse_example(name, serialized);
    for (WireReader map(lists); !map.done();) {
      std::string_view key, value;
      bool whole = read_map_entry(map, key, value);
      index_.find(key, [&](size_t i) {
        found[i].present = true;
        whole = whole && read_steps(value, found[i].features);
      });
      if (!whole) return cannot_parse_example(name, serialized);
    }
  }
  for (size_t i = 0; i < specs_.size(); ++i) MR_TRY(count(specs_[i], name, found[i]));
  return found;
}

Result<std::vector<ParsedFeatureList>> FeatureListParser::parse(
    std::span<const std::string> serialized, std::span<const std::string> names,
    Allocator& allocator) const {
  if (!names.empty() && names.size() != serialized.size()) {
    return invalid_argument("expected a name for each of ", serialized.size(), " examples, got ",
                            names.size());
  }
  if (single_ && serialized.size() != 1) {
    return invalid_argument("expected a single example, got ", serialized.size());
  }
  std::vector<std::vector<Steps>> examples;
  for (size_t e = 0; e < serialized.size(); ++e) {
    MR_TRY_ASSIGN(examples.emplace_back(),
                  scan(serialized[e], names.empty() ? "<unknown>" : names[e]));
  }
  std::vector<ParsedFeatureList> results;
  for (size_t i = 0; i < specs_.size(); ++i) {
    std::vector<const Steps*> batch;
    for (const std::vector<Steps>& example : examples) batch.push_back(&example[i]);
    MR_TRY_ASSIGN(results.emplace_back(), write(specs_[i], batch, allocator));
  }
  return results;
}

Result<ParsedFeatureList> FeatureListParser::write(const FeatureListSpec& spec,
                                                   std::span<const Steps* const> batch,
                                                   Allocator& allocator) const {
  const auto size = static_cast<int64_t>(batch.size());
  int64_t longest = 0, widest = 0;
  std::vector<int64_t> inner{0}, outer{0}, lengths;
  for (const Steps* steps : batch) {
    longest = std::max(longest, steps->size());
    lengths.push_back(steps->size());
    outer.push_back(outer.back() + steps->size());
    for (const int64_t count : steps->counts) {
      widest = std::max(widest, count);
      inner.push_back(inner.back() + count);
    }
  }
  const int64_t total = inner.back();
  ParsedFeatureList out;
  Shape shape{total};
  if (spec.form == Form::kDense) {
    MR_TRY_ASSIGN(shape, (single_ ? Shape{longest} : Shape{size, longest}).concat(spec.shape));
    out.lengths = Tensor::vector<int64_t>(lengths);
  }
  MR_TRY_ASSIGN(out.values, Tensor::allocate(spec.dtype, std::move(shape), allocator));
  if (spec.form == Form::kRagged) {
    MR_TRY_ASSIGN(out.inner_splits, make_splits(inner, spec.splits_dtype, allocator));
    if (single_) outer.clear();
    MR_TRY_ASSIGN(out.outer_splits, make_splits(outer, spec.splits_dtype, allocator));
  }
  const int64_t columns = single_ ? 2 : 3;
  int64_t* index = nullptr;
  if (spec.form == Form::kSparse) {
    MR_TRY_ASSIGN(out.indices, Tensor::allocate(DType::kInt64, Shape{total, columns}, allocator));
    out.shape = single_ ? Tensor::vector<int64_t>({longest, widest})
                        : Tensor::vector<int64_t>({size, longest, widest});
    index = out.indices.mutable_data<int64_t>().data();
  }
  int64_t place = 0;
  for (int64_t e = 0; e < size; ++e) {
    const Steps& steps = *batch[static_cast<size_t>(e)];
    for (int64_t t = 0; t < steps.size(); ++t) {
      const int64_t count = steps.counts[static_cast<size_t>(t)];
      read_values(steps.features[static_cast<size_t>(t)], out.values, place, count);
      place += count;
      for (int64_t k = 0; index != nullptr && k < count; ++k) {
        if (!single_) *index++ = e;
        *index++ = t;
        *index++ = k;
      }
    }
    if (spec.form == Form::kDense) {
      const int64_t rest = (longest - steps.size()) * spec.shape.num_elements();
      fill_values(Tensor(), out.values, place, rest);
      place += rest;
    }
  }
  return out;
}

}  // namespace millrace
