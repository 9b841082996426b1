/*
 * swap.h - the flags of policies that swap: what the device of the file takes and gives.
 */
#ifndef SAMPLES_COMMON_SWAP_H
#define SAMPLES_COMMON_SWAP_H

#include <common/args.h>

/*
 * "WRITE:READ" in 10^6 bytes/s, or "measure": then `folder` (NULL: the library's own) is measured.
 * NULL leaves both 0. EXIT_OK, or the status to end with (reported).
 */
int swap_speed_parse(const program_info *program, const char *text, const char *folder,
                     double *out_write_mb_per_s, double *out_read_mb_per_s);

#endif
