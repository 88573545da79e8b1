# What Millrace is built with. Protobuf is required; the rest is found, reported, and left out when
# absent.

find_package(Threads REQUIRED)
find_package(Protobuf CONFIG QUIET)
if(NOT Protobuf_FOUND)
  find_package(Protobuf REQUIRED)
endif()

# What files are read and written with. MILLRACE_WITH_X makes one mandatory.
foreach(library ZLIB JPEG PNG)
  option(MILLRACE_WITH_${library} "Require ${library}" OFF)
  if(MILLRACE_WITH_${library})
    find_package(${library} REQUIRED)
  else()
    find_package(${library} QUIET)
  endif()
  set(MILLRACE_HAS_${library} ${${library}_FOUND})
endforeach()

# What tasks on several machines, and TensorFlow's clients, talk over. Not with find_package():
# Debian's file for it wants gRPC's compiler too, which is another package.
option(MILLRACE_WITH_GRPC "Require gRPC" OFF)
find_path(GRPC_INCLUDE_DIR grpcpp/grpcpp.h)
foreach(library grpc++ grpc gpr)
  find_library(GRPC_LIBRARY_${library} ${library})
  list(APPEND GRPC_LIBRARIES ${GRPC_LIBRARY_${library}})
endforeach()
if(GRPC_INCLUDE_DIR AND NOT GRPC_LIBRARIES MATCHES "NOTFOUND")
  set(MILLRACE_HAS_GRPC ON)
elseif(MILLRACE_WITH_GRPC)
  message(FATAL_ERROR "gRPC is not there; on Debian it is in libgrpc++-dev")
endif()

if(MILLRACE_TESTS)
  find_package(GTest QUIET)
endif()
if(MILLRACE_BENCHMARKS)
  find_package(benchmark QUIET)
endif()

if(MILLRACE_WITH_CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()
