/*
 * names.h - an index of names: sort once, then look up. Sorted rather than hashed, so that no
 * choice of names in a hostile file makes it slow.
 */
#ifndef DUNLIN_NET_NAMES_H
#define DUNLIN_NET_NAMES_H

#include <stddef.h>
#include <stdint.h>

typedef struct dunlin_name {
    const char *text;
    uint32_t index;
} dunlin_name;

/* By text, then by index. In place; needs no memory. */
void dunlin__names_sort(dunlin_name *names, size_t n);

/* The first entry with that text of a sorted array, or NULL. */
const dunlin_name *dunlin__names_find(const dunlin_name *names, size_t n, const char *text);

/* The first entry that has the same text as the one after it, or NULL. */
const dunlin_name *dunlin__names_duplicate(const dunlin_name *names, size_t n);

#endif
