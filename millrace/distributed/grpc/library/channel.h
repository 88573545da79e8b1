#pragma once

#include <memory>
#include <string>

#include "millrace/distributed/grpc/grpc_library.h"
#include "millrace/distributed/grpc/library/poller.h"

namespace millrace::grpc_library {

// As Library::connect(). `poller` outlives the channel and its calls.
std::unique_ptr<Channel> make_channel(const ChannelOptions& options, Poller& poller,
                                      std::string& error);

}  // namespace millrace::grpc_library
