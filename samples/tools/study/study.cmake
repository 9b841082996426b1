# dunlin-study: researchers' tables and figures, on the parts of dunlin-fleet.
dunlin_embed(study_report_template ${CMAKE_CURRENT_LIST_DIR}/report.html study_template)
dunlin_embed(study_report_style ${CMAKE_CURRENT_LIST_DIR}/report.css study_style)
dunlin_embed(study_torch_step ${CMAKE_CURRENT_LIST_DIR}/torch_step.py study_torch)
set(study_scripts)
foreach(script figures words plot charts papers heterogeneity precision claims page)
  dunlin_embed(study_report_${script} ${CMAKE_CURRENT_LIST_DIR}/${script}.js study_script)
  list(APPEND study_scripts ${study_script})
endforeach()
file(GLOB study_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
dunlin_program(dunlin-study SOURCES ${study_sources} ${study_template} ${study_style} ${study_torch} ${study_scripts}
  USES dunlin_samples_fleet)
install(TARGETS dunlin-study RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
