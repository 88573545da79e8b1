#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/graph/gradient.h"
#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"
#include "millrace/kernel/resource_manager.h"

namespace millrace {

// An array whose elements are tensors of one type, each written once and read after that. Mistakes
// are INVALID_ARGUMENT. Thread-safe.
//
// The gradient of an array is another one of the same size, to which every use of an element adds
// its part of the element's gradient: it may be written many times, and what nobody wrote is zero.
class TensorArray final : public Resource {
 public:
  static constexpr std::string_view kTypeName = "TensorArray";

  struct Options {
    DType dtype = DType::kInvalid;
    PartialShape element_shape;             // of every element
    bool identical_element_shapes = false;  // all elements have one shape, that of the first
    bool dynamic_size = false;              // a write past the end makes the array longer
    bool clear_after_read = true;           // an element can be read once and is freed then
    int64_t size = 0;
  };
  TensorArray(std::string name, Options options);

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  PartialShape element_shape() const;

  Status write(int64_t index, Tensor value);
  // An element that was never written is zeros where its shape is known.
  Result<Tensor> read(int64_t index);
  // Several at once, none of them between writes of others.
  Status write_many(std::span<const int64_t> indices, std::vector<Tensor> values);
  Result<std::vector<Tensor>> read_many(std::span<const int64_t> indices);
  // Writes elements 0, 1, ...; all of the array unless it may grow. The gradient's read_all()
  // returns as many.
  Status write_all(std::vector<Tensor> values);
  Result<std::vector<Tensor>> read_all();

  Result<int64_t> size() const;
  // Frees the elements; every use afterwards is an error.
  void close();

  // The array for this one's gradient. From now on this one cannot grow.
  Result<Ref<TensorArray>> make_gradient(std::string name);

  std::string describe() const override;

 private:
  // No tensor in a written element: zeros of `shape`.
  struct Element {
    Tensor tensor;
    Shape shape;
    bool written = false;
    bool read = false;
    bool cleared = false;
  };

  Status check_open() const MR_REQUIRES(mu_);
  Status write_locked(int64_t index, Tensor value) MR_REQUIRES(mu_);
  Result<Tensor> read_locked(int64_t index) MR_REQUIRES(mu_);
  Status add_to(Element& element, int64_t index, Tensor value) MR_REQUIRES(mu_);

  const std::string name_;
  const DType dtype_;
  const bool identical_element_shapes_;
  const bool clear_after_read_;

  mutable Mutex mu_;
  bool is_gradient_ MR_GUARDED_BY(mu_) = false;
  bool dynamic_size_ MR_GUARDED_BY(mu_);
  bool closed_ MR_GUARDED_BY(mu_) = false;
  // Some element is a sum of several writes, whose gradients this array could not tell apart.
  bool summed_ MR_GUARDED_BY(mu_) = false;
  PartialShape element_shape_ MR_GUARDED_BY(mu_);
  int64_t size_ MR_GUARDED_BY(mu_);
  // How many elements the last write_all() wrote; 0: none was.
  int64_t written_together_ MR_GUARDED_BY(mu_) = 0;
  // Those that were touched. The size comes from the user and costs nothing.
  std::unordered_map<int64_t, Element> elements_ MR_GUARDED_BY(mu_);
};

// For the ops on arrays: input 0 is the handle, the last input the flow.

// INVALID_ARGUMENT unless handle and flow are scalars and the array may hold `dtype`. Returns what
// is known of its elements' shape.
Result<PartialShape> tensor_array_shape(const ShapeContext& c, DType dtype);
// Sets output 0 to the flow.
Status flow_shape(ShapeContext& c);
// INVALID_ARGUMENT unless the flow is a scalar.
Status expect_flow(const KernelContext& ctx);
// The array in input 0, INVALID_ARGUMENT unless it holds `dtype` and the flow is a scalar.
Result<Ref<TensorArray>> tensor_array_input(const KernelContext& ctx, DType dtype);
// Hands the flow on as output 0.
void pass_flow(KernelContext& ctx);

// The gradient array of the array in input 0, for rules. It exists when its flow does.
struct GradientArray {
  Expr handle;
  Expr flow;
};
GradientArray gradient_array(const GradientContext& g, Expr flow);

}  // namespace millrace
