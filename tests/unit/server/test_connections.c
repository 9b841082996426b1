/*
 * test_connections.c - which connection is closed when there are too many, or when one takes too
 * long; and that the log cannot be flooded.
 */
#include "base/log.h"
#include "http/connections.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <poll.h>
#include <stdint.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { N_MOST = 16 };

typedef struct fixture {
    dunlin_alloc alloc;
    dunlin__connections *all;
    dunlin__connection *ones[N_MOST];
    int ours[N_MOST];
    int theirs[N_MOST];
    int n;
} fixture;

static void begin(fixture *have, uint32_t limit, const dunlin__connection_limits *limits)
{
    *have = (fixture){.alloc = dunlin__alloc_or_default(NULL)};
    have->all = dunlin__connections_open(limit, limits, &have->alloc);
    cr_assert_not_null(have->all);
}

/* Opens one more from the machine with this number; 0: a proxy. */
static int add(fixture *have, uint8_t machine)
{
    const uint8_t peer[16] = {[15] = machine};
    int pair[2];
    int i = have->n++;
    cr_assert_lt(i, N_MOST);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    have->ours[i] = pair[0];
    have->theirs[i] = pair[1];
    have->ones[i] = dunlin__connections_add(have->all, pair[0], machine != 0 ? peer : NULL);
    cr_assert_not_null(have->ones[i]);
    return i;
}

/* True if the server has shut the connection down, within so many ms. */
static bool is_gone(const fixture *have, int i, int wait_ms)
{
    struct pollfd what = {.fd = have->theirs[i], .events = POLLIN};
    return poll(&what, 1, wait_ms) == 1 && (what.revents & (POLLIN | POLLHUP)) != 0;
}

static void serve(fixture *have, int i, bool is_good)
{
    dunlin__connection_begun(have->all, have->ones[i]);
    dunlin__connection_headed(have->all, have->ones[i]);
    dunlin__connection_answered(have->all, have->ones[i], 10);
    dunlin__connection_ended(have->all, have->ones[i], is_good);
}

static void end(fixture *have)
{
    for (int i = 0; i < have->n; i++) {
        dunlin__connections_remove(have->all, have->ones[i]);
        (void)close(have->ours[i]);
        (void)close(have->theirs[i]);
    }
    dunlin__connections_close(have->all);
}

static void pause_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000L};
    (void)nanosleep(&pause, NULL);
}

Test(connections, the_oldest_that_has_shown_nothing_goes_first)
{
    const dunlin__connection_limits none = {0};
    fixture have;
    begin(&have, 4, &none);
    for (uint8_t machine = 1; machine <= 4; machine++) {
        (void)add(&have, machine);
    }
    serve(&have, 0, true);
    serve(&have, 1, false); /* refused: that shows nothing */
    (void)add(&have, 5);
    cr_expect(is_gone(&have, 1, 1000));
    (void)add(&have, 6);
    cr_expect(is_gone(&have, 2, 1000));
    cr_expect(!is_gone(&have, 0, 0), "the one that works stays");
    for (int i = 3; i < 6; i++) {
        serve(&have, i, true);
    }
    dunlin__connection_begun(have.all, have.ones[0]);
    (void)add(&have, 7); /* all have shown something: the one that is idle longest */
    cr_expect(is_gone(&have, 3, 1000));
    cr_expect(!is_gone(&have, 0, 0) && !is_gone(&have, 4, 0) && !is_gone(&have, 5, 0));
    end(&have);
}

Test(connections, a_peer_has_three_quarters_and_pays_for_more_itself)
{
    const dunlin__connection_limits none = {0};
    fixture have;
    begin(&have, 8, &none);
    int other = add(&have, 2);
    for (int i = 0; i < 6; i++) {
        (void)add(&have, 1);
    }
    for (int i = 0; i <= 6; i++) {
        cr_expect(!is_gone(&have, i, 0), "%d", i);
    }
    (void)add(&have, 1);
    cr_expect(is_gone(&have, 1, 1000), "its own oldest");
    cr_expect(!is_gone(&have, other, 0), "the other machine's is older, and stays");
    end(&have);
    begin(&have, 8, &none);
    for (int i = 0; i < 8; i++) {
        (void)add(&have, 0);
    }
    for (int i = 0; i < 8; i++) {
        cr_expect(!is_gone(&have, i, 0), "a proxy has them all");
    }
    end(&have);
}

/* Silence, headers that drip, a body that drips, a reply that is not read: each ends in its time.
 */
Test(connections, what_takes_too_long_ends, .timeout = 30)
{
    const dunlin__connection_limits limits = {
        .handshake_ms = 400, .request_ms = 1500, .idle_ms = 2000, .least_rate = 1000};
    fixture have;
    begin(&have, 16, &limits);
    int silent = add(&have, 1);
    int headers = add(&have, 1);
    int body = add(&have, 1);
    int reply = add(&have, 1);
    int idle = add(&have, 1);
    int quick = add(&have, 1);
    dunlin__connection_begun(have.all, have.ones[headers]);
    dunlin__connection_headed(have.all, have.ones[body]);
    dunlin__connection_headed(have.all, have.ones[quick]);
    dunlin__connection_answered(have.all, have.ones[reply], 100);
    serve(&have, idle, true);
    for (int i = 0; i < 9; i++) { /* a byte now and then gains next to nothing; 200 do */
        pause_ms(100);
        dunlin__connection_moved(have.all, have.ones[body], 1);
        dunlin__connection_moved(have.all, have.ones[quick], 1000);
    }
    cr_expect(is_gone(&have, silent, 0));
    cr_expect(is_gone(&have, headers, 0));
    cr_expect(!is_gone(&have, body, 0) && !is_gone(&have, reply, 0), "a request has longer");
    cr_expect(!is_gone(&have, idle, 0));
    cr_expect(is_gone(&have, body, 3000));
    cr_expect(is_gone(&have, reply, 3000));
    cr_expect(!is_gone(&have, quick, 0), "one that moves goes on");
    cr_expect(is_gone(&have, idle, 3000), "between requests it has longer, not for ever");
    end(&have);
}

Test(log, a_flood_of_lines_is_cut_and_told)
{
    uint64_t n_dropped = 0;
    int64_t now_ms = 1000000000;
    int n_out = 0;
    for (int i = 0; i < 5000; i++) {
        n_out += dunlin__server_log_may(true, now_ms, &n_dropped) ? 1 : 0;
    }
    cr_expect_eq(n_out, 1000);
    cr_expect(dunlin__server_log_may(true, now_ms + 1000, &n_dropped));
    cr_expect_eq(n_dropped, 4000);
    n_out = 1;
    for (int i = 0; i < 5000; i++) {
        n_out += dunlin__server_log_may(true, now_ms + 1000, &n_dropped) ? 1 : 0;
    }
    cr_expect_eq(n_out, 50);
    /* What devices cause does not keep the server's own lines back. */
    cr_expect(!dunlin__server_log_may(true, now_ms + 1000, &n_dropped));
    cr_expect(dunlin__server_log_may(false, now_ms + 1000, &n_dropped));
    cr_expect_eq(n_dropped, 0);
}
