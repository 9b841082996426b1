/*
 * test_names.c - the index of names against a linear search.
 */
#include "random.h"

#include <criterion/criterion.h>

#include <net/names.h>
#include <stdio.h>
#include <string.h>

#define N 300

Test(names, finds_what_a_linear_search_finds)
{
    uint64_t seed = test_seed(1);
    uint64_t state = seed;
    static char texts[N][8];
    static dunlin_name names[N];
    for (int round = 0; round < test_cases(50); round++) {
        size_t n = (size_t)test_random_below(&state, N + 1);
        uint64_t range = 1 + test_random_below(&state, 2 * N);
        for (size_t i = 0; i < n; i++) {
            (void)snprintf(texts[i], sizeof texts[i], "%llu",
                           (unsigned long long)test_random_below(&state, range));
            names[i] = (dunlin_name){texts[i], (uint32_t)i};
        }
        dunlin__names_sort(names, n);
        bool has_duplicate = false;
        for (size_t i = 0; i + 1 < n; i++) {
            int order = strcmp(names[i].text, names[i + 1].text);
            cr_assert(order < 0 || (order == 0 && names[i].index < names[i + 1].index), "seed %llu",
                      (unsigned long long)seed);
            has_duplicate = has_duplicate || order == 0;
        }
        cr_assert_eq(dunlin__names_duplicate(names, n) != NULL, has_duplicate);
        for (uint64_t wanted = 0; wanted < range; wanted++) {
            char text[24];
            (void)snprintf(text, sizeof text, "%llu", (unsigned long long)wanted);
            uint32_t first = UINT32_MAX;
            for (uint32_t i = 0; i < n && first == UINT32_MAX; i++) {
                first = strcmp(texts[i], text) == 0 ? i : first;
            }
            const dunlin_name *found = dunlin__names_find(names, n, text);
            cr_assert_eq(found == NULL, first == UINT32_MAX, "seed %llu", (unsigned long long)seed);
            cr_assert(found == NULL || found->index == first);
        }
    }
}
