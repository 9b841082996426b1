/*
 * test_trust.c - whom client and server trust, over real TLS: client certificates, a key that the
 * app keeps, an assignment with less privacy than the app accepts; how a device leaves.
 */
#define _GNU_SOURCE /* RTLD_NEXT */
#include "gnutls_transport.h"
#include "site.h"

#include <criterion/criterion.h>

#include <dlfcn.h>
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 1000, \"cohort\": 1, "            \
    "\"over_select\": 50, \"deadline_s\": 36000, \"plan\": {\"clip_norm\": 2}, "                   \
    "\"tensors\": [{\"name\": \"weights\", \"shape\": [64]}]}"

static site where;
static site other;
static site_device device;

static dunlin_status run(dunlin_outcome *out_outcome)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    dunlin_status status = dunlin_client_run_round(device.client, &report);
    *out_outcome = report.outcome;
    return status;
}

/* A round of a new device with this certificate of the site's. */
static dunlin_status try_certificate(const site *from)
{
    char certificate[192];
    char key[192];
    dunlin_outcome outcome = DUNLIN_OUTCOME_NONE;
    site_device_make(&device, &where, "store");
    if (from != NULL) {
        (void)snprintf(certificate, sizeof certificate, "%s/state/client.pem", from->folder);
        (void)snprintf(key, sizeof key, "%s/state/client.key", from->folder);
        device.shared.client_certificate = certificate;
        device.shared.client_key = key;
    }
    site_device_open(&device);
    dunlin_status status = run(&outcome);
    cr_expect_eq(outcome == DUNLIN_OUTCOME_ACCEPTED, status == DUNLIN_OK);
    site_device_close(&device);
    fake_folder_remove(device.store);
    return status;
}

Test(trust, mutual_tls, .timeout = 3600)
{
    site_open(&where, TASK);
    site_open(&other, TASK);
    site_want_certificates(&where);
    site_listen(&where, NULL);
    cr_expect_eq(try_certificate(&where), DUNLIN_OK);
    uint64_t n_requests = site_count(&where).n_requests;
    /* With TLS 1.3 the server answers about a certificate after the handshake; this one only closes
     * the connection. */
    dunlin_status without = try_certificate(NULL);
    dunlin_status foreign = try_certificate(&other);
    cr_expect(without == DUNLIN_TLS || without == DUNLIN_CLOSED, "%s", dunlin_status_name(without));
    cr_expect(foreign == DUNLIN_TLS || foreign == DUNLIN_CLOSED, "%s", dunlin_status_name(foreign));
    cr_expect_eq(site_count(&where).n_requests, n_requests, "a request was read");
    site_close(&other);
    site_close(&where);
}

/* --- a key store outside the library --- */

typedef struct outer_key {
    gnutls_privkey_t key;
    int n_signed;
    int n_forgotten;
    bool is_locked;
    bool is_broken;
} outer_key;

static dunlin_status give_public(void *ctx, uint8_t out_public_key[65])
{
    const outer_key *store = ctx;
    gnutls_datum_t x = {0};
    gnutls_datum_t y = {0};
    gnutls_ecc_curve_t curve = GNUTLS_ECC_CURVE_INVALID;
    if (gnutls_privkey_export_ecc_raw2(store->key, &curve, &x, &y, NULL,
                                       GNUTLS_EXPORT_FLAG_NO_LZ) != 0 ||
        x.size > 32 || y.size > 32) {
        return DUNLIN_INTERNAL;
    }
    memset(out_public_key, 0, 65);
    out_public_key[0] = 4;
    memcpy(out_public_key + 33 - x.size, x.data, x.size);
    memcpy(out_public_key + 65 - y.size, y.data, y.size);
    gnutls_free(x.data);
    gnutls_free(y.data);
    return DUNLIN_OK;
}

/* As Android and iOS do it: a DER signature over the message's hash. */
static dunlin_status sign_outside(void *ctx, const void *message, size_t n_bytes,
                                  uint8_t out_signature[64])
{
    outer_key *store = ctx;
    if (store->is_locked) {
        return DUNLIN_LOCKED;
    }
    gnutls_datum_t data = {.data = (unsigned char *)(uintptr_t)message, .size = (unsigned)n_bytes};
    gnutls_datum_t der = {0};
    if (store->is_broken ||
        gnutls_privkey_sign_data(store->key, GNUTLS_DIG_SHA256, 0, &data, &der) != 0) {
        return DUNLIN_IO;
    }
    store->n_signed++;
    dunlin_status status = dunlin_signature_from_der(der.data, der.size, out_signature, NULL);
    gnutls_free(der.data);
    return status;
}

static void forget_key(void *ctx)
{
    ((outer_key *)ctx)->n_forgotten++;
}

Test(trust, a_key_that_the_app_keeps, .timeout = 3600)
{
    outer_key store = {0};
    dunlin_outcome outcome = DUNLIN_OUTCOME_NONE;
    cr_assert_eq(gnutls_privkey_init(&store.key), 0);
    cr_assert_eq(gnutls_privkey_generate(store.key, GNUTLS_PK_ECDSA,
                                         GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0),
                 0);
    site_open(&where, TASK);
    site_listen(&where, NULL);
    site_device_make(&device, &where, "store");
    device.options.key_store = (dunlin_key_store){.ctx = &store,
                                                  .public_key_fn = give_public,
                                                  .sign_fn = sign_outside,
                                                  .forget_fn = forget_key};
    store.is_locked = true;
    site_device_open(&device);
    cr_expect_eq(run(&outcome), DUNLIN_LOCKED);
    cr_expect_lt(dunlin_client_wait_ms(device.client), DUNLIN_RETRY_REFUSED_FIRST_MS / 2,
                 "soon again");
    store.is_locked = false;
    store.is_broken = true;
    site_device_rest(&device);
    cr_expect_eq(run(&outcome), DUNLIN_CALLBACK);
    store.is_broken = false;
    site_device_rest(&device);
    cr_expect_eq(run(&outcome), DUNLIN_OK, "%s", dunlin_client_last_error(device.client)->text);
    cr_expect_eq(outcome, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_geq(store.n_signed, 5, "enrol, check-in, accept, put, commit");
    uint8_t any = 0;
    for (size_t i = 0; i < sizeof device.client->journal.private_key; i++) {
        any |= device.client->journal.private_key[i];
    }
    cr_expect_eq(any, 0, "a private key was made all the same");
    cr_expect_eq(dunlin_client_forget(device.client), DUNLIN_OK, "%s",
                 dunlin_client_last_error(device.client)->text);
    cr_expect_eq(store.n_forgotten, 1);
    site_device_close(&device);
    site_close(&where);
    gnutls_privkey_deinit(store.key);
}

Test(trust, half_a_key_store_is_refused, .timeout = 3600)
{
    dunlin_error error = {0};
    site_open(&where, TASK);
    site_listen(&where, NULL);
    site_device_make(&device, &where, "store");
    site_device_open(&device);
    dunlin_client *client = NULL;
    device.options.name = "second";
    device.options.server_url = where.url;
    device.options.key_store.sign_fn = sign_outside;
    cr_expect_eq(
        dunlin_client_create(device.runtime, &device.options, &device.plug, &client, &error),
        DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "public_key_fn"), "%s", error.text);
    site_device_close(&device);
    site_close(&where);
}

/* --- leaving --- */

/* Looks at the storage at the moment of each call. */
typedef struct witness {
    dunlin_transport base;
    dunlin_transport *inner;
    int n_forgets;
    int n_rows;
    int n_files;
} witness;

static int count_rows(const char *store)
{
    char path[192];
    sqlite3 *db = NULL;
    sqlite3_stmt *statement = NULL;
    (void)snprintf(path, sizeof path, "%s/dunlin.db", store);
    cr_assert_eq(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK, "%s", path);
    cr_assert_eq(sqlite3_prepare_v2(db, "SELECT count(*) FROM clients", -1, &statement, NULL),
                 SQLITE_OK);
    cr_assert_eq(sqlite3_step(statement), SQLITE_ROW);
    int n = sqlite3_column_int(statement, 0);
    (void)sqlite3_finalize(statement);
    (void)sqlite3_close(db);
    return n;
}

static dunlin_status look_and_perform(dunlin_transport *base, const dunlin_http_request *request,
                                      dunlin_http_reply *out_reply, dunlin_error *error)
{
    witness *here = (witness *)(void *)base;
    if (strstr(request->url, ":forget") != NULL) {
        here->n_forgets++;
        here->n_rows = count_rows(device.store);
        here->n_files = site_device_count_files(&device);
    }
    return here->inner->ops->perform_fn(here->inner, request, out_reply, error);
}

static void pass_stats(dunlin_transport *base, dunlin_runtime_stats *out_stats)
{
    const witness *here = (const witness *)(void *)base;
    here->inner->ops->get_stats_fn(here->inner, out_stats);
}

static void pass_destroy(dunlin_transport *base)
{
    const witness *here = (const witness *)(void *)base;
    here->inner->ops->destroy_fn(here->inner);
}

Test(trust, the_server_hears_of_a_withdrawal_last, .timeout = 3600)
{
    static const dunlin_transport_ops ops = {.struct_size = sizeof ops,
                                             .perform_fn = look_and_perform,
                                             .get_stats_fn = pass_stats,
                                             .destroy_fn = pass_destroy};
    dunlin_outcome outcome = DUNLIN_OUTCOME_NONE;
    site_open(&where, TASK);
    site_listen(&where, "commit all lose\nforget 1 portal\n");
    witness here = {.base.ops = &ops, .inner = gnutls_transport_make(where.ca_file)};
    site_device_make(&device, &where, "store");
    device.shared.transport = &here.base;
    site_device_open(&device);
    cr_expect_eq(run(&outcome), DUNLIN_CLOSED); /* a round is paused, with its files */
    cr_expect_eq(site_device_count_files(&device), 1);
    cr_expect_eq(count_rows(device.store), 1);
    dunlin_client_stop(device.client);
    cr_expect_eq(dunlin_client_forget(device.client), DUNLIN_UNREACHABLE, "a login page is no yes");
    cr_expect_eq(here.n_forgets, 1, "it was not told");
    cr_expect_eq(here.n_rows, 0, "the journal was still there");
    cr_expect_eq(here.n_files, 0, "files were still there");
    cr_expect_eq(run(&outcome), DUNLIN_STATE);
    site_device_close(&device);
    site_close(&where);
}

/* --- a look-up that hangs --- */

static sem_t entered;
static sem_t let_go;

/* In the place of the C library's, for libcurl too. */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *service,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **out_list)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = NULL;
    if (node != NULL && strcmp(node, "stuck.example") == 0) {
        (void)sem_post(&entered);
        (void)sem_wait(&let_go);
        return EAI_AGAIN;
    }
    *(void **)(void *)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(node, service, hints, out_list);
}

static void *stop_when_stuck(void *ctx)
{
    (void)sem_wait(&entered);
    dunlin_client_stop(ctx);
    return NULL;
}

/* If anything waited for the look-up, this would not end: it is let go only afterwards. */
Test(trust, destroy_does_not_wait_for_a_name, .timeout = 3600)
{
    pthread_t thread;
    dunlin_outcome outcome = DUNLIN_OUTCOME_NONE;
    dunlin_error error = {0};
    cr_assert_eq(sem_init(&entered, 0, 0), 0);
    cr_assert_eq(sem_init(&let_go, 0, 0), 0);
    site_open(&where, TASK);
    site_listen(&where, NULL);
    site_device_make(&device, &where, "store");
    device.shared.connect_timeout_ms = 3600000;
    device.options.server_url = "https://stuck.example";
    cr_assert_eq(dunlin_runtime_create(&device.shared, &device.runtime, &error), DUNLIN_OK);
    cr_assert_eq(
        dunlin_client_create(device.runtime, &device.options, &device.plug, &device.client, &error),
        DUNLIN_OK, "%s", error.text);
    cr_assert_eq(pthread_create(&thread, NULL, stop_when_stuck, device.client), 0);
    cr_expect_eq(run(&outcome), DUNLIN_OK);
    cr_expect_eq(outcome, DUNLIN_OUTCOME_STOPPED);
    (void)pthread_join(thread, NULL);
    site_device_close(&device);
    site_close(&where);
    (void)sem_post(&let_go);
}

/* --- the app's floor --- */

Test(trust, below_the_apps_floor, .timeout = 3600)
{
    dunlin_outcome outcome = DUNLIN_OUTCOME_NONE;
    site_open(&where, TASK); /* which clips to 2 */
    site_listen(&where, NULL);
    site_device_make(&device, &where, "store");
    device.options.max_update_norm = 1.0F;
    site_device_open(&device);
    cr_expect_eq(run(&outcome), DUNLIN_LIMIT);
    cr_expect_not_null(strstr(dunlin_client_last_error(device.client)->text, "at most 1"), "%s",
                       dunlin_client_last_error(device.client)->text);
    cr_expect_eq(device.learner.n_fits, 0);
    site_device_close(&device);
    fake_folder_remove(device.store);
    site_device_make(&device, &where, "store");
    device.options.max_update_norm = 2.0F;
    site_device_open(&device);
    cr_expect_eq(run(&outcome), DUNLIN_OK, "%s", dunlin_client_last_error(device.client)->text);
    cr_expect_eq(outcome, DUNLIN_OUTCOME_ACCEPTED);
    site_device_close(&device);
    site_close(&where);
}

#define WHOLE_WEIGHTS "\"update_form\": \"weights\", \"plan\": {\"clip_norm\": 0.5}"

/* Tasks that the server is free to give, and the floor forbids, however low the bound they name. */
Test(trust, not_clipped_at_all, .timeout = 3600)
{
    static const char *const FORMS[] = {
        "\"plan\": {}", "\"update_form\": \"weights\", \"plan\": {}", WHOLE_WEIGHTS};
    for (size_t i = 0; i < sizeof FORMS / sizeof FORMS[0]; i++) {
        char task[512];
        dunlin_outcome outcome = DUNLIN_OUTCOME_NONE;
        (void)snprintf(task, sizeof task,
                       "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 1000, "
                       "\"cohort\": 1, \"over_select\": 50, \"deadline_s\": 36000, %s, "
                       "\"tensors\": [{\"name\": \"weights\", \"shape\": [64]}]}",
                       FORMS[i]);
        site_open(&where, task);
        site_listen(&where, NULL);
        site_device_make(&device, &where, "store");
        device.options.max_update_norm = 1000.0F;
        site_device_open(&device);
        cr_expect_eq(run(&outcome), DUNLIN_LIMIT, "%s: %s", FORMS[i],
                     dunlin_client_last_error(device.client)->text);
        cr_expect_not_null(strstr(dunlin_client_last_error(device.client)->text, "at most 1000"),
                           "%s", dunlin_client_last_error(device.client)->text);
        cr_expect_eq(device.learner.n_loads, 0, "%s", FORMS[i]);
        site_device_close(&device);
        fake_folder_remove(device.store);
        site_close(&where);
    }
}
