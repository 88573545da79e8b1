#include "millrace/base/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace millrace {
namespace {

// Published values of XXH64: the hash is written to files and must not change.
TEST(Hash, MatchesPublishedValues) {
  EXPECT_EQ(hash_bytes(""), 0xef46db3751d8e999);
  EXPECT_EQ(hash_bytes("a"), 0xd24ec4f1a98c6e5b);
  EXPECT_EQ(hash_bytes("abc"), 0x44bc2cf5ad770999);
  EXPECT_EQ(hash_bytes("xxhash"), 0x32dd38952c4bc720);
  EXPECT_EQ(hash_bytes(std::string_view("xxhash"), 20141025), 0xb559b98d844e0635);
  EXPECT_EQ(hash_bytes("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1);
}

TEST(Hash, EveryByteAndLengthCounts) {
  std::set<uint64_t> seen;
  std::string text(100, 'x');
  for (size_t n = 0; n <= text.size(); ++n)
    seen.insert(hash_bytes(std::string_view(text).substr(0, n)));
  for (char& c : text) {
    c = 'y';
    seen.insert(hash_bytes(text));
    c = 'x';
  }
  EXPECT_EQ(seen.size(), 201u);
}

TEST(Hash, CombineDependsOnOrder) {
  EXPECT_NE(hash_combine(hash_combine(0, 1), 2), hash_combine(hash_combine(0, 2), 1));
  EXPECT_NE(hash_combine(0, 0), hash_combine(hash_combine(0, 0), 0));
}

}  // namespace
}  // namespace millrace
