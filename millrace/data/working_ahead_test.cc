// test-labels: threads
// Stages that work ahead of who asks: they end whenever they are dropped or stopped, errors keep
// their places, and memory is bounded.

#include <gtest/gtest.h>

#include <thread>

#include "millrace/base/thread_pool.h"
#include "millrace/data/pipeline_testing.h"

namespace millrace::data {
namespace {

// Functions of one number: "double"; "no_seven", which fails for it; "count", a dataset of so many
// numbers; "large", a vector of a thousand. Every other call ends on another thread.
class Functions final : public FunctionRunner {
 public:
  Result<Handle> instantiate(std::string_view function, const AttrMap&) override {
    return static_cast<Handle>(function[0]);
  }
  void run(Handle handle, std::vector<Tensor> args, Step& caller, Done done) override {
    if (caller.cancel->cancelled()) return done(caller.cancel->status());
    const int64_t x = args[0].item<int64_t>();
    Result<std::vector<Tensor>> made = call(static_cast<char>(handle), x);
    if (x % 2 == 0) return done(std::move(made));
    ThreadPool::global().schedule(
        [made = std::move(made), done = std::move(done)]() mutable { done(std::move(made)); });
  }

 private:
  static Result<std::vector<Tensor>> call(char function, int64_t x) {
    if (function == 'c') return std::vector<Tensor>{dataset_tensor(make_range(x % 5))};
    if (function == 'l') {
      return std::vector<Tensor>{Tensor::allocate(DType::kInt64, Shape{1000}).value()};
    }
    if (function == 'n' && x == 7) return data_loss("seven");
    return std::vector<Tensor>{Tensor::scalar(2 * x)};
  }
};

Ref<Dataset> with_function(const char* op, const char* function, Ref<Dataset> input,
                           const std::vector<int64_t>& numbers) {
  OpTester tester(op);
  tester.attr("f", FunctionAttr{function, {}});
  tester.attr("output_types", std::vector<DType>{DType::kInt64});
  tester.attr("output_shapes", std::vector<PartialShape>{PartialShape::unknown()});
  tester.attr("Targuments", std::vector<DType>{});
  tester.input(dataset_tensor(std::move(input))).input_list({});
  for (const int64_t number : numbers) tester.input(Tensor::scalar(number));
  return dataset_of(tester.run_one().value()).value();
}

Ref<Dataset> prefetch(Ref<Dataset> input, int64_t elements) {
  return make_dataset("PrefetchDataset", {std::move(input)}, {Tensor::scalar(elements)});
}

// One of each, over the numbers below `count`.
std::vector<Ref<Dataset>> samples(int64_t count) {
  const Ref<Dataset> numbers = make_range(count);
  const Ref<Dataset> mapped = with_function("ParallelMapDatasetV2", "no_seven", numbers, {3});
  const Ref<Dataset> interleaved =
      with_function("ParallelInterleaveDatasetV3", "count", numbers, {2, 1, 2});
  return {prefetch(numbers, 2), mapped, interleaved, prefetch(mapped, 3), prefetch(interleaved, 3)};
}

struct Begun {
  Ref<Environment> environment = make_ref<Environment>(make_ref<Functions>(), make_test_device());
  std::unique_ptr<Iterator> iterator;

  explicit Begun(const Dataset& dataset)
      : iterator(dataset.iterate(Iteration::of(dataset, environment)).value()) {}
};

TEST(WorkingAhead, EndsWheneverItIsDropped) {
  const std::vector<Ref<Dataset>> all = samples(1000);
  for (int round = 0; round < 40; ++round) {
    for (const Ref<Dataset>& dataset : all) {
      Begun begun(*dataset);
      Element element;
      bool end = false;
      for (int i = 0; i < round % 8; ++i) (void)begun.iterator->next(element, end);
    }
  }
}

TEST(WorkingAhead, EndsWhenAnotherThreadStopsIt) {
  const std::vector<Ref<Dataset>> all = samples(int64_t{1} << 40);
  for (int round = 0; round < 20; ++round) {
    for (const Ref<Dataset>& dataset : all) {
      Begun begun(*dataset);
      std::thread stopper([&] { begun.environment->stop(); });
      Element element;
      bool end = false;
      Status status;
      while (status.code() != Code::kCancelled) status = begun.iterator->next(element, end);
      EXPECT_FALSE(end);
      stopper.join();
    }
  }
}

TEST(WorkingAhead, AnErrorIsInItsPlace) {
  const Ref<Dataset> mapped =
      with_function("ParallelMapDatasetV2", "no_seven", make_range(20), {4});
  for (const Ref<Dataset>& dataset : {mapped, prefetch(mapped, 3)}) {
    for (int round = 0; round < 20; ++round) {
      Begun begun(*dataset);
      Element element;
      bool end = false;
      for (int64_t i = 0; i < 20; ++i) {
        const Status status = begun.iterator->next(element, end);
        ASSERT_FALSE(end);
        if (i == 7) {
          EXPECT_EQ(status.code(), Code::kDataLoss);
        } else {
          ASSERT_TRUE(status.ok());
          EXPECT_EQ(element[0].item<int64_t>(), 2 * i);
        }
      }
      EXPECT_TRUE(begun.iterator->next(element, end).ok());
      EXPECT_TRUE(end);
    }
  }
}

// Elements of 8,000 bytes, 20,000 of which may be kept: two, and one that is being made.
TEST(WorkingAhead, KeepsNoMoreBytesThanItMay) {
  const Ref<Dataset> large = with_function("MapDataset", "large", make_range(200), {});
  const Ref<Dataset> parallel =
      with_function("ParallelMapDatasetV2", "large", make_range(200), {50});
  for (const Ref<Dataset>& stage : {prefetch(large, 50), parallel}) {
    const Ref<Dataset> dataset =
        make_dataset("ModelDataset", {stage}, {}, {{"ram_budget", int64_t{20000}}});
    const Iteration iteration =
        Iteration::of(*dataset, make_ref<Environment>(make_ref<Functions>(), make_test_device()));
    const std::unique_ptr<Iterator> iterator = dataset->iterate(iteration).value();
    const Dataset* source = stage.get();
    while (!source->inputs().empty()) source = source->inputs()[0].get();
    Element element;
    bool end = false;
    for (int64_t taken = 1; taken <= 200; ++taken) {
      ASSERT_TRUE(iterator->next(element, end).ok());
      EXPECT_LE(iteration.stages->find(*source)->elements(), taken + 4);
      std::this_thread::yield();
    }
  }
}

}  // namespace
}  // namespace millrace::data
