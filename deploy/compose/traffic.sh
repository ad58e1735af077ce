#!/bin/sh
# Background work of two teams in bursts: 200 requests, the next ones when all have been answered.
while :; do
  for number in $(seq 200); do
    team=$([ $((number % 2)) = 0 ] && echo team-a || echo team-b)
    payload="{\"model\": \"sim\", \"prompt\": \"Summarise document $number\", \"max_tokens\": 64}"
    echo "{\"payload\": $payload, \"metadata\": {\"userid\": \"$team\"}}"
  done | async-processor submit --deadline 5m --wait >/dev/null || echo "not every request succeeded" >&2
  sleep "${PAUSE:-10}"
done
