/*
 * serialize.c - plans to bytes and back.
 *
 * All numbers little-endian: "DUNLINPL", format version, key, numbers of loops, allocations, steps
 * and operands, recomputed steps, batch, persistent bytes, pool bytes; then those arrays one after
 * another, without gaps; CRC-32 of all that.
 * Invariant: the length follows from the head, so no count can ask for more than there is; a plan
 * is handed out only when the verifier has passed it; writing a plan that was read gives the same
 * bytes.
 */
#include "emit.h"
#include "schedule/schedule.h"

#include <mem/checked.h>
#include <mem/hash.h>
#include <mem/store.h>
#include <mem/support.h>

#include <inttypes.h>
#include <string.h>

#define SUBSYSTEM "plan"
#define MAGIC "DUNLINPL"
#define FORMAT_VERSION 1
#define HEAD_BYTES 64
#define LOOP_BYTES 16
#define PLACE_BYTES 29
#define STEP_BYTES 14
#define OPERAND_BYTES 4
#define CRC_BYTES 4
#define MAX_BYTES (1U << 30)

uint32_t dunlin__crc32(uint32_t crc, const void *bytes, size_t n)
{
    /* Four bits at a time: a table of sixteen, entry i being the remainder of i. */
    static const uint32_t table[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
                                       0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                                       0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    const unsigned char *at = bytes;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= at[i];
        crc = crc >> 4 ^ table[crc & 15];
        crc = crc >> 4 ^ table[crc & 15];
    }
    return ~crc;
}

uint64_t dunlin__plan_key(const dunlin_mem_graph *graph, const dunlin_plan_options *options)
{
    uint64_t key = dunlin__graph_hash(graph, true);
    key = dunlin__hash_add(key, DUNLIN_PLAN_SEARCH_VERSION);
    key = dunlin__hash_add(key, options->batch);
    key = dunlin__hash_add(key, options->budget_bytes);
    key = dunlin__hash_add(key, options->slice_samples);
    key =
        dunlin__hash_add(key, (options->is_slice_fixed ? 1U : 0U) + 2 * (uint64_t)options->n_cuts);
    return dunlin__hash_add(key, (uint64_t)options->policy);
}

/* The counts are 32 bits each: no overflow. */
static uint64_t stored_bytes(uint64_t n_loops, uint64_t n_places, uint64_t n_steps,
                             uint64_t n_operands)
{
    return HEAD_BYTES + n_loops * LOOP_BYTES + n_places * PLACE_BYTES + n_steps * STEP_BYTES +
           n_operands * OPERAND_BYTES + CRC_BYTES;
}

uint64_t dunlin__plan_stored_bytes(const dunlin_plan *plan)
{
    return stored_bytes(plan->n_loops, plan->n_places, plan->n_steps, plan->n_operands);
}

/* --- writing --- */

/* Numbers one after another. */
typedef struct packer {
    unsigned char bytes[HEAD_BYTES];
    size_t n;
} packer;

static void put(packer *to, uint64_t number, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        to->bytes[to->n++] = (unsigned char)(number >> (8 * i));
    }
}

typedef struct writer {
    dunlin_plan_write_fn write_fn;
    void *ctx;
    uint32_t crc;
    dunlin_status status;
} writer;

static void flush(writer *out, packer *from)
{
    if (out->status == DUNLIN_OK) {
        out->crc = dunlin__crc32(out->crc, from->bytes, from->n);
        out->status = out->write_fn(out->ctx, from->bytes, from->n);
    }
    from->n = 0;
}

static void write_head(writer *out, uint64_t key, const dunlin_plan *plan)
{
    packer head = {.bytes = MAGIC, .n = 8};
    put(&head, FORMAT_VERSION, 4);
    put(&head, key, 8);
    put(&head, plan->n_loops, 4);
    put(&head, plan->n_places, 4);
    put(&head, plan->n_steps, 4);
    put(&head, plan->n_operands, 4);
    put(&head, plan->n_recompute_ops, 4);
    put(&head, plan->batch, 8);
    put(&head, plan->persistent_bytes, 8);
    put(&head, plan->pool_bytes, 8);
    flush(out, &head);
}

static void write_arrays(writer *out, const dunlin_plan *plan)
{
    packer to = {.n = 0};
    for (uint32_t i = 0; i < plan->n_loops; i++) {
        put(&to, plan->loops[i].first_step, 4);
        put(&to, plan->loops[i].n_steps, 4);
        put(&to, plan->loops[i].slice_samples, 8);
        flush(out, &to);
    }
    for (uint32_t i = 0; i < plan->n_places; i++) {
        const dunlin_plan_allocation *place = &plan->places[i];
        put(&to, place->tensor, 4);
        put(&to, place->first_step, 4);
        put(&to, place->last_step, 4);
        put(&to, place->is_whole ? 1 : 0, 1);
        put(&to, place->offset_bytes, 8);
        put(&to, place->bytes, 8);
        flush(out, &to);
    }
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        const dunlin_plan_step *step = &plan->steps[i];
        put(&to, step->op, 4);
        put(&to, step->variant, 1);
        put(&to, step->parts, 1);
        put(&to, step->first_operand, 4);
        put(&to, step->workspace, 4);
        flush(out, &to);
    }
    for (uint32_t i = 0; i < plan->n_operands; i++) {
        put(&to, plan->operands[i], 4);
        if (to.n == HEAD_BYTES || i + 1 == plan->n_operands) {
            flush(out, &to);
        }
    }
}

dunlin_status dunlin__plan_write(const dunlin_mem_graph *graph, const dunlin_plan_options *options,
                                 const dunlin_plan *plan, dunlin_plan_write_fn write_fn, void *ctx)
{
    writer out = {.write_fn = write_fn, .ctx = ctx, .status = DUNLIN_OK};
    write_head(&out, dunlin__plan_key(graph, options), plan);
    write_arrays(&out, plan);
    packer end = {.n = 0};
    put(&end, out.crc, CRC_BYTES);
    flush(&out, &end);
    return out.status;
}

/* --- reading --- */

typedef struct reader {
    const unsigned char *at;
} reader;

static uint64_t get(reader *from, size_t n_bytes)
{
    uint64_t number = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        number |= (uint64_t)from->at[i] << (8 * i);
    }
    from->at += n_bytes;
    return number;
}

/* The head's numbers; nothing but the length is known to be right of what follows. */
static dunlin_status read_head(reader *from, size_t n_bytes, uint64_t *out_key,
                               dunlin_plan *out_head, dunlin_error *error)
{
    if (n_bytes < HEAD_BYTES + CRC_BYTES || n_bytes > MAX_BYTES ||
        memcmp(from->at, MAGIC, 8) != 0) {
        return dunlin__fail(error, DUNLIN_DIGEST, SUBSYSTEM, 0, "%zu bytes are not a kept plan",
                            n_bytes);
    }
    from->at += 8;
    const uint64_t version = get(from, 4);
    if (version != FORMAT_VERSION) {
        return dunlin__fail(error, DUNLIN_VERSION, SUBSYSTEM, 0,
                            "a kept plan of format version %" PRIu64
                            "; this library reads version %d",
                            version, FORMAT_VERSION);
    }
    *out_key = get(from, 8);
    *out_head = (dunlin_plan){.n_loops = (uint32_t)get(from, 4)};
    out_head->n_places = (uint32_t)get(from, 4);
    out_head->n_steps = (uint32_t)get(from, 4);
    out_head->n_operands = (uint32_t)get(from, 4);
    out_head->n_recompute_ops = (uint32_t)get(from, 4);
    out_head->batch = get(from, 8);
    out_head->persistent_bytes = get(from, 8);
    out_head->pool_bytes = get(from, 8);
    if (dunlin__plan_stored_bytes(out_head) != n_bytes) {
        return dunlin__fail(error, DUNLIN_DIGEST, SUBSYSTEM, 0,
                            "a kept plan has %zu bytes, and its head names %" PRIu64, n_bytes,
                            dunlin__plan_stored_bytes(out_head));
    }
    return DUNLIN_OK;
}

static dunlin_status check_sum(const unsigned char *bytes, size_t n_bytes, dunlin_error *error)
{
    reader sum = {.at = bytes + n_bytes - CRC_BYTES};
    const uint32_t found = dunlin__crc32(0, bytes, n_bytes - CRC_BYTES);
    if (found != get(&sum, CRC_BYTES)) {
        return dunlin__fail(error, DUNLIN_DIGEST, SUBSYSTEM, 0,
                            "the checksum of a kept plan is wrong (%08" PRIx32 ")", found);
    }
    return DUNLIN_OK;
}

/* The arrays as they stand; false if a byte that says yes or no says neither. */
static bool read_arrays(reader *from, dunlin_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_loops; i++) {
        plan->loops[i].first_step = (uint32_t)get(from, 4);
        plan->loops[i].n_steps = (uint32_t)get(from, 4);
        plan->loops[i].slice_samples = get(from, 8);
    }
    for (uint32_t i = 0; i < plan->n_places; i++) {
        dunlin_plan_allocation *place = &plan->places[i];
        place->tensor = (uint32_t)get(from, 4);
        place->first_step = (uint32_t)get(from, 4);
        place->last_step = (uint32_t)get(from, 4);
        const uint64_t is_whole = get(from, 1);
        if (is_whole > 1) {
            return false;
        }
        place->is_whole = is_whole == 1;
        place->offset_bytes = get(from, 8);
        place->bytes = get(from, 8);
    }
    for (uint32_t i = 0; i < plan->n_steps; i++) {
        dunlin_plan_step *step = &plan->steps[i];
        step->op = (uint32_t)get(from, 4);
        step->variant = (uint8_t)get(from, 1);
        step->parts = (uint8_t)get(from, 1);
        step->first_operand = (uint32_t)get(from, 4);
        step->workspace = (uint32_t)get(from, 4);
    }
    for (uint32_t i = 0; i < plan->n_operands; i++) {
        plan->operands[i] = (uint32_t)get(from, 4);
    }
    return true;
}

/* All plans of a graph keep its persistent tensors at the same addresses; so must this one. */
static bool is_persistent_in_order(const dunlin_mem_graph *graph, const dunlin_plan *plan)
{
    uint64_t bottom = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const dunlin_mem_tensor *tensor = &graph->tensors[t];
        if (!dunlin__mem_is_static(tensor) || tensor->parent != DUNLIN_MEM_NONE) {
            continue;
        }
        uint64_t bytes = 0;
        (void)dunlin__align_u64(tensor->fixed_bytes, DUNLIN_MEM_ALIGN, &bytes);
        for (uint32_t p = 0; p < plan->n_places; p++) {
            if (plan->places[p].tensor == t &&
                (plan->places[p].offset_bytes != bottom || plan->places[p].bytes != bytes)) {
                return false;
            }
        }
        bottom += bytes;
    }
    return bottom == plan->persistent_bytes;
}

static bool writes_persistent(const dunlin_mem_graph *graph, const dunlin_plan_step *step)
{
    const dunlin_mem_variant *variant = &graph->ops[step->op].variants[step->variant];
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        if (variant->accesses[a].mode != DUNLIN_MEM_READ &&
            graph->tensors[variant->accesses[a].tensor].is_persistent) {
            return true;
        }
    }
    return false;
}

/* Nothing that the graph has before a change of the weights comes after it: a check that may stop
 * the step must not come too late, though no tensor ties it to the change. */
static bool is_checked_first(const dunlin_mem_graph *graph, const dunlin_plan *plan)
{
    uint32_t least_later = DUNLIN_MEM_NONE;
    for (uint32_t k = plan->n_steps; k > 0; k--) {
        const dunlin_plan_step *step = &plan->steps[k - 1];
        if (step->parts != DUNLIN_MEM_FIXED) {
            continue;
        }
        if (step->op > least_later && writes_persistent(graph, step)) {
            return false;
        }
        least_later = step->op < least_later ? step->op : least_later;
    }
    return true;
}

/* Of a plan that has been verified: what follows from its steps and allocations. */
static void complete(const dunlin_mem_graph *graph, dunlin_plan *plan)
{
    dunlin_plan_summary summary;
    dunlin__plan_summarize(graph, plan, &summary);
    plan->pool_lower_bound_bytes = plan->pool_bytes - summary.padding_bytes;
    plan->cost_ns = 0;
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        for (uint32_t k = loop->first_step; k < loop->first_step + loop->n_steps; k++) {
            const dunlin_schedule_step step = {.op = plan->steps[k].op,
                                               .variant = plan->steps[k].variant,
                                               .parts = plan->steps[k].parts};
            plan->cost_ns += dunlin__step_cost_ns(graph, &step, loop, plan->batch);
        }
    }
}

dunlin_status dunlin__plan_read(const dunlin_mem_graph *graph, const dunlin_plan_options *options,
                                const void *bytes, size_t n_bytes, dunlin_plan **out_plan,
                                dunlin_error *error)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(&options->alloc);
    reader from = {.at = bytes};
    dunlin_plan head = {.batch = 0};
    uint64_t key = 0;
    *out_plan = NULL;
    DUNLIN_TRY(read_head(&from, n_bytes, &key, &head, error));
    DUNLIN_TRY(check_sum(bytes, n_bytes, error));
    const uint64_t own_key = dunlin__plan_key(graph, options);
    if (key != own_key || head.batch != options->batch) {
        return dunlin__fail(error, DUNLIN_MISMATCH, SUBSYSTEM, 0,
                            "a kept plan has key %016" PRIx64 " and batch %" PRIu64
                            "; this step with these options has %016" PRIx64 " and %" PRIu64,
                            key, head.batch, own_key, options->batch);
    }
    head.arena_bytes = head.persistent_bytes + head.pool_bytes;
    if (options->budget_bytes != 0 && head.arena_bytes > options->budget_bytes) {
        return dunlin__fail(error, DUNLIN_BUDGET, SUBSYSTEM, 0,
                            "a kept plan of %" PRIu64 " bytes is above the budget of %" PRIu64,
                            head.arena_bytes, options->budget_bytes);
    }
    head.policy = options->policy;
    head.packing = "kept";
    dunlin_plan *plan = dunlin__plan_allocate(&head, &alloc);
    if (plan == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, SUBSYSTEM, 0,
                            "no memory for a kept plan of %" PRIu32 " steps", head.n_steps);
    }
    dunlin_status status =
        read_arrays(&from, plan)
            ? dunlin__plan_verify(graph, plan, &alloc, error)
            : dunlin__fail(error, DUNLIN_MISMATCH, SUBSYSTEM, 0,
                           "a kept plan of %" PRIu32 " steps holds a value out of its range",
                           head.n_steps);
    if (status == DUNLIN_OK &&
        (!is_persistent_in_order(graph, plan) || !is_checked_first(graph, plan))) {
        status = dunlin__fail(error, DUNLIN_MISMATCH, SUBSYSTEM, 0,
                              "a kept plan of %" PRIu32 " steps has weights at other addresses, or "
                              "changes them before the gradients are checked",
                              head.n_steps);
    }
    if (status != DUNLIN_OK) {
        dunlin__plan_destroy(plan);
        return status;
    }
    complete(graph, plan);
    *out_plan = plan;
    return DUNLIN_OK;
}
