#include "millrace/kernel/rendezvous.h"

#include <array>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "millrace/base/hash.h"
#include "millrace/base/hex.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return hash_bytes(text); }
};
template <class T>
using KeyMap = std::unordered_map<std::string, T, StringHash, std::equal_to<>>;

// One receive that found no value. Whoever takes it out of the table, under the shard's lock, calls
// `done`.
struct Waiter {
  Rendezvous::Done done;
  Ref<CancellationToken> cancel;
  uint64_t ticket = 0;  // 0: no callback

  // Without a lock: a cancellation that is under way is waited for, and it takes the shard's lock.
  void finish(Status status, Value value) {
    if (ticket != 0) cancel->remove(ticket);
    done(std::move(status), std::move(value));
  }
};

class LocalRendezvous final : public Rendezvous {
 public:
  Status send(std::string_view key, Value value) override {
    if (value.is_ref() || value.empty()) {
      return internal("rendezvous key ", key, ": only a tensor or a dead value can be sent");
    }
    uint64_t hash = hash_bytes(key);
    Shard& shard = shard_of(hash);
    Waiter waiter;
    {
      MutexLock lock(shard.mu);
      MR_TRY(shard.aborted);
      if (shard.met.contains(hash) || shard.sent.find(key) != shard.sent.end()) {
        return aborted("rendezvous key ", key, " was sent twice");
      }
      auto it = shard.waiting.find(key);
      if (it == shard.waiting.end()) {
        shard.sent.emplace(key, std::move(value));
        return ok_status();
      }
      waiter = std::move(it->second);
      shard.waiting.erase(it);
      shard.met.insert(hash);
    }
    waiter.finish(ok_status(), std::move(value));
    return ok_status();
  }

  void recv(std::string_view key, Ref<CancellationToken> cancel, Done done) override {
    uint64_t hash = hash_bytes(key);
    Shard& shard = shard_of(hash);
    Value value;
    Status status = [&]() -> Status {
      MutexLock lock(shard.mu);
      MR_TRY(shard.aborted);
      if (shard.met.contains(hash) || shard.waiting.find(key) != shard.waiting.end()) {
        return aborted("rendezvous key ", key, " was received twice");
      }
      if (auto it = shard.sent.find(key); it != shard.sent.end()) {
        value = std::move(it->second);
        shard.sent.erase(it);
        shard.met.insert(hash);
        return ok_status();
      }
      Waiter waiter;
      waiter.cancel = cancel;
      if (cancel) {
        // Bare pointers: whoever ends the wait takes the callback back before they go.
        waiter.ticket =
            cancel->on_cancel([this, &shard, key = std::string(key), token = cancel.get()] {
              cancel_wait(shard, key, token);
            });
        if (waiter.ticket == 0) return cancel->status();
      }
      waiter.done = std::move(done);
      shard.waiting.emplace(key, std::move(waiter));
      return ok_status();
    }();
    // `done` has moved away when the receive has to wait.
    if (done) done(std::move(status), std::move(value));
  }

  void abort(Status reason) override {
    MR_CHECK(!reason.ok());
    {
      MutexLock lock(abort_mu_);
      if (abort_called_) return;
      abort_called_ = true;
    }
    for (Shard& shard : shards_) {
      KeyMap<Waiter> waiting;
      KeyMap<Value> sent;
      {
        MutexLock lock(shard.mu);
        shard.aborted = reason;
        waiting.swap(shard.waiting);
        sent.swap(shard.sent);
      }
      for (auto& [key, waiter] : waiting) waiter.finish(reason, Value());
    }
  }

  std::vector<std::string> waiting() const override {
    std::vector<std::string> keys;
    for (Shard& shard : shards_) {
      MutexLock lock(shard.mu);
      for (const auto& [key, waiter] : shard.waiting) keys.push_back(key);
    }
    return keys;
  }

 private:
  struct Shard {
    Mutex mu;
    Status aborted MR_GUARDED_BY(mu);
    KeyMap<Value> sent MR_GUARDED_BY(mu);
    KeyMap<Waiter> waiting MR_GUARDED_BY(mu);
    // Hashes of keys that were sent and received, to refuse a second use: a loop leaves one for
    // each iteration, so the keys themselves are not kept.
    std::unordered_set<uint64_t> met MR_GUARDED_BY(mu);
  };
  static constexpr size_t kShards = 8;

  ~LocalRendezvous() override { abort(cancelled("the step's rendezvous has ended")); }

  Shard& shard_of(uint64_t hash) { return shards_[hash >> 61]; }

  void cancel_wait(Shard& shard, const std::string& key, CancellationToken* cancel) {
    Waiter waiter;  // keeps the token
    {
      MutexLock lock(shard.mu);
      auto it = shard.waiting.find(key);
      if (it == shard.waiting.end()) return;
      waiter = std::move(it->second);
      shard.waiting.erase(it);
    }
    waiter.done(cancel->status(), Value());
  }

  mutable std::array<Shard, kShards> shards_;
  Mutex abort_mu_;
  bool abort_called_ MR_GUARDED_BY(abort_mu_) = false;
};

// The whole of `text` as a number.
bool parse_number(std::string_view text, int base, uint64_t& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool is_lower_hex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

void Rendezvous::begin_wait(KernelWait& wait) {
  MutexLock lock(waits_mu_);
  wait.previous = nullptr;
  wait.next = waits_;
  if (waits_ != nullptr) waits_->previous = &wait;
  waits_ = &wait;
}

void Rendezvous::end_wait(KernelWait& wait) {
  MutexLock lock(waits_mu_);
  (wait.previous != nullptr ? wait.previous->next : waits_) = wait.next;
  if (wait.next != nullptr) wait.next->previous = wait.previous;
}

std::vector<std::string> Rendezvous::waiting_kernels() const {
  std::vector<std::string> out;
  MutexLock lock(waits_mu_);
  for (const KernelWait* wait = waits_; wait != nullptr; wait = wait->next) {
    out.push_back(str_cat(wait->op, " \"", wait->node, "\""));
  }
  return out;
}

Ref<Rendezvous> make_local_rendezvous() { return make_ref<LocalRendezvous>(); }

uint64_t frame_id(uint64_t parent, uint64_t iteration, std::string_view name) {
  uint64_t hash = hash_combine(hash_combine(hash_bytes(name), parent), iteration);
  return hash != 0 ? hash : 1;
}

std::string RendezvousKey::to_string() const {
  return str_cat(send_device, ";", hex_digits(incarnation), ";", recv_device, ";", tensor_name, ";",
                 frame, ":", iteration);
}

Result<RendezvousKey> RendezvousKey::parse(std::string_view text) {
  auto malformed = [&](std::string_view what) {
    return invalid_argument("rendezvous key \"", text, "\": ", what);
  };
  std::array<std::string_view, 5> parts;
  std::string_view rest = text;
  for (size_t i = 0; i < parts.size(); ++i) {
    size_t end = rest.find(';');
    bool last = i + 1 == parts.size();
    if ((end == std::string_view::npos) != last) return malformed("expected five parts");
    parts[i] = rest.substr(0, end);
    if (!last) rest.remove_prefix(end + 1);
  }
  RendezvousKey key;
  key.send_device = std::string(parts[0]);
  key.recv_device = std::string(parts[2]);
  key.tensor_name = std::string(parts[3]);
  if (parts[1].size() != 16 || !is_lower_hex(parts[1]) ||
      !parse_number(parts[1], 16, key.incarnation)) {
    return malformed("expected an incarnation of 16 lower hex digits");
  }
  size_t colon = parts[4].find(':');
  if (colon == std::string_view::npos || !parse_number(parts[4].substr(0, colon), 10, key.frame) ||
      !parse_number(parts[4].substr(colon + 1), 10, key.iteration)) {
    return malformed("expected <frame>:<iteration> in decimal at the end");
  }
  return key;
}

}  // namespace millrace
