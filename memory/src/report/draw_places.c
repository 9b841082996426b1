/*
 * draw_places.c - the plot of a drawing: a rectangle for each allocation, live bytes, names.
 *
 * Invariant: an allocation's rectangle is its range of addresses over its steps; only persistent
 * ones too thin to be seen are drawn together.
 */
#include "draw.h"
#include "plan/summary.h"

#include <inttypes.h>

#define MERGED_HEIGHT 2.0 /* persistent tensors thinner than that are drawn as one */

/* Its name, along the longer side if need be, with the front left out where it is too long. */
static void draw_name(const drawing *out, const char *name, double x, double y, double width,
                      double height)
{
    draw_fit flat = dunlin__draw_fit_text(name, width, height);
    draw_fit steep = dunlin__draw_fit_text(name, height, width);
    bool is_steep = steep.n > flat.n + 4;
    const draw_fit *fit = is_steep ? &steep : &flat;
    if (fit->n == 0) {
        return;
    }
    double middle_x = x + width / 2 + (is_steep ? 0.35 * fit->size : 0);
    double middle_y = y + height / 2 + (is_steep ? 0 : 0.35 * fit->size);
    dunlin__draw_put(&out->to,
                     "<text class=\"n m\" x=\"%.1f\" y=\"%.1f\" style=\"font-size:%.0fpx\"",
                     middle_x, middle_y, fit->size);
    if (is_steep) {
        dunlin__draw_put(&out->to, " transform=\"rotate(-90 %.1f %.1f)\"", middle_x, middle_y);
    }
    dunlin__draw_put(&out->to, ">%s", fit->is_cut ? "…" : "");
    dunlin__draw_put_escaped(&out->to, fit->text);
    dunlin__draw_put(&out->to, "</text>\n");
}

/* A workspace has its operation's name. */
static const char *name_of(const drawing *out, const dunlin_plan_allocation *place)
{
    return place->tensor == DUNLIN_MEM_NONE
               ? out->graph->ops[out->plan->steps[place->first_step].op].name
               : out->graph->tensors[place->tensor].name;
}

static void draw_place(const drawing *out, const dunlin_plan_allocation *place)
{
    bool is_workspace = place->tensor == DUNLIN_MEM_NONE;
    const char *name = name_of(out, place);
    dunlin_mem_class mem_class =
        is_workspace ? DUNLIN_MEM_WORKSPACE : out->graph->tensors[place->tensor].mem_class;
    bool is_again = dunlin__is_recomputed(out->graph, out->plan, place);
    double x = dunlin__draw_x_of(out, place->first_step);
    double y = dunlin__draw_y_of(out, place->offset_bytes + place->bytes);
    double width = dunlin__draw_x_of(out, place->last_step + 1) - x;
    double height = dunlin__draw_y_of(out, place->offset_bytes) - y;
    draw_size size;
    dunlin__draw_format_bytes(place->bytes, &size);
    dunlin__draw_put(
        &out->to,
        "<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" class=\"p c%d\"><title>", x, y,
        width, height, (int)mem_class);
    dunlin__draw_put_escaped(&out->to, name == NULL ? "unnamed" : name);
    static const char *const stored_names[] = {[DUNLIN_MEM_AS_COMPUTED] = NULL,
                                               [DUNLIN_MEM_IN_BF16] = "bf16",
                                               [DUNLIN_MEM_IN_INT8] = "int8"};
    const char *stored =
        is_workspace ? "workspace" : stored_names[out->graph->tensors[place->tensor].stored];
    dunlin__draw_put(
        &out->to, "%s%s: %s%s%s at %" PRIu64 ", steps %" PRIu32 " to %" PRIu32 "</title></rect>\n",
        stored != NULL ? ", " : "", stored != NULL ? stored : "", size.text,
        place->is_whole ? " (whole batch)" : "", is_again ? ", recomputed" : "",
        place->offset_bytes, place->first_step, place->last_step);
    if (is_again) {
        dunlin__draw_put(
            &out->to, "<rect x=\"%.1f\" y=\"%.2f\" width=\"%.1f\" height=\"%.2f\" class=\"a\"/>\n",
            x, y, width, height);
    }
}

/* Over everything else, so that no line crosses a name. */
static void draw_names(const drawing *out)
{
    for (uint32_t p = 0; p < out->plan->n_places; p++) {
        const dunlin_plan_allocation *place = &out->plan->places[p];
        const char *name = name_of(out, place);
        if (name != NULL) {
            double x = dunlin__draw_x_of(out, place->first_step);
            double y = dunlin__draw_y_of(out, place->offset_bytes + place->bytes);
            draw_name(out, name, x, y, dunlin__draw_x_of(out, place->last_step + 1) - x,
                      dunlin__draw_y_of(out, place->offset_bytes) - y);
        }
    }
}

static bool is_thin_persistent(const drawing *out, uint32_t place)
{
    const dunlin_plan_allocation *at = &out->plan->places[place];
    return dunlin__is_persistent_place(out->graph, at) &&
           dunlin__draw_y_of(out, 0) - dunlin__draw_y_of(out, at->bytes) < MERGED_HEIGHT;
}

/* Thin persistent neighbours of one class as one rectangle. Returns how many allocations it took.
 */
static uint32_t draw_merged(const drawing *out, uint32_t first)
{
    const dunlin_plan_allocation *begin = &out->plan->places[first];
    dunlin_mem_class mem_class = out->graph->tensors[begin->tensor].mem_class;
    uint64_t bytes = begin->bytes;
    uint32_t n = 1;
    for (; first + n < out->plan->n_places && is_thin_persistent(out, first + n); n++) {
        const dunlin_plan_allocation *next = &out->plan->places[first + n];
        if (out->graph->tensors[next->tensor].mem_class != mem_class ||
            next->offset_bytes != begin->offset_bytes + bytes) {
            break;
        }
        bytes += next->bytes;
    }
    if (n < 2) {
        return 0;
    }
    draw_size size;
    dunlin__draw_format_bytes(bytes, &size);
    dunlin__draw_put(
        &out->to,
        "<rect x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\" class=\"c%d\"><title>%s: "
        "%" PRIu32 " tensors, %s</title></rect>\n",
        DRAW_LEFT, dunlin__draw_y_of(out, begin->offset_bytes + bytes), DRAW_RIGHT - DRAW_LEFT,
        dunlin__draw_y_of(out, 0) - dunlin__draw_y_of(out, bytes), (int)mem_class,
        dunlin__draw_class_name(mem_class), n, size.text);
    return n;
}

static void draw_live(const drawing *out)
{
    const dunlin_plan *plan = out->plan;
    dunlin__draw_put(&out->to, "<path fill=\"none\" stroke=\"#111\" stroke-width=\"1.3\" d=\"");
    for (uint32_t k = 0; k < plan->n_steps; k++) {
        uint64_t bytes = plan->persistent_bytes + dunlin__live_bytes(out->graph, plan, k);
        dunlin__draw_put(&out->to, k == 0 ? "M%.1f %.1f" : "V%.1f",
                         k == 0 ? dunlin__draw_x_of(out, 0) : dunlin__draw_y_of(out, bytes),
                         dunlin__draw_y_of(out, bytes));
        dunlin__draw_put(&out->to, "H%.1f", dunlin__draw_x_of(out, k + 1));
    }
    dunlin__draw_put(&out->to, "\"/>\n");
}

void dunlin__draw_places(const drawing *out)
{
    uint32_t p = 0;
    while (p < out->plan->n_places) {
        uint32_t n = is_thin_persistent(out, p) ? draw_merged(out, p) : 0;
        if (n == 0) {
            draw_place(out, &out->plan->places[p]);
            n = 1;
        }
        p += n;
    }
    draw_live(out);
    draw_names(out);
}
