# Helpers of the build: what a layer is, and what every target of ours is compiled with.

set(DUNLIN_WARNINGS
    -Wall -Wextra -Wpedantic -Wconversion -Wdouble-promotion -Wshadow
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes> -Wundef -Wvla -Wcast-qual -Wwrite-strings -Wpointer-arith -Wformat=2
    -Wswitch-enum)

# 32-bit x86 computes in SSE2's registers, and so to the bits of x86-64; x87's are wider than what is kept in memory.
if(CMAKE_SIZEOF_VOID_P EQUAL 4 AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(i[3-6]86|x86|x86_64|AMD64|amd64)$")
  set(DUNLIN_IS_X86_32 ON)
else()
  set(DUNLIN_IS_X86_32 OFF)
endif()

# dunlin_flags(TARGET): warnings, sanitizers, and floating point that no compiler may contract. Files and times have 64
# bits on every system whose C library gives a choice.
function(dunlin_flags target)
  target_compile_options(${target} PRIVATE ${DUNLIN_WARNINGS} -ffp-contract=off -fno-math-errno)
  target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L _DEFAULT_SOURCE
                                               _FILE_OFFSET_BITS=64 _TIME_BITS=64)
  if(DUNLIN_IS_X86_32)
    target_compile_options(${target} PRIVATE -msse2 -mfpmath=sse)
  endif()
  # What each function takes of the stack, in a .su file beside the object: tests/lint/stack.py.
  if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_BUILD_TYPE STREQUAL Release AND PROJECT_IS_TOP_LEVEL)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C>:-fstack-usage>)
  endif()
  if(DUNLIN_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(DUNLIN_FUZZ)
    # Coverage, which libFuzzer is led by; its main() comes with the targets alone.
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(DUNLIN_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${DUNLIN_SANITIZE} -fno-omit-frame-pointer)
    target_link_options(${target} PRIVATE -fsanitize=${DUNLIN_SANITIZE})
    if(DUNLIN_SANITIZE MATCHES "undefined")
      target_compile_options(${target} PRIVATE -fno-sanitize-recover=all)
    endif()
  endif()
endfunction()

# dunlin_layer(NAME SOURCES file... [USES layer-or-library...] [INTERNAL folder]): an object library dunlin_NAME. Its
# include/ and internal/ folders (of two libraries in one folder, INTERNAL says whose is which) are seen by whoever USES
# it, its src/ by itself alone, so an upward include does not compile.
# A library without a folder of its own (NAME holds an underscore, as learner_builtin) gives its FOLDER.
function(dunlin_layer name)
  cmake_parse_arguments(LAYER "" "INTERNAL" "SOURCES;USES" ${ARGN})
  if(NOT LAYER_INTERNAL)
    set(LAYER_INTERNAL internal)
  endif()
  set(target dunlin_${name})
  add_library(${target} OBJECT ${LAYER_SOURCES})
  target_include_directories(${target}
    PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
           $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/${LAYER_INTERNAL}>
    PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC ${LAYER_USES})
  dunlin_flags(${target})
  set_property(GLOBAL APPEND PROPERTY DUNLIN_LAYERS ${target})
endfunction()

# dunlin_beside_objects(LIBRARY LAYER SOURCES file...): the part of a library beside the app's ("baselines", "tools") that
# lies in a layer's src/ and sees all of it.
function(dunlin_beside_objects library layer)
  cmake_parse_arguments(PART "" "" "SOURCES" ${ARGN})
  set(target dunlin_${layer}_${library})
  add_library(${target} OBJECT ${PART_SOURCES})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${target} PUBLIC dunlin_${layer})
  dunlin_flags(${target})
  set_property(GLOBAL APPEND PROPERTY DUNLIN_BESIDE_${library} $<TARGET_OBJECTS:${target}>)
endfunction()

# dunlin_program(NAME SOURCES file... [USES target...]): a program in bin/.
function(dunlin_program name)
  cmake_parse_arguments(PROGRAM "" "" "SOURCES;USES" ${ARGN})
  add_executable(${name} ${PROGRAM_SOURCES})
  target_link_libraries(${name} PRIVATE ${PROGRAM_USES})
  dunlin_flags(${name})
endfunction()

set(DUNLIN_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_DIR}/embed.cmake)

# dunlin_embed(C_NAME FILE OUT_VAR): FILE as the array C_NAME in a source whose path goes to OUT_VAR.
function(dunlin_embed name input out_var)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DNAME=${name} -DOUTPUT=${output} -P ${DUNLIN_EMBED_SCRIPT}
    DEPENDS ${input} ${DUNLIN_EMBED_SCRIPT}
    VERBATIM)
  set(${out_var} ${output} PARENT_SCOPE)
endfunction()
