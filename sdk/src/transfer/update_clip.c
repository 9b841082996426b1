/*
 * update_clip.c - bounds the norm of an update.
 *
 * Invariant: the norm is taken of the floats that are sent, so rounding never lifts it above the
 * bound; sums are in double, in the order of tensors and elements, so a second pass finds the same.
 */
#include "update_clip.h"

#include "weights/kept.h"
#include "weights/stream_file.h"

#include <wire/fixed_point.h>

#include <math.h>

#define PIECE DUNLIN_STREAM_PIECE_FLOATS
/* A factor is this much smaller than the quotient, for rounding on the way. */
#define SHRINK (1.0 - 0x1p-22)
/* So often it is made smaller; what is still too long then, is sent as nothing. */
#define N_TRIES 8

dunlin_status dunlin__clip_open(dunlin__clip *clip, const dunlin__update_values *values)
{
    dunlin_client *client = values->client;
    const dunlin__round *round = client->round;
    const dunlin__training_plan *plan = &round->assignment.plan;
    const size_t n_tensors = (size_t)round->n_tensors;
    *clip = (dunlin__clip){.bound = (double)plan->clip_norm,
                           .is_per_layer = plan->clips_layers,
                           .sends_weights = plan->update_form == DUNLIN_V1_UPDATE_FORM_WEIGHTS};
    if (plan->has_secagg && plan->secagg.version >= 2) { /* rounding makes it longer again */
        const double most = dunlin__fixed_point_length(&plan->secagg);
        clip->bound = clip->bound > 0.0 ? fmin(clip->bound, most) : most;
    }
    if (plan->feedback_rounds > 0) {
        clip->residual_fn = dunlin__kept_residual_read;
        clip->residual_ctx = client;
    }
    clip->factors = dunlin__alloc_array(&client->runtime->alloc, n_tensors, sizeof(double));
    clip->sums = dunlin__alloc_array(&client->runtime->alloc, n_tensors, sizeof(double));
    if (clip->factors == NULL || clip->sums == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0,
                            "no memory for the norms of %zu tensors", n_tensors);
    }
    for (size_t i = 0; i < n_tensors; i++) {
        clip->factors[i] = 1.0;
        clip->n_layers += dunlin__update_has(round, (int32_t)i, false) ? 1 : 0;
    }
    return DUNLIN_OK;
}

void dunlin__clip_close(dunlin__clip *clip, dunlin_client *client)
{
    const size_t n_tensors = (size_t)client->round->n_tensors;
    dunlin__free_array(&client->runtime->alloc, clip->factors, n_tensors, sizeof(double));
    dunlin__free_array(&client->runtime->alloc, clip->sums, n_tensors, sizeof(double));
    clip->factors = NULL;
    clip->sums = NULL;
}

/* A piece of an averaged tensor: what is sent to `out`, and its part of the norm. */
static dunlin_status read_piece(const dunlin__clip *clip, const dunlin__update_values *values,
                                int32_t index, int64_t first, int64_t n, float *out,
                                double *square_sum)
{
    float base[PIECE];
    float residual[PIECE];
    const double factor = clip->factors[index];
    const bool has_residual = clip->residual_fn != NULL;
    DUNLIN_TRY(dunlin__update_values_read(values, index, first, n, out, base));
    if (has_residual) {
        DUNLIN_TRY(clip->residual_fn(clip->residual_ctx, index, first, n, residual));
    }
    for (int64_t i = 0; i < n; i++) {
        const float fresh = out[i];
        float change = fresh - base[i];
        change = has_residual ? change + residual[i] : change;
        change = factor < 1.0 ? (float)((double)change * factor) : change;
        double sent = (double)change;
        out[i] = change;
        if (clip->sends_weights) {
            out[i] = factor < 1.0 || has_residual ? (float)((double)base[i] + sent) : fresh;
            sent = (double)out[i] - (double)base[i];
        }
        *square_sum += sent * sent;
    }
    return DUNLIN_OK;
}

/* A piece of what is neither scaled nor added to: of running statistics, which are no part of what
 * is bounded, and of an update within its bound. */
static dunlin_status read_plain(const dunlin__clip *clip, const dunlin__update_values *values,
                                int32_t index, int64_t first, int64_t n, float *out)
{
    float base[PIECE];
    DUNLIN_TRY(dunlin__update_values_read(values, index, first, n, out, base));
    for (int64_t i = 0; i < n && !clip->sends_weights; i++) {
        out[i] -= base[i];
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__clip_read(const dunlin__clip *clip, const dunlin__update_values *values,
                                int32_t index, int64_t first, int64_t n, float *out)
{
    const bool is_plain = !dunlin__update_has(values->client->round, index, false) ||
                          (!(clip->factors[index] < 1.0) && clip->residual_fn == NULL);
    double ignored = 0.0;
    for (int64_t done = 0; done < n;) {
        const int64_t left = n - done;
        const int64_t piece = left < PIECE ? left : PIECE;
        DUNLIN_TRY(
            is_plain ? read_plain(clip, values, index, first + done, piece, out + done)
                     : read_piece(clip, values, index, first + done, piece, out + done, &ignored));
        done += piece;
    }
    return DUNLIN_OK;
}

/* Sums the squares of what is sent, tensor by tensor; their sum comes out. */
static dunlin_status survey(dunlin__clip *clip, const dunlin__update_values *values,
                            double *out_square_sum)
{
    const dunlin__round *round = values->client->round;
    float block[PIECE];
    *out_square_sum = 0.0;
    for (int32_t i = 0; i < round->n_tensors; i++) {
        clip->sums[i] = 0.0;
        if (!dunlin__update_has(round, i, false)) {
            continue;
        }
        for (int64_t first = 0; first < round->tensors[i].n_elements;) {
            const int64_t left = round->tensors[i].n_elements - first;
            const int64_t n = left < PIECE ? left : PIECE;
            DUNLIN_TRY(read_piece(clip, values, i, first, n, block, &clip->sums[i]));
            first += n;
        }
        *out_square_sum += clip->sums[i];
    }
    return DUNLIN_OK;
}

/* Lowers the factors where the norms are above their bounds; false: nowhere. */
static bool lower(dunlin__clip *clip, int32_t n_tensors, double square_sum, bool to_nothing)
{
    const double each = clip->bound / sqrt((double)(clip->n_layers > 0 ? clip->n_layers : 1));
    bool is_lowered = false;
    for (int32_t i = 0; i < n_tensors; i++) {
        const double norm = sqrt(clip->is_per_layer ? clip->sums[i] : square_sum);
        const double bound = clip->is_per_layer ? each : clip->bound;
        if (norm > bound) {
            clip->factors[i] = to_nothing ? 0.0 : clip->factors[i] * (bound / norm) * SHRINK;
            is_lowered = true;
        }
    }
    return is_lowered;
}

dunlin_status dunlin__clip_settle(dunlin__clip *clip, const dunlin__update_values *values)
{
    double square_sum = 0.0;
    if (!(clip->bound > 0.0)) {
        return DUNLIN_OK;
    }
    for (int i = 0; i <= N_TRIES; i++) {
        DUNLIN_TRY(survey(clip, values, &square_sum));
        clip->norm = i == 0 ? sqrt(square_sum) : clip->norm;
        if (!lower(clip, values->client->round->n_tensors, square_sum, i == N_TRIES)) {
            break;
        }
    }
    return DUNLIN_OK;
}

void dunlin__clip_note(const dunlin__clip *clip, dunlin_client *client)
{
    if (client->round->assignment.plan.reports_clip) {
        client->journal.within_clip =
            clip->norm <= clip->bound ? DUNLIN_V1_WITHIN_CLIP_YES : DUNLIN_V1_WITHIN_CLIP_NO;
    }
}
