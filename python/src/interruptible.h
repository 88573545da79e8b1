#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include "python/src/gil.h"

namespace millrace::python {

// What `call` gives. It runs without the interpreter's lock and on a thread of its own, so that
// signals are heard meanwhile: what a handler raises, as Ctrl-C does, is thrown at once, and the
// call is left to end alone. So it must hold all that it uses. For calls that wait for other
// processes.
template <class Call>
auto interruptible(Call call) -> decltype(call()) {
  using Value = decltype(call());
  constexpr std::chrono::milliseconds kLookEvery(50);
  auto over = std::make_shared<std::promise<Value>>();
  std::future<Value> value = over->get_future();
  std::thread([over, call = std::move(call)]() mutable { over->set_value(call()); }).detach();
  while (true) {
    {
      WithoutGil no_gil;
      if (value.wait_for(kLookEvery) == std::future_status::ready) break;
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
  return value.get();
}

}  // namespace millrace::python
