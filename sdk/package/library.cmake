# The library itself, from the objects of all layers, and how it is installed: headers, dunlin::dunlin for find_package,
# and dunlin.pc for pkg-config.

get_property(layers GLOBAL PROPERTY DUNLIN_LAYERS)
set(objects)
foreach(layer IN LISTS layers)
  list(APPEND objects $<TARGET_OBJECTS:${layer}>)
endforeach()
set(dunlin_system_targets dunlin_dep_curl dunlin_dep_mbedtls dunlin_dep_sqlite dunlin_dep_nanopb dunlin_dep_zlib)
if(DUNLIN_TRAINER)
  list(APPEND dunlin_system_targets dunlin_dep_pthreadpool dunlin_dep_jpeg dunlin_dep_png)
endif()

# dunlin_export_own_names(TARGET): a shared object of ours exports what begins with dunlin_ and nothing else. Names of
# libraries inside it, such as nanopb's pb_decode, stay its own, so an app that has others of the same name neither sees
# ours nor takes our calls over.
set(DUNLIN_EXPORTS ${CMAKE_CURRENT_LIST_DIR}/exports.map)
function(dunlin_export_own_names target)
  if(APPLE)
    target_link_options(${target} PRIVATE "LINKER:-exported_symbol,_dunlin_*")
  elseif(UNIX)
    target_link_options(${target} PRIVATE "LINKER:--version-script=${DUNLIN_EXPORTS}")
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${DUNLIN_EXPORTS})
  endif()
endfunction()

# Libraries beside the app's, which an app does not link, and what each has. A shared library hides what they call of it,
# so there they are part of it.
set(dunlin_beside baselines tools)
set(dunlin_about_baselines "Published memory policies, to compare dunlin's trainer with")
set(dunlin_about_tools "What programs about dunlin have beside an app: drawings of plans, a synthetic data set")
set(beside_objects)
foreach(library IN LISTS dunlin_beside)
  get_property(${library}_objects GLOBAL PROPERTY DUNLIN_BESIDE_${library})
  list(APPEND beside_objects ${${library}_objects})
endforeach()

if(BUILD_SHARED_LIBS)
  add_library(dunlin_lib ${objects} ${beside_objects})
else()
  add_library(dunlin_lib ${objects})
endif()
add_library(dunlin::dunlin ALIAS dunlin_lib)
set_target_properties(dunlin_lib PROPERTIES
  OUTPUT_NAME dunlin
  EXPORT_NAME dunlin
  LINKER_LANGUAGE C
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(public_headers memory/include proto/include sdk/include)
if(DUNLIN_TRAINER)
  list(APPEND public_headers trainer/include)
endif()
foreach(folder IN LISTS public_headers)
  if(EXISTS ${PROJECT_SOURCE_DIR}/${folder})
    target_include_directories(dunlin_lib INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/${folder}>)
    install(DIRECTORY ${folder}/dunlin DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
  endif()
endforeach()
target_include_directories(dunlin_lib INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(dunlin_lib PRIVATE ${dunlin_system_targets} Threads::Threads m)
dunlin_flags(dunlin_lib)
if(BUILD_SHARED_LIBS)
  dunlin_export_own_names(dunlin_lib)
endif()

if(DUNLIN_TRAINER)
  foreach(library IN LISTS dunlin_beside)
    set(target dunlin_${library})
    if(BUILD_SHARED_LIBS)
      add_library(${target} INTERFACE)
      target_link_libraries(${target} INTERFACE dunlin_lib)
    else()
      add_library(${target} STATIC ${${library}_objects})
      set_target_properties(${target} PROPERTIES LINKER_LANGUAGE C)
      target_link_libraries(${target} PUBLIC dunlin_lib)
    endif()
    set_target_properties(${target} PROPERTIES EXPORT_NAME ${library})
    add_library(dunlin::${library} ALIAS ${target})
    list(APPEND dunlin_libraries ${target})
  endforeach()
endif()

# The same objects with every private header: what tests and the mock server link.
add_library(dunlin_internal STATIC EXCLUDE_FROM_ALL ${objects} ${beside_objects})
set_target_properties(dunlin_internal PROPERTIES LINKER_LANGUAGE C)
foreach(layer IN LISTS layers)
  target_include_directories(dunlin_internal PUBLIC $<TARGET_PROPERTY:${layer},INTERFACE_INCLUDE_DIRECTORIES>)
endforeach()
target_include_directories(dunlin_internal PUBLIC ${PROJECT_SOURCE_DIR}/memory/src ${PROJECT_SOURCE_DIR}/proto/src
                                                  ${PROJECT_SOURCE_DIR}/trainer/src ${PROJECT_SOURCE_DIR}/sdk/src)
target_link_libraries(dunlin_internal PUBLIC ${dunlin_system_targets} Threads::Threads m)

include(CMakePackageConfigHelpers)
install(TARGETS dunlin_lib ${dunlin_libraries} EXPORT dunlin-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${dunlin_system_targets} EXPORT dunlin-targets)
install(EXPORT dunlin-targets NAMESPACE dunlin:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dunlin)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dunlin-config.cmake.in
  ${PROJECT_BINARY_DIR}/dunlin-config.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dunlin)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/dunlin-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/dunlin-config.cmake ${PROJECT_BINARY_DIR}/dunlin-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/dunlin)

set(DUNLIN_PC_LIBS "-lcurl -lmbedtls -lmbedx509 -lmbedcrypto -lsqlite3 -lprotobuf-nanopb -lz -lpthread -lm")
if(DUNLIN_TRAINER)
  set(DUNLIN_PC_LIBS "${DUNLIN_PC_LIBS} -lpthreadpool")
  if(DUNLIN_HAS_JPEG)
    string(APPEND DUNLIN_PC_LIBS " -ljpeg")
  endif()
  if(DUNLIN_HAS_PNG)
    string(APPEND DUNLIN_PC_LIBS " -lpng")
  endif()
endif()
if(BUILD_SHARED_LIBS)
  set(DUNLIN_PC_PRIVATE "Libs.private: ${DUNLIN_PC_LIBS}")
  set(DUNLIN_PC_LIBS "")
else()
  set(DUNLIN_PC_PRIVATE "")
endif()
file(RELATIVE_PATH DUNLIN_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/dunlin.pc.in ${PROJECT_BINARY_DIR}/dunlin.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/dunlin.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(DUNLIN_TRAINER)
  foreach(library IN LISTS dunlin_beside)
    set(DUNLIN_PC_NAME ${library})
    set(DUNLIN_PC_ABOUT "${dunlin_about_${library}}")
    set(DUNLIN_PC_BESIDE "")
    if(NOT BUILD_SHARED_LIBS)
      set(DUNLIN_PC_BESIDE "-L\${libdir} -ldunlin_${library}")
    endif()
    configure_file(${CMAKE_CURRENT_LIST_DIR}/dunlin-beside.pc.in ${PROJECT_BINARY_DIR}/dunlin-${library}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/dunlin-${library}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  endforeach()
endif()
