# SPDX-License-Identifier: Apache-2.0
# How a layer and its tests are declared. A layer is one folder, one static library, and the unit tests beside the code.
find_program(VERBENA_CCACHE ccache)
if(VERBENA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # What one clone compiled serves the next.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${VERBENA_CCACHE})
endif()

add_library(verbena_options INTERFACE)
target_include_directories(verbena_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
target_compile_options(verbena_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion -Wold-style-cast -Wnon-virtual-dtor
  -Woverloaded-virtual -Wimplicit-fallthrough)
if(PROJECT_IS_TOP_LEVEL)  # the compiler of another project may know warnings that nobody here has seen
  target_compile_options(verbena_options INTERFACE -Werror)
endif()
if(VERBENA_SANITIZE)
  target_compile_options(verbena_options INTERFACE
    -fsanitize=${VERBENA_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(verbena_options INTERFACE -fsanitize=${VERBENA_SANITIZE})
  # clang 14 cannot assemble the prologues this check gives to coroutines.
  target_compile_options(verbena_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
endif()
if(VERBENA_BUILD_FUZZERS)
  # Coverage for libFuzzer in the code itself; the sanitizer's runtime brings the symbols it calls.
  target_compile_options(verbena_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
find_package(Threads REQUIRED GLOBAL)  # here and below: who links the library elsewhere must know it, too

# A message goes through a hundred functions of eight layers: what is linked as a whole takes a fifth less time for it.
# Tests link the same objects as they are, in a moment.
option(VERBENA_LTO "Optimise libverbena and the programs that are measured as a whole (g++ only)" OFF)
set(VERBENA_LTO_COMPILE "")
if(VERBENA_LTO AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(VERBENA_LTO_COMPILE -flto -ffat-lto-objects)
  add_link_options(-fno-use-linker-plugin)  # but for verbena_optimise_whole()
endif()
function(verbena_optimise_whole)
  foreach(target IN LISTS ARGN)
    if(VERBENA_LTO_COMPILE)
      target_link_options(${target} PRIVATE -fuse-linker-plugin -flto=auto ${VERBENA_TUNING})
    endif()
  endforeach()
endfunction()

# A small message is a hundred small structures: set member by member, copied, read. By itself g++ clears and copies
# them by string instructions, which take some 30 cycles to begin, and reads two members at once, which then waits for
# their stores to reach the cache.
set(VERBENA_TUNING "")
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  set(tuning -fno-tree-slp-vectorize -mtune-ctrl=^sse_unaligned_load_optimal,^sse_unaligned_store_optimal)
  foreach(what memcpy memset)
    list(APPEND tuning -m${what}-strategy=unrolled_loop:256:noalign,libcall:-1:noalign)
  endforeach()
  include(CheckCXXCompilerFlag)
  list(JOIN tuning " " flags)
  check_cxx_compiler_flag("${flags}" VERBENA_TAKES_TUNING)
  if(VERBENA_TAKES_TUNING)
    set(VERBENA_TUNING ${tuning})
  endif()
endif()

# verbena_join(TARGETS...): compiles their sources together. Most of a compiler's time goes to what all of them include.
# What one keeps to itself has a name that none of the others has; tests/house/tidy.py reads a folder so, too.
function(verbena_join)
  set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10)
endfunction()
# A layer that is joined is quicker, too, where nothing else optimises across sources. Apart, in the presets dev and
# release, a source that leans on its neighbour's includes is found out.
option(VERBENA_JOIN_LAYERS "Compile the sources of a layer together" ON)
option(VERBENA_JOIN_TESTS "Compile the sources of a test program together" OFF)

# verbena_layer(NAME DEPENDS libs... [LINK libs...] [OUTSIDE])
# Library verbena_NAME from every *.cc of this folder that is not a test; test program NAME_test from every *_test.cc.
# It becomes a part of libverbena, unless it stands OUTSIDE.
function(verbena_layer name)
  cmake_parse_arguments(arg "OUTSIDE" "" "DEPENDS;LINK" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  list(REMOVE_ITEM sources ${tests})
  list(TRANSFORM arg_DEPENDS PREPEND verbena_)
  if(sources)
    add_library(verbena_${name} STATIC ${sources})
    target_link_libraries(verbena_${name} PUBLIC verbena_options ${arg_DEPENDS} ${arg_LINK})
    # cmake/verbena.map.in says what the library shows, whatever a project wants that this one is a part of.
    set_target_properties(verbena_${name} PROPERTIES
      POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET default VISIBILITY_INLINES_HIDDEN OFF)
    # Nobody puts another function in the place of one of ours: within a file they are inlined all the same.
    target_compile_options(verbena_${name} PRIVATE -fno-semantic-interposition ${VERBENA_TUNING} ${VERBENA_LTO_COMPILE})
    if(VERBENA_JOIN_LAYERS)
      verbena_join(verbena_${name})
      # g++ takes a joined source for a header; the real ones are looked at where layers are not joined.
      target_compile_options(verbena_${name} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
    endif()
    if(NOT arg_OUTSIDE)
      set_property(GLOBAL APPEND PROPERTY VERBENA_LAYERS verbena_${name})
    endif()
  else()
    add_library(verbena_${name} INTERFACE)
    target_link_libraries(verbena_${name} INTERFACE verbena_options ${arg_DEPENDS} ${arg_LINK})
  endif()
  if(VERBENA_BUILD_TESTS AND tests)
    verbena_test(${name}_test SOURCES ${tests} LINK verbena_${name})
  endif()
endfunction()

# verbena_sample(TESTS...): a sanitizer sees every fifth of what they test. They do the same in a great many ways, and
# the release tree does them all. Five has no factor in common with the number of messaging's kinds: each is among them.
function(verbena_sample)
  if(VERBENA_SANITIZE)
    set_tests_properties(${ARGN} PROPERTIES ENVIRONMENT "GTEST_TOTAL_SHARDS=5;GTEST_SHARD_INDEX=0")
  endif()
endfunction()

# verbena_without_models(TESTS...): a model is one thread, in which ThreadSanitizer has nothing to find.
function(verbena_without_models)
  if(VERBENA_SANITIZE STREQUAL thread)
    set_tests_properties(${ARGN} PROPERTIES ENVIRONMENT "GTEST_FILTER=-*Model*.*")
  endif()
endfunction()

# verbena_test(NAME SOURCES files... LINK libs... [LABELS labels...]): one gtest program, one ctest entry.
set(VERBENA_TEST_TIMEOUT 900)
# A test computes little itself, and makes a compiler do much. But for models, which visit millions of states.
set(VERBENA_MODEL_TESTS ring_test local_test)
# They begin first, and two cores end together.
set(VERBENA_LONG_TESTS
  messaging_virtual_faults_test messaging_faults_test ring_test local_test messaging_protocols_test udp_test faults_test
  api_test)
function(verbena_test name)
  if(NOT TARGET verbena_test_main)
    add_library(verbena_test_main OBJECT ${PROJECT_SOURCE_DIR}/tests/test_main.cc)
    target_compile_definitions(verbena_test_main PRIVATE VERBENA_TEST_TIMEOUT=${VERBENA_TEST_TIMEOUT})
    target_link_libraries(verbena_test_main PUBLIC verbena_options GTest::gmock GTest::gtest)
  endif()
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE
    ${arg_LINK} verbena_options verbena_test_main GTest::gmock GTest::gtest Threads::Threads)
  if(NOT VERBENA_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT name IN_LIST VERBENA_MODEL_TESTS)
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-Og>)
  endif()
  if(VERBENA_JOIN_TESTS)
    verbena_join(${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS "unit;${arg_LABELS}" TIMEOUT ${VERBENA_TEST_TIMEOUT})
  list(FIND VERBENA_LONG_TESTS ${name} place)
  if(NOT place EQUAL -1)
    math(EXPR cost "1000 - ${place}")
    set_tests_properties(${name} PROPERTIES COST ${cost})
  endif()
endfunction()
