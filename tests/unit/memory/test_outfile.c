/*
 * test_outfile.c - files that appear whole or not at all.
 */
#include <mem/outfile.h>

#include <criterion/criterion.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static char path[128];
static char part[160];

static void make_folder(void)
{
    (void)snprintf(folder, sizeof folder, "/var/tmp/dunlin-outfile-XXXXXX");
    cr_assert_not_null(mkdtemp(folder), "%s", strerror(errno));
    (void)snprintf(path, sizeof path, "%s/file", folder);
    (void)snprintf(part, sizeof part, "%s.part", path);
}

/* Nothing but the file itself may be there. */
static void remove_folder(void)
{
    (void)unlink(path);
    cr_expect_eq(rmdir(folder), 0, "something is left in %s", folder);
}

TestSuite(outfile, .init = make_folder, .fini = remove_folder);

static void expect_text(const char *name, const char *expected)
{
    char text[16] = "";
    const int fd = open(name, O_RDONLY);
    cr_assert_geq(fd, 0, "%s: %s", name, strerror(errno));
    cr_expect_eq(read(fd, text, sizeof text - 1), (ssize_t)strlen(expected));
    cr_expect_str_eq(text, expected);
    (void)close(fd);
}

/* One line that names the file and what the system said. */
static void expect_line(const dunlin_error *error, dunlin_status status, int code)
{
    char number[32];
    (void)snprintf(number, sizeof number, "(system error %d)", code);
    cr_expect_eq(error->status, status, "%s", error->text);
    cr_expect_eq(error->code, code, "%s", error->text);
    cr_expect_not_null(strstr(error->text, number), "%s", error->text);
    cr_expect_not_null(strstr(error->text, "dunlin-outfile-"), "%s", error->text);
    cr_expect_null(strchr(error->text, '\n'));
}

Test(outfile, replaces_an_old_file_at_the_end_alone)
{
    dunlin_outfile file;
    dunlin_error error = {0};
    struct stat info;
    cr_assert_eq(dunlin__outfile_put(path, 0600, "old", 3, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(stat(path, &info), 0);
    cr_expect_eq(info.st_mode & 0777u, 0600);
    cr_assert_eq(dunlin__outfile_open(&file, path, 0600, &error), DUNLIN_OK, "%s", error.text);
    cr_assert_eq(dunlin__outfile_write(&file, "n", 1, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__outfile_write(&file, "ew", 2, &error), DUNLIN_OK);
    expect_text(path, "old");
    cr_assert_eq(dunlin__outfile_close(&file, DUNLIN_OK, &error), DUNLIN_OK, "%s", error.text);
    expect_text(path, "new");
    cr_assert_eq(dunlin__outfile_put(path, 0600, NULL, 0, &error), DUNLIN_OK, "%s", error.text);
    expect_text(path, "");
}

Test(outfile, a_writer_that_gives_up_leaves_the_old_file)
{
    dunlin_outfile file;
    dunlin_error error = {0};
    cr_assert_eq(dunlin__outfile_put(path, 0600, "old", 3, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__outfile_open(&file, path, 0600, &error), DUNLIN_OK);
    cr_assert_eq(dunlin__outfile_write(&file, "new", 3, &error), DUNLIN_OK);
    cr_expect_eq(dunlin__outfile_close(&file, DUNLIN_CALLBACK, &error), DUNLIN_CALLBACK);
    expect_text(path, "old");
    cr_expect_neq(access(part, F_OK), 0);
}

/* What was left by a run that was killed, and a link that somebody put there. */
Test(outfile, a_part_that_is_there_is_replaced_and_no_link_followed)
{
    char other[128];
    dunlin_error error = {0};
    (void)snprintf(other, sizeof other, "%s/other", folder);
    cr_assert_eq(dunlin__outfile_put(other, 0600, "kept", 4, &error), DUNLIN_OK);
    cr_assert_eq(symlink(other, part), 0);
    cr_assert_eq(dunlin__outfile_put(path, 0600, "new", 3, &error), DUNLIN_OK, "%s", error.text);
    expect_text(other, "kept");
    expect_text(path, "new");
    (void)unlink(other);
}

Test(outfile, what_fails_is_named_and_the_old_file_stays)
{
    char nowhere[128];
    char block[4096] = "";
    dunlin_error error = {0};
    cr_assert_eq(dunlin__outfile_put(path, 0600, "old", 3, &error), DUNLIN_OK);
    cr_assert_eq(mkdir(part, 0700), 0);
    cr_expect_eq(dunlin__outfile_put(path, 0600, "new", 3, &error), DUNLIN_IO);
    expect_line(&error, DUNLIN_IO, EEXIST);
    cr_assert_eq(rmdir(part), 0);
    (void)snprintf(nowhere, sizeof nowhere, "%s/no/file", folder);
    cr_expect_eq(dunlin__outfile_put(nowhere, 0600, "new", 3, &error), DUNLIN_IO);
    expect_line(&error, DUNLIN_IO, ENOENT);
    /* A folder in the file's place: found out by the rename, so the part has to go. */
    (void)snprintf(nowhere, sizeof nowhere, "%s/folder", folder);
    cr_assert_eq(mkdir(nowhere, 0700), 0);
    cr_expect_eq(dunlin__outfile_put(nowhere, 0600, "new", 3, &error), DUNLIN_IO);
    expect_line(&error, DUNLIN_IO, EISDIR);
    cr_assert_eq(rmdir(nowhere), 0);
    const struct rlimit limit = {.rlim_cur = 1000, .rlim_max = RLIM_INFINITY};
    (void)signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_expect_eq(dunlin__outfile_put(path, 0600, block, sizeof block, &error), DUNLIN_SPACE);
    expect_line(&error, DUNLIN_SPACE, EFBIG);
    expect_text(path, "old");
}

Test(outfile, a_path_without_room_for_the_part_is_refused)
{
    static char much[DUNLIN_OUTFILE_MAX_PATH];
    dunlin_error error = {0};
    memset(much, 'a', sizeof much - 5);
    cr_expect_eq(dunlin__outfile_put(much, 0600, "new", 3, &error), DUNLIN_LIMIT);
    cr_expect_not_null(strstr(error.text, "4090 bytes"), "%s", error.text);
}

Test(outfile, the_steps_of_the_end_say_which_failed)
{
    const char *doing = NULL;
    cr_expect_eq(dunlin__file_settle(-1, part, path, &doing), ENOENT);
    cr_expect_str_eq(doing, "renaming a part to");
    cr_assert_eq(dunlin__outfile_put(part, 0600, "new", 3, NULL), DUNLIN_OK);
    const int fd = open(part, O_RDONLY);
    (void)close(fd);
    cr_expect_eq(dunlin__file_settle(fd, part, path, &doing), EBADF);
    cr_expect_str_eq(doing, "synchronising");
    cr_expect_eq(dunlin__file_settle(-1, part, path, &doing), 0);
    expect_text(path, "new");
    cr_expect_eq(dunlin__file_sync_folder("/nowhere/at/all"), ENOENT);
}
