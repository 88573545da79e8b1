#pragma once

#include <string>
#include <vector>

#include "millrace/autodiff/gradient_check_testing.h"

namespace millrace {

// Small programs for ops that cannot be called by themselves: they work on variables, arrays and
// lists that other ops make.
struct OpProgram {
  std::vector<std::string> ops;  // what it is about: each has a node on the way to the results
  Program program;
};
std::vector<OpProgram> op_programs();

}  // namespace millrace
