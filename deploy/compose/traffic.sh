#!/bin/sh
# Background work in bursts: 200 requests, the next ones when all of them have been answered.
while :; do
  for number in $(seq 200); do
    echo "{\"model\": \"sim\", \"prompt\": \"Summarise document $number\", \"max_tokens\": 64}"
  done | async-processor submit --deadline 5m --wait >/dev/null || echo "not every request succeeded" >&2
  sleep "${PAUSE:-10}"
done
