// What of MPI's back end needs no MPI: messages, the first rank's decisions, and who may take part.

#include <gtest/gtest.h>

#include "millrace/distributed/collective/mpi/mpi_collectives.h"

namespace millrace {
namespace {

using Kind = MpiMessage::Kind;
using Messages = std::vector<MpiMessage>;

TEST(MpiMessage, ComesBackAsItWas) {
  const MpiMessage message = {.kind = Kind::kGo,
                              .rank = 2,
                              .epoch = 7,
                              .group = -1,
                              .instance = int64_t{1} << 40,
                              .number = 3,
                              .hash = ~uint64_t{0},
                              .code = 10,
                              .text = "why",
                              .numbers = {4, 5, 6}};
  const std::string bytes = message.encode(3);
  const MpiMessage got = MpiMessage::decode(bytes, 3).value();
  EXPECT_EQ(got.encode(3), bytes);
  EXPECT_EQ(got.instance, message.instance);
  EXPECT_EQ(got.text, "why");
  EXPECT_EQ(got.numbers, message.numbers);
  const MpiMessage longest = {.text = std::string(100'000, 'x'), .numbers = {1, 2, 3}};
  EXPECT_LE(longest.encode(3).size(), MpiMessage::capacity(3));
  EXPECT_TRUE(MpiMessage::decode(longest.encode(3), 3).ok());
}

TEST(MpiMessage, RefusesWhatCannotBe) {
  const std::string bytes = MpiMessage{.rank = 1, .text = "why", .numbers = {4, 5}}.encode(2);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(MpiMessage::decode({bytes.data(), size}, 2).status().code(), Code::kInternal) << size;
  }
  EXPECT_FALSE(MpiMessage::decode(bytes, 1).ok());  // no such rank
  EXPECT_FALSE(MpiMessage::decode(bytes, 3).ok());  // numbers of others
  for (const size_t word : {0, 1, 8, 9}) {
    std::string wrong = bytes;
    wrong[word * 8 + 7] = '\x7f';
    EXPECT_FALSE(MpiMessage::decode(wrong, 2).ok()) << word;
    wrong[word * 8 + 7] = '\xff';
    EXPECT_FALSE(MpiMessage::decode(wrong, 2).ok()) << word;
  }
}

class MpiCoordinatorTest : public testing::Test {
 protected:
  Messages ready(int64_t rank, int64_t instance, const std::string& what = "Add", int64_t epoch = 0,
                 int64_t number = 0) {
    return first_.take({.kind = Kind::kReady,
                        .rank = rank,
                        .epoch = epoch,
                        .group = 1,
                        .instance = instance,
                        .number = number,
                        .hash = std::hash<std::string>()(what),
                        .text = what});
  }
  MpiCoordinator first_{{"rank 0 (a)", "rank 1 (b)", "rank 2 (c)"}};
};

TEST_F(MpiCoordinatorTest, GoesWhenAllHaveBegun) {
  EXPECT_EQ(first_.missing(1, 7), "rank 0 (a), rank 1 (b), rank 2 (c)");
  EXPECT_TRUE(ready(2, 7, "Add", 0, 5).empty());
  EXPECT_TRUE(ready(2, 8).empty());
  EXPECT_TRUE(ready(2, 7).empty());  // its second execution
  EXPECT_TRUE(ready(0, 7, "Add", 0, 3).empty());
  EXPECT_EQ(first_.missing(1, 7), "rank 1 (b)");
  const Messages go = ready(1, 7, "Add", 0, 4);
  ASSERT_EQ(go.size(), 1u);
  EXPECT_EQ(go[0].kind, Kind::kGo);
  EXPECT_EQ(go[0].instance, 7);
  EXPECT_EQ(go[0].numbers, (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(first_.missing(1, 7), "rank 0 (a), rank 1 (b)");
  EXPECT_TRUE(ready(0, 7).empty());
  EXPECT_EQ(ready(1, 7).size(), 1u);
}

TEST_F(MpiCoordinatorTest, NamesTwoThatDoNotAgreeBeforeAllHaveCome) {
  EXPECT_TRUE(ready(2, 7, "Add of float [2]").empty());
  const Messages end = ready(0, 7, "Add of float [3]");
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].kind, Kind::kEnd);
  EXPECT_EQ(end[0].code, static_cast<int64_t>(Code::kInvalidArgument));
  EXPECT_NE(end[0].text.find("rank 0 (a) has Add of float [3], rank 2 (c) has Add of float [2]"),
            std::string::npos)
      << end[0].text;
  // What was said before counts no more, nor what is said by who has not heard of it.
  EXPECT_EQ(end[0].epoch, 1);
  EXPECT_TRUE(ready(1, 7, "Add of float [2]", 0).empty());
  for (const int64_t rank : {0, 1}) EXPECT_TRUE(ready(rank, 7, "Max", 1).empty());
  EXPECT_EQ(ready(2, 7, "Max", 1)[0].kind, Kind::kGo);
}

TEST_F(MpiCoordinatorTest, WhoLeavesEndsWhatHasNotGone) {
  EXPECT_TRUE(ready(1, 7).empty());
  const Messages end = first_.take({.kind = Kind::kLeft, .rank = 1, .text = "enough"});
  ASSERT_EQ(end.size(), 1u);
  EXPECT_EQ(end[0].code, static_cast<int64_t>(Code::kAborted));
  EXPECT_EQ(end[0].text, "enough");
  EXPECT_TRUE(first_.take({.kind = Kind::kLeft, .rank = 2, .text = "late"}).empty());
  EXPECT_EQ(first_.missing(1, 7), "rank 0 (a), rank 1 (b), rank 2 (c)");
}

TEST_F(MpiCoordinatorTest, BroadcastsHaveOneSender) {
  const std::string what(str_cat(MpiCall::kBroadcast, "float [2]"));
  const auto all = [&](std::vector<int64_t> sends, int64_t epoch) {
    Messages last;
    for (int64_t rank = 0; rank < 3; ++rank) {
      last = ready(rank, 7, what, epoch, sends[static_cast<size_t>(rank)]);
    }
    return last.at(0);
  };
  EXPECT_EQ(all({0, 1, 0}, 0).kind, Kind::kGo);
  EXPECT_NE(all({0, 0, 0}, 0).text.find("expected one sender, got 0"), std::string::npos);
  EXPECT_NE(all({1, 0, 1}, 1).text.find("expected one sender, got 2: rank 0 (a), rank 2 (c)"),
            std::string::npos);
}

TEST_F(MpiCoordinatorTest, NothingIsDoneWithoutARank) {
  EXPECT_TRUE(ready(0, 7).empty());
  const Messages closed = first_.take({.kind = Kind::kBye, .rank = 1});
  ASSERT_EQ(closed.size(), 1u);
  EXPECT_EQ(closed[0].kind, Kind::kClosed);
  EXPECT_NE(closed[0].text.find("rank 1 (b) has ended"), std::string::npos);
  EXPECT_TRUE(ready(2, 7).empty());
  EXPECT_TRUE(first_.take({.kind = Kind::kBye, .rank = 0}).empty());
}

TEST(MpiLibrary, TakesOpenMpiAlone) {
  EXPECT_TRUE(MpiLibrary::check_version("Open MPI v4.1.4, package: Debian OpenMPI, ident").ok());
  EXPECT_TRUE(MpiLibrary::check_version("Open MPI v5.0.11, package").ok());
  for (const char* other : {"MPICH Version:\t4.0.2\nMPICH Release date:", "Open MPI v2.1.0",
                            "Open MPI v10.0.0", "Open MPI v", "Intel(R) MPI Library 2021", ""}) {
    const Status status = MpiLibrary::check_version(other);
    EXPECT_EQ(status.code(), Code::kUnimplemented) << other;
    EXPECT_EQ(status.message().find('\n'), std::string_view::npos) << status.message();
  }
}

TEST(MpiCollectives, RanksThatFitBecomeMembers) {
  MpiLibrary library{};
  library.version = "Open MPI v4.1.4";
  const auto row = [&](int rank, int size, const MpiLibrary* with = nullptr) {
    return MpiCollectives::own_row({rank, size}, with ? with : &library, str_cat("task ", rank));
  };
  const auto read = [](const std::vector<Tensor>& rows) {
    const int64_t words = rows[0].num_elements();
    Tensor all =
        Tensor::allocate(DType::kInt64, Shape({static_cast<int64_t>(rows.size()), words})).value();
    for (size_t i = 0; i < rows.size(); ++i) {
      std::copy_n(rows[i].data<int64_t>().data(), words,
                  all.mutable_data<int64_t>().data() + static_cast<int64_t>(i) * words);
    }
    return MpiCollectives::read_rows(all, {1, 3});
  };
  const MpiWorld world = read({row(2, 3), row(0, 3), row(1, 3)}).value();
  EXPECT_EQ(world.rank, 1);
  EXPECT_EQ(world.order, (std::vector<int>{2, 0, 1}));
  EXPECT_EQ(world.members[0], "rank 1 (task 0)");
  MpiLibrary other = library;
  other.version = "Open MPI v5.0.1";
  const std::pair<std::vector<Tensor>, std::string_view> wrong[] = {
      {{row(0, 3), row(0, 3), row(1, 3)}, "rank 1 (task 0) is rank 0 of 3"},
      {{row(0, 3), row(1, 2), row(2, 3)}, "is rank 1 of 2 of MPI, expected one of 3"},
      {{row(0, 3), row(3, 3), row(1, 3)}, "is rank 3 of 3"},
      {{row(0, 3), row(1, 3), row(2, 3, &other)}, "rank 2 (task 2) has another version"},
      {{row(0, 3), MpiCollectives::own_row({1, 3}, nullptr, "b"), row(2, 3)},
       "rank 1 (b) has no Open MPI"},
  };
  for (const auto& [rows, text] : wrong) {
    const Status status = read(rows).status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition);
    EXPECT_NE(status.message().find(text), std::string_view::npos) << status.to_string();
  }
}

}  // namespace
}  // namespace millrace
