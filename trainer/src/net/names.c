/*
 * names.c - an index of names: heap sort and binary search.
 *
 * Invariant: worst case n log n comparisons whatever the names are.
 */
#include "names.h"

#include <string.h>

static int compare(const dunlin_name *a, const dunlin_name *b)
{
    int order = strcmp(a->text, b->text);
    if (order != 0) {
        return order;
    }
    return a->index < b->index ? -1 : (a->index > b->index ? 1 : 0);
}

static void sift_down(dunlin_name *names, size_t root, size_t n)
{
    dunlin_name moved = names[root];
    for (size_t child = 2 * root + 1; child < n; child = 2 * root + 1) {
        if (child + 1 < n && compare(&names[child], &names[child + 1]) < 0) {
            child++;
        }
        if (compare(&moved, &names[child]) >= 0) {
            break;
        }
        names[root] = names[child];
        root = child;
    }
    names[root] = moved;
}

void dunlin__names_sort(dunlin_name *names, size_t n)
{
    for (size_t root = n / 2; root > 0; root--) {
        sift_down(names, root - 1, n);
    }
    for (size_t end = n; end > 1; end--) {
        dunlin_name largest = names[0];
        names[0] = names[end - 1];
        names[end - 1] = largest;
        sift_down(names, 0, end - 1);
    }
}

const dunlin_name *dunlin__names_find(const dunlin_name *names, size_t n, const char *text)
{
    size_t low = 0;
    size_t high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(names[middle].text, text) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < n && strcmp(names[low].text, text) == 0 ? &names[low] : NULL;
}

const dunlin_name *dunlin__names_duplicate(const dunlin_name *names, size_t n)
{
    for (size_t i = 0; i + 1 < n; i++) {
        if (strcmp(names[i].text, names[i + 1].text) == 0) {
            return &names[i];
        }
    }
    return NULL;
}
