/*
 * 03_own_learner.c - a learner of one's own in a federation: a straight line through this device's
 * points. Teaches the learner plug: load the round's weights, fit in pieces, hand out the new ones.
 * The task file of the server has, instead of a model, the tensor of this learner:
 *   {"population": "phones", "task": "line", "rounds": 5, "cohort": 1,
 *    "tensors": [{"name": "line", "shape": [2]}], "plan": {"epochs": 20, "lr": 0.1}}
 *   sample-03_own_learner https://127.0.0.1:8443 state/ca.pem $(cat state/signing.pub) [STORE]
 * Expected output: y = 3.02 x + 1.00 after round 1, accepted
 */
#include <dunlin/client.h>

#include <stdio.h>
#include <string.h>

#define N_POINTS 64

typedef struct line {
    float weights[2]; /* slope and offset: the one tensor of the task */
    dunlin_weights_reader base;
    int32_t epochs;
    float lr;
} line;

static dunlin_status line_load(void *self, const dunlin_task *task,
                               const dunlin_weights_reader *base)
{
    line *l = self;
    bool is_ours = base->n_tensors == 1 && base->tensors[0].n_elements == 2;
    l->base = *base; /* readable until unload */
    l->epochs = task->epochs;
    l->lr = task->lr;
    return is_ours ? base->read_fn(base->ctx, 0, 0, 2, l->weights) : DUNLIN_MISMATCH;
}

/* One epoch a call: that is short enough for any max_ms. Returns the mean loss before it. */
static dunlin_status line_fit(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    (void)max_ms;
    line *l = self;
    out_report->n_examples = N_POINTS; /* the weight of the update */
    for (int i = 0; i < N_POINTS; i++) {
        float x = (float)i / N_POINTS * 2.0F - 1.0F;
        float y = 3.0F * x + 1.0F + (float)(i * 37 % 11 - 5) / 50.0F; /* this device's data */
        float wrong = l->weights[0] * x + l->weights[1] - y;
        l->weights[0] -= l->lr * wrong * x;
        l->weights[1] -= l->lr * wrong;
        out_report->loss += (double)(wrong * wrong) / N_POINTS;
    }
    out_report->is_done = --l->epochs <= 0;
    return DUNLIN_OK;
}

static dunlin_status line_evaluate(void *self, int64_t max_ms, dunlin_learner_report *out_report)
{
    ((line *)self)->lr = 0.0F; /* the same without a change */
    return line_fit(self, max_ms, out_report);
}

static dunlin_status line_read(void *ctx, int32_t index, int64_t first, int64_t n, float *out)
{
    memcpy(out, ((const line *)ctx)->weights + index + first, (size_t)n * sizeof(float));
    return DUNLIN_OK;
}

static dunlin_status line_save(void *self, dunlin_weights_reader *out)
{
    *out = ((line *)self)->base; /* the same tensors, read from here */
    out->ctx = self;
    out->read_fn = line_read;
    return DUNLIN_OK;
}

static void line_unload(void *self)
{
    (void)self;
}

static const dunlin_learner_ops LINE_OPS = {.struct_size = sizeof(dunlin_learner_ops),
                                            .load = line_load,
                                            .fit = line_fit,
                                            .evaluate = line_evaluate,
                                            .save = line_save,
                                            .unload = line_unload};

int main(int argc, char **argv)
{
    uint8_t key[65]; /* that the server signs with; an app would carry it in its code */
    for (size_t i = 0; i < 65; i++) {
        if (argc < 4 || strlen(argv[3]) != 130 || sscanf(argv[3] + 2 * i, "%2hhx", &key[i]) != 1) {
            fprintf(stderr, "usage: sample-03_own_learner URL CA.pem SIGNING-KEY [STORE]\n");
            return 2;
        }
    }
    dunlin_error error = {0};
    dunlin_runtime *runtime = NULL;
    dunlin_client *client = NULL;
    line own = {0};
    dunlin_learner learner = {&LINE_OPS, &own};
    dunlin_runtime_options shared = {.struct_size = sizeof shared,
                                     .store_folder = argc > 4 ? argv[4] : "own_learner_store",
                                     .ca_file = argv[2]};
    dunlin_client_options options = {.struct_size = sizeof options,
                                     .server_url = argv[1],
                                     .population = "phones",
                                     .signing_keys = key,
                                     .n_signing_keys = 1};
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    if (dunlin_runtime_create(&shared, &runtime, &error) != DUNLIN_OK ||
        dunlin_client_create(runtime, &options, &learner, &client, &error) != DUNLIN_OK) {
        fprintf(stderr, "03_own_learner: %s\n", error.text);
    } else if (dunlin_client_run_round(client, &report) != DUNLIN_OK) {
        fprintf(stderr, "03_own_learner: %s\n", dunlin_client_last_error(client)->text);
    } else {
        printf("y = %.2f x + %.2f after round %d, %s\n", (double)own.weights[0],
               (double)own.weights[1], (int)report.round, dunlin_outcome_name(report.outcome));
    }
    dunlin_client_destroy(client);
    dunlin_runtime_destroy(runtime);
    return report.outcome == DUNLIN_OUTCOME_ACCEPTED ? 0 : 1;
}
