/*
 * partition.c - divides the examples of a data set among clients.
 *
 * Invariant: `owners` gives every example exactly one client before the lists are made, so the
 * lists are disjoint and complete whatever the kind. Sources: Hsu, Qi, Brown, "Measuring the
 * effects of non-identical data distribution for federated visual classification", 2019 (Dirichlet
 * over labels).
 */
#include "data/common/draw.h"

#include <dunlin/dataset.h>
#include <mem/sized.h>
#include <mem/support.h>

#include <assert.h>
#include <inttypes.h>
#include <string.h>

#define DEFAULT_MIN_EXAMPLES 10
#define MAX_CLIENTS 10000000

enum { PURPOSE_SHUFFLE = 0x50415254, PURPOSE_SHARES, PURPOSE_WRITERS };

struct dunlin_partition {
    dunlin_alloc alloc;
    int64_t n_clients;
    int64_t n_examples;
    int64_t *starts;  /* n_clients + 1 */
    int64_t *indices; /* n_examples; while it is made: the shuffled order */
};

/* What the kinds work with; the arrays are given back before the partition is handed out. */
typedef struct split_work {
    const dunlin_dataset *dataset;
    dunlin_partition_options options;
    dunlin_partition *partition;
    int32_t *owners; /* of each example */
    double *shares;  /* of each client, Dirichlet only */
} split_work;

static void shuffle(int64_t *values, int64_t n, dunlin_draw *draw)
{
    for (int64_t i = 0; i < n; i++) {
        values[i] = i;
    }
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t other = (int64_t)dunlin__draw_below(draw, (uint64_t)i + 1);
        int64_t kept = values[i];
        values[i] = values[other];
        values[other] = kept;
    }
}

static void split_iid(split_work *work)
{
    const dunlin_partition *partition = work->partition;
    for (int64_t i = 0; i < partition->n_examples; i++) {
        work->owners[partition->indices[i]] = (int32_t)(i % partition->n_clients);
    }
}

/* Shares that sum to 1, as running sums. */
static void draw_shares(double *shares, int64_t n, double alpha, dunlin_draw *draw)
{
    double highest = -HUGE_VAL;
    for (int64_t i = 0; i < n; i++) {
        shares[i] = dunlin__draw_log_gamma(draw, alpha);
        highest = shares[i] > highest ? shares[i] : highest;
    }
    double sum = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += exp(shares[i] - highest);
        shares[i] = sum;
    }
    for (int64_t i = 0; i < n; i++) {
        shares[i] /= sum;
    }
}

/* Walks the shuffled examples of one class and gives each to the client whose share it falls in. */
static void share_out_class(split_work *work, int32_t class_index, int64_t n_in_class)
{
    const dunlin_partition *partition = work->partition;
    int64_t client = 0;
    int64_t nth = 0;
    for (int64_t i = 0; i < partition->n_examples; i++) {
        int64_t example = partition->indices[i];
        if (dunlin_dataset_label(work->dataset, example) != class_index) {
            continue;
        }
        double place = ((double)nth + 0.5) / (double)n_in_class;
        while (client + 1 < partition->n_clients && work->shares[client] < place) {
            client++;
        }
        work->owners[example] = (int32_t)client;
        nth++;
    }
}

/* Clients below the minimum take examples, one at a time, from whoever has most. */
static void raise_to_minimum(split_work *work, int64_t *counts)
{
    const dunlin_partition *partition = work->partition;
    int64_t cursor = 0;
    for (int64_t client = 0; client < partition->n_clients; client++) {
        while (counts[client] < work->options.min_examples) {
            int64_t giver = 0;
            for (int64_t k = 1; k < partition->n_clients; k++) {
                giver = counts[k] > counts[giver] ? k : giver;
            }
            while (work->owners[partition->indices[cursor]] != giver) {
                cursor = (cursor + 1) % partition->n_examples;
            }
            work->owners[partition->indices[cursor]] = (int32_t)client;
            counts[giver]--;
            counts[client]++;
        }
    }
}

static void split_dirichlet(split_work *work)
{
    dunlin_partition *partition = work->partition;
    int32_t n_classes = dunlin_dataset_n_classes(work->dataset);
    for (int32_t c = 0; c < n_classes; c++) {
        int64_t n_in_class = 0;
        for (int64_t i = 0; i < partition->n_examples; i++) {
            n_in_class += dunlin_dataset_label(work->dataset, i) == c ? 1 : 0;
        }
        dunlin_draw draw = dunlin__draw_begin(work->options.seed, PURPOSE_SHARES, (uint64_t)c);
        draw_shares(work->shares, partition->n_clients, work->options.alpha, &draw);
        share_out_class(work, c, n_in_class);
    }
    int64_t *counts = partition->starts; /* free until the lists are made */
    memset(counts, 0, (size_t)(partition->n_clients + 1) * sizeof *counts);
    for (int64_t i = 0; i < partition->n_examples; i++) {
        counts[work->owners[i]]++;
    }
    raise_to_minimum(work, counts);
}

/*
 * How many clients share each writer's examples: one at least, and the rest one by one where a
 * client would have most (the method of D'Hondt, 1878), so nobody is left without an example.
 */
static void count_sharers(const split_work *work, const int64_t *n_examples, int64_t n_writers,
                          int64_t *out_n)
{
    int64_t left = work->partition->n_clients;
    for (int64_t writer = 0; writer < n_writers; writer++) {
        out_n[writer] = n_examples[writer] > 0 ? 1 : 0;
        left -= out_n[writer];
    }
    for (; left > 0; left--) {
        int64_t most = 0;
        for (int64_t writer = 1; writer < n_writers; writer++) {
            const bool is_more =
                n_examples[writer] * (out_n[most] + 1) > n_examples[most] * (out_n[writer] + 1);
            most = is_more ? writer : most;
        }
        out_n[most]++;
    }
}

/* More clients than writers: each has a part of one's examples, dealt in turns. `first` and `n`
 * have room for a number of each writer. */
static void share_writers(split_work *work, int64_t n_writers, int64_t *first, int64_t *n)
{
    const dunlin_partition *partition = work->partition;
    memset(first, 0, (size_t)n_writers * sizeof *first);
    for (int64_t i = 0; i < partition->n_examples; i++) {
        first[dunlin_dataset_client_of(work->dataset, i)]++;
    }
    count_sharers(work, first, n_writers, n);
    int64_t *next = partition->starts; /* free until the lists are made */
    memset(next, 0, (size_t)(partition->n_clients + 1) * sizeof *next);
    int64_t begin = 0;
    for (int64_t writer = 0; writer < n_writers; writer++) {
        first[writer] = begin;
        begin += n[writer];
    }
    for (int64_t i = 0; i < partition->n_examples; i++) {
        const int64_t writer = dunlin_dataset_client_of(work->dataset, i);
        work->owners[i] = (int32_t)(first[writer] + next[writer] % n[writer]);
        next[writer]++;
    }
}

/* Whole writers are dealt to the clients in shuffled order; with one each, in their own. */
static dunlin_status split_natural(split_work *work, dunlin_error *error)
{
    const dunlin_partition *partition = work->partition;
    int64_t n_writers = dunlin_dataset_n_natural_clients(work->dataset);
    int64_t *order = dunlin__alloc_array(&partition->alloc, (size_t)n_writers, sizeof *order);
    int64_t *client_of = dunlin__alloc_array(&partition->alloc, (size_t)n_writers, sizeof *order);
    bool has_memory = order != NULL && client_of != NULL;
    if (has_memory && n_writers < partition->n_clients) {
        share_writers(work, n_writers, order, client_of);
    } else if (has_memory) {
        dunlin_draw draw = dunlin__draw_begin(work->options.seed, PURPOSE_WRITERS, 0);
        shuffle(order, n_writers, &draw);
        for (int64_t i = 0; i < n_writers; i++) {
            bool is_one_each = n_writers == partition->n_clients;
            client_of[order[i]] = is_one_each ? order[i] : i % partition->n_clients;
        }
        for (int64_t i = 0; i < partition->n_examples; i++) {
            int64_t writer = dunlin_dataset_client_of(work->dataset, i);
            work->owners[i] = (int32_t)client_of[writer];
        }
    }
    dunlin__free_array(&partition->alloc, order, (size_t)n_writers, sizeof *order);
    dunlin__free_array(&partition->alloc, client_of, (size_t)n_writers, sizeof *order);
    if (!has_memory) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                            "no memory to deal out %" PRId64 " writers", n_writers);
    }
    return DUNLIN_OK;
}

/* Sorts the examples by owner, each client's in ascending order. */
static void make_lists(const split_work *work)
{
    dunlin_partition *partition = work->partition;
    int64_t *starts = partition->starts;
    memset(starts, 0, (size_t)(partition->n_clients + 1) * sizeof *starts);
    for (int64_t i = 0; i < partition->n_examples; i++) {
        assert(work->owners[i] >= 0 && work->owners[i] < partition->n_clients);
        starts[work->owners[i] + 1]++;
    }
    for (int64_t client = 0; client < partition->n_clients; client++) {
        starts[client + 1] += starts[client];
    }
    for (int64_t i = 0; i < partition->n_examples; i++) {
        partition->indices[starts[work->owners[i]]++] = i;
    }
    /* Each start has moved to the next one's place: move them back. */
    for (int64_t client = partition->n_clients; client > 0; client--) {
        starts[client] = starts[client - 1];
    }
    starts[0] = 0;
    assert(starts[partition->n_clients] == partition->n_examples);
}

static dunlin_status check_natural(const dunlin_dataset *dataset, dunlin_partition_options *options,
                                   dunlin_error *error)
{
    int64_t n_writers = dunlin_dataset_n_natural_clients(dataset);
    if (n_writers == 0) {
        return dunlin__fail(error, DUNLIN_UNSUPPORTED, "data", 0,
                            "%s does not say who its examples come from: it cannot be split by "
                            "writer",
                            dunlin_dataset_title(dataset));
    }
    if (options->n_clients == 0) {
        options->n_clients = n_writers;
    }
    if (options->n_clients > n_writers && !options->shares_writers) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "%" PRId64 " clients by writer: %s has %" PRId64 " writers",
                            options->n_clients, dunlin_dataset_title(dataset), n_writers);
    }
    return DUNLIN_OK;
}

/* Checks the options and puts numbers in place of defaults. */
static dunlin_status settle_options(const dunlin_dataset *dataset,
                                    dunlin_partition_options *options, dunlin_error *error)
{
    int64_t n = dunlin_dataset_n_examples(dataset);
    if (options->kind != DUNLIN_PARTITION_IID && options->kind != DUNLIN_PARTITION_DIRICHLET &&
        options->kind != DUNLIN_PARTITION_NATURAL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0, "no partition has the number %d",
                            (int)options->kind);
    }
    if (options->kind == DUNLIN_PARTITION_NATURAL) {
        DUNLIN_TRY(check_natural(dataset, options, error));
    }
    if (options->n_clients < 1 || options->n_clients > MAX_CLIENTS) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "%" PRId64 " clients: the limits are 1 and %d", options->n_clients,
                            MAX_CLIENTS);
    }
    if (options->kind != DUNLIN_PARTITION_DIRICHLET) {
        options->min_examples = 1;
    } else if (!(options->alpha > 0.0) || options->alpha > 1e6) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "alpha %g: it must be above 0 and at most 1e6", options->alpha);
    } else if (options->min_examples <= 0) {
        int64_t share = n / options->n_clients;
        options->min_examples = share < DEFAULT_MIN_EXAMPLES ? share : DEFAULT_MIN_EXAMPLES;
        options->min_examples = options->min_examples < 1 ? 1 : options->min_examples;
    }
    if (n / options->n_clients < options->min_examples) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "data", 0,
                            "%" PRId64 " examples are too few for %" PRId64
                            " clients with at least %" PRId64 " each",
                            n, options->n_clients, options->min_examples);
    }
    return DUNLIN_OK;
}

static dunlin_status split(split_work *work, dunlin_error *error)
{
    dunlin_partition *partition = work->partition;
    const dunlin_alloc *alloc = &partition->alloc;
    size_t n_clients = (size_t)partition->n_clients;
    size_t n = (size_t)partition->n_examples;
    bool is_dirichlet = work->options.kind == DUNLIN_PARTITION_DIRICHLET;
    partition->starts = dunlin__alloc_array(alloc, n_clients + 1, sizeof *partition->starts);
    partition->indices = dunlin__alloc_array(alloc, n, sizeof *partition->indices);
    work->owners = dunlin__alloc_array(alloc, n, sizeof *work->owners);
    work->shares =
        is_dirichlet ? dunlin__alloc_array(alloc, n_clients, sizeof *work->shares) : NULL;
    if (partition->starts == NULL || partition->indices == NULL || work->owners == NULL ||
        (is_dirichlet && work->shares == NULL)) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                            "no memory to split %zu examples among %zu clients", n, n_clients);
    }
    dunlin_draw draw = dunlin__draw_begin(work->options.seed, PURPOSE_SHUFFLE, 0);
    shuffle(partition->indices, partition->n_examples, &draw);
    if (is_dirichlet) {
        split_dirichlet(work);
    } else if (work->options.kind == DUNLIN_PARTITION_NATURAL) {
        DUNLIN_TRY(split_natural(work, error));
    } else {
        split_iid(work);
    }
    make_lists(work);
    return DUNLIN_OK;
}

dunlin_status dunlin_partition_create(const dunlin_dataset *dataset,
                                      const dunlin_partition_options *options,
                                      const dunlin_alloc *hooks, dunlin_partition **out_partition,
                                      dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (dataset == NULL || options == NULL || out_partition == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "data", 0, "%s is NULL",
                            dataset == NULL   ? "dataset"
                            : options == NULL ? "options"
                                              : "out_partition");
    }
    *out_partition = NULL;
    split_work work = {.dataset = dataset};
    DUNLIN_TRY(DUNLIN_STRUCT_TAKE(dunlin_partition_options, options, &work.options, out_error));
    DUNLIN_TRY(settle_options(dataset, &work.options, out_error));
    dunlin_alloc alloc = dunlin__alloc_or_default(hooks);
    dunlin_partition *partition = dunlin__alloc_zeroed(&alloc, 1, sizeof *partition);
    if (partition == NULL) {
        return dunlin__fail(out_error, DUNLIN_MEMORY, "data", 0, "no memory for a partition");
    }
    partition->alloc = alloc;
    partition->n_clients = work.options.n_clients;
    partition->n_examples = dunlin_dataset_n_examples(dataset);
    work.partition = partition;
    dunlin_status status = split(&work, out_error);
    dunlin__free_array(&alloc, work.owners, (size_t)partition->n_examples, sizeof *work.owners);
    dunlin__free_array(&alloc, work.shares, (size_t)partition->n_clients, sizeof *work.shares);
    if (status != DUNLIN_OK) {
        dunlin_partition_destroy(partition);
        return status;
    }
    *out_partition = partition;
    return DUNLIN_OK;
}

void dunlin_partition_destroy(dunlin_partition *partition)
{
    if (partition == NULL) {
        return;
    }
    dunlin_alloc alloc = partition->alloc;
    dunlin__free_array(&alloc, partition->starts, (size_t)partition->n_clients + 1,
                       sizeof *partition->starts);
    dunlin__free_array(&alloc, partition->indices, (size_t)partition->n_examples,
                       sizeof *partition->indices);
    dunlin__free_array(&alloc, partition, 1, sizeof *partition);
}

int64_t dunlin_partition_n_clients(const dunlin_partition *partition)
{
    return partition->n_clients;
}

const int64_t *dunlin_partition_indices(const dunlin_partition *partition, int64_t client_index,
                                        int64_t *out_n)
{
    *out_n = 0;
    if (client_index < 0 || client_index >= partition->n_clients) {
        return NULL;
    }
    *out_n = partition->starts[client_index + 1] - partition->starts[client_index];
    return partition->indices + partition->starts[client_index];
}
