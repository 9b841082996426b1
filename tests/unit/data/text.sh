#!/usr/bin/env bash
# dunlin-train on texts: usage: text.sh PROGRAM; with DUNLIN_SHORT=1, for sanitizers, fewer examples.
# shellcheck source=train_lib.sh
. "$(dirname "$0")/train_lib.sh"

# near A B: two numbers agree to 1e-4 of B.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 1e-4 * b && -d < 1e-4 * b) }' || complain "$1 is not $2"
}

n_text=256 n_speeches=1024
[ -z "${DUNLIN_SHORT:-}" ] || n_text=64 n_speeches=256
run 0 --model gpt_tiny --dataset made_text --max-examples $n_text --epochs 2 --batch 16 --optimizer adamw --lr 0.003 --eval --seed 1 --json r.json
grep -q '^test accuracy .*, loss .*, perplexity ' out || complain "no perplexity: $(tail -n 2 out)"
grep -q '^made text: .* tokens, bytes; CRC-32 ' out || complain "no note on the tokens: $(cat out)"
near "$(value r.json test_perplexity)" "$(awk -v l="$(value r.json test_loss)" 'BEGIN { printf "%.9f", exp(l) }')"
awk -v a="$(value r.json loss_first)" -v b="$(value r.json loss_last)" 'BEGIN { exit !(b < 0.9 * a) }' || complain "nothing was learnt: $(cat r.json)"
run 0 --model gpt_tiny --dataset made_text --max-examples 48 --epochs 1 --batch 16 --seed 1 --json m.json
run 0 --model gpt_tiny --classes 28 --dataset synthetic --max-examples 48 --epochs 1 --batch 16 --seed 1 --json s.json
[ "$(value m.json weights_hash)" = "$(value s.json weights_hash)" ] || complain "synthetic is not the made text for a network that predicts tokens"

run 1 --model lenet5 --dataset made_text --epochs 1
error_has "made_text has tokens to predict, which lenet5 does not: gpt_tiny does"
run 1 --model bert_small --dataset made_text --epochs 1
error_has "made_text has tokens to predict"
run 1 --model gpt_tiny --dataset shakespeare --epochs 1
error_has "tinyshakespeare"
run 1 --model gpt_tiny --dataset fashion_mnist --data . --epochs 1
error_has "gpt_tiny reads tokens"

# Who says it: a class for each row of tokens, which has padding.
run 0 --model bert_tiny --dataset made_roles --length 48 --max-examples $n_speeches --epochs 2 --batch 32 --optimizer adamw --lr 0.002 --eval --top-k 1,3 --seed 1 --json b.json
grep -q '^made speeches: .* tokens, 0 is padding; CRC-32 ' out || complain "no note on the tokens: $(cat out)"
awk -v a="$(value b.json loss_first)" -v b="$(value b.json loss_last)" 'BEGIN { exit !(b < a) }' || complain "nothing was learnt: $(cat b.json)"
[ "$(value b.json params)" = "$((4386178 - (30522 - 1024) * 128 + 8 * 129))" ] || complain "not the parameters of ten classes and 1,024 tokens: $(value b.json params)"
near "$(value b.json test_top1_accuracy)" "$(value b.json test_accuracy)"
awk -v a="$(value b.json test_top1_accuracy)" -v b="$(value b.json test_top3_accuracy)" 'BEGIN { exit !(a < b && b <= 1) }' || complain "top-1 $(value b.json test_top1_accuracy), top-3 $(value b.json test_top3_accuracy)"
grep -q '^test accuracy .*, top-1 .*, top-3 ' out || complain "no top-3: $(tail -n 2 out)"
for wrong in 0 1,x 1, 1025 1,2,3,4,5,6,7,8,9; do
    run 2 --model bert_tiny --dataset made_roles --eval --top-k "$wrong"
    error_has "--top-k $wrong: expected 1 to 8 numbers from 1 to 1024"
done
run 2 --model bert_tiny --dataset made_roles --top-k 3
error_has "--top-k goes with --eval"
run 2 --model bert_tiny --dataset made_roles --eval --loss bce --top-k 3
error_has "--top-k goes with cross-entropy over labels"
run 1 --model bert_tiny --dataset made_roles --eval --top-k 11
error_has "--top-k 11: the model has 10 classes"
run 0 --model bert_tiny --length 16 --max-examples 32 --steps 1 --json d.json # of the data that are taken without --dataset
[ "$(value d.json dataset)" = synthetic ] || complain "not the synthetic set: $(cat d.json)"
run 1 --model gpt_tiny --dataset made_roles --epochs 1
error_has "made_roles has rows of tokens with a class each, which gpt_tiny does not take: bert_tiny does"
run 1 --model lenet5 --dataset made_roles --epochs 1
error_has "which lenet5 does not take"
run 1 --model bert_tiny --dataset made_roles --length 513 --epochs 1
error_has "513 tokens; its table of positions has 512"

mkdir tinyshakespeare
printf 'ANNA:\nno colon' >tinyshakespeare/input.txt
run 1 --model gpt_tiny --dataset shakespeare --data . --epochs 1
error_has "no role says 64 tokens and one more"
for _ in $(seq 60); do printf 'ANNA:\nthe river finds the old king and sings of winter\n\nBORIS:\nevery night a letter follows the young sailor\n\n'; done >tinyshakespeare/input.txt
run 0 --model gpt_tiny --dataset shakespeare --data . --epochs 1 --batch 4 --optimizer adamw --lr 0.003 --eval
run 0 --model gpt_tiny --dataset shakespeare_bpe --data . --epochs 1 --batch 4 --optimizer adamw --lr 0.003 --eval
grep -q 'joined from pairs of bytes; CRC-32 ' out || complain "no note on the tokens: $(cat out)"
exit $failed
