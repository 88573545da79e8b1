#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// What libmillrace_grpc.so offers to libmillrace, which loads it when a cluster is asked for: gRPC
// without its headers, and without what is Millrace's. Neither library has symbols of the other,
// but for millrace_grpc_library(); what they call of each other is virtual.

namespace millrace::grpc_library {

// Raised when anything here changes: libraries of different versions do not fit.
inline constexpr int kVersion = 3;

// Memory that is sent as it lies there; `owner` keeps it until then.
struct Piece {
  const void* data = nullptr;
  size_t size = 0;
  std::shared_ptr<const void> owner;
};

// Memory that came; valid during the call that gives it.
struct Bytes {
  const void* data = nullptr;
  size_t size = 0;
};

// Who is at the other end of a call, as far as the transport knows.
struct Peer {
  std::string address;
  std::string token;  // what it sent as "authorization", empty: nothing
};

// What one side of a call says to the other: messages, in order. Thread-safe.
class Stream {
 public:
  virtual ~Stream() = default;
  // Sends a message after those before it; does not wait.
  virtual void send(std::vector<Piece> message) = 0;
  // On the side that answers: ends the call with a code of gRPC and a text, after what was sent and
  // a last message, unless that is empty.
  virtual void finish(int code, std::string text, std::vector<Piece> last) = 0;
  // On the side that calls: gives up after so many milliseconds, unless it has ended by then.
  virtual void cancel_after(int ms) = 0;
};

// What one side of a call hears. Called by one thread at a time.
class Listener {
 public:
  using Work = std::function<void()>;

  virtual ~Listener() = default;
  // The next message. What takes time is returned, and done while others are heard, this call's
  // next message among them.
  virtual Work message(const std::vector<Bytes>& pieces) = 0;
  // The last that is heard. On the side that calls: how the call ended, with a code of gRPC. On the
  // side that answers: 0 when it was answered, CANCELLED when the caller is gone.
  virtual Work ended(int code, std::string text) = 0;
};

// Answers the calls of others.
class Service {
 public:
  virtual ~Service() = default;
  // A call begins; the listener is deleted after ended().
  virtual std::unique_ptr<Listener> begin(std::string_view method, const Peer& peer,
                                          std::shared_ptr<Stream> stream) = 0;
};

// Names of PEM files; all or none. Both sides show a certificate of the authority.
struct Certificates {
  std::string authority, certificate, key;
};

struct ServerOptions {
  std::string address;  // "127.0.0.1:2222"; port 0: any
  Certificates certificates;
  int lost_after_ms = 2000;  // a peer that says nothing for so long is lost
  bool far = true;           // peers may be on other machines
};

struct ChannelOptions {
  std::string address;
  Certificates certificates;
  std::string token;
  int lost_after_ms = 2000;
  bool far = true;
};

class Server {
 public:
  // Ends all calls and waits until nobody is called any more.
  virtual ~Server() = default;
  virtual int port() const = 0;
};

class Channel {
 public:
  virtual ~Channel() = default;
  // Begins a call and sends its first message. The listener is deleted after ended().
  virtual std::shared_ptr<Stream> call(const std::string& method, std::vector<Piece> message,
                                       std::unique_ptr<Listener> listener) = 0;
};

class Library {
 public:
  virtual ~Library() = default;
  // Null, with the reason in `error`, when the address cannot be had or a file cannot be read.
  virtual std::unique_ptr<Server> serve(const ServerOptions& options,
                                        std::shared_ptr<Service> service, std::string& error) = 0;
  virtual std::unique_ptr<Channel> connect(const ChannelOptions& options, std::string& error) = 0;
};

// Starts a task that may block on a thread.
using StartTask = std::function<void(std::function<void()>)>;

// The entry, with C linkage under the name kEntry: the library of this process, for ever; null when
// it is of another version. `start` is used from then on.
using Entry = Library* (*)(int version, StartTask start);
inline constexpr const char* kEntry = "millrace_grpc_library";

}  // namespace millrace::grpc_library
