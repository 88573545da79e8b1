// Any bytes at all as the file of a SavedModel: loading it gives graphs and signatures or one of
// the errors that saved_model.py names. The first byte says whether the file is the binary or the
// text form. The reader is Python over C++, so this is an interpreter that calls it.

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstdint>
#include <cstdlib>

namespace {

// The function to call with the bytes. The process ends where it cannot be had.
PyObject* import_target() {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  config.install_signal_handlers = 0;
  // Where it finds its own modules, and those of the environment that the build uses.
  PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, MILLRACE_FUZZ_PYTHON);
  if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
  if (PyStatus_Exception(status)) Py_ExitStatusException(status);
  PyConfig_Clear(&config);
  PyRun_SimpleString("import sys; sys.path[:0] = '" MILLRACE_FUZZ_PYTHON_PATH "'.split(':')");
  PyObject* module = PyImport_ImportModule("saved_model_fuzzing");
  PyObject* target = module == nullptr ? nullptr : PyObject_GetAttrString(module, "run");
  if (target == nullptr) {
    PyErr_Print();
    std::abort();
  }
  return target;
}

}  // namespace

// The interpreter leaks, and its own allocator would hide what the bindings do.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  setenv("PYTHONMALLOC", "malloc", 1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static PyObject* const target = import_target();
  PyObject* result = PyObject_CallFunction(target, "y#", reinterpret_cast<const char*>(data),
                                           static_cast<Py_ssize_t>(size));
  if (result == nullptr) {
    PyErr_Print();
    std::abort();
  }
  Py_DECREF(result);
  return 0;
}
