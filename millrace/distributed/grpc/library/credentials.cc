#include "millrace/distributed/grpc/library/credentials.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace millrace::grpc_library {
namespace {

struct Pem {
  std::string authority, certificate, key;
};

bool read_file(const std::string& name, std::string& out, std::string& error) {
  std::ifstream file(name, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) {
    error = "cannot read " + name + ": " + std::strerror(errno);
    return false;
  }
  out = text.str();
  return true;
}

bool read_all(const Certificates& names, Pem& pem, std::string& error) {
  return read_file(names.authority, pem.authority, error) &&
         read_file(names.certificate, pem.certificate, error) &&
         read_file(names.key, pem.key, error);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> server_credentials(const Certificates& certificates,
                                                            std::string& error) {
  if (certificates.certificate.empty()) return grpc::InsecureServerCredentials();
  Pem pem;
  if (!read_all(certificates, pem, error)) return nullptr;
  grpc::SslServerCredentialsOptions options(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem.authority;
  options.pem_key_cert_pairs.push_back({pem.key, pem.certificate});
  return grpc::SslServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> channel_credentials(const Certificates& certificates,
                                                              std::string& error) {
  if (certificates.certificate.empty()) return grpc::InsecureChannelCredentials();
  Pem pem;
  if (!read_all(certificates, pem, error)) return nullptr;
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = pem.authority;
  options.pem_private_key = pem.key;
  options.pem_cert_chain = pem.certificate;
  return grpc::SslCredentials(options);
}

}  // namespace millrace::grpc_library
