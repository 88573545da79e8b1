# millrace_library(<folder> [deps...] [TEST_DEPS deps...] [PCH headers...])
#
# Makes the static library mr_<folder> from the sources of the current folder and the folders
# below it, but for those that have a CMakeLists.txt of their own. `deps` are the folders it may
# include; TEST_DEPS are further ones its tests link; PCH are headers that all its sources include,
# to be compiled once.
# What a source is follows from its name, so adding an op is adding a file, with no list to edit:
#
#   x_test.cc     a unit test. All tests of one folder become one executable, <folder>_test, run by
#                 one ctest; a subfolder has its own, <folder>_<subfolder>_test. A file with the
#                 line `// test-labels: threads` goes to <folder>_threads_test, which carries
#                 that ctest label; other labels work the same way. Labels are read at configure.
#                 One with the line `// test-links: ops` goes to <folder>_ops_test, which links that
#                 library besides; so the folder's other tests need not wait for it.
#   x_testing.cc  help for tests: the library mr_<folder>_testing, linked by the folder's tests; with
#                 `// test-links: ops` mr_<folder>_ops_testing, linked by the tests with that line.
#   x_bench.cc    a Google Benchmark program, bench/x_bench.
#   x_fuzz.cc     a libFuzzer program, fuzz/x_fuzz.
#   x_main.cc     a program; the folder's CMakeLists.txt says what to do with it.
#   x_isa.cc      compiled for the baseline and again for each instruction set of the processor (see
#                 MillraceCompiler.cmake).
#   *gemm*        the only files in which a*b+c may be contracted.
#
# A folder without sources becomes a library of headers only.
#
# Aggregate targets: `tests`, `tests_<label>`, `benchmarks`, `fuzzers`, `generated` (headers that
# the build writes).

set(MILLRACE_GEN_DIR ${CMAKE_BINARY_DIR}/gen)
# Tests are compiled more often than they are run, and with clang's sanitizers a source takes ten
# seconds: there they go without optimisation, and without what tells fuzzers where they have been.
# Programs that run for longer than they compile do not, and start first.
set(MILLRACE_LONG_TESTS autodiff_test distributed_simulation_test distributed_test
    end_to_end_threads_test ops_test)
set(MILLRACE_TESTING_FLAGS $<$<CONFIG:Release>:-O1>)
set(MILLRACE_TEST_FLAGS ${MILLRACE_TESTING_FLAGS})
if(MILLRACE_FUZZERS)
  set(MILLRACE_TEST_FLAGS -O0 -fno-sanitize=fuzzer-no-link)
endif()
add_custom_target(tests)
add_custom_target(tests_threads)
add_custom_target(benchmarks)
add_custom_target(fuzzers)
add_custom_target(generated)
set_property(GLOBAL PROPERTY MILLRACE_LIBRARIES "")

# Sets in the caller: the folder's sources by kind, <out>_SOURCES, _TEST, _TESTING, _BENCH, _FUZZ.
function(millrace_glob out)
  file(GLOB_RECURSE all CONFIGURE_DEPENDS *.cc)
  file(GLOB_RECURSE apart CONFIGURE_DEPENDS */CMakeLists.txt)
  foreach(file ${apart})
    get_filename_component(folder ${file} DIRECTORY)
    list(FILTER all EXCLUDE REGEX "^${folder}/")
  endforeach()
  foreach(kind TEST TESTING BENCH FUZZ MAIN)
    string(TOLOWER ${kind} suffix)
    set(files ${all})
    list(FILTER files INCLUDE REGEX "_${suffix}\\.cc$")
    list(FILTER all EXCLUDE REGEX "_${suffix}\\.cc$")
    set(${out}_${kind} ${files} PARENT_SCOPE)
  endforeach()
  set(${out}_SOURCES ${all} PARENT_SCOPE)
endfunction()

function(millrace_source_flags)
  set(gemm_flags -ffp-contract=fast)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
    # Else GCC loads all that a tile is multiplied with first, and has no register left for its sums.
    list(APPEND gemm_flags -fno-schedule-insns)
  endif()
  foreach(source ${ARGN})
    get_filename_component(name ${source} NAME)
    if(name MATCHES "gemm")
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${gemm_flags}"
                                                       SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# Adds to mr_<folder> the copies of its sources x_isa.cc for each instruction set besides the
# baseline: the objects of mr_<folder>_<isa>, with a test that they define nothing that the linker
# could take for another copy's.
function(millrace_isa_copies folder)
  set(sources ${ARGN})
  list(FILTER sources INCLUDE REGEX "_isa\\.cc$")
  if(NOT sources)
    return()
  endif()
  foreach(isa ${MILLRACE_ISAS})
    set(copies mr_${folder}_${isa})
    add_library(${copies} OBJECT ${sources})
    target_compile_definitions(${copies} PRIVATE MR_ISA=${MILLRACE_ISA_${isa}}
                                                 MR_ISA_NAMESPACE=isa_${isa})
    target_compile_options(${copies} PRIVATE $<TARGET_PROPERTY:mr_${folder},COMPILE_OPTIONS>
                                             ${MILLRACE_ISA_${isa}_FLAGS})
    target_include_directories(${copies} PRIVATE ${CMAKE_SOURCE_DIR})
    target_sources(mr_${folder} PRIVATE $<TARGET_OBJECTS:${copies}>)
    set_property(GLOBAL APPEND PROPERTY MILLRACE_LIBRARIES ${copies})
    # Without optimisation functions are called that would be inlined; sanitizers add their own.
    if(MILLRACE_TESTS AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT MILLRACE_SANITIZE)
      add_test(NAME ${folder}_${isa}_symbols
               COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DISA=${isa}
                       "-DOBJECTS=$<TARGET_OBJECTS:${copies}>"
                       -P ${CMAKE_SOURCE_DIR}/cmake/isa_symbols_test.cmake)
    endif()
  endforeach()
endfunction()

# Sets in the caller: the word in the line `// <key>: <word>` of a source; empty: there is none.
function(millrace_note out source key)
  file(STRINGS ${source} line REGEX "^// ${key}: [a-z_]+$" LIMIT_COUNT 1)
  string(REGEX REPLACE "^// ${key}: " "" line "${line}")
  set(${out} "${line}" PARENT_SCOPE)
endfunction()

# Turns test sources into executables and ctests named after `name`, linked with LIBS.
function(millrace_tests name)
  cmake_parse_arguments(arg "" "" "LIBS;SOURCES" ${ARGN})
  if(NOT MILLRACE_TESTS OR NOT GTest_FOUND)
    return()
  endif()
  set(groups "")
  foreach(source ${arg_SOURCES})
    file(RELATIVE_PATH group ${CMAKE_CURRENT_SOURCE_DIR} ${source})
    get_filename_component(group "${group}" DIRECTORY)
    string(REPLACE "/" "_" group "${name}_${group}")
    string(REGEX REPLACE "_$" "" group "${group}")
    millrace_note(links ${source} test-links)
    if(links)
      string(APPEND group "_${links}")
    endif()
    millrace_note(label ${source} test-labels)
    if(label)
      string(APPEND group "_${label}")
      set(label_${group} ${label})
    endif()
    list(APPEND groups ${group})
    list(APPEND sources_${group} ${source})
    if(links)
      set(links_${group} $<TARGET_NAME_IF_EXISTS:mr_${name}_${links}_testing> mr_${links})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group ${groups})
    set(target ${group}_test)
    add_executable(${target} EXCLUDE_FROM_ALL ${sources_${group}})
    target_link_libraries(${target} PRIVATE ${links_${group}} ${arg_LIBS} GTest::gtest_main
                                            Threads::Threads)
    if(target IN_LIST MILLRACE_LONG_TESTS)
      target_compile_options(${target} PRIVATE ${MILLRACE_TESTING_FLAGS})
    else()
      target_compile_options(${target} PRIVATE ${MILLRACE_TEST_FLAGS})
    endif()
    target_precompile_headers(${target} REUSE_FROM mr_gtest_pch)
    set_target_properties(${target} PROPERTIES
                          RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test
                          BUILD_RPATH ${CMAKE_BINARY_DIR})
    add_dependencies(tests ${target})
    add_test(NAME ${group} COMMAND ${target} --gtest_brief=1
             WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(${group} PROPERTIES TIMEOUT 900)
    if(target IN_LIST MILLRACE_LONG_TESTS)
      set_tests_properties(${group} PROPERTIES COST 1000)
    endif()
    if(DEFINED label_${group})
      set_tests_properties(${group} PROPERTIES LABELS ${label_${group}})
      if(NOT TARGET tests_${label_${group}})
        add_custom_target(tests_${label_${group}})
      endif()
      add_dependencies(tests_${label_${group}} ${target})
    endif()
  endforeach()
endfunction()

# One Google Benchmark program per source.
function(millrace_benchmarks)
  cmake_parse_arguments(arg "" "" "LIBS;SOURCES" ${ARGN})
  if(NOT MILLRACE_BENCHMARKS OR NOT benchmark_FOUND)
    return()
  endif()
  foreach(source ${arg_SOURCES})
    get_filename_component(target ${source} NAME_WE)
    add_executable(${target} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${target} PRIVATE ${arg_LIBS} benchmark::benchmark_main)
    set_target_properties(${target} PROPERTIES
                          RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench
                          BUILD_RPATH ${CMAKE_BINARY_DIR})
    add_dependencies(benchmarks ${target})
  endforeach()
endfunction()

# One libFuzzer program per source.
function(millrace_fuzzers)
  cmake_parse_arguments(arg "" "" "LIBS;SOURCES" ${ARGN})
  if(NOT MILLRACE_FUZZERS)
    return()
  endif()
  foreach(source ${arg_SOURCES})
    get_filename_component(target ${source} NAME_WE)
    add_executable(${target} EXCLUDE_FROM_ALL ${source})
    target_link_libraries(${target} PRIVATE ${arg_LIBS})
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
    set_target_properties(${target} PROPERTIES
                          RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
    add_dependencies(fuzzers ${target})
  endforeach()
endfunction()

function(millrace_library folder)
  cmake_parse_arguments(arg "" "" "TEST_DEPS;PCH" ${ARGN})
  list(TRANSFORM arg_UNPARSED_ARGUMENTS PREPEND mr_ OUTPUT_VARIABLE deps)
  # x_testing libraries exist only where tests do.
  list(TRANSFORM arg_TEST_DEPS REPLACE "(.+)" "$<TARGET_NAME_IF_EXISTS:mr_\\1>"
       OUTPUT_VARIABLE test_deps)
  millrace_glob(found)

  if(found_SOURCES)
    millrace_source_flags(${found_SOURCES})
    add_library(mr_${folder} STATIC ${found_SOURCES})
    if(NOT arg_PCH)
      target_precompile_headers(mr_${folder} REUSE_FROM mr_std_pch)
    else()
      target_precompile_headers(mr_${folder} PRIVATE ${arg_PCH})
    endif()
    set(scope PUBLIC)
    set_property(GLOBAL APPEND PROPERTY MILLRACE_LIBRARIES mr_${folder})
    millrace_isa_copies(${folder} ${found_SOURCES})
  else()
    add_library(mr_${folder} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(mr_${folder} ${scope} ${CMAKE_SOURCE_DIR})
  target_include_directories(mr_${folder} SYSTEM ${scope} ${MILLRACE_GEN_DIR})
  target_link_libraries(mr_${folder} ${scope} ${deps} Threads::Threads ${CMAKE_DL_LIBS})

  set(libs mr_${folder} ${test_deps})
  if(MILLRACE_TESTS AND GTest_FOUND)
    set(helped "")
    foreach(source ${found_TESTING})
      millrace_note(links ${source} test-links)
      set(library mr_${folder}_testing)
      if(links)
        set(library mr_${folder}_${links}_testing)
      endif()
      if(NOT TARGET ${library})
        add_library(${library} STATIC EXCLUDE_FROM_ALL)
        target_compile_options(${library} PRIVATE ${MILLRACE_TESTING_FLAGS})
        target_link_libraries(${library} PUBLIC ${libs} $<TARGET_NAME_IF_EXISTS:mr_${links}>
                                                GTest::gtest)
        if(NOT links)
          set(helped ${library})
        endif()
      endif()
      target_sources(${library} PRIVATE ${source})
    endforeach()
    list(PREPEND libs ${helped})
  endif()
  millrace_tests(${folder} LIBS ${libs} SOURCES ${found_TEST})
  millrace_benchmarks(LIBS ${libs} SOURCES ${found_BENCH})
  millrace_fuzzers(LIBS ${libs} SOURCES ${found_FUZZ})
endfunction()

# The standard headers that most sources include, for folders without a list of their own.
set(MILLRACE_STD_HEADERS <algorithm> <array> <atomic> <cmath> <complex> <cstring> <functional>
    <limits> <map> <memory> <optional> <set> <span> <string> <string_view> <unordered_map>
    <unordered_set> <utility> <variant> <vector>)
add_library(mr_std_pch OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/pch_owner.cc)
target_precompile_headers(mr_std_pch PRIVATE ${MILLRACE_STD_HEADERS})

# The same with GoogleTest's for all tests. An executable owns it, because the flags of owner and
# user must agree, -fPIE included.
if(MILLRACE_TESTS AND GTest_FOUND)
  add_executable(mr_gtest_pch EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/pch_owner.cc)
  target_compile_options(mr_gtest_pch PRIVATE ${MILLRACE_TEST_FLAGS})
  target_link_libraries(mr_gtest_pch PRIVATE GTest::gtest Threads::Threads)
  target_precompile_headers(mr_gtest_pch PRIVATE ${MILLRACE_STD_HEADERS} <gtest/gtest.h>)
endif()
