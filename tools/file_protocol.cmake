# SPDX-License-Identifier: Apache-2.0
# The messages of file transfers, with their test. In a file of its own: the fuzzers' tree builds no tools.
if(NOT TARGET verbena_file_protocol)
  add_library(verbena_file_protocol STATIC
    ${CMAKE_CURRENT_LIST_DIR}/file_protocol.cc ${CMAKE_CURRENT_LIST_DIR}/safe_path.cc)
  target_include_directories(verbena_file_protocol PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(verbena_file_protocol PUBLIC verbena_options verbena_base)
  if(VERBENA_BUILD_TESTS)
    verbena_test(file_protocol_test LINK verbena_file_protocol
      SOURCES ${CMAKE_CURRENT_LIST_DIR}/file_protocol_test.cc ${CMAKE_CURRENT_LIST_DIR}/safe_path_test.cc)
  endif()
endif()
