#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/distributed/collective/mpi/mpi_engine.h"
#include "millrace/kernel/collectives.h"

namespace millrace {

// Collective operations by Open MPI, for groups of all ranks that mpirun has started, one member of
// each; others are left to the task's own. The members of a group ask each other first, by the
// task's own: only where all have the same Open MPI do they use it. Thread-safe.
class MpiCollectives final : public Collectives {
 public:
  // What the environment says of the ranks: OMPI_COMM_WORLD_RANK and _SIZE.
  struct Started {
    int rank = 0;
    int size = 0;
  };

  // `library` is null where it cannot be used, for `why_not`.
  MpiCollectives(Ref<Collectives> own, std::string task, Started started, const MpiLibrary* library,
                 Status why_not);

  void reduce(Request request, Tensor input, Merge merge, Final final, Done done) override;
  void gather(Request request, Tensor input, Done done) override;
  void broadcast_send(Request request, Tensor input, Done done) override;
  void broadcast_recv(Request request, DType dtype, Shape shape, Done done) override;
  std::vector<std::pair<int64_t, std::string>> waits() const override;
  void shut_down(const Status& reason) override;

  // What members tell each other, a row for each: what asked() gathers.
  static Tensor own_row(const Started& started, const MpiLibrary* library, std::string_view task);
  // The ranks by what all have told. FAILED_PRECONDITION, which names a member, where they cannot
  // use MPI together.
  static Result<MpiWorld> read_rows(const Tensor& rows, const Started& started);

 private:
  using Key = std::pair<int64_t, std::string>;  // of the group, and its member
  struct Group {
    bool asked = false;
    bool own = false;             // is left to the task's own
    MpiEngine* engine = nullptr;  // null: not known yet
    std::vector<Ref<MpiCall>> waiting;
  };

  void begin(Request request, MpiCall::Work work, Done done);
  void ask(const Key& key, const Request& request);
  void asked(const Key& key, const Result<Tensor>& rows);
  void pass_on(Request request, MpiCall::Work work, Done done);
  void pass_on(const Ref<MpiCall>& taken);
  void given_up(const Ref<MpiCall>& call, const Status& reason);
  std::string describe(const MpiCall& call) const;
  static Key key_of(const Request& request) { return {request.group_key, request.device}; }

  const Ref<Collectives> own_;
  const std::string task_;
  const Started started_;
  const MpiLibrary* const library_;
  const Status why_not_;
  const Ref<WaitWatch> watch_;
  mutable Mutex mu_;
  Status stopped_ MR_GUARDED_BY(mu_);
  std::map<Key, Group> groups_ MR_GUARDED_BY(mu_);
  std::map<const MpiCall*, Ref<MpiCall>> calls_ MR_GUARDED_BY(mu_);  // that are not answered
};

// What a task offers to steps: its own, or MPI where mpirun of Open MPI has started this process,
// or MILLRACE_COLLECTIVES is "mpi" in a step of Slurm; never where it is "own".
Ref<Collectives> choose_collectives(Ref<Collectives> own, std::string_view task);

}  // namespace millrace
