# Steps, exactness and changing budgets with the kernels of each instruction set of this machine, whatever its best one
# is: few cases with the release build's tests, all of them with the long ones.
if(CMAKE_CROSSCOMPILING OR NOT TARGET test_step)
  return()
endif()
dunlin_program(has_isa SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/support/has_isa.c USES dunlin_internal)
target_include_directories(has_isa PRIVATE ${PROJECT_SOURCE_DIR}/trainer/src)
set_target_properties(has_isa PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

function(dunlin_isa_test isa name cases label)
  add_test(NAME ${name}_${isa}_${label}
    COMMAND ${PROJECT_SOURCE_DIR}/tests/support/on_isa.sh $<TARGET_FILE:has_isa> ${isa} $<TARGET_FILE:${name}> ${ARGN})
  set_tests_properties(${name}_${isa}_${label} PROPERTIES
    LABELS ${label} ENVIRONMENT DUNLIN_CASES=${cases} TIMEOUT 3600 SKIP_RETURN_CODE 77)
endfunction()

foreach(isa sse2 avx2 avx512 generic)
  dunlin_isa_test(${isa} test_step 0.02 steps --filter "@(adapt|bits|finite|fit|state)/*")
  dunlin_isa_test(${isa} test_exact 0.05 steps)
  dunlin_isa_test(${isa} test_exact 4 long)
  dunlin_isa_test(${isa} test_plans 3 long)
  foreach(name test_step test_exact_zoo test_adapt_zoo)
    dunlin_isa_test(${isa} ${name} 1 long)
  endforeach()
endforeach()
