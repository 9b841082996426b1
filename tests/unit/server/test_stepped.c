/*
 * test_stepped.c - the server's time as lines: what is a moment, and what ends the server.
 */
#include <criterion/criterion.h>

#include <stepped.h>
#include <string.h>
#include <unistd.h>

Test(stepped, only_moments_that_do_not_go_back)
{
    static const char *const WRONG[] = {"",
                                        "x",
                                        "5 ",
                                        "-5",
                                        "+5",
                                        " 5",
                                        "5.0",
                                        "99",
                                        "0x9",
                                        "253402300800000",
                                        "99999999999999999999999"};
    int64_t ms = 0;
    cr_expect(stepped_parse("100", 100, &ms));
    cr_expect_eq(ms, 100);
    cr_expect(stepped_parse("253402300799999", 100, &ms));
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        cr_expect(!stepped_parse(WRONG[i], 100, &ms), "%s", WRONG[i]);
    }
}

/* What attending to such an input ends with; no moment is reached, so no server is needed. */
static dunlin_status attend_to(const char *text, dunlin_error *error)
{
    int ends[2];
    sigset_t none;
    stepped time = {.out = stderr};
    (void)sigemptyset(&none);
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(write(ends[1], text, strlen(text)), (ssize_t)strlen(text));
    (void)close(ends[1]);
    time.fd = ends[0];
    atomic_init(&time.now_ms, 1000);
    memset(error, 0, sizeof *error);
    const dunlin_status status = stepped_attend(&time, NULL, &none, error);
    (void)close(ends[0]);
    return status;
}

Test(stepped, the_end_of_the_input_ends_the_server)
{
    dunlin_error error;
    cr_expect_eq(attend_to("", &error), DUNLIN_OK);
    cr_expect_eq(attend_to("12", &error), DUNLIN_OK, "half a line is none");
}

Test(stepped, what_is_no_moment_ends_it_with_a_word)
{
    dunlin_error error;
    char longer[100];
    cr_expect_eq(attend_to("999\n", &error), DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text, "last one: 999"), "%s", error.text);
    cr_expect_eq(attend_to("soon\n", &error), DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text, "soon"), "%s", error.text);
    /* A number of a moment begins at 1; without one, or with another word, it is none either. */
    static const char *const WRONG[] = {"keep\n",    "keep 0\n",    "keep x\n", "keep 1 2\n",
                                        "keeps 1\n", "settle -1\n", "settle\n", " keep 1\n"};
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        cr_expect_eq(attend_to(WRONG[i], &error), DUNLIN_DATA, "%s", WRONG[i]);
    }
    memset(longer, '1', sizeof longer);
    longer[99] = '\0';
    cr_expect_eq(attend_to(longer, &error), DUNLIN_DATA);
    cr_expect_not_null(strstr(error.text, "62 bytes"), "%s", error.text);
}
