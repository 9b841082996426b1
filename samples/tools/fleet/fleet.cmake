# The parts of a simulated fleet, which dunlin-study runs too, and dunlin-fleet itself.
dunlin_embed(fleet_report_template ${CMAKE_CURRENT_LIST_DIR}/report.html template)
file(GLOB fleet_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.c)
file(GLOB simulate_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/../simulate/*.c)
list(REMOVE_ITEM fleet_sources ${CMAKE_CURRENT_LIST_DIR}/main.c)
add_library(dunlin_samples_fleet STATIC ${fleet_sources} ${simulate_sources} ${template})
target_link_libraries(dunlin_samples_fleet PUBLIC dunlin_samples_page dunlin_dep_curl dunlin_dep_mbedtls Threads::Threads m)
# Thousands of devices on a few cores: most of their time went into signatures. A phone has what the library brings.
if(TARGET dunlin_gnutls AND NOT BUILD_SHARED_LIBS)
  target_link_libraries(dunlin_samples_fleet PUBLIC dunlin_gnutls)
endif()
dunlin_flags(dunlin_samples_fleet)

dunlin_program(dunlin-fleet SOURCES ${CMAKE_CURRENT_LIST_DIR}/main.c USES dunlin_samples_fleet)
install(TARGETS dunlin-fleet RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
