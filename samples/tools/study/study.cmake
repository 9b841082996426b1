# dunlin-study: researchers' tables and figures, on the parts of dunlin-fleet.
dunlin_embed(study_report_template ${CMAKE_CURRENT_LIST_DIR}/report.html study_template)
dunlin_embed(study_report_style ${CMAKE_CURRENT_LIST_DIR}/report.css study_style)
dunlin_embed(study_report_charts ${CMAKE_CURRENT_LIST_DIR}/charts.js study_charts)
dunlin_embed(study_report_words ${CMAKE_CURRENT_LIST_DIR}/words.js study_words)
file(GLOB study_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
dunlin_program(dunlin-study SOURCES ${study_sources} ${study_template} ${study_style} ${study_charts} ${study_words}
  USES dunlin_samples_fleet)
install(TARGETS dunlin-study RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
