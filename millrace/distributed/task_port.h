#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "millrace/distributed/network.h"
#include "millrace/distributed/same_host/same_host.h"

namespace millrace {

// The port where other processes reach a task: taken before the task exists, since its number is
// part of what the task is, and answered once it does.
class TaskPort {
 public:
  // The port of `address` ("host:port") as far as `network` opens it; 0 becomes a free one. UNKNOWN
  // when it is not to be had.
  static Result<std::unique_ptr<TaskPort>> take(std::string_view address, const Network& network);
  // What is being answered is cancelled.
  ~TaskPort();
  TaskPort(const TaskPort&) = delete;
  TaskPort& operator=(const TaskPort&) = delete;

  // With the port that it got.
  const std::string& address() const { return address_; }

  // From now on `handler` answers processes of this user and of root on this machine, and `others`
  // all who come otherwise; until then calls are UNAVAILABLE. Once.
  Status open(Ref<CallHandler> handler, Ref<CallHandler> others);

 private:
  class Door;

  TaskPort();

  std::string address_;
  const Ref<Door> door_, others_door_;
  OwnedFd holder_;  // keeps the port where gRPC is not to be had
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<SameHostServer> same_host_;
};

}  // namespace millrace
