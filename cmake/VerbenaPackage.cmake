# SPDX-License-Identifier: Apache-2.0
# What users get: libverbena, shared and static, from the objects of the layers; install rules, a CMake package, a
# pkg-config file, Debian packages. The one version is that of project().
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
find_package(tl-expected REQUIRED GLOBAL)

# Until 1.0 every minor version may change the ABI.
set(abi ${PROJECT_VERSION_MAJOR})
if(abi EQUAL 0)
  set(abi ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
endif()
set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/verbena)
set(made ${PROJECT_BINARY_DIR}/package)

get_property(layers GLOBAL PROPERTY VERBENA_LAYERS)
list(TRANSFORM layers REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
foreach(kind IN ITEMS shared static)
  string(TOUPPER ${kind} type)
  add_library(verbena_${kind} ${type} ${objects})
  set_target_properties(verbena_${kind} PROPERTIES
    OUTPUT_NAME verbena EXPORT_NAME ${kind} LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${abi}
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
  target_link_libraries(verbena_${kind} PRIVATE isal Threads::Threads INTERFACE tl::expected)
  target_include_directories(verbena_${kind} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(verbena_${kind} INTERFACE cxx_std_20)
  if(VERBENA_SANITIZE)
    target_link_options(verbena_${kind} PUBLIC -fsanitize=${VERBENA_SANITIZE})
  endif()
  add_library(verbena::${kind} ALIAS verbena_${kind})
endforeach()
# As find_package(verbena) has them.
if(DEFINED BUILD_SHARED_LIBS AND NOT BUILD_SHARED_LIBS)
  add_library(verbena::verbena ALIAS verbena_static)
else()
  add_library(verbena::verbena ALIAS verbena_shared)
endif()
# Shows the public names alone, and refuses to leave one undefined. Another project may sanitize: with clang only a
# program has the names of that.
configure_file(${PROJECT_SOURCE_DIR}/cmake/verbena.map.in ${made}/verbena.map @ONLY)
target_link_options(verbena_shared PRIVATE -Wl,--version-script=${made}/verbena.map
  -Wl,-z,nodelete)  # a fork and a thread of ours find it where it was
if(PROJECT_IS_TOP_LEVEL)
  target_link_options(verbena_shared PRIVATE -Wl,--no-undefined)
endif()
verbena_optimise_whole(verbena_shared)
if(VERBENA_LTO_COMPILE)
  # Who links the static library does it in a moment, whatever the compiler.
  add_custom_command(TARGET verbena_static POST_BUILD VERBATIM COMMAND ${CMAKE_OBJCOPY}
    --wildcard --remove-section=.gnu.lto_* --remove-section=.gnu.debuglto_* --strip-symbol=__gnu_lto_*
    $<TARGET_FILE:verbena_static>)
endif()
set_target_properties(verbena_shared PROPERTIES LINK_DEPENDS ${made}/verbena.map)

if(NOT VERBENA_INSTALL OR VERBENA_SANITIZE)
  return()
endif()
# ---- Files. Components: library (what programs need to run), dev (to be built), utils (the tools).
install(TARGETS verbena_shared EXPORT verbenaTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT dev)
install(TARGETS verbena_static EXPORT verbenaTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT dev)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/verbena DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev
  FILES_MATCHING PATTERN "*.h")

install(EXPORT verbenaTargets NAMESPACE verbena:: DESTINATION ${config_folder} COMPONENT dev)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/verbenaConfig.cmake.in ${made}/verbenaConfig.cmake
  INSTALL_DESTINATION ${config_folder})
set(compatible SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatible SameMinorVersion)
endif()
write_basic_package_version_file(${made}/verbenaConfigVersion.cmake COMPATIBILITY ${compatible})
install(FILES ${made}/verbenaConfig.cmake ${made}/verbenaConfigVersion.cmake
  DESTINATION ${config_folder} COMPONENT dev)

# The file finds its prefix from where it lies, at any depth of the library folder.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
  BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE up_to_prefix)
foreach(folder IN ITEMS LIBDIR INCLUDEDIR)  # an absolute one stays as it is
  cmake_path(APPEND pkg_config_${folder} "\${prefix}" "${CMAKE_INSTALL_${folder}}")
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/verbena.pc.in ${made}/verbena.pc @ONLY)
install(FILES ${made}/verbena.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

if(TARGET verbena_command)
  install(TARGETS verbena_command DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT utils)
  # Manual pages, and what bash asks to complete a command: made with the tools, by the command itself.
  install(DIRECTORY ${PROJECT_BINARY_DIR}/tools/generated/man1/
    DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT utils)
  install(FILES ${PROJECT_BINARY_DIR}/tools/generated/completions/verbena
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT utils)
endif()

if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
# ---- Debian packages: cpack -G DEB.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The Verbena developers")
set(CPACK_PACKAGE_CONTACT "The Verbena developers <verbena@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_COMPONENTS_ALL library dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libverbena${abi})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "Runs programs that use the Verbena library: a C++ library for RDMA\n\
 with a software device of its own, RoCEv2 in user space.")
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libverbena-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
# Exactly this library; what the headers include; what the static library leaves to be linked.
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "libverbena${abi} (= ${PROJECT_VERSION}), libexpected-dev, libisal-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "Headers, the static library, the CMake package and the pkg-config file\n\
 for programs that use the Verbena library.")
if(TARGET verbena_command)
  list(APPEND CPACK_COMPONENTS_ALL utils)
  set(CPACK_DEBIAN_UTILS_PACKAGE_NAME verbena-utils)
  set(CPACK_DEBIAN_UTILS_PACKAGE_SECTION net)
  set(CPACK_COMPONENT_UTILS_DESCRIPTION "The verbena command: moves files by RDMA, measures, captures, simulates,\n\
 with or without an RDMA NIC.")
endif()
foreach(component IN LISTS CPACK_COMPONENTS_ALL)
  string(TOUPPER ${component} upper)
  set(documents ${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${documents} COMPONENT ${component} RENAME copyright)
endforeach()
include(CPack)
