/*
 * test_select.c - choosing an instruction set.
 */
#include "checks/buffers.h"

#include <criterion/criterion.h>

#include <stddef.h>
#include <string.h>

Test(select, names_find_their_tables)
{
    cr_assert_not_null(dunlin__kernels_isa(0));
    int n = 0;
    for (; dunlin__kernels_isa(n) != NULL; n++) {
        const char *name = dunlin__kernels_isa(n);
        const dunlin_kernels *kernels = dunlin__kernels_select(name);
        cr_assert_not_null(kernels);
        cr_assert_str_eq(kernels->isa, name);
    }
    cr_assert_null(dunlin__kernels_isa(n + 1));
    cr_assert_null(dunlin__kernels_isa(-1));
}

Test(select, the_best_is_the_default)
{
    const dunlin_kernels *best = dunlin__kernels_select(dunlin__kernels_isa(0));
    cr_assert_eq(dunlin__kernels_select(NULL), best);
    cr_assert_eq(dunlin__kernels_select(""), best);
}

Test(select, unknown_names_find_nothing)
{
    cr_assert_null(dunlin__kernels_select("mmx"));
    cr_assert_null(dunlin__kernels_select("avx"));
    cr_assert_null(dunlin__kernels_select("avx2 "));
}

static void check_complete(const dunlin_kernels *kernels)
{
    const unsigned char *bytes = (const unsigned char *)kernels;
    static const unsigned char zero[sizeof(void (*)(void))];
    for (size_t at = 0; at < sizeof *kernels; at += sizeof zero) {
        cr_assert(memcmp(bytes + at, zero, sizeof zero) != 0, "%s: entry %zu is empty",
                  kernels->isa, at / sizeof zero);
    }
}

Test(select, every_table_is_complete)
{
    each_isa(check_complete);
}
