#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "millrace/base/status.h"
#include "millrace/distributed/rpc/message.h"

// Messages as bytes, for transports: the number of parts (4 bytes), the size of each (8), the size
// of the fields (4), the fields, and the parts that are small. The bytes of larger parts follow
// apart, so that they need not be copied together. Numbers have their low byte first.

namespace millrace {

static_assert(std::endian::native == std::endian::little);

// Parts up to this size are among the bytes of their message.
inline constexpr size_t kInlinePart = size_t{16} << 10;
// What a message may have: bytes beside its large parts, bytes in parts, parts.
inline constexpr uint32_t kMaxMessageBytes = uint32_t{1} << 30;
inline constexpr uint64_t kMaxPartBytes = uint64_t{1} << 40;
inline constexpr uint32_t kMaxPartCount = 1 << 16;

template <class T>
void append_bytes(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes values from the front of what came. INVALID_ARGUMENT when it is too short.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}

  template <class T>
  Result<T> number() {
    MR_TRY_ASSIGN(const std::string_view bytes, take(sizeof(T)));
    T value;
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  Result<std::string_view> take(uint64_t size);
  std::string_view rest() const { return rest_; }
  // INVALID_ARGUMENT when something is left.
  Status end() const;

 private:
  std::string_view rest_;
};

// How many bytes append_message() adds.
size_t message_bytes(const Message& message);
// RESOURCE_EXHAUSTED for a message that may not be so large.
Status append_message(std::string& out, const Message& message);

// A message as it was read: parts that come apart have memory, without their bytes.
struct IncomingMessage {
  Message message;
  uint64_t missing = 0;  // bytes
};

// Reads the rest of `bytes`. INVALID_ARGUMENT for what is no message; RESOURCE_EXHAUSTED when
// memory for parts is missing.
Result<IncomingMessage> read_message(ByteReader& bytes);

// The code and the text of an error, and back; text beyond 1 MiB is cut, unknown codes are UNKNOWN.
void append_status(std::string& out, const Status& status);
// Into `status`, which may be OK; INVALID_ARGUMENT when there is none.
Status read_status(ByteReader& bytes, Status& status);

}  // namespace millrace
