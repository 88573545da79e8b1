#include "millrace/session/session.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>
#include <unordered_map>
#include <utility>

#include "proto/config.pb.h"
#include "python/src/array.h"
#include "python/src/elements.h"
#include "python/src/gil.h"
#include "python/src/graph.h"
#include "python/src/interruptible.h"
#include "python/src/signals.h"
#include "python/src/status.h"

// Sessions. What run() does with its arguments is worked out once, by session.py, and kept by
// which objects were fetched and fed: a run that was seen before goes from the arguments to the
// executor without any Python code.

namespace millrace::python {

namespace {

// Raises what a signal handler raised, however the run ended, or else what the run ended with.
void check_run(const Status& status) {
  raise_interrupt();
  check(status);
}

// One tensor that is fed.
struct Feed {
  DType dtype = DType::kInvalid;
  PartialShape shape;
  nb::object tensor;
};

Tensor read_feed(const Feed& feed, nb::handle value) {
  Tensor tensor;
  if (!tensor_from_scalar(value, feed.dtype, tensor)) {
    nb::object array = library("millrace.graph.fetches", "feed_array")(value, feed.tensor);
    tensor = tensor_from_array(array, feed.dtype, Sharing::kBorrow);
  }
  if (!feed.shape.compatible(PartialShape(tensor.shape()))) {
    nb::object message = library("millrace.graph.fetches", "feed_shape_message")(
        shape_tuple(PartialShape(tensor.shape())), feed.tensor);
    PyErr_SetObject(PyExc_ValueError, message.ptr());
    throw nb::python_error();
  }
  return tensor;
}

// How the value of run() is put together from the fetched tensors.
struct RunValue {
  enum Kind { kNone, kTensor, kList, kTuple, kDict, kCall } kind = kNone;
  size_t index = 0;
  nb::object object;  // the keys of a dict, the function of a call
  std::vector<RunValue> parts;

  // From session.py: None, an int, or (kind, object, parts).
  static RunValue read(nb::handle spec) {
    RunValue out;
    if (spec.is_none()) return out;
    if (PyLong_Check(spec.ptr())) {
      out.kind = kTensor;
      out.index = nb::cast<size_t>(spec);
      return out;
    }
    nb::tuple parts = nb::cast<nb::tuple>(spec);
    const auto kind = nb::cast<std::string>(parts[0]);
    out.kind = kind == "list" ? kList : kind == "tuple" ? kTuple : kind == "dict" ? kDict : kCall;
    out.object = parts[1];
    for (nb::handle part : parts[2]) out.parts.push_back(read(part));
    return out;
  }

  nb::object build(const std::vector<nb::object>& arrays) const {
    switch (kind) {
      case kNone:
        return nb::none();
      case kTensor:
        return arrays[index];
      case kList: {
        nb::list out;
        for (const RunValue& part : parts) out.append(part.build(arrays));
        return out;
      }
      case kDict: {
        nb::dict out;
        size_t i = 0;
        for (nb::handle key : object) out[key] = parts[i++].build(arrays);
        return out;
      }
      case kTuple:
      case kCall:
        break;
    }
    PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(parts.size()));
    nb::object out = nb::steal(tuple);
    for (size_t i = 0; i < parts.size(); ++i) {
      PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), parts[i].build(arrays).release().ptr());
    }
    return kind == kTuple ? out : object(out);
  }
};

// What one kind of run comes to.
struct Compiled {
  std::shared_ptr<Callable> callable;  // null: nothing is computed
  RunOptions on_main;                  // for runs on the main thread, which signals may end
  std::vector<Feed> feeds;             // one per fed tensor
  nb::object expand;  // makes the values of `feeds` from those given; None: they are the same
  // For each fetched tensor the number of the feed that it is, -1 for what the run computes.
  std::vector<int> fed_fetches;
  RunValue result;
  std::vector<nb::object> keep;  // the objects that the key stands for

  nb::object run(const std::vector<Tensor>& values, UpdateId update = {},
                 RunMetadata* metadata = nullptr) const {
    std::vector<Tensor> fetched;
    if (callable != nullptr) {
      Status status;
      RunOptions once;
      const RunOptions* options = on_main_thread() ? &on_main : nullptr;
      if (update != UpdateId()) {
        once = on_main;
        if (options == nullptr) once.interrupted = nullptr;
        once.update = update;
        options = &once;
      }
      {
        WithoutGil no_gil;
        status = callable->run(values, fetched, metadata, options);
      }
      check_run(status);
    }
    std::vector<nb::object> arrays;
    arrays.reserve(fed_fetches.size());
    size_t next = 0;
    for (const int feed : fed_fetches) {
      Tensor tensor;
      if (feed >= 0) {
        tensor = values[static_cast<size_t>(feed)];
      } else {
        tensor = std::move(fetched[next++]);
      }
      arrays.push_back(array_from_fetch(std::move(tensor)));
    }
    return result.build(arrays);
  }

  nb::object run(const std::vector<nb::object>& given, UpdateId update = {}) const {
    std::vector<Tensor> values;
    values.reserve(feeds.size());
    if (expand.is_none()) {
      for (size_t i = 0; i < feeds.size(); ++i) values.push_back(read_feed(feeds[i], given[i]));
    } else {
      nb::list all;
      for (const nb::object& value : given) all.append(value);
      nb::list expanded = nb::cast<nb::list>(expand(all));
      if (nb::len(expanded) != feeds.size()) {
        throw nb::value_error("a fed value does not have the parts of the tensor it is fed for");
      }
      for (size_t i = 0; i < feeds.size(); ++i) values.push_back(read_feed(feeds[i], expanded[i]));
    }
    return run(values, update);
  }
};

using Key = std::vector<uintptr_t>;
struct KeyHash {
  size_t operator()(const Key& key) const {
    size_t hash = key.size();
    for (uintptr_t part : key) hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    return hash;
  }
};

// What the meaning of a run depends on: which tensors and operations are fetched and fed, and in
// what structure.
class KeyMaker {
 public:
  // The objects whose addresses the key has go into `keep`, unless that is null.
  KeyMaker(Key& key, std::vector<nb::object>* keep) : key_(key), keep_(keep) {}

  // Appends one fetch or the key of one feed. False: what it means may change, nothing may be kept
  // of it.
  bool append(nb::handle fetch) {
    if (PyList_CheckExact(fetch.ptr()) || PyTuple_CheckExact(fetch.ptr())) {
      return sequence(fetch, PyList_CheckExact(fetch.ptr()) ? kList : kTuple);
    }
    if (PyDict_CheckExact(fetch.ptr())) return dictionary(fetch);
    if (is_tensor(fetch) || is_operation(fetch) || PyUnicode_CheckExact(fetch.ptr()) ||
        PyBytes_CheckExact(fetch.ptr())) {
      return object(fetch);
    }
    if (PyTuple_Check(fetch.ptr()) && nb::hasattr(fetch, "_make")) {
      object(fetch.type());
      return sequence(fetch, kNamedTuple);
    }
    if (nb::hasattr(fetch.type(), "_parts_never_change")) return object(fetch);
    nb::object known = library("millrace.graph.fetches", "fixed_element")(fetch);
    return !known.is_none() && object(known);
  }

 private:
  enum : uintptr_t { kList = 1, kTuple, kDict, kNamedTuple };  // no object has such an address

  bool object(nb::handle object) {
    key_.push_back(reinterpret_cast<uintptr_t>(object.ptr()));
    if (keep_ != nullptr) keep_->push_back(nb::borrow(object));
    return true;
  }

  // The items are held: what tells the parts of one may change the sequence.
  bool sequence(nb::handle items, uintptr_t kind) {
    const Nesting nesting;
    const Py_ssize_t size = PySequence_Fast_GET_SIZE(items.ptr());
    key_.push_back(kind);
    key_.push_back(static_cast<uintptr_t>(size));
    bool fixed = true;
    for (Py_ssize_t i = 0; i < size && fixed; ++i) {
      if (i >= PySequence_Fast_GET_SIZE(items.ptr())) return false;
      fixed = append(nb::borrow(PySequence_Fast_GET_ITEM(items.ptr(), i)));
    }
    return fixed;
  }

  bool dictionary(nb::handle items) {
    const Nesting nesting;
    const Py_ssize_t size = PyDict_Size(items.ptr());
    key_.push_back(kDict);
    key_.push_back(static_cast<uintptr_t>(size));
    bool fixed = true;
    Py_ssize_t at = 0;
    PyObject *name, *value;
    while (fixed && PyDict_Next(items.ptr(), &at, &name, &value) != 0) {
      object(name);
      fixed = append(nb::borrow(value));
    }
    return fixed && PyDict_Size(items.ptr()) == size;
  }

  // Structures may contain themselves.
  struct Nesting {
    Nesting() {
      if (Py_EnterRecursiveCall(" in the fetches of a run") != 0) throw nb::python_error();
    }
    ~Nesting() { Py_LeaveRecursiveCall(); }
  };

  Key& key_;
  std::vector<nb::object>* keep_;
};

// Holds its session, which else would be closed when nobody else does.
class PyCallable {
 public:
  PyCallable(nb::handle session, std::shared_ptr<Compiled> compiled, size_t arguments)
      : session_(nb::borrow(session)), compiled_(std::move(compiled)), arguments_(arguments) {}

  nb::object call(const nb::args& args) const {
    if (args.size() != arguments_) {
      PyErr_Format(PyExc_ValueError, "Callable expected %zu feed value(s), got %zu.", arguments_,
                   args.size());
      throw nb::python_error();
    }
    std::vector<nb::object> given;
    given.reserve(arguments_);
    for (nb::handle value : args) given.push_back(nb::borrow(value));
    const std::shared_ptr<Compiled> compiled = compiled_;
    return compiled->run(given);
  }

  // For Python's collector: a session may have its callables as attributes.
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PyCallable>(self)->session_.ptr());
    return 0;
  }
  static int clear(PyObject* self) {
    if (nb::inst_ready(self)) nb::inst_ptr<PyCallable>(self)->session_.reset();
    return 0;
  }

 private:
  nb::object session_;
  std::shared_ptr<Compiled> compiled_;
  size_t arguments_;
};

PyType_Slot callable_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(PyCallable::traverse)},
                                {Py_tp_clear, reinterpret_cast<void*>(PyCallable::clear)},
                                {0, nullptr}};

class PySession {
 public:
  // `owner`: the Python session, which owns this.
  PySession(nb::handle owner, PyGraph& graph, const std::string& target, nb::bytes config)
      : owner_(owner.ptr()), graph_(graph) {
    tensorflow::ConfigProto proto;
    if (!proto.ParseFromArray(config.c_str(), static_cast<int>(config.size()))) {
      throw nb::value_error("the session's config is no ConfigProto");
    }
    SessionOptions options = unwrap(SessionOptions::from_proto(proto));
    options.target = target;
    const auto create = [graph = graph.shared_graph(), options]() mutable {
      return Session::create(std::move(graph), std::move(options));
    };
    in_cluster_ = !target.empty();
    session_ = unwrap(waiting(create));
  }
  ~PySession() {
    WithoutGil no_gil;
    session_.reset();
  }

  // `stream`, `number`: RunOptions::update.
  nb::object run(nb::handle fetches, nb::handle feeds, int64_t stream, int64_t number) {
    const UpdateId update = {stream, number};
    // Held: code that runs meanwhile may take them out of the dictionary.
    std::vector<nb::object> fed, given;
    if (!feeds.is_none()) {
      if (!PyDict_Check(feeds.ptr())) {
        PyErr_Format(PyExc_TypeError,
                     "feed_dict must be a dictionary from tensors to values, got %R of type '%s'.",
                     feeds.ptr(), Py_TYPE(feeds.ptr())->tp_name);
        throw nb::python_error();
      }
      const auto size = static_cast<size_t>(PyDict_Size(feeds.ptr()));
      fed.reserve(size);
      given.reserve(size);
      Py_ssize_t at = 0;
      PyObject *tensor, *value;
      while (PyDict_Next(feeds.ptr(), &at, &tensor, &value) != 0) {
        fed.push_back(nb::borrow(tensor));
        given.push_back(nb::borrow(value));
      }
    }
    const auto make_key = [&](Key& key, std::vector<nb::object>* keep) {
      KeyMaker maker(key, keep);
      bool fixed = maker.append(fetches);
      for (size_t i = 0; i < fed.size() && fixed; ++i) fixed = maker.append(fed[i]);
      return fixed;
    };
    Key key;
    const bool fixed = make_key(key, nullptr);
    if (fixed) {
      if (const auto found = cache_.find(key); found != cache_.end()) {
        // Shared: another thread may clear the cache meanwhile.
        const std::shared_ptr<Compiled> compiled = found->second;
        return compiled->run(given, update);
      }
    }
    // Kept before any code runs that could let go of them.
    std::vector<nb::object> keep;
    Key same;
    const bool kept = fixed && make_key(same, &keep) && same == key;
    const std::shared_ptr<Compiled> compiled = compile(fetches, list_of(fed));
    if (kept) {
      compiled->keep = std::move(keep);
      const int64_t bytes = compiled->callable != nullptr ? compiled->callable->bytes() : 0;
      if (cache_.size() >= kMaxCached || cached_bytes_ + bytes > kMaxCachedBytes) clear_cache();
      // Another thread may have been quicker.
      if (cache_.emplace(std::move(key), compiled).second) cached_bytes_ += bytes;
    }
    return compiled->run(given, update);
  }

  PyCallable make_callable(nb::handle fetches, const nb::list& fed) {
    return PyCallable(owner_, compile(fetches, fed), nb::len(fed));
  }

  // With options and metadata, as messages in bytes. Names as session.py has worked them out.
  nb::object run_with_options(nb::handle fetches, const nb::list& fed, const nb::list& values,
                              nb::bytes options, bool want_metadata, bool check_numerics,
                              int64_t stream, int64_t number) {
    tensorflow::RunOptions proto;
    if (!proto.ParseFromArray(options.c_str(), static_cast<int>(options.size()))) {
      throw nb::value_error("the options of the run are no RunOptions");
    }
    RunOptions run_options = RunOptions::from_proto(proto);
    std::shared_ptr<Compiled> compiled = compile(fetches, fed, &run_options, check_numerics);
    RunMetadata metadata;
    std::vector<Tensor> tensors;
    nb::list expanded =
        compiled->expand.is_none() ? values : nb::cast<nb::list>(compiled->expand(values));
    for (size_t i = 0; i < compiled->feeds.size(); ++i) {
      tensors.push_back(read_feed(compiled->feeds[i], expanded[i]));
    }
    nb::object result =
        compiled->run(tensors, {stream, number}, want_metadata ? &metadata : nullptr);
    tensorflow::RunMetadata told;
    if (run_options.trace) metadata.to_proto(told);
    const std::string bytes = told.SerializeAsString();
    return nb::make_tuple(result, nb::bytes(bytes.data(), bytes.size()));
  }

  std::string partial_run_setup(std::vector<std::string> feeds, std::vector<std::string> fetches,
                                std::vector<std::string> targets) {
    Result<std::string> handle = Status(Code::kUnknown, "");
    {
      WithoutGil no_gil;
      handle =
          session_->partial_run_setup({std::move(feeds), std::move(fetches), std::move(targets)});
    }
    return unwrap(std::move(handle));
  }
  nb::object partial_run(const std::string& handle, const nb::list& fed, const nb::list& values,
                         const std::vector<std::string>& fetches) {
    Session::Feeds feeds;
    for (size_t i = 0; i < nb::len(fed); ++i) {
      const Feed feed = feed_of(fed[i]);
      feeds.emplace_back(nb::cast<std::string>(feed.tensor.attr("name")),
                         read_feed(feed, values[i]));
    }
    Result<std::vector<Tensor>> fetched = Status(Code::kUnknown, "");
    RunOptions options;
    if (on_main_thread()) options.interrupted = interrupted;
    {
      WithoutGil no_gil;
      fetched = session_->partial_run(handle, feeds, fetches, options);
    }
    check_run(fetched.status());
    std::vector<Tensor> tensors = *std::move(fetched);
    nb::list out;
    for (Tensor& tensor : tensors) out.append(array_from_fetch(std::move(tensor)));
    return out;
  }

  // In a cluster it does not wait for long for tasks that do not answer: their runs end alone.
  void close() {
    clear_cache();
    Status status;
    if (in_cluster_) {
      constexpr std::chrono::milliseconds kPatience(500);
      auto over = std::make_shared<std::promise<Status>>();
      std::future<Status> closed = over->get_future();
      std::thread([over, core = session_] { over->set_value(core->close()); }).detach();
      WithoutGil no_gil;
      if (closed.wait_for(kPatience) == std::future_status::ready) status = closed.get();
    } else {
      WithoutGil no_gil;
      status = session_->close();
    }
    check(status);
  }

  // Closes them, but comes back when that takes longer than `seconds`. Threads are not Python's,
  // which starts none any more when the interpreter ends.
  static void close_within(const std::vector<PySession*>& sessions, double seconds) {
    std::vector<std::future<void>> closed;
    for (PySession* session : sessions) {
      session->clear_cache();
      auto over = std::make_shared<std::promise<void>>();
      closed.push_back(over->get_future());
      std::thread([over, core = session->session_] {
        (void)core->close();
        over->set_value();
      }).detach();
    }
    WithoutGil no_gil;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (std::future<void>& one : closed) one.wait_until(deadline);
  }

  // How many kinds of run it remembers: for tests.
  size_t num_cached() const { return cache_.size(); }

  nb::list list_devices() const {
    nb::list out;
    for (const Device::Info& info : session_->list_devices()) {
      out.append(nb::make_tuple(info.name.to_string(), std::string(device_type(info.kind)),
                                info.memory_limit, info.incarnation));
    }
    return out;
  }

  std::string explain(std::vector<std::string> feeds, std::vector<std::string> fetches,
                      std::vector<std::string> targets) {
    Result<std::string> text = Status(Code::kUnknown, "");
    {
      WithoutGil no_gil;
      text = session_->explain({std::move(feeds), std::move(fetches), std::move(targets)});
    }
    return unwrap(std::move(text));
  }

  void reset(const std::vector<std::string>& containers) {
    Status status;
    {
      WithoutGil no_gil;
      status = session_->reset(containers);
    }
    check(status);
  }

 private:
  // Programs that make new tensors for every run must not fill the memory.
  static constexpr size_t kMaxCached = 4096;
  static constexpr int64_t kMaxCachedBytes = int64_t{256} << 20;

  // What the entries hold may run code that comes back here when it goes.
  void clear_cache() {
    cached_bytes_ = 0;
    const auto old = std::exchange(cache_, {});
  }

  // What `call` gives. Signals end the wait for other tasks.
  template <class Call>
  auto waiting(Call call) const -> decltype(call()) {
    if (in_cluster_) return interruptible(std::move(call));
    WithoutGil no_gil;
    return call();
  }

  static nb::list list_of(const std::vector<nb::object>& objects) {
    nb::list out;
    for (const nb::object& object : objects) out.append(object);
    return out;
  }

  Feed feed_of(nb::handle tensor) const {
    const Output output = output_of(tensor);
    const Graph& graph = graph_.graph();
    return {base_type(graph.output_type(output)), graph.facts(output).shape, nb::borrow(tensor)};
  }

  // Asks session.py what the fetches and feeds mean.
  std::shared_ptr<Compiled> compile(nb::handle fetches, const nb::list& fed,
                                    const RunOptions* options = nullptr,
                                    bool check_numerics = false) {
    nb::tuple parts = nb::cast<nb::tuple>(nb::handle(owner_).attr("_compile")(fetches, fed));
    auto compiled = std::make_shared<Compiled>();
    Signature signature;
    signature.check_numerics = check_numerics;
    for (nb::handle tensor : parts[0]) {
      compiled->feeds.push_back(feed_of(tensor));
      signature.feeds.push_back(nb::cast<std::string>(tensor.attr("name")));
    }
    for (nb::handle tensor : parts[1]) {
      auto name = nb::cast<std::string>(tensor.attr("name"));
      const auto fed_as = std::find(signature.feeds.begin(), signature.feeds.end(), name);
      if (fed_as != signature.feeds.end()) {
        compiled->fed_fetches.push_back(static_cast<int>(fed_as - signature.feeds.begin()));
      } else {
        compiled->fed_fetches.push_back(-1);
        signature.fetches.push_back(std::move(name));
      }
    }
    for (nb::handle op : parts[2])
      signature.targets.push_back(nb::cast<std::string>(op.attr("name")));
    compiled->result = RunValue::read(parts[3]);
    compiled->expand = parts[4];
    if (signature.fetches.empty() && signature.targets.empty()) return compiled;
    const RunOptions run_options = options != nullptr ? *options : RunOptions();
    compiled->on_main = run_options;
    compiled->on_main.interrupted = interrupted;
    const auto make = [session = session_, signature, run_options] {
      return session->make_callable(signature, run_options);
    };
    compiled->callable = unwrap(waiting(make));
    return compiled;
  }

  PyObject* owner_;          // borrowed
  PyGraph& graph_;           // the owner keeps it
  bool in_cluster_ = false;  // some of its tasks may be of other processes
  std::shared_ptr<Session> session_;
  std::unordered_map<Key, std::shared_ptr<Compiled>, KeyHash> cache_;
  int64_t cached_bytes_ = 0;  // that the plans of cache_ hold
};

}  // namespace

void bind_session(nb::module_& m) {
  nb::class_<PyCallable>(m, "Callable", nb::type_slots(callable_slots))
      .def("__call__", &PyCallable::call);
  nb::class_<PySession>(m, "Session")
      .def(nb::init<nb::handle, PyGraph&, const std::string&, nb::bytes>())
      .def("run", &PySession::run, nb::arg("fetches").none(), nb::arg("feeds").none(),
           nb::arg("stream") = 0, nb::arg("number") = 0)
      .def("make_callable", &PySession::make_callable, nb::arg("fetches").none(), nb::arg("fed"))
      .def("run_with_options", &PySession::run_with_options, nb::arg("fetches").none(),
           nb::arg("fed"), nb::arg("values"), nb::arg("options"), nb::arg("want_metadata"),
           nb::arg("check_numerics"), nb::arg("stream") = 0, nb::arg("number") = 0)
      .def("partial_run_setup", &PySession::partial_run_setup)
      .def("partial_run", &PySession::partial_run)
      .def("close", &PySession::close)
      .def("list_devices", &PySession::list_devices)
      .def("num_cached", &PySession::num_cached)
      .def("explain", &PySession::explain)
      .def("reset", &PySession::reset);
  m.def("close_sessions", &PySession::close_within, nb::arg("sessions"), nb::arg("seconds"));
}

}  // namespace millrace::python
