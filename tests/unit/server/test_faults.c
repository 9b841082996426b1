/*
 * test_faults.c - fault scripts: what is read, what is refused with its line, which requests are
 * hit.
 */
#include "faults/faults.h"
#include "server/device.h"

#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static dunlin_status read_text(const char *text, dunlin__faults **out_faults, dunlin_error *error)
{
    char path[] = "/tmp/dunlin-faults-XXXXXX";
    dunlin_alloc alloc = dunlin__alloc_or_default(NULL);
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    memset(error, 0, sizeof *error);
    dunlin_status status = dunlin__faults_read(path, &alloc, out_faults, error);
    (void)unlink(path);
    return status;
}

static dunlin__faults *read_good(const char *text)
{
    dunlin__faults *faults = NULL;
    dunlin_error error = {0};
    cr_assert_eq(read_text(text, &faults, &error), DUNLIN_OK, "%s", error.text);
    return faults;
}

Test(faults, a_bad_line_is_refused_with_its_place)
{
    static const struct {
        const char *text;
        const char *says[2];
    } cases[] = {
        {"seed", {":1: seed", "one number"}},
        {"# comment\n\nget 1\n", {":3: get", "CALL WHEN FAULT"}},
        {"fetch 1 lose", {":1: fetch", "no call"}},
        {"accept 0 lose", {":1: 0", "not all"}},
        {"accept 5-3 lose", {":1: 5-3", "not all"}},
        {"accept p:1.5 lose", {":1: p:1.5", "not all"}},
        {"accept every:0 lose", {":1: every:0", "not all"}},
        {"accept 1 explode", {":1: explode", "no fault"}},
        {"accept 1 lose 3", {":1: 3", "nothing is expected"}},
        {"object-get 1 drop-reply", {":1: drop-reply", "wants a value"}},
        {"object-get 1 drop-reply -3", {":1: -3", "from 0"}},
        {"object-get 1 status 200", {":1: 200", "400 to 599"}},
        {"object-get 1 status 503 x", {":1: x", "the wait"}},
        {"commit 1 refuse sadness", {":1: sadness", "no status"}},
        {"commit 1 bad-signature", {":1: bad-signature", "accept alone"}},
        {"object-get 1 replay", {":1: replay", "POST calls"}},
        {"any 1 clock-skew 5", {":1: clock-skew", "POST calls"}},
        {"any 1 lose x y z w v", {":1: x", "nothing is expected"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dunlin__faults *faults = NULL;
        dunlin_error error;
        cr_expect_eq(read_text(cases[i].text, &faults, &error), DUNLIN_ARGUMENT, "%s",
                     cases[i].text);
        cr_expect_null(faults);
        for (int j = 0; j < 2; j++) {
            cr_expect_not_null(strstr(error.text, cases[i].says[j]), "%s: %s", cases[i].text,
                               error.text);
        }
    }
    static char many[8192];
    for (int i = 0; i < 257; i++) {
        (void)strcat(many, "any 1 lose\n");
    }
    dunlin__faults *faults = NULL;
    dunlin_error error;
    cr_expect_eq(read_text(many, &faults, &error), DUNLIN_LIMIT);
    cr_expect_not_null(strstr(error.text, ":257: more than 256"), "%s", error.text);
}

Test(faults, rules_hit_what_they_name)
{
    dunlin__faults *faults = read_good("seed 7\n"
                                       "checkin 2 status 503 1500 # busy\n"
                                       "chunk-put 3-4 drop-request random\n"
                                       "commit every:2 refuse stale-round\n"
                                       "any 5 stall 20\r\n");
    for (uint64_t n = 1; n <= 6; n++) {
        dunlin__script_fault fault = dunlin__faults_next(faults, DUNLIN_CALL_CHECKIN);
        cr_expect_eq(fault.kind, n == 2 ? DUNLIN_FAULT_STATUS
                                        : (n == 5 ? DUNLIN_FAULT_STALL : DUNLIN_FAULT_NONE));
        if (n == 2) {
            cr_expect_eq(fault.amount, 503);
            cr_expect_eq(fault.retry_ms, 1500);
        }
        fault = dunlin__faults_next(faults, DUNLIN_CALL_CHUNK_PUT);
        bool is_cut = n == 3 || n == 4;
        cr_expect_eq(fault.kind, is_cut ? DUNLIN_FAULT_DROP_REQUEST
                                        : (n == 5 ? DUNLIN_FAULT_STALL : DUNLIN_FAULT_NONE));
        cr_expect(!is_cut || dunlin__fault_byte(&fault, 100) < 100);
        fault = dunlin__faults_next(faults, DUNLIN_CALL_COMMIT);
        cr_expect_eq(fault.kind == DUNLIN_FAULT_REFUSE, n % 2 == 0);
        cr_expect(n % 2 != 0 || fault.amount == DUNLIN_V1_STATUS_CODE_STALE_ROUND);
    }
    dunlin__faults_free(faults);
}

Test(faults, chance_is_the_seeds)
{
    dunlin__faults *one = read_good("seed 1\nany p:0.2 drop-reply random\n");
    dunlin__faults *same = read_good("seed 1\nany p:0.2 drop-reply random\n");
    dunlin__faults *other = read_good("seed 2\nany p:0.2 drop-reply random\n");
    int n_hit = 0;
    int n_different = 0;
    for (int i = 0; i < 1000; i++) {
        dunlin__script_fault a = dunlin__faults_next(one, DUNLIN_CALL_OBJECT_GET);
        dunlin__script_fault b = dunlin__faults_next(same, DUNLIN_CALL_OBJECT_GET);
        dunlin__script_fault c = dunlin__faults_next(other, DUNLIN_CALL_OBJECT_GET);
        cr_assert_eq(a.kind, b.kind);
        cr_assert_eq(dunlin__fault_byte(&a, 1000), dunlin__fault_byte(&b, 1000));
        n_hit += a.kind == DUNLIN_FAULT_DROP_REPLY ? 1 : 0;
        n_different += a.kind != c.kind ? 1 : 0;
        /* Requests of other calls change nothing. */
        (void)dunlin__faults_next(same, DUNLIN_CALL_COMMIT);
    }
    cr_expect(n_hit > 150 && n_hit < 250, "%d of 1000", n_hit);
    cr_expect_gt(n_different, 200);
    dunlin__faults_free(one);
    dunlin__faults_free(same);
    dunlin__faults_free(other);
}
