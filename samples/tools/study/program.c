/*
 * program.c - the help text of dunlin-study, and where its files lie.
 */
#include "study.h"

#include <stdio.h>

const program_info study_program = {
    .name = "dunlin-study",
    .purpose = "tables and figures: what a byte budget costs, for every policy, in one report",
    .examples =
        "  dunlin-study max-batch | throughput | curve | ablation | adaptation | convergence | "
        "federated | heterogeneity | precision | all\n"
        "  dunlin-study melon | sage | emdl\n"
        "      named studies: a paper's figures beside ours, out of the others with small lists of "
        "their own;\n"
        "      all runs no named study, since they repeat it\n"
        "  dunlin-study all --quick --data DIR --out study\n"
        "      every study in small: study/*.csv and study/report.html\n"
        "  dunlin-study max-batch --models mobilenet_v2,resnet50 --budgets 256MiB,512MiB,1GiB\n"
        "  dunlin-study curve --policies sage,melon,auto --budgets 80%,60%,40%\n"
        "      shares of what the ideal step of batch 32 takes\n"
        "  dunlin-study all --data DIR --out study --resume\n"
        "      goes on where an interrupted study stopped\n",
};

bool study_path(const study_flags *flags, const char *name, const char *suffix,
                char out[OUTPUT_PATH_BYTES])
{
    const bool is_part = flags->named != NULL;
    const int length = snprintf(out, OUTPUT_PATH_BYTES, "%s/%s%s%s%s", flags->out,
                                is_part ? flags->named : "", is_part ? "_" : "", name, suffix);
    return length > 0 && length < OUTPUT_PATH_BYTES;
}
