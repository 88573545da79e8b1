#include "millrace/distributed/collective/mpi/mpi_library.h"

#include <dlfcn.h>

#include <memory>

#include "millrace/base/env.h"

namespace millrace {
namespace {

constexpr const char* kOpenMpi = "libmpi.so.40";
constexpr size_t kMaxText = 8192;  // more than any version's longest text

template <class Function>
Status find(void* library, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(dlsym(library, name));
  return out ? ok_status() : unimplemented("it has no ", name);
}

// A constant is the address of an object.
Status find_object(void* library, const char* name, void*& out) {
  out = dlsym(library, name);
  return out ? ok_status() : unimplemented("it has no ", name);
}

Status find_all(void* library, MpiLibrary& out) {
  int (*get_version)(char*, int*) = nullptr;
  MR_TRY(find(library, "MPI_Get_library_version", get_version));
  std::string text(kMaxText, '\0');
  int size = 0;
  if (get_version(text.data(), &size) != MpiLibrary::kSuccess) {
    return unimplemented("it does not say its version");
  }
  out.version = text.c_str();
  MR_TRY(MpiLibrary::check_version(out.version));
  MR_TRY(find(library, "MPI_Init_thread", out.init_thread));
  MR_TRY(find(library, "MPI_Initialized", out.initialized));
  MR_TRY(find(library, "MPI_Query_thread", out.query_thread));
  MR_TRY(find(library, "MPI_Finalize", out.finalize));
  MR_TRY(find(library, "MPI_Comm_dup", out.comm_dup));
  MR_TRY(find(library, "MPI_Comm_rank", out.comm_rank));
  MR_TRY(find(library, "MPI_Comm_size", out.comm_size));
  MR_TRY(find(library, "MPI_Comm_create_keyval", out.comm_create_keyval));
  MR_TRY(find(library, "MPI_Comm_set_attr", out.comm_set_attr));
  MR_TRY(find(library, "MPI_Comm_set_errhandler", out.comm_set_errhandler));
  MR_TRY(find(library, "MPI_Error_string", out.error_string));
  MR_TRY(find(library, "MPI_Op_create", out.op_create));
  MR_TRY(find(library, "MPI_Isend", out.isend));
  MR_TRY(find(library, "MPI_Irecv", out.irecv));
  MR_TRY(find(library, "MPI_Test", out.test));
  MR_TRY(find(library, "MPI_Cancel", out.cancel));
  MR_TRY(find(library, "MPI_Request_free", out.request_free));
  MR_TRY(find(library, "MPI_Iallreduce", out.iallreduce));
  MR_TRY(find(library, "MPI_Iallgatherv", out.iallgatherv));
  MR_TRY(find(library, "MPI_Ibcast", out.ibcast));
  MR_TRY(find_object(library, "ompi_mpi_comm_world", out.world));
  MR_TRY(find_object(library, "ompi_mpi_comm_self", out.self));
  MR_TRY(find_object(library, "ompi_mpi_errors_return", out.errors_return));
  MR_TRY(find_object(library, "ompi_mpi_byte", out.byte));
  MR_TRY(find_object(library, "ompi_mpi_float", out.float_type));
  MR_TRY(find_object(library, "ompi_mpi_double", out.double_type));
  MR_TRY(find_object(library, "ompi_mpi_int32_t", out.int32_type));
  MR_TRY(find_object(library, "ompi_mpi_int64_t", out.int64_type));
  return find_object(library, "ompi_mpi_uint16_t", out.uint16_type);
}

Result<const MpiLibrary*> load() {
  const std::string asked(env_string("MILLRACE_MPI_LIBRARY"));
  const char* name = asked.empty() ? kOpenMpi : asked.c_str();
  // Its own plug-ins look for its symbols among those of all.
  void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) return unimplemented("Open MPI cannot be loaded: ", dlerror());
  auto out = std::make_unique<MpiLibrary>();
  if (const Status lacks = find_all(library, *out); !lacks.ok()) {
    dlclose(library);
    return lacks.with_prefix(name);
  }
  return out.release();
}

}  // namespace

Result<const MpiLibrary*> MpiLibrary::get() {
  static const Result<const MpiLibrary*>* loaded = new Result<const MpiLibrary*>(load());
  return *loaded;
}

Status MpiLibrary::check_version(std::string_view version) {
  constexpr std::string_view kBegins = "Open MPI v";
  if (version.starts_with(kBegins) && version.size() > kBegins.size() + 1) {
    const char major = version[kBegins.size()];
    if (major >= '3' && major <= '5' && version[kBegins.size() + 1] == '.') return ok_status();
  }
  return unimplemented("expected Open MPI 3 to 5, got \"",
                       version.substr(0, std::min<size_t>(version.find('\n'), 80)), "\"");
}

Status MpiLibrary::status(int code, std::string_view what) const {
  if (code == kSuccess) return ok_status();
  std::string text(kMaxText, '\0');
  int size = 0;
  if (error_string(code, text.data(), &size) != kSuccess) text = "an unknown error";
  return aborted(what, ": ", text.c_str());
}

}  // namespace millrace
