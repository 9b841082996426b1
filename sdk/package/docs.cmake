# The target docs: pages of the public headers in BUILD/docs/html, where doxygen is installed.

set(DUNLIN_DOCS_OUTPUT ${PROJECT_BINARY_DIR}/docs)
set(DUNLIN_DOCS_INPUT)
foreach(folder IN LISTS public_headers)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder})
    string(APPEND DUNLIN_DOCS_INPUT " \"${PROJECT_SOURCE_DIR}/${folder}\"")
  endif()
endforeach()
set(DUNLIN_DOCS_STRIP ${DUNLIN_DOCS_INPUT})
configure_file(${CMAKE_CURRENT_LIST_DIR}/Doxyfile.in ${DUNLIN_DOCS_OUTPUT}/Doxyfile @ONLY)

find_program(DUNLIN_DOXYGEN doxygen)
if(DUNLIN_DOXYGEN)
  add_custom_target(docs
    COMMAND ${DUNLIN_DOXYGEN} ${DUNLIN_DOCS_OUTPUT}/Doxyfile
    COMMENT "pages of the public headers: ${DUNLIN_DOCS_OUTPUT}/html/index.html" VERBATIM)
else()
  add_custom_target(docs
    COMMAND ${CMAKE_COMMAND} -E echo "docs: doxygen is not installed; on Debian and Ubuntu: apt-get install doxygen"
    COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
endif()
