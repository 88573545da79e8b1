#pragma once

#include <string>
#include <string_view>

#include "millrace/base/status.h"

namespace millrace {

// Open MPI, loaded when it is asked for: what is used of it, with the types of its binary
// interface, which is that of versions 3 to 5. Millrace needs neither its headers nor the library
// to be built. Handles are pointers; statuses are never asked for (kNoStatus).
struct MpiLibrary {
  using Comm = void*;
  using Type = void*;
  using Op = void*;
  using Request = void*;
  using Errors = void*;
  using OpFunction = void (*)(void* in, void* in_out, int* count, Type* type);
  using CopyAttribute = int (*)(Comm comm, int key, void* extra, void* in, void* out, int* flag);
  using DeleteAttribute = int (*)(Comm comm, int key, void* value, void* extra);

  static constexpr int kSuccess = 0;
  static constexpr int kAnySource = -1;
  static constexpr int kThreadMultiple = 3;
  static constexpr void* kNoStatus = nullptr;

  int (*init_thread)(int* argc, char*** argv, int required, int* provided);
  int (*initialized)(int* flag);
  int (*query_thread)(int* provided);
  int (*finalize)();
  int (*comm_dup)(Comm comm, Comm* out);
  int (*comm_rank)(Comm comm, int* rank);
  int (*comm_size)(Comm comm, int* size);
  int (*comm_create_keyval)(CopyAttribute copy, DeleteAttribute free, int* key, void* extra);
  int (*comm_set_attr)(Comm comm, int key, void* value);
  int (*comm_set_errhandler)(Comm comm, Errors errors);
  int (*error_string)(int code, char* text, int* size);
  int (*op_create)(OpFunction function, int commutes, Op* out);
  int (*isend)(const void* data, int count, Type type, int to, int tag, Comm comm, Request* out);
  int (*irecv)(void* data, int count, Type type, int from, int tag, Comm comm, Request* out);
  int (*test)(Request* request, int* flag, void* status);
  int (*cancel)(Request* request);
  int (*request_free)(Request* request);
  int (*iallreduce)(const void* in, void* out, int count, Type type, Op op, Comm comm,
                    Request* request);
  int (*iallgatherv)(const void* in, int count, Type type, void* out, const int* counts,
                     const int* offsets, Type out_type, Comm comm, Request* request);
  int (*ibcast)(void* data, int count, Type type, int root, Comm comm, Request* request);

  Comm world, self;
  Errors errors_return;
  Type byte, float_type, double_type, int32_type, int64_type, uint16_type;
  std::string version;  // as the library says it

  // Loads it: the library that MILLRACE_MPI_LIBRARY names, or libmpi.so.40, Open MPI's name. For
  // ever the same answer. UNIMPLEMENTED where there is none, it lacks something, or is another MPI
  // than Open MPI, whose interface would be taken for what it is not.
  static Result<const MpiLibrary*> get();

  // OK for what MPI_Get_library_version says of an Open MPI of versions 3 to 5.
  static Status check_version(std::string_view version);

  // What an error code means; OK for kSuccess.
  Status status(int code, std::string_view what) const;
};

}  // namespace millrace
