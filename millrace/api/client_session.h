#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "millrace/api/scope.h"
#include "millrace/session/session.h"

namespace millrace {

// A session for programs that hold tensors of a Scope instead of names.
//
//   MR_TRY_ASSIGN(ClientSession session, ClientSession::create(root));
//   MR_TRY_ASSIGN(std::vector<Tensor> out, session.run({{x, value}}, {y}));
//
// Thread-safe, as Session is.
class ClientSession {
 public:
  using Feeds = std::vector<std::pair<Expr, Tensor>>;

  // The scope's error when it has one.
  static Result<ClientSession> create(const Scope& scope, SessionOptions options = {});

  Result<std::vector<Tensor>> run(const Feeds& feeds, const std::vector<Expr>& fetches,
                                  const std::vector<Operation>& targets = {},
                                  const RunOptions& options = {}, RunMetadata* metadata = nullptr);
  // Feeds and fetches in this order at every call.
  Result<std::shared_ptr<Callable>> make_callable(const std::vector<Expr>& feeds,
                                                  const std::vector<Expr>& fetches,
                                                  const std::vector<Operation>& targets = {});
  Session& session() { return *session_; }

 private:
  ClientSession(Scope scope, std::unique_ptr<Session> session)
      : scope_(std::move(scope)), session_(std::move(session)) {}
  std::vector<std::string> names(const std::vector<Expr>& tensors) const;

  Scope scope_;
  std::unique_ptr<Session> session_;
};

}  // namespace millrace
