/*
 * sized.h - structs that cross the border of the library and begin with struct_size: read from an
 * app that was compiled with an older or a newer header, and written for one.
 */
#ifndef DUNLIN_MEM_SIZED_H
#define DUNLIN_MEM_SIZED_H

#include <dunlin/base.h>

/*
 * Copies the struct of an app over the library's own, of which the caller has set the defaults: the
 * smaller of the two sizes. `our_bytes` is the size here, `name` the struct's name. ARGUMENT
 * without a struct or with a size that is none (the text names the struct and its INIT), VERSION if
 * a byte that the app knows and the library does not is other than zero. On failure nothing is
 * copied.
 */
DUNLIN_NODISCARD dunlin_status dunlin__struct_take(const void *theirs, void *ours, size_t our_bytes,
                                                   const char *name, dunlin_error *error);
#define DUNLIN_STRUCT_TAKE(type, theirs, ours, error)                                              \
    dunlin__struct_take((theirs), (ours), sizeof(type), #type, (error))

/* Whether a struct of the app's is there to be written: ARGUMENT as above. */
DUNLIN_NODISCARD dunlin_status dunlin__struct_check(const void *theirs, const char *name,
                                                    dunlin_error *error);

/*
 * Writes the library's struct to an app's that dunlin__struct_check() has seen: only as many bytes
 * as the app has. Its struct_size stays, and what it knows beyond ours becomes zero.
 */
void dunlin__struct_give(const void *ours, size_t our_bytes, void *theirs);

/* The same to a struct of their_bytes that may hold anything. */
void dunlin__struct_fill(const void *ours, size_t our_bytes, void *theirs, size_t their_bytes);

#endif
