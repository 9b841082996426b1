# The kernels: every source but select.c, int_select.c, geometry.c and threads.c is compiled once per instruction set, with the
# set's name as a suffix of its symbols; select.c chooses a table at start. Those of integers are compiled with and without dot
# products of int8 where a set has them on some machines; int_select.c chooses.

set(kernel_sources
    gemm/gemm.c gemm/matmul_kernel.c gemm/ordered_sum.c gemm/pack.c
    epilogue/activation.c epilogue/close.c epilogue/merge.c epilogue/row_load.c epilogue/sink.c epilogue/stat_rows.c
    elementwise/bf16_kernel.c elementwise/broadcast.c elementwise/elementwise.c elementwise/input_convert.c elementwise/softmax_kernel.c
    elementwise/prelu_kernel.c elementwise/scaled_kernel.c elementwise/unary_kernel.c
    norm/group_norm_kernel.c norm/layer_norm_kernel.c norm/norm.c norm/norm_grad.c norm/response_norm_kernel.c
    update/dense_loss.c update/dense_loss_rows.c update/loss.c update/optim.c update/sparse_rows.c
    pool/pool_forward.c pool/pool_grad.c pool/resize_kernel.c
    tokens/attention_kernel.c tokens/embedding_kernel.c
    depthwise/depthwise.c depthwise/depthwise_backward.c depthwise/depthwise_bias.c depthwise/depthwise_forward.c
    depthwise/depthwise_grad.c depthwise/depthwise_row.c
    conv/conv_epilogue.c conv/conv_forward.c conv/conv_grad.c conv/few_channels.c conv/few_channels_grad.c
    conv/few_channels_map.c conv/few_rows.c conv/grad_pack.c conv/grad_strip.c conv/input_strip.c conv/joint.c conv/joint_phases.c
    conv/many_rows.c conv/map_pack.c
    winograd/winograd.c winograd/winograd_grad.c winograd/winograd_strip.c
    dispatch/conv_calls.c dispatch/kernel_table.c)
list(TRANSFORM kernel_sources PREPEND src/kernels/)
set(int_sources
    integer/int_columns.c integer/int_columns_grad.c integer/int_conv.c integer/int_conv_grad.c integer/int_depthwise.c integer/int_depthwise_grad.c integer/int_few.c integer/int_gemm.c integer/int_runs.c
    integer/int_grow.c integer/int_lines.c integer/int_lines_grad.c integer/int_map.c integer/int_pack.c integer/int_pool.c integer/int_pool_grad.c integer/int_quantise.c integer/int_real.c integer/int_round.c integer/int_store.c
    dispatch/int_table.c)
list(TRANSFORM int_sources PREPEND src/kernels/)

if(DUNLIN_IS_X86_32)
  set(kernel_sets sse2)
  set(kernel_flags_sse2 "")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(kernel_sets avx512 avx2 sse2)
  set(kernel_flags_avx512 -mavx512f -mavx512vl -mavx512dq -mavx512bw -mfma -mavx2 -mprefer-vector-width=512)
  set(kernel_flags_avx2 -mavx2 -mfma)
  set(kernel_flags_sse2 "")
  # What select.c asks the processor for.
  set(kernel_needs_avx512 avx512f avx512vl avx512dq avx512bw fma)
  set(kernel_needs_avx2 avx2 fma)
  set(kernel_dot_avx512 vnni)
  set(kernel_dot_flags_avx512 -mavx512vnni)
  set(kernel_dot_avx2 vnni)
  set(kernel_dot_flags_avx2 -mavxvnni)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  set(kernel_sets neon)
  set(kernel_flags_neon "")
  set(kernel_dot_neon dotprod)
  set(kernel_dot_flags_neon -march=armv8.2-a+dotprod)
else()
  set(kernel_sets "")
endif()
set(default_sets ${kernel_sets})
# Vectors of the compiler's own, without intrinsics: the only set of other processors, and one more of these if asked for.
list(APPEND kernel_sets generic)
set(kernel_flags_generic -DDUNLIN_GENERIC)
if(NOT default_sets)
  set(default_sets generic)
endif()
# Fewer sets than the processor could run, for a smaller program. "native": those that this machine can run, "baseline":
# the one that every machine can run; for builds with sanitizers, which take long to compile and whose tests run here.
set(DUNLIN_INSTRUCTION_SETS "${default_sets}" CACHE STRING "Instruction sets of the kernels: ${kernel_sets}, or native, or baseline")
if(DUNLIN_INSTRUCTION_SETS STREQUAL "native")
  include(CheckCSourceRuns)
  set(chosen_sets ${default_sets})
  foreach(set IN LISTS default_sets)
    set(tests 1)
    foreach(need IN LISTS kernel_needs_${set})
      string(APPEND tests " && __builtin_cpu_supports(\"${need}\")")
    endforeach()
    if(kernel_needs_${set})
      check_c_source_runs("int main(void) { return ${tests} ? 0 : 1; }" DUNLIN_RUNS_${set})
      if(NOT DUNLIN_RUNS_${set})
        list(REMOVE_ITEM chosen_sets ${set})
      endif()
    endif()
  endforeach()
elseif(DUNLIN_INSTRUCTION_SETS STREQUAL "baseline")
  list(GET default_sets -1 chosen_sets)
else()
  set(chosen_sets ${DUNLIN_INSTRUCTION_SETS})
endif()
foreach(set IN LISTS chosen_sets)
  if(NOT set IN_LIST kernel_sets)
    message(FATAL_ERROR "DUNLIN_INSTRUCTION_SETS: no kernels for ${set}; there are: ${kernel_sets}; native and baseline choose")
  endif()
endforeach()
set(kernel_sets ${chosen_sets})

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

add_library(dunlin_kernels OBJECT src/kernels/dispatch/select.c src/kernels/dispatch/int_select.c src/kernels/gemm/geometry.c
  src/kernels/parallel/threads.c)
dunlin_kernel_objects(dunlin_kernels)
target_include_directories(dunlin_kernels PRIVATE ${PROJECT_SOURCE_DIR}/memory/internal/base)

# dunlin_int_objects(SUFFIX NAME FLAGS... ): the integer kernels once, NAME as their table tells it.
function(dunlin_int_objects suffix name)
  add_library(dunlin_kernels_int_${suffix} OBJECT ${int_sources})
  target_compile_definitions(dunlin_kernels_int_${suffix} PRIVATE DUNLIN_ISA=${suffix} DUNLIN_INT_NAME="${name}")
  dunlin_kernel_objects(dunlin_kernels_int_${suffix} ${ARGN})
  string(TOUPPER ${suffix} suffix_upper)
  target_compile_definitions(dunlin_kernels PRIVATE DUNLIN_HAS_INT_${suffix_upper})
endfunction()

include(CheckCCompilerFlag)
foreach(set IN LISTS kernel_sets)
  add_library(dunlin_kernels_${set} OBJECT ${kernel_sources})
  target_compile_definitions(dunlin_kernels_${set} PRIVATE DUNLIN_ISA=${set})
  dunlin_kernel_objects(dunlin_kernels_${set} ${kernel_flags_${set}})
  string(TOUPPER ${set} set_upper)
  target_compile_definitions(dunlin_kernels PRIVATE DUNLIN_HAS_${set_upper})
  set(dot ${kernel_dot_${set}})
  if(dot)
    check_c_compiler_flag(${kernel_dot_flags_${set}} DUNLIN_COMPILES_DOT_${set_upper})
    if(DUNLIN_COMPILES_DOT_${set_upper})
      dunlin_int_objects(${set}_${dot} ${set}+${dot} ${kernel_flags_${set}} ${kernel_dot_flags_${set}} -DDUNLIN_HAS_DOT)
    endif()
    dunlin_int_objects(${set} ${set}-${dot} ${kernel_flags_${set}})
  else()
    dunlin_int_objects(${set} ${set} ${kernel_flags_${set}})
  endif()
endforeach()
