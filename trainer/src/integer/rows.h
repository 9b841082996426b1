/*
 * rows.h - the operators that have an emission in integers beside the float one.
 */
#ifndef DUNLIN_INTEGER_ROWS_H
#define DUNLIN_INTEGER_ROWS_H

#include "int_emit.h"

extern const dunlin_integer_row dunlin__integer_conv;
extern const dunlin_integer_row dunlin__integer_dense;
extern const dunlin_integer_row dunlin__integer_clip;
extern const dunlin_integer_row dunlin__integer_flatten;
extern const dunlin_integer_row dunlin__integer_dropout;
extern const dunlin_integer_row dunlin__integer_max_pool;
extern const dunlin_integer_row dunlin__integer_average_pool;
extern const dunlin_integer_row dunlin__integer_add;
extern const dunlin_integer_row dunlin__integer_concat;

/* The shift that rounds an average to a site, of the shift of a sum in 2^-DUNLIN_INT_AVERAGE_BITS.
 */
int32_t dunlin__integer_average_shift(int32_t shift);

#endif
