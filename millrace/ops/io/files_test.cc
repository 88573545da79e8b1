// Patterns of file names.

#include <gtest/gtest.h>

#include "millrace/base/file_access.h"
#include "millrace/base/file_testing.h"
#include "millrace/kernel/kernel_testing.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

const bool kRegistered = register_for_tests({register_io_ops});

class MatchingFilesTest : public testing::Test {
 protected:
  MatchingFilesTest() {
    for (const char* path : {"a/x.txt", "a/y.txt", "b/x.txt", "b/.hidden.txt", "c/deep/x.txt"}) {
      MR_CHECK_OK(posix_file_system().mkdir_all(directory_of(directory_ / path)));
      MR_CHECK_OK(write_file_atomically(posix_file_system(), directory_ / path, ""));
    }
  }
  // What matches, as names in the directory; or the error.
  std::string match(const std::string& pattern) {
    Result<Tensor> found =
        OpTester(env_, "MatchingFiles").input(Tensor::scalar(directory_ / pattern)).run_one();
    if (!found.ok()) return found.status().to_string();
    std::vector<std::string> names;
    for (const std::string& path : found->data<std::string>()) {
      names.push_back(path.substr(directory_.path().size() + 1));
    }
    return str_join(names, " ");
  }

  OpEnv env_;
  TemporaryDirectory directory_;
};

TEST_F(MatchingFilesTest, WildcardsMatchWithinNames) {
  EXPECT_EQ(match("a/x.txt"), "a/x.txt");
  EXPECT_EQ(match("*/x.txt"), "a/x.txt b/x.txt");
  EXPECT_EQ(match("?/*.txt"), "a/x.txt a/y.txt b/x.txt");
  EXPECT_EQ(match("[bc]/*"), "b/x.txt c/deep");
  EXPECT_EQ(match("*/none/*"), "");
  EXPECT_EQ(match("c/*/../*/x.txt"), "c/deep/../deep/x.txt");
}

TEST_F(MatchingFilesTest, OfAFolderThatIsNotOpenNothingIsTold) {
  env_.device().set_files(FileAccess::only({.read = {directory_ / "a"}, .write = {}}).value());
  EXPECT_EQ(match("a/*"), "a/x.txt a/y.txt");
  EXPECT_EQ(match("a/*/../../b/*"), "");
  EXPECT_NE(match("*/x.txt").find("PERMISSION_DENIED"), std::string::npos);
}

TEST_F(MatchingFilesTest, APatternOfManyPartsIsFollowedWithoutRecursion) {
  std::string parts = "*";
  while (parts.size() < 3000) parts += "/.";
  EXPECT_EQ(match(parts + "/x.txt").substr(0, 4), "a/./");
  while (parts.size() < 100'000) parts += "/.";
  EXPECT_NE(match(parts).find("INVALID_ARGUMENT"), std::string::npos);
}

}  // namespace
}  // namespace millrace
