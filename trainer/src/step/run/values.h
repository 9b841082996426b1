/*
 * values.h - parameters in a program's arena as the floats that they are to everybody outside, in
 * whatever format the step has them.
 *
 * In integers a value is q * 2^exponent, exact as a float: what was got can be set again, and is
 * the same.
 */
#ifndef DUNLIN_STEP_VALUES_H
#define DUNLIN_STEP_VALUES_H

#include "exec.h"
#include "integer/operand_ranges.h"
#include "integer/site.h"
#include "net/net.h"

/* The table of exponents; NULL where parameters are float32. */
dunlin_integer_site *dunlin__values_sites(const dunlin_program *program, const dunlin_arena *arena);
/* The table of ranges, where only products are in integers; else NULL. */
dunlin_range *dunlin__values_ranges(const dunlin_program *program, const dunlin_arena *arena);

/* Elements [first, first + n) of a parameter, in ONNX's order. */
void dunlin__values_load(const dunlin_program *program, const dunlin_arena *arena,
                         const dunlin_net *net, uint32_t param, int64_t first, int64_t n,
                         float *out);
/* The same from outside, under the exponent that the parameter has: rounded half away from zero,
 * within the largest number that it has. */
void dunlin__values_put(const dunlin_program *program, const dunlin_arena *arena,
                        const dunlin_net *net, uint32_t param, int64_t first, int64_t n,
                        const float *values);
/* The exponent of a parameter whose values are up to `largest`; nothing in float32. */
void dunlin__values_fit(const dunlin_program *program, const dunlin_arena *arena, uint32_t param,
                        float largest);
/*
 * Values that replace others. In integers, all of a parameter at once give it the exponent that
 * fits them; a piece keeps the exponent unless its values need a higher one, to which the rest is
 * then rounded. A changed exponent asks for a calibration; so does any value where there are
 * ranges.
 */
void dunlin__values_set(const dunlin_program *program, const dunlin_arena *arena,
                        const dunlin_net *net, uint32_t param, int64_t first, int64_t n,
                        const float *values);
/* What a parameter's values are whole multiples of; 0 in float32. */
float dunlin__values_unit(const dunlin_program *program, const dunlin_arena *arena, uint32_t param);
/* Zeros, of a parameter in integers. */
void dunlin__values_clear(const dunlin_program *program, const dunlin_arena *arena,
                          const dunlin_net *net, uint32_t param);
/* False: the values are no whole multiples, as large as the parameter can have, of the unit that
 * the site's exponent makes. */
bool dunlin__values_are_exact(const dunlin_program *program, const dunlin_integer_site *site,
                              const float *values, int64_t n);

#endif
