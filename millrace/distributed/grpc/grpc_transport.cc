#include "millrace/distributed/grpc/grpc_transport.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/base/spare_thread.h"
#include "millrace/base/thread_pool.h"
#include "millrace/distributed/grpc/bad_calls.h"
#include "millrace/distributed/grpc/grpc_library.h"
#include "millrace/distributed/grpc/stream_message.h"
#include "millrace/distributed/grpc/tcp_owner.h"
#include "millrace/distributed/network.h"
#include "millrace/distributed/patience.h"

namespace millrace {
namespace {

using grpc_library::Bytes;
using grpc_library::Listener;
using grpc_library::Piece;
using grpc_library::Stream;
using Work = Listener::Work;

constexpr size_t kMaxStatusText = 3072;
constexpr int kMaxLostAfterMs = 24 * 3600 * 1000;

bool is_tensorflows(std::string_view method) { return method.starts_with("/tensorflow."); }

Result<grpc_library::Library*> load() {
  const char* name = "libmillrace_grpc.so";
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    return unimplemented("tasks on other machines need gRPC, which cannot be loaded: ", dlerror(),
                         ". Build Millrace where libgrpc++-dev is installed, and keep ", name,
                         " beside libmillrace.so");
  }
  const auto entry = reinterpret_cast<grpc_library::Entry>(dlsym(library, grpc_library::kEntry));
  grpc_library::Library* out =
      entry ? entry(grpc_library::kVersion,
                    [](std::function<void()> task) {
                      ThreadPool::global().schedule_blocking(std::move(task));
                    })
            : nullptr;
  if (!out) return unimplemented(name, " is of another version than libmillrace");
  return out;
}

// The library; for ever the same answer.
Result<grpc_library::Library*> library() {
  static const Result<grpc_library::Library*>* loaded = new Result<grpc_library::Library*>(load());
  return *loaded;
}

int lost_after(const GrpcOptions& options) {
  return static_cast<int>(std::clamp<int64_t>(options.lost_after_ms, 2, kMaxLostAfterMs));
}

Piece piece_of(std::string bytes) {
  auto kept = std::make_shared<const std::string>(std::move(bytes));
  return {kept->data(), kept->size(), kept};
}

// As much of it as gRPC carries beside a code, where most bytes that are not ASCII become three;
// not cut inside of a character.
std::string status_text(std::string_view text) {
  size_t carried = 0, end = 0;
  for (; end < text.size(); ++end) {
    const bool plain = text[end] >= ' ' && text[end] <= '~' && text[end] != '%';
    carried += plain ? 1 : 3;
    if (carried > kMaxStatusText) break;
  }
  const auto inside = [&] { return (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80; };
  while (end > 0 && end < text.size() && inside()) --end;
  return std::string(text.substr(0, end));
}

// Answering.

// A call of a peer that is listened to.
class AnsweredCall final : public Listener {
 public:
  // `peer` is the caller's address, "ipv4:10.0.0.7:41234".
  AnsweredCall(Ref<CallHandler> handler, std::string_view method, std::string_view peer,
               std::shared_ptr<Stream> stream)
      : handler_(std::move(handler)),
        method_(method),
        client_(peer.substr(0, peer.rfind(':'))),
        stream_(std::move(stream)) {}

  Work message(const std::vector<Bytes>& pieces) override {
    if (is_tensorflows(method_)) {
      if (std::exchange(begun_, true)) return nullptr;
      return handle(Message{.fields = join_bytes(pieces), .parts = {}});
    }
    Result<StreamReader::Heard> heard = reader_.take(pieces);
    Status wrong = heard.status();
    if (wrong.ok() && heard->kind == StreamKind::kError) {
      wrong = invalid_argument("it answers where it should call");
    }
    if (!wrong.ok()) {
      stream_->finish(static_cast<int>(wrong.code()), status_text(wrong.message()), {});
      return nullptr;
    }
    if (heard->kind == StreamKind::kMessage) return handle(std::move(heard->message));
    if (heard->kind == StreamKind::kCancel) return cancel(heard->error);
    return nullptr;
  }

  Work ended(int code, std::string) override {
    if (code == 0) return nullptr;
    return cancel(unavailable("the caller of ", method_, " is gone"));
  }

 private:
  Work cancel(Status reason) {
    return [token = token_, reason = std::move(reason)] { token->cancel(reason); };
  }
  Work handle(Message request) {
    request.client = client_;
    return [handler = handler_, method = method_, token = token_, stream = stream_,
            request = std::move(request)]() mutable {
      SpareThread::run([&] {
        handler->handle(method, std::move(request), token,
                        [stream, method](const Status& status, const Message& answer) {
                          AnsweredCall::answer(*stream, method, status, answer);
                        });
      });
    };
  }
  static void answer(Stream& stream, const std::string& method, const Status& status,
                     const Message& answer) {
    if (is_tensorflows(method)) {
      std::vector<Piece> last;
      if (status.ok()) last.push_back(piece_of(answer.fields));
      return stream.finish(static_cast<int>(status.code()), status_text(status.message()),
                           std::move(last));
    }
    auto messages = stream_message(answer);
    const Status& error = status.ok() ? messages.status() : status;
    if (!error.ok()) return stream.finish(0, "", stream_error(StreamKind::kError, error));
    for (size_t i = 0; i + 1 < messages->size(); ++i) stream.send(std::move((*messages)[i]));
    stream.finish(0, "", std::move(messages->back()));
  }

  const Ref<CallHandler> handler_;
  const std::string method_;
  const std::string client_;  // a machine: its connections come and go
  const std::shared_ptr<Stream> stream_;
  const Ref<CancellationToken> token_ = make_ref<CancellationToken>();
  StreamReader reader_;
  bool begun_ = false;
};

// A call that is refused: nothing of it is heard.
class RefusedCall final : public Listener {
 public:
  Work message(const std::vector<Bytes>&) override { return nullptr; }
  Work ended(int, std::string) override { return nullptr; }
};

// Takes as long for a token that is nearly right as for any other of its length.
bool same_token(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char differs = 0;
  for (size_t i = 0; i < a.size(); ++i) differs |= static_cast<unsigned char>(a[i] ^ b[i]);
  return differs == 0;
}

class HandlerService final : public grpc_library::Service {
 public:
  // `host` is what it listens at.
  HandlerService(Ref<CallHandler> handler, Ref<CallHandler> others, const GrpcOptions& options,
                 std::string_view host)
      : handler_(std::move(handler)),
        others_(std::move(others)),
        token_(options.token),
        same_user_(options.same_user),
        host_(host) {}

  // Once it is known; until then nobody of the same user can be told.
  void set_port(int port) { port_.store(port, std::memory_order_relaxed); }

  std::unique_ptr<Listener> begin(std::string_view method, const grpc_library::Peer& peer,
                                  std::shared_ptr<Stream> stream) override {
    if (Status refused = check(peer); !refused.ok()) {
      refused = bad_calls_.add(peer.address, refused);
      stream->finish(static_cast<int>(refused.code()), status_text(refused.message()), {});
      return std::make_unique<RefusedCall>();
    }
    const bool to_others = others_ && !same_user_ && !is_own(peer);
    return std::make_unique<AnsweredCall>(to_others ? others_ : handler_, method, peer.address,
                                          std::move(stream));
  }

 private:
  Status check(const grpc_library::Peer& peer) const {
    if (!token_.empty() && !same_token(peer.token, token_)) {
      return Status(Code::kUnauthenticated, peer.token.empty()
                                                ? "this server asks for a token, and none came"
                                                : "this server asks for another token");
    }
    if (!same_user_) return ok_status();
    if (is_own(peer)) return ok_status();
    return permission_denied(
        "this server answers processes of its own user; with a token "
        "(MILLRACE_CLUSTER_TOKEN_FILE) it answers others");
  }

  // Whether the kernel says that the peer is a process of this user, or root's, on this machine.
  bool is_own(const grpc_library::Peer& peer) const {
    // Asked for each call: the next connection from there may be somebody else's.
    const Result<uid_t> owner =
        tcp_owner(peer.address, host_, port_.load(std::memory_order_relaxed));
    return owner.ok() && (*owner == geteuid() || *owner == 0);
  }

  const Ref<CallHandler> handler_;
  const Ref<CallHandler> others_;
  const std::string token_;
  const bool same_user_;
  const std::string host_;
  std::atomic<int> port_{0};
  BadCalls bad_calls_;
};

// Calling.

// A call of ours.
class CallInFlight final : public RefCounted {
 public:
  CallInFlight(std::string peer, bool raw, int lost_after_ms, Ref<CancellationToken> cancel,
               CallDone done)
      : peer_(std::move(peer)),
        raw_(raw),
        lost_after_ms_(lost_after_ms),
        cancel_(std::move(cancel)),
        done_(std::move(done)) {}

  // Once it is sent: from now on a cancellation ends it.
  void sent(std::shared_ptr<Stream> stream) {
    if (!cancel_) return;
    {
      MutexLock lock(mu_);
      if (!done_) return;
      stream_ = std::move(stream);
    }
    const uint64_t ticket =
        cancel_->on_cancel([self = Ref<CallInFlight>(this)] { self->give_up(); });
    if (ticket == 0) return give_up();
    {
      MutexLock lock(mu_);
      if (done_) {
        ticket_ = ticket;
        return;
      }
    }
    cancel_->remove(ticket);
  }

  // The first one counts.
  void finish(Status status, Message message) {
    CallDone done;
    uint64_t ticket;
    std::shared_ptr<Stream> stream;
    {
      MutexLock lock(mu_);
      if (!done_) return;
      done = std::move(done_);
      done_ = nullptr;
      ticket = ticket_;
      stream.swap(stream_);
    }
    if (ticket != 0) cancel_->remove(ticket);
    done(std::move(status), std::move(message));
  }

  // How it ended where no answer came: gRPC's code and text.
  Status lost(int code, const std::string& text) const {
    if (cancel_ && cancel_->cancelled()) return cancel_->status();
    const auto known =
        static_cast<Code>(code > 0 && code <= static_cast<int>(Code::kUnauthenticated) ? code : 2);
    if (raw_) return Status(known, text);
    switch (known) {
      case Code::kInvalidArgument:
      case Code::kUnauthenticated:
      case Code::kPermissionDenied:
      case Code::kResourceExhausted:
        return Status(known, str_cat(peer_, ": ", text));
      default:
        // No answer to a ping, or no word from the peer's kernel that anything has arrived.
        if (text.find("keepalive") != std::string::npos ||
            text.find("recvmsg:Connection timed out") != std::string::npos) {
          return silent_peer(peer_, lost_after_ms_);
        }
        return unavailable("lost ", peer_, ", or cannot reach it: ", text);
    }
  }

  bool raw() const { return raw_; }

 private:
  void give_up() {
    std::shared_ptr<Stream> stream;
    {
      MutexLock lock(mu_);
      stream = stream_;
    }
    if (!stream) return;
    if (!raw_) stream->send(stream_error(StreamKind::kCancel, cancel_->status()));
    // The answer may say why.
    stream->cancel_after(raw_ ? 0 : lost_after_ms_ / 2);
  }

  const std::string peer_;
  const bool raw_;
  const int lost_after_ms_;
  const Ref<CancellationToken> cancel_;
  Mutex mu_;
  CallDone done_ MR_GUARDED_BY(mu_);  // null: it has ended
  uint64_t ticket_ MR_GUARDED_BY(mu_) = 0;
  std::shared_ptr<Stream> stream_ MR_GUARDED_BY(mu_);
};

// What answers it.
class AnswerListener final : public Listener {
 public:
  explicit AnswerListener(Ref<CallInFlight> call) : call_(std::move(call)) {}

  Work message(const std::vector<Bytes>& pieces) override {
    if (call_->raw()) {
      raw_answer_ = join_bytes(pieces);
      return nullptr;
    }
    Result<StreamReader::Heard> heard = reader_.take(pieces);
    if (!heard.ok()) return finish(heard.status(), Message());
    if (heard->kind == StreamKind::kMessage) return finish(ok_status(), std::move(heard->message));
    if (heard->kind == StreamKind::kError) return finish(heard->error, Message());
    return nullptr;
  }

  Work ended(int code, std::string text) override {
    if (answered_) return nullptr;
    if (code == 0 && call_->raw()) {
      return finish(ok_status(), Message{.fields = std::move(raw_answer_), .parts = {}});
    }
    if (code == 0) text = "it ended the call without an answer";
    return [call = call_, code, text = std::move(text)] {
      call->finish(call->lost(code, text), Message());
    };
  }

 private:
  Work finish(Status status, Message message) {
    // The end may overtake the answer, which another thread passes on.
    answered_ = true;
    return [call = call_, status = std::move(status), message = std::move(message)]() mutable {
      SpareThread::run([&] { call->finish(std::move(status), std::move(message)); });
    };
  }

  const Ref<CallInFlight> call_;
  StreamReader reader_;
  std::string raw_answer_;
  bool answered_ = false;
};

class GrpcChannel final : public Channel {
 public:
  GrpcChannel(std::unique_ptr<grpc_library::Channel> channel, std::string peer, int lost_after_ms)
      : channel_(std::move(channel)), peer_(std::move(peer)), lost_after_ms_(lost_after_ms) {}

  std::string peer() const override { return peer_; }

  void call(std::string_view method, Message request, Ref<CancellationToken> cancel,
            CallDone done) override {
    if (cancel && cancel->cancelled()) return done(cancel->status(), Message());
    const bool raw = is_tensorflows(method);
    std::vector<std::vector<Piece>> messages;
    if (raw) {
      messages.push_back({piece_of(std::move(request.fields))});
    } else {
      Result<std::vector<std::vector<Piece>>> streamed = stream_message(request);
      if (!streamed.ok()) return done(streamed.status(), Message());
      messages = *std::move(streamed);
    }
    const auto in_flight =
        make_ref<CallInFlight>(peer_, raw, lost_after_ms_, std::move(cancel), std::move(done));
    const std::shared_ptr<Stream> stream = channel_->call(
        std::string(method), std::move(messages[0]), std::make_unique<AnswerListener>(in_flight));
    for (size_t i = 1; i < messages.size(); ++i) stream->send(std::move(messages[i]));
    in_flight->sent(stream);
  }

 private:
  const std::unique_ptr<grpc_library::Channel> channel_;
  const std::string peer_;
  const int lost_after_ms_;
};

grpc_library::Certificates certificates_of(const GrpcOptions& options) {
  return {options.authority, options.certificate, options.key};
}

// Whether who is at the address, or calls there, may be on another machine.
bool is_far(std::string_view address) {
  return !is_loopback(address.substr(0, address.rfind(':')));
}

Status check_certificates(const GrpcOptions& options) {
  const bool any =
      !options.authority.empty() || !options.certificate.empty() || !options.key.empty();
  const bool all =
      !options.authority.empty() && !options.certificate.empty() && !options.key.empty();
  if (any == all) return ok_status();
  return invalid_argument("expected an authority, a certificate and a key, or none of them; got \"",
                          options.authority, "\", \"", options.certificate, "\" and \"",
                          options.key, "\"");
}

}  // namespace

Status grpc_available() { return library().status(); }

struct GrpcServer::Impl {
  std::unique_ptr<grpc_library::Server> server;
};

GrpcServer::GrpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GrpcServer::~GrpcServer() = default;

Result<std::unique_ptr<GrpcServer>> GrpcServer::start(const std::string& address,
                                                      Ref<CallHandler> handler,
                                                      const GrpcOptions& options,
                                                      Ref<CallHandler> others) {
  MR_TRY(check_certificates(options));
  MR_TRY_ASSIGN(grpc_library::Library * grpc, library());
  auto impl = std::make_unique<Impl>();
  std::string error;
  const auto service =
      std::make_shared<HandlerService>(std::move(handler), std::move(others), options,
                                       std::string_view(address).substr(0, address.rfind(':')));
  impl->server = grpc->serve(
      {address, certificates_of(options), lost_after(options), is_far(address)}, service, error);
  if (!impl->server) return unknown(error);
  service->set_port(impl->server->port());
  return std::unique_ptr<GrpcServer>(new GrpcServer(std::move(impl)));
}

int GrpcServer::port() const { return impl_->server->port(); }

Result<Ref<Channel>> make_grpc_channel(const std::string& address, std::string peer,
                                       const GrpcOptions& options) {
  MR_TRY(check_certificates(options));
  MR_TRY_ASSIGN(grpc_library::Library * grpc, library());
  std::string error;
  std::unique_ptr<grpc_library::Channel> channel = grpc->connect(
      {address, certificates_of(options), options.token, lost_after(options), is_far(address)},
      error);
  if (!channel) return unknown(error);
  return Ref<Channel>(
      make_ref<GrpcChannel>(std::move(channel), std::move(peer), lost_after(options)));
}

}  // namespace millrace
