/*
 * test_hostile.c - the real transport against the real server with the wrong trust, a full disk,
 * and the samples as a user runs them.
 */
#include "client/fake_server.h"
#include "server_process.h"

#include <wire/digest.h>

#include <criterion/criterion.h>

#include <mbedtls/base64.h>
#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 5, \"cohort\": 1, "               \
    "\"tensors\": [{\"name\": \"weights\", \"shape\": [70000]}, "                                  \
    "{\"name\": \"bias\", \"shape\": [12]}, "                                                      \
    "{\"name\": \"mean\", \"shape\": [3], \"rule\": \"statistic\"}]}"

static server_process server;

typedef struct attempt {
    const char *ca_file;
    const char *const *pins;
    const uint8_t *signing_keys;
    int32_t n_signing_keys;
} attempt;

/* One round of a new device under the given trust. */
static dunlin_status try_round(const attempt *how, dunlin_error *out_error)
{
    fake_learner learner;
    dunlin_learner plug = fake_learner_make(&learner);
    dunlin_runtime *runtime = NULL;
    dunlin_client *client = NULL;
    char store[192];
    server_process_path(&server, "store", store);
    dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
    shared.store_folder = store;
    shared.ca_file = how->ca_file;
    shared.spki_pins = how->pins;
    dunlin_client_options options = DUNLIN_CLIENT_OPTIONS_INIT;
    options.server_url = server.url;
    options.population = "phones";
    options.signing_keys = how->signing_keys;
    options.n_signing_keys = how->n_signing_keys;
    cr_assert_eq(dunlin_runtime_create(&shared, &runtime, out_error), DUNLIN_OK, "%s",
                 out_error->text);
    cr_assert_eq(dunlin_client_create(runtime, &options, &plug, &client, out_error), DUNLIN_OK,
                 "%s", out_error->text);
    dunlin_status status = dunlin_client_run_round(client, NULL);
    *out_error = *dunlin_client_last_error(client);
    dunlin_client_destroy(client);
    dunlin_runtime_destroy(runtime);
    fake_folder_remove(store);
    return status;
}

/* The pin of a certificate: base64 of SHA-256 of its public key information. */
static void pin_of(const char *path, char out_pin[64])
{
    mbedtls_x509_crt certificate;
    uint8_t der[512];
    uint8_t sha256[DUNLIN_SHA256_BYTES];
    size_t n_chars = 0;
    mbedtls_x509_crt_init(&certificate);
    cr_assert_eq(mbedtls_x509_crt_parse_file(&certificate, path), 0, "%s", path);
    int n_bytes = mbedtls_pk_write_pubkey_der(&certificate.pk, der, sizeof der);
    cr_assert_gt(n_bytes, 0);
    cr_assert_eq(
        dunlin__sha256_of(der + sizeof der - (size_t)n_bytes, (size_t)n_bytes, sha256, NULL),
        DUNLIN_OK);
    cr_assert_eq(mbedtls_base64_encode((uint8_t *)out_pin, 64, &n_chars, sha256, sizeof sha256), 0);
    out_pin[n_chars] = '\0';
    mbedtls_x509_crt_free(&certificate);
}

Test(hostile, who_is_not_trusted_is_refused)
{
    static const char *const WRONG[] = {"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", NULL};
    server_process other;
    dunlin_error error = {0};
    char right[64];
    char path[192];
    uint8_t keys[130];
    server_process_start(&other, TASK, "1:2");
    server_process_start(&server, TASK, "1:2");
    server_process_path(&server, "state/server.pem", path);
    pin_of(path, right);
    const char *const both[] = {WRONG[0], right, NULL};
    attempt how = {
        .ca_file = other.ca_file, .signing_keys = server.signing_key, .n_signing_keys = 1};
    cr_expect_eq(try_round(&how, &error), DUNLIN_TLS, "another CA: %s", error.text);
    cr_expect_not_null(strstr(error.text, server.url), "%s", error.text);
    how.ca_file = NULL;
    cr_expect_eq(try_round(&how, &error), DUNLIN_TLS, "the system's CAs: %s", error.text);
    how.ca_file = server.ca_file;
    how.pins = WRONG;
    cr_expect_eq(try_round(&how, &error), DUNLIN_TLS, "a wrong pin: %s", error.text);
    how.pins = both;
    cr_expect_eq(try_round(&how, &error), DUNLIN_OK, "a right pin beside a wrong: %s", error.text);
    how.signing_keys = other.signing_key;
    cr_expect_eq(try_round(&how, &error), DUNLIN_SIGNATURE, "a wrong key: %s", error.text);
    memcpy(keys, other.signing_key, 65);
    memcpy(keys + 65, server.signing_key, 65);
    how.signing_keys = keys;
    how.n_signing_keys = 2;
    cr_expect_eq(try_round(&how, &error), DUNLIN_OK, "the reserve key: %s", error.text);
    server_process_stop(&server);
    server_process_stop(&other);
}

Test(hostile, nobody_there)
{
    dunlin_error error = {0};
    server_process_start(&server, TASK, "1:2");
    char folder[64];
    attempt how = {
        .ca_file = server.ca_file, .signing_keys = server.signing_key, .n_signing_keys = 1};
    (void)strcpy(folder, server.folder);
    cr_assert_eq(kill(server.pid, SIGKILL), 0);
    (void)waitpid(server.pid, NULL, 0);
    cr_expect_eq(try_round(&how, &error), DUNLIN_UNREACHABLE, "%s", error.text);
    cr_expect_not_null(strstr(error.text, server.url), "%s", error.text);
    fake_folder_remove(folder);
}

/* In a child, since the limit on file sizes is the process's: the base does not fit. */
static int round_without_room(void)
{
    struct rlimit limit = {.rlim_cur = 100000, .rlim_max = 100000};
    dunlin_error error = {0};
    attempt how = {
        .ca_file = server.ca_file, .signing_keys = server.signing_key, .n_signing_keys = 1};
    (void)signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 1;
    }
    dunlin_status status = try_round(&how, &error);
    (void)fprintf(stderr, "%s: %s\n", dunlin_status_name(status), error.text);
    return status == DUNLIN_SPACE && strchr(error.text, '\n') == NULL ? 42 : 2;
}

Test(hostile, a_full_disk_is_told)
{
    int status = 0;
    server_process_start(&server, TASK, "1:2");
    pid_t child = fork();
    if (child == 0) {
        _exit(round_without_room());
    }
    (void)waitpid(child, &status, 0);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%d", status);
    server_process_stop(&server);
}

/* --- the samples --- */

#ifdef DUNLIN_SAMPLE_02
Test(samples, join_federation)
{
    char store[192];
    server_process_start(
        &server,
        "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\", "
        "\"rounds\": 3, \"cohort\": 1, "
        "\"plan\": {\"epochs\": 1, \"batch\": 16, \"lr\": 0.02}}",
        "20:40");
    server_process_path(&server, "store", store);
    const char *const arguments[] = {DUNLIN_SAMPLE_02, server.url, server.ca_file,
                                     server.key_file,  store,      NULL};
    cr_expect_eq(server_process_run(&server, arguments, "sample.log"), 0);
    cr_expect_eq(server_process_run(&server, arguments, "sample.log"), 0, "once more");
    server_process_wait_rounds(&server, 2);
    const char *const without[] = {DUNLIN_SAMPLE_02, server.url, NULL};
    cr_expect_eq(server_process_run(&server, without, "sample.log"), 2);
    server_process_stop(&server);
}

/* The federated model gets more images right than the one that the app came with. */
Test(samples, use_the_model)
{
    char store[192];
    char onnx[192];
    char log[192];
    char text[1024] = "";
    int n_before = -1;
    int n_after = -1;
    server_process_start(
        &server,
        "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\", "
        "\"rounds\": 3, \"cohort\": 1, "
        "\"plan\": {\"epochs\": 2, \"batch\": 16, \"lr\": 0.02, \"momentum\": 0.9}}",
        "20:40");
    server_process_path(&server, "store", store);
    server_process_path(&server, "app.onnx", onnx);
    server_process_path(&server, "sample.log", log);
    const char *const arguments[] = {
        DUNLIN_SAMPLE_08, server.url, server.ca_file, server.key_file, store, onnx, NULL};
    cr_expect_eq(server_process_run(&server, arguments, "sample.log"), 0);
    FILE *file = fopen(log, "r");
    cr_assert_not_null(file);
    (void)fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    const char *after = strstr(text, "with the model after round 3: ");
    cr_assert_not_null(after, "%s", text);
    cr_expect_not_null(strstr(text, "round 3 accepted; the run is over"), "%s", text);
    cr_assert_eq(sscanf(text, "before: %d of 200", &n_before), 1, "%s", text);
    cr_assert_eq(sscanf(after, "with the model after round 3: %d of 200", &n_after), 1);
    cr_expect_gt(n_after, n_before + 20, "%s", text);
    (void)fprintf(stderr, "sample 8: %s", text);
    cr_expect_eq(access(onnx, R_OK), 0);
    server_process_stop(&server);
}

Test(samples, example_store)
{
    char store[192];
    char hex[131];
    server_process_start(
        &server,
        "{\"population\": \"phones\", \"task\": \"digits\", \"model\": \"lenet5\", "
        "\"rounds\": 3, \"cohort\": 1, "
        "\"plan\": {\"epochs\": 1, \"batch\": 16, \"lr\": 0.02}}",
        "20:40");
    server_process_path(&server, "store", store);
    dunlin__hex_encode(server.signing_key, sizeof server.signing_key, hex);
    const char *const arguments[] = {
        DUNLIN_SAMPLE_05, server.url, server.ca_file, hex, store, NULL};
    cr_expect_eq(server_process_run(&server, arguments, "sample.log"), 0);
    server_process_wait_rounds(&server, 1);
    char *status = server_process_status(&server);
    cr_expect_not_null(strstr(status, "\"weight_sum\": 100.0"), "the app's rule: %s", status);
    cr_expect_not_null(strstr(status, "\"known\": 0"), "%s", status);
    free(status);
    server_process_stop(&server);
}

Test(samples, background_job)
{
    char store[192];
    char hex[131];
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"line\", \"rounds\": 3, "
                         "\"cohort\": 1, \"tensors\": [{\"name\": \"line\", \"shape\": [2]}], "
                         "\"plan\": {\"epochs\": 40, \"lr\": 0.1}}",
                         "20:40");
    server_process_path(&server, "store", store);
    dunlin__hex_encode(server.signing_key, sizeof server.signing_key, hex);
    const char *const arguments[] = {
        DUNLIN_SAMPLE_04, server.url, server.ca_file, hex, store, NULL};
    cr_expect_eq(server_process_run(&server, arguments, "sample.log"), 0);
    server_process_wait_rounds(&server, 1);
    char *status = server_process_status(&server);
    cr_expect_not_null(strstr(status, "\"known\": 0"), "it has withdrawn: %s", status);
    free(status);
    server_process_stop(&server);
}

Test(samples, own_learner)
{
    float line[2];
    char store[192];
    char hex[131];
    server_process_start(&server,
                         "{\"population\": \"phones\", \"task\": \"line\", \"rounds\": 3, "
                         "\"cohort\": 1, \"tensors\": [{\"name\": \"line\", \"shape\": [2]}], "
                         "\"plan\": {\"epochs\": 20, \"lr\": 0.1}}",
                         "20:40");
    server_process_path(&server, "store", store);
    dunlin__hex_encode(server.signing_key, sizeof server.signing_key, hex);
    const char *const arguments[] = {
        DUNLIN_SAMPLE_03, server.url, server.ca_file, hex, store, NULL};
    cr_expect_eq(server_process_run(&server, arguments, "sample.log"), 0);
    server_process_wait_rounds(&server, 1);
    server_process_model(&server, 2, line, 2);
    cr_expect_float_eq(line[0], 3.0F, 0.1F, "slope %f", (double)line[0]);
    cr_expect_float_eq(line[1], 1.0F, 0.1F, "offset %f", (double)line[1]);
    server_process_stop(&server);
}
#endif
