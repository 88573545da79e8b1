// test-labels: threads
#include "millrace/kernel/rendezvous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

namespace millrace {
namespace {

Value number(int32_t n) { return Value::of(Tensor::scalar(n)); }

// What a receive came to.
struct Received {
  bool called = false;
  Status status;
  Value value;

  Rendezvous::Done done() {
    return [this](Status s, Value v) {
      EXPECT_FALSE(called);
      called = true;
      status = std::move(s);
      value = std::move(v);
    };
  }
};

TEST(Rendezvous, SendThenReceive) {
  Ref<Rendezvous> r = make_local_rendezvous();
  ASSERT_TRUE(r->send("k", number(7)).ok());
  Received got;
  r->recv("k", nullptr, got.done());
  ASSERT_TRUE(got.called);
  EXPECT_TRUE(got.status.ok());
  EXPECT_EQ(got.value.tensor.item<int32_t>(), 7);
}

TEST(Rendezvous, ReceiveThenSend) {
  Ref<Rendezvous> r = make_local_rendezvous();
  Received got;
  r->recv("k", nullptr, got.done());
  EXPECT_FALSE(got.called);
  EXPECT_EQ(r->waiting(), std::vector<std::string>{"k"});
  ASSERT_TRUE(r->send("k", number(7)).ok());
  ASSERT_TRUE(got.called);
  EXPECT_EQ(got.value.tensor.item<int32_t>(), 7);
  EXPECT_TRUE(r->waiting().empty());
}

TEST(Rendezvous, DeadValues) {
  Ref<Rendezvous> r = make_local_rendezvous();
  Value dead;
  dead.set_dead();
  ASSERT_TRUE(r->send("k", dead).ok());
  Received got;
  r->recv("k", nullptr, got.done());
  EXPECT_TRUE(got.status.ok());
  EXPECT_TRUE(got.value.dead());
  EXPECT_EQ(r->send("l", Value()).code(), Code::kInternal);
}

TEST(Rendezvous, EachKeyOnce) {
  Ref<Rendezvous> r = make_local_rendezvous();
  Received first, second, third;
  ASSERT_TRUE(r->send("k", number(1)).ok());
  EXPECT_EQ(r->send("k", number(2)).code(), Code::kAborted);
  r->recv("k", nullptr, first.done());
  EXPECT_EQ(first.value.tensor.item<int32_t>(), 1);
  // Also after the two have met.
  EXPECT_EQ(r->send("k", number(3)).code(), Code::kAborted);
  r->recv("k", nullptr, second.done());
  EXPECT_EQ(second.status.code(), Code::kAborted);
  r->recv("l", nullptr, first.done());
  first.called = false;
  r->recv("l", nullptr, third.done());
  EXPECT_EQ(third.status.code(), Code::kAborted);
  ASSERT_TRUE(r->send("l", number(4)).ok());
  EXPECT_EQ(first.value.tensor.item<int32_t>(), 4);
}

TEST(Rendezvous, AbortEndsWaitsNowAndLater) {
  Ref<Rendezvous> r = make_local_rendezvous();
  Received waiting, sent, later;
  r->recv("k", nullptr, waiting.done());
  ASSERT_TRUE(r->send("s", number(1)).ok());
  r->abort(unavailable("gone"));
  r->abort(internal("second reason"));
  EXPECT_EQ(waiting.status, unavailable("gone"));
  r->recv("s", nullptr, sent.done());
  EXPECT_EQ(sent.status, unavailable("gone"));
  r->recv("new", nullptr, later.done());
  EXPECT_EQ(later.status, unavailable("gone"));
  EXPECT_EQ(r->send("t", number(1)), unavailable("gone"));
}

TEST(Rendezvous, Cancellation) {
  Ref<Rendezvous> r = make_local_rendezvous();
  Ref<CancellationToken> token = make_ref<CancellationToken>();
  Received met, waiting, late;
  r->recv("met", token, met.done());
  r->recv("k", token, waiting.done());
  ASSERT_TRUE(r->send("met", number(1)).ok());
  token->cancel(cancelled("enough"));
  EXPECT_TRUE(met.status.ok());
  EXPECT_EQ(waiting.status, cancelled("enough"));
  EXPECT_TRUE(r->waiting().empty());
  r->recv("l", token, late.done());
  EXPECT_EQ(late.status, cancelled("enough"));
}

TEST(Rendezvous, EndOfTheRendezvousEndsWaits) {
  Received waiting;
  {
    Ref<Rendezvous> r = make_local_rendezvous();
    r->recv("k", nullptr, waiting.done());
  }
  EXPECT_EQ(waiting.status.code(), Code::kCancelled);
}

TEST(RendezvousThreads, ManyKeysInAnyOrder) {
  constexpr int kKeys = 2000;
  uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  Ref<Rendezvous> r = make_local_rendezvous();
  std::atomic<int64_t> sum{0};
  std::atomic<int> received{0};
  auto worker = [&](int first, bool send, uint32_t shuffle_seed) {
    std::vector<int> keys;
    for (int k = first; k < kKeys; k += 2) keys.push_back(k);
    std::shuffle(keys.begin(), keys.end(), std::mt19937(shuffle_seed));
    for (int k : keys) {
      std::string key = str_cat("key", k);
      if (send) {
        EXPECT_TRUE(r->send(key, number(k)).ok());
      } else {
        r->recv(key, nullptr, [&](Status status, Value value) {
          EXPECT_TRUE(status.ok());
          sum += value.tensor.item<int32_t>();
          ++received;
        });
      }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t i = 0; i < 4; ++i) {
    threads.emplace_back(worker, static_cast<int>(i / 2), i % 2 == 0, seed + i);
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(received, kKeys);
  EXPECT_EQ(sum, int64_t{kKeys} * (kKeys - 1) / 2);
}

// Send, cancellation and abort race for the same waits: each ends exactly once.
TEST(RendezvousThreads, RacingEnds) {
  for (int round = 0; round < 200; ++round) {
    constexpr int kKeys = 16;
    Ref<Rendezvous> r = make_local_rendezvous();
    Ref<CancellationToken> token = make_ref<CancellationToken>();
    std::atomic<int> ended{0};
    auto receive = [&](int k) { r->recv(str_cat("k", k), token, [&](Status, Value) { ++ended; }); };
    for (int k = 0; k < kKeys / 2; ++k) receive(k);
    std::thread sender([&] {
      for (int k = 0; k < kKeys; ++k) {
        Status status = r->send(str_cat("k", k), number(k));
        EXPECT_TRUE(status.ok() || status.code() == Code::kUnavailable);
      }
    });
    std::thread receiver([&] {
      for (int k = kKeys / 2; k < kKeys; ++k) receive(k);
    });
    std::thread canceller([&] { token->cancel(cancelled("stop")); });
    std::thread aborter([&] { r->abort(unavailable("gone")); });
    for (std::thread* t : {&sender, &receiver, &canceller, &aborter}) t->join();
    EXPECT_EQ(ended, kKeys);
  }
}

TEST(RendezvousKey, RoundTrip) {
  RendezvousKey key{.send_device = "/job:a/replica:0/task:0/device:CPU:0",
                    .incarnation = 0xabc,
                    .recv_device = "/job:a/replica:0/task:1/device:CPU:0",
                    .tensor_name = "edge_5_x",
                    .frame = 12345678901234567890u,
                    .iteration = 3};
  std::string text = key.to_string();
  EXPECT_EQ(text,
            "/job:a/replica:0/task:0/device:CPU:0;0000000000000abc;"
            "/job:a/replica:0/task:1/device:CPU:0;edge_5_x;12345678901234567890:3");
  Result<RendezvousKey> parsed = RendezvousKey::parse(text);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, key);
  EXPECT_EQ(RendezvousKey().to_string(), ";0000000000000000;;;0:0");
}

TEST(RendezvousKey, Malformed) {
  for (const char* text :
       {"", "a;0000000000000001;b;t", "a;0000000000000001;b;t;0:0;x", "a;1;b;t;0:0",
        "a;000000000000000G;b;t;0:0", "a;00000000000000AB;b;t;0:0", "a;0000000000000001;b;t;00",
        "a;0000000000000001;b;t;0:", "a;0000000000000001;b;t;:0", "a;0000000000000001;b;t;-1:0",
        "a;0000000000000001;b;t;0:99999999999999999999", "a;0000000000000001;b;t;0:0 "}) {
    EXPECT_EQ(RendezvousKey::parse(text).status().code(), Code::kInvalidArgument) << text;
  }
}

TEST(FrameId, TellsInstancesApart) {
  EXPECT_NE(frame_id(0, 0, "loop"), frame_id(0, 1, "loop"));
  EXPECT_NE(frame_id(0, 0, "loop"), frame_id(1, 0, "loop"));
  EXPECT_NE(frame_id(0, 0, "loop"), frame_id(0, 0, "other"));
  EXPECT_NE(frame_id(0, 0, ""), 0u);
  EXPECT_EQ(frame_id(3, 4, "loop"), frame_id(3, 4, "loop"));
}

TEST(Rendezvous, TellsOfKernelsThatWait) {
  const Ref<Rendezvous> r = make_local_rendezvous();
  Rendezvous::KernelWait first{.op = "A", .node = "a"}, second{.op = "B", .node = "b"},
      third{.op = "C", .node = "c"};
  r->begin_wait(first);
  r->begin_wait(second);
  r->begin_wait(third);
  EXPECT_EQ(r->waiting_kernels(), (std::vector<std::string>{"C \"c\"", "B \"b\"", "A \"a\""}));
  r->end_wait(second);
  EXPECT_EQ(r->waiting_kernels(), (std::vector<std::string>{"C \"c\"", "A \"a\""}));
  r->end_wait(first);
  r->end_wait(third);
  EXPECT_TRUE(r->waiting_kernels().empty());
  EXPECT_TRUE(r->waiting().empty());
}

}  // namespace
}  // namespace millrace
