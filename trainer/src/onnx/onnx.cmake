# The reduced ONNX schema, compiled by nanopb into the build folder.

set(onnx_out ${CMAKE_CURRENT_BINARY_DIR}/onnx)
set(onnx_in ${CMAKE_CURRENT_LIST_DIR})
file(MAKE_DIRECTORY ${onnx_out})
add_custom_command(
  OUTPUT ${onnx_out}/onnx.pb.c ${onnx_out}/onnx.pb.h
  COMMAND ${DUNLIN_NANOPB_GENERATOR} -q -I ${onnx_in} -D ${onnx_out} ${onnx_in}/onnx.proto
  DEPENDS ${onnx_in}/onnx.proto ${onnx_in}/onnx.options
  COMMENT "Compiling the ONNX schema"
  VERBATIM)
add_custom_target(dunlin_onnx_generated DEPENDS ${onnx_out}/onnx.pb.c ${onnx_out}/onnx.pb.h)
target_sources(dunlin_trainer PRIVATE ${onnx_out}/onnx.pb.c ${onnx_out}/onnx.pb.h)
target_include_directories(dunlin_trainer SYSTEM PRIVATE ${onnx_out})
