#include "millrace/io/table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "millrace/base/file_systems.h"
#include "millrace/base/file_testing.h"
#include "millrace/io/coding.h"
#include "millrace/io/crc32c.h"
#include "millrace/io/snappy.h"
#include "millrace/io/table_format.h"

namespace millrace {
namespace {

using Entries = std::map<std::string, std::string>;

class TableTest : public testing::Test {
 protected:
  Status write(const Entries& entries) {
    MR_TRY_ASSIGN(Ref<WritableFile> file, fs_.open_writable(path_));
    TableWriter table(file);
    for (const auto& [key, value] : entries) MR_TRY(table.add(key, value));
    MR_TRY(table.finish());
    return file->close();
  }
  Result<Entries> read() {
    MR_TRY_ASSIGN(const std::unique_ptr<TableReader> table, TableReader::open(fs_, path_));
    Entries entries;
    MR_TRY(table->visit([&](std::string_view key, std::string_view value) {
      entries.emplace(key, value);
      return ok_status();
    }));
    return entries;
  }

  FileSystem& fs_ = memory_file_system();
  const std::string path_ = "table_test/table";
};

TEST_F(TableTest, ReadsWhatWasWritten) {
  const unsigned seed = 20161111;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (const int count : {0, 1, 15, 16, 17, 3000}) {
    Entries entries;
    for (int i = 0; i < count; ++i) {
      std::string key(random() % 12, '\0');
      for (char& c : key) c = static_cast<char>(random() % 4 == 0 ? 0xFF : random() % 3);
      entries[key] = std::string(random() % 600, static_cast<char>(random()));
    }
    ASSERT_TRUE(write(entries).ok());
    Result<Entries> back = read();
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, entries);
  }
}

TEST_F(TableTest, FindsKeysInAnyBlock) {
  Entries entries;
  for (int i = 0; i < 900; ++i) entries[str_cat("key", 1000 + i)] = std::string(1000, 'v');
  ASSERT_TRUE(write(entries).ok());
  const auto table = std::move(TableReader::open(fs_, path_)).value();
  for (const auto& [key, value] : entries) EXPECT_EQ(table->find(key).value(), value);
  for (const char* missing : {"", "key", "key1000x", "key9"}) {
    EXPECT_EQ(table->find(missing).status().code(), Code::kNotFound) << missing;
  }
}

TEST_F(TableTest, FindsManyKeysWithOneLookAtEachBlock) {
  Entries entries;
  for (int i = 0; i < 900; ++i) entries[str_cat("key", 1000 + i)] = std::string(1000, 'v');
  ASSERT_TRUE(write(entries).ok());
  std::vector<std::string> keys = {"", "key1000", "key1000x"};
  for (int i = 3; i < 900; ++i) keys.push_back(str_cat("key", 1000 + i));
  keys.emplace_back("key9");
  FaultyFileSystem counting(fs_);
  const auto table = std::move(TableReader::open(counting, path_)).value();
  const int64_t before = counting.operations();
  std::vector<size_t> found;
  ASSERT_TRUE(table
                  ->find_all(keys,
                             [&](size_t number, std::string_view value) {
                               EXPECT_EQ(value, entries.at(keys[number]));
                               found.push_back(number);
                               return ok_status();
                             })
                  .ok());
  EXPECT_EQ(found.size(), 898U);
  EXPECT_EQ(found.front(), 1U);
  EXPECT_LT(counting.operations() - before, 10);  // blocks of 256 KiB
}

// A file of one block and the index, both as given.
std::string table_of(std::string_view block, std::string_view index) {
  std::string file;
  const auto append = [&file](std::string_view bytes) {
    const size_t begin = file.size();
    file.append(bytes);
    file.push_back('\0');
    put_fixed32(file, crc32c_mask(crc32c(std::string_view(file).substr(begin))));
    return begin;
  };
  append(block);
  const uint64_t at = append(index);
  std::string footer;
  for (const uint64_t number : {at, uint64_t{0}, at, uint64_t{index.size()}}) {
    put_varint(footer, number);
  }
  footer.resize(kFooterBytes - 8);
  put_fixed64(footer, kTableMagic);
  return file + footer;
}

constexpr std::string_view kNoRestarts("\0\0\0\0\1\0\0\0", 8);

TEST_F(TableTest, ABlockWithoutEntriesIsNone) {
  const std::string index = str_cat(std::string_view("\0\1\2z\0\x08", 6), kNoRestarts);
  ASSERT_TRUE(write_file_atomically(fs_, path_, table_of(kNoRestarts, index)).ok());
  EXPECT_EQ(read().status().code(), Code::kDataLoss);
}

TEST_F(TableTest, ASmallIndexOfManyLongKeysIsRefused) {
  std::string index;
  for (uint64_t size = 0; size < 42000; size = size == 0 ? 40000 : size + 1) {
    put_varint(index, size);                   // shared with the key before
    put_varint(index, size == 0 ? 40000 : 1);  // and its own
    put_varint(index, 2);
    index.append(size == 0 ? 40000 : 1, 'k');
    index.append("\0\x08", 2);
  }
  index += kNoRestarts;
  ASSERT_TRUE(write_file_atomically(fs_, path_, table_of(kNoRestarts, index)).ok());
  EXPECT_EQ(TableReader::open(fs_, path_).status().code(), Code::kDataLoss);
}

TEST_F(TableTest, KeysMustIncrease) {
  TableWriter table(fs_.open_writable(path_).value());
  ASSERT_TRUE(table.add("b", "").ok());
  EXPECT_EQ(table.add("b", "").code(), Code::kInvalidArgument);
  EXPECT_EQ(table.add("a", "").code(), Code::kInvalidArgument);
}

TEST_F(TableTest, EveryFlippedOrMissingByteIsNoticed) {
  Entries entries;
  for (int i = 0; i < 40; ++i) entries[str_cat("key", i)] = str_cat(i);
  ASSERT_TRUE(write(entries).ok());
  const std::string good = read_file(fs_, path_).value();
  for (size_t at = 0; at < good.size(); ++at) {
    for (const bool cut : {false, true}) {
      std::string bad = good;
      if (cut) {
        bad.resize(at);
      } else {
        bad[at] = static_cast<char>(bad[at] ^ 0x10);
      }
      ASSERT_TRUE(write_file_atomically(fs_, path_, bad).ok());
      Result<Entries> back = read();
      if (back.ok()) {
        EXPECT_EQ(*back, entries) << at;
      } else {
        EXPECT_EQ(back.status().code(), Code::kDataLoss) << back.status().to_string();
      }
    }
  }
}

TEST(SnappyTest, DecodesLiteralsAndCopies) {
  EXPECT_EQ(snappy_decode(std::string_view("\0", 1)).value(), "");
  EXPECT_EQ(snappy_decode("\x03\x08"
                          "abc")
                .value(),
            "abc");
  EXPECT_EQ(snappy_decode("\x09\x08"
                          "abc\x09\x03")
                .value(),
            "abcabcabc");  // reads what it writes
  EXPECT_EQ(snappy_decode(std::string_view("\x0A\x00"
                                           "a\x22\x01\x00",
                                           6))
                .value(),
            "aaaaaaaaaa");
}

TEST(SnappyTest, RefusesWhatIsNoBlock) {
  const std::string_view bad[] = {"",
                                  "\x80",
                                  "\x03",
                                  "\x03\x08"
                                  "ab",
                                  "\x02\x08"
                                  "abc",
                                  "\x04\x08"
                                  "abc",
                                  "\x05\x00"
                                  "a\x01\x05",
                                  "\x05\x00"
                                  "a\x05",
                                  "\xFF\xFF\xFF\xFF\x0F\x00"
                                  "a",
                                  "\x02\xF0"};
  for (const std::string_view bytes : bad) {
    EXPECT_EQ(snappy_decode(bytes).status().code(), Code::kDataLoss);
  }
}

}  // namespace
}  // namespace millrace
