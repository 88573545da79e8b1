#pragma once

#include <string>
#include <string_view>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/distributed/rpc/message.h"

// Calls between processes, whatever carries them: one side has a Channel to the other, the other
// side a CallHandler. Methods go by name, "/millrace.Worker/RunGraph".

namespace millrace {

// What became of a call: an error, or the answer.
using CallDone = UniqueFunction<void(Status, Message)>;

// A way to one peer. Thread-safe.
class Channel : public RefCounted {
 public:
  // Who is at the other end, for messages: "/job:ps/replica:0/task:0 at localhost:2222".
  virtual std::string peer() const = 0;

  // Calls a method of the peer. Returns without waiting and calls `done` exactly once, from any
  // thread, perhaps before it returns. The call is delivered at most once, and in no particular
  // order with others. Errors of the method arrive with their code and message; UNAVAILABLE, naming
  // the peer, is the channel's alone: the peer cannot be reached, or was lost before it answered.
  // What `done` sets off and is quick may run on its thread too, before the next answer is heard
  // (SpareThread); `done` itself may compute there, but not wait for another call.
  //
  // Once `cancel` (may be null) is cancelled, the peer is told, with the reason, and `done` is
  // called soon: with the answer if one comes, or else with the reason.
  virtual void call(std::string_view method, Message request, Ref<CancellationToken> cancel,
                    CallDone done) = 0;
};

// What answers the calls of peers. Thread-safe.
class CallHandler : public RefCounted {
 public:
  // Answers by calling `done` exactly once, now or later, from any thread. It may compute on the
  // caller's thread, which the transport can spare, but not wait there for another call. `cancel`
  // is cancelled when the caller gives up, with its reason, or is lost, with UNAVAILABLE; it is not
  // null. A request comes from a
  // stranger as far as its bytes go: whatever is wrong with them is an answer, INVALID_ARGUMENT.
  virtual void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
                      CallDone done) = 0;
};

}  // namespace millrace
