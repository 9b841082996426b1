/*
 * update_values.c - the values of an update.
 */
#include "update_values.h"

#include <inttypes.h>
#include <string.h>

/* Pairs the learner's tensors with the base's, in order; LOCAL ones may be left out, all or none.
 */
static dunlin_status match_tensors(dunlin__update_values *values)
{
    const dunlin_weights_reader *base = &values->client->round->base;
    int32_t found = 0;
    int32_t n_shared = 0;
    int32_t n_local = 0;
    int32_t n_kept = 0;
    for (int32_t i = 0; i < base->n_tensors; i++) {
        const dunlin_weights_tensor *tensor = &base->tensors[i];
        bool is_local = tensor->aggregation == DUNLIN_AGGREGATE_LOCAL;
        bool is_there = found < values->fresh.n_tensors &&
                        strcmp(values->fresh.tensors[found].name, tensor->name) == 0 &&
                        values->fresh.tensors[found].n_elements == tensor->n_elements;
        if (!is_there && !is_local) {
            return dunlin__fail(&values->client->error, DUNLIN_MISMATCH, "update", 0,
                                "the learner saved another tensor where %.100s of the base belongs",
                                tensor->name);
        }
        values->fresh_index[i] = is_there ? found++ : -1;
        n_shared += is_local ? 0 : 1;
        n_local += is_local ? 1 : 0;
        n_kept += is_local && is_there ? 1 : 0;
    }
    if (found != values->fresh.n_tensors || n_shared == 0 || (n_kept != 0 && n_kept != n_local)) {
        return dunlin__fail(&values->client->error, DUNLIN_MISMATCH, "update", 0,
                            "the learner saved %d tensors; the base has %d that are shared and %d "
                            "that are personal",
                            (int)values->fresh.n_tensors, (int)n_shared, (int)n_local);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__update_values_open(dunlin_client *client, dunlin__update_values *out)
{
    *out = (dunlin__update_values){.client = client};
    dunlin_status status = client->learner.ops->save(client->learner.self, &out->fresh);
    if (status != DUNLIN_OK || out->fresh.n_tensors < 0 || out->fresh.read_fn == NULL) {
        return dunlin__fail(&client->error, status != DUNLIN_OK ? status : DUNLIN_CALLBACK,
                            "update", 0, "save() of the learner: %s, %" PRId64 " tensors%s",
                            dunlin_status_name(status), (int64_t)out->fresh.n_tensors,
                            out->fresh.read_fn == NULL ? ", read_fn is NULL" : "");
    }
    size_t n_tensors = (size_t)client->round->n_tensors;
    out->fresh_index =
        dunlin__alloc_array(&client->runtime->alloc, n_tensors, sizeof *out->fresh_index);
    if (out->fresh_index == NULL) {
        return dunlin__fail(&client->error, DUNLIN_MEMORY, "update", 0, "no memory for %zu tensors",
                            n_tensors);
    }
    return match_tensors(out);
}

void dunlin__update_values_close(dunlin__update_values *values)
{
    dunlin__free_array(&values->client->runtime->alloc, values->fresh_index,
                       (size_t)values->client->round->n_tensors, sizeof *values->fresh_index);
    values->fresh_index = NULL;
}

dunlin_status dunlin__update_values_read(const dunlin__update_values *values, int32_t index,
                                         int64_t first, int64_t n, float *out_fresh,
                                         float *out_base)
{
    const dunlin_weights_reader *base = &values->client->round->base;
    int32_t at = values->fresh_index[index];
    dunlin_status status = values->fresh.read_fn(values->fresh.ctx, at, first, n, out_fresh);
    if (status != DUNLIN_OK) {
        return dunlin__fail(&values->client->error, status, "update", 0,
                            "the learner could not give tensor %.100s",
                            values->fresh.tensors[at].name);
    }
    return base->read_fn(base->ctx, index, first, n, out_base);
}

bool dunlin__update_has(const dunlin__round *round, int32_t index, bool with_statistics)
{
    dunlin_aggregation aggregation = round->tensors[index].aggregation;
    return aggregation == DUNLIN_AGGREGATE_AVERAGE ||
           (aggregation == DUNLIN_AGGREGATE_STATISTIC && with_statistics);
}

int32_t dunlin__update_choose(const dunlin__round *round, bool with_averages, bool with_statistics,
                              int32_t *out_index, uint64_t *total_bytes)
{
    int32_t n = 0;
    for (int32_t i = 0; i < round->n_tensors; i++) {
        bool is_averaged = round->tensors[i].aggregation == DUNLIN_AGGREGATE_AVERAGE;
        if ((is_averaged && with_averages) ||
            (!is_averaged && dunlin__update_has(round, i, with_statistics))) {
            out_index[n++] = i;
            *total_bytes += (uint64_t)round->tensors[i].n_elements * sizeof(float);
        }
    }
    return n;
}
