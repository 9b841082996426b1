/*
 * formats_server.c - the rows of the server's golden database.
 */
#include "formats_server.h"

#include "server/must.h"
#include "state/db_metrics.h"

#include <mem/support.h>

#include <stdio.h>
#include <string.h>

dunlin__device_row formats_server_device(int64_t index)
{
    dunlin__device_row device = {.row = index + 1, .client_index = 7 - index};
    (void)snprintf(device.id, sizeof device.id, "device-%d", (int)index);
    memset(device.public_key, 0x11 * (int)(index + 1), sizeof device.public_key);
    device.last_round = index == 1 ? 2 : 0;
    device.n_rounds = index == 1 ? 5 : 0;
    return device;
}

dunlin__session_row formats_server_session(void)
{
    return (dunlin__session_row){.id = "session-1",
                                 .device = 1,
                                 .round = 2,
                                 .state = DUNLIN_WORK_OPEN,
                                 .until_ms = FORMATS_NOW_MS + 1,
                                 .packs = true,
                                 .unpacks = true};
}

dunlin__assignment_row formats_server_assignment(void)
{
    dunlin__assignment_row assignment = {.id = "assignment-1",
                                         .device = 1,
                                         .round = 2,
                                         .state = DUNLIN_WORK_OPEN,
                                         .token = "token-1",
                                         .deadline_ms = FORMATS_NOW_MS + 2,
                                         .packs = true,
                                         .has_manifest = true};
    memset(assignment.manifest_sha256, 0xa1, sizeof assignment.manifest_sha256);
    return assignment;
}

dunlin__contribution_row formats_server_contribution(void)
{
    dunlin__contribution_row contribution = {.round = 1,
                                             .client_index = 6,
                                             .device = 2,
                                             .assignment = "assignment-0",
                                             .weight = 12.5,
                                             .n_steps = 13,
                                             .train_ms = 14,
                                             .within_clip = DUNLIN_V1_WITHIN_CLIP_NO,
                                             .norm = 0.75};
    for (int i = 0; i < DUNLIN_N_METRICS; i++) {
        contribution.metrics.is_there[i] = i != DUNLIN_METRIC_LOSS_AFTER;
        contribution.metrics.values[i] = contribution.metrics.is_there[i] ? 0.5 + i : 0;
    }
    return contribution;
}

dunlin__round_row formats_server_round(uint64_t round)
{
    dunlin__round_row row = {.round = round,
                             .state = DUNLIN_ROUND_OPEN,
                             .opened_ms = FORMATS_NOW_MS + 100,
                             .base = 1,
                             .draw_seed = {.is_there = true}};
    memset(row.draw_seed.bytes, 0x5e, sizeof row.draw_seed.bytes);
    if (round != 1) {
        return row;
    }
    row = (dunlin__round_row){.round = 1,
                              .state = DUNLIN_ROUND_CLOSED,
                              .reason = DUNLIN_CLOSE_DEADLINE,
                              .opened_ms = FORMATS_NOW_MS,
                              .deadline_ms = FORMATS_NOW_MS + 50,
                              .closed_ms = FORMATS_NOW_MS + 51,
                              .n_participants = 3,
                              .n_dropped = 1,
                              .bytes_down = UINT64_C(1) << 40,
                              .bytes_up = 4097,
                              .weight_sum = 12.5,
                              .metrics = formats_server_contribution().metrics,
                              .is_evaluated = true,
                              .accuracy = 0.875,
                              .loss = 0.25,
                              .is_taken_back = true,
                              .n_scaled = 2,
                              .norm_bound = 1.5,
                              .clip_norm = 0.5,
                              .has_clip_within = true,
                              .clip_within = 0.25,
                              .why = "the accuracy fell",
                              .is_private = true,
                              .epsilon = 1.125};
    return row;
}

dunlin__answer_row formats_server_answer(void)
{
    dunlin__answer_row answer = {.scope = "device-0",
                                 .key = "key-1",
                                 .http_code = 200,
                                 .made_ms = FORMATS_NOW_MS + 3,
                                 .is_brief = true,
                                 .n_body = 3,
                                 .body = {1, 2, 3}};
    memset(answer.request_sha256, 0xb2, sizeof answer.request_sha256);
    return answer;
}

static void fill_work(dunlin__server_db *db)
{
    dunlin_error error = {.status = DUNLIN_OK};
    for (int64_t i = 0; i < FORMATS_SERVER_N_DEVICES; i++) {
        dunlin__device_row device = formats_server_device(i);
        MUST(dunlin__server_db_add_device(db, &device, &error));
        MUST(dunlin__server_db_take_part(db, &device, &error));
    }
    const dunlin__session_row session = formats_server_session();
    MUST(dunlin__server_db_add_session(db, &session, &error));
    const dunlin__assignment_row assignment = formats_server_assignment();
    MUST(dunlin__server_db_add_assignment(db, &assignment, &error));
    MUST(dunlin__server_db_set_manifest(db, assignment.id, assignment.manifest_sha256, &error));
    const dunlin__contribution_row contribution = formats_server_contribution();
    MUST(dunlin__server_db_add_contribution(db, &contribution, &error));
    MUST(dunlin__server_db_set_norm(db, 1, contribution.client_index, contribution.norm, &error));
    MUST(dunlin__server_db_add_app_metric(db, 1, contribution.client_index, "f1/macro", 0.5,
                                          &error));
    uint64_t n_left = 0;
    MUST(dunlin__server_db_add_round_metrics(db, 1, &n_left, &error));
}

static void fill_rest(dunlin__server_db *db)
{
    dunlin_error error = {.status = DUNLIN_OK};
    for (uint64_t round = 1; round <= 2; round++) {
        const dunlin__round_row row = formats_server_round(round);
        MUST(dunlin__server_db_put_round(db, &row, &error));
    }
    dunlin__proof_row proof = {.client_index = 6};
    memset(proof.sha256, 0xc3, sizeof proof.sha256);
    memset(proof.public_key, 0x22, sizeof proof.public_key);
    MUST(dunlin__server_db_put_proof(db, &proof, &error));
    MUST(dunlin__server_db_add_replaced(db, "device-9", FORMATS_NOW_MS + 4, &error));
    MUST(dunlin__server_db_set(db, "run_epoch", 41, &error));
    MUST(dunlin__server_db_set_term(db, "dp", "a promise", &error));
    bool is_stored = false;
    MUST(dunlin__server_db_add_telemetry(db, 3, 2, -0.5, &is_stored, &error));
    MUST(dunlin__server_db_add_telemetry(db, 3, 1, 0.75, &is_stored, &error));
    const dunlin__answer_row answer = formats_server_answer();
    MUST(dunlin__server_db_add_answer(db, &answer, &error));
}

void formats_server_fill(const char *path)
{
    dunlin_error error = {.status = DUNLIN_OK};
    const dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    dunlin__server_db *db = NULL;
    MUST(dunlin__server_db_open(path, &alloc, &db, &error));
    fill_work(db);
    fill_rest(db);
    dunlin__server_db_close(db);
}
