#!/bin/bash
# Everything, in the background of a GPU machine; logs and runs stay under ROOT.
#   bash run.sh ROOT MINUTES STEPS-X STEPS-EN STEPS-MLM     (MINUTES from now until all must be written)
set -u
encoders=()
root=$(cd "$1" && pwd) deadline=$(($(date +%s) + 60 * $2)) x=$3 en=$4 mlm=$5
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$root/repo/src PYTHONUNBUFFERED=1 CROSSLIFT_DATA=$root/data HF_HUB_OFFLINE=1
left() { echo $((deadline - $(date +%s))); }
said() { echo "$(date +%T) $1, $(left) s left"; }
train() { # NAME STEPS SECONDS-TO-PREPARE SECONDS-FOR-WHAT-FOLLOWS; max_minutes counts the steps alone
    local minutes
    minutes=$(python3 -c "print(max(0.2, ($(left) - $3 - $4) / 60))")
    python3 "$here/train.py" "$here/$1.json" --root "$root" --set steps="$2" --set max_minutes="$minutes" \
        > "$root/$1.log" 2>&1
    said "$1 done"
}
score() { # TASKS SEEDS, the rest: encoders
    local tasks=$1 seeds=$2
    shift 2
    timeout "$(left)" python3 "$here/transfer.py" "${@/#/--encoder=}" --tasks "$tasks" --seeds "$seeds" --workers 9 \
        --scratch "$root/scores" --out "$root/minis.json" >> "$root/scores.log" 2>&1
}

mkdir -p "$root/runs"
nvidia-cuda-mps-control -d || true # several small processes on one device
python3 "$here/teacher.py" unpack "$root/teacher8" "$root/teacher"
xz -dc "$root"/pretraining/pairs-*.xz | cut -f2 | LC_ALL=C sort -u > "$root/english.txt" &
python3 "$here/use_vectors.py" --config "$here/mini-x.json" --root "$root"
wait
said "teachers ready"
train mini-x "$x" 170 720
score sib200,massive-intent,panx 1 mini-x="$root/runs/mini-x/model" &
train mini-en "$en" 70 480
train mini-x-mlm "$mlm" 90 240
wait
timeout 60 python3 "$root/repo/benchmarks/pretrain.py" --out "$root/pretrain-benchmark.json" > "$root/benchmark.log" 2>&1
said "benchmark done"
for name in mini-x mini-en mini-x-mlm; do encoders+=("$name=$root/runs/$name/model"); done
score sib200,massive-intent,massive-slots,panx,xsid-intent,xsid-slots,xnli,xquad 5 "${encoders[@]}" random=
said "all done"
