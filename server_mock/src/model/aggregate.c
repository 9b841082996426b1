/*
 * aggregate.c - aggregates a round's updates.
 *
 * Federated averaging: McMahan et al. 2017, algorithm 1; the sums are sums.h's.
 */
#include "aggregate.h"

#include <mem/support.h>

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_VALUES DUNLIN_AGGREGATE_VALUES

dunlin_status dunlin__aggregate_room_make(dunlin__aggregate_room *out_room,
                                          const dunlin__strategy *strategy, size_t n_inputs,
                                          const dunlin_alloc *alloc, dunlin_error *error)
{
    *out_room = (dunlin__aggregate_room){0};
    if (dunlin__strategy_is_robust(strategy) && n_inputs > 0) {
        size_t most = n_inputs * BLOCK_VALUES;
        most = most < DUNLIN_AGGREGATE_SAMPLES ? most : DUNLIN_AGGREGATE_SAMPLES;
        out_room->n_samples = most > n_inputs ? most : n_inputs;
        out_room->samples = dunlin__alloc_array(alloc, out_room->n_samples, sizeof(double));
        if (out_room->samples == NULL) {
            return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0,
                                "no memory for %zu values of %zu updates", out_room->n_samples,
                                n_inputs);
        }
    }
    out_room->means = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof *out_room->means);
    out_room->block = dunlin__alloc_array(alloc, BLOCK_VALUES, sizeof *out_room->block);
    if (out_room->means == NULL || out_room->block == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "rounds", 0, "no memory for the average");
    }
    return dunlin__sums_make(&out_room->sums, BLOCK_VALUES, alloc, error);
}

void dunlin__aggregate_room_free(dunlin__aggregate_room *room, const dunlin_alloc *alloc)
{
    dunlin__sums_free(&room->sums, alloc);
    dunlin__free_array(alloc, room->samples, room->n_samples, sizeof(double));
    dunlin__free_array(alloc, room->means, BLOCK_VALUES, sizeof *room->means);
    dunlin__free_array(alloc, room->block, BLOCK_VALUES, sizeof *room->block);
}

/* Values of one rule that follow each other in the model and in the updates. */
typedef struct piece {
    uint64_t place; /* in the updates' files */
    size_t first;   /* in the block */
    size_t n;
    dunlin_v1_rule_t rule;
} piece;

static dunlin_status read_input(const dunlin__aggregate_input *input, const piece *part,
                                float *out_values, dunlin_error *error)
{
    if (input->values != NULL) {
        memcpy(out_values, input->values + part->place, part->n * sizeof(float));
        return DUNLIN_OK;
    }
    int fd = open(input->path.text, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return dunlin__file_fail(error, "opening", input->path.text, errno);
    }
    dunlin_status status = dunlin__server_read_at(fd, input->path.text, part->place * sizeof(float),
                                                  out_values, part->n * sizeof(float), error);
    (void)close(fd);
    return status;
}

/* `base` has the base's values of the piece. */
static dunlin_status add_input(const dunlin__aggregate *aggregate,
                               const dunlin__aggregate_input *input, const piece *part,
                               const float *base, dunlin_error *error)
{
    dunlin__aggregate_room *room = aggregate->room;
    const dunlin__sums_term term = {.values = room->block,
                                    .origin = aggregate->sends_weights ? base : NULL,
                                    .weight = input->weight,
                                    .scale = aggregate->noise != NULL ? 1 : input->scale,
                                    .first_value = part->place,
                                    .client_index = input->client_index};
    DUNLIN_TRY(read_input(input, part, room->block, error));
    if (aggregate->noise != NULL) {
        dunlin__noise_round(aggregate->noise, input->scale, room->block, part->n);
    }
    DUNLIN_TRY(dunlin__sums_count(&room->sums, input->weight, error));
    return dunlin__sums_add(&room->sums, 0, part->n, &term, error);
}

/* The robust middle of the updates of some values, each counting alike, into `means`. */
static dunlin_status find_middles(const dunlin__aggregate *aggregate, const piece *part,
                                  const float *base, dunlin_error *error)
{
    dunlin__aggregate_room *room = aggregate->room;
    const size_t n_inputs = aggregate->n_inputs;
    for (size_t k = 0; k < n_inputs; k++) {
        const double scale = aggregate->inputs[k].scale;
        DUNLIN_TRY(read_input(&aggregate->inputs[k], part, room->block, error));
        for (size_t i = 0; i < part->n; i++) {
            const double from = aggregate->sends_weights ? (double)base[i] : 0;
            const double value = (double)room->block[i];
            room->samples[i * n_inputs + k] = scale < 1 ? from + scale * (value - from) : value;
        }
    }
    for (size_t i = 0; i < part->n; i++) {
        room->means[i] =
            dunlin__server_middle(aggregate->strategy, room->samples + i * n_inputs, n_inputs);
    }
    return DUNLIN_OK;
}

/* The updates' mean of at most BLOCK_VALUES values into `means`. */
static dunlin_status find_means(const dunlin__aggregate *aggregate, const piece *part,
                                const float *base, dunlin_error *error)
{
    dunlin__aggregate_room *room = aggregate->room;
    const dunlin__sums *sums = aggregate->sums;
    const size_t first = sums != NULL ? (size_t)part->place : 0;
    if (sums == NULL) {
        sums = &room->sums;
        dunlin__sums_reset(&room->sums, part->n);
    }
    for (size_t i = 0; aggregate->sums == NULL && i < aggregate->n_inputs; i++) {
        DUNLIN_TRY(add_input(aggregate, &aggregate->inputs[i], part, base, error));
    }
    const double divisor = aggregate->divisor > 0 ? aggregate->divisor : dunlin__sums_weight(sums);
    dunlin__sums_read(sums, first, part->n, room->means);
    for (size_t i = 0; i < part->n && aggregate->noise != NULL; i++) {
        room->means[i] += dunlin__noise_draw(aggregate->noise, part->place + i);
    }
    for (size_t i = 0; i < part->n; i++) {
        room->means[i] /= divisor;
    }
    return DUNLIN_OK;
}

/* From the base's values to the next model's, by what the updates' means are. */
static dunlin_status apply(const dunlin__aggregate *aggregate, const piece *part, float *values,
                           dunlin_error *error)
{
    double *means = aggregate->room->means;
    const bool has_step = aggregate->moments != NULL && part->rule == DUNLIN_V1_RULE_AVERAGE;
    for (size_t i = 0; i < part->n && has_step && aggregate->sends_weights; i++) {
        means[i] -= (double)values[i];
    }
    if (has_step) {
        return dunlin__moments_file_step(aggregate->moments, part->n, means, values, error);
    }
    for (size_t i = 0; i < part->n; i++) {
        values[i] = (float)(aggregate->sends_weights ? means[i] : (double)values[i] + means[i]);
    }
    return DUNLIN_OK;
}

static dunlin_status aggregate_piece(const dunlin__aggregate *aggregate, const piece *part,
                                     float *out_values, dunlin_error *error)
{
    const bool is_robust = dunlin__strategy_is_robust(aggregate->strategy);
    size_t most = BLOCK_VALUES;
    if (is_robust && aggregate->n_inputs > 0 &&
        aggregate->room->n_samples / aggregate->n_inputs < most) {
        most = aggregate->room->n_samples / aggregate->n_inputs;
    }
    for (size_t done = 0; done < part->n; done += most) {
        const size_t left = part->n - done;
        const piece now = {.place = part->place + done,
                           .first = part->first + done,
                           .n = left < most ? left : most,
                           .rule = part->rule};
        float *out = out_values + now.first; /* it still has the base's */
        DUNLIN_TRY(is_robust ? find_middles(aggregate, &now, out, error)
                             : find_means(aggregate, &now, out, error));
        DUNLIN_TRY(apply(aggregate, &now, out, error));
    }
    return DUNLIN_OK;
}

/* An average of variances may be negative by rounding, or by what a device sent. */
static void raise_variances(const dunlin__aggregate *aggregate, uint64_t first, size_t n,
                            float *values)
{
    const dunlin__layout *layout = aggregate->layout;
    uint64_t begin = 0;
    for (uint32_t t = 0; layout->is_variance != NULL && t < layout->n_tensors; t++) {
        if (!dunlin__layout_has(layout, t, aggregate->part)) {
            continue;
        }
        const uint64_t end = begin + layout->tensors[t].stored_bytes / sizeof(float);
        const uint64_t low = first > begin ? first : begin;
        const uint64_t high = first + n < end ? first + n : end;
        for (uint64_t i = low; layout->is_variance[t] && i < high; i++) {
            values[i - first] = values[i - first] < 0.0f ? 0.0f : values[i - first];
        }
        begin = end;
    }
}

/* A piece that has come to its end. */
static dunlin_status end_piece(const dunlin__aggregate *aggregate, piece *part, float *out_values,
                               dunlin_error *error)
{
    const piece ended = *part;
    part->n = 0;
    return ended.n > 0 ? aggregate_piece(aggregate, &ended, out_values, error) : DUNLIN_OK;
}

/* LOCAL tensors have no part in the updates, so what follows them lies nearer to the begin there.
 */
static dunlin_status aggregate_block(void *ctx, uint64_t first, size_t n, float *out_values,
                                     dunlin_error *error)
{
    dunlin__aggregate *aggregate = ctx;
    const dunlin__layout *layout = aggregate->layout;
    DUNLIN_TRY(aggregate->base.values_fn(aggregate->base.ctx, first, n, out_values, error));
    piece part = {0};
    uint64_t begin = 0;                          /* of the tensor, in this stream of the base */
    uint64_t place = aggregate->first_in_inputs; /* and in the updates */
    const bool has_sums =
        aggregate->n_inputs > 0 || aggregate->sums != NULL || aggregate->noise != NULL;
    for (uint32_t t = 0; has_sums && t < layout->n_tensors; t++) {
        uint64_t n_tensor = layout->tensors[t].stored_bytes / sizeof(float);
        bool is_shared = dunlin__layout_has(layout, t, DUNLIN_LAYOUT_SHARED);
        if (!dunlin__layout_has(layout, t, aggregate->part)) {
            continue;
        }
        uint64_t low = first > begin ? first : begin;
        uint64_t high = first + n < begin + n_tensor ? first + n : begin + n_tensor;
        if (part.n > 0 && (!is_shared || layout->tensors[t].rule != part.rule)) {
            DUNLIN_TRY(end_piece(aggregate, &part, out_values, error));
        }
        if (low < high && is_shared) {
            if (part.n == 0) {
                part = (piece){.place = place + (low - begin),
                               .first = (size_t)(low - first),
                               .rule = layout->tensors[t].rule};
            }
            part.n += (size_t)(high - low);
        }
        begin += n_tensor;
        place += is_shared ? n_tensor : 0;
    }
    DUNLIN_TRY(end_piece(aggregate, &part, out_values, error));
    raise_variances(aggregate, first, n, out_values);
    return DUNLIN_OK;
}

dunlin__values dunlin__aggregate_values(dunlin__aggregate *aggregate)
{
    return (dunlin__values){.ctx = aggregate, .values_fn = aggregate_block};
}
