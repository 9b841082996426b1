/*
 * fuzz_picture.c - any bytes as a JPEG or PNG file: refused in one line that names it, or decoded
 * to planes of the size that it says. The first byte picks channels and scaling.
 */
#include <mem/support.h>

#include <data/files/picture.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    counter.limit_bytes = 4 << 20;
    const dunlin_picture_file file = {.name = "fuzz",
                                      .bytes = data + 1,
                                      .n = size - 1,
                                      .channels = data[0] % 2 == 0 ? 3 : 1,
                                      .least = data[0] / 2 % 16,
                                      .alloc = &counter.hooks};
    dunlin_picture picture;
    dunlin_error error = {0};
    const dunlin_status status = dunlin__picture_read(&file, &picture, &error);
    if (status == DUNLIN_OK) {
        require(picture.channels == file.channels && picture.width > 0 && picture.height > 0);
        require(counter.now_bytes ==
                (uint64_t)picture.channels * (uint64_t)picture.width * (uint64_t)picture.height);
        dunlin__picture_free(&file, &picture);
    } else {
        require(error.status == status && strstr(error.text, "fuzz: ") == error.text);
        require(strchr(error.text, '\n') == NULL);
    }
    require(counter.now_bytes == 0);
    return 0;
}
