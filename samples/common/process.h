/*
 * process.h - the high-water mark of this process's resident memory, as the kernel counts it.
 */
#ifndef SAMPLES_COMMON_PROCESS_H
#define SAMPLES_COMMON_PROCESS_H

#include <stdint.h>

/* VmHWM in bytes; 0 where the system does not tell. */
uint64_t process_peak_bytes(void);

/*
 * Sets the mark back to what is resident now, so that the growth from here on can be read off; the
 * mark before, or the present one where it cannot be set back, is returned.
 */
uint64_t process_reset_peak(void);

#endif
