#include "millrace/distributed/same_host/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "millrace/base/clock.h"
#include "millrace/base/spare_thread.h"
#include "millrace/base/thread_pool.h"
#include "millrace/distributed/patience.h"

namespace millrace {
namespace {

constexpr int kMaxFollowers = 2;
// What takes less is done by who reads; after so many in a row that took longer, the turn is passed
// on before the next. (One may have been in want of a processor.)
constexpr int64_t kQuickNs = 200'000;
constexpr int kSlow = 2;
// How long it may keep others from reading.
constexpr int64_t kPatientNs = 5'000'000;

}  // namespace

Connection::Connection(OwnedFd socket, Ref<SharedRing> out, Ref<SharedRing> in, std::string peer,
                       Ref<CallHandler> handler, const SameHostOptions& options)
    : socket_(std::move(socket)),
      in_(std::move(in)),
      peer_(std::move(peer)),
      handler_(std::move(handler)),
      options_(options),
      writer_(socket_, std::move(out)),
      heard_ns_(monotonic_nanos()),
      reader_(socket_),
      look_at_ns_(monotonic_nanos() + options.lost_after_ms * 1'000'000 / 4) {}

Ref<Connection> Connection::start(OwnedFd socket, Ref<SharedRing> out, Ref<SharedRing> in,
                                  std::string peer, Ref<CallHandler> handler,
                                  const SameHostOptions& options) {
  Ref<Connection> self(new Connection(std::move(socket), std::move(out), std::move(in),
                                      std::move(peer), std::move(handler), options));
  ThreadPool::global().schedule_blocking([self] { self->serve(); });
  ThreadPool::global().schedule_blocking([self] { self->write(); });
  return self;
}

void Connection::close(const Status& reason) {
  std::map<uint64_t, Waiting> waiting;
  std::map<uint64_t, Ref<CancellationToken>> answering;
  {
    MutexLock lock(mu_);
    if (!reason_.ok()) return;
    reason_ = reason;
    waiting.swap(waiting_);
    answering.swap(answering_);
  }
  closed_.store(true, std::memory_order_release);
  shutdown(socket_.get(), SHUT_RDWR);
  writer_.stop();
  {
    MutexLock lock(turn_mu_);
    turn_free_.notify_all();
  }
  for (auto& [call, token] : answering) token->cancel(reason);
  for (auto& [call, wait] : waiting) {
    if (wait.ticket != 0) wait.cancel->remove(wait.ticket);
    wait.done(reason, Message());
  }
}

// Calling.

void Connection::call(std::string_view method, const Message& request,
                      Ref<CancellationToken> cancel, CallDone done) {
  if (cancel && cancel->cancelled()) return done(cancel->status(), Message());
  uint64_t call = 0;
  Status reason;
  CallDone refused;  // who is told so
  {
    MutexLock lock(mu_);
    reason = reason_;
    if (reason.ok()) {
      call = ++last_call_;
      waiting_[call] = {std::move(done), cancel, 0, 0};
    } else {
      refused = std::move(done);
    }
  }
  if (refused) return refused(std::move(reason), Message());
  const Result<std::string> frame = call_frame(call, method, request);
  if (!frame.ok()) return finish(call, frame.status(), Message());
  send(call, *frame, request);
  if (!cancel) return;
  // After it was sent, so that the news of a cancellation does not overtake the call.
  const uint64_t ticket =
      cancel->on_cancel([self = Ref<Connection>(this), call] { self->give_up(call); });
  if (ticket == 0) return give_up(call);
  {
    MutexLock lock(mu_);
    if (const auto it = waiting_.find(call); it != waiting_.end()) {
      it->second.ticket = ticket;
      return;
    }
  }
  cancel->remove(ticket);
}

void Connection::give_up(uint64_t call) {
  Status reason;
  {
    MutexLock lock(mu_);
    const auto it = waiting_.find(call);
    if (it == waiting_.end()) return;
    it->second.given_up_ns = monotonic_nanos();
    reason = it->second.cancel->status();
  }
  const bool sent = writer_.drop(call);
  send(call, error_frame(FrameKind::kCancel, call, reason));
  // What was not sent whole has no answer.
  if (!sent) finish(call, reason, Message());
}

void Connection::finish(uint64_t call, Status status, Message message) {
  Waiting wait;
  {
    MutexLock lock(mu_);
    const auto it = waiting_.find(call);
    if (it == waiting_.end()) return;
    wait = std::move(it->second);
    waiting_.erase(it);
  }
  if (wait.ticket != 0) wait.cancel->remove(wait.ticket);
  wait.done(std::move(status), std::move(message));
}

void Connection::answer(uint64_t call, const Status& status, const Message& message) {
  {
    MutexLock lock(mu_);
    if (answering_.erase(call) == 0) return;  // closed
  }
  if (!status.ok()) return send(call, error_frame(FrameKind::kAnswer, call, status));
  const Result<std::string> frame = answer_frame(call, message);
  if (frame.ok()) return send(call, *frame, message);
  send(call, error_frame(FrameKind::kAnswer, call, frame.status()));
}

void Connection::send(uint64_t call, const std::string& frame, const Message& message) {
  writer_.send(call, frame, message);
}

// Reading.

void Connection::serve() {
  while (take_turn()) {
    for (bool ours = true; ours;) {
      Result<Work> work = read();
      if (!work.ok()) {
        return close(unavailable("lost ", peer_, ": ", work.status().message()));
      }
      if (slow_.load(std::memory_order_relaxed) < kSlow) {
        ours = work_with_turn(*work);
        continue;
      }
      ours = false;
      pass_turn();
      const int64_t start = monotonic_nanos();
      SpareThread::run(*work);
      note_work(monotonic_nanos() - start);
    }
  }
}

bool Connection::take_turn() {
  MutexLock lock(turn_mu_);
  if (followers_ == kMaxFollowers) return false;
  ++followers_;
  while (turn_taken_ && !closed()) turn_free_.wait(turn_mu_);
  --followers_;
  if (closed()) return false;
  turn_taken_ = true;
  return true;
}

void Connection::pass_turn() {
  bool alone;
  {
    MutexLock lock(turn_mu_);
    turn_taken_ = false;
    alone = followers_ == 0;
    if (!alone) turn_free_.notify_one();
  }
  if (!alone) return;
  ThreadPool::global().schedule_blocking([self = Ref<Connection>(this)] { self->serve(); });
}

void Connection::note_work(int64_t took_ns) {
  const int slow = slow_.load(std::memory_order_relaxed);
  slow_.store(took_ns < kQuickNs ? 0 : std::min(slow + 1, kSlow), std::memory_order_relaxed);
}

bool Connection::work_with_turn(Work& work) {
  int64_t start = monotonic_nanos();
  working_since_ns_.store(start);
  worked_.store(true);
  if (!watched_.exchange(true)) writer_.tick_now();
  SpareThread::run(work);
  note_work(monotonic_nanos() - start);
  return working_since_ns_.compare_exchange_strong(start, 0);
}

void Connection::watch_turn(int64_t now_ns) {
  int64_t since = working_since_ns_.load();
  if (since == 0 || now_ns - since < kPatientNs) return;
  if (working_since_ns_.compare_exchange_strong(since, 0)) pass_turn();
}

Result<Connection::Work> Connection::read() {
  for (;;) {
    MR_TRY_ASSIGN(const FrameReader::Frame frame, reader_.next());
    heard_ns_.store(monotonic_nanos(), std::memory_order_relaxed);
    MR_TRY_ASSIGN(Work work, take(frame));
    if (work) return work;
  }
}

Result<Connection::Work> Connection::take(const FrameReader::Frame& frame) {
  const uint64_t call = frame.head.call;
  switch (frame.head.kind) {
    case FrameKind::kCall: {
      if (!handler_) return invalid_argument("it calls where it should answer");
      MR_TRY_ASSIGN(IncomingCall incoming, read_call(frame.body));
      if (arriving_.contains(call)) return invalid_argument("call ", call, " came twice");
      return arrived(call, {std::move(incoming.method), std::move(incoming.body)});
    }
    case FrameKind::kAnswer: {
      {
        MutexLock lock(mu_);
        if (!waiting_.contains(call)) return Work();  // it was given up
      }
      MR_TRY_ASSIGN(IncomingAnswer incoming, read_answer(frame.body));
      if (incoming.status.ok()) return arrived(call, {"", std::move(incoming.body)});
      return Work([self = Ref<Connection>(this), call, status = std::move(incoming.status)] {
        self->finish(call, status, Message());
      });
    }
    case FrameKind::kCancel: {
      MR_TRY_ASSIGN(const IncomingAnswer incoming, read_answer(frame.body));
      if (incoming.status.ok()) return invalid_argument("call ", call, " ends without a reason");
      if (arriving_.erase(call) != 0) return Work();
      Ref<CancellationToken> token;
      {
        MutexLock lock(mu_);
        const auto it = answering_.find(call);
        if (it == answering_.end()) return Work();  // it was answered meanwhile
        token = it->second;
      }
      return Work([token, reason = incoming.status] { token->cancel(reason); });
    }
    case FrameKind::kChunk: {
      MR_TRY_ASSIGN(const ChunkBody chunk, read_chunk(frame.body));
      return take_chunk(call, chunk);
    }
    case FrameKind::kPing:
      send(0, empty_frame(FrameKind::kPong));
      return Work();
    case FrameKind::kPong:
      return Work();
  }
  return invalid_argument("expected a frame, got kind ", static_cast<uint32_t>(frame.head.kind));
}

Result<Connection::Work> Connection::take_chunk(uint64_t call, const ChunkBody& chunk) {
  const auto it = arriving_.find(call);
  if (it == arriving_.end()) {  // the answer to a call that was given up
    in_->mark_free(chunk.slot);
    return Work();
  }
  IncomingMessage& body = it->second.body;
  if (chunk.part >= body.message.parts.size()) {
    return invalid_argument("call ", call, " has no part ", chunk.part);
  }
  Message::Part& part = body.message.parts[chunk.part];
  if (part.size <= kInlinePart || chunk.offset > part.size ||
      chunk.size > part.size - chunk.offset || chunk.size > body.missing) {
    return invalid_argument("a chunk of ", chunk.size, " bytes at ", chunk.offset,
                            " does not fit into a part of ", part.size);
  }
  std::memcpy(static_cast<char*>(part.buffer->mutable_data()) + chunk.offset, in_->slot(chunk.slot),
              chunk.size);
  in_->mark_free(chunk.slot);
  body.missing -= chunk.size;
  if (body.missing > 0) return Work();
  Arriving whole = std::move(it->second);
  arriving_.erase(it);
  return arrived(call, std::move(whole));
}

Connection::Work Connection::arrived(uint64_t call, Arriving message) {
  if (message.body.missing > 0) {
    arriving_.emplace(call, std::move(message));
    return Work();
  }
  if (!handler_) {
    return [self = Ref<Connection>(this), call, body = std::move(message.body.message)]() mutable {
      self->finish(call, ok_status(), std::move(body));
    };
  }
  Ref<CancellationToken> token = make_ref<CancellationToken>();
  message.body.message.client = peer_;
  {
    MutexLock lock(mu_);
    if (!reason_.ok()) return Work();
    answering_[call] = token;
  }
  return [self = Ref<Connection>(this), call, token, message = std::move(message)]() mutable {
    self->handler_->handle(message.method, std::move(message.body.message), token,
                           [self, call](const Status& status, const Message& answer) {
                             self->answer(call, status, answer);
                           });
  };
}

// Writing.

void Connection::write() {
  writer_.run([this] { return tick(); });
}

int64_t Connection::tick() {
  const int64_t now = monotonic_nanos();
  watch_turn(now);
  if (now >= look_at_ns_) {
    look_for_life();
    look_at_ns_ = now + options_.lost_after_ms * 1'000'000 / 4;
  }
  const int64_t rest = look_at_ns_ - now;
  // Before the last look at worked_: who works after that finds that nobody watches, and says so.
  watched_.store(false);
  if (!worked_.exchange(false) && working_since_ns_.load() == 0) return rest;
  watched_.store(true);
  return std::min(rest, kPatientNs);
}

void Connection::look_for_life() {
  const int64_t now = monotonic_nanos(), patience = options_.lost_after_ms * 1'000'000;
  size_t waiting;
  std::vector<std::pair<uint64_t, Status>> overdue;
  {
    MutexLock lock(mu_);
    waiting = waiting_.size();
    for (const auto& [call, wait] : waiting_) {
      if (wait.given_up_ns == 0 || now - wait.given_up_ns < patience / 2) continue;
      overdue.emplace_back(call, wait.cancel->status());
    }
  }
  for (auto& [call, reason] : overdue) finish(call, std::move(reason), Message());
  if (waiting == 0) {
    heard_ns_.store(now, std::memory_order_relaxed);  // it was not asked
    return;
  }
  const int64_t silent = now - heard_ns_.load(std::memory_order_relaxed);
  if (silent > patience) {
    return close(silent_peer(peer_, silent / 1'000'000));
  }
  send(0, empty_frame(FrameKind::kPing));
}

}  // namespace millrace
