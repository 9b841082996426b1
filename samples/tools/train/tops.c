/*
 * tops.c - --top-k: how often the label is among the k highest outputs.
 */
#include "train.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

int train_check_tops(train_flags *flags)
{
    train_tops *tops = &flags->tops;
    if (flags->tops_given == NULL) {
        return EXIT_OK;
    }
    for (const char *at = flags->tops_given; at != NULL;) {
        char *end = NULL;
        const long k = strtol(at, &end, 10);
        if (end == at || (*end != ',' && *end != '\0') || k < 1 || k > TRAIN_MAX_RANKS ||
            tops->n == TRAIN_MAX_TOPS) {
            return program_misuse(&train_program,
                                  "--top-k %s: expected 1 to %d numbers from 1 to %d",
                                  flags->tops_given, TRAIN_MAX_TOPS, TRAIN_MAX_RANKS);
        }
        tops->k[tops->n++] = (int32_t)k;
        tops->most = k > tops->most ? (int32_t)k : tops->most;
        at = *end == ',' ? end + 1 : NULL;
    }
    if (train_loss(flags) != DUNLIN_LOSS_CROSS_ENTROPY || train_is_integer(flags)) {
        return program_misuse(&train_program, "--top-k goes with cross-entropy over labels: not "
                                              "with --loss mse, bce, mixup, or --precision niti");
    }
    if (!flags->is_eval) {
        return program_misuse(&train_program, "--top-k goes with --eval");
    }
    return EXIT_OK;
}

int train_fit_tops(const train_flags *flags, int64_t n_classes)
{
    return flags->tops.most <= n_classes
               ? EXIT_OK
               : program_refuse(&train_program, DUNLIN_MISMATCH,
                                "--top-k %" PRId32 ": the model has %" PRId64 " classes",
                                flags->tops.most, n_classes);
}

double train_top(const train_result *result, int32_t k)
{
    int64_t n = 0;
    for (int32_t i = 0; i < k; i++) {
        n += result->ranks[i];
    }
    const double n_counted = (double)result->eval.n_counted;
    return n_counted > 0.0 ? (double)n / n_counted : 0.0;
}

void train_print_tops(const train_flags *flags, const train_result *result)
{
    for (int32_t i = 0; i < flags->tops.n && result->has_ranks; i++) {
        const int32_t k = flags->tops.k[i];
        printf("top-%" PRId32 " %.2f %%, ", k, 100.0 * train_top(result, k));
    }
}
