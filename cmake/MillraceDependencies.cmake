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

if(MILLRACE_TESTS)
  find_package(GTest QUIET)
endif()
if(MILLRACE_BENCHMARKS)
  find_package(benchmark QUIET)
endif()

if(MILLRACE_WITH_CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()
