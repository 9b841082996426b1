/*
 * test_limits.c - what an app may set about the network: another transport, its sockets, bytes,
 * slowness, time; and waiting as the server says.
 */
#include "gnutls_transport.h"
#include "site.h"

#include <criterion/criterion.h>

#include <string.h>

#define MODEL_BYTES 400000u
#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 1000, \"cohort\": 1, "            \
    "\"over_select\": 50, \"deadline_s\": 36000, "                                                 \
    "\"tensors\": [{\"name\": \"weights\", \"shape\": [100000]}]}"

static site where;
static site_device device;

static void begin(const char *faults)
{
    site_open(&where, TASK);
    site_listen(&where, faults);
    site_device_make(&device, &where, "store");
}

static void end(void)
{
    site_device_close(&device);
    site_close(&where);
}

static dunlin_status run(dunlin_round_report *out_report)
{
    *out_report = (dunlin_round_report)DUNLIN_ROUND_REPORT_INIT;
    return dunlin_client_run_round(device.client, out_report);
}

static void expect_accepted(void)
{
    dunlin_round_report report;
    site_device_rest(&device);
    dunlin_status status = run(&report);
    cr_expect_eq(status, DUNLIN_OK, "%s", dunlin_client_last_error(device.client)->text);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "%s",
                 dunlin_outcome_name(report.outcome));
}

/* --- transports --- */

Test(plug, a_round_through_another_transport, .timeout = 3600)
{
    dunlin_runtime_stats stats = DUNLIN_RUNTIME_STATS_INIT;
    begin("object-get 2 drop-reply 1000\nchunk-put 1 drop-request 3000\ncommit 1 lose\n");
    device.shared.transport = gnutls_transport_make(where.ca_file);
    site_device_open(&device);
    dunlin_round_report report;
    dunlin_status status = run(&report);
    cr_expect_eq(status, DUNLIN_OK, "%s", dunlin_client_last_error(device.client)->text);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_eq(site_count(&where).n_faults, 3);
    cr_assert_eq(dunlin_runtime_get_stats(device.runtime, &stats), DUNLIN_OK);
    cr_expect_eq(stats.n_requests, site_count(&where).n_requests, "not all went through it");
    cr_expect_eq(report.body_bytes_received, stats.body_bytes_received);
    cr_expect_lt(report.body_bytes_received, MODEL_BYTES + 5000, "the cut chunk came whole again");
    end();
}

/* One that answers all with what no server of ours says. */
typedef struct liar {
    dunlin_transport base;
    int32_t status;
    bool is_server;
    bool is_encoded;
    uint64_t body_bytes;
    int n_destroyed;
} liar;

static dunlin_status lie(dunlin_transport *base, const dunlin_http_request *request,
                         dunlin_http_reply *out_reply, dunlin_error *error)
{
    const liar *from = (const liar *)(void *)base;
    (void)request;
    (void)error;
    dunlin_http_reply_begin(out_reply);
    out_reply->status = from->status;
    out_reply->is_server = from->is_server;
    out_reply->is_encoded = from->is_encoded;
    out_reply->body_bytes = from->body_bytes;
    return DUNLIN_OK;
}

static void no_stats(dunlin_transport *base, dunlin_runtime_stats *out_stats)
{
    (void)base;
    (void)out_stats;
}

static void count_destroyed(dunlin_transport *base)
{
    ((liar *)(void *)base)->n_destroyed++;
}

Test(plug, a_transport_is_not_trusted_with_more_than_it_must, .timeout = 3600)
{
    static const dunlin_transport_ops ops = {.struct_size = sizeof ops,
                                             .perform_fn = lie,
                                             .get_stats_fn = no_stats,
                                             .destroy_fn = count_destroyed};
    static const struct {
        liar from;
        dunlin_status wanted;
        const char *says;
    } cases[] = {
        {{.status = 200, .is_server = false}, DUNLIN_UNREACHABLE, "login page"},
        {{.status = 511, .is_server = false}, DUNLIN_UNREACHABLE, "login page"},
        {{.status = 302, .is_server = false}, DUNLIN_UNREACHABLE, "login page"},
        {{.status = 302, .is_server = true}, DUNLIN_PROTOCOL, "302, which is refused"},
        {{.status = 99, .is_server = true}, DUNLIN_PROTOCOL, "99, which is refused"},
        {{.status = 200, .is_server = true, .is_encoded = true}, DUNLIN_PROTOCOL, "encoding"},
        {{.status = 200, .is_server = true, .body_bytes = 1 << 20}, DUNLIN_LIMIT, "longer than"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        liar from = cases[i].from;
        dunlin_round_report report;
        begin(NULL);
        from.base.ops = &ops;
        device.shared.transport = &from.base;
        site_device_open(&device);
        cr_expect_eq(run(&report), cases[i].wanted);
        const char *text = dunlin_client_last_error(device.client)->text;
        cr_expect_not_null(strstr(text, cases[i].says), "%zu: %s", i, text);
        end();
        cr_expect_eq(from.n_destroyed, 1);
    }
}

typedef struct socket_rule {
    int n_seen;
    bool allows;
} socket_rule;

static bool judge_socket(void *ctx, int fd)
{
    socket_rule *rule = ctx;
    rule->n_seen += fd >= 0 ? 1 : 0;
    return rule->allows;
}

Test(plug, the_app_sees_each_socket, .timeout = 3600)
{
    socket_rule rule = {.allows = false};
    dunlin_round_report report;
    begin(NULL);
    device.shared.socket_fn = judge_socket;
    device.shared.socket_ctx = &rule;
    site_device_open(&device);
    cr_expect_eq(run(&report), DUNLIN_UNREACHABLE);
    cr_expect_not_null(strstr(dunlin_client_last_error(device.client)->text, "the app refuses"),
                       "%s", dunlin_client_last_error(device.client)->text);
    cr_expect_eq(site_count(&where).n_requests, 0);
    int n_refused = rule.n_seen;
    cr_expect_geq(n_refused, 1);
    rule.allows = true;
    expect_accepted();
    cr_expect_eq(rule.n_seen, n_refused + 1);
    end();
}

/* --- bytes --- */

Test(limits, bytes_down_are_a_hard_line, .timeout = 3600)
{
    dunlin_round_report report;
    begin("object-get all wrong-digest\n"); /* each try fetches the chunk anew, in vain */
    device.options.max_download_bytes = 2 * MODEL_BYTES;
    site_device_open(&device);
    dunlin_status status = DUNLIN_OK;
    for (int i = 0; i < 10 && status != DUNLIN_LIMIT; i++) {
        status = run(&report);
        site_device_rest(&device);
    }
    /* The manifest is wrong as well, and asked for in each try: a few of them fit. */
    cr_expect(status == DUNLIN_LIMIT || status == DUNLIN_DIGEST, "%s", dunlin_status_name(status));
    cr_expect_leq(site_count(&where).bytes_down, device.options.max_download_bytes + 16384);
    end();
}

Test(limits, a_chunk_that_is_always_wrong_stops_at_the_line, .timeout = 3600)
{
    dunlin_round_report report;
    begin("object-get 2-1000 wrong-digest\n");
    device.options.max_download_bytes = MODEL_BYTES + 500000;
    site_device_open(&device);
    cr_expect_eq(run(&report), DUNLIN_LIMIT, "%s", dunlin_client_last_error(device.client)->text);
    cr_expect_leq(report.body_bytes_received, device.options.max_download_bytes);
    cr_expect_gt(report.body_bytes_received, MODEL_BYTES, "it was tried more than once");
    end();
}

Test(limits, bytes_up_are_a_hard_line, .timeout = 3600)
{
    dunlin_round_report report;
    begin("chunk-put all refuse digest-mismatch\n"); /* to be sent again, all of it */
    device.options.max_upload_bytes = MODEL_BYTES + 300000;
    site_device_open(&device);
    cr_expect_eq(run(&report), DUNLIN_LIMIT, "%s", dunlin_client_last_error(device.client)->text);
    cr_expect_leq(report.body_bytes_sent, device.options.max_upload_bytes);
    cr_expect_gt(report.body_bytes_sent, MODEL_BYTES, "it was tried more than once");
    site_device_close(&device);
    fake_folder_remove(device.store);
    site_listen(&where, NULL);
    site_device_make(&device, &where, "store");
    device.options.max_upload_bytes = MODEL_BYTES - 1;
    site_device_open(&device);
    cr_expect_eq(run(&report), DUNLIN_OK);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_DECLINED, "what is known before is declined");
    end();
}

/* --- time --- */

Test(limits, a_stalled_server_is_left, .timeout = 3600)
{
    begin("commit 1 stall 3600000\n");
    device.shared.request_timeout_ms = 1000; /* of libcurl's speed over the last five seconds */
    site_device_open(&device);
    expect_accepted(); /* by asking again */
    cr_expect_eq(site_count(&where).n_faults, 1);
    end();
}

Test(limits, a_crawling_server_is_left, .timeout = 3600)
{
    dunlin_round_report report;
    begin("object-get 2 slow 20000\n");
    device.shared.request_timeout_ms = 1000;
    device.shared.least_bytes_per_s = 200000;
    site_device_open(&device);
    cr_expect_eq(run(&report), DUNLIN_OK);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED, "what came of the first try is kept");
    cr_expect_lt(report.body_bytes_received, MODEL_BYTES + 5000);
    cr_expect_eq(site_count(&where).n_faults, 1);
    end();
}

Test(limits, a_phase_has_its_time, .timeout = 3600)
{
    dunlin_round_report report;
    begin("object-get 2-3 slow 100000\n");
    device.options.phase_timeout_ms = 700;
    site_device_open(&device);
    cr_expect_eq(run(&report), DUNLIN_TIMEOUT);
    cr_expect_eq(report.phase, DUNLIN_PHASE_FETCH);
    cr_expect_gt(dunlin_client_wait_ms(device.client), 0);
    site_device_rest(&device); /* the round is paused, and resumes with what is there */
    site_device_close(&device);
    site_listen(&where, NULL);
    site_device_open(&device);
    expect_accepted();
    end();
}

Test(limits, busy_servers_are_asked_again_when_they_say, .timeout = 3600)
{
    begin("checkin 1-2 status 503 2000\nput 1 status 503 7000\n");
    site_device_open(&device);
    int64_t before_ms = device.skipped_ms;
    expect_accepted();
    cr_expect_geq(device.skipped_ms - before_ms, 11000, "as Retry-After says");
    cr_expect_lt(device.skipped_ms - before_ms, 20000);
    end();
}
