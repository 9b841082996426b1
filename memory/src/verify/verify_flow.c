/*
 * verify_flow.c - simulates a plan and checks what every read would find.
 *
 * Each allocation holds, for its tensor and each part of it, the number of the op that wrote it
 * last (its version). The graph's own order says which version each read is meant to see. A loop is
 * run for its first, second and last slice: after the first, all slices leave the same state, and
 * the last completes what is accumulated over all of them.
 *
 * Invariant: between slices only what is alive through the whole loop is kept.
 */
#include "verify.h"

#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define MAX_SLICES 3 /* simulated of a loop */

/* What an allocation holds of one tensor. */
typedef struct {
    uint32_t versions[MAX_SLICES]; /* by slice if it holds the whole batch, else the first alone */
    uint32_t loop;                 /* the slice that was current when it was written */
    uint32_t slice;
    uint32_t n_started; /* reducers that have seen the first slice, and the last */
    uint32_t n_done;
} content;

typedef struct {
    const dunlin_verifier *verifier;
    const dunlin_mem_graph *graph;
    const dunlin_plan *plan;
    uint32_t *first_writer; /* by tensor, into writers: ops that write it or a parent, ascending */
    uint32_t *writers;
    uint32_t n_writers;
    uint32_t *n_reducers; /* ops that accumulate in a tensor */
    uint32_t *root;
    uint32_t *slot;     /* index of a tensor among those of its root */
    uint32_t *first_of; /* by root, into members: the root and all its parts */
    uint32_t *members;
    uint32_t *first_content; /* by place; one past the end at n_places */
    content *contents;
    uint32_t n_contents;
    uint32_t *stored; /* by tensor: the version that was written out to the file, or nothing */
    uint32_t loop;    /* the current one */
    uint32_t slice;
    uint32_t n_slices;
} dunlin_flow;

static uint32_t nothing(void)
{
    return DUNLIN_MEM_NONE;
}

/* The version of a persistent tensor before the step. */
static uint32_t initial(const dunlin_flow *flow)
{
    return flow->graph->n_ops;
}

/* --- tables --- */

static bool writes(const dunlin_mem_access *access)
{
    return access->mode == DUNLIN_MEM_WRITE || access->mode == DUNLIN_MEM_UPDATE;
}

static void count_member(dunlin_flow *flow, uint32_t tensor)
{
    uint32_t root = tensor;
    while (flow->graph->tensors[root].parent != DUNLIN_MEM_NONE) {
        root = flow->graph->tensors[root].parent;
    }
    flow->root[tensor] = root;
    flow->slot[tensor] = flow->first_of[root + 1]++;
}

static void list_members(dunlin_flow *flow)
{
    uint32_t n = flow->graph->n_tensors;
    for (uint32_t t = 0; t < n; t++) {
        count_member(flow, t);
    }
    for (uint32_t t = 0; t < n; t++) {
        flow->first_of[t + 1] += flow->first_of[t];
    }
    for (uint32_t t = 0; t < n; t++) {
        flow->members[flow->first_of[flow->root[t]] + flow->slot[t]] = t;
    }
}

/* Visits each (tensor, op that writes it or a parent of it); counts them, or stores them. */
static void list_writers(dunlin_flow *flow, bool is_counting)
{
    for (uint32_t i = 0; i < flow->graph->n_ops; i++) {
        const dunlin_mem_variant *variant = &flow->graph->ops[i].variants[0];
        for (uint32_t a = 0; a < variant->n_accesses; a++) {
            const dunlin_mem_access *access = &variant->accesses[a];
            if (is_counting && access->mode == DUNLIN_MEM_ACCUMULATE) {
                flow->n_reducers[access->tensor]++;
            }
            uint32_t root = flow->root[access->tensor];
            uint32_t end = writes(access) ? flow->first_of[root + 1] : 0;
            for (uint32_t m = flow->first_of[root]; m < end; m++) {
                uint32_t tensor = flow->members[m];
                if (!dunlin__verify_is_within(flow->graph, tensor, access->tensor)) {
                    continue;
                }
                if (is_counting) {
                    flow->first_writer[tensor + 1]++;
                } else {
                    flow->writers[flow->first_writer[tensor]++] = i;
                }
            }
        }
    }
}

static dunlin_status no_memory(const dunlin_flow *flow)
{
    return dunlin__fail(flow->verifier->error, DUNLIN_MEMORY, "verify", 0,
                        "no memory to follow %" PRIu32 " tensors in %" PRIu32 " places",
                        flow->graph->n_tensors, flow->plan->n_places);
}

static void flow_close(dunlin_flow *flow)
{
    const dunlin_alloc *alloc = flow->verifier->alloc;
    size_t n = flow->graph->n_tensors;
    dunlin__free_array(alloc, flow->contents, flow->n_contents, sizeof *flow->contents);
    dunlin__free_array(alloc, flow->writers, flow->n_writers, sizeof *flow->writers);
    dunlin__free_array(alloc, flow->first_content, (size_t)flow->plan->n_places + 1,
                       sizeof *flow->first_content);
    dunlin__free_array(alloc, flow->stored, n, sizeof *flow->stored);
    dunlin__free_array(alloc, flow->members, n, sizeof *flow->members);
    dunlin__free_array(alloc, flow->first_of, n + 1, sizeof *flow->first_of);
    dunlin__free_array(alloc, flow->slot, n, sizeof *flow->slot);
    dunlin__free_array(alloc, flow->root, n, sizeof *flow->root);
    dunlin__free_array(alloc, flow->n_reducers, n, sizeof *flow->n_reducers);
    dunlin__free_array(alloc, flow->first_writer, n + 1, sizeof *flow->first_writer);
}

static dunlin_status fill_writers(dunlin_flow *flow)
{
    uint32_t n = flow->graph->n_tensors;
    list_writers(flow, true);
    for (uint32_t t = 0; t < n; t++) {
        flow->first_writer[t + 1] += flow->first_writer[t];
    }
    if (flow->first_writer[n] == 0) {
        return DUNLIN_OK;
    }
    flow->writers =
        dunlin__alloc_array(flow->verifier->alloc, flow->first_writer[n], sizeof *flow->writers);
    if (flow->writers == NULL) {
        return no_memory(flow);
    }
    flow->n_writers = flow->first_writer[n];
    list_writers(flow, false);
    memmove(&flow->first_writer[1], &flow->first_writer[0], n * sizeof *flow->first_writer);
    flow->first_writer[0] = 0;
    return DUNLIN_OK;
}

static dunlin_status fill_contents(dunlin_flow *flow)
{
    const dunlin_plan *plan = flow->plan;
    uint32_t n = 0;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        uint32_t tensor = plan->places[p].tensor;
        flow->first_content[p] = n;
        n += tensor == DUNLIN_MEM_NONE ? 0 : flow->first_of[tensor + 1] - flow->first_of[tensor];
    }
    flow->first_content[plan->n_places] = n;
    if (n == 0) {
        return DUNLIN_OK;
    }
    flow->contents = dunlin__alloc_array(flow->verifier->alloc, n, sizeof *flow->contents);
    if (flow->contents == NULL) {
        return no_memory(flow);
    }
    flow->n_contents = n;
    for (uint32_t p = 0; p < plan->n_places; p++) {
        uint32_t tensor = plan->places[p].tensor;
        bool is_persistent =
            tensor != DUNLIN_MEM_NONE && flow->graph->tensors[tensor].is_persistent;
        for (uint32_t c = flow->first_content[p]; c < flow->first_content[p + 1]; c++) {
            uint32_t version = is_persistent ? initial(flow) : nothing();
            flow->contents[c] = (content){.versions = {version, version, version}};
        }
    }
    return DUNLIN_OK;
}

static dunlin_status flow_open(dunlin_flow *flow)
{
    const dunlin_alloc *alloc = flow->verifier->alloc;
    size_t n = flow->graph->n_tensors;
    flow->first_writer = dunlin__alloc_zeroed(alloc, n + 1, sizeof *flow->first_writer);
    flow->n_reducers = dunlin__alloc_zeroed(alloc, n, sizeof *flow->n_reducers);
    flow->root = dunlin__alloc_zeroed(alloc, n, sizeof *flow->root);
    flow->slot = dunlin__alloc_zeroed(alloc, n, sizeof *flow->slot);
    flow->first_of = dunlin__alloc_zeroed(alloc, n + 1, sizeof *flow->first_of);
    flow->members = dunlin__alloc_zeroed(alloc, n, sizeof *flow->members);
    flow->stored = dunlin__alloc_array(alloc, n, sizeof *flow->stored);
    flow->first_content =
        dunlin__alloc_zeroed(alloc, (size_t)flow->plan->n_places + 1, sizeof *flow->first_content);
    if (flow->first_writer == NULL || flow->n_reducers == NULL || flow->root == NULL ||
        flow->slot == NULL || flow->first_of == NULL || flow->members == NULL ||
        flow->first_content == NULL || flow->stored == NULL) {
        return no_memory(flow);
    }
    for (size_t t = 0; t < n; t++) {
        flow->stored[t] = nothing();
    }
    list_members(flow);
    DUNLIN_TRY(fill_writers(flow));
    return fill_contents(flow);
}

/* --- one access --- */

/* The version an op is meant to see: the last written before it in the graph's order. */
static uint32_t expected_version(const dunlin_flow *flow, uint32_t tensor, uint32_t op)
{
    uint32_t low = flow->first_writer[tensor];
    uint32_t high = flow->first_writer[tensor + 1];
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (flow->writers[middle] < op) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low > flow->first_writer[tensor]) {
        return flow->writers[low - 1];
    }
    return flow->graph->tensors[tensor].is_persistent ? initial(flow) : nothing();
}

static const char *version_name(const dunlin_flow *flow, uint32_t version)
{
    if (version == initial(flow)) {
        return "the version before the step";
    }
    if (version == nothing()) {
        return "nothing";
    }
    const char *name = flow->graph->ops[version].name;
    return name == NULL ? "(unnamed)" : name;
}

static content *content_of(const dunlin_flow *flow, uint32_t place, uint32_t tensor)
{
    return &flow->contents[flow->first_content[place] + flow->slot[tensor]];
}

/* The allocation holds every slice of a batch-indexed tensor. */
static bool is_by_slice(const dunlin_flow *flow, uint32_t place)
{
    return flow->plan->places[place].is_whole &&
           flow->graph->tensors[flow->plan->places[place].tensor].sample_bytes != 0;
}

/* The version of one tensor that is there for the current slice. */
static uint32_t found_version(const dunlin_flow *flow, uint32_t place, uint32_t tensor)
{
    const content *held = content_of(flow, place, tensor);
    if (!dunlin__mem_is_sliced(&flow->graph->tensors[tensor])) {
        return held->versions[0];
    }
    if (is_by_slice(flow, place)) {
        return held->versions[flow->slice];
    }
    return held->loop == flow->loop && held->slice == flow->slice ? held->versions[0] : nothing();
}

static dunlin_status check_read(const dunlin_flow *flow, uint32_t step, uint32_t tensor,
                                uint32_t place)
{
    uint32_t op = flow->plan->steps[step].op;
    uint32_t root = flow->root[tensor];
    for (uint32_t m = flow->first_of[root]; m < flow->first_of[root + 1]; m++) {
        uint32_t other = flow->members[m];
        bool is_inside = dunlin__verify_is_within(flow->graph, other, tensor);
        if (!is_inside && !dunlin__verify_is_within(flow->graph, tensor, other)) {
            continue;
        }
        uint32_t n_done = content_of(flow, place, other)->n_done;
        if (n_done != flow->n_reducers[other]) {
            return dunlin__verify_fail(flow->verifier, step, other,
                                       "is read after %" PRIu32 " of %" PRIu32
                                       " reductions over the whole batch",
                                       n_done, flow->n_reducers[other]);
        }
        uint32_t expected = expected_version(flow, other, op);
        uint32_t found = found_version(flow, place, other);
        if (is_inside && expected != nothing() && found != expected) {
            return dunlin__verify_fail(
                flow->verifier, step, other, "place %" PRIu32 " holds %s%s of this slice, not %s%s",
                place, found < initial(flow) ? "the output of " : "", version_name(flow, found),
                expected < initial(flow) ? "the output of " : "", version_name(flow, expected));
        }
    }
    return DUNLIN_OK;
}

static void write(dunlin_flow *flow, uint32_t step, uint32_t tensor, uint32_t place)
{
    uint32_t op = flow->plan->steps[step].op;
    uint32_t root = flow->root[tensor];
    for (uint32_t m = flow->first_of[root]; m < flow->first_of[root + 1]; m++) {
        if (dunlin__verify_is_within(flow->graph, flow->members[m], tensor)) {
            content *held = content_of(flow, place, flow->members[m]);
            held->versions[is_by_slice(flow, place) ? flow->slice : 0] = op;
            held->loop = flow->loop;
            held->slice = flow->slice;
        }
    }
}

static dunlin_status accumulate(dunlin_flow *flow, uint32_t step, uint32_t tensor, uint32_t place)
{
    content *held = content_of(flow, place, tensor);
    if (flow->slice == 0) {
        held->n_started++;
    } else if (held->n_started == 0) {
        return dunlin__verify_fail(flow->verifier, step, tensor,
                                   "its sum is not kept from slice to slice in place %" PRIu32,
                                   place);
    }
    if (flow->slice == flow->n_slices - 1) {
        held->n_done++;
    }
    return DUNLIN_OK;
}

/* The file takes what the allocation holds of a tensor and its parts, or gives it back. */
static dunlin_status swap(dunlin_flow *flow, uint32_t step, uint32_t tensor, uint32_t place)
{
    const bool is_out =
        dunlin__mem_swap_of(flow->graph, flow->plan->steps[step].op) == DUNLIN_MEM_SWAP_OUT;
    bool has_any = false;
    for (uint32_t m = flow->first_of[tensor]; m < flow->first_of[tensor + 1]; m++) {
        const uint32_t member = flow->members[m];
        content *held = content_of(flow, place, member);
        if (is_out) {
            flow->stored[member] = found_version(flow, place, member);
        } else {
            held->versions[0] = flow->stored[member];
            held->loop = flow->loop;
            held->slice = flow->slice;
        }
        has_any = has_any || flow->stored[member] != nothing();
    }
    return has_any
               ? DUNLIN_OK
               : dunlin__verify_fail(flow->verifier, step, tensor,
                                     is_out ? "is written out, but place %" PRIu32 " holds nothing"
                                            : "is read back into place %" PRIu32
                                              ", but was not written out",
                                     place);
}

/* --- steps, slices, loops --- */

static dunlin_status run_step(dunlin_flow *flow, uint32_t index)
{
    const dunlin_plan_step *step = &flow->plan->steps[index];
    const dunlin_mem_variant *variant = &flow->graph->ops[step->op].variants[step->variant];
    const uint32_t *operands = &flow->plan->operands[step->first_operand];
    if (dunlin__mem_swap_of(flow->graph, step->op) != DUNLIN_MEM_SWAP_NO) {
        return swap(flow, index, variant->accesses[0].tensor, operands[0]);
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        if (operands[a] != DUNLIN_MEM_NONE &&
            (access->mode == DUNLIN_MEM_READ || access->mode == DUNLIN_MEM_UPDATE)) {
            DUNLIN_TRY(check_read(flow, index, access->tensor, operands[a]));
        }
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        const dunlin_mem_access *access = &variant->accesses[a];
        if (operands[a] == DUNLIN_MEM_NONE) {
            continue;
        }
        if (writes(access)) {
            write(flow, index, access->tensor, operands[a]);
        } else if (access->mode == DUNLIN_MEM_ACCUMULATE) {
            DUNLIN_TRY(accumulate(flow, index, access->tensor, operands[a]));
        }
    }
    return DUNLIN_OK;
}

/* Allocations alive for a part of the loop lose what they hold: others use their bytes in between.
 */
static void forget_between_slices(dunlin_flow *flow, const dunlin_plan_loop *loop)
{
    uint32_t last_step = loop->first_step + loop->n_steps - 1;
    for (uint32_t p = 0; p < flow->plan->n_places; p++) {
        const dunlin_plan_allocation *place = &flow->plan->places[p];
        bool is_elsewhere = place->last_step < loop->first_step || place->first_step > last_step;
        bool is_throughout = place->first_step <= loop->first_step && place->last_step >= last_step;
        if (is_elsewhere || is_throughout) {
            continue;
        }
        for (uint32_t c = flow->first_content[p]; c < flow->first_content[p + 1]; c++) {
            flow->contents[c] = (content){.versions = {nothing(), nothing(), nothing()}};
        }
    }
}

/* After a loop, a whole tensor is of one version or of none: the next loop may have other slices.
 */
static void settle(dunlin_flow *flow)
{
    if (flow->contents == NULL) {
        return;
    }
    for (uint32_t p = 0; p < flow->plan->n_places; p++) {
        for (uint32_t c = flow->first_content[p]; c < flow->first_content[p + 1]; c++) {
            uint32_t *versions = flow->contents[c].versions;
            uint32_t version = versions[0];
            for (uint32_t j = 1; j < flow->n_slices && is_by_slice(flow, p); j++) {
                version = versions[j] == version ? version : nothing();
            }
            for (uint32_t j = 0; j < MAX_SLICES; j++) {
                versions[j] = version;
            }
        }
    }
}

static dunlin_status run_loop(dunlin_flow *flow, uint32_t index)
{
    const dunlin_plan_loop *loop = &flow->plan->loops[index];
    uint64_t n_slices = 1;
    if (loop->slice_samples != 0) {
        n_slices = (flow->plan->batch - 1) / loop->slice_samples + 1;
    }
    flow->loop = index;
    flow->n_slices = n_slices < MAX_SLICES ? (uint32_t)n_slices : MAX_SLICES;
    for (flow->slice = 0; flow->slice < flow->n_slices; flow->slice++) {
        if (flow->slice > 0) {
            forget_between_slices(flow, loop);
        }
        for (uint32_t k = 0; k < loop->n_steps; k++) {
            DUNLIN_TRY(run_step(flow, loop->first_step + k));
        }
    }
    settle(flow);
    return DUNLIN_OK;
}

dunlin_status dunlin__verify_flow(const dunlin_verifier *verifier)
{
    dunlin_flow flow = {.verifier = verifier, .graph = verifier->graph, .plan = verifier->plan};
    dunlin_status status = flow_open(&flow);
    for (uint32_t l = 0; l < flow.plan->n_loops && status == DUNLIN_OK; l++) {
        status = run_loop(&flow, l);
    }
    flow_close(&flow);
    return status;
}
