#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "millrace/base/file_systems.h"
#include "millrace/base/file_testing.h"
#include "millrace/io/crc32c.h"
#include "millrace/io/record_format.h"
#include "millrace/io/record_reader.h"
#include "millrace/io/record_writer.h"

namespace millrace {
namespace {

constexpr Compression kKinds[] = {Compression::kNone, Compression::kZlib, Compression::kGzip};

std::string write_records(const std::string& path, const std::vector<std::string>& records,
                          Compression kind) {
  FileSystem& fs = memory_file_system();
  auto writer = RecordWriter::make(fs.open_writable(path).value(), {.kind = kind}).value();
  for (const std::string& record : records) EXPECT_TRUE(writer->write(record).ok());
  EXPECT_TRUE(writer->close().ok());
  return read_file(fs, path).value();
}

Ref<ReadableFile> file_of(const std::string& bytes) {
  FileSystem& fs = memory_file_system();
  Ref<WritableFile> file = fs.open_writable("bytes").value();
  EXPECT_TRUE(file->append(bytes).ok());
  EXPECT_TRUE(file->close().ok());
  return fs.open_readable("bytes").value();
}

// All records, and how reading ended.
std::pair<std::vector<std::string>, Code> read_all(const std::string& bytes, Compression kind,
                                                   size_t chunk = 64) {
  auto reader =
      RecordReader::make(file_of(bytes), {.compression = kind, .chunk_bytes = chunk}).value();
  std::vector<std::string> records;
  for (;;) {
    Result<std::string_view> record = reader->next();
    if (!record.ok()) return {records, record.status().code()};
    records.emplace_back(*record);
  }
}

std::vector<std::string> random_records(unsigned seed, int count, size_t longest) {
  std::mt19937 random(seed);
  std::vector<std::string> records(static_cast<size_t>(count));
  for (std::string& record : records) {
    record.resize(random() % (longest + 1));
    for (char& c : record) c = static_cast<char>(random() % 7);
  }
  return records;
}

TEST(RecordTest, WhatIsWrittenIsRead) {
  const auto records = random_records(1, 50, 500);
  for (const Compression kind : kKinds) {
    const std::string bytes = write_records("a", records, kind);
    for (const size_t chunk : {1, 7, 64, 4096}) {
      const auto [read, end] = read_all(bytes, kind, chunk);
      EXPECT_EQ(read, records);
      EXPECT_EQ(end, Code::kOutOfRange);
    }
  }
}

TEST(RecordTest, TheBytesAreTensorFlows) {
  const std::string expected(
      "\x03\0\0\0\0\0\0\0\xb0\x99I\x0e"
      "abcnW\xf1!",
      19);
  EXPECT_EQ(write_records("a", {"abc"}, Compression::kNone), expected);
}

TEST(RecordTest, PositionsLeadBack) {
  const auto records = random_records(2, 20, 100);
  for (const Compression kind : kKinds) {
    const std::string bytes = write_records("a", records, kind);
    auto reader =
        RecordReader::make(file_of(bytes), {.compression = kind, .chunk_bytes = 128}).value();
    std::vector<uint64_t> positions;
    for (size_t i = 0; i < records.size(); ++i) {
      positions.push_back(reader->position());
      ASSERT_TRUE(reader->next().ok());
    }
    for (const size_t i : {19, 0, 7, 8, 3, 19}) {
      ASSERT_TRUE(reader->seek(positions[i]).ok());
      EXPECT_EQ(reader->next().value(), records[i]);
    }
    const Status beyond = reader->seek(uint64_t{1} << 60);
    EXPECT_EQ(beyond.ok() ? reader->next().status().code() : beyond.code(), Code::kOutOfRange);
  }
}

TEST(RecordTest, AnEmptyFileHasNoRecords) {
  for (const Compression kind : kKinds) {
    EXPECT_EQ(read_all("", kind).second, Code::kOutOfRange);
  }
}

TEST(RecordTest, CutAnywhereIsACleanEndOrDataLoss) {
  const std::vector<std::string> records = {"first", "", std::string(40, 'x')};
  for (const Compression kind : kKinds) {
    const std::string bytes = write_records("a", records, kind);
    for (size_t size = 0; size < bytes.size(); ++size) {
      const auto [read, end] = read_all(bytes.substr(0, size), kind);
      const bool border = kind == Compression::kNone && (size == 21 || size == 37);
      EXPECT_EQ(end, size == 0 || border ? Code::kOutOfRange : Code::kDataLoss) << size;
      for (size_t i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], records[i]);
    }
  }
}

TEST(RecordTest, AFlippedBitIsDataLossOrACorrectRead) {
  const std::vector<std::string> records = {"first", "", std::string(40, 'x')};
  for (const Compression kind : kKinds) {
    const std::string bytes = write_records("a", records, kind);
    for (size_t i = 0; i < bytes.size() * 8; ++i) {
      std::string damaged = bytes;
      damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << (i % 8)));
      const auto [read, end] = read_all(damaged, kind);
      if (end != Code::kDataLoss) {
        EXPECT_EQ(read, records) << i;
      }
      for (size_t k = 0; k < read.size(); ++k) EXPECT_EQ(read[k], records[k]);
    }
  }
}

std::string header_of(uint64_t size) {
  std::string header(kRecordHeaderBytes, '\0');
  store_little_endian(size, header.data());
  store_little_endian(crc32c_mask(crc32c(header.substr(0, 8))), header.data() + 8);
  return header;
}

TEST(RecordTest, AClaimedLengthAllocatesNothing) {
  EXPECT_EQ(read_all(header_of(uint64_t{1} << 31), Compression::kNone).second, Code::kDataLoss);
  for (const uint64_t size : {UINT64_MAX, UINT64_MAX - 15, uint64_t{1} << 33}) {
    EXPECT_EQ(read_all(header_of(size), Compression::kNone).second, Code::kResourceExhausted);
  }
}

TEST(RecordTest, ARecordThatGrowsWhenUnpackedIsBounded) {
  const std::string bytes = write_records("a", {std::string(1 << 20, '\0')}, Compression::kGzip);
  ASSERT_LT(bytes.size(), 4096U);
  auto reader = RecordReader::make(file_of(bytes),
                                   {.compression = Compression::kGzip, .max_record_bytes = 1 << 16})
                    .value();
  EXPECT_EQ(reader->next().status().code(), Code::kResourceExhausted);
  EXPECT_EQ(inflate_all(bytes, Compression::kGzip, 1000).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(inflate_all(bytes, Compression::kGzip, (1 << 20) + 16)->size(), (1U << 20) + 16);
}

TEST(RecordTest, AFileThatGrowsIsFollowed) {
  FileSystem& fs = memory_file_system();
  auto writer = RecordWriter::make(fs.open_writable("growing").value()).value();
  ASSERT_TRUE(writer->write("one").ok());
  ASSERT_TRUE(writer->flush().ok());
  auto reader = RecordReader::make(fs.open_readable("growing").value()).value();
  EXPECT_EQ(reader->next().value(), "one");
  EXPECT_EQ(reader->next().status().code(), Code::kOutOfRange);
  ASSERT_TRUE(writer->write("two").ok());
  ASSERT_TRUE(writer->flush().ok());
  EXPECT_EQ(reader->next().value(), "two");
  ASSERT_TRUE(writer->close().ok());
}

TEST(RecordTest, GzipStreamsMayFollowEachOther) {
  const std::string one = write_records("a", {"one"}, Compression::kGzip);
  const std::string two = write_records("a", {"two"}, Compression::kGzip);
  EXPECT_EQ(read_all(one + two, Compression::kGzip).first,
            (std::vector<std::string>{"one", "two"}));
  const std::string zlib = write_records("a", {"one"}, Compression::kZlib);
  EXPECT_EQ(read_all(zlib + "x", Compression::kZlib).second, Code::kDataLoss);
}

TEST(RecordTest, AFailedWriteIsToldAtOnceAndEverAfter) {
  TemporaryDirectory directory;
  FaultyFileSystem faulty(posix_file_system());
  auto writer = RecordWriter::make(faulty.open_writable(directory / "r").value()).value();
  ASSERT_TRUE(writer->write("x").ok());
  faulty.limit_bytes(10);
  EXPECT_FALSE(writer->sync().ok() && writer->write(std::string(100'000, 'x')).ok());
  EXPECT_FALSE(writer->write("x").ok());
  EXPECT_FALSE(writer->close().ok());
}

TEST(LineReaderTest, LinesEndWithOrWithoutReturns) {
  const auto lines = [](const std::string& text, size_t chunk) {
    auto input = InputStream::make(file_of(text), {.chunk_bytes = chunk}).value();
    LineReader reader(*input);
    std::vector<std::string> lines;
    for (;;) {
      Result<std::string_view> line = reader.next();
      if (!line.ok()) {
        EXPECT_EQ(line.status().code(), Code::kOutOfRange);
        return lines;
      }
      lines.emplace_back(*line);
    }
  };
  for (const size_t chunk : {1, 3, 100}) {
    EXPECT_EQ(lines("", chunk), std::vector<std::string>{});
    EXPECT_EQ(lines("a\n\r\nb\rc\r\nlast", chunk),
              (std::vector<std::string>{"a", "", "bc", "last"}));
    EXPECT_EQ(lines("\n\n", chunk), (std::vector<std::string>{"", ""}));
  }
}

}  // namespace
}  // namespace millrace
