#include "millrace/api/client_session.h"

namespace millrace {
namespace {

std::vector<std::string> target_names(const std::vector<Operation>& targets) {
  std::vector<std::string> out;
  for (const Operation& target : targets) out.push_back(target.name);
  return out;
}

}  // namespace

Result<ClientSession> ClientSession::create(const Scope& scope, SessionOptions options) {
  MR_TRY(scope.status());
  MR_TRY_ASSIGN(std::unique_ptr<Session> session,
                Session::create(scope.graph(), std::move(options)));
  return ClientSession(scope, std::move(session));
}

std::vector<std::string> ClientSession::names(const std::vector<Expr>& tensors) const {
  std::vector<std::string> out;
  for (const Expr& t : tensors) out.push_back(scope_.name_of(t));
  return out;
}

Result<std::vector<Tensor>> ClientSession::run(const Feeds& feeds, const std::vector<Expr>& fetches,
                                               const std::vector<Operation>& targets,
                                               const RunOptions& options, RunMetadata* metadata) {
  MR_TRY(scope_.status());
  Session::Feeds named;
  for (const auto& [tensor, value] : feeds) named.emplace_back(scope_.name_of(tensor), value);
  return session_->run(named, names(fetches), target_names(targets), options, metadata);
}

Result<std::shared_ptr<Callable>> ClientSession::make_callable(
    const std::vector<Expr>& feeds, const std::vector<Expr>& fetches,
    const std::vector<Operation>& targets) {
  MR_TRY(scope_.status());
  return session_->make_callable({names(feeds), names(fetches), target_names(targets)});
}

}  // namespace millrace
