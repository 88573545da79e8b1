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

# What devices of kind GPU need. A machine that builds for them need not have one.
set(MILLRACE_CUDA_ARCHITECTURES "90" CACHE STRING "What GPUs libmillrace_cuda is compiled for, newest last")
if(MILLRACE_WITH_CUDA AND NOT MILLRACE_WITH_CUDA STREQUAL "EMULATED")
  find_package(CUDAToolkit REQUIRED)
  if(NOT CUDAToolkit_NVCC_EXECUTABLE)
    message(FATAL_ERROR "MILLRACE_WITH_CUDA needs nvcc")
  endif()
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(CUDNN_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
  if(NOT CUDNN_INCLUDE_DIR OR NOT CUDNN_LIBRARY)
    message(FATAL_ERROR "MILLRACE_WITH_CUDA needs cuDNN 9: set CUDNN_INCLUDE_DIR and CUDNN_LIBRARY")
  endif()
endif()
