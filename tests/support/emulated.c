/*
 * emulated.c - execve() for tests that run under qemu's user emulation (cross-compiled builds).
 *
 * Criterion starts each test by executing the test program once more. The kernel cannot execute a
 * program of another machine, so whatever has this program's own machine in its header is given to
 * the emulator; everything else (the shell, Python) runs as it is.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { N_LEADING = 6 };

static bool is_of_this_machine(const char *path)
{
    Elf64_Ehdr header = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    ssize_t n = read(fd, &header, sizeof header);
    (void)close(fd);
    return n == (ssize_t)sizeof header && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
           header.e_machine == EM_AARCH64;
}

__attribute__((visibility("default"))) int execve(const char *path, char *const argv[],
                                                  char *const envp[])
{
    if (!is_of_this_machine(path)) {
        return (int)syscall(SYS_execve, path, argv, envp);
    }
    size_t n = 0;
    while (argv[n] != NULL) {
        n++;
    }
    /* Never freed: the program is replaced, or the child that called gives up. */
    const char **emulated = calloc(n + N_LEADING, sizeof *emulated);
    if (emulated == NULL) {
        return -1;
    }
    const char *leading[N_LEADING] = {DUNLIN_EMULATOR,        "-L", DUNLIN_EMULATOR_ROOT, "-0",
                                      n > 0 ? argv[0] : path, path};
    memcpy(emulated, leading, sizeof leading);
    for (size_t i = 1; i < n; i++) {
        emulated[N_LEADING + i - 1] = argv[i];
    }
    return (int)syscall(SYS_execve, DUNLIN_EMULATOR, emulated, envp);
}
