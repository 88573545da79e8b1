#include "millrace/distributed/grpc/library/channel.h"

#include <grpcpp/alarm.h>
#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "millrace/distributed/grpc/library/bytes.h"
#include "millrace/distributed/grpc/library/credentials.h"

namespace millrace::grpc_library {
namespace {

using Work = Listener::Work;

class ClientCall;

// The calls of a channel that have not ended.
struct LiveCalls {
  std::mutex mu;
  std::map<ClientCall*, std::weak_ptr<ClientCall>> calls;
};

// A call to a peer. Holds itself until all that it asked of gRPC has happened.
class ClientCall final : public Stream, public std::enable_shared_from_this<ClientCall> {
 public:
  ClientCall(Poller& poller, std::shared_ptr<LiveCalls> live, std::unique_ptr<Listener> listener)
      : poller_(poller), live_(std::move(live)), listener_(std::move(listener)) {}

  void start(grpc::GenericStub& stub, const std::string& method, const std::string& token,
             const std::vector<Piece>& message) {
    const grpc::ByteBuffer first = buffer_of(message);
    {
      std::lock_guard<std::mutex> lock(live_->mu);
      live_->calls.emplace(this, weak_from_this());
    }
    std::lock_guard<std::mutex> lock(mu_);
    self_ = shared_from_this();
    if (!token.empty()) context_.AddMetadata("authorization", token);
    // Its head goes with the first message; then nothing happens for StartCall.
    context_.set_initial_metadata_corked(true);
    stream_ = stub.PrepareCall(&context_, method, poller_.queue());
    stream_->StartCall(nullptr);
    writing_ = true;
    outstanding_ = 2;
    stream_->Write(first, &written_);
    stream_->Read(&incoming_, &read_);
  }

  void send(std::vector<Piece> message) override {
    grpc::ByteBuffer buffer = buffer_of(message);
    std::lock_guard<std::mutex> lock(mu_);
    if (!open_) return;
    queue_.push_back(std::move(buffer));
    write();
  }
  void finish(int, std::string, std::vector<Piece>) override {}
  void cancel_after(int ms) override {
    std::lock_guard<std::mutex> lock(mu_);
    if (!open_ || alarm_) return;
    alarm_.emplace();
    ++outstanding_;
    alarm_->Set(poller_.queue(), std::chrono::system_clock::now() + std::chrono::milliseconds(ms),
                &late_);
  }
  void cancel_now() {
    std::lock_guard<std::mutex> lock(mu_);
    if (open_) context_.TryCancel();
  }

 private:
  using Happened = MemberEvent<ClientCall>;

  Work read(bool ok) {
    Work work;
    if (ok) {
      if (incoming_.Length() >= kLargeMessage) poller_.let_another_wait();
      work = listener_->message(ReceivedMessage(incoming_).pieces());
      incoming_.Clear();
    }
    {
      std::lock_guard<std::mutex> lock(mu_);
      ++outstanding_;
      if (ok) {
        stream_->Read(&incoming_, &read_);
      } else {
        stream_->Finish(&status_, &finished_);
      }
    }
    settle();
    return work;
  }
  Work written(bool ok) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      writing_ = false;
      if (!ok) writable_ = false;
      write();
    }
    settle();
    return nullptr;
  }
  Work finished(bool) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      open_ = false;
      if (alarm_) alarm_->Cancel();
    }
    Work work = listener_->ended(status_.error_code(), status_.error_message());
    settle();
    return work;
  }
  Work late(bool ok) {
    if (ok) cancel_now();
    settle();
    return nullptr;
  }

  // Under mu_: asks for the next thing there is to write.
  void write() {
    if (writing_ || !writable_ || !open_ || queue_.empty()) return;
    const grpc::ByteBuffer next = queue_.front();
    queue_.pop_front();
    writing_ = true;
    ++outstanding_;
    stream_->Write(next, &written_);
  }
  // An event has come; the last one lets go of the call.
  void settle() {
    std::shared_ptr<ClientCall> last;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (--outstanding_ > 0) return;
      last.swap(self_);
    }
    std::lock_guard<std::mutex> lock(live_->mu);
    live_->calls.erase(this);
  }

  Poller& poller_;
  const std::shared_ptr<LiveCalls> live_;
  // Called for one event at a time: a message is read after the one before it.
  const std::unique_ptr<Listener> listener_;
  Happened read_{this, &ClientCall::read}, written_{this, &ClientCall::written},
      finished_{this, &ClientCall::finished}, late_{this, &ClientCall::late};

  std::mutex mu_;
  std::shared_ptr<ClientCall> self_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  std::optional<grpc::Alarm> alarm_;
  grpc::ByteBuffer incoming_;
  std::deque<grpc::ByteBuffer> queue_;  // to be written
  grpc::Status status_;
  int outstanding_ = 0;   // events that are to come
  bool open_ = true;      // it has not ended
  bool writable_ = true;  // the peer takes more messages
  bool writing_ = false;
};

class ChannelImpl final : public Channel {
 public:
  ChannelImpl(const ChannelOptions& options,
              const std::shared_ptr<grpc::ChannelCredentials>& credentials, Poller& poller)
      : poller_(poller), options_(options), credentials_(credentials) {}
  ~ChannelImpl() override {
    std::map<ClientCall*, std::weak_ptr<ClientCall>> calls;
    {
      std::lock_guard<std::mutex> lock(live_->mu);
      calls = live_->calls;
    }
    for (const auto& [key, weak] : calls) {
      if (const std::shared_ptr<ClientCall> call = weak.lock()) call->cancel_now();
    }
  }

  std::shared_ptr<Stream> call(const std::string& method, std::vector<Piece> message,
                               std::unique_ptr<Listener> listener) override {
    auto call = std::make_shared<ClientCall>(poller_, live_, std::move(listener));
    call->start(*stub(), method, options_.token, message);
    return call;
  }

 private:
  static grpc::ChannelArguments arguments(const ChannelOptions& options) {
    grpc::ChannelArguments out;
    out.SetMaxReceiveMessageSize(-1);
    out.SetMaxSendMessageSize(-1);
    out.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, options.far ? 1 : 0);
    out.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kLookahead);
    out.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kFrame);
    out.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, options.lost_after_ms / 2);
    out.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, options.lost_after_ms / 2);
    out.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    // A call is delivered at most once.
    out.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    // That long it tries to connect.
    out.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, options.lost_after_ms);
    // Channels to one address are apart, so that ending one ends its connection.
    out.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // Proxies are for the world outside of a cluster.
    out.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    return out;
  }

  // A way to the peer. One that could not connect would refuse calls for a while without another
  // try, so a new one takes its place.
  std::shared_ptr<grpc::GenericStub> stub() {
    std::lock_guard<std::mutex> lock(mu_);
    if (!channel_ || channel_->GetState(false) == GRPC_CHANNEL_TRANSIENT_FAILURE) {
      channel_ = grpc::CreateCustomChannel(options_.address, credentials_, arguments(options_));
      stub_ = std::make_shared<grpc::GenericStub>(channel_);
    }
    return stub_;
  }

  Poller& poller_;
  const ChannelOptions options_;
  const std::shared_ptr<grpc::ChannelCredentials> credentials_;
  std::mutex mu_;
  std::shared_ptr<grpc::Channel> channel_;
  std::shared_ptr<grpc::GenericStub> stub_;
  const std::shared_ptr<LiveCalls> live_ = std::make_shared<LiveCalls>();
};

}  // namespace

std::unique_ptr<Channel> make_channel(const ChannelOptions& options, Poller& poller,
                                      std::string& error) {
  const std::shared_ptr<grpc::ChannelCredentials> credentials =
      channel_credentials(options.certificates, error);
  if (!credentials) return nullptr;
  return std::make_unique<ChannelImpl>(options, credentials, poller);
}

}  // namespace millrace::grpc_library
