/*
 * synthetic.c - the synthetic set: writers with a style each, examples drawn by their pen.
 *
 * Invariant: an example follows from (seed, split, writer, number within the writer) alone, and the
 * splits draw their writers from different streams. All images are drawn once, when the set is
 * opened: 789 bytes each, counted by dunlin_dataset_bytes().
 */
#include "data/common/data.h"
#include "data/common/draw.h"
#include "glyphs.h"

#include <mem/support.h>

#include <inttypes.h>

#define TRAIN_WRITERS 240
#define TEST_WRITERS 60
#define PER_WRITER 50
#define MAX_WRITERS 1000000
#define MAX_PER_WRITER 100000
#define MAX_EXAMPLES 20000000

enum { PURPOSE_WRITER_TRAIN = 0x53594E, PURPOSE_WRITER_TEST };

/* How many examples a writer has: half to one and a half times the average. */
static int64_t draw_count(dunlin_draw *draw, int64_t average)
{
    int64_t low = (average + 1) / 2;
    return low + (int64_t)dunlin__draw_below(draw, (uint64_t)(2 * (average - low) + 1));
}

static void draw_style(dunlin_draw *draw, dunlin_glyph_style *out_style)
{
    dunlin_glyph_style *style = out_style;
    style->key = dunlin__draw_u64(draw);
    style->slant = 0.10 + 0.24 * dunlin__draw_normal(draw);
    style->height = dunlin__draw_range(draw, 7.6, 10.6);
    style->aspect = dunlin__draw_range(draw, 0.72, 1.25);
    style->turn = 0.09 * dunlin__draw_normal(draw);
    style->radius = dunlin__draw_range(draw, 0.7, 1.75);
    style->pressure = dunlin__draw_range(draw, 0.0, 0.45);
    style->ink = dunlin__draw_range(draw, 190.0, 255.0);
    style->roundness = dunlin__draw_range(draw, 0.25, 1.15);
    style->bow = 0.06 * dunlin__draw_normal(draw);
    style->habit = dunlin__draw_range(draw, 0.05, 0.13);
    style->jitter = dunlin__draw_range(draw, 0.03, 0.10);
    style->wobble = dunlin__draw_range(draw, 0.0, 0.03);
    style->forms = (uint32_t)dunlin__draw_u64(draw);
}

static void draw_writer(dunlin_dataset *set, int32_t writer, int64_t first, int64_t n,
                        dunlin_draw draw)
{
    dunlin_glyph_style style;
    draw_style(&draw, &style);
    for (int64_t i = first; i < first + n && i < set->n; i++) {
        dunlin_draw example =
            dunlin__draw_begin(style.key, PURPOSE_WRITER_TRAIN, (uint64_t)(i - first));
        int32_t label = (int32_t)dunlin__draw_below(&example, DUNLIN_GLYPH_CLASSES);
        set->labels[i] = (uint16_t)label;
        set->clients[i] = writer;
        dunlin__glyph_draw(&style, label, dunlin__draw_u64(&example),
                           set->pixels + (size_t)i * DUNLIN_GLYPH_IMAGE * DUNLIN_GLYPH_IMAGE);
    }
}

dunlin_status dunlin__data_load_synthetic(dunlin_dataset *set, const dunlin_data_request *request,
                                          dunlin_error *error)
{
    const dunlin_dataset_options *options = &request->options;
    bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    uint64_t purpose = is_train ? PURPOSE_WRITER_TRAIN : PURPOSE_WRITER_TEST;
    int64_t n_writers = options->n_writers;
    if (n_writers == 0) {
        n_writers = is_train ? TRAIN_WRITERS : TEST_WRITERS;
    }
    int64_t average = options->n_per_writer == 0 ? PER_WRITER : options->n_per_writer;
    if (n_writers > MAX_WRITERS || average > MAX_PER_WRITER || n_writers * average > MAX_EXAMPLES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%" PRId64 " synthetic writers with %" PRId64
                            " examples each: the limits are %d, %d and %d examples in all",
                            n_writers, average, MAX_WRITERS, MAX_PER_WRITER, MAX_EXAMPLES);
    }
    set->title = "synthetic handwriting-like glyphs";
    set->is_synthetic = true;
    set->n_classes = DUNLIN_GLYPH_CLASSES;
    /* Over the pixels of the default training split. */
    set->mean[0] = 0.095652F;
    set->std[0] = 0.237435F;
    int64_t n = 0;
    for (int64_t writer = 0; writer < n_writers; writer++) {
        dunlin_draw draw = dunlin__draw_begin(options->seed, purpose, (uint64_t)writer);
        n += draw_count(&draw, average);
    }
    dunlin__data_set_shape(set, 1, DUNLIN_GLYPH_IMAGE, DUNLIN_GLYPH_IMAGE);
    DUNLIN_TRY(dunlin__data_alloc(set, dunlin__data_limit(request, n), true, error));
    int64_t first = 0;
    for (int64_t writer = 0; writer < n_writers && first < set->n; writer++) {
        dunlin_draw draw = dunlin__draw_begin(options->seed, purpose, (uint64_t)writer);
        int64_t count = draw_count(&draw, average);
        draw_writer(set, (int32_t)writer, first, count, draw);
        first += count;
        set->n_clients = writer + 1;
    }
    return DUNLIN_OK;
}
