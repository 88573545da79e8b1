#include "millrace/ops/tensor_list/tensor_list.h"

#include <algorithm>
#include <utility>

#include "millrace/ops/math/elementwise.h"

namespace millrace {
namespace {

constexpr OpInfo kAdd{"Add", kNumbers, ""};
constexpr double kAddNanos = 0.25;  // per element

int nesting_of(const Tensor& element) {
  int deepest = 0;
  for (const Variant& variant : element.data<Variant>()) {
    if (const TensorList* list = as_tensor_list(variant)) {
      deepest = std::max(deepest, list->nesting());
    }
  }
  return deepest;
}

Status add_elements(Tensor& sum, const Tensor& other, ParallelFor parallel_for) {
  if (sum.shape() != other.shape()) {
    return invalid_argument("elements of lists to add must have one shape, got ", sum.shape(),
                            " and ", other.shape());
  }
  if (sum.dtype() == DType::kVariant) return add_variants(sum, other, parallel_for);
  const BinaryFunction add(kAdd, sum.dtype());
  if (!add) return unimplemented("list elements of type ", sum.dtype(), " cannot be added");
  Tensor before;  // keeps what is added to, where it is not the sum's own
  const void* from = sum.raw();
  if (!sum.writable()) {
    before = std::move(sum);
    MR_TRY_ASSIGN(sum, Tensor::allocate(before.dtype(), before.shape()));
  }
  const size_t size = dtype_size(sum.dtype());
  const auto at = [size](const void* base, int64_t i) {
    return static_cast<const char*>(base) + static_cast<size_t>(i) * size;
  };
  char* to = static_cast<char*>(sum.mutable_raw());
  parallel_for(sum.num_elements(), kAddNanos, [&](int64_t begin, int64_t end) {
    add(at(from, begin), at(other.raw(), begin), to + static_cast<size_t>(begin) * size,
        end - begin);
  });
  return ok_status();
}

}  // namespace

const TensorList* as_tensor_list(const Variant& variant) {
  if (!variant.object || variant.object->type_name() != TensorList::kTypeName) return nullptr;
  return static_cast<const TensorList*>(variant.object.get());
}

Tensor make_list_tensor(Ref<TensorList> list) {
  return Tensor::scalar(Variant{Ref<VariantObject>(std::move(list))});
}

bool fits(const PartialShape& expected, const Shape& shape) {
  if (!expected.rank_known()) return true;
  if (expected.rank() != shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (expected.dim_known(i) && expected.dim(i) != shape.dim(i)) return false;
  }
  return true;
}

TensorList::TensorList(DType element_dtype, PartialShape element_shape, int64_t max_num_elements)
    : element_dtype_(element_dtype),
      element_shape_(std::move(element_shape)),
      max_num_elements_(max_num_elements) {}

TensorList::~TensorList() = default;

const TensorList::Node* TensorList::chunk_of(int64_t i) const {
  MR_CHECK(i >= 0 && i < length_);
  const Node* node = i < capacity(height_) ? root_.get() : nullptr;
  for (int h = height_; h > 0 && node != nullptr; --h) {
    const size_t child = static_cast<size_t>((i >> (kBits * h)) % kFanOut);
    node = child < node->children.size() ? node->children[child].get() : nullptr;
  }
  return node;
}

const Tensor& TensorList::get(int64_t i) const {
  static const Tensor& unset = *new Tensor;
  const Node* node = chunk_of(i);
  const size_t element = static_cast<size_t>(i % kFanOut);
  return node != nullptr && element < node->elements.size() ? node->elements[element] : unset;
}

bool TensorList::mark_read(int64_t i) const {
  if (!get(i).valid()) return true;
  const uint32_t bit = uint32_t{1} << (i % kFanOut);
  return (chunk_of(i)->read.fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

Status TensorList::visit_node(const Node* node, int height, int64_t first,
                              FunctionRef<Status(int64_t, const Tensor&)> visit) {
  if (node == nullptr) return ok_status();
  for (const Tensor& element : node->elements) {
    if (element.valid()) MR_TRY(visit(first, element));
    ++first;
  }
  for (const Ref<Node>& child : node->children) {
    MR_TRY(visit_node(child.get(), height - 1, first, visit));
    first += capacity(height - 1);
  }
  return ok_status();
}

Status TensorList::for_each_set(FunctionRef<Status(int64_t, const Tensor&)> visit) const {
  return visit_node(root_.get(), height_, 0, visit);
}

void TensorList::make_unique(Ref<Node>& node) {
  if (node && node->unique()) return;
  Ref<Node> mine = make_ref<Node>();
  if (node) {
    mine->elements = node->elements;
    mine->children = node->children;
    mine->read.store(node->read.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  node = std::move(mine);
}

Tensor& TensorList::slot(int64_t i) {
  for (; i >= capacity(height_); ++height_) {
    if (!root_) continue;
    Ref<Node> above = make_ref<Node>();
    above->children.push_back(std::move(root_));
    root_ = std::move(above);
  }
  Ref<Node>* node = &root_;
  for (int h = height_; h > 0; --h) {
    make_unique(*node);
    std::vector<Ref<Node>>& children = (*node)->children;
    const size_t child = static_cast<size_t>((i >> (kBits * h)) % kFanOut);
    if (child >= children.size()) children.resize(child + 1);
    node = &children[child];
  }
  make_unique(*node);
  std::vector<Tensor>& elements = (*node)->elements;
  const size_t element = static_cast<size_t>(i % kFanOut);
  if (element >= elements.size()) elements.resize(element + 1);
  (*node)->read.fetch_and(~(uint32_t{1} << element), std::memory_order_relaxed);
  return elements[element];
}

void TensorList::truncate(Ref<Node>& node, int height, int64_t length) {
  if (!node || length >= capacity(height)) return;
  if (length == 0) {
    node = nullptr;
    return;
  }
  make_unique(node);
  if (height == 0) {
    std::vector<Tensor>& elements = node->elements;
    elements.resize(std::min(elements.size(), static_cast<size_t>(length)));
    return;
  }
  const int64_t last = (length - 1) / capacity(height - 1);
  std::vector<Ref<Node>>& children = node->children;
  children.resize(std::min(children.size(), static_cast<size_t>(last) + 1));
  if (static_cast<size_t>(last) < children.size()) {
    truncate(children[static_cast<size_t>(last)], height - 1, length - last * capacity(height - 1));
  }
}

Status TensorList::check_element(const Tensor& element) {
  if (element.dtype() != element_dtype_) {
    return invalid_argument("expected an element of type ", element_dtype_,
                            ", that of the list, got ", element.dtype(), ' ', element.shape());
  }
  if (!fits(element_shape_, element.shape())) {
    return invalid_argument("expected an element of shape ", element_shape_,
                            ", that of the list's elements, got shape ", element.shape());
  }
  if (element_dtype_ != DType::kVariant) return ok_status();
  const int nesting = nesting_of(element) + 1;
  if (nesting > kMaxNesting) {
    return invalid_argument("lists can be nested ", kMaxNesting, " deep, not ", nesting);
  }
  nesting_ = std::max(nesting_, nesting);
  return ok_status();
}

Status TensorList::check_all_fit(const PartialShape& shape) const {
  if (shape == element_shape_) return ok_status();
  return for_each_set([&](int64_t i, const Tensor& element) -> Status {
    if (fits(shape, element.shape())) return ok_status();
    return invalid_argument("expected elements of shape ", shape, ", but element ", i,
                            " has shape ", element.shape());
  });
}

Status TensorList::check_length(int64_t length) const {
  const int64_t most = max_num_elements_ < 0 ? kMaxLength : max_num_elements_;
  if (length <= most) return ok_status();
  return invalid_argument("the list can have ", most, " elements, not ", length);
}

Status TensorList::set(int64_t i, Tensor element) {
  if (i < 0 || i >= length_) {
    return invalid_argument("expected an index in [0, ", length_, ") of a list with ", length_,
                            " elements, got ", i);
  }
  MR_TRY(check_element(element));
  slot(i) = std::move(element);
  return ok_status();
}

Status TensorList::push(Tensor element) {
  MR_TRY(check_length(length_ + 1));
  MR_TRY(check_element(element));
  slot(length_) = std::move(element);
  ++length_;
  return ok_status();
}

Result<Tensor> TensorList::pop() {
  if (length_ == 0) return invalid_argument("cannot pop from an empty list");
  Tensor last = get(length_ - 1);
  MR_TRY(resize(length_ - 1));
  return last;
}

Status TensorList::resize(int64_t length) {
  if (length < 0) return invalid_argument("a list cannot have a negative length, got ", length);
  if (length >= length_) {
    MR_TRY(check_length(length));
    length_ = length;
    return ok_status();
  }
  truncate(root_, height_, length);
  length_ = length;
  for (; height_ > 0 && length <= capacity(height_ - 1); --height_) {
    if (!root_) continue;
    Ref<Node> below = root_->children.empty() ? nullptr : root_->children[0];
    root_ = std::move(below);
  }
  return ok_status();
}

Ref<TensorList> TensorList::share() const {
  Ref<TensorList> other = make_ref<TensorList>(element_dtype_, element_shape_, max_num_elements_);
  other->length_ = length_;
  other->root_ = root_;
  other->height_ = height_;
  other->nesting_ = nesting_;
  return other;
}

Result<Ref<TensorList>> TensorList::share_as(PartialShape element_shape) const {
  MR_TRY(check_all_fit(element_shape));
  Ref<TensorList> other = share();
  other->element_shape_ = std::move(element_shape);
  return other;
}

Result<Ref<VariantObject>> TensorList::copy() const { return Ref<VariantObject>(share()); }

Result<Ref<VariantObject>> TensorList::zeros_like() const {
  Ref<TensorList> zeros = make_ref<TensorList>(element_dtype_, element_shape_, max_num_elements_);
  zeros->length_ = length_;
  zeros->nesting_ = nesting_;
  const bool nested = element_dtype_ == DType::kVariant;
  if (!nested && (!kNumbers.contains(element_dtype_) || element_shape_.fully_known())) {
    return Ref<VariantObject>(std::move(zeros));
  }
  Tensor zero;  // one for all neighbours of one shape
  MR_TRY(for_each_set([&](int64_t i, const Tensor& element) -> Status {
    if (nested) {
      MR_TRY_ASSIGN(zero, zeros_like_variants(element));
    } else if (!zero.valid() || zero.shape() != element.shape()) {
      MR_TRY_ASSIGN(zero, Tensor::zeros(element_dtype_, element.shape()));
    }
    zeros->slot(i) = zero;
    return ok_status();
  }));
  return Ref<VariantObject>(std::move(zeros));
}

Status TensorList::add(const VariantObject& other, ParallelFor parallel_for) {
  const TensorList& list = static_cast<const TensorList&>(other);
  if (list.element_dtype_ != element_dtype_) {
    return invalid_argument("lists to add must have elements of one type, got ", element_dtype_,
                            " and ", list.element_dtype_);
  }
  Result<PartialShape> both = element_shape_.merge(list.element_shape_);
  if (!both.ok()) {
    return invalid_argument("lists to add must have elements of one shape, got ", element_shape_,
                            " and ", list.element_shape_);
  }
  if (list.length_ != length_) {
    return invalid_argument("lists to add must have one length, got ", length_, " and ",
                            list.length_);
  }
  MR_TRY(check_all_fit(*both));
  MR_TRY(list.check_all_fit(*both));
  element_shape_ = std::move(both).value();
  if (max_num_elements_ != list.max_num_elements_) max_num_elements_ = kUnlimited;
  nesting_ = std::max(nesting_, list.nesting_);
  return list.for_each_set([&](int64_t i, const Tensor& element) -> Status {
    Tensor& mine = slot(i);
    if (!mine.valid()) {
      mine = element;
      return ok_status();
    }
    Status added = add_elements(mine, element, parallel_for);
    return added.ok() ? added : added.with_prefix(str_cat("element ", i));
  });
}

}  // namespace millrace
