/*
 * sized.c - structs that begin with struct_size, between headers of different versions.
 *
 * Invariant: no byte of an app's struct is read or written beyond the size that it names, and none
 * of the library's beyond its own.
 */
#include <mem/sized.h>
#include <mem/support.h>

#include <assert.h>
#include <ctype.h>
#include <string.h>

/* More than any struct will have: a size above it is memory that was never initialised. */
#define MOST_BYTES 65536

#define INIT_NAME_BYTES 64

static size_t size_of(const void *theirs)
{
    size_t bytes = 0;
    memcpy(&bytes, theirs, sizeof bytes);
    return bytes;
}

/* "dunlin_fit_options" gives "DUNLIN_FIT_OPTIONS_INIT". */
static const char *init_name(const char *name, char buffer[INIT_NAME_BYTES])
{
    static const char END[] = "_INIT";
    size_t n = 0;
    while (name[n] != '\0' && n < INIT_NAME_BYTES - sizeof END) {
        buffer[n] = (char)toupper((unsigned char)name[n]);
        n++;
    }
    memcpy(buffer + n, END, sizeof END);
    return buffer;
}

dunlin_status dunlin__struct_check(const void *theirs, const char *name, dunlin_error *error)
{
    char buffer[INIT_NAME_BYTES];
    if (theirs == NULL) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "base", 0, "a %s is missing; start one from %s",
                            name, init_name(name, buffer));
    }
    const size_t bytes = size_of(theirs);
    if (bytes <= sizeof bytes || bytes > MOST_BYTES) {
        return dunlin__fail(error, DUNLIN_ARGUMENT, "base", 0,
                            "struct_size of a %s is %zu, which is the size of none: more than %zu "
                            "and at most %d; start it from %s",
                            name, bytes, sizeof bytes, MOST_BYTES, init_name(name, buffer));
    }
    return DUNLIN_OK;
}

/* The first byte of n that is not zero, or n. */
static size_t find_set(const unsigned char *bytes, size_t n)
{
    size_t at = 0;
    while (at < n && bytes[at] == 0) {
        at++;
    }
    return at;
}

static dunlin_status fail_unknown(const char *name, size_t at, size_t our_bytes,
                                  dunlin_error *error)
{
    return dunlin__fail(error, DUNLIN_VERSION, "base", 0,
                        "a %s sets a member at byte %zu; this library (%s) knows %zu bytes of it",
                        name, at, DUNLIN_VERSION_STRING, our_bytes);
}

dunlin_status dunlin__struct_take(const void *theirs, void *ours, size_t our_bytes,
                                  const char *name, dunlin_error *error)
{
    DUNLIN_TRY(dunlin__struct_check(theirs, name, error));
    const size_t their_bytes = size_of(theirs);
    if (their_bytes > our_bytes) {
        const size_t n_more = their_bytes - our_bytes;
        const size_t at = find_set((const unsigned char *)theirs + our_bytes, n_more);
        if (at < n_more) {
            return fail_unknown(name, our_bytes + at, our_bytes, error);
        }
    }
    memcpy(ours, theirs, their_bytes < our_bytes ? their_bytes : our_bytes);
    memcpy(ours, &our_bytes, sizeof our_bytes);
    return DUNLIN_OK;
}

void dunlin__struct_give(const void *ours, size_t our_bytes, void *theirs)
{
    const size_t bytes = size_of(theirs);
    assert(bytes >= sizeof bytes && bytes <= MOST_BYTES);
    memcpy(theirs, ours, bytes < our_bytes ? bytes : our_bytes);
    memcpy(theirs, &bytes, sizeof bytes);
    if (bytes > our_bytes) {
        memset((unsigned char *)theirs + our_bytes, 0, bytes - our_bytes);
    }
}

void dunlin__struct_fill(const void *ours, size_t our_bytes, void *theirs, size_t their_bytes)
{
    memcpy(theirs, &their_bytes, sizeof their_bytes);
    dunlin__struct_give(ours, our_bytes, theirs);
}
