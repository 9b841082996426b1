/*
 * folder.c - pictures in folders as a data set.
 *
 * Invariant: an open set's index is never written to, so examples may be made on any thread. What
 * making one takes comes from the C library: the app's hooks are for one thread alone.
 */
#include "folder.h"

#include "data/common/image.h"
#include "data/common/own.h"
#include "data/files/picture.h"

#include <mem/platform.h>
#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define N_TEXTS 32 /* threads whose last failure is kept */
#define DEFAULT_SIDE_MOST 4096

/* The last failure of a thread. */
typedef struct told {
    pthread_t thread;
    char text[DUNLIN_ERROR_TEXT_BYTES];
} told;

typedef struct folder {
    dunlin_folder_index index;
    dunlin_picture_room room; /* that all threads decode in; limit 0: no limit */
    pthread_mutex_t lock;     /* of what follows */
    int32_t n_told; /* failures so far; of each thread one row below, the oldest makes room */
    int32_t last;   /* row of the last */
    told told[N_TEXTS];
} folder;

static const folder *folder_of(const dunlin_dataset *set)
{
    return set->maker_ctx;
}

/* --- one picture --- */

/* The size after resizing: it covers the window, the shorter side first. */
static void cover(const dunlin_dataset *set, int64_t width, int64_t height, int64_t *out_columns,
                  int64_t *out_rows)
{
    const int64_t to_height = set->own_shape.dims[1];
    const int64_t to_width = set->own_shape.dims[2];
    int64_t rows = to_height;
    int64_t columns = to_width;
    if (width * to_height > to_width * height) {
        columns = (width * to_height + height / 2) / height;
    } else {
        rows = (height * to_width + width / 2) / width;
    }
    *out_rows = rows < to_height ? to_height : rows;
    *out_columns = columns < to_width ? to_width : columns;
}

/* Of fit(): tables of both axes and the rows between the two passes. */
static uint64_t fit_bytes(const void *ctx, int64_t width, int64_t height)
{
    const dunlin_dataset *set = ctx;
    int64_t columns = 0;
    int64_t rows = 0;
    cover(set, width, height, &columns, &rows);
    if (columns == width && rows == height) {
        return 0;
    }
    const uint64_t taps = (uint64_t)(2 * (width / columns + 1) + 1);
    const uint64_t row_taps = (uint64_t)(2 * (height / rows + 1) + 1);
    return (uint64_t)columns * (8 + 4 * taps) + (uint64_t)rows * (8 + 4 * row_taps) +
           4 * (uint64_t)(height + 1) * (uint64_t)set->own_shape.dims[2];
}

/* Covers the window with the picture, the shorter side first, and keeps the centre. */
static dunlin_status fit(const dunlin_dataset *set, const dunlin_picture_file *file,
                         const dunlin_picture *picture, void *out, dunlin_error *error)
{
    const dunlin_alloc *alloc = file->alloc;
    int64_t rows = 0;
    int64_t columns = 0;
    cover(set, picture->width, picture->height, &columns, &rows);
    dunlin_image image = {.dtype = DUNLIN_U8,
                          .channels = picture->channels,
                          .height = (int32_t)set->own_shape.dims[1],
                          .width = (int32_t)set->own_shape.dims[2]};
    float *scratch = NULL;
    size_t n_scratch = 0;
    dunlin_status status = DUNLIN_OK;
    bool is_made = false;
    /* Sides beyond an int32 took more than the limit of bytes, see fit_bytes(). */
    if (dunlin__image_axis_make(alloc, picture->height, (int32_t)rows, &image.rows) &&
        dunlin__image_axis_make(alloc, picture->width, (int32_t)columns, &image.columns)) {
        n_scratch = dunlin__image_scratch(&image);
        scratch = dunlin__alloc_array(alloc, n_scratch, sizeof *scratch);
        is_made = n_scratch == 0 || scratch != NULL;
    }
    if (status == DUNLIN_OK && !is_made) {
        status =
            dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "%s: no memory to resize it", file->name);
    }
    if (status == DUNLIN_OK) {
        const dunlin_image_place place = {.top = dunlin__image_centre((int32_t)rows, image.height),
                                          .left =
                                              dunlin__image_centre((int32_t)columns, image.width)};
        dunlin__image_apply(&image, &place, picture->pixels, scratch, out);
    }
    dunlin__free_array(alloc, scratch, n_scratch, sizeof *scratch);
    dunlin__image_axis_free(alloc, &image.rows);
    dunlin__image_axis_free(alloc, &image.columns);
    return status;
}

/* Where a picture is decoded, and how. */
typedef struct decoding {
    char path[DUNLIN_DATA_PATH_BYTES];
    dunlin_alloc alloc;
    dunlin_picture_file file;
    dunlin_picture picture;
} decoding;

/* The picture of a file, until end_decoding(); `set` is what it is to be fitted to, or NULL. */
static dunlin_status decode(folder *of, const dunlin_folder_index *index, size_t i,
                            const dunlin_dataset *set, decoding *out, dunlin_error *error)
{
    const int length = snprintf(out->path, sizeof out->path, "%s/%s", index->root,
                                index->names + index->files[i].at);
    if (length < 0 || length >= DUNLIN_DATA_PATH_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0, "%.160s: the path is too long",
                            out->path);
    }
    if (index->files[i].bytes > DUNLIN_PICTURE_FILE_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%.160s: a file of %" PRIu64 " bytes: the limit is %u", out->path,
                            index->files[i].bytes, DUNLIN_PICTURE_FILE_BYTES);
    }
    const int descriptor = dunlin__sys_open(out->path, O_RDONLY, 0);
    if (descriptor < 0) {
        return dunlin__fail(error, DUNLIN_IO, "data", errno, "%.180s: %s", out->path,
                            strerror(errno));
    }
    const int64_t height = set == NULL ? 0 : set->own_shape.dims[1];
    const int64_t width = set == NULL ? 0 : set->own_shape.dims[2];
    out->alloc = dunlin__alloc_or_default(NULL);
    out->file = (dunlin_picture_file){.name = out->path + (length > 120 ? length - 120 : 0),
                                      .descriptor = descriptor,
                                      .channels = set == NULL ? DUNLIN_DATA_COLOURS
                                                              : (int32_t)set->own_shape.dims[0],
                                      .least = (int32_t)(height > width ? height : width),
                                      .alloc = &out->alloc,
                                      .room = of->room.limit > 0 ? &of->room : NULL,
                                      .after_fn = set == NULL ? NULL : fit_bytes,
                                      .after_ctx = set};
    const dunlin_status status = dunlin__picture_read(&out->file, &out->picture, error);
    (void)close(descriptor);
    return status;
}

static void end_decoding(decoding *made)
{
    dunlin__picture_free(&made->file, &made->picture);
}

static dunlin_status make(const dunlin_dataset *set, const dunlin_folder_index *index, size_t i,
                          void *out, dunlin_error *error)
{
    decoding made;
    DUNLIN_TRY(decode(set->maker_ctx, index, i, set, &made, error));
    const dunlin_picture *picture = &made.picture;
    dunlin_status status = DUNLIN_OK;
    if (picture->height == set->own_shape.dims[1] && picture->width == set->own_shape.dims[2]) {
        memcpy(out, picture->pixels,
               (size_t)picture->channels * (size_t)picture->height * (size_t)picture->width);
    } else {
        status = fit(set, &made.file, picture, out, error);
    }
    end_decoding(&made);
    return status;
}

/* --- the set --- */

/* The row of this thread, or -1; `lock` is held. */
static int32_t find_told(const folder *of)
{
    const int32_t n = of->n_told < N_TEXTS ? of->n_told : N_TEXTS;
    for (int32_t i = 0; i < n; i++) {
        if (pthread_equal(of->told[i].thread, pthread_self())) {
            return i;
        }
    }
    return -1;
}

static dunlin_status make_example(const dunlin_dataset *set, int64_t index, void *out,
                                  char *out_text)
{
    folder *of = set->maker_ctx;
    dunlin_error error = {0};
    const dunlin_status status = make(set, &of->index, (size_t)index, out, &error);
    if (status != DUNLIN_OK) {
        memcpy(out_text, error.text, DUNLIN_ERROR_TEXT_BYTES);
        (void)pthread_mutex_lock(&of->lock);
        int32_t row = find_told(of);
        if (row < 0) {
            row = of->n_told++ % N_TEXTS;
            of->n_told = of->n_told == INT32_MAX ? N_TEXTS : of->n_told;
            of->told[row].thread = pthread_self();
        }
        memcpy(of->told[row].text, error.text, DUNLIN_ERROR_TEXT_BYTES);
        of->last = row;
        (void)pthread_mutex_unlock(&of->lock);
    }
    return status;
}

/* Of this thread; of another one if this one has met none. */
static const char *last_error(const dunlin_dataset *set)
{
    folder *of = set->maker_ctx;
    (void)pthread_mutex_lock(&of->lock);
    const int32_t own = find_told(of);
    const char *text = of->told[own >= 0 ? own : of->last].text;
    (void)pthread_mutex_unlock(&of->lock);
    return text;
}

static void free_folder(dunlin_dataset *set)
{
    folder *of = set->maker_ctx;
    dunlin__folder_index_free(&of->index, &set->alloc);
    dunlin__picture_room_end(&of->room);
    (void)pthread_mutex_destroy(&of->lock);
    dunlin__free_array(&set->alloc, of, 1, sizeof *of);
}

static uint64_t folder_bytes(const dunlin_dataset *set)
{
    const dunlin_folder_index *index = &folder_of(set)->index;
    return sizeof(folder) + index->names_capacity + index->files_capacity * sizeof *index->files +
           index->labels_capacity * sizeof *index->labels;
}

static uint64_t decode_peak(const dunlin_dataset *set)
{
    folder *of = set->maker_ctx;
    return dunlin__picture_room_peak(&of->room);
}

static const dunlin_data_maker maker = {.make_fn = make_example,
                                        .free_fn = free_folder,
                                        .bytes_fn = folder_bytes,
                                        .decode_peak_fn = decode_peak,
                                        .last_error_fn = last_error};

/* Which folders hold the splits; *out_test is "" where there is none for testing. */
static dunlin_status find_splits(const dunlin_own_spec *spec, char out_train[], char out_test[],
                                 dunlin_error *error)
{
    static const char *const tests[] = {"test", "val", "validation"};
    const char *root = spec->files[0];
    if (strlen(root) + 16 > DUNLIN_DATA_PATH_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0, "the folder's name is too long");
    }
    (void)snprintf(out_train, DUNLIN_DATA_PATH_BYTES, "%s/train", root);
    out_test[0] = '\0';
    if (spec->test != NULL) {
        (void)snprintf(out_test, DUNLIN_DATA_PATH_BYTES, "%s", spec->test);
    }
    if (!dunlin__folder_is_there(out_train)) {
        (void)snprintf(out_train, DUNLIN_DATA_PATH_BYTES, "%s", root);
        return DUNLIN_OK;
    }
    for (size_t i = 0; i < sizeof tests / sizeof tests[0] && out_test[0] == '\0'; i++) {
        (void)snprintf(out_test, DUNLIN_DATA_PATH_BYTES, "%s/%s", root, tests[i]);
        if (!dunlin__folder_is_there(out_test)) {
            out_test[0] = '\0';
        }
    }
    return DUNLIN_OK;
}

/* The shape that is delivered: what was asked for, or that of the first picture. */
static dunlin_status settle_shape(dunlin_dataset *set, const dunlin_dataset_options *options,
                                  const dunlin_folder_index *index, dunlin_error *error)
{
    dunlin_shape shape = options->shape;
    if (shape.n_dims == 0 && options->image > 0) {
        shape = (dunlin_shape){.n_dims = 3,
                               .dims = {options->channels > 0 ? options->channels : 3,
                                        options->image, options->image}};
    }
    if (shape.n_dims == 0) {
        decoding first;
        DUNLIN_TRY(decode(set->maker_ctx, index, 0, NULL, &first, error));
        const dunlin_picture *picture = &first.picture;
        shape = (dunlin_shape){.n_dims = 3,
                               .dims = {picture->is_grey ? 1 : 3, picture->height, picture->width}};
        end_decoding(&first);
    }
    if (shape.n_dims != 3 || (shape.dims[0] != 1 && shape.dims[0] != 3) ||
        shape.dims[1] > DEFAULT_SIDE_MOST || shape.dims[2] > DEFAULT_SIDE_MOST) {
        return dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                            "%s: pictures are (1, H, W) or (3, H, W), sides at most %d; the model "
                            "takes another shape (--image says a size)",
                            set->title, DEFAULT_SIDE_MOST);
    }
    set->own_shape = shape;
    set->own_dtype = DUNLIN_U8;
    /* Nothing is stored; the place of one is. */
    dunlin__data_set_shape(set, (int32_t)shape.dims[0], (int32_t)shape.dims[1],
                           (int32_t)shape.dims[2]);
    return DUNLIN_OK;
}

/* Only the examples that are drawn, or those that are not, stay in the index. */
static void hold_out(dunlin_folder_index *index, dunlin_own_draw held, bool is_test)
{
    size_t n = 0;
    for (size_t i = 0; i < index->n; i++) {
        if (dunlin__own_draw_next(&held) == is_test) {
            index->files[n] = index->files[i];
            index->labels[n] = index->labels[i];
            n++;
        }
    }
    index->n = n;
}

/* Over the sampled pictures of the training split; `held` draws the others, of none if n_wanted is
 * 0. */
static dunlin_status take_moments(dunlin_dataset *set, const dunlin_folder_index *train,
                                  dunlin_own_draw held, dunlin_error *error)
{
    const size_t plane = (size_t)set->own_shape.dims[1] * (size_t)set->own_shape.dims[2];
    const size_t bytes = plane * (size_t)set->own_shape.dims[0];
    const int64_t n_train = (int64_t)train->n - held.n_wanted;
    dunlin_own_sums sums[DUNLIN_DATA_COLOURS] = {{.n = 0}};
    uint8_t *example = dunlin__alloc_array(&set->alloc, bytes, 1);
    if (example == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for a picture");
    }
    dunlin_status status = DUNLIN_OK;
    int64_t n = 0;
    for (size_t i = 0; i < train->n && status == DUNLIN_OK; i++) {
        if (held.n_left > 0 && dunlin__own_draw_next(&held)) {
            continue;
        }
        if (dunlin__own_is_sampled(n++, n_train)) {
            status = make(set, train, i, example, error);
            for (int32_t c = 0; c < set->own_shape.dims[0] && status == DUNLIN_OK; c++) {
                dunlin__own_sums_add(&sums[c], example + (size_t)c * plane, plane);
            }
        }
    }
    for (int32_t c = 0; c < set->own_shape.dims[0]; c++) {
        dunlin__own_sums_end(&sums[c], &set->mean[c], &set->std[c]);
    }
    dunlin__free_array(&set->alloc, example, bytes, 1);
    return status;
}

static void tell(dunlin_dataset *set, const dunlin_folder_index *index, int64_t n_held, int64_t n,
                 uint64_t seed)
{
    int at = 0;
    if (n_held > 0) {
        at = snprintf(set->own_note, sizeof set->own_note,
                      "%" PRId64 " of %" PRId64 " pictures are held out for testing, drawn with "
                      "seed %" PRIu64,
                      n_held, n, seed);
    }
    if (index->n_left_out > 0 && at >= 0) {
        (void)snprintf(set->own_note + at, sizeof set->own_note - (size_t)at,
                       "%s%" PRId64 " files are no pictures and left out, first %.60s",
                       at > 0 ? "; " : "", index->n_left_out, index->left_out);
    }
}

/* Reads the training folder, and for the test split its own one in place of it. */
static dunlin_status load(dunlin_dataset *set, const dunlin_data_request *request,
                          const dunlin_own_spec *spec, folder *of, dunlin_own_names *classes,
                          dunlin_error *error)
{
    char test[DUNLIN_DATA_PATH_BYTES] = "";
    const bool is_test = request->split == DUNLIN_SPLIT_TEST;
    DUNLIN_TRY(find_splits(spec, of->index.root, test, error));
    of->index.most_bytes = request->options.index_bytes;
    DUNLIN_TRY(dunlin__folder_index(&of->index, &set->alloc, classes, error));
    set->n_classes = (int32_t)classes->n;
    DUNLIN_TRY(settle_shape(set, &request->options, &of->index, error));
    const bool has_test = test[0] != '\0';
    dunlin_own_draw held = {.n_wanted = 0};
    const int64_t n_all = (int64_t)of->index.n;
    if (!has_test) {
        held = dunlin__own_draw_begin(spec->seed, n_all, spec->share);
        if (n_all < 2) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: %" PRId64 " picture: at least 2 are needed", set->title,
                                n_all);
        }
    }
    DUNLIN_TRY(take_moments(set, &of->index, held, error));
    if (!has_test) {
        hold_out(&of->index, held, is_test);
    } else if (is_test) {
        dunlin__folder_index_free(&of->index, &set->alloc);
        memset(&of->index, 0, sizeof of->index);
        memcpy(of->index.root, test, sizeof test);
        of->index.most_bytes = request->options.index_bytes;
        DUNLIN_TRY(dunlin__folder_index(&of->index, &set->alloc, classes, error));
    }
    tell(set, &of->index, held.n_wanted, n_all, spec->seed);
    const int64_t n = dunlin__data_limit(request, (int64_t)of->index.n);
    DUNLIN_TRY(dunlin__data_alloc_labels(set, n, error));
    memcpy(set->labels, of->index.labels, (size_t)n * sizeof *set->labels);
    set->index_bytes =
        of->index.names_capacity + of->index.files_capacity * sizeof *of->index.files +
        of->index.labels_capacity * sizeof *of->index.labels + (uint64_t)n * sizeof *set->labels;
    return DUNLIN_OK;
}

dunlin_status dunlin__folder_load(dunlin_dataset *set, const dunlin_data_request *request,
                                  const dunlin_own_spec *spec, dunlin_error *error)
{
    if (spec->n_files != 1 || spec->label != NULL || spec->client != NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "folder: expected one folder, and of the keys test=FOLDER, test=N%% "
                            "and seed=N");
    }
    folder *of = dunlin__alloc_zeroed(&set->alloc, 1, sizeof *of);
    if (of == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory for a folder");
    }
    (void)pthread_mutex_init(&of->lock, NULL);
    dunlin__picture_room_init(&of->room, request->options.decode_bytes);
    set->maker = &maker;
    set->maker_ctx = of;
    dunlin_own_names classes = {.n = 0};
    const dunlin_status status = load(set, request, spec, of, &classes, error);
    dunlin__own_names_free(&set->alloc, &classes);
    return status;
}
