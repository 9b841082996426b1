/*
 * select.c - which tables this machine can run, best first. The check covers the operating system's
 * support for the registers too.
 */
#include "kernels/api/integer.h"
#include "kernels/api/kernels.h"

#include <string.h>

#if defined(DUNLIN_HAS_AVX512)
extern const dunlin_kernels dunlin__kernels_avx512;
#endif
#if defined(DUNLIN_HAS_AVX2)
extern const dunlin_kernels dunlin__kernels_avx2;
#endif
#if defined(DUNLIN_HAS_SSE2)
extern const dunlin_kernels dunlin__kernels_sse2;
#endif
#if defined(DUNLIN_HAS_NEON)
extern const dunlin_kernels dunlin__kernels_neon;
#endif
#if defined(DUNLIN_HAS_GENERIC)
extern const dunlin_kernels dunlin__kernels_generic;
#endif

static const dunlin_kernels *const tables[] = {
#if defined(DUNLIN_HAS_AVX512)
    &dunlin__kernels_avx512,
#endif
#if defined(DUNLIN_HAS_AVX2)
    &dunlin__kernels_avx2,
#endif
#if defined(DUNLIN_HAS_SSE2)
    &dunlin__kernels_sse2,
#endif
#if defined(DUNLIN_HAS_NEON)
    &dunlin__kernels_neon,
#endif
#if defined(DUNLIN_HAS_GENERIC)
    &dunlin__kernels_generic,
#endif
};

/* SSE2 and NEON belong to the baseline of their machines, and every machine has the generic set. */
static bool is_usable(const char *isa)
{
#if defined(DUNLIN_HAS_AVX512) || defined(DUNLIN_HAS_AVX2)
    if (strcmp(isa, "avx512") == 0) {
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("fma");
    }
    if (strcmp(isa, "avx2") == 0) {
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    }
#endif
    return isa[0] != '\0';
}

static const dunlin_kernels *usable(int index)
{
    int found = 0;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        if (is_usable(tables[i]->isa) && found++ == index) {
            return tables[i];
        }
    }
    return NULL;
}

const char *dunlin__kernels_isa(int index)
{
    const dunlin_kernels *table = index < 0 ? NULL : usable(index);
    return table == NULL ? NULL : table->isa;
}

/* A set by its own name, or by that of one of its tables of integer kernels. */
static bool is_named(const char *set, const char *isa)
{
    const size_t n = strlen(set);
    return strncmp(set, isa, n) == 0 &&
           (isa[n] == '\0' ||
            (strchr("+-", isa[n]) != NULL && dunlin__int_kernels_select(isa) != NULL));
}

const dunlin_kernels *dunlin__kernels_select(const char *isa)
{
    const dunlin_kernels *table = usable(0);
    if (isa == NULL || isa[0] == '\0') {
        return table;
    }
    for (int i = 1; table != NULL && !is_named(table->isa, isa); i++) {
        table = usable(i);
    }
    return table;
}
