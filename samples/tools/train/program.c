/*
 * program.c - the help text of dunlin-train, and the name before its messages.
 */
#include "train.h"

const program_info train_program = {
    .name = "dunlin-train",
    .purpose = "trains one model on this machine within a byte budget",
    .examples =
        "  dunlin-train --model lenet5 --epochs 3 --eval\n"
        "      the built-in synthetic data set; nothing is downloaded\n"
        "  dunlin-train --model lenet5 --dataset fashion_mnist --data DIR --batch 64 --epochs 3 "
        "--eval\n"
        "  dunlin-train --model lenet5 --batch 256 --budget 2MiB --steps 50 --json out.json\n"
        "      a budget below the whole batch: the step runs in slices, with the same bits\n"
        "  dunlin-train --model lenet5 --optimizer adamw --lr 0.002 --schedule cosine --warmup 50 "
        "--epochs 3 --eval\n"
        "  dunlin-train --model mobilenet_v2 --image 224 --batch 32 --plan-only --plan-dump p.svg\n"
        "      the plan alone\n"
        "  dunlin-train --model mobilenet_v2 --image 224 --what-fits --budget 512MiB,1GiB,2GiB\n"
        "      the largest batch for each budget that is not too slow, and its predicted rate\n"
        "  dunlin-train --model mobilenet_v2 --image 224 --ghost --micro-batch 4 --plan-only\n"
        "      statistics of batch norm over four examples each: little memory, other weights\n"
        "  dunlin-train --model net.onnx --groups 'fc.*:lr=x10;@bias:lr=x2:decay=x0' --decay-norms "
        "no --weight-decay 1e-4\n"
        "  dunlin-train --model resnet18 --frozen conv1,bn1,layer1 --list\n"
        "      every parameter, what it is for, and whether it would be trained\n"
        "  dunlin-train --model net.onnx --epochs 1 --save trained.onnx --checkpoint net.ckpt\n"
        "  dunlin-train --model net.onnx --epochs 2 --resume net.ckpt --save trained.onnx\n",
};
