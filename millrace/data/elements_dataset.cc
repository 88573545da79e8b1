#include "millrace/data/elements_dataset.h"

namespace millrace::data {

Status ElementsDataset::encode(std::string& metadata, std::vector<Tensor>& tensors) const {
  StateWriter writer;
  writer.stage("Elements");
  writer.text(name());
  writer.number(static_cast<int64_t>(spec().types.size()));
  for (size_t i = 0; i < spec().types.size(); ++i) {
    writer.text(dtype_name(spec().types[i]));
    writer.text(spec().shapes[i].to_string());
  }
  writer.number(size());
  for (const Element& element : elements_) writer.element(element);
  const Ref<SavedState> state = writer.finish();
  metadata = std::move(state->bytes);
  tensors = std::move(state->tensors);
  return ok_status();
}

Result<Ref<VariantObject>> ElementsDataset::decode(std::string_view metadata,
                                                   std::vector<Tensor> tensors) {
  const Ref<SavedState> state = make_ref<SavedState>();
  state->bytes = std::string(metadata);
  state->tensors = std::move(tensors);
  StateReader reader(*state);
  MR_TRY(reader.stage("Elements"));
  MR_TRY_ASSIGN(const std::string name, reader.text());
  // Counts are only said: what they count is found before there is memory for it.
  MR_TRY_ASSIGN(const int64_t components, reader.number_in(0, INT64_MAX));
  ElementSpec spec;
  for (int64_t i = 0; i < components; ++i) {
    MR_TRY_ASSIGN(const std::string type, reader.text());
    MR_TRY_ASSIGN(const std::string shape, reader.text());
    spec.types.push_back(dtype_from_name(type));
    if (spec.types.back() == DType::kInvalid) {
      return data_loss("the elements of a saved dataset have the type '", type,
                       "', which there is not");
    }
    MR_TRY_ASSIGN(PartialShape parsed, PartialShape::parse(shape));
    spec.shapes.push_back(std::move(parsed));
  }
  MR_TRY_ASSIGN(const int64_t count, reader.number_in(0, INT64_MAX));
  std::vector<Element> elements;
  for (int64_t i = 0; i < count; ++i) {
    MR_TRY_ASSIGN(Element element, reader.element());
    MR_TRY(check_element(element, spec));
    elements.push_back(std::move(element));
  }
  MR_TRY(reader.finish());
  return Ref<VariantObject>(make_ref<ElementsDataset>(name, std::move(spec), std::move(elements)));
}

}  // namespace millrace::data
