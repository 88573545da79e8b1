#include "tests/random_graph_testing.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <random>
#include <string_view>
#include <utility>

#include "millrace/base/str_cat.h"
#include "millrace/graph/graph_builder.h"
#include "millrace/ops/register_ops.h"

namespace millrace {
namespace {

constexpr int kMaxDepth = 3;
constexpr float kBound = 1000;

// A tensor that statements read, of a type and shape that its updates keep.
struct Variable {
  Output value;
  DType dtype = DType::kInt32;
  Shape shape;
};

// State of the session, seen from some frame and branch.
struct State {
  Output handle;  // a resource, or the reference
  DType dtype = DType::kInt32;
  Shape shape;
  bool reference = false;
  std::string owner;  // the node that has the state
};

// Where statements go: one iteration of one loop body, one branch, or the root.
struct Scope {
  std::vector<Variable> vars;  // [0] is an int32 scalar
  std::vector<State> states;
  Output order;       // a scalar that is there once all earlier uses of state are done
  NodeId pivot = -1;  // live where the scope is; -1: the root
  int depth = 0;
  std::vector<NodeId> earlier;  // nodes that control edges may come from
};

class ProgramMaker {
 public:
  ProgramMaker(uint64_t seed, const std::vector<std::string>& devices)
      : seed_(seed), shape_(seed), where_(~seed), devices_(devices) {
    program_.graph = make_ref<Graph>();
    builder_ = std::make_unique<GraphBuilder>(*program_.graph);
  }

  Result<RandomProgram> make() {
    // Some programs have no control flow at all: those the straight gear can run.
    max_depth_ = std::min(pick(kMaxDepth + 2), kMaxDepth);
    nodes_left_ = 15 + pick(75);
    Scope root;
    add_sources(root);
    add_states(root);
    while (nodes_left_ > 0 && status_.ok()) {
      statement(root);
      for (const Variable& v : root.vars) note_root_value(v);
    }
    choose_requests(root);
    MR_TRY(status_);
    program_.counts.nodes = program_.graph->num_nodes();
    return std::move(program_);
  }

 private:
  int pick(size_t n) { return static_cast<int>(shape_() % n); }
  bool chance(int percent) { return pick(100) < percent; }
  template <class T>
  const T& any(const std::vector<T>& of) {
    return of[static_cast<size_t>(pick(of.size()))];
  }

  // Output 0 of a new node. An error sticks, as in GraphBuilder.
  Output add(std::string_view op, std::vector<Output> inputs, AttrMap attrs = {},
             std::vector<NodeId> after = {}, std::string_view name = {},
             const std::string& colocated = {}) {
    if (!status_.ok()) return {0, 0};
    --nodes_left_;
    GraphBuilder::Context& context = builder_->context();
    context.control_inputs = std::move(after);
    context.device.clear();
    context.colocate_with.clear();
    size_t wish = where_() % (devices_.size() * 3 / 2 + 1);
    if (!colocated.empty()) {
      context.colocate_with.push_back(colocated);
    } else if (wish < devices_.size()) {
      context.device = devices_[wish];
    }
    Result<NodeId> id = builder_->add(op, name, std::move(inputs), std::move(attrs));
    if (!id.ok()) {
      status_ = id.status();
      return {0, 0};
    }
    return {*id, 0};
  }

  // As add(), in a scope: sometimes after some other node there.
  Output compute(Scope& scope, std::string_view op, std::vector<Output> inputs,
                 AttrMap attrs = {}) {
    std::vector<NodeId> after;
    if (!scope.earlier.empty() && chance(15)) after.push_back(control_source(scope));
    Output out = add(op, std::move(inputs), std::move(attrs), std::move(after));
    scope.earlier.push_back(out.node);
    return out;
  }

  // A node of the scope for a control edge to come from, sometimes one that stands for two. Who
  // waits for a ControlTrigger has inputs that are dead when the scope is.
  NodeId control_source(Scope& scope) {
    ++program_.counts.control_edges;
    NodeId node = any(scope.earlier);
    if (chance(70)) return node;
    return add(chance(50) ? "NoOp" : "ControlTrigger", {}, {}, {node, any(scope.earlier)}).node;
  }

  Tensor random_value(DType dtype, const Shape& shape) {
    Tensor out = Tensor::allocate(dtype, shape).value();
    if (dtype == DType::kInt32) {
      for (int32_t& x : out.mutable_data<int32_t>()) x = pick(21) - 10;
      return out;
    }
    constexpr float kFloats[] = {0.0f, -0.0f, 1.5f, -3.25f, 0.1f, 1e-40f, 999.5f, -0.7f};
    for (float& x : out.mutable_data<float>()) x = kFloats[pick(std::size(kFloats))];
    return out;
  }

  // In a loop a constant runs once in each iteration, and in a branch only when that is taken.
  Output constant(Scope& scope, Tensor value) {
    std::vector<NodeId> after;
    if (scope.pivot >= 0) after.push_back(scope.pivot);
    AttrMap attrs = {{"dtype", value.dtype()}, {"value", std::move(value)}};
    return add("Const", {}, std::move(attrs), std::move(after));
  }
  Output constant(Scope& scope, int32_t value) {
    return constant(scope, Tensor::scalar<int32_t>(value));
  }

  // A variable of the scope with that type, and that shape or none.
  Output operand(Scope& scope, DType dtype, const Shape& shape, bool or_scalar) {
    std::vector<Output> found;
    for (const Variable& v : scope.vars) {
      if (v.dtype == dtype && (v.shape == shape || (or_scalar && v.shape.rank() == 0))) {
        found.push_back(v.value);
      }
    }
    if (found.empty() || chance(15)) {
      return constant(scope, random_value(dtype, or_scalar && chance(50) ? Shape() : shape));
    }
    return any(found);
  }
  Output int_scalar(Scope& scope) { return operand(scope, DType::kInt32, Shape(), true); }

  Output bounded(Scope& scope, Output x) {
    Output low = constant(scope, Tensor::scalar(-kBound));
    Output high = constant(scope, Tensor::scalar(kBound));
    return add("Minimum", {add("Maximum", {x, low}), high});
  }

  Output predicate(Scope& scope) {
    constexpr const char* kOps[] = {"Less", "Greater", "LessEqual", "Equal", "NotEqual"};
    Output a = int_scalar(scope), b = int_scalar(scope);
    if (chance(50)) {
      a = compute(scope, "FloorMod", {a, constant(scope, 5)});
      b = constant(scope, 2);
    }
    Output out = compute(scope, kOps[pick(std::size(kOps))], {a, b});
    return chance(20) ? compute(scope, "LogicalNot", {out}) : out;
  }

  void add_sources(Scope& root) {
    root.order = constant(root, 0);
    const std::vector<Shape> shapes = {Shape(), Shape(), Shape{3}, Shape{2, 2}, Shape{0}};
    int count = 3 + pick(3);
    for (int i = 0; i < count; ++i) {
      Variable v;
      if (i > 0) {
        v.dtype = chance(50) ? DType::kInt32 : DType::kFloat;
        v.shape = any(shapes);
      }
      if (chance(50)) {
        AttrMap attrs = {{"dtype", v.dtype}};
        if (chance(50)) attrs.set("shape", PartialShape(v.shape));
        v.value = add("Placeholder", {}, std::move(attrs));
        placeholders_.push_back(v);
      } else {
        v.value = constant(root, random_value(v.dtype, v.shape));
        note_root_value(v);
      }
      root.earlier.push_back(v.value.node);
      root.vars.push_back(v);
    }
  }

  void add_states(Scope& root) {
    int count = chance(85) ? 1 + pick(3) : 0;
    for (int i = 0; i < count; ++i) {
      State s;
      s.dtype = chance(50) ? DType::kInt32 : DType::kFloat;
      s.shape = chance(50) ? Shape() : Shape{3};
      s.reference = chance(40);
      // Tasks keep variables after a session: names are the program's own.
      AttrMap attrs = {{"dtype", s.dtype},
                       {"shape", PartialShape(s.shape)},
                       {"shared_name", str_cat("random", seed_, "_", i)}};
      s.handle = add(s.reference ? "VariableV2" : "VarHandleOp", {}, std::move(attrs));
      s.owner = name(s.handle.node);
      Output value = constant(root, random_value(s.dtype, s.shape));
      Output set = s.reference ? add("Assign", {s.handle, value})
                               : add("AssignVariableOp", {s.handle, value});
      program_.init.push_back(name(set.node));
      Output read = s.reference ? add("Identity", {s.handle})
                                : add("ReadVariableOp", {s.handle}, {{"dtype", s.dtype}});
      program_.reads.push_back(name(read.node));
      root.states.push_back(std::move(s));
    }
  }

  std::string name(NodeId node) const { return program_.graph->node(node).name(); }

  void statement(Scope& scope) {
    bool nest = scope.depth < max_depth_ && nodes_left_ > 5;
    int kind = pick(nest ? 15 : 9);
    if (kind < 5) {
      arithmetic(scope);
    } else if (kind == 5) {
      select(scope);
    } else if (kind == 6) {
      convert(scope);
    } else if (kind < 9) {
      use_state(scope);
    } else if (kind < 12) {
      cond(scope);
    } else {
      loop(scope);
    }
  }

  void block(Scope& scope) {
    program_.counts.deepest = std::max(program_.counts.deepest, scope.depth);
    int statements = 1 + pick(3);
    for (int i = 0; i < statements && status_.ok(); ++i) statement(scope);
  }

  void arithmetic(Scope& scope) {
    size_t to = static_cast<size_t>(pick(scope.vars.size()));
    const Variable v = scope.vars[to];
    bool is_float = v.dtype == DType::kFloat;
    if (chance(15)) {
      scope.vars[to].value = sum(scope, v);
      return;
    }
    constexpr const char* kOps[] = {"Add", "Sub", "Mul", "Maximum", "Minimum", "FloorMod"};
    int op = pick(is_float ? 5 : 6);
    Output a = operand(scope, v.dtype, v.shape, false);
    Output b = op == 5 ? constant(scope, 3 + pick(100)) : operand(scope, v.dtype, v.shape, true);
    bool swapped = op != 5 && chance(30);
    Output out = compute(scope, kOps[op], {swapped ? b : a, swapped ? a : b});
    if (chance(15)) {  // the same again, for the pass that merges equals
      Output again = compute(scope, kOps[op], {a, b});
      out = compute(scope, "Maximum", {out, again});
    }
    if (is_float && op == 2) out = bounded(scope, out);
    if (chance(20)) out = compute(scope, chance(50) ? "Neg" : "Identity", {out});
    scope.vars[to].value = out;
  }

  // Of three, twice: in an order of its own each time.
  Output sum(Scope& scope, const Variable& v) {
    std::vector<Output> terms;
    for (int i = 0; i < 3; ++i) terms.push_back(operand(scope, v.dtype, v.shape, false));
    Output once = compute(scope, "AddN", terms);
    std::shuffle(terms.begin(), terms.end(), shape_);
    return compute(scope, "Sub", {once, compute(scope, "AddN", terms)});
  }

  void select(Scope& scope) {
    size_t to = static_cast<size_t>(pick(scope.vars.size()));
    const Variable v = scope.vars[to];
    Output a = operand(scope, v.dtype, v.shape, false), b = operand(scope, v.dtype, v.shape, false);
    scope.vars[to].value = compute(scope, "Select", {predicate(scope), a, b});
  }

  void convert(Scope& scope) {
    size_t to = static_cast<size_t>(pick(scope.vars.size()));
    const Variable v = scope.vars[to];
    if (v.dtype == DType::kFloat) {
      Output from = operand(scope, DType::kInt32, v.shape, false);
      from = compute(scope, "FloorMod", {from, constant(scope, 100)});
      scope.vars[to].value = compute(scope, "Cast", {from}, {{"DstT", v.dtype}});
    } else {
      Output from = bounded(scope, operand(scope, DType::kFloat, v.shape, false));
      scope.vars[to].value = compute(scope, "Cast", {from}, {{"DstT", v.dtype}});
    }
  }

  // Reads or updates state after all earlier uses, and before all later ones.
  void use_state(Scope& scope) {
    if (scope.states.empty()) return;
    ++program_.counts.state_ops;
    const State s = any(scope.states);
    std::vector<NodeId> after = {scope.order.node};
    Output use;
    if (chance(50)) {
      use = read(scope, s, after);
    } else {
      Output value = operand(scope, s.dtype, s.shape, false);
      if (s.dtype == DType::kFloat) value = bounded(scope, value);
      constexpr const char* kOps[] = {"Assign", "AssignAdd", "AssignSub"};
      std::string op = kOps[pick(3)];
      use = add(s.reference ? op : op + "VariableOp", {s.handle, value}, {}, after);
    }
    scope.order = add("Identity", {scope.order}, {}, {use.node});
  }

  Output read(Scope& scope, const State& s, const std::vector<NodeId>& after) {
    // A reference is read where it is, by an op that leaves nothing of the variable's memory
    // behind.
    Output out = s.reference
                     ? add("Add", {s.handle, constant(scope, random_value(s.dtype, Shape()))}, {},
                           after, {}, s.owner)
                     : add("ReadVariableOp", {s.handle}, {{"dtype", s.dtype}}, after);
    scope.earlier.push_back(out.node);
    // Some reads are for the order alone.
    for (Variable& v : scope.vars) {
      if (v.dtype == s.dtype && v.shape == s.shape && chance(70)) {
        v.value = s.dtype == DType::kFloat ? bounded(scope, out) : out;
        break;
      }
    }
    return out;
  }

  void cond(Scope& scope) {
    ++program_.counts.conds;
    Output pred = predicate(scope);
    Output split = compute(scope, "Switch", {pred, pred});
    Output order = add("Switch", {scope.order, pred});
    std::vector<size_t> taken;
    std::vector<Output> switches;
    for (size_t i = 0; i < scope.vars.size(); ++i) {
      if (i > 0 && chance(30)) continue;
      taken.push_back(i);
      switches.push_back(add("Switch", {scope.vars[i].value, pred}));
    }
    std::vector<State> states;
    for (const State& s : scope.states) {
      if (s.reference || chance(20)) continue;
      states.push_back(s);
      states.back().handle = add("Switch", {s.handle, pred});
    }
    Scope sides[2];
    for (int32_t side : {0, 1}) {
      Scope& inner = sides[side];
      inner.pivot = add("Identity", {Output{split.node, side}}).node;
      inner.earlier = {inner.pivot};
      inner.depth = scope.depth + 1;
      inner.order = {order.node, side};
      inner.states = states;
      for (State& s : inner.states) s.handle.index = side;
      for (size_t i = 0; i < taken.size(); ++i) {
        Variable v = scope.vars[taken[i]];
        v.value = {switches[i].node, side};
        inner.vars.push_back(std::move(v));
      }
      block(inner);
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      // A Merge waits for its control inputs, dead or not.
      std::vector<NodeId> after;
      if (chance(10)) {
        after.push_back(any(sides[pick(2)].earlier));
        ++program_.counts.control_edges;
      }
      Output merge =
          add("Merge", {sides[0].vars[i].value, sides[1].vars[i].value}, {}, std::move(after));
      scope.vars[taken[i]].value = merge;
      scope.earlier.push_back(merge.node);
      if (chance(10)) scope.vars[0].value = {merge.node, 1};
    }
    scope.order = add("Merge", {sides[0].order, sides[1].order});
  }

  void loop(Scope& scope) {
    ++program_.counts.loops;
    std::string frame = str_cat("loop", program_.counts.loops);
    int64_t parallel = 1 + pick(10);
    auto enter = [&](Output x, bool constant) {
      return add(
          "Enter", {x},
          {{"frame_name", frame}, {"is_constant", constant}, {"parallel_iterations", parallel}});
    };
    Output limit = constant(scope, pick(5));
    if (chance(40)) limit = compute(scope, "FloorMod", {int_scalar(scope), constant(scope, 4)});
    limit = enter(limit, true);

    // Carried: a counter, the order, vars[0] and some others. The rest is invariant or stays
    // outside.
    std::vector<Output> merges;
    auto carry = [&](Output x) {
      Output e = enter(x, false);
      merges.push_back(add("Merge", {e, e}));
    };
    carry(constant(scope, 0));
    carry(scope.order);
    std::vector<size_t> carried;
    std::vector<Variable> invariants;
    for (size_t i = 0; i < scope.vars.size(); ++i) {
      if (i == 0 || chance(50)) {
        carried.push_back(i);
        carry(scope.vars[i].value);
      } else if (chance(60)) {
        invariants.push_back(scope.vars[i]);
        invariants.back().value = enter(scope.vars[i].value, true);
      }
    }
    Scope inner;
    for (const State& s : scope.states) {
      if (s.reference || chance(20)) continue;
      inner.states.push_back(s);
      inner.states.back().handle = enter(s.handle, true);
    }

    Output pred = add("Less", {merges[0], limit});
    if (chance(30)) {
      Output other =
          add("Const", {}, {{"dtype", DType::kInt32}, {"value", Tensor::scalar<int32_t>(pick(9))}},
              {merges[0].node});
      pred = add("LogicalAnd", {pred, add("NotEqual", {merges[2], other})});
    }
    pred = add("LoopCond", {pred});
    std::vector<Output> switches;
    for (Output m : merges) switches.push_back(add("Switch", {m, pred}));

    Output counter = add("Identity", {Output{switches[0].node, 1}});
    inner.pivot = counter.node;
    inner.earlier = {counter.node};
    inner.depth = scope.depth + 1;
    inner.order = {switches[1].node, 1};
    for (size_t i = 0; i < carried.size(); ++i) {
      Variable v = scope.vars[carried[i]];
      v.value = {switches[i + 2].node, 1};
      if (chance(50)) v.value = add("Identity", {v.value});
      inner.vars.push_back(std::move(v));
    }
    // An invariant is there in the iteration that ends the loop too; the body must not run then.
    for (Variable& v : invariants) {
      v.value = add("Identity", {v.value}, {}, {inner.pivot});
      inner.vars.push_back(v);
    }
    block(inner);

    std::vector<Output> next = {add("Add", {counter, constant(inner, 1)}), inner.order};
    for (size_t i = 0; i < carried.size(); ++i) {
      const Variable& v = inner.vars[i];
      next.push_back(v.dtype == DType::kFloat ? bounded(inner, v.value) : v.value);
    }
    for (size_t i = 0; i < merges.size() && status_.ok(); ++i) {
      Output n = add("NextIteration", {next[i]});
      if (status_.ok()) status_ = program_.graph->set_back_edge(merges[i].node, 1, n);
    }
    scope.order = add("Exit", {switches[1]});
    for (size_t i = 0; i < carried.size(); ++i) {
      Output exit = add("Exit", {switches[i + 2]});
      scope.vars[carried[i]].value = exit;
      scope.earlier.push_back(exit.node);
    }
    if (chance(20)) scope.vars[0].value = add("Exit", {switches[0]});
  }

  // Remembers a tensor of the root that may be fed or fetched.
  void note_root_value(const Variable& v) {
    for (const Variable& known : root_values_) {
      if (known.value == v.value) return;
    }
    for (const Variable& known : placeholders_) {
      if (known.value == v.value) return;
    }
    root_values_.push_back(v);
  }

  void choose_requests(const Scope& root) {
    if (root_values_.empty()) {  // every variable is still its placeholder
      Variable v = root.vars[0];
      v.value = add("Identity", {v.value});
      root_values_.push_back(v);
    }
    if (!status_.ok()) return;
    const Graph& graph = *program_.graph;
    std::vector<Variable> fed = placeholders_;
    if (!fed.empty() && chance(3)) fed.pop_back();
    for (int i = 0; i < 2 && chance(30); ++i) {
      const Variable& v = any(root_values_);
      bool twice = std::any_of(fed.begin(), fed.end(),
                               [&](const Variable& f) { return f.value == v.value; });
      if (twice) continue;
      fed.push_back(v);
      ++program_.counts.feeds_in_middle;
    }
    for (int step = 0; step < 2; ++step) {
      Session::Feeds& feeds = program_.steps.emplace_back();
      for (const Variable& v : fed) {
        feeds.emplace_back(graph.output_name(v.value), random_value(v.dtype, v.shape));
      }
    }

    std::vector<Variable> wanted = root.vars;
    for (int i = pick(4); i > 0; --i) wanted.push_back(any(root_values_));
    for (const Variable& v : wanted) {
      if (chance(20)) continue;
      bool is_fed = std::any_of(fed.begin(), fed.end(),
                                [&](const Variable& f) { return f.value == v.value; });
      if (!is_fed) program_.fetches.push_back(graph.output_name(v.value));
    }
    if (chance(6)) {
      Scope scope = root;
      Output half = add("Switch", {scope.vars.back().value, predicate(scope)});
      half = add("Identity", {Output{half.node, pick(2)}});
      program_.fetches.push_back(graph.output_name(half));
    }
    if (chance(85)) program_.targets.push_back(name(root.order.node));
    if (chance(30)) program_.targets.push_back(name(any(root_values_).value.node));
    if (program_.fetches.empty() && program_.targets.empty()) {
      program_.targets.push_back(name(root.order.node));
    }
  }

  const uint64_t seed_;
  std::mt19937_64 shape_, where_;
  const std::vector<std::string>& devices_;
  RandomProgram program_;
  std::unique_ptr<GraphBuilder> builder_;
  Status status_;
  int max_depth_ = 0;
  int nodes_left_ = 0;
  std::vector<Variable> placeholders_, root_values_;
};

}  // namespace

std::string RandomProgram::to_string() const {
  std::string out;
  for (NodeId id = 0; id < graph->num_nodes(); ++id) {
    const Node& node = graph->node(id);
    std::vector<std::string> inputs;
    for (Output o : node.inputs()) inputs.push_back(graph->output_name(o));
    for (NodeId c : node.control_inputs()) inputs.push_back(str_cat("^", graph->node(c).name()));
    out += str_cat(node.name(), " = ", node.op_name(), "(", str_join(inputs, ", "), ")");
    if (node.op_name() == "Const") out += " " + node.attr<Tensor>("value").value().to_string();
    if (node.op_name() == "Enter") {
      out += str_cat(" parallel ", node.attr<int64_t>("parallel_iterations").value(),
                     node.attr<bool>("is_constant").value() ? " constant" : "");
    }
    out += str_cat(" ", node.device(), "\n");
  }
  out += str_cat("init ", str_join(init, ", "), "\n");
  for (const Session::Feeds& feeds : steps) {
    out += "step\n";
    for (const auto& [name, value] : feeds)
      out += str_cat("  ", name, " = ", value.to_string(), "\n");
  }
  out += str_cat("fetches ", str_join(fetches, ", "), "\ntargets ", str_join(targets, ", "),
                 "\nreads ", str_join(reads, ", "), "\n");
  return out;
}

Result<RandomProgram> random_program(uint64_t seed, const std::vector<std::string>& devices) {
  MR_TRY(register_ops());
  return ProgramMaker(seed, devices).make();
}

}  // namespace millrace
