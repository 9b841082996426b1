/*
 * layout.h - parameters in a program's arena: where they lie, in which order, and their first
 * values; and the flat row of numbers that they are to an application.
 */
#ifndef DUNLIN_STEP_LAYOUT_H
#define DUNLIN_STEP_LAYOUT_H

#include "exec.h"
#include "net/net.h"

#include <dunlin/trainer.h>

/* A persistent tensor's floats in the arena. */
float *dunlin__program_floats(const dunlin_program *program, const dunlin_arena *arena,
                              uint32_t tensor);

/*
 * Elements [first, first + n) in ONNX's order, from and to the inner layout. `floats` is the
 * parameter's tensor or one of the optimiser's tensors that lie like it.
 */
void dunlin__layout_load(const dunlin_net_param *param, const float *floats, int64_t first,
                         int64_t n, float *out);
void dunlin__layout_store(const dunlin_net_param *param, float *floats, int64_t first, int64_t n,
                          const float *values);

/* Where element `element` of ONNX's order lies inside. */
int64_t dunlin__layout_index(const dunlin_net_param *param, int64_t element);

/* The first values of all parameters, straight into the arena of `arena_bytes`; what else is
 * persistent becomes zero. IO, NUMERIC. */
DUNLIN_NODISCARD dunlin_status dunlin__program_init_weights(const dunlin_program *program,
                                                            const dunlin_net *net, uint64_t seed,
                                                            uint64_t arena_bytes,
                                                            dunlin_arena *arena,
                                                            dunlin_error *error);

/* A piece of the flat row that lies in one parameter. */
typedef struct dunlin_flat_piece {
    uint32_t param;
    int64_t first; /* in the parameter */
    int64_t n;
} dunlin_flat_piece;

/* Elements of all parameters of a kind. */
int64_t dunlin__flat_count(const dunlin_net *net, dunlin_weights_kind kind);
/* Elements [first, first + n) of the flat row exist, and there is a buffer for them. ARGUMENT,
 * MISMATCH. */
DUNLIN_NODISCARD dunlin_status dunlin__flat_check(const dunlin_net *net, dunlin_weights_kind kind,
                                                  int64_t first, int64_t n, const float *values,
                                                  dunlin_error *error);
/* The piece at `position`, at most `n` long. */
dunlin_flat_piece dunlin__flat_piece(const dunlin_net *net, dunlin_weights_kind kind,
                                     int64_t position, int64_t n);
/* NUMERIC, with the element, unless all n values for `name` are finite. */
DUNLIN_NODISCARD dunlin_status dunlin__flat_check_finite(const char *name, int64_t n,
                                                         const float *values, dunlin_error *error);

#endif
