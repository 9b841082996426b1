/*
 * formats_client.c - the journal, the assignment and the example store of the golden files.
 */
#include "formats.h"
#include "server/must.h"

#include <string.h>

void formats_journal(dunlin__journal *out_journal)
{
    *out_journal =
        (dunlin__journal){.device_id = "device-77",
                          .challenge = "challenge-5",
                          .counter = UINT64_MAX - 3, /* as a negative number in the file */
                          .wait_from = {.wall_ms = 11, .boot_ms = 12, .boot_id = "boot-x"},
                          .wait_ms = 13,
                          .n_failures = 4,
                          .failing_since = {.wall_ms = 29, .boot_ms = 30, .boot_id = "boot-z"},
                          .n_refusals = 5,
                          .refused_phase = DUNLIN_PHASE_LEARN,
                          .seen_epoch = 14,
                          .kept_round = 31,
                          .within_clip = 2,
                          .seen_round = 15,
                          .contributed_wall_ms = 16,
                          .contributed_round = 17,
                          .phase = DUNLIN_PHASE_UPLOAD,
                          .begun = {.wall_ms = 18, .boot_ms = 19, .boot_id = "boot-y"},
                          .session = "session-1",
                          .offer_id = "offer-1",
                          .key = "0123456789abcdef0123456789abcdef",
                          .accepted_wait_ms = 20,
                          .rejected_wait_ms = 21,
                          .n_examples = 22,
                          .n_steps = 23,
                          .learn_ms = 24,
                          .loss = 0.5,
                          .accuracy = 0.25,
                          .peak_bytes = 25,
                          .evaluated = DUNLIN_EVALUATED_BOTH,
                          .loss_before = 0.75,
                          .accuracy_before = 0.125,
                          .loss_after = 0.375,
                          .accuracy_after = 0.875,
                          .checkpoint = 2,
                          .sent_bytes = 26,
                          .received_bytes = 27,
                          .kept_pending = 2,
                          .kept = 1,
                          .kept_epoch = 28,
                          .kept_task = "task-1"};
    memset(out_journal->private_key, 0x5a, sizeof out_journal->private_key);
    memset(out_journal->installation, 0xa5, sizeof out_journal->installation);
}

dunlin__commit_request formats_metrics(void)
{
    return (dunlin__commit_request){
        .kind = DUNLIN_V1_KIND_EVALUATE,
        .n_examples = 1,
        .app_metrics_count = 2,
        .app_metrics = {{.name = "f1/macro", .value = 0.5}, {.name = "x", .value = -4096}}};
}

dunlin__app_model_head formats_app_model(void)
{
    dunlin__app_model_head head = {.task = "task-1",
                                   .run_epoch = 1700000001,
                                   .round = 12,
                                   .is_final = true,
                                   .manifest_bytes = 345,
                                   .n_bytes = UINT64_C(6700000000)};
    for (uint8_t i = 0; i < DUNLIN_SHA256_BYTES; i++) {
        head.manifest_sha256[i] = (uint8_t)(200 - i);
    }
    return head;
}

void formats_server_key(uint8_t out_private_key[DUNLIN_PRIVATE_KEY_BYTES])
{
    for (uint8_t i = 0; i < DUNLIN_PRIVATE_KEY_BYTES; i++) {
        out_private_key[i] = (uint8_t)(i + 1);
    }
}

dunlin__assignment formats_assignment(void)
{
    dunlin__assignment assignment = {.population = "phones",
                                     .task = "task-1",
                                     .assignment_id = "assignment-7",
                                     .device_id = "device-77",
                                     .run_epoch = 14,
                                     .round = 15,
                                     .kind = DUNLIN_V1_KIND_TRAIN,
                                     .deadline_ms = 600000,
                                     .token = "token-0123456789abcdef",
                                     .has_plan = true,
                                     .base_manifest_bytes = 321,
                                     .aggregation = DUNLIN_V1_AGGREGATION_PLAIN,
                                     .key_id = "server-1"};
    dunlin__training_plan *plan = &assignment.plan;
    plan->learner = DUNLIN_V1_LEARNER_KIND_BUILTIN;
    plan->n_epochs = 3;
    plan->batch_size = 16;
    plan->optimizer = DUNLIN_V1_OPTIMIZER_SGD;
    plan->learning_rate = 0.125F;
    plan->momentum = 0.5F;
    plan->algorithm = DUNLIN_V1_ALGORITHM_FEDAVG;
    plan->seed = UINT64_C(0x0123456789abcdef);
    plan->weight_cap = 1000;
    plan->update_form = DUNLIN_V1_UPDATE_FORM_DELTA;
    plan->update_encoding = DUNLIN_V1_ENCODING_F32;
    plan->chunk_bytes = DUNLIN_WIRE_CHUNK_DEFAULT_BYTES;
    memset(assignment.base_manifest_sha256, 0x3c, sizeof assignment.base_manifest_sha256);
    return assignment;
}

static int64_t wall_ms(void *ctx)
{
    (void)ctx;
    return FORMATS_NOW_MS;
}

dunlin_examples *formats_examples_open(const char *folder)
{
    dunlin_error error = {.status = DUNLIN_OK};
    dunlin_examples *examples = NULL;
    dunlin_examples_rule rule = DUNLIN_EXAMPLES_RULE_INIT;
    dunlin_examples_options options = DUNLIN_EXAMPLES_OPTIONS_INIT;
    rule.task = "task-1";
    rule.collection = "drawings";
    rule.hold_out_percent = 50;
    options.folder = folder;
    options.rules = &rule;
    options.n_rules = 1;
    options.wall_ms_fn = wall_ms;
    MUST(dunlin_examples_open(&options, &examples, &error));
    return examples;
}

uint8_t formats_example_byte(int64_t example, size_t at)
{
    return (uint8_t)(example * 40 + (int64_t)at);
}
