/*
 * judge.c - the last model on the examples of each device: whom it serves, and whom not.
 */
#include "simulation.h"

#include <dunlin/trainer_advanced.h>

#include <math.h>
#include <stdlib.h>

static int compare_shares(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

/* Means over devices, each counting alike: of all, and of the worst tenth. */
static void take_shares(simulation *sim, double *shares, int64_t n)
{
    const int64_t n_worst = n / 10 > 0 ? n / 10 : 1;
    double sum = 0.0;
    qsort(shares, (size_t)n, sizeof shares[0], compare_shares);
    for (int64_t i = 0; i < n; i++) {
        sum += shares[i];
        if (i + 1 == n_worst) {
            sim->worst_tenth = sum / (double)n_worst;
        }
    }
    sim->accuracy_mean = n > 0 ? sum / (double)n : -1.0;
}

static bool judge_all(simulation *sim, dunlin_trainer *trainer, double *shares)
{
    for (int64_t i = 0; i < sim->n_clients; i++) {
        const sim_client *client = &sim->clients[i];
        sim_class_sums *sums = &sim->sums[client->device->class_index];
        dunlin_metrics metrics = {0};
        dunlin_dataset_view view;
        dunlin_source source;
        if (!sim_client_examples(client, &view, &source) ||
            dunlin_trainer_evaluate(trainer, &source, 0, view.n, &metrics) != DUNLIN_OK) {
            return false;
        }
        shares[i] = metrics.accuracy;
        sums->n_examples += view.n;
        sums->n_right += llround(metrics.accuracy * (double)view.n);
    }
    take_shares(sim, shares, sim->n_clients);
    return true;
}

bool sim_judge(simulation *sim)
{
    char path[FLEET_PATH_BYTES + 32];
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = sim->world->batch;
    (void)snprintf(path, sizeof path, "%s/server/model.onnx", sim->server->folder);
    double *shares = calloc((size_t)sim->n_clients, sizeof *shares);
    const bool is_ok = shares != NULL &&
                       dunlin_model_open(path, NULL, &model, &error) == DUNLIN_OK &&
                       dunlin_trainer_create(model, &options, &trainer, &error) == DUNLIN_OK &&
                       judge_all(sim, trainer, shares);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    free(shares);
    return is_ok;
}
