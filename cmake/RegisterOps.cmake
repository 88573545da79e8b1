# millrace_register_ops(<target> <family> <folder>)
#
# Gives the target register_<family>_ops() of a folder of millrace/: the calls of
# register_x(Registry&), for every source x.cc that has such a function, in the order of names. Where
# two folders have an x.cc the function is register_<family>_x(). The functions are in the namespace
# that their sources begin with. The calls are written to gen/millrace/<folder>/register.cc when a
# source of the folder changes, by this file run as a script, with FAMILY, FOLDER and OUT set; a
# source whose function has another name is an error.

if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(MILLRACE_REGISTER_OPS ${CMAKE_CURRENT_LIST_FILE})

  function(millrace_register_ops target family folder)
    set(path ${CMAKE_SOURCE_DIR}/millrace/${folder})
    set(out ${MILLRACE_GEN_DIR}/millrace/${folder}/register.cc)
    file(GLOB sources CONFIGURE_DEPENDS ${path}/*.cc)
    list(FILTER sources EXCLUDE REGEX "_(test|testing|bench|fuzz)\\.cc$")
    add_custom_command(OUTPUT ${out}
                       COMMAND ${CMAKE_COMMAND} -DFAMILY=${family} -DFOLDER=${path}
                               -DOUT=${out} -P ${MILLRACE_REGISTER_OPS}
                       DEPENDS ${sources} ${MILLRACE_REGISTER_OPS}
                       COMMENT "Collecting the ops of millrace/${folder}" VERBATIM)
    target_sources(${target} PRIVATE ${out})
  endfunction()
  return()
endif()

cmake_minimum_required(VERSION 3.22)
file(GLOB sources ${FOLDER}/*.cc)
list(FILTER sources EXCLUDE REGEX "_(test|testing|bench|fuzz)\\.cc$")
list(SORT sources)
set(functions "")
set(space millrace)
foreach(source ${sources})
  get_filename_component(name ${source} NAME_WE)
  file(STRINGS ${source} lines REGEX "^void register_[a-z0-9_]+\\(Registry& [a-z_]+\\) {")
  string(REGEX MATCHALL "void register_[a-z0-9_]+\\(" found "${lines}")
  list(TRANSFORM found REPLACE "void (.*)\\(" "\\1")
  if("register_${name}" IN_LIST found)
    list(APPEND functions register_${name})
  elseif("register_${FAMILY}_${name}" IN_LIST found)
    list(APPEND functions register_${FAMILY}_${name})
  elseif(found)
    message(FATAL_ERROR "${source} registers its ops in ${found}; expected "
                        "void register_${name}(Registry& registry)")
  endif()
  if(found)
    file(STRINGS ${source} space REGEX "^namespace millrace(::[a-z]+)? {" LIMIT_COUNT 1)
    string(REGEX REPLACE "^namespace (.*) {" "\\1" space "${space}")
  endif()
endforeach()

set(text "// Written by cmake/RegisterOps.cmake.\n\n#include \"millrace/ops/register_ops.h\"\n")
string(APPEND text "\nnamespace ${space} {\n")
foreach(function ${functions})
  string(APPEND text "void ${function}(Registry& registry);\n")
endforeach()
string(APPEND text "}  // namespace ${space}\n\nnamespace millrace {\n\n")
string(APPEND text "void register_${FAMILY}_ops(Registry& registry) {\n")
foreach(function ${functions})
  string(APPEND text "  ${space}::${function}(registry);\n")
endforeach()
string(APPEND text "}\n\n}  // namespace millrace\n")
# Unless the calls are others the file is left alone, and nothing compiled anew.
file(CONFIGURE OUTPUT ${OUT} CONTENT "${text}" @ONLY)
