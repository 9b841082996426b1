/*
 * test_paths.c - ways to the server other than straight over IPv4: through a proxy, that may refuse
 * or show a page of its own, and over IPv6.
 */
#include "site.h"
#include "tunnel.h"

#include <criterion/criterion.h>

#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define MODEL_BYTES 400000u
#define TASK                                                                                       \
    "{\"population\": \"phones\", \"task\": \"sum\", \"rounds\": 1000, \"cohort\": 1, "            \
    "\"over_select\": 50, \"deadline_s\": 36000, "                                                 \
    "\"tensors\": [{\"name\": \"weights\", \"shape\": [100000]}]}"

static site where;
static site_device device;

static dunlin_round_report run(dunlin_status wanted)
{
    dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
    const dunlin_status status = dunlin_client_run_round(device.client, &report);
    cr_expect_eq(status, wanted, "%s, not %s: %s", dunlin_status_name(status),
                 dunlin_status_name(wanted), dunlin_client_last_error(device.client)->text);
    return report;
}

static void begin(const char *host)
{
    site_open_at(&where, TASK, host);
    site_listen(&where, NULL);
    site_device_make(&device, &where, "store");
}

static void end(void)
{
    site_device_close(&device);
    site_close(&where);
}

Test(paths, a_round_through_a_proxy, .timeout = 3600)
{
    char url[64];
    begin("127.0.0.1");
    tunnel *proxy = tunnel_open(NULL);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", (unsigned)tunnel_port(proxy));
    device.shared.proxy = url;
    site_device_open(&device);
    const dunlin_round_report report = run(DUNLIN_OK);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    cr_expect_gt(tunnel_requests(proxy), 0);
    cr_expect_geq(tunnel_bytes(proxy), 2 * MODEL_BYTES); /* all of it went through */
    cr_expect_eq(tunnel_readable(proxy), 0);             /* and was TLS to the server */
    end();
    tunnel_close(proxy);
}

/* It keeps us out now, perhaps not later: no reason to give anything up. */
Test(paths, a_proxy_that_refuses_is_tried_again_later, .timeout = 3600)
{
    static const char *const REFUSALS[] = {
        "HTTP/1.1 407 Who Are You\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>log in first</html>"};
    for (size_t i = 0; i < sizeof REFUSALS / sizeof REFUSALS[0]; i++) {
        char url[64];
        begin("127.0.0.1");
        tunnel *proxy = tunnel_open(REFUSALS[i]);
        (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", (unsigned)tunnel_port(proxy));
        device.shared.proxy = url;
        site_device_open(&device);
        dunlin_round_report report = DUNLIN_ROUND_REPORT_INIT;
        const dunlin_status status = dunlin_client_run_round(device.client, &report);
        cr_expect(status == DUNLIN_UNREACHABLE || status == DUNLIN_CLOSED || status == DUNLIN_TLS,
                  "answer %zu: %s", i, dunlin_status_name(status));
        cr_expect_gt(tunnel_requests(proxy), 0);
        cr_expect_eq(site_count(&where).n_requests, 0);
        /* Within an hour, not after a day. */
        const int64_t wait_ms = dunlin_client_wait_ms(device.client);
        cr_expect(wait_ms > 0 && wait_ms <= 3600000, "answer %zu: %lld ms", i, (long long)wait_ms);
        end();
        tunnel_close(proxy);
    }
}

Test(paths, a_proxy_that_is_not_there, .timeout = 3600)
{
    begin("127.0.0.1");
    device.shared.proxy = "http://127.0.0.1:1";
    site_device_open(&device);
    (void)run(DUNLIN_UNREACHABLE);
    cr_expect_eq(site_count(&where).n_requests, 0);
    end();
}

static bool has_ipv6(void)
{
    struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    const bool is_there = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_there;
}

Test(paths, a_round_over_ipv6, .timeout = 3600)
{
    if (!has_ipv6()) {
        cr_skip_test("this machine has no IPv6");
    }
    begin("[::1]");
    site_device_open(&device);
    const dunlin_round_report report = run(DUNLIN_OK);
    cr_expect_eq(report.outcome, DUNLIN_OUTCOME_ACCEPTED);
    end();
}
