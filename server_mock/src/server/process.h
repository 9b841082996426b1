/*
 * process.h - what the system says of this process.
 */
#ifndef DUNLIN_SERVER_PROCESS_H
#define DUNLIN_SERVER_PROCESS_H

#include <stdint.h>

/* A figure that the system does not tell is negative. */
typedef struct dunlin__process_figures {
    double cpu_s;   /* of all threads, user and system */
    double start_s; /* since 1970 */
    int64_t resident_bytes;
    int64_t virtual_bytes;
    int64_t n_open_files;
    int64_t most_open_files;
    int64_t n_threads;
} dunlin__process_figures;

dunlin__process_figures dunlin__process_read(void);

#endif
