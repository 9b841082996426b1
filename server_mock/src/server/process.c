/*
 * process.c - reads /proc/self (proc(5): stat, and the folder fd), /proc/stat (btime), getrusage(2)
 * and getrlimit(2).
 */
#include "process.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static double seconds_of(const struct timeval *time)
{
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

static int64_t count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int64_t n = -3; /* ".", "..", and the folder itself */
    if (folder == NULL) {
        return -1;
    }
    while (readdir(folder) != NULL) { /* NOLINT(concurrency-mt-unsafe) */
        n++;
    }
    (void)closedir(folder);
    return n;
}

/* When the machine was started, in seconds since 1970; negative if that is not known. */
static double boot_s(void)
{
    FILE *file = fopen("/proc/stat", "re");
    char line[256];
    double seconds = -1;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "btime %lf", &seconds) == 1) { /* NOLINT(cert-err34-c) */
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return seconds;
}

/* Fields 20, 22, 23 and 24 of the process's stat; those before stand behind its name, which may
 * hold anything. */
static void read_stat(dunlin__process_figures *out)
{
    char text[1024] = "";
    int64_t n_threads = 0;
    uint64_t start_ticks = 0;
    uint64_t virtual_bytes = 0;
    int64_t n_pages = 0;
    FILE *file = fopen("/proc/self/stat", "re");
    size_t n = file != NULL ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    text[n] = 0;
    const char *after = strrchr(text, ')');
    /* NOLINTNEXTLINE(cert-err34-c) */
    if (after == NULL || sscanf(after + 1,
                                " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                                "%*d %" SCNd64 " %*d %" SCNu64 " %" SCNu64 " %" SCNd64,
                                &n_threads, &start_ticks, &virtual_bytes, &n_pages) != 4) {
        return;
    }
    double booted_s = boot_s();
    out->n_threads = n_threads;
    out->virtual_bytes = (int64_t)virtual_bytes;
    out->resident_bytes = n_pages * (int64_t)sysconf(_SC_PAGESIZE);
    if (booted_s >= 0) {
        out->start_s = booted_s + (double)start_ticks / (double)sysconf(_SC_CLK_TCK);
    }
}

dunlin__process_figures dunlin__process_read(void)
{
    dunlin__process_figures figures = {.cpu_s = -1,
                                       .start_s = -1,
                                       .resident_bytes = -1,
                                       .virtual_bytes = -1,
                                       .n_open_files = count_files(),
                                       .most_open_files = -1,
                                       .n_threads = -1};
    struct rusage used;
    struct rlimit files;
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        figures.cpu_s = seconds_of(&used.ru_utime) + seconds_of(&used.ru_stime);
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur != RLIM_INFINITY) {
        figures.most_open_files = (int64_t)files.rlim_cur;
    }
    read_stat(&figures);
    return figures;
}
