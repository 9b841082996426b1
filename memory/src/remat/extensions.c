/*
 * extensions.c - how long a root may be kept beyond its last touch, for what is made from it.
 *
 * Invariant: positions ascend, and all come after the root's own last touch.
 */
#include "model.h"

#include <assert.h>

#define MAX_WRITES 16 /* roots that one op writes; more are not looked at */

/* What one level is found from: the level before. */
typedef struct {
    dunlin_remat *remat;
    const uint32_t *root_of;
    uint32_t *last; /* by root: position of the last touch, or of the level before */
    uint32_t level;
} extender;

static uint32_t list_writes(const extender *at, const dunlin_mem_variant *variant, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t a = 0; a < variant->n_accesses && n < MAX_WRITES; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        const uint32_t root = at->root_of[access->tensor];
        if (root != DUNLIN_MEM_NONE && access->mode == DUNLIN_MEM_WRITE) {
            out[n++] = root;
        }
    }
    return n;
}

/* What the op reads may be kept as long as what it writes. */
static void extend_reads(extender *at, const dunlin_mem_op *op)
{
    uint32_t written[MAX_WRITES];
    const dunlin_mem_variant *variant = &op->variants[0];
    const uint32_t n = op->may_recompute ? list_writes(at, variant, written) : 0;
    for (uint32_t a = 0; n > 0 && a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        const uint32_t r = at->root_of[access->tensor];
        if (r == DUNLIN_MEM_NONE || access->mode != DUNLIN_MEM_READ ||
            (access->parts & DUNLIN_MEM_MAP) == 0) {
            continue;
        }
        uint32_t *to = &at->remat->roots[r].extends_to[at->level];
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t until = at->last[written[i]];
            if (until > at->last[r] && (*to == DUNLIN_MEM_NONE || until > *to)) {
                *to = until;
            }
        }
    }
}

static void find_last(extender *at)
{
    const dunlin_mem_graph *graph = at->remat->graph;
    uint32_t position = 0;
    for (uint32_t i = 0; i < graph->n_ops; i++) {
        const dunlin_mem_variant *variant = &graph->ops[i].variants[0];
        if (graph->ops[i].parts == DUNLIN_MEM_FIXED) {
            continue;
        }
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const uint32_t root = at->root_of[variant->accesses[a].tensor];
            if (root != DUNLIN_MEM_NONE) {
                at->last[root] = position;
            }
        }
        position++;
    }
}

void dunlin__remat_extend(dunlin_remat *remat, const uint32_t *root_of)
{
    extender at = {.remat = remat, .root_of = root_of, .last = remat->touch_now};
    for (uint32_t r = 0; r < remat->n_roots; r++) {
        for (int i = 0; i < DUNLIN_MAX_EXTENSIONS; i++) {
            remat->roots[r].extends_to[i] = DUNLIN_MEM_NONE;
            remat->roots[r].extension[i] = DUNLIN_MEM_NONE;
        }
    }
    find_last(&at);
    for (; remat->n_phases > 1 && at.level < DUNLIN_MAX_EXTENSIONS; at.level++) {
        for (uint32_t i = 0; i < remat->graph->n_ops; i++) {
            if (remat->graph->ops[i].parts != DUNLIN_MEM_FIXED) {
                extend_reads(&at, &remat->graph->ops[i]);
            }
        }
        for (uint32_t r = 0; r < remat->n_roots; r++) {
            const uint32_t to = remat->roots[r].extends_to[at.level];
            assert(to == DUNLIN_MEM_NONE || to > at.last[r]); /* they ascend */
            at.last[r] = to == DUNLIN_MEM_NONE ? at.last[r] : to;
        }
    }
}
