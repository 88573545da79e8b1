#include "millrace/distributed/collective/mpi/mpi_engine.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "millrace/base/clock.h"
#include "millrace/base/env.h"
#include "millrace/base/hash.h"
#include "millrace/base/log.h"
#include "millrace/base/thread_pool.h"

namespace millrace {
namespace {

constexpr int kTag = 1;
constexpr int64_t kDefaultChunk = 1 << 20;
// So long it polls without rest after something has moved; then it sleeps for as long as nothing
// has, but not longer than this.
constexpr int64_t kSpinNs = 200'000;
constexpr int64_t kNapGoingNs = 50'000;
constexpr int64_t kNapWaitingNs = 500'000;
constexpr int64_t kNapIdleNs = 10'000'000;

}  // namespace

MpiEngine* MpiEngine::start(const MpiLibrary& library, const MpiWorld& world) {
  static MpiEngine* engine = [&] {
    auto* made = new MpiEngine(library, world);
    std::thread([made] { made->run(); }).detach();
    static MpiEngine* const at_end = made;
    static const pid_t process = getpid();
    on_exit(
        [](int status, void*) {
          if (status == 0 && getpid() == process) at_end->stop();
        },
        nullptr);
    return made;
  }();
  return engine->world_ == world ? engine : nullptr;
}

MpiEngine::MpiEngine(const MpiLibrary& library, MpiWorld world)
    : mpi_(library),
      world_(std::move(world)),
      chunk_bytes_(env_int("MILLRACE_MPI_CHUNK_BYTES", kDefaultChunk, 1, 1 << 30)),
      coordinator_(world_.members) {}

void MpiEngine::submit(Ref<MpiCall> call) {
  MutexLock lock(mu_);
  if (ended_) return answer(std::move(call), failed_precondition("MPI has been finished"));
  commands_.push_back({std::move(call), std::nullopt});
  changed_.notify_all();
}

void MpiEngine::leave(Ref<MpiCall> call, std::string reason) {
  MutexLock lock(mu_);
  commands_.push_back({std::move(call), std::move(reason)});
  changed_.notify_all();
}

std::string MpiEngine::missing(const MpiCall& call) const {
  MutexLock lock(mu_);
  if (!ready_) return "all ranks to begin with MPI";
  if (world_.rank != 0) return str_cat("others, of which ", world_.members[0], " knows");
  return coordinator_.missing(call.request().group_key, call.request().instance_key);
}

void MpiEngine::stop() {
  MutexLock lock(mu_);
  if (!ready_) return;
  stopping_ = true;
  changed_.notify_all();
  while (!ended_) changed_.wait(mu_);
}

void MpiEngine::finished_by_others() {
  if (finishes_) return;  // it is not others
  owns_ = false;
  stop();
}

Status MpiEngine::initialize() {
  int flag = 0, level = 0;
  MR_TRY(mpi_.status(mpi_.initialized(&flag), "MPI_Initialized"));
  owns_ = flag == 0;
  if (owns_) {
    MR_TRY(mpi_.status(mpi_.init_thread(nullptr, nullptr, MpiLibrary::kThreadMultiple, &level),
                       "MPI_Init_thread"));
  } else {
    MR_TRY(mpi_.status(mpi_.query_thread(&level), "MPI_Query_thread"));
  }
  if (level < MpiLibrary::kThreadMultiple) {
    return failed_precondition("MPI allows one thread at a time alone, expected several");
  }
  int rank = -1, ranks = -1;
  MR_TRY(mpi_.status(mpi_.comm_rank(mpi_.world, &rank), "MPI_Comm_rank"));
  MR_TRY(mpi_.status(mpi_.comm_size(mpi_.world, &ranks), "MPI_Comm_size"));
  if (rank != world_.rank || ranks != size()) {
    return failed_precondition("expected rank ", world_.rank, " of ", size(), ", MPI says ", rank,
                               " of ", ranks);
  }
  for (MpiLibrary::Comm* comm : {&words_, &data_}) {
    MR_TRY(mpi_.status(mpi_.comm_dup(mpi_.world, comm), "MPI_Comm_dup"));
    MR_TRY(mpi_.status(mpi_.comm_set_errhandler(*comm, mpi_.errors_return),
                       "MPI_Comm_set_errhandler"));
  }
  // What MPI deletes first when somebody finishes it.
  int key = 0;
  MR_TRY(mpi_.status(
      mpi_.comm_create_keyval(
          [](MpiLibrary::Comm, int, void*, void*, void*, int* copied) { return *copied = 0; },
          [](MpiLibrary::Comm, int, void* engine, void*) {
            static_cast<MpiEngine*>(engine)->finished_by_others();
            return MpiLibrary::kSuccess;
          },
          &key, nullptr),
      "MPI_Comm_create_keyval"));
  MR_TRY(mpi_.status(mpi_.comm_set_attr(mpi_.self, key, this), "MPI_Comm_set_attr"));
  heard_.resize(MpiMessage::capacity(size()));
  scratch_ = std::make_unique<char[]>(static_cast<size_t>(std::max<int64_t>(chunk_bytes_, 64)));
  return mpi_.status(mpi_.irecv(heard_.data(), static_cast<int>(heard_.size()), mpi_.byte,
                                MpiLibrary::kAnySource, kTag, words_, &hears_),
                     "MPI_Irecv");
}

void MpiEngine::run() {
  serve();
  MutexLock lock(mu_);
  ended_ = true;
  for (Command& command : commands_) {
    if (!command.left)
      answer(std::move(command.call), failed_precondition("MPI has been finished"));
  }
  commands_.clear();
  changed_.notify_all();
}

void MpiEngine::serve() {
  Status status = initialize();
  {
    MutexLock lock(mu_);
    ready_ = status.ok();
  }
  moved_ns_ = monotonic_nanos();
  while (status.ok()) {
    bool stopping = false;
    {
      MutexLock lock(mu_);
      stopping = stopping_;
    }
    if (stopping && !std::exchange(said_bye_, true)) say({.kind = MpiMessage::Kind::kBye});
    bool moved = take_commands();
    status = receive(moved);
    if (status.ok()) status = progress(moved);
    if (stopping && !closed_.ok() && going_.empty() && sends_.empty()) break;
    if (status.ok()) rest(moved);
  }
  if (status.ok()) {
    status = finish();
    if (!status.ok()) MR_LOG(kWarning, status.message());
    return;
  }
  // MPI does not work any more: everything is answered so, until the process ends.
  close(status.with_prefix("MPI"));
  for (;;) {
    take_commands();
    MutexLock lock(mu_);
    if (stopping_) return;
    if (commands_.empty()) changed_.wait(mu_);
  }
}

Status MpiEngine::finish() {
  MR_TRY(mpi_.status(mpi_.cancel(&hears_), "MPI_Cancel"));
  MR_TRY(mpi_.status(mpi_.request_free(&hears_), "MPI_Request_free"));
  finishes_ = owns_.load();
  return finishes_ ? mpi_.status(mpi_.finalize(), "MPI_Finalize") : ok_status();
}

void MpiEngine::rest(bool moved) {
  const int64_t now = monotonic_nanos();
  if (moved) moved_ns_ = now;
  const int64_t since = now - moved_ns_;
  if (since < kSpinNs) {
    sched_yield();
    return;
  }
  const int64_t most = !going_.empty() || !sends_.empty() ? kNapGoingNs
                       : !waiting_.empty()                ? kNapWaitingNs
                                                          : kNapIdleNs;
  MutexLock lock(mu_);
  if (!commands_.empty() || (stopping_ && !said_bye_)) return;
  changed_.wait_until(mu_, Deadline::after_nanos(std::min(since / 4, most)));
}

bool MpiEngine::take_commands() {
  std::deque<Command> commands;
  {
    MutexLock lock(mu_);
    commands.swap(commands_);
  }
  for (const Command& command : commands) {
    if (command.left) {
      left(*command.call, *command.left);
    } else {
      begin(command.call);
    }
  }
  return !commands.empty();
}

Status MpiEngine::admit(const MpiCall& call) {
  MR_TRY(closed_);
  const int64_t step = call.request().step_id;
  if (!untold_.ok()) {
    told_steps_ = {step};
    return std::exchange(untold_, ok_status());
  }
  // What else a step that has failed begins must not pass for a part of the next.
  if (step != 0 && told_steps_.contains(step)) return last_reason_;
  return ok_status();
}

void MpiEngine::begin(const Ref<MpiCall>& call) {
  // What follows on a call that this rank has given up belongs to the next epoch.
  if (gave_up_ && closed_.ok()) return held_.push_back(call);
  if (Status refused = admit(*call); !refused.ok()) return answer(call, std::move(refused));
  const Collectives::Request& request = call->request();
  waiting_[{request.group_key, request.instance_key}].push_back(call);
  say({.kind = MpiMessage::Kind::kReady,
       .group = request.group_key,
       .instance = request.instance_key,
       .number = call->number(),
       .hash = hash_bytes(call->what()),
       .text = call->what()});
}

void MpiEngine::left(const MpiCall& call, const std::string& reason) {
  const auto is_it = [&](const Ref<MpiCall>& other) { return other.get() == &call; };
  const auto it = waiting_.find({call.request().group_key, call.request().instance_key});
  const bool waits =
      it != waiting_.end() && std::any_of(it->second.begin(), it->second.end(), is_it);
  if (std::erase_if(held_, is_it) > 0) return;
  const bool goes = std::any_of(going_.begin(), going_.end(),
                                [&](const auto& going) { return going->call.get() == &call; });
  if (waits || goes) give_up(call, reason);  // else it never began, or its epoch has ended
}

void MpiEngine::give_up(const MpiCall& call, const std::string& reason) {
  if (!std::exchange(gave_up_, true)) told_steps_.clear();
  told_steps_.insert(call.request().step_id);
  say({.kind = MpiMessage::Kind::kLeft, .text = reason});
}

void MpiEngine::say(MpiMessage message) {
  message.rank = world_.rank;
  message.epoch = epoch_;
  if (world_.rank != 0) return send(0, message.encode(size()));
  answer_as_first(message);
}

void MpiEngine::answer_as_first(const MpiMessage& said) {
  std::vector<MpiMessage> answers;
  {
    MutexLock lock(mu_);
    answers = coordinator_.take(said);
  }
  for (const MpiMessage& message : answers) {
    const std::string bytes = message.encode(size());
    for (int to = 1; to < size(); ++to) send(to, bytes);
    handle(message);
  }
}

void MpiEngine::send(int to, const std::string& bytes) {
  Send& made = sends_.emplace_back(Send{bytes, nullptr});
  const int code = mpi_.isend(made.bytes.data(), static_cast<int>(made.bytes.size()), mpi_.byte, to,
                              kTag, words_, &made.request);
  if (Status failed = mpi_.status(code, "MPI_Isend"); !failed.ok()) {
    sends_.pop_back();
    close(failed);
  }
}

Status MpiEngine::receive(bool& moved) {
  for (int flag = 1; flag != 0;) {
    MR_TRY(mpi_.status(mpi_.test(&hears_, &flag, MpiLibrary::kNoStatus), "MPI_Test"));
    if (flag == 0) break;
    moved = true;
    const std::vector<char> bytes = heard_;
    MR_TRY(mpi_.status(mpi_.irecv(heard_.data(), static_cast<int>(heard_.size()), mpi_.byte,
                                  MpiLibrary::kAnySource, kTag, words_, &hears_),
                       "MPI_Irecv"));
    MR_TRY_ASSIGN(const MpiMessage message, MpiMessage::decode(bytes, size()));
    world_.rank == 0 ? answer_as_first(message) : handle(message);
  }
  return ok_status();
}

void MpiEngine::handle(const MpiMessage& message) {
  switch (message.kind) {
    case MpiMessage::Kind::kGo:
      return go({message.group, message.instance}, message.numbers);
    case MpiMessage::Kind::kEnd:
      epoch_ = message.epoch;
      return end(Status(static_cast<Code>(message.code), message.text));
    case MpiMessage::Kind::kClosed:
      return close(failed_precondition(message.text));
    default:
      close(internal("the first rank says what others say"));
  }
}

void MpiEngine::go(const Key& key, const std::vector<int64_t>& numbers) {
  const auto it = waiting_.find(key);
  if (it == waiting_.end() || numbers.size() != world_.members.size()) {
    return close(internal("instance ", key.second, " of group ", key.first,
                          " is to be done, which this rank has not begun"));
  }
  auto going = std::make_unique<Going>();
  going->call = std::move(it->second.front());
  it->second.pop_front();
  if (it->second.empty()) waiting_.erase(it);
  plan(*going, numbers);
  going_.push_back(std::move(going));
}

void MpiEngine::end(const Status& reason) {
  const auto waiting = std::exchange(waiting_, {});
  last_reason_ = reason;
  if (!gave_up_) told_steps_.clear();
  if (waiting.empty() && !gave_up_) untold_ = reason;
  gave_up_ = false;
  for (const auto& [key, calls] : waiting) {
    for (const Ref<MpiCall>& call : calls) {
      told_steps_.insert(call->request().step_id);
      answer(call, reason.code() == Code::kInvalidArgument ? reason.with_prefix(call->request().op)
                                                           : reason);
    }
  }
  for (const Ref<MpiCall>& call : std::exchange(held_, {})) begin(call);
}

void MpiEngine::close(const Status& reason) {
  if (!closed_.ok()) return;
  closed_ = reason;
  for (const auto& [key, calls] : std::exchange(waiting_, {})) {
    for (const Ref<MpiCall>& call : calls) answer(call, reason);
  }
  for (const Ref<MpiCall>& call : std::exchange(held_, {})) answer(call, reason);
}

void MpiEngine::answer(Ref<MpiCall> call, Result<Tensor> result) {
  // Whoever is answered may do much, and this thread has others to see to.
  ThreadPool::global().schedule([call = std::move(call), result = std::move(result)]() mutable {
    call->answer(std::move(result));
  });
}

}  // namespace millrace
