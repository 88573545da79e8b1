#include "millrace/io/snappy.h"

#include "millrace/io/coding.h"

namespace millrace {
namespace {

Status damaged(std::string_view what) { return data_loss("a Snappy block is damaged: ", what); }

// A number of `count` bytes (1 to 4) off the front of `in`.
bool take_number(std::string_view& in, size_t count, uint32_t& out) {
  if (in.size() < count) return false;
  out = 0;
  for (size_t i = 0; i < count; ++i) {
    out |= static_cast<uint32_t>(static_cast<uint8_t>(in[i])) << (8 * i);
  }
  in.remove_prefix(count);
  return true;
}

Status take_literal(std::string_view& in, uint8_t tag, size_t limit, std::string& out) {
  uint64_t length = uint64_t{tag} >> 2;
  if (length >= 60) {
    uint32_t bytes = 0;
    if (!take_number(in, length - 59, bytes)) return damaged("it ends within a length");
    length = bytes;
  }
  ++length;
  if (length > in.size()) return damaged("it ends within a literal");
  if (length > limit - out.size()) return damaged("it is longer than it says");
  out.append(in.substr(0, length));
  in.remove_prefix(length);
  return ok_status();
}

Status take_copy(std::string_view& in, uint8_t tag, size_t limit, std::string& out) {
  size_t length = 0;
  uint32_t offset = 0;
  if ((tag & 3) == 1) {
    length = 4U + ((tag >> 2) & 7U);
    if (!take_number(in, 1, offset)) return damaged("it ends within a copy");
    offset |= static_cast<uint32_t>(tag >> 5) << 8;
  } else {
    length = 1U + (tag >> 2);
    if (!take_number(in, (tag & 3) == 2 ? 2 : 4, offset)) return damaged("it ends within a copy");
  }
  if (offset == 0 || offset > out.size()) return damaged("it copies from before its beginning");
  if (length > limit - out.size()) return damaged("it is longer than it says");
  // Byte by byte: a copy may read what it has just written.
  for (size_t from = out.size() - offset; length > 0; --length) out.push_back(out[from++]);
  return ok_status();
}

}  // namespace

Result<std::string> snappy_decode(std::string_view bytes) {
  uint32_t length = 0;
  const size_t all = bytes.size();
  if (!get_varint32(bytes, length)) return damaged("it has no length");
  constexpr size_t kMostPerByte = 22;  // a copy of three bytes stands for at most 64
  if (length / kMostPerByte > all) return damaged("it says that it is longer than can be");
  std::string out;
  out.reserve(length);
  while (!bytes.empty()) {
    const auto tag = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    MR_TRY((tag & 3) == 0 ? take_literal(bytes, tag, length, out)
                          : take_copy(bytes, tag, length, out));
  }
  if (out.size() != length) return damaged("it is shorter than it says");
  return out;
}

}  // namespace millrace
