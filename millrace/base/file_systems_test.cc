#include "millrace/base/file_systems.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "millrace/base/file_access.h"
#include "millrace/base/file_testing.h"

namespace millrace {
namespace {

using Use = FileAccess::Use;

void put(std::string_view path, std::string_view contents) {
  Result<FilePlace> place = find_file(path);
  ASSERT_TRUE(place.ok()) << place.status().to_string();
  const Status status = write_file_atomically(*place->fs, place->path, contents);
  ASSERT_TRUE(status.ok()) << status.to_string();
}

std::string get(std::string_view path) {
  Result<FilePlace> place = find_file(path);
  if (!place.ok()) return place.status().to_string();
  Result<std::string> contents = read_file(*place->fs, place->path);
  return contents.ok() ? *contents : contents.status().to_string();
}

TEST(FileSystemsTest, TheSchemeDecides) {
  TemporaryDirectory dir;
  put("memory://schemes/a", "in memory");
  put(dir / "a", "on disk");
  EXPECT_EQ(get("ram://schemes/a"), "in memory");
  EXPECT_EQ(get("file://" + (dir / "a")), "on disk");
  EXPECT_EQ(find_file("a:b/c")->path, "a:b/c");  // no scheme, a name with a colon
}

TEST(FileSystemsTest, AnUnknownSchemeIsAnErrorThatNamesThoseThereAre) {
  const Status status = find_file("gs://bucket/x").status();
  EXPECT_EQ(status.code(), Code::kUnimplemented);
  EXPECT_EQ(status.message(),
            "File system scheme 'gs' not implemented (file: 'gs://bucket/x'); there are file, "
            "memory, ram");
  EXPECT_EQ(find_file("").status().code(), Code::kInvalidArgument);
  EXPECT_EQ(find_file(std::string_view("a\0b", 3)).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(find_file("memory://").status().code(), Code::kInvalidArgument);
}

TEST(FileSystemsTest, RegistersOthersOnce) {
  EXPECT_EQ(register_file_system("memory", memory_file_system()).code(), Code::kAlreadyExists);
  EXPECT_EQ(register_file_system("a b", memory_file_system()).code(), Code::kInvalidArgument);
  static FaultyFileSystem other(memory_file_system());
  ASSERT_TRUE(register_file_system("other+1", other).ok());
  put("memory://registers/a", "a");
  EXPECT_EQ(get("other+1://registers/a"), "a");
}

TEST(MemoryFilesTest, BehaveAsFilesDo) {
  FileSystem& fs = memory_file_system();
  put("memory://tree/a/x", "1");
  put("memory://tree/b", "22");
  EXPECT_EQ(*fs.list("tree"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(fs.info("tree/a")->is_directory);
  EXPECT_EQ(fs.info("tree//b")->size, 2u);
  EXPECT_EQ(fs.open_writable("tree/b/x").status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(fs.remove("tree").code(), Code::kFailedPrecondition);
  ASSERT_TRUE(fs.mkdir_all("tree/empty/deep").ok());
  EXPECT_TRUE(*fs.exists("tree/empty"));
  ASSERT_TRUE(fs.rename("tree/a", "tree/c").ok());
  EXPECT_EQ(get("memory://tree/c/x"), "1");
  EXPECT_FALSE(*fs.exists("tree/a"));
  ASSERT_TRUE(fs.remove("tree/b").ok());
  EXPECT_EQ(fs.open_readable("tree/b").status().code(), Code::kNotFound);
  EXPECT_EQ(fs.list("none").status().code(), Code::kNotFound);
}

TEST(MemoryFilesTest, NothingIsMovedBelowAFileAndTheRootStays) {
  FileSystem& fs = memory_file_system();
  put("memory://moved/file", "1");
  put("memory://moved/other", "2");
  EXPECT_EQ(fs.rename("moved/other", "moved/file/x").code(), Code::kFailedPrecondition);
  EXPECT_EQ(fs.rename("/", "elsewhere").code(), Code::kInvalidArgument);
  EXPECT_EQ(get("memory://moved/other"), "2");
}

TEST(MemoryFilesTest, WhoReadsKeepsWhatWasThere) {
  put("memory://keeps", "old");
  Ref<ReadableFile> file = *memory_file_system().open_readable("keeps");
  put("memory://keeps", "newer");
  EXPECT_EQ(*file->size(), 3u);
  EXPECT_EQ(get("memory://keeps"), "newer");
}

class FileAccessTest : public ::testing::Test {
 protected:
  FileAccessTest() {
    EXPECT_TRUE(posix_file_system().mkdir_all(dir_ / "in").ok());
    EXPECT_TRUE(posix_file_system().mkdir_all(dir_ / "out").ok());
    EXPECT_TRUE(posix_file_system().mkdir_all(dir_ / "input").ok());
    access_ = *FileAccess::only({.read = {dir_ / "in"}, .write = {dir_ / "out"}});
  }
  Code code(const std::string& path, Use use) const {
    return access_->resolve(path, use).status().code();
  }

  TemporaryDirectory dir_;
  Ref<FileAccess> access_;
};

TEST_F(FileAccessTest, AllReachesEverything) {
  EXPECT_EQ(FileAccess::all()->resolve("/etc/passwd", Use::kWrite)->path, "/etc/passwd");
}

TEST_F(FileAccessTest, OnlyWhatLiesInTheFolders) {
  EXPECT_EQ(code(dir_ / "in/deep/x", Use::kRead), Code::kOk);
  EXPECT_EQ(code(dir_ / "in", Use::kRead), Code::kOk);
  EXPECT_EQ(code(dir_ / "in/x", Use::kWrite), Code::kPermissionDenied);
  EXPECT_EQ(code(dir_ / "out/x", Use::kWrite), Code::kOk);
  EXPECT_EQ(code(dir_ / "out/x", Use::kRead), Code::kOk);
  EXPECT_EQ(code(dir_ / "input/x", Use::kRead), Code::kPermissionDenied);
  EXPECT_EQ(code("/etc/passwd", Use::kRead), Code::kPermissionDenied);
  EXPECT_EQ(code("memory://" + (dir_ / "in/x"), Use::kRead), Code::kPermissionDenied);
  EXPECT_EQ(code("file://" + (dir_ / "in/x"), Use::kRead), Code::kOk);
}

TEST_F(FileAccessTest, NeitherDotsNorLinksLeadOut) {
  EXPECT_EQ(code(dir_ / "in/../input/x", Use::kRead), Code::kPermissionDenied);
  EXPECT_EQ(code(dir_ / "none/../in/x", Use::kRead), Code::kOk);
  ASSERT_EQ(symlink((dir_ / "input").c_str(), (dir_ / "in/link").c_str()), 0);
  EXPECT_EQ(code(dir_ / "in/link/x", Use::kRead), Code::kPermissionDenied);
  ASSERT_EQ(symlink("/nowhere/at/all", (dir_ / "out/dangling").c_str()), 0);
  EXPECT_EQ(code(dir_ / "out/dangling", Use::kWrite), Code::kPermissionDenied);
}

TEST_F(FileAccessTest, PathsOfAnyLengthAreJudgedAtOnce) {
  const std::string slashes(size_t{16} << 20, '/');
  EXPECT_EQ(code(slashes, Use::kRead), Code::kInvalidArgument);
  EXPECT_EQ(code("memory:/" + slashes + "x", Use::kWrite), Code::kInvalidArgument);
}

TEST_F(FileAccessTest, AFolderMustBeThere) {
  EXPECT_EQ(FileAccess::only({.read = {dir_ / "none"}, .write = {}}).status().code(),
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace millrace
