/*
 * process.h - resident memory of this process, and the high-water marks of it and of its control
 * group, as the kernel counts them; what the C library keeps of it.
 */
#ifndef SAMPLES_COMMON_PROCESS_H
#define SAMPLES_COMMON_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Large blocks of the C library go back to the system when they are freed, of whichever thread.
 * Without it glibc keeps up to 64 MiB of them for each thread that has freed such a block. To be
 * called before there are threads.
 */
void process_give_back_large(void);

/* VmHWM in bytes; 0 where the system does not tell. */
uint64_t process_peak_bytes(void);

/*
 * Sets the mark back to what is resident now, so that the growth from here on can be read off; the
 * mark before, or the present one where it cannot be set back, is returned.
 */
uint64_t process_reset_peak(void);

/* What is resident, by kind; both 0 where the system does not tell. */
typedef struct process_memory {
    uint64_t anonymous_bytes; /* heap, stacks, arenas */
    uint64_t file_bytes;      /* code, libraries and files that are mapped */
} process_memory;
process_memory process_resident(void);

/* The most that the process's control group (cgroup v2) has held; 0 where that cannot be read. */
uint64_t process_group_peak_bytes(void);

#endif
