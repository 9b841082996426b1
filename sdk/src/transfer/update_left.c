/*
 * update_left.c - clipped less decoded.
 */
#include "update_left.h"

#include "store/files.h"

#include <inttypes.h>

static dunlin_status read_bytes(void *ctx, void *buffer, size_t n_bytes, dunlin_error *error)
{
    dunlin__update_left *left = ctx;
    DUNLIN_TRY(dunlin__file_read(left->fd, buffer, n_bytes, left->offset, error));
    left->offset += n_bytes;
    return DUNLIN_OK;
}

dunlin_status dunlin__update_left_open(dunlin__update_left *left, const dunlin__update_pack *pack,
                                       int fd)
{
    dunlin_client *client = pack->values->client;
    const dunlin__unpack_source source = {.ctx = left, .read_fn = read_bytes};
    *left = (dunlin__update_left){.pack = pack, .fd = fd, .at = -1};
    return dunlin__tensor_unpacker_open(&pack->options.packing, &source, &client->runtime->alloc,
                                        &left->unpacker, &client->error);
}

void dunlin__update_left_close(dunlin__update_left *left)
{
    dunlin__tensor_unpacker_close(left->unpacker);
    left->unpacker = NULL;
}

/* The next block of the current tensor; none: it has ended. */
static dunlin_status next_block(dunlin__update_left *left)
{
    return dunlin__tensor_unpacker_next(left->unpacker, &left->rest, &left->n_rest,
                                        &left->pack->values->client->error);
}

/* Goes on to a tensor of the base, over the statistics before it. */
static dunlin_status go_to(dunlin__update_left *left, int32_t base_index)
{
    const dunlin__update_pack *pack = left->pack;
    dunlin_client *client = pack->values->client;
    while (left->at < 0 || pack->base_index[left->at] != base_index) {
        do {
            left->n_rest = 0;
            DUNLIN_TRY(left->at >= 0 ? next_block(left) : DUNLIN_OK);
        } while (left->n_rest > 0);
        left->at++;
        if (left->at >= pack->n_tensors) {
            return dunlin__fail(&client->error, DUNLIN_INTERNAL, "update", 0,
                                "tensor %" PRId32 " of the base is not in the update", base_index);
        }
        const dunlin_weights_tensor *tensor = &client->round->tensors[pack->base_index[left->at]];
        DUNLIN_TRY(dunlin__tensor_unpacker_tensor(
            left->unpacker, (uint32_t)left->at,
            tensor->aggregation == DUNLIN_AGGREGATE_STATISTIC ? DUNLIN_V1_RULE_STATISTIC
                                                              : DUNLIN_V1_RULE_AVERAGE,
            (uint64_t)tensor->n_elements, pack->stored_bytes[left->at], &client->error));
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__update_left_read(void *ctx, int32_t base_index, int64_t first, int64_t n,
                                       float *out)
{
    dunlin__update_left *left = ctx;
    const dunlin__update_pack *pack = left->pack;
    dunlin_client *client = pack->values->client;
    DUNLIN_TRY(go_to(left, base_index));
    DUNLIN_TRY(dunlin__clip_read(pack->clip, pack->values, base_index, first, n, out));
    for (int64_t i = 0; i < n; i++) {
        if (left->n_rest == 0) {
            DUNLIN_TRY(next_block(left));
        }
        if (left->n_rest == 0) {
            return dunlin__fail(&client->error, DUNLIN_INTERNAL, "update", 0,
                                "the packed update ends before element %" PRId64, first + i);
        }
        out[i] -= *left->rest;
        left->rest++;
        left->n_rest--;
    }
    return DUNLIN_OK;
}
