// Whatever fails or crashes while a checkpoint is saved, under a new name or over an old one: there
// is the one before or the new one, whole.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "millrace/base/file_systems.h"
#include "millrace/base/file_testing.h"
#include "millrace/io/bundle_writer.h"
#include "millrace/io/checkpoint_reader.h"

namespace millrace {
namespace {

Status save(FileSystem& fs, const std::string& prefix, int64_t step) {
  MR_TRY_ASSIGN(std::unique_ptr<BundleWriter> writer, BundleWriter::create(fs, prefix));
  MR_TRY(writer->add("step", Tensor::scalar(step)));
  for (int i = 0; i < 3; ++i) {
    MR_TRY_ASSIGN(Tensor weights, Tensor::allocate(DType::kInt64, Shape{500}));
    for (int64_t& x : weights.mutable_data<int64_t>()) x = step;
    MR_TRY(writer->add(str_cat("weights", i), weights));
  }
  return writer->finish();
}

// The step that was saved; every tensor must be of it.
Result<int64_t> restore(FileSystem& fs, const std::string& prefix) {
  MR_TRY_ASSIGN(const Ref<CheckpointReader> reader, CheckpointReader::open(fs, prefix));
  MR_TRY_ASSIGN(const Tensor step, reader->read("step"));
  for (int i = 0; i < 3; ++i) {
    MR_TRY_ASSIGN(const Tensor weights, reader->read(str_cat("weights", i)));
    for (const int64_t x : weights.data<int64_t>()) {
      if (x != step.item<int64_t>()) return data_loss("a mixture of two steps");
    }
  }
  return step.item<int64_t>();
}

// A save that fails at every operation in turn, once by an error and once by a crash.
TEST(BundleCrashTest, EveryOperationMayFail) {
  for (const int error : {EIO, ENOSPC}) {
    for (const bool crash : {false, true}) {
      bool done = false;
      for (int64_t n = 1; !done; ++n) {
        SCOPED_TRACE(testing::Message() << (crash ? "crash at " : "error at ") << n);
        FaultyFileSystem faulty(memory_file_system());
        const std::string prefix = str_cat("crash/", error, crash, n, "/model");
        ASSERT_TRUE(save(faulty, prefix, 1).ok());
        faulty.heal();
        if (crash) {
          faulty.fail_from(n, error);
        } else {
          faulty.fail_operation(n, error);
        }
        const Status status = save(faulty, prefix, 2);
        done = faulty.operations() < n;
        faulty.heal();
        Result<int64_t> there = restore(faulty, prefix);
        ASSERT_TRUE(there.ok()) << there.status().to_string();
        // An error after the new one was in place leaves that.
        EXPECT_TRUE(*there == 2 || (*there == 1 && !status.ok())) << *there;
        EXPECT_TRUE(status.ok() || !done);
        // Leftovers are in nobody's way.
        ASSERT_TRUE(save(faulty, prefix, 3).ok());
        EXPECT_EQ(restore(faulty, prefix).value(), 3);
      }
    }
  }
}

TEST(BundleCrashTest, AFullDiskLeavesTheCheckpointBefore) {
  TemporaryDirectory directory;
  FaultyFileSystem faulty(posix_file_system());
  const std::string prefix = directory / "model";
  ASSERT_TRUE(save(faulty, prefix, 7).ok());
  for (uint64_t bytes = 0; bytes < 12'200; bytes += 119) {
    faulty.limit_bytes(bytes);
    EXPECT_EQ(save(faulty, prefix, 8).code(), Code::kResourceExhausted) << bytes;
    EXPECT_EQ(restore(posix_file_system(), prefix).value(), 7);
    faulty.heal();
  }
  EXPECT_EQ(posix_file_system().list(directory.path()).value().size(), 2U);
  ASSERT_TRUE(save(faulty, prefix, 8).ok());
  EXPECT_EQ(restore(posix_file_system(), prefix).value(), 8);
}

// The child saves step after step, and tells through the pipe which it has finished.
[[noreturn]] void save_forever(const std::string& folder, int64_t first, int pipe) {
  FileSystem& fs = posix_file_system();
  for (int64_t step = first;; ++step) {
    if (!save(fs, folder + "/latest", step).ok()) _exit(1);
    if (!save(fs, str_cat(folder, "/model-", step % 4), step).ok()) _exit(1);
    if (write(pipe, &step, sizeof(step)) != sizeof(step)) _exit(1);
  }
}

TEST(BundleCrashTest, AKilledProcessLeavesWhatItHadFinished) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const char* kills = std::getenv("MILLRACE_TEST_KILLS");
  TemporaryDirectory directory;
  int64_t finished = -1;
  for (int round = 0; round < (kills != nullptr ? std::atoi(kills) : 15); ++round) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_forever(directory.path(), finished + 1, ends[1]);
    close(ends[1]);
    // At least one step, then a random moment within the next ones.
    std::vector<int64_t> steps(1);
    ASSERT_EQ(read(ends[0], &steps[0], sizeof(int64_t)), ssize_t{sizeof(int64_t)});
    usleep(random() % 8000);
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
    for (int64_t step = 0; read(ends[0], &step, sizeof(step)) == sizeof(step);) {
      steps.push_back(step);
    }
    close(ends[0]);
    Result<int64_t> latest = restore(posix_file_system(), directory / "latest");
    ASSERT_TRUE(latest.ok()) << latest.status().to_string();
    EXPECT_GE(*latest, steps.back());
    for (const int64_t step : steps) {
      const std::string prefix = directory / str_cat("model-", step % 4);
      Result<int64_t> numbered = restore(posix_file_system(), prefix);
      ASSERT_TRUE(numbered.ok()) << numbered.status().to_string();
      EXPECT_GE(*numbered, step);
    }
    finished = *latest;
  }
}

}  // namespace
}  // namespace millrace
