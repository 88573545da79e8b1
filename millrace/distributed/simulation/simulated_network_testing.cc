#include "millrace/distributed/simulation/simulated_network_testing.h"

#include <algorithm>

#include "millrace/base/hash.h"
#include "millrace/distributed/rpc/worker_wire.h"

namespace millrace {

// One connection, made by `from`.
struct SimulatedNetwork::Link : RefCounted {
  uint64_t number = 0;
  std::string from, to;
  uint64_t from_life = 0;
  uint64_t to_life = 0;  // of who accepted it; 0: nobody yet
  bool caller_open = true, server_open = true;
  bool silent = false;
  bool resetting = false;
  std::map<uint64_t, Ref<Call>> waiting;  // at the caller's
  std::map<uint64_t, Ref<Call>> serving;  // at the other end
};

struct SimulatedNetwork::Call : RefCounted {
  uint64_t number = 0;
  Ref<Link> link;
  std::string method;
  Message request;
  CallDone done;  // empty: over for the caller
  Ref<CancellationToken> cancel;
  uint64_t ticket = 0;
  Ref<CancellationToken> served_by;  // null: not delivered
  bool answered = false;
  Status given_up;  // what the peer was told before the call came
};

class SimulatedNetwork::Way final : public Channel {
 public:
  Way(Ref<SimulatedNetwork> network, std::string from, uint64_t life, std::string to)
      : network_(std::move(network)), from_(std::move(from)), to_(std::move(to)), life_(life) {}

  std::string peer() const override { return str_cat("task ", to_); }

  void call(std::string_view method, Message request, Ref<CancellationToken> cancel,
            CallDone done) override {
    if (cancel && cancel->cancelled()) return done(cancel->status(), Message());
    if (!network_->alive(from_, life_)) {
      return done(unavailable(from_, " has ended"), Message());
    }
    if (network_->options_.lose_aborts) {
      if (method == worker_wire::kAbortStep) return done(ok_status(), Message());
      cancel = nullptr;
    }
    if (!link_ || !link_->caller_open) {
      link_ = make_ref<Link>();
      link_->number = ++network_->last_number_;
      link_->from = from_;
      link_->from_life = life_;
      link_->to = to_;
      network_->links_.emplace(link_->number, link_);
    }
    network_->call(link_, method, std::move(request), std::move(cancel), std::move(done));
  }

 private:
  const Ref<SimulatedNetwork> network_;
  const std::string from_, to_;
  const uint64_t life_;
  Ref<Link> link_;
};

SimulatedNetwork::SimulatedNetwork(Ref<SimulatedTime> time, Options options)
    : time_(std::move(time)), options_(options) {}

SimulatedNetwork::~SimulatedNetwork() = default;

SimulatedNetwork::Pair SimulatedNetwork::pair_of(const std::string& a, const std::string& b) {
  return a < b ? Pair(a, b) : Pair(b, a);
}

bool SimulatedNetwork::alive(const std::string& name, uint64_t life) const {
  const auto it = processes_.find(name);
  return it != processes_.end() && it->second.life == life && !it->second.doomed;
}

bool SimulatedNetwork::running(const std::string& name) const {
  const auto it = processes_.find(name);
  return it != processes_.end() && it->second.life != 0 && !it->second.doomed;
}

uint64_t SimulatedNetwork::start(const std::string& name, Ref<CallHandler> handler) {
  processes_[name] = {++last_life_, false, std::move(handler)};
  return last_life_;
}

void SimulatedNetwork::doom(const std::string& name) { processes_[name].doomed = true; }

void SimulatedNetwork::stop(const std::string& name, bool tell_others) {
  Process& process = processes_[name];
  const Ref<CallHandler> handler = std::move(process.handler);
  const uint64_t life = process.life;
  process = {};
  std::vector<Ref<Link>> links;
  for (const auto& [number, link] : links_) {
    if (link->from == name || link->to == name) links.push_back(link);
  }
  for (const Ref<Link>& link : links) {
    if (link->from == name && link->from_life == life) {
      close_caller(link, str_cat(name, " has ended"));
    } else if (link->to == name && link->to_life == life) {
      close_server(link);
    }
    if (tell_others) {
      reset(link);
    } else {
      silence(link);
    }
  }
}

Ref<Channel> SimulatedNetwork::connect(const std::string& from, uint64_t life,
                                       const std::string& to) {
  return make_ref<Way>(Ref<SimulatedNetwork>(this), from, life, to);
}

std::vector<Ref<SimulatedNetwork::Link>> SimulatedNetwork::links_between(
    const std::string& a, const std::string& b) const {
  std::vector<Ref<Link>> out;
  for (const auto& [number, link] : links_) {
    if (pair_of(link->from, link->to) == pair_of(a, b)) out.push_back(link);
  }
  return out;
}

void SimulatedNetwork::reset(const std::string& a, const std::string& b) {
  for (const Ref<Link>& link : links_between(a, b)) reset(link);
}

void SimulatedNetwork::silence(const std::string& a, const std::string& b) {
  for (const Ref<Link>& link : links_between(a, b)) silence(link);
}

void SimulatedNetwork::cut(const std::string& a, const std::string& b, int64_t ns) {
  int64_t& until = cuts_[pair_of(a, b)];
  until = std::max(until, time_->now_ns() + ns);
}

int64_t SimulatedNetwork::cut_until(const std::string& a, const std::string& b) const {
  const auto it = cuts_.find(pair_of(a, b));
  return it == cuts_.end() || it->second <= time_->now_ns() ? 0 : it->second;
}

void SimulatedNetwork::carry(const Ref<Link>& link, bool forth, UniqueFunction<void()> arrive) {
  ++messages_;
  time_->note(hash_combine(link->number, forth));
  const std::string from = forth ? link->from : link->to, to = forth ? link->to : link->from;
  if (on_message) on_message(from, to);
  if (!alive(from, forth ? link->from_life : link->to_life)) return;
  time_->schedule(delay(),
                  [self = Ref<SimulatedNetwork>(this), link, arrive = std::move(arrive)]() mutable {
                    self->try_to_pass(link, std::move(arrive));
                  });
}

void SimulatedNetwork::try_to_pass(const Ref<Link>& link, UniqueFunction<void()> arrive) {
  if (link->silent) return;
  const int64_t until = cut_until(link->from, link->to);
  if (until == 0) return arrive();
  const int64_t left = until - time_->now_ns();
  if (left > options_.lost_after_ns && !options_.bear_silence) return silence(link);
  time_->schedule(left + delay(),
                  [self = Ref<SimulatedNetwork>(this), link, arrive = std::move(arrive)]() mutable {
                    self->try_to_pass(link, std::move(arrive));
                  });
}

void SimulatedNetwork::call(const Ref<Link>& link, std::string_view method, Message request,
                            Ref<CancellationToken> cancel, CallDone done) {
  const Ref<Call> call = make_ref<Call>();
  call->number = ++last_number_;
  call->link = link;
  call->method = method;
  call->request = std::move(request);
  call->done = std::move(done);
  call->cancel = std::move(cancel);
  link->waiting.emplace(call->number, call);
  const Ref<SimulatedNetwork> self(this);
  if (call->cancel) {
    call->ticket = call->cancel->on_cancel([self, call] { self->give_up(call); });
  }
  carry(link, /*forth=*/true, [self, call] { self->deliver(call); });
}

void SimulatedNetwork::deliver(const Ref<Call>& call) {
  const Ref<Link>& link = call->link;
  if (!link->server_open) return;
  const Process& process = processes_[link->to];
  if (process.life == 0 || process.doomed ||
      (link->to_life != 0 && link->to_life != process.life)) {
    return reset(link);  // refused
  }
  link->to_life = process.life;
  call->served_by = make_ref<CancellationToken>();
  link->serving.emplace(call->number, call);
  time_->note(hash_bytes(call->method));
  const Ref<CancellationToken> token = call->served_by;
  const Ref<CallHandler> handler = process.handler;
  handler->handle(call->method, std::move(call->request), token,
                  [self = Ref<SimulatedNetwork>(this), call](Status status, Message message) {
                    self->answer(call, std::move(status), std::move(message));
                  });
  if (!call->given_up.ok()) token->cancel(call->given_up);
}

void SimulatedNetwork::answer(const Ref<Call>& call, Status status, Message message) {
  MR_CHECK(!call->answered);  // exactly once
  call->answered = true;
  const Ref<Link> link = call->link;
  link->serving.erase(call->number);
  if (!link->server_open || !alive(link->to, link->to_life)) return;
  carry(link, /*forth=*/false,
        [call, status = std::move(status), message = std::move(message)]() mutable {
          if (call->link->caller_open) finish(call, std::move(status), std::move(message));
        });
}

void SimulatedNetwork::give_up(const Ref<Call>& call) {
  const Ref<Link>& link = call->link;
  const Status reason = call->cancel->status();
  if (link->caller_open) {
    carry(link, /*forth=*/true, [call, reason] {
      if (!call->link->server_open) return;
      call->given_up = reason;
      if (call->served_by && !call->answered) call->served_by->cancel(reason);
    });
  }
  // An answer that comes soon is taken.
  time_->schedule(options_.lost_after_ns / 2, [call, reason] { finish(call, reason, Message()); });
}

void SimulatedNetwork::finish(const Ref<Call>& call, Status status, Message message) {
  if (!call->done) return;
  CallDone done = std::move(call->done);
  call->link->waiting.erase(call->number);
  if (call->ticket != 0) call->cancel->remove(call->ticket);
  done(std::move(status), std::move(message));
}

void SimulatedNetwork::reset(const Ref<Link>& link) {
  if (link->resetting) return;
  link->resetting = true;
  const Ref<SimulatedNetwork> self(this);
  time_->schedule(delay(), [self, link] { self->close_caller(link, "the connection was reset"); });
  time_->schedule(delay(), [self, link] { self->close_server(link); });
}

void SimulatedNetwork::silence(const Ref<Link>& link) {
  if (link->silent) return;
  link->silent = true;
  if (options_.bear_silence) return;
  const Ref<SimulatedNetwork> self(this);
  const int64_t least = options_.lost_after_ns;
  time_->schedule(time_->between(least / 2, least),
                  [self, link] { self->close_caller(link, "it has said nothing for long"); });
  time_->schedule(time_->between(least / 2, least * 5 / 4),
                  [self, link] { self->close_server(link); });
}

void SimulatedNetwork::close_caller(const Ref<Link>& link, const std::string& why) {
  if (!link->caller_open) return;
  link->caller_open = false;
  if (!link->server_open) links_.erase(link->number);
  while (!link->waiting.empty()) {
    const Ref<Call> call = link->waiting.begin()->second;
    // A call that was given up ends so, too.
    const Status status = call->cancel && call->cancel->cancelled()
                              ? call->cancel->status()
                              : unavailable("lost task ", link->to, ": ", why);
    finish(call, status, Message());
  }
}

void SimulatedNetwork::close_server(const Ref<Link>& link) {
  if (!link->server_open) return;
  link->server_open = false;
  if (!link->caller_open) links_.erase(link->number);
  const std::map<uint64_t, Ref<Call>> serving = std::move(link->serving);
  link->serving.clear();
  for (const auto& [number, call] : serving) {
    if (!call->answered) {
      call->served_by->cancel(unavailable("lost ", link->from, ", who called ", call->method));
    }
  }
}

std::vector<std::string> SimulatedNetwork::waiting() const {
  std::vector<std::string> out;
  for (const auto& [number, link] : links_) {
    for (const auto& [id, call] : link->waiting) {
      out.push_back(str_cat(call->method, " from ", link->from, " to ", link->to,
                            call->served_by ? "" : " (not delivered)"));
    }
  }
  return out;
}

void SimulatedNetwork::close() {
  on_message = nullptr;
  while (!links_.empty()) {
    const Ref<Link> link = links_.begin()->second;
    close_caller(link, "the simulation has ended");
    close_server(link);
  }
  processes_.clear();
}

}  // namespace millrace
