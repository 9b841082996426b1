# What the programs' pages are made of: page.c with Chart.js inside, as the distribution packages it.
find_file(DUNLIN_CHART_JS NAMES chart.min.js Chart.min.js chart.umd.js
  PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist NO_CMAKE_FIND_ROOT_PATH)
if(NOT DUNLIN_CHART_JS)
  message(FATAL_ERROR "chart.min.js is missing; on Debian and Ubuntu: apt-get install libjs-chart.js")
endif()

dunlin_embed(page_charts ${DUNLIN_CHART_JS} charts)
add_library(dunlin_samples_page STATIC tools/common/page.c ${charts})
target_link_libraries(dunlin_samples_page PUBLIC dunlin_samples_common)
dunlin_flags(dunlin_samples_page)
