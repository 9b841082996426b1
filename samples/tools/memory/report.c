/*
 * report.c - what a run in memory tells: a line a round, and the result.
 */
#include "engine.h"

#include <mem/support.h>
#include <wire/digest.h>

#include <common/progress.h>
#include <server/status.h>
#include <simulate/costs.h>
#include <stdio.h>
#include <stdlib.h>

void engine_print_round(const engine *all)
{
    char peak[SIZE_TEXT_BYTES];
    const dunlin__server *server = &all->rounds.server;
    const dunlin__round_row *row = &server->closed[server->n_closed - 1];
    (void)printf("round %3llu/%lld  ", (unsigned long long)row->round,
                 (long long)all->flags->n_rounds);
    if (row->is_evaluated) {
        (void)printf("accuracy %6.2f %%  loss %.4f  ", 100.0 * row->accuracy, row->loss);
    }
    (void)printf("%3llu devices  %llu dropped  peak %s  %.2f s",
                 (unsigned long long)row->n_participants, (unsigned long long)row->n_dropped,
                 size_text(all->peaks[row->round], peak),
                 (double)(row->closed_ms - row->opened_ms) / 1000.0);
    if (row->n_scaled > 0) {
        (void)printf("  %llu scaled down", (unsigned long long)row->n_scaled);
    }
    if (row->why[0] != '\0') {
        (void)printf("  %s: %s",
                     row->is_taken_back ? "taken back"
                     : row->is_failed   ? "failed"
                                        : "no figures",
                     row->why);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

#define US_PER_S 1e6

/* Seconds of all threads of all ranks. */
void engine_sum_times(engine *all, double wall_s)
{
    engine_times *sum = &all->times;
    for (int32_t i = 0; i < all->n_threads; i++) {
        sum->training += all->threads[i].times.training;
        sum->update += all->threads[i].times.update;
        sum->fold += all->threads[i].times.fold;
    }
    sum->wall = wall_s * all->n_threads;
    double *const parts[] = {&sum->training, &sum->update, &sum->fold, &sum->evaluation,
                             &sum->wall};
    enum { N_PARTS = sizeof parts / sizeof parts[0] };
    int64_t whole[N_PARTS];
    for (int i = 0; i < N_PARTS; i++) {
        whole[i] = (int64_t)(*parts[i] * US_PER_S);
    }
    ranks_sum(all->ranks, whole, N_PARTS);
    for (int i = 0; i < N_PARTS; i++) {
        *parts[i] = (double)whole[i] / US_PER_S;
    }
    int64_t counts[] = {(int64_t)all->totals.n_failed,
                        (int64_t)dunlin_trainer_pool_moved_bytes(all->world->pool)};
    ranks_sum(all->ranks, counts, 2);
    all->totals.n_failed = (uint64_t)counts[0];
    all->totals.moved_bytes = (uint64_t)counts[1];
    all->totals.wall_s = wall_s;
}

static json_t *time_json(const engine *all)
{
    const engine_times *sum = &all->times;
    const double told = sum->training + sum->update + sum->fold + sum->evaluation;
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "training_s", sum->training, "update_s",
                     sum->update, "fold_s", sum->fold, "evaluation_s", sum->evaluation, "rest_s",
                     sum->wall > told ? sum->wall - told : 0.0);
}

static json_t *model_hash(const engine *all)
{
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    char text[DUNLIN_SHA256_HEX_BYTES];
    const size_t n_bytes = (size_t)all->rounds.server.layout.n_values * sizeof(float);
    if (dunlin__sha256_of(all->rounds.base, n_bytes, sha256, NULL) != DUNLIN_OK) {
        return json_null();
    }
    dunlin__hex_encode(sha256, sizeof sha256, text);
    return json_string(text);
}

json_t *engine_result(engine *all, bool is_interrupted)
{
    char *text = dunlin__server_status_text(&all->rounds.server);
    json_t *status = text != NULL ? json_loads(text, 0, NULL) : NULL;
    const fleet_figures figures = {
        .totals = all->totals, .peaks = all->peaks, .n_peaks = all->flags->n_rounds + 1};
    const engine_times *sum = &all->times;
    const double busy = sum->training + sum->update + sum->fold + sum->evaluation;
    json_t *result = fleet_result(all->flags, all->world, status, &figures);
    (void)json_object_set_new(result, "transport", json_string("memory"));
    (void)json_object_set_new(result, "models_sha256", model_hash(all));
    (void)json_object_set_new(result, "ranks", json_integer(ranks_count(all->ranks)));
    (void)json_object_set_new(result, "time", time_json(all));
    (void)json_object_set_new(result, "utilisation",
                              json_real(sum->wall > 0.0 ? busy / sum->wall : 0.0));
    if (is_interrupted) {
        (void)json_object_set_new(result, "interrupted", json_true());
        (void)json_object_set_new(result, "rounds_wanted",
                                  json_integer((json_int_t)all->flags->n_rounds));
    }
    json_decref(status);
    free(text);
    return result;
}
