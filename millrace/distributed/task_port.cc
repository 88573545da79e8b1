#include "millrace/distributed/task_port.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "millrace/base/log.h"
#include "millrace/base/mutex.h"

namespace millrace {
namespace {

// A socket that has the port, where nobody listens; 0 becomes a free one.
Result<OwnedFd> hold_port(int& port) {
  OwnedFd out(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!out.valid() || bind(out.get(), generic, size) != 0 ||
      getsockname(out.get(), generic, &size) != 0) {
    return unknown("cannot have port ", port, ": ", std::strerror(errno));
  }
  port = ntohs(address.sin_port);
  return out;
}

}  // namespace

class TaskPort::Door final : public CallHandler {
 public:
  void open(Ref<CallHandler> handler) {
    MutexLock lock(mu_);
    handler_ = std::move(handler);
  }
  void handle(std::string_view method, Message request, Ref<CancellationToken> cancel,
              CallDone done) override {
    Ref<CallHandler> handler;
    {
      MutexLock lock(mu_);
      handler = handler_;
    }
    if (!handler) return done(unavailable("the task has not begun"), Message());
    handler->handle(method, std::move(request), std::move(cancel), std::move(done));
  }

 private:
  Mutex mu_;
  Ref<CallHandler> handler_ MR_GUARDED_BY(mu_);
};

TaskPort::TaskPort() : door_(make_ref<Door>()), others_door_(make_ref<Door>()) {}

TaskPort::~TaskPort() {
  same_host_.reset();
  grpc_.reset();
}

Result<std::unique_ptr<TaskPort>> TaskPort::take(std::string_view address, const Network& network) {
  std::unique_ptr<TaskPort> out(new TaskPort());
  out->address_ = address;
  const std::string listen_at = network.listen_at(address);
  if (listen_at.empty()) {
    MR_NOTICE("nobody can reach the task at ", address,
              ": it is no address of this machine alone, and there are no certificates");
    return out;
  }
  const size_t colon = address.rfind(':');
  int port = std::atoi(std::string(address.substr(colon + 1)).c_str());
  if (port > 0xffff) return invalid_argument("expected a port up to 65535, got ", port);
  if (grpc_available().ok()) {
    GrpcOptions options = network.grpc;
    options.same_user = network.same_user_only();
    MR_TRY_ASSIGN(out->grpc_, GrpcServer::start(
                                  listen_at, out->door_, options,
                                  network.rights_of_others().all() ? nullptr : out->others_door_));
    port = out->grpc_->port();
  } else {
    MR_TRY_ASSIGN(out->holder_, hold_port(port));
  }
  out->address_ = str_cat(address.substr(0, colon + 1), port);
  return out;
}

Status TaskPort::open(Ref<CallHandler> handler, Ref<CallHandler> others) {
  if (const std::string name = name_on_host(address_); !name.empty()) {
    MR_TRY_ASSIGN(same_host_, SameHostServer::start(name, handler));
  }
  door_->open(std::move(handler));
  others_door_->open(std::move(others));
  return ok_status();
}

}  // namespace millrace
