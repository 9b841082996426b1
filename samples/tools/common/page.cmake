# What the programs' pages are made of: page.c with Chart.js inside, as the distribution packages it, and a function that
# embeds a program's own template.
find_file(DUNLIN_CHART_JS NAMES chart.min.js Chart.min.js chart.umd.js
  PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist NO_CMAKE_FIND_ROOT_PATH)
if(NOT DUNLIN_CHART_JS)
  message(FATAL_ERROR "chart.min.js is missing; on Debian and Ubuntu: apt-get install libjs-chart.js")
endif()
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

dunlin_embed(page_charts ${DUNLIN_CHART_JS} charts)
add_library(dunlin_samples_page STATIC tools/common/page.c ${charts})
target_link_libraries(dunlin_samples_page PUBLIC dunlin_samples_common)
dunlin_flags(dunlin_samples_page)
