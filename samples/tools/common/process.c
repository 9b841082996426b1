/*
 * process.c - reads /proc/self/status and the control group. Sources: proc(5): VmHWM, RssAnon,
 * RssFile, and "5" written to clear_refs; the kernel's cgroup-v2 document: memory.peak;
 * mallopt(3).
 */
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#define PATH_BYTES 4096
#define LARGE_BYTES (256 << 10)

void process_give_back_large(void)
{
#ifdef __GLIBC__
    (void)mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
#endif
}

/* A line "NAME: N kB" of the process's status, in bytes; 0 if there is none. */
static uint64_t status_bytes(const char *name)
{
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL) {
        return 0;
    }
    char line[128];
    uint64_t bytes = 0;
    const size_t n = strlen(name);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, name, n) == 0 && line[n] == ':') {
            bytes = strtoull(line + n + 1, NULL, 10) * 1024;
            break;
        }
    }
    (void)fclose(file);
    return bytes;
}

uint64_t process_peak_bytes(void)
{
    return status_bytes("VmHWM");
}

uint64_t process_reset_peak(void)
{
    uint64_t before = process_peak_bytes();
    FILE *file = fopen("/proc/self/clear_refs", "we");
    if (file != NULL) {
        (void)fputs("5", file);
        (void)fclose(file);
    }
    return before;
}

process_memory process_resident(void)
{
    return (process_memory){.anonymous_bytes = status_bytes("RssAnon"),
                            .file_bytes = status_bytes("RssFile")};
}

/* The group's folder below /sys/fs/cgroup: the line "0::/..." of the process's list. */
static bool find_group(char out[PATH_BYTES])
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    bool has_found = false;
    while (file != NULL && !has_found && fgets(out, PATH_BYTES, file) != NULL) {
        has_found = strncmp(out, "0::/", 4) == 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (has_found) {
        out[strcspn(out, "\n")] = '\0';
        memmove(out, out + 3, strlen(out + 3) + 1);
    }
    return has_found;
}

uint64_t process_group_peak_bytes(void)
{
    char group[PATH_BYTES];
    char path[PATH_BYTES + 64];
    char text[32] = "";
    if (!find_group(group)) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "/sys/fs/cgroup%s/memory.peak", group);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    const bool is_read = fgets(text, sizeof text, file) != NULL;
    (void)fclose(file);
    return is_read ? strtoull(text, NULL, 10) : 0;
}
