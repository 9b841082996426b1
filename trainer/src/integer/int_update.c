/*
 * int_update.c - the end of a step in integers: W = clip(W - PstoShift(G, b - m)) of each
 * parameter, b bits of its largest gradient, m bits of the largest update, and the exponents of the
 * next batch. Of weights in 16 bits the update has eight more bits below those m, so that what is
 * less than a unit of what is multiplied is not lost.
 *
 * Then growth: the exponent of a weight never falls, and a tensor of which more than one part in
 * `weight_growth` stands at the ends of its range gets the next one, with all its weights halved.
 * m is less by one from then on, so updates keep their size. NITI has the first exponent for ever.
 *
 * Invariant: a gradient is the exact sum over the whole batch, rounded once; so neither slices nor
 * the order of samples are in the weights.
 */
#include "int_emit.h"

#include <mem/checked.h>
#include <mem/support.h>

#define MOST_SHIFT 62

typedef struct update_params {
    int64_t n_elements;
    uint32_t param;
    bool is_wide, has_low_bytes;
} update_params;

/* ceil(log2(largest)). */
static int32_t bits_of(int64_t largest)
{
    int32_t bits = 0;
    while (bits < 62 && largest > (INT64_C(1) << bits)) {
        bits++;
    }
    return bits;
}

/* By how much sums of so many bits are shifted down to the update of a parameter. */
static int32_t update_shift(const dunlin_step_run *run, const dunlin_integer_site *site,
                            int32_t bits)
{
    const int64_t wanted = (int64_t)bits - run->grad_bits + site->n_raised;
    return wanted > MOST_SHIFT ? MOST_SHIFT : wanted > 0 ? (int32_t)wanted : 0;
}

/* Operands: gradient, weights, sites, the weights' lower bytes if there are any. */
static dunlin_status run_update(const dunlin_kernel_call *call)
{
    const update_params *p = call->params;
    const dunlin_step_run *run = call->run;
    const int32_t *sums = p->is_wide ? NULL : call->operands[0];
    const int64_t *wide = p->is_wide ? call->operands[0] : NULL;
    if (run->is_calibrating) {
        return DUNLIN_OK;
    }
    const int32_t bits = bits_of(run->integers->largest(p->n_elements, sums, wide, run->threads));
    dunlin__run_note_change(run);
    if (bits == 0) {
        return DUNLIN_OK;
    }
    const dunlin_integer_site *sites = call->operands[2];
    const int32_t shift = update_shift(run, &sites[p->param], bits);
    if (p->has_low_bytes) {
        run->integers->update_pairs(&(dunlin_int_pairs_call){.n = p->n_elements,
                                                             .sums = sums,
                                                             .wide_sums = wide,
                                                             .shift = shift - DUNLIN_SITE_LOW_BITS,
                                                             .high = call->operands[1],
                                                             .low = call->operands[3],
                                                             .threads = run->threads});
        return DUNLIN_OK;
    }
    run->integers->round(&(dunlin_int_round_call){.n = p->n_elements,
                                                  .sums = sums,
                                                  .wide_sums = wide,
                                                  .mode = DUNLIN_INT_PSEUDO,
                                                  .low = -DUNLIN_INT_MOST,
                                                  .high = DUNLIN_INT_MOST,
                                                  .out = call->operands[1],
                                                  .is_subtracted = true,
                                                  .rounding.shift = shift,
                                                  .threads = run->threads});
    return DUNLIN_OK;
}

static const dunlin_step_kernel update_kernel = {.name = "int_update",
                                                 .run_fn = run_update,
                                                 .parts = DUNLIN_MEM_FIXED,
                                                 .in_place_write = -1,
                                                 .in_place_read = -1};

uint32_t dunlin__integer_gradient(dunlin_integer *integer, uint32_t param, int64_t terms,
                                  bool is_narrow)
{
    dunlin_emit *emit = integer->emit;
    const int64_t batch = emit->options->batch > 0 ? emit->options->batch : 1;
    int64_t n_terms = 0;
    const bool is_wide =
        !dunlin__mul_i64(terms, batch, &n_terms) || n_terms > DUNLIN_INT_MOST_TERMS;
    if (is_wide && is_narrow) {
        (void)dunlin__emit_fail(emit, DUNLIN_OVERFLOW,
                                "the gradient of the bias is a sum over more than 16909320 pixels "
                                "of the batch");
        return DUNLIN_STEP_NONE;
    }
    const uint32_t tensor = dunlin__emit_named_tensor(
        emit, emit->net->params[param].name, "/grad",
        &(dunlin_step_tensor){.dtype = is_wide ? integer->precision->wide_sums
                                               : integer->precision->sums,
                              .n_elements = emit->net->params[param].n_elements,
                              .mem_class = DUNLIN_MEM_ACCUMULATOR,
                              .follows_batch = true});
    emit->graph->follows_batch = true;
    emit->params[param].gradient = tensor;
    return tensor;
}

void dunlin__integer_emit_update(dunlin_integer *integer, uint32_t param)
{
    dunlin_emit *emit = integer->emit;
    if (emit->status != DUNLIN_OK) {
        return;
    }
    const uint32_t gradient = emit->params[param].gradient;
    const bool has_low_bytes = integer->precision->has_low_bytes;
    const update_params params = {.n_elements = emit->net->params[param].n_elements,
                                  .param = param,
                                  .is_wide = emit->graph->tensors[gradient].dtype ==
                                             integer->precision->wide_sums,
                                  .has_low_bytes = has_low_bytes};
    const dunlin_mem_access accesses[] = {
        {gradient, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED},
        {emit->graph->params[param].tensor, DUNLIN_MEM_UPDATE, DUNLIN_MEM_FIXED},
        {emit->graph->sites, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED},
        {emit->graph->params[param].low, DUNLIN_MEM_UPDATE, DUNLIN_MEM_FIXED},
    };
    const char *node_name = emit->node_name;
    emit->node_name = emit->net->params[param].name;
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &update_kernel,
                                             .suffix = "/update",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = has_low_bytes ? 4 : 3,
                                             .flops_fixed = 4.0 * (double)params.n_elements});
    emit->node_name = node_name;
    integer->is_updated[param] = true;
}

typedef struct adapt_params {
    const dunlin_integer_link *links; /* the graph's copy */
    size_t n_links;
} adapt_params;

/* Operands: sites, counts. */
static dunlin_status run_adapt(const dunlin_kernel_call *call)
{
    const adapt_params *p = call->params;
    if (!call->run->is_calibrating) {
        dunlin__sites_adapt(call->operands[0], call->operands[1], p->links, p->n_links);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel adapt_kernel = {.name = "adapt_scales",
                                                .run_fn = run_adapt,
                                                .parts = DUNLIN_MEM_FIXED,
                                                .in_place_write = -1,
                                                .in_place_read = -1};

typedef struct grow_params {
    int64_t n_elements;
    uint32_t param;
    bool has_low_bytes;
    adapt_params all;
} grow_params;

/* Operands: weights, sites, the weights' lower bytes if there are any. */
static dunlin_status run_grow(const dunlin_kernel_call *call)
{
    const grow_params *p = call->params;
    const dunlin_step_run *run = call->run;
    int8_t *high = call->operands[0];
    dunlin_integer_site *sites = call->operands[1];
    int8_t *low = p->has_low_bytes ? call->operands[2] : NULL;
    dunlin_integer_site *site = &sites[p->param];
    if (run->is_calibrating || run->weight_growth == 0 ||
        site->exponent >= DUNLIN_SITE_MAX_EXPONENT) {
        return DUNLIN_OK;
    }
    const int64_t n = run->integers->count_ends(p->n_elements, high, low, run->threads);
    if (n > p->n_elements / run->weight_growth) {
        run->integers->halve(p->n_elements, high, low, run->threads);
        site->exponent++;
        site->n_raised++;
        dunlin__sites_settle(sites, p->all.links, p->all.n_links);
    }
    return DUNLIN_OK;
}

static const dunlin_step_kernel grow_kernel = {.name = "int_grow",
                                               .run_fn = run_grow,
                                               .parts = DUNLIN_MEM_FIXED,
                                               .in_place_write = -1,
                                               .in_place_read = -1};

/* After the exponents of the next batch were found, of which sums of this one know nothing. */
static void emit_grow(dunlin_integer *integer, uint32_t param, const adapt_params *all)
{
    dunlin_emit *emit = integer->emit;
    const bool has_low_bytes = integer->precision->has_low_bytes;
    const grow_params params = {.n_elements = emit->net->params[param].n_elements,
                                .param = param,
                                .has_low_bytes = has_low_bytes,
                                .all = *all};
    const dunlin_mem_access accesses[] = {
        {emit->graph->params[param].tensor, DUNLIN_MEM_UPDATE, DUNLIN_MEM_FIXED},
        {emit->graph->sites, DUNLIN_MEM_UPDATE, DUNLIN_MEM_FIXED},
        {emit->graph->params[param].low, DUNLIN_MEM_UPDATE, DUNLIN_MEM_FIXED},
    };
    emit->node_name = emit->net->params[param].name;
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &grow_kernel,
                                             .suffix = "/growth",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = has_low_bytes ? 3 : 2,
                                             .flops_fixed = (double)params.n_elements});
}

void dunlin__integer_emit_adapt(dunlin_integer *integer)
{
    dunlin_emit *emit = integer->emit;
    if (emit->status != DUNLIN_OK || integer->n_links == 0) {
        return;
    }
    const adapt_params params = {
        .links = dunlin__step_pool_copy(&emit->graph->pool, integer->links,
                                        integer->n_links * sizeof *integer->links),
        .n_links = integer->n_links};
    if (params.links == NULL) {
        (void)dunlin__emit_fail(emit, DUNLIN_MEMORY, "no memory for the scales of a step");
        return;
    }
    const dunlin_mem_access accesses[] = {
        {emit->graph->sites, DUNLIN_MEM_UPDATE, DUNLIN_MEM_FIXED},
        {integer->counts, DUNLIN_MEM_READ, DUNLIN_MEM_FIXED},
    };
    emit->node_name = "scales";
    dunlin__emit_run(emit, &(dunlin_emit_op){.kernel = &adapt_kernel,
                                             .suffix = "",
                                             .params = &params,
                                             .params_bytes = sizeof params,
                                             .accesses = accesses,
                                             .n_accesses = 2});
    for (uint32_t i = 0; i < emit->net->n_params && emit->status == DUNLIN_OK; i++) {
        if (integer->is_updated[i]) {
            emit_grow(integer, i, &params);
        }
    }
}
