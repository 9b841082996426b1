/*
 * scenes.c - "shapes": images of discs, squares and triangles in any colours, and for each pixel
 * which of them it shows. A made task for networks with an output per pixel.
 *
 * Invariant: an example follows from (seed, split, index) alone, in whole numbers, so it has the
 * same bits on every machine. What is drawn later covers what was drawn before.
 */
#include "data/common/data.h"
#include "data/common/draw.h"

#include <mem/support.h>

#include <inttypes.h>

#define N_KINDS 4 /* the ground, and three shapes */
#define MOST_SHAPES 3
#define DEFAULT_SIDE 32
#define DEFAULT_TRAIN 1024
#define DEFAULT_TEST 256
#define LEAST_SIDE 8
#define NOISE 49      /* levels that a pixel differs by */
#define LEAST_STEP 48 /* between the ground's colour and a shape's, in one channel */

enum { PURPOSE_SHAPES = 0x53484150, PURPOSE_NOISE };

typedef struct made_shape {
    int32_t kind; /* 1 disc, 2 square, 3 triangle */
    int64_t x, y, radius;
    int32_t colour[DUNLIN_DATA_COLOURS];
} made_shape;

typedef struct made_scene {
    int32_t n_shapes;
    made_shape shapes[MOST_SHAPES];
    int32_t ground[DUNLIN_DATA_COLOURS];
} made_scene;

static void draw_colour(dunlin_draw *draw, const int32_t *other, int32_t *out)
{
    for (int32_t c = 0; c < DUNLIN_DATA_COLOURS; c++) {
        out[c] = (int32_t)dunlin__draw_below(draw, 208) + 24;
    }
    /* One channel at least sets it off. */
    if (other != NULL) {
        const int32_t c = (int32_t)dunlin__draw_below(draw, DUNLIN_DATA_COLOURS);
        const int32_t step = LEAST_STEP + (int32_t)dunlin__draw_below(draw, 48);
        out[c] = other[c] >= 128 ? other[c] - step : other[c] + step;
    }
}

static void draw_scene(const dunlin_dataset *set, int64_t index, made_scene *out)
{
    dunlin_draw draw = dunlin__draw_begin(set->made_seed, PURPOSE_SHAPES, (uint64_t)index);
    const int64_t height = set->own_shape.dims[1];
    const int64_t width = set->own_shape.dims[2];
    const int64_t side = height < width ? height : width;
    draw_colour(&draw, NULL, out->ground);
    out->n_shapes = 1 + (int32_t)dunlin__draw_below(&draw, MOST_SHAPES);
    for (int32_t i = 0; i < out->n_shapes; i++) {
        made_shape *shape = &out->shapes[i];
        shape->kind = 1 + (int32_t)dunlin__draw_below(&draw, N_KINDS - 1);
        shape->x = (int64_t)dunlin__draw_below(&draw, (uint64_t)width);
        shape->y = (int64_t)dunlin__draw_below(&draw, (uint64_t)height);
        shape->radius = side / 8 + 1 + (int64_t)dunlin__draw_below(&draw, (uint64_t)side / 6 + 1);
        draw_colour(&draw, out->ground, shape->colour);
    }
}

static bool covers(const made_shape *shape, int64_t x, int64_t y)
{
    const int64_t dx = x < shape->x ? shape->x - x : x - shape->x;
    const int64_t dy = y - shape->y;
    const int64_t r = shape->radius;
    if (dy < -r || dy > r || dx > r) {
        return false;
    }
    return shape->kind == 1   ? dx * dx + dy * dy <= r * r
           : shape->kind == 2 ? true
                              : 2 * dx <= dy + r;
}

/* The shape that a pixel shows; -1: the ground. */
static int32_t shown_at(const made_scene *scene, int64_t x, int64_t y)
{
    for (int32_t i = scene->n_shapes - 1; i >= 0; i--) {
        if (covers(&scene->shapes[i], x, y)) {
            return i;
        }
    }
    return -1;
}

static dunlin_status make_scene(const dunlin_dataset *set, int64_t index, void *out, char *out_text)
{
    (void)out_text;
    made_scene scene;
    draw_scene(set, index, &scene);
    dunlin_draw noise = dunlin__draw_begin(set->made_seed, PURPOSE_NOISE, (uint64_t)index);
    const int64_t height = set->own_shape.dims[1];
    const int64_t width = set->own_shape.dims[2];
    uint8_t *to = out;
    for (int64_t i = 0; i < height * width; i++) {
        const int32_t shown = shown_at(&scene, i % width, i / width);
        const int32_t *colour = shown < 0 ? scene.ground : scene.shapes[shown].colour;
        uint64_t bits = dunlin__draw_u64(&noise);
        for (int64_t c = 0; c < set->own_shape.dims[0]; c++, bits >>= 16) {
            const int32_t value = colour[c] + (int32_t)((bits & 0xFFFF) % NOISE) - (NOISE - 1) / 2;
            to[c * height * width + i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
    return DUNLIN_OK;
}

static void label_pixels(const dunlin_dataset *set, int64_t index, int32_t *out)
{
    made_scene scene;
    draw_scene(set, index, &scene);
    const int64_t width = set->own_shape.dims[2];
    for (int64_t i = 0; i < set->n_labels; i++) {
        const int32_t shown = shown_at(&scene, i % width, i / width);
        out[i] = shown < 0 ? 0 : scene.shapes[shown].kind;
    }
}

static const dunlin_data_maker maker = {.make_fn = make_scene, .labels_fn = label_pixels};

dunlin_status dunlin__data_load_shapes(dunlin_dataset *set, const dunlin_data_request *request,
                                       dunlin_error *error)
{
    const dunlin_dataset_options *options = &request->options;
    const bool is_train = request->split == DUNLIN_SPLIT_TRAIN;
    const int64_t n = is_train ? DEFAULT_TRAIN : DEFAULT_TEST;
    const dunlin_shape *asked = &options->shape;
    set->title = "made images of shapes";
    set->is_synthetic = true;
    set->n_classes = N_KINDS;
    set->own_dtype = DUNLIN_U8;
    set->own_shape =
        (dunlin_shape){.n_dims = 3, .dims = {DUNLIN_DATA_COLOURS, DEFAULT_SIDE, DEFAULT_SIDE}};
    if (asked->n_dims != 0) {
        set->own_shape = *asked;
    }
    const int64_t *dims = set->own_shape.dims;
    if (set->own_shape.n_dims != 3 || dims[0] < 1 || dims[0] > DUNLIN_DATA_COLOURS ||
        dims[1] < LEAST_SIDE || dims[2] < LEAST_SIDE || dims[1] > UINT16_MAX ||
        dims[2] > UINT16_MAX) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "shapes are images of 1 to %d channels and %d pixels a side or more, "
                            "not of %d dimensions (%" PRId64 ", %" PRId64 ", %" PRId64 ")",
                            DUNLIN_DATA_COLOURS, LEAST_SIDE, (int)set->own_shape.n_dims, dims[0],
                            dims[1], dims[2]);
    }
    set->n_labels = dims[1] * dims[2];
    for (int32_t c = 0; c < DUNLIN_DATA_COLOURS; c++) {
        set->mean[c] = 0.5F;
        set->std[c] = 0.25F;
    }
    set->made_seed = dunlin__draw_mix(options->seed) + (is_train ? 0 : 1);
    set->maker = &maker;
    DUNLIN_TRY(dunlin__data_alloc_labels(set, options->max_examples > 0 ? options->max_examples : n,
                                         error));
    for (int64_t i = 0; i < set->n; i++) {
        made_scene scene;
        draw_scene(set, i, &scene);
        set->labels[i] = (uint16_t)scene.shapes[scene.n_shapes - 1].kind;
    }
    return DUNLIN_OK;
}
