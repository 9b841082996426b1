/*
 * pairs.c - "pairs": two images of marks, and whether both show the same one. A made task for
 * networks with two inputs.
 *
 * A mark is three strokes; an image shows one, moved by a few pixels, in noise. The marks of the
 * test split are others than those of the training split, so that what is learned is to compare.
 *
 * Invariant: an example follows from (seed, split, index) alone, in whole numbers, so it has the
 * same bits on every machine.
 */
#include "data/common/data.h"
#include "data/common/draw.h"

#include <mem/support.h>

#include <inttypes.h>

#define DEFAULT_SIDE 28
#define LEAST_SIDE 16
#define MOST_SIDE 1024
#define DEFAULT_TRAIN 4096
#define DEFAULT_TEST 1024
#define N_MARKS 512 /* of a split */
#define N_STROKES 3
#define MOST_MOVE 2
#define NOISE 64

enum { PURPOSE_MARK = 0x50414952, PURPOSE_PAIR, PURPOSE_IMAGE };

typedef struct stroke {
    int64_t x, y, dx, dy; /* begins there, and goes so far */
} stroke;

static int64_t side_of(const dunlin_dataset *set)
{
    int64_t side = LEAST_SIDE;
    while (2 * side * side < set->own_shape.dims[0]) {
        side++;
    }
    return side;
}

static void draw_mark(const dunlin_dataset *set, uint64_t mark, int64_t side, stroke *out)
{
    dunlin_draw draw = dunlin__draw_begin(set->made_seed, PURPOSE_MARK, mark);
    const uint64_t room = (uint64_t)(side - 8);
    for (int i = 0; i < N_STROKES; i++) {
        out[i].x = 4 + (int64_t)dunlin__draw_below(&draw, room);
        out[i].y = 4 + (int64_t)dunlin__draw_below(&draw, room);
        out[i].dx = 4 + (int64_t)dunlin__draw_below(&draw, room) - out[i].x;
        out[i].dy = 4 + (int64_t)dunlin__draw_below(&draw, room) - out[i].y;
    }
}

/* Within a pixel or so of the stroke. */
static bool is_on(const stroke *s, int64_t x, int64_t y)
{
    const int64_t px = x - s->x;
    const int64_t py = y - s->y;
    const int64_t length = s->dx * s->dx + s->dy * s->dy;
    const int64_t along = px * s->dx + py * s->dy;
    if (along <= 0 || along >= length) {
        const int64_t qx = along <= 0 ? px : px - s->dx;
        const int64_t qy = along <= 0 ? py : py - s->dy;
        return qx * qx + qy * qy <= 1;
    }
    const int64_t across = px * s->dy - py * s->dx;
    return across * across <= length + length / 4;
}

static void make_image(const dunlin_dataset *set, uint64_t mark, uint64_t image, int64_t side,
                       uint8_t *out)
{
    stroke strokes[N_STROKES];
    dunlin_draw draw = dunlin__draw_begin(set->made_seed, PURPOSE_IMAGE, image);
    draw_mark(set, mark, side, strokes);
    const int64_t right = (int64_t)dunlin__draw_below(&draw, 2 * MOST_MOVE + 1) - MOST_MOVE;
    const int64_t down = (int64_t)dunlin__draw_below(&draw, 2 * MOST_MOVE + 1) - MOST_MOVE;
    for (int64_t y = 0; y < side; y++) {
        for (int64_t x = 0; x < side; x++) {
            bool is_marked = false;
            for (int i = 0; i < N_STROKES; i++) {
                is_marked = is_marked || is_on(&strokes[i], x - right, y - down);
            }
            const uint64_t noise = dunlin__draw_below(&draw, NOISE);
            out[y * side + x] = (uint8_t)(is_marked ? 255 - noise : noise);
        }
    }
}

/* The marks of a pair; whether they are the same. */
static bool draw_pair(const dunlin_dataset *set, int64_t index, uint64_t marks[2])
{
    dunlin_draw draw = dunlin__draw_begin(set->made_seed, PURPOSE_PAIR, (uint64_t)index);
    const bool is_same = dunlin__draw_below(&draw, 2) == 1;
    marks[0] = dunlin__draw_below(&draw, N_MARKS);
    marks[1] = (marks[0] + 1 + dunlin__draw_below(&draw, N_MARKS - 1)) % N_MARKS;
    marks[1] = is_same ? marks[0] : marks[1];
    return is_same;
}

static dunlin_status make_pair(const dunlin_dataset *set, int64_t index, void *out, char *out_text)
{
    uint64_t marks[2];
    const int64_t side = side_of(set);
    uint8_t *to = out;
    (void)out_text;
    (void)draw_pair(set, index, marks);
    for (int k = 0; k < 2; k++) {
        make_image(set, marks[k], (uint64_t)index * 2 + (uint64_t)k, side, to + k * side * side);
    }
    return DUNLIN_OK;
}

static const dunlin_data_maker maker = {.make_fn = make_pair};

dunlin_status dunlin__data_load_pairs(dunlin_dataset *set, const dunlin_data_request *request,
                                      dunlin_error *error)
{
    const dunlin_dataset_options *options = &request->options;
    const bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    const int64_t n = is_train ? DEFAULT_TRAIN : DEFAULT_TEST;
    set->title = "made pairs of images";
    set->is_synthetic = true;
    set->n_classes = 2;
    set->own_dtype = DUNLIN_U8;
    set->own_shape = options->shape.n_dims != 0
                         ? options->shape
                         : (dunlin_shape){1, {2 * DEFAULT_SIDE * DEFAULT_SIDE}};
    const int64_t side =
        set->own_shape.n_dims == 1 && set->own_shape.dims[0] <= 2 * MOST_SIDE * MOST_SIDE
            ? side_of(set)
            : 0;
    if (side == 0 || 2 * side * side != set->own_shape.dims[0]) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "pairs are two square images of one channel and %d to %d pixels a "
                            "side, one after the other, not of %" PRId32 " dimensions (%" PRId64
                            " ...)",
                            LEAST_SIDE, MOST_SIDE, set->own_shape.n_dims, set->own_shape.dims[0]);
    }
    set->mean[0] = 0.25F;
    set->std[0] = 0.25F;
    set->made_seed = dunlin__draw_mix(options->seed) + (is_train ? 0 : 1);
    set->maker = &maker;
    DUNLIN_TRY(dunlin__data_alloc_labels(set, options->max_examples > 0 ? options->max_examples : n,
                                         error));
    for (int64_t i = 0; i < set->n; i++) {
        uint64_t marks[2];
        set->labels[i] = draw_pair(set, i, marks) ? 1 : 0;
    }
    return DUNLIN_OK;
}
