/*
 * test_hostile.c - a server, or one that pretends to be it, gives out work that is against the
 * rules: each is refused with its own status, reported in one line, and leaves nothing on the
 * device.
 */
#include "client/fake_server.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

static fake_server server;

static void other_device(dunlin__assignment *assignment)
{
    (void)strcpy(assignment->device_id, "device-2");
}

static void other_population(dunlin__assignment *assignment)
{
    (void)strcpy(assignment->population, "tablets");
}

static void unknown_feature(dunlin__assignment *assignment)
{
    assignment->required_features[assignment->required_features_count++] = 99;
}

static void scaffold(dunlin__assignment *assignment)
{
    assignment->plan.algorithm = DUNLIN_V1_ALGORITHM_SCAFFOLD;
    assignment->plan.momentum = 0.0F;
}

static void scaffold_with_momentum(dunlin__assignment *assignment)
{
    scaffold(assignment);
    assignment->plan.momentum = 0.5F;
}

static void scaffold_with_clipping(dunlin__assignment *assignment)
{
    scaffold(assignment);
    assignment->plan.clip_norm = 1.0F;
}

static void other_encoding(dunlin__assignment *assignment)
{
    assignment->plan.update_encoding = DUNLIN_V1_ENCODING_F16;
}

static void noise(dunlin__assignment *assignment)
{
    assignment->plan.clip_norm = 1.0F;
    assignment->plan.noise_multiplier = 0.5F;
}

static void other_manifest(dunlin__assignment *assignment)
{
    assignment->base_manifest_sha256[3] ^= 1;
}

static void shorter_manifest(dunlin__assignment *assignment)
{
    assignment->base_manifest_bytes--;
}

static void older_round(dunlin__assignment *assignment)
{
    assignment->run_epoch = 0;
    assignment->round = 0;
}

static void flip_signature(dunlin_v1_signed_assignment_t *sealed)
{
    sealed->signature[40] ^= 4;
}

static void flip_body(dunlin_v1_signed_assignment_t *sealed)
{
    sealed->assignment.bytes[sealed->assignment.size / 2] ^= 1;
}

static void other_key_name(dunlin_v1_signed_assignment_t *sealed)
{
    sealed->key_id[0] ^= 1;
}

static void not_a_number(fake_server *to)
{
    to->values[70003] = NAN;
    fake_server_remake_base(to);
}

static void infinite(fake_server *to)
{
    to->values[FAKE_VALUES - 1] = INFINITY;
    fake_server_remake_base(to);
}

static void changed_chunk(fake_server *to)
{
    to->spoil_call = DUNLIN_CALL_OBJECT_GET;
    to->values[5] = 1.0F; /* the manifest still has the old hash: the object is gone */
}

static void another_base_than_the_learners(fake_server *to)
{
    to->tensor_names_begin = 'X';
    fake_server_remake_base(to);
}

static const struct {
    const char *what;
    void (*edit_assignment_fn)(dunlin__assignment *assignment);
    void (*edit_sealed_fn)(dunlin_v1_signed_assignment_t *sealed);
    void (*edit_server_fn)(fake_server *server);
    dunlin_status wanted;
    bool is_aborted; /* an assignment was taken, so the server is told */
} CASES[] = {
    {"another device", other_device, NULL, NULL, DUNLIN_MISMATCH, false},
    {"another population", other_population, NULL, NULL, DUNLIN_MISMATCH, false},
    {"an unknown feature", unknown_feature, NULL, NULL, DUNLIN_UNSUPPORTED, false},
    {"SCAFFOLD with momentum", scaffold_with_momentum, NULL, NULL, DUNLIN_UNSUPPORTED, false},
    {"SCAFFOLD with clipping", scaffold_with_clipping, NULL, NULL, DUNLIN_UNSUPPORTED, false},
    {"SCAFFOLD without a variate", scaffold, NULL, NULL, DUNLIN_MISMATCH, true},
    {"another encoding", other_encoding, NULL, NULL, DUNLIN_UNSUPPORTED, false},
    {"noise", noise, NULL, NULL, DUNLIN_UNSUPPORTED, false},
    {"a shorter manifest", shorter_manifest, NULL, NULL, DUNLIN_LIMIT, true},
    {"an older round", older_round, NULL, NULL, DUNLIN_ROLLBACK, true},
    {"a changed signature", NULL, flip_signature, NULL, DUNLIN_SIGNATURE, false},
    {"a changed assignment", NULL, flip_body, NULL, DUNLIN_SIGNATURE, false},
    {"another key's name", NULL, other_key_name, NULL, DUNLIN_SIGNATURE, false},
    {"not a number", NULL, NULL, not_a_number, DUNLIN_NUMERIC, true},
    {"infinity", NULL, NULL, infinite, DUNLIN_NUMERIC, true},
    {"tensors the learner does not know", NULL, NULL, another_base_than_the_learners,
     DUNLIN_MISMATCH, true},
};

Test(hostile, work_nobody_should_do)
{
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char folder[64];
        fake_learner learner;
        dunlin_client *client = NULL;
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        const char *what = CASES[i].what;
        fake_folder_make(folder);
        fake_server_init(&server);
        dunlin_learner plug = fake_learner_make(&learner);
        learner.wants_names = true;
        server.edit_assignment_fn = CASES[i].edit_assignment_fn;
        server.edit_sealed_fn = CASES[i].edit_sealed_fn;
        if (CASES[i].edit_server_fn != NULL) {
            CASES[i].edit_server_fn(&server);
        }
        dunlin_runtime *runtime = fake_server_runtime(&server, folder, NULL);
        dunlin_client_options options = fake_server_client(&server);
        cr_assert_eq(dunlin_client_create(runtime, &options, &plug, &client, NULL), DUNLIN_OK);
        client->journal.seen_epoch = 1;
        dunlin_status status = dunlin_client_run_round(client, &report);
        const dunlin_error *error = dunlin_client_last_error(client);
        cr_expect_eq(status, CASES[i].wanted, "%s: %s: %s", what, dunlin_status_name(status),
                     error->text);
        cr_expect_eq(error->status, CASES[i].wanted, "%s: %s", what, error->text);
        cr_expect(error->text[0] != '\0' && strchr(error->text, '\n') == NULL, "%s", what);
        cr_expect_eq(server.n_aborts, CASES[i].is_aborted ? 1 : 0, "%s", what);
        cr_expect_eq(server.n_contributions, 0, "%s", what);
        cr_expect_leq(fake_folder_count(folder), 3, "%s: files are left behind", what);
        cr_expect_geq(dunlin_client_wait_ms(client), 5000, "%s", what);
        cr_expect_str_eq(server.complaint, "", "%s: %s", what, server.complaint);
        cr_expect_eq(learner.n_fits, 0, "%s", what);
        dunlin_client_destroy(client);
        dunlin_runtime_destroy(runtime);
        fake_folder_remove(folder);
    }
}

/* A base that the server has not, or has no more in part, is as one of a round that is long over:
 * the device is late, waits for its window, and nothing is learnt and no file stays. */
Test(hostile, work_whose_base_is_gone)
{
    static const struct {
        const char *what;
        void (*edit_assignment_fn)(dunlin__assignment *assignment);
        void (*edit_server_fn)(fake_server *server);
    } gone[] = {{"another manifest", other_manifest, NULL},
                {"a chunk that is gone", NULL, changed_chunk}};
    for (size_t i = 0; i < sizeof gone / sizeof gone[0]; i++) {
        char folder[64];
        fake_learner learner;
        dunlin_client *client = NULL;
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        const char *what = gone[i].what;
        fake_folder_make(folder);
        fake_server_init(&server);
        dunlin_learner plug = fake_learner_make(&learner);
        server.edit_assignment_fn = gone[i].edit_assignment_fn;
        if (gone[i].edit_server_fn != NULL) {
            gone[i].edit_server_fn(&server);
        }
        dunlin_runtime *runtime = fake_server_runtime(&server, folder, NULL);
        dunlin_client_options options = fake_server_client(&server);
        cr_assert_eq(dunlin_client_create(runtime, &options, &plug, &client, NULL), DUNLIN_OK);
        cr_expect_eq(dunlin_client_run_round(client, &report), DUNLIN_OK, "%s: %s", what,
                     dunlin_client_last_error(client)->text);
        cr_expect_eq(report.outcome, DUNLIN_OUTCOME_LATE, "%s", what);
        cr_expect_eq(server.n_contributions, 0, "%s", what);
        cr_expect_leq(fake_folder_count(folder), 3, "%s: files are left behind", what);
        cr_expect_str_eq(server.complaint, "", "%s: %s", what, server.complaint);
        cr_expect_eq(learner.n_fits, 0, "%s", what);
        dunlin_client_destroy(client);
        dunlin_runtime_destroy(runtime);
        fake_folder_remove(folder);
    }
}
