# The kernels: every source but select.c, geometry.c and threads.c is compiled once per instruction set, with the set's name as a
# suffix of its symbols; select.c chooses a table at start.

set(kernel_sources gemm.c pack.c strip.c conv.c finish.c merge.c conv_grad.c grad_pack.c grad_strip.c turns.c few.c dense.c joint.c joint_phases.c small.c small_grad.c winograd.c winograd_grad.c fused.c depthwise.c
    depthwise_grad.c depthwise_forward.c depthwise_backward.c depthwise_row.c
    depthwise_bias.c pool.c pool_grad.c pointwise.c close.c sink.c group_norm.c layer_norm.c
    norm.c norm_grad.c loss.c optim.c rows.c stage.c unary.c walk.c
    embedding.c softmax.c matmul.c attention.c table.c)
list(TRANSFORM kernel_sources PREPEND src/kernels/)

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(kernel_sets avx512 avx2 sse2)
  set(kernel_flags_avx512 -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -mavx2 -mprefer-vector-width=512)
  set(kernel_flags_avx2 -mavx2 -mfma)
  set(kernel_flags_sse2 "")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(kernel_sets neon)
  set(kernel_flags_neon "")
else()
  message(FATAL_ERROR "no kernels for ${CMAKE_SYSTEM_PROCESSOR}: x86-64 and arm64 are supported")
endif()
# Fewer sets than the processor could run, for a smaller program or to build for the baseline alone.
set(DUNLIN_INSTRUCTION_SETS "${kernel_sets}" CACHE STRING "Instruction sets of the kernels: ${kernel_sets}")
foreach(set IN LISTS DUNLIN_INSTRUCTION_SETS)
  if(NOT set IN_LIST kernel_sets)
    message(FATAL_ERROR "DUNLIN_INSTRUCTION_SETS: no kernels for ${set}; there are: ${kernel_sets}")
  endif()
endforeach()
set(kernel_sets ${DUNLIN_INSTRUCTION_SETS})

# Kernels are optimised in every build: a debug build that trains a hundred times slower helps nobody.
if(DUNLIN_SANITIZE)
  set(kernel_optimisation -O1)
else()
  set(kernel_optimisation -O3)
endif()

# dunlin_kernel_objects(TARGET FLAGS... ): one object library of the layer.
function(dunlin_kernel_objects target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/src>)
  target_link_libraries(${target} PUBLIC dunlin_dep_pthreadpool m)
  dunlin_flags(${target})
  # Comparisons may be made branchless; no value changes by it.
  target_compile_options(${target} PRIVATE ${kernel_optimisation} -fno-trapping-math ${ARGN})
  if(DUNLIN_FUZZ)
    # No fuzz target runs one, and to follow their ways takes the compiler minutes a file.
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
  set_property(GLOBAL APPEND PROPERTY DUNLIN_LAYERS ${target})
endfunction()

add_library(dunlin_kernels OBJECT src/kernels/select.c src/kernels/geometry.c src/kernels/threads.c)
dunlin_kernel_objects(dunlin_kernels)
foreach(set IN LISTS kernel_sets)
  add_library(dunlin_kernels_${set} OBJECT ${kernel_sources})
  target_compile_definitions(dunlin_kernels_${set} PRIVATE DUNLIN_ISA=${set})
  dunlin_kernel_objects(dunlin_kernels_${set} ${kernel_flags_${set}})
  string(TOUPPER ${set} set_upper)
  target_compile_definitions(dunlin_kernels PRIVATE DUNLIN_HAS_${set_upper})
endforeach()
