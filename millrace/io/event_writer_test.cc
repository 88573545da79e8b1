// test-labels: threads
#include "millrace/io/event_writer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "millrace/base/file_testing.h"
#include "millrace/io/record_reader.h"
#include "proto/event.pb.h"

namespace millrace {
namespace {

std::string event(int64_t step) {
  tensorflow::Event event;
  event.set_step(step);
  return event.SerializeAsString();
}

FilePlace memory(const std::string& name) { return find_file("memory://" + name).value(); }

// The events of a file after the version, and how reading it ended.
std::pair<std::vector<int64_t>, Code> read_steps(const std::string& path) {
  const FilePlace place = find_file(path).value();
  auto reader = RecordReader::make(place.fs->open_readable(place.path).value()).value();
  std::vector<int64_t> steps;
  while (true) {
    const Result<std::string_view> record = reader->next();
    if (!record.ok()) return {steps, record.status().code()};
    tensorflow::Event event;
    EXPECT_TRUE(event.ParseFromArray(record->data(), static_cast<int>(record->size())));
    if (event.what_case() == tensorflow::Event::kFileVersion) {
      EXPECT_EQ(event.file_version(), "brain.Event:2");
      EXPECT_GT(event.wall_time(), 1e9);
    } else {
      steps.push_back(event.step());
    }
  }
}

TEST(EventWriter, TheVersionIsThereAtOnce) {
  auto writer = EventWriter::make(memory("version/run/events"), {.suffix = ".end"}).value();
  EXPECT_TRUE(writer->path().starts_with("memory://version/run/events.out.tfevents."));
  EXPECT_TRUE(writer->path().ends_with(".end"));
  EXPECT_EQ(read_steps(writer->path()), (std::pair(std::vector<int64_t>(), Code::kOutOfRange)));
}

TEST(EventWriter, WritersOfOneSecondHaveFilesOfTheirOwn) {
  auto one = EventWriter::make(memory("both/events")).value();
  auto other = EventWriter::make(memory("both/events")).value();
  EXPECT_NE(one->path(), other->path());
}

TEST(EventWriter, FlushMakesThemReadable) {
  auto writer = EventWriter::make(memory("flush/events")).value();
  ASSERT_TRUE(writer->flush().ok());
  for (int64_t step = 1; step <= 30; ++step) {
    ASSERT_TRUE(writer->add(event(step)).ok());
    if (step % 10 != 0) continue;
    ASSERT_TRUE(writer->flush().ok());
    EXPECT_EQ(read_steps(writer->path()).first.size(), static_cast<size_t>(step));
  }
  ASSERT_TRUE(writer->close().ok());
  EXPECT_TRUE(writer->close().ok());
  EXPECT_EQ(writer->add(event(1)).code(), Code::kFailedPrecondition);
  EXPECT_TRUE(writer->flush().ok());
}

TEST(EventWriter, ThreadsShareIt) {
  constexpr int kThreads = 4, kEach = 50;
  auto writer = EventWriter::make(memory("threads/events"), {.max_queue = 2}).value();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 1; i <= kEach; ++i) {
        EXPECT_TRUE(writer->add(event(i)).ok());
        if (i % 20 == 0) {
          EXPECT_TRUE(writer->flush().ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string path = writer->path();
  writer.reset();
  EXPECT_EQ(read_steps(path).first.size(), size_t{kThreads} * kEach);
}

TEST(EventWriter, FlushesByItself) {
  auto writer = EventWriter::make(memory("time/events"), {.flush_seconds = 0}).value();
  ASSERT_TRUE(writer->add(event(1)).ok());
  while (read_steps(writer->path()).first.empty()) std::this_thread::yield();
}

TEST(EventWriter, TellsOfAFullDisk) {
  FaultyFileSystem disk(memory_file_system());
  auto writer = EventWriter::make({.fs = &disk, .scheme = "", .path = "full/events"}).value();
  disk.limit_bytes(100);
  for (int64_t step = 0; step < 10; ++step) (void)writer->add(event(step)).ok();
  EXPECT_EQ(writer->flush().code(), Code::kResourceExhausted);
  EXPECT_EQ(writer->add(event(1)).code(), Code::kResourceExhausted);
  EXPECT_EQ(writer->close().code(), Code::kResourceExhausted);
  EXPECT_EQ(EventWriter::make(memory("x/events"), {.max_queue = 0}).status().code(),
            Code::kInvalidArgument);
}

TEST(EventWriter, AForkedChildIsTold) {
  auto writer = EventWriter::make(memory("fork/events")).value();
  const pid_t child = fork();
  if (child == 0) {
    const bool told = writer->add(event(1)).code() == Code::kFailedPrecondition &&
                      writer->close().code() == Code::kFailedPrecondition;
    writer.reset();
    _exit(told ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Every byte changed and every length: the events before the damage, then DATA_LOSS or the end.
TEST(EventWriter, DamageIsFound) {
  auto writer = EventWriter::make(memory("damage/events")).value();
  for (int64_t step = 1; step <= 3; ++step) ASSERT_TRUE(writer->add(event(step)).ok());
  ASSERT_TRUE(writer->close().ok());
  FileSystem& fs = memory_file_system();
  const std::string whole = read_file(fs, find_file(writer->path()).value().path).value();
  const auto read_as = [&](std::string_view bytes) {
    Ref<WritableFile> file = fs.open_writable("damaged").value();
    EXPECT_TRUE(file->append(bytes).ok() && file->close().ok());
    return read_steps("memory://damaged");
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x10);
    const auto [steps, code] = read_as(flipped);
    EXPECT_EQ(code, Code::kDataLoss) << i;
    EXPECT_LT(steps.size(), 3U);
    const auto [fewer, cut] = read_as(std::string_view(whole).substr(0, i));
    EXPECT_TRUE(cut == Code::kDataLoss || cut == Code::kOutOfRange) << i;
    for (size_t k = 0; k < fewer.size(); ++k) EXPECT_EQ(fewer[k], static_cast<int64_t>(k + 1));
  }
}

}  // namespace
}  // namespace millrace
