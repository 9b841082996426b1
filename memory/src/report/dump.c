/*
 * dump.c - a plan as text for people.
 *
 * A step's line: a mark at the peak, its number, op, parts, live bytes of the pool, then what it
 * touches: r read, w write, a accumulate, u update, ws workspace, each with its offset in the
 * arena.
 */
#include "plan/summary.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define LINE_BYTES 256
#define TOUCH_COLUMN 56 /* where a step's touches begin, on its first line and on the next ones */
#define WRAP_COLUMN 120

typedef struct {
    dunlin_plan_line_fn line_fn;
    void *ctx;
    char text[LINE_BYTES];
    size_t n;
} writer;

static void add(writer *out, const char *format, ...) DUNLIN_PRINTF(2, 3);

static void add(writer *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out->text + out->n, sizeof out->text - out->n, format, args);
    va_end(args);
    if (n > 0) {
        out->n += (size_t)n;
        out->n = out->n < sizeof out->text - 1 ? out->n : sizeof out->text - 1;
    }
}

static void end_line(writer *out)
{
    while (out->n > 0 && out->text[out->n - 1] == ' ') {
        out->n--;
    }
    out->text[out->n] = '\0';
    out->line_fn(out->ctx, out->text);
    out->n = 0;
    out->text[0] = '\0';
}

static const char *policy_name(dunlin_plan_policy policy)
{
    static const char *const names[] = {
        [DUNLIN_PLAN_AUTO] = "auto",        [DUNLIN_PLAN_NONE] = "none",
        [DUNLIN_PLAN_POOL] = "pool",        [DUNLIN_PLAN_MICROBATCH] = "microbatch",
        [DUNLIN_PLAN_IDEAL] = "ideal",      [DUNLIN_PLAN_RECOMPUTE] = "recompute",
        [DUNLIN_PLAN_SGC] = "sgc",          [DUNLIN_PLAN_SAGE] = "sage",
        [DUNLIN_PLAN_MELON] = "melon",      [DUNLIN_PLAN_SUBLINEAR] = "sublinear",
        [DUNLIN_PLAN_WHOLE] = "whole",      [DUNLIN_PLAN_VDNN] = "vdnn",
        [DUNLIN_PLAN_CAPUCHIN] = "capuchin"};
    return (size_t)policy < sizeof names / sizeof names[0] ? names[policy] : "unknown";
}

static const char *parts_name(uint8_t parts)
{
    switch (parts) {
    case DUNLIN_MEM_MAP:
        return "map";
    case DUNLIN_MEM_REDUCE:
        return "reduce";
    case DUNLIN_MEM_MAP | DUNLIN_MEM_REDUCE:
        return "map+reduce";
    case DUNLIN_MEM_FIXED:
        return "fixed";
    default:
        return "none";
    }
}

static void dump_head(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                      const dunlin_plan_summary *summary, writer *out)
{
    add(out,
        "plan: batch %" PRIu64 ", policy %s, %" PRIu32 " loops, %" PRIu32 " steps (%" PRIu32
        " recomputed), predicted %.4f ms",
        plan->batch, policy_name(plan->policy), plan->n_loops, plan->n_steps, plan->n_recompute_ops,
        (double)plan->cost_ns * 1e-6);
    end_line(out);
    add(out,
        "arena: %" PRIu64 " bytes = %" PRIu64 " persistent + %" PRIu64 " pool (lower bound %" PRIu64
        ", packed by %s); table %" PRIu64 " bytes",
        plan->arena_bytes, plan->persistent_bytes, plan->pool_bytes, plan->pool_lower_bound_bytes,
        plan->packing == NULL ? "hand" : plan->packing, plan->table_bytes);
    end_line(out);
    add(out, "at the peak, step %" PRIu32 " (%s):", summary->peak_step,
        graph->ops[plan->steps[summary->peak_step].op].name == NULL
            ? "(unnamed)"
            : graph->ops[plan->steps[summary->peak_step].op].name);
    for (int c = 0; c < DUNLIN_MEM_N_CLASSES; c++) {
        if (summary->class_bytes[c] != 0) {
            add(out, " %s %" PRIu64, dunlin__mem_class_name((dunlin_mem_class)c),
                summary->class_bytes[c]);
        }
    }
    add(out, " unused %" PRIu64, summary->padding_bytes);
    end_line(out);
}

/* One touch, on a new line when this one is full. */
static void add_touch(writer *out, const char *touch)
{
    if (out->n > TOUCH_COLUMN && out->n + 2 > WRAP_COLUMN) {
        end_line(out);
    }
    while (out->n < TOUCH_COLUMN) {
        add(out, " ");
    }
    add(out, "%s  ", touch);
}

static void dump_step(const dunlin_mem_graph *graph, const dunlin_plan *plan, uint32_t index,
                      bool is_peak, writer *out)
{
    static const char *const modes[] = {"r", "w", "a", "u"};
    const dunlin_plan_step *step = &plan->steps[index];
    const dunlin_mem_op *op = &graph->ops[step->op];
    const dunlin_mem_variant *variant = &op->variants[step->variant];
    char touch[96];
    add(out, "%c%5" PRIu32 " %-24.24s %-10s %12" PRIu64, is_peak ? '*' : ' ', index,
        op->name == NULL ? "(unnamed)" : op->name, parts_name(step->parts),
        dunlin__live_bytes(graph, plan, index));
    if (op->n_variants > 1) {
        (void)snprintf(touch, sizeof touch, "[%s]",
                       variant->name == NULL ? "unnamed" : variant->name);
        add_touch(out, touch);
    }
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        uint32_t operand = plan->operands[step->first_operand + a];
        if (operand != DUNLIN_MEM_NONE) {
            const dunlin_mem_access *access = &variant->accesses[a];
            const dunlin_plan_allocation *place = &plan->places[operand];
            const char *name = graph->tensors[access->tensor].name;
            (void)snprintf(touch, sizeof touch, "%s %.48s@%" PRIu64 "%s", modes[access->mode & 3],
                           name == NULL ? "(unnamed)" : name, place->offset_bytes,
                           place->is_whole ? " whole" : "");
            add_touch(out, touch);
        }
    }
    if (step->workspace != DUNLIN_MEM_NONE) {
        const dunlin_plan_allocation *place = &plan->places[step->workspace];
        (void)snprintf(touch, sizeof touch, "ws@%" PRIu64 "+%" PRIu64, place->offset_bytes,
                       place->bytes);
        add_touch(out, touch);
    }
    end_line(out);
}

void dunlin__plan_dump(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                       dunlin_plan_line_fn line_fn, void *ctx)
{
    writer out = {.line_fn = line_fn, .ctx = ctx};
    dunlin_plan_summary summary;
    dunlin__plan_summarize(graph, plan, &summary);
    dump_head(graph, plan, &summary, &out);
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        if (loop->slice_samples == 0) {
            add(&out, "loop %" PRIu32 ": once", l);
        } else {
            uint64_t n_slices = (plan->batch - 1) / loop->slice_samples + 1;
            add(&out, "loop %" PRIu32 ": %" PRIu64 " slice%s of %s%" PRIu64 " samples", l, n_slices,
                n_slices == 1 ? "" : "s", plan->batch % loop->slice_samples == 0 ? "" : "at most ",
                loop->slice_samples);
        }
        end_line(&out);
        for (uint32_t k = 0; k < loop->n_steps; k++) {
            uint32_t step = loop->first_step + k;
            dump_step(graph, plan, step, step == summary.peak_step, &out);
        }
    }
}
