#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "millrace/distributed/grpc/grpc_library.h"

namespace millrace::grpc_library {

// Mutual TLS with certificates, plain text without. Null, with the reason in `error`, when a file
// cannot be read.
std::shared_ptr<grpc::ServerCredentials> server_credentials(const Certificates& certificates,
                                                            std::string& error);
std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const Certificates& certificates,
                                                              std::string& error);

}  // namespace millrace::grpc_library
