#include "millrace/distributed/same_host/same_host.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <vector>

#include "millrace/base/log.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

// Said by who connects, with its two rings: the one it fills, then the one it empties.
constexpr char kGreeting[16] = "millrace local1";
constexpr int kGreetingTimeoutMs = 5000;
constexpr int kAcceptAgainMs = 100;  // after an error, such as no descriptors left

class SameHostChannel final : public Channel {
 public:
  SameHostChannel(std::string name, std::string peer, const SameHostOptions& options)
      : name_(std::move(name)), peer_(std::move(peer)), options_(options) {}

  std::string peer() const override { return peer_; }

  void call(std::string_view method, Message request, Ref<CancellationToken> cancel,
            CallDone done) override {
    Result<Ref<Connection>> connection = connect();
    if (!connection.ok()) {
      return done(unavailable("cannot reach ", peer_, ": ", connection.status().message()),
                  Message());
    }
    (*connection)->call(method, request, std::move(cancel), std::move(done));
  }

 private:
  ~SameHostChannel() override {
    if (connection_) connection_->close(cancelled("the channel to ", peer_, " has ended"));
  }

  Result<Ref<Connection>> connect() {
    MutexLock lock(mu_);
    if (connection_ && !connection_->closed()) return connection_;
    MR_TRY_ASSIGN(OwnedFd socket, connect_on_host(name_));
    MR_TRY(check_same_user(socket).status());
    MR_TRY_ASSIGN(Ref<SharedRing> out, SharedRing::create());
    MR_TRY_ASSIGN(Ref<SharedRing> in, SharedRing::create());
    const int fds[] = {out->fd().get(), in->fd().get()};
    MR_TRY(send_with_fds(socket, kGreeting, fds));
    connection_ = Connection::start(std::move(socket), std::move(out), std::move(in), peer_,
                                    nullptr, options_);
    return connection_;
  }

  const std::string name_, peer_;
  const SameHostOptions options_;
  Mutex mu_;
  Ref<Connection> connection_ MR_GUARDED_BY(mu_);
};

}  // namespace

struct SameHostServer::Impl : RefCounted {
  Impl(OwnedFd socket, Ref<CallHandler> answers, const SameHostOptions& how)
      : listener(std::move(socket)), handler(std::move(answers)), options(how) {}

  // Until the listener is shut down.
  void accept() {
    accept_all();
    MutexLock lock(mu);
    accepting = false;
    changed.notify_all();
  }
  void accept_all() {
    for (;;) {
      Result<OwnedFd> socket = accept_on_host(listener);
      if (socket.status().code() == Code::kCancelled) return;
      if (!socket.ok()) {
        MR_LOG(kWarning, "same-host server: ", socket.status());
        poll(nullptr, 0, kAcceptAgainMs);
        continue;
      }
      // Elsewhere: who connects and says nothing holds up nobody.
      ThreadPool::global().schedule_blocking(
          [self = Ref<Impl>(this), socket = *std::move(socket)]() mutable {
            const Status status = self->greet(std::move(socket));
            if (!status.ok()) MR_LOG(kWarning, "refused a connection on this host: ", status);
          });
    }
  }

  Status greet(OwnedFd socket) {
    MR_TRY_ASSIGN(const pid_t process, check_same_user(socket));
    char greeting[sizeof kGreeting];
    MR_TRY_ASSIGN(std::vector<OwnedFd> fds,
                  receive_with_fds(socket, greeting, 2, kGreetingTimeoutMs));
    if (!std::equal(std::begin(greeting), std::end(greeting), std::begin(kGreeting))) {
      return invalid_argument("expected a greeting of this version");
    }
    MR_TRY_ASSIGN(Ref<SharedRing> in, SharedRing::open(std::move(fds[0])));
    MR_TRY_ASSIGN(Ref<SharedRing> out, SharedRing::open(std::move(fds[1])));
    MutexLock lock(mu);
    if (stopped) return cancelled("the server has ended");
    std::erase_if(connections, [](const auto& connection) { return connection->closed(); });
    connections.push_back(Connection::start(std::move(socket), std::move(out), std::move(in),
                                            str_cat("process ", process), handler, options));
    return ok_status();
  }

  void stop() {
    shutdown(listener.get(), SHUT_RDWR);
    std::vector<Ref<Connection>> open;
    {
      MutexLock lock(mu);
      stopped = true;
      open.swap(connections);
      while (accepting) changed.wait(mu);
    }
    listener = OwnedFd();  // the name is free again
    for (const auto& connection : open) connection->close(cancelled("the server has ended"));
  }

  OwnedFd listener;
  const Ref<CallHandler> handler;
  const SameHostOptions options;
  Mutex mu;
  CondVar changed;
  bool accepting MR_GUARDED_BY(mu) = true;
  bool stopped MR_GUARDED_BY(mu) = false;
  std::vector<Ref<Connection>> connections MR_GUARDED_BY(mu);
};

SameHostServer::SameHostServer(Ref<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<SameHostServer>> SameHostServer::start(const std::string& name,
                                                              Ref<CallHandler> handler,
                                                              const SameHostOptions& options) {
  MR_TRY_ASSIGN(OwnedFd socket, listen_on_host(name));
  Ref<Impl> impl = make_ref<Impl>(std::move(socket), std::move(handler), options);
  ThreadPool::global().schedule_blocking([impl] { impl->accept(); });
  return std::unique_ptr<SameHostServer>(new SameHostServer(std::move(impl)));
}

SameHostServer::~SameHostServer() { impl_->stop(); }

Ref<Channel> make_same_host_channel(std::string name, std::string peer,
                                    const SameHostOptions& options) {
  return make_ref<SameHostChannel>(std::move(name), std::move(peer), options);
}

}  // namespace millrace
