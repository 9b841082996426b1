/*
 * scaffold.c - SCAFFOLD's control variates, by blocks (Karimireddy et al. 2020, option II).
 *
 * With the server's variate c, the device's own c_i, the base x and the trained weights y after K
 * steps of rate lr: each gradient gets c - c_i added; afterwards c_i changes by
 * (x - y) / (K lr) - c. Only tensors that are averaged have variates. Sums are in double, each
 * result is rounded once.
 */
#include "scaffold.h"

#include "context/client_context.h"
#include "store/files.h"
#include "stream_file.h"

bool dunlin__round_is_scaffold(const dunlin_client *client)
{
    const dunlin__assignment *assignment = &client->round->assignment;
    return assignment->kind == DUNLIN_V1_KIND_TRAIN &&
           assignment->plan.algorithm == DUNLIN_V1_ALGORITHM_SCAFFOLD;
}

static dunlin_status read_server(dunlin_client *client, int32_t index, int64_t first, int64_t n,
                                 float *out)
{
    const dunlin__round *round = client->round;
    uint64_t offset = round->places[index].control_offset + (uint64_t)first * sizeof(float);
    return dunlin__file_read(round->base_fd, out, (size_t)n * sizeof(float), offset,
                             &client->error);
}

dunlin_status dunlin__scaffold_own(dunlin_client *client, int32_t base_index, int64_t first,
                                   int64_t n, float *out)
{
    const dunlin__round *round = client->round;
    const dunlin__base_tensor *place = &round->places[base_index];
    if (!place->is_kept) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = 0.0F;
        }
        return DUNLIN_OK;
    }
    return dunlin__file_read(round->kept_fd, out, (size_t)n * sizeof(float),
                             place->kept_offset + (uint64_t)first * sizeof(float), &client->error);
}

static dunlin_status read_correction(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    dunlin_client *client = ctx;
    const dunlin__round *round = client->round;
    if (index < 0 || index >= round->n_tensors || first < 0 || n < 0 ||
        first > round->tensors[index].n_elements - n) {
        return DUNLIN_ARGUMENT;
    }
    if (round->tensors[index].aggregation != DUNLIN_AGGREGATE_AVERAGE) {
        for (int64_t i = 0; i < n; i++) {
            out[i] = 0.0F;
        }
        return DUNLIN_OK;
    }
    float own[DUNLIN_STREAM_PIECE_FLOATS];
    for (int64_t done = 0; done < n;) {
        int64_t left = n - done;
        int64_t piece = left < DUNLIN_STREAM_PIECE_FLOATS ? left : DUNLIN_STREAM_PIECE_FLOATS;
        DUNLIN_TRY(read_server(client, index, first + done, piece, out + done));
        DUNLIN_TRY(dunlin__scaffold_own(client, index, first + done, piece, own));
        for (int64_t i = 0; i < piece; i++) {
            out[done + i] -= own[i];
        }
        done += piece;
    }
    return DUNLIN_OK;
}

dunlin_weights_reader dunlin__scaffold_correction(dunlin_client *client)
{
    dunlin_weights_reader reader = client->round->base;
    reader.ctx = client;
    reader.read_fn = read_correction;
    return reader;
}

/* What dunlin__scaffold_change() says, of at most a piece. */
static dunlin_status change_piece(dunlin_client *client, const dunlin_weights_reader *fresh,
                                  int32_t fresh_index, int32_t base_index, int64_t first, int64_t n,
                                  float *out)
{
    const dunlin_weights_reader *base = &client->round->base;
    double path =
        (double)client->journal.n_steps * (double)client->round->assignment.plan.learning_rate;
    float block[DUNLIN_STREAM_PIECE_FLOATS];
    float control[DUNLIN_STREAM_PIECE_FLOATS];
    dunlin_status status = fresh->read_fn(fresh->ctx, fresh_index, first, n, block);
    if (status != DUNLIN_OK) {
        return dunlin__fail(&client->error, status, "update", 0,
                            "the learner could not give tensor %.100s",
                            base->tensors[base_index].name);
    }
    DUNLIN_TRY(base->read_fn(base->ctx, base_index, first, n, out));
    DUNLIN_TRY(read_server(client, base_index, first, n, control));
    for (int64_t i = 0; i < n; i++) {
        out[i] = (float)(((double)out[i] - (double)block[i]) / path - (double)control[i]);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__scaffold_change(dunlin_client *client, const dunlin_weights_reader *fresh,
                                      int32_t fresh_index, int32_t base_index, int64_t first,
                                      int64_t n, float *out)
{
    for (int64_t done = 0; done < n;) {
        const int64_t left = n - done;
        const int64_t piece = left < DUNLIN_STREAM_PIECE_FLOATS ? left : DUNLIN_STREAM_PIECE_FLOATS;
        DUNLIN_TRY(
            change_piece(client, fresh, fresh_index, base_index, first + done, piece, out + done));
        done += piece;
    }
    return DUNLIN_OK;
}
