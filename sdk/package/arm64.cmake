# Toolchain file: arm64 Linux by Debian's cross compiler, over the folder of libraries and headers that foreign-root.sh
# makes (DUNLIN_ARM64_ROOT; build/arm64-root when not said). Tests run under qemu's user emulation.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES DUNLIN_ARM64_ROOT)

if(NOT DUNLIN_ARM64_ROOT)
  set(DUNLIN_ARM64_ROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/arm64-root)
endif()
get_filename_component(DUNLIN_ARM64_ROOT ${DUNLIN_ARM64_ROOT} ABSOLUTE)
set(DUNLIN_ARM64_ROOT ${DUNLIN_ARM64_ROOT} CACHE PATH "Libraries and headers of arm64" FORCE)
if(NOT EXISTS ${DUNLIN_ARM64_ROOT}/usr/include)
  message(FATAL_ERROR "${DUNLIN_ARM64_ROOT} holds no arm64 libraries; make it with: sdk/package/foreign-root.sh arm64 ${DUNLIN_ARM64_ROOT}")
endif()

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_SYSROOT ${DUNLIN_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH ${DUNLIN_ARM64_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${DUNLIN_ARM64_ROOT})
