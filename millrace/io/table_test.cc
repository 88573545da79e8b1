#include "millrace/io/table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "millrace/base/file_systems.h"
#include "millrace/io/snappy.h"

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
