#pragma once

#include <string>
#include <vector>

#include "millrace/api/client_session.h"
#include "millrace/api/variables.h"

namespace millrace {

// Saves the variables of a model in checkpoints, and gives them their values back. Files are
// TensorFlow's, under the names of the variables; see docs/checkpoints.md for what a crash leaves.
//
//   Saver saver(vars);  // once the model is built, slots of optimisers included
//   MR_TRY(session.run({}, {}, {vars.initialize()}).status());
//   if (Saver::exists("run/model")) MR_TRY(saver.restore(session, "run/model"));
//   ... training ...
//   MR_TRY(saver.save(session, "run/model"));
//
// A saver of the whole model takes the state of random ops along, dropout's among them: a run that
// is resumed draws the numbers that it would have drawn had it not been stopped. Checkpoints
// without that state are restored, too.
//
// Operations go to the root of the variables; errors stick there. Calls are thread-safe.
class Saver {
 public:
  // Of `variables`: empty for the whole model, all that there are now.
  explicit Saver(Variables& model, const std::vector<Variable*>& variables = {});

  // Puts the variables' values on the disk under `prefix`, in place of what was there.
  Status save(ClientSession& session, const std::string& prefix) const;
  // The same while the program goes on: the values are those of the call.
  Status save_async(ClientSession& session, const std::string& prefix) const;
  // Waits for what save_async() began under `prefix`, and returns its error.
  Status wait(ClientSession& session, const std::string& prefix) const;

  // Sets every variable, or none: NOT_FOUND for one that the checkpoint has not, INVALID_ARGUMENT
  // for one of another type or shape. `prefix` may also be a file "x.safetensors".
  Status restore(ClientSession& session, const std::string& prefix) const;

  // Whether there is a checkpoint of that name.
  static bool exists(const std::string& prefix);

 private:
  void add_restore(const Scope& scope, const std::vector<Variable*>& variables, Expr names,
                   const AttrMap& attrs);
  Status run(ClientSession& session, const std::string& prefix, const Operation& target) const;

  Expr prefix_;
  Operation save_;
  Operation save_async_;
  Operation wait_;
  Operation restore_;
};

}  // namespace millrace
