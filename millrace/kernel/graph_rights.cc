#include "millrace/kernel/graph_rights.h"

#include <map>
#include <vector>

#include "millrace/base/mutex.h"
#include "millrace/graph/op_def.h"
#include "millrace/kernel/kernel.h"

namespace millrace {
namespace {

struct Word {
  Reach reach;
  std::string_view word;
  std::string_view what;
  bool GraphRights::*right;
};
constexpr Word kWords[] = {
    {Reach::kFiles, "files", "files of the server's machine", &GraphRights::files},
    {Reach::kPyFunc, "py_func", "functions of the server's process", &GraphRights::py_func},
    {Reach::kLibraries, "libraries", "op libraries that the server has loaded",
     &GraphRights::libraries},
    {Reach::kState, "state", "state that is not its session's own", &GraphRights::state},
};

const Word& word_of(Reach reach) { return kWords[static_cast<size_t>(reach)]; }

struct Mark {
  Reach reach;
  ReachCondition when;
};

struct Marks {
  Mutex mu;
  std::map<std::string, std::vector<Mark>, std::less<>> by_op MR_GUARDED_BY(mu);
};

Marks& marks() {
  static Marks* all = new Marks;
  return *all;
}

std::vector<Mark> marks_of(std::string_view op) {
  Marks& all = marks();
  MutexLock lock(all.mu);
  const auto it = all.by_op.find(op);
  return it == all.by_op.end() ? std::vector<Mark>() : it->second;
}

}  // namespace

Result<GraphRights> GraphRights::parse(std::string_view words) {
  if (words == "all") return GraphRights();
  GraphRights out = none();
  if (words == "none") return out;
  while (!words.empty()) {
    const size_t comma = words.find(',');
    const std::string_view word = words.substr(0, comma);
    words.remove_prefix(comma == std::string_view::npos ? words.size() : comma + 1);
    bool known = false;
    for (const Word& w : kWords) {
      if (w.word != word) continue;
      out.*w.right = true;
      known = true;
    }
    if (known) continue;
    return invalid_argument("expected all, none or some of files, py_func, libraries and state ",
                            "between commas, got \"", word, "\"");
  }
  return out;
}

std::string GraphRights::to_string() const {
  if (all()) return "all";
  std::string out;
  for (const Word& w : kWords) {
    if (this->*w.right) out += str_cat(out.empty() ? "" : ",", w.word);
  }
  return out.empty() ? "none" : out;
}

bool GraphRights::has(Reach reach) const { return this->*word_of(reach).right; }

GraphRights GraphRights::operator&(const GraphRights& other) const {
  return from_refused_bits(refused_bits() | other.refused_bits());
}

uint32_t GraphRights::refused_bits() const {
  uint32_t bits = 0;
  for (const Word& w : kWords) {
    if (!(this->*w.right)) bits |= 1U << static_cast<unsigned>(w.reach);
  }
  return bits;
}

GraphRights GraphRights::from_refused_bits(uint32_t bits) {
  GraphRights out;
  for (const Word& w : kWords) out.*w.right = ((bits >> static_cast<unsigned>(w.reach)) & 1) == 0;
  return out;
}

void mark_reach(std::initializer_list<std::string_view> ops, Reach reach, ReachCondition when) {
  Marks& all = marks();
  MutexLock lock(all.mu);
  for (const std::string_view op : ops) {
    std::vector<Mark>& own = all.by_op[std::string(op)];
    bool known = false;  // registries of tests register an op again
    for (const Mark& mark : own) known |= mark.reach == reach && mark.when == when;
    if (!known) own.push_back({reach, when});
  }
}

bool reaches(std::string_view op, Reach reach) {
  for (const Mark& mark : marks_of(op)) {
    if (mark.reach == reach) return true;
  }
  return false;
}

Status refuse(Reach reach, std::string_view what) {
  const Word& word = word_of(reach);
  return permission_denied(
      what, " reaches ", word.what,
      ", which this server does not let the client: a client that has the cluster's token "
      "(MILLRACE_CLUSTER_TOKEN_FILE) or certificates may, or others too where the server has ",
      "MILLRACE_CLUSTER_ALLOW=", word.word,
      reach == Reach::kState ? "; isolate_session_state gives a session state of its own" : "");
}

Status check_rights(const KernelNode& node, const GraphRights& rights) {
  if (rights.all()) return ok_status();
  for (const Mark& mark : marks_of(node.op->name)) {
    if (rights.has(mark.reach) || (mark.when != nullptr && !mark.when(node.attrs))) continue;
    return refuse(mark.reach, "it");
  }
  if (rights.state) return ok_status();
  const Result<std::string> shared = node.attr<std::string>("shared_name");
  if (shared.ok() && !shared->empty()) return refuse(Reach::kState, "it");
  return ok_status();
}

}  // namespace millrace
