# Reads with NM the symbols of OBJECTS, sources compiled for the instruction set ISA, and fails if
# they define an inline function, template or variable outside of the namespace isa_<ISA>: the linker
# keeps one of all equally named copies, and a machine without the instruction set might call it. Run
# with cmake -P.

foreach(object ${OBJECTS})
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols
                  RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${NM} cannot read ${object}")
  endif()
  # Weak ones and those of which a process has one: W, V, u.
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]+" shared "${symbols}")
  list(FILTER shared EXCLUDE REGEX "isa_${ISA}")
  if(shared)
    list(JOIN shared "\n  " shared)
    message(SEND_ERROR "${object} defines for all of the program:\n  ${shared}\n"
                       "Write MR_VECTOR_FN, or move it into MR_ISA_NAMESPACE or the baseline.")
  endif()
endforeach()
