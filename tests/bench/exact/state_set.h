/*
 * state_set.h - sets of up to 128 values of a step.
 */
#ifndef DUNLIN_TESTS_STATE_SET_H
#define DUNLIN_TESTS_STATE_SET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t word[2];
} set;

static inline bool has(const set *s, uint32_t i)
{
    return (s->word[i / 64] >> (i % 64) & 1) != 0;
}

static inline void put(set *s, uint32_t i)
{
    s->word[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline set join(set a, set b)
{
    return (set){{a.word[0] | b.word[0], a.word[1] | b.word[1]}};
}

static inline set both(set a, set b)
{
    return (set){{a.word[0] & b.word[0], a.word[1] & b.word[1]}};
}

static inline set without(set a, set b)
{
    return (set){{a.word[0] & ~b.word[0], a.word[1] & ~b.word[1]}};
}

static inline bool is_empty(set a)
{
    return (a.word[0] | a.word[1]) == 0;
}

/* The lowest of a set that is not empty. */
static inline uint32_t lowest(set a)
{
    return a.word[0] != 0 ? (uint32_t)__builtin_ctzll(a.word[0])
                          : 64 + (uint32_t)__builtin_ctzll(a.word[1]);
}

static inline set without_lowest(set a)
{
    if (a.word[0] != 0) {
        a.word[0] &= a.word[0] - 1;
    } else {
        a.word[1] &= a.word[1] - 1;
    }
    return a;
}

#endif
