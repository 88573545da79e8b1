#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace millrace::grpc_library {

// Calls `act` in an environment with one variable ("NAME=value") more, at its end: for what can be
// told something by the environment alone. Once in a process.
//
// Other threads may read the environment meanwhile, which setenv() would not let them. They find an
// array that is whole, and stays for good: the one before, or one with the variable behind all
// others; to take the variable out again is to end that array one place earlier, which is one write
// of a pointer. Who sets or removes a variable meanwhile does so in the new array, so that it is
// not undone here; where a variable was added behind this one, this one stays. Only who sets one
// between the first and the last line that make the array may find it gone, as with any two who set
// variables at once.
inline void with_variable(char* variable, void (*act)()) {
  char** const before = environ;
  size_t count = 0;
  while (before != nullptr && before[count] != nullptr) ++count;
  static char** more = nullptr;
  more = new char*[count + 2];
  std::copy_n(before, count, more);
  more[count] = variable;
  more[count + 1] = nullptr;
  __atomic_store_n(&environ, more, __ATOMIC_RELEASE);
  act();
  char** last = environ;
  while (*last != nullptr) ++last;
  if (last != environ && last[-1] == variable) {
    __atomic_store_n(last - 1, nullptr, __ATOMIC_RELEASE);
  }
}

}  // namespace millrace::grpc_library
