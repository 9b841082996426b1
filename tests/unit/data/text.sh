#!/usr/bin/env bash
# dunlin-train on texts: usage: text.sh PROGRAM
# shellcheck source=train_lib.sh
. "$(dirname "$0")/train_lib.sh"

# near A B: two numbers agree to 1e-4 of B.
near() {
    awk -v a="$1" -v b="$2" 'BEGIN { d = a - b; exit !(d < 1e-4 * b && -d < 1e-4 * b) }' || complain "$1 is not $2"
}

run 0 --model gpt_tiny --dataset made_text --max-examples 256 --epochs 2 --batch 16 --optimizer adamw --lr 0.003 --eval --seed 1 --json r.json
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

mkdir tinyshakespeare
printf 'ANNA:\nno colon' >tinyshakespeare/input.txt
run 1 --model gpt_tiny --dataset shakespeare --data . --epochs 1
error_has "no role says 64 tokens and one more"
for _ in $(seq 60); do printf 'ANNA:\nthe river finds the old king and sings of winter\n\nBORIS:\nevery night a letter follows the young sailor\n\n'; done >tinyshakespeare/input.txt
run 0 --model gpt_tiny --dataset shakespeare --data . --epochs 1 --batch 4 --optimizer adamw --lr 0.003 --eval
run 0 --model gpt_tiny --dataset shakespeare_bpe --data . --epochs 1 --batch 4 --optimizer adamw --lr 0.003 --eval
grep -q 'joined from pairs of bytes; CRC-32 ' out || complain "no note on the tokens: $(cat out)"
exit $failed
