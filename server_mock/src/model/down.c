/*
 * down.c - makes the forms of a base, and takes them up again.
 */
#include "down.h"

#include <mem/support.h>
#include <wire/delta.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_VALUES (DUNLIN_WIRE_BLOCK_BYTES / sizeof(float))
#define DRAW_TAG "dunlin.v1.down" /* names the use of what is drawn */
#define WORTH_NUMERATOR 3u        /* a delta is kept that has at most 3/4 of the bytes */
#define WORTH_DENOMINATOR 4u

/* One file that is read in order. */
typedef struct in_order {
    dunlin__server_path path;
    int fd;
    uint64_t offset;
} in_order;

static dunlin_status open_in_order(in_order *file, const dunlin__down_place *place, uint64_t round,
                                   const char *ending, dunlin_error *error)
{
    file->offset = 0;
    file->fd = -1;
    DUNLIN_TRY(dunlin__model_path(place->folder, round, ending, &file->path, error));
    file->fd = open(file->path.text, O_RDONLY | O_CLOEXEC);
    return file->fd >= 0 ? DUNLIN_OK : dunlin__file_fail(error, "opening", file->path.text, errno);
}

static void close_in_order(in_order *file)
{
    if (file->fd >= 0) {
        (void)close(file->fd);
    }
}

static dunlin_status read_in_order(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    in_order *file = ctx;
    DUNLIN_TRY(
        dunlin__server_read_at(file->fd, file->path.text, file->offset, buffer, n_bytes, error));
    file->offset += n_bytes;
    return DUNLIN_OK;
}

/* Only averaged tensors are packed; statistics and what stays on devices go as they are. */
static dunlin_v1_rule_t packed_rule(const dunlin__layout *layout, uint32_t tensor)
{
    return layout->tensors[tensor].rule == DUNLIN_V1_RULE_AVERAGE ? DUNLIN_V1_RULE_AVERAGE
                                                                  : DUNLIN_V1_RULE_STATISTIC;
}

static uint64_t n_elements_of(const dunlin__layout *layout, uint32_t tensor)
{
    return layout->tensors[tensor].stored_bytes / sizeof(float);
}

/* ---- packing ---- */

typedef struct packing_job {
    const dunlin__down_place *place;
    dunlin__weights_file weights;
    dunlin__pack_options options;
    float *block;
    uint64_t *stored_bytes;
} packing_job;

static dunlin_status pack_tensor(packing_job *job, dunlin__tensor_packer *packer, uint32_t tensor,
                                 uint64_t first, dunlin_error *error)
{
    const dunlin__layout *layout = job->place->layout;
    const dunlin__values values = dunlin__weights_file_values(&job->weights);
    const uint64_t n_elements = n_elements_of(layout, tensor);
    DUNLIN_TRY(dunlin__tensor_packer_tensor(packer, tensor, packed_rule(layout, tensor), n_elements,
                                            1.0F, error));
    for (uint64_t at = 0; at < n_elements; at += BLOCK_VALUES) {
        const uint64_t left = n_elements - at;
        const size_t n = left < BLOCK_VALUES ? (size_t)left : BLOCK_VALUES;
        DUNLIN_TRY(values.values_fn(values.ctx, first + at, n, job->block, error));
        DUNLIN_TRY(dunlin__tensor_packer_values(packer, job->block, n, error));
    }
    return dunlin__tensor_packer_tensor_end(packer, &job->stored_bytes[tensor], NULL, error);
}

static dunlin_status pack_all(packing_job *job, dunlin_error *error)
{
    const dunlin__layout *layout = job->place->layout;
    dunlin__tensor_packer *packer = NULL;
    uint64_t first = 0;
    dunlin_status status =
        dunlin__tensor_packer_open(&job->options, job->place->alloc, &packer, error);
    for (uint32_t t = 0; status == DUNLIN_OK && t < layout->n_tensors; t++) {
        status = pack_tensor(job, packer, t, first, error);
        first += n_elements_of(layout, t);
    }
    dunlin__tensor_packer_close(packer);
    return status;
}

/* The seed of the rounding: from the model itself, so that the same one is rounded alike. */
static dunlin_status make_draws(const dunlin__published *model, uint8_t *out_draws,
                                dunlin_error *error)
{
    uint8_t bytes[sizeof DRAW_TAG + DUNLIN_SHA256_BYTES] = DRAW_TAG;
    memcpy(bytes + sizeof DRAW_TAG, model->manifest_sha256, DUNLIN_SHA256_BYTES);
    return dunlin__sha256_of(bytes, sizeof bytes, out_draws, error);
}

static dunlin_status write_packed(packing_job *job, dunlin__down *down, dunlin_error *error)
{
    const dunlin__down_place *place = job->place;
    dunlin__server_path path;
    dunlin__object_writer writer;
    dunlin__stream stream = {.name = DUNLIN_STREAM_WEIGHTS,
                             .encoding = DUNLIN_V1_ENCODING_PACKED,
                             .has_packing = true,
                             .packing = *place->packing};
    DUNLIN_TRY(dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_PACKED, &path, error));
    DUNLIN_TRY(dunlin__object_writer_begin(&writer, &down->packed, path.text,
                                           place->layout->chunk_bytes, place->alloc, error));
    job->options.sink =
        (dunlin__pack_sink){.ctx = &writer, .write_fn = dunlin__object_writer_bytes};
    dunlin_status status = pack_all(job, error);
    DUNLIN_TRY(dunlin__object_writer_end(&writer, status, error));
    DUNLIN_TRY(dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_PACKED ".manifest",
                                  &path, error));
    return dunlin__object_manifest_write(&down->packed, path.text, &stream, place->layout,
                                         job->stored_bytes, place->alloc, error);
}

static dunlin_status pack_model(const dunlin__down_place *place, const dunlin__published *model,
                                dunlin__down *down, dunlin_error *error)
{
    const size_t n_tensors = place->layout->n_tensors;
    packing_job job = {
        .place = place, .weights = {.fd = -1}, .options = {.packing = *place->packing}};
    dunlin__server_path path;
    job.block = dunlin__alloc_array(place->alloc, BLOCK_VALUES, sizeof(float));
    job.stored_bytes = dunlin__alloc_array(place->alloc, n_tensors, sizeof *job.stored_bytes);
    dunlin_status status = make_draws(model, job.options.draws, error);
    if (status == DUNLIN_OK && (job.block == NULL || job.stored_bytes == NULL)) {
        status = dunlin__fail(error, DUNLIN_MEMORY, "model", 0, "no memory to pack %zu tensors",
                              n_tensors);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__model_path(place->models, place->round, "weights", &path, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__weights_file_open(path.text, place->layout->n_values, &job.weights, error);
    }
    if (status == DUNLIN_OK) {
        status = write_packed(&job, down, error);
    }
    dunlin__weights_file_close(&job.weights);
    dunlin__free_array(place->alloc, job.stored_bytes, n_tensors, sizeof *job.stored_bytes);
    dunlin__free_array(place->alloc, job.block, BLOCK_VALUES, sizeof(float));
    return status;
}

/* ---- the base: what a device will decode ---- */

/* The packed file's values, from the first on. */
typedef struct decoding {
    const dunlin__layout *layout;
    in_order file;
    uint64_t *stored_bytes; /* of each tensor, from the manifest */
    dunlin__tensor_unpacker *unpacker;
    uint32_t n_begun; /* tensors */
    const float *rest;
    size_t n_rest;
    uint64_t n_given;
} decoding;

static dunlin_status next_values(decoding *from, dunlin_error *error)
{
    while (from->n_rest == 0) {
        if (from->n_begun > 0) {
            DUNLIN_TRY(
                dunlin__tensor_unpacker_next(from->unpacker, &from->rest, &from->n_rest, error));
        }
        if (from->n_rest == 0) {
            const uint32_t t = from->n_begun++;
            if (t >= from->layout->n_tensors) {
                return dunlin__fail(error, DUNLIN_INTERNAL, "model", 0,
                                    "a packed base ends after %" PRIu64 " values", from->n_given);
            }
            DUNLIN_TRY(dunlin__tensor_unpacker_tensor(
                from->unpacker, t, packed_rule(from->layout, t), n_elements_of(from->layout, t),
                from->stored_bytes[t], error));
        }
    }
    return DUNLIN_OK;
}

/* Asked for in order, as a model is published. */
static dunlin_status decoded_values(void *ctx, uint64_t first, size_t n, float *out_values,
                                    dunlin_error *error)
{
    decoding *from = ctx;
    if (first != from->n_given) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "model", 0,
                            "value %" PRIu64 " of a packed base is read after %" PRIu64, first,
                            from->n_given);
    }
    from->n_given += n;
    while (n > 0) {
        DUNLIN_TRY(next_values(from, error));
        const size_t part = n < from->n_rest ? n : from->n_rest;
        memcpy(out_values, from->rest, part * sizeof(float));
        out_values += part;
        n -= part;
        from->rest += part;
        from->n_rest -= part;
    }
    return DUNLIN_OK;
}

/* The sizes of the packed tensors, as a device reads them. */
static dunlin_status read_sizes(const dunlin__down_place *place, uint64_t *out_stored_bytes,
                                dunlin_error *error)
{
    dunlin__server_path path;
    dunlin__manifest_reader reader;
    dunlin__manifest_record record = {.item = DUNLIN_MANIFEST_STREAM};
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    DUNLIN_TRY(dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_PACKED ".manifest",
                                  &path, error));
    DUNLIN_TRY(dunlin__server_file_read(place->alloc, path.text, DUNLIN_WIRE_MANIFEST_BYTES, &bytes,
                                        &n_bytes, error));
    const dunlin__manifest_source source = dunlin__manifest_source_memory(bytes, n_bytes);
    dunlin_status status =
        dunlin__manifest_reader_begin(&reader, &source, DUNLIN_MANIFEST_BASE, error);
    while (status == DUNLIN_OK && record.item != DUNLIN_MANIFEST_END) {
        status = dunlin__manifest_reader_next(&reader, &record, error);
        if (status == DUNLIN_OK && record.item == DUNLIN_MANIFEST_TENSOR &&
            record.index < place->layout->n_tensors) {
            out_stored_bytes[record.index] = record.n_bytes;
        }
    }
    dunlin__free_array(place->alloc, bytes, n_bytes + 1, 1);
    return status;
}

static dunlin_status publish(const dunlin__down_place *place, decoding *from,
                             dunlin__weights_file *control, dunlin__down *down, dunlin_error *error)
{
    const dunlin__layout *layout = place->layout;
    const dunlin__unpack_source source = {.ctx = &from->file, .read_fn = read_in_order};
    dunlin__values values[2] = {{.ctx = from, .values_fn = decoded_values}};
    dunlin__server_path path;
    DUNLIN_TRY(read_sizes(place, from->stored_bytes, error));
    DUNLIN_TRY(open_in_order(&from->file, place, place->round, DUNLIN_DOWN_PACKED, error));
    DUNLIN_TRY(dunlin__tensor_unpacker_open(place->packing, &source, place->alloc, &from->unpacker,
                                            error));
    if (layout->has_control) {
        DUNLIN_TRY(dunlin__model_path(place->models, place->round, "control", &path, error));
        DUNLIN_TRY(dunlin__weights_file_open(path.text, layout->n_averaged_values, control, error));
        values[1] = dunlin__weights_file_values(control);
    }
    return dunlin__model_publish(place->folder, place->round, layout, values, place->alloc,
                                 &down->base, error);
}

static dunlin_status publish_base(const dunlin__down_place *place, dunlin__down *down,
                                  dunlin_error *error)
{
    const size_t n_tensors = place->layout->n_tensors;
    decoding from = {.layout = place->layout, .file = {.fd = -1}};
    dunlin__weights_file control = {.fd = -1};
    from.stored_bytes = dunlin__alloc_zeroed(place->alloc, n_tensors, sizeof *from.stored_bytes);
    dunlin_status status = from.stored_bytes != NULL
                               ? publish(place, &from, &control, down, error)
                               : dunlin__fail(error, DUNLIN_MEMORY, "model", 0,
                                              "no memory for the sizes of %zu tensors", n_tensors);
    dunlin__weights_file_close(&control);
    dunlin__tensor_unpacker_close(from.unpacker);
    close_in_order(&from.file);
    dunlin__free_array(place->alloc, from.stored_bytes, n_tensors, sizeof *from.stored_bytes);
    return status;
}

/* ---- the delta ---- */

static void remove_file(const dunlin__down_place *place, const char *ending)
{
    dunlin__server_path path;
    dunlin_error ignored;
    if (dunlin__model_path(place->folder, place->round, ending, &path, &ignored) == DUNLIN_OK) {
        (void)unlink(path.text);
    }
}

/* The hash of the base before, if it lies there whole beside packed bytes as many as these. */
static bool find_before(const dunlin__down_place *place, const dunlin__down *down,
                        uint8_t out_sha256[DUNLIN_SHA256_BYTES])
{
    dunlin__object_file before;
    dunlin__server_path path;
    dunlin__server_path manifest;
    dunlin_error ignored = {0};
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    if (down == NULL || place->round < 2 || place->packing->is_entropy_coded ||
        dunlin__model_path(place->folder, place->round - 1, DUNLIN_DOWN_PACKED, &path, &ignored) !=
            DUNLIN_OK ||
        dunlin__model_path(place->folder, place->round - 1, DUNLIN_DOWN_PACKED ".manifest",
                           &manifest, &ignored) != DUNLIN_OK) {
        return false;
    }
    bool is_there =
        dunlin__object_file_load(&before, path.text, manifest.text, DUNLIN_STREAM_WEIGHTS,
                                 place->packing, place->alloc, &ignored) == DUNLIN_OK &&
        before.n_bytes == down->packed.n_bytes &&
        memcmp(before.manifest_sha256, down->packed.manifest_sha256, DUNLIN_SHA256_BYTES) != 0;
    dunlin__object_file_free(&before, place->alloc);
    is_there = is_there &&
               dunlin__model_path(place->folder, place->round - 1, "manifest", &path, &ignored) ==
                   DUNLIN_OK &&
               dunlin__server_file_read(place->alloc, path.text, DUNLIN_WIRE_MANIFEST_BYTES, &bytes,
                                        &n_bytes, &ignored) == DUNLIN_OK;
    if (is_there) {
        is_there = dunlin__sha256_of(bytes, n_bytes, out_sha256, &ignored) == DUNLIN_OK;
        dunlin__free_array(place->alloc, bytes, n_bytes + 1, 1);
    }
    return is_there;
}

static dunlin_status write_delta(const dunlin__down_place *place, dunlin__down *down,
                                 in_order *from, in_order *to, dunlin_error *error)
{
    dunlin__server_path path;
    dunlin__object_writer writer;
    uint64_t n_bytes = 0;
    const dunlin__unpack_source before = {.ctx = from, .read_fn = read_in_order};
    const dunlin__unpack_source now = {.ctx = to, .read_fn = read_in_order};
    const dunlin__stream stream = {.name = DUNLIN_STREAM_DELTA,
                                   .encoding = DUNLIN_V1_ENCODING_BYTES};
    DUNLIN_TRY(open_in_order(from, place, place->round - 1, DUNLIN_DOWN_PACKED, error));
    DUNLIN_TRY(open_in_order(to, place, place->round, DUNLIN_DOWN_PACKED, error));
    DUNLIN_TRY(dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_DELTA, &path, error));
    DUNLIN_TRY(dunlin__object_writer_begin(&writer, &down->delta, path.text,
                                           place->layout->chunk_bytes, place->alloc, error));
    const dunlin__pack_sink sink = {.ctx = &writer, .write_fn = dunlin__object_writer_bytes};
    dunlin_status status = dunlin__delta_write(down->packed.n_bytes, &before, &now, &sink,
                                               place->alloc, &n_bytes, error);
    DUNLIN_TRY(dunlin__object_writer_end(&writer, status, error));
    if (n_bytes > down->packed.n_bytes / WORTH_DENOMINATOR * WORTH_NUMERATOR) {
        dunlin__object_file_free(&down->delta, place->alloc);
        remove_file(place, DUNLIN_DOWN_DELTA);
        return DUNLIN_OK;
    }
    DUNLIN_TRY(dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_DELTA ".manifest", &path,
                                  error));
    return dunlin__object_manifest_write(&down->delta, path.text, &stream, place->layout, NULL,
                                         place->alloc, error);
}

static dunlin_status make_delta(const dunlin__down_place *place, dunlin__down *down,
                                dunlin_error *error)
{
    in_order from = {.fd = -1};
    in_order to = {.fd = -1};
    remove_file(place, DUNLIN_DOWN_DELTA ".manifest");
    remove_file(place, DUNLIN_DOWN_DELTA);
    if (!find_before(place, down, down->from_sha256)) {
        return DUNLIN_OK;
    }
    const dunlin_status status = write_delta(place, down, &from, &to, error);
    close_in_order(&from);
    close_in_order(&to);
    return status;
}

/* ---- the whole ---- */

static dunlin_status take_down(const dunlin_alloc *alloc, dunlin__down **out_down,
                               dunlin_error *error)
{
    *out_down = dunlin__alloc_zeroed(alloc, 1, sizeof **out_down);
    return *out_down != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "model", 0,
                              "no memory for a packed base of %zu bytes", sizeof **out_down);
}

static dunlin_status give_down(dunlin_status status, const dunlin__down_place *place,
                               dunlin__down **out_down)
{
    if (status != DUNLIN_OK) {
        dunlin__down_free(*out_down, place->alloc);
        *out_down = NULL;
    }
    return status;
}

dunlin_status dunlin__down_make(const dunlin__down_place *place, const dunlin__published *model,
                                dunlin__down **out_down, dunlin_error *error)
{
    DUNLIN_TRY(take_down(place->alloc, out_down, error));
    dunlin__down_remove(place->folder, place->round);
    dunlin_status status = pack_model(place, model, *out_down, error);
    if (status == DUNLIN_OK) {
        status = make_delta(place, *out_down, error);
    }
    if (status == DUNLIN_OK) {
        status = publish_base(place, *out_down, error);
    }
    return give_down(status, place, out_down);
}

/* A delta that is there; none is fine. */
static void load_delta(const dunlin__down_place *place, dunlin__down *down)
{
    dunlin__server_path path;
    dunlin__server_path manifest;
    dunlin_error ignored = {0};
    const bool is_there =
        find_before(place, down, down->from_sha256) &&
        dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_DELTA, &path, &ignored) ==
            DUNLIN_OK &&
        dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_DELTA ".manifest", &manifest,
                           &ignored) == DUNLIN_OK &&
        dunlin__object_file_load(&down->delta, path.text, manifest.text, DUNLIN_STREAM_DELTA, NULL,
                                 place->alloc, &ignored) == DUNLIN_OK;
    if (!is_there) {
        dunlin__object_file_free(&down->delta, place->alloc);
    }
}

static dunlin_status load(const dunlin__down_place *place, dunlin__down *down, dunlin_error *error)
{
    dunlin__server_path path;
    dunlin__server_path manifest;
    DUNLIN_TRY(dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_PACKED, &path, error));
    DUNLIN_TRY(dunlin__model_path(place->folder, place->round, DUNLIN_DOWN_PACKED ".manifest",
                                  &manifest, error));
    DUNLIN_TRY(dunlin__object_file_load(&down->packed, path.text, manifest.text,
                                        DUNLIN_STREAM_WEIGHTS, place->packing, place->alloc,
                                        error));
    DUNLIN_TRY(dunlin__model_load(place->folder, place->round, place->layout, place->alloc,
                                  &down->base, error));
    load_delta(place, down);
    return DUNLIN_OK;
}

dunlin_status dunlin__down_load(const dunlin__down_place *place, dunlin__down **out_down,
                                dunlin_error *error)
{
    DUNLIN_TRY(take_down(place->alloc, out_down, error));
    return give_down(load(place, *out_down, error), place, out_down);
}

void dunlin__down_remove(const char *folder, uint64_t round)
{
    dunlin__server_path path;
    dunlin_error ignored;
    if (dunlin__model_path(folder, round, "manifest", &path, &ignored) == DUNLIN_OK) {
        (void)unlink(path.text);
    }
}

void dunlin__down_free(dunlin__down *down, const dunlin_alloc *alloc)
{
    if (down != NULL) {
        dunlin__published_free(&down->base, alloc);
        dunlin__object_file_free(&down->packed, alloc);
        dunlin__object_file_free(&down->delta, alloc);
        dunlin__free_array(alloc, down, 1, sizeof *down);
    }
}
