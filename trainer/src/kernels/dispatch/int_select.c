/*
 * int_select.c - which tables of integer kernels this machine can run, best first. Whether it has
 * dot products of int8 is asked here; the rest of a set is what select.c says of it.
 */
#include "kernels/api/integer.h"
#include "kernels/api/kernels.h"

#include <mem/platform.h>

#include <string.h>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#if defined(DUNLIN_HAS_INT_AVX512_VNNI)
extern const dunlin_int_kernels dunlin__int_kernels_avx512_vnni;
#endif
#if defined(DUNLIN_HAS_INT_AVX512)
extern const dunlin_int_kernels dunlin__int_kernels_avx512;
#endif
#if defined(DUNLIN_HAS_INT_AVX2_VNNI)
extern const dunlin_int_kernels dunlin__int_kernels_avx2_vnni;
#endif
#if defined(DUNLIN_HAS_INT_AVX2)
extern const dunlin_int_kernels dunlin__int_kernels_avx2;
#endif
#if defined(DUNLIN_HAS_INT_SSE2)
extern const dunlin_int_kernels dunlin__int_kernels_sse2;
#endif
#if defined(DUNLIN_HAS_INT_NEON_DOTPROD)
extern const dunlin_int_kernels dunlin__int_kernels_neon_dotprod;
#endif
#if defined(DUNLIN_HAS_INT_NEON)
extern const dunlin_int_kernels dunlin__int_kernels_neon;
#endif
#if defined(DUNLIN_HAS_INT_GENERIC)
extern const dunlin_int_kernels dunlin__int_kernels_generic;
#endif

static const dunlin_int_kernels *const tables[] = {
#if defined(DUNLIN_HAS_INT_AVX512_VNNI)
    &dunlin__int_kernels_avx512_vnni,
#endif
#if defined(DUNLIN_HAS_INT_AVX512)
    &dunlin__int_kernels_avx512,
#endif
#if defined(DUNLIN_HAS_INT_AVX2_VNNI)
    &dunlin__int_kernels_avx2_vnni,
#endif
#if defined(DUNLIN_HAS_INT_AVX2)
    &dunlin__int_kernels_avx2,
#endif
#if defined(DUNLIN_HAS_INT_SSE2)
    &dunlin__int_kernels_sse2,
#endif
#if defined(DUNLIN_HAS_INT_NEON_DOTPROD)
    &dunlin__int_kernels_neon_dotprod,
#endif
#if defined(DUNLIN_HAS_INT_NEON)
    &dunlin__int_kernels_neon,
#endif
#if defined(DUNLIN_HAS_INT_GENERIC)
    &dunlin__int_kernels_generic,
#endif
};

/* Bytes of the set's own name in that of a table. */
static size_t set_length(const char *name)
{
    return strcspn(name, "+-");
}

static bool is_of_set(const char *name, const char *set)
{
    return set_length(name) == strlen(set) && strncmp(name, set, strlen(set)) == 0;
}

/* Dot products of int8: VNNI at the set's width, or arm64's extension. */
static bool has_dot(const char *name)
{
#if defined(__x86_64__) || defined(__i386__)
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;
    if (is_of_set(name, "avx512")) {
        return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (c >> 11 & 1) != 0;
    }
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 4 & 1) != 0;
#else
    (void)name;
    return dunlin__sys_has_int8_dot();
#endif
}

static bool can_run(const char *name)
{
    bool has_set = false;
    for (int i = 0; !has_set && dunlin__kernels_isa(i) != NULL; i++) {
        has_set = is_of_set(name, dunlin__kernels_isa(i));
    }
    return has_set && (strchr(name, '+') == NULL || has_dot(name));
}

const char *dunlin__int_kernels_isa(int index)
{
    int found = 0;
    for (size_t i = 0; index >= 0 && i < sizeof tables / sizeof tables[0]; i++) {
        if (can_run(tables[i]->isa) && found++ == index) {
            return tables[i]->isa;
        }
    }
    return NULL;
}

const dunlin_int_kernels *dunlin__int_kernels_select(const char *isa)
{
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        const bool is_meant = isa == NULL || isa[0] == '\0' || strcmp(tables[i]->isa, isa) == 0 ||
                              is_of_set(tables[i]->isa, isa);
        if (is_meant && can_run(tables[i]->isa)) {
            return tables[i];
        }
    }
    return NULL;
}
