/*
 * values.c - floats from and to parameters of int8, or of 16 bits that lie as two bytes.
 *
 * Invariant: a parameter's exponent changes here and at the end of a step (integer/int_update.c),
 * once a trainer is made, and never while operators of a step read it.
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

/* The numbers of a parameter, as they lie. */
typedef struct whole_numbers {
    int8_t *high;
    int8_t *low; /* NULL: eight bits are all */
} whole_numbers;

static whole_numbers numbers_of(const dunlin_program *program, const dunlin_arena *arena,
                                uint32_t param)
{
    const dunlin_step_param *step = &program->step->params[param];
    return (whole_numbers){
        .high = address_of(program, arena, step->tensor),
        .low = step->low != DUNLIN_STEP_NONE ? address_of(program, arena, step->low) : NULL};
}

static int32_t unit_exponent(const dunlin_integer_site *site, bool has_low_bytes)
{
    return site->exponent - (has_low_bytes ? DUNLIN_SITE_LOW_BITS : 0);
}

static int32_t most_of(bool has_low_bytes)
{
    return has_low_bytes ? DUNLIN_INT_PAIR_MOST : DUNLIN_INT_MOST;
}

static int32_t number_at(const whole_numbers *of, int64_t i)
{
    return of->low != NULL ? of->high[i] * 256 + of->low[i] : of->high[i];
}

static void put_number(const whole_numbers *of, int64_t i, double scaled)
{
    const double most = (double)most_of(of->low != NULL);
    const double size = floor(fabs(scaled) + 0.5);
    const double limited = size < most ? size : most;
    const int32_t q = (int32_t)(scaled < 0.0 ? -limited : limited);
    if (of->low == NULL) {
        of->high[i] = (int8_t)q;
        return;
    }
    const int32_t high = ((q + 128 + (1 << 15)) >> 8) - 128; /* as the update has it */
    of->high[i] = (int8_t)high;
    of->low[i] = (int8_t)(q - high * 256);
}

float dunlin__values_unit(const dunlin_program *program, const dunlin_arena *arena, uint32_t param)
{
    const dunlin_integer_site *sites = dunlin__values_sites(program, arena);
    return sites == NULL ? 0.0F
                         : ldexpf(1.0F, unit_exponent(&sites[param],
                                                      program->step->precision->has_low_bytes));
}

void dunlin__values_clear(const dunlin_program *program, const dunlin_arena *arena,
                          const dunlin_net *net, uint32_t param)
{
    const whole_numbers numbers = numbers_of(program, arena, param);
    memset(numbers.high, 0, (size_t)net->params[param].n_elements);
    if (numbers.low != NULL) {
        memset(numbers.low, 0, (size_t)net->params[param].n_elements);
    }
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
    const whole_numbers q = numbers_of(program, arena, param);
    const float unit = dunlin__values_unit(program, arena, param);
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)number_at(&q, dunlin__layout_index(&net->params[param], first + i)) * unit;
    }
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
    const whole_numbers q = numbers_of(program, arena, param);
    const double scale = ldexp(1.0, -unit_exponent(&sites[param], q.low != NULL));
    for (int64_t i = 0; i < n; i++) {
        put_number(&q, dunlin__layout_index(&net->params[param], first + i),
                   (double)values[i] * scale);
    }
}

void dunlin__values_fit(const dunlin_program *program, const dunlin_arena *arena, uint32_t param,
                        float largest)
{
    dunlin_integer_site *sites = dunlin__values_sites(program, arena);
    if (sites != NULL) {
        sites[param].exponent = dunlin__site_exponent_for(largest);
        sites[param].is_known = 1;
        sites[param].n_raised = 0;
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
static void move_down(const dunlin_net_param *param, const whole_numbers *q, int32_t shift)
{
    const double scale = ldexp(1.0, -shift);
    for (int64_t i = 0; i < param->n_elements; i++) {
        put_number(q, i, (double)number_at(q, i) * scale);
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
            const whole_numbers q = numbers_of(program, arena, param);
            move_down(&net->params[param], &q, needed - before);
        }
        sites[param].exponent = is_whole || needed > before ? needed : before;
        sites[param].n_raised = is_whole ? 0 : sites[param].n_raised;
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

bool dunlin__values_are_exact(const dunlin_program *program, const dunlin_integer_site *site,
                              const float *values, int64_t n)
{
    const bool has_low_bytes = program->step->precision->has_low_bytes;
    const double scale = ldexp(1.0, -unit_exponent(site, has_low_bytes));
    for (int64_t i = 0; i < n; i++) {
        const double q = (double)values[i] * scale;
        if (q != floor(q) || fabs(q) > (double)most_of(has_low_bytes)) {
            return false;
        }
    }
    return true;
}
