/*
 * test_sized.c - structs that begin with struct_size, between an older and a newer header.
 */
#include <mem/sized.h>

#include <criterion/criterion.h>

#include <string.h>

typedef struct dunlin_old_thing {
    size_t struct_size;
    int64_t first;
} dunlin_old_thing;

typedef struct dunlin_thing {
    size_t struct_size;
    int64_t first;
    int64_t second;
} dunlin_thing;

typedef struct dunlin_new_thing {
    size_t struct_size;
    int64_t first;
    int64_t second;
    int64_t third;
    int64_t fourth;
} dunlin_new_thing;

static dunlin_status take(const void *theirs, dunlin_thing *ours, dunlin_error *error)
{
    *ours = (dunlin_thing){.first = 10, .second = 20};
    return DUNLIN_STRUCT_TAKE(dunlin_thing, theirs, ours, error);
}

Test(sized, an_older_struct_leaves_the_defaults_of_what_it_lacks)
{
    const dunlin_old_thing old = {.struct_size = sizeof old, .first = 1};
    dunlin_thing ours;
    cr_assert_eq(take(&old, &ours, NULL), DUNLIN_OK);
    cr_expect_eq(ours.first, 1);
    cr_expect_eq(ours.second, 20);
    cr_expect_eq(ours.struct_size, sizeof ours);
}

Test(sized, a_newer_struct_is_taken_as_long_as_what_is_new_is_zero)
{
    dunlin_new_thing new = {.struct_size = sizeof new, .first = 1, .second = 2};
    dunlin_error error = {0};
    dunlin_thing ours;
    cr_assert_eq(take(&new, &ours, &error), DUNLIN_OK);
    cr_expect_eq(ours.second, 2);
    cr_expect_eq(ours.struct_size, sizeof ours);
    new.fourth = 1;
    cr_assert_eq(take(&new, &ours, &error), DUNLIN_VERSION);
    cr_expect_not_null(strstr(error.text, "dunlin_thing"), "%s", error.text);
    cr_expect_eq(ours.first, 10, "nothing is taken of a struct that is refused");
}

Test(sized, a_size_that_is_none_is_refused_by_name)
{
    const size_t sizes[] = {0, 1, sizeof(size_t), 65537, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const dunlin_thing theirs = {.struct_size = sizes[i]};
        dunlin_error error = {0};
        dunlin_thing ours;
        cr_assert_eq(take(&theirs, &ours, &error), DUNLIN_ARGUMENT, "%zu", sizes[i]);
        cr_expect_not_null(strstr(error.text, "DUNLIN_THING_INIT"), "%s", error.text);
        cr_expect_eq(dunlin__struct_check(&theirs, "dunlin_thing", NULL), DUNLIN_ARGUMENT);
    }
    dunlin_thing ours;
    dunlin_error error = {0};
    cr_assert_eq(take(NULL, &ours, &error), DUNLIN_ARGUMENT);
    cr_expect_not_null(strstr(error.text, "DUNLIN_THING_INIT"), "%s", error.text);
}

Test(sized, only_what_the_app_has_room_for_is_written)
{
    const dunlin_thing ours = {.struct_size = sizeof ours, .first = 1, .second = 2};
    struct {
        dunlin_old_thing old;
        int64_t after;
    } theirs = {.old.struct_size = sizeof theirs.old, .after = 77};
    dunlin__struct_give(&ours, sizeof ours, &theirs.old);
    cr_expect_eq(theirs.old.struct_size, sizeof theirs.old);
    cr_expect_eq(theirs.old.first, 1);
    cr_expect_eq(theirs.after, 77);
    dunlin_new_thing new = {.struct_size = sizeof new, .third = 5, .fourth = 6};
    dunlin__struct_give(&ours, sizeof ours, &new);
    cr_expect_eq(new.struct_size, sizeof new);
    cr_expect_eq(new.second, 2);
    cr_expect_eq(new.third, 0);
    cr_expect_eq(new.fourth, 0);
}
