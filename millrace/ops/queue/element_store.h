#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "millrace/tensor/dtype.h"
#include "millrace/tensor/partial_shape.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

// What a queue holds in one place: a tensor per component.
using QueueElement = std::vector<Tensor>;

enum class QueueKind : uint8_t { kFifo, kPaddingFifo, kRandomShuffle, kPriority };
// "FIFOQueue", "PaddingFIFOQueue", ...: the op that makes it.
std::string_view queue_kind_name(QueueKind kind);

// What a queue was asked to be. Nodes that share a queue must agree in all of it.
struct QueueSpec {
  QueueKind kind = QueueKind::kFifo;
  std::vector<DType> types;
  std::vector<PartialShape> shapes;  // one per type; unknown: any
  int64_t capacity = -1;             // negative: no limit
  // Of a kRandomShuffle.
  int64_t min_after_dequeue = 0;
  int64_t seed = 0;  // both zero: drawn when the queue is made
  int64_t seed2 = 0;
  friend bool operator==(const QueueSpec&, const QueueSpec&) = default;
};

// The elements of a queue, and which of them is next. Its user locks.
class ElementStore {
 public:
  virtual ~ElementStore() = default;
  virtual int64_t size() const = 0;
  virtual void put(QueueElement element) = 0;
  // The next element, which leaves; size() must not be 0.
  virtual QueueElement pick() = 0;
  // Returns what pick() gave. Where there is an order, it is then next again (among its equals); so
  // several go back last first.
  virtual void put_back(QueueElement element) = 0;
};

// For a kPriority, components[0] of every element is an int64 scalar.
std::unique_ptr<ElementStore> make_element_store(const QueueSpec& spec);

}  // namespace millrace
