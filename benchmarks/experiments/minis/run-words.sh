#!/bin/bash
# The second stage of mini-x, its scores, and the connector to mini-en, in the background of a GPU machine.
#   bash run-words.sh ROOT SECONDS STEPS MINUTES    (SECONDS from now until all must be written; MINUTES of steps alone)
# ROOT is laid out by pack.py, with mini-x-1 and mini-en (the encoders to start from) and pretraining/words-* beside.
set -u
root=$(cd "$1" && pwd) deadline=$(($(date +%s) + $2)) steps=$3 minutes=$4
here=$(cd "$(dirname "$0")" && pwd)
export PYTHONPATH=$root/repo/src PYTHONUNBUFFERED=1 CROSSLIFT_DATA=$root/data HF_HUB_OFFLINE=1
left() { echo $((deadline - $(date +%s))); }
said() { echo "$(date +%T) $1, $(left) s left"; }
score() { # OUT WORKERS SEEDS TASKS, the rest: more options
    local out=$1 workers=$2 seeds=$3 tasks=$4
    shift 4
    OMP_NUM_THREADS=1 timeout $(($(left) - 30)) python3 "$here/transfer.py" --tasks "$tasks" --seeds "$seeds" \
        --workers "$workers" "$@" --scratch "$root/scores-$out" --out "$root/scores-$out.json" > "$root/scores-$out.log" 2>&1
    said "scores of $out done"
}

mkdir -p "$root/runs"
nvidia-cuda-mps-control -d || true # several small processes on one device
# The languages that the multilingual teacher does not know learn phrases from linked words.
linking=""
for language in bg el hi ur sw vi; do
    OMP_NUM_THREADS=1 python3 "$here/phrases.py" pairs "$root/pretraining" "$root/linked" --languages $language --limit 30000 \
        >> "$root/phrases.log" 2>&1 &
    linking="$linking $!"
done
xz -dc "$root"/pretraining/pairs-*.xz | cut -f2 | LC_ALL=C sort -u | shuf --random-source=<(yes) > "$root/english.txt"
python3 "$here/teacher.py" unpack "$root/teacher8" "$root/teacher"
python3 "$here/phrases.py" texts --config "$here/mini-x.json" --root "$root" --processes 8 >> "$root/phrases.log" 2>&1
said "phrases cut"
wait $linking
cp "$root"/linked/pairs-phrases-*.txt.xz "$root/pretraining/"
said "phrases linked"
python3 "$here/use_vectors.py" --config "$here/mini-x-words.json" --root "$root"
said "teachers ready"
python3 "$here/train.py" "$here/mini-x-words.json" --root "$root" --set steps="$steps" --set max_minutes="$minutes" \
    > "$root/mini-x.log" 2>&1
said "mini-x done"
python3 "$root/repo/benchmarks/experiments/plug/train.py" --multi "$root/runs/mini-x/model" --mono "$root/mini-en" \
    --text "$root/pretraining/text-en.txt.xz" "$root/english.txt" --exclude "$root/excluded.txt" --out "$root/runs/plug" \
    --arms mixed,hmlm,align --workers 3 --steps "$(cat "$root/plug-steps" || echo 2000)" --max-minutes 5 > "$root/plug.log" 2>&1 &
score mini-x 9 5 sib200,massive-intent,panx,massive-slots,xsid-intent,xsid-slots,xnli,xquad --encoder "mini-x=$root/runs/mini-x/model"
wait
said "all done"
