/*
 * update_pack.c - packs an update, pass by pass.
 *
 * Invariant: the gains come of a pass that measures what the other side will decode, in its own
 * arithmetic, so no norm that is decoded is above the plan's bound, and what is fed back of a
 * tensor is never longer than what was packed of it.
 */
#include "update_pack.h"

#include <wire/digest.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Names the use of what is drawn. */
#define DRAW_TAG "dunlin.v1.rounding"
/* A gain must be above 0. */
#define LEAST_FEEDBACK_GAIN 0x1p-20
/* The square of a norm grows by less than this when each product with a gain is rounded. */
#define GROWTH (1.0 + 0x1p-20)

/* The seed of the rounding follows from the assignment, so whatever is written twice is the same.
 */
static dunlin_status make_draws(const dunlin__training_plan *plan, uint64_t round, uint8_t *out,
                                dunlin_error *error)
{
    uint8_t bytes[sizeof DRAW_TAG + 16] = DRAW_TAG;
    for (size_t i = 0; i < 8; i++) {
        bytes[sizeof DRAW_TAG + i] = (uint8_t)(plan->seed >> (8 * i));
        bytes[sizeof DRAW_TAG + 8 + i] = (uint8_t)(round >> (8 * i));
    }
    return dunlin__sha256_of(bytes, sizeof bytes, out, error);
}

dunlin_status dunlin__update_pack_open(dunlin__update_pack *pack)
{
    dunlin_client *client = pack->values->client;
    const dunlin_alloc *alloc = &client->runtime->alloc;
    const dunlin__assignment *assignment = &client->round->assignment;
    const size_t n = (size_t)pack->n_tensors;
    pack->options = (dunlin__pack_options){.packing = assignment->plan.packing};
    pack->gains = dunlin__alloc_array(alloc, n, sizeof *pack->gains);
    pack->stored_bytes = dunlin__alloc_array(alloc, n, sizeof *pack->stored_bytes);
    if (pack->gains == NULL || pack->stored_bytes == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0, "no memory for %zu tensors",
                            n);
    }
    for (size_t i = 0; i < n; i++) {
        pack->gains[i] = 1.0F;
    }
    return make_draws(&assignment->plan, assignment->round, pack->options.draws, &client->error);
}

void dunlin__update_pack_close(dunlin__update_pack *pack)
{
    const dunlin_alloc *alloc = &pack->values->client->runtime->alloc;
    const size_t n = (size_t)pack->n_tensors;
    dunlin__free_array(alloc, pack->stored_bytes, n, sizeof *pack->stored_bytes);
    dunlin__free_array(alloc, pack->gains, n, sizeof *pack->gains);
    pack->stored_bytes = NULL;
    pack->gains = NULL;
}

static const dunlin_weights_tensor *tensor_of(const dunlin__update_pack *pack, int32_t index)
{
    return &pack->values->client->round->tensors[pack->base_index[index]];
}

static dunlin_v1_rule_t rule_of(const dunlin__update_pack *pack, int32_t index)
{
    return tensor_of(pack, index)->aggregation == DUNLIN_AGGREGATE_STATISTIC
               ? DUNLIN_V1_RULE_STATISTIC
               : DUNLIN_V1_RULE_AVERAGE;
}

/* ---- the choice of the largest ---- */

static dunlin_status choose_pass(dunlin__update_pack *pack, dunlin__pack_chooser *chooser,
                                 float *block)
{
    for (int32_t i = 0; i < pack->n_tensors; i++) {
        const int64_t n_elements = tensor_of(pack, i)->n_elements;
        for (int64_t first = 0; rule_of(pack, i) == DUNLIN_V1_RULE_AVERAGE && first < n_elements;) {
            const int64_t left = n_elements - first;
            const int64_t n = left < DUNLIN_STREAM_BLOCK_FLOATS ? left : DUNLIN_STREAM_BLOCK_FLOATS;
            DUNLIN_TRY(
                dunlin__clip_read(pack->clip, pack->values, pack->base_index[i], first, n, block));
            dunlin__pack_chooser_add(chooser, block, (size_t)n);
            first += n;
        }
    }
    dunlin__pack_chooser_end_pass(chooser, &pack->options.choice);
    return DUNLIN_OK;
}

static dunlin_status choose(dunlin__update_pack *pack, float *block)
{
    dunlin__pack_chooser chooser;
    uint64_t n_elements = 0;
    for (int32_t i = 0; i < pack->n_tensors; i++) {
        const bool is_averaged = rule_of(pack, i) == DUNLIN_V1_RULE_AVERAGE;
        n_elements += is_averaged ? (uint64_t)tensor_of(pack, i)->n_elements : 0;
    }
    dunlin__pack_chooser_begin(&chooser, dunlin__packing_kept(&pack->options.packing, n_elements));
    for (uint32_t i = 0; i < DUNLIN_PACK_CHOICE_PASSES; i++) {
        DUNLIN_TRY(choose_pass(pack, &chooser, block));
    }
    return DUNLIN_OK;
}

/* ---- a pass of the packer ---- */

/* ---- gains ---- */

/* What is decoded of the current tensor beside what was packed of it. */
typedef struct decoded_view {
    const dunlin__update_pack *pack;
    int32_t index;
    int64_t n_seen;
    double along;  /* sum of the products of both */
    double square; /* of what is decoded */
} decoded_view;

static dunlin_status view_decoded(void *ctx, const float *values, size_t n_values,
                                  dunlin_error *error)
{
    decoded_view *view = ctx;
    const dunlin__update_pack *pack = view->pack;
    float packed[DUNLIN_STREAM_PIECE_FLOATS];
    (void)error; /* it is the client's, which the reading fills */
    for (size_t done = 0; done < n_values;) {
        const size_t left = n_values - done;
        const size_t n = left < DUNLIN_STREAM_PIECE_FLOATS ? left : DUNLIN_STREAM_PIECE_FLOATS;
        DUNLIN_TRY(dunlin__clip_read(pack->clip, pack->values, pack->base_index[view->index],
                                     view->n_seen, (int64_t)n, packed));
        for (size_t i = 0; i < n; i++) {
            view->along += (double)packed[i] * (double)values[done + i];
            view->square += (double)values[done + i] * (double)values[done + i];
        }
        view->n_seen += (int64_t)n;
        done += n;
    }
    return DUNLIN_OK;
}

/* The gain that leaves least of a tensor for the next update. A choice at random, enlarged so that
 * its mean is right, would leave n / k - 1 times as much as was there, and more each round. Of an
 * unbiased packing it is about 1 / (1 + relative variance), with which feedback converges (Stich,
 * Karimireddy 2020, "The Error-Feedback Framework"). */
static float gain_of_feedback(const decoded_view *view)
{
    if (!(view->square > 0.0) || view->along >= view->square) {
        return 1.0F;
    }
    const double gain = view->along / view->square;
    return gain > LEAST_FEEDBACK_GAIN ? (float)gain : (float)LEAST_FEEDBACK_GAIN;
}

/* Both gains in one: a product is rounded downwards. */
static float join_gains(float gain, float more)
{
    if (gain < 1.0F && more < 1.0F) {
        return nextafterf(gain * more, 0.0F);
    }
    return gain < 1.0F ? gain : more;
}

/* ---- passes ---- */

/* Of what was decoded: the square of its norm, if `out_square` is not NULL. */
static dunlin_status pack_tensor(const dunlin__update_pack *pack, dunlin__tensor_packer *packer,
                                 int32_t index, float *block, double *out_square)
{
    dunlin_error *error = &pack->values->client->error;
    const int64_t n_elements = tensor_of(pack, index)->n_elements;
    DUNLIN_TRY(dunlin__tensor_packer_tensor(packer, (uint32_t)index, rule_of(pack, index),
                                            (uint64_t)n_elements, pack->gains[index], error));
    for (int64_t first = 0; first < n_elements;) {
        const int64_t left = n_elements - first;
        const int64_t n = left < DUNLIN_STREAM_BLOCK_FLOATS ? left : DUNLIN_STREAM_BLOCK_FLOATS;
        DUNLIN_TRY(
            dunlin__clip_read(pack->clip, pack->values, pack->base_index[index], first, n, block));
        DUNLIN_TRY(dunlin__tensor_packer_values(packer, block, (size_t)n, error));
        first += n;
    }
    return dunlin__tensor_packer_tensor_end(packer, &pack->stored_bytes[index], out_square, error);
}

/* One tensor of the pass that measures: its gain, and the square of its norm with that. */
static dunlin_status measure_tensor(dunlin__update_pack *pack, dunlin__tensor_packer *packer,
                                    decoded_view *view, float *block, float layer_bound,
                                    double *square_sum)
{
    dunlin_error *error = &pack->values->client->error;
    const int32_t index = view->index;
    double square = 0.0;
    float more = 1.0F;
    DUNLIN_TRY(pack_tensor(pack, packer, index, block, &square));
    const float gain = gain_of_feedback(view);
    if (gain < 1.0F) {
        square *= (double)gain * (double)gain * GROWTH;
    }
    if (layer_bound > 0.0F) {
        DUNLIN_TRY(dunlin__packing_gain(square, layer_bound, &more, error));
    }
    pack->gains[index] = join_gains(gain, more);
    *square_sum += square;
    return DUNLIN_OK;
}

/* The pass that measures: sizes, and gains but for that of the whole update's bound. */
static dunlin_status measure_pass(dunlin__update_pack *pack, float *block, float layer_bound,
                                  uint64_t *out_bytes, double *out_square)
{
    dunlin_client *client = pack->values->client;
    decoded_view view = {.pack = pack};
    dunlin__tensor_packer *packer = NULL;
    dunlin__pack_options options = pack->options;
    if (client->round->assignment.plan.feedback_rounds > 0) {
        options.mirror = (dunlin__pack_mirror){.ctx = &view, .values_fn = view_decoded};
    }
    *out_square = 0.0;
    dunlin_status status =
        dunlin__tensor_packer_open(&options, &client->runtime->alloc, &packer, &client->error);
    for (int32_t i = 0; status == DUNLIN_OK && i < pack->n_tensors; i++) {
        view = (decoded_view){.pack = pack, .index = i};
        status = measure_tensor(pack, packer, &view, block, layer_bound, out_square);
    }
    if (status == DUNLIN_OK) {
        *out_bytes = dunlin__tensor_packer_bytes(packer);
    }
    dunlin__tensor_packer_close(packer);
    return status;
}

/* The pass that writes, to the sink of the options. */
static dunlin_status write_pass(dunlin__update_pack *pack, float *block, uint64_t *out_bytes)
{
    dunlin_client *client = pack->values->client;
    dunlin__tensor_packer *packer = NULL;
    dunlin_status status = dunlin__tensor_packer_open(&pack->options, &client->runtime->alloc,
                                                      &packer, &client->error);
    for (int32_t i = 0; status == DUNLIN_OK && i < pack->n_tensors; i++) {
        status = pack_tensor(pack, packer, i, block, NULL);
    }
    if (status == DUNLIN_OK) {
        *out_bytes = dunlin__tensor_packer_bytes(packer);
    }
    dunlin__tensor_packer_close(packer);
    return status;
}

/* Sizes, and gains where the bound or the feedback needs them. */
static dunlin_status measure(dunlin__update_pack *pack, float *block, uint64_t *out_bytes)
{
    const dunlin__clip *clip = pack->clip;
    const bool is_bound = clip->bound > 0.0;
    float layer_bound = 0.0F;
    double square = 0.0;
    if (is_bound && clip->is_per_layer) {
        const double each = clip->bound / sqrt((double)clip->n_layers);
        layer_bound = nextafterf((float)each, 0.0F);
    }
    DUNLIN_TRY(measure_pass(pack, block, layer_bound, out_bytes, &square));
    if (is_bound && !clip->is_per_layer) {
        float more = 1.0F;
        DUNLIN_TRY(
            dunlin__packing_gain(square, (float)clip->bound, &more, &pack->values->client->error));
        for (int32_t i = 0; i < pack->n_tensors; i++) {
            pack->gains[i] = join_gains(pack->gains[i], more);
        }
    }
    return DUNLIN_OK;
}

/* ---- the file ---- */

static dunlin_status write_records(const dunlin__update_pack *pack, dunlin__stream_file *file,
                                   uint64_t total_bytes)
{
    dunlin_client *client = file->client;
    dunlin__stream stream = {.encoding = DUNLIN_V1_ENCODING_PACKED,
                             .total_bytes = total_bytes,
                             .chunk_bytes = client->round->assignment.plan.chunk_bytes,
                             .n_tensors = (uint32_t)pack->n_tensors,
                             .has_packing = true,
                             .packing = pack->options.packing};
    (void)snprintf(stream.name, sizeof stream.name, "%s", DUNLIN_STREAM_UPDATE);
    stream.n_chunks = (uint32_t)dunlin__chunk_count(total_bytes, stream.chunk_bytes);
    DUNLIN_TRY(dunlin__stream_file_stream(file, &stream));
    for (int32_t i = 0; i < pack->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = tensor_of(pack, i);
        dunlin__tensor_entry entry;
        DUNLIN_TRY(dunlin__tensor_entry_make(tensor->name, &tensor->shape, rule_of(pack, i), &entry,
                                             &client->error));
        entry.stored_bytes = pack->stored_bytes[i];
        DUNLIN_TRY(dunlin__stream_file_tensor(file, &entry));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__update_pack_settle(dunlin__update_pack *pack, float *block,
                                         uint64_t *out_bytes)
{
    dunlin_client *client = pack->values->client;
    if (pack->options.packing.selection == DUNLIN_V1_SELECTION_LARGEST) {
        DUNLIN_TRY(choose(pack, block));
    }
    DUNLIN_TRY(measure(pack, block, out_bytes));
    if (*out_bytes > client->options.max_upload_bytes) {
        return dunlin__fail(&client->error, DUNLIN_LIMIT, "update", 0,
                            "the packed update has %" PRIu64 " bytes; this client sends at most "
                            "%" PRIu64 " a round",
                            *out_bytes, client->options.max_upload_bytes);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__update_pack_run(dunlin__update_pack *pack, float *block,
                                      const dunlin__pack_sink *sink, uint64_t n_bytes)
{
    uint64_t n_again = 0;
    pack->options.sink = *sink;
    DUNLIN_TRY(write_pass(pack, block, &n_again));
    return n_again == n_bytes
               ? DUNLIN_OK
               : dunlin__fail(&pack->values->client->error, DUNLIN_CALLBACK, "update", 0,
                              "the learner gave other weights when it was read again: %" PRIu64
                              " bytes, then %" PRIu64,
                              n_bytes, n_again);
}

dunlin_status dunlin__update_pack_write(dunlin__update_pack *pack, dunlin__stream_file *file)
{
    uint64_t n_bytes = 0;
    DUNLIN_TRY(dunlin__update_pack_settle(pack, file->block, &n_bytes));
    DUNLIN_TRY(write_records(pack, file, n_bytes));
    dunlin__stream_chunks chunks;
    dunlin__stream_chunks_begin(&chunks, file, file->client->round->assignment.plan.chunk_bytes);
    const dunlin__pack_sink sink = {.ctx = &chunks, .write_fn = dunlin__stream_chunks_write};
    const dunlin_status status = dunlin__update_pack_run(pack, file->block, &sink, n_bytes);
    return dunlin__stream_chunks_end(&chunks, status);
}
