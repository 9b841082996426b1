/*
 * params.h - first values of parameters, in blocks: from the file, or drawn from the seed.
 *
 * Any block can be made by itself: random values are a function of (seed, parameter, element), and
 * file values are read where they lie, so a model is never held twice.
 */
#ifndef DUNLIN_NET_PARAMS_H
#define DUNLIN_NET_PARAMS_H

#include "net.h"

/* Keeps the file of the last block open. Zeroed memory is a valid closed reader. */
typedef struct dunlin_param_reader {
    const dunlin_net *net;
    uint64_t seed;
    const char *path; /* of `fd`; belongs to the net */
    int fd;           /* the reader's own */
} dunlin_param_reader;

/* `net` must outlive the reader. Opens nothing yet. */
void dunlin__param_reader_init(dunlin_param_reader *reader, const dunlin_net *net, uint64_t seed);
void dunlin__param_reader_close(dunlin_param_reader *reader);

/*
 * Elements [first, first + n) of a parameter, in ONNX's order and shape (a transposed store is
 * undone). Best called with whole rows of transposed parameters and blocks of 16,384 elements and
 * more. IO; NUMERIC if the file holds a value that is not finite; ARGUMENT outside the parameter.
 */
DUNLIN_NODISCARD dunlin_status dunlin__param_read(dunlin_param_reader *reader, uint32_t param_index,
                                                  int64_t first, int64_t n, float *out,
                                                  dunlin_error *error);

#endif
