# libmillrace: the one library users link, made of the objects of every folder.

get_property(libraries GLOBAL PROPERTY MILLRACE_LIBRARIES)
set(objects "")
foreach(library ${libraries})
  list(APPEND objects $<TARGET_OBJECTS:${library}>)
endforeach()

add_library(millrace ${objects})
add_library(Millrace::millrace ALIAS millrace)
# Whoever links libmillrace may include the generated headers.
add_dependencies(millrace generated)
target_include_directories(millrace PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_include_directories(millrace SYSTEM PUBLIC $<BUILD_INTERFACE:${MILLRACE_GEN_DIR}>)
target_compile_features(millrace PUBLIC cxx_std_20)
target_link_libraries(millrace PUBLIC Threads::Threads PRIVATE ${CMAKE_DL_LIBS})
# protobuf appears in no installed header: only a static libmillrace passes it on.
target_link_libraries(millrace PRIVATE protobuf::libprotobuf)
foreach(library ZLIB JPEG PNG)
  if(MILLRACE_HAS_${library})
    target_link_libraries(millrace PRIVATE ${library}::${library})
  endif()
endforeach()
# libmillrace_grpc lies beside it.
set_target_properties(millrace PROPERTIES LINKER_LANGUAGE CXX BUILD_RPATH $ORIGIN
                                          INSTALL_RPATH $ORIGIN)
if(NOT SKBUILD)  # a wheel holds no links
  set_target_properties(millrace PROPERTIES VERSION ${PROJECT_VERSION}
                                            SOVERSION ${PROJECT_VERSION_MAJOR})
endif()
if(BUILD_SHARED_LIBS)
  target_link_options(millrace PRIVATE -Wl,-Bsymbolic-functions)
endif()

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Millrace)
install(TARGETS millrace EXPORT MillraceTargets)
install(EXPORT MillraceTargets NAMESPACE Millrace:: DESTINATION ${package_dir})
foreach(root ${CMAKE_SOURCE_DIR} ${MILLRACE_GEN_DIR})
  install(DIRECTORY ${root}/millrace DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h" PATTERN "*_testing.h" EXCLUDE)
endforeach()
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/MillraceConfig.cmake.in
                              ${CMAKE_BINARY_DIR}/MillraceConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/MillraceConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/MillraceConfig.cmake
              ${CMAKE_BINARY_DIR}/MillraceConfigVersion.cmake
        DESTINATION ${package_dir})
