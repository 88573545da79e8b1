#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "millrace/base/ref.h"
#include "millrace/tensor/buffer.h"

namespace millrace {

// What one side of a call says: a few fields, and memory that is carried as it is, without being
// copied into them. A transport moves both and looks into neither.
struct Message {
  // Host memory, `size` bytes from `offset` of `buffer` on. The sender's is read until the call has
  // ended; the receiver's is fresh, aligned as tensors are, and nobody else's.
  struct Part {
    Ref<Buffer> buffer;
    size_t offset = 0;
    size_t size = 0;

    const void* data() const { return static_cast<const char*>(buffer->data()) + offset; }
  };

  std::string fields;  // a message of proto/worker_call.proto; the method tells which
  std::vector<Part> parts;
  // Of a call that came from elsewhere: who made it, as far as the transport can tell, "process 12"
  // of this machine or "ipv4:10.0.0.7". Not carried; empty: not known.
  std::string client{};

  size_t part_bytes() const {
    size_t total = 0;
    for (const Part& part : parts) total += part.size;
    return total;
  }
};

}  // namespace millrace
