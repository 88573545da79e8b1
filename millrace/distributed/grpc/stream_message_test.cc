#include "millrace/distributed/grpc/stream_message.h"

#include <gtest/gtest.h>

#include <random>

#include "millrace/distributed/rpc/channel_testing.h"

namespace millrace {
namespace {

using grpc_library::Bytes;
using grpc_library::Piece;

std::string bytes_of(const std::vector<Piece>& message) {
  std::string out;
  for (const Piece& piece : message) out.append(static_cast<const char*>(piece.data), piece.size);
  return out;
}

// A message of the stream as it comes, cut at random places.
class Cut {
 public:
  Cut(const std::vector<Piece>& message, std::minstd_rand& random) : bytes_(bytes_of(message)) {
    size_t begin = 0;
    while (begin < bytes_.size()) {
      const size_t size = std::min<size_t>(bytes_.size() - begin, random() % 70'000);
      pieces_.push_back({bytes_.data() + begin, size});
      begin += size;
    }
  }
  const std::vector<Bytes>& pieces() const { return pieces_; }

 private:
  const std::string bytes_;
  std::vector<Bytes> pieces_;
};

TEST(StreamMessage, ArrivesWholeHoweverItIsCut) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  for (int round = 0; round < 30; ++round) {
    Message message{.fields = std::string(random() % 100, 'f'), .parts = {}};
    for (unsigned i = random() % 5; i > 0; --i) {
      message.parts.push_back(part_of(random() % (size_t{1} << (random() % 23)), i));
    }
    const auto stream = stream_message(message).value();
    StreamReader reader;
    for (size_t i = 0; i < stream.size(); ++i) {
      const Cut cut(stream[i], random);
      Result<StreamReader::Heard> heard = reader.take(cut.pieces());
      ASSERT_TRUE(heard.ok()) << heard.status().to_string();
      if (i + 1 < stream.size()) {
        EXPECT_EQ(heard->kind, StreamKind::kChunk);
      } else {
        ASSERT_EQ(heard->kind, StreamKind::kMessage);
        EXPECT_TRUE(same(heard->message, message));
      }
    }
  }
}

TEST(StreamMessage, ErrorsArriveAsTheyWere) {
  std::minstd_rand random(1);
  const Status error = not_found(std::string(5000, 'n'));
  for (const StreamKind kind : {StreamKind::kError, StreamKind::kCancel}) {
    StreamReader reader;
    const Cut cut(stream_error(kind, error), random);
    const Result<StreamReader::Heard> heard = reader.take(cut.pieces());
    ASSERT_TRUE(heard.ok());
    EXPECT_EQ(heard->kind, kind);
    EXPECT_EQ(heard->error, error);
  }
}

TEST(StreamMessage, RefusesWhatIsNone) {
  const auto take = [](StreamReader& reader, const std::string& bytes) {
    return reader.take({{bytes.data(), bytes.size()}}).status().code();
  };
  StreamReader reader;
  EXPECT_EQ(take(reader, ""), Code::kInvalidArgument);
  EXPECT_EQ(take(reader, "ab"), Code::kInvalidArgument);
  EXPECT_EQ(take(reader, std::string("\7\0\0\0", 4)), Code::kInvalidArgument);
  EXPECT_EQ(take(reader, std::string("\2\0\0\0\0\0\0\0", 8)), Code::kInvalidArgument);
  EXPECT_EQ(take(reader, std::string("\4\0\0\0x", 5)), Code::kInvalidArgument) << "no part";
  const std::string good = bytes_of(stream_message({.fields = "abc", .parts = {}}).value()[0]);
  EXPECT_EQ(take(reader, good), Code::kOk);
  EXPECT_EQ(take(reader, good), Code::kInvalidArgument) << "twice";
  EXPECT_EQ(stream_message({.fields = std::string((size_t{1} << 30) + 1, 'x'), .parts = {}})
                .status()
                .code(),
            Code::kResourceExhausted);
}

TEST(StreamMessage, DamageIsAnErrorOrAnotherMessage) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::minstd_rand random(seed);
  Message message{.fields = "abc", .parts = {part_of(10), part_of(20'000), part_of(30'000)}};
  std::vector<std::string> stream;
  const auto sent = stream_message(message).value();
  stream.reserve(sent.size());
  for (const auto& one : sent) stream.push_back(bytes_of(one));
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> damaged = stream;
    std::string& one = damaged[random() % damaged.size()];
    // Mostly where sizes are.
    one[random() % std::min<size_t>(one.size(), 40)] = static_cast<char>(random());
    if (random() % 4 == 0) one.resize(random() % one.size());
    StreamReader reader;
    for (const std::string& bytes : damaged) {
      if (!reader.take({{bytes.data(), bytes.size()}}).ok()) break;
    }
  }
}

}  // namespace
}  // namespace millrace
