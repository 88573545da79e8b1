#pragma once

#include <string>
#include <vector>

#include "millrace/data/dataset.h"
#include "millrace/graph/attr_value.h"
#include "millrace/kernel/function_runner.h"

namespace millrace::data {

// A function of the graph with the tensors around it that it uses: what "map" is given.
struct Closure {
  FunctionAttr function;
  std::vector<Tensor> captured;
};

// A closure that can be called in one environment.
class Function {
 public:
  // FAILED_PRECONDITION where functions cannot be called, NOT_FOUND for an unknown one.
  static Result<Function> make(const Closure& closure, Ref<Environment> environment);

  // Calls it with `args` and what it captured, and waits. For threads that may block.
  Status call(Element args, Element& results) const;
  // The same without waiting: `done` is called once, perhaps before this returns.
  void start(Element args, FunctionRunner::Done done) const;

  // call() of a function that gives one bool; INVALID_ARGUMENT, naming `what`, for another.
  Result<bool> ask(const Element& args, std::string_view what) const;
  // The same of one that gives an int64.
  Result<int64_t> number(Element args, std::string_view what) const;

  // Where the random numbers inside it stand, while no call is under way. All iterators of a
  // session that call one function share them.
  Status fields(StateFields& state) const;

 private:
  Function(Ref<Environment> environment, FunctionRunner::Handle handle, std::string states,
           std::vector<Tensor> captured)
      : environment_(std::move(environment)),
        handle_(handle),
        states_(std::move(states)),
        captured_(std::move(captured)) {}

  Ref<Environment> environment_;
  FunctionRunner::Handle handle_;
  std::string states_;  // what names of its ops' states begin with
  std::vector<Tensor> captured_;
};

// The status of a call by a stage. OUT_OF_RANGE is how a function says that there is no more: where
// the stage has as many elements as its input (`same_size`), that is INVALID_ARGUMENT.
Status said_by_function(Status status, bool same_size);

}  // namespace millrace::data
