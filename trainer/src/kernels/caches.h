/*
 * caches.h - from which size on a tensor is written past the caches.
 *
 * No value depends on it.
 */
#ifndef DUNLIN_KERNELS_CACHES_H
#define DUNLIN_KERNELS_CACHES_H

#include <stdint.h>

/* Floats; of this machine, unless a test has set them. */
int64_t dunlin__stream_floats(void);
/* For tests, while no kernel runs; 0: of this machine again. */
void dunlin__set_stream_floats(int64_t floats);

#endif
