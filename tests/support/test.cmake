# dunlin_test(NAME SOURCES file... [USES target...] [LABELS label...] [TIMEOUT seconds] [COST seconds]): a Criterion program
# over the whole library, private headers included, registered with ctest; the costliest begin first.
find_path(DUNLIN_CRITERION_INCLUDE criterion/criterion.h)
find_library(DUNLIN_CRITERION criterion)
if(NOT DUNLIN_CRITERION_INCLUDE OR NOT DUNLIN_CRITERION)
  message(FATAL_ERROR "Criterion is missing; on Debian and Ubuntu: apt-get install libcriterion-dev, "
                      "or configure with -DDUNLIN_TESTS=OFF")
endif()

function(dunlin_test name)
  cmake_parse_arguments(TEST "" "TIMEOUT;COST;FILTER" "SOURCES;USES;LABELS" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 600)
  endif()
  dunlin_program(${name} SOURCES ${TEST_SOURCES} USES dunlin_internal dunlin_test_support ${TEST_USES})
  target_include_directories(${name} SYSTEM PRIVATE ${DUNLIN_CRITERION_INCLUDE})
  target_link_libraries(${name} PRIVATE ${DUNLIN_CRITERION})
  # Criterion's Test() macro declares its functions itself, and its assertions need the GNU comma.
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes -Wno-pedantic -Wno-declaration-after-statement -Wno-conversion -Wno-double-promotion)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(CMAKE_CROSSCOMPILING)
    # Criterion executes the program again for each test; the emulator must be asked then too.
    list(GET CMAKE_CROSSCOMPILING_EMULATOR 0 emulator)
    find_program(DUNLIN_EMULATOR ${emulator} REQUIRED)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/emulated.c)
    target_compile_definitions(${name} PRIVATE DUNLIN_EMULATED)
    set_property(SOURCE ${PROJECT_SOURCE_DIR}/tests/support/emulated.c APPEND PROPERTY COMPILE_DEFINITIONS
      DUNLIN_EMULATOR="${DUNLIN_EMULATOR}" DUNLIN_EMULATOR_ROOT="${CMAKE_SYSROOT}")
  endif()
  if(TEST_FILTER)
    add_test(NAME ${name} COMMAND ${name} --filter ${TEST_FILTER})
  else()
    add_test(NAME ${name} COMMAND ${name})
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT ${TEST_TIMEOUT})
  if(TEST_COST)
    set_tests_properties(${name} PROPERTIES COST ${TEST_COST})
  endif()
  if(CMAKE_CROSSCOMPILING)
    # qemu's own allocator has a lock that a fork may find taken, and then for ever; malloc's are freed in the child.
    set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT G_SLICE=always-malloc)
  endif()
endfunction()
