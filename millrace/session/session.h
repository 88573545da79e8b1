#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/kernel/device.h"
#include "millrace/runtime/signature.h"
#include "millrace/session/session_options.h"

namespace millrace {

class Callable;

// Runs parts of a graph: what a client holds. Variables, queues and other state belong to the
// session and live until it is closed.
//
//   MR_TRY_ASSIGN(auto session, Session::create(graph));
//   MR_TRY_ASSIGN(std::vector<Tensor> out, session->run({{"x", x}}, {"y"}));
//
// Thread-safe: any number of threads may run at once, also while the graph grows. Errors leave the
// session usable.
class Session {
 public:
  using Feeds = std::vector<std::pair<std::string, Tensor>>;

  // Registers all ops on first use. The session sees nodes that are added to the graph later.
  static Result<std::unique_ptr<Session>> create(Ref<Graph> graph, SessionOptions options = {});
  // Closes it.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Takes the nodes added to the graph since the last call; run() does it by itself.
  Status extend();

  // Computes the fetches, runs the targets, with feeds in place of the tensors they name. Names are
  // "node" or "node:1"; targets are node names. Fetches come back in order. Plans are kept by
  // signature.
  //
  // The tensors are the caller's: nobody else holds their memory.
  Result<std::vector<Tensor>> run(const Feeds& feeds, const std::vector<std::string>& fetches,
                                  const std::vector<std::string>& targets = {},
                                  const RunOptions& options = {}, RunMetadata* metadata = nullptr);

  // A signature made ready once, for callers that run it often.
  Result<std::shared_ptr<Callable>> make_callable(const Signature& signature,
                                                  const RunOptions& options = {});

  // Declares the feeds and fetches of a run that happens in pieces; the handle names it.
  Result<std::string> partial_run_setup(const Signature& signature);
  // Feeds and fetches some of what was declared, each once. A fetch that depends on a feed that has
  // not come is INVALID_ARGUMENT. The run ends when all that was declared is done, and with its
  // first error. Of the options the deadline counts, for this piece, and the token and
  // `interrupted`, which end the whole run.
  Result<std::vector<Tensor>> partial_run(const std::string& handle, const Feeds& feeds,
                                          const std::vector<std::string>& fetches,
                                          const RunOptions& options = {});

  // Cancels what runs and waits for it; every later call is FAILED_PRECONDITION. OK when closed
  // already.
  Status close();
  std::vector<Device::Info> list_devices() const;
  // Drops the variables and queues in these containers (none named: the default one).
  Status reset(std::span<const std::string> containers = {});

  // The plan a signature runs by, for people.
  Result<std::string> explain(const Signature& signature);

 private:
  friend class Callable;
  struct Impl;
  explicit Session(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// A signature ready to run. Thread-safe. Keeps its session's state alive, but fails once it is
// closed.
class Callable {
 public:
  // Feeds and fetches in the order of the signature. `options`: instead of those it was made with.
  Status run(std::span<const Tensor> feeds, std::vector<Tensor>& fetches,
             RunMetadata* metadata = nullptr, const RunOptions* options = nullptr);

  // About how much memory its plan holds.
  int64_t bytes() const;

  Callable();
  ~Callable();

 private:
  friend class Session;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
