#include "millrace/distributed/grpc/library/server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "millrace/distributed/grpc/library/bytes.h"
#include "millrace/distributed/grpc/library/credentials.h"
#include "millrace/distributed/grpc/library/poller.h"

namespace millrace::grpc_library {
namespace {

using Work = Listener::Work;

class ServerImpl;

// A call of a peer: waits for it, then is it. Holds itself until all that it asked of gRPC has
// happened.
class ServerCall final : public Stream, public std::enable_shared_from_this<ServerCall> {
 public:
  explicit ServerCall(ServerImpl* server) : server_(server) {}

  // Waits for a call to come.
  void accept(grpc::AsyncGenericService& service, grpc::ServerCompletionQueue* queue) {
    std::lock_guard<std::mutex> lock(mu_);
    self_ = shared_from_this();
    context_.AsyncNotifyWhenDone(&done_);
    outstanding_ = 1;
    service.RequestCall(&context_, &stream_, queue, queue, &accepted_);
  }
  // The server ends: asks nothing of gRPC any more.
  void stop() {
    std::lock_guard<std::mutex> lock(mu_);
    stopped_ = true;
    open_ = false;
  }

  void send(std::vector<Piece> message) override {
    grpc::ByteBuffer buffer = buffer_of(message);
    std::lock_guard<std::mutex> lock(mu_);
    if (!open_) return;
    queue_.push_back(buffer);
    write();
  }
  void finish(int code, std::string text, std::vector<Piece> last) override {
    grpc::ByteBuffer buffer = buffer_of(last);
    std::lock_guard<std::mutex> lock(mu_);
    if (!open_ || finishing_) return;
    if (!last.empty()) queue_.push_back(buffer);
    finishing_ = true;
    status_ = grpc::Status(static_cast<grpc::StatusCode>(code), text);
    write();
  }
  void cancel_after(int) override {}

 private:
  using Happened = MemberEvent<ServerCall>;

  Work accepted(bool ok);
  Work read(bool ok);
  Work written(bool ok);
  Work done(bool ok);
  // An event has come; the last one lets go of the call, once what it returned is gone.
  std::shared_ptr<ServerCall> settle();

  // Under mu_: asks for the next thing there is to write.
  void write() {
    if (writing_ || !open_) return;
    if (!queue_.empty()) {
      const grpc::ByteBuffer next = queue_.front();
      queue_.pop_front();
      if (finishing_ && queue_.empty()) {
        open_ = false;
        stream_.WriteAndFinish(next, grpc::WriteOptions(), status_, &written_);
      } else {
        stream_.Write(next, &written_);
      }
    } else if (finishing_) {
      open_ = false;
      stream_.Finish(status_, &written_);
    } else {
      return;
    }
    writing_ = true;
    ++outstanding_;
  }

  ServerImpl* const server_;
  Happened accepted_{this, &ServerCall::accepted}, read_{this, &ServerCall::read},
      written_{this, &ServerCall::written}, done_{this, &ServerCall::done};

  std::mutex mu_;
  std::shared_ptr<ServerCall> self_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer incoming_;
  std::deque<grpc::ByteBuffer> queue_;  // to be written
  grpc::Status status_;
  int outstanding_ = 0;  // events that are to come
  bool open_ = false;    // more may be asked of gRPC
  bool stopped_ = false;
  bool writing_ = false, finishing_ = false;

  std::mutex hear_mu_;  // one thread calls the listener at a time
  std::unique_ptr<Listener> listener_;
};

class ServerImpl final : public Server {
 public:
  explicit ServerImpl(std::shared_ptr<Service> service) : service_(std::move(service)) {}
  ~ServerImpl() override {
    std::map<ServerCall*, std::shared_ptr<ServerCall>> calls;
    {
      std::lock_guard<std::mutex> lock(mu_);
      stopping_ = true;
      calls = calls_;
    }
    for (const auto& [key, call] : calls) call->stop();
    if (server_) server_->Shutdown(std::chrono::system_clock::now());
    poller_.reset();
  }

  bool start(const ServerOptions& options, const StartTask& start, std::string& error) {
    grpc::ServerBuilder builder;
    const std::shared_ptr<grpc::ServerCredentials> credentials =
        server_credentials(options.certificates, error);
    if (!credentials) return false;
    builder.AddListeningPort(options.address, credentials, &port_);
    builder.RegisterAsyncGenericService(&generic_);
    builder.SetMaxReceiveMessageSize(-1);
    builder.SetMaxSendMessageSize(-1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, options.far ? 1 : 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookahead);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrame);
    // Two servers at one address would each get some of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, options.lost_after_ms / 2);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.lost_after_ms / 2);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
    queue_ = queue.get();
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0) {
      error = "cannot listen at " + options.address +
              ": somebody else does, or it is no address of this machine";
      queue->Shutdown();
      return false;
    }
    poller_ = std::make_unique<Poller>(std::move(queue), start);
    accept();
    return true;
  }

  int port() const override { return port_; }

  // Waits for one more call.
  void accept() {
    std::lock_guard<std::mutex> lock(mu_);
    if (stopping_) return;
    auto call = std::make_shared<ServerCall>(this);
    calls_.emplace(call.get(), call);
    call->accept(generic_, queue_);
  }
  void forget(ServerCall* call) {
    std::lock_guard<std::mutex> lock(mu_);
    calls_.erase(call);
  }

  Service& service() { return *service_; }
  void let_another_wait() { poller_->let_another_wait(); }

 private:
  const std::shared_ptr<Service> service_;
  grpc::AsyncGenericService generic_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  grpc::ServerCompletionQueue* queue_ = nullptr;
  std::unique_ptr<Poller> poller_;
  std::mutex mu_;
  bool stopping_ = false;
  std::map<ServerCall*, std::shared_ptr<ServerCall>> calls_;
};

std::shared_ptr<ServerCall> ServerCall::settle() {
  std::shared_ptr<ServerCall> last;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (--outstanding_ > 0) return nullptr;
    open_ = false;
    last.swap(self_);
  }
  server_->forget(this);
  return last;
}

Work ServerCall::accepted(bool ok) {
  if (ok) {
    server_->accept();
    Peer peer{context_.peer(), ""};
    const auto& metadata = context_.client_metadata();
    if (const auto it = metadata.find("authorization"); it != metadata.end()) {
      peer.token.assign(it->second.data(), it->second.size());
    }
    {
      std::lock_guard<std::mutex> lock(mu_);
      open_ = !stopped_;
      ++outstanding_;  // done_, which comes for calls that were accepted
    }
    {
      std::lock_guard<std::mutex> hear(hear_mu_);
      listener_ = server_->service().begin(context_.method(), peer, shared_from_this());
    }
    std::lock_guard<std::mutex> lock(mu_);
    if (open_) {
      ++outstanding_;
      stream_.Read(&incoming_, &read_);
    }
  }
  settle();
  return nullptr;
}

Work ServerCall::read(bool ok) {
  Work work;
  if (ok) {
    if (incoming_.Length() >= kLargeMessage) server_->let_another_wait();
    {
      std::lock_guard<std::mutex> hear(hear_mu_);
      if (listener_) work = listener_->message(ReceivedMessage(incoming_).pieces());
    }
    std::lock_guard<std::mutex> lock(mu_);
    incoming_.Clear();
    if (open_) {
      ++outstanding_;
      stream_.Read(&incoming_, &read_);
    }
  }
  settle();
  return work;
}

Work ServerCall::written(bool ok) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    writing_ = false;
    if (!ok) open_ = false;
    write();
  }
  settle();
  return nullptr;
}

Work ServerCall::done(bool) {
  const bool cancelled = context_.IsCancelled();
  if (cancelled) stop();
  Work work;
  {
    std::lock_guard<std::mutex> hear(hear_mu_);
    if (const std::unique_ptr<Listener> listener = std::move(listener_)) {
      work = listener->ended(cancelled ? grpc::StatusCode::CANCELLED : 0, "");
    }
  }
  settle();
  return work;
}

}  // namespace

std::unique_ptr<Server> start_server(const ServerOptions& options, std::shared_ptr<Service> service,
                                     const StartTask& start, std::string& error) {
  auto server = std::make_unique<ServerImpl>(std::move(service));
  if (!server->start(options, start, error)) return nullptr;
  return server;
}

}  // namespace millrace::grpc_library
