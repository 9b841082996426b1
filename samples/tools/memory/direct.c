/*
 * direct.c - what a client does in a round, between the base and the update.
 *
 * Invariant: what was loaded is unloaded, whatever happens between.
 */
#include "direct.h"

#include <mem/support.h>

#include <calls/calls_fleet.h>
#include <calls/calls_update.h>
#include <common/progress.h>
#include <context/client_context.h>
#include <round/learner_report.h>
#include <round/task_orders.h>
#include <stdlib.h>
#include <string.h>
#include <transfer/update_clip.h>
#include <transfer/update_pack.h>
#include <weights/tensor_table.h>

/* Bytes of a packed update on their way from the packer to the unpacker. */
typedef struct packed_bytes {
    uint8_t *bytes;
    size_t capacity;
    size_t n_written;
    size_t n_read;
} packed_bytes;

struct direct {
    dunlin_runtime runtime; /* hooks, and a clock that stands still */
    dunlin_client client;
    dunlin__round round;
    const direct_table *table;
    const float *base_values;
    int32_t *base_index; /* of the tensors that go up */
    int32_t n_shared;
    float *block;
    double update_ms; /* that the stages of the update took */
    packed_bytes packed;
};

/* ---- made ---- */

dunlin_status direct_table_make(direct_table *out_table, const dunlin__tensor_entry *entries,
                                uint32_t n_entries)
{
    uint64_t offset = 0;
    *out_table = (direct_table){.n_tensors = (int32_t)n_entries};
    out_table->tensors = calloc(n_entries, sizeof *out_table->tensors);
    out_table->offsets = calloc(n_entries, sizeof *out_table->offsets);
    if (out_table->tensors == NULL || out_table->offsets == NULL) {
        return DUNLIN_MEMORY;
    }
    for (uint32_t i = 0; i < n_entries; i++) {
        dunlin__tensor_of(&entries[i], entries[i].name, &out_table->tensors[i]);
        out_table->offsets[i] = offset;
        offset += (uint64_t)out_table->tensors[i].n_elements;
    }
    return DUNLIN_OK;
}

void direct_table_free(direct_table *table)
{
    free(table->tensors);
    free(table->offsets);
    memset(table, 0, sizeof *table);
}

static int64_t no_time(void *ctx)
{
    (void)ctx;
    return 0;
}

static dunlin_status read_base(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    const direct *own = ctx;
    const direct_table *table = own->table;
    if (index < 0 || index >= table->n_tensors || first < 0 || n < 0 ||
        first > table->tensors[index].n_elements - n) {
        return DUNLIN_ARGUMENT;
    }
    memcpy(out, own->base_values + table->offsets[index] + first, (size_t)n * sizeof *out);
    return DUNLIN_OK;
}

direct *direct_make(const direct_table *table)
{
    direct *own = calloc(1, sizeof *own);
    if (own == NULL) {
        return NULL;
    }
    const dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    own->table = table;
    own->base_index = calloc((size_t)table->n_tensors, sizeof *own->base_index);
    own->block = calloc(DUNLIN_STREAM_BLOCK_FLOATS, sizeof *own->block);
    own->runtime.alloc = dunlin__alloc_or_default(NULL);
    own->runtime.clock.boot_ms_fn = no_time;
    own->runtime.clock.wall_ms_fn = no_time;
    own->client.runtime = &own->runtime;
    own->client.options = options;
    own->client.options.max_upload_bytes = UINT64_MAX; /* nothing is sent */
    if (own->base_index == NULL || own->block == NULL) {
        direct_free(own);
        return NULL;
    }
    return own;
}

void direct_free(direct *client)
{
    if (client == NULL) {
        return;
    }
    free(client->base_index);
    free(client->block);
    free(client->packed.bytes);
    free(client);
}

/* ---- the learner ---- */

static dunlin_status fail_learner(direct *own, dunlin_status status, const char *what)
{
    const dunlin_learner *learner = &own->client.learner;
    const char *text =
        learner->ops->error_text != NULL ? learner->ops->error_text(learner->self) : NULL;
    return dunlin__fail(&own->client.error, status, "learner", 0, "%s: %.200s", what,
                        text != NULL ? text : dunlin_status_text(status));
}

static dunlin_status load(direct *own)
{
    dunlin_task task;
    dunlin__task_orders orders;
    dunlin__round *round = &own->round;
    const dunlin_learner *learner = &own->client.learner;
    dunlin__task_take(&round->assignment, &orders, &task);
    const dunlin_status status = learner->ops->load(learner->self, &task, &round->base);
    round->is_loaded = status == DUNLIN_OK;
    return status == DUNLIN_OK
               ? DUNLIN_OK
               : fail_learner(own, status, "the learner could not load the round's weights");
}

/* All of a training, or of an evaluation. */
static dunlin_status learn(direct *own, bool is_fit, dunlin_learner_report *out_report)
{
    const dunlin_learner *learner = &own->client.learner;
    do {
        *out_report = (dunlin_learner_report)DUNLIN_LEARNER_REPORT_INIT;
        const dunlin_status status = is_fit ? learner->ops->fit(learner->self, 0, out_report)
                                            : learner->ops->evaluate(learner->self, 0, out_report);
        if (status != DUNLIN_OK) {
            return fail_learner(own, status, is_fit ? "learning failed" : "evaluating failed");
        }
        DUNLIN_TRY(dunlin__learner_report_check(out_report, &own->client.error));
    } while (!out_report->is_done);
    return DUNLIN_OK;
}

/* The round's own work into the journal. */
static dunlin_status work(direct *own, bool is_fit)
{
    dunlin__journal *journal = &own->client.journal;
    dunlin_learner_report report;
    DUNLIN_TRY(learn(own, is_fit, &report));
    journal->n_examples = report.n_examples;
    journal->n_steps = report.n_steps;
    journal->loss = report.loss;
    journal->accuracy = report.accuracy;
    journal->peak_bytes = report.peak_bytes;
    return DUNLIN_OK;
}

static dunlin_status compare(direct *own, dunlin__evaluated which)
{
    dunlin__journal *journal = &own->client.journal;
    dunlin_learner_report report;
    DUNLIN_TRY(learn(own, false, &report));
    journal->evaluated |= (int32_t)which;
    if (which == DUNLIN_EVALUATED_AFTER) {
        journal->loss_after = report.loss;
        journal->accuracy_after = report.accuracy;
        return DUNLIN_OK;
    }
    journal->loss_before = report.loss;
    journal->accuracy_before = report.accuracy;
    return DUNLIN_OK;
}

static dunlin_status train(direct *own)
{
    const bool evaluates = own->round.assignment.plan.evaluates;
    if (evaluates) {
        DUNLIN_TRY(compare(own, DUNLIN_EVALUATED_BEFORE));
    }
    DUNLIN_TRY(work(own, true));
    return evaluates ? compare(own, DUNLIN_EVALUATED_AFTER) : DUNLIN_OK;
}

/* ---- the update ---- */

/* A trainer keeps a dense layer's weights transposed, so that neighbours of a row lie far apart
 * there, and neighbours of a column in one line of the cache: a tile of both is read at a time. */
#define TILE_ROWS 16
#define TILE_VALUES 256

static dunlin_status read_rows(const dunlin__clip *clip, const dunlin__update_values *values,
                               int32_t index, const dunlin_shape *shape, float *out)
{
    const int64_t n_rows = shape->dims[0];
    const int64_t n_row = shape->dims[1];
    for (int64_t top = 0; top < n_rows; top += TILE_ROWS) {
        const int64_t bottom = top + TILE_ROWS < n_rows ? top + TILE_ROWS : n_rows;
        for (int64_t first = 0; first < n_row; first += TILE_VALUES) {
            const int64_t left = n_row - first;
            const int64_t n = left < TILE_VALUES ? left : TILE_VALUES;
            for (int64_t row = top; row < bottom; row++) {
                const int64_t at = row * n_row + first;
                DUNLIN_TRY(dunlin__clip_read(clip, values, index, at, n, out + at));
            }
        }
    }
    return DUNLIN_OK;
}

static dunlin_status read_plain(direct *own, const dunlin__clip *clip,
                                const dunlin__update_values *values, float *out)
{
    for (int32_t i = 0; i < own->n_shared; i++) {
        const int32_t index = own->base_index[i];
        const dunlin_weights_tensor *tensor = &own->table->tensors[index];
        const dunlin_shape *shape = &tensor->shape;
        const bool has_rows = shape->n_dims == 2 && shape->dims[1] >= 2 * TILE_VALUES;
        DUNLIN_TRY(has_rows ? read_rows(clip, values, index, shape, out)
                            : dunlin__clip_read(clip, values, index, 0, tensor->n_elements, out));
        out += tensor->n_elements;
    }
    return DUNLIN_OK;
}

static dunlin_status write_packed(void *ctx, const void *data, size_t n_bytes, dunlin_error *error)
{
    packed_bytes *into = ctx;
    if (n_bytes > into->capacity - into->n_written) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "update", 0,
                            "a packed update of more than %zu bytes", into->capacity);
    }
    memcpy(into->bytes + into->n_written, data, n_bytes);
    into->n_written += n_bytes;
    return DUNLIN_OK;
}

static dunlin_status read_packed(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    packed_bytes *from = ctx;
    if (n_bytes > from->n_written - from->n_read) {
        return dunlin__fail(error, DUNLIN_INTERNAL, "update", 0,
                            "a packed update ends after %zu bytes", from->n_written);
    }
    memcpy(buffer, from->bytes + from->n_read, n_bytes);
    from->n_read += n_bytes;
    return DUNLIN_OK;
}

static dunlin_v1_rule_t rule_of(const direct *own, int32_t index)
{
    return own->table->tensors[index].aggregation == DUNLIN_AGGREGATE_STATISTIC
               ? DUNLIN_V1_RULE_STATISTIC
               : DUNLIN_V1_RULE_AVERAGE;
}

/* What the server finds in the bytes. */
static dunlin_status unpack(direct *own, const dunlin__update_pack *pack,
                            dunlin__tensor_unpacker *unpacker, float *out)
{
    dunlin_error *error = &own->client.error;
    for (int32_t i = 0; i < pack->n_tensors; i++) {
        const int32_t index = pack->base_index[i];
        const float *values = NULL;
        size_t n_values = 0;
        DUNLIN_TRY(dunlin__tensor_unpacker_tensor(unpacker, (uint32_t)i, rule_of(own, index),
                                                  (uint64_t)own->table->tensors[index].n_elements,
                                                  pack->stored_bytes[i], error));
        do {
            DUNLIN_TRY(dunlin__tensor_unpacker_next(unpacker, &values, &n_values, error));
            if (n_values > 0) {
                memcpy(out, values, n_values * sizeof *out);
            }
            out += n_values;
        } while (n_values > 0);
    }
    return DUNLIN_OK;
}

static dunlin_status make_packed_room(direct *own, uint64_t n_bytes)
{
    packed_bytes *packed = &own->packed;
    packed->n_written = 0;
    packed->n_read = 0;
    if (packed->capacity >= n_bytes) {
        return DUNLIN_OK;
    }
    free(packed->bytes);
    packed->bytes = malloc((size_t)n_bytes);
    packed->capacity = packed->bytes != NULL ? (size_t)n_bytes : 0;
    return packed->bytes != NULL ? DUNLIN_OK
                                 : dunlin__fail(&own->client.error, DUNLIN_MEMORY, "update", 0,
                                                "no memory for a packed update of %llu bytes",
                                                (unsigned long long)n_bytes);
}

static dunlin_status pack_and_unpack(direct *own, dunlin__update_pack *pack, float *out)
{
    const dunlin__pack_sink sink = {.ctx = &own->packed, .write_fn = write_packed};
    const dunlin__unpack_source source = {.ctx = &own->packed, .read_fn = read_packed};
    dunlin__tensor_unpacker *unpacker = NULL;
    uint64_t n_bytes = 0;
    DUNLIN_TRY(dunlin__update_pack_open(pack));
    DUNLIN_TRY(dunlin__update_pack_settle(pack, own->block, &n_bytes));
    DUNLIN_TRY(make_packed_room(own, n_bytes));
    DUNLIN_TRY(dunlin__update_pack_run(pack, own->block, &sink, n_bytes));
    dunlin_status status = dunlin__tensor_unpacker_open(
        &pack->options.packing, &source, &own->runtime.alloc, &unpacker, &own->client.error);
    if (status == DUNLIN_OK) {
        status = unpack(own, pack, unpacker, out);
    }
    dunlin__tensor_unpacker_close(unpacker);
    return status;
}

static dunlin_status read_update(direct *own, const dunlin__clip *clip,
                                 const dunlin__update_values *values, float *out)
{
    if (own->round.assignment.plan.update_encoding != DUNLIN_V1_ENCODING_PACKED) {
        return read_plain(own, clip, values, out); /* what int8 decodes to is the learner's own */
    }
    dunlin__update_pack pack = {
        .values = values, .clip = clip, .base_index = own->base_index, .n_tensors = own->n_shared};
    const dunlin_status status = pack_and_unpack(own, &pack, out);
    dunlin__update_pack_close(&pack);
    return status;
}

/* The stages of update_write.c, with their result in memory. */
static dunlin_status make_update(direct *own, float *out)
{
    dunlin__update_values values = {.client = &own->client};
    dunlin__clip clip = {0};
    uint64_t ignored = 0;
    own->n_shared = dunlin__update_choose(&own->round, true, true, own->base_index, &ignored);
    dunlin_status status = dunlin__update_values_open(&own->client, &values);
    if (status == DUNLIN_OK) {
        status = dunlin__clip_open(&clip, &values);
    }
    if (status == DUNLIN_OK) {
        status = dunlin__clip_settle(&clip, &values);
    }
    if (status == DUNLIN_OK) {
        dunlin__clip_note(&clip, &own->client);
        status = read_update(own, &clip, &values, out);
    }
    dunlin__clip_close(&clip, &own->client);
    dunlin__update_values_close(&values);
    return status;
}

/* The exponent of a float is all ones where it is no number. */
static dunlin_status check_finite(direct *own, const float *values)
{
    for (int32_t i = 0; i < own->n_shared; i++) {
        const dunlin_weights_tensor *tensor = &own->table->tensors[own->base_index[i]];
        uint32_t n_bad = 0;
        for (int64_t k = 0; k < tensor->n_elements; k++) {
            uint32_t bits = 0;
            memcpy(&bits, &values[k], sizeof bits);
            n_bad |= (bits & 0x7f800000U) == 0x7f800000U ? 1U : 0U;
        }
        if (n_bad != 0) {
            return dunlin__fail(&own->client.error, DUNLIN_NUMERIC, "update", 0,
                                "tensor %.100s of the update has a value that is not finite",
                                tensor->name);
        }
        values += tensor->n_elements;
    }
    return DUNLIN_OK;
}

/* ---- a round ---- */

static void begin(direct *own, const dunlin__assignment *assignment, const float *base_values,
                  const dunlin_learner *learner)
{
    dunlin__round *round = &own->round;
    dunlin_client *client = &own->client;
    own->base_values = base_values;
    own->update_ms = 0.0;
    memset(round, 0, sizeof *round);
    memset(&client->journal, 0, sizeof client->journal);
    dunlin__error_clear(&client->error);
    round->assignment = *assignment;
    round->has_assignment = true;
    round->tensors = own->table->tensors;
    round->n_tensors = own->table->n_tensors;
    round->base_fd = -1;
    round->kept_fd = -1;
    round->base = (dunlin_weights_reader){
        .ctx = own, .tensors = round->tensors, .n_tensors = round->n_tensors, .read_fn = read_base};
    client->round = round;
    client->learner = *learner;
}

static dunlin_status take_part(direct *own, float *out_update)
{
    const bool is_training = own->round.assignment.kind == DUNLIN_V1_KIND_TRAIN;
    DUNLIN_TRY(dunlin__assignment_check(&own->client));
    DUNLIN_TRY(load(own));
    DUNLIN_TRY(is_training ? train(own) : work(own, false));
    const double begun_ms = clock_ms();
    DUNLIN_TRY(is_training ? make_update(own, out_update) : DUNLIN_OK);
    DUNLIN_TRY(is_training ? check_finite(own, out_update) : DUNLIN_OK);
    own->update_ms = clock_ms() - begun_ms;
    return DUNLIN_OK;
}

// NOLINTNEXTLINE(readability-function-size): four results
dunlin_status direct_run(direct *client, const dunlin__assignment *assignment,
                         const float *base_values, const dunlin_learner *learner, float *out_update,
                         dunlin__commit_request *out_commit, uint64_t *out_peak,
                         double *out_update_ms, dunlin_error *out_error)
{
    begin(client, assignment, base_values, learner);
    const dunlin_status status = take_part(client, out_update);
    if (client->round.is_loaded) {
        learner->ops->unload(learner->self);
    }
    memset(out_commit, 0, sizeof *out_commit);
    if (status == DUNLIN_OK) {
        dunlin__commit_fill(&client->client, out_commit);
    }
    *out_peak = client->client.journal.peak_bytes;
    *out_update_ms = client->update_ms;
    *out_error = client->client.error;
    return status;
}
