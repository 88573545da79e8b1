#include "millrace/distributed/collective/mpi/mpi_message.h"

#include <algorithm>
#include <cstring>

namespace millrace {
namespace {

constexpr size_t kMaxText = 2048;
constexpr size_t kWords = 10;  // those before numbers and text

}  // namespace

size_t MpiMessage::capacity(int ranks) {
  return (kWords + static_cast<size_t>(ranks)) * sizeof(int64_t) + kMaxText;
}

std::string MpiMessage::encode(int ranks) const {
  const size_t size = std::min(text.size(), kMaxText);
  const size_t count = std::min(numbers.size(), static_cast<size_t>(ranks));
  const int64_t words[kWords] = {static_cast<int64_t>(kind),
                                 rank,
                                 epoch,
                                 group,
                                 instance,
                                 number,
                                 static_cast<int64_t>(hash),
                                 code,
                                 static_cast<int64_t>(count),
                                 static_cast<int64_t>(size)};
  std::string out(reinterpret_cast<const char*>(words), sizeof words);
  out.append(reinterpret_cast<const char*>(numbers.data()), count * sizeof(int64_t));
  out.append(text, 0, size);
  return out;
}

Result<MpiMessage> MpiMessage::decode(std::span<const char> bytes, int ranks) {
  int64_t words[kWords];
  if (bytes.size() < sizeof words) return internal("a message of ", bytes.size(), " bytes");
  std::memcpy(words, bytes.data(), sizeof words);
  MpiMessage out;
  const int64_t count = words[8], size = words[9];
  if (words[0] < 0 || words[0] > static_cast<int64_t>(Kind::kClosed) || words[1] < 0 ||
      words[1] >= ranks || (count != 0 && count != ranks) || size < 0 ||
      size > static_cast<int64_t>(kMaxText)) {
    return internal("a message of kind ", words[0], " from rank ", words[1], " with ", count,
                    " numbers and ", size, " characters");
  }
  const size_t tail = static_cast<size_t>(count) * sizeof(int64_t) + static_cast<size_t>(size);
  if (bytes.size() < sizeof words + tail) return internal("a message of ", bytes.size(), " bytes");
  out.kind = static_cast<Kind>(words[0]);
  out.rank = words[1];
  out.epoch = words[2];
  out.group = words[3];
  out.instance = words[4];
  out.number = words[5];
  out.hash = static_cast<uint64_t>(words[6]);
  out.code = words[7];
  out.numbers.resize(static_cast<size_t>(count));
  const char* at = bytes.data() + sizeof words;
  if (count > 0) std::memcpy(out.numbers.data(), at, out.numbers.size() * sizeof(int64_t));
  out.text.assign(at + out.numbers.size() * sizeof(int64_t), static_cast<size_t>(size));
  return out;
}

}  // namespace millrace
