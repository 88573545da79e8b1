#include "millrace/graph/origin.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(OriginTest, EqualOriginsHaveOneNumber) {
  const OriginId a = intern_origin({"train.py", 14, "main", "h = tf.matmul(x, w)"});
  EXPECT_EQ(intern_origin({"train.py", 14, "main", "h = tf.matmul(x, w)"}), a);
  EXPECT_NE(intern_origin({"train.py", 15, "main", ""}), a);
  EXPECT_EQ(origin_of(a).line, 14);
  EXPECT_EQ(describe_origin(a), "defined at train.py:14  h = tf.matmul(x, w)");
  EXPECT_EQ(describe_origin(intern_origin({"train.py", 15, "main", ""})), "defined at train.py:15");
}

TEST(OriginTest, UnknownOrigin) {
  EXPECT_EQ(intern_origin({}), 0);
  EXPECT_EQ(origin_of(0), Origin());
  EXPECT_EQ(describe_origin(0), "");
}

}  // namespace
}  // namespace millrace
