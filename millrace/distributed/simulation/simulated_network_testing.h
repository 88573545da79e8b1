#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/distributed/rpc/channel.h"
#include "millrace/distributed/simulation/simulated_time_testing.h"

namespace millrace {

// Connections between processes that take time and fail, for simulations. What it does with calls
// is what the transports promise in rpc/channel.h, and no more: a call is delivered at most once,
// calls overtake each other, and a message is lost only with its connection. Then each end notices
// by itself and in its own time: who called gets UNAVAILABLE, and what was asked is cancelled where
// it is being answered, though what is under way may still arrive until that end has noticed.
//
// A process is a name and a life: the number of the process that has the name now.
class SimulatedNetwork : public RefCounted {
 public:
  struct Options {
    int64_t min_delay_ns = 50'000, max_delay_ns = 5'000'000;  // of a message
    int64_t lost_after_ns = 2'000'000'000;                    // silence is noticed after this
    // Bugs put in on purpose: nobody notices silence; aborts of steps, by call and by
    // cancellation, do not arrive.
    bool bear_silence = false;
    bool lose_aborts = false;
  };
  SimulatedNetwork(Ref<SimulatedTime> time, Options options);
  ~SimulatedNetwork() override;

  // Called when a message is sent, by process: where a simulation decides what goes wrong.
  UniqueFunction<void(const std::string& from, const std::string& to)> on_message;

  // A process begins: `handler` answers what it is asked. The number of its life.
  uint64_t start(const std::string& name, Ref<CallHandler> handler);
  // The process has said its last word; what it still does goes nowhere. stop() must follow.
  void doom(const std::string& name);
  // It is gone: what it waited for ends with UNAVAILABLE, for the sake of what is freed so. Others
  // are told so, soon, by the system of its machine; or not at all, when that has ended too.
  void stop(const std::string& name, bool tell_others);
  bool running(const std::string& name) const;

  // A way from a process to whichever process has the name `to`.
  Ref<Channel> connect(const std::string& from, uint64_t life, const std::string& to);

  // Connections between two processes end: with notice, or with silence.
  void reset(const std::string& a, const std::string& b);
  void silence(const std::string& a, const std::string& b);
  // Nothing passes between them for so long; then what was under way does, where nobody has lost
  // patience before.
  void cut(const std::string& a, const std::string& b, int64_t ns);
  void heal_all() { cuts_.clear(); }

  int64_t messages() const { return messages_; }
  // What nobody has answered yet: "/millrace.Worker/RunGraph from A to B".
  std::vector<std::string> waiting() const;

  // What ends with the simulation: every connection, and with them what holds the network.
  void close();

 private:
  struct Call;
  struct Link;
  class Way;
  struct Process {
    uint64_t life = 0;  // 0: there is none
    bool doomed = false;
    Ref<CallHandler> handler;
  };
  using Pair = std::pair<std::string, std::string>;  // smaller first

  static Pair pair_of(const std::string& a, const std::string& b);
  bool alive(const std::string& name, uint64_t life) const;
  int64_t delay() { return time_->between(options_.min_delay_ns, options_.max_delay_ns); }
  // Until when the two are cut off from each other; 0: they are not.
  int64_t cut_until(const std::string& a, const std::string& b) const;
  // Calls `arrive` when a message over the link has got through, or never.
  void carry(const Ref<Link>& link, bool forth, UniqueFunction<void()> arrive);
  void try_to_pass(const Ref<Link>& link, UniqueFunction<void()> arrive);

  void call(const Ref<Link>& link, std::string_view method, Message request,
            Ref<CancellationToken> cancel, CallDone done);
  void deliver(const Ref<Call>& call);
  void answer(const Ref<Call>& call, Status status, Message message);
  void give_up(const Ref<Call>& call);
  static void finish(const Ref<Call>& call, Status status, Message message);

  void reset(const Ref<Link>& link);
  void silence(const Ref<Link>& link);
  void close_caller(const Ref<Link>& link, const std::string& why);
  void close_server(const Ref<Link>& link);
  std::vector<Ref<Link>> links_between(const std::string& a, const std::string& b) const;

  const Ref<SimulatedTime> time_;
  const Options options_;
  std::map<std::string, Process> processes_;
  uint64_t last_life_ = 0;
  uint64_t last_number_ = 0;
  std::map<uint64_t, Ref<Link>> links_;  // those that one end has open, by number
  std::map<Pair, int64_t> cuts_;         // until when
  int64_t messages_ = 0;
};

}  // namespace millrace
