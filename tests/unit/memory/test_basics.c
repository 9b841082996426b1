/*
 * test_basics.c - the status table, sizes, counting allocator, error details, shapes.
 */
#include <dunlin/alloc.h>
#include <dunlin/tensor.h>
#include <mem/checked.h>
#include <mem/support.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

static const int numbers[] = {
#define NUMBER(name, number, text) number,
    DUNLIN_STATUS_MAP(NUMBER)
#undef NUMBER
};
#define N_STATUSES (sizeof numbers / sizeof numbers[0])

Test(basics, statuses_have_numbers_names_and_texts_of_their_own)
{
    cr_assert_eq(DUNLIN_OK, 0);
    for (size_t i = 0; i < N_STATUSES; i++) {
        cr_assert(i == 0 || numbers[i] < 0);
        const char *name = dunlin_status_name((dunlin_status)numbers[i]);
        cr_assert_str_neq(name, "UNKNOWN");
        cr_assert_gt(strlen(dunlin_status_text((dunlin_status)numbers[i])), 1);
        for (size_t j = 0; j < i; j++) {
            cr_assert_neq(numbers[i], numbers[j]);
            cr_assert_str_neq(name, dunlin_status_name((dunlin_status)numbers[j]));
        }
    }
    cr_assert_str_eq(dunlin_status_name(DUNLIN_BUDGET), "BUDGET");
    cr_assert_str_eq(dunlin_status_name((dunlin_status)-9999), "UNKNOWN");
    cr_assert_str_eq(dunlin_status_text((dunlin_status)7), "unknown status");
}

Test(basics, version_agrees_with_its_text)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%d.%d.%d", dunlin_version() / 10000,
                   dunlin_version() / 100 % 100, dunlin_version() % 100);
    cr_assert_str_eq(text, dunlin_version_string());
}

Test(basics, sizes_do_not_wrap)
{
    uint64_t out = 7;
    size_t size = 7;
    int64_t wide = 7;
    cr_assert(dunlin__add_u64(UINT64_MAX - 1, 1, &out));
    cr_assert_eq(out, UINT64_MAX);
    cr_assert_not(dunlin__add_u64(UINT64_MAX, 1, &out));
    cr_assert(dunlin__mul_u64(UINT64_C(1) << 31, UINT64_C(1) << 32, &out));
    cr_assert_eq(out, UINT64_C(1) << 63);
    cr_assert_not(dunlin__mul_u64(UINT64_C(1) << 32, UINT64_C(1) << 32, &out));
    cr_assert_not(dunlin__add_size(SIZE_MAX, 1, &size));
    cr_assert_not(dunlin__mul_size(SIZE_MAX / 2, 3, &size));
    cr_assert_not(dunlin__mul_i64(INT64_MAX, 2, &wide));
    cr_assert(dunlin__mul_i64(-3, 5, &wide));
    cr_assert_eq(wide, -15);
    cr_assert(dunlin__align_u64(0, 64, &out));
    cr_assert_eq(out, 0);
    cr_assert(dunlin__align_u64(1, 64, &out));
    cr_assert_eq(out, 64);
    cr_assert(dunlin__align_u64(64, 64, &out));
    cr_assert_eq(out, 64);
    cr_assert_not(dunlin__align_u64(UINT64_MAX - 62, 64, &out));
}

Test(basics, the_counter_counts_and_limits)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    void *a = dunlin__alloc_array(&counter.hooks, 10, 10);
    void *b = dunlin__alloc_zeroed(&counter.hooks, 50, 1);
    cr_assert_not_null(a);
    cr_assert_not_null(b);
    cr_assert_eq((uintptr_t)a % 64, 0);
    cr_assert_eq(((unsigned char *)b)[49], 0);
    cr_assert_eq(counter.now_bytes, 150);
    dunlin__free_array(&counter.hooks, a, 10, 10);
    cr_assert_eq(counter.now_bytes, 50);
    cr_assert_eq(counter.peak_bytes, 150);
    counter.limit_bytes = 60;
    cr_assert_null(dunlin__alloc_array(&counter.hooks, 11, 1));
    a = dunlin__alloc_array(&counter.hooks, 10, 1);
    cr_assert_not_null(a);
    cr_assert_null(dunlin__alloc_array(&counter.hooks, SIZE_MAX, 2));
    cr_assert_null(dunlin__alloc_array(&counter.hooks, 0, 8));
    dunlin__free_array(&counter.hooks, a, 10, 1);
    dunlin__free_array(&counter.hooks, b, 50, 1);
    dunlin__free_array(&counter.hooks, NULL, 50, 1);
    cr_assert_eq(counter.now_bytes, 0);
    cr_assert_eq(counter.n_allocs, 3);
    cr_assert_eq(counter.n_frees, 3);
}

Test(basics, arrays_grow_and_keep_their_contents)
{
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    void *array = NULL;
    size_t capacity = 0;
    for (size_t n = 0; n < 100; n++) {
        cr_assert(dunlin__grow_array(&counter.hooks, &array, &capacity, n + 1, sizeof(uint64_t)));
        ((uint64_t *)array)[n] = n * n;
    }
    for (size_t n = 0; n < 100; n++) {
        cr_assert_eq(((uint64_t *)array)[n], n * n);
    }
    counter.limit_bytes = counter.now_bytes;
    cr_assert_not(dunlin__grow_array(&counter.hooks, &array, &capacity, 10000, sizeof(uint64_t)));
    cr_assert_eq(((uint64_t *)array)[99], 9801);
    dunlin__free_array(&counter.hooks, array, capacity, sizeof(uint64_t));
    cr_assert_eq(counter.now_bytes, 0);
}

Test(basics, errors_hold_one_detail_cut_to_fit)
{
    dunlin_error error;
    memset(&error, 0xAA, sizeof error);
    cr_assert_eq(dunlin__fail(&error, DUNLIN_DATA, "idx", 5, "%0300d", 1), DUNLIN_DATA);
    cr_assert_eq(strlen(error.text), DUNLIN_ERROR_TEXT_BYTES - 1);
    cr_assert_eq(error.status, DUNLIN_DATA);
    cr_assert_eq(error.code, 5);
    cr_assert_eq(error.needed_bytes, 0);
    cr_assert_str_eq(error.subsystem, "idx");
    cr_assert_eq(dunlin__fail_budget(&error, "plan", 10, 20), DUNLIN_BUDGET);
    cr_assert_eq(error.needed_bytes, 20);
    cr_assert_not_null(strstr(error.text, "10"));
    cr_assert_not_null(strstr(error.text, "20"));
    cr_assert_eq(dunlin__fail(NULL, DUNLIN_IO, "x", 0, "text"), DUNLIN_IO);
    cr_assert_eq(dunlin__fail_budget(NULL, "plan", 1, 2), DUNLIN_BUDGET);
    dunlin__error_clear(&error);
    cr_assert_eq(error.status, DUNLIN_OK);
}

static void keep_line(void *ctx, dunlin_log_level level, const char *subsystem, const char *text)
{
    (void)snprintf(ctx, 64, "%d %s %s", (int)level, subsystem, text);
}

Test(basics, log_lines_above_the_level_are_not_written)
{
    char line[64] = "";
    dunlin_log log = {.ctx = line, .write_fn = keep_line, .level = DUNLIN_LOG_WARNING};
    dunlin__log(&log, DUNLIN_LOG_INFO, "a", "no");
    cr_assert_str_eq(line, "");
    dunlin__log(&log, DUNLIN_LOG_WARNING, "a", "n = %d", 3);
    cr_assert_str_eq(line, "2 a n = 3");
    dunlin__log(NULL, DUNLIN_LOG_ERROR, "a", "no");
    dunlin__log(&(dunlin_log){.level = DUNLIN_LOG_DEBUG}, DUNLIN_LOG_ERROR, "a", "no");
}

Test(basics, shapes_count_their_elements)
{
    int64_t n = -1;
    dunlin_shape shape = {.n_dims = 3, .dims = {2, 3, 4}};
    cr_assert_eq(dunlin_shape_count(&shape, &n), DUNLIN_OK);
    cr_assert_eq(n, 24);
    shape.n_dims = 0;
    cr_assert_eq(dunlin_shape_count(&shape, &n), DUNLIN_OK);
    cr_assert_eq(n, 1);
    shape = (dunlin_shape){.n_dims = 2, .dims = {INT64_MAX, 2}};
    cr_assert_eq(dunlin_shape_count(&shape, &n), DUNLIN_OVERFLOW);
    shape = (dunlin_shape){.n_dims = 2, .dims = {4, -1}};
    cr_assert_eq(dunlin_shape_count(&shape, &n), DUNLIN_ARGUMENT);
    shape.n_dims = DUNLIN_MAX_DIMS + 1;
    cr_assert_eq(dunlin_shape_count(&shape, &n), DUNLIN_ARGUMENT);
    cr_assert_eq(dunlin_dtype_bytes(DUNLIN_F32), 4);
    cr_assert_eq(dunlin_dtype_bytes(DUNLIN_U8), 1);
    cr_assert_eq(dunlin_dtype_bytes(DUNLIN_I64), 8);
    cr_assert_eq(dunlin_dtype_bytes(DUNLIN_F16), 2);
    cr_assert_eq(dunlin_dtype_bytes(DUNLIN_I8), 1);
    cr_assert_eq(dunlin_dtype_bytes((dunlin_dtype)77), 0);
}
