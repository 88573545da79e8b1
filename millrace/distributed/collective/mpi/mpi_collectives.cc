#include "millrace/distributed/collective/mpi/mpi_collectives.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "millrace/base/env.h"
#include "millrace/base/hash.h"
#include "millrace/base/log.h"
#include "millrace/base/timer.h"
#include "millrace/distributed/patience.h"
#include "millrace/ops/collective/merge.h"

namespace millrace {
namespace {

// What members ask each other is an instance that no op can name.
constexpr int64_t kAskInstance = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxRanks = 4096;
// The words of a row: whether MPI can be used, rank, size, version, and the task's name.
constexpr int64_t kNameWords = 32, kRowWords = 4 + kNameWords;
constexpr size_t kNameBytes = kNameWords * sizeof(int64_t);

bool is_plain_on_host(const Tensor& tensor) {
  return is_plain(tensor.dtype()) && tensor.buffer() &&
         tensor.buffer()->space() == MemorySpace::kHost;
}

int64_t version_of(const MpiLibrary& library) {
  return static_cast<int64_t>(hash_bytes(library.version));
}

}  // namespace

MpiCollectives::MpiCollectives(Ref<Collectives> own, std::string task, Started started,
                               const MpiLibrary* library, Status why_not)
    : own_(std::move(own)),
      task_(std::move(task)),
      started_(started),
      library_(library),
      why_not_(std::move(why_not)),
      watch_(make_ref<WaitWatch>(real_timer(), report_after_ms())) {}

Tensor MpiCollectives::own_row(const Started& started, const MpiLibrary* library,
                               std::string_view task) {
  Tensor row = Tensor::allocate(DType::kInt64, Shape({1, kRowWords})).value();
  int64_t* words = row.mutable_data<int64_t>().data();
  std::fill(words, words + kRowWords, 0);
  words[0] = library ? 1 : 0;
  words[1] = started.rank;
  words[2] = started.size;
  words[3] = library ? version_of(*library) : 0;
  std::memcpy(words + 4, task.data(), std::min(task.size(), kNameBytes - 1));
  return row;
}

Result<MpiWorld> MpiCollectives::read_rows(const Tensor& rows, const Started& started) {
  const int64_t count = rows.dim(0);
  MpiWorld world;
  world.rank = started.rank;
  world.members.resize(static_cast<size_t>(count));
  const int64_t* first = rows.data<int64_t>().data();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t* words = first + i * kRowWords;
    const char* name = reinterpret_cast<const char*>(words + 4);
    const std::string who =
        str_cat("rank ", i, " (", std::string(name, strnlen(name, kNameBytes)), ")");
    if (words[0] == 0) return failed_precondition(who, " has no Open MPI that can be used");
    if (words[2] != count || words[1] < 0 || words[1] >= count ||
        !world.members[static_cast<size_t>(words[1])].empty()) {
      return failed_precondition(who, " is rank ", words[1], " of ", words[2],
                                 " of MPI, expected one of ", count, " that no other member has");
    }
    if (words[3] != first[3]) {
      return failed_precondition(who, " has another version of Open MPI than rank 0");
    }
    world.members[static_cast<size_t>(words[1])] = who;
    world.order.push_back(static_cast<int>(words[1]));
  }
  return world;
}

std::string MpiCollectives::describe(const MpiCall& call) const {
  MpiEngine* engine = nullptr;
  {
    MutexLock lock(mu_);
    const auto it = groups_.find(key_of(call.request()));
    if (it != groups_.end()) engine = it->second.engine;
  }
  if (!engine) return str_cat(call.name(), ": waits for the others to say whether they have MPI");
  return str_cat(call.name(), ": waits for ", engine->missing(call));
}

void MpiCollectives::given_up(const Ref<MpiCall>& call, const Status& reason) {
  MpiEngine* engine = nullptr;
  {
    MutexLock lock(mu_);
    Group& group = groups_[key_of(call->request())];
    std::erase(group.waiting, call);
    engine = group.engine;
  }
  if (!engine) return;
  engine->leave(call, str_cat(call->name(), ": ", task_, " has left it: ", reason.message()));
}

void MpiCollectives::begin(Request request, MpiCall::Work work, Done done) {
  if (request.group_size != started_.size || request.min_size != 0) {
    return pass_on(std::move(request), std::move(work), std::move(done));
  }
  const Key key = key_of(request);
  bool own = false;
  Status stopped;
  {
    MutexLock lock(mu_);
    own = groups_[key].own;
    stopped = stopped_;
  }
  if (!stopped.ok()) return done(stopped);
  if (own) return pass_on(std::move(request), std::move(work), std::move(done));
  struct Answer : RefCounted {
    Done done;
    const MpiCall* call = nullptr;
  };
  const Ref<Answer> answer = make_ref<Answer>();
  answer->done = std::move(done);
  const Ref<MpiCollectives> self(this);
  const Ref<MpiCall> call =
      make_ref<MpiCall>(request, std::move(work), [self, answer](Result<Tensor> result) {
        {
          MutexLock lock(self->mu_);
          self->calls_.erase(answer->call);
        }
        answer->done(std::move(result));
      });
  answer->call = call.get();
  {
    MutexLock lock(mu_);
    calls_[call.get()] = call;
  }
  call->begin(real_timer(), watch_, [self](const MpiCall& asked) { return self->describe(asked); });
  bool must_ask = false;
  {
    MutexLock lock(mu_);
    Group& group = groups_[key];
    own = group.own;
    if (group.engine) {
      group.engine->submit(call);
    } else if (!own) {
      group.waiting.push_back(call);
      must_ask = !std::exchange(group.asked, true);
    }
  }
  if (own && call->take()) return pass_on(call);
  call->watch([self](const Ref<MpiCall>& left, const Status& why) { self->given_up(left, why); });
  if (must_ask) ask(key, request);
}

void MpiCollectives::ask(const Key& key, const Request& request) {
  if (!library_) {
    MR_NOTICE("Collective operations do without MPI, though mpirun has started this process: ",
              why_not_.message());
  }
  // For the group, whatever becomes of the call that came first.
  Request asks = {.op = "the choice of MPI",
                  .group_key = request.group_key,
                  .group_size = request.group_size,
                  .instance_key = kAskInstance,
                  .device = request.device};
  own_->gather(
      std::move(asks), own_row(started_, library_, task_),
      [self = Ref<MpiCollectives>(this), key](Result<Tensor> rows) { self->asked(key, rows); });
}

void MpiCollectives::asked(const Key& key, const Result<Tensor>& rows) {
  std::vector<Ref<MpiCall>> waiting;
  MpiEngine* engine = nullptr;
  const Status& failed = rows.status();
  Status why;
  if (rows.ok()) {
    const Result<MpiWorld> world = read_rows(*rows, started_);
    why = world.status();
    if (world.ok()) engine = MpiEngine::start(*library_, *world);
    if (world.ok() && !engine) why = failed_precondition("another group has other members");
  }
  {
    MutexLock lock(mu_);
    Group& group = groups_[key];
    waiting.swap(group.waiting);
    group.engine = engine;
    group.own = failed.ok() && !engine;
    group.asked = failed.ok();  // else the next call asks anew
    // Before anybody who gives one of them up knows of the engine.
    for (const Ref<MpiCall>& call : waiting) {
      if (engine) engine->submit(call);
    }
  }
  if (engine) MR_LOG(kInfo, "Group ", key.first, " uses ", library_->version);
  if (!why.ok()) MR_LOG(kInfo, "Group ", key.first, " does without MPI: ", why.message());
  for (const Ref<MpiCall>& call : waiting) {
    if (!failed.ok()) {
      call->answer(failed);
    } else if (!engine && call->take()) {
      pass_on(call);
    }
  }
}

void MpiCollectives::pass_on(const Ref<MpiCall>& taken) {
  pass_on(taken->request(), taken->work(),
          [taken](Result<Tensor> result) { taken->answer_taken(std::move(result)); });
}

void MpiCollectives::pass_on(Request request, MpiCall::Work work, Done done) {
  switch (work.kind) {
    case MpiCall::Kind::kReduce:
      return own_->reduce(std::move(request), std::move(work.input), work.merge, work.final,
                          std::move(done));
    case MpiCall::Kind::kGather:
      return own_->gather(std::move(request), std::move(work.input), std::move(done));
    case MpiCall::Kind::kBroadcast:
      break;
  }
  if (work.input.valid()) {
    return own_->broadcast_send(std::move(request), std::move(work.input), std::move(done));
  }
  own_->broadcast_recv(std::move(request), work.dtype, std::move(work.shape), std::move(done));
}

void MpiCollectives::reduce(Request request, Tensor input, Merge merge, Final final, Done done) {
  const bool can = kReducedTypes.contains(input.dtype()) && is_plain_on_host(input);
  MpiCall::Work work = {.kind = MpiCall::Kind::kReduce,
                        .input = input,
                        .dtype = input.dtype(),
                        .shape = input.shape(),
                        .merge = merge,
                        .final = final};
  if (!can) return pass_on(std::move(request), std::move(work), std::move(done));  // which refuses
  begin(std::move(request), std::move(work), std::move(done));
}

void MpiCollectives::gather(Request request, Tensor input, Done done) {
  const bool can = input.rank() > 0 && is_plain_on_host(input);
  MpiCall::Work work = {.kind = MpiCall::Kind::kGather,
                        .input = input,
                        .dtype = input.dtype(),
                        .shape = input.shape()};
  if (!can) return pass_on(std::move(request), std::move(work), std::move(done));
  begin(std::move(request), std::move(work), std::move(done));
}

void MpiCollectives::broadcast_send(Request request, Tensor input, Done done) {
  const bool can = is_plain_on_host(input);
  MpiCall::Work work = {.kind = MpiCall::Kind::kBroadcast,
                        .input = input,
                        .dtype = input.dtype(),
                        .shape = input.shape()};
  if (!can) return pass_on(std::move(request), std::move(work), std::move(done));
  begin(std::move(request), std::move(work), std::move(done));
}

void MpiCollectives::broadcast_recv(Request request, DType dtype, Shape shape, Done done) {
  MpiCall::Work work = {.kind = MpiCall::Kind::kBroadcast,
                        .input = Tensor(),
                        .dtype = dtype,
                        .shape = std::move(shape)};
  if (!is_plain(dtype)) return pass_on(std::move(request), std::move(work), std::move(done));
  begin(std::move(request), std::move(work), std::move(done));
}

std::vector<std::pair<int64_t, std::string>> MpiCollectives::waits() const {
  std::vector<Ref<MpiCall>> calls;
  {
    MutexLock lock(mu_);
    for (const auto& [place, call] : calls_) calls.push_back(call);
  }
  std::vector<std::pair<int64_t, std::string>> out = own_->waits();
  for (const Ref<MpiCall>& call : calls) {
    if (!call->over()) out.emplace_back(call->request().step_id, call->waits());
  }
  return out;
}

void MpiCollectives::shut_down(const Status& reason) {
  std::map<const MpiCall*, Ref<MpiCall>> calls;
  {
    MutexLock lock(mu_);
    if (!stopped_.ok()) return;
    stopped_ = reason;
    calls = calls_;
  }
  watch_->stop();
  for (const auto& [place, call] : calls) {
    if (!call->take()) continue;
    given_up(call, reason);
    call->answer_taken(reason);
  }
  own_->shut_down(reason);
}

Ref<Collectives> choose_collectives(Ref<Collectives> own, std::string_view task) {
  const std::string_view choice = env_string("MILLRACE_COLLECTIVES");
  if (!choice.empty() && choice != "own" && choice != "mpi") {
    MR_NOTICE("MILLRACE_COLLECTIVES: expected \"own\" or \"mpi\", got \"", choice, "\"");
  }
  if (choice == "own") return own;
  int64_t rank = env_int("OMPI_COMM_WORLD_RANK", -1, 0, kMaxRanks - 1);
  int64_t size = env_int("OMPI_COMM_WORLD_SIZE", -1, 1, kMaxRanks);
  if (choice == "mpi" && rank < 0) {
    rank = env_int("SLURM_PROCID", -1, 0, kMaxRanks - 1);
    size = env_int("SLURM_STEP_NUM_TASKS", -1, 1, kMaxRanks);
  }
  if (size < 2 || rank < 0 || rank >= size) {
    if (choice == "mpi") {
      MR_NOTICE("MILLRACE_COLLECTIVES is \"mpi\", but this process is no rank of MPI");
    }
    return own;
  }
  const Result<const MpiLibrary*> library = MpiLibrary::get();
  return make_ref<MpiCollectives>(
      std::move(own), std::string(task),
      MpiCollectives::Started{static_cast<int>(rank), static_cast<int>(size)},
      library.ok() ? *library : nullptr, library.status());
}

}  // namespace millrace
