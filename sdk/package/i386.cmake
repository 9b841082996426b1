# Toolchain file: 32-bit x86 Linux by Debian's cross compiler, over the folder of libraries and headers that
# foreign-root.sh makes (DUNLIN_I386_ROOT; build/i386-root when not said). An x86-64 kernel runs these programs itself:
# they name the folder's loader and libraries, so they start as programs of this machine do, and so do their children.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR i686)
# Nothing stands between the programs and this machine.
if(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64|i[3-6]86)$")
  set(CMAKE_CROSSCOMPILING FALSE)
endif()
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DUNLIN_I386_ROOT)

if(NOT DUNLIN_I386_ROOT)
  set(DUNLIN_I386_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/i386-root)
endif()
get_filename_component(DUNLIN_I386_ROOT ${DUNLIN_I386_ROOT} ABSOLUTE)
set(DUNLIN_I386_ROOT ${DUNLIN_I386_ROOT} CACHE PATH "Libraries and headers of 32-bit x86" FORCE)
if(NOT EXISTS ${DUNLIN_I386_ROOT}/usr/include)
  message(FATAL_ERROR "${DUNLIN_I386_ROOT} holds no libraries of 32-bit x86; make it with: sdk/package/foreign-root.sh i386 ${DUNLIN_I386_ROOT}")
endif()

set(CMAKE_C_COMPILER i686-linux-gnu-gcc)
set(CMAKE_SYSROOT ${DUNLIN_I386_ROOT})
set(CMAKE_FIND_ROOT_PATH ${DUNLIN_I386_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# DT_RPATH, not DT_RUNPATH: libraries of libraries are looked for there as well.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,--dynamic-linker=${DUNLIN_I386_ROOT}/lib/ld-linux.so.2 -Wl,--disable-new-dtags -Wl,-rpath,${DUNLIN_I386_ROOT}/lib/i386-linux-gnu:${DUNLIN_I386_ROOT}/usr/lib/i386-linux-gnu")
