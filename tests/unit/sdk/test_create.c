/*
 * test_create.c - runtimes and clients: what is refused by name, allocations that fail one after
 * the other, what an idle client costs, many of them.
 */
#include "client/fake_server.h"

#include <criterion/criterion.h>

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define IDLE_CLIENT_BYTES 8192

static int count_descriptors(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder != NULL && readdir(folder) != NULL) {
        n++;
    }
    (void)closedir(folder);
    return n;
}

static void expect_refused(dunlin_runtime *runtime, const dunlin_client_options *options,
                           const dunlin_learner *learner, const char *named)
{
    dunlin_client *client = (dunlin_client *)(void *)&named;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_client_create(runtime, options, learner, &client, &error), DUNLIN_ARGUMENT,
                 "%s", named);
    cr_expect_null(client);
    cr_expect_not_null(strstr(error.text, named), "\"%s\" does not name %s", error.text, named);
}

Test(create, arguments_are_named)
{
    static fake_server server;
    fake_learner learner;
    char folder[64];
    char longer[300];
    uint8_t keys[195] = {4};
    fake_folder_make(folder);
    fake_server_init(&server);
    dunlin_learner plug = fake_learner_make(&learner);
    dunlin_learner_ops ops = *plug.ops;
    dunlin_runtime *runtime = fake_server_runtime(&server, folder, NULL);
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
#define EXPECT(change, named)                                                                      \
    do {                                                                                           \
        dunlin_client_options options = fake_server_client(&server);                               \
        change;                                                                                    \
        expect_refused(runtime, &options, &plug, named);                                           \
    } while (0)
    EXPECT(options.struct_size = 0, "DUNLIN_CLIENT_OPTIONS_INIT");
    EXPECT(options.server_url = NULL, "URL");
    EXPECT(options.server_url = "http://example.org", "http://example.org");
    EXPECT(options.server_url = "https://example.org/path", "https://example.org/path");
    EXPECT(options.population = NULL, "population");
    EXPECT(options.population = "", "population");
    EXPECT(options.population = "a/b", "population");
    EXPECT(options.population = longer, "population");
    EXPECT(options.name = "../x", "name");
    EXPECT(options.enrolment_token = longer, "enrolment_token");
    EXPECT(options.signing_keys = NULL, "signing keys");
    EXPECT(options.n_signing_keys = 0, "signing keys");
    EXPECT(options.n_signing_keys = 3, "signing keys");
#undef EXPECT
    dunlin_client_options options = fake_server_client(&server);
    dunlin_client *client = NULL;
    options.signing_keys = keys;
    cr_expect_eq(dunlin_client_create(runtime, &options, &plug, &client, NULL), DUNLIN_SIGNATURE);
    options = fake_server_client(&server);
    expect_refused(NULL, &options, &plug, "runtime");
    expect_refused(runtime, &options, NULL, "learner");
    ops.save = NULL;
    plug.ops = &ops;
    expect_refused(runtime, &options, &plug, "save");
    dunlin_runtime_destroy(runtime);
    fake_folder_remove(folder);
}

Test(create, runtime_arguments)
{
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    dunlin_runtime *runtime = NULL;
    dunlin_error error = {0};
    cr_expect_eq(dunlin_runtime_create(NULL, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_runtime_create(&options, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "store_folder"));
    options.store_folder = "/proc/no/such";
    options.client_certificate = "/some.pem";
    cr_expect_eq(dunlin_runtime_create(&options, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "client_key"));
    options.client_certificate = NULL;
    cr_expect_eq(dunlin_runtime_create(&options, &runtime, &error), DUNLIN_IO);
    cr_expect_not_null(strstr(error.text, "/proc/no/such"));
    cr_expect_null(runtime);
    dunlin_runtime_destroy(NULL);
    dunlin_client_destroy(NULL);
    dunlin_client_stop(NULL);
    cr_expect_eq(dunlin_client_run_round(NULL, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_client_step(NULL, 0, NULL, NULL, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_client_forget(NULL), DUNLIN_ARGUMENT);
}

/* Hooks that fail the n-th allocation. */
typedef struct failing {
    dunlin_alloc_counter counter;
    int n_left;
} failing;

static void *failing_alloc(void *ctx, size_t bytes, size_t align)
{
    failing *f = ctx;
    return f->n_left-- == 0 ? NULL : f->counter.hooks.alloc_fn(f->counter.hooks.ctx, bytes, align);
}

static void failing_free(void *ctx, void *memory, size_t bytes)
{
    failing *f = ctx;
    f->counter.hooks.free_fn(f->counter.hooks.ctx, memory, bytes);
}

/* Every allocation of making a runtime, a client and a whole round fails once. */
Test(create, the_nth_allocation_fails)
{
    static fake_server server;
    int n_failed = 0;
    bool is_over = false;
    for (int n = 0; !is_over; n++) {
        char folder[64];
        fake_learner learner;
        failing hooks = {.n_left = n};
        dunlin_alloc alloc = {.ctx = &hooks, .alloc_fn = failing_alloc, .free_fn = failing_free};
        dunlin_runtime *runtime = NULL;
        dunlin_client *client = NULL;
        dunlin_error error = {0};
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        dunlin_runtime_options shared = DUNLIN_RUNTIME_OPTIONS_INIT;
        fake_folder_make(folder);
        fake_server_init(&server);
        dunlin_alloc_counter_init(&hooks.counter, NULL);
        dunlin_learner plug = fake_learner_make(&learner);
        dunlin_client_options options = fake_server_client(&server);
        options.enrolment_token = "token";
        shared.store_folder = folder;
        shared.alloc = alloc;
        dunlin_status status = dunlin_runtime_create(&shared, &runtime, &error);
        dunlin_transport *own = runtime != NULL ? runtime->transport : NULL;
        if (status == DUNLIN_OK) {
            status = dunlin_client_create(runtime, &options, &plug, &client, &error);
        }
        if (status == DUNLIN_OK) {
            runtime->transport = &server.base;
            runtime->transport_ops = *server.base.ops;
            status = dunlin_client_run_round(client, &report);
            error = *dunlin_client_last_error(client);
            if (status == DUNLIN_MEMORY) {
                n_failed++;
                cr_expect_eq(error.status, DUNLIN_MEMORY);
                server.deadline_ms = 10; /* what is left of it ends at once: a fresh one follows */
                client->journal.wait_ms = 0;
                status = dunlin_client_run_round(client, &report);
                cr_expect_eq(status, DUNLIN_OK, "allocation %d: %s", n,
                             dunlin_client_last_error(client)->text);
            }
            is_over = status == DUNLIN_OK && hooks.n_left >= 0;
        } else {
            n_failed++;
            cr_expect_eq(status, DUNLIN_MEMORY, "allocation %d: %s", n, error.text);
            cr_expect_eq(error.status, DUNLIN_MEMORY);
        }
        dunlin_client_destroy(client);
        if (runtime != NULL) {
            runtime->transport = own;
            runtime->transport_ops = *own->ops;
        }
        dunlin_runtime_destroy(runtime);
        cr_assert_eq(hooks.counter.now_bytes, 0, "allocation %d leaks", n);
        cr_assert_eq(learner.n_loads, learner.n_unloads);
        cr_assert_str_eq(server.complaint, "", "allocation %d: %s", n, server.complaint);
        fake_folder_remove(folder);
    }
    cr_expect_geq(n_failed, 10);
}

/* A thousand idle clients under a limit of few descriptors, each at most 8 KiB. */
Test(create, idle_clients_are_small)
{
    enum { N = 1000 };
    static fake_server server;
    static dunlin_client *clients[N];
    char folder[64];
    fake_learner learner;
    dunlin_alloc_counter counter;
    fake_folder_make(folder);
    fake_server_init(&server);
    server.has_offer = false;
    dunlin_learner plug = fake_learner_make(&learner);
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_runtime *runtime = fake_server_runtime(&server, folder, &counter.hooks);
    int n_descriptors = count_descriptors();
    uint64_t before = counter.now_bytes;
    for (int i = 0; i < N; i++) {
        char name[32];
        dunlin_client_options options = fake_server_client(&server);
        (void)snprintf(name, sizeof name, "client-%d", i);
        options.name = name;
        options.enrolment_token = "an invitation of a common length";
        cr_assert_eq(dunlin_client_create(runtime, &options, &plug, &clients[i], NULL), DUNLIN_OK);
    }
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    for (int i = 0; i < 3; i++) { /* what a round took is given back */
        cr_assert_eq(dunlin_client_run_round(clients[i], &report), DUNLIN_OK);
        cr_assert_eq(report.outcome, DUNLIN_OUTCOME_NOT_SELECTED);
    }
    uint64_t each = (counter.now_bytes - before) / N;
    (void)fprintf(stderr, "an idle client holds %llu bytes\n", (unsigned long long)each);
    cr_expect_leq(each, IDLE_CLIENT_BYTES);
    cr_expect_eq(count_descriptors(), n_descriptors);
    for (int i = 0; i < N; i++) {
        dunlin_client_destroy(clients[i]);
    }
    cr_expect_eq(counter.now_bytes, before);
    dunlin_runtime_destroy(runtime);
    fake_folder_remove(folder);
}
