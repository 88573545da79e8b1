#include "millrace/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "millrace/base/file_testing.h"

namespace millrace {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void put(const std::string& name, std::string_view contents) {
    Result<Ref<WritableFile>> file = fs_.open_writable(dir_ / name);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_TRUE((*file)->append(contents).ok());
    ASSERT_TRUE((*file)->close().ok());
  }
  std::string get(const std::string& name) {
    Result<std::string> contents = read_file(fs_, dir_ / name);
    return contents.ok() ? *contents : contents.status().to_string();
  }

  FileSystem& fs_ = posix_file_system();
  TemporaryDirectory dir_;
};

TEST_F(FileTest, WritesAppendsAndReads) {
  put("a", "hello");
  EXPECT_EQ(get("a"), "hello");
  Result<Ref<WritableFile>> more = fs_.open_append(dir_ / "a");
  ASSERT_TRUE(more.ok());
  EXPECT_TRUE((*more)->append(" world").ok());
  EXPECT_TRUE((*more)->flush().ok());
  EXPECT_EQ(get("a"), "hello world");
  EXPECT_TRUE((*more)->close().ok());
  EXPECT_TRUE((*more)->close().ok());
  EXPECT_EQ((*more)->append("x").code(), Code::kFailedPrecondition);
  put("a", "new");
  EXPECT_EQ(get("a"), "new");
  EXPECT_EQ(fs_.info(dir_ / "a")->size, 3u);
}

TEST_F(FileTest, ATemporaryDirectoryTakesNothingAlongThatItOnlyLinksTo) {
  put("kept", "contents");
  {
    TemporaryDirectory other;
    ASSERT_EQ(symlink(dir_.path().c_str(), (other / "link").c_str()), 0);
  }
  EXPECT_EQ(get("kept"), "contents");
}

TEST_F(FileTest, BuffersOfAnySizeArriveInOrder) {
  std::string all;
  Ref<WritableFile> file = *fs_.open_writable(dir_ / "big");
  for (const size_t size : {size_t{1}, size_t{65535}, size_t{65536}, size_t{1}, size_t{200'000}}) {
    const std::string part(size, static_cast<char>('a' + all.size() % 26));
    all += part;
    ASSERT_TRUE(file->append(part).ok());
  }
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(get("big"), all);
}

TEST_F(FileTest, ReadsAtOffsets) {
  put("a", "0123456789");
  Ref<ReadableFile> file = *fs_.open_readable(dir_ / "a");
  char out[16];
  EXPECT_EQ(*file->read_at(3, 4, out), 4u);
  EXPECT_EQ(std::string_view(out, 4), "3456");
  EXPECT_EQ(*file->read_at(8, 16, out), 2u);
  EXPECT_EQ(*file->read_at(100, 16, out), 0u);
  EXPECT_EQ(file->read_at(UINT64_MAX, 16, out).status().code(), Code::kOutOfRange);
  EXPECT_EQ(file->read_at(INT64_MAX, 16, out).status().code(), Code::kOutOfRange);
  EXPECT_EQ(*file->size(), 10u);
}

TEST_F(FileTest, ErrorsNamePathAndReason) {
  const Status missing = fs_.open_readable(dir_ / "none").status();
  EXPECT_EQ(missing.code(), Code::kNotFound);
  EXPECT_EQ(missing.message(),
            str_cat("cannot open '", dir_ / "none", "': No such file or directory"));
  EXPECT_EQ(fs_.open_readable(dir_.path()).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(fs_.open_writable(dir_ / "none/x").status().code(), Code::kNotFound);
  EXPECT_EQ(fs_.remove(dir_ / "none").code(), Code::kNotFound);
  EXPECT_EQ(fs_.list(dir_ / "none").status().code(), Code::kNotFound);
  EXPECT_EQ(fs_.info(dir_ / "none").status().code(), Code::kNotFound);
  const Status renamed = fs_.rename(dir_ / "none", dir_ / "other");
  EXPECT_EQ(renamed.code(), Code::kNotFound);
  EXPECT_NE(renamed.message().find("other"), std::string_view::npos);
  EXPECT_EQ(fs_.open_readable("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(fs_.open_readable(std::string("a\0b", 3)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(file_error("write", "p", ENOSPC).code(), Code::kResourceExhausted);
  EXPECT_EQ(file_error("open", "p", EACCES).code(), Code::kPermissionDenied);
}

TEST_F(FileTest, AFullDiskIsAnErrorThatStays) {
  Result<Ref<WritableFile>> full = fs_.open_writable("/dev/full");
  if (!full.ok()) GTEST_SKIP() << full.status().to_string();
  ASSERT_TRUE((*full)->append("x").ok());
  EXPECT_EQ((*full)->flush().code(), Code::kResourceExhausted);
  EXPECT_EQ((*full)->append("x").code(), Code::kResourceExhausted);
  EXPECT_EQ((*full)->close().code(), Code::kResourceExhausted);
}

TEST_F(FileTest, ReadFileStopsAtItsLimit) {
  put("a", std::string(100, 'x'));
  EXPECT_TRUE(read_file(fs_, dir_ / "a", 100).ok());
  EXPECT_EQ(read_file(fs_, dir_ / "a", 99).status().code(), Code::kResourceExhausted);
  EXPECT_EQ(read_file(fs_, "/dev/zero", 10'000).status().code(), Code::kResourceExhausted);
  put("empty", "");
  EXPECT_EQ(get("empty"), "");
}

TEST_F(FileTest, MakesListsAndRemovesDirectories) {
  EXPECT_TRUE(fs_.mkdir_all(dir_ / "x/y//z/").ok());
  EXPECT_TRUE(fs_.mkdir_all(dir_ / "x/y").ok());
  put("x/b", "");
  put("x/a", "");
  EXPECT_EQ(*fs_.list(dir_ / "x"), (std::vector<std::string>{"a", "b", "y"}));
  EXPECT_TRUE(*fs_.exists(dir_ / "x/y/z"));
  EXPECT_FALSE(*fs_.exists(dir_ / "x/q"));
  EXPECT_FALSE(*fs_.exists(dir_ / "x/a/q"));
  EXPECT_EQ(fs_.mkdir_all(dir_ / "x/a/c").code(), Code::kFailedPrecondition);
  EXPECT_EQ(fs_.remove(dir_ / "x").code(), Code::kFailedPrecondition);
  EXPECT_TRUE(fs_.remove(dir_ / "x/y/z").ok());
  EXPECT_FALSE(*fs_.exists(dir_ / "x/y/z"));
}

TEST_F(FileTest, DirectoryOfAPath) {
  EXPECT_EQ(directory_of("a/b/c"), "a/b");
  EXPECT_EQ(directory_of("/c"), "/");
  EXPECT_EQ(directory_of("c"), ".");
}

TEST_F(FileTest, AtomicWriteReplacesAndLeavesNothingAside) {
  put("a", "old");
  ASSERT_TRUE(write_file_atomically(fs_, dir_ / "a", "new").ok());
  EXPECT_EQ(get("a"), "new");
  EXPECT_EQ(fs_.list(dir_.path())->size(), 1u);
}

TEST_F(FileTest, AtomicWriteKeepsTheOldFileWhateverFails) {
  FaultyFileSystem faulty(fs_);
  ASSERT_TRUE(write_file_atomically(faulty, dir_ / "a", "old").ok());
  const int64_t steps = faulty.operations();
  ASSERT_GE(steps, 5);
  for (const bool crash : {false, true}) {
    for (int64_t n = 1; n <= steps; ++n) {
      faulty.heal();
      crash ? faulty.fail_from(n, EIO) : faulty.fail_operation(n, EIO);
      const Status status = write_file_atomically(faulty, dir_ / "a", "new");
      EXPECT_EQ(status.code(), Code::kDataLoss) << "operation " << n;
      // Only the last step, syncing the directory, comes after the new file is in its place.
      EXPECT_EQ(get("a"), n == steps ? "new" : "old") << "operation " << n;
      if (!crash) {
        EXPECT_EQ(fs_.list(dir_.path())->size(), 1u) << "operation " << n;
      }
      put("a", "old");
    }
  }
}

TEST_F(FileTest, AtomicWriteOnAFullDisk) {
  put("a", "old");
  FaultyFileSystem faulty(fs_);
  faulty.limit_bytes(2);
  const Status status = write_file_atomically(faulty, dir_ / "a", "new");
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_NE(status.message().find("No space left"), std::string_view::npos);
  EXPECT_EQ(get("a"), "old");
}

TEST_F(FileTest, NobodyWaitsForAPipe) {
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const size_t open_before = fs_.list("/proc/self/fd")->size();
  EXPECT_EQ(fs_.open_readable(pipe).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(fs_.open_writable(pipe).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(fs_.open_append(pipe).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(fs_.open_readable(dir_.path()).status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(fs_.list("/proc/self/fd")->size(), open_before);
}

TEST_F(FileTest, WhatIsSpecialIsWrittenToAndNeverReplaced) {
  const std::string pipe = dir_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  ASSERT_TRUE(write_file_atomically(fs_, pipe, "through").ok());
  char out[16];
  EXPECT_EQ(read(reader, out, sizeof(out)), 7);
  put("a", "file");
  EXPECT_EQ(fs_.rename(dir_ / "a", pipe).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(fs_.info(pipe)->is_special);
  EXPECT_FALSE(fs_.info(dir_ / "a")->is_special);
  close(reader);
}

TEST_F(FileTest, FaultyWritesWhatFits) {
  FaultyFileSystem faulty(fs_);
  faulty.limit_bytes(3);
  Ref<WritableFile> file = *faulty.open_writable(dir_ / "a");
  EXPECT_FALSE(file->append("12345").ok());
  EXPECT_TRUE(file->close().ok());
  EXPECT_EQ(get("a"), "123");
  faulty.heal();
  faulty.fail_operation(2, EACCES);
  EXPECT_TRUE(faulty.exists(dir_ / "a").ok());
  EXPECT_EQ(faulty.exists(dir_ / "a").status().code(), Code::kPermissionDenied);
  EXPECT_TRUE(faulty.exists(dir_ / "a").ok());
}

}  // namespace
}  // namespace millrace
