#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "millrace/base/mutex.h"
#include "millrace/distributed/patience.h"
#include "millrace/distributed/rpc/channel.h"
#include "millrace/distributed/same_host/frame_reader.h"
#include "millrace/distributed/same_host/frame_writer.h"

namespace millrace {

struct SameHostOptions {
  // A peer that says nothing for so long, while calls wait for it, is lost. In that time it is
  // asked four times for a sign of life.
  int64_t lost_after_ms = millrace::lost_after_ms();
};

// One connection between two processes of a machine: one side calls, the other answers.
// Thread-safe.
//
// Threads: one reads at a time. What it reads it does itself, with what that sets off
// (SpareThread), and keeps the turn where what was done last was quick: waking another thread costs
// more than most calls. Otherwise, or when it
// takes longer than some milliseconds all the same, the turn passes to another, so what is called
// may take its time. One more writes what the socket does not take at once, fills the ring, takes
// the turn from those who keep it for long, and watches for a lost peer. They end, and let go of
// the connection, once it is closed.
class Connection final : public RefCounted {
 public:
  // `handler` (null on the side that calls) answers calls; `peer` names the other side in messages.
  static Ref<Connection> start(OwnedFd socket, Ref<SharedRing> out, Ref<SharedRing> in,
                               std::string peer, Ref<CallHandler> handler,
                               const SameHostOptions& options);

  // As Channel::call(). UNAVAILABLE once closed.
  void call(std::string_view method, const Message& request, Ref<CancellationToken> cancel,
            CallDone done);

  // Ends it: what waits for the peer gets `reason`, an error, and so do the tokens of what the peer
  // waits for. The first reason wins.
  void close(const Status& reason);
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  using Work = UniqueFunction<void()>;
  // A call of ours without an answer yet.
  struct Waiting {
    CallDone done;
    Ref<CancellationToken> cancel;
    uint64_t ticket = 0;
    int64_t given_up_ns = 0;  // since when; 0: it is not
  };
  // A call or an answer whose parts have not all come.
  struct Arriving {
    std::string method;  // of a call
    IncomingMessage body;
  };

  Connection(OwnedFd socket, Ref<SharedRing> out, Ref<SharedRing> in, std::string peer,
             Ref<CallHandler> handler, const SameHostOptions& options);

  // What a reading thread does.
  void serve();
  // Waits for the turn to read; false when the thread is not needed.
  bool take_turn();
  // Sees to it that somebody else reads.
  void pass_turn();
  // How long what was read took to do.
  void note_work(int64_t took_ns);
  // Does what was read, with the turn; false when the turn was taken away meanwhile.
  bool work_with_turn(Work& work);
  // For the thread whose turn it is. Reads until there is something to do.
  Result<Work> read();
  Result<Work> take(const FrameReader::Frame& frame);
  Result<Work> take_chunk(uint64_t call, const ChunkBody& chunk);
  Work arrived(uint64_t call, Arriving message);

  void send(uint64_t call, const std::string& frame, const Message& message = {});
  void write();
  // What the writing thread does besides, now and then; returns after how long again.
  int64_t tick();
  // Takes the turn from a thread that has kept it at its work for long.
  void watch_turn(int64_t now_ns);
  void look_for_life();

  void answer(uint64_t call, const Status& status, const Message& message);
  // The caller's token was cancelled: tells the peer, whose answer is waited for a while longer,
  // since it may say why.
  void give_up(uint64_t call);
  // Ends a call of ours, unless it has ended.
  void finish(uint64_t call, Status status, Message message);

  const OwnedFd socket_;
  const Ref<SharedRing> in_;
  const std::string peer_;
  const Ref<CallHandler> handler_;
  const SameHostOptions options_;
  FrameWriter writer_;
  std::atomic<bool> closed_{false};
  std::atomic<int64_t> heard_ns_;

  // Of the thread whose turn it is.
  FrameReader reader_;
  std::unordered_map<uint64_t, Arriving> arriving_;

  std::atomic<int> slow_{0};                  // works in a row that were
  std::atomic<int64_t> working_since_ns_{0};  // with the turn; 0: nobody is
  // Somebody has worked with the turn since the last tick; ticks come often.
  std::atomic<bool> worked_{false}, watched_{false};
  int64_t look_at_ns_ = 0;  // of the writing thread: when to look for life again

  Mutex turn_mu_;
  CondVar turn_free_;
  bool turn_taken_ MR_GUARDED_BY(turn_mu_) = false;
  int followers_ MR_GUARDED_BY(turn_mu_) = 0;  // threads that wait for their turn

  Mutex mu_;
  Status reason_ MR_GUARDED_BY(mu_);
  uint64_t last_call_ MR_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, Waiting> waiting_ MR_GUARDED_BY(mu_);
  std::map<uint64_t, Ref<CancellationToken>> answering_ MR_GUARDED_BY(mu_);
};

}  // namespace millrace
