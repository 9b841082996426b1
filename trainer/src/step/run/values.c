/*
 * values.c - floats from and to parameters of int8.
 *
 * Invariant: a parameter's exponent changes here and nowhere else once a trainer is made, and never
 * while a step runs.
 */
#include "values.h"

#include "integer/int_emit.h"
#include "layout.h"

#include <math.h>
#include <string.h>

static void *address_of(const dunlin_program *program, const dunlin_arena *arena, uint32_t tensor)
{
    return dunlin__program_floats(program, arena, tensor);
}

dunlin_integer_site *dunlin__values_sites(const dunlin_program *program, const dunlin_arena *arena)
{
    return dunlin__precision_is_whole(program->step->precision)
               ? address_of(program, arena, program->step->sites)
               : NULL;
}

dunlin_range *dunlin__values_ranges(const dunlin_program *program, const dunlin_arena *arena)
{
    const dunlin_precision *precision = program->step->precision;
    return precision != NULL && !dunlin__precision_is_whole(precision)
               ? address_of(program, arena, program->step->sites)
               : NULL;
}

void dunlin__values_load(const dunlin_program *program, const dunlin_arena *arena,
                         const dunlin_net *net, uint32_t param, int64_t first, int64_t n,
                         float *out)
{
    const void *at = address_of(program, arena, program->step->params[param].tensor);
    const dunlin_integer_site *sites = dunlin__values_sites(program, arena);
    if (sites == NULL) {
        dunlin__layout_load(&net->params[param], at, first, n, out);
        return;
    }
    const float unit = ldexpf(1.0F, sites[param].exponent);
    const int8_t *q = at;
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)q[dunlin__layout_index(&net->params[param], first + i)] * unit;
    }
}

static int8_t rounded(double scaled)
{
    const double size = floor(fabs(scaled) + 0.5);
    const double limited = size < (double)DUNLIN_INT_MOST ? size : (double)DUNLIN_INT_MOST;
    return (int8_t)(scaled < 0.0 ? -limited : limited);
}

void dunlin__values_put(const dunlin_program *program, const dunlin_arena *arena,
                        const dunlin_net *net, uint32_t param, int64_t first, int64_t n,
                        const float *values)
{
    void *at = address_of(program, arena, program->step->params[param].tensor);
    const dunlin_integer_site *sites = dunlin__values_sites(program, arena);
    if (sites == NULL) {
        dunlin__layout_store(&net->params[param], at, first, n, values);
        return;
    }
    const double scale = ldexp(1.0, -sites[param].exponent);
    int8_t *q = at;
    for (int64_t i = 0; i < n; i++) {
        q[dunlin__layout_index(&net->params[param], first + i)] =
            rounded((double)values[i] * scale);
    }
}

void dunlin__values_fit(const dunlin_program *program, const dunlin_arena *arena, uint32_t param,
                        float largest)
{
    dunlin_integer_site *sites = dunlin__values_sites(program, arena);
    if (sites != NULL) {
        sites[param].exponent = dunlin__site_exponent_for(largest);
        sites[param].is_known = 1;
    }
}

static float largest_of(const float *values, int64_t n)
{
    float largest = 0.0F;
    for (int64_t i = 0; i < n; i++) {
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    }
    return largest;
}

/* What there is, under an exponent that is `shift` higher. */
static void move_down(const dunlin_net_param *param, int8_t *q, int32_t shift)
{
    const double scale = ldexp(1.0, -shift);
    for (int64_t i = 0; i < param->n_elements; i++) {
        q[i] = rounded((double)q[i] * scale);
    }
}

void dunlin__values_set(const dunlin_program *program, const dunlin_arena *arena,
                        const dunlin_net *net, uint32_t param, int64_t first, int64_t n,
                        const float *values)
{
    dunlin_integer_site *sites = dunlin__values_sites(program, arena);
    const bool is_whole = first == 0 && n == net->params[param].n_elements;
    const float largest = largest_of(values, n);
    if (sites != NULL && (is_whole || largest > 0.0F)) {
        const int32_t before = sites[param].exponent;
        const int32_t needed = dunlin__site_exponent_for(largest);
        if (!is_whole && needed > before) {
            move_down(&net->params[param],
                      address_of(program, arena, program->step->params[param].tensor),
                      needed - before);
        }
        sites[param].exponent = is_whole || needed > before ? needed : before;
        if (sites[param].exponent != before) {
            sites[program->step->n_sites - 1].is_known = 0;
        }
    }
    dunlin_range *ranges = dunlin__values_ranges(program, arena);
    if (ranges != NULL) {
        ranges[program->step->n_sites - 1].range = 0.0F;
    }
    dunlin__values_put(program, arena, net, param, first, n, values);
}

bool dunlin__values_are_exact(int32_t exponent, const float *values, int64_t n)
{
    const double scale = ldexp(1.0, -exponent);
    for (int64_t i = 0; i < n; i++) {
        const double q = (double)values[i] * scale;
        if (q != floor(q) || fabs(q) > (double)DUNLIN_INT_MOST) {
            return false;
        }
    }
    return true;
}
