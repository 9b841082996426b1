/*
 * test_parts.c - small parts: which URLs may be talked to, the stages of an update.
 */
#include "transfer/update_stages.h"
#include "transport/transport.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

Test(url, taken_and_refused)
{
    static const struct {
        const char *url;
        bool allow_plain;
        bool is_taken;
    } CASES[] = {
        {"https://example.org", false, true},
        {"https://example.org:8443/", false, true},
        {"https://[2001:db8::1]:8443", false, true},
        {"https://127.0.0.1", false, true},
        {"http://127.0.0.1:8080", true, true},
        {"http://[::1]:8080", true, true},
        {"http://localhost:8080", true, true},
        {"http://127.0.0.1:8080", false, false},
        {"http://example.org", true, false},
        {"http://127.0.0.1.example.org", true, false},
        {"http://127.0.0.1@example.org", true, false},
        {"http://localhost.example.org", true, false},
        {"http://[::1].example.org", true, false},
        {"http://[::1", true, false},
        {"https://example.org:", false, false},
        {"https://example.org:84x3", false, false},
        {"https://example.org:123456", false, false},
        {"https://[::1]8443", false, false},
        {"http://", true, false},
        {"https://", false, false},
        {"https:///path", false, false},
        {"https://user@example.org", false, false},
        {"https://user:secret@example.org", false, false},
        {"https://example.org/?q", false, false},
        {"https://example.org/#f", false, false},
        {"https://example.org\\@other.org", false, false},
        {"https://example.org\r\nHost: other", false, false},
        {"https://exam ple.org", false, false},
        {"ftp://example.org", true, false},
        {"HTTPS://example.org", false, false},
        {"file:///etc/passwd", true, false},
        {"", true, false},
        {NULL, true, false},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        dunlin_error error = {0};
        dunlin_status status = dunlin__url_check(CASES[i].url, CASES[i].allow_plain, &error);
        cr_expect_eq(status, CASES[i].is_taken ? DUNLIN_OK : DUNLIN_ARGUMENT, "case %zu: %s", i,
                     CASES[i].url);
        cr_expect_eq(error.text[0] == '\0', CASES[i].is_taken);
    }
    char longer[3000];
    memset(longer, 'a', sizeof longer);
    memcpy(longer, "https://", 8);
    longer[sizeof longer - 1] = '\0';
    cr_expect_eq(dunlin__url_check(longer, false, NULL), DUNLIN_ARGUMENT);
}

static double norm_after(float *values, size_t n, double clip_norm, size_t n_blocks)
{
    dunlin__clip_stage state;
    dunlin__update_stage stage = dunlin__clip_stage_make(&state, clip_norm);
    size_t block = n / n_blocks;
    for (size_t i = 0; i < n; i += block) {
        stage.survey_fn(stage.ctx, values + i, block);
    }
    double sum = 0.0;
    for (size_t i = 0; i < n; i += block) {
        stage.apply_fn(stage.ctx, values + i, block);
    }
    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    return sqrt(sum);
}

Test(update_stages, clip)
{
    float three_four[] = {3.0F, 4.0F};
    cr_expect_float_eq(norm_after(three_four, 2, 1.0, 1), 1.0, 1e-6);
    cr_expect_float_eq(three_four[0], 0.6F, 1e-6F);
    cr_expect_float_eq(three_four[1], 0.8F, 1e-6F);
    float small[] = {3.0F, 4.0F};
    (void)norm_after(small, 2, 5.0, 2); /* at the bound: not a bit changes */
    cr_expect_float_eq(small[0], 3.0F, 0);
    cr_expect_float_eq(small[1], 4.0F, 0);
    float zeros[4] = {0};
    cr_expect_float_eq(norm_after(zeros, 4, 1.0, 2), 0.0, 0);
    float huge[] = {1e38F, 1e38F, -1e38F, 1e38F}; /* squares beyond a float's range */
    cr_expect_float_eq(norm_after(huge, 4, 2.0, 2), 2.0, 1e-5);
}
