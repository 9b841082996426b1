/*
 * test_versions.c - apps that were compiled with yesterday's or tomorrow's header of the client:
 * a struct that is cut, and one with a member more.
 */
#include "client/fake_server.h"

#include <criterion/criterion.h>

#include <stddef.h>
#include <string.h>

#define FILL 0xAA

/* --- an app's own transport --- */

typedef struct newer_transport_ops {
    dunlin_transport_ops now;
    void (*wish_fn)(dunlin_transport *transport);
} newer_transport_ops;

typedef struct newer_stats {
    dunlin_runtime_stats now;
    uint64_t more;
} newer_stats;

typedef struct newer_reply {
    dunlin_http_reply now;
    uint64_t more;
} newer_reply;

static int n_destroyed;

static dunlin_status no_exchange(dunlin_transport *transport, const dunlin_http_request *request,
                                 dunlin_http_reply *out_reply, dunlin_error *error)
{
    (void)transport;
    (void)request;
    (void)error;
    dunlin_http_reply_begin(out_reply);
    return DUNLIN_UNREACHABLE;
}

static void tell_stats(dunlin_transport *transport, dunlin_runtime_stats *out_stats)
{
    (void)transport;
    cr_expect_eq(out_stats->struct_size, sizeof *out_stats, "the library says what it knows");
    out_stats->n_requests = 7;
    out_stats->body_bytes_received = 9;
}

static void destroyed(dunlin_transport *transport)
{
    (void)transport;
    n_destroyed++;
}

static void wish(dunlin_transport *transport)
{
    (void)transport;
}

static newer_transport_ops make_ops(void)
{
    return (newer_transport_ops){.now = {.struct_size = sizeof(dunlin_transport_ops),
                                         .perform_fn = no_exchange,
                                         .get_stats_fn = tell_stats,
                                         .destroy_fn = destroyed}};
}

/* A runtime over a transport with this table. */
static dunlin_status open_runtime(const newer_transport_ops *ops, const char *folder,
                                  dunlin_runtime **out_runtime, dunlin_error *error)
{
    static dunlin_transport transport;
    dunlin_runtime_options options = DUNLIN_RUNTIME_OPTIONS_INIT;
    transport.ops = ops != NULL ? &ops->now : NULL;
    options.store_folder = folder;
    options.transport = &transport;
    return dunlin_runtime_create(&options, out_runtime, error);
}

Test(versions, the_table_of_a_transport)
{
    char folder[64];
    dunlin_runtime *runtime = NULL;
    dunlin_error error = {0};
    fake_folder_make(folder);
    newer_transport_ops ops = make_ops();
    ops.now.struct_size = sizeof ops;
    cr_assert_eq(open_runtime(&ops, folder, &runtime, &error), DUNLIN_OK, "%s", error.text);
    dunlin_runtime_destroy(runtime);
    cr_expect_eq(n_destroyed, 1);

    ops.wish_fn = wish;
    cr_expect_eq(open_runtime(&ops, folder, &runtime, &error), DUNLIN_VERSION);
    cr_expect_not_null(strstr(error.text, "dunlin_transport_ops"), "%s", error.text);
    ops.now.struct_size = offsetof(dunlin_transport_ops, destroy_fn);
    cr_expect_eq(open_runtime(&ops, folder, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "destroy_fn"), "%s", error.text);
    ops.now.struct_size = 0;
    cr_expect_eq(open_runtime(&ops, folder, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_TRANSPORT_OPS_INIT"), "%s", error.text);
    cr_expect_eq(open_runtime(NULL, folder, &runtime, &error), DUNLIN_ARGUMENT);
    cr_expect_null(runtime);
    cr_expect_eq(n_destroyed, 1, "what was refused stays the app's");
    fake_folder_remove(folder);
}

Test(versions, the_figures_of_a_runtime)
{
    char folder[64];
    dunlin_runtime *runtime = NULL;
    const newer_transport_ops ops = make_ops();
    newer_stats stats;
    fake_folder_make(folder);
    cr_assert_eq(open_runtime(&ops, folder, &runtime, NULL), DUNLIN_OK);
    memset(&stats, FILL, sizeof stats);
    stats.now.struct_size = sizeof stats;
    cr_expect_eq(dunlin_runtime_get_stats(runtime, &stats.now), DUNLIN_OK);
    cr_expect_eq(stats.now.struct_size, sizeof stats);
    cr_expect_eq(stats.now.n_requests, 7);
    cr_expect_eq(stats.now.n_handshakes, 0);
    cr_expect_eq(stats.now.body_bytes_received, 9);
    cr_expect_eq(stats.more, 0, "what the library does not know is zero");

    memset(&stats, FILL, sizeof stats);
    stats.now.struct_size = offsetof(dunlin_runtime_stats, body_bytes_received);
    cr_expect_eq(dunlin_runtime_get_stats(runtime, &stats.now), DUNLIN_OK);
    cr_expect_eq(stats.now.n_requests, 7);
    cr_expect_eq(stats.now.body_bytes_received, 0xAAAAAAAAAAAAAAAAU, "not written beyond its end");
    stats.now.struct_size = 0;
    cr_expect_eq(dunlin_runtime_get_stats(runtime, &stats.now), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_runtime_get_stats(runtime, NULL), DUNLIN_ARGUMENT);
    cr_expect_eq(dunlin_runtime_get_stats(NULL, &stats.now), DUNLIN_ARGUMENT);
    dunlin_runtime_destroy(runtime);
    fake_folder_remove(folder);
}

Test(versions, a_reply_is_emptied_as_far_as_it_goes)
{
    newer_reply reply;
    memset(&reply, FILL, sizeof reply);
    reply.now.struct_size = sizeof reply;
    dunlin_http_reply_begin(&reply.now);
    cr_expect_eq(reply.now.struct_size, sizeof reply);
    cr_expect_eq(reply.now.body_bytes, 0);
    cr_expect_eq(reply.now.retry_after_ms, -1);
    cr_expect_eq(reply.now.error_bytes, 0);
    cr_expect_eq(reply.more, 0);

    memset(&reply, FILL, sizeof reply);
    reply.now.struct_size = offsetof(dunlin_http_reply, error_bytes);
    dunlin_http_reply_begin(&reply.now);
    cr_expect_eq(reply.now.range_total, -1);
    cr_expect_eq(reply.now.error_bytes, 0xAAAAAAAAAAAAAAAAU);
    memset(&reply, FILL, sizeof reply);
    reply.now.struct_size = 0;
    dunlin_http_reply_begin(&reply.now);
    cr_expect_neq(reply.now.retry_after_ms, -1, "it has no size");
}
