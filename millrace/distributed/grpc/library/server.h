#pragma once

#include <memory>
#include <string>

#include "millrace/distributed/grpc/grpc_library.h"

namespace millrace::grpc_library {

// As Library::serve().
std::unique_ptr<Server> start_server(const ServerOptions& options, std::shared_ptr<Service> service,
                                     const StartTask& start, std::string& error);

}  // namespace millrace::grpc_library
