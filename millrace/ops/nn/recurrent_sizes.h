#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "millrace/graph/shape_context.h"
#include "millrace/kernel/kernel.h"

namespace millrace {

// The sizes of what a recurrent cell reads and writes, -1 while they are not known. Shape rules and
// kernels find them by the same function, so that both refuse the same.
struct RecurrentSizes {
  int64_t steps = -1, batch = -1, inputs = -1, cells = -1;
};

// Checks shapes one after the other, each against what those before it say.
class RecurrentShapes {
 public:
  using Names = std::span<const std::string_view>;

  RecurrentShapes(std::vector<PartialShape> shapes, Names names)
      : shapes_(std::move(shapes)), names_(names) {}
  // Of inputs `first` and following, as many as there are names.
  static RecurrentShapes of(const ShapeContext& c, int first, Names names);
  static RecurrentShapes of(const KernelContext& ctx, int first, Names names);

  const RecurrentSizes& sizes() const { return sizes_; }

  // x and the states cs_prev, h_prev (or one of them), inputs `states` and following.
  Status read_inputs(int x, bool sequence, int states, int num_states);
  // [inputs + cells, gates * cells], whose sizes may say those of the cell.
  Status read_kernel(int kernel, int64_t gates);
  // [count * cells].
  Status read_vector(int vector, int64_t count);
  // [batch, cells], or one for each step of a sequence: input i and all after it.
  Status read_values(int first, bool sequence);
  // A vector of any length.
  Status read_any_vector(int vector);

  PartialShape values(bool sequence) const;
  const PartialShape& shape(int i) const { return shapes_[static_cast<size_t>(i)]; }

 private:
  // Input i merged with what it must be.
  Result<PartialShape> merge(int i, const PartialShape& expected);
  Status learn_cells(int i, int64_t size, int64_t count);

  std::vector<PartialShape> shapes_;
  Names names_;
  RecurrentSizes sizes_;
};

}  // namespace millrace
