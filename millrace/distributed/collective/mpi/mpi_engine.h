#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/collective/mpi/mpi_call.h"
#include "millrace/distributed/collective/mpi/mpi_coordinator.h"
#include "millrace/distributed/collective/mpi/mpi_library.h"

namespace millrace {

// The ranks of MPI as members of a group.
struct MpiWorld {
  int rank = 0;                      // of this process
  std::vector<std::string> members;  // by rank of MPI: "rank 0 (/job:worker/replica:0/task:0)"
  std::vector<int> order;            // ranks of MPI, by rank in the group
  friend bool operator==(const MpiWorld&, const MpiWorld&) = default;
};

// The one thread of this process that calls MPI: it begins what all ranks have begun, in the order
// that the first rank says, and sees to all that is under way. It polls: without rest while
// elements travel, less and less often while others are waited for, and every 10 ms otherwise.
//
// It lives as long as the process, at whose end, where that has status 0, it finishes MPI. With
// another status it does not: mpirun then ends the other ranks. Where somebody else has begun with
// MPI, mpi4py for instance, and finishes it, it ends with that. Thread-safe.
class MpiEngine {
 public:
  // The process's own; started, and with it MPI, by the first call. Later ones must give the same
  // world: null otherwise.
  static MpiEngine* start(const MpiLibrary& library, const MpiWorld& world);

  // Takes part with a call, which it answers. Also where its caller has given up: the others have
  // to know, by leave(), which comes after.
  void submit(Ref<MpiCall> call);
  // The call was answered: its caller has given up. The others are told `reason`, with ABORTED.
  void leave(Ref<MpiCall> call, std::string reason);
  // Who is waited for, as far as this rank knows.
  std::string missing(const MpiCall& call) const;

 private:
  using Key = std::pair<int64_t, int64_t>;  // group, instance
  struct Command {
    Ref<MpiCall> call;
    std::optional<std::string> left;  // why
  };
  // A part of what goes, begun at once by all ranks.
  struct Piece {
    int64_t begin = 0, count = 0;  // elements of a reduction, otherwise bytes
    int root = 0;                  // who has them, in the group of MPI
    int64_t from = 0;              // where they begin in what the root has
  };
  // A call that all have been told to do.
  struct Going {
    Ref<MpiCall> call;
    Tensor output;  // none: there was no memory for it, and this rank only helps the others
    Status failed;
    bool at_once = false;              // gathered by one operation
    std::vector<int> counts, offsets;  // of that, by rank of MPI
    std::vector<Piece> pieces;
    size_t begun = 0, done = 0;
  };
  struct InFlight {
    Going* going;
    MpiLibrary::Request request;
  };
  struct Send {
    std::string bytes;
    MpiLibrary::Request request;
  };

  MpiEngine(const MpiLibrary& library, MpiWorld world);
  int size() const { return static_cast<int>(world_.members.size()); }
  size_t rank() const { return static_cast<size_t>(world_.rank); }

  void run();
  void serve();
  Status initialize();
  Status finish();
  // Says good bye to the other ranks and waits until the thread has ended.
  void stop();
  // MPI calls this when it is being finished.
  void finished_by_others();
  // What each round does; true when something has moved.
  bool take_commands();
  Status receive(bool& moved);
  Status progress(bool& moved);
  void rest(bool moved);

  void begin(const Ref<MpiCall>& call);
  Status admit(const MpiCall& call);
  void left(const MpiCall& call, const std::string& reason);
  // Tells the others that this rank has no result.
  void give_up(const MpiCall& call, const std::string& reason);
  // To the first rank, which may be this one.
  void say(MpiMessage message);
  void send(int to, const std::string& bytes);
  void answer_as_first(const MpiMessage& said);
  void handle(const MpiMessage& message);
  void go(const Key& key, const std::vector<int64_t>& numbers);
  void end(const Status& reason);
  // Nothing will be done any more.
  void close(const Status& reason);

  void plan(Going& going, const std::vector<int64_t>& numbers);
  void plan_gather(Going& going, const std::vector<int64_t>& rows);
  Status begin_piece(Going& going, MpiLibrary::Request& request);
  Status begin_reduction(const Going& going, const Piece& piece, MpiLibrary::Request& request);
  void finished(Going& going);
  void answer(Ref<MpiCall> call, Result<Tensor> result);
  MpiLibrary::Type type_of(DType dtype) const;
  Result<MpiLibrary::Op> op_of(Collectives::Merge merge, DType dtype);

  const MpiLibrary& mpi_;
  const MpiWorld world_;
  const int64_t chunk_bytes_;

  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Command> commands_ MR_GUARDED_BY(mu_);
  bool ready_ MR_GUARDED_BY(mu_) = false;  // MPI is
  bool stopping_ MR_GUARDED_BY(mu_) = false;
  bool ended_ MR_GUARDED_BY(mu_) = false;
  MpiCoordinator coordinator_ MR_GUARDED_BY(mu_);  // used by the first rank

  // The thread's own.
  MpiLibrary::Comm words_ = nullptr, data_ = nullptr;
  std::map<std::pair<Collectives::Merge, DType>, MpiLibrary::Op> ops_;
  std::vector<char> heard_;
  MpiLibrary::Request hears_ = nullptr;
  std::list<Send> sends_;
  int64_t epoch_ = 0;
  std::map<Key, std::deque<Ref<MpiCall>>> waiting_;  // that were not told to go
  std::deque<std::unique_ptr<Going>> going_;         // in the order of all
  std::list<InFlight> in_flight_;
  std::unique_ptr<char[]> scratch_;
  bool gave_up_ = false;           // a call of this rank in this epoch
  std::deque<Ref<MpiCall>> held_;  // until that is known to all
  Status untold_;                  // why an epoch ended, where no call was told
  Status last_reason_;
  std::set<int64_t> told_steps_;
  Status closed_;
  bool said_bye_ = false;
  std::atomic<bool> owns_{false};      // has begun with MPI, and is to finish it
  std::atomic<bool> finishes_{false};  // does so
  int64_t moved_ns_ = 0;
};

}  // namespace millrace
