# dunlin-fleet, with the parts of its report inside: Chart.js as the distribution packages it, and our template.
find_file(DUNLIN_CHART_JS NAMES chart.min.js Chart.min.js chart.umd.js
  PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist NO_CMAKE_FIND_ROOT_PATH)
if(NOT DUNLIN_CHART_JS)
  message(FATAL_ERROR "chart.min.js is missing; on Debian and Ubuntu: apt-get install libjs-chart.js")
endif()

set(embedded)
foreach(part IN ITEMS template charts)
  if(part STREQUAL template)
    set(input ${CMAKE_CURRENT_LIST_DIR}/report.html)
  else()
    set(input ${DUNLIN_CHART_JS})
  endif()
  set(output ${CMAKE_CURRENT_BINARY_DIR}/fleet_report_${part}.c)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -DINPUT=${input} -DNAME=fleet_report_${part} -DOUTPUT=${output}
            -P ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
    DEPENDS ${input} ${CMAKE_CURRENT_LIST_DIR}/embed.cmake
    VERBATIM)
  list(APPEND embedded ${output})
endforeach()

file(GLOB fleet_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
dunlin_program(dunlin-fleet SOURCES ${fleet_sources} ${embedded}
  USES dunlin_samples_common dunlin_dep_curl Threads::Threads m)
target_include_directories(dunlin-fleet PRIVATE ${CMAKE_CURRENT_LIST_DIR})
install(TARGETS dunlin-fleet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
