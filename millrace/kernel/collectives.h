#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "millrace/base/cancellation.h"
#include "millrace/base/function.h"
#include "millrace/base/ref.h"
#include "millrace/base/status.h"
#include "millrace/tensor/tensor.h"

namespace millrace {

class Device;
class Step;

// What devices of several tasks compute together: each gives a tensor, and all get the result. Who
// takes part is a group, by a number that all agree on; what belongs together within it is an
// instance: the k-th call of an instance by each member. Instances do not wait for each other.
//
// Implemented by distributed/collective over the calls between tasks, and by what is in its folder
// mpi over Open MPI; another back end, such as NCCL, would be another implementation of this class.
// Thread-safe. Calls never hold a thread: `done` is called once, perhaps before they return.
//
// INVALID_ARGUMENT, to all members, when they do not agree on what they do, saying who gave what.
// ABORTED when a member was lost, left or failed before all was done: the group forms anew with the
// calls that follow. Where no call of a member was under way at that moment, its next one is
// ABORTED, so that everybody learns of a loss before going on.
class Collectives : public RefCounted {
 public:
  enum class Merge : uint8_t { kAdd, kMul, kMin, kMax };
  enum class Final : uint8_t { kId, kDiv };  // kDiv: by the number of members that took part
  enum class Hint : uint8_t { kAuto, kRing, kTree };
  using Done = UniqueFunction<void(Result<Tensor>)>;

  struct Request {
    std::string_view op;  // for messages; a name that lives as long as the process
    int64_t group_key = 0;
    int64_t group_size = 1;
    int64_t instance_key = 0;
    // As few members as this may form the group, when no other comes for a while; 0: all.
    int64_t min_size = 0;
    std::string device;  // the member
    int64_t step_id = 0;
    int64_t timeout_ms = 0;  // 0: none
    Hint hint = Hint::kAuto;
    Ref<CancellationToken> cancel;  // may be null
  };

  // Elements of all inputs merged, one by one; the same bits for all members. Inputs have one type
  // and shape; plain numbers in host memory.
  virtual void reduce(Request request, Tensor input, Merge merge, Final final, Done done) = 0;
  // Inputs one after the other along the first dimension, in the order of the members. They may
  // differ in that dimension alone.
  virtual void gather(Request request, Tensor input, Done done) = 0;
  // One member sends, the others of the group receive a tensor of this type and shape.
  virtual void broadcast_send(Request request, Tensor input, Done done) = 0;
  virtual void broadcast_recv(Request request, DType dtype, Shape shape, Done done) = 0;

  // What is waited for here, by step; 0: what no step waits for, but others do.
  virtual std::vector<std::pair<int64_t, std::string>> waits() const = 0;
  // Ends everything with `reason`, and answers every later call with it.
  virtual void shut_down(const Status& reason) = 0;
};

// Makes what a task of this process has known to steps that have none of their own: to those on the
// task's devices, and to those of sessions without a cluster. Of several, of one name or, for the
// latter, of any, they take the one that came last, until it is withdrawn.
void provide_collectives(std::string_view task, Ref<Collectives> collectives);
// Takes that one back, and no other of the same name.
void withdraw_collectives(const Collectives& collectives);

// What a kernel of the step on the device uses: the step's own, or what this process provides. Null
// when there is none.
Ref<Collectives> find_collectives(const Step& step, const Device& device);

}  // namespace millrace
