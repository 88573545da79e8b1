#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "millrace/graph/graph.h"
#include "millrace/session/session.h"

namespace millrace {

// How often a random program uses what the executor finds hard.
struct RandomProgramCounts {
  int nodes = 0;
  int loops = 0;
  int conds = 0;
  int deepest = 0;          // loops and conditionals around one another
  int control_edges = 0;    // besides those that loops, conditionals and state need
  int state_ops = 0;        // reads and updates in the order of control edges
  int feeds_in_middle = 0;  // fed tensors that the graph computes
};

// A graph made at random and the requests to send to it, in this order: the initial values of its
// variables, one step for each element of `steps`, then the variables' values.
//
// Every result is determined by the graph: variables are read and updated only in an order fixed by
// control edges, integers wrap, floats stay finite, and every loop ends. A step may ask for a dead
// tensor or leave a placeholder without a value: INVALID_ARGUMENT, whoever finds out first. What
// state such a step leaves is not determined.
struct RandomProgram {
  Ref<Graph> graph;
  std::vector<std::string> init;  // targets
  std::vector<Session::Feeds> steps;
  std::vector<std::string> fetches;  // some of them twice
  std::vector<std::string> targets;
  std::vector<std::string> reads;  // fetches
  RandomProgramCounts counts;

  // For people: a line for each node, then the requests.
  std::string to_string() const;
};

// The program is a function of `seed`, except that nodes ask for devices among `devices` (partial
// names) or for none: the program with other devices computes the same.
Result<RandomProgram> random_program(uint64_t seed, const std::vector<std::string>& devices);

}  // namespace millrace
