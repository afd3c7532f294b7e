#!/bin/bash
# Everything, in the background of a GPU machine; logs and runs stay under ROOT.
#   bash run.sh ROOT SECONDS STEPS-X STEPS-EN STEPS-MLM     (SECONDS from now until all must be written)
# While mini-x is prepared (minutes of tokenising on the CPU), the two smaller ones train, and while mini-x trains,
# they are scored: one small process leaves most of the device idle.
set -u
root=$(cd "$1" && pwd) deadline=$(($(date +%s) + $2)) x=$3 en=$4 mlm=$5
here=$(cd "$(dirname "$0")" && pwd)
tasks=sib200,massive-intent,panx,massive-slots,xsid-intent,xsid-slots,xnli,xquad
export PYTHONPATH=$root/repo/src PYTHONUNBUFFERED=1 CROSSLIFT_DATA=$root/data HF_HUB_OFFLINE=1
left() { echo $((deadline - $(date +%s))); }
said() { echo "$(date +%T) $1, $(left) s left"; }
train() { # NAME STEPS MINUTES (of steps alone), the rest: more settings
    local name=$1 steps=$2 minutes=$3 status=0
    shift 3
    python3 "$here/train.py" "$here/$name.json" --root "$root" --set steps="$steps" --set max_minutes="$minutes" "$@" \
        > "$root/$name.log" 2>&1 || status=$?
    said "$name done"
    return $status
}
stop_if_stuck() { # NAME: end a run whose first held-out loss is that of piece frequencies
    while ! grep -q "^held out" "$root/$1.log"; do sleep 1; done
    if grep -m1 "^held out" "$root/$1.log" | tr -d '(),' | awk '{ exit !($4 > 0.97 * $7) }'; then
        said "$1 is stuck"
        pkill -f "train.py.*/$1.json"
    fi
}
score() { # OUT WORKERS SEEDS, the rest: encoders
    local out=$1 workers=$2 seeds=$3
    shift 3
    timeout $(($(left) - 70)) python3 "$here/transfer.py" "${@/#/--encoder=}" --tasks "$tasks" --seeds "$seeds" \
        --workers "$workers" ${SCORE_OPTIONS:-} --scratch "$root/scores-$out" --out "$root/scores-$out.json" > "$root/scores-$out.log" 2>&1
    said "scores of $out done"
}

mkdir -p "$root/runs"
nvidia-cuda-mps-control -d || true # several small processes on one device
train mini-x-mlm "$mlm" 4 &
others=$!
python3 "$here/teacher.py" unpack "$root/teacher8" "$root/teacher"
xz -dc "$root"/pretraining/pairs-*.xz | cut -f2 | LC_ALL=C sort -u | shuf --random-source=<(yes) > "$root/english.txt"
python3 "$here/use_vectors.py" --config "$here/mini-x.json" --root "$root"
said "teachers ready"
train mini-en "$en" 4 &
others="$others $!"
(train mini-x "$x" 14 || train mini-x "$x" 8 --set learning_rate=0.0005 --set masked=3) &
largest=$!
stop_if_stuck mini-x &
wait $others
score others 5 5 mini-x-mlm="$root/runs/mini-x-mlm/model" mini-en="$root/runs/mini-en/model" random= &
wait $largest
score mini-x 9 10 mini-x="$root/runs/mini-x/model"
wait
timeout 65 python3 "$root/repo/benchmarks/pretrain.py" --steps 60 --out "$root/pretrain-benchmark.json" \
    > "$root/benchmark.log" 2>&1
said "all done"
