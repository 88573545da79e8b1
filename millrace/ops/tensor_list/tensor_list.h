#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/variant.h"

namespace millrace {

// A list of tensors of one type that is a value: what a scalar tensor of dtype variant holds. It
// carries saved tensors through loops.
//
// Elements lie in chunks of 32 under a tree of as many branches. copy() shares all of it; a change
// to a list copies the chunk and the branches above it that another list still shares, and nothing
// where none does. So push, pop, get and set take constant time (a step for every factor of 32 in
// the length), whether older versions live on or not, and versions together need memory for what
// they differ in.
//
// An element may be unset: it takes no memory, and readers that know its shape take it for zeros.
//
// As all variant objects, immutable while shared: who holds the only reference may change it. Any
// number of threads may read.
class TensorList final : public VariantObject {
 public:
  static constexpr std::string_view kTypeName = "tensorflow::TensorList";
  static constexpr int64_t kUnlimited = -1;
  static constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max();
  // Lists within lists, the innermost counted too.
  static constexpr int kMaxNesting = 16;

  // Empty. Elements must fit `element_shape`; there can be max_num_elements of them.
  TensorList(DType element_dtype, PartialShape element_shape,
             int64_t max_num_elements = kUnlimited);
  ~TensorList() override;

  DType element_dtype() const { return element_dtype_; }
  const PartialShape& element_shape() const { return element_shape_; }
  int64_t max_num_elements() const { return max_num_elements_; }
  int64_t length() const { return length_; }
  // At least how deep lists lie within each other here, this one counted.
  int nesting() const { return nesting_; }

  // Element i, 0 <= i < length() (checked); no tensor when it is unset. The reference stays good
  // until the list is changed.
  const Tensor& get(int64_t i) const;
  // Notes that element i, 0 <= i < length() (checked), was read; false when that was noted before,
  // here or in a list that shares the element. An unset element is never noted.
  bool mark_read(int64_t i) const;
  // Calls visit(i, element) for the elements that are set, in order, until it returns an error,
  // which is returned.
  Status for_each_set(FunctionRef<Status(int64_t, const Tensor&)> visit) const;

  // INVALID_ARGUMENT, saying what was expected and found, for an index outside the list, a tensor
  // of another type or shape, a list that is full or empty, too deep a nesting.
  Status set(int64_t i, Tensor element);
  Status push(Tensor element);
  // The last element; no tensor when it was unset.
  Result<Tensor> pop();
  // Drops elements at the end, or adds unset ones.
  Status resize(int64_t length);

  // The same elements, shared. O(1).
  Ref<TensorList> share() const;
  // The same with another element shape; INVALID_ARGUMENT for an element that does not fit it.
  Result<Ref<TensorList>> share_as(PartialShape element_shape) const;

  std::string_view type_name() const override { return kTypeName; }
  // As TensorFlow writes lists.
  Status encode(std::string& metadata, std::vector<Tensor>& tensors) const override;
  static Result<Ref<VariantObject>> decode(std::string_view metadata, std::vector<Tensor> tensors);

  // Elements of zeros, in lists within lists too; unset where that says the same: where the shape
  // of all elements is known, and for types that cannot be added.
  Result<Ref<VariantObject>> zeros_like() const override;
  Result<Ref<VariantObject>> copy() const override;
  // Element by element, of lists of one length; an unset element changes nothing.
  Status add(const VariantObject& other, ParallelFor parallel_for) override;

 private:
  // A chunk of elements (height 0), or a branch. Vectors end where all that follows is unset.
  struct Node : RefCounted {
    std::vector<Tensor> elements;
    std::vector<Ref<Node>> children;
    mutable std::atomic<uint32_t> read = 0;  // bit k: mark_read() of element k
  };
  static constexpr int kBits = 5;
  static constexpr int64_t kFanOut = int64_t{1} << kBits;

  // How many elements a node of this height can hold.
  static constexpr int64_t capacity(int height) { return int64_t{1} << (kBits * (height + 1)); }
  // The chunk of element i; null when all of it is unset.
  const Node* chunk_of(int64_t i) const;
  static void make_unique(Ref<Node>& node);
  static void truncate(Ref<Node>& node, int height, int64_t length);
  static Status visit_node(const Node* node, int height, int64_t first,
                           FunctionRef<Status(int64_t, const Tensor&)> visit);
  // Also takes note of its nesting.
  Status check_element(const Tensor& element);
  Status check_length(int64_t length) const;
  Status check_all_fit(const PartialShape& shape) const;
  // Where element i is, to be written: this list alone sees it afterwards.
  Tensor& slot(int64_t i);

  DType element_dtype_;
  PartialShape element_shape_;
  int64_t max_num_elements_;
  int64_t length_ = 0;
  Ref<Node> root_;  // null: all elements are unset
  int height_ = 0;  // of root_; elements past its capacity are unset
  int nesting_ = 1;
};

// The list that a variant holds; null when it is something else, or nothing.
const TensorList* as_tensor_list(const Variant& variant);
// A scalar variant tensor that holds `list`.
Tensor make_list_tensor(Ref<TensorList> list);

// Whether a tensor of shape `shape` is what `expected` says.
bool fits(const PartialShape& expected, const Shape& shape);

}  // namespace millrace
