/*
 * draw.c - a plan as an SVG drawing: steps to the right, addresses upward, one rectangle a place.
 *
 * Invariant: the text is complete by itself, without scripts or fonts from elsewhere. Names come
 * from model files, so every character that means something to XML is escaped.
 */
#include "summary.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define WIDTH 1200
#define HEIGHT 720
#define LEFT 90
#define RIGHT 20
#define TOP 70
#define BOTTOM 50
#define N_TICKS 8

static const char *const colours[DUNLIN_MEM_N_CLASSES] = {"#4c6a92", "#7b8fb0", "#93a8ac",
                                                          "#c9b458", "#5b9e6f", "#2f7d5b",
                                                          "#c7673d", "#a0467d", "#b9b9b9"};

typedef struct {
    const dunlin_mem_graph *graph;
    const dunlin_plan *plan;
    dunlin_plan_line_fn write_fn;
    void *ctx;
} drawing;

static void put(const drawing *out, const char *format, ...) DUNLIN_PRINTF(2, 3);

static void put(const drawing *out, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    out->write_fn(out->ctx, text);
}

static void put_escaped(const drawing *out, const char *text)
{
    char piece[2] = "";
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            out->write_fn(out->ctx, "&lt;");
            break;
        case '>':
            out->write_fn(out->ctx, "&gt;");
            break;
        case '&':
            out->write_fn(out->ctx, "&amp;");
            break;
        case '"':
            out->write_fn(out->ctx, "&quot;");
            break;
        default:
            piece[0] = (unsigned char)*text < 0x20 ? ' ' : *text;
            out->write_fn(out->ctx, piece);
            break;
        }
    }
}

static double x_of(const drawing *out, uint32_t step)
{
    return LEFT + (double)step * (WIDTH - LEFT - RIGHT) / (double)out->plan->n_steps;
}

static double y_of(const drawing *out, uint64_t offset_bytes)
{
    double full = out->plan->arena_bytes == 0 ? 1.0 : (double)out->plan->arena_bytes;
    return HEIGHT - BOTTOM - (double)offset_bytes / full * (HEIGHT - TOP - BOTTOM);
}

/* "12.5 MB": three figures, and the largest unit that leaves a number of at least 1. */
static void format_bytes(uint64_t bytes, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
    double value = (double)bytes;
    int unit = 0;
    while (value >= 1000.0 && unit < 4) {
        value /= 1000.0;
        unit++;
    }
    (void)snprintf(text, text_bytes, "%.3g %s", value, units[unit]);
}

static void draw_head(const drawing *out)
{
    const dunlin_plan *plan = out->plan;
    char arena[32];
    char pool[32];
    char bound[32];
    format_bytes(plan->arena_bytes, arena, sizeof arena);
    format_bytes(plan->pool_bytes, pool, sizeof pool);
    format_bytes(plan->pool_lower_bound_bytes, bound, sizeof bound);
    put(out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
        "font-family=\"sans-serif\" "
        "font-size=\"12\">\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n",
        WIDTH, HEIGHT, WIDTH, HEIGHT);
    put(out,
        "<text x=\"%d\" y=\"22\" font-size=\"15\">Batch of %" PRIu64
        ": an arena of %s, its pool %s (lower bound %s)</text>\n",
        LEFT, plan->batch, arena, pool, bound);
    for (int c = 0; c < DUNLIN_MEM_N_CLASSES; c++) {
        int x = LEFT + 118 * c;
        put(out,
            "<rect x=\"%d\" y=\"36\" width=\"12\" height=\"12\" fill=\"%s\"/><text x=\"%d\" "
            "y=\"46\">%s</text>\n",
            x, colours[c], x + 16, dunlin__mem_class_name((dunlin_mem_class)c));
    }
}

static void draw_place(const drawing *out, const dunlin_plan_place *place)
{
    bool is_workspace = place->tensor == DUNLIN_MEM_NONE;
    const dunlin_mem_tensor *tensor = is_workspace ? NULL : &out->graph->tensors[place->tensor];
    dunlin_mem_class mem_class = is_workspace ? DUNLIN_MEM_WORKSPACE : tensor->mem_class;
    double x = x_of(out, place->first_step);
    double y = y_of(out, place->offset_bytes + place->bytes);
    char size[32];
    format_bytes(place->bytes, size, sizeof size);
    put(out,
        "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\" stroke=\"white\" "
        "stroke-width=\"0.4\" fill-opacity=\"0.9\"><title>",
        x, y, x_of(out, place->last_step + 1) - x, y_of(out, place->offset_bytes) - y,
        colours[mem_class]);
    put_escaped(out, is_workspace ? "workspace" : tensor->name == NULL ? "unnamed" : tensor->name);
    put(out, ": %s%s at %" PRIu64 ", steps %" PRIu32 " to %" PRIu32 "</title></rect>\n", size,
        place->is_whole ? " (whole batch)" : "", place->offset_bytes, place->first_step,
        place->last_step);
}

static void draw_axes(const drawing *out)
{
    const dunlin_plan *plan = out->plan;
    for (uint32_t i = 0; i <= N_TICKS; i++) {
        uint64_t at = plan->arena_bytes / N_TICKS * i;
        char size[32];
        format_bytes(at, size, sizeof size);
        put(out,
            "<line x1=\"%d\" x2=\"%d\" y1=\"%.2f\" y2=\"%.2f\" stroke=\"#ddd\"/><text x=\"%d\" "
            "y=\"%.2f\" text-anchor=\"end\">%s</text>\n",
            LEFT, WIDTH - RIGHT, y_of(out, at), y_of(out, at), LEFT - 6, y_of(out, at) + 4, size);
    }
    uint32_t last_step = DUNLIN_MEM_NONE;
    for (uint32_t i = 0; i < N_TICKS; i++) {
        uint32_t step = (uint32_t)((uint64_t)plan->n_steps * i / N_TICKS);
        if (step != last_step) {
            put(out, "<text x=\"%.2f\" y=\"%d\">%" PRIu32 "</text>\n", x_of(out, step),
                HEIGHT - BOTTOM + 16, step);
        }
        last_step = step;
    }
    put(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">step</text>\n", LEFT - 6,
        HEIGHT - BOTTOM + 16);
}

static void draw_loops(const drawing *out)
{
    const dunlin_plan *plan = out->plan;
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        double x = x_of(out, loop->first_step);
        put(out,
            "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" stroke=\"black\" "
            "stroke-dasharray=\"4 3\"/>\n",
            x, x, TOP - 12, HEIGHT - BOTTOM + 36);
        if (loop->slice_samples == 0) {
            put(out, "<text x=\"%.2f\" y=\"%d\">once</text>\n", x + 3, HEIGHT - BOTTOM + 36);
        } else {
            put(out, "<text x=\"%.2f\" y=\"%d\">%" PRIu64 " x %" PRIu64 " samples</text>\n", x + 3,
                HEIGHT - BOTTOM + 36, (plan->batch - 1) / loop->slice_samples + 1,
                loop->slice_samples);
        }
    }
}

static void draw_peak(const drawing *out, const dunlin_plan_summary *summary)
{
    double x = (x_of(out, summary->peak_step) + x_of(out, summary->peak_step + 1)) / 2;
    const char *name = out->graph->ops[out->plan->steps[summary->peak_step].op].name;
    bool is_left = x < (double)WIDTH / 2;
    put(out,
        "<line x1=\"%.2f\" x2=\"%.2f\" y1=\"%d\" y2=\"%d\" stroke=\"#c00\" "
        "stroke-width=\"1.5\"/>\n<text x=\"%.2f\" y=\"%d\" fill=\"#c00\" text-anchor=\"%s\">peak: "
        "step "
        "%" PRIu32 ", ",
        x, x, TOP - 6, HEIGHT - BOTTOM, is_left ? x + 4 : x - 4, TOP - 4, is_left ? "start" : "end",
        summary->peak_step);
    put_escaped(out, name == NULL ? "unnamed" : name);
    put(out, "</text>\n");
}

void dunlin__plan_draw(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                       dunlin_plan_line_fn write_fn, void *ctx)
{
    drawing out = {.graph = graph, .plan = plan, .write_fn = write_fn, .ctx = ctx};
    dunlin_plan_summary summary;
    dunlin__plan_summarize(graph, plan, &summary);
    draw_head(&out);
    draw_axes(&out);
    for (uint32_t p = 0; p < plan->n_places; p++) {
        draw_place(&out, &plan->places[p]);
    }
    draw_loops(&out);
    draw_peak(&out, &summary);
    put(&out, "</svg>\n");
}
