/*
 * base.c - names and texts of the status table, and the version.
 */
#include <dunlin/base.h>

const char *dunlin_status_name(dunlin_status status)
{
    switch (status) {
#define STATUS_NAME(name, number, text)                                                            \
    case DUNLIN_##name:                                                                            \
        return #name;
        DUNLIN_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    default:
        return "UNKNOWN";
    }
}

const char *dunlin_status_text(dunlin_status status)
{
    switch (status) {
#define STATUS_TEXT(name, number, text)                                                            \
    case DUNLIN_##name:                                                                            \
        return text;
        DUNLIN_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    default:
        return "unknown status";
    }
}

int dunlin_version(void)
{
    return DUNLIN_VERSION_NUMBER;
}

const char *dunlin_version_string(void)
{
    return DUNLIN_VERSION_STRING;
}
