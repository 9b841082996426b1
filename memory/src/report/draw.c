/*
 * draw.c - a plan as an SVG drawing: steps to the right, addresses upward, one rectangle for each
 * allocation.
 *
 * Invariant: the text is complete by itself, without scripts or fonts from elsewhere. Names come
 * from model files, so every character that means something to XML is escaped.
 */
#include "draw.h"

#include "plan/summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_LOOPS 24 /* that have a line each */
#define BAND_Y 112    /* forward, backward, update */
#define BAND_HEIGHT 18
#define STRIP_HEIGHT 9 /* what each step is, under the plot */
#define N_TICKS 8
#define NEAR_BUDGET 1.3 /* a budget further above the arena is not drawn */

typedef struct {
    const char *name;
    const char *fill;
} look;

static const look class_looks[DUNLIN_MEM_N_CLASSES] = {
    {"weights", "#6f86b5"},   {"statistics", "#45598a"},   {"optimizer", "#a9b8d6"},
    {"inputs", "#e3c567"},    {"activations", "#83bf9b"},  {"saved", "#3f8f75"},
    {"gradients", "#e39b72"}, {"accumulators", "#b48cc0"}, {"workspace", "#bdbdbd"}};

typedef enum { FORWARD, AGAIN, BACKWARD, UPDATE, N_PHASES } phase;
static const look phase_looks[N_PHASES] = {{"forward", "#9fc3e6"},
                                           {"recomputed", "#2b2b2b"},
                                           {"backward", "#efb9a0"},
                                           {"update", "#c7b5dc"}};

double dunlin__draw_x_of(const drawing *out, uint32_t step)
{
    return DRAW_LEFT + (double)step * (DRAW_RIGHT - DRAW_LEFT) / (double)out->plan->n_steps;
}

double dunlin__draw_y_of(const drawing *out, uint64_t offset_bytes)
{
    return DRAW_BOTTOM - (double)offset_bytes / (double)out->full_bytes * (DRAW_BOTTOM - DRAW_TOP);
}

const char *dunlin__draw_class_name(dunlin_mem_class mem_class)
{
    return class_looks[mem_class].name;
}

static phase phase_of(const drawing *out, uint32_t step)
{
    const dunlin_plan_step *at = &out->plan->steps[step];
    const dunlin_mem_op *op = &out->graph->ops[at->op];
    if (dunlin__is_recompute_step(out->graph, out->plan, step)) {
        return AGAIN;
    }
    const dunlin_mem_variant *variant = &op->variants[at->variant];
    for (uint32_t a = 0; a < variant->n_accesses; a++) {
        if (variant->accesses[a].mode == DUNLIN_MEM_UPDATE) {
            return UPDATE;
        }
    }
    return step < out->first_backward ? FORWARD : BACKWARD;
}

/* --- head and legend --- */

static void draw_head(const drawing *out)
{
    const dunlin_plan *plan = out->plan;
    const draw_writer *to = &out->to;
    dunlin__draw_put(
        to,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
        "height=\"%d\">\n<style>text{font-family:Helvetica,Arial,'DejaVu Sans',sans-serif;"
        "font-size:13px;fill:#222}.m{text-anchor:middle}.e{text-anchor:end}.g{fill:#666}"
        ".n{pointer-events:none;fill:#14241c;paint-order:stroke;stroke:#fff;stroke-opacity:.5;"
        "stroke-width:2px}.p{stroke:#fff;stroke-width:.4}"
        ".a{stroke:#222;stroke-width:.8;fill:url(#h);pointer-events:none}"
        ".r{fill:#b3261e;font-weight:bold}",
        DRAW_WIDTH, DRAW_HEIGHT, DRAW_WIDTH, DRAW_HEIGHT);
    for (int c = 0; c < DUNLIN_MEM_N_CLASSES; c++) {
        dunlin__draw_put(to, ".c%d{fill:%s}", c, class_looks[c].fill);
    }
    for (int p = 0; p < N_PHASES; p++) {
        dunlin__draw_put(to, ".s%d{fill:%s}", p, phase_looks[p].fill);
    }
    dunlin__draw_put(
        to,
        "</style>\n<defs><pattern id=\"h\" width=\"6\" height=\"6\" "
        "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"2\" "
        "height=\"6\" fill=\"#222\" fill-opacity=\".55\"/></pattern></defs>\n"
        "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n"
        "<text x=\"%d\" y=\"36\" style=\"font-size:21px;font-weight:bold\">",
        DRAW_WIDTH, DRAW_HEIGHT, DRAW_LEFT);
    if (out->caption.title != NULL) {
        dunlin__draw_put_escaped(to, out->caption.title);
    } else {
        dunlin__draw_put(to, "batch %" PRIu64 ": predicted %.4g ms", plan->batch,
                         (double)plan->cost_ns * 1e-6);
    }
    dunlin__draw_put(to, "</text>\n");
}

static void draw_sizes(const drawing *out)
{
    const dunlin_plan *plan = out->plan;
    const draw_writer *to = &out->to;
    draw_size arena;
    draw_size persistent;
    draw_size pool;
    draw_size remade;
    dunlin__draw_format_bytes(plan->arena_bytes, &arena);
    dunlin__draw_format_bytes(plan->persistent_bytes, &persistent);
    dunlin__draw_format_bytes(plan->pool_bytes, &pool);
    dunlin__draw_format_bytes(out->account.remade_bytes, &remade);
    double bound = (double)plan->pool_lower_bound_bytes;
    dunlin__draw_put(
        to,
        "<text x=\"%d\" y=\"61\" class=\"g\">arena %s = %s persistent + %s pool, %.3f x what "
        "is alive at the peak; ",
        DRAW_LEFT, arena.text, persistent.text, pool.text,
        bound > 0.0 ? (double)plan->pool_bytes / bound : 1.0);
    if (plan->n_recompute_ops > 0) {
        dunlin__draw_put(
            to, "%" PRIu32 " tensors (%s) recomputed by %" PRIu32 " steps, %.1f %% of the time",
            out->account.n_remade, remade.text, plan->n_recompute_ops,
            plan->cost_ns == 0 ? 0.0
                               : 100.0 * (double)out->account.recompute_ns / (double)plan->cost_ns);
    } else {
        dunlin__draw_put(to, "nothing recomputed");
    }
    if (out->caption.note != NULL) {
        dunlin__draw_put(to, "; ");
        dunlin__draw_put_escaped(to, out->caption.note);
    }
    dunlin__draw_put(to, "</text>\n");
}

static double draw_swatch(const drawing *out, double x, const char *shape, const char *text)
{
    dunlin__draw_put(&out->to, "%s<text x=\"%.0f\" y=\"91\">%s</text>\n", shape, x + 19, text);
    return x + 19 + dunlin__draw_text_width(text, 12) + 14;
}

/* Classes that have an allocation, with their bytes at the peak. */
static void draw_legend(const drawing *out)
{
    bool is_there[DUNLIN_MEM_N_CLASSES] = {false};
    const draw_unit unit = dunlin__draw_unit_of(out->full_bytes);
    char shape[256];
    char text[80];
    for (uint32_t p = 0; p < out->plan->n_places; p++) {
        uint32_t tensor = out->plan->places[p].tensor;
        is_there[tensor == DUNLIN_MEM_NONE ? DUNLIN_MEM_WORKSPACE
                                           : out->graph->tensors[tensor].mem_class] = true;
    }
    (void)snprintf(text, sizeof text, "%s at the peak:", unit.name);
    double x = draw_swatch(out, DRAW_LEFT - 19, "", text);
    for (int c = 0; c < DUNLIN_MEM_N_CLASSES; c++) {
        if (is_there[c]) {
            (void)snprintf(shape, sizeof shape,
                           "<rect x=\"%.0f\" y=\"80\" width=\"13\" height=\"13\" class=\"c%d\"/>",
                           x, c);
            (void)snprintf(text, sizeof text, "%s %.1f", class_looks[c].name,
                           (double)out->summary.class_bytes[c] / unit.bytes);
            x = draw_swatch(out, x, shape, text);
        }
    }
    if (out->plan->n_recompute_ops > 0) {
        (void)snprintf(shape, sizeof shape,
                       "<rect x=\"%.0f\" y=\"80\" width=\"13\" height=\"13\" class=\"c%d\"/><rect "
                       "x=\"%.0f\" y=\"80\" width=\"13\" height=\"13\" class=\"a\"/>",
                       x, DUNLIN_MEM_ACTIVATION, x);
        x = draw_swatch(out, x, shape, phase_looks[AGAIN].name);
    }
    (void)snprintf(shape, sizeof shape,
                   "<path d=\"M%.0f 87h14\" stroke=\"#111\" stroke-width=\"1.6\"/>", x);
    (void)draw_swatch(out, x, shape, "live bytes");
}

/* --- axes and marks --- */

static void draw_axes(const drawing *out)
{
    const draw_writer *to = &out->to;
    draw_unit unit = dunlin__draw_unit_of(out->full_bytes);
    double step = dunlin__draw_nice_step((double)out->full_bytes / unit.bytes / N_TICKS);
    for (int i = 0; i * step * unit.bytes <= (double)out->full_bytes; i++) {
        double y = dunlin__draw_y_of(out, (uint64_t)(i * step * unit.bytes));
        dunlin__draw_put(to,
                         "<path d=\"M%d %.1fH%d\" stroke=\"#e4e4e4\"/><text x=\"%d\" y=\"%.1f\" "
                         "class=\"e\">%g</text>\n",
                         DRAW_LEFT - 5, y, DRAW_RIGHT, DRAW_LEFT - 9, y + 4.5, i * step);
    }
    dunlin__draw_put(
        to, "<text transform=\"translate(24 %d) rotate(-90)\" class=\"m\">address, %s</text>\n",
        (DRAW_TOP + DRAW_BOTTOM) / 2, unit.name);
    uint32_t every = (uint32_t)dunlin__draw_nice_step((double)out->plan->n_steps / (2 * N_TICKS));
    for (uint32_t k = 0; k <= out->plan->n_steps; k += every > 0 ? every : 1) {
        dunlin__draw_put(to,
                         "<path d=\"M%.1f %dv5\" stroke=\"#888\"/><text x=\"%.1f\" y=\"%d\" "
                         "class=\"m\">%" PRIu32 "</text>\n",
                         dunlin__draw_x_of(out, k), DRAW_BOTTOM + STRIP_HEIGHT + 4,
                         dunlin__draw_x_of(out, k), DRAW_BOTTOM + STRIP_HEIGHT + 24, k);
    }
    dunlin__draw_put(to, "<text x=\"%d\" y=\"%d\" class=\"m\">step</text>\n",
                     (DRAW_LEFT + DRAW_RIGHT) / 2, DRAW_BOTTOM + 56);
}

/* Under the plot: each step's phase, runs of equal ones as one. */
static void draw_strip(const drawing *out)
{
    uint32_t n_steps = out->plan->n_steps;
    for (uint32_t first = 0, k = 1; k <= n_steps; k++) {
        if (k == n_steps || phase_of(out, k) != phase_of(out, first)) {
            dunlin__draw_put(
                &out->to,
                "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" class=\"s%d\"/>\n",
                dunlin__draw_x_of(out, first), DRAW_BOTTOM + 3,
                dunlin__draw_x_of(out, k) - dunlin__draw_x_of(out, first), STRIP_HEIGHT,
                (int)phase_of(out, first));
            first = k;
        }
    }
    double x = DRAW_RIGHT;
    for (int p = N_PHASES - 1; p >= 0; p--) {
        if (p == AGAIN && out->plan->n_recompute_ops == 0) {
            continue;
        }
        x -= dunlin__draw_text_width(phase_looks[p].name, 13) + 34;
        dunlin__draw_put(&out->to,
                         "<rect x=\"%.0f\" y=\"%d\" width=\"12\" height=\"9\" class=\"s%d\"/><text "
                         "x=\"%.0f\" y=\"%d\" class=\"g\">%s</text>\n",
                         x, DRAW_BOTTOM + 47, p, x + 17, DRAW_BOTTOM + 56, phase_looks[p].name);
    }
}

static void draw_band(const drawing *out, uint32_t first, uint32_t end, phase of, const char *name)
{
    double x = dunlin__draw_x_of(out, first);
    double width = dunlin__draw_x_of(out, end) - x;
    if (first >= end || width < 1.0) {
        return;
    }
    dunlin__draw_put(&out->to,
                     "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" class=\"s%d\" "
                     "fill-opacity=\".55\" stroke=\"#fff\"/>\n",
                     x, BAND_Y, width, BAND_HEIGHT, (int)of);
    if (width > dunlin__draw_text_width(name, 13) + 6) {
        dunlin__draw_put(&out->to, "<text x=\"%.1f\" y=\"%d\" class=\"m\">%s</text>\n",
                         x + width / 2, BAND_Y + 13, name);
    }
}

/* Above the plot: where the backward pass begins, and the updates that are left after it. */
static void draw_bands(const drawing *out)
{
    uint32_t n_steps = out->plan->n_steps;
    uint32_t backward = out->first_backward;
    uint32_t update = n_steps;
    while (update > backward && phase_of(out, update - 1) == UPDATE) {
        update--;
    }
    bool has_updates = false;
    for (uint32_t k = backward; k < update && !has_updates; k++) {
        has_updates = phase_of(out, k) == UPDATE;
    }
    draw_band(out, 0, backward, FORWARD, "forward");
    draw_band(out, backward, update, BACKWARD, has_updates ? "backward, updates" : "backward");
    draw_band(out, update, n_steps, UPDATE, "update");
    if (backward > 0 && backward < n_steps) {
        dunlin__draw_put(&out->to, "<path d=\"M%.1f %dV%d\" stroke=\"#444\" stroke-width=\"1\"/>\n",
                         dunlin__draw_x_of(out, backward), BAND_Y, DRAW_BOTTOM + 3 + STRIP_HEIGHT);
    }
}

/* A line and a word where each loop of slices begins. */
static void draw_loops(const drawing *out)
{
    const dunlin_plan *plan = out->plan;
    if (plan->n_loops == 1 && out->account.n_slices == 1) {
        return;
    }
    if (plan->n_loops > MOST_LOOPS) { /* no room for words: a mark below each */
        for (uint32_t l = 1; l < plan->n_loops; l++) {
            dunlin__draw_put(&out->to, "<path d=\"M%.1f %dv6\" stroke=\"#111\"/>\n",
                             dunlin__draw_x_of(out, plan->loops[l].first_step), DRAW_BOTTOM + 72);
        }
        dunlin__draw_put(&out->to, "<text x=\"%d\" y=\"%d\">%" PRIu32 " loops</text>\n", DRAW_LEFT,
                         DRAW_BOTTOM + 94, plan->n_loops);
        return;
    }
    for (uint32_t l = 0; l < plan->n_loops; l++) {
        const dunlin_plan_loop *loop = &plan->loops[l];
        double x = dunlin__draw_x_of(out, loop->first_step);
        if (l > 0) {
            dunlin__draw_put(&out->to,
                             "<path d=\"M%.1f %dV%d\" stroke=\"#111\" stroke-dasharray=\"5 4\"/>\n",
                             x, BAND_Y + BAND_HEIGHT, DRAW_BOTTOM + 84);
        }
        dunlin__draw_put(&out->to, "<text x=\"%.1f\" y=\"%d\">", x + (l > 0 ? 5 : 0),
                         DRAW_BOTTOM + 82);
        if (loop->slice_samples == 0) {
            dunlin__draw_put(&out->to, "once</text>\n");
        } else {
            dunlin__draw_put(&out->to, "%" PRIu64 " x %" PRIu64 " samples</text>\n",
                             (plan->batch - 1) / loop->slice_samples + 1, loop->slice_samples);
        }
    }
}

static void draw_level(const drawing *out, uint64_t bytes, const char *name, const char *colour,
                       int text_y)
{
    draw_size size;
    dunlin__draw_format_bytes(bytes, &size);
    double y = dunlin__draw_y_of(out, bytes);
    dunlin__draw_put(
        &out->to,
        "<path d=\"M%d %.1fH%d\" stroke=\"%s\" stroke-width=\"1.4\" "
        "stroke-dasharray=\"9 4\"/>\n<text x=\"%d\" y=\"%.1f\" style=\"fill:%s\">%s</text>"
        "<text x=\"%d\" y=\"%.1f\" style=\"fill:%s\">%s</text>\n",
        DRAW_LEFT, y, DRAW_RIGHT + 6, colour, DRAW_RIGHT + 9, y + text_y, colour, name,
        DRAW_RIGHT + 9, y + text_y + 15, colour, size.text);
}

static void draw_levels(const drawing *out)
{
    const dunlin_plan *plan = out->plan;
    draw_level(out, plan->arena_bytes, "peak", "#b3261e", 12);
    if (out->caption.budget_bytes >= plan->arena_bytes &&
        out->caption.budget_bytes <= out->full_bytes) {
        draw_level(out, out->caption.budget_bytes, "budget", "#1f4e9e", -20);
    }
    if (dunlin__draw_y_of(out, plan->persistent_bytes) - dunlin__draw_y_of(out, plan->arena_bytes) >
        60) {
        draw_level(out, plan->persistent_bytes, "persistent", "#45598a", -2);
    }
}

static void draw_peak(const drawing *out)
{
    uint32_t step = out->summary.peak_step;
    double x = (dunlin__draw_x_of(out, step) + dunlin__draw_x_of(out, step + 1)) / 2;
    const char *name = out->graph->ops[out->plan->steps[step].op].name;
    dunlin__draw_put(
        &out->to,
        "<path d=\"M%.1f %dV%d\" stroke=\"#b3261e\" stroke-width=\"1.4\"/><path d=\"M%.1f "
        "%dl-5 -9h10z\" fill=\"#b3261e\"/>\n<text x=\"%.1f\" y=\"%d\" class=\"r%s\">peak: step "
        "%" PRIu32 ", ",
        x, DRAW_TOP, DRAW_BOTTOM, x, DRAW_TOP, x < DRAW_WIDTH / 2.0 ? x + 9 : x - 9, DRAW_TOP - 5,
        x < DRAW_WIDTH / 2.0 ? "" : " e", step);
    dunlin__draw_put_escaped(&out->to, name == NULL ? "unnamed" : name);
    dunlin__draw_put(&out->to, "</text>\n");
}

void dunlin__plan_draw(const dunlin_mem_graph *graph, const dunlin_plan *plan,
                       const dunlin_plan_caption *caption, dunlin_plan_line_fn write_fn, void *ctx)
{
    drawing out = {.graph = graph,
                   .plan = plan,
                   .full_bytes = plan->arena_bytes,
                   .to = {.write_fn = write_fn, .ctx = ctx}};
    if (caption != NULL) {
        out.caption = *caption;
    }
    if (out.caption.budget_bytes > out.full_bytes &&
        (double)out.caption.budget_bytes <= NEAR_BUDGET * (double)out.full_bytes) {
        out.full_bytes = out.caption.budget_bytes;
    }
    out.full_bytes += out.full_bytes / 50 + 1;
    dunlin__plan_summarize(graph, plan, &out.summary);
    dunlin__plan_account(graph, plan, &out.account);
    out.first_backward = dunlin__first_backward_step(graph, plan);
    draw_head(&out);
    draw_sizes(&out);
    draw_legend(&out);
    draw_axes(&out);
    dunlin__draw_places(&out);
    draw_strip(&out);
    draw_bands(&out);
    draw_loops(&out);
    draw_levels(&out);
    draw_peak(&out);
    dunlin__draw_put(&out.to, "</svg>\n");
}
