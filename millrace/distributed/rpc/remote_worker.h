#pragma once

#include "millrace/distributed/rpc/channel.h"
#include "millrace/distributed/worker_interface.h"

namespace millrace {

// The worker at the other end of a channel.
Ref<WorkerInterface> make_remote_worker(Ref<Channel> channel);

// The other end: answers what a remote worker asks by asking `worker`. UNIMPLEMENTED for methods
// that are not a worker's.
Ref<CallHandler> make_worker_service(Ref<WorkerInterface> worker);

}  // namespace millrace
