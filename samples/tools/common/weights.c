/*
 * weights.c - hashes the weights in small pieces, so that nothing is allocated.
 */
#include "weights.h"

dunlin_status weights_hash(const dunlin_trainer *trainer, uint64_t *out_hash)
{
    float values[256];
    uint64_t hash = 0xcbf29ce484222325ULL;
    int64_t n = dunlin_trainer_n_weights(trainer, DUNLIN_WEIGHTS_ALL);
    for (int64_t first = 0; first < n; first += 256) {
        int64_t part = n - first < 256 ? n - first : 256;
        dunlin_status status =
            dunlin_trainer_get_weights(trainer, DUNLIN_WEIGHTS_ALL, first, part, values);
        if (status != DUNLIN_OK) {
            return status;
        }
        const uint8_t *bytes = (const uint8_t *)values;
        for (size_t i = 0; i < (size_t)part * sizeof values[0]; i++) {
            hash = (hash ^ bytes[i]) * 0x100000001b3ULL;
        }
    }
    *out_hash = hash;
    return DUNLIN_OK;
}
