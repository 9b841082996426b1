/*
 * hetero_cases.c - what the study of unequal devices goes through: which of three things differs,
 * how is trained, and how large the fleets are.
 */
#include "hetero.h"

#include <string.h>

const hetero_condition hetero_conditions[HETERO_CONDITIONS] = {
    {"none", false, false, false},          {"hardware", true, false, false},
    {"state", false, true, false},          {"data", false, false, true},
    {"hardware, state", true, true, false}, {"hardware, data", true, false, true},
    {"state, data", false, true, true},     {"all", true, true, true},
};

const hetero_algorithm hetero_algorithms[HETERO_ALGORITHMS] = {
    {"fedavg", {NULL}},
    {"fedprox", {"--algorithm", "fedprox:0.1", NULL}},
    {"fedprox, part of the work", {"--algorithm", "fedprox:0.1", "--partial", "0.75", NULL}},
    {"buffered", {"--buffered", "16", "--over-select", "2", "--deadline", "900", NULL}},
    {"utility", {"--select", "utility", NULL}},
    {"tiers", {"--select", "tiers", NULL}},
    {"compressed", {"--compress", "up:int4+rotate", NULL}},
};

static const hetero_extent whole = {200, 20, 60, 20000, 2, 10};
static const hetero_extent quick = {40, 8, 12, 2400, 2, 10};

static int64_t or_else(int64_t given, int64_t own)
{
    return given > 0 ? given : own;
}

hetero_extent hetero_size(const study_flags *flags)
{
    hetero_extent size = flags->is_quick ? quick : whole;
    if (strcmp(flags->study, "heterogeneity") != 0) {
        return size; /* "all" gives its flags to federated */
    }
    size.n_clients = or_else(flags->n_clients, size.n_clients);
    size.cohort = size.cohort < size.n_clients ? size.cohort : size.n_clients;
    size.cohort = or_else(flags->cohort, size.cohort);
    size.rounds = or_else(flags->rounds, size.rounds);
    size.n_examples = or_else(flags->max_examples, size.n_examples);
    size.epochs = or_else(flags->epochs, size.epochs);
    return size;
}
