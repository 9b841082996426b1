/*
 * buffer.c - a block of memory that what is written in order is added to.
 */
#include <dunlin/bytes.h>
#include <mem/support.h>

#include <string.h>

dunlin_status dunlin_buffer_add(void *buffer, const void *more, size_t n)
{
    dunlin_buffer *to = buffer;
    const dunlin_alloc alloc = dunlin__alloc_or_default(&to->alloc);
    if (n > SIZE_MAX - to->n || !dunlin__grow_array(&alloc, &to->at, &to->capacity, to->n + n, 1)) {
        return DUNLIN_MEMORY;
    }
    if (n > 0) {
        memcpy((unsigned char *)to->at + to->n, more, n);
    }
    to->n += n;
    return DUNLIN_OK;
}

void dunlin_buffer_free(dunlin_buffer *buffer)
{
    if (buffer != NULL) {
        const dunlin_alloc alloc = dunlin__alloc_or_default(&buffer->alloc);
        dunlin__free_array(&alloc, buffer->at, buffer->capacity, 1);
        *buffer = (dunlin_buffer){.alloc = buffer->alloc};
    }
}
