/*
 * direct.h - the round of a client without a network: assignment in, update out.
 *
 * Whether it does what it is asked for, the learner's task, and the stages of an update are the
 * client's own code. What that does for a network and for kills is left out: objects and their
 * hashes, signatures, the files of base and update, checkpoints, the journal.
 */
#ifndef SAMPLES_MEMORY_DIRECT_H
#define SAMPLES_MEMORY_DIRECT_H

#include <dunlin/learner.h>
#include <wire/manifest.h>
#include <wire/messages.h>

/* The tensors of a base, and where the values of each begin; for any number of clients. */
typedef struct direct_table {
    dunlin_weights_tensor *tensors; /* their names are the entries' */
    uint64_t *offsets;              /* in values */
    int32_t n_tensors;
} direct_table;

/* MEMORY: free all the same. The entries must stay. */
dunlin_status direct_table_make(direct_table *out_table, const dunlin__tensor_entry *entries,
                                uint32_t n_entries);
void direct_table_free(direct_table *table);

typedef struct direct direct;

/* One for each thread; NULL: no memory. The table must stay. */
direct *direct_make(const direct_table *table);
void direct_free(direct *client);

/*
 * The work of an assignment over a base, whose values lie one after the other. Of a training the
 * update goes to `out_update` as the server sees it, with room for all tensors that are shared;
 * what the commit would say goes to `out_commit`, and the peak of the learner's memory to
 * *out_peak, what the stages of the update took to *out_update_ms.
 *
 * @return OK; what the client itself would end such a round with: the text is in out_error.
 */
dunlin_status direct_run(direct *client, const dunlin__assignment *assignment,
                         const float *base_values, const dunlin_learner *learner, float *out_update,
                         dunlin__commit_request *out_commit, uint64_t *out_peak,
                         double *out_update_ms, dunlin_error *out_error);

#endif
