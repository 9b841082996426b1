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

#define N_TEXTS 8 /* failures whose texts are kept, so that one is not written while it is read */
#define DEFAULT_SIDE_MOST 4096

typedef struct folder {
    dunlin_folder_index index;
    pthread_mutex_t lock; /* of the texts */
    int32_t n_failed;
    char texts[N_TEXTS][DUNLIN_ERROR_TEXT_BYTES];
} folder;

static const folder *folder_of(const dunlin_dataset *set)
{
    return set->maker_ctx;
}

/* --- one picture --- */

static dunlin_status read_file(const char *path, const dunlin_alloc *alloc, uint64_t expected,
                               uint8_t **out_bytes, dunlin_error *error)
{
    *out_bytes = NULL;
    if (expected > DUNLIN_PICTURE_FILE_BYTES) {
        return dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                            "%.160s: a file of %" PRIu64 " bytes: the limit is %u", path, expected,
                            DUNLIN_PICTURE_FILE_BYTES);
    }
    const int file = dunlin__sys_open(path, O_RDONLY, 0);
    if (file < 0) {
        return dunlin__fail(error, DUNLIN_IO, "data", errno, "%.180s: %s", path, strerror(errno));
    }
    uint8_t *bytes = dunlin__alloc_array(alloc, (size_t)expected, 1);
    size_t done = 0;
    ssize_t n = bytes == NULL ? 0 : 1;
    while (n > 0 && done < expected) {
        n = read(file, bytes + done, (size_t)expected - done);
        n = n < 0 && errno == EINTR ? 1 : n;
        done += n > 0 ? (size_t)n : 0;
    }
    const int code = errno;
    (void)close(file);
    if (bytes != NULL && done == expected) {
        *out_bytes = bytes;
        return DUNLIN_OK;
    }
    dunlin__free_array(alloc, bytes, (size_t)expected, 1);
    return bytes == NULL ? dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                                        "%.160s: no memory for %" PRIu64 " bytes", path, expected)
                         : dunlin__fail(error, DUNLIN_IO, "data", code,
                                        "%.160s: read %zu of the %" PRIu64 " bytes it had", path,
                                        done, expected);
}

/* Covers the window with the picture, the shorter side first, and keeps the centre. */
static dunlin_status fit(const dunlin_dataset *set, const dunlin_picture *picture,
                         const dunlin_alloc *alloc, void *out, dunlin_error *error)
{
    const int64_t height = set->own_shape.dims[1];
    const int64_t width = set->own_shape.dims[2];
    int64_t rows = height;
    int64_t columns = width;
    if ((int64_t)picture->width * height > width * picture->height) {
        columns = ((int64_t)picture->width * height + picture->height / 2) / picture->height;
    } else {
        rows = ((int64_t)picture->height * width + picture->width / 2) / picture->width;
    }
    rows = rows < height ? height : rows;
    columns = columns < width ? width : columns;
    dunlin_image image = {.dtype = DUNLIN_U8,
                          .channels = picture->channels,
                          .height = (int32_t)height,
                          .width = (int32_t)width};
    float *scratch = NULL;
    size_t n_scratch = 0;
    dunlin_status status = DUNLIN_OK;
    bool is_made = false;
    if (rows > INT32_MAX / 4 || columns > INT32_MAX / 4) {
        status = dunlin__fail(error, DUNLIN_LIMIT, "data", 0,
                              "a side of %" PRId64 " pixels after resizing",
                              rows > columns ? rows : columns);
    } else if (dunlin__image_axis_make(alloc, picture->height, (int32_t)rows, &image.rows) &&
               dunlin__image_axis_make(alloc, picture->width, (int32_t)columns, &image.columns)) {
        n_scratch = dunlin__image_scratch(&image);
        scratch = dunlin__alloc_array(alloc, n_scratch, sizeof *scratch);
        is_made = n_scratch == 0 || scratch != NULL;
    }
    if (status == DUNLIN_OK && !is_made) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to resize a picture");
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

/* The picture of a file. */
static dunlin_status decode(const dunlin_folder_index *index, size_t i, int32_t channels,
                            int32_t least, const dunlin_alloc *alloc, dunlin_picture *out_picture,
                            dunlin_error *error)
{
    char path[DUNLIN_DATA_PATH_BYTES];
    const int length =
        snprintf(path, sizeof path, "%s/%s", index->root, index->names + index->files[i].at);
    if (length < 0 || length >= DUNLIN_DATA_PATH_BYTES) {
        (void)dunlin__fail(error, DUNLIN_LIMIT, "data", 0, "%.160s: the path is too long", path);
        return DUNLIN_LIMIT;
    }
    uint8_t *bytes = NULL;
    const size_t n = (size_t)index->files[i].bytes;
    DUNLIN_TRY(read_file(path, alloc, n, &bytes, error));
    const size_t n_cut = strlen(path) > 120 ? strlen(path) - 120 : 0;
    const dunlin_picture_file file = {.name = path + n_cut,
                                      .bytes = bytes,
                                      .n = n,
                                      .channels = channels,
                                      .least = least,
                                      .alloc = alloc};
    const dunlin_status status = dunlin__picture_read(&file, out_picture, error);
    dunlin__free_array(alloc, bytes, n, 1);
    return status;
}

static dunlin_status make(const dunlin_dataset *set, const dunlin_folder_index *index, size_t i,
                          void *out, dunlin_error *error)
{
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin_picture picture = {0};
    const int64_t height = set->own_shape.dims[1];
    const int64_t width = set->own_shape.dims[2];
    DUNLIN_TRY(decode(index, i, (int32_t)set->own_shape.dims[0],
                      (int32_t)(height > width ? height : width), &alloc, &picture, error));
    dunlin_status status = DUNLIN_OK;
    if (picture.height == height && picture.width == width) {
        memcpy(out, picture.pixels,
               (size_t)picture.channels * (size_t)picture.height * (size_t)picture.width);
    } else {
        status = fit(set, &picture, &alloc, out, error);
    }
    dunlin__picture_free(&alloc, &picture);
    return status;
}

/* --- the set --- */

static dunlin_status make_example(const dunlin_dataset *set, int64_t index, void *out,
                                  char *out_text)
{
    folder *of = set->maker_ctx;
    dunlin_error error = {0};
    const dunlin_status status = make(set, &of->index, (size_t)index, out, &error);
    if (status != DUNLIN_OK) {
        memcpy(out_text, error.text, DUNLIN_ERROR_TEXT_BYTES);
        (void)pthread_mutex_lock(&of->lock);
        of->n_failed++;
        memcpy(of->texts[of->n_failed % N_TEXTS], error.text, DUNLIN_ERROR_TEXT_BYTES);
        (void)pthread_mutex_unlock(&of->lock);
    }
    return status;
}

static const char *last_error(const dunlin_dataset *set)
{
    folder *of = set->maker_ctx;
    (void)pthread_mutex_lock(&of->lock);
    const char *text = of->texts[of->n_failed % N_TEXTS];
    (void)pthread_mutex_unlock(&of->lock);
    return text;
}

static void free_folder(dunlin_dataset *set)
{
    folder *of = set->maker_ctx;
    dunlin__folder_index_free(&of->index, &set->alloc);
    (void)pthread_mutex_destroy(&of->lock);
    dunlin__free_array(&set->alloc, of, 1, sizeof *of);
}

static uint64_t folder_bytes(const dunlin_dataset *set)
{
    const dunlin_folder_index *index = &folder_of(set)->index;
    return sizeof(folder) + index->names_capacity + index->files_capacity * sizeof *index->files +
           index->labels_capacity * sizeof *index->labels;
}

static const dunlin_data_maker maker = {.make_fn = make_example,
                                        .free_fn = free_folder,
                                        .bytes_fn = folder_bytes,
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
        const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
        dunlin_picture first = {0};
        DUNLIN_TRY(decode(index, 0, DUNLIN_DATA_COLOURS, 0, &alloc, &first, error));
        shape =
            (dunlin_shape){.n_dims = 3, .dims = {first.is_grey ? 1 : 3, first.height, first.width}};
        dunlin__picture_free(&alloc, &first);
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
    set->maker = &maker;
    set->maker_ctx = of;
    dunlin_own_names classes = {.n = 0};
    const dunlin_status status = load(set, request, spec, of, &classes, error);
    dunlin__own_names_free(&set->alloc, &classes);
    return status;
}
