/*
 * has_isa.c - has_isa NAME: whether this machine has kernels of that instruction set. Status 0, or
 * 77 and a line for who skips a test.
 */
#include "kernels/api/kernels.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc == 2 && dunlin__kernels_select(argv[1]) != NULL) {
        return 0;
    }
    (void)printf("skipped: this machine has no %s\n", argc == 2 ? argv[1] : "(no name given)");
    return 77;
}
